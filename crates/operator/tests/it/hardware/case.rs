//! One scenario: a namespace, nodes, a double of KMM, DeviceConfigs; at its end nothing of it is left.
//!
//! In: a [`Lab`]. Out: what became of DeviceConfigs, Modules, nodes. Never: another scenario's objects.

use std::time::Duration;

use fakes::kmm::labels::ModuleName;
use fakes::kmm::{self, Kmm, Script, Stage};
use hardware::cluster_state::CORDON_TAINT;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testkit::account::Account;
use tokio::time::Instant;

use super::super::rig::PATIENCE;
use super::lab::{Lab, configs, objects};

/// The kernel of nodes that have no other.
pub(crate) const KERNEL: &str = "5.14.0-427.13.1.el9_4.x86_64";
/// The resource that the driver of a scenario serves.
pub(crate) const DEVICE: &str = "example.com/acc";
/// Whose node it is.
pub(crate) const CLAIM: &str = "hardware.tholepin.dev/driver";

/// A scenario.
pub(crate) struct Case<'l> {
    pub(crate) lab: &'l mut Lab,
    /// Its namespace; its nodes are `NAME-a` and so on, with the label `set: NAME`.
    pub(crate) name: &'static str,
    pub(crate) kmm: Kmm,
}

/// An object as it is, by fields.
pub(crate) fn plain(object: DynamicObject) -> Value {
    serde_json::to_value(object).unwrap()
}

/// What a condition says, if it is about the present generation: status, reason, message.
pub(crate) fn says<'v>(config: &'v Value, condition: &str) -> Option<[&'v str; 3]> {
    let all = config["status"]["conditions"].as_array()?;
    let found = all.iter().find(|found| found["type"] == condition)?;
    let is_current = found["observedGeneration"] == config["metadata"]["generation"];
    is_current.then(|| ["status", "reason", "message"].map(|field| found[field].as_str().unwrap_or_default()))
}

/// Whether a condition has this status and, unless it is empty, this reason.
pub(crate) fn is(config: &Value, condition: &str, status: &str, reason: &str) -> bool {
    says(config, condition).is_some_and(|[now, why, _]| now == status && (reason.is_empty() || why == reason))
}

pub(crate) fn is_ready(config: &Value) -> bool {
    is(config, "Ready", "True", "Reconciled")
        && is(config, "Errored", "False", "Ready")
        && is(config, "Progressing", "False", "")
        && is(config, "Degraded", "False", "")
        && config["status"]["phase"] == "Ready"
}

/// One of the counters of nodes.
pub(crate) fn count(config: &Value, counter: &str) -> i64 {
    config["status"]["nodes"][counter].as_i64().unwrap_or_default()
}

/// The problem of a node.
pub(crate) fn problem<'v>(config: &'v Value, node: &str) -> Option<&'v str> {
    let all = config["status"]["problems"].as_array()?;
    all.iter().find(|problem| problem["node"] == node)?["reason"].as_str()
}

impl<'l> Case<'l> {
    /// Begins it with so many nodes; the double does all it can.
    pub(crate) async fn begin(lab: &'l mut Lab, name: &'static str, nodes: usize) -> Self {
        Self::begin_with(lab, name, nodes, Stage::S8).await
    }

    /// The same with a double that goes this far.
    pub(crate) async fn begin_with(lab: &'l mut Lab, name: &'static str, nodes: usize, up_to: Stage) -> Self {
        Account::create(&lab.control, name, "default").await.unwrap();
        let devices = [DEVICE.to_owned()].into();
        let kmm = Kmm::start_with(&lab.admin, Script { up_to, devices, ..Script::default() });
        let case = Self { lab, name, kmm };
        for number in 0..nodes {
            case.add_node(&case.node(number), KERNEL).await;
        }
        case
    }

    pub(crate) fn client(&self) -> Client {
        self.lab.admin.clone()
    }

    /// The name of a node by its number.
    pub(crate) fn node(&self, number: usize) -> String {
        format!("{}-{}", self.name, char::from(b'a' + u8::try_from(number).unwrap()))
    }

    /// A node that is asked for.
    pub(crate) async fn add_node(&self, name: &str, kernel: &str) {
        kmm::node(&self.lab.admin, name, kernel, &[("set", self.name)]).await.unwrap();
    }

    /// The module of a DeviceConfig.
    pub(crate) fn of(&self, config: &str) -> ModuleName {
        ModuleName::new(self.name, &format!("{config}-module"))
    }

    /// A DeviceConfig for all nodes of this scenario, with more in its spec.
    pub(crate) fn config(&self, name: &str, more: &Value) -> Value {
        let mut spec = json!({
            "driverImage": "registry.example/drivers/acc",
            "driverVersion": "1.0",
            "nodeSelector": { "set": self.name },
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        json!({
            "apiVersion": "hardware.tholepin.dev/v1alpha1", "kind": "DeviceConfig",
            "metadata": { "name": name, "namespace": self.name }, "spec": spec,
        })
    }

    /// A user makes it.
    pub(crate) async fn ask(&self, name: &str, more: &Value) {
        let body = self.config(name, more);
        let made = configs(&self.lab.admin, Some(self.name))
            .create(&PostParams::default(), &serde_json::from_value(body.clone()).unwrap())
            .await;
        made.unwrap_or_else(|error| panic!("{body}: {error}"));
    }

    /// A user changes its spec.
    pub(crate) async fn change(&self, name: &str, spec: &Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        configs(&self.lab.admin, Some(self.name)).patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn delete(&self, name: &str) {
        let all = configs(&self.lab.admin, Some(self.name));
        let _ = all.delete(name, &DeleteParams::background()).await.unwrap();
    }

    pub(crate) async fn get(&self, name: &str) -> Option<Value> {
        configs(&self.lab.admin, Some(self.name)).get_opt(name).await.unwrap().map(plain)
    }

    /// Waits until a DeviceConfig is like this.
    #[track_caller]
    pub(crate) fn until<'a>(
        &'a self,
        name: &'a str,
        what: &'a str,
        holds: impl Fn(&Value) -> bool + 'a,
    ) -> impl Future<Output = Value> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let began = Instant::now();
            loop {
                let now = self.get(name).await.unwrap_or_default();
                if holds(&now) {
                    return now;
                }
                assert!(
                    began.elapsed() < PATIENCE,
                    "{caller}: {what}: still not after {PATIENCE:?}: {:#}\n{:#?}\n{}",
                    now["status"],
                    self.lab.last_writes(),
                    self.lab.log_tail()
                );
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Waits until all is as asked for on so many nodes.
    #[track_caller]
    pub(crate) fn until_ready<'a>(&'a self, name: &'a str, nodes: i64) -> impl Future<Output = Value> + 'a {
        self.until(name, "ready", move |config| is_ready(config) && count(config, "ready") == nodes)
    }

    /// Waits until a DeviceConfig is gone.
    pub(crate) async fn until_gone(&self, name: &str) {
        self.until(name, "gone", Value::is_null).await;
    }

    pub(crate) fn modules(&self) -> Api<DynamicObject> {
        kmm::api(&self.lab.admin, "Module", Some(self.name))
    }

    /// The Module of a DeviceConfig.
    pub(crate) async fn module(&self, config: &str) -> Option<Value> {
        self.modules().get_opt(&self.of(config).name).await.unwrap().map(plain)
    }

    /// Changes a Module as another client.
    pub(crate) async fn edit_module(&self, config: &str, patch: &Value) {
        let params = PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() };
        self.modules().patch(&self.of(config).name, &params, &Patch::Merge(patch)).await.unwrap();
    }

    /// A label of a node.
    pub(crate) async fn label(&self, node: &str, key: &str) -> Option<String> {
        let node = plain(objects(&self.lab.admin, "v1", "Node", None).get(node).await.unwrap());
        node["metadata"]["labels"][key].as_str().map(str::to_owned)
    }

    /// New pods are kept from it.
    pub(crate) async fn has_cordon_taint(&self, node: &str) -> bool {
        let node = plain(objects(&self.lab.admin, "v1", "Node", None).get(node).await.unwrap());
        let taints = node["spec"]["taints"].as_array();
        taints.is_some_and(|taints| taints.iter().any(|taint| taint["key"] == CORDON_TAINT))
    }

    pub(crate) async fn set_label(&self, node: &str, key: &str, value: Value) {
        let patch = Patch::Merge(json!({ "metadata": { "labels": { key: value } } }));
        let nodes = objects(&self.lab.admin, "v1", "Node", None);
        nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
    }

    /// A pod that runs on a node and has a device.
    pub(crate) async fn use_device(&self, name: &str, node: &str) {
        use_device(&self.lab.admin, self.name, name, node, DEVICE).await;
    }

    /// It ends.
    pub(crate) async fn leave_device(&self, name: &str) {
        leave_device(&self.lab.admin, self.name, name).await;
    }

    /// Events about a DeviceConfig, by their reasons, with how often each was told.
    pub(crate) async fn events(&self, name: &str) -> Vec<(String, i32)> {
        let events: Api<Event> = Api::namespaced(self.lab.admin.clone(), self.name);
        let all = events.list(&ListParams::default()).await.unwrap();
        let ours = all.items.into_iter().filter(|event| {
            event.regarding.as_ref().is_some_and(|about| about.name.as_deref() == Some(name))
        });
        let count = |event: &Event| event.series.as_ref().map_or(1, |series| series.count);
        ours.map(|event| (event.reason.clone().unwrap_or_default(), count(&event))).collect()
    }

    /// Takes everything away; nothing of it may stay.
    pub(crate) async fn end(self) {
        self.kmm.script(|script| *script = Script { devices: script.devices.clone(), ..Script::default() });
        let all = configs(&self.lab.admin, Some(self.name));
        for config in all.list(&ListParams::default()).await.unwrap() {
            let name = config.metadata.name.unwrap();
            // It may be about to go.
            let _ = all.delete(&name, &DeleteParams::background()).await;
            self.until_gone(&name).await;
        }
        self.kmm.settled(PATIENCE).await.unwrap();
        assert_eq!(self.kmm.unloaded_in_use(), [""; 0], "drivers were unloaded under pods");
        assert_eq!(self.left().await, [""; 0]);
        let nodes = objects(&self.lab.admin, "v1", "Node", None);
        for node in nodes.list(&ListParams::default().labels(&format!("set={}", self.name))).await.unwrap() {
            let _ = nodes.delete(&node.metadata.name.unwrap(), &DeleteParams::default()).await.unwrap();
        }
        self.kmm.settled(PATIENCE).await.unwrap();
    }

    /// What is still there of all that was made for DeviceConfigs of this scenario.
    pub(crate) async fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        let marked = ListParams::default().labels("app.kubernetes.io/managed-by=tholepin-operator");
        for kind in ["ServiceAccount", "ConfigMap"] {
            let all = objects(&self.lab.admin, "v1", kind, Some(self.name)).list(&marked).await.unwrap();
            left.extend(
                all.items.into_iter().map(|object| format!("{kind} {}", object.metadata.name.unwrap())),
            );
        }
        for module in self.modules().list(&ListParams::default()).await.unwrap() {
            left.push(format!("Module {}", module.metadata.name.unwrap()));
        }
        for node in objects(&self.lab.admin, "v1", "Node", None).list(&ListParams::default()).await.unwrap() {
            let node = plain(node);
            let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
            let ours = labels.filter(|(key, _)| key.contains("tholepin") || key.contains("kmm."));
            left.extend(ours.map(|(key, value)| format!("{} {key}={value}", node["metadata"]["name"])));
            let taints = node["spec"]["taints"].to_string();
            left.extend(
                taints.contains("tholepin").then(|| format!("{} {taints}", node["metadata"]["name"])),
            );
        }
        left
    }
}

/// A pod that runs on a node and has a device.
pub(crate) async fn use_device(client: &Client, namespace: &str, name: &str, node: &str, device: &str) {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "c", "image": "any", "resources": { "limits": { device: "1" } },
            }],
        },
    }))
    .unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let running = Patch::Merge(json!({ "status": { "phase": "Running" } }));
    pods.patch_status(name, &PatchParams::default(), &running).await.unwrap();
}

/// The pod is gone at once: no kubelet runs it.
pub(crate) async fn leave_device(client: &Client, namespace: &str, name: &str) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    let _ = pods.delete(name, &params).await.unwrap();
}
