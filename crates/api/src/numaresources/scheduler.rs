//! NUMAResourcesScheduler: the scheduler that reads what the exporters publish.
//!
//! In and out: the object. Never: a default that is not asked for with [`Spec::normalized`].

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};

use super::{LogLevel, NamespacedName, ObjectReference, Switch, null_as_default};
use crate::goduration::GoDuration;

/// The kind.
pub const KIND: &str = "NUMAResourcesScheduler";
/// The resource name in URLs and RBAC rules.
pub const PLURAL: &str = "numaresourcesschedulers";

/// What schedules by NUMA zones in this cluster. There is one, called `numaresourcesscheduler`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NumaResourcesScheduler {
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
    /// The scheduler's image; empty: the operator's own, which has a scheduler in it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image_spec: String,
    /// Pods with this `schedulerName` are its own; empty: `topo-aware-scheduler`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scheduler_name: String,
    /// How much the scheduler tells.
    pub log_level: LogLevel,
    /// Time between resyncs of the Go plugin's cache; zero: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_resync_period: Option<GoDuration>,
    /// Whether the scheduler writes down what it believes of each node's pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_resync_debug: Option<CacheResyncDebug>,
    /// Where the Go plugin reads pods from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_informer: Option<SchedulerInformer>,
    /// Which pods of other schedulers make a node's data stale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_resync_detection: Option<CacheResyncDetection>,
    /// How zones are scored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scoring_strategy: Option<ScoringStrategy>,
    /// Whether pods may be evicted to free a zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption_mode: Option<Switch>,
    /// How many; absent: three where there are nodes for three, else one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
}

/// Whether the scheduler writes down what it believes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheResyncDebug {
    /// It does not.
    Disabled,
    /// A file for each node.
    DumpJSONFile,
}

/// Where the Go plugin reads pods from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SchedulerInformer {
    /// With the scheduler's own watch.
    Shared,
    /// With a watch of its own.
    Dedicated,
}

/// Which pods of other schedulers make a node's data stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheResyncDetection {
    /// Those with exclusive resources.
    Relaxed,
    /// All.
    Aggressive,
}

/// How zones are scored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScoringStrategy {
    /// The formula.
    #[serde(rename = "type")]
    pub kind: ScoringStrategyType,
    /// Weights of resources.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub resources: Vec<ResourceSpecParams>,
}

/// A formula for the score of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[serde(default)]
pub struct ResourceSpecParams {
    /// Name of the resource.
    pub name: String,
    /// How much it counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i64>,
}

/// What is there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// The scheduler's Deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment: Option<NamespacedName>,
    /// Pods with this `schedulerName` are its own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scheduler_name: String,
    /// Time between resyncs of the Go plugin's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_resync_period: Option<GoDuration>,
    /// How it is.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub conditions: Vec<Condition>,
    /// Objects that belong to it.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub related_objects: Vec<ObjectReference>,
}

impl Spec {
    /// The same with defaults for what is absent, besides preemption and replicas, which stay open.
    #[must_use]
    pub fn normalized(&self) -> Self {
        Self {
            cache_resync_period: self.cache_resync_period.or(Some(GoDuration(5_000_000_000))),
            cache_resync_debug: self.cache_resync_debug.or(Some(CacheResyncDebug::DumpJSONFile)),
            scheduler_informer: self.scheduler_informer.or(Some(SchedulerInformer::Dedicated)),
            cache_resync_detection: self.cache_resync_detection.or(Some(CacheResyncDetection::Relaxed)),
            scoring_strategy: self.scoring_strategy.clone().or_else(|| Some(ScoringStrategy::default())),
            ..self.clone()
        }
    }
}
