//! What happens on one node: the daemon that the real operator has there, and its drains.
//!
//! In: a configuration, and what changes machines, if anything does. Out: the node's annotations, each after what it
//! says is true; pods that are evicted; a machine that has rebooted. Never: a pod of a DaemonSet evicted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, EvictParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::Machines;
use super::machine::{CURRENT, DEGRADED, DONE, REASON, STATE, WORKING};
use super::rendered::Rendered;
use super::world::Kind;

/// Who writes.
const MANAGER: &str = "machine-config-daemon";

/// Annotations by which daemon and controller agree on drains.
const DESIRED_DRAIN: &str = "machineconfiguration.openshift.io/desiredDrain";
const LAST_DRAIN: &str = "machineconfiguration.openshift.io/lastAppliedDrain";

/// How long a drain may take.
const DRAINED_WITHIN: Duration = Duration::from_secs(120);

/// How long a drain waits before it looks again.
const PAUSE: Duration = Duration::from_millis(50);

/// The daemon of a node.
#[derive(Clone)]
pub(super) struct Daemon {
    pub(super) client: Client,
    pub(super) machines: Option<Arc<dyn Machines>>,
    pub(super) node: String,
}

impl Daemon {
    /// Gives the node a configuration; returns the node as it is then, and what went wrong.
    pub(super) async fn configure(&self, config: &Rendered) -> (Option<DynamicObject>, anyhow::Result<()>) {
        let done = self.try_configure(config).await;
        let said = match &done {
            Ok(()) => json!({ CURRENT: config.name, STATE: DONE, REASON: "" }),
            Err(error) => json!({ STATE: DEGRADED, REASON: format!("{error:#}") }),
        };
        match self.annotate(said).await {
            Ok(node) => (Some(node), done),
            Err(error) => (None, done.and(Err(error))),
        }
    }

    async fn try_configure(&self, config: &Rendered) -> anyhow::Result<()> {
        let Some(machines) = &self.machines else {
            self.annotate(json!({ STATE: WORKING })).await?;
            return Ok(());
        };
        let (drain, uncordon) = (format!("drain-{}", config.name), format!("uncordon-{}", config.name));
        self.annotate(json!({ STATE: WORKING, DESIRED_DRAIN: drain })).await?;
        self.patch(&json!({ "spec": { "unschedulable": true } })).await?;
        self.drain().await?;
        self.annotate(json!({ LAST_DRAIN: drain })).await?;
        let (machines, node, kubelet) = (machines.clone(), self.node.clone(), config.kubelet.clone());
        let rebooted = tokio::task::spawn_blocking(move || machines.reboot(&node, &kubelet)).await;
        rebooted.map_err(anyhow::Error::from).flatten().context("rebooting")?;
        self.annotate(json!({ DESIRED_DRAIN: uncordon })).await?;
        self.patch(&json!({ "spec": { "unschedulable": null } })).await?;
        self.annotate(json!({ LAST_DRAIN: uncordon })).await?;
        Ok(())
    }

    /// Evicts the pods that a drain evicts, and waits until they are gone.
    async fn drain(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        let all: Api<Pod> = Api::all(self.client.clone());
        let here = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
        loop {
            let mut pods = all.list(&here).await.context("listing pods")?.items;
            pods.retain(|pod| !stays(pod));
            let Some(first) = pods.first() else { return Ok(()) };
            anyhow::ensure!(
                began.elapsed() < DRAINED_WITHIN,
                "failed to drain node: {} after {DRAINED_WITHIN:?}: {} is still there",
                self.node,
                first.name_any()
            );
            for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
                let own: Api<Pod> =
                    Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
                // A budget may refuse it for now, and it may have gone: it is looked at again.
                let _ = own.evict(&pod.name_any(), &EvictParams::default()).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn annotate(&self, annotations: Value) -> anyhow::Result<DynamicObject> {
        self.patch(&json!({ "metadata": { "annotations": annotations } })).await
    }

    async fn patch(&self, patch: &Value) -> anyhow::Result<DynamicObject> {
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patched = Kind::Node.api(&self.client).patch(&self.node, &params, &Patch::Merge(patch)).await;
        patched.with_context(|| format!("writing node {}", self.node))
    }
}

/// DaemonSets would bring theirs back, and a file on the node makes mirror pods.
fn stays(pod: &Pod) -> bool {
    let is_mirror = pod.annotations().contains_key(api::keys::CONFIG_MIRROR);
    is_mirror || pod.owner_references().iter().any(|owner| owner.kind == "DaemonSet")
}
