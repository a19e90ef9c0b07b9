//! Everything observed about a cluster, reduced to the fields that checks read.
//!
//! In: the fields that [`super::collect`] read. Out: plain values in an order that does not depend on their source.
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
use view::cluster::ClusterView;

use crate::platform::{Platform, Version};

mod nodes;
mod selector;
mod settings;

pub use selector::Selector;
pub use settings::{ConfigSource, Settings};

/// An area of evidence. Each check states the areas that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Area {
    /// The API server's version.
    Version,
    /// Node objects.
    Nodes,
    /// The configuration of each node's kubelet.
    KubeletConfig,
    /// The CustomResourceDefinition of NodeResourceTopology.
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

/// Everything observed about a cluster.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The time of gathering; for files, the newest time in them.
    pub now: Option<Timestamp>,
    /// `gitVersion` of the API server, unparsed.
    pub server_version: Option<String>,
    /// The platform, if known.
    pub platform: Option<Platform>,
    /// Nodes by name.
    pub nodes: BTreeMap<String, Node>,
    /// Selects the nodes to check; `None`: the workers.
    pub selector: Option<Selector>,
    /// The nodes to check by name, from the node groups of an operator; the selector takes precedence.
    pub chosen: Option<BTreeSet<String>>,
    /// The definition of NodeResourceTopology, if there is one.
    pub definition: Option<Definition>,
    /// NodeResourceTopology objects by name.
    pub reports: BTreeMap<String, Report>,
    /// Pods by namespace and name.
    pub pods: BTreeMap<(String, String), Pod>,
    /// Exporters, schedulers and controllers.
    pub workloads: Vec<Workload>,
    /// Leases by namespace and name.
    pub leases: BTreeMap<(String, String), Lease>,
    /// Events about pods that were rejected.
    pub events: Vec<Event>,
    /// By node: whether the schedulers' records say that they count the same pods as the exporter.
    pub caches: BTreeMap<String, bool>,
    /// What a scheduler makes of nodes, reports and pods, if that was asked for and pods were seen.
    pub cluster: Option<ClusterView>,
    /// Areas without evidence, each with the reason.
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
    /// The kubelet's configuration, or the reason of its absence.
    pub kubelet: Option<Result<Settings, String>>,
}

/// A NodeResourceTopology object.
#[derive(Clone, Debug)]
pub struct Report {
    /// The object.
    pub object: NodeResourceTopology,
    /// The topology as schedulers read it with warnings, or the reason why they cannot.
    pub read: Result<(NodeTopology, Vec<String>), String>,
    /// Field managers of zones and attributes.
    pub writers: BTreeSet<String>,
}

/// The CustomResourceDefinition of NodeResourceTopology.
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
    /// Whether the pod is being deleted.
    pub deleting: bool,
    /// The condition `Ready`.
    pub ready: bool,
    /// The creation time.
    pub created: Option<Timestamp>,
    /// `status.startTime`: when the kubelet accepted the pod.
    pub started: Option<Timestamp>,
    /// The time of the last change of a condition.
    pub changed: Option<Timestamp>,
    /// Kind and name of its controller.
    pub owner: Option<(String, String)>,
    /// The role in NUMA-aware scheduling, if any.
    pub role: Option<Role>,
    /// The requested resources, or the reason why they cannot be read.
    pub request: Result<PodRequest, String>,
}

/// The role of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Publishes NodeResourceTopology objects.
    Exporter,
    /// Schedules pods.
    Scheduler {
        /// Whether the scheduler is NUMA-aware, according to image and command.
        numa: bool,
    },
    /// Keeps the others as objects ask for.
    Controller,
}

/// An exporter, a scheduler or a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// `DaemonSet`, `Deployment`, or `Pod` for one that nothing controls.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The role.
    pub role: Role,
    /// The desired number of pods.
    pub desired: i64,
    /// The number of ready pods.
    pub ready: i64,
    /// The configuration of a scheduler, if known.
    pub scheduler: Option<SchedulerSettings>,
}

/// The configuration of a scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedulerSettings {
    /// The profile names.
    pub profiles: Vec<String>,
    /// Namespace and name of the lease.
    pub lease: Option<(String, String)>,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The holder.
    pub holder: String,
    /// The time of the last renewal.
    pub renewed: Option<Timestamp>,
    /// The duration in seconds.
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
}

impl Workload {
    /// `DaemonSet namespace/name`.
    pub(crate) fn title(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }
}

impl Pod {
    /// `namespace/name`.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The object as findings name it.
    pub(super) fn title(&self) -> String {
        format!("Pod {}", self.key())
    }

    /// Whether the pod has ended.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Whether the pod waits for a node.
    pub(crate) fn is_waiting(&self) -> bool {
        self.node.is_none() && !self.is_over() && !self.deleting
    }
}

impl Node {
    /// The object as findings name it.
    pub(super) fn title(&self) -> String {
        format!("Node {}", self.name)
    }

    /// The kubelet's configuration, if known.
    pub(super) fn settings(&self) -> Option<&Settings> {
        self.kubelet.as_ref()?.as_ref().ok()
    }

    /// The kubelet's configuration as checked values; `None` if the kubelet would not start with it.
    pub(super) fn configuration(&self) -> Option<&Configuration> {
        self.settings()?.checked.as_ref().ok()
    }

    /// The kubelet's version.
    pub(super) fn version(&self) -> Option<Version> {
        self.kubelet_version.parse().ok()
    }
}

impl Evidence {
    /// The API server's version, if it is well-formed.
    pub(super) fn server(&self) -> Option<Version> {
        self.server_version.as_deref()?.parse().ok()
    }

    /// The nodes to check whose kubelet's configuration is known.
    pub(super) fn configured(&self) -> impl Iterator<Item = (&Node, &Settings)> {
        self.workers().into_iter().filter_map(|node| Some((node, node.settings()?)))
    }

    /// The nodes to check whose kubelet starts with its configuration, with the checked values.
    pub(super) fn checked(&self) -> impl Iterator<Item = (&Node, &Settings, &Configuration)> {
        self.configured()
            .filter_map(|(node, settings)| Some((node, settings, settings.checked.as_ref().ok()?)))
    }

    /// A node's zones as schedulers read them.
    pub(super) fn topology(&self, node: &str) -> Option<&NodeTopology> {
        self.reports.get(node)?.read.as_ref().ok().map(|(topology, _)| topology)
    }

    /// The NUMA-aware schedulers.
    pub(super) fn numa_schedulers(&self) -> impl Iterator<Item = &Workload> {
        self.workloads.iter().filter(|workload| workload.role == Role::Scheduler { numa: true })
    }

    /// The profile names of NUMA-aware schedulers; without such a scheduler the default names.
    pub(crate) fn numa_names(&self) -> BTreeSet<String> {
        let seen = self.numa_schedulers().filter_map(|workload| workload.scheduler.as_ref());
        let mut names: BTreeSet<String> =
            seen.flat_map(|settings| settings.profiles.iter().cloned()).collect();
        if names.is_empty() {
            names.extend(DEFAULT_NAMES.map(str::to_owned));
        }
        names
    }

    /// The pods on a node that have not ended.
    pub(super) fn pods_on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.pods.values().filter(move |pod| pod.node.as_deref() == Some(node) && !pod.is_over())
    }

    /// Milliseconds from `then` to now; `None` if one of them is unknown.
    pub(crate) fn age_ms(&self, then: Option<Timestamp>) -> Option<i64> {
        Some(self.now?.as_millisecond() - then?.as_millisecond())
    }
}

/// The profile names of our scheduler, of the peers' manifests, and of kube-scheduler's plugin.
const DEFAULT_NAMES: [&str; 2] = [scheduler::config::DEFAULT_SCHEDULER_NAME, "topology-aware-scheduler"];

/// A text field of an object; empty if absent.
pub(super) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}
