//! What KMM writes next.
//!
//! In: the state of the cluster, the script. Out: writes, the most urgent first; none when nothing differs. Never:
//! the API server, time. The rules are those of KMM's reconcilers: which nodes a module is for, what a
//! NodeModulesConfig says, when something is loaded or unloaded, and which labels tell of it.

mod images;
mod module;
mod node;
mod plugin;
mod version;
mod worker;

use std::collections::BTreeMap;

use serde_json::Value;

use super::cluster_state::{ClusterState, Kind};
use super::kernel;
use super::labels::ModuleName;
use super::script::{Script, Stage};
use super::write::Write;
use module::Counters;

/// A Module as KMM reads it.
#[derive(Debug)]
struct Module<'w> {
    of: ModuleName,
    body: &'w Value,
    is_leaving: bool,
    /// Nodes that it is for, and the image that each of them needs; `None`: its kernel is not mapped.
    targets: BTreeMap<&'w str, Option<String>>,
}

/// Everything a decision rests on.
struct PlanInputs<'w> {
    state: &'w ClusterState,
    script: &'w Script,
    modules: BTreeMap<ModuleName, Module<'w>>,
}

/// The next writes, of which each is about another object or made on what the ones before it leave as it is.
pub(super) fn next(state: &ClusterState, script: &Script) -> Vec<Write> {
    let inputs = PlanInputs { state, script, modules: modules(state) };
    if script.up_to == Stage::S0 {
        return Vec::new();
    }
    let mut writes = Vec::new();
    inputs.finalizers_and_labels(&mut writes);
    inputs.counters(Counters::Matching, &mut writes);
    inputs.images(&mut writes);
    inputs.versions(&mut writes);
    inputs.entries(&mut writes);
    inputs.worker_actions(&mut writes);
    inputs.labels(&mut writes);
    inputs.plugins(&mut writes);
    inputs.counters(Counters::All, &mut writes);
    inputs.remove_finalizers(&mut writes);
    writes
}

fn modules(state: &ClusterState) -> BTreeMap<ModuleName, Module<'_>> {
    let of = |(key, body): (&str, &'_ Value)| {
        let (namespace, name) = key.split_once('/')?;
        Some((ModuleName::new(namespace, name), body["metadata"]["deletionTimestamp"].is_string()))
    };
    state
        .of(Kind::Module)
        .filter_map(|(key, body)| {
            let (of, is_leaving) = of((key, body))?;
            let targets = if is_leaving { BTreeMap::new() } else { targets(state, body) };
            Some((of.clone(), Module { of, body, is_leaving, targets }))
        })
        .collect()
}

/// Nodes whose labels a Module selects, and all of whose taints it tolerates.
fn targets<'w>(state: &'w ClusterState, module: &Value) -> BTreeMap<&'w str, Option<String>> {
    let wanted = module["spec"]["selector"].as_object();
    let is_for = |node: &Value| {
        let labels = &node["metadata"]["labels"];
        wanted.into_iter().flatten().all(|(key, value)| labels[key] == *value)
            && tolerates(&module["spec"]["tolerations"], node)
    };
    let nodes = state.of(Kind::Node).filter(|(_, node)| is_for(node));
    nodes.map(|(name, node)| (name, kernel::image(module, kernel_of(node)))).collect()
}

fn kernel_of(node: &Value) -> &str {
    node["status"]["nodeInfo"]["kernelVersion"].as_str().unwrap_or_default()
}

fn boot_of(node: &Value) -> &Value {
    &node["status"]["nodeInfo"]["bootID"]
}

/// Whether pods can run there.
fn is_alive(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter(|condition| condition["type"] == "Ready").any(|ready| ready["status"] == "True")
}

/// Whether all that keeps pods away is tolerated. KMM itself tolerates pressure.
fn tolerates(tolerations: &Value, node: &Value) -> bool {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let mut hard = taints.filter(|taint| taint["effect"] == "NoSchedule" || taint["effect"] == "NoExecute");
    let pressures = ["disk-pressure", "memory-pressure", "pid-pressure"];
    hard.all(|taint| {
        let key = taint["key"].as_str().unwrap_or_default();
        let own = taint["effect"] == "NoSchedule"
            && key.strip_prefix("node.kubernetes.io/").is_some_and(|rest| pressures.contains(&rest));
        own || tolerations.as_array().into_iter().flatten().any(|toleration| tolerated(toleration, taint))
    })
}

/// As Kubernetes matches a toleration with a taint.
fn tolerated(toleration: &Value, taint: &Value) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let is_any = |value: &Value| text(value).is_empty();
    let key_fits = is_any(&toleration["key"]) || toleration["key"] == taint["key"];
    let effect_fits = is_any(&toleration["effect"]) || toleration["effect"] == taint["effect"];
    let value_fits =
        toleration["operator"] == "Exists" || text(&toleration["value"]) == text(&taint["value"]);
    key_fits && effect_fits && value_fits
}

/// The entries of a NodeModulesConfig's `spec` or `status`.
fn entries<'v>(nmc: Option<&'v Value>, part: &str) -> &'v [Value] {
    nmc.and_then(|nmc| nmc[part]["modules"].as_array()).map_or(&[], Vec::as_slice)
}

fn entry<'v>(nmc: Option<&'v Value>, part: &str, of: &ModuleName) -> Option<&'v Value> {
    entries(nmc, part).iter().find(|entry| named(entry) == *of)
}

/// The module that an entry is about.
fn named(entry: &Value) -> ModuleName {
    ModuleName::new(
        entry["namespace"].as_str().unwrap_or_default(),
        entry["name"].as_str().unwrap_or_default(),
    )
}

fn label<'v>(object: &'v Value, key: &str) -> Option<&'v str> {
    object["metadata"]["labels"][key].as_str()
}

fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().any(|known| known == finalizer)
}

/// All finalizers but this one.
fn without_finalizer(object: &Value, finalizer: &str) -> Vec<Value> {
    let all = object["metadata"]["finalizers"].as_array().into_iter().flatten();
    all.filter(|known| *known != finalizer).cloned().collect()
}
