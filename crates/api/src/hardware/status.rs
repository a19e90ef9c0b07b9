//! The status of a DeviceConfig, which the operator writes.
//!
//! In and out: values. Never: a limit; the operator keeps the lists short.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

use crate::null::null_as_default;
#[cfg(feature = "schema")]
use crate::numaresources::schema;

/// The observed state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// The metadata.generation that this is based on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 0, "format" = "int64")))]
    pub observed_generation: Option<i64>,
    /// The state in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The KMM Module that was made for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<ModuleRef>,
    /// The version all nodes have, when they all have the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_version: Option<String>,
    /// Until all nodes have `spec.driverVersion`: the version that others have, or had before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrading_from: Option<String>,
    /// Counts of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeCounts>,
    /// Nodes with problems, at most 16.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub problems: Vec<NodeProblem>,
    /// Other DeviceConfigs that ask for the same nodes, at most 16.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub conflicts: Vec<Conflict>,
    /// Versions of kernels of its nodes for which no kernel mapping has an image, at most 16.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub kernels_without_mapping: Vec<String>,
    /// Conditions of the object.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::conditions"))]
    pub conditions: Vec<Condition>,
}

/// A DeviceConfig's state in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Phase {
    /// Nothing has been done yet, or no node asks for it.
    Pending,
    /// Another DeviceConfig has all of its nodes.
    Conflict,
    /// Nodes are on their way to what is asked for.
    Progressing,
    /// All nodes have what is asked for.
    Ready,
    /// An error needs attention.
    Degraded,
    /// The object is being deleted.
    Deleting,
}

/// A KMM Module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["name"])))]
pub struct ModuleRef {
    /// Its name; its namespace is this one.
    pub name: String,
    /// The version it brings to nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Counts of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct NodeCounts {
    /// Nodes the selector matches.
    pub matching: i32,
    /// Nodes claimed by this object.
    pub claimed: i32,
    /// Of those, nodes that should have the driver: neither unsupported nor in maintenance.
    pub desired: i32,
    /// Of the desired nodes, those with a working driver of ours, be it of another version.
    pub available: i32,
    /// Of the desired nodes, those whose driver is loaded and is what is asked for.
    pub ready: i32,
    /// Of the claimed nodes, those that were told to have `spec.driverVersion`.
    pub updated: i32,
    /// Of the claimed nodes, those with a kernel that no kernel mapping matches.
    pub unsupported: i32,
    /// Of the claimed nodes, those whose taints are not tolerated, cordoned ones among them.
    pub maintenance: i32,
    /// Nodes that keep what they have until pods that use the devices are gone.
    pub waiting: i32,
}

/// A node with a problem.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["node", "reason", "message"])))]
pub struct NodeProblem {
    /// The node.
    pub node: String,
    /// The reason, as one CamelCase word.
    pub reason: String,
    /// The message, for people.
    pub message: String,
}

/// Another DeviceConfig that asks for the same nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["namespace", "name", "count", "won"])))]
pub struct Conflict {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Some of the nodes, at most 8.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub nodes: Vec<String>,
    /// How many there are.
    pub count: i32,
    /// Whether this object has claimed them.
    pub won: bool,
}
