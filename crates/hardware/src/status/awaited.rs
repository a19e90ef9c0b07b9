//! Changes that are awaited, each with its own time, so that one stuck change is found however many others go on.
//!
//! In: a [`Plan`], times. Out: awaited changes, and those that take too long. Never: pods that use devices, which a
//! policy may let run; a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::nodes::{missing_images, missing_plugins};
use crate::cluster_state::{ClusterState, Config};
use crate::node_states::Ownership;
use crate::plan::{ConfigState, Plan};

/// A change that KMM or the kubelet makes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Awaited {
    /// The driver is ready on this node.
    Driver(String),
    /// The device plugin runs on this node.
    Plugin(String),
    /// The driver is unloaded from this node, as the DeviceConfig is being deleted.
    Unloaded(String),
    /// This image exists.
    Image(String),
}

/// Awaited changes, each with the time since when.
#[derive(Debug, Default)]
pub struct Waits(BTreeMap<Awaited, Instant>);

impl Waits {
    /// Replaces the awaited changes. A change that was awaited before keeps its time.
    pub fn update(&mut self, awaited: BTreeSet<Awaited>, now: Instant) {
        let since = |one: &Awaited| self.0.get(one).copied().unwrap_or(now);
        self.0 = awaited.into_iter().map(|one| (one.clone(), since(&one))).collect();
    }

    /// Changes that take longer than `patience`.
    #[must_use]
    pub fn late(&self, patience: Duration, now: Instant) -> BTreeSet<Awaited> {
        self.0.iter().filter(|(_, since)| **since + patience <= now).map(|(one, _)| one.clone()).collect()
    }

    /// The time of the next late change.
    #[must_use]
    pub fn next(&self, patience: Duration, now: Instant) -> Option<Instant> {
        self.0.values().map(|since| *since + patience).filter(|at| *at > now).min()
    }
}

/// The changes that are awaited now.
#[must_use]
pub fn awaited(cluster: &ClusterState, config: &Config, plan: &Plan<'_>) -> BTreeSet<Awaited> {
    let Some(node_states) = &plan.node_states else { return BTreeSet::new() };
    let not_ready = node_states.nodes.iter().filter(|state| {
        state.is_desired() && !state.ready || matches!(state.ownership, Ownership::Blocked(_))
    });
    let not_ready = not_ready.map(|state| Awaited::Driver(state.name.to_owned()));
    let loaded = match &plan.state {
        ConfigState::Deleting(nodes) if plan.round.waiting.is_empty() => nodes.as_slice(),
        _ => &[],
    };
    let loaded = loaded.iter().cloned().map(Awaited::Unloaded);
    let images = missing_images(cluster, node_states).into_keys().map(Awaited::Image);
    let plugins = missing_plugins(cluster, config, node_states).into_iter().map(Awaited::Plugin);
    not_ready.chain(loaded).chain(images).chain(plugins).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_has_its_own_time() {
        let (start, patience) = (Instant::now(), Duration::from_secs(60));
        let at = |second| start + Duration::from_secs(second);
        let nodes = |names: &[&str]| names.iter().map(|name| Awaited::Driver((*name).to_owned())).collect();
        let mut waits = Waits::default();
        waits.update(nodes(&["a", "b"]), start);
        for second in [20, 40] {
            waits.update(nodes(&["a", &format!("n{second}")]), at(second));
            assert_eq!(waits.late(patience, at(second)), BTreeSet::new());
            assert_eq!(waits.next(patience, at(second)), Some(at(60)));
        }
        waits.update(nodes(&["a", "n40"]), at(60));
        assert_eq!(waits.late(patience, at(60)), nodes(&["a"]), "other changes have no influence");
        assert_eq!(waits.next(patience, at(60)), Some(at(100)));
        // A change that is awaited again begins anew.
        waits.update(nodes(&["n40"]), at(70));
        waits.update(nodes(&["a", "n40"]), at(80));
        assert_eq!(waits.late(patience, at(100)), nodes(&["n40"]));
        assert_eq!(waits.next(patience, at(140)), None);
    }
}
