//! The Node objects of hollow nodes, with their leases: made, taken over, deleted.
//!
//! In: the nodes to be. Out: their objects on the API server, and their UIDs. Never: a change of a node that does not
//! bear our mark.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use api::nrt::NodeResourceTopology;
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use runtime::client::{brief, is_already_exists, is_not_found};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::pace::Pace;
use crate::node_group::PlannedNode;
use crate::status::{self, MARK};

/// The namespace of leases of nodes.
pub(super) const LEASES: &str = "kube-node-lease";
/// Calls at a time.
const CALLS: usize = 32;
/// Objects in one answer to a list.
const PAGE: u32 = 500;

/// A node that is registered.
#[derive(Clone, Debug)]
pub(super) struct RegisteredNode {
    pub(super) name: Arc<str>,
    pub(super) uid: String,
    /// Whether this process has made it.
    pub(super) is_new: bool,
}

/// Registers the nodes, in their order. Those that bear our mark already are taken over.
pub(super) async fn register(
    client: &Client,
    planned: &[PlannedNode],
    qps: u32,
) -> anyhow::Result<Vec<RegisteredNode>> {
    let (pace, existing) = (Arc::new(Pace::new(qps)), existing(client).await?);
    let mut calls = Vec::with_capacity(planned.len());
    for planned in planned {
        let uid = existing.get(&*planned.name).cloned();
        calls.push(register_one(client.clone(), planned.clone(), uid, Arc::clone(&pace)));
    }
    futures::stream::iter(calls).buffered(CALLS).try_collect().await
}

/// Registers a node, with its lease. `uid` is that of the object, if there is one with our mark.
async fn register_one(
    client: Client,
    planned: PlannedNode,
    uid: Option<String>,
    pace: Arc<Pace>,
) -> anyhow::Result<RegisteredNode> {
    let is_new = uid.is_none();
    let uid = match uid {
        Some(uid) => take_over(&client, &planned, &pace).await.map(|()| uid),
        None => create(&client, &planned, &pace).await,
    };
    let uid = uid.with_context(|| format!("node {}", planned.name))?;
    let node = RegisteredNode { name: planned.name, uid, is_new };
    pace.turn().await;
    let written = match create_lease(&client, &node).await {
        Err(error) if is_already_exists(&error) => renew_lease(&client, &node).await,
        created => created,
    };
    written.map_err(|error| anyhow::anyhow!("lease of node {}: {}", node.name, brief(&error)))?;
    Ok(node)
}

/// The UIDs of all nodes that bear our mark, by name.
async fn existing(client: &Client) -> anyhow::Result<BTreeMap<String, String>> {
    let (api, mut found) = (Api::<Node>::all(client.clone()), BTreeMap::new());
    let mut params = ListParams::default().labels(MARK).limit(PAGE);
    loop {
        let page = api.list_metadata(&params).await;
        let page = page.map_err(|error| anyhow::anyhow!("listing nodes: {}", brief(&error)))?;
        let names = page.items.into_iter().map(|node| node.metadata);
        found.extend(names.filter_map(|metadata| Some((metadata.name?, metadata.uid?))));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

async fn create(client: &Client, planned: &PlannedNode, pace: &Pace) -> anyhow::Result<String> {
    let api = Api::<Node>::all(client.clone());
    let node: Node = serde_json::from_value(status::node(planned, Timestamp::now()))?;
    pace.turn().await;
    let created = match api.create(&PostParams::default(), &node).await {
        Ok(created) => created,
        Err(error) if is_already_exists(&error) => {
            bail!("there is such a node, and it is not hollow (label {MARK}): choose another name prefix")
        }
        Err(error) => bail!(brief(&error)),
    };
    // The API server gives new nodes the taint of those that are not ready, and a controller would take it away.
    let untainted = Patch::Merge(json!({ "spec": { "taints": status::taints(planned) } }));
    pace.turn().await;
    let patched = api.patch(&planned.name, &PatchParams::default(), &untainted).await;
    patched.map_err(|error| anyhow::anyhow!(brief(&error)))?;
    created.metadata.uid.context("the API server gave it no UID")
}

async fn take_over(client: &Client, planned: &PlannedNode, pace: &Pace) -> anyhow::Result<()> {
    let patch = Patch::Strategic(status::node_patch(planned, Timestamp::now()));
    pace.turn().await;
    let patched =
        Api::<Node>::all(client.clone()).patch_status(&planned.name, &PatchParams::default(), &patch).await;
    patched.map(drop).map_err(|error| anyhow::anyhow!(brief(&error)))
}

/// Renews the lease of a node, or makes it anew.
pub(super) async fn write_lease(client: &Client, node: &RegisteredNode) -> kube::Result<()> {
    match renew_lease(client, node).await {
        Err(error) if is_not_found(&error) => create_lease(client, node).await,
        renewed => renewed,
    }
}

async fn renew_lease(client: &Client, node: &RegisteredNode) -> kube::Result<()> {
    let patch = Patch::Merge(json!({ "spec": { "renewTime": MicroTime(Timestamp::now()) } }));
    let api = Api::<Lease>::namespaced(client.clone(), LEASES);
    api.patch(&node.name, &PatchParams::default(), &patch).await.map(drop)
}

/// As a kubelet's: the node owns it (kubelet 1.36 `util/nodelease.go`).
async fn create_lease(client: &Client, node: &RegisteredNode) -> kube::Result<()> {
    let lease = json!({
        "metadata": { "name": node.name, "namespace": LEASES, "ownerReferences": [
            { "apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid },
        ] },
        "spec": {
            "holderIdentity": node.name,
            "leaseDurationSeconds": 40,
            "renewTime": MicroTime(Timestamp::now()),
        },
    });
    let lease: Lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
    let api = Api::<Lease>::namespaced(client.clone(), LEASES);
    api.create(&PostParams::default(), &lease).await.map(drop)
}

/// Deletes the nodes that bear our mark, with their leases and reports.
pub(super) async fn delete(client: &Client, planned: &[PlannedNode], qps: u32) -> anyhow::Result<()> {
    let (pace, existing) = (Arc::new(Pace::new(qps)), existing(client).await?);
    let mut calls = Vec::new();
    for planned in planned.iter().filter(|planned| existing.contains_key(&*planned.name)) {
        calls.push(delete_node(client.clone(), Arc::clone(&planned.name), Arc::clone(&pace)));
    }
    futures::stream::iter(calls).buffer_unordered(CALLS).try_collect::<()>().await
}

async fn delete_node(client: Client, name: Arc<str>, pace: Arc<Pace>) -> anyhow::Result<()> {
    delete_one(&Api::<NodeResourceTopology>::all(client.clone()), &name, &pace).await?;
    delete_one(&Api::<Lease>::namespaced(client.clone(), LEASES), &name, &pace).await?;
    delete_one(&Api::<Node>::all(client), &name, &pace).await
}

async fn delete_one<K>(api: &Api<K>, name: &str, pace: &Pace) -> anyhow::Result<()>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    pace.turn().await;
    match api.delete(name, &DeleteParams::default()).await {
        Err(error) if !is_not_found(&error) => bail!("deleting {name}: {}", brief(&error)),
        _ => Ok(()),
    }
}
