//! All that was seen of a cluster, trimmed to what checks read.
//!
//! In: what [`super::collect`] has taken in. Out: plain values, in an order that does not depend on where they came from.
//! Never: a judgement.

use std::collections::{BTreeMap, BTreeSet};

use api::nrt::NodeResourceTopology;
use jiff::Timestamp;
use node::kubelet::Configuration;
use serde::Serialize;
use serde_json::Value;
use topology::request::PodRequest;
use topology::resource::ResourceName;
use topology::zone::NodeTopology;

use crate::platform::{Platform, Version};

mod nodes;
mod selector;
mod settings;

pub use selector::{Selector, SelectorError};
pub use settings::{Settings, Told};

/// A kind of thing to look at. Each check says which ones it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Area {
    /// The API server's version.
    Version,
    /// Node objects.
    Nodes,
    /// The configuration of each node's kubelet.
    KubeletConfig,
    /// The definition of NodeResourceTopology.
    Definition,
    /// NodeResourceTopology objects.
    Reports,
    /// Pods.
    Pods,
    /// DaemonSets and Deployments.
    Workloads,
    /// Leases of schedulers.
    Leases,
    /// Events about pods.
    Events,
}

/// All that was seen.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// When it was gathered; for files, the newest time in them.
    pub now: Option<Timestamp>,
    /// `gitVersion` of the API server, as it stands.
    pub server_version: Option<String>,
    /// What kind of cluster it is, where that was seen.
    pub platform: Option<Platform>,
    /// Nodes by name.
    pub nodes: BTreeMap<String, Node>,
    /// Which nodes are to be looked at; all that run pods of users when not given.
    pub selector: Option<Selector>,
    /// The same by name, where an operator says which ones; the selector counts before it.
    pub chosen: Option<BTreeSet<String>>,
    /// The definition of NodeResourceTopology, if there is one.
    pub definition: Option<Definition>,
    /// NodeResourceTopology objects by name.
    pub reports: BTreeMap<String, Reported>,
    /// Pods by namespace and name.
    pub pods: BTreeMap<(String, String), Pod>,
    /// Exporters and schedulers.
    pub workloads: Vec<Workload>,
    /// Leases by namespace and name.
    pub leases: BTreeMap<(String, String), Lease>,
    /// Events about pods that were rejected.
    pub events: Vec<Event>,
    /// By node: whether schedulers have written down that they count the pods which the exporter counts.
    pub caches: BTreeMap<String, bool>,
    /// Areas that could not be looked at, and why.
    pub gaps: BTreeMap<Area, String>,
}

/// A node.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The condition `Ready`.
    pub ready: bool,
    /// `status.nodeInfo.kubeletVersion`.
    pub kubelet_version: String,
    /// Amounts in base units ([`ResourceName::base_units`]).
    pub capacity: BTreeMap<ResourceName, i64>,
    /// Amounts in base units.
    pub allocatable: BTreeMap<ResourceName, i64>,
    /// The configuration of its kubelet, or why it is not known.
    pub kubelet: Option<Result<Settings, String>>,
}

/// A NodeResourceTopology object.
#[derive(Clone, Debug)]
pub struct Reported {
    /// The object.
    pub object: NodeResourceTopology,
    /// What the scheduler makes of it, and what it left out; or why it makes nothing of it.
    pub read: Result<(NodeTopology, Vec<String>), String>,
    /// Field managers of its zones and attributes.
    pub writers: BTreeSet<String>,
}

/// The definition of NodeResourceTopology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition {
    /// Versions: name, served, stored.
    pub versions: Vec<(String, bool, bool)>,
    /// Whether the API server serves it.
    pub established: bool,
}

/// A pod.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// `spec.nodeName`.
    pub node: Option<String>,
    /// `spec.schedulerName`.
    pub scheduler: String,
    /// `status.phase`.
    pub phase: String,
    /// `status.reason`.
    pub reason: String,
    /// `status.message`.
    pub message: String,
    /// Whether deletion has been asked for.
    pub deleting: bool,
    /// The condition `Ready`.
    pub ready: bool,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// When the kubelet took it.
    pub started: Option<Timestamp>,
    /// When it was bound to its node or its containers last changed.
    pub changed: Option<Timestamp>,
    /// Kind and name of its controller.
    pub owner: Option<(String, String)>,
    /// What it runs, if that is part of NUMA-aware scheduling.
    pub role: Option<Role>,
    /// What it asks for, or why that cannot be told.
    pub request: Result<PodRequest, String>,
}

/// What a workload is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Publishes NodeResourceTopology objects.
    Exporter,
    /// Schedules pods.
    Scheduler {
        /// By NUMA zones, as far as its image and command tell.
        numa: bool,
    },
}

/// An exporter or a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// `DaemonSet`, `Deployment`, or `Pod` for one that nothing controls.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// How many pods there should be.
    pub desired: i64,
    /// How many are ready.
    pub ready: i64,
    /// Of schedulers: what their configuration says, where it was seen.
    pub scheduler: Option<SchedulerSettings>,
}

/// What a scheduler's configuration says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedulerSettings {
    /// The names pods ask for it by.
    pub profiles: Vec<String>,
    /// Namespace and name of the lease it takes.
    pub lease: Option<(String, String)>,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it.
    pub holder: String,
    /// When it was last renewed.
    pub renewed: Option<Timestamp>,
    /// For how long it is good, in seconds.
    pub duration_s: i64,
}

/// An event about a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// UID of the pod.
    pub uid: String,
    /// Its reason, such as `TopologyAffinityError`.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// When it was last seen.
    pub last: Option<Timestamp>,
}

impl Default for Workload {
    fn default() -> Self {
        let (namespace, name) = (String::new(), String::new());
        let role = Role::Exporter;
        Self { kind: "DaemonSet", namespace, name, role, desired: 0, ready: 0, scheduler: None }
    }
}

impl Workload {
    /// `DaemonSet namespace/name`.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }
}

impl Pod {
    /// `namespace/name`.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// As findings name it.
    #[must_use]
    pub fn title(&self) -> String {
        format!("Pod {}", self.key())
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Whether it waits for a node.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.node.is_none() && !self.is_over() && !self.deleting
    }
}

impl Node {
    /// As findings name it.
    #[must_use]
    pub fn title(&self) -> String {
        format!("Node {}", self.name)
    }

    /// The configuration of its kubelet, where it is known.
    #[must_use]
    pub fn settings(&self) -> Option<&Settings> {
        self.kubelet.as_ref()?.as_ref().ok()
    }

    /// The same as checked values; none when the kubelet would not start with it.
    #[must_use]
    pub fn configuration(&self) -> Option<&Configuration> {
        self.settings()?.checked.as_ref().ok()
    }

    /// Its kubelet's version.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.kubelet_version.parse().ok()
    }
}

impl Evidence {
    /// The API server's version, if it can be read.
    #[must_use]
    pub fn server(&self) -> Option<Version> {
        self.server_version.as_deref()?.parse().ok()
    }

    /// Nodes to be looked at whose kubelet's configuration is known.
    pub fn configured(&self) -> impl Iterator<Item = (&Node, &Settings)> {
        self.workers().into_iter().filter_map(|node| Some((node, node.settings()?)))
    }

    /// Schedulers that know zones.
    pub fn numa_schedulers(&self) -> impl Iterator<Item = &Workload> {
        self.workloads.iter().filter(|workload| workload.role == Role::Scheduler { numa: true })
    }

    /// The names by which pods ask for a scheduler that knows zones. Where none was seen, those that are used by default.
    #[must_use]
    pub fn numa_names(&self) -> BTreeSet<String> {
        let seen = self.numa_schedulers().filter_map(|workload| workload.scheduler.as_ref());
        let mut names: BTreeSet<String> =
            seen.flat_map(|settings| settings.profiles.iter().cloned()).collect();
        if names.is_empty() {
            names.extend(DEFAULT_NAMES.map(str::to_owned));
        }
        names
    }

    /// What is on a node or going there, and has not ended.
    pub fn pods_on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.pods.values().filter(move |pod| pod.node.as_deref() == Some(node) && !pod.is_over())
    }

    /// Milliseconds from `then` to now; none when one of them is not known.
    #[must_use]
    pub fn age_ms(&self, then: Option<Timestamp>) -> Option<i64> {
        Some(self.now?.as_millisecond() - then?.as_millisecond())
    }
}

/// The profile names of our scheduler, of the peers' manifests, and of kube-scheduler's plugin.
const DEFAULT_NAMES: [&str; 2] = [scheduler::config::DEFAULT_SCHEDULER_NAME, "topology-aware-scheduler"];

/// A text field of an object, empty when it is not there.
pub(super) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}
