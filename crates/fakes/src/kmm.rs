//! KMM without a kernel: a fake of the Kernel Module Management operator on a real API server.
//!
//! In: the Modules and Nodes of a cluster, and a [`Script`]. Out: everything that a controller above KMM can
//! see: Modules with finalizer and counters, ModuleImagesConfigs, NodeModulesConfigs, labels and events of
//! nodes, DaemonSets of device plugins and DRA drivers; step by step as KMM writes them, up to the stage and
//! with the faults of the script. Never: a module that is really loaded; a wait: the next step comes as soon as
//! the last one is seen.
//!
//! As with KMM: its group and the parts of its definitions that authors of Modules meet, with defaults and rules
//! ([`install`]); what its webhook refuses ([`watch_over`]); which nodes a module is for, by labels and taints;
//! images by kernel mappings; the table of ordered upgrades; when a worker loads and unloads, and that it needs
//! its service account. Left out: building and signing, preflight validation, DeviceClasses.

mod cluster_state;
mod decide;
mod definition;
mod fake;
mod kernel;
pub mod labels;
mod rules;
mod script;
#[cfg(test)]
mod tests;
mod write;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use testkit::cluster::install_crds;

pub use fake::Kmm;
pub use rules::{allow, refuse, watch_over};
pub use script::{Plugins, Script, Stage};

/// Makes KMM's kinds known, and waits until they are served.
///
/// # Errors
/// When the API server refuses something.
pub async fn install(client: &Client) -> anyhow::Result<()> {
    let text = definition::all().iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n");
    install_crds(client, &text).await
}

/// Takes KMM's kinds away again; Modules go with them as soon as their finalizers let them. Does not wait for it.
///
/// # Errors
/// When the API server does not answer.
pub async fn uninstall(client: &Client) -> anyhow::Result<()> {
    let all: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definition::all() {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        match all.delete(name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error).with_context(|| format!("deleting {name}")),
        }
    }
    Ok(())
}

/// Objects of KMM's kinds by the kind's name, in all namespaces or in this one.
#[must_use]
pub fn api(client: &Client, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let plural = format!("{}s", kind.to_lowercase());
    let kind = kube::core::GroupVersionKind::gvk(labels::GROUP, labels::VERSION, kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, &plural);
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Makes a node without a kubelet: Ready, without taints, with this kernel, in its first boot.
///
/// # Errors
/// When the API server says no.
pub async fn node(client: &Client, name: &str, kernel: &str, labels: &[(&str, &str)]) -> anyhow::Result<()> {
    let labels: serde_json::Map<String, Value> =
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
    let nodes: Api<Node> = Api::all(client.clone());
    let node = serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels } }))?;
    nodes.create(&PostParams::default(), &node).await.with_context(|| format!("making node {name}"))?;
    let status = json!({ "status": {
        "conditions": [{ "type": "Ready", "status": "True" }],
        "nodeInfo": {
            "machineID": "", "systemUUID": "", "bootID": format!("{name}-boot-1"), "kernelVersion": kernel,
            "osImage": "", "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "",
            "operatingSystem": "linux", "architecture": "amd64",
        },
    } });
    let params = PatchParams::default();
    nodes.patch_status(name, &params, &Patch::Merge(status)).await?;
    // New nodes are not ready until a controller says so.
    nodes.patch(name, &params, &Patch::Merge(json!({ "spec": { "taints": null } }))).await?;
    Ok(())
}

/// Gives a node another boot, as `bootID` shows it, and nothing else: a reboot too fast to be seen otherwise.
///
/// # Errors
/// When the API server says no.
pub async fn reboot(client: &Client, name: &str, boot: &str) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let patch = Patch::Merge(json!({ "status": { "nodeInfo": { "bootID": boot } } }));
    nodes.patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Makes a node ready, or unreachable with the taints that a node controller gives it.
///
/// # Errors
/// When the API server says no.
pub async fn ready(client: &Client, name: &str, ready: bool) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let word = if ready { "True" } else { "Unknown" };
    let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": word }] } });
    // Conditions are merged by their type.
    nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await?;
    let taints = ["NoSchedule", "NoExecute"]
        .map(|effect| json!({ "key": "node.kubernetes.io/unreachable", "effect": effect }));
    let taints = if ready { Value::Null } else { json!(taints) };
    nodes
        .patch(name, &PatchParams::default(), &Patch::Merge(json!({ "spec": { "taints": taints } })))
        .await?;
    Ok(())
}

/// Cordons a node with the taint that goes with it, or takes both back.
///
/// # Errors
/// When the API server says no.
pub async fn cordon(client: &Client, name: &str, cordoned: bool) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let taint = json!([{ "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" }]);
    let taints = if cordoned { taint } else { Value::Null };
    let patch = json!({ "spec": { "unschedulable": cordoned, "taints": taints } });
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}
