//! S8: device plugins and DRA drivers.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Value, json};

use super::super::cluster_state::Kind;
use super::super::labels::{DEVICE_PLUGIN, DRA, MODULE_NAME, ModuleName, POD_FINALIZER, ROLE};
use super::super::script::{Plugins, Stage};
use super::super::write::{Operation, Write};
use super::images::owner;
use super::module::toward;
use super::{Module, PlanInputs, has_finalizer, label, without_finalizer};

/// On a DaemonSet: which wish it was made from.
const MADE_FROM: &str = "testkit/made-from";

/// A kind of pods that offer a module's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    DevicePlugin,
    Dra,
}

impl Role {
    const ALL: [Self; 2] = [Self::DevicePlugin, Self::Dra];

    /// Its field in a Module's spec and status.
    fn field(self) -> &'static str {
        match self {
            Self::DevicePlugin => "devicePlugin",
            Self::Dra => "dra",
        }
    }

    /// Its label on pods, and in the names of its DaemonSets and containers.
    fn label(self) -> &'static str {
        match self {
            Self::DevicePlugin => DEVICE_PLUGIN,
            Self::Dra => DRA,
        }
    }

    fn is_asked_for(self, module: &Module<'_>) -> bool {
        !module.is_leaving && module.body["spec"][self.field()].is_object()
    }

    /// The label of nodes where it runs.
    fn ready(self, of: &ModuleName) -> String {
        match self {
            Self::DevicePlugin => of.plugin_ready(),
            Self::Dra => of.dra_ready(),
        }
    }
}

impl PlanInputs<'_> {
    /// DaemonSets, their status where no controller runs them, and pods that wait for their nodes' labels.
    pub(super) fn plugins(&self, writes: &mut Vec<Write>) {
        for module in self.modules.values() {
            let roles = Role::ALL.into_iter().filter(|role| role.is_asked_for(module));
            for role in roles.filter(|_| self.script.reaches(Stage::S8)) {
                self.plugin(module, role, writes);
            }
        }
        for (key, set) in self.state.of(Kind::DaemonSet) {
            let Some((of, role)) = plugin_of(set) else { continue };
            let leaving = set["metadata"]["deletionTimestamp"].is_string();
            let current = self.modules.get(&of).filter(|module| role.is_asked_for(module));
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
    fn plugin(&self, module: &Module<'_>, role: Role, writes: &mut Vec<Write>) {
        let body = daemon_set(module, role);
        let of_version = |(_, set): &(&str, &Value)| {
            plugin_of(set) == Some((module.of.clone(), role))
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

    /// A node's labels about device plugins and DRA drivers.
    pub(super) fn plugin_labels(&self, name: &str, wanted: &mut BTreeMap<String, String>) {
        for module in self.modules.values() {
            if Role::DevicePlugin.is_asked_for(module) && module.targets.contains_key(name) {
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
                let served = pods.filter_map(|(_, pod)| plugin_of(pod));
                wanted.extend(served.map(|(of, role)| (role.ready(&of), String::new())));
            }
            Plugins::Simulated => {
                let sets = self.state.of(Kind::DaemonSet).filter_map(|(_, set)| Some((plugin_of(set)?, set)));
                let there = sets.filter(|(_, set)| {
                    self.nodes_of(set).contains(&name) && !self.script.unready.contains(name)
                });
                wanted.extend(there.map(|((of, role), _)| (role.ready(&of), String::new())));
            }
        }
    }

    /// Pods of a module's device plugin or DRA driver.
    pub(super) fn plugin_pods(&self, of: &ModuleName) -> impl Iterator<Item = &Value> {
        self.state.of(Kind::Pod).map(|(_, pod)| pod).filter(move |pod| is_plugin_of(pod, of))
    }

    /// Whether a DaemonSet of it is left.
    pub(super) fn has_plugin(&self, of: &ModuleName) -> bool {
        self.state.of(Kind::DaemonSet).any(|(_, set)| is_plugin_of(set, of))
    }

    /// Targeted nodes twice, and those where it runs.
    pub(super) fn served(&self, module: &Module<'_>, role: Role) -> Option<[i64; 3]> {
        module.body["spec"][role.field()].as_object()?;
        let now = |name: &str| module.body["status"][role.field()][name].as_i64().unwrap_or_default();
        if !self.script.reaches(Stage::S8) {
            return Some(["nodesMatchingSelectorNumber", "desiredNumber", "availableNumber"].map(now));
        }
        let wanted = Some((module.of.clone(), role));
        let sets = self.state.of(Kind::DaemonSet).filter(|(_, set)| plugin_of(set) == wanted);
        let available = sets.filter_map(|(_, set)| set["status"]["numberAvailable"].as_i64()).sum();
        let targets = i64::try_from(module.targets.len()).unwrap_or(i64::MAX);
        Some([targets, targets, available])
    }
}

/// The module that a DaemonSet or pod is of, and what it is there.
fn plugin_of(object: &Value) -> Option<(ModuleName, Role)> {
    let said = label(object, ROLE)?;
    let role = Role::ALL.into_iter().find(|role| role.label() == said)?;
    let of = ModuleName::new(object["metadata"]["namespace"].as_str()?, label(object, MODULE_NAME)?);
    Some((of, role))
}

fn is_plugin_of(object: &Value, module: &ModuleName) -> bool {
    plugin_of(object).is_some_and(|(of, _)| of == *module)
}

fn version<'m>(module: &'m Module<'_>) -> &'m str {
    module.body["spec"]["moduleLoader"]["container"]["version"].as_str().unwrap_or_default()
}

/// Folders of a node that a device plugin or a DRA driver has without asking.
fn folders(role: Role) -> (Vec<Value>, Vec<Value>) {
    let all: &[(&str, &str, &str)] = match role {
        Role::DevicePlugin => &[("kubelet-device-plugins", "/var/lib/kubelet/device-plugins", "Directory")],
        Role::Dra => &[
            ("plugins", "/var/lib/kubelet/plugins/", "DirectoryOrCreate"),
            ("plugins-registry", "/var/lib/kubelet/plugins_registry/", "Directory"),
            ("cdi-root", "/var/run/cdi", "DirectoryOrCreate"),
        ],
    };
    let volume = |(name, path, kind): &(&str, &str, &str)| json!({ "name": name, "hostPath": { "path": path, "type": kind } });
    let mount = |(name, path, _): &(&str, &str, &str)| json!({ "name": name, "mountPath": path });
    (all.iter().map(volume).collect(), all.iter().map(mount).collect())
}

/// As KMM makes it: privileged, with the kubelet's folders, on nodes where the module is ready.
fn daemon_set(module: &Module<'_>, role: Role) -> Value {
    let of = &module.of;
    let spec = &module.body["spec"];
    let plugin = &spec[role.field()];
    let mut labels = json!({ MODULE_NAME: of.name, ROLE: role.label() });
    let mut nodes = json!({ of.ready(): "" });
    if role == Role::DevicePlugin {
        nodes[of.plugin_target()] = "".into();
    }
    if !spec["moduleLoader"].is_object() {
        nodes = spec["selector"].clone();
    }
    if !version(module).is_empty() {
        labels[of.version_schedule()] = version(module).into();
        nodes[of.version_schedule()] = version(module).into();
    }
    let (mut volumes, mounts) = folders(role);
    volumes.extend(plugin["volumes"].as_array().into_iter().flatten().cloned());
    let mut pod = json!({
        "containers": [container(role.label(), &plugin["container"], mounts)],
        "nodeSelector": nodes,
        "priorityClassName": "system-node-critical",
        "volumes": volumes,
    });
    if plugin["initContainer"].is_object() {
        pod["initContainers"] =
            json!([container(&format!("{}-init", role.label()), &plugin["initContainer"], Vec::new())]);
    }
    if role == Role::Dra {
        pod["hostNetwork"] = true.into();
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
            "generateName": format!("{}-{}-", of.name, role.label()),
            "namespace": of.namespace,
            "labels": labels,
            "annotations": { MADE_FROM: format!("{:016x}", hasher.finish()) },
            "ownerReferences": [owner(module)],
        },
        "spec": { "selector": { "matchLabels": labels }, "template": template },
    })
}

/// One of its containers: what the Module says, privileged.
fn container(name: &str, said: &Value, more_mounts: Vec<Value>) -> Value {
    let mut container = said.clone();
    container["name"] = name.into();
    container["securityContext"] = json!({ "privileged": true });
    let mut mounts: Vec<Value> = said["volumeMounts"].as_array().into_iter().flatten().cloned().collect();
    mounts.extend(more_mounts);
    container["volumeMounts"] = mounts.into();
    container
}
