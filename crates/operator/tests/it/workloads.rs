//! Says that the pods of DaemonSets and Deployments run, where no controller and no kubelet does.
//!
//! In: an API server. Out: statuses as their controllers would write them, as soon as something is new. Never: a pod.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::rig::NAMESPACE;

/// The player; dropping it ends it.
pub(crate) struct Workloads {
    told: Arc<Mutex<BTreeMap<String, Told>>>,
    task: JoinHandle<()>,
}

/// What becomes of a workload's pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Told {
    /// All run, of whatever is asked for.
    #[default]
    Run,
    /// They stay as they are: no controller acts on them.
    Hold,
    /// None is ready.
    Crash,
}

impl Workloads {
    pub(crate) fn start(client: &Client) -> Self {
        let told = Arc::new(Mutex::new(BTreeMap::new()));
        let task = tokio::spawn(run(client.clone(), Arc::clone(&told)));
        Self { told, task }
    }

    /// What becomes of the pods of the DaemonSet or Deployment of this name.
    pub(crate) fn tell(&self, name: &str, told: Told) {
        self.told.lock().unwrap().insert(name.to_owned(), told);
    }
}

impl Drop for Workloads {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(client: Client, told: Arc<Mutex<BTreeMap<String, Told>>>) {
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), NAMESPACE);
    let deployments: Api<Deployment> = Api::namespaced(client, NAMESPACE);
    let of = |name: &str| told.lock().unwrap().get(name).copied().unwrap_or_default();
    loop {
        for set in sets.list(&ListParams::default()).await.into_iter().flatten() {
            if let Some(status) = status(&set, of(&set.name_any()), daemon_set) {
                write(&sets, &set.name_any(), status).await;
            }
        }
        for deployment in deployments.list(&ListParams::default()).await.into_iter().flatten() {
            if let Some(status) = status(&deployment, of(&deployment.name_any()), self::deployment) {
                write(&deployments, &deployment.name_any(), status).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

async fn write<K: Clone + std::fmt::Debug + serde::de::DeserializeOwned>(
    api: &Api<K>,
    name: &str,
    status: Value,
) {
    let params =
        PatchParams { field_manager: Some("kube-controller-manager".to_owned()), ..PatchParams::default() };
    // It may have gone.
    let _ = api.patch_status(name, &params, &Patch::Merge(json!({ "status": status }))).await;
}

/// The status to write, if it is another than the one that is there.
fn status<K: serde::Serialize>(object: &K, told: Told, of: fn(u64, &Value) -> Value) -> Option<Value> {
    let object = serde_json::to_value(object).ok()?;
    let ready = match told {
        Told::Run => 2,
        Told::Hold => return None,
        Told::Crash => 0,
    };
    let status = of(ready, &object);
    let differs = status.as_object()?.iter().any(|(field, value)| object["status"][field] != *value);
    differs.then_some(status)
}

fn daemon_set(ready: u64, set: &Value) -> Value {
    json!({
        "observedGeneration": set["metadata"]["generation"],
        "desiredNumberScheduled": 2, "currentNumberScheduled": 2, "updatedNumberScheduled": 2,
        "numberReady": ready,
        "numberAvailable": if ready == 0 { Value::Null } else { ready.into() },
        "numberUnavailable": if ready == 2 { Value::Null } else { (2 - ready).into() },
    })
}

fn deployment(ready: u64, deployment: &Value) -> Value {
    let pods = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
    let ready = if ready == 0 { 0 } else { pods };
    // As the API server shows them: nothing for none.
    let count = |pods: u64| if pods == 0 { Value::Null } else { pods.into() };
    let available = if ready == pods { "True" } else { "False" };
    json!({
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": count(pods), "updatedReplicas": count(pods),
        "readyReplicas": count(ready), "availableReplicas": count(ready),
        "unavailableReplicas": count(pods - ready),
        "conditions": [{ "type": "Available", "status": available }],
    })
}
