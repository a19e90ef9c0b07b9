//! The cluster as observed: everything that decisions about DeviceConfigs read.
//!
//! In: objects from watches, and from the answers to writes. Out: a [`ClusterState`], and the DeviceConfigs that each
//! change affects. Never: a wait, a decision, an older object in place of a newer one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::hardware::{self, keys};
use objects::observed::compare_versions;

use super::claim::{Claims, Id};
use super::claims_in_use::{ClaimsInUse, DeviceClaim, is_driver};
use super::device_names::DeviceNames;
use super::index::Index;
use super::nmc::{Images, Nmc};

mod config;
mod node;
mod observed;
mod pods;

pub use config::Config;
pub use node::{CORDON_TAINT, Node};
pub use observed::{ObservedObject, marks};
pub use pods::{Pod, Pods};

/// The environment of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// The platform is OpenShift: pods that load modules need a SecurityContextConstraint.
    pub openshift: bool,
    /// The image of this process, which contains the device plugin.
    pub image: String,
}

/// Everything observed about the cluster.
#[derive(Debug, Default)]
pub struct ClusterState {
    /// The environment of the process.
    pub environment: Environment,
    /// Claims of DeviceConfigs on nodes.
    pub claims: Claims,
    /// DeviceConfigs.
    pub configs: BTreeMap<Id, Config>,
    /// Nodes.
    pub nodes: BTreeMap<Arc<str>, Node>,
    /// Availability of KMM; `None`: not known yet.
    pub kmm: Option<Kmm>,
    /// Modules of all owners.
    pub modules: BTreeMap<Id, ObservedObject>,
    /// Reports of KMM about nodes.
    pub nmcs: BTreeMap<Arc<str>, Nmc>,
    /// Reports of KMM about the images of Modules.
    pub images: BTreeMap<Id, Images>,
    /// Pods that may have a device; `None`: not known.
    pub pods: Option<Pods>,
    /// Devices that pods have by resource claims; `None`: not known.
    pub claims_in_use: Option<ClaimsInUse>,
    /// Kinds that have been listed once.
    pub listed: BTreeSet<WatchedKind>,
    /// The number of pods that have gone so far.
    pods_gone: u64,
    /// The cached result of [`ClusterState::optional_watches`], which depends on DeviceConfigs and Modules only.
    optional_watches: Option<OptionalWatches>,
    /// Nodes with a cordon taint, by the claim that it names.
    cordon_taints: Index<String, Arc<str>>,
}

/// A watched kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchedKind {
    /// DeviceConfigs.
    Config,
    /// Nodes.
    Node,
    /// Modules.
    Module,
    /// NodeModulesConfigs.
    Nmc,
    /// ModuleImagesConfigs.
    Images,
}

/// Availability of KMM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kmm {
    /// Not installed.
    Absent,
    /// Installed; the API is served in this version.
    Served(String),
    /// Being deleted with all its objects: still served, but new objects are refused.
    Terminating(String),
}

impl Kmm {
    /// The version of the API, as long as it is served.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        match self {
            Self::Absent => None,
            Self::Served(version) | Self::Terminating(version) => Some(version),
        }
    }
}

/// Kinds that only some DeviceConfigs need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalWatches {
    /// Pods that may have a device.
    pub pods: bool,
    /// Resource claims of pods.
    pub claims: bool,
}

/// A key of the queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A DeviceConfig.
    Config(Id),
    /// The claim of a DeviceConfig that is gone.
    Orphan(String),
}

/// DeviceConfigs that a change affects.
pub type AffectedConfigs = BTreeSet<Id>;

impl ClusterState {
    /// A state in which nothing is known yet.
    #[must_use]
    pub fn new(environment: Environment) -> Self {
        Self { environment, claims: Claims::new(keys::LABEL_DRIVER), ..Self::default() }
    }

    /// Whether all kinds that decisions need have been listed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let has = |kind| self.listed.contains(&kind);
        let kmm = match self.kmm {
            None => false,
            Some(Kmm::Absent) => true,
            Some(Kmm::Served(_)) => {
                has(WatchedKind::Module) && has(WatchedKind::Nmc) && has(WatchedKind::Images)
            }
            // The definitions of the other kinds may have been deleted first.
            Some(Kmm::Terminating(_)) => has(WatchedKind::Module),
        };
        kmm && has(WatchedKind::Config) && has(WatchedKind::Node)
    }

    /// The optional watches that are needed: pods and claims matter only to DeviceConfigs that offer devices.
    pub fn optional_watches(&mut self) -> OptionalWatches {
        if let Some(known) = self.optional_watches {
            return known;
        }
        let names = |config: &Config| {
            let module = config.module.as_deref().map(|module| Id::new(&config.id().namespace, module));
            let live = module.and_then(|module| self.modules.get(&module));
            let recorded = live.map(|live| DeviceNames::recorded_on(&live.body).names());
            config.device_names().into_iter().chain(recorded.unwrap_or_default())
        };
        let mut names = self.configs.values().flat_map(names).peekable();
        let watches =
            OptionalWatches { pods: names.peek().is_some(), claims: names.any(|name| is_driver(&name)) };
        *self.optional_watches.insert(watches)
    }

    /// Adds or replaces a DeviceConfig. An unreadable one keeps its known spec.
    pub fn put_config(&mut self, mut config: Config) -> AffectedConfigs {
        let id = config.id();
        if let Some(known) = self.configs.get(&id) {
            let version =
                |config: &Config| config.object.metadata.resource_version.clone().unwrap_or_default();
            let same_object = known.object.metadata.uid == config.object.metadata.uid;
            if same_object && compare_versions(&version(known), &version(&config)).is_ge() {
                return AffectedConfigs::new();
            }
            if same_object && config.unreadable.is_some() {
                config.object.spec = known.object.spec.clone();
            }
        }
        let nodes = self.nodes.iter().map(|(name, node)| (name, &node.labels));
        let affected = self.claims.put(config.claimant(), nodes);
        self.configs.insert(id, config);
        self.optional_watches = None;
        affected
    }

    /// Removes a DeviceConfig.
    pub fn remove_config(&mut self, id: &Id) -> AffectedConfigs {
        self.configs.remove(id);
        self.optional_watches = None;
        self.claims.remove(id)
    }

    /// Adds or replaces a node.
    pub fn put_node(&mut self, name: Arc<str>, mut node: Node) -> AffectedConfigs {
        if let Some(known) = self.nodes.get(&name) {
            if known.cordon_taint_claim() == node.cordon_taint_claim() {
                node.cordon_taint_seen = known.cordon_taint_seen;
            }
            if compare_versions(&known.version, &node.version).is_ge() {
                return AffectedConfigs::new();
            }
            let is_same = Node { version: known.version.clone(), ..node.clone() } == *known;
            if is_same {
                self.nodes.insert(name, node);
                return AffectedConfigs::new();
            }
        }
        let mut affected = self.claims.put_node(&name, &node.labels);
        match self.claims.owner_of_node(&name) {
            Some(owner) => drop(affected.insert(owner.clone())),
            // The next owner may wait for a label of KMM to go.
            None => affected.extend(self.claims.affected(&name)),
        }
        affected.extend(self.cordon_taint_owner(&name));
        self.forget_cordon_taint(&name);
        if let Some(claim) = node.cordon_taint_claim() {
            self.cordon_taints.insert(claim.to_owned(), Arc::clone(&name));
        }
        self.nodes.insert(Arc::clone(&name), node);
        affected.extend(self.cordon_taint_owner(&name));
        affected
    }

    /// Removes a node.
    pub fn remove_node(&mut self, name: &Arc<str>) -> AffectedConfigs {
        self.forget_cordon_taint(name);
        self.nodes.remove(name);
        self.claims.remove_node(name)
    }

    /// Nodes with a cordon taint that names this claim, sorted.
    pub fn cordon_tainted(&self, claim: &str) -> impl Iterator<Item = &Arc<str>> + use<'_> {
        self.cordon_taints.of(claim)
    }

    fn forget_cordon_taint(&mut self, name: &Arc<str>) {
        if let Some(claim) = self.nodes.get(name).and_then(Node::cordon_taint_claim) {
            self.cordon_taints.remove(claim, name);
        }
    }

    /// Adds or replaces a Module.
    pub fn put_module(&mut self, id: Id, live: ObservedObject) -> AffectedConfigs {
        if let Some(known) = self.modules.get(&id) {
            let version = |live: &ObservedObject| live.text("/metadata/resourceVersion").to_owned();
            if known.uid() == live.uid() && compare_versions(&version(known), &version(&live)).is_ge() {
                return AffectedConfigs::new();
            }
        }
        let affected = self.module_owner(&id);
        self.modules.insert(id, live);
        self.optional_watches = None;
        affected
    }

    /// Removes a Module. This affects its owner, and the DeviceConfigs of nodes where KMM still lists it.
    pub fn remove_module(&mut self, id: &Id) -> AffectedConfigs {
        if self.modules.remove(id).is_none() {
            return AffectedConfigs::new();
        }
        self.optional_watches = None;
        let listed = self.nmcs.iter().filter(|(_, nmc)| nmc.modules.contains_key(id));
        let mut affected: AffectedConfigs = listed.flat_map(|(node, _)| self.claims.affected(node)).collect();
        affected.extend(self.module_owner(id));
        affected
    }

    /// Removes KMM and all of its objects.
    pub fn remove_kmm(&mut self) -> AffectedConfigs {
        self.kmm = Some(Kmm::Absent);
        self.modules.clear();
        self.nmcs.clear();
        self.images.clear();
        self.optional_watches = None;
        self.all_configs()
    }

    /// Replaces the report of KMM about a node; `None` removes it.
    pub fn put_nmc(&mut self, node: Arc<str>, nmc: Option<Nmc>) -> AffectedConfigs {
        let mut affected = self.claims.affected(&node);
        affected.extend(self.cordon_taint_owner(&node));
        // A node that was released may have been the last one with the module of a DeviceConfig that is being deleted.
        let before = self.nmcs.get(&node).into_iter().flat_map(|nmc| nmc.modules.keys());
        affected.extend(before.flat_map(|module| self.module_owner(module)));
        if replace(&mut self.nmcs, node, nmc) { affected } else { AffectedConfigs::new() }
    }

    /// Whether KMM lists a Module on a node: the driver is loaded, or about to be.
    #[must_use]
    pub fn is_listed(&self, node: &str, module: &Id) -> bool {
        self.nmcs.get(node).is_some_and(|nmc| nmc.modules.contains_key(module))
    }

    /// Replaces the report of KMM about the images of a Module; `None` removes it.
    pub fn put_images(&mut self, id: Id, images: Option<Images>) -> AffectedConfigs {
        let affected = self.module_owner(&id);
        if replace(&mut self.images, id, images) { affected } else { AffectedConfigs::new() }
    }

    /// Replaces a pod; `None` removes it.
    pub fn put_pod(&mut self, id: Id, pod: Option<Pod>) -> AffectedConfigs {
        self.pods_gone += u64::from(pod.is_none());
        let Some(pods) = &mut self.pods else { return AffectedConfigs::new() };
        let nodes = pods.put(id, pod);
        nodes.iter().filter_map(|node| self.claims.owner_of_node(node)).cloned().collect()
    }

    /// Replaces all pods by a list.
    pub fn put_pods(&mut self, pods: Pods) -> AffectedConfigs {
        self.pods_gone += 1;
        if self.pods.as_ref() == Some(&pods) {
            return AffectedConfigs::new();
        }
        self.pods = Some(pods);
        self.all_configs()
    }

    /// Adds pods from a list that was requested when [`Self::pods_gone`] was `gone`. If pods have gone since, the list
    /// may contain one of them, and the watch would never remove it again; so the list is ignored.
    pub fn put_listed_pods(&mut self, listed: Vec<(Id, Pod)>, gone: u64) -> AffectedConfigs {
        if self.pods_gone != gone {
            return AffectedConfigs::new();
        }
        listed.into_iter().flat_map(|(id, pod)| self.put_pod(id, Some(pod))).collect()
    }

    /// The number of pods that have gone so far.
    #[must_use]
    pub fn pods_gone(&self) -> u64 {
        self.pods_gone
    }

    /// Replaces a resource claim; `None`: no pod has a device by it.
    pub fn put_claim_in_use(&mut self, id: Id, claim: Option<DeviceClaim>) -> AffectedConfigs {
        let Some(claims) = &mut self.claims_in_use else { return AffectedConfigs::new() };
        let pods = claims.put(id, claim);
        let pods = pods.iter().filter_map(|pod| self.pods.as_ref()?.all.get(pod));
        pods.filter_map(|pod| self.claims.owner_of_node(&pod.node)).cloned().collect()
    }

    /// Replaces all resource claims by a list.
    pub fn put_claims_in_use(&mut self, claims: ClaimsInUse) -> AffectedConfigs {
        if self.claims_in_use.as_ref() == Some(&claims) {
            return AffectedConfigs::new();
        }
        self.claims_in_use = Some(claims);
        self.all_configs()
    }

    /// Marks a pod as terminating after its eviction.
    pub fn mark_pod_terminating(&mut self, id: &Id) -> AffectedConfigs {
        let known = self.pods.as_ref().and_then(|pods| pods.all.get(id));
        let terminating = known.map(|pod| Pod { terminating: true, ..pod.clone() });
        terminating.map(|pod| self.put_pod(id.clone(), Some(pod))).unwrap_or_default()
    }

    /// All DeviceConfigs: affected by a list, and by a change in the availability of KMM.
    pub fn all_configs(&self) -> AffectedConfigs {
        self.configs.keys().cloned().collect()
    }

    /// Claims of DeviceConfigs that are gone: on nodes, in cordon taints, of Modules.
    #[must_use]
    pub fn orphans(&self) -> BTreeSet<String> {
        let modules = self.modules.iter().filter(|(_, live)| live.is_marked(live.device_config()));
        let modules = modules.filter(|(_, live)| !live.device_config().is_empty());
        let claims = modules.map(|(id, _)| hardware::claim(&id.namespace, &id.name));
        let claims = claims.chain(self.cordon_taints.keys().cloned());
        let claims = claims.filter(|claim| self.claims.owner(claim).is_none());
        claims.chain(self.claims.orphaned().map(|claim| claim.to_string())).collect()
    }

    /// The DeviceConfig whose Module has this name.
    fn module_owner(&self, module: &Id) -> AffectedConfigs {
        let claim = hardware::claim(&module.namespace, &module.name);
        self.claims.owner(&claim).cloned().into_iter().collect()
    }

    /// The DeviceConfig whose cordon taint a node has.
    fn cordon_taint_owner(&self, node: &str) -> Option<Id> {
        let claim = self.nodes.get(node)?.cordon_taint_claim()?;
        self.claims.owner(claim).cloned()
    }
}

/// Replaces or removes an entry. Returns whether that makes a difference.
fn replace<K: Ord, V: PartialEq>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> bool {
    let is_changed = map.get(&key) != value.as_ref();
    match value {
        Some(value) if is_changed => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
        _ => {}
    }
    is_changed
}
