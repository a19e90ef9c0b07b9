//! NUMAResourcesOperator: the exporters, and the API they publish with.
//!
//! In and out: the object. Never: a default.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};

use super::{LogLevel, NamespacedName, NodeGroup, NodeGroupConfig, ObjectReference, null_as_default};

/// The kind.
pub const KIND: &str = "NUMAResourcesOperator";
/// The resource name in URLs and RBAC rules.
pub const PLURAL: &str = "numaresourcesoperators";

/// What publishes NUMA zones in this cluster. There is one, called `numaresourcesoperator`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NumaResourcesOperator {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(deserialize_with = "null_as_default")]
    pub spec: Spec,
    /// What is there.
    #[serde(deserialize_with = "null_as_default")]
    pub status: Status,
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// Nodes by groups whose exporters are set up alike.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub node_groups: Vec<NodeGroup>,
    /// Another image for the exporters. Deprecated; refused unless the operator runs with `EXPORTER_IMAGE_RESTRICTION=false`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image_spec: String,
    /// How much the exporters tell.
    pub log_level: LogLevel,
    /// Pods that no exporter counts.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub pod_excludes: Vec<NamespacedName>,
}

/// What is there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// The DaemonSets of exporters whose pods all run.
    #[serde(
        rename = "daemonsets",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub daemon_sets: Vec<NamespacedName>,
    /// OpenShift: the pools of the node groups.
    #[serde(
        rename = "machineconfigpools",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub pools: Vec<Pool>,
    /// The node groups.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub node_groups: Vec<NodeGroupStatus>,
    /// How it is.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub conditions: Vec<Condition>,
    /// Objects that belong to it.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub related_objects: Vec<ObjectReference>,
}

/// A MachineConfigPool of a node group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// What it says of itself, where that is forwarded.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub conditions: Vec<PoolCondition>,
    /// How its exporters work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<NodeGroupConfig>,
}

/// A condition of a MachineConfigPool, as it is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolCondition {
    /// Which condition.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Since when.
    pub last_transition_time: Option<String>,
    /// Why, as a word.
    pub reason: String,
    /// Why, for people.
    pub message: String,
}

/// A node group (of several pools: one of its pools) as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeGroupStatus {
    /// Its DaemonSet. One, whatever the name says.
    #[serde(rename = "daemonsets")]
    pub daemon_set: NamespacedName,
    /// How its exporters work.
    pub config: NodeGroupConfig,
    /// The name of its pool.
    pub selector: String,
}
