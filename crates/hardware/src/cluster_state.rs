//! The cluster as observed: everything that decisions about DeviceConfigs read.
//!
//! In: what watches and the answers of our own writes say. Out: a [`ClusterState`] that says the same, and whose work a
//! change is. Never: a wait, a decision, or older news over newer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::hardware::{self, keys};

use super::claim::{Claims, Id};
use super::claims_in_use::{ClaimsInUse, DeviceClaim, is_driver};
use super::device_names::DeviceNames;
use super::nmc::{Images, Nmc};
use objects::observed::compare_versions;

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
    /// Pods that load modules need a SecurityContextConstraint.
    pub openshift: bool,
    /// Our own image, which has our device plugin in it.
    pub image: String,
}

/// Everything observed about the cluster.
#[derive(Debug, Default)]
pub struct ClusterState {
    /// The environment of the process.
    pub environment: Environment,
    /// Who asks for which nodes.
    pub claims: Claims,
    /// DeviceConfigs.
    pub configs: BTreeMap<Id, Config>,
    /// Nodes.
    pub nodes: BTreeMap<Arc<str>, Node>,
    /// Whether there is KMM; `None`: that is not known yet.
    pub kmm: Option<Kmm>,
    /// Modules of all owners.
    pub modules: BTreeMap<Id, ObservedObject>,
    /// What KMM says of nodes.
    pub nmcs: BTreeMap<Arc<str>, Nmc>,
    /// What KMM says of the images of Modules.
    pub images: BTreeMap<Id, Images>,
    /// Pods that may have a device; `None`: not known.
    pub pods: Option<Pods>,
    /// How often pods have gone so far.
    pods_gone: u64,
    /// What [`ClusterState::needs`] said; `None` when DeviceConfigs or Modules have changed since. Nodes and pods
    /// change far more often.
    needs: Option<Needs>,
    /// What pods have by resource claims; `None`: not known.
    pub claims_in_use: Option<ClaimsInUse>,
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

/// What is worth to know only for some DeviceConfigs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Pods that may have a device.
    pub pods: bool,
    /// What pods have by resource claims.
    pub claims: bool,
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
pub type AffectedConfigs = BTreeSet<Id>;

impl ClusterState {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(environment: Environment) -> Self {
        Self { environment, claims: Claims::new(keys::LABEL_DRIVER), ..Self::default() }
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

    /// The kinds to be watched: pods and claims matter only where devices are offered.
    pub fn needs(&mut self) -> Needs {
        let needs = self.needs.unwrap_or_else(|| self.wanted());
        self.needs = Some(needs);
        needs
    }

    fn wanted(&self) -> Needs {
        let of = |config: &Config| config.device_names().into_iter().chain(self.remembered(config));
        let mut names = self.configs.values().flat_map(of).peekable();
        Needs { pods: names.peek().is_some(), claims: names.any(|name| is_driver(&name)) }
    }

    /// The names that its Module remembers, under which devices are or were offered.
    fn remembered(&self, config: &Config) -> BTreeSet<String> {
        let module = config.module.as_deref().map(|module| Id::new(&config.id().namespace, module));
        let live = module.and_then(|module| self.modules.get(&module));
        live.map(|live| DeviceNames::on(&live.body).names()).unwrap_or_default()
    }

    /// A DeviceConfig is like this. Of one that cannot be read the spec stays as it was known, and nothing new is
    /// begun.
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
        let concerned =
            self.claims.put(config.claimant(), self.nodes.iter().map(|(name, node)| (name, &node.labels)));
        self.configs.insert(id, config);
        self.needs = None;
        concerned
    }

    /// A DeviceConfig is gone.
    pub fn remove_config(&mut self, id: &Id) -> AffectedConfigs {
        self.configs.remove(id);
        self.needs = None;
        self.claims.remove(id)
    }

    /// A node is like this.
    pub fn put_node(&mut self, name: Arc<str>, mut node: Node) -> AffectedConfigs {
        if let Some(known) = self.nodes.get(&name) {
            if known.fenced_for() == node.fenced_for() {
                node.fence_seen = known.fence_seen;
            }
            if compare_versions(&known.version, &node.version).is_ge() {
                return AffectedConfigs::new();
            }
            let same = Node { version: known.version.clone(), ..node.clone() } == *known;
            if same {
                self.nodes.insert(name, node);
                return AffectedConfigs::new();
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
    pub fn remove_node(&mut self, name: &Arc<str>) -> AffectedConfigs {
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
    pub fn put_module(&mut self, id: Id, live: ObservedObject) -> AffectedConfigs {
        if let Some(known) = self.modules.get(&id) {
            let version = |live: &ObservedObject| live.text("/metadata/resourceVersion").to_owned();
            if known.uid() == live.uid() && compare_versions(&version(known), &version(&live)).is_ge() {
                return AffectedConfigs::new();
            }
        }
        let concerned = self.owner(&id);
        self.modules.insert(id, live);
        self.needs = None;
        concerned
    }

    /// A Module is gone: that concerns its owner, and those who wait for nodes where KMM still lists it.
    pub fn remove_module(&mut self, id: &Id) -> AffectedConfigs {
        if self.modules.remove(id).is_none() {
            return AffectedConfigs::new();
        }
        self.needs = None;
        let listed = self.nmcs.iter().filter(|(_, nmc)| nmc.modules.contains_key(id));
        let mut concerned: AffectedConfigs =
            listed.flat_map(|(node, _)| self.claims.concerned(node)).collect();
        concerned.extend(self.owner(id));
        concerned
    }

    /// There are no Modules any more.
    pub fn remove_modules(&mut self) {
        self.modules.clear();
        self.needs = None;
    }

    /// What KMM says of a node.
    pub fn put_nmc(&mut self, node: Arc<str>, nmc: Nmc) -> AffectedConfigs {
        if self.nmcs.get(&node) == Some(&nmc) {
            return AffectedConfigs::new();
        }
        let concerned = self.concerned(&node);
        self.nmcs.insert(node, nmc);
        concerned
    }

    /// KMM says no more of a node.
    pub fn remove_nmc(&mut self, node: &str) -> AffectedConfigs {
        if self.nmcs.remove(node).is_none() { AffectedConfigs::new() } else { self.concerned(node) }
    }

    /// What KMM says of a Module's images.
    pub fn put_images(&mut self, id: Id, images: Option<Images>) -> AffectedConfigs {
        if self.images.get(&id) == images.as_ref() {
            return AffectedConfigs::new();
        }
        let concerned = self.owner(&id);
        match images {
            Some(images) => drop(self.images.insert(id, images)),
            None => drop(self.images.remove(&id)),
        }
        concerned
    }

    /// A pod is like this, or of no interest.
    pub fn put_pod(&mut self, id: Id, pod: Option<Pod>) -> AffectedConfigs {
        self.pods_gone += u64::from(pod.is_none());
        let Some(pods) = &mut self.pods else { return AffectedConfigs::new() };
        let nodes = pods.put(id, pod);
        nodes.iter().flat_map(|node| self.holder(node)).collect()
    }

    /// All pods, as they were listed.
    pub fn put_pods(&mut self, pods: Pods) -> AffectedConfigs {
        self.pods_gone += 1;
        if self.pods.as_ref() == Some(&pods) {
            return AffectedConfigs::new();
        }
        self.pods = Some(pods);
        self.everybody()
    }

    /// Pods as an answer of the API server has them that was asked for when pods had gone so often. One that has gone
    /// since may be among them, and would never go again; so then they are left to the watch.
    pub fn put_listed_pods(&mut self, seen: Vec<(Id, Pod)>, gone: u64) -> AffectedConfigs {
        if self.pods_gone != gone {
            return AffectedConfigs::new();
        }
        seen.into_iter().flat_map(|(id, pod)| self.put_pod(id, Some(pod))).collect()
    }

    /// How often pods have gone so far.
    #[must_use]
    pub fn pods_gone(&self) -> u64 {
        self.pods_gone
    }

    /// A resource claim is like this, or no pod has anything by it.
    pub fn put_claim_in_use(&mut self, id: Id, claim: Option<DeviceClaim>) -> AffectedConfigs {
        let Some(claims) = &mut self.claims_in_use else { return AffectedConfigs::new() };
        let pods = claims.put(id, claim);
        let known = self.pods.as_ref();
        let pods = pods.iter().filter_map(|pod| known?.all.get(pod));
        pods.filter_map(|pod| self.holder(&pod.node)).collect()
    }

    /// A pod was asked to go, and goes.
    pub fn pod_leaves(&mut self, id: &Id) -> AffectedConfigs {
        let known = self.pods.as_ref().and_then(|pods| pods.all.get(id));
        let leaving = known.map(|pod| Pod { leaving: true, ..pod.clone() });
        leaving.map(|pod| self.put_pod(id.clone(), Some(pod))).unwrap_or_default()
    }

    /// All of a kind have been listed for the first time, or anew; or whether there is KMM has turned. Everybody looks.
    pub fn everybody(&self) -> AffectedConfigs {
        self.configs.keys().cloned().collect()
    }

    /// What is left of DeviceConfigs that are gone: claims and fences on nodes, Modules.
    #[must_use]
    pub fn orphans(&self) -> BTreeSet<String> {
        let mut all: BTreeSet<String> = self.claims.unknown().map(|claim| claim.to_string()).collect();
        let ours = self.modules.iter().filter(|(_, live)| {
            let name = live.device_config();
            !name.is_empty() && live.is_marked(name)
        });
        let claims = ours.map(|(id, _)| hardware::claim(&id.namespace, &id.name));
        let claims = claims.chain(self.fences.keys().cloned());
        all.extend(claims.filter(|claim| self.claims.owner(claim).is_none()));
        all
    }

    /// Whose Module this would be.
    fn owner(&self, module: &Id) -> AffectedConfigs {
        let claim = hardware::claim(&module.namespace, &module.name);
        self.claims.owner(&claim).cloned().into_iter().collect()
    }

    /// Whom the modules on a node concern: who has it or asks for it, and whose fence it has.
    fn concerned(&self, node: &str) -> AffectedConfigs {
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
