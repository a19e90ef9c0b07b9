//! What there is to do for one DeviceConfig now.
//!
//! In: the [`World`], what could not be done before. Out: [`Do`]s in their order, and how it is. Never: a call, a clock. What has been done
//! shows in the world; so a plan is made anew after each round, and one that finds everything done has nothing in it.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::hardware::{self, keys};
use k8s_openapi::api::core::v1::Toleration;
use objects::equality::says;
use objects::{Object, ObjectKind};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::claim::Id;
use super::facts::{Called, Facts, Spot, Standing};
use super::load::Loader;
use super::module;
use super::offered::Offered;
use super::rollout::{self, Pod, Policy, Round, Step};
use super::taints::{FENCE, untolerated};
use super::unused::Unused;
use super::words::Reason;
use super::world::{Config, Kmm, Live, Node, World};
use objects::managed_fields::all_stated;

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Do {
    /// Put our finalizer on the DeviceConfig, or take it away.
    Finalizer(bool),
    /// Make this, or make it so, unless it is somebody else's. Of the entries of a ConfigMap these stay besides, if they are there.
    Ensure(Object, BTreeSet<String>),
    /// The same for the Module, whose state is known, where KMM would load the driver anew at once.
    Apply(Object, Unused),
    /// Delete the Module with this UID, upon which KMM unloads the driver everywhere.
    DeleteModule {
        /// Its kind, in the version that is served.
        kind: ObjectKind,
        /// Its name.
        module: Id,
        /// Its UID.
        uid: String,
        /// What has to hold besides.
        unused: Unused,
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
    /// What is done to it, in one word.
    pub why: Why,
    /// The patch: it tests what it replaces.
    pub patch: Value,
    /// What has to hold besides.
    pub unused: Unused,
}

/// Why a node is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
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

/// All of it.
#[derive(Debug, Default)]
pub struct Plan<'a> {
    /// What to do.
    pub doing: Vec<Do>,
    /// What is known of nodes.
    pub facts: Option<Facts<'a>>,
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
    /// The Module of this name is somebody else's.
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
pub fn plan<'a>(world: &'a World, config: &Config, refused: bool) -> Plan<'a> {
    if config.is_leaving() {
        return leave(world, config);
    }
    if let Some(reason) = &config.unreadable {
        return Plan::stopped(State::Invalid(Reason::InvalidSpec, format!("it cannot be read: {reason}")));
    }
    let Some(called) = Called::of(config) else {
        let message = format!(
            "metadata.namespace: no Module fits into a namespace of more than {} characters; use a shorter one",
            hardware::MAX_NAMESPACE
        );
        return Plan::stopped(State::Invalid(Reason::NameTooLong, message));
    };
    let facts = Facts::of(world, config, called.clone());
    let mut plan = Plan { facts: Some(facts), ..Plan::default() };
    if !config.problems.is_empty() {
        plan.state = State::Invalid(Reason::InvalidSpec, config.problems.join("; "));
        return plan;
    }
    if !has_finalizer(config) {
        // Without it a Module could be left that nobody takes away: it comes first.
        plan.state = State::Writing;
        plan.doing.push(Do::Finalizer(true));
        return plan;
    }
    let grounds = module::grounds(config, &called, &world.place, unloads(world, config, &called));
    let grounds = grounds.unwrap_or_else(|error| {
        plan.state = State::Invalid(Reason::InvalidSpec, error.to_string());
        Vec::new()
    });
    let others = plan.other_files(world, config);
    plan.doing.extend(grounds.iter().map(|ground| ensure(ground.clone(), &others)));
    let stands = plan.module(world, config, &called, refused);
    if matches!(plan.state, State::Held(_)) {
        // What plugins read goes with the driver that stays.
        plan.doing.retain(|one| !matches!(one, Do::Ensure(ground, _) if is_config_map(ground)));
    }
    if stands && plan.is_everywhere(config) {
        let all = module::leftovers(config, &called, &world.place, &grounds);
        plan.doing.extend(all.into_iter().map(|(kind, id)| Do::Remove(kind, id)));
    }
    if stands || refused {
        plan.nodes(world, config, &called);
    }
    plan
}

/// Whether KMM will unload a driver with the account that we made, though the user names another by now.
fn unloads(world: &World, config: &Config, called: &Called) -> bool {
    let account = hardware::loader_account(&called.module.name);
    let mut slots = world.nmcs.values().filter_map(|nmc| nmc.modules.get(&called.module));
    config.object.spec.service_account_name.is_some() && slots.any(|slot| slot.accounts.contains(&account))
}

/// What there is to do for a claim whose DeviceConfig is gone: its Module goes, then its labels, then what the Module stood on.
#[must_use]
pub fn orphan(world: &World, claim: &str) -> Vec<Do> {
    let called = Called::of_claim(claim);
    let mut doing = Vec::new();
    if let (Some(live), Some(version)) = (world.modules.get(&called.module), served(world)) {
        let name = live.text("/metadata/labels/hardware.tholepin.dev~1deviceconfig").to_owned();
        if !name.is_empty() && live.is_marked(&name) {
            if !live.is_leaving() {
                doing.push(delete(&called, version, live, Unused::default()));
            }
            return doing;
        }
    }
    let nodes: BTreeSet<&Arc<str>> = world.claims.holding(claim).chain(world.fenced(claim)).collect();
    doing.extend(nodes.into_iter().filter_map(|name| release(world, name, &called, false)));
    if doing.is_empty() {
        let all = module::may_be_there(&called, &world.place);
        doing.extend(all.into_iter().map(|(kind, id)| Do::Remove(kind, id)));
    }
    doing
}

fn ensure(ground: Object, others: &BTreeSet<String>) -> Do {
    let kept = if is_config_map(&ground) { others.clone() } else { BTreeSet::new() };
    Do::Ensure(ground, kept)
}

fn is_config_map(ground: &Object) -> bool {
    ground.kind().kind == "ConfigMap"
}

/// The version of KMM's API.
fn served(world: &World) -> Option<&str> {
    world.kmm.as_ref().and_then(Kmm::version)
}

/// Whether our finalizer is on it.
fn has_finalizer(config: &Config) -> bool {
    config.object.metadata.finalizers.iter().flatten().any(|one| one == keys::FINALIZER)
}

/// A DeviceConfig that is being deleted: first, unless they are to be ignored, the pods that use the devices, then the Module, then the nodes,
/// then what the Module stood on, then the finalizer.
fn leave<'a>(world: &'a World, config: &Config) -> Plan<'a> {
    if !has_finalizer(config) {
        return Plan::stopped(State::Gone);
    }
    let Some(called) = Called::of(config) else {
        let mut plan = Plan::stopped(State::Leaving(Vec::new()));
        plan.doing.push(Do::Finalizer(false));
        return plan;
    };
    let facts = Facts::of(world, config, called.clone());
    let stuck = facts.nodes.iter().filter(|spot| spot.in_use).map(|spot| spot.name.to_owned()).collect();
    let mut plan = Plan { state: State::Leaving(stuck), facts: Some(facts), ..Plan::default() };
    if let (Some(live), Some(version)) = (world.modules.get(&called.module), served(world))
        && is_ours(live, config)
    {
        if !live.is_leaving() {
            plan.unload(config, version, live);
        }
        return plan;
    }
    let doing = world.nodes.keys().filter_map(|name| release(world, name, &called, false));
    plan.doing.extend(doing);
    if plan.doing.is_empty() {
        let all = module::may_be_there(&called, &world.place);
        plan.doing.extend(all.into_iter().map(|(kind, id)| Do::Remove(kind, id)));
        plan.doing.push(Do::Finalizer(false));
    }
    plan
}

fn delete(called: &Called, version: &str, live: &Live, unused: Unused) -> Do {
    Do::DeleteModule {
        kind: module::object_kind(version),
        module: called.module.clone(),
        uid: live.uid().to_owned(),
        unused,
    }
}

/// Whether a Module was made for this DeviceConfig, or for one of the same name before it: it has our mark, or had it until somebody took it away.
fn is_ours(live: &Live, config: &Config) -> bool {
    let id = config.id();
    let belongs = live.controller().is_none_or(|(_, kind, name)| kind == hardware::KIND && name == id.name);
    belongs && (live.is_marked(&id.name) || applied(live).next().is_some())
}

/// Whether an owner is a DeviceConfig.
pub(super) fn is_config(owner: &Value) -> bool {
    let group = owner["apiVersion"].as_str().and_then(|version| version.split_once('/'));
    owner["kind"] == hardware::KIND && group.is_some_and(|(group, _)| group == hardware::GROUP)
}

/// What we are remembered to have applied.
fn applied(live: &Live) -> impl Iterator<Item = &Value> {
    let entries = live.body["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    entries.iter().filter(|entry| {
        entry["manager"] == keys::FIELD_MANAGER
            && entry["operation"] == "Apply"
            && entry["subresource"].as_str().unwrap_or_default().is_empty()
    })
}

impl<'a> Plan<'a> {
    fn stopped(state: State) -> Self {
        Self { state, ..Self::default() }
    }

    /// The Module. Says whether it is there and ours, so that nodes can be told versions.
    fn module(&mut self, world: &World, config: &Config, called: &Called, refused: bool) -> bool {
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
            self.doing.push(Do::Apply(wanted, Unused::default()));
            return false;
        };
        if !is_ours(live, config) {
            let whose = live.controller().map(|(_, kind, name)| format!("it belongs to {kind} {name}"));
            self.state = State::Foreign(whose.unwrap_or_else(|| "somebody else made it".to_owned()));
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

    /// Configurations of device plugins of versions that nodes have, or may get from the Module as it is, beside the one that is asked for.
    fn other_files(&self, world: &World, config: &Config) -> BTreeSet<String> {
        let Some(facts) = &self.facts else { return BTreeSet::new() };
        let live = world.modules.get(&facts.called.module);
        let live = live.map(|live| live.text("/spec/moduleLoader/container/version"));
        let versions = versions(facts).chain(live).filter(|version| !version.is_empty());
        let wanted = config.object.spec.driver_version.as_str();
        versions.filter(|version| *version != wanted).map(module::plugin_file).collect()
    }

    /// Under which names devices are offered, without those of versions that are on no node any more.
    fn offered(&self, config: &Config) -> Offered {
        let Some(facts) = &self.facts else { return Offered::default() };
        let versions = versions(facts).chain([config.object.spec.driver_version.as_str()]).collect();
        facts.offered.clone().only(&versions)
    }

    /// A Module that is there, like this. Where KMM would load the driver anew because of it nobody may use the devices, and those nodes are
    /// fenced before; but not for a Module that KMM has refused.
    fn write(&mut self, config: &Config, live: &Live, wanted: Object, refused: bool) {
        self.state = State::Writing;
        let ignored = config.object.spec.pods_using_devices() == hardware::PodsUsingDevices::Ignore;
        let Some(facts) = self.facts.as_ref().filter(|facts| !ignored && !facts.names.is_empty()) else {
            self.doing.push(Do::Apply(wanted, Unused::default()));
            return;
        };
        let reloads = reloads(facts, live, &wanted);
        let used: Vec<String> =
            reloads.iter().filter(|spot| spot.users.any()).map(|spot| spot.name.to_owned()).collect();
        if !used.is_empty() {
            self.state = State::Held(used);
            return;
        }
        self.doing.push(Do::Apply(wanted, unused(facts, &reloads)));
        if !refused {
            let open = reloads.iter().filter(|spot| spot.fenced_since.is_none());
            self.doing.extend(open.map(|spot| fence(spot, &facts.called)));
            self.reserved = reloads.iter().map(|spot| spot.name).collect();
        }
    }

    /// The Module is as it is asked for, and no node has another version: nobody needs what an earlier one stood on.
    fn is_everywhere(&self, config: &Config) -> bool {
        let wanted = Some(config.object.spec.driver_version.as_str());
        let facts = self.facts.as_ref();
        self.state == State::Good
            && facts.is_some_and(|facts| facts.ours().all(|spot| spot.version == wanted))
    }

    /// Claims and versions.
    fn nodes(&mut self, world: &World, config: &Config, called: &Called) {
        let Some(facts) = self.facts.take() else { return };
        let live = world.modules.get(&called.module);
        // What the Module says, not what is asked for: a version it does not have would leave a node without any.
        let version = live.map(|live| live.text("/spec/moduleLoader/container/version")).unwrap_or_default();
        let version =
            if matches!(self.state, State::Good | State::Writing | State::Held(_)) { version } else { "" };
        for spot in facts.nodes.iter().filter(|spot| spot.standing == Standing::Open) {
            let before = world.claims.claim_on(spot.name);
            let mut patch = Patch::of(spot.node);
            patch.label(keys::LABEL_DRIVER, before, Some(&called.claim));
            if !version.is_empty() && spot.version != Some(version) {
                patch.label(&called.version_label, spot.version, Some(version));
            }
            self.doing.push(patch.write(spot.name, Why::Claim, Unused::default()));
        }
        if !version.is_empty() {
            self.rollout(config, &facts, version);
        }
        self.doing.extend(left_behind(world, &facts));
        self.facts = Some(facts);
    }

    /// The Module goes when nobody uses the devices anywhere, and nobody can come any more; at once if that is to be ignored.
    fn unload(&mut self, config: &Config, version: &str, live: &Live) {
        let Some(facts) = self.facts.take() else { return };
        let pods = config.object.spec.pods_using_devices();
        let looks = pods != hardware::PodsUsingDevices::Ignore && !facts.names.is_empty();
        let loaded: Vec<&Spot<'_>> = facts.ours().filter(|spot| looks && spot.in_use).collect();
        let spots: Vec<rollout::Spot<'_>> = loaded.iter().map(|spot| spot.in_rollout()).collect();
        self.follow(rollout::clear(pods, &spots), &facts, "");
        if self.round.steps.is_empty() && self.round.waiting.is_empty() {
            self.doing.push(delete(&facts.called, version, live, unused(&facts, &loaded)));
        }
        self.facts = Some(facts);
    }

    fn rollout(&mut self, config: &Config, facts: &Facts<'_>, version: &str) {
        let spots: Vec<rollout::Spot<'_>> = facts
            .nodes
            .iter()
            .filter(|spot| matches!(spot.standing, Standing::Mine | Standing::Ending))
            .map(|spot| rollout::Spot { reserved: self.reserved.contains(spot.name), ..spot.in_rollout() })
            .collect();
        self.turn(config, facts, version, &spots);
    }

    /// What the rollout has to say of these nodes.
    fn turn(&mut self, config: &Config, facts: &Facts<'_>, version: &str, spots: &[rollout::Spot<'_>]) {
        let upgrade = config.object.spec.upgrade_policy.clone().unwrap_or_default();
        // While a Module waits to be written the one that is there has a version that nobody asks for: no node needs to get that.
        let waits = matches!(self.state, State::Held(_)) || !self.reserved.is_empty();
        let is_former = waits && version != config.object.spec.driver_version;
        let served = spots.iter().filter(|spot| !spot.ending && spot.supported).count();
        let policy = Policy {
            version,
            most_unavailable: upgrade.unavailable_of(served),
            pods: config.object.spec.pods_using_devices(),
            paused: upgrade.paused || is_former,
            devices_known: !facts.names.is_empty(),
        };
        self.follow(rollout::round(&policy, spots), facts, version);
    }

    fn follow(&mut self, round: Round, facts: &Facts<'_>, version: &str) {
        self.doing.extend(round.steps.iter().filter_map(|step| step_to_do(step, facts, version)));
        self.round = round;
    }
}

/// Nodes on which KMM would load the driver anew or unload it, on all at once, were the Module like this. It follows a Module on nodes with the
/// same version, whatever version the Module had before, and unloads on nodes whose taints are not tolerated any more.
fn reloads<'f, 'a>(facts: &'f Facts<'a>, live: &Live, wanted: &Object) -> Vec<&'f Spot<'a>> {
    let Some(loader) = Loader::of(wanted.body()) else { return Vec::new() };
    let former = Loader::of(&live.body).filter(|former| former.version() == loader.version());
    let anew = |spot: &&Spot<'a>| {
        let Some(there) = spot.configured.filter(|_| spot.version == Some(loader.version())) else {
            return false;
        };
        let on = |loader: &Loader| loader.on(&spot.node.kernel, facts.called.names());
        let wanted = on(&loader);
        wanted.as_ref() != Some(there) && former.as_ref().map(on) != Some(wanted)
    };
    let tolerations =
        |module: &Value| Vec::<Toleration>::deserialize(&module["spec"]["tolerations"]).unwrap_or_default();
    let (now, then) = (tolerations(&live.body), tolerations(wanted.body()));
    let given_up = |spot: &&Spot<'a>| {
        let tolerated = |by: &[Toleration]| untolerated(spot.node, by).is_none();
        spot.configured.is_some() && tolerated(&now) && !tolerated(&then)
    };
    facts.ours().filter(|spot| anew(spot) || given_up(spot)).collect()
}

/// The versions that nodes have.
fn versions<'f>(facts: &'f Facts<'_>) -> impl Iterator<Item = &'f str> {
    facts.ours().flat_map(|spot| [spot.version, spot.loaded]).flatten()
}

/// That nobody uses the devices of these nodes.
fn unused(facts: &Facts<'_>, spots: &[&Spot<'_>]) -> Unused {
    let names = if spots.is_empty() { BTreeSet::new() } else { facts.names.clone() };
    let fences = spots.iter().map(|spot| (spot.name.to_owned(), spot.fence_seen)).collect();
    Unused { names, fences }
}

/// A step of a rollout, as something to do.
fn step_to_do(step: &Step, facts: &Facts<'_>, version: &str) -> Option<Do> {
    let at = |name: &str| facts.nodes.iter().find(|spot| spot.name == name);
    let called = &facts.called;
    let unused =
        |spot: &Spot<'_>, checked: bool| if checked { unused(facts, &[spot]) } else { Unused::default() };
    Some(match step {
        Step::Start(node) => {
            let mut patch = Patch::of(at(node)?.node);
            patch.has(keys::LABEL_DRIVER, &called.claim);
            patch.label(&called.version_label, None, Some(version));
            patch.write(node, Why::Start, Unused::default())
        }
        Step::Switch { node, from, checked } => {
            let spot = at(node)?;
            let mut patch = Patch::of(spot.node);
            patch.has(keys::LABEL_DRIVER, &called.claim);
            patch.label(&called.version_label, Some(from), Some(version));
            patch.write(node, Why::Switch, unused(spot, *checked))
        }
        Step::Fence(node) => fence(at(node)?, called),
        Step::Unfence(node) => {
            let mut patch = Patch::of(at(node)?.node);
            patch.fence(None);
            patch.write(node, Why::Unfence, Unused::default())
        }
        Step::Evict { node, pod } => Do::Evict { node: node.clone(), pod: pod.clone() },
        Step::Release { node, checked } => {
            let spot = at(node)?;
            released(spot.node, called, spot.in_use)?.write(node, Why::Release, unused(spot, *checked))
        }
    })
}

/// A node from which new pods are kept from now on.
fn fence(spot: &Spot<'_>, called: &Called) -> Do {
    let mut patch = Patch::of(spot.node);
    patch.fence(Some(&called.claim));
    patch.write(spot.name, Why::Fence, Unused::default())
}

/// Versions and fences on nodes that are neither ours nor to become so: somebody took our claim away, or we gave it back. A fence goes when
/// KMM has unloaded the driver.
fn left_behind<'a>(world: &'a World, facts: &'a Facts<'_>) -> impl Iterator<Item = Do> + 'a {
    let called = &facts.called;
    let stays = |spot: &&Spot<'_>| !matches!(spot.standing, Standing::Lost(_) | Standing::None);
    let kept: BTreeSet<&str> = facts.nodes.iter().filter(stays).map(|spot| spot.name).collect();
    let left = world.nodes.keys().filter(move |name| !kept.contains(&***name));
    left.filter_map(|name| {
        let in_use = world.nmcs.get(name).is_some_and(|nmc| nmc.modules.contains_key(&called.module));
        release(world, name, called, in_use)
    })
}

/// A node given back, if there is anything of ours on it.
fn release(world: &World, name: &Arc<str>, called: &Called, in_use: bool) -> Option<Do> {
    Some(released(world.nodes.get(name)?, called, in_use)?.write(name, Why::Release, Unused::default()))
}

/// The patch for that. While the driver is still in use there our fence stays.
fn released(node: &Node, called: &Called, in_use: bool) -> Option<Patch> {
    let there = |key: &str| node.labels.get(key).map(|value| &**value);
    let version = there(&called.version_label);
    let is_claimed = there(keys::LABEL_DRIVER) == Some(&called.claim);
    let is_fenced =
        node.fence().is_some_and(|fence| fence.value.as_deref() == Some(&called.claim)) && !in_use;
    if version.is_none() && !is_claimed && !is_fenced {
        return None;
    }
    let mut patch = Patch::of(node);
    if version.is_some() {
        patch.label(&called.version_label, version, None);
    }
    if is_claimed {
        patch.label(keys::LABEL_DRIVER, Some(&called.claim), None);
    }
    if is_fenced {
        patch.fence(None);
    }
    Some(patch)
}

/// Whether an object of ours says all that we want and, of what we stated, no more.
pub(super) fn is_as_wanted(live: &Live, wanted: &Object) -> bool {
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

/// A patch of a node in the making. Each change tests what it replaces, so that of two writers one fails.
struct Patch {
    steps: Vec<Value>,
    node: Node,
}

impl Patch {
    fn of(node: &Node) -> Self {
        let mut steps = Vec::new();
        if !node.has_labels {
            steps.push(json!({ "op": "test", "path": "/metadata/resourceVersion", "value": node.version }));
            steps.push(json!({ "op": "add", "path": "/metadata/labels", "value": {} }));
        }
        Self { steps, node: node.clone() }
    }

    /// Only if a label is like this.
    fn has(&mut self, key: &str, value: &str) {
        self.steps.push(json!({ "op": "test", "path": path(key), "value": value }));
    }

    /// Another label, or none; only if it is as it was. What is not there tests as null.
    fn label(&mut self, key: &str, before: Option<&str>, after: Option<&str>) {
        let path = path(key);
        self.steps.push(json!({ "op": "test", "path": path, "value": before }));
        match after {
            Some(value) => self.steps.push(json!({ "op": "add", "path": path, "value": value })),
            None => self.steps.push(json!({ "op": "remove", "path": path })),
        }
    }

    /// Our taint, or none; only if taints are as they were.
    fn fence(&mut self, claim: Option<&str>) {
        let taints = &self.node.taints;
        let before = if taints.is_empty() { Value::Null } else { json!(taints) };
        self.steps.push(json!({ "op": "test", "path": "/spec/taints", "value": before }));
        let mut after: Vec<Value> =
            taints.iter().filter(|taint| taint.key != FENCE).map(|taint| json!(taint)).collect();
        after.extend(claim.map(|claim| json!({ "key": FENCE, "value": claim, "effect": "NoSchedule" })));
        self.steps.push(json!({ "op": "add", "path": "/spec/taints", "value": after }));
    }

    fn write(self, node: &str, why: Why, unused: Unused) -> Do {
        Do::Node(NodeWrite { node: node.to_owned(), why, patch: Value::Array(self.steps), unused })
    }
}

/// Where a label is.
fn path(key: &str) -> String {
    format!("/metadata/labels/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests;
