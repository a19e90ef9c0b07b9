//! Rollout: the nodes that get a version of the driver now.
//!
//! In: the nodes of one DeviceConfig as [`RolloutNode`]s, its policy. Out: [`Step`]s, and what other nodes wait for.
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
}

/// The pods that use the devices of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Users {
    /// Not known yet.
    Unknown,
    /// These pods; an empty list means that the devices are free.
    Pods(Vec<Pod>),
}

/// A pod that uses devices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pod {
    /// Namespace and name.
    pub id: Id,
    /// Deletion has begun.
    pub terminating: bool,
}

/// A claimed node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutNode<'a> {
    /// The name.
    pub node: &'a str,
    /// The selector no longer matches: the node is to be released.
    pub unmatched: bool,
    /// The version that its label names.
    pub version: Option<&'a str>,
    /// The loaded version.
    pub loaded: Option<&'a str>,
    /// The driver that the label names is loaded and working.
    pub ready: bool,
    /// The node has our cordon taint.
    pub cordon_tainted: bool,
    /// KMM is about to unload the driver, though its version is that of the label.
    pub stale: bool,
    /// The cordon taint stays for a Module that is about to be written.
    pub reserved: bool,
    /// An image exists for the kernel.
    pub supported: bool,
    /// Other taints keep the driver away, such as a cordon.
    pub maintenance: bool,
    /// The machine has rebooted, and the driver is not loaded again yet.
    pub rebooted: bool,
    /// The pods that use the devices.
    pub users: Users,
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

impl Users {
    /// Whether pods use the devices, or may use them.
    #[must_use]
    pub fn any(&self) -> bool {
        !matches!(self, Self::Pods(pods) if pods.is_empty())
    }

    /// The first of the pods and the number of others, for people; `None` without pods.
    #[must_use]
    pub fn summary(&self) -> Option<String> {
        let Self::Pods(pods) = self else { return Some("pods that are not known yet".to_owned()) };
        let first = pods.iter().min()?;
        let more = if pods.len() > 1 { format!(" and {} more", pods.len() - 1) } else { String::new() };
        Some(format!("{}{more}", first.id))
    }
}

impl RolloutNode<'_> {
    /// Whether the node should have a working driver and has none, possibly because of us. A first version that does
    /// not load counts, too; a driver that a taint or a reboot took does not.
    fn is_unavailable(&self) -> bool {
        self.supported && !self.ready && !self.maintenance && !self.rebooted
    }

    /// Whether a driver is about to be unloaded, so that a new pod would lose its device.
    fn is_unloading(&self) -> bool {
        self.stale || self.loaded.is_some_and(|loaded| self.version != Some(loaded))
    }
}

/// The next steps for these nodes. The order of the nodes has no influence.
#[must_use]
pub fn round(policy: &Policy<'_>, nodes: &[RolloutNode<'_>]) -> Round {
    let mut nodes: Vec<&RolloutNode<'_>> = nodes.iter().collect();
    nodes.sort_by_key(|node| node.node);
    let (unmatched, matched): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|node| node.unmatched);
    let mut round = Round::default();
    for node in unmatched {
        if !round.when_unused(policy, node, NodeChange::Release) && node.users != Users::Unknown {
            round.remove_cordon_taint(node);
        }
    }
    for node in matched.iter().filter(|node| node.version.is_none()) {
        round.change(node, NodeChange::Start, false);
    }
    let unavailable = matched.iter().filter(|node| node.is_unavailable());
    round.unavailable = unavailable.map(|node| node.node.to_owned()).collect();

    let mut chosen = BTreeSet::new();
    let mut room = policy.max_unavailable.saturating_sub(round.unavailable.len());
    let is_outdated =
        |node: &&&RolloutNode<'_>| node.version.is_some_and(|version| version != policy.version);
    let mut outdated: Vec<&&RolloutNode<'_>> = matched.iter().filter(is_outdated).collect();
    // Nodes without a working driver take no room. Tainted nodes come before others, so that few have the taint.
    outdated.sort_by_key(|node| (node.ready && node.supported, !node.cordon_tainted, node.node));
    for node in outdated {
        if round.switch(policy, node, &mut room) {
            chosen.insert(node.node);
        }
    }
    for node in matched.iter().filter(|node| !chosen.contains(node.node)) {
        round.remove_cordon_taint(node);
    }
    round
}

/// The steps before the driver is unloaded from all of these nodes at once. Cordon taints stay: a pod that came now
/// would lose its device, or keep the driver there for ever. Pods are evicted once all nodes have the taint, since they
/// would move to a node without it.
#[must_use]
pub fn clear(pods: PodsUsingDevices, nodes: &[RolloutNode<'_>]) -> Round {
    let evict = pods == PodsUsingDevices::Evict;
    let all_tainted = nodes.iter().all(|node| node.cordon_tainted);
    let mut round = Round::default();
    for node in nodes {
        let is_known = node.users != Users::Unknown;
        if is_known && (evict || !node.users.any()) && !node.cordon_tainted {
            round.change(node, NodeChange::AddCordonTaint, false);
        }
        match &node.users {
            Users::Unknown => round.wait(node, Wait::Unknown),
            Users::Pods(pods) if pods.is_empty() => {}
            Users::Pods(pods) if evict && all_tainted => round.evict(node, pods),
            Users::Pods(pods) => round.wait(node, wait_for(pods)),
        }
    }
    round
}

impl Round {
    /// Changes the version of a node, if the policy allows it now. Returns whether the node is being changed.
    fn switch(&mut self, policy: &Policy<'_>, node: &RolloutNode<'_>, room: &mut usize) -> bool {
        let cost = usize::from(node.ready && node.supported);
        let (is_tainted, is_full) = (node.maintenance && node.supported, *room < cost);
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
    fn when_unused(&mut self, policy: &Policy<'_>, node: &RolloutNode<'_>, change: NodeChange) -> bool {
        let is_checked = policy.devices_known && policy.pods != PodsUsingDevices::Ignore;
        let wait = match &node.users {
            _ if !is_checked => None,
            Users::Unknown => Some(Wait::Unknown),
            Users::Pods(pods) => {
                let waits = policy.pods == PodsUsingDevices::Wait && !pods.is_empty();
                waits.then(|| wait_for(pods))
            }
        };
        if let Some(wait) = wait {
            self.wait(node, wait);
            return false;
        }
        match &node.users {
            Users::Pods(_) if is_checked && !node.cordon_tainted => {
                self.change(node, NodeChange::AddCordonTaint, false);
            }
            Users::Pods(pods) if is_checked && !pods.is_empty() => self.evict(node, pods),
            _ => self.change(node, change, is_checked),
        }
        true
    }

    /// Removes a cordon taint that is no longer needed.
    fn remove_cordon_taint(&mut self, node: &RolloutNode<'_>) {
        if node.cordon_tainted && !node.is_unloading() && !node.reserved {
            self.change(node, NodeChange::RemoveCordonTaint, false);
        }
    }

    fn evict(&mut self, node: &RolloutNode<'_>, pods: &[Pod]) {
        let running = pods.iter().filter(|pod| !pod.terminating);
        self.steps.extend(running.map(|pod| Step::Evict(node.node.to_owned(), pod.id.clone())));
        self.wait(node, wait_for(pods));
    }

    fn change(&mut self, node: &RolloutNode<'_>, change: NodeChange, checked: bool) {
        self.steps.push(Step::Change { node: node.node.to_owned(), change, checked });
    }

    fn wait(&mut self, node: &RolloutNode<'_>, reason: Wait) {
        self.waiting.push((node.node.to_owned(), reason));
    }
}

fn wait_for(pods: &[Pod]) -> Wait {
    let first = pods.iter().min().map(|pod| pod.id.to_string());
    Wait::Pods(first.unwrap_or_default(), pods.len())
}

#[cfg(test)]
mod tests;
