//! The schedulers' configuration file, `KubeSchedulerConfiguration`.
//!
//! In: [`SchedulerOptions`], who may lead. Out: YAML that [`api::schedulerconfig`] reads, whichever scheduler it is for. Never: an `apiVersion`
//! other than `v1`: kube-scheduler has it since 1.25, the plugin's arguments have it since scheduler-plugins 0.25, and the
//! `v1beta3` of the Go deployer is gone since kube-scheduler 1.29.

use api::schedulerconfig::{API_VERSION, KIND, NUMA_PLUGIN, SchedulerConfig, Word};
use serde_json::{Map, Value, json};

use super::Error;
use crate::options::SchedulerOptions;

/// The key of the ConfigMap, and so the file's name.
pub const KEY: &str = "scheduler-config.yaml";

/// The kind of the plugin's arguments.
const ARGUMENTS: &str = "NodeResourceTopologyMatchArgs";

/// Who may act when several schedulers run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// Whether there is one.
    pub held: bool,
    /// The lease's namespace.
    pub namespace: String,
    /// The lease's name.
    pub name: String,
}

/// Whose file it is. They mean the same to our scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The Go deployer's: the plugin is added where it acts.
    Deployer,
    /// The Go operator's: the plugin is added wherever it can act, the filters stand in an order in which those that rule out most come
    /// first, devices are not allocated by claims, and the plugin's arguments say of which kind they are.
    Operator,
}

/// The filters of the Go operator's scheduler, in the order in which they are asked.
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

/// The file's text; `profile` is the name of the only profile.
///
/// # Errors
/// When the scheduler would not take it.
pub fn text(
    options: &SchedulerOptions,
    profile: &str,
    election: &Election,
    shape: Shape,
) -> Result<String, Error> {
    let config = json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "leaderElection": {
            "leaderElect": election.held,
            "resourceNamespace": election.namespace,
            "resourceName": election.name,
        },
        "profiles": [{
            "schedulerName": profile,
            "plugins": plugins(shape),
            "pluginConfig": [{ "name": NUMA_PLUGIN, "args": arguments(options, shape) }],
        }],
    });
    let unwritable = |reason: String| Error::Text("the scheduler's configuration".to_owned(), reason);
    let text = runtime::yaml::write(&config).map_err(|error| unwritable(error.reason))?;
    SchedulerConfig::parse(&text).map_err(|error| unwritable(error.to_string()))?;
    Ok(text)
}

fn plugins(shape: Shape) -> Value {
    let plugin = |name: &str| json!({ "name": name });
    let enabled = json!({ "enabled": [plugin(NUMA_PLUGIN)] });
    match shape {
        Shape::Deployer => json!({ "filter": enabled, "reserve": enabled, "score": enabled }),
        Shape::Operator => json!({
            "filter": { "disabled": [plugin("*")], "enabled": FILTERS.map(plugin) },
            "multiPoint": { "disabled": [plugin("DynamicResources")], "enabled": [plugin(NUMA_PLUGIN)] },
        }),
    }
}

fn arguments(scheduler: &SchedulerOptions, shape: Shape) -> Value {
    let cache = &scheduler.cache;
    let word = |name: &str, word: Option<&'static str>| word.map(|word| (name.to_owned(), json!(word)));
    let cache: Map<String, Value> = [
        word("foreignPodsDetect", cache.foreign_pods_detect.map(Word::as_str)),
        word("resyncMethod", cache.resync_method.map(Word::as_str)),
        word("informerMode", cache.informer_mode.map(Word::as_str)),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut arguments = Map::new();
    if shape == Shape::Operator {
        arguments.insert("apiVersion".to_owned(), json!(API_VERSION));
        arguments.insert("kind".to_owned(), json!(ARGUMENTS));
    }
    if !cache.is_empty() {
        arguments.insert("cache".to_owned(), Value::Object(cache));
    }
    if scheduler.resync_seconds > 0 {
        arguments.insert("cacheResyncPeriodSeconds".to_owned(), json!(scheduler.resync_seconds));
    }
    if let Some(scoring) = &scheduler.scoring {
        let mut strategy: Map<String, Value> =
            word("type", scoring.kind.map(Word::as_str)).into_iter().collect();
        if !scoring.resources.is_empty() {
            let one = |resource: &api::schedulerconfig::ResourceWeight| json!({ "name": resource.name, "weight": resource.weight });
            let resources: Vec<Value> = scoring.resources.iter().map(one).collect();
            strategy.insert("resources".to_owned(), json!(resources));
        }
        arguments.insert("scoringStrategy".to_owned(), Value::Object(strategy));
    }
    arguments.extend(word("preemptionMode", scheduler.preemption.map(Word::as_str)));
    Value::Object(arguments)
}
