//! The removal of a DeviceConfig that is being deleted, or gone.
//!
//! In: the [`ClusterState`]. Out: [`Action`]s in the order: pods, Module, nodes, dependencies, finalizer. Never: a
//! driver unloaded under a pod, unless the policy is to ignore pods; a node released while KMM lists the Module there.
//!
//! KMM can remove a Module while a node still has its driver: a worker pod that was loading it when the Module was
//! deleted reports afterwards. KMM unloads it then, with the accounts that we made. So the end of the Module is not
//! enough: node, accounts and finalizer wait until no node lists it.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::hardware;

use super::module::belongs_to;
use super::nodes::{release, unused};
use super::{Action, ConfigState, Plan, has_finalizer, served};
use crate::cluster_state::{ClusterState, Config, ObservedObject};
use crate::module;
use crate::node_states::{NodeState, NodeStates, ObjectNames};
use crate::precondition::Precondition;
use crate::rollout;

/// The actions for a claim whose DeviceConfig is gone: delete the Module, release the nodes, remove the dependencies.
/// Empty: KMM has to unload the driver first.
#[must_use]
pub fn orphan(cluster: &ClusterState, claim: &str) -> Vec<Action> {
    let object_names = ObjectNames::of_claim(claim);
    let live = cluster.modules.get(&object_names.module);
    let live = live.filter(|live| !live.device_config().is_empty() && live.is_marked(live.device_config()));
    if let (Some(live), Some(version)) = (live, served(cluster)) {
        let delete = delete_module(&object_names, version, live, Precondition::default());
        return if live.is_terminating() { Vec::new() } else { vec![delete] };
    }
    let nodes: BTreeSet<&Arc<str>> =
        cluster.claims.claimed(claim).chain(cluster.cordon_tainted(claim)).collect();
    release_all(cluster, nodes.into_iter(), &object_names)
}

/// The plan for a DeviceConfig that is being deleted: wait for pods or evict them, then as in [`orphan`], and remove
/// the finalizer at last.
pub(super) fn delete<'a>(cluster: &'a ClusterState, config: &Config) -> Plan<'a> {
    if !has_finalizer(config) {
        return Plan::stopped(ConfigState::Released);
    }
    let Some(object_names) = ObjectNames::of(config) else {
        let mut plan = Plan::stopped(ConfigState::Deleting(Vec::new()));
        plan.actions.push(Action::Finalizer(false));
        return plan;
    };
    let node_states = NodeStates::of(cluster, config, object_names.clone());
    let in_use = listing(cluster, &object_names).map(|name| name.to_string());
    let state = ConfigState::Deleting(in_use.collect());
    let mut plan = Plan { state, node_states: Some(node_states), ..Plan::default() };
    let live = cluster.modules.get(&object_names.module).filter(|live| belongs_to(live, config));
    if let (Some(live), Some(version)) = (live, served(cluster)) {
        if !live.is_terminating() {
            plan.delete_module(config, version, live);
        }
        return plan;
    }
    plan.actions = release_all(cluster, cluster.nodes.keys(), &object_names);
    let is_last = plan.actions.iter().all(|action| matches!(action, Action::Remove(..)));
    if is_last && listing(cluster, &object_names).next().is_none() {
        plan.actions.push(Action::Finalizer(false));
    }
    plan
}

/// The nodes on which KMM lists the Module.
fn listing<'a>(
    cluster: &'a ClusterState,
    object_names: &'a ObjectNames,
) -> impl Iterator<Item = &'a Arc<str>> + 'a {
    cluster.nodes.keys().filter(|name| cluster.is_listed(name, &object_names.module))
}

/// Releases the nodes where KMM does not list the Module. Once none has anything of ours, removes the dependencies.
fn release_all<'a>(
    cluster: &ClusterState,
    nodes: impl Iterator<Item = &'a Arc<str>>,
    object_names: &ObjectNames,
) -> Vec<Action> {
    let free = nodes.filter(|name| !cluster.is_listed(name, &object_names.module));
    let releases: Vec<Action> = free.filter_map(|name| release(cluster, name, object_names, false)).collect();
    if !releases.is_empty() || listing(cluster, object_names).next().is_some() {
        return releases;
    }
    let dependencies = module::possible_dependencies(object_names, &cluster.environment);
    dependencies.into_iter().map(|(kind, id)| Action::Remove(kind, id)).collect()
}

fn delete_module(
    object_names: &ObjectNames,
    version: &str,
    live: &ObservedObject,
    unused: Precondition,
) -> Action {
    Action::DeleteModule {
        kind: module::object_kind(version),
        module: object_names.module.clone(),
        uid: live.uid().to_owned(),
        unused,
    }
}

impl Plan<'_> {
    /// Deletes the Module once no pod uses the devices or is on its way; at once if the policy is to ignore pods.
    fn delete_module(&mut self, config: &Config, version: &str, live: &ObservedObject) {
        let Some(node_states) = self.node_states.take() else { return };
        let pods = config.object.spec.pods_using_devices();
        let checks = pods != hardware::PodsUsingDevices::Ignore && !node_states.device_names.is_empty();
        let in_use: Vec<&NodeState<'_>> =
            node_states.claimed().filter(|state| checks && state.in_use).collect();
        self.add_round(rollout::clear(pods, &in_use), &node_states, "");
        if self.round.steps.is_empty() && self.round.waiting.is_empty() {
            let unused = unused(&node_states, &in_use);
            self.actions.push(delete_module(&node_states.object_names, version, live, unused));
        }
        self.node_states = Some(node_states);
    }
}
