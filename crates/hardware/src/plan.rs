//! The plan: all actions for one DeviceConfig.
//!
//! In: the [`ClusterState`], whether the Module was refused before. Out: [`Action`]s in their order, and the state of
//! the DeviceConfig. Never: a call, a clock. Each round of a reconcile makes a new plan from the cluster state; a plan
//! without actions ends the reconcile.

use std::collections::BTreeSet;

use api::hardware::{self, keys};
use objects::{Object, ObjectKind};
use serde_json::Value;

use super::claim::Id;
use super::cluster_state::{ClusterState, Config, Kmm};
use super::module::Desired;
use super::node_states::{NodeStates, ObjectNames};
use super::precondition::Precondition;
use super::reasons::Reason;
use super::rollout::{NodeChange, Round};

mod module;
mod node_patch;
mod nodes;
mod removal;

pub(super) use module::is_config;
pub use removal::orphan;

/// An action: a change of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Add the finalizer to the DeviceConfig, or remove it.
    Finalizer(bool),
    /// Create or change this object, unless it has another owner. The named entries of a ConfigMap are kept.
    Ensure(Object, BTreeSet<String>),
    /// Create or change the Module. The precondition names the nodes where KMM would reload the driver at once.
    Apply(Object, Precondition),
    /// Delete the Module with this UID, upon which KMM unloads the driver everywhere.
    DeleteModule {
        /// The kind, in the served version.
        kind: ObjectKind,
        /// Namespace and name.
        module: Id,
        /// The UID.
        uid: String,
        /// The precondition.
        unused: Precondition,
    },
    /// Delete this object, if it is ours.
    Remove(ObjectKind, Id),
    /// Change a node.
    Node(NodeWrite),
    /// Evict a pod that uses a device of this node.
    Evict(String, Id),
}

/// The write of a change of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeWrite {
    /// The node.
    pub node: String,
    /// The change.
    pub change: NodeChange,
    /// The JSON patch, with tests of the values that it replaces.
    pub patch: Value,
    /// The precondition.
    pub unused: Precondition,
}

/// The actions for a DeviceConfig, and the state they follow from.
#[derive(Debug, Default)]
pub struct Plan<'a> {
    /// The actions, in their order.
    pub actions: Vec<Action>,
    /// The states of the nodes; `None`: not looked at.
    pub node_states: Option<NodeStates<'a>>,
    /// The round of the rollout.
    pub round: Round,
    /// The state of the DeviceConfig.
    pub state: ConfigState,
    /// Nodes that keep their cordon taint for a Module that is to be written.
    reserved: BTreeSet<&'a str>,
}

/// The state of a DeviceConfig, apart from its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ConfigState {
    /// The Module is as desired.
    #[default]
    InSync,
    /// The spec cannot be applied: reason, message.
    Invalid(Reason, String),
    /// KMM is not installed, or is being deleted.
    NoKmm,
    /// The Module of this name has another owner, described by the text.
    ForeignModule(String),
    /// A former Module of this name still exists.
    FormerModule,
    /// The finalizer or the Module is being written.
    Writing,
    /// The Module is to change under a version that these nodes have, and pods there use the devices.
    ReloadBlocked(Vec<String>),
    /// Being deleted; these nodes still have the driver.
    Deleting(Vec<String>),
    /// Being deleted; the finalizer is removed.
    Released,
}

/// The plan for a DeviceConfig. `refused`: the last write of the Module failed.
#[must_use]
pub fn plan<'a>(cluster: &'a ClusterState, config: &Config, refused: bool) -> Plan<'a> {
    if config.is_terminating() {
        return removal::delete(cluster, config);
    }
    if let Some(reason) = &config.unreadable {
        let message = format!("it cannot be read: {reason}");
        return Plan::stopped(ConfigState::Invalid(Reason::InvalidSpec, message));
    }
    let Some(object_names) = ObjectNames::of(config) else {
        let message = format!(
            "metadata.namespace: no Module fits into a namespace of more than {} characters; use a shorter one",
            hardware::MAX_NAMESPACE
        );
        return Plan::stopped(ConfigState::Invalid(Reason::NameTooLong, message));
    };
    let node_states = NodeStates::of(cluster, config, object_names.clone());
    let mut plan = Plan { node_states: Some(node_states), ..Plan::default() };
    if !config.problems.is_empty() {
        plan.state = ConfigState::Invalid(Reason::InvalidSpec, config.problems.join("; "));
        return plan;
    }
    if !has_finalizer(config) {
        // The finalizer comes first: without it a Module could be left behind.
        plan.state = ConfigState::Writing;
        plan.actions.push(Action::Finalizer(true));
        return plan;
    }
    let unloads = module::unloads_with_own_account(cluster, config, &object_names);
    let desired = Desired { config, names: &object_names, environment: &cluster.environment };
    let dependencies = desired.dependencies(unloads);
    let kept = plan.plugin_files_in_use(cluster, config);
    let is_written = plan.module(cluster, desired, refused);
    let blocked = matches!(plan.state, ConfigState::ReloadBlocked(_));
    // The plugin's configuration changes with the driver.
    let current = dependencies.iter().filter(|object| !(blocked && is_config_map(object)));
    let ensure = |object: &Object| {
        Action::Ensure(object.clone(), if is_config_map(object) { kept.clone() } else { BTreeSet::new() })
    };
    plan.actions.splice(0..0, current.map(ensure));
    if is_written && plan.is_everywhere(config) {
        let obsolete = desired.obsolete_dependencies(&dependencies);
        plan.actions.extend(obsolete.into_iter().map(|(kind, id)| Action::Remove(kind, id)));
    }
    if is_written || refused {
        plan.nodes(cluster, config);
    }
    plan
}

fn is_config_map(object: &Object) -> bool {
    object.kind().kind == "ConfigMap"
}

/// The served version of KMM's API.
fn served(cluster: &ClusterState) -> Option<&str> {
    cluster.kmm.as_ref().and_then(Kmm::version)
}

fn has_finalizer(config: &Config) -> bool {
    config.object.metadata.finalizers.iter().flatten().any(|one| one == keys::FINALIZER)
}

impl<'a> Plan<'a> {
    fn stopped(state: ConfigState) -> Self {
        Self { state, ..Self::default() }
    }

    /// Whether all nodes have the desired version, so that dependencies of earlier versions are obsolete.
    fn is_everywhere(&self, config: &Config) -> bool {
        let wanted = Some(config.object.spec.driver_version.as_str());
        let has_wanted = |states: &NodeStates<'_>| states.claimed().all(|state| state.version == wanted);
        self.state == ConfigState::InSync && self.node_states.as_ref().is_some_and(has_wanted)
    }
}

#[cfg(test)]
mod tests;
