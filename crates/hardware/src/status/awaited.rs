//! What is waited for, and since when: each thing by itself, so that one that is stuck is found however much moves
//! beside it.
//!
//! In: a [`Plan`], times. Out: what is waited for, what of it takes too long. Never: pods that use devices (who waits
//! for them asked for that), a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster_state::{ClusterState, Config};
use crate::node_states::Ownership;
use crate::plan::{Plan, State};

/// Something that KMM or the kubelet brings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Awaited {
    /// The driver on this node.
    Driver(String),
    /// The device plugin on this node.
    Plugin(String),
    /// This node without the driver of one that is being deleted.
    Unloaded(String),
    /// This image.
    Image(String),
}

/// What is waited for, and since when.
#[derive(Debug, Default)]
pub struct Waits(BTreeMap<Awaited, Instant>);

impl Waits {
    /// This is waited for now: what was already keeps its time.
    pub fn turn(&mut self, awaited: BTreeSet<Awaited>, now: Instant) {
        let since = |one: &Awaited| self.0.get(one).copied().unwrap_or(now);
        self.0 = awaited.into_iter().map(|one| (one.clone(), since(&one))).collect();
    }

    /// What takes longer than `patience`.
    #[must_use]
    pub fn late(&self, patience: Duration, now: Instant) -> BTreeSet<Awaited> {
        self.0.iter().filter(|(_, since)| **since + patience <= now).map(|(one, _)| one.clone()).collect()
    }

    /// When there may be more of it.
    #[must_use]
    pub fn next(&self, patience: Duration, now: Instant) -> Option<Instant> {
        self.0.values().map(|since| *since + patience).filter(|at| *at > now).min()
    }
}

/// What is waited for now.
#[must_use]
pub fn awaited(cluster: &ClusterState, config: &Config, plan: &Plan<'_>) -> BTreeSet<Awaited> {
    let Some(node_states) = &plan.node_states else { return BTreeSet::new() };
    let behind = node_states
        .nodes
        .iter()
        .filter(|state| {
            state.is_desired() && !state.ready || matches!(state.ownership, Ownership::Blocked(_))
        })
        .map(|state| Awaited::Driver(state.name.to_owned()));
    let leaving = match &plan.state {
        State::Leaving(nodes) if plan.round.waiting.is_empty() => nodes.as_slice(),
        _ => &[],
    };
    let leaving = leaving.iter().cloned().map(Awaited::Unloaded);
    let images = super::nodes::missing_images(cluster, node_states).into_keys().map(Awaited::Image);
    let plugins =
        super::nodes::missing_plugins(cluster, config, node_states).into_iter().map(Awaited::Plugin);
    behind.chain(leaving).chain(images).chain(plugins).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_time_of_its_own() {
        let (start, patience) = (Instant::now(), Duration::from_secs(60));
        let at = |second| start + Duration::from_secs(second);
        let nodes = |names: &[&str]| names.iter().map(|name| Awaited::Driver((*name).to_owned())).collect();
        let mut waits = Waits::default();
        waits.turn(nodes(&["a", "b"]), start);
        for second in [20, 40] {
            waits.turn(nodes(&["a", &format!("n{second}")]), at(second));
            assert_eq!(waits.late(patience, at(second)), BTreeSet::new());
            assert_eq!(waits.next(patience, at(second)), Some(at(60)));
        }
        waits.turn(nodes(&["a", "n40"]), at(60));
        assert_eq!(waits.late(patience, at(60)), nodes(&["a"]), "whatever moves beside it");
        assert_eq!(waits.next(patience, at(60)), Some(at(100)));
        // Who was there in between begins anew.
        waits.turn(nodes(&["n40"]), at(70));
        waits.turn(nodes(&["a", "n40"]), at(80));
        assert_eq!(waits.late(patience, at(100)), nodes(&["n40"]));
        assert_eq!(waits.next(patience, at(140)), None);
    }
}
