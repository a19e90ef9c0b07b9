//! The states of the nodes of one DeviceConfig.
//!
//! In: the [`ClusterState`]. Out: [`NodeStates`]: the nodes that match or are claimed, with everything known about
//! them. Never: a decision.

use std::collections::{BTreeMap, BTreeSet};

use api::hardware::{self, KernelMapping, Spec};
use api::kmm;
use jiff::Timestamp;

use super::claim::{Assignment, Id};
use super::claims_in_use::is_driver;
use super::cluster_state::{self, ClusterState, Config, Node};
use super::device_names::DeviceNames;
use super::kernel::{KernelSupport, TemplateNames, kernel_support};
use super::loader::{Load, Loader};
use super::nmc::{Loaded, NodeModule};
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

/// The states of all nodes that a DeviceConfig matches or has claimed.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeStates<'a> {
    /// Names of objects and labels.
    pub object_names: ObjectNames,
    /// The nodes, by name.
    pub nodes: Vec<NodeState<'a>>,
    /// Names under which devices are offered, by version: now, and with versions that may still be on a node.
    pub names_by_version: DeviceNames,
    /// All of these names: pods that have a device under one of them use the devices.
    pub device_names: BTreeSet<String>,
}

/// The state of a node as one DeviceConfig sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeState<'a> {
    /// The name.
    pub name: &'a str,
    /// The node.
    pub node: &'a Node,
    /// The ownership of the node.
    pub ownership: Ownership,
    /// The version that the label names.
    pub version: Option<&'a str>,
    /// The image for the kernel.
    pub support: KernelSupport,
    /// The taint that keeps the driver away.
    pub taint: Option<String>,
    /// The loaded version; empty for a driver without version.
    pub loaded: Option<&'a str>,
    /// The load that KMM has configured; `None`: the driver should not be loaded.
    pub configured: Option<&'a Load>,
    /// KMM lists the Module on the node, or has it loaded.
    pub in_use: bool,
    /// The driver that the label names is loaded as configured since the last boot. For the desired version, KMM was
    /// also configured as desired.
    pub ready: bool,
    /// A driver of the DeviceConfig is loaded since the last boot, in any version.
    pub works: bool,
    /// The driver was loaded before the last boot.
    pub rebooted: bool,
    /// The device plugin runs, or the DRA driver.
    pub plugin: bool,
    /// The time at which any process added our cordon taint.
    pub cordon_taint_since: Option<Timestamp>,
    /// The time at which this process first saw our cordon taint.
    pub cordon_taint_seen: Option<Timestamp>,
    /// The loaded driver differs from what the Module says of this very version: KMM is about to unload it.
    pub stale: bool,
    /// The pods that use the devices.
    pub users: Users,
}

/// The pods that use the devices of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Users {
    /// Not known yet.
    Unknown,
    /// These pods; an empty list means that the devices are free.
    Pods(Vec<Pod>),
}

/// A pod that uses devices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pod {
    /// Namespace and name.
    pub id: Id,
    /// Deletion has begun.
    pub terminating: bool,
    /// An eviction brings it back to the node at once.
    pub returns: bool,
}

/// The ownership of a node as one DeviceConfig sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Claimed by this DeviceConfig.
    Owned,
    /// Claimed by this DeviceConfig, whose selector no longer matches.
    Unmatched,
    /// Claimed by this DeviceConfig, which is being deleted.
    Deleting,
    /// To be claimed by this DeviceConfig.
    Claimable,
    /// To be claimed by this DeviceConfig once the named object has left the node.
    Blocked(String),
    /// Claimed by another DeviceConfig.
    Other(Id),
    /// Claimed by no DeviceConfig.
    None,
}

impl Ownership {
    /// Whether the node has the claim of this DeviceConfig.
    #[must_use]
    pub fn is_claimed(&self) -> bool {
        matches!(self, Self::Owned | Self::Unmatched | Self::Deleting)
    }
}

impl Users {
    /// Whether pods use the devices, or may use them.
    #[must_use]
    pub fn any(&self) -> bool {
        !matches!(self, Self::Pods(pods) if pods.is_empty())
    }

    /// The pods that an eviction brings back at once. Without them the devices never become free by evictions.
    pub fn returning(&self) -> impl Iterator<Item = &Pod> {
        let pods = if let Self::Pods(pods) = self { pods.as_slice() } else { &[] };
        pods.iter().filter(|pod| pod.returns)
    }

    /// The first of the pods and the number of others, for people; `None` without pods.
    #[must_use]
    pub fn summary(&self) -> Option<String> {
        let Self::Pods(pods) = self else { return Some("pods that are not known yet".to_owned()) };
        let first = pods.iter().min()?;
        let more = if pods.len() > 1 { format!(" and {} more", pods.len() - 1) } else { String::new() };
        Some(format!("{}{more}", first.id))
    }
}

impl ObjectNames {
    /// The names for a DeviceConfig; `None`: its namespace is too long for any Module.
    #[must_use]
    pub fn of(config: &Config) -> Option<Self> {
        config.module.is_some().then(|| Self::of_claim(&config.claim()))
    }

    /// The names for a claim, whose DeviceConfig may be gone.
    #[must_use]
    pub fn of_claim(claim: &str) -> Self {
        let (namespace, name) = claim.split_once('.').unwrap_or((claim, ""));
        let version_label = kmm::keys::version_module(namespace, name);
        Self { module: Id::new(namespace, name), claim: claim.to_owned(), version_label }
    }

    /// The names for templates of images.
    #[must_use]
    pub fn template_names(&self) -> TemplateNames<'_> {
        TemplateNames { name: &self.module.name, namespace: &self.module.namespace }
    }
}

impl<'a> NodeStates<'a> {
    /// The states of the nodes of a DeviceConfig.
    #[must_use]
    pub fn of(cluster: &'a ClusterState, config: &Config, object_names: ObjectNames) -> Self {
        let (id, spec) = (config.id(), &config.object.spec);
        let claimed = cluster.claims.claimed(&object_names.claim);
        let names: BTreeSet<&str> = cluster.claims.matching(&id).chain(claimed).map(|name| &**name).collect();
        let live = cluster.modules.get(&object_names.module);
        let recorded = live.map(|live| DeviceNames::recorded_on(&live.body)).unwrap_or_default();
        let names_by_version = recorded.with(&spec.driver_version, config.device_names());
        let device_names = names_by_version.names();
        let mut reader = Reader {
            cluster,
            id: &id,
            object_names: &object_names,
            mappings: spec.mappings(),
            spec,
            desired: Loader::desired(spec),
            device_names: &device_names,
            loader: live.and_then(|live| Loader::of(&live.body)),
            kernels: BTreeMap::new(),
        };
        let nodes = names.into_iter().filter_map(|name| cluster.nodes.get_key_value(name));
        let nodes = nodes.map(|(name, node)| reader.state(name, node)).collect();
        Self { object_names, nodes, names_by_version, device_names }
    }

    /// The nodes with the claim of the DeviceConfig.
    pub fn claimed(&self) -> impl Iterator<Item = &NodeState<'a>> {
        self.nodes.iter().filter(|state| state.ownership.is_claimed())
    }

    /// The nodes that should have the driver.
    pub fn desired(&self) -> impl Iterator<Item = &NodeState<'a>> + Clone {
        self.nodes.iter().filter(|state| state.is_desired())
    }
}

impl<'a> NodeState<'a> {
    /// Whether an image exists for the kernel.
    #[must_use]
    pub fn is_supported(&self) -> bool {
        matches!(self.support, KernelSupport::Supported(_))
    }

    /// Whether the node should have the driver.
    #[must_use]
    pub fn is_desired(&self) -> bool {
        self.ownership == Ownership::Owned && self.is_supported() && self.taint.is_none()
    }

    /// Whether the node has our cordon taint.
    #[must_use]
    pub fn is_cordon_tainted(&self) -> bool {
        self.cordon_taint_since.is_some()
    }

    /// Whether the node should have a working driver and has none, possibly because of us. A first version that does
    /// not load counts, too; a driver that a taint or a reboot took does not.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.is_supported() && !self.ready && self.taint.is_none() && !self.rebooted
    }

    /// Whether a driver is about to be unloaded, so that a new pod would lose its device.
    #[must_use]
    pub fn is_unloading(&self) -> bool {
        self.stale || self.loaded.is_some_and(|loaded| self.version != Some(loaded))
    }
}

/// Reads the states of nodes for one DeviceConfig.
struct Reader<'a, 'b> {
    cluster: &'a ClusterState,
    id: &'b Id,
    object_names: &'b ObjectNames,
    mappings: Vec<KernelMapping>,
    spec: &'b Spec,
    /// The loader that the spec asks for.
    desired: Loader,
    device_names: &'b BTreeSet<String>,
    /// The loader of the Module as it is.
    loader: Option<Loader>,
    /// Results by kernel: nodes are many and kernels few.
    kernels: BTreeMap<&'a str, (KernelSupport, Option<Load>)>,
}

impl<'a> Reader<'a, '_> {
    fn state(&mut self, name: &'a str, node: &'a Node) -> NodeState<'a> {
        let (module, names) = (&self.object_names.module, self.object_names.template_names());
        let kernel = self.kernels.entry(&node.kernel).or_insert_with(|| {
            (kernel_support(&self.mappings, &node.kernel, names), self.desired.load_for(&node.kernel, names))
        });
        let (support, desired) = kernel.clone();
        let slot = self.cluster.nmcs.get(name).and_then(|nmc| nmc.modules.get(module));
        let loaded = slot.and_then(|slot| slot.loaded.as_ref());
        let label = |key: &str| node.labels.get(key).map(|value| &**value);
        let version = label(&self.object_names.version_label);
        let booted = loaded.is_some_and(|loaded| loaded.boot == node.boot);
        // A node that keeps another version keeps the load of that version, too.
        let is_desired = |slot: &NodeModule| {
            version != Some(&self.spec.driver_version) || desired.is_none() || slot.wanted == desired
        };
        let current = slot.is_some_and(|slot| slot.as_configured && is_desired(slot))
            && loaded.is_some_and(|loaded| loaded.version.as_deref() == version);
        let taint = node.cordon_taint();
        let taint = taint.filter(|taint| taint.value.as_deref() == Some(&self.object_names.claim));
        // A taint without a time is older than any that we add.
        let cordon_taint_since =
            taint.map(|taint| taint.time_added.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0));
        let plugin = match self.spec.dra {
            Some(_) => kmm::keys::dra_ready(&module.namespace, &module.name),
            None => kmm::keys::device_plugin_ready(&module.namespace, &module.name),
        };
        NodeState {
            name,
            node,
            ownership: self.ownership(name, node),
            version,
            support,
            taint: untolerated(node, &self.spec.tolerations),
            loaded: loaded.map(|loaded| loaded.version.as_deref().unwrap_or_default()),
            configured: slot.and_then(|slot| slot.wanted.as_ref()),
            in_use: slot.is_some(),
            ready: current && booted,
            works: booted,
            rebooted: current && !booted,
            plugin: label(&plugin).is_some(),
            cordon_taint_since,
            cordon_taint_seen: cordon_taint_since.map(|since| node.cordon_taint_seen.unwrap_or(since)),
            stale: taint.is_some() && loaded.is_some_and(|loaded| self.is_stale(node, version, loaded)),
            users: self.users(name),
        }
    }

    fn is_stale(&self, node: &Node, version: Option<&str>, loaded: &Loaded) -> bool {
        let loader = self.loader.as_ref().filter(|loader| version == Some(loader.version()));
        let load = |loader: &Loader| loader.load_for(&node.kernel, self.object_names.template_names());
        loader.is_some_and(|loader| load(loader).as_ref() != Some(&loaded.load))
    }

    fn ownership(&self, name: &str, node: &Node) -> Ownership {
        let is_this = |id: &Id| id == self.id;
        match self.cluster.claims.assignment(name) {
            Assignment::Held(owner) if is_this(&owner) => Ownership::Owned,
            Assignment::Ending { owner, deleting, .. } if is_this(&owner) => {
                if deleting {
                    Ownership::Deleting
                } else {
                    Ownership::Unmatched
                }
            }
            Assignment::Claimable(next) if is_this(&next) => {
                self.blocker(name, node).map_or(Ownership::Claimable, Ownership::Blocked)
            }
            Assignment::Held(other) | Assignment::Claimable(other) => Ownership::Other(other),
            Assignment::Ending { owner, next, .. } => match next {
                Some(next) if !is_this(&next) => Ownership::Other(next),
                Some(_) => Ownership::Blocked(owner.to_string()),
                None => Ownership::None,
            },
            Assignment::Free | Assignment::Orphaned => Ownership::None,
        }
    }

    /// A Module of ours that is still on a node without its claim, or with an unknown claim. The object may be gone
    /// before the driver: KMM can report a load that ended after it had stopped to wait for the node. A worker's label
    /// says that KMM has not noticed the release yet, and may still list the Module.
    fn blocker(&self, name: &str, node: &Node) -> Option<String> {
        let claims = &self.cluster.claims;
        let claimed = claims.claim_on(name).map(|claim| ObjectNames::of_claim(claim).module);
        let is_ours = |id: &Id| match self.cluster.modules.get(id) {
            Some(live) => !live.device_config().is_empty() && live.is_marked(live.device_config()),
            None => {
                let listed = self.cluster.is_listed(name, id);
                let claim = hardware::claim(&id.namespace, &id.name);
                listed && (claimed.as_ref() == Some(id) || claims.owner(&claim).is_some())
            }
        };
        let listed = self.cluster.nmcs.get(name).into_iter().flat_map(|nmc| nmc.modules.keys().cloned());
        let noticed = node.labels.keys().filter_map(|key| kmm::keys::worker_pod_module(key));
        let noticed = noticed.map(|(namespace, module)| Id::new(namespace, module));
        let mut others = listed.chain(noticed).chain(claimed.clone());
        let blocker = others.find(|id| *id != self.object_names.module && is_ours(id));
        blocker.map(|id| format!("Module {id}"))
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
        let user = |(id, pod): (&Id, &cluster_state::Pod)| Pod {
            id: id.clone(),
            terminating: pod.terminating,
            returns: pod.returns,
        };
        Users::Pods(using.map(user).collect())
    }
}
