//! What the plan does to the Module.
//!
//! In: the Module as it is, and as it has to be. Out: [`Action`]s that write it. Never: a change that KMM would follow
//! under a pod.

use std::collections::BTreeSet;

use api::hardware::{self, keys};
use k8s_openapi::api::core::v1::Toleration;
use objects::Object;
use objects::equality::is_stated;
use objects::managed_fields::applied_by;
use objects::ownership::references;
use serde::Deserialize as _;
use serde_json::Value;

use super::nodes::{add_fence, unused};
use super::{Action, Plan, State};
use crate::cluster_state::{ClusterState, Config, Kmm, ObservedObject};
use crate::device_names::DeviceNames;
use crate::loader::Loader;
use crate::module;
use crate::node_states::{NodeState, NodeStates, ObjectNames};
use crate::precondition::Precondition;
use crate::reasons::Reason;
use crate::taints::untolerated;

impl Plan<'_> {
    /// The Module. Says whether it is there and ours, so that nodes can be told versions.
    pub(super) fn module(
        &mut self,
        cluster: &ClusterState,
        config: &Config,
        object_names: &ObjectNames,
        refused: bool,
    ) -> bool {
        if self.state != State::Good {
            return false;
        }
        let Some(Kmm::Served(version)) = &cluster.kmm else {
            self.state = State::NoKmm;
            return false;
        };
        let wanted = module::module(config, object_names, &cluster.environment, version);
        let wanted = match wanted {
            Ok(wanted) => self.offered(config).put_on(wanted),
            Err(error) => {
                self.state = State::Invalid(Reason::InvalidSpec, error.to_string());
                return false;
            }
        };
        let Some(live) = cluster.modules.get(&object_names.module) else {
            self.state = State::Writing;
            self.actions.push(Action::Apply(wanted, Precondition::default()));
            return false;
        };
        if !is_ours(live, config) {
            let whose = live.controller().map(|(_, kind, name)| format!("it belongs to {kind} {name}"));
            self.state = State::Foreign(whose.unwrap_or_else(|| "another client made it".to_owned()));
            return false;
        }
        if live.is_leaving() {
            self.state = State::Former;
            return false;
        }
        if is_as_wanted(live, &wanted) {
            return true;
        }
        self.write(config, live, wanted, refused);
        true
    }

    /// Configurations of device plugins of versions that nodes have, or may get from the Module as it is, beside the
    /// one that is asked for.
    pub(super) fn other_files(&self, cluster: &ClusterState, config: &Config) -> BTreeSet<String> {
        let Some(node_states) = &self.node_states else { return BTreeSet::new() };
        let live = cluster.modules.get(&node_states.object_names.module);
        let live = live.map(|live| live.text("/spec/moduleLoader/container/version"));
        let versions = versions(node_states).chain(live).filter(|version| !version.is_empty());
        let wanted = config.object.spec.driver_version.as_str();
        versions.filter(|version| *version != wanted).map(module::plugin_file).collect()
    }

    /// Under which names devices are offered, without those of versions that are on no node any more.
    fn offered(&self, config: &Config) -> DeviceNames {
        let Some(node_states) = &self.node_states else { return DeviceNames::default() };
        let versions = versions(node_states).chain([config.object.spec.driver_version.as_str()]).collect();
        node_states.offered.clone().only(&versions)
    }

    /// A Module that is there, like this. Where KMM would load the driver anew because of it no pod may use the
    /// devices, and those nodes are fenced before; but not for a Module that KMM has refused.
    fn write(&mut self, config: &Config, live: &ObservedObject, wanted: Object, refused: bool) {
        self.state = State::Writing;
        let ignored = config.object.spec.pods_using_devices() == hardware::PodsUsingDevices::Ignore;
        let Some(node_states) =
            self.node_states.as_ref().filter(|node_states| !ignored && !node_states.names.is_empty())
        else {
            self.actions.push(Action::Apply(wanted, Precondition::default()));
            return;
        };
        let reloads = reloads(node_states, live, &wanted);
        let used: Vec<String> =
            reloads.iter().filter(|state| state.users.any()).map(|state| state.name.to_owned()).collect();
        if !used.is_empty() {
            self.state = State::Held(used);
            return;
        }
        self.actions.push(Action::Apply(wanted, unused(node_states, &reloads)));
        if !refused {
            let open = reloads.iter().filter(|state| state.fenced_since.is_none());
            self.actions.extend(open.map(|state| add_fence(state, &node_states.object_names)));
            self.reserved = reloads.iter().map(|state| state.name).collect();
        }
    }
}

/// Whether a Module was made for this DeviceConfig, or for one of the same name before it: it has our label, or had it
/// until another client removed it.
pub(super) fn is_ours(live: &ObservedObject, config: &Config) -> bool {
    let id = config.id();
    let belongs = live.controller().is_none_or(|(_, kind, name)| kind == hardware::KIND && name == id.name);
    belongs && (live.is_marked(&id.name) || applied_by(keys::FIELD_MANAGER, &live.body).next().is_some())
}

/// Whether an owner is a DeviceConfig.
pub(crate) fn is_config(owner: &Value) -> bool {
    let group = owner["apiVersion"].as_str().and_then(|version| version.split_once('/'));
    owner["kind"] == hardware::KIND && group.is_some_and(|(group, _)| group == hardware::GROUP)
}

/// Whether KMM will unload a driver with the account that we made, though the user names another by now.
pub(super) fn unloads(cluster: &ClusterState, config: &Config, object_names: &ObjectNames) -> bool {
    let account = hardware::loader_account(&object_names.module.name);
    let mut slots = cluster.nmcs.values().filter_map(|nmc| nmc.modules.get(&object_names.module));
    config.object.spec.service_account_name.is_some() && slots.any(|slot| slot.accounts.contains(&account))
}

/// Nodes on which KMM would load the driver anew or unload it, on all at once, were the Module like this. It follows a
/// Module on nodes with the same version, whatever version the Module had before, and unloads on nodes whose taints are
/// not tolerated any more.
fn reloads<'f, 'a>(
    node_states: &'f NodeStates<'a>,
    live: &ObservedObject,
    wanted: &Object,
) -> Vec<&'f NodeState<'a>> {
    let Some(loader) = Loader::of(wanted.body()) else { return Vec::new() };
    let former = Loader::of(&live.body).filter(|former| former.version() == loader.version());
    let anew = |state: &&NodeState<'a>| {
        let Some(there) = state.configured.filter(|_| state.version == Some(loader.version())) else {
            return false;
        };
        let on = |loader: &Loader| loader.on(&state.node.kernel, node_states.object_names.names());
        let wanted = on(&loader);
        wanted.as_ref() != Some(there) && former.as_ref().map(on) != Some(wanted)
    };
    let tolerations =
        |module: &Value| Vec::<Toleration>::deserialize(&module["spec"]["tolerations"]).unwrap_or_default();
    let (now, then) = (tolerations(&live.body), tolerations(wanted.body()));
    let given_up = |state: &&NodeState<'a>| {
        let tolerated = |by: &[Toleration]| untolerated(state.node, by).is_none();
        state.configured.is_some() && tolerated(&now) && !tolerated(&then)
    };
    node_states.ours().filter(|state| anew(state) || given_up(state)).collect()
}

/// The versions that nodes have.
fn versions<'f>(node_states: &'f NodeStates<'_>) -> impl Iterator<Item = &'f str> {
    node_states.ours().flat_map(|state| [state.version, state.loaded]).flatten()
}

/// Whether a Module of ours is as desired: it states what we state and no more, and no DeviceConfig owns it.
fn is_as_wanted(live: &ObservedObject, wanted: &Object) -> bool {
    // A list that is stated as a whole may say more in one of its elements.
    let mappings = |body: &Value| Loader::of(body).map(|loader| loader.kernel_mappings().to_vec());
    let maps = mappings(&live.body) == mappings(wanted.body());
    // A selector with more labels selects other nodes.
    let selects = live.body["spec"]["selector"] == wanted.body()["spec"]["selector"];
    // Made by an earlier version of ours, or restored from a backup.
    let owned = references(&live.body).iter().any(is_config);
    !owned && maps && selects && is_stated(wanted, keys::FIELD_MANAGER, &live.body)
}
