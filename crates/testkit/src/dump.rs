//! What is in a cluster, object by object, to be compared with what was there before.
//!
//! In: a client. Out: every object of every kind that is served, by name, without what changes by itself.
//! Never: events, leases, the API server's own registrations of the groups that it serves.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::{Api, ListParams};
use kube::core::DynamicObject;
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use crate::quiescence::until_quiescent;

/// Objects by `KIND.GROUP NAMESPACE/NAME`.
pub type Dump = BTreeMap<String, Value>;

/// Every object of every kind that is served, without uids, versions and times, and of what stirs by itself
/// without status.
///
/// # Errors
/// When the API server does not say what it serves.
pub async fn dump(client: &Client) -> anyhow::Result<Dump> {
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    let mut objects = Dump::new();
    for (kind, can) in discovery.groups().flat_map(|group| group.resources_by_stability()) {
        if !can.supports_operation(verbs::LIST) || matches!(kind.kind.as_str(), "Event" | "Lease") {
            continue;
        }
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        // A kind that is being removed is listed no longer.
        for object in all.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
            let name = match (&can.scope, object.namespace()) {
                (Scope::Namespaced, Some(namespace)) => format!("{namespace}/{}", object.name_any()),
                _ => object.name_any(),
            };
            let object = serde_json::to_value(object)?;
            if is_automanaged(&object) {
                continue;
            }
            let object = lasting(&kind.kind, object);
            objects.insert(format!("{}.{} {name}", kind.kind, kind.group), object);
        }
    }
    Ok(objects)
}

/// An object, of this kind, without what is different each time it is made.
#[must_use]
pub fn lasting(kind: &str, mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
            metadata.remove(field);
        }
    }
    for entry in object["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
        if let Some(entry) = entry.as_object_mut() {
            entry.remove("time");
        }
    }
    if is_stirring(kind) {
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
        }
        // A machine busy with compiling makes nodes late now and then.
        object["spec"].as_object_mut().and_then(|spec| spec.remove("taints"));
        object["metadata"]["managedFields"] = Value::Null;
    }
    object
}

/// Whether the API server keeps this object by itself, some time after the definition that it follows from
/// (kube-aggregator's `autoregister`).
fn is_automanaged(object: &Value) -> bool {
    !object["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"].is_null()
}

/// Kinds whose status changes by itself.
fn is_stirring(kind: &str) -> bool {
    matches!(
        kind,
        "Node"
            | "CSINode"
            | "DaemonSet"
            | "Deployment"
            | "APIService"
            | "CustomResourceDefinition"
            | "ValidatingAdmissionPolicy"
            | "Pod"
    )
}

/// Waits until controllers and the API server have made what they make in their first moments.
///
/// # Errors
/// As [`dump`].
pub async fn settled(client: &Client) -> anyhow::Result<()> {
    until_quiescent(3, Duration::from_millis(300), async || dump(client).await).await.map(drop)
}

/// What is in one and not the same in the other, one line each.
#[must_use]
pub fn difference(before: &Dump, after: &Dump) -> Vec<String> {
    let mut differences = Vec::new();
    for name in before.keys().chain(after.keys().filter(|name| !before.contains_key(*name))) {
        match (before.get(name), after.get(name)) {
            (Some(before), Some(after)) if before == after => {}
            (Some(before), Some(after)) => {
                let mut paths = Vec::new();
                differs(before, after, "", &mut paths);
                differences.push(format!("{name}: {}", paths.join("; ")));
            }
            (before, after) => differences.push(format!("{name}: {} -> {}", text(before), text(after))),
        }
    }
    differences
}

/// Asserts that both are the same.
#[track_caller]
pub fn assert_same(before: &Dump, after: &Dump) {
    assert_eq!(difference(before, after), [""; 0]);
}

/// Where two values differ, and what is there.
fn differs(before: &Value, after: &Value, path: &str, paths: &mut Vec<String>) {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else {
        if before != after {
            paths.push(format!("{path} {} -> {}", text(Some(before)), text(Some(after))));
        }
        return;
    };
    for key in old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))) {
        let (old, new) = (&before[key], &after[key]);
        differs(old, new, &format!("{path}.{key}"), paths);
    }
}

fn text(value: Option<&Value>) -> String {
    value.map_or("nothing".to_owned(), |value| value.to_string().chars().take(1000).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_named_by_their_place() {
        let of = |value: Value| Dump::from([("A. a".to_owned(), value)]);
        let before = of(json!({ "x": { "y": 1, "z": [1] }, "same": 1 }));
        assert_same(&before, &before);
        let after = of(json!({ "x": { "y": 2, "z": [1] }, "same": 1, "new": true }));
        assert_eq!(difference(&before, &after), ["A. a: .x.y 1 -> 2; .new null -> true"]);
        assert_eq!(difference(&Dump::new(), &of(json!(1))), ["A. a: nothing -> 1"]);
        let object = json!({ "metadata": { "uid": "u", "name": "n" }, "status": 1 });
        assert_eq!(lasting("ConfigMap", object.clone())["status"], 1);
        assert_eq!(lasting("Pod", object)["status"], Value::Null);
        let label = json!({ "kube-aggregator.kubernetes.io/automanaged": "true" });
        assert!(is_automanaged(&json!({ "metadata": { "labels": label } })));
        assert!(!is_automanaged(&json!({ "metadata": { "name": "v1.example.com" } })));
    }
}
