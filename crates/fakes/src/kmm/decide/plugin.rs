//! S8: device plugins.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Value, json};

use super::super::cluster_state::Kind;
use super::super::labels::{DEVICE_PLUGIN, MODULE_NAME, ModuleName, POD_FINALIZER, ROLE};
use super::super::script::{Plugins, Stage};
use super::super::write::{Operation, Write};
use super::images::owner;
use super::module::toward;
use super::{Module, PlanInputs, has_finalizer, label, without_finalizer};

/// On a DaemonSet: which wish it was made from.
const MADE_FROM: &str = "testkit/made-from";

impl PlanInputs<'_> {
    /// DaemonSets, their status where no controller runs them, and pods that wait for their nodes' labels.
    pub(super) fn plugins(&self, writes: &mut Vec<Write>) {
        for module in self.modules.values() {
            let spec = &module.body["spec"]["devicePlugin"];
            if spec.is_object() && !module.is_leaving && self.script.reaches(Stage::S8) {
                self.plugin(module, writes);
            }
        }
        for (key, set) in self.state.of(Kind::DaemonSet) {
            let Some(of) = plugin_of(set) else { continue };
            let leaving = set["metadata"]["deletionTimestamp"].is_string();
            let current = self
                .modules
                .get(&of)
                .filter(|module| !module.is_leaving && module.body["spec"]["devicePlugin"].is_object());
            if leaving {
                continue;
            }
            let Some(module) = current else {
                writes.push(Write::new(Kind::DaemonSet, key, Operation::Delete, "K9 device plugin"));
                continue;
            };
            let is_old = label(set, &of.version_schedule()).unwrap_or_default() != version(module);
            let is_idle = set["status"]["observedGeneration"] == set["metadata"]["generation"]
                && set["status"]["desiredNumberScheduled"] == 0;
            if is_old && is_idle {
                writes.push(Write::new(
                    Kind::DaemonSet,
                    key,
                    Operation::Delete,
                    "S8 the old version's device plugin",
                ));
            } else if self.script.plugins == Plugins::Simulated && self.script.reaches(Stage::S8) {
                self.play(key, set, writes);
            }
        }
        for (key, pod) in self.state.of(Kind::Pod) {
            let is_leaving = pod["metadata"]["deletionTimestamp"].is_string();
            if is_leaving && plugin_of(pod).is_some() && has_finalizer(pod, POD_FINALIZER) {
                let patch = json!({ "metadata": { "finalizers": without_finalizer(pod, POD_FINALIZER) } });
                writes.push(Write::guarded(Kind::Pod, key, pod, patch, "S8 pod finalizer"));
            }
        }
    }

    /// The DaemonSet of a module's present version.
    fn plugin(&self, module: &Module<'_>, writes: &mut Vec<Write>) {
        let body = daemon_set(module);
        let of_version = |(_, set): &(&str, &Value)| {
            plugin_of(set).as_ref() == Some(&module.of)
                && label(set, &module.of.version_schedule()).unwrap_or_default() == version(module)
        };
        let key = format!("{}/", module.of.namespace);
        match self.state.of(Kind::DaemonSet).find(of_version) {
            None => {
                writes.push(Write::new(Kind::DaemonSet, key, Operation::Create(body), "S8 device plugin"))
            }
            Some((key, there)) => {
                let made_from = |set: &Value| set["metadata"]["annotations"][MADE_FROM].clone();
                if made_from(there) != made_from(&body) {
                    let patch = json!({
                        "metadata": { "annotations": { MADE_FROM: made_from(&body) } },
                        "spec": { "template": body["spec"]["template"] },
                    });
                    writes.push(Write::new(
                        Kind::DaemonSet,
                        key,
                        Operation::Change(patch),
                        "S8 device plugin",
                    ));
                }
            }
        }
    }

    /// What the DaemonSet controller and kubelets would make of it, one pod at a time.
    fn play(&self, key: &str, set: &Value, writes: &mut Vec<Write>) {
        let nodes = self.nodes_of(set);
        let ready = nodes.iter().filter(|node| !self.script.unready.contains(**node)).count();
        let count = |name: &str| set["status"][name].as_i64().unwrap_or_default();
        let (desired, ready) = (i64::try_from(nodes.len()).unwrap_or(0), i64::try_from(ready).unwrap_or(0));
        let available = toward(count("numberAvailable"), ready);
        let is_seen = set["status"]["observedGeneration"] == set["metadata"]["generation"];
        if is_seen && count("desiredNumberScheduled") == desired && count("numberAvailable") == available {
            return;
        }
        let patch = json!({ "status": {
            "observedGeneration": set["metadata"]["generation"],
            "desiredNumberScheduled": desired,
            "currentNumberScheduled": desired,
            "updatedNumberScheduled": desired,
            "numberMisscheduled": 0,
            "numberReady": available,
            "numberAvailable": available,
            "numberUnavailable": desired - available,
        } });
        writes.push(Write::new(Kind::DaemonSet, key, Operation::Status(patch), "S8 played"));
    }

    /// Names of the nodes that a DaemonSet selects.
    fn nodes_of(&self, set: &Value) -> Vec<&str> {
        let wanted = set["spec"]["template"]["spec"]["nodeSelector"].as_object();
        let fits = |node: &Value| {
            wanted.into_iter().flatten().all(|(key, value)| node["metadata"]["labels"][key] == *value)
        };
        self.state.of(Kind::Node).filter(|(_, node)| fits(node)).map(|(name, _)| name).collect()
    }

    /// A node's labels about device plugins.
    pub(super) fn plugin_labels(&self, name: &str, _node: &Value, wanted: &mut BTreeMap<String, String>) {
        for module in self.modules.values().filter(|module| !module.is_leaving) {
            if module.body["spec"]["devicePlugin"].is_object() && module.targets.contains_key(name) {
                wanted.insert(module.of.plugin_target(), String::new());
            }
        }
        let is_ready = |pod: &Value| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
            ready.any(|ready| ready["status"] == "True") && !pod["metadata"]["deletionTimestamp"].is_string()
        };
        match self.script.plugins {
            Plugins::Run => {
                let pods = self
                    .state
                    .of(Kind::Pod)
                    .filter(|(_, pod)| pod["spec"]["nodeName"] == name && is_ready(pod));
                wanted.extend(
                    pods.filter_map(|(_, pod)| Some((plugin_of(pod)?.plugin_ready(), String::new()))),
                );
            }
            Plugins::Simulated => {
                let sets = self.state.of(Kind::DaemonSet).filter_map(|(_, set)| Some((plugin_of(set)?, set)));
                let there = sets.filter(|(_, set)| {
                    self.nodes_of(set).contains(&name) && !self.script.unready.contains(name)
                });
                wanted.extend(there.map(|(of, _)| (of.plugin_ready(), String::new())));
            }
        }
    }

    /// Pods of a module's device plugin.
    pub(super) fn plugin_pods(&self, of: &ModuleName) -> impl Iterator<Item = &Value> {
        self.state.of(Kind::Pod).map(|(_, pod)| pod).filter(move |pod| plugin_of(pod).as_ref() == Some(of))
    }

    /// Whether a DaemonSet of it is left.
    pub(super) fn has_plugin(&self, of: &ModuleName) -> bool {
        self.state.of(Kind::DaemonSet).any(|(_, set)| plugin_of(set).as_ref() == Some(of))
    }

    /// Targeted nodes twice, and those where it runs.
    pub(super) fn served(&self, module: &Module<'_>) -> Option<[i64; 3]> {
        module.body["spec"]["devicePlugin"].as_object()?;
        let now = |name: &str| module.body["status"]["devicePlugin"][name].as_i64().unwrap_or_default();
        if !self.script.reaches(Stage::S8) {
            return Some(["nodesMatchingSelectorNumber", "desiredNumber", "availableNumber"].map(now));
        }
        let sets =
            self.state.of(Kind::DaemonSet).filter(|(_, set)| plugin_of(set).as_ref() == Some(&module.of));
        let available = sets.filter_map(|(_, set)| set["status"]["numberAvailable"].as_i64()).sum();
        let targets = i64::try_from(module.targets.len()).unwrap_or(i64::MAX);
        Some([targets, targets, available])
    }
}

/// The module whose device plugin this is of.
fn plugin_of(object: &Value) -> Option<ModuleName> {
    label(object, ROLE).filter(|role| *role == DEVICE_PLUGIN)?;
    Some(ModuleName::new(object["metadata"]["namespace"].as_str()?, label(object, MODULE_NAME)?))
}

fn version<'m>(module: &'m Module<'_>) -> &'m str {
    module.body["spec"]["moduleLoader"]["container"]["version"].as_str().unwrap_or_default()
}

/// As KMM makes it: privileged, with the kubelet's folder, on nodes where the module is ready.
fn daemon_set(module: &Module<'_>) -> Value {
    let of = &module.of;
    let spec = &module.body["spec"];
    let plugin = &spec["devicePlugin"];
    let mut labels = json!({ MODULE_NAME: of.name, ROLE: DEVICE_PLUGIN });
    let mut nodes = json!({ of.ready(): "", of.plugin_target(): "" });
    if !spec["moduleLoader"].is_object() {
        nodes = spec["selector"].clone();
    }
    if !version(module).is_empty() {
        labels[of.version_schedule()] = version(module).into();
        nodes[of.version_schedule()] = version(module).into();
    }
    let sockets = json!({ "name": "kubelet-device-plugins", "mountPath": "/var/lib/kubelet/device-plugins" });
    let mut volumes = vec![json!({
        "name": "kubelet-device-plugins",
        "hostPath": { "path": "/var/lib/kubelet/device-plugins", "type": "Directory" },
    })];
    volumes.extend(plugin["volumes"].as_array().into_iter().flatten().cloned());
    let mut pod = json!({
        "containers": [container("device-plugin", &plugin["container"], &sockets)],
        "nodeSelector": nodes,
        "priorityClassName": "system-node-critical",
        "volumes": volumes,
    });
    if plugin["initContainer"].is_object() {
        pod["initContainers"] =
            json!([container("device-plugin-init", &plugin["initContainer"], &Value::Null)]);
    }
    for (field, value) in [
        ("serviceAccountName", &plugin["serviceAccountName"]),
        ("automountServiceAccountToken", &plugin["automountServiceAccountToken"]),
        ("tolerations", &spec["tolerations"]),
    ] {
        if !value.is_null() {
            pod[field] = value.clone();
        }
    }
    if spec["imageRepoSecret"].is_object() {
        pod["imagePullSecrets"] = json!([spec["imageRepoSecret"]]);
    }
    let template = json!({ "metadata": { "labels": labels, "finalizers": [POD_FINALIZER] }, "spec": pod });
    let mut hasher = DefaultHasher::new();
    template.to_string().hash(&mut hasher);
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "generateName": format!("{}-device-plugin-", of.name),
            "namespace": of.namespace,
            "labels": labels,
            "annotations": { MADE_FROM: format!("{:016x}", hasher.finish()) },
            "ownerReferences": [owner(module)],
        },
        "spec": { "selector": { "matchLabels": labels }, "template": template },
    })
}

/// One of its containers: what the Module says, privileged.
fn container(name: &str, said: &Value, more_mounts: &Value) -> Value {
    let mut container = said.clone();
    container["name"] = name.into();
    container["securityContext"] = json!({ "privileged": true });
    let mut mounts: Vec<Value> = said["volumeMounts"].as_array().into_iter().flatten().cloned().collect();
    mounts.extend((!more_mounts.is_null()).then(|| more_mounts.clone()));
    container["volumeMounts"] = mounts.into();
    container
}
