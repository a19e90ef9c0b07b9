//! A case with a difference, made smaller while the difference lasts.

use serde_json::Value;

use crate::minimise::shrink;
use crate::scheduler::case::Case;

/// Removes pods, nodes and parts of objects as long as `differs` holds. Cost: a few times the number of parts.
pub fn minimise(case: &Case, differs: impl FnMut(&Case) -> bool) -> Case {
    shrink(case, candidates, differs)
}

/// Smaller cases, the boldest first.
fn candidates(case: &Case) -> Vec<Case> {
    let mut smaller = Vec::new();
    let mut with = |change: &dyn Fn(&mut Case)| {
        let mut candidate = case.clone();
        change(&mut candidate);
        smaller.push(candidate);
    };
    with(&|case| case.pods.truncate(case.pods.len() / 2));
    with(&|case| drop(case.pods.drain(..case.pods.len() / 2)));
    for at in 0..case.pods.len() {
        with(&|case| drop(case.pods.remove(at)));
    }
    let lists: [fn(&mut Case) -> &mut Vec<Value>; 5] = [
        |case| &mut case.services,
        |case| &mut case.replication_controllers,
        |case| &mut case.replica_sets,
        |case| &mut case.stateful_sets,
        |case| &mut case.pod_disruption_budgets,
    ];
    for list in lists {
        for at in 0..list(&mut case.clone()).len() {
            with(&|case| drop(list(case).remove(at)));
        }
    }
    for (at, namespace) in case.namespaces.iter().enumerate() {
        for path in parts(namespace, &["metadata"]) {
            with(&|case| remove(&mut case.namespaces[at], &path));
        }
    }
    for at in 0..case.nodes.len() {
        with(&|case| {
            let node = case.nodes.remove(at);
            case.pods.retain(|pod| pod["spec"]["nodeName"] != node["metadata"]["name"]);
        });
    }
    for (kind, objects) in case.storage.clone().kinds().into_iter().enumerate() {
        with(&|case| case.storage.kinds()[kind].clear());
        for (at, object) in objects.iter().enumerate() {
            with(&|case| drop(case.storage.kinds()[kind].remove(at)));
            for path in parts(object, &["metadata", "spec"]) {
                with(&|case| remove(&mut case.storage.kinds()[kind][at], &path));
            }
        }
    }
    for (kind, objects) in case.devices.clone().kinds().into_iter().enumerate() {
        with(&|case| case.devices.kinds()[kind].clear());
        for (at, object) in objects.iter().enumerate() {
            with(&|case| drop(case.devices.kinds()[kind].remove(at)));
            for path in parts(object, &["metadata", "spec", "status"]) {
                with(&|case| remove(&mut case.devices.kinds()[kind][at], &path));
            }
        }
    }
    for path in parts(&case.pod, &["spec"]) {
        with(&|case| remove(&mut case.pod, &path));
    }
    for path in parts(&case.configuration, &["profiles"]) {
        with(&|case| remove(&mut case.configuration, &path));
    }
    for (at, pod) in case.pods.iter().enumerate() {
        for path in parts(pod, &["spec"]) {
            with(&|case| remove(&mut case.pods[at], &path));
        }
    }
    for (at, node) in case.nodes.iter().enumerate() {
        for path in parts(node, &["metadata", "spec", "status"]) {
            with(&|case| remove(&mut case.nodes[at], &path));
        }
    }
    smaller
}

/// JSON pointers of everything below these fields that an object may lack.
fn parts(object: &Value, fields: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for field in fields {
        collect(&object[*field], &format!("/{field}"), &mut found);
    }
    found.retain(|path| !NEEDED.iter().any(|needed| path.ends_with(needed)));
    found
}

/// What no object is without.
const NEEDED: [&str; 34] = [
    "/allocationMode",
    "/count",
    "/deviceClassName",
    "/exactly",
    "/matchAttribute",
    "/distinctAttribute",
    "/name",
    "/image",
    "/nodeName",
    "/schedulerName",
    "/containers",
    "/containers/0",
    "/namespace",
    "/uid",
    "/topologyKey",
    "/whenUnsatisfiable",
    "/maxSkew",
    "/operator",
    "/key",
    "/profiles/0",
    "/driver",
    "/pool",
    "/generation",
    "/resourceSliceCount",
    "/deviceClassName",
    "/exactly",
    "/expression",
    "/device",
    "/request",
    "/value",
    "/counters",
    "/resource",
    "/values",
    "/values/0",
];

fn collect(value: &Value, path: &str, found: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (format!("{path}/{}", name.replace('~', "~0").replace('/', "~1")), value))
            .collect(),
        Value::Array(items) => {
            items.iter().enumerate().map(|(at, value)| (format!("{path}/{at}"), value)).collect()
        }
        _ => Vec::new(),
    };
    found.extend(children.iter().map(|(path, _)| path.clone()));
    children.iter().for_each(|(path, value)| collect(value, path, found));
}

/// Removes what a JSON pointer leads to.
fn remove(object: &mut Value, path: &str) {
    let Some((parent, last)) = path.rsplit_once('/') else { return };
    let last = last.replace("~1", "/").replace("~0", "~");
    match object.pointer_mut(parent) {
        Some(Value::Object(fields)) => drop(fields.remove(&last)),
        Some(Value::Array(items)) => {
            if let Some(at) = last.parse().ok().filter(|at| *at < items.len()) {
                drop(items.remove(at));
            }
        }
        _ => {}
    }
}
