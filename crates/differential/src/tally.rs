//! How often what was compared.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use sim::admit::session::Session;
use sim::admit::verdict::Verdict;

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
    /// Admitted pods by the number of zones of their memory; 0 if no memory is pinned.
    pub zones: BTreeMap<usize, u64>,
    /// Pods with devices.
    pub devices: u64,
}

impl Tally {
    pub(crate) fn start(&mut self, _session: &Session, ok: bool) {
        self.sessions += 1;
        self.refused += u64::from(!ok);
    }

    pub(crate) fn restart(&mut self) {
        self.restarts += 1;
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
            let blocks = verdict.containers.iter().flat_map(|container| &container.memory);
            *self.zones.entry(blocks.map(|block| block.zones.len()).max().unwrap_or(0)).or_default() += 1;
            self.devices +=
                u64::from(verdict.containers.iter().any(|container| !container.devices.is_empty()));
        } else {
            *self.reasons.entry(verdict.reason.clone()).or_default() += 1;
        }
    }
}
