//! What the cluster says, as far as DeviceConfigs are concerned.
//!
//! In: what watches and the answers of our own writes say. Out: a [`World`] that says the same, and whose work a change is. Never: a wait,
//! a decision, or older news over newer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::hardware::{self, DeviceConfig, keys};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::claim::{Claimant, Claims, Id, Labels, Selector};
use super::held::{Held, Holding, is_driver};
use super::nmc::{Images, Nmc};
use super::offered::Offered;
use super::sound::problems;
use super::taints::FENCE;
use objects::observed::compare_versions;

/// Where we run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Pods that load modules need a SecurityContextConstraint.
    pub openshift: bool,
    /// Our own image, which has our device plugin in it.
    pub image: String,
}

/// All of it.
#[derive(Debug, Default)]
pub struct World {
    /// Where we run.
    pub place: Place,
    /// Who asks for which nodes.
    pub claims: Claims,
    /// DeviceConfigs.
    pub configs: BTreeMap<Id, Config>,
    /// Nodes.
    pub nodes: BTreeMap<Arc<str>, Node>,
    /// Whether there is KMM; `None`: that is not known yet.
    pub kmm: Option<Kmm>,
    /// Modules, whoever made them.
    pub modules: BTreeMap<Id, Live>,
    /// What KMM says of nodes.
    pub nmcs: BTreeMap<Arc<str>, Nmc>,
    /// What KMM says of the images of Modules.
    pub images: BTreeMap<Id, Images>,
    /// Pods that may have a device; `None`: not known.
    pub pods: Option<Pods>,
    /// How often pods have gone so far.
    pods_gone: u64,
    /// What [`World::needs`] said; `None` when DeviceConfigs or Modules have changed since. Nodes and pods change far more often.
    needs: Option<Needs>,
    /// What pods have by resource claims; `None`: not known.
    pub held: Option<Held>,
    /// Kinds that have been listed once.
    pub listed: BTreeSet<Kind>,
    /// Nodes with a fence, by the claim that it names.
    fences: BTreeMap<String, BTreeSet<Arc<str>>>,
}

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// DeviceConfigs.
    Config,
    /// Nodes.
    Node,
    /// The definition of Modules.
    Definition,
    /// Modules.
    Module,
    /// NodeModulesConfigs.
    Nmc,
    /// ModuleImagesConfigs.
    Images,
}

/// Whether there is KMM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kmm {
    /// There is none.
    Absent,
    /// Its API is served in this version.
    Served(String),
    /// It is still served, and is being deleted with all there is of it: nothing new can be made.
    Going(String),
}

impl Kmm {
    /// The version of its API, as long as there is one.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        match self {
            Self::Absent => None,
            Self::Served(version) | Self::Going(version) => Some(version),
        }
    }
}

/// A DeviceConfig.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// As its user wrote it.
    pub object: DeviceConfig,
    /// The name of its Module, if its namespace lets there be one.
    pub module: Option<String>,
    /// What cannot be read of it; its spec is what it said before.
    pub unreadable: Option<String>,
    /// What of it cannot be done.
    pub problems: Vec<String>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Its labels.
    pub labels: Labels,
    /// There is a map of labels, be it empty.
    pub has_labels: bool,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// It is cordoned.
    pub unschedulable: bool,
    /// The version of its kernel.
    pub kernel: Arc<str>,
    /// Which start of the machine this is.
    pub boot: String,
    /// `resourceVersion`.
    pub version: String,
    /// When its fence was first seen here, if it has one: later than it was put up, and to the point, where `timeAdded` knows seconds.
    pub fence_seen: Option<Timestamp>,
}

/// What is worth to know only for some DeviceConfigs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Pods that may have a device.
    pub pods: bool,
    /// What pods have by resource claims.
    pub held: bool,
}

/// A pod that may have a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Where it runs.
    pub node: Arc<str>,
    /// What resource claims know it by.
    pub uid: Box<str>,
    /// Which resources of others than Kubernetes it asks for, sorted.
    pub resources: Vec<Arc<str>>,
    /// It is being deleted.
    pub leaving: bool,
}

/// Pods, by name and by node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    all: BTreeMap<Id, Pod>,
    on: BTreeMap<Arc<str>, BTreeSet<Id>>,
}

/// An object as it is on the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct Live {
    /// All of it.
    pub body: Value,
}

/// What there is to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// See to a DeviceConfig.
    Config(Id),
    /// See to what is left of one that is gone: its claim.
    Orphan(String),
}

/// Whose work a change is.
pub type Concerned = BTreeSet<Id>;

impl Live {
    /// A text in it.
    #[must_use]
    pub fn text(&self, pointer: &str) -> &str {
        self.body.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Its UID.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    /// It is being deleted.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.body.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
    }

    /// It has our mark, and says that it was made for this one.
    #[must_use]
    pub fn is_marked(&self, name: &str) -> bool {
        let labels = &self.body["metadata"]["labels"];
        labels[keys::LABEL_MANAGED_BY] == keys::MANAGED_BY && labels[keys::LABEL_DEVICE_CONFIG] == name
    }

    /// The UID of its controller, with kind and name.
    #[must_use]
    pub fn controller(&self) -> Option<(&str, &str, &str)> {
        let all = self.body["metadata"]["ownerReferences"].as_array()?;
        let one = all.iter().find(|one| one["controller"] == true)?;
        Some((one["uid"].as_str()?, one["kind"].as_str()?, one["name"].as_str()?))
    }
}

impl Node {
    /// The taint that keeps pods away while the driver changes.
    #[must_use]
    pub fn fence(&self) -> Option<&Taint> {
        self.taints.iter().find(|taint| taint.key == FENCE)
    }

    /// The claim that it names.
    pub(super) fn fenced_for(&self) -> Option<&str> {
        self.fence()?.value.as_deref()
    }
}

impl Config {
    /// The object, read; what is not needed of it is left out.
    #[must_use]
    pub fn of(mut object: DeviceConfig) -> Self {
        object.metadata.managed_fields = None;
        let id = Self::id_of(&object);
        let module = hardware::module_name(&id.namespace, &id.name);
        let problems = problems(&object);
        Self { object, module, unreadable: None, problems }
    }

    /// What the API server has. What of it cannot be read is as if it were not there, but that it is being deleted can always be read.
    #[must_use]
    pub fn read(body: &Value) -> Self {
        let error = match serde_path_to_error::deserialize(body) {
            Ok(object) => return Self::of(object),
            Err(error) => error,
        };
        let object = DeviceConfig {
            metadata: part(body, "metadata"),
            spec: hardware::Spec::default(),
            status: part(body, "status"),
        };
        Self { unreadable: Some(error.to_string()), ..Self::of(object) }
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> Id {
        Self::id_of(&self.object)
    }

    fn id_of(object: &DeviceConfig) -> Id {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Id { namespace: text(&object.metadata.namespace), name: text(&object.metadata.name) }
    }

    /// It is being deleted.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    /// What its claims on nodes say.
    #[must_use]
    pub fn claim(&self) -> String {
        let namespace = self.object.metadata.namespace.as_deref().unwrap_or_default();
        self.module.as_deref().map(|module| hardware::claim(namespace, module)).unwrap_or_default()
    }

    /// The names under which its device plugin offers devices: of resources, and of drivers of resource claims.
    #[must_use]
    pub fn device_names(&self) -> BTreeSet<String> {
        let Some(plugin) = &self.object.spec.device_plugin else { return BTreeSet::new() };
        let named = plugin.resource_names.iter().chain(&plugin.driver_names).map(String::as_str);
        // What the words of a vendor's plugin mean is not known.
        let Some(config) = &plugin.config else { return named.map(str::to_owned).collect() };
        let listed = config.get("resources").and_then(Value::as_array).into_iter().flatten();
        let ours = listed.filter_map(|one| one["name"].as_str());
        ours.chain(told_drivers(&plugin.args)).chain(named).map(str::to_owned).collect()
    }

    /// As claims see it. What cannot be followed asks for no more nodes.
    fn claimant(&self) -> Claimant {
        let spec = &self.object.spec;
        let sound = self.unreadable.is_none() && self.module.is_some() && self.problems.is_empty();
        let selector = match &spec.node_selector {
            _ if !sound => Selector::None,
            Some(labels) if !labels.is_empty() => Selector::Labels(labels.clone()),
            _ if spec.all_nodes => Selector::All,
            _ => Selector::None,
        };
        let created = self.object.metadata.creation_timestamp.as_ref();
        Claimant {
            id: self.id(),
            claim: self.claim(),
            created: created.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            selector,
            leaving: self.is_leaving(),
        }
    }
}

/// As which driver of resource claims our device plugin is told to offer devices: `--dra=NAME` or `--dra NAME`.
fn told_drivers(args: &[String]) -> impl Iterator<Item = &str> {
    let apart = args.windows(2).filter(|pair| pair[0] == "--dra").map(|pair| pair[1].as_str());
    args.iter().filter_map(|word| word.strip_prefix("--dra=")).chain(apart)
}

/// A part of an object; one that cannot be read is empty.
fn part<T: DeserializeOwned + Default>(body: &Value, field: &str) -> T {
    body.get(field).and_then(|part| T::deserialize(part).ok()).unwrap_or_default()
}

impl Pod {
    /// It has devices under one of these names: it asks for a resource of this name, or was given a device of such a driver by a claim.
    #[must_use]
    pub fn uses(&self, names: &BTreeSet<String>, held: Option<&Held>) -> bool {
        let given = held.into_iter().flat_map(|held| held.of(&self.uid));
        let drivers = given.flat_map(|(_, holding)| &holding.drivers);
        self.resources.iter().chain(drivers).any(|name| names.contains(&**name))
    }
}

impl Pods {
    /// The pods on a node, sorted.
    pub fn on(&self, node: &str) -> impl Iterator<Item = (&Id, &Pod)> + use<'_> {
        let ids = self.on.get(node).into_iter().flatten();
        ids.filter_map(|id| Some((id, self.all.get(id)?)))
    }

    /// A pod is like this, or of no interest. Says on which nodes that makes a difference.
    pub fn put(&mut self, id: Id, pod: Option<Pod>) -> BTreeSet<Arc<str>> {
        if self.all.get(&id) == pod.as_ref() {
            return BTreeSet::new();
        }
        let mut nodes = BTreeSet::new();
        if let Some(before) = self.all.remove(&id) {
            if let Some(ids) = self.on.get_mut(&before.node) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.on.remove(&before.node);
                }
            }
            nodes.insert(before.node);
        }
        if let Some(pod) = pod {
            nodes.insert(Arc::clone(&pod.node));
            self.on.entry(Arc::clone(&pod.node)).or_default().insert(id.clone());
            self.all.insert(id, pod);
        }
        nodes
    }
}

impl World {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(place: Place) -> Self {
        Self { place, claims: Claims::new(keys::LABEL_DRIVER), ..Self::default() }
    }

    /// Enough is known to decide anything.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let has = |kind| self.listed.contains(&kind);
        let kmm = match self.kmm {
            None => false,
            Some(Kmm::Absent) => true,
            Some(Kmm::Served(_)) => has(Kind::Module) && has(Kind::Nmc) && has(Kind::Images),
            // The other kinds may have gone first.
            Some(Kmm::Going(_)) => has(Kind::Module),
        };
        kmm && has(Kind::Config) && has(Kind::Node)
    }

    /// What it is worth to know, because somebody has devices that pods may use.
    pub fn needs(&mut self) -> Needs {
        let needs = self.needs.unwrap_or_else(|| self.wanted());
        self.needs = Some(needs);
        needs
    }

    fn wanted(&self) -> Needs {
        let of = |config: &Config| config.device_names().into_iter().chain(self.remembered(config));
        let mut names = self.configs.values().flat_map(of).peekable();
        Needs { pods: names.peek().is_some(), held: names.any(|name| is_driver(&name)) }
    }

    /// The names that its Module remembers, under which devices are or were offered.
    fn remembered(&self, config: &Config) -> BTreeSet<String> {
        let module = config.module.as_deref().map(|module| Id::new(&config.id().namespace, module));
        let live = module.and_then(|module| self.modules.get(&module));
        live.map(|live| Offered::on(&live.body).names()).unwrap_or_default()
    }

    /// A DeviceConfig is like this. Of one that cannot be read the spec stays as it was known, and nothing new is begun.
    pub fn put_config(&mut self, mut config: Config) -> Concerned {
        let id = config.id();
        if let Some(known) = self.configs.get(&id) {
            let version =
                |config: &Config| config.object.metadata.resource_version.clone().unwrap_or_default();
            let same_object = known.object.metadata.uid == config.object.metadata.uid;
            if same_object && compare_versions(&version(known), &version(&config)).is_ge() {
                return Concerned::new();
            }
            if same_object && config.unreadable.is_some() {
                config.object.spec = known.object.spec.clone();
            }
        }
        let concerned =
            self.claims.put(config.claimant(), self.nodes.iter().map(|(name, node)| (name, &node.labels)));
        self.configs.insert(id, config);
        self.needs = None;
        concerned
    }

    /// A DeviceConfig is gone.
    pub fn remove_config(&mut self, id: &Id) -> Concerned {
        self.configs.remove(id);
        self.needs = None;
        self.claims.remove(id)
    }

    /// A node is like this.
    pub fn put_node(&mut self, name: Arc<str>, mut node: Node) -> Concerned {
        if let Some(known) = self.nodes.get(&name) {
            if known.fenced_for() == node.fenced_for() {
                node.fence_seen = known.fence_seen;
            }
            if compare_versions(&known.version, &node.version).is_ge() {
                return Concerned::new();
            }
            let same = Node { version: known.version.clone(), ..node.clone() } == *known;
            if same {
                self.nodes.insert(name, node);
                return Concerned::new();
            }
        }
        let mut concerned = self.claims.put_node(&name, &node.labels);
        concerned.extend(self.holder(&name));
        concerned.extend(self.fencer(&name));
        self.unfence(&name);
        if let Some(claim) = node.fenced_for() {
            self.fences.entry(claim.to_owned()).or_default().insert(Arc::clone(&name));
        }
        self.nodes.insert(Arc::clone(&name), node);
        concerned.extend(self.fencer(&name));
        concerned
    }

    /// A node is gone.
    pub fn remove_node(&mut self, name: &Arc<str>) -> Concerned {
        self.unfence(name);
        self.nodes.remove(name);
        self.claims.remove_node(name)
    }

    /// Nodes with a fence that names this claim, sorted.
    pub fn fenced(&self, claim: &str) -> impl Iterator<Item = &Arc<str>> + use<'_> {
        self.fences.get(claim).into_iter().flatten()
    }

    /// The fence that a node is known to have is none any more.
    fn unfence(&mut self, name: &Arc<str>) {
        let Some(claim) = self.nodes.get(name).and_then(Node::fenced_for) else { return };
        if let Some(nodes) = self.fences.get_mut(claim) {
            nodes.remove(name);
            if nodes.is_empty() {
                self.fences.remove(claim);
            }
        }
    }

    /// A Module is like this.
    pub fn put_module(&mut self, id: Id, live: Live) -> Concerned {
        if let Some(known) = self.modules.get(&id) {
            let version = |live: &Live| live.text("/metadata/resourceVersion").to_owned();
            if known.uid() == live.uid() && compare_versions(&version(known), &version(&live)).is_ge() {
                return Concerned::new();
            }
        }
        let concerned = self.owner(&id);
        self.modules.insert(id, live);
        self.needs = None;
        concerned
    }

    /// A Module is gone: that concerns its owner, and those who wait for nodes where KMM still lists it.
    pub fn remove_module(&mut self, id: &Id) -> Concerned {
        if self.modules.remove(id).is_none() {
            return Concerned::new();
        }
        self.needs = None;
        let listed = self.nmcs.iter().filter(|(_, nmc)| nmc.modules.contains_key(id));
        let mut concerned: Concerned = listed.flat_map(|(node, _)| self.claims.concerned(node)).collect();
        concerned.extend(self.owner(id));
        concerned
    }

    /// There are no Modules any more.
    pub fn remove_modules(&mut self) {
        self.modules.clear();
        self.needs = None;
    }

    /// What KMM says of a node.
    pub fn put_nmc(&mut self, node: Arc<str>, nmc: Nmc) -> Concerned {
        if self.nmcs.get(&node) == Some(&nmc) {
            return Concerned::new();
        }
        let concerned = self.concerned(&node);
        self.nmcs.insert(node, nmc);
        concerned
    }

    /// KMM says no more of a node.
    pub fn remove_nmc(&mut self, node: &str) -> Concerned {
        if self.nmcs.remove(node).is_none() { Concerned::new() } else { self.concerned(node) }
    }

    /// What KMM says of a Module's images.
    pub fn put_images(&mut self, id: Id, images: Option<Images>) -> Concerned {
        if self.images.get(&id) == images.as_ref() {
            return Concerned::new();
        }
        let concerned = self.owner(&id);
        match images {
            Some(images) => drop(self.images.insert(id, images)),
            None => drop(self.images.remove(&id)),
        }
        concerned
    }

    /// A pod is like this, or of no interest.
    pub fn put_pod(&mut self, id: Id, pod: Option<Pod>) -> Concerned {
        self.pods_gone += u64::from(pod.is_none());
        let Some(pods) = &mut self.pods else { return Concerned::new() };
        let nodes = pods.put(id, pod);
        nodes.iter().flat_map(|node| self.holder(node)).collect()
    }

    /// All pods, as they were listed.
    pub fn put_pods(&mut self, pods: Pods) -> Concerned {
        self.pods_gone += 1;
        if self.pods.as_ref() == Some(&pods) {
            return Concerned::new();
        }
        self.pods = Some(pods);
        self.everybody()
    }

    /// Pods as an answer of the API server has them that was asked for when pods had gone so often. One that has gone since may be among them, and
    /// would never go again; so then they are left to the watch.
    pub fn put_seen(&mut self, seen: Vec<(Id, Pod)>, gone: u64) -> Concerned {
        if self.pods_gone != gone {
            return Concerned::new();
        }
        seen.into_iter().flat_map(|(id, pod)| self.put_pod(id, Some(pod))).collect()
    }

    /// How often pods have gone so far.
    #[must_use]
    pub fn pods_gone(&self) -> u64 {
        self.pods_gone
    }

    /// A resource claim is like this, or no pod has anything by it.
    pub fn put_holding(&mut self, claim: Id, holding: Option<Holding>) -> Concerned {
        let Some(held) = &mut self.held else { return Concerned::new() };
        let pods = held.put(claim, holding);
        let known = self.pods.as_ref();
        let pods = pods.iter().filter_map(|pod| known?.all.get(pod));
        pods.filter_map(|pod| self.holder(&pod.node)).collect()
    }

    /// A pod was asked to go, and goes.
    pub fn pod_leaves(&mut self, id: &Id) -> Concerned {
        let known = self.pods.as_ref().and_then(|pods| pods.all.get(id));
        let leaving = known.map(|pod| Pod { leaving: true, ..pod.clone() });
        leaving.map(|pod| self.put_pod(id.clone(), Some(pod))).unwrap_or_default()
    }

    /// All of a kind have been listed for the first time, or anew; or whether there is KMM has turned. Everybody looks.
    pub fn everybody(&self) -> Concerned {
        self.configs.keys().cloned().collect()
    }

    /// What is left of DeviceConfigs that are gone: claims and fences on nodes, Modules.
    #[must_use]
    pub fn orphans(&self) -> BTreeSet<String> {
        let mut all: BTreeSet<String> = self.claims.unknown().map(|claim| claim.to_string()).collect();
        let ours = self.modules.iter().filter(|(_, live)| {
            let name = live.text("/metadata/labels/hardware.tholepin.dev~1deviceconfig");
            !name.is_empty() && live.is_marked(name)
        });
        let claims = ours.map(|(id, _)| hardware::claim(&id.namespace, &id.name));
        let claims = claims.chain(self.fences.keys().cloned());
        all.extend(claims.filter(|claim| self.claims.owner(claim).is_none()));
        all
    }

    /// Whose Module this would be.
    fn owner(&self, module: &Id) -> Concerned {
        let claim = hardware::claim(&module.namespace, &module.name);
        self.claims.owner(&claim).cloned().into_iter().collect()
    }

    /// Whom the modules on a node concern: who has it or asks for it, and whose fence it has.
    fn concerned(&self, node: &str) -> Concerned {
        let mut concerned = self.claims.concerned(node);
        concerned.extend(self.fencer(node));
        concerned
    }

    /// Whose fence a node has.
    fn fencer(&self, node: &str) -> Option<Id> {
        let claim = self.nodes.get(node)?.fenced_for()?;
        self.claims.owner(claim).cloned()
    }

    /// Who has a node.
    fn holder(&self, node: &str) -> Option<Id> {
        self.claims.claim_on(node).and_then(|claim| self.claims.owner(claim)).cloned()
    }
}
