//! The actions on the Module.
//!
//! In: the Module as it is, and as desired. Out: [`Action`]s that write it. Never: a change upon which KMM reloads a
//! driver that pods use.

use std::collections::BTreeSet;

use api::hardware::{self, keys};
use k8s_openapi::api::core::v1::Toleration;
use objects::Object;
use objects::equality::is_stated;
use objects::managed_fields::applied_by;
use objects::ownership::references;
use serde::Deserialize as _;
use serde_json::Value;

use super::nodes::{node_action, unused};
use super::{Action, ConfigState, Plan};
use crate::cluster_state::{ClusterState, Config, Kmm, ObservedObject};
use crate::device_names::DeviceNames;
use crate::loader::Loader;
use crate::module::{Desired, plugin_file};
use crate::node_states::{NodeState, NodeStates, ObjectNames};
use crate::precondition::Precondition;
use crate::rollout::NodeChange;
use crate::taints::untolerated;

impl Plan<'_> {
    /// Plans the Module. Returns whether it exists and is ours, so that nodes can get versions.
    pub(super) fn module(&mut self, cluster: &ClusterState, desired: Desired<'_>, refused: bool) -> bool {
        let config = desired.config;
        if self.state != ConfigState::InSync {
            return false;
        }
        let Some(Kmm::Served(version)) = &cluster.kmm else {
            self.state = ConfigState::NoKmm;
            return false;
        };
        let wanted = self.names_by_version(config).record_on(desired.module(version));
        let Some(live) = cluster.modules.get(&desired.names.module) else {
            self.state = ConfigState::Writing;
            self.actions.push(Action::Apply(wanted, Precondition::default()));
            return false;
        };
        if !belongs_to(live, config) {
            let owner = live.controller().map(|(_, kind, name)| format!("it belongs to {kind} {name}"));
            self.state =
                ConfigState::ForeignModule(owner.unwrap_or_else(|| "another client made it".to_owned()));
            return false;
        }
        if live.is_terminating() {
            self.state = ConfigState::FormerModule;
            return false;
        }
        if !is_as_wanted(live, &wanted) {
            self.change_module(config, live, wanted, refused);
        }
        true
    }

    /// Files of the plugin's configuration for other versions that nodes have, or may get from the Module as it is.
    pub(super) fn plugin_files_in_use(&self, cluster: &ClusterState, config: &Config) -> BTreeSet<String> {
        let Some(node_states) = &self.node_states else { return BTreeSet::new() };
        let live = cluster.modules.get(&node_states.object_names.module).map(ObservedObject::driver_version);
        let wanted = config.object.spec.driver_version.as_str();
        let others = versions(node_states).chain(live).filter(|one| !one.is_empty() && *one != wanted);
        others.map(plugin_file).collect()
    }

    /// Names of devices, without those of versions that no node has any more.
    fn names_by_version(&self, config: &Config) -> DeviceNames {
        let Some(node_states) = &self.node_states else { return DeviceNames::default() };
        let versions = versions(node_states).chain([config.object.spec.driver_version.as_str()]).collect();
        node_states.names_by_version.clone().retain_versions(&versions)
    }

    /// Changes the Module. Where KMM would reload the driver, no pod may use the devices, and the nodes get the cordon
    /// taint before; but not for a Module that was refused.
    fn change_module(&mut self, config: &Config, live: &ObservedObject, wanted: Object, refused: bool) {
        self.state = ConfigState::Writing;
        let ignored = config.object.spec.pods_using_devices() == hardware::PodsUsingDevices::Ignore;
        let checked = |states: &&NodeStates<'_>| !ignored && !states.device_names.is_empty();
        let Some(node_states) = self.node_states.as_ref().filter(checked) else {
            self.actions.push(Action::Apply(wanted, Precondition::default()));
            return;
        };
        let reloaded = reloaded_nodes(node_states, live, &wanted);
        let used = reloaded.iter().filter(|state| state.users.any());
        let used: Vec<String> = used.map(|state| state.name.to_owned()).collect();
        if !used.is_empty() {
            self.state = ConfigState::ReloadBlocked(used);
            return;
        }
        self.actions.push(Action::Apply(wanted, unused(node_states, &reloaded)));
        if !refused {
            let untainted = reloaded.iter().filter(|state| state.cordon_taint_since.is_none());
            let none = Precondition::default;
            let taint = |state: &&NodeState<'_>| {
                node_action(node_states, state, NodeChange::AddCordonTaint, "", none())
            };
            self.actions.extend(untainted.filter_map(taint));
            self.reserved = reloaded.iter().map(|state| state.name).collect();
        }
    }
}

/// Whether a Module was made for this DeviceConfig, or for a former one of the same name. It has our label, or had it
/// until another client removed it.
pub(super) fn belongs_to(live: &ObservedObject, config: &Config) -> bool {
    let name = config.id().name;
    let is_owner = |kind: &str, owner: &str| kind == hardware::KIND && owner == name;
    live.controller().is_none_or(|(_, kind, owner)| is_owner(kind, owner))
        && (live.is_marked(&name) || applied_by(keys::FIELD_MANAGER, &live.body).next().is_some())
}

/// Whether an owner is a DeviceConfig.
pub(crate) fn is_config(owner: &Value) -> bool {
    let group = owner["apiVersion"].as_str().and_then(|version| version.split_once('/'));
    owner["kind"] == hardware::KIND && group.is_some_and(|(group, _)| group == hardware::GROUP)
}

/// Whether KMM will unload a driver with the account that we made, though the spec names another one now.
pub(super) fn unloads_with_own_account(
    cluster: &ClusterState,
    config: &Config,
    object_names: &ObjectNames,
) -> bool {
    let account = hardware::loader_account(&object_names.module.name);
    let mut slots = cluster.nmcs.values().filter_map(|nmc| nmc.modules.get(&object_names.module));
    config.object.spec.service_account_name.is_some() && slots.any(|slot| slot.accounts.contains(&account))
}

/// Nodes on which KMM would reload or unload the driver at once for this Module. KMM applies a Module on nodes with its
/// version, whatever version the Module had before. It unloads on nodes whose taints are no longer tolerated.
fn reloaded_nodes<'f, 'a>(
    node_states: &'f NodeStates<'a>,
    live: &ObservedObject,
    wanted: &Object,
) -> Vec<&'f NodeState<'a>> {
    let Some(loader) = Loader::of(wanted.body()) else { return Vec::new() };
    let former = Loader::of(&live.body).filter(|former| former.version() == loader.version());
    let is_reloaded = |state: &&NodeState<'a>| {
        let Some(configured) = state.configured.filter(|_| state.version == Some(loader.version())) else {
            return false;
        };
        let load =
            |loader: &Loader| loader.load_for(&state.node.kernel, node_states.object_names.template_names());
        let wanted = load(&loader);
        wanted.as_ref() != Some(configured) && former.as_ref().map(load) != Some(wanted)
    };
    let tolerations =
        |module: &Value| Vec::<Toleration>::deserialize(&module["spec"]["tolerations"]).unwrap_or_default();
    let (before, after) = (tolerations(&live.body), tolerations(wanted.body()));
    let is_unloaded = |state: &&NodeState<'a>| {
        let tolerated = |by: &[Toleration]| untolerated(state.node, by).is_none();
        state.configured.is_some() && tolerated(&before) && !tolerated(&after)
    };
    node_states.claimed().filter(|state| is_reloaded(state) || is_unloaded(state)).collect()
}

/// The versions that nodes have.
fn versions<'f>(node_states: &'f NodeStates<'_>) -> impl Iterator<Item = &'f str> {
    node_states.claimed().flat_map(|state| [state.version, state.loaded]).flatten()
}

/// Whether a Module is as desired: it has what we state and no more, and no DeviceConfig owns it.
fn is_as_wanted(live: &ObservedObject, wanted: &Object) -> bool {
    // Elements of a list that we state as a whole may have more fields.
    let mappings = |body: &Value| Loader::of(body).map(|loader| loader.kernel_mappings().to_vec());
    let same_mappings = mappings(&live.body) == mappings(wanted.body());
    // A selector with more labels selects other nodes.
    let same_selector = live.body["spec"]["selector"] == wanted.body()["spec"]["selector"];
    // Made by an earlier version of the controller, or restored from a backup.
    let is_owned = references(&live.body).iter().any(is_config);
    !is_owned && same_mappings && same_selector && is_stated(wanted, keys::FIELD_MANAGER, &live.body)
}
