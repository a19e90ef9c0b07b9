//! Removal of secrets and of unrelated data. Pure.
//!
//! In: objects as they are on the wire. Out: the objects without secrets and data unrelated to the case. Never: the
//! value of a variable whose name marks a secret.

use serde_json::{Map, Value, json};

/// Placeholder for removed values.
const LEFT_OUT: &str = "<left out>";
/// Annotation with a copy of the object as it was applied.
const COPY: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Parts of the names of secret variables.
const SECRET: [&str; 6] = ["PASSW", "TOKEN", "SECRET", "CREDENTIAL", "APIKEY", "PRIVATE"];
/// Parts of the paths of MachineConfig files that are related to the case.
const FILES: [&str; 3] = ["kubelet.conf", "selinux", "rte"];

/// Removes copies of the object and values of secret variables.
pub(super) fn object(value: &mut Value) {
    if let Some(annotations) = value.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(COPY);
    }
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    if value.get("kind").and_then(Value::as_str) == Some("MachineConfig") {
        machine_config(value);
    }
    for path in ["/spec", "/spec/template/spec", "/spec/jobTemplate/spec/template/spec"] {
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            let containers = value.pointer_mut(&format!("{path}/{list}")).and_then(Value::as_array_mut);
            containers.into_iter().flatten().for_each(hide);
        }
    }
}

/// Removes the values of variables with a secret name.
fn hide(container: &mut Value) {
    for variable in container.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
        let name = variable.get("name").and_then(Value::as_str).unwrap_or_default().to_uppercase();
        if SECRET.iter().any(|word| name.contains(word))
            && let Some(value) = variable.get_mut("value")
        {
            *value = LEFT_OUT.into();
        }
    }
}

/// Removes users and the contents of unrelated files, which may be anything; a pull secret is one of them.
fn machine_config(value: &mut Value) {
    if let Some(config) = value.pointer_mut("/spec/config").and_then(Value::as_object_mut) {
        config.remove("passwd");
    }
    let files = value.pointer_mut("/spec/config/storage/files").and_then(Value::as_array_mut);
    for file in files.into_iter().flatten() {
        let path = file.get("path").and_then(Value::as_str).unwrap_or_default();
        if !FILES.iter().any(|part| path.contains(part))
            && let Some(contents) = file.get_mut("contents")
        {
            *contents = LEFT_OUT.into();
        }
    }
}

/// The node, requests and status of an unrelated pod.
pub(super) fn foreign_pod(pod: &Value) -> Value {
    let at = |path: &str| pod.pointer(path).cloned();
    let meta = [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "ownerReferences",
        "labels",
    ];
    let spec = [
        "nodeName",
        "schedulerName",
        "priority",
        "priorityClassName",
        "overhead",
        "restartPolicy",
        "runtimeClassName",
        "nodeSelector",
        "tolerations",
        "resources",
        "hostNetwork",
    ];
    let mut trimmed = json!({ "apiVersion": "v1", "kind": "Pod" });
    trimmed["metadata"] = pick(at("/metadata"), &meta);
    trimmed["spec"] = pick(at("/spec"), &spec);
    for list in ["containers", "initContainers"] {
        if let Some(Value::Array(containers)) = at(&format!("/spec/{list}")) {
            let fields = ["name", "image", "resources", "restartPolicy"];
            let containers: Vec<Value> =
                containers.into_iter().map(|container| pick(Some(container), &fields)).collect();
            trimmed["spec"][list] = containers.into();
        }
    }
    trimmed["status"] = at("/status").unwrap_or_default();
    trimmed
}

fn pick(value: Option<Value>, fields: &[&str]) -> Value {
    let mut picked = Map::new();
    if let Some(Value::Object(mut object)) = value {
        for field in fields {
            if let Some(value) = object.remove(*field) {
                picked.insert((*field).to_owned(), value);
            }
        }
    }
    picked.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_values_are_removed() {
        let container = json!({ "name": "c", "env": [
            { "name": "NODE_NAME", "value": "n" }, { "name": "db_password", "value": "hunter2" },
            { "name": "API_TOKEN", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } },
        ] });
        let copy = "kubectl.kubernetes.io/last-applied-configuration";
        let metadata =
            json!({ "name": "x", "annotations": { "a": "b", copy: "hunter2" }, "managedFields": [1] });
        for path in ["/spec", "/spec/template/spec"] {
            let mut value = json!({ "kind": "X", "metadata": metadata });
            let spec = json!({ "containers": [container], "initContainers": [container] });
            value["spec"] = if path == "/spec" { spec } else { json!({ "template": { "spec": spec } }) };
            object(&mut value);
            let text = value.to_string();
            assert!(!text.contains("hunter2") && !text.contains("managedFields"), "{text}");
            assert_eq!(value.pointer(&format!("{path}/containers/0/env/0/value")), Some(&json!("n")));
            assert_eq!(value.pointer("/metadata/annotations/a"), Some(&json!("b")));
        }
    }

    #[test]
    fn machine_configs_keep_related_files() {
        let file = |path: &str| json!({ "path": path, "contents": { "source": "data:,hunter2" } });
        let mut value = json!({ "kind": "MachineConfig", "spec": { "config": {
            "passwd": { "users": [{ "name": "core", "sshAuthorizedKeys": ["hunter2"] }] },
            "storage": { "files": [file("/var/lib/kubelet/config.json"), file("/etc/kubernetes/kubelet.conf")] },
        } } });
        object(&mut value);
        assert_eq!(value.to_string().matches("hunter2").count(), 1);
        assert_eq!(
            value.pointer("/spec/config/storage/files/0/path"),
            Some(&json!("/var/lib/kubelet/config.json"))
        );
        assert!(value.pointer("/spec/config/storage/files/1/contents/source").is_some());
    }

    #[test]
    fn unrelated_pods_keep_their_requests() {
        let pod = json!({
            "metadata": { "name": "p", "namespace": "n", "uid": "u", "annotations": { "a": "hunter2" } },
            "spec": { "nodeName": "a", "schedulerName": "s", "volumes": [{ "name": "hunter2" }], "containers": [{
                "name": "c", "args": ["hunter2"], "env": [{ "name": "x", "value": "hunter2" }],
                "resources": { "limits": { "cpu": "2" } },
            }] },
            "status": { "phase": "Running", "qosClass": "Guaranteed" },
        });
        let trimmed = foreign_pod(&pod);
        assert!(!trimmed.to_string().contains("hunter2"), "{trimmed}");
        assert_eq!(trimmed.pointer("/spec/containers/0/resources/limits/cpu"), Some(&json!("2")));
        assert_eq!(trimmed.pointer("/spec/nodeName"), Some(&json!("a")));
        assert_eq!(trimmed.pointer("/status/phase"), Some(&json!("Running")));
    }
}
