//! A run replayed: when each pod could have been placed in the state that the cluster had at that time.
//!
//! In: machines, pods, and the times and nodes of a run. Out: for each pod when and for how long. Never: chance, or a
//! node other than that of the run for a pod that was bound.
//!
//! The simulator's kubelets take and release the pods as the real ones did. After each event, perfect knowledge
//! without latency places the waiting pods on copies of them, the oldest first; so a pod waits for pods before it, for
//! ends, and for nothing else. A place may be gone again before any scheduler can know of it: where an init container
//! goes decides where the main one has to go, and a pod that ends elsewhere changes it. Cost: events x waiting pods x
//! nodes admissions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use scheduler::pod::Spec;
use sim::kubelet::Kubelet;
use sim::machine::Machine;
use sim::workload::Workload;
use testkit::load::Record;
use topology::fingerprint::PodHash;
use topology::request::PodRequest;

use super::ideal::{sim_shape, simulated_waves};
use super::{Args, Durations, Row};
use crate::bench::rig::TOPO_AWARE;

/// What happens to a pod. At the same time an end comes first, and a pod is created before it is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PodEvent {
    Ended,
    Created,
    Bound,
}

/// A pod as a kubelet is asked to admit it.
struct PodToAdmit {
    spec: Arc<Spec>,
    request: Arc<PodRequest>,
}

/// The cluster as the replay goes on.
struct Replay {
    pods: Vec<PodToAdmit>,
    /// The node of each pod in the run; `None`: it never was bound.
    nodes: Vec<Option<usize>>,
    kubelets: Vec<Kubelet>,
    /// Pods that are not bound, by number: the oldest first.
    waiting: BTreeSet<usize>,
    /// Pods that are bound, but do not fit before an end that is seen later.
    refused: BTreeSet<usize>,
    placeable: Vec<Placeable>,
    /// Waiting pods that have a place since the last event.
    placeable_now: BTreeSet<usize>,
    /// The time of the last event, in seconds.
    now_s: f64,
}

/// When a pod had a place and was not bound, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Placeable {
    /// The first time after the start of the run. A pod that was bound earlier than it fits counts from its binding.
    first_s: Option<f64>,
    /// How long in all.
    lasted_s: f64,
}

/// What perfect knowledge without latency makes of the state that the cluster had at each time of a run of ours.
/// `records` are by arrival; those of another scheduler take their places, but do not count.
pub(super) fn ideal_in_same_state(args: &Args, records: &[Record]) -> anyhow::Result<Row> {
    let machines = sim_shape(args)?.machines(args.nodes)?;
    let (mut waits_s, mut late_s) = (Vec::new(), Vec::new());
    let mut rest = records;
    for wave in simulated_waves(args, None)? {
        let (records, later) = rest.split_at(wave.arrivals.len().min(rest.len()));
        rest = later;
        let own = records.iter().zip(placeable(&wave, &machines, records));
        for (record, placeable) in own.filter(|(record, _)| record.scheduler == TOPO_AWARE) {
            waits_s.extend(placeable.first_s.map(|first_s| first_s - record.created_s));
            late_s.extend(record.scheduled_s.map(|_| placeable.lasted_s));
        }
    }
    let (waits, late) =
        (Durations::of_seconds(waits_s.into_iter()), Durations::of_seconds(late_s.into_iter()));
    let of_late = |percent| late.percentile_s(percent).unwrap_or_default();
    Ok(Row {
        pods: records.iter().filter(|record| record.scheduler == TOPO_AWARE).count(),
        running: waits.len(),
        p50_s: waits.percentile_s(50),
        p95_s: waits.percentile_s(95),
        late_s: Some([50, 95, 100].map(of_late)),
        ..Row::new("ideal, same state", args)
    })
}

/// When each pod had a place, by arrival. `records` are by arrival, those of one wave.
fn placeable(wave: &Workload, machines: &[Machine], records: &[Record]) -> Vec<Placeable> {
    let pods = wave.specs().into_iter().zip(wave.requests());
    let mut replay = Replay {
        pods: pods.map(|(spec, request)| PodToAdmit { spec, request }).collect(),
        nodes: nodes(records),
        kubelets: machines.iter().map(Kubelet::new).collect(),
        waiting: BTreeSet::new(),
        refused: BTreeSet::new(),
        placeable: vec![Placeable::default(); records.len()],
        placeable_now: BTreeSet::new(),
        now_s: 0.0,
    };
    for (at_s, event, pod) in events(records) {
        replay.apply(at_s, event, pod);
    }
    replay.placeable
}

/// The node of each pod by number. Nodes are alike, so they are numbered as they come.
fn nodes(records: &[Record]) -> Vec<Option<usize>> {
    let names: BTreeSet<&str> = records.iter().filter_map(|record| record.node.as_deref()).collect();
    let numbers: BTreeMap<&str, usize> = names.into_iter().zip(0..).collect();
    records.iter().map(|record| numbers.get(record.node.as_deref()?).copied()).collect()
}

/// All that happened, in order.
fn events(records: &[Record]) -> Vec<(f64, PodEvent, usize)> {
    let of_pod = |(pod, record): (usize, &Record)| {
        let bound = record.scheduled_s.map(|at_s| (at_s, PodEvent::Bound, pod));
        let ended = record.ended_s.map(|at_s| (at_s, PodEvent::Ended, pod));
        [Some((record.created_s, PodEvent::Created, pod)), bound, ended].into_iter().flatten()
    };
    let mut events: Vec<_> = records.iter().enumerate().flat_map(of_pod).collect();
    events.sort_by(|(at_s, event, pod), (other_s, other, after)| {
        at_s.total_cmp(other_s).then((event, pod).cmp(&(other, after)))
    });
    events
}

impl Replay {
    fn apply(&mut self, at_s: f64, event: PodEvent, pod: usize) {
        for pod in std::mem::take(&mut self.placeable_now) {
            self.placeable[pod].lasted_s += at_s - self.now_s;
        }
        self.now_s = at_s;
        match event {
            PodEvent::Created => _ = self.waiting.insert(pod),
            PodEvent::Bound => {
                self.waiting.remove(&pod);
                self.refused.insert(pod);
                self.placeable[pod].first_s.get_or_insert(at_s);
            }
            PodEvent::Ended => {
                self.waiting.remove(&pod);
                self.refused.remove(&pod);
                self.kubelets.iter_mut().for_each(|kubelet| kubelet.release(pod));
            }
        }
        for pod in self.refused.clone() {
            let Some(node) = self.nodes[pod] else { continue };
            if admits(&mut self.kubelets[node], &self.pods[pod], pod) {
                self.refused.remove(&pod);
            }
        }
        self.place_waiting();
    }

    /// Places the waiting pods on copies of the kubelets: on the node of the run, if it admits the pod, or else on the
    /// first. A node whose kubelet has yet to take a bound pod takes no other.
    fn place_waiting(&mut self) {
        let owed: BTreeSet<usize> = self.refused.iter().filter_map(|&pod| self.nodes[pod]).collect();
        let mut kubelets = self.kubelets.clone();
        for &pod in &self.waiting {
            let own = self.nodes[pod];
            let others = (0..kubelets.len()).filter(|node| Some(*node) != own);
            let mut nodes = own.into_iter().chain(others).filter(|node| !owed.contains(node));
            if nodes.any(|node| admits(&mut kubelets[node], &self.pods[pod], pod)) {
                self.placeable[pod].first_s.get_or_insert(self.now_s);
                self.placeable_now.insert(pod);
            }
        }
    }
}

fn admits(kubelet: &mut Kubelet, input: &PodToAdmit, pod: usize) -> bool {
    let hash = PodHash::of("default", &Workload::pod_name(pod));
    kubelet.admit(pod, &input.spec, &input.request, hash).is_ok()
}

#[cfg(test)]
mod tests {
    use sim::machine::Shape;
    use sim::workload::Arrival;

    use super::*;

    /// CPUs, and seconds of creation, binding and end.
    type PodTimes = (u32, f64, Option<f64>, Option<f64>);

    /// The first times, and how long in all, for pods on one node of one zone with 4 CPUs for pods.
    fn times(cases: &[PodTimes]) -> Vec<(Option<f64>, f64)> {
        let machines = Shape::even(1, 5).and_then(|shape| shape.machines(1)).unwrap();
        let arrivals = cases.iter().map(|(cpus, ..)| Arrival::new(0, *cpus, 0)).collect();
        let record = |(number, &(cpus, created_s, scheduled_s, ended_s)): (usize, &PodTimes)| Record {
            name: Workload::pod_name(number),
            scheduler: TOPO_AWARE.to_owned(),
            cpus,
            created_s,
            scheduled_s,
            running_s: scheduled_s,
            ended_s,
            node: scheduled_s.map(|_| "node".to_owned()),
            lost: None,
        };
        let records: Vec<Record> = cases.iter().enumerate().map(record).collect();
        let placeable = placeable(&Workload { max_pending: None, arrivals }, &machines, &records);
        placeable.into_iter().map(|placeable| (placeable.first_s, placeable.lasted_s)).collect()
    }

    #[test]
    fn a_pod_waits_for_ends_and_for_older_pods() {
        type Expected<'a> = &'a [(Option<f64>, f64)];
        let cases: [(&str, &[PodTimes], Expected<'_>); 5] = [
            ("an empty node takes it at once", &[(4, 0.0, Some(2.0), None)], &[(Some(0.0), 2.0)]),
            ("a pod that fits nowhere is never placed", &[(5, 0.0, None, None)], &[(None, 0.0)]),
            (
                "of two that wait the older one comes first",
                &[
                    (4, 0.0, Some(0.0), Some(10.0)),
                    (4, 1.0, Some(10.5), Some(20.0)),
                    (4, 2.0, Some(20.25), None),
                ],
                &[(Some(0.0), 0.0), (Some(10.0), 0.5), (Some(20.0), 0.25)],
            ),
            (
                "a younger one passes an older one, whose place is taken again",
                &[
                    (2, 0.0, Some(0.0), Some(9.0)),
                    (4, 9.0, Some(13.0), None),
                    (2, 9.0, Some(9.5), Some(12.0)),
                ],
                &[(Some(0.0), 0.0), (Some(9.0), 1.5), (Some(9.5), 0.0)],
            ),
            (
                "an end that is seen after the next pod was bound",
                &[(4, 0.0, Some(0.0), Some(10.0)), (4, 1.0, Some(9.5), None), (4, 2.0, None, None)],
                &[(Some(0.0), 0.0), (Some(9.5), 0.0), (None, 0.0)],
            ),
        ];
        for (what, pods, expected) in cases {
            assert_eq!(times(pods), expected, "{what}");
        }
    }
}
