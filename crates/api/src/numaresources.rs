//! NUMAResourcesOperator and NUMAResourcesScheduler (`nodetopology.openshift.io`): the API of the operator.
//!
//! In: objects of users and of the Go operator, in both versions. Out: typed values. Never: a default that the object
//! does not state ([`NodeGroupConfig::normalized`] and [`scheduler::Spec::normalized`] fill them in), or a validation.
//!
//! Both versions have the same fields, so no field is lost in either.
//!
//! The doc comments of fields are the descriptions in the CRDs ([`crate::crd`]) and in the API reference, for users.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};

use crate::goduration::GoDuration;
use crate::kind::kind;
use crate::null::null_as_default;

mod defaults;
pub mod keys;
mod kubelet;
pub mod operator;
pub mod scheduler;
#[cfg(feature = "schema")]
pub(crate) mod schema;

pub use kubelet::Kubelets;
pub use operator::NumaResourcesOperator;
pub use scheduler::NumaResourcesScheduler;

/// The API group.
pub const GROUP: &str = "nodetopology.openshift.io";
/// The stored version.
pub const VERSION: &str = "v1";
/// Group and version, as stored objects carry them.
pub const API_VERSION: &str = "nodetopology.openshift.io/v1";
/// The deprecated version, served for those who still speak it.
pub const OLD_VERSION: &str = "v1alpha1";

/// Log level of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum LogLevel {
    /// As `Normal`.
    #[serde(rename = "")]
    Unset,
    /// Information for administrators.
    #[default]
    Normal,
    /// Details for troubleshooting.
    Debug,
    /// Each step.
    Trace,
    /// Everything.
    TraceAll,
}

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Switch {
    /// Off.
    Disabled,
    /// On.
    Enabled,
}

/// Which pods the fingerprint covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum PodsFingerprinting {
    /// No fingerprint.
    Disabled,
    /// All pods of the node.
    Enabled,
    /// Pods with CPUs, memory or devices of their own.
    EnabledExclusiveResources,
}

/// The trigger of an exporter's scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum InfoRefreshMode {
    /// A timer.
    Periodic,
    /// Changes on the node.
    Events,
    /// Both.
    PeriodicAndEvents,
}

/// A program that publishes the zones of nodes. The words are those of the deployer's `--updater-type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum UpdaterType {
    /// The exporter, with every field of this object.
    #[default]
    #[serde(rename = "RTE")]
    Rte,
    /// nfd-topology-updater of node-feature-discovery. It has fewer settings: no `podExcludes`, `kubeletConfigMap` or
    /// SELinux policy of its own, a timer only, and fingerprints of all pods or none.
    #[serde(rename = "NFD")]
    Nfd,
}

/// How the exporters of a node group work. What is absent has a default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeGroupConfig {
    /// Which pods of a node the fingerprint covers, by which a scheduler knows whether it and the exporter speak of the
    /// same pods. Both must mean the same pods. Default: `EnabledExclusiveResources`, with NFD `Enabled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_fingerprinting: Option<PodsFingerprinting>,
    /// What makes the exporter look at its node and publish what changed. Default: `PeriodicAndEvents`, with NFD
    /// `Periodic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info_refresh_mode: Option<InfoRefreshMode>,
    /// Time between two looks of the timer, such as `10s` or `1m30s`; `0s`: no timer. It means nothing in the mode
    /// `Events`. Default: `10s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info_refresh_period: Option<GoDuration>,
    /// Whether publishing is suspended: the exporters look, but write nothing. Default: `Disabled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info_refresh_pause: Option<Switch>,
    /// Tolerations of the exporters' pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::tolerations"))]
    pub tolerations: Vec<Toleration>,
}

/// Nodes whose exporters are set up alike. Exactly one of `machineConfigPoolSelector` and `poolName` names them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = schema::group_rules())))]
pub struct NodeGroup {
    /// OpenShift: the MachineConfigPools of the group, by their labels. It must match one pool, unless the annotation
    /// `config.node.openshift-kni.io/multiple-pools-per-tree` of this object is `enabled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::selector"))]
    pub machine_config_pool_selector: Option<LabelSelector>,
    /// The name of the group's MachineConfigPool (OpenShift) or NodePool (HyperShift). Elsewhere the name of the group,
    /// by which its objects are called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("maxLength" = 253)))]
    pub pool_name: Option<String>,
    /// Kubernetes: the nodes of the group, by their labels. It stands beside `poolName`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::selector"))]
    pub node_selector: Option<LabelSelector>,
    /// Kubernetes: the name of a ConfigMap in the operator's namespace with the KubeletConfiguration of the group's
    /// nodes in its key `config`, `kubelet` or `kubelet-config`. If absent, the kubelets are asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("maxLength" = 253)))]
    pub kubelet_config_map: Option<String>,
    /// Kubernetes: the kubelets of the group, in place of those of `spec.kubelet`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<Kubelets>,
    /// How the group's exporters work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<NodeGroupConfig>,
    /// Switches of the operator for this group, at most 8. `config.node.openshift-kni.io/selinux-policy: custom` gives
    /// the exporters a SELinux policy of their own, which restarts the nodes of the pool (OpenShift).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(
        feature = "schema",
        schemars(extend("x-kubernetes-validations" = schema::annotations_rules()))
    )]
    pub annotations: BTreeMap<String, String>,
    /// Deprecated: use `config.podsFingerprinting`, which counts where both are there. `true` stands for `Disabled`,
    /// `false` for `Enabled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_pods_fingerprinting: Option<bool>,
}

/// The name of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NamespacedName {
    /// Its namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// An object that belongs to what is reported on, for tools such as must-gather.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ObjectReference {
    /// API group; empty for the core group.
    pub group: String,
    /// The resource's name in paths, such as `daemonsets`.
    pub resource: String,
    /// Its namespace, if it has one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name; empty for all of them.
    pub name: String,
}

impl LogLevel {
    /// The verbosity in klog's numbers, as in `-v=4`.
    #[must_use]
    pub fn verbosity(self) -> i32 {
        match self {
            Self::Unset | Self::Normal => 2,
            Self::Debug => 4,
            Self::Trace => 6,
            Self::TraceAll => 8,
        }
    }
}

impl fmt::Display for NamespacedName {
    /// `namespace/name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

kind!(
    NumaResourcesOperator,
    ClusterResourceScope,
    GROUP,
    VERSION,
    API_VERSION,
    operator::KIND,
    operator::PLURAL
);
kind!(
    NumaResourcesScheduler,
    ClusterResourceScope,
    GROUP,
    VERSION,
    API_VERSION,
    scheduler::KIND,
    scheduler::PLURAL
);

#[cfg(test)]
mod tests;
