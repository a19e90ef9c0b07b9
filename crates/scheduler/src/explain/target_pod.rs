//! The pod to explain, as the core takes it.
//!
//! In: the object of a pod, or of a controller with a template of pods. Out: a pod on no node that a profile schedules,
//! and notes about what was changed for that. Never: a pod of the cluster under its own uid twice.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

/// A pod to explain.
#[derive(Debug)]
pub(super) struct TargetPod {
    /// The pod.
    pub(super) pod: Pod,
    /// Whether the core has to be told of it: it is not in the cluster, or is there on a node.
    pub(super) is_new: bool,
    /// For people.
    pub(super) notes: Vec<String>,
}

impl TargetPod {
    /// A pod of the cluster.
    ///
    /// # Errors
    /// The field that cannot be read.
    pub(super) fn of_cluster(mut object: Value) -> Result<Self, String> {
        let mut notes = Vec::new();
        let node = object.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !node.is_empty() {
            notes.push(format!("the pod is on node {node}; what follows is about one more like it"));
            object["spec"]["nodeName"] = Value::Null;
            object["status"] = json!({ "qosClass": object.pointer("/status/qosClass") });
            object["metadata"]["uid"] = "one more".into();
        }
        let pod = crate::shell::snapshot::pod_of(object)?;
        Ok(Self { pod, is_new: !node.is_empty(), notes })
    }

    /// A pod that is not there yet, as people write it: the API server's defaults are filled in.
    ///
    /// # Errors
    /// When the object has no pod, or a field cannot be read.
    pub(super) fn of_manifest(object: Value) -> Result<Self, String> {
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut notes = Vec::new();
        let mut object = match object.pointer("/spec/template") {
            Some(template) if kind != "Pod" => {
                let name = object.pointer("/metadata/name").cloned().unwrap_or_default();
                let namespace = object.pointer("/metadata/namespace").cloned();
                let mut pod = template.clone();
                pod["metadata"]["name"] = name;
                if let Some(namespace) = namespace {
                    pod["metadata"]["namespace"] = namespace;
                }
                notes.push(format!("the pod is the template of a {kind}"));
                pod
            }
            _ if kind == "Pod" => object,
            _ => return Err(format!("kind is {kind:?}: allowed are Pod and kinds with spec.template")),
        };
        if !object["spec"].is_object() {
            return Err("spec is missing".to_owned());
        }
        let meta = &mut object["metadata"];
        if meta["namespace"].as_str().is_none_or(str::is_empty) {
            meta["namespace"] = "default".into();
        }
        if meta["name"].as_str().is_none_or(str::is_empty) {
            let prefix = meta["generateName"].as_str().unwrap_or("pod-").to_owned();
            meta["name"] = format!("{prefix}0").into();
        }
        meta["uid"] = "asked about".into();
        object["spec"]["nodeName"] = Value::Null;
        object["status"] = Value::Null;
        for list in ["containers", "initContainers"] {
            let containers = object["spec"][list].as_array_mut();
            containers.into_iter().flatten().for_each(state_requests);
        }
        Ok(Self { pod: crate::shell::snapshot::pod_of(object)?, is_new: true, notes })
    }
}

/// Requests that are not stated are the limits (kube-apiserver `SetDefaults_Pod`).
fn state_requests(container: &mut Value) {
    let resources = &mut container["resources"];
    let Some(limits) = resources["limits"].as_object().cloned() else { return };
    if !resources["requests"].is_object() {
        resources["requests"] = json!({});
    }
    if let Some(requests) = resources["requests"].as_object_mut() {
        for (name, amount) in limits {
            requests.entry(name).or_insert(amount);
        }
    }
}
