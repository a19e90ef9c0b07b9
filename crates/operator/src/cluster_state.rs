//! The state of the cluster that the operator knows, as values.
//!
//! In: what watches report. Out: values for the controllers' pure functions. Never: a call, a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::numaresources::operator::PoolCondition;
use api::numaresources::{NumaResourcesOperator, NumaResourcesScheduler};
use deployer::options::Kubelet;
use deployer::platform::{Platform, Version};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use objects::observed::compare_versions;
use objects::{ObjectKey, ObservedObjects};

/// The values that decisions of the controllers rest on.
#[derive(Clone, Debug, Default)]
pub struct ClusterState {
    /// The environment, which does not change while the process runs.
    pub environment: Environment,
    /// NUMAResourcesOperators by name; only one name is accepted.
    pub operators: BTreeMap<String, NumaResourcesOperator>,
    /// NUMAResourcesSchedulers by name; only one name is accepted.
    pub schedulers: BTreeMap<String, NumaResourcesScheduler>,
    /// Objects of those two kinds that cannot be read, by kind and name. What was made for them stays as it is.
    pub unreadable: BTreeMap<(&'static str, String), Unreadable>,
    /// OpenShift: MachineConfigPools by name.
    pub pools: BTreeMap<String, MachineConfigPool>,
    /// OpenShift: KubeletConfigs by name.
    pub kubelet_configs: BTreeMap<String, KubeletConfig>,
    /// HyperShift: ConfigMaps in `openshift-config-managed` that hold a KubeletConfig, by name.
    pub node_pool_configs: BTreeMap<String, NodePoolConfig>,
    /// Nodes by name.
    pub nodes: BTreeMap<String, Node>,
    /// Kubernetes: the answers of a node group's kubelets, by the group's name. A group without an entry was not
    /// asked yet: nothing changes for it.
    pub kubelets: BTreeMap<String, KubeletAnswers>,
    /// OpenShift: the TLS profile for servers.
    pub tls: Option<TlsProfile>,
    /// Objects in the cluster that may be the operator's.
    pub observed: ObservedObjects,
    /// DaemonSets and Deployments that users' objects control in other namespaces than the operator's.
    pub elsewhere: BTreeSet<ObjectKey>,
}

/// An object whose content is invalid. The API server refuses such objects, unless its schema is an older one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unreadable {
    /// The UID of the object, for events.
    pub uid: String,
    /// The mistake, in one line.
    pub reason: String,
}

/// The cluster and the namespace that the process runs in, and what it was configured with.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The platform.
    pub platform: Platform,
    /// The version of Kubernetes or OpenShift.
    pub version: Option<Version>,
    /// The operator's namespace, in which all its namespaced objects are.
    pub namespace: String,
    /// The operator's own image, which contains the exporter and the scheduler too.
    pub own: Image,
    /// The exporters' image: the operator's own, unless another was configured.
    pub image: Image,
    /// Whether `spec.imageSpec` of a NUMAResourcesOperator is refused.
    pub exporter_image_restricted: bool,
    /// The trusted images of schedulers; `None`: all.
    pub trusted_schedulers: Option<Trust>,
    /// Whether conditions of MachineConfigPools are copied to the status.
    pub forward_pool_conditions: bool,
    /// The ports of API servers, for network policies.
    pub api_server_ports: Vec<u16>,
    /// The kubelets of node groups that state none; `None`: those of the platform.
    pub kubelet: Option<Kubelet>,
    /// The address ranges of API servers, for network policies; empty: any address.
    pub api_server_cidrs: Vec<String>,
    /// Whether our exporters mount the kubelet's whole root directory.
    pub kubelet_root_mount: bool,
    /// Whether the operator's account lacks the rights of a scheduler that is not its own, and so cannot grant them.
    pub only_own_scheduler: bool,
}

impl Environment {
    /// The exporters' image where an object requests this one; an empty name requests none.
    #[must_use]
    pub fn exporter_image(&self, requested: &str) -> Image {
        if requested.is_empty() {
            return self.image.clone();
        }
        Image { name: requested.to_owned(), pull_policy: String::new() }
    }

    /// Whether an image is the operator's own, which has our programs.
    #[must_use]
    pub fn is_own(&self, image: &Image) -> bool {
        image.name == self.own.name
    }
}

/// An image and when it is pulled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Its name.
    pub name: String,
    /// `imagePullPolicy`; empty: the default of the cluster.
    pub pull_policy: String,
}

/// The images that may run as scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Digests as `sha256:` and 64 hexadecimal digits.
    pub digests: BTreeSet<String>,
    /// Names that are trusted without a digest: the operator's own image.
    pub images: BTreeSet<String>,
}

/// The fields of a MachineConfigPool that controllers read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineConfigPool {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// `spec.machineConfigSelector`.
    pub machine_config_selector: Option<LabelSelector>,
    /// `spec.nodeSelector`.
    pub node_selector: Option<LabelSelector>,
    /// Whether its rollout is paused.
    pub paused: bool,
    /// The names of the MachineConfigs that it has rolled out.
    pub sources: BTreeSet<String>,
    /// `status.conditions`.
    pub conditions: Vec<PoolCondition>,
}

/// The fields of an OpenShift KubeletConfig that controllers read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KubeletConfig {
    /// `spec.machineConfigPoolSelector`.
    pub pool_selector: Option<LabelSelector>,
    /// The KubeletConfiguration; `None`: it has none. `Err`: why it cannot be read.
    pub payload: Option<Result<KubeletSettings, String>>,
    /// The rank among several for one pool: the greatest counts.
    pub rank: Rank,
}

/// The rank of a KubeletConfig among those of one pool. Each becomes a MachineConfig, and the greatest name among
/// these counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Whether it is still to be rolled out: then its MachineConfig gets the greatest name.
    pub new: bool,
    /// The suffix of its MachineConfig's name.
    pub suffix: String,
    /// The creation time, as RFC 3339 in UTC.
    pub created: String,
}

/// A HyperShift ConfigMap with a KubeletConfig.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePoolConfig {
    /// The NodePool that it is for.
    pub node_pool: String,
    /// The KubeletConfiguration, as in [`KubeletConfig::payload`].
    pub payload: Option<Result<KubeletSettings, String>>,
}

/// The Topology Manager's settings in a KubeletConfiguration, verbatim.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubeletSettings {
    /// `topologyManagerPolicy`.
    pub policy: Option<String>,
    /// `topologyManagerScope`.
    pub scope: Option<String>,
}

/// The answers of one node group's kubelets by node; `Err`: why the kubelet did not answer.
pub type KubeletAnswers = BTreeMap<String, Result<KubeletSettings, String>>;

/// The fields of a node that controllers read. Texts are shared: thousands of nodes have the same labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Its labels.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Whether it is ready.
    pub ready: bool,
    /// The address and the port of its kubelet.
    pub kubelet: Option<(String, u16)>,
}

/// `tlsSecurityProfile` of OpenShift's APIServer object, as flags of Go programs state it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsProfile {
    /// The lowest version, such as `VersionTLS12`.
    pub min_version: String,
    /// Cipher suites joined by commas; empty for TLS 1.3 only.
    pub cipher_suites: String,
}

impl Node {
    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(AsRef::as_ref)
    }
}

impl ClusterState {
    /// The state of a cluster of which nothing is known yet.
    #[must_use]
    pub fn new(environment: Environment) -> Self {
        Self { environment, ..Self::default() }
    }
}

/// Whether `new` replaces `known`, an object of the same name. A watch may lag behind the answer to our own write.
#[must_use]
pub fn is_newer<K: kube::Resource>(known: &K, new: &K) -> bool {
    let version = |object: &K| object.meta().resource_version.clone().unwrap_or_default();
    known.meta().uid != new.meta().uid || compare_versions(&version(known), &version(new)).is_lt()
}
