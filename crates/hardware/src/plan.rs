//! The plan: all actions for one DeviceConfig.
//!
//! In: the [`ClusterState`], what could not be done before. Out: [`Action`]s in their order, and how it is. Never: a
//! call, a clock. What has been done shows in the world; so a plan is made anew after each round, and one that finds
//! everything done has nothing in it.

use std::collections::BTreeSet;

use api::hardware::{self, keys};
use objects::{Object, ObjectKind};
use serde_json::Value;

use super::claim::Id;
use super::cluster_state::{ClusterState, Config, Kmm};
use super::module as desired;
use super::node_states::{NodeStates, ObjectNames};
use super::precondition::Precondition;
use super::reasons::Reason;
use super::rollout::{Pod, Round};

mod module;
mod node_patch;
mod nodes;
mod removal;

pub(super) use module::is_config;
pub use removal::orphan;

/// An action: a change of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Put our finalizer on the DeviceConfig, or take it away.
    Finalizer(bool),
    /// Create or change this object, unless it has another owner. The named entries of a ConfigMap stay if they are
    /// there.
    Ensure(Object, BTreeSet<String>),
    /// The same for the Module, whose state is known, where KMM would load the driver anew at once.
    Apply(Object, Precondition),
    /// Delete the Module with this UID, upon which KMM unloads the driver everywhere.
    DeleteModule {
        /// Its kind, in the version that is served.
        kind: ObjectKind,
        /// Its name.
        module: Id,
        /// Its UID.
        uid: String,
        /// What has to hold besides.
        unused: Precondition,
    },
    /// Delete this, if it is ours.
    Remove(ObjectKind, Id),
    /// Change a node.
    Node(NodeWrite),
    /// Ask a pod to go, as it uses a device of this node.
    Evict {
        /// The node.
        node: String,
        /// The pod.
        pod: Pod,
    },
}

/// A change of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeWrite {
    /// The node.
    pub node: String,
    /// The kind of the change.
    pub change: NodeChange,
    /// The patch: it tests what it replaces.
    pub patch: Value,
    /// What has to hold besides.
    pub unused: Precondition,
}

/// The kind of a change of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeChange {
    /// It becomes ours.
    Claim,
    /// It is told its first version.
    Start,
    /// It is told another version.
    Switch,
    /// New pods are kept away.
    Fence,
    /// They may come again.
    Unfence,
    /// It is given back.
    Release,
}

/// The actions for a DeviceConfig, and the state they follow from.
#[derive(Debug, Default)]
pub struct Plan<'a> {
    /// What to do.
    pub actions: Vec<Action>,
    /// What is known of nodes.
    pub node_states: Option<NodeStates<'a>>,
    /// What the rollout has to say.
    pub round: Round,
    /// How it is with the object itself.
    pub state: State,
    /// Nodes that are kept free for a Module that is to be written.
    reserved: BTreeSet<&'a str>,
}

/// How it is with a DeviceConfig, nodes aside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// All is as it should be.
    #[default]
    Good,
    /// It cannot be done as it stands there: reason, message.
    Invalid(Reason, String),
    /// There is no KMM, or it is going.
    NoKmm,
    /// The Module of this name has another owner.
    Foreign(String),
    /// A former Module of this name has not gone yet.
    Former,
    /// The finalizer is being put on it, or the Module is being made or changed.
    Writing,
    /// The driver is to be loaded in another way under a version that these nodes have, and pods there use the devices.
    Held(Vec<String>),
    /// It is being deleted, and these nodes still have the driver.
    Leaving(Vec<String>),
    /// It is being deleted, and we have nothing to do with it any more.
    Gone,
}

/// What there is to do for a DeviceConfig. `refused` says that the Module could not be written when it was tried last.
#[must_use]
pub fn plan<'a>(cluster: &'a ClusterState, config: &Config, refused: bool) -> Plan<'a> {
    if config.is_leaving() {
        return removal::leave(cluster, config);
    }
    if let Some(reason) = &config.unreadable {
        return Plan::stopped(State::Invalid(Reason::InvalidSpec, format!("it cannot be read: {reason}")));
    }
    let Some(object_names) = ObjectNames::of(config) else {
        let message = format!(
            "metadata.namespace: no Module fits into a namespace of more than {} characters; use a shorter one",
            hardware::MAX_NAMESPACE
        );
        return Plan::stopped(State::Invalid(Reason::NameTooLong, message));
    };
    let node_states = NodeStates::of(cluster, config, object_names.clone());
    let mut plan = Plan { node_states: Some(node_states), ..Plan::default() };
    if !config.problems.is_empty() {
        plan.state = State::Invalid(Reason::InvalidSpec, config.problems.join("; "));
        return plan;
    }
    if !has_finalizer(config) {
        // The finalizer comes first: without it a Module could be left behind.
        plan.state = State::Writing;
        plan.actions.push(Action::Finalizer(true));
        return plan;
    }
    let grounds = desired::grounds(
        config,
        &object_names,
        &cluster.environment,
        module::unloads(cluster, config, &object_names),
    );
    let grounds = grounds.unwrap_or_else(|error| {
        plan.state = State::Invalid(Reason::InvalidSpec, error.to_string());
        Vec::new()
    });
    let others = plan.other_files(cluster, config);
    plan.actions.extend(grounds.iter().map(|ground| ensure(ground.clone(), &others)));
    let stands = plan.module(cluster, config, &object_names, refused);
    if matches!(plan.state, State::Held(_)) {
        // What plugins read goes with the driver that stays.
        plan.actions.retain(|one| !matches!(one, Action::Ensure(ground, _) if is_config_map(ground)));
    }
    if stands && plan.is_everywhere(config) {
        let all = desired::leftovers(config, &object_names, &cluster.environment, &grounds);
        plan.actions.extend(all.into_iter().map(|(kind, id)| Action::Remove(kind, id)));
    }
    if stands || refused {
        plan.nodes(cluster, config, &object_names);
    }
    plan
}

fn ensure(ground: Object, others: &BTreeSet<String>) -> Action {
    let kept = if is_config_map(&ground) { others.clone() } else { BTreeSet::new() };
    Action::Ensure(ground, kept)
}

fn is_config_map(ground: &Object) -> bool {
    ground.kind().kind == "ConfigMap"
}

/// The version of KMM's API.
fn served(cluster: &ClusterState) -> Option<&str> {
    cluster.kmm.as_ref().and_then(Kmm::version)
}

/// Whether our finalizer is on it.
fn has_finalizer(config: &Config) -> bool {
    config.object.metadata.finalizers.iter().flatten().any(|one| one == keys::FINALIZER)
}

impl<'a> Plan<'a> {
    fn stopped(state: State) -> Self {
        Self { state, ..Self::default() }
    }

    /// The Module is as it is asked for, and no node has another version: dependencies of an earlier one are obsolete.
    fn is_everywhere(&self, config: &Config) -> bool {
        let wanted = Some(config.object.spec.driver_version.as_str());
        let node_states = self.node_states.as_ref();
        self.state == State::Good
            && node_states.is_some_and(|node_states| node_states.ours().all(|state| state.version == wanted))
    }
}

#[cfg(test)]
mod tests;
