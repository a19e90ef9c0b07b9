//! One write to the API server.

use std::fmt;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::cluster_state::Kind;
use super::labels::ModuleName;

/// Who writes.
const MANAGER: &str = "kmm";

/// A write, and what it is for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Write {
    pub(super) kind: Kind,
    /// `NAMESPACE/NAME`, or `NAME`.
    pub(super) key: String,
    pub(super) operation: Operation,
    /// What it does, for people.
    pub(super) what: String,
    /// Events about the object: a reason, and the module it is about.
    pub(super) events: Vec<(&'static str, ModuleName)>,
    /// Pods that lose a driver by it.
    pub(super) unloaded_in_use: Vec<InUse>,
}

/// A pod under which a driver is unloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InUse {
    /// `NAMESPACE/NAME`.
    pub(super) pod: String,
    /// For people: which driver, on which node.
    pub(super) what: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operation {
    Create(Value),
    /// A merge patch.
    Change(Value),
    /// A merge patch of the status.
    Status(Value),
    Delete,
}

impl Write {
    pub(super) fn new(
        kind: Kind,
        key: impl Into<String>,
        operation: Operation,
        what: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            key: key.into(),
            operation,
            what: what.into(),
            events: Vec::new(),
            unloaded_in_use: Vec::new(),
        }
    }

    /// A change that is refused if the object has changed meanwhile.
    pub(super) fn guarded(
        kind: Kind,
        key: &str,
        object: &Value,
        mut patch: Value,
        what: impl Into<String>,
    ) -> Self {
        patch["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
        Self::new(kind, key, Operation::Change(patch), what)
    }

    /// Does it; hands back the object as it is then, if it still is.
    pub(super) async fn run(&self, client: &Client) -> anyhow::Result<Option<DynamicObject>> {
        let api = self.kind.api(client, &self.key);
        let name = self.key.rsplit('/').next().unwrap_or_default();
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let done = match &self.operation {
            Operation::Create(body) => {
                let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
                api.create(&params, &serde_json::from_value(body.clone())?).await.map(Some)
            }
            Operation::Change(patch) => api.patch(name, &params, &Patch::Merge(patch)).await.map(Some),
            Operation::Status(patch) => api.patch_status(name, &params, &Patch::Merge(patch)).await.map(Some),
            Operation::Delete => {
                // Simulated pods have no kubelet that would end them.
                let params = DeleteParams {
                    grace_period_seconds: self.is_simulated_pod().then_some(0),
                    ..DeleteParams::background()
                };
                api.delete(name, &params).await.map(|_| None)
            }
        };
        let object = done.with_context(|| self.to_string())?;
        for (reason, of) in &self.events {
            post_event(client, name, object.as_ref(), reason, of).await?;
        }
        Ok(object)
    }

    /// The pods that really lose a driver. The watch of pods may be behind that of Modules: the API server is asked.
    pub(super) async fn pods_in_use(&self, client: &Client) -> anyhow::Result<Vec<InUse>> {
        let mut there = Vec::new();
        for one in &self.unloaded_in_use {
            let name = one.pod.rsplit('/').next().unwrap_or_default();
            let pod = Kind::Pod.api(client, &one.pod).get_opt(name).await?;
            let is_over = |pod: &DynamicObject| is_over(&pod.data);
            there.extend(pod.filter(|pod| !is_over(pod)).map(|_| one.clone()));
        }
        Ok(there)
    }

    fn is_simulated_pod(&self) -> bool {
        self.kind == Kind::Pod
    }
}

/// Whether a pod has ended and holds nothing.
pub(super) fn is_over(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} under pod {}", self.what, self.pod)
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.operation {
            Operation::Create(_) => "create",
            Operation::Change(_) => "change",
            Operation::Status(_) => "status",
            Operation::Delete => "delete",
        };
        write!(f, "{verb} {:?} {}: {}", self.kind, self.key, self.what)
    }
}

/// An event on a node.
async fn post_event(
    client: &Client,
    node: &str,
    object: Option<&DynamicObject>,
    reason: &str,
    of: &ModuleName,
) -> anyhow::Result<()> {
    let uid = object.and_then(|object| object.metadata.uid.clone());
    let event: Event = serde_json::from_value(json!({
        "metadata": {
            "generateName": format!("{node}."),
            "namespace": "default",
            "annotations": { "module": of.key() },
        },
        "involvedObject": { "apiVersion": "v1", "kind": "Node", "name": node, "uid": uid },
        "reason": reason,
        "message": format!("{reason}: {}", of.key()),
        "type": "Normal",
        "source": { "component": MANAGER },
    }))?;
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    events.create(&PostParams::default(), &event).await.with_context(|| format!("{reason} on {node}"))?;
    Ok(())
}
