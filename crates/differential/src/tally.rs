//! How often what was compared.

use std::collections::{BTreeMap, BTreeSet};

use node::kubelet::machine::Node;
use serde::Serialize;
use sim::admit::session::Session;
use sim::admit::verdict::{ContainerVerdict, Resized, Verdict};
use topology::cpuset::CpuSet;

/// Counts of a search.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tally {
    /// Pods compared.
    pub admissions: u64,
    /// Sessions with a difference.
    pub mismatches: u64,
    /// Kubelets compared.
    pub sessions: u64,
    /// Kubelets that refused to start.
    pub refused: u64,
    /// Restarts compared.
    pub restarts: u64,
    /// Resizes compared, by what became of them.
    pub resizes: BTreeMap<String, u64>,
    /// Sessions that ended where the kubelet's memory depends on chance.
    pub by_chance: u64,
    /// Pods admitted.
    pub admitted: u64,
    /// Admissions by policy.
    pub policies: BTreeMap<String, u64>,
    /// Admissions by scope.
    pub scopes: BTreeMap<String, u64>,
    /// Admissions by the set of CPU manager options.
    pub options: BTreeMap<String, u64>,
    /// Rejections by reason.
    pub reasons: BTreeMap<String, u64>,
    /// Admitted pods by the most zones that a container's CPUs or memory span; 0 if nothing is pinned.
    pub zones: BTreeMap<usize, u64>,
    /// Admitted pods of which a container holds CPUs or memory of several zones.
    pub multi_zone: u64,
    /// Pods with devices.
    pub devices: u64,
}

impl Tally {
    /// Adds the counts of another part of the search.
    pub fn add(&mut self, other: Self) {
        self.admissions += other.admissions;
        self.mismatches += other.mismatches;
        self.sessions += other.sessions;
        self.refused += other.refused;
        self.restarts += other.restarts;
        self.by_chance += other.by_chance;
        self.admitted += other.admitted;
        self.multi_zone += other.multi_zone;
        self.devices += other.devices;
        let add = |mine: &mut BTreeMap<String, u64>, theirs: BTreeMap<String, u64>| {
            theirs.into_iter().for_each(|(name, count)| *mine.entry(name).or_default() += count);
        };
        add(&mut self.resizes, other.resizes);
        add(&mut self.policies, other.policies);
        add(&mut self.scopes, other.scopes);
        add(&mut self.options, other.options);
        add(&mut self.reasons, other.reasons);
        other.zones.into_iter().for_each(|(zones, count)| *self.zones.entry(zones).or_default() += count);
    }

    pub(crate) fn start(&mut self, _session: &Session, ok: bool) {
        self.sessions += 1;
        self.refused += u64::from(!ok);
    }

    pub(crate) fn restart(&mut self) {
        self.restarts += 1;
    }

    pub(crate) fn resize(&mut self, resized: &Resized) {
        let became = if resized.resized { "Resized" } else { &resized.reason };
        *self.resizes.entry(became.to_owned()).or_default() += 1;
    }

    pub(crate) fn admission(&mut self, session: &Session, verdict: &Verdict) {
        self.admissions += 1;
        let text = |field: &str| session.kubelet[field].as_str().unwrap_or_default().to_owned();
        *self.policies.entry(text("topologyManagerPolicy")).or_default() += 1;
        *self.scopes.entry(text("topologyManagerScope")).or_default() += 1;
        let options = session.kubelet["cpuManagerPolicyOptions"].as_object();
        let names: BTreeSet<&str> = options.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        *self.options.entry(names.into_iter().collect::<Vec<_>>().join("+")).or_default() += 1;
        if verdict.admitted {
            self.admitted += 1;
            let most =
                verdict.containers.iter().map(|container| spans(session, container)).max().unwrap_or(0);
            *self.zones.entry(most).or_default() += 1;
            self.multi_zone += u64::from(most > 1);
            self.devices +=
                u64::from(verdict.containers.iter().any(|container| !container.devices.is_empty()));
        } else {
            *self.reasons.entry(verdict.reason.clone()).or_default() += 1;
        }
    }
}

/// The zones of a container's CPUs or of its memory, whichever are more.
fn spans(session: &Session, container: &ContainerVerdict) -> usize {
    let memory = container.memory.iter().map(|block| block.zones.len()).max().unwrap_or(0);
    let cpus = CpuSet::parse(&container.cpus).unwrap_or_default();
    let has_cpu = |node: &&Node| {
        node.cores.iter().flatten().flat_map(|core| &core.thread_ids).any(|thread| cpus.contains(*thread))
    };
    memory.max(session.machine.topology.iter().filter(has_cpu).count())
}
