//! Rollout: the nodes that get a version of the driver now.
//!
//! In: the claimed nodes of one DeviceConfig, its policy. Out: [`Step`]s, and what other nodes wait for.
//! Never: more nodes without a working driver because of us than the policy allows; a driver unloaded under a pod
//! unless the policy says so; a write.
//!
//! KMM loads the version that a node's label names. A node without a version gets it at once: no driver is loaded
//! there. A node with another version changes when the policy has room. Before that, and before its release, the node
//! gets the cordon taint, so that no pod arrives between the check of its pods and the change. The taint goes when no
//! driver is to be unloaded there any more. Pods that are not known yet count as using the devices.

use std::collections::BTreeSet;

use api::hardware::PodsUsingDevices;

use super::claim::Id;
use super::node_states::{NodeState, Ownership, Pod, Users};

/// The policy of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy<'a> {
    /// The desired version.
    pub version: &'a str,
    /// The number of nodes that may be without a working driver.
    pub max_unavailable: usize,
    /// The treatment of pods that use the devices.
    pub pods: PodsUsingDevices,
    /// No node changes its version.
    pub paused: bool,
    /// Device names are known, so that pods that use devices can be found.
    pub devices_known: bool,
    /// Nodes that keep their cordon taint for a Module that is about to be written.
    pub reserved: &'a BTreeSet<&'a str>,
}

/// A step of the rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Change this node. If `checked`, verify before that no pod uses the devices.
    Change {
        /// The node.
        node: String,
        /// The change.
        change: NodeChange,
        /// Whether to verify.
        checked: bool,
    },
    /// Evict a pod from this node.
    Evict(String, Id),
}

/// A change of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeChange {
    /// Set the claim, and the version. No step of a rollout.
    Claim,
    /// Set the first version.
    Start,
    /// Set another version.
    Switch,
    /// Keep new pods away.
    AddCordonTaint,
    /// Admit new pods again.
    RemoveCordonTaint,
    /// Remove the claim, the version, and the cordon taint.
    Release,
}

/// The reason why a node keeps its version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// Pods use the devices: the first of them, and their number.
    Pods(String, usize),
    /// Pods use the devices that an eviction brings back at once: the first of them, and their number.
    Returning(String, usize),
    /// The pods that use the devices are not known yet.
    Unknown,
    /// Enough other nodes are without a working driver.
    MaxUnavailable,
    /// Upgrades are paused.
    Paused,
    /// The node is cordoned or otherwise tainted.
    Maintenance,
}

/// The result of one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Steps to do now, in this order.
    pub steps: Vec<Step>,
    /// Nodes that keep their version, with the reason.
    pub waiting: Vec<(String, Wait)>,
    /// Nodes that should have a working driver and have none, for other reasons than a taint or a reboot.
    pub unavailable: Vec<String>,
}

/// The next steps for these nodes. The order of the nodes has no influence.
#[must_use]
pub fn round(policy: &Policy<'_>, nodes: &[&NodeState<'_>]) -> Round {
    let mut nodes = nodes.to_vec();
    nodes.sort_by_key(|node| node.name);
    let (unmatched, matched): (Vec<_>, Vec<_>) =
        nodes.into_iter().partition(|node| node.ownership == Ownership::Unmatched);
    let mut round = Round::default();
    for node in unmatched {
        if !round.when_unused(policy, node, NodeChange::Release) && node.users != Users::Unknown {
            round.remove_cordon_taint(policy, node);
        }
    }
    for node in matched.iter().filter(|node| node.version.is_none()) {
        round.change(node, NodeChange::Start, false);
    }
    let unavailable = matched.iter().filter(|node| node.is_unavailable());
    round.unavailable = unavailable.map(|node| node.name.to_owned()).collect();

    let mut chosen = BTreeSet::new();
    let mut room = policy.max_unavailable.saturating_sub(round.unavailable.len());
    let is_outdated = |node: &&&NodeState<'_>| node.version.is_some_and(|version| version != policy.version);
    let mut outdated: Vec<&&NodeState<'_>> = matched.iter().filter(is_outdated).collect();
    // Nodes without a working driver take no room. Tainted nodes come before others, so that few have the taint.
    outdated.sort_by_key(|node| (node.ready && node.is_supported(), !node.is_cordon_tainted(), node.name));
    for node in outdated {
        if round.switch(policy, node, &mut room) {
            chosen.insert(node.name);
        }
    }
    for node in matched.iter().filter(|node| !chosen.contains(node.name)) {
        round.remove_cordon_taint(policy, node);
    }
    round
}

/// The steps before the driver is unloaded from all of these nodes at once. Cordon taints stay: a pod that came now
/// would lose its device, or keep the driver there for ever. Pods are evicted once all nodes have the taint, since they
/// would move to a node without it.
#[must_use]
pub fn clear(policy: PodsUsingDevices, nodes: &[&NodeState<'_>]) -> Round {
    // One pod that always comes back keeps all nodes waiting, so none is evicted in vain.
    let returning = nodes.iter().any(|node| node.users.returning().next().is_some());
    let evict = policy == PodsUsingDevices::Evict && !returning;
    let all_tainted = nodes.iter().all(|node| node.is_cordon_tainted());
    let mut round = Round::default();
    for node in nodes {
        let is_known = node.users != Users::Unknown;
        if is_known && (evict || !node.users.any()) && !node.is_cordon_tainted() {
            round.change(node, NodeChange::AddCordonTaint, false);
        }
        match &node.users {
            Users::Unknown => round.wait(node, Wait::Unknown),
            Users::Pods(pods) if pods.is_empty() => {}
            Users::Pods(pods) if evict && all_tainted => round.evict(node, pods),
            Users::Pods(pods) => {
                let returning = wait_for_returning(&node.users).filter(|_| policy == PodsUsingDevices::Evict);
                round.wait(node, returning.unwrap_or_else(|| wait_for(pods)));
            }
        }
    }
    round
}

impl Round {
    /// Changes the version of a node, if the policy allows it now. Returns whether the node is being changed.
    fn switch(&mut self, policy: &Policy<'_>, node: &NodeState<'_>, room: &mut usize) -> bool {
        let cost = usize::from(node.ready && node.is_supported());
        let (is_tainted, is_full) = (node.taint.is_some() && node.is_supported(), *room < cost);
        if policy.paused || is_tainted || is_full {
            let reason = match (policy.paused, is_tainted) {
                (true, _) => Wait::Paused,
                (false, true) => Wait::Maintenance,
                (false, false) => Wait::MaxUnavailable,
            };
            self.wait(node, reason);
            return false;
        }
        let changes = self.when_unused(policy, node, NodeChange::Switch);
        if changes {
            *room -= cost;
        }
        changes
    }

    /// Makes a change once no pod uses the devices, and before that what frees them. Returns whether the node is on
    /// its way, and does not just wait for pods.
    fn when_unused(&mut self, policy: &Policy<'_>, node: &NodeState<'_>, change: NodeChange) -> bool {
        let is_checked = policy.devices_known && policy.pods != PodsUsingDevices::Ignore;
        let wait = match &node.users {
            _ if !is_checked => None,
            Users::Unknown => Some(Wait::Unknown),
            Users::Pods(pods) if policy.pods == PodsUsingDevices::Wait => {
                (!pods.is_empty()).then(|| wait_for(pods))
            }
            // The taint does not keep them away. Between two of them the driver would be unloaded under the second.
            users => wait_for_returning(users),
        };
        if let Some(wait) = wait {
            self.wait(node, wait);
            return false;
        }
        match &node.users {
            Users::Pods(_) if is_checked && !node.is_cordon_tainted() => {
                self.change(node, NodeChange::AddCordonTaint, false);
            }
            Users::Pods(pods) if is_checked && !pods.is_empty() => self.evict(node, pods),
            _ => self.change(node, change, is_checked),
        }
        true
    }

    /// Removes a cordon taint that is no longer needed.
    fn remove_cordon_taint(&mut self, policy: &Policy<'_>, node: &NodeState<'_>) {
        if node.is_cordon_tainted() && !node.is_unloading() && !policy.reserved.contains(node.name) {
            self.change(node, NodeChange::RemoveCordonTaint, false);
        }
    }

    fn evict(&mut self, node: &NodeState<'_>, pods: &[Pod]) {
        let running = pods.iter().filter(|pod| !pod.terminating);
        self.steps.extend(running.map(|pod| Step::Evict(node.name.to_owned(), pod.id.clone())));
        self.wait(node, wait_for(pods));
    }

    fn change(&mut self, node: &NodeState<'_>, change: NodeChange, checked: bool) {
        self.steps.push(Step::Change { node: node.name.to_owned(), change, checked });
    }

    fn wait(&mut self, node: &NodeState<'_>, reason: Wait) {
        self.waiting.push((node.name.to_owned(), reason));
    }
}

fn wait_for(pods: &[Pod]) -> Wait {
    let first = pods.iter().min().map(|pod| pod.id.to_string());
    Wait::Pods(first.unwrap_or_default(), pods.len())
}

fn wait_for_returning(users: &Users) -> Option<Wait> {
    let first = users.returning().min()?.id.to_string();
    Some(Wait::Returning(first, users.returning().count()))
}

#[cfg(test)]
mod tests;
