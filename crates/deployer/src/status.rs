//! How an installation is: exporters, reports, zones, schedulers, pods that were lost or wait, and what to type next.
//!
//! In: [`Evidence`]. Out: a [`Status`]. Never: a finding with reason and remedy; see [`validate`](crate::validate).

pub mod print;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use api::hardware::keys::LEASE as HARDWARE_LEASE;
use api::numaresources::keys::OPERATOR_LEASE;
use serde::Serialize;
use view::cluster::WaitingPod;
use view::totals::ZoneTotals;

use crate::validate::check::pods::is_rejection;
use crate::validate::check::stale;
use crate::validate::evidence::{Area, Evidence, Lease, Pod, Role, Workload};

/// The evidence that a status needs. Kubelets are not asked, which takes a powerful permission.
pub const AREAS: [Area; 7] =
    [Area::Nodes, Area::Definition, Area::Reports, Area::Pods, Area::Workloads, Area::Leases, Area::Events];
/// The time in which a pod was lost lately, in milliseconds.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// A lease counts as held until this multiple of its duration has passed.
const LATE: i64 = 3;

/// How an installation is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// All in all.
    pub state: State,
    /// What to type next.
    pub next: &'static str,
    /// Programs that publish NodeResourceTopology objects.
    pub exporters: Vec<Program>,
    /// The objects that they publish, by node.
    pub reports: Reports,
    /// What is free in zones, as a scheduler has it; unknown without reports or pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zones: Option<ZoneTotals>,
    /// NUMA-aware schedulers.
    pub schedulers: Vec<Program>,
    /// Operators.
    pub controllers: Vec<Program>,
    /// Pods that a kubelet rejected in the last 24 hours, as far as pods and events tell.
    pub lost: Vec<Lost>,
    /// Pods of NUMA-aware schedulers that wait for a node, the oldest first.
    pub waiting: Vec<WaitingPod>,
    /// Why something could not be asked.
    pub unknown: BTreeSet<String>,
}

/// All in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// Neither exporter nor NUMA-aware scheduler is installed.
    #[default]
    Absent,
    /// Something could not be asked.
    Unknown,
    /// Something is missing, not ready or not fresh.
    NotReady,
    /// Everything works.
    Ready,
}

/// A workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Program {
    /// Kind, namespace and name.
    pub workload: String,
    /// Ready pods.
    pub ready: i64,
    /// Wanted pods.
    pub wanted: i64,
    /// The names by which pods choose a scheduler.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scheduler_names: Vec<String>,
    /// Leader election; exporters have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,
}

/// Leader election of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Leader {
    /// This pod leads.
    Held(String),
    /// Nothing holds the lease, or its holder is silent.
    Missing,
    /// No lease is known: election is off, or the configuration was not read.
    NotElected,
}

/// NodeResourceTopology objects, by the names of their nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reports {
    /// Nodes whose report describes their pods.
    pub fresh: usize,
    /// Nodes whose pods change or changed lately, so that their report may follow.
    pub changing: Vec<String>,
    /// Nodes whose report describes other pods.
    pub stale: Vec<String>,
    /// Nodes with an exporter and without a report.
    pub missing: Vec<String>,
    /// Nodes whose report cannot be read, or has no fingerprint to compare.
    pub unknown: Vec<String>,
}

/// A pod that a kubelet rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lost {
    /// Namespace and name.
    pub pod: String,
    /// The reason, such as `TopologyAffinityError`.
    pub reason: String,
    /// The scheduler that had placed it; unknown for pods that are gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
}

impl Status {
    /// The status that evidence shows; of pods only those of the namespace, if there is one.
    #[must_use]
    pub fn of(evidence: &Evidence, namespace: Option<&str>) -> Self {
        let of_role = |wanted: fn(Role) -> bool| {
            let workloads = evidence.workloads.iter().filter(move |workload| wanted(workload.role));
            workloads.map(|workload| Program::of(evidence, workload)).collect::<Vec<_>>()
        };
        let names = evidence.numa_names();
        let is_shown = |of: &str| namespace.is_none_or(|namespace| namespace == of);
        let waits = |pod: &&WaitingPod| names.contains(&*pod.scheduler) && is_shown(&pod.namespace);
        let cluster = evidence.cluster.as_ref();
        let waiting = cluster.into_iter().flat_map(|cluster| &cluster.waiting.pods).filter(waits);
        let mut status = Self {
            exporters: of_role(|role| role == Role::Exporter),
            reports: Reports::of(evidence),
            zones: cluster.map(|cluster| ZoneTotals::of(&cluster.nodes)).filter(|zones| zones.zones > 0),
            schedulers: of_role(|role| role == Role::Scheduler { numa: true }),
            controllers: of_role(|role| role == Role::Controller),
            lost: lost(evidence, is_shown),
            waiting: waiting.cloned().collect(),
            unknown: evidence.gaps.values().cloned().collect(),
            ..Self::default()
        };
        status.state = status.state();
        status.next = status.next();
        status
    }

    fn state(&self) -> State {
        let programs = || self.exporters.iter().chain(&self.schedulers).chain(&self.controllers);
        let has_reports = self.reports.nodes() > 0 && self.reports.are_good();
        if !self.unknown.is_empty() {
            State::Unknown
        } else if programs().next().is_none() && self.reports == Reports::default() {
            State::Absent
        } else if self.schedulers.is_empty() || !has_reports || !programs().all(Program::is_ready) {
            State::NotReady
        } else {
            State::Ready
        }
    }

    fn next(&self) -> &'static str {
        let is_operated = !self.controllers.is_empty();
        match self.state {
            State::Absent => "tholepin deploy --wait",
            State::NotReady if is_operated && (self.exporters.is_empty() || self.schedulers.is_empty()) => {
                "kubectl describe numaresourcesoperators,numaresourcesschedulers"
            }
            State::NotReady if self.exporters.is_empty() && self.reports.nodes() == 0 => {
                "tholepin deploy exporter --wait"
            }
            State::NotReady if self.schedulers.is_empty() => "tholepin deploy scheduler --wait",
            State::NotReady | State::Unknown => "tholepin validate",
            State::Ready if !self.lost.is_empty() => "tholepin validate --only pod-rejected",
            State::Ready => "tholepin test",
        }
    }
}

impl Program {
    fn of(evidence: &Evidence, workload: &Workload) -> Self {
        let settings = workload.scheduler.as_ref();
        let leader = match workload.role {
            Role::Exporter => None,
            Role::Scheduler { .. } => {
                let key = settings.and_then(|settings| settings.lease.as_ref());
                Some(key.map_or(Leader::NotElected, |key| Leader::of(evidence, evidence.leases.get(key))))
            }
            Role::Controller => {
                let of = |name: &str| evidence.leases.get(&(workload.namespace.clone(), name.to_owned()));
                let lease = [OPERATOR_LEASE, HARDWARE_LEASE].into_iter().find_map(of);
                Some(lease.map_or(Leader::NotElected, |lease| Leader::of(evidence, Some(lease))))
            }
        };
        Self {
            workload: workload.title(),
            ready: workload.ready,
            wanted: workload.desired,
            scheduler_names: settings.map(|settings| settings.profiles.clone()).unwrap_or_default(),
            leader,
        }
    }

    /// Whether all pods are ready, and one leads where one has to.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.wanted > 0 && self.ready >= self.wanted && self.leader != Some(Leader::Missing)
    }
}

impl Leader {
    fn of(evidence: &Evidence, lease: Option<&Lease>) -> Self {
        let is_held = |lease: &&Lease| {
            let limit_ms = lease.duration_s.saturating_mul(LATE * 1000);
            !lease.holder.is_empty() && evidence.age_ms(lease.renewed).is_none_or(|age| age <= limit_ms)
        };
        lease.filter(is_held).map_or(Self::Missing, |lease| Self::Held(lease.holder.clone()))
    }
}

impl Reports {
    fn of(evidence: &Evidence) -> Self {
        let mut reports = Self::default();
        let is_exporter = |pod: &&Pod| pod.role == Some(Role::Exporter) && !pod.is_over() && !pod.deleting;
        let exporting = evidence.pods.values().filter(is_exporter).filter_map(|pod| pod.node.as_ref());
        // A report of a deleted node is none that anything waits for.
        let reported = evidence.reports.keys().filter(|node| evidence.nodes.contains_key(*node));
        let nodes: BTreeSet<&String> = exporting.chain(reported).collect();
        for node in nodes {
            let list = match evidence.reports.get(node).map(|report| (&report.read, &report.object)) {
                None => &mut reports.missing,
                Some((Err(_), _)) => &mut reports.unknown,
                Some((Ok((topology, _)), _)) if topology.fingerprint.is_none() => &mut reports.unknown,
                Some((Ok((topology, _)), object)) => match stale::in_sync(evidence, object, topology) {
                    Some(true) => {
                        reports.fresh += 1;
                        continue;
                    }
                    Some(false) => &mut reports.stale,
                    None => &mut reports.changing,
                },
            };
            list.push(node.clone());
        }
        reports
    }

    /// Whether no report is missing, stale or unreadable. One that may follow a change is neither.
    #[must_use]
    pub fn are_good(&self) -> bool {
        self.stale.is_empty() && self.missing.is_empty() && self.unknown.is_empty()
    }

    /// How many nodes there are.
    #[must_use]
    pub fn nodes(&self) -> usize {
        let lists = [&self.changing, &self.stale, &self.missing, &self.unknown];
        self.fresh + lists.iter().map(|list| list.len()).sum::<usize>()
    }
}

/// The pods that kubelets rejected lately. API servers keep events for an hour, unless told otherwise.
fn lost(evidence: &Evidence, is_shown: impl Fn(&str) -> bool) -> Vec<Lost> {
    let is_lost = |pod: &&Pod| {
        let age = evidence.age_ms(pod.started.or(pod.changed).or(pod.created));
        pod.phase == "Failed" && is_rejection(&pod.reason) && age.is_none_or(|age| age <= DAY_MS)
    };
    let pods: Vec<&Pod> =
        evidence.pods.values().filter(is_lost).filter(|pod| is_shown(&pod.namespace)).collect();
    let there: BTreeSet<&str> = evidence.pods.values().map(|pod| pod.uid.as_str()).collect();
    let gone = evidence.events.iter().filter(|event| !there.contains(event.uid.as_str()));
    let gone = gone.filter(|event| is_shown(&event.namespace)).map(|event| Lost {
        pod: format!("{}/{}", event.namespace, event.name),
        reason: event.reason.clone(),
        scheduler: None,
    });
    let pods = pods.into_iter().map(|pod| Lost {
        pod: pod.key(),
        reason: pod.reason.clone(),
        scheduler: Some(pod.scheduler.clone()),
    });
    pods.chain(gone).collect()
}
