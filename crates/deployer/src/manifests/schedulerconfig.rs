//! The schedulers' configuration file, `KubeSchedulerConfiguration`.
//!
//! In: [`SchedulerOptions`], a leader election. Out: YAML that [`api::schedulerconfig`] reads. Never: an `apiVersion`
//! other than `v1`. kube-scheduler has `v1` since 1.25 and scheduler-plugins since 0.25; kube-scheduler 1.29 removed
//! the `v1beta3` of the Go deployer.

use api::schedulerconfig::{API_VERSION, KIND, NUMA_PLUGIN, ResourceWeight, SchedulerConfig, Word};
use serde_json::{Map, Value, json};

use super::Error;
use crate::options::{LeaseName, Scheduler, SchedulerOptions};
use scheduler::config::DEFAULT_SCHEDULER_NAME;

/// The key in the ConfigMap, which is the file's name.
pub const KEY: &str = "scheduler-config.yaml";

/// The kind of the plugin's arguments.
const ARGUMENTS: &str = "NodeResourceTopologyMatchArgs";

/// The leader election of several schedulers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElection {
    /// Whether a leader is elected.
    pub enabled: bool,
    /// The lease's namespace.
    pub namespace: String,
    /// The lease's name.
    pub name: String,
}

impl LeaderElection {
    /// An election with the lease that options state; namespace and name are the defaults.
    #[must_use]
    pub fn new(enabled: bool, lease: &LeaseName, namespace: &str, name: &str) -> Self {
        let or = |given: &Option<String>, default: &str| given.clone().unwrap_or_else(|| default.to_owned());
        Self { enabled, namespace: or(&lease.namespace, namespace), name: or(&lease.name, name) }
    }
}

/// The peer whose file is imitated. Both mean the same to our scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigStyle {
    /// The Go deployer's: the plugin is enabled for filter, reserve and score.
    Deployer,
    /// The Go operator's: the plugin is enabled at all extension points, the filters are listed with the most selective
    /// first, the plugin DynamicResources is off, and the plugin's arguments state their kind.
    Operator,
}

/// The filters of the Go operator's scheduler, in their order.
const FILTERS: [&str; 14] = [
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "KNIDebug",
    "NodeResourcesFit",
    NUMA_PLUGIN,
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
];

/// The name of the only profile, by which pods choose the scheduler.
#[must_use]
pub fn scheduler_name(options: &SchedulerOptions) -> &str {
    let usual = match options.kind {
        Scheduler::Tholepin => DEFAULT_SCHEDULER_NAME,
        Scheduler::Plugin => super::plugin::NAME,
    };
    options.profile_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(usual)
}

/// The file's text; `profile` is the name of the only profile, unless options state one.
///
/// # Errors
/// When the scheduler would reject the file.
pub fn text(
    options: &SchedulerOptions,
    profile: &str,
    election: &LeaderElection,
    style: ConfigStyle,
) -> Result<String, Error> {
    let profile = options.profile_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(profile);
    let config = json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "leaderElection": {
            "leaderElect": election.enabled,
            "resourceNamespace": election.namespace,
            "resourceName": election.name,
        },
        "profiles": [{
            "schedulerName": profile,
            "plugins": plugins(style),
            "pluginConfig": [{ "name": NUMA_PLUGIN, "args": arguments(options, style) }],
        }],
    });
    let unwritable = |reason: String| Error::Text("the scheduler's configuration".to_owned(), reason);
    let text = runtime::yaml::write(&config).map_err(|error| unwritable(error.reason))?;
    SchedulerConfig::parse(&text).map_err(|error| unwritable(error.to_string()))?;
    Ok(text)
}

fn plugins(style: ConfigStyle) -> Value {
    let plugin = |name: &str| json!({ "name": name });
    let enabled = json!({ "enabled": [plugin(NUMA_PLUGIN)] });
    match style {
        ConfigStyle::Deployer => json!({ "filter": enabled, "reserve": enabled, "score": enabled }),
        ConfigStyle::Operator => json!({
            "filter": { "disabled": [plugin("*")], "enabled": FILTERS.map(plugin) },
            "multiPoint": { "disabled": [plugin("DynamicResources")], "enabled": [plugin(NUMA_PLUGIN)] },
        }),
    }
}

fn arguments(scheduler: &SchedulerOptions, style: ConfigStyle) -> Value {
    let cache = stated([
        ("foreignPodsDetect", json!(scheduler.cache.foreign_pods_detect.map(Word::as_str))),
        ("resyncMethod", json!(scheduler.cache.resync_method.map(Word::as_str))),
        ("informerMode", json!(scheduler.cache.informer_mode.map(Word::as_str))),
    ]);
    let scoring = scheduler.scoring.as_ref().map(|scoring| {
        let one =
            |ResourceWeight { name, weight }: &ResourceWeight| json!({ "name": name, "weight": weight });
        let resources: Vec<Value> = scoring.resources.iter().map(one).collect();
        stated([
            // The plugin refuses a strategy without one.
            ("type", json!(scoring.kind.unwrap_or_default().as_str())),
            ("resources", json!((!resources.is_empty()).then_some(resources))),
        ])
    });
    let operator = style == ConfigStyle::Operator;
    Value::Object(stated([
        ("apiVersion", json!(operator.then_some(API_VERSION))),
        ("kind", json!(operator.then_some(ARGUMENTS))),
        ("cache", json!((!cache.is_empty()).then_some(cache))),
        ("cacheResyncPeriodSeconds", json!(Some(scheduler.resync_seconds).filter(|seconds| *seconds > 0))),
        ("scoringStrategy", json!(scoring)),
        ("preemptionMode", json!(scheduler.preemption.map(Word::as_str))),
    ]))
}

/// The fields that are not null.
fn stated<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
    fields.map(|(name, value)| (name.to_owned(), value)).collect()
}
