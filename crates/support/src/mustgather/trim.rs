//! Removal of secrets and of unrelated data. Pure.
//!
//! In: objects as they are on the wire. Out: the objects without secrets and data unrelated to the case. Never: the
//! value of a variable, or the content of a node's file or unit, that is not in a list here: a list of what is secret
//! is never complete.

use serde_json::{Map, Value, json};

/// Placeholder for removed values.
const LEFT_OUT: &str = "<left out>";
/// Annotation with a copy of the object as it was applied.
const COPY: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Variables whose values stay: those that the programs of the stack, ours and the Go ones, read.
const VARIABLES: [&str; 28] = [
    "KUBERNETES_NAMESPACE",
    "METRICS_ADDRESS",
    "METRICS_PORT",
    "NAMESPACE",
    "NODE_ADDRESS",
    "NODE_IP",
    "NODE_NAME",
    "OPERATOR_CONDITION_NAME",
    "PFP_STATUS_DUMP",
    "PFP_STATUS_FILE",
    "PODNAME",
    "POD_NAME",
    "POD_NAMESPACE",
    "REFERENCE",
    "REFERENCE_CONTAINER_NAME",
    "REFERENCE_NAMESPACE",
    "REFERENCE_POD_NAME",
    "TAS_IMAGES_USE_SHA",
    "TAS_NODE_FEATURE_DISCOVERY_IMAGE",
    "TAS_RESOURCE_EXPORTER_IMAGE",
    "TAS_SCHEDULER_PLUGIN_CONTROLLER_IMAGE",
    "TAS_SCHEDULER_PLUGIN_IMAGE",
    "THOLEPIN_DEVICES",
    "THOLEPIN_IMAGE",
    "THOLEPIN_PAUSE_IMAGE",
    "TOPOLOGY_MANAGER_POLICY",
    "TOPOLOGY_MANAGER_SCOPE",
    "WATCH_NAMESPACE",
];
/// Files of MachineConfigs whose contents stay: the kubelet's configuration, and what the deployer installs for RTE.
const FILES: [&str; 4] = [
    "/etc/containers/oci/hooks.d/rte-notifier.json",
    "/etc/kubernetes/kubelet.conf",
    "/etc/selinux/rte.cil",
    "/usr/local/bin/rte-notifier.sh",
];
/// Units of MachineConfigs whose contents stay.
const UNITS: [&str; 1] = ["rte-selinux-policy-install.service"];

/// Removes copies of the object and values of unknown variables.
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

/// Removes the values of unknown variables.
fn hide(container: &mut Value) {
    for variable in container.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
        let name = variable.get("name").and_then(Value::as_str).unwrap_or_default();
        if !VARIABLES.contains(&name)
            && let Some(value) = variable.get_mut("value")
        {
            *value = LEFT_OUT.into();
        }
    }
}

/// Keeps the names of files and units, and the contents of those in the lists. All else of an Ignition configuration
/// may be anything: users, keys of disks, addresses with credentials.
fn machine_config(value: &mut Value) {
    let Some(config) = value.pointer_mut("/spec/config") else { return };
    let listed = |path: &str, fields: &[&str], name: &str, kept: &[&str]| -> Vec<Value> {
        let items = config.pointer(path).and_then(Value::as_array).into_iter().flatten();
        let item = |item: &Value| {
            let is_kept = item.get(name).and_then(Value::as_str).is_some_and(|name| kept.contains(&name));
            let mut trimmed = pick(Some(item.clone()), fields);
            if let (false, Some(contents)) = (is_kept, trimmed.get_mut("contents")) {
                *contents = LEFT_OUT.into();
            }
            trimmed
        };
        items.map(item).collect()
    };
    let files = listed("/storage/files", &["path", "mode", "overwrite", "contents"], "path", &FILES);
    let units = listed("/systemd/units", &["name", "enabled", "mask", "contents"], "name", &UNITS);
    let version = config.pointer("/ignition/version").cloned().unwrap_or_default();
    *config = json!({
        "ignition": { "version": version },
        "storage": { "files": files },
        "systemd": { "units": units },
    });
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
    fn values_of_unknown_variables_are_removed() {
        let container = json!({ "name": "c", "env": [
            { "name": "NODE_NAME", "value": "n" }, { "name": "db_password", "value": "hunter2" },
            { "name": "API_KEY", "value": "hunter2" }, { "name": "HTTPS_PROXY", "value": "http://u:hunter2@p" },
            { "name": "MY_NODE_NAME", "value": "hunter2" }, { "value": "hunter2" },
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
    fn machine_configs_keep_known_files_and_units() {
        let file =
            |path: &str| json!({ "path": path, "mode": 420, "contents": { "source": "data:,hunter2" } });
        let unit = |name: &str| {
            json!({ "name": name, "enabled": true, "contents": "ExecStart=/bin/x --token hunter2",
            "dropins": [{ "name": "10-x.conf", "contents": "Environment=A=hunter2" }] })
        };
        let mut value = json!({ "kind": "MachineConfig", "spec": { "kernelArguments": ["nosmt"], "config": {
            "ignition": { "version": "3.2.0", "config": { "merge": [{ "source": "https://u:hunter2@host" }] } },
            "passwd": { "users": [{ "name": "core", "sshAuthorizedKeys": ["hunter2"] }] },
            "storage": {
                "luks": [{ "keyFile": { "source": "data:,hunter2" } }],
                "files": [
                    file("/var/lib/kubelet/config.json"), file("/etc/kubernetes/kubelet.conf"),
                    file("/etc/exporter/credentials"), file("/root/etc/selinux/rte.cil"),
                ],
            },
            "systemd": { "units": [unit("kubelet.service"), unit("rte-selinux-policy-install.service")] },
        } } });
        object(&mut value);
        assert_eq!(value.to_string().matches("hunter2").count(), 2, "{value:#}");
        let at = |path: &str| value.pointer(&format!("/spec/{path}")).cloned().unwrap_or_default();
        assert_eq!(at("kernelArguments/0"), "nosmt");
        assert_eq!(at("config/storage/files/0/path"), "/var/lib/kubelet/config.json");
        assert_eq!(at("config/storage/files/1/contents/source"), "data:,hunter2");
        assert_eq!(at("config/systemd/units/0/contents"), LEFT_OUT);
        assert_ne!(at("config/systemd/units/1/contents"), LEFT_OUT);
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
