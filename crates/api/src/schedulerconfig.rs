//! The scheduler's configuration file: `KubeSchedulerConfiguration`, `kubescheduler.config.k8s.io/v1`.
//!
//! In: the file's text, YAML or JSON, as kube-scheduler takes it, strictly. Out: [`SchedulerConfig`] with every default
//! filled in and every value checked, or all errors at once, each naming its field and what is allowed. Never: a decision
//! about what a plugin does; the arguments of plugins other than the NUMA one are handed on as they stand.
//!
//! Sources: kube-scheduler 1.36 `apis/config/v1` defaults and validation, component-base leader election and client defaults.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::goduration::GoDuration;

mod decode;
mod file;
mod numa;

pub use numa::{
    CacheArgs, ForeignPodsDetect, InformerMode, NodeResourceTopologyMatchArgs, PreemptionMode,
    ResourceWeight, ResyncMethod, ResyncScope, ScoringStrategy, ScoringStrategyType, Word,
};

/// The only `apiVersion` accepted.
pub const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
/// The only `kind` accepted.
pub const KIND: &str = "KubeSchedulerConfiguration";
/// The NUMA plugin's name in plugin lists and in `pluginConfig`.
pub const NUMA_PLUGIN: &str = "NodeResourceTopologyMatch";

/// A whole configuration, defaulted and valid.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerConfig {
    /// How many nodes are looked at at once; above zero.
    pub parallelism: u32,
    /// Who may act when several schedulers run.
    pub leader_election: LeaderElection,
    /// How to reach the API server.
    pub client_connection: ClientConnection,
    /// Whether profiling endpoints are wanted.
    pub enable_profiling: bool,
    /// Whether lock contention is profiled.
    pub enable_contention_profiling: bool,
    /// Stop searching when this share of nodes (percent) is feasible; 0 or absent: the scheduler's own choice.
    pub percentage_of_nodes_to_score: Option<u8>,
    /// First back-off of an unschedulable pod, in seconds; above zero.
    pub pod_initial_backoff_seconds: u64,
    /// Longest back-off, in seconds; at least the first.
    pub pod_max_backoff_seconds: u64,
    /// Start watching only when leading.
    pub delay_cache_until_active: bool,
    /// Profiles, each with its own scheduler name; at least one.
    pub profiles: Vec<Profile>,
}

/// Leader election over a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElection {
    /// Whether to take part at all.
    pub leader_elect: bool,
    /// How long a lease is good for after its last renewal.
    pub lease_duration: GoDuration,
    /// How long the leader tries to renew before it gives up.
    pub renew_deadline: GoDuration,
    /// How often to try.
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
    /// Content type for writes. Ours is always JSON; the field is accepted for compatibility.
    pub content_type: String,
    /// Requests a second; below zero: no limit.
    pub qps: f64,
    /// Requests at once above `qps`; not negative.
    pub burst: u32,
}

/// One scheduling profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Pods with this `spec.schedulerName` belong to it.
    pub scheduler_name: String,
    /// Overrides [`SchedulerConfig::percentage_of_nodes_to_score`].
    pub percentage_of_nodes_to_score: Option<u8>,
    /// Which plugins the file switches on and off.
    pub plugins: Plugins,
    /// The NUMA plugin's arguments, defaulted when the file has none.
    pub numa: NodeResourceTopologyMatchArgs,
    /// The arguments of all other plugins by plugin name, as they stand in the file.
    pub other_args: BTreeMap<String, Value>,
}

/// What the file says about each extension point; a point it does not mention is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plugins(pub BTreeMap<ExtensionPoint, PluginSet>);

/// Plugins switched on and off at one extension point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginSet {
    /// In evaluation order.
    pub enabled: Vec<Plugin>,
    /// Names; `*` stands for all default plugins.
    pub disabled: Vec<String>,
}

/// A plugin that is switched on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// Its name.
    pub name: String,
    /// Its weight in the score; absent: the plugin's default.
    pub weight: Option<i32>,
}

/// A point of the scheduling cycle where plugins act, as the file spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are kube-scheduler's own and say all there is")]
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

/// Everything that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// At least one.
    pub errors: Vec<FieldError>,
}

/// One thing that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// Not YAML.
    #[error("not valid YAML: {0}")]
    Syntax(String),
    /// A field nobody knows.
    #[error("{context}strict decoding error: unknown field {path:?}")]
    Unknown {
        /// Where nested arguments were being read, or empty.
        context: String,
        /// The field.
        path: String,
    },
    /// A value of another type.
    #[error("{context}{path}: expected {expected}, found {found}")]
    Type {
        /// Where nested arguments were being read, or empty.
        context: String,
        /// The field.
        path: String,
        /// What is allowed.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A value that is not allowed.
    #[error("{context}{path}: {problem}")]
    Invalid {
        /// Where nested arguments were being read, or empty.
        context: String,
        /// The field.
        path: String,
        /// What is wrong and what is allowed, in kube-scheduler's words where it has some.
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
    /// What the file says about an extension point, if anything.
    #[must_use]
    pub fn at(&self, point: ExtensionPoint) -> Option<&PluginSet> {
        self.0.get(&point)
    }

    /// Whether the file switches a plugin on at some extension point.
    #[must_use]
    pub fn enables(&self, plugin: &str) -> bool {
        self.0.values().any(|set| set.enabled.iter().any(|enabled| enabled.name == plugin))
    }
}

impl ExtensionPoint {
    /// All of them, in the order in which they act.
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
    /// What a file with nothing but `apiVersion` and `kind` means.
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
