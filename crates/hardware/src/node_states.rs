//! The states of the nodes of one DeviceConfig.
//!
//! In: the [`ClusterState`]. Out: [`NodeStates`]: each node that it matches or has, and everything that is decided or
//! told about it. Never: a decision.

use std::collections::{BTreeMap, BTreeSet};

use api::hardware::{KernelMapping, Spec, keys};
use api::kmm;
use jiff::Timestamp;

use super::claim::{Id, Verdict};
use super::claims_in_use::is_driver;
use super::cluster_state::{ClusterState, Config, Node};
use super::device_names::DeviceNames;
use super::kernel::{Names, Served, served};
use super::loader::{Load, Loader};
use super::nmc::{Loaded, NodeModule};
use super::rollout::{self, Users};
use super::taints::untolerated;

/// Names of the objects and labels of a DeviceConfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectNames {
    /// The Module's namespace and name.
    pub module: Id,
    /// The claim on nodes.
    pub claim: String,
    /// The label with the version.
    pub version_label: String,
}

/// The states of all nodes that a DeviceConfig matches or has.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeStates<'a> {
    /// What things are called.
    pub object_names: ObjectNames,
    /// The nodes, by name.
    pub nodes: Vec<NodeState<'a>>,
    /// Under which names the devices are offered, or were with a version that may still be somewhere.
    pub offered: DeviceNames,
    /// All of these names: pods that have something under one of them use the devices.
    pub names: BTreeSet<String>,
}

/// The state of a node, seen from one DeviceConfig.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeState<'a> {
    /// Its name.
    pub name: &'a str,
    /// As it is.
    pub node: &'a Node,
    /// Whose it is.
    pub ownership: Ownership,
    /// The version its label says.
    pub version: Option<&'a str>,
    /// What there is for its kernel.
    pub served: Served,
    /// The taint that keeps the driver away.
    pub taint: Option<String>,
    /// The version that is loaded; empty: one without.
    pub loaded: Option<&'a str>,
    /// How KMM means to have it loaded, or has; `None`: not at all.
    pub configured: Option<&'a Load>,
    /// KMM has it on its list, or has it loaded.
    pub in_use: bool,
    /// The driver that its label says is loaded, as it should be, since the machine was started; and if that is the
    /// version that is asked for, KMM was told to load it as is asked for.
    pub ready: bool,
    /// A driver of ours is loaded since the machine was started, of whatever version.
    pub works: bool,
    /// It was loaded before the machine was started last.
    pub rebooted: bool,
    /// The device plugin runs.
    pub plugin: bool,
    /// Since when it has our cordon taint, put there by any process.
    pub fenced_since: Option<Timestamp>,
    /// Since when we have seen it there.
    pub fence_seen: Option<Timestamp>,
    /// What is loaded is not what the Module says of this very version: KMM is about to unload it.
    pub stale: bool,
    /// Who uses its devices.
    pub users: Users,
}

/// The ownership of a node, seen from one DeviceConfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Ours.
    Mine,
    /// Ours, and it no longer matches.
    Ending,
    /// Ours, and we are being deleted.
    Leaving,
    /// It is to become ours.
    Open,
    /// It is to become ours once this has gone from it.
    Blocked(String),
    /// Another DeviceConfig has it.
    Lost(Id),
    /// No DeviceConfig has it.
    None,
}

impl Ownership {
    /// It has our claim.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::Mine | Self::Ending | Self::Leaving)
    }
}

impl ObjectNames {
    /// What things are called for this one; `None`: its namespace is too long for any Module.
    #[must_use]
    pub fn of(config: &Config) -> Option<Self> {
        let module = Id { namespace: config.id().namespace, name: config.module.clone()? };
        let version_label = kmm::keys::version_module(&module.namespace, &module.name);
        Some(Self { claim: config.claim(), version_label, module })
    }

    /// The Module's name, for templates of images.
    #[must_use]
    pub fn names(&self) -> Names<'_> {
        Names { name: &self.module.name, namespace: &self.module.namespace }
    }

    /// The same for a claim whose DeviceConfig is gone.
    #[must_use]
    pub fn of_claim(claim: &str) -> Self {
        let (namespace, name) = claim.split_once('.').unwrap_or((claim, ""));
        let version_label = kmm::keys::version_module(namespace, name);
        Self { module: Id::new(namespace, name), claim: claim.to_owned(), version_label }
    }
}

impl<'a> NodeStates<'a> {
    /// How it is with the nodes of this one.
    #[must_use]
    pub fn of(cluster: &'a ClusterState, config: &Config, object_names: ObjectNames) -> Self {
        let id = config.id();
        let names: BTreeSet<&str> = cluster
            .claims
            .matching(&id)
            .chain(cluster.claims.holding(&object_names.claim))
            .map(|name| &**name)
            .collect();
        let live = cluster.modules.get(&object_names.module);
        let offered = live.map(|live| DeviceNames::on(&live.body)).unwrap_or_default();
        let offered = offered.and(&config.object.spec.driver_version, config.device_names());
        let device_names = offered.names();
        let mut look = Look {
            cluster,
            id: &id,
            object_names: &object_names,
            mappings: config.object.spec.mappings(),
            spec: &config.object.spec,
            asked: Loader::asked(&config.object.spec),
            device_names: &device_names,
            loader: live.and_then(|live| Loader::of(&live.body)),
            kernels: BTreeMap::new(),
        };
        let nodes = names
            .into_iter()
            .filter_map(|name| {
                let (name, node) = cluster.nodes.get_key_value(name)?;
                Some(look.at(name, node))
            })
            .collect();
        Self { object_names, nodes, offered, names: device_names }
    }

    /// The nodes with our claim.
    pub fn ours(&self) -> impl Iterator<Item = &NodeState<'a>> {
        self.nodes.iter().filter(|state| state.ownership.is_ours())
    }
}

impl<'a> NodeState<'a> {
    /// There is an image for its kernel.
    #[must_use]
    pub fn is_supported(&self) -> bool {
        matches!(self.served, Served::By(_))
    }

    /// It should have the driver.
    #[must_use]
    pub fn is_desired(&self) -> bool {
        self.ownership == Ownership::Mine && self.is_supported() && self.taint.is_none()
    }

    /// As a rollout sees it.
    #[must_use]
    pub fn in_rollout(&self) -> rollout::RolloutNode<'a> {
        rollout::RolloutNode {
            node: self.name,
            ending: self.ownership == Ownership::Ending,
            version: self.version,
            loaded: self.loaded,
            ready: self.ready,
            fenced: self.fenced_since.is_some(),
            stale: self.stale,
            reserved: false,
            supported: self.is_supported(),
            maintenance: self.taint.is_some(),
            rebooted: self.rebooted,
            users: self.users.clone(),
        }
    }
}

struct Look<'a, 'b> {
    cluster: &'a ClusterState,
    id: &'b Id,
    object_names: &'b ObjectNames,
    mappings: Vec<KernelMapping>,
    spec: &'b Spec,
    asked: Loader,
    device_names: &'b BTreeSet<String>,
    /// That of the Module as it is.
    loader: Option<Loader>,
    /// Nodes are many and kernels few.
    kernels: BTreeMap<&'a str, (Served, Option<Load>)>,
}

impl<'a> Look<'a, '_> {
    fn at(&mut self, name: &'a str, node: &'a Node) -> NodeState<'a> {
        let object_names = self.object_names;
        let (module, names) = (&object_names.module, object_names.names());
        let (served, asked) = self
            .kernels
            .entry(&node.kernel)
            .or_insert_with(|| {
                let served = served(&self.mappings, &node.kernel, names);
                let asked = self.asked.on(&node.kernel, names);
                (served, asked)
            })
            .clone();
        let slot = self.cluster.nmcs.get(name).and_then(|nmc| nmc.modules.get(module));
        let loaded = slot.and_then(|slot| slot.loaded.as_ref());
        let label = |key: &str| node.labels.get(key).map(|value| &**value);
        let version = label(&self.object_names.version_label);
        let booted = loaded.is_some_and(|loaded| loaded.boot == node.boot);
        // A node that keeps another version keeps how that is loaded, too.
        let is_asked = |slot: &NodeModule| {
            version != Some(&self.spec.driver_version) || asked.is_none() || slot.wanted == asked
        };
        let same = slot.is_some_and(|slot| slot.same && is_asked(slot));
        let current = loaded.is_some_and(|loaded| loaded.version.as_deref() == version);
        let fence = node.fence().filter(|fence| fence.value.as_deref() == Some(&object_names.claim));
        // One without a time is older than any that we make.
        let fenced_since =
            fence.map(|fence| fence.time_added.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0));
        let plugin = kmm::keys::device_plugin_ready(&module.namespace, &module.name);
        NodeState {
            name,
            node,
            ownership: self.ownership(name),
            version,
            served,
            taint: untolerated(node, &self.spec.tolerations),
            loaded: loaded.map(|loaded| loaded.version.as_deref().unwrap_or_default()),
            configured: slot.and_then(|slot| slot.wanted.as_ref()),
            in_use: slot.is_some(),
            ready: same && current && booted,
            works: booted,
            rebooted: same && current && !booted,
            plugin: label(&plugin).is_some(),
            fenced_since,
            fence_seen: fenced_since.map(|since| node.fence_seen.unwrap_or(since)),
            stale: fence.is_some() && loaded.is_some_and(|loaded| self.is_stale(node, version, loaded)),
            users: self.users(name),
        }
    }

    fn is_stale(&self, node: &Node, version: Option<&str>, loaded: &Loaded) -> bool {
        let follows = |loader: &&Loader| version == Some(loader.version());
        let loader = self.loader.as_ref().filter(follows);
        loader.is_some_and(|loader| {
            loader.on(&node.kernel, self.object_names.names()).as_ref() != Some(&loaded.how)
        })
    }

    fn ownership(&self, node: &str) -> Ownership {
        let me = |id: &Id| id == self.id;
        match self.cluster.claims.verdict(node) {
            Verdict::Held(owner) if me(&owner) => Ownership::Mine,
            Verdict::Ending { owner, .. } if me(&owner) => Ownership::Ending,
            Verdict::Leaving { owner, .. } if me(&owner) => Ownership::Leaving,
            Verdict::Open(heir) if me(&heir) => {
                self.blocker(node).map_or(Ownership::Open, Ownership::Blocked)
            }
            Verdict::Held(other) | Verdict::Open(other) => Ownership::Lost(other),
            Verdict::Ending { owner, heir } | Verdict::Leaving { owner, heir } => match heir {
                Some(heir) if !me(&heir) => Ownership::Lost(heir),
                Some(_) => Ownership::Blocked(owner.to_string()),
                None => Ownership::None,
            },
            Verdict::Free | Verdict::Stale => Ownership::None,
        }
    }

    /// A Module of ours that is still on a node without its claim, or with an unknown claim.
    fn blocker(&self, node: &str) -> Option<String> {
        let of_us = |id: &Id| {
            let live = self.cluster.modules.get(id)?;
            let name = live.body.pointer("/metadata/labels")?.get(keys::LABEL_DEVICE_CONFIG)?.as_str()?;
            live.is_marked(name).then(|| format!("Module {id}"))
        };
        let listed = self.cluster.nmcs.get(node).into_iter().flat_map(|nmc| nmc.modules.keys());
        let claimed = self.cluster.claims.claim_on(node).map(|claim| ObjectNames::of_claim(claim).module);
        listed.chain(&claimed).filter(|id| **id != self.object_names.module).find_map(of_us)
    }

    fn users(&self, node: &str) -> Users {
        let names = self.device_names;
        if names.is_empty() {
            return Users::Pods(Vec::new());
        }
        let Some(pods) = &self.cluster.pods else { return Users::Unknown };
        let claims = self.cluster.claims_in_use.as_ref();
        if claims.is_none() && names.iter().any(|name| is_driver(name)) {
            return Users::Unknown;
        }
        let using = pods.on(node).filter(|(_, pod)| pod.uses(names, claims));
        let told = using.map(|(id, pod)| rollout::Pod {
            namespace: id.namespace.clone(),
            name: id.name.clone(),
            leaving: pod.leaving,
        });
        Users::Pods(told.collect())
    }
}
