//! What the plan does to the Module.
//!
//! In: the Module as it is, and as it has to be. Out: [`Action`]s that write it. Never: a change that KMM would follow
//! under a pod.

use std::collections::BTreeSet;

use api::hardware::{self, keys};
use k8s_openapi::api::core::v1::Toleration;
use objects::Object;
use objects::equality::says;
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
use objects::managed_fields::all_stated;

impl Plan<'_> {
    /// The Module. Says whether it is there and ours, so that nodes can be told versions.
    pub(super) fn module(
        &mut self,
        world: &ClusterState,
        config: &Config,
        called: &ObjectNames,
        refused: bool,
    ) -> bool {
        if self.state != State::Good {
            return false;
        }
        let Some(Kmm::Served(version)) = &world.kmm else {
            self.state = State::NoKmm;
            return false;
        };
        let wanted = module::module(config, called, &world.place, version);
        let wanted = match wanted.and_then(|module| self.offered(config).put_on(&module)) {
            Ok(wanted) => wanted,
            Err(error) => {
                self.state = State::Invalid(Reason::InvalidSpec, error.to_string());
                return false;
            }
        };
        let Some(live) = world.modules.get(&called.module) else {
            self.state = State::Writing;
            self.doing.push(Action::Apply(wanted, Precondition::default()));
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
    pub(super) fn other_files(&self, world: &ClusterState, config: &Config) -> BTreeSet<String> {
        let Some(facts) = &self.facts else { return BTreeSet::new() };
        let live = world.modules.get(&facts.called.module);
        let live = live.map(|live| live.text("/spec/moduleLoader/container/version"));
        let versions = versions(facts).chain(live).filter(|version| !version.is_empty());
        let wanted = config.object.spec.driver_version.as_str();
        versions.filter(|version| *version != wanted).map(module::plugin_file).collect()
    }

    /// Under which names devices are offered, without those of versions that are on no node any more.
    fn offered(&self, config: &Config) -> DeviceNames {
        let Some(facts) = &self.facts else { return DeviceNames::default() };
        let versions = versions(facts).chain([config.object.spec.driver_version.as_str()]).collect();
        facts.offered.clone().only(&versions)
    }

    /// A Module that is there, like this. Where KMM would load the driver anew because of it no pod may use the
    /// devices, and those nodes are fenced before; but not for a Module that KMM has refused.
    fn write(&mut self, config: &Config, live: &ObservedObject, wanted: Object, refused: bool) {
        self.state = State::Writing;
        let ignored = config.object.spec.pods_using_devices() == hardware::PodsUsingDevices::Ignore;
        let Some(facts) = self.facts.as_ref().filter(|facts| !ignored && !facts.names.is_empty()) else {
            self.doing.push(Action::Apply(wanted, Precondition::default()));
            return;
        };
        let reloads = reloads(facts, live, &wanted);
        let used: Vec<String> =
            reloads.iter().filter(|state| state.users.any()).map(|state| state.name.to_owned()).collect();
        if !used.is_empty() {
            self.state = State::Held(used);
            return;
        }
        self.doing.push(Action::Apply(wanted, unused(facts, &reloads)));
        if !refused {
            let open = reloads.iter().filter(|state| state.fenced_since.is_none());
            self.doing.extend(open.map(|state| add_fence(state, &facts.called)));
            self.reserved = reloads.iter().map(|state| state.name).collect();
        }
    }
}

/// Whether a Module was made for this DeviceConfig, or for one of the same name before it: it has our label, or had it
/// until another client removed it.
pub(super) fn is_ours(live: &ObservedObject, config: &Config) -> bool {
    let id = config.id();
    let belongs = live.controller().is_none_or(|(_, kind, name)| kind == hardware::KIND && name == id.name);
    belongs && (live.is_marked(&id.name) || applied(live).next().is_some())
}

/// Whether an owner is a DeviceConfig.
pub(crate) fn is_config(owner: &Value) -> bool {
    let group = owner["apiVersion"].as_str().and_then(|version| version.split_once('/'));
    owner["kind"] == hardware::KIND && group.is_some_and(|(group, _)| group == hardware::GROUP)
}

/// What we are remembered to have applied.
fn applied(live: &ObservedObject) -> impl Iterator<Item = &Value> {
    let entries = live.body["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    entries.iter().filter(|entry| {
        entry["manager"] == keys::FIELD_MANAGER
            && entry["operation"] == "Apply"
            && entry["subresource"].as_str().unwrap_or_default().is_empty()
    })
}

/// Whether KMM will unload a driver with the account that we made, though the user names another by now.
pub(super) fn unloads(world: &ClusterState, config: &Config, called: &ObjectNames) -> bool {
    let account = hardware::loader_account(&called.module.name);
    let mut slots = world.nmcs.values().filter_map(|nmc| nmc.modules.get(&called.module));
    config.object.spec.service_account_name.is_some() && slots.any(|slot| slot.accounts.contains(&account))
}

/// Nodes on which KMM would load the driver anew or unload it, on all at once, were the Module like this. It follows a
/// Module on nodes with the same version, whatever version the Module had before, and unloads on nodes whose taints are
/// not tolerated any more.
fn reloads<'f, 'a>(
    facts: &'f NodeStates<'a>,
    live: &ObservedObject,
    wanted: &Object,
) -> Vec<&'f NodeState<'a>> {
    let Some(loader) = Loader::of(wanted.body()) else { return Vec::new() };
    let former = Loader::of(&live.body).filter(|former| former.version() == loader.version());
    let anew = |state: &&NodeState<'a>| {
        let Some(there) = state.configured.filter(|_| state.version == Some(loader.version())) else {
            return false;
        };
        let on = |loader: &Loader| loader.on(&state.node.kernel, facts.called.names());
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
    facts.ours().filter(|state| anew(state) || given_up(state)).collect()
}

/// The versions that nodes have.
fn versions<'f>(facts: &'f NodeStates<'_>) -> impl Iterator<Item = &'f str> {
    facts.ours().flat_map(|state| [state.version, state.loaded]).flatten()
}

/// Whether an object of ours says all that we want and, of what we stated, no more.
pub(crate) fn is_as_wanted(live: &ObservedObject, wanted: &Object) -> bool {
    let mut content = wanted.body().clone();
    if let Some(fields) = content.as_object_mut() {
        fields.remove("apiVersion");
    }
    let mut ours = applied(live).peekable();
    let stated = ours.peek().is_some() && ours.all(|entry| all_stated(&entry["fieldsV1"], wanted.body()));
    // A list that is stated as a whole may say more in one of its elements.
    let mappings = |body: &Value| Loader::of(body).map(|loader| loader.kernel_mappings().to_vec());
    let maps = mappings(&live.body) == mappings(wanted.body());
    // A selector with more in it selects other nodes.
    let selects = live.body["spec"]["selector"] == wanted.body()["spec"]["selector"];
    // Made by an earlier version of ours, or come from a backup.
    let owned =
        live.body["metadata"]["ownerReferences"].as_array().is_some_and(|all| all.iter().any(is_config));
    !owned && stated && maps && selects && says(&live.body, &content)
}
