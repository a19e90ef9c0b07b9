//! Configurations of schedulers: profile names and lease.
//!
//! In: pod templates, and the ConfigMaps that they mount. Out: [`SchedulerSettings`]. Never: a guess about a
//! configuration that was not read.

use std::collections::{BTreeMap, BTreeSet};

use api::schedulerconfig::{KIND, NUMA_PLUGIN};
use k8s_openapi::api::core::v1::PodSpec;
use runtime::yaml::{self, Mode};
use scheduler::config::DEFAULT_SCHEDULER_NAME;
use serde_json::Value;

use super::role;
use crate::validate::evidence::{Pod, Role, SchedulerSettings, Workload, text};

/// The schedulers so far.
#[derive(Debug, Default)]
pub(super) struct Schedulers {
    /// By title.
    wanted: BTreeMap<String, Source>,
    /// Static pods.
    pods: Vec<Workload>,
    /// Configurations by namespace and name of their ConfigMap.
    found: BTreeMap<(String, String), Config>,
}

/// The source of a scheduler's configuration.
#[derive(Debug, Clone)]
struct Source {
    /// Namespaces and names of mounted ConfigMaps.
    config_maps: Vec<(String, String)>,
    /// The command line names a configuration file.
    has_file: bool,
    /// The scheduler is ours.
    ours: bool,
}

#[derive(Debug, Clone)]
struct Config {
    settings: SchedulerSettings,
    numa: bool,
}

impl Schedulers {
    pub(super) fn workload(&mut self, workload: &Workload, spec: &PodSpec) {
        if !matches!(workload.role, Role::Scheduler { .. }) {
            return;
        }
        let mut images = spec.containers.iter().filter_map(|container| container.image.as_ref());
        let words: Vec<&str> = spec.containers.iter().flat_map(role::words).collect();
        let has_file = words.iter().any(|word| word.starts_with("--config") || word.starts_with("-config"));
        let ours = words.iter().any(|word| word.ends_with("tholepin"))
            || images.any(|image| image.contains("/tholepin"));
        let maps = spec.volumes.iter().flatten().filter_map(|volume| volume.config_map.as_ref());
        let config_maps = maps.map(|map| (workload.namespace.clone(), map.name.clone())).collect();
        self.wanted.insert(workload.title(), Source { config_maps, has_file, ours });
    }

    pub(super) fn pod(&mut self, (workload, spec): (Workload, PodSpec)) {
        self.workload(&workload, &spec);
        self.pods.push(workload);
    }

    pub(super) fn config_maps(&self) -> BTreeSet<(String, String)> {
        self.wanted.values().flat_map(|source| source.config_maps.iter().cloned()).collect()
    }

    pub(super) fn config_map(&mut self, object: &Value) {
        let data = object.get("data").and_then(Value::as_object).into_iter().flatten();
        let config = data.filter_map(|(key, value)| read(key, value.as_str()?)).next();
        let key = (text(object, "/metadata/namespace").to_owned(), text(object, "/metadata/name").to_owned());
        if let Some(config) = config {
            self.found.insert(key, config);
        }
    }

    /// Adds the settings to the workloads, and adds static pods to them.
    pub(super) fn settle(&mut self, workloads: &mut Vec<Workload>, pods: &BTreeMap<(String, String), Pod>) {
        let still_there = |pod: &Workload| pods.contains_key(&(pod.namespace.clone(), pod.name.clone()));
        workloads.extend(self.pods.drain(..).filter(still_there));
        for workload in workloads.iter_mut() {
            let Role::Scheduler { numa } = workload.role else { continue };
            let Some(source) = self.wanted.get(&workload.title()) else { continue };
            let config = source.config_maps.iter().find_map(|key| self.found.get(key));
            if let Some(config) = config {
                workload.role = Role::Scheduler { numa: numa || config.numa };
                workload.scheduler = Some(config.settings.clone());
            } else if !source.has_file {
                let name = if source.ours { DEFAULT_SCHEDULER_NAME } else { "default-scheduler" };
                let lease = if source.ours { DEFAULT_SCHEDULER_NAME } else { "kube-scheduler" };
                let lease = Some(("kube-system".to_owned(), lease.to_owned()));
                workload.scheduler = Some(SchedulerSettings { profiles: vec![name.to_owned()], lease });
            }
        }
    }
}

/// Reads a scheduler's configuration of any version; only the needed fields.
fn read(key: &str, content: &str) -> Option<Config> {
    let config: Value = yaml::read_str(key, content, Mode::Lenient).ok()?;
    if text(&config, "/kind") != KIND {
        return None;
    }
    let or = |value: &Value, path: &str, default: &str| match text(value, path) {
        "" => default.to_owned(),
        name => name.to_owned(),
    };
    let name = |profile: &Value| or(profile, "/schedulerName", "default-scheduler");
    let profiles = match config.get("profiles").and_then(Value::as_array) {
        Some(profiles) => profiles.iter().map(name).collect(),
        None => vec!["default-scheduler".to_owned()],
    };
    let election = config.get("leaderElection").unwrap_or(&Value::Null);
    let elect = election.get("leaderElect").and_then(Value::as_bool).unwrap_or(true);
    let lease = elect.then(|| {
        let namespace = or(election, "/resourceNamespace", "kube-system");
        (namespace, or(election, "/resourceName", "kube-scheduler"))
    });
    Some(Config { settings: SchedulerSettings { profiles, lease }, numa: content.contains(NUMA_PLUGIN) })
}
