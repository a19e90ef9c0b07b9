//! The pod to explain, as the core takes it.
//!
//! In: the object of a pod, or of a controller with a template of pods. Out: a pod on no node that a profile schedules,
//! and notes about what was changed for that. Never: a pod of the cluster under its own uid twice.

use std::path::Path;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use k8s_openapi::api::core::v1::Pod;
use runtime::yaml::dump;
use serde_json::{Value, json};

use crate::core::Settings;

/// A pod to ask about.
#[derive(Debug)]
pub(crate) struct TargetPod {
    /// The pod.
    pub(crate) pod: Pod,
    /// Whether the core has to be told of it: it is not in the cluster, or is there on a node, or changed.
    pub(crate) is_new: bool,
    /// For people.
    pub(crate) notes: Vec<String>,
}

impl TargetPod {
    /// A pod of the cluster.
    ///
    /// # Errors
    /// The field that cannot be read.
    pub(crate) fn of_cluster(mut object: Value) -> Result<Self, String> {
        let mut notes = Vec::new();
        let node = object.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !node.is_empty() {
            notes.push(format!("the pod is on node {node}; what follows is about one more like it"));
            object["spec"]["nodeName"] = Value::Null;
            object["metadata"]["deletionTimestamp"] = Value::Null;
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
    pub(crate) fn of_manifest(object: Value) -> Result<Self, String> {
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
        // The rest of a status tells of another run of the pod; the class is what the kubelet goes by.
        let qos = object["status"]["qosClass"].take();
        object["status"] = serde_json::json!({ "qosClass": qos });
        for list in ["containers", "initContainers"] {
            let containers = object["spec"][list].as_array_mut();
            containers.into_iter().flatten().for_each(state_requests);
        }
        Ok(Self { pod: crate::shell::snapshot::pod_of(object)?, is_new: true, notes })
    }

    /// The first pod of a file, or the template of a controller there; `-` is standard input.
    ///
    /// # Errors
    /// When the file cannot be read, or has no pod.
    pub(crate) fn of_file(file: &Path) -> anyhow::Result<Self> {
        let mut first = None;
        let has_pod = |object: &Value| object["kind"] == "Pod" || object["spec"]["template"].is_object();
        dump::objects(file, &mut |object| {
            if first.is_none() && has_pod(&object) {
                first = Some(object);
            }
        })?;
        let name = file.display();
        let Some(object) = first else { bail!("{name}: neither a Pod nor an object with spec.template") };
        Self::of_manifest(object).map_err(|error| anyhow!("{name}: {error}"))
    }

    /// Leaves out what the pod asks for of kinds that the dump does not have: nothing could be said of it.
    pub(crate) fn leave_out_kinds(&mut self, is_left_out: impl Fn(&str) -> bool) {
        let spec = self.pod.spec.get_or_insert_default();
        let volumes = spec.volumes.get_or_insert_default();
        let count = volumes.len();
        if is_left_out("PersistentVolumeClaim") {
            volumes.retain(|volume| volume.persistent_volume_claim.is_none() && volume.ephemeral.is_none());
        }
        let mut left_out = Vec::new();
        if volumes.len() < count {
            left_out.push("persistentvolumeclaims");
        }
        if is_left_out("ResourceClaim")
            && spec.resource_claims.take().is_some_and(|claims| !claims.is_empty())
        {
            left_out.push("resourceclaims");
            let init = spec.init_containers.iter_mut().flatten();
            let resources = spec.containers.iter_mut().chain(init).filter_map(|it| it.resources.as_mut());
            resources.for_each(|resources| resources.claims = None);
        }
        self.is_new |= !left_out.is_empty();
        let note = |kind| format!("the dump has no {kind}, so those of the pod do not count");
        self.notes.extend(left_out.into_iter().map(note));
    }

    /// The profile that schedules the pod. If none has the name that the pod asks for, the first one does, and a note
    /// says so.
    ///
    /// # Errors
    /// When there is no profile.
    pub(crate) fn choose_profile(&mut self, settings: &Settings) -> anyhow::Result<Arc<str>> {
        let spec = self.pod.spec.get_or_insert_default();
        let asked = spec.scheduler_name.clone().unwrap_or_default();
        if let Some(profile) = settings.profiles.iter().find(|profile| *profile.name == *asked) {
            return Ok(Arc::clone(&profile.name));
        }
        let Some(first) = settings.profiles.first() else { bail!("the configuration has no profile") };
        let profile = Arc::clone(&first.name);
        self.notes.push(format!("no profile is for schedulerName {asked:?}; taken as a pod of {profile}"));
        spec.scheduler_name = Some(profile.to_string());
        self.is_new = true;
        Ok(profile)
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
