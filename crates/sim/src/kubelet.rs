//! The model as a kubelet: it admits, holds and releases pods on one machine, and reports what is free.
//!
//! In: pods in the order in which the kubelet sees them. Out: admissions, rejections and reports. Never: time, or a
//! decision of its own: admission is `topology::admit`, and the check of totals is the one of kube-scheduler, which the
//! kubelet runs as well.

use std::collections::BTreeMap;
use std::sync::Arc;

use scheduler::node::{Node, NodeView};
use topology::admit::{self, Grant, Placement, Scratch};
use topology::fingerprint::{Fingerprint, Method, PodHash};
use topology::policy::{Policy, Rules};
use topology::reason::Misfit;
use topology::request::PodNeeds;
use topology::resource::ResourceName;
use topology::zone::{Free, NodeTopology};

use crate::machine::{Machine, cpu_milli};

/// Why the kubelet rejects a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// `TopologyAffinityError`.
    Topology(Misfit),
    /// `OutOfcpu` and the like: the node as a whole has too little.
    OutOf(ResourceName),
}

/// Whether the kubelet gave a pod all it aligns from one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// From one zone for each container or the pod, as the scope says; or there was nothing to align.
    Aligned,
    /// From several zones, under `best-effort`.
    Misaligned,
    /// Not known: the policy `none` does not ask for zones.
    Unknown,
}

/// The kubelet of one machine.
#[derive(Debug)]
pub struct Kubelet {
    view: NodeView,
    topology: Arc<NodeTopology>,
    /// Amounts that the resource managers can still allocate.
    free: Free,
    /// Amounts that podresources shows as free: more than `free` while finished init containers keep resources.
    visible: Free,
    totals: Node,
    pods: BTreeMap<usize, AdmittedPod>,
    residents: Vec<FingerprintedPod>,
    /// Number of changes, for the exporter.
    changes: u64,
    scratch: Scratch,
}

/// A pod that the kubelet has admitted.
#[derive(Debug)]
struct AdmittedPod {
    needs: Arc<PodNeeds>,
    placement: Placement,
    signed: FingerprintedPod,
}

/// The part of a pod that fingerprints cover.
#[derive(Clone, Copy, Debug)]
struct FingerprintedPod {
    hash: PodHash,
    /// Whether podresources shows exclusive resources of the pod.
    exclusive: bool,
}

impl Kubelet {
    /// A kubelet that already runs the machine's residents.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        let free = machine.topology.available();
        let rules = machine.topology.rules;
        let mut totals = Node::default();
        machine.residents.iter().for_each(|pod| totals.add(&pod.spec.needs));
        let signed = machine.residents.iter().map(|pod| FingerprintedPod {
            hash: pod.hash,
            exclusive: admit::is_exclusive(rules, &free, &pod.spec.needs),
        });
        Self {
            view: machine.view.clone(),
            topology: Arc::clone(&machine.topology),
            visible: free.clone(),
            residents: signed.collect(),
            free,
            totals,
            pods: BTreeMap::new(),
            changes: 0,
            scratch: Scratch::default(),
        }
    }

    /// Admits a pod: the topology manager first, then the totals, as the kubelet does.
    ///
    /// # Errors
    /// The [`Rejection`].
    pub fn admit(
        &mut self,
        pod: usize,
        needs: &Arc<PodNeeds>,
        hash: PodHash,
    ) -> Result<Alignment, Rejection> {
        let rules = self.topology.rules;
        let (placement, alignment) = self.place(needs).map_err(Rejection::Topology)?;
        if let Some(resource) = self.totals.shortages(&self.view, needs).next() {
            return Err(Rejection::OutOf(resource));
        }
        placement.charge(&mut self.free);
        adjust(&mut self.visible, &placement, -1);
        self.totals.add(needs);
        let exclusive = admit::is_exclusive(rules, &self.free, needs);
        let held =
            AdmittedPod { needs: Arc::clone(needs), placement, signed: FingerprintedPod { hash, exclusive } };
        let twice = self.pods.insert(pod, held);
        debug_assert!(twice.is_none(), "pod {pod} is admitted twice");
        debug_assert!(!self.free.has_debt(), "more is handed out than there is");
        self.changes += 1;
        Ok(alignment)
    }

    /// The zones of a pod. `best-effort` prefers one zone, and takes what is free elsewhere if none has enough.
    fn place(&mut self, needs: &PodNeeds) -> Result<(Placement, Alignment), Misfit> {
        let rules = self.topology.rules;
        if rules.policy.enforces() {
            let placement = admit::admit(rules, &self.free, needs, &mut self.scratch)?;
            return Ok((placement, Alignment::Aligned));
        }
        if rules.policy != Policy::BestEffort {
            return Ok((Placement::default(), Alignment::Unknown));
        }
        let strict = Rules { policy: Policy::SingleNumaNode, ..rules };
        match admit::admit(strict, &self.free, needs, &mut self.scratch) {
            Ok(placement) => Ok((placement, Alignment::Aligned)),
            Err(_) => Ok((self.spread(strict, needs), Alignment::Misaligned)),
        }
    }

    /// The pod's amounts, taken from the zones in their order.
    fn spread(&self, rules: Rules, needs: &PodNeeds) -> Placement {
        let mut placement = Placement::default();
        for need in &needs.totals {
            let Some(column) = admit::charged_column(rules, &self.free, needs.qos, *need) else { continue };
            let mut missing = need.amount;
            for row in 0..self.free.layout().zones().len() {
                let taken = missing.min(self.free.get(row, column).max(0));
                missing -= taken;
                if let (Ok(cell), true) = (u32::try_from(self.free.index(row, column)), taken > 0) {
                    placement.grants.push(Grant { cell, held: taken, visible: taken });
                }
            }
        }
        placement.grants.sort_unstable_by_key(|grant| grant.cell);
        placement
    }

    /// Releases a pod's resources. Unknown pods change nothing.
    pub fn release(&mut self, pod: usize) {
        let Some(held) = self.pods.remove(&pod) else { return };
        held.placement.release(&mut self.free);
        adjust(&mut self.visible, &held.placement, 1);
        self.totals.remove(&held.needs);
        self.changes += 1;
    }

    /// The report that an exporter would make now. `method` selects the pods that the fingerprint covers; `None`: no
    /// fingerprint.
    #[must_use]
    pub fn report(&self, method: Option<Method>) -> NodeTopology {
        let mut report = NodeTopology::clone(&self.topology);
        for zone in &mut report.zones {
            for resource in &mut zone.resources {
                resource.available = self.visible.amount(zone.id, resource.name);
            }
        }
        report.fingerprint = method.map(|method| {
            let all = self.residents.iter().chain(self.pods.values().map(|held| &held.signed));
            let counted = all.filter(|pod| method == Method::All || pod.exclusive);
            (Fingerprint::of(&mut counted.map(|pod| pod.hash).collect::<Vec<_>>()), method)
        });
        report
    }

    /// Number of changes so far; a report is new when the number has grown.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Amounts that the resource managers can still allocate, by zone.
    #[must_use]
    pub fn free(&self) -> &Free {
        &self.free
    }

    /// Pods of the workload on this kubelet, with their placements; residents are not among them.
    pub fn placements(&self) -> impl Iterator<Item = (usize, &Placement)> + '_ {
        self.pods.iter().map(|(pod, held)| (*pod, &held.placement))
    }

    /// CPU requests of all its pods, in thousandths.
    #[must_use]
    pub fn used_milli(&self) -> i64 {
        cpu_milli(&self.totals.used)
    }

    /// Allocatable CPU of the node, in thousandths.
    #[must_use]
    pub fn allocatable_milli(&self) -> i64 {
        self.view.allocatable(ResourceName::CPU)
    }

    /// Free CPU, in thousandths, that is out of reach of a pod with `milli` because it is scattered over zones: all of
    /// it while the zones together have enough and no single zone has; else 0.
    #[must_use]
    pub fn stranded_milli(&self, milli: i64) -> i64 {
        if !self.topology.rules.policy.enforces() {
            return 0;
        }
        let Some(column) = self.free.layout().column(ResourceName::CPU) else { return 0 };
        let zones = (0..self.free.layout().zones().len()).map(|row| self.free.get(row, column).max(0));
        let (sum, most) =
            zones.fold((0_i64, 0), |(sum, most), free| (sum.saturating_add(free), most.max(free)));
        if sum >= milli && most < milli { sum } else { 0 }
    }
}

fn adjust(visible: &mut Free, placement: &Placement, sign: i64) {
    placement.grants.iter().for_each(|grant| visible.add(grant.cell as usize, sign * grant.visible));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Shape;
    use crate::workload::{Arrival, ContainerResources, Workload};

    fn kubelet(shape: &str) -> Kubelet {
        let shape: Shape = shape.parse().unwrap();
        Kubelet::new(&shape.machines(1).unwrap()[0])
    }

    fn admit(kubelet: &mut Kubelet, pod: usize, arrival: Arrival) -> Result<Alignment, String> {
        let workload = Workload { max_pending: None, arrivals: vec![arrival] };
        let name = Workload::pod_name(pod);
        kubelet
            .admit(pod, &workload.specs()[0].needs, PodHash::of("sim", &name))
            .map_err(|e| format!("{e:?}"))
    }

    #[test]
    fn rejects_what_fits_the_node_but_no_zone() {
        let mut kubelet = kubelet("2x4");
        admit(&mut kubelet, 0, Arrival::new(0, 2, 0)).unwrap();
        admit(&mut kubelet, 1, Arrival::new(0, 2, 0)).unwrap();
        assert_eq!(kubelet.used_milli(), 4_000);
        assert_eq!((kubelet.stranded_milli(3_000), kubelet.stranded_milli(2_000)), (3_000, 0));
        let error = admit(&mut kubelet, 2, Arrival::new(0, 3, 0)).unwrap_err();
        assert!(error.contains("Topology") && error.contains("requested: 3000, most: 2000"), "{error}");
        kubelet.release(0);
        kubelet.release(0);
        admit(&mut kubelet, 2, Arrival::new(0, 3, 0)).unwrap();
        assert_eq!((kubelet.used_milli(), kubelet.changes()), (5_000, 4));
    }

    #[test]
    fn best_effort_takes_several_zones_if_none_has_enough() {
        let mut shape: Shape = "2x4".parse().unwrap();
        (shape.rules.policy, shape.reserved_cpus) = (Policy::BestEffort, 0);
        let mut kubelet = Kubelet::new(&shape.machines(1).unwrap()[0]);
        assert_eq!(admit(&mut kubelet, 0, Arrival::new(0, 3, 0)), Ok(Alignment::Aligned));
        assert_eq!(admit(&mut kubelet, 1, Arrival::new(0, 3, 0)), Ok(Alignment::Aligned));
        assert_eq!(admit(&mut kubelet, 2, Arrival::new(0, 2, 0)), Ok(Alignment::Misaligned));
        assert_eq!(kubelet.free().cells()[0], 0);
        kubelet.release(2);
        assert_eq!(kubelet.free().cells()[0], 1_000);
    }

    #[test]
    fn rejects_too_many_pods() {
        let mut shape: Shape = "2x8".parse().unwrap();
        shape.max_pods = 1;
        let mut kubelet = Kubelet::new(&shape.machines(1).unwrap()[0]);
        admit(&mut kubelet, 0, Arrival::new(0, 1, 0)).unwrap();
        let error = admit(&mut kubelet, 1, Arrival::new(0, 1, 0)).unwrap_err();
        assert!(error.contains("OutOf") && error.contains("pods"), "{error}");
    }

    #[test]
    fn reports_hide_what_init_containers_keep() {
        let mut kubelet = kubelet("1x8");
        let mut arrival = Arrival::new(0, 1, 0);
        arrival.init.push(ContainerResources { cpus: 3, memory_mib: 16, devices: BTreeMap::new() });
        admit(&mut kubelet, 0, arrival).unwrap();
        let report = kubelet.report(Some(Method::WithExclusiveResources));
        assert_eq!(report.zones[0].resources[0].available, 6_000);
        let hash = PodHash::of("sim", "pod-00000");
        assert_eq!(report.fingerprint.unwrap().0, Fingerprint::of(&mut [hash]));
        assert_eq!(kubelet.free().cells()[0], 4_000);
    }
}
