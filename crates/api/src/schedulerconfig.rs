//! The scheduler's configuration file: `KubeSchedulerConfiguration`, `kubescheduler.config.k8s.io/v1`.
//!
//! In: the text of the file, YAML or JSON, read as strictly as kube-scheduler does. Out: [`SchedulerConfig`] with every
//! default and with checked values, or all errors at once, each with its field and the allowed values. Never: the
//! behaviour of a plugin; arguments of plugins that have no types here are passed on unchanged.
//!
//! Sources: kube-scheduler 1.36 `apis/config/v1` defaults and validation, component-base leader election and client
//! defaults.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::goduration::GoDuration;

mod decode;
mod extender;
mod file;
mod in_tree;
mod numa;

pub use extender::{Extender, ExtenderTls, ManagedResource};
pub use in_tree::{
    FitStrategyType, InTreeArgs, InterPodAffinityArgs, NodeAffinityArgs, NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs, PodTopologySpreadArgs, ShapePoint,
};
pub use numa::{
    CacheAccounting, CacheArgs, ForeignPodsDetect, InformerMode, NodeResourceTopologyMatchArgs,
    NodesWithoutTopology, PreemptionMode, ResourceWeight, ResyncMethod, ResyncScope, ScoringStrategy,
    ScoringStrategyType, Word,
};

/// The only `apiVersion` accepted.
pub const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
/// The only `kind` accepted.
pub const KIND: &str = "KubeSchedulerConfiguration";
/// The NUMA plugin's name in plugin lists and in `pluginConfig`.
pub const NUMA_PLUGIN: &str = "NodeResourceTopologyMatch";

/// A whole configuration, valid and with every default.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerConfig {
    /// Number of nodes checked in parallel; above zero.
    pub parallelism: u32,
    /// Leader election between several schedulers.
    pub leader_election: LeaderElection,
    /// Settings of the API client.
    pub client_connection: ClientConnection,
    /// Whether profiling endpoints are on.
    pub enable_profiling: bool,
    /// Whether lock contention is profiled.
    pub enable_contention_profiling: bool,
    /// Percentage of feasible nodes at which the search stops; 0 or absent: the scheduler's own choice.
    pub percentage_of_nodes_to_score: Option<u8>,
    /// First backoff of an unschedulable pod, in seconds; above zero.
    pub pod_initial_backoff_seconds: u64,
    /// Longest backoff, in seconds; at least the first.
    pub pod_max_backoff_seconds: u64,
    /// Whether watches start only when the scheduler leads.
    pub delay_cache_until_active: bool,
    /// Profiles, each with its own scheduler name; at least one.
    pub profiles: Vec<Profile>,
    /// Other programs to ask, in this order.
    pub extenders: Vec<Extender>,
}

/// Leader election over a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElection {
    /// Whether to take part at all.
    pub leader_elect: bool,
    /// Validity of a lease after its last renewal.
    pub lease_duration: GoDuration,
    /// Time for which the leader tries to renew before it gives up.
    pub renew_deadline: GoDuration,
    /// Pause between attempts.
    pub retry_period: GoDuration,
    /// Name of the Lease.
    pub resource_name: String,
    /// Namespace of the Lease.
    pub resource_namespace: String,
}

/// Client settings.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientConnection {
    /// Path of a kubeconfig; empty: in-cluster.
    pub kubeconfig: String,
    /// Accept header; empty: the client's own.
    pub accept_content_types: String,
    /// Content type for writes. Accepted for compatibility: tholepin always writes JSON.
    pub content_type: String,
    /// Requests per second; below zero: no limit.
    pub qps: f64,
    /// Burst of requests above `qps`; not negative.
    pub burst: u32,
}

/// One scheduling profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The `spec.schedulerName` of the profile's pods.
    pub scheduler_name: String,
    /// Overrides [`SchedulerConfig::percentage_of_nodes_to_score`].
    pub percentage_of_nodes_to_score: Option<u8>,
    /// The plugins that the file enables and disables.
    pub plugins: Plugins,
    /// The arguments of the NUMA plugin, with every default.
    pub numa: NodeResourceTopologyMatchArgs,
    /// The arguments of those of kube-scheduler's plugins that have typed ones here, with every default.
    pub in_tree: InTreeArgs,
    /// The arguments of all other plugins, by plugin name, as in the file.
    pub other_args: BTreeMap<String, Value>,
}

/// The plugins of each extension point in the file. Points that the file does not mention are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plugins(pub BTreeMap<ExtensionPoint, PluginSet>);

/// Plugins enabled and disabled at one extension point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginSet {
    /// In evaluation order.
    pub enabled: Vec<Plugin>,
    /// Names; `*` stands for all default plugins.
    pub disabled: Vec<String>,
}

/// An enabled plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// Its name.
    pub name: String,
    /// Its weight in the score; absent: the plugin's default.
    pub weight: Option<i32>,
}

/// A point of the scheduling cycle where plugins act, as the file spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are kube-scheduler's own")]
pub enum ExtensionPoint {
    MultiPoint,
    PreEnqueue,
    QueueSort,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
    PlacementGenerate,
    PlacementScore,
}

/// All errors of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// At least one.
    pub errors: Vec<FieldError>,
}

/// One error of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// Invalid YAML.
    #[error("not valid YAML: {0}")]
    Syntax(String),
    /// An unknown field.
    #[error("{context}strict decoding error: unknown field {path:?}{allowed}")]
    Unknown {
        /// The plugin whose arguments contain the field, or empty.
        context: String,
        /// The field.
        path: String,
        /// The known fields, as a part of the sentence, or empty.
        allowed: String,
    },
    /// A value of the wrong type.
    #[error("{context}{path}: expected {expected}, found {found}")]
    Type {
        /// The plugin whose arguments contain the field, or empty.
        context: String,
        /// The field.
        path: String,
        /// The expected type.
        expected: &'static str,
        /// The value found, shortened.
        found: String,
    },
    /// A value that is not allowed.
    #[error("{context}{path}: {problem}")]
    Invalid {
        /// The plugin whose arguments contain the field, or empty.
        context: String,
        /// The field.
        path: String,
        /// The problem and the allowed values, in kube-scheduler's words where it has some.
        problem: String,
    },
}

impl SchedulerConfig {
    /// Reads the text of a configuration file, YAML or JSON, and fills in every default.
    ///
    /// ```
    /// use api::schedulerconfig::{NUMA_PLUGIN, SchedulerConfig};
    ///
    /// let text = "
    /// apiVersion: kubescheduler.config.k8s.io/v1
    /// kind: KubeSchedulerConfiguration
    /// profiles:
    /// - schedulerName: numa
    ///   plugins: {filter: {enabled: [{name: NodeResourceTopologyMatch}]}}
    /// ";
    /// let config = SchedulerConfig::parse(text)?;
    /// assert_eq!(config.profiles[0].scheduler_name, "numa");
    /// assert!(config.profiles[0].plugins.enables(NUMA_PLUGIN));
    /// assert_eq!(config.pod_max_backoff_seconds, 10);
    ///
    /// let error = SchedulerConfig::parse(&text.replace("numa", "[]")).unwrap_err();
    /// assert!(error.to_string().contains("schedulerName"));
    /// # Ok::<(), api::schedulerconfig::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// Every unknown field, wrong type and invalid value, with its path.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        file::parse(text)
    }
}

impl Plugins {
    /// The plugins of an extension point, if the file mentions it.
    #[must_use]
    pub fn at(&self, point: ExtensionPoint) -> Option<&PluginSet> {
        self.0.get(&point)
    }

    /// Whether the file enables a plugin at any extension point.
    #[must_use]
    pub fn enables(&self, plugin: &str) -> bool {
        self.0.values().any(|set| set.enabled.iter().any(|enabled| enabled.name == plugin))
    }
}

impl ExtensionPoint {
    /// All extension points, in the order of the scheduling cycle.
    pub const ALL: [Self; 15] = [
        Self::MultiPoint,
        Self::PreEnqueue,
        Self::QueueSort,
        Self::PreFilter,
        Self::Filter,
        Self::PostFilter,
        Self::PreScore,
        Self::Score,
        Self::Reserve,
        Self::Permit,
        Self::PreBind,
        Self::Bind,
        Self::PostBind,
        Self::PlacementGenerate,
        Self::PlacementScore,
    ];

    /// The field's name in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MultiPoint => "multiPoint",
            Self::PreEnqueue => "preEnqueue",
            Self::QueueSort => "queueSort",
            Self::PreFilter => "preFilter",
            Self::Filter => "filter",
            Self::PostFilter => "postFilter",
            Self::PreScore => "preScore",
            Self::Score => "score",
            Self::Reserve => "reserve",
            Self::Permit => "permit",
            Self::PreBind => "preBind",
            Self::Bind => "bind",
            Self::PostBind => "postBind",
            Self::PlacementGenerate => "placementGenerate",
            Self::PlacementScore => "placementScore",
        }
    }
}

impl Default for SchedulerConfig {
    /// The configuration of a file with only `apiVersion` and `kind`.
    fn default() -> Self {
        Self {
            parallelism: 16,
            leader_election: LeaderElection::default(),
            client_connection: ClientConnection::default(),
            enable_profiling: true,
            enable_contention_profiling: true,
            percentage_of_nodes_to_score: None,
            pod_initial_backoff_seconds: 1,
            pod_max_backoff_seconds: 10,
            delay_cache_until_active: false,
            profiles: vec![Profile::default()],
            extenders: Vec::new(),
        }
    }
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            leader_elect: true,
            lease_duration: GoDuration::from_secs(15),
            renew_deadline: GoDuration::from_secs(10),
            retry_period: GoDuration::from_secs(2),
            resource_name: "kube-scheduler".to_owned(),
            resource_namespace: "kube-system".to_owned(),
        }
    }
}

impl Default for ClientConnection {
    fn default() -> Self {
        Self {
            kubeconfig: String::new(),
            accept_content_types: String::new(),
            content_type: "application/vnd.kubernetes.protobuf".to_owned(),
            qps: 50.0,
            burst: 100,
        }
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            scheduler_name: "default-scheduler".to_owned(),
            percentage_of_nodes_to_score: None,
            plugins: Plugins::default(),
            numa: NodeResourceTopologyMatchArgs::default(),
            in_tree: InTreeArgs::default(),
            other_args: BTreeMap::new(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.errors.iter().enumerate() {
            write!(f, "{}{error}", if i == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests;
