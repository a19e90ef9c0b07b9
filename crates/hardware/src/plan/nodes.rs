//! What the plan does to nodes: claims, versions, taints.
//!
//! In: the nodes, a rollout's steps. Out: [`Action`]s. Never: a decision that [`rollout`] takes.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::hardware::keys;

use super::node_patch::Patch;
use super::{Action, NodeChange, Plan, State};
use crate::cluster_state::{ClusterState, Config, Node};
use crate::node_states::{NodeState, NodeStates, ObjectNames, Ownership};
use crate::precondition::Precondition;
use crate::rollout::{self, Policy, Round, Step};

impl Plan<'_> {
    /// Claims and versions.
    pub(super) fn nodes(&mut self, cluster: &ClusterState, config: &Config, object_names: &ObjectNames) {
        let Some(node_states) = self.node_states.take() else { return };
        let live = cluster.modules.get(&object_names.module);
        // What the Module says, not what is asked for: a version it does not have would leave a node without any.
        let version = live.map(|live| live.text("/spec/moduleLoader/container/version")).unwrap_or_default();
        let version =
            if matches!(self.state, State::Good | State::Writing | State::Held(_)) { version } else { "" };
        for state in node_states.nodes.iter().filter(|state| state.ownership == Ownership::Open) {
            let before = cluster.claims.claim_on(state.name);
            let mut patch = Patch::of(state.node);
            patch.label(keys::LABEL_DRIVER, before, Some(&object_names.claim));
            if !version.is_empty() && state.version != Some(version) {
                patch.label(&object_names.version_label, state.version, Some(version));
            }
            self.actions.push(patch.write(state.name, NodeChange::Claim, Precondition::default()));
        }
        if !version.is_empty() {
            self.rollout(config, &node_states, version);
        }
        self.actions.extend(left_behind(cluster, &node_states));
        self.node_states = Some(node_states);
    }

    fn rollout(&mut self, config: &Config, node_states: &NodeStates<'_>, version: &str) {
        let states: Vec<rollout::RolloutNode<'_>> = node_states
            .nodes
            .iter()
            .filter(|state| matches!(state.ownership, Ownership::Mine | Ownership::Ending))
            .map(|state| rollout::RolloutNode {
                reserved: self.reserved.contains(state.name),
                ..state.in_rollout()
            })
            .collect();
        self.turn(config, node_states, version, &states);
    }

    /// What the rollout has to say of these nodes.
    fn turn(
        &mut self,
        config: &Config,
        node_states: &NodeStates<'_>,
        version: &str,
        states: &[rollout::RolloutNode<'_>],
    ) {
        let upgrade = config.object.spec.upgrade_policy.clone().unwrap_or_default();
        // While a Module waits to be written the one that is there has a version that is no longer desired: no node is
        // switched to it.
        let waits = matches!(self.state, State::Held(_)) || !self.reserved.is_empty();
        let is_former = waits && version != config.object.spec.driver_version;
        let served = states.iter().filter(|state| !state.ending && state.supported).count();
        let policy = Policy {
            version,
            most_unavailable: upgrade.unavailable_of(served),
            pods: config.object.spec.pods_using_devices(),
            paused: upgrade.paused || is_former,
            devices_known: !node_states.names.is_empty(),
        };
        self.follow(rollout::round(&policy, states), node_states, version);
    }

    pub(super) fn follow(&mut self, round: Round, node_states: &NodeStates<'_>, version: &str) {
        self.actions.extend(round.steps.iter().filter_map(|step| step_to_do(step, node_states, version)));
        self.round = round;
    }
}

/// The condition that no pod uses the devices of these nodes.
pub(super) fn unused(node_states: &NodeStates<'_>, states: &[&NodeState<'_>]) -> Precondition {
    let names = if states.is_empty() { BTreeSet::new() } else { node_states.names.clone() };
    let fences = states.iter().map(|state| (state.name.to_owned(), state.fence_seen)).collect();
    Precondition { names, fences }
}

/// A step of a rollout, as something to do.
fn step_to_do(step: &Step, node_states: &NodeStates<'_>, version: &str) -> Option<Action> {
    let at = |name: &str| node_states.nodes.iter().find(|state| state.name == name);
    let object_names = &node_states.object_names;
    let unused = |state: &NodeState<'_>, checked: bool| {
        if checked { unused(node_states, &[state]) } else { Precondition::default() }
    };
    Some(match step {
        Step::Start(node) => {
            let mut patch = Patch::of(at(node)?.node);
            patch.has(keys::LABEL_DRIVER, &object_names.claim);
            patch.label(&object_names.version_label, None, Some(version));
            patch.write(node, NodeChange::Start, Precondition::default())
        }
        Step::Switch { node, from, checked } => {
            let state = at(node)?;
            let mut patch = Patch::of(state.node);
            patch.has(keys::LABEL_DRIVER, &object_names.claim);
            patch.label(&object_names.version_label, Some(from), Some(version));
            patch.write(node, NodeChange::Switch, unused(state, *checked))
        }
        Step::Fence(node) => add_fence(at(node)?, object_names),
        Step::Unfence(node) => {
            let mut patch = Patch::of(at(node)?.node);
            patch.fence(None);
            patch.write(node, NodeChange::Unfence, Precondition::default())
        }
        Step::Evict { node, pod } => Action::Evict { node: node.clone(), pod: pod.clone() },
        Step::Release { node, checked } => {
            let state = at(node)?;
            released(state.node, object_names, state.in_use)?.write(
                node,
                NodeChange::Release,
                unused(state, *checked),
            )
        }
    })
}

/// A node from which new pods are kept from now on.
pub(super) fn add_fence(state: &NodeState<'_>, object_names: &ObjectNames) -> Action {
    let mut patch = Patch::of(state.node);
    patch.fence(Some(&object_names.claim));
    patch.write(state.name, NodeChange::Fence, Precondition::default())
}

/// Versions and fences on nodes that are neither claimed nor to be claimed: the claim was removed by another client, or
/// by us. A fence goes when KMM has unloaded the driver.
fn left_behind<'a>(
    cluster: &'a ClusterState,
    node_states: &'a NodeStates<'_>,
) -> impl Iterator<Item = Action> + 'a {
    let object_names = &node_states.object_names;
    let stays = |state: &&NodeState<'_>| !matches!(state.ownership, Ownership::Lost(_) | Ownership::None);
    let kept: BTreeSet<&str> = node_states.nodes.iter().filter(stays).map(|state| state.name).collect();
    let left = cluster.nodes.keys().filter(move |name| !kept.contains(&***name));
    left.filter_map(|name| {
        let in_use = cluster.nmcs.get(name).is_some_and(|nmc| nmc.modules.contains_key(&object_names.module));
        release(cluster, name, object_names, in_use)
    })
}

/// A node given back, if there is anything of ours on it.
pub(super) fn release(
    cluster: &ClusterState,
    name: &Arc<str>,
    object_names: &ObjectNames,
    in_use: bool,
) -> Option<Action> {
    Some(released(cluster.nodes.get(name)?, object_names, in_use)?.write(
        name,
        NodeChange::Release,
        Precondition::default(),
    ))
}

/// The patch for that. While the driver is still in use there our fence stays.
fn released(node: &Node, object_names: &ObjectNames, in_use: bool) -> Option<Patch> {
    let there = |key: &str| node.labels.get(key).map(|value| &**value);
    let version = there(&object_names.version_label);
    let is_claimed = there(keys::LABEL_DRIVER) == Some(&object_names.claim);
    let is_fenced =
        node.fence().is_some_and(|fence| fence.value.as_deref() == Some(&object_names.claim)) && !in_use;
    if version.is_none() && !is_claimed && !is_fenced {
        return None;
    }
    let mut patch = Patch::of(node);
    if version.is_some() {
        patch.label(&object_names.version_label, version, None);
    }
    if is_claimed {
        patch.label(keys::LABEL_DRIVER, Some(&object_names.claim), None);
    }
    if is_fenced {
        patch.fence(None);
    }
    Some(patch)
}
