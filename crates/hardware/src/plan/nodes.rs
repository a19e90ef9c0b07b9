//! The actions on nodes: claims, versions, taints.
//!
//! In: the nodes, the steps of a rollout. Out: [`Action`]s. Never: a decision that [`rollout`] takes.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::hardware::keys;

use super::node_patch::Patch;
use super::{Action, ConfigState, Plan};
use crate::cluster_state::{ClusterState, Config, Node, ObservedObject};
use crate::node_states::{NodeState, NodeStates, ObjectNames, Ownership};
use crate::precondition::Precondition;
use crate::rollout::{self, NodeChange, Policy, Round, Step};

impl Plan<'_> {
    /// Plans claims, versions and releases.
    pub(super) fn nodes(&mut self, cluster: &ClusterState, config: &Config) {
        let Some(node_states) = self.node_states.take() else { return };
        // The version of the Module, which may not be the desired one yet: KMM loads no other.
        let live = cluster.modules.get(&node_states.object_names.module).filter(|_| {
            matches!(self.state, ConfigState::InSync | ConfigState::Writing | ConfigState::ReloadBlocked(_))
        });
        let version = live.map(ObservedObject::driver_version).unwrap_or_default();
        for state in node_states.nodes.iter().filter(|state| state.ownership == Ownership::Claimable) {
            let claim = node_action(&node_states, state, NodeChange::Claim, version, Precondition::default());
            self.actions.extend(claim);
        }
        if !version.is_empty() {
            self.rollout(config, &node_states, version);
        }
        self.actions.extend(release_unclaimed(cluster, &node_states));
        self.node_states = Some(node_states);
    }

    fn rollout(&mut self, config: &Config, node_states: &NodeStates<'_>, version: &str) {
        let in_rollout =
            |state: &&NodeState<'_>| matches!(state.ownership, Ownership::Owned | Ownership::Unmatched);
        let nodes: Vec<&NodeState<'_>> = node_states.nodes.iter().filter(in_rollout).collect();
        let upgrade = config.object.spec.upgrade_policy.clone().unwrap_or_default();
        // While the Module waits to be written it has a former version: no node changes to that one.
        let waits = matches!(self.state, ConfigState::ReloadBlocked(_)) || !self.reserved.is_empty();
        let is_former = waits && version != config.object.spec.driver_version;
        let supported =
            nodes.iter().filter(|node| node.ownership == Ownership::Owned && node.is_supported()).count();
        let policy = Policy {
            version,
            max_unavailable: upgrade.unavailable_of(supported),
            pods: config.object.spec.pods_using_devices(),
            paused: upgrade.paused || is_former,
            devices_known: !node_states.device_names.is_empty(),
            reserved: &self.reserved,
        };
        let round = rollout::round(&policy, &nodes);
        self.add_round(round, node_states, version);
    }

    /// Adds the actions for the steps of a round.
    pub(super) fn add_round(&mut self, round: Round, node_states: &NodeStates<'_>, version: &str) {
        self.actions.extend(round.steps.iter().filter_map(|step| action(step, node_states, version)));
        self.round = round;
    }
}

/// The precondition that no pod uses the devices of these nodes.
pub(super) fn unused(node_states: &NodeStates<'_>, states: &[&NodeState<'_>]) -> Precondition {
    let device_names = if states.is_empty() { BTreeSet::new() } else { node_states.device_names.clone() };
    let cordon_taints = states.iter().map(|state| (state.name.to_owned(), state.cordon_taint_seen)).collect();
    Precondition { device_names, cordon_taints }
}

/// The action for a step of the rollout.
fn action(step: &Step, node_states: &NodeStates<'_>, version: &str) -> Option<Action> {
    let (node, change, checked) = match step {
        Step::Evict(node, pod) => return Some(Action::Evict(node.clone(), pod.clone())),
        Step::Change { node, change, checked } => (node, *change, *checked),
    };
    let state = node_states.nodes.iter().find(|state| state.name == node)?;
    let unused = if checked { unused(node_states, &[state]) } else { Precondition::default() };
    node_action(node_states, state, change, version, unused)
}

/// The action for a change of a node; `None` if a release has nothing to remove.
pub(super) fn node_action(
    node_states: &NodeStates<'_>,
    state: &NodeState<'_>,
    change: NodeChange,
    version: &str,
    unused: Precondition,
) -> Option<Action> {
    let ObjectNames { claim, version_label, .. } = &node_states.object_names;
    let mut patch = Patch::of(state.node);
    match change {
        NodeChange::Claim => {
            let before = state.node.labels.get(keys::LABEL_DRIVER).map(|claim| &**claim);
            patch.set_label(keys::LABEL_DRIVER, before, Some(claim));
            if !version.is_empty() && state.version != Some(version) {
                patch.set_label(version_label, state.version, Some(version));
            }
        }
        NodeChange::Start | NodeChange::Switch => {
            patch.test_label(keys::LABEL_DRIVER, claim);
            patch.set_label(version_label, state.version, Some(version));
        }
        NodeChange::AddCordonTaint => patch.set_cordon_taint(Some(claim)),
        NodeChange::RemoveCordonTaint => patch.set_cordon_taint(None),
        NodeChange::Release => {
            patch = release_patch(state.node, &node_states.object_names, state.in_use)?;
        }
    }
    Some(patch.into_action(state.name, change, unused))
}

/// Releases nodes with a version or cordon taint but without a claim, which we or another client have removed. A cordon
/// taint stays until KMM has unloaded the driver.
fn release_unclaimed<'a>(
    cluster: &'a ClusterState,
    node_states: &'a NodeStates<'_>,
) -> impl Iterator<Item = Action> + 'a {
    let object_names = &node_states.object_names;
    let stays = |state: &&NodeState<'_>| !matches!(state.ownership, Ownership::Other(_) | Ownership::None);
    let kept: BTreeSet<&str> = node_states.nodes.iter().filter(stays).map(|state| state.name).collect();
    let others = cluster.nodes.keys().filter(move |name| !kept.contains(&***name));
    others.filter_map(|name| {
        release(cluster, name, object_names, cluster.is_listed(name, &object_names.module))
    })
}

/// The action that releases a node; `None` if it has nothing of ours.
pub(super) fn release(
    cluster: &ClusterState,
    name: &Arc<str>,
    object_names: &ObjectNames,
    in_use: bool,
) -> Option<Action> {
    let patch = release_patch(cluster.nodes.get(name)?, object_names, in_use)?;
    Some(patch.into_action(name, NodeChange::Release, Precondition::default()))
}

/// The patch that releases a node. The cordon taint stays while the driver is in use.
fn release_patch(node: &Node, object_names: &ObjectNames, in_use: bool) -> Option<Patch> {
    let label = |key: &str| node.labels.get(key).map(|value| &**value);
    let version = label(&object_names.version_label);
    let claim = label(keys::LABEL_DRIVER).filter(|claim| *claim == object_names.claim);
    let is_tainted = !in_use && node.cordon_taint_claim() == Some(&object_names.claim);
    if version.is_none() && claim.is_none() && !is_tainted {
        return None;
    }
    let mut patch = Patch::of(node);
    if version.is_some() {
        patch.set_label(&object_names.version_label, version, None);
    }
    if claim.is_some() {
        patch.set_label(keys::LABEL_DRIVER, claim, None);
    }
    if is_tainted {
        patch.set_cordon_taint(None);
    }
    Some(patch)
}
