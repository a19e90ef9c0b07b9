//! A cluster as its users see it: objects by kind and name.
//!
//! In: a client that may do everything. Out: objects, and changes of them as users, controllers or others make them.
//! Never: a process.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use objects::ObjectKind;
use operator::desired::{MANAGED_BY, MANAGER};
use serde_json::{Value, json};
use testkit::dump::{Dump, dump};
use tokio::time::Instant;

use super::rig::{NAMESPACE, PATIENCE, SOMEBODY};

/// A cluster.
pub(crate) struct Seen {
    pub(crate) admin: Client,
    /// What the operator says, if it is a process of the test's own.
    pub(crate) log: Option<PathBuf>,
}

impl Seen {
    pub(crate) fn api(&self, kind: &str) -> Api<DynamicObject> {
        let (kind, namespaced) = kind_of(kind);
        api_of(&self.admin, &kind, namespaced.then_some(NAMESPACE))
    }

    /// An object as it is; of the operator's namespace if its kind has one.
    pub(crate) async fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let found = self.api(kind).get_opt(name).await.unwrap();
        found.map(|found| serde_json::to_value(found).unwrap())
    }

    /// All objects of a kind.
    pub(crate) async fn list(&self, kind: &str) -> Vec<Value> {
        let list = self.api(kind).list(&ListParams::default()).await.unwrap();
        list.items.into_iter().map(|object| serde_json::to_value(object).unwrap()).collect()
    }

    /// Makes an object as `manager` would with a `POST`.
    pub(crate) async fn create(&self, manager: &str, object: &Value) -> Value {
        let api = self.api(object["kind"].as_str().unwrap());
        let params = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
        let (began, wanted) = (Instant::now(), serde_json::from_value(object.clone()).unwrap());
        loop {
            match api.create(&params, &wanted).await {
                Ok(made) => return serde_json::to_value(made).unwrap(),
                // A definition is Established a moment before its kind is served.
                Err(kube::Error::Api(status))
                    if status.message.contains("404 page not found") && began.elapsed() < PATIENCE =>
                {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => panic!("{object}: {error}"),
            }
        }
    }

    /// Changes an object as another client.
    pub(crate) async fn merge(&self, kind: &str, name: &str, patch: &Value) -> Value {
        let params = PatchParams { field_manager: Some(SOMEBODY.to_owned()), ..PatchParams::default() };
        let made = self.api(kind).patch(name, &params, &Patch::Merge(patch)).await;
        serde_json::to_value(made.unwrap_or_else(|error| panic!("{kind} {name}: {error}"))).unwrap()
    }

    /// Changes an object's status as its controller would.
    pub(crate) async fn status(&self, kind: &str, name: &str, status: &Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.api(kind).patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn delete(&self, kind: &str, name: &str) {
        // With its dependents, as kubectl does.
        let _ = self.api(kind).delete(name, &DeleteParams::background()).await.unwrap();
    }

    /// The only NUMAResourcesOperator, as a user writes it. An empty `groups`: there are none.
    pub(crate) async fn ask_for_exporters(&self, spec: &Value) -> Value {
        self.create("user", &asked("NUMAResourcesOperator", "numaresourcesoperator", spec)).await
    }

    /// The only NUMAResourcesScheduler.
    pub(crate) async fn ask_for_scheduler(&self, spec: &Value) -> Value {
        self.create("user", &asked("NUMAResourcesScheduler", "numaresourcesscheduler", spec)).await
    }

    /// What a condition says: status, reason, message. `None`: it is not there, or about an older generation.
    pub(crate) async fn condition(&self, kind: &str, condition: &str) -> Option<[String; 3]> {
        let (kind, name) = match kind {
            "operator" => ("NUMAResourcesOperator", "numaresourcesoperator"),
            _ => ("NUMAResourcesScheduler", "numaresourcesscheduler"),
        };
        let object = self.get(kind, name).await?;
        let all = object["status"]["conditions"].as_array()?;
        let found = all.iter().find(|found| found["type"] == condition)?;
        let current = found["observedGeneration"] == object["metadata"]["generation"];
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        current.then(|| ["status", "reason", "message"].map(text))
    }

    /// Waits until a condition of a user's object (`operator` or `scheduler`) is true, with this reason and message if
    /// they are not empty.
    pub(crate) async fn until_true(&self, kind: &str, condition: &str, reason: &str, message: &str) {
        let mut last = None;
        let began = Instant::now();
        loop {
            let now = self.condition(kind, condition).await;
            if let Some([status, why, text]) = &now
                && status == "True"
                && (reason.is_empty() || why == reason)
                && text.contains(message)
            {
                return;
            }
            last = now.or(last);
            assert!(
                began.elapsed() < PATIENCE,
                "{kind} is not {condition} ({reason}, {message:?}) but {last:?}; {}",
                self.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The cluster's objects, by name.
    pub(crate) async fn dump(&self) -> Dump {
        dump(&self.admin).await.unwrap()
    }

    /// Removes a field or an element, or changes it, by a JSON patch, as another client; returns whether that was
    /// allowed.
    pub(crate) async fn json_patch(&self, kind: &str, name: &str, patch: Value) -> bool {
        let params = PatchParams { field_manager: Some(SOMEBODY.to_owned()), ..PatchParams::default() };
        let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
        self.api(kind).patch(name, &params, &Patch::<Value>::Json(patch)).await.is_ok()
    }

    /// Makes a node without a kubelet.
    pub(crate) async fn node(&self, name: &str, labels: &[(&str, &str)]) {
        let labels: serde_json::Map<String, Value> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels },
        });
        self.create("user", &node).await;
        self.status("Node", name, &json!({ "conditions": [{ "type": "Ready", "status": "True" }] })).await;
    }

    /// What the operands' roles say.
    pub(crate) async fn granted(&self) -> Vec<PolicyRule> {
        let mut granted = Vec::new();
        for kind in ["ClusterRole", "Role"] {
            for role in self.list(kind).await {
                if role["metadata"]["labels"][MANAGED_BY] == MANAGER {
                    granted.extend(serde_json::from_value::<Vec<PolicyRule>>(role["rules"].clone()).unwrap());
                }
            }
        }
        granted
    }

    /// Arguments of a DaemonSet's first container.
    pub(crate) async fn args(&self, set: &str) -> Vec<String> {
        let set = self.get("DaemonSet", set).await.unwrap();
        let container = &set["spec"]["template"]["spec"]["containers"][0];
        serde_json::from_value(container["args"].clone()).unwrap()
    }

    pub(crate) async fn generation(&self, kind: &str, name: &str) -> i64 {
        self.get(kind, name).await.unwrap()["metadata"]["generation"].as_i64().unwrap()
    }

    /// The events the operator has written so far.
    async fn events(&self) -> Vec<Event> {
        let events: Api<Event> = Api::all(self.admin.clone());
        let mut told = events.list(&ListParams::default()).await.unwrap().items;
        told.retain(|event| event.reporting_controller.as_deref().is_some_and(|c| c.contains("tholepin")));
        told
    }

    /// The notes of its events with this reason.
    pub(crate) async fn told(&self, reason: &str) -> Vec<String> {
        let events = self.events().await.into_iter();
        let events = events.filter(|event| event.reason.as_deref() == Some(reason));
        events.filter_map(|event| event.note).collect()
    }

    /// Prints those events.
    pub(crate) async fn print_events(&self, name: &str) {
        for event in self.events().await {
            println!(
                "{name}: event {} {}: {}",
                event.type_.unwrap_or_default(),
                event.reason.unwrap_or_default(),
                event.note.unwrap_or_default()
            );
        }
    }

    /// The last lines the operator has said.
    pub(crate) fn log_tail(&self) -> String {
        let text = self.log.as_ref().and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

/// A user's object.
pub(crate) fn asked(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "nodetopology.openshift.io/v1", "kind": kind,
        "metadata": { "name": name }, "spec": spec,
    })
}

/// A kind by its name, and whether its objects are in namespaces.
fn kind_of(kind: &str) -> (ObjectKind, bool) {
    let (group, plural, namespaced) = match kind {
        "ConfigMap" => ("", "configmaps", true),
        "Event" => ("", "events", true),
        "Node" => ("", "nodes", false),
        "Pod" => ("", "pods", true),
        "Service" => ("", "services", true),
        "ServiceAccount" => ("", "serviceaccounts", true),
        "DaemonSet" => ("apps", "daemonsets", true),
        "Deployment" => ("apps", "deployments", true),
        "NetworkPolicy" => ("networking.k8s.io", "networkpolicies", true),
        "ClusterRole" => ("rbac.authorization.k8s.io", "clusterroles", false),
        "ClusterRoleBinding" => ("rbac.authorization.k8s.io", "clusterrolebindings", false),
        "ValidatingAdmissionPolicy" => ("admissionregistration.k8s.io", "validatingadmissionpolicies", false),
        "ValidatingAdmissionPolicyBinding" => {
            ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", false)
        }
        "Role" => ("rbac.authorization.k8s.io", "roles", true),
        "RoleBinding" => ("rbac.authorization.k8s.io", "rolebindings", true),
        "CustomResourceDefinition" => ("apiextensions.k8s.io", "customresourcedefinitions", false),
        "NUMAResourcesOperator" => (api::numaresources::GROUP, "numaresourcesoperators", false),
        "NUMAResourcesScheduler" => (api::numaresources::GROUP, "numaresourcesschedulers", false),
        "SecurityContextConstraints" => ("security.openshift.io", "securitycontextconstraints", false),
        "MachineConfig" => ("machineconfiguration.openshift.io", "machineconfigs", false),
        "MachineConfigPool" => ("machineconfiguration.openshift.io", "machineconfigpools", false),
        "KubeletConfig" => ("machineconfiguration.openshift.io", "kubeletconfigs", false),
        "NodeResourceTopology" => ("topology.node.k8s.io", "noderesourcetopologies", false),
        _ => panic!("a kind that no test asks for: {kind}"),
    };
    let version = if kind == "NodeResourceTopology" { "v1alpha2" } else { "v1" };
    (ObjectKind::new(group, version, kind, plural), namespaced)
}

pub(crate) fn api_of(client: &Client, kind: &ObjectKind, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind.resource()),
        None => Api::all_with(client.clone(), &kind.resource()),
    }
}
