//! Pods that still run after `evictionTimeoutSeconds`.
//!
//! In: a [`Plan`], a time. Out: these pods, by node, and the time until there may be more. Never: a pod that was not
//! evicted; a memory: the cordon taint, which is added just before, tells when evictions began.

use std::collections::BTreeSet;
use std::time::Duration;

use api::hardware::PodsUsingDevices;
use jiff::Timestamp;

use crate::cluster_state::Config;
use crate::node_states::{NodeState, Users};
use crate::plan::Plan;
use crate::rollout::Wait;

/// The overdue pods of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// The node.
    pub node: String,
    /// Namespace and name of each pod.
    pub pods: Vec<String>,
    /// The timeout.
    pub after: Duration,
}

/// The overdue pods, and the time until there may be more.
#[must_use]
pub fn overdue(config: &Config, plan: &Plan<'_>, now: Timestamp) -> (Vec<Overdue>, Option<Duration>) {
    let spec = &config.object.spec;
    if spec.pods_using_devices() != PodsUsingDevices::Evict {
        return Default::default();
    }
    let after = spec.upgrade_policy.as_ref().map(|policy| policy.eviction_timeout()).unwrap_or_default();
    let waiting = plan.round.waiting.iter().filter(|(_, wait)| matches!(wait, Wait::Pods(..)));
    let waiting: BTreeSet<&str> = waiting.map(|(node, _)| node.as_str()).collect();
    let states = plan.node_states.iter().flat_map(|states| &states.nodes);
    let (mut found, mut next) = (Vec::new(), None::<Duration>);
    for state in states.filter(|state| waiting.contains(state.name)) {
        let Some(since) = state.cordon_taint_since else { continue };
        let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        match after.checked_sub(passed).filter(|left| !left.is_zero()) {
            Some(left) => next = Some(next.map_or(left, |known| known.min(left))),
            None => found.push(Overdue { node: state.name.to_owned(), pods: pods(state), after }),
        }
    }
    (found, next)
}

fn pods(state: &NodeState<'_>) -> Vec<String> {
    let Users::Pods(pods) = &state.users else { return Vec::new() };
    pods.iter().map(|pod| pod.id.to_string()).collect()
}
