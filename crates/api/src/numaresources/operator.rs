//! NUMAResourcesOperator: the exporters of a cluster.
//!
//! In and out: the object as stored. Never: a default.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use super::schema;
use super::{Kubelets, LogLevel, NamespacedName, NodeGroup, NodeGroupConfig, ObjectReference, UpdaterType};
use crate::null::null_as_default;

/// The kind.
pub const KIND: &str = "NUMAResourcesOperator";
/// The resource name in URLs and RBAC rules.
pub const PLURAL: &str = "numaresourcesoperators";

/// What publishes the NUMA zones of this cluster's nodes. There is one, called `numaresourcesoperator`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[cfg_attr(
    feature = "schema",
    schemars(extend("x-kubernetes-validations" = schema::name_rules(super::keys::OPERATOR)))
)]
pub struct NumaResourcesOperator {
    /// Standard object metadata.
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub metadata: ObjectMeta,
    /// The desired state.
    #[serde(deserialize_with = "null_as_default")]
    pub spec: Spec,
    /// The observed state, written by the operator.
    #[serde(deserialize_with = "null_as_default")]
    pub status: Status,
}

/// The desired state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = schema::updater_rules())))]
pub struct Spec {
    /// The nodes that have an exporter, by groups whose exporters are set up alike.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(
        feature = "schema",
        schemars(extend("maxItems" = 128))
    )]
    pub node_groups: Vec<NodeGroup>,
    /// Deprecated: another image for the exporters. It is refused unless the operator runs with
    /// `EXPORTER_IMAGE_RESTRICTION=false`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image_spec: String,
    /// The program on the nodes that publishes their zones. Default: `RTE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updater_type: Option<UpdaterType>,
    /// Log level of the exporters.
    #[cfg_attr(feature = "schema", schemars(extend("x-default" = "Normal")))]
    pub log_level: LogLevel,
    /// Pods that no exporter counts: their resources look free.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(extend("maxItems" = 1024)))]
    pub pod_excludes: Vec<PodExclude>,
    /// The kubelets of all groups that state none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<Kubelets>,
}

/// Pods that no exporter counts. Both patterns have to match; an absent one matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PodExclude {
    /// Shell pattern of the namespace: `*`, `?`, `[a-z]`, `[^a-z]`; `\` makes the next character ordinary.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(extend("maxLength" = 1024, "x-kubernetes-validations" = schema::pattern_rules()))
    )]
    pub namespace: String,
    /// Shell pattern of the pod's name, likewise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(extend("maxLength" = 1024, "x-kubernetes-validations" = schema::pattern_rules()))
    )]
    pub name: String,
}

/// The observed state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// The DaemonSets of exporters whose pods all run.
    #[serde(
        rename = "daemonsets",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub daemon_sets: Vec<NamespacedName>,
    /// OpenShift: the MachineConfigPools of the node groups.
    #[serde(
        rename = "machineconfigpools",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub pools: Vec<Pool>,
    /// The node groups, pool by pool.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub node_groups: Vec<NodeGroupStatus>,
    /// Conditions of the object.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::conditions"))]
    pub conditions: Vec<Condition>,
    /// Objects that belong to it, for tools such as must-gather.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub related_objects: Vec<ObjectReference>,
}

/// A MachineConfigPool of a node group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["name"])))]
pub struct Pool {
    /// The pool's name.
    pub name: String,
    /// What the pool says of itself, if the operator runs with `--enable-mcp-conds-fwd`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub conditions: Vec<PoolCondition>,
    /// How the pool's exporters work, with all defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<NodeGroupConfig>,
}

/// A condition of a MachineConfigPool, as it is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PoolCondition {
    /// Which condition.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When the status last changed.
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date-time", "x-nullable" = true)))]
    pub last_transition_time: Option<String>,
    /// The reason, as one CamelCase word.
    pub reason: String,
    /// The message, for people.
    pub message: String,
}

/// The exporters of one pool of a node group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["config", "daemonsets", "selector"])))]
pub struct NodeGroupStatus {
    /// Their DaemonSet: one, whatever the name of this field says.
    #[serde(rename = "daemonsets")]
    pub daemon_set: NamespacedName,
    /// How they work, with all defaults.
    pub config: NodeGroupConfig,
    /// The name of the pool.
    pub selector: String,
}
