//! What the plan takes away: everything of a DeviceConfig that is deleted, or gone.
//!
//! In: the [`ClusterState`]. Out: [`Action`]s in the order: pods, Module, nodes, what the Module stood on, finalizer.
//! Never: a driver unloaded under a pod, unless pods are to be ignored.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::hardware;

use super::module::is_ours;
use super::nodes::{release, unused};
use super::{Action, Plan, State, has_finalizer, served};
use crate::cluster_state::{ClusterState, Config, ObservedObject};
use crate::module;
use crate::node_states::{NodeState, NodeStates, ObjectNames};
use crate::precondition::Precondition;
use crate::rollout;

/// What there is to do for a claim whose DeviceConfig is gone: its Module goes, then its labels, then what the Module
/// stood on.
#[must_use]
pub fn orphan(cluster: &ClusterState, claim: &str) -> Vec<Action> {
    let object_names = ObjectNames::of_claim(claim);
    let mut actions = Vec::new();
    if let (Some(live), Some(version)) = (cluster.modules.get(&object_names.module), served(cluster)) {
        let name = live.device_config().to_owned();
        if !name.is_empty() && live.is_marked(&name) {
            if !live.is_leaving() {
                actions.push(delete(&object_names, version, live, Precondition::default()));
            }
            return actions;
        }
    }
    let nodes: BTreeSet<&Arc<str>> = cluster.claims.holding(claim).chain(cluster.fenced(claim)).collect();
    actions.extend(nodes.into_iter().filter_map(|name| release(cluster, name, &object_names, false)));
    if actions.is_empty() {
        let all = module::may_be_there(&object_names, &cluster.environment);
        actions.extend(all.into_iter().map(|(kind, id)| Action::Remove(kind, id)));
    }
    actions
}

/// A DeviceConfig that is being deleted: first, unless they are to be ignored, the pods that use the devices, then the
/// Module, then the nodes, then what the Module stood on, then the finalizer.
pub(super) fn leave<'a>(cluster: &'a ClusterState, config: &Config) -> Plan<'a> {
    if !has_finalizer(config) {
        return Plan::stopped(State::Gone);
    }
    let Some(object_names) = ObjectNames::of(config) else {
        let mut plan = Plan::stopped(State::Leaving(Vec::new()));
        plan.actions.push(Action::Finalizer(false));
        return plan;
    };
    let node_states = NodeStates::of(cluster, config, object_names.clone());
    let stuck =
        node_states.nodes.iter().filter(|state| state.in_use).map(|state| state.name.to_owned()).collect();
    let mut plan = Plan { state: State::Leaving(stuck), node_states: Some(node_states), ..Plan::default() };
    if let (Some(live), Some(version)) = (cluster.modules.get(&object_names.module), served(cluster))
        && is_ours(live, config)
    {
        if !live.is_leaving() {
            plan.unload(config, version, live);
        }
        return plan;
    }
    let actions = cluster.nodes.keys().filter_map(|name| release(cluster, name, &object_names, false));
    plan.actions.extend(actions);
    if plan.actions.is_empty() {
        let all = module::may_be_there(&object_names, &cluster.environment);
        plan.actions.extend(all.into_iter().map(|(kind, id)| Action::Remove(kind, id)));
        plan.actions.push(Action::Finalizer(false));
    }
    plan
}

fn delete(object_names: &ObjectNames, version: &str, live: &ObservedObject, unused: Precondition) -> Action {
    Action::DeleteModule {
        kind: module::object_kind(version),
        module: object_names.module.clone(),
        uid: live.uid().to_owned(),
        unused,
    }
}

impl Plan<'_> {
    /// Deletes the Module once no pod uses the devices and none is on its way; at once if pods are to be ignored.
    fn unload(&mut self, config: &Config, version: &str, live: &ObservedObject) {
        let Some(node_states) = self.node_states.take() else { return };
        let pods = config.object.spec.pods_using_devices();
        let looks = pods != hardware::PodsUsingDevices::Ignore && !node_states.names.is_empty();
        let loaded: Vec<&NodeState<'_>> = node_states.ours().filter(|state| looks && state.in_use).collect();
        let states: Vec<rollout::RolloutNode<'_>> = loaded.iter().map(|state| state.in_rollout()).collect();
        self.follow(rollout::clear(pods, &states), &node_states, "");
        if self.round.steps.is_empty() && self.round.waiting.is_empty() {
            self.actions.push(delete(
                &node_states.object_names,
                version,
                live,
                unused(&node_states, &loaded),
            ));
        }
        self.node_states = Some(node_states);
    }
}
