//! What the operator knows of its cluster, as values.
//!
//! In: what the watches say. Out: facts for the controllers' pure functions. Never: a call, a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::numaresources::operator::PoolCondition;
use api::numaresources::{NumaResourcesOperator, NumaResourcesScheduler};
use deployer::platform::{Platform, Version};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use topology::policy::{Policy, Scope};

use objects::ObservedObjects;

/// Everything a decision may rest on.
#[derive(Clone, Debug)]
pub struct World {
    /// What does not change while the process runs.
    pub place: Place,
    /// All NUMAResourcesOperators by name; only one name counts.
    pub operators: BTreeMap<String, NumaResourcesOperator>,
    /// All NUMAResourcesSchedulers by name; only one name counts.
    pub schedulers: BTreeMap<String, NumaResourcesScheduler>,
    /// Of those two kinds, by kind and name, what cannot be read, and why. What was made for it stays as it is.
    pub unreadable: BTreeMap<&'static str, BTreeMap<String, Unreadable>>,
    /// OpenShift: MachineConfigPools by name.
    pub pools: BTreeMap<String, MachineConfigPool>,
    /// OpenShift: KubeletConfigs by name.
    pub kubelet_configs: BTreeMap<String, KubeletConfig>,
    /// HyperShift: ConfigMaps in `openshift-config-managed` that hold a KubeletConfig, by name.
    pub node_pool_configs: BTreeMap<String, NodePoolConfig>,
    /// Nodes by name.
    pub nodes: BTreeMap<String, Node>,
    /// Kubernetes: what the kubelets of a group's nodes said of themselves, by the group's name. A group that is not here has not
    /// been asked yet: that is no reason to change anything.
    pub kubelets: BTreeMap<String, Kubelets>,
    /// What OpenShift wants of TLS servers.
    pub tls: Option<TlsProfile>,
    /// Objects in the cluster that may be ours.
    pub live: ObservedObjects,
}

/// An object whose content makes no sense. The API server's schema refuses such objects; but it may be an older one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unreadable {
    /// Which object, for an event about it.
    pub uid: String,
    /// What makes no sense, in one line.
    pub reason: String,
}

/// Where and as what the process runs.
#[derive(Clone, Debug)]
pub struct Place {
    /// The kind of cluster.
    pub platform: Platform,
    /// Its version: Kubernetes' own, or OpenShift's.
    pub version: Option<Version>,
    /// The operator's namespace, in which everything is that has one.
    pub namespace: String,
    /// The operator's own image: our exporter and our scheduler are in it too.
    pub own: Image,
    /// The exporters' image: the operator's own, unless it was told another one.
    pub image: Image,
    /// Whether `spec.imageSpec` of a NUMAResourcesOperator is refused.
    pub exporter_image_restricted: bool,
    /// Which images of a scheduler are trusted; `None`: all.
    pub trusted_schedulers: Option<Trust>,
    /// Whether conditions of MachineConfigPools are copied to the status.
    pub forward_pool_conditions: bool,
    /// The ports behind which API servers are, for network policies.
    pub api_server_ports: Vec<u16>,
}

/// An image and when it is pulled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Its name.
    pub name: String,
    /// As in a pod; empty: as the cluster has it.
    pub pull_policy: String,
}

/// Images that may schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Digests as `sha256:` and 64 hexadecimal digits.
    pub digests: BTreeSet<String>,
    /// Names that are trusted as they are: the operator's own image.
    pub images: BTreeSet<String>,
}

/// A MachineConfigPool, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineConfigPool {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Which MachineConfigs it takes.
    pub machine_config_selector: Option<LabelSelector>,
    /// Which nodes are its own.
    pub node_selector: Option<LabelSelector>,
    /// Whether it rolls nothing out.
    pub paused: bool,
    /// The MachineConfigs it has rolled out, by name.
    pub sources: BTreeSet<String>,
    /// What it says of itself.
    pub conditions: Vec<PoolCondition>,
}

/// An OpenShift KubeletConfig, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KubeletConfig {
    /// Which pools it is for, by their labels.
    pub pool_selector: Option<LabelSelector>,
    /// The KubeletConfiguration; `None`: there is none in it. `Err`: it cannot be read, and why.
    pub payload: Option<Result<KubeletSettings, String>>,
    /// Which of several for one pool counts: the greatest.
    pub rank: Rank,
}

/// Which of several KubeletConfigs of a pool counts. Each is rolled out as a MachineConfig, and of these the one with the greatest name
/// has the last word.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Whether it is still to be rolled out: then it gets a name greater than all that were.
    pub new: bool,
    /// What its MachineConfig's name ends in.
    pub suffix: String,
    /// When it was made, as RFC 3339 in UTC.
    pub created: String,
}

/// A HyperShift ConfigMap with a KubeletConfig.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePoolConfig {
    /// The NodePool it is for.
    pub node_pool: String,
    /// As in [`KubeletConfig::payload`].
    pub payload: Option<Result<KubeletSettings, String>>,
}

/// What a KubeletConfiguration says of the Topology Manager, as it says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubeletSettings {
    /// `topologyManagerPolicy`, verbatim.
    pub policy: Option<String>,
    /// `topologyManagerScope`, verbatim.
    pub scope: Option<String>,
}

/// What kubelets of one group said of themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kubelets {
    /// By node; those that did not answer say why.
    pub answers: BTreeMap<String, Result<KubeletSettings, String>>,
}

/// A node, as far as it matters. Texts are shared between nodes: clusters have thousands of them with the same labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Its labels, by key.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Whether it is ready.
    pub ready: bool,
    /// Where its kubelet is: its internal address and port.
    pub kubelet: Option<(String, u16)>,
}

/// `tlsSecurityProfile` of OpenShift's APIServer object, as programs in Go are told it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsProfile {
    /// The oldest version, such as `VersionTLS12`.
    pub min_version: String,
    /// Cipher suites joined by commas; empty for TLS 1.3 only.
    pub cipher_suites: String,
}

impl KubeletSettings {
    /// The policy, if it is one there is.
    #[must_use]
    pub fn known_policy(&self) -> Option<Policy> {
        Policy::parse(self.policy.as_deref()?)
    }

    /// The scope, if it is one there is.
    #[must_use]
    pub fn known_scope(&self) -> Option<Scope> {
        Scope::parse(self.scope.as_deref()?)
    }
}

impl World {
    /// A cluster of which nothing is known yet.
    #[must_use]
    pub fn new(place: Place) -> Self {
        Self {
            place,
            operators: BTreeMap::new(),
            schedulers: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            pools: BTreeMap::new(),
            kubelet_configs: BTreeMap::new(),
            node_pool_configs: BTreeMap::new(),
            nodes: BTreeMap::new(),
            kubelets: BTreeMap::new(),
            tls: None,
            live: ObservedObjects::default(),
        }
    }
}
