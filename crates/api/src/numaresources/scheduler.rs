//! NUMAResourcesScheduler: the scheduler that uses the exporters' objects.
//!
//! In and out: the object as stored. Never: a default, except by [`Spec::normalized`].

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use super::schema;
use super::{LogLevel, NamespacedName, ObjectReference, Switch};
use crate::goduration::GoDuration;
use crate::null::null_as_default;

/// The kind.
pub const KIND: &str = "NUMAResourcesScheduler";
/// The resource name in URLs and RBAC rules.
pub const PLURAL: &str = "numaresourcesschedulers";

/// What schedules by NUMA zones in this cluster. There is one, called `numaresourcesscheduler`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[cfg_attr(
    feature = "schema",
    schemars(extend("x-kubernetes-validations" = schema::name_rules(super::keys::SCHEDULER)))
)]
pub struct NumaResourcesScheduler {
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
pub struct Spec {
    /// The scheduler's image. Default: the operator's own, which has a scheduler in it. Others have to be named by
    /// digest, and to be trusted by the operator.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image_spec: String,
    /// Pods with this `schedulerName` are the scheduler's own. Default: `topo-aware-scheduler`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scheduler_name: String,
    /// Log level of the scheduler.
    #[cfg_attr(feature = "schema", schemars(extend("x-default" = "Normal")))]
    pub log_level: LogLevel,
    /// Time between two comparisons of what the scheduler believes with what the exporters say, such as `5s`, in whole
    /// seconds; `0s`: none. For schedulers that compare by time. Default: `5s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_resync_period: Option<GoDuration>,
    /// Whether the scheduler writes down what it believes of each node's pods, for `pfpsyncchk`. Default:
    /// `DumpJSONFile`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_resync_debug: Option<CacheResyncDebug>,
    /// Where the scheduler's NUMA plugin reads pods from. Default: `Dedicated`; on OpenShift whose kubelets list only
    /// pods that are active, `Shared`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_informer: Option<SchedulerInformer>,
    /// Which pods of other schedulers make what is known of a node stale. Default: `Relaxed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_resync_detection: Option<CacheResyncDetection>,
    /// Which of the nodes that a pod fits on it gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scoring_strategy: Option<ScoringStrategy>,
    /// Whether preemption counts the zones that victims leave. The scheduler of tholepin counts them in any case.
    /// Default: `Disabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption_mode: Option<Switch>,
    /// How many schedulers run, of which one leads; no more than there are control plane nodes (HyperShift: workers).
    /// Default: three where there are nodes for three, else one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 0)))]
    pub replicas: Option<i32>,
}

/// Whether the scheduler writes down what it believes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum CacheResyncDebug {
    /// It does not.
    Disabled,
    /// A file for each node, in JSON.
    DumpJSONFile,
}

/// Where the Go plugin reads pods from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum SchedulerInformer {
    /// From the watch of the scheduler.
    Shared,
    /// From a watch of its own.
    Dedicated,
}

/// Which pods of other schedulers make a node's data stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum CacheResyncDetection {
    /// Those with CPUs, memory or devices of their own.
    Relaxed,
    /// All.
    Aggressive,
}

/// Which of the nodes that a pod fits on it gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ScoringStrategy {
    /// The formula by which zones are compared. Default: `LeastAllocated`.
    #[serde(rename = "type")]
    pub kind: ScoringStrategyType,
    /// How much each resource counts. Default: CPU and memory, both 1.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(extend("maxItems" = 256)))]
    pub resources: Vec<ResourceSpecParams>,
}

/// A formula for the score of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ScoringStrategyType {
    /// Zones with most left first.
    #[default]
    LeastAllocated,
    /// Zones in which resources are used evenly first.
    BalancedAllocation,
    /// Zones with least left first.
    MostAllocated,
}

/// The weight of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["name"])))]
pub struct ResourceSpecParams {
    /// Name of the resource, as in a pod's requests.
    pub name: String,
    /// How much it counts; 0: as 1. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 0, "maximum" = i32::MAX)))]
    pub weight: Option<i64>,
}

/// The observed state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// The scheduler's Deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment: Option<NamespacedName>,
    /// Pods with this `schedulerName` are its own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scheduler_name: String,
    /// Time between two comparisons of what the scheduler believes with what the exporters say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_resync_period: Option<GoDuration>,
    /// Conditions of the object.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::conditions"))]
    pub conditions: Vec<Condition>,
    /// Objects that belong to it, for tools such as must-gather.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub related_objects: Vec<ObjectReference>,
}
