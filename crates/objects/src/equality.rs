//! Whether an object is as desired.
//!
//! In: two objects as JSON. Out: whether and how they differ. Never: a decision about the difference.

use serde_json::Value;

use crate::ObjectKind;

/// The label that names the program that manages an object.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// The content of an object, without what the API server and built-in controllers write into it.
#[must_use]
pub fn content(live: &Value) -> Value {
    let mut content = live.clone();
    if let Some(fields) = content.as_object_mut() {
        fields.remove("status");
    }
    let Some(metadata) = content["metadata"].as_object_mut() else { return content };
    for field in ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"] {
        metadata.remove(field);
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("deployment.kubernetes.io/revision");
        annotations.remove("deprecated.daemonset.template.generation");
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    content
}

/// Whether `live` says all that `wanted` says; what else it says does not count. Of lists each element has to.
///
/// An amount in another notation (`1000m` for `1`) counts as a difference, since nobody but the API server knows which texts
/// are amounts.
#[must_use]
pub fn says(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| says(live.get(key).unwrap_or(&Value::Null), wanted))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| says(live, wanted))
        }
        // The API server leaves out what is empty.
        (Value::Null, Value::Object(wanted)) => wanted.values().all(|wanted| says(&Value::Null, wanted)),
        (Value::Null, Value::Array(wanted)) => wanted.is_empty(),
        (live, wanted) => live == wanted,
    }
}

/// Who made it, as far as it says: by label, else whoever manages its fields.
#[must_use]
pub fn owner(live: &Value) -> String {
    if let Some(owner) = live["metadata"]["labels"][MANAGED_BY_LABEL].as_str() {
        return owner.to_owned();
    }
    let entries = live["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut managers: Vec<&str> = entries
        .iter()
        .filter(|entry| entry["subresource"].is_null())
        .filter_map(|entry| entry["manager"].as_str())
        .collect();
    managers.sort_unstable();
    managers.dedup();
    if managers.is_empty() { "nobody known".to_owned() } else { managers.join(", ") }
}

/// The field that differs although it cannot be changed.
#[must_use]
pub fn immutable(kind: &ObjectKind, wanted: &Value, live: &Value) -> Option<&'static str> {
    let differs = |path: &str| wanted.pointer(path) != live.pointer(path);
    match kind.kind.as_str() {
        "DaemonSet" | "Deployment" if differs("/spec/selector") => Some("spec.selector"),
        "RoleBinding" | "ClusterRoleBinding" if differs("/roleRef") => Some("roleRef"),
        "PriorityClass" if differs("/value") => Some("value"),
        "ConfigMap" if live["immutable"] == true && (differs("/data") || differs("/binaryData")) => {
            Some("data")
        }
        _ => None,
    }
}

/// What somebody else's definition does not have of ours.
#[must_use]
pub fn unfit(ours: &Value, live: &Value) -> Option<String> {
    for field in ["/spec/group", "/spec/scope", "/spec/names/kind", "/spec/names/plural"] {
        let (ours, live) = (ours.pointer(field), live.pointer(field));
        if ours != live {
            let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
            let field = field.trim_start_matches("/spec/").replace('/', ".");
            return Some(format!("has {field} {} where {} is needed", text(live), text(ours)));
        }
    }
    let served = |definition: &Value| -> Vec<String> {
        let versions = definition["spec"]["versions"].as_array().cloned().unwrap_or_default();
        let served = versions.iter().filter(|version| version["served"] == true);
        served.filter_map(|version| version["name"].as_str().map(str::to_owned)).collect()
    };
    let there = served(live);
    let missing: Vec<String> = served(ours).into_iter().filter(|version| !there.contains(version)).collect();
    (!missing.is_empty())
        .then(|| format!("does not serve {} (it serves {})", missing.join(", "), there.join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_others_note_on_an_object_is_no_content() {
        let noted = json!({
            "metadata": {
                "name": "x", "uid": "1", "resourceVersion": "2", "generation": 3, "creationTimestamp": "now",
                "managedFields": [], "annotations": { "deployment.kubernetes.io/revision": "1" },
            },
            "spec": { "a": 1 },
            "status": { "b": 2 },
        });
        assert_eq!(content(&noted), json!({ "metadata": { "name": "x" }, "spec": { "a": 1 } }));
        assert_eq!(content(&json!({ "data": 1 }))["data"], 1);
    }

    #[test]
    fn saying_more_is_saying_it() {
        let table = [
            (json!({ "a": 1, "b": 2 }), json!({ "a": 1 }), true),
            (json!({ "a": 1 }), json!({ "a": 2 }), false),
            (json!({}), json!({ "a": 1 }), false),
            (json!({ "a": [{ "x": 1, "y": 2 }] }), json!({ "a": [{ "x": 1 }] }), true),
            (json!({ "a": [1, 2] }), json!({ "a": [1] }), false),
            (json!({}), json!({ "a": [], "b": {}, "c": { "d": [] } }), true),
            (json!({}), json!({ "a": { "b": 1 } }), false),
            (json!({ "cpu": "1" }), json!({ "cpu": "1000m" }), false),
        ];
        for (live, wanted, want) in table {
            assert_eq!(says(&live, &wanted), want, "{live} {wanted}");
        }
    }
}
