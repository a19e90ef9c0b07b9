//! Pods that were asked to go and are still there after the time that `evictionTimeoutSeconds` gives them.
//!
//! In: a [`Plan`], a time. Out: these pods, by node, and when there may be more. Never: a pod that was not evicted; a
//! memory: since when pods are asked says the fence of their node, which is put up just before.

use std::collections::BTreeSet;
use std::time::Duration;

use api::hardware::PodsUsingDevices;
use jiff::Timestamp;

use crate::cluster_state::Config;
use crate::node_states::NodeState;
use crate::plan::Plan;
use crate::rollout::{Users, Wait};

/// Pods of a node that should have gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// The node.
    pub node: String,
    /// Namespace and name of each pod.
    pub pods: Vec<String>,
    /// How long they had.
    pub after: Duration,
}

/// What is overdue now, and how long it takes until there may be more.
#[must_use]
pub fn overdue(config: &Config, plan: &Plan<'_>, now: Timestamp) -> (Vec<Overdue>, Option<Duration>) {
    let spec = &config.object.spec;
    if spec.pods_using_devices() != PodsUsingDevices::Evict {
        return Default::default();
    }
    let after = spec.upgrade_policy.as_ref().map(|policy| policy.eviction_timeout()).unwrap_or_default();
    let waiting = plan.round.waiting.iter().filter(|(_, wait)| matches!(wait, Wait::Pods(..)));
    let waiting: BTreeSet<&str> = waiting.map(|(node, _)| node.as_str()).collect();
    let (mut found, mut next) = (Vec::new(), None::<Duration>);
    for state in plan
        .node_states
        .iter()
        .flat_map(|node_states| &node_states.nodes)
        .filter(|state| waiting.contains(state.name))
    {
        let Some(since) = state.fenced_since else { continue };
        let asked = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        match after.checked_sub(asked).filter(|left| !left.is_zero()) {
            Some(left) => next = Some(next.map_or(left, |known| known.min(left))),
            None => found.push(Overdue { node: state.name.to_owned(), pods: pods(state), after }),
        }
    }
    (found, next)
}

fn pods(state: &NodeState<'_>) -> Vec<String> {
    let Users::Pods(pods) = &state.users else { return Vec::new() };
    pods.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect()
}
