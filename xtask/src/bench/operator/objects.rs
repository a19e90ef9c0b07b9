//! The objects of the benchmark: nodes, what is asked for, and what kubelets and controllers would say.
//!
//! In: a client. Out: objects on the API server. Never: a pod.

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;

use super::*;

/// The node groups.
pub(super) const GROUPS: [&str; 3] = ["compute", "edge", "storage"];
/// How many requests are on their way at a time.
const AT_ONCE: usize = 32;
const LABEL: &str = "example.com/pool";
/// How many nodes change in each round.
const CHANGING: usize = 10;

/// Objects of a kind, whatever is in them.
pub(super) fn api(
    client: &Client,
    group: &str,
    version: &str,
    kind: &str,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

async fn create(api: &Api<DynamicObject>, object: Value) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    api.create(&PostParams::default(), &object).await.map(drop).context("making an object")
}

/// The nodes, the operator's namespace, and the configuration of the kubelets there are not.
pub(super) async fn prepare(client: &Client, nodes: usize) -> anyhow::Result<()> {
    let all = api(client, "", "v1", "Node", None);
    let made = futures::stream::iter(0..nodes).map(|index| create(&all, node(index)));
    made.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    create(&api(client, "", "v1", "Namespace", None), namespace).await?;
    let kubelet = "topologyManagerPolicy: single-numa-node\ntopologyManagerScope: pod\n";
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubelets"}, "data": {"kubelet": kubelet},
    });
    create(&api(client, "", "v1", "ConfigMap", Some(NAMESPACE)), map).await
}

/// A node as large as they are: labels that a cloud and feature discovery put there, fifty images. Three of all
/// are the control plane.
fn node(index: usize) -> Value {
    let name = format!("node-{index:05}");
    let mut labels = json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"});
    if index < 3 {
        labels["node-role.kubernetes.io/control-plane"] = "".into();
    } else {
        labels[LABEL] = GROUPS[index % GROUPS.len()].into();
    }
    for feature in 0..30 {
        labels[format!("feature.node.kubernetes.io/cpu-feature-{feature}")] = "true".into();
    }
    let image = |image: usize| {
        let name = format!("registry.example.com/project/image-{image}");
        json!({"names": [format!("{name}@sha256:{image:064x}"), format!("{name}:v1")], "sizeBytes": 123_456_789})
    };
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": "KubeletSays", "message": "kubelet says so",
            "lastHeartbeatTime": "2026-01-02T03:04:05Z", "lastTransitionTime": "2026-01-02T03:04:05Z",
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "status": {
            "addresses": [{"type": "InternalIP", "address": format!("10.0.{}.{}", index / 250, index % 250)}],
            "capacity": {"cpu": "64", "memory": "256Gi", "pods": "110"},
            "conditions": [
                condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
                condition("PIDPressure", "False"), condition("Ready", "True"),
            ],
            "images": (0..50).map(image).collect::<Vec<_>>(),
        },
    })
}

/// Asks for exporters on three groups, and for a scheduler.
pub(super) async fn ask(client: &Client) -> anyhow::Result<()> {
    let group = |name: &str| json!({"poolName": name, "nodeSelector": {"matchLabels": {LABEL: name}}, "kubeletConfigMap": "kubelets"});
    let asked = [
        (operator::KIND, keys::OPERATOR, json!({"nodeGroups": GROUPS.map(group)})),
        (scheduler::KIND, keys::SCHEDULER, json!({})),
    ];
    for (kind, name, spec) in asked {
        let object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind, "metadata": {"name": name}, "spec": spec,
        });
        create(&api(client, GROUP, VERSION, kind, None), object).await?;
    }
    Ok(())
}

/// Whether an object's condition `Available` is true of what is asked for now.
pub(super) async fn is_available(client: &Client, kind: &str, name: &str) -> anyhow::Result<bool> {
    let object = api(client, GROUP, VERSION, kind, None).get(name).await?;
    let conditions = object.data["status"]["conditions"].as_array().into_iter().flatten();
    let generation = json!(object.metadata.generation);
    let mut available = conditions.filter(|condition| condition["type"] == "Available");
    Ok(available
        .any(|condition| condition["status"] == "True" && condition["observedGeneration"] == generation))
}

/// Says of all DaemonSets and Deployments that their pods run.
pub(super) async fn play(client: &Client, namespace: &str) -> anyhow::Result<()> {
    for kind in ["DaemonSet", "Deployment"] {
        let api = api(client, "apps", "v1", kind, Some(namespace));
        for object in api.list(&ListParams::default()).await? {
            let generation = object.metadata.generation;
            let status =
                if kind == "DaemonSet" { pods_of_set(generation) } else { pods(generation, &object.data) };
            if object.data["status"]["observedGeneration"] != json!(generation) {
                let name = object.metadata.name.as_deref().unwrap_or_default();
                let status = Patch::Merge(json!({ "status": status }));
                api.patch_status(name, &PatchParams::default(), &status).await?;
            }
        }
    }
    Ok(())
}

fn pods_of_set(generation: Option<i64>) -> Value {
    json!({
        "observedGeneration": generation, "currentNumberScheduled": 9, "desiredNumberScheduled": 9, "numberAvailable": 9,
        "numberMisscheduled": 0, "numberReady": 9, "updatedNumberScheduled": 9,
    })
}

fn pods(generation: Option<i64>, object: &Value) -> Value {
    let replicas = object["spec"]["replicas"].clone();
    let time = "2026-01-02T03:04:05Z";
    let condition = |kind: &str, reason: &str| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": time, "lastUpdateTime": time,
        })
    };
    json!({
        "observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas,
        "availableReplicas": replicas,
        "conditions": [
            condition("Available", "MinimumReplicasAvailable"), condition("Progressing", "NewReplicaSetAvailable"),
        ],
    })
}

/// Changes a label of some nodes.
pub(super) async fn relabel(client: &Client, nodes: usize, round: usize) -> anyhow::Result<()> {
    let all = api(client, "", "v1", "Node", None);
    let changed = futures::stream::iter(3..nodes.min(3 + CHANGING)).map(|index| {
        let all = all.clone();
        async move {
            let patch =
                Patch::Merge(json!({"metadata": {"labels": {"example.com/round": round.to_string()}}}));
            all.patch(&format!("node-{index:05}"), &PatchParams::default(), &patch).await.map(drop)
        }
    });
    changed.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    Ok(())
}
