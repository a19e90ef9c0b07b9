//! Conditions on the exporter's own pod, for the readiness gates of its manifests.
//!
//! In: the results of the last scan and the last publication ([`Progress`], the newest only). Out: the conditions
//! `PodresourcesFetched` and `NodeTopologyUpdated`, exactly as resource-topology-exporter writes them. Never: a write
//! without a change, or a delay of scans or publications: this is a task of its own.
//!
//! # Writing
//! The pod is read first, so that a restart does not repeat a write, and the transition time is that of a transition. A
//! strategic merge patch of `pods/status` changes the one condition. Without permission to patch (the peers' roles have
//! `update`), the pod is read and replaced, on condition that its version is unchanged. The pod is kept as the received
//! JSON: only its conditions are parsed.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use runtime::backoff::Backoff;
use runtime::client::{brief, is_conflict, is_forbidden};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;
use tracing::{debug, info, warn};

use crate::settings::PodName;
use runtime::token_bucket::TokenBucket;

/// Pauses between attempts while the API server is unavailable or refuses.
const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Writes in a burst, and the time in which one more is allowed: a scan that fails every other time must not become a
/// load.
const WRITE_BURST: u32 = 6;
const WRITE_REFILL: Duration = Duration::from_secs(2);
/// How often a conflict is answered by reading again before it counts as a failure. The kubelet writes the same object.
const CONFLICTS: u32 = 5;
/// The name of the exporter in `managedFields`.
const FIELD_MANAGER: &str = "tholepin-exporter";

/// The last results; `None` until the first attempt has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The last scan succeeded.
    pub fetched: Option<bool>,
    /// The last attempt to publish succeeded, or nothing is to be published.
    pub updated: Option<bool>,
}

/// The type of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Fetched,
    Updated,
}

/// The values of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    kind: &'static str,
    status: &'static str,
    reason: &'static str,
    message: &'static str,
}

/// Keeps the conditions.
#[derive(Debug)]
pub struct Conditions {
    pod: PodName,
    pods: Api<DynamicObject>,
    /// The conditions as the server is known to have them.
    known: [Option<Condition>; 2],
    patching: bool,
    writes: TokenBucket,
}

/// Why a condition could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{verb} {resource} {namespace}/{name}: {}", brief(source))]
struct Error {
    verb: &'static str,
    resource: &'static str,
    namespace: String,
    name: String,
    source: Box<kube::Error>,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Fetched, Self::Updated];

    fn of(self, progress: Progress) -> Option<Condition> {
        let (kind, reason, message, went) = match self {
            Self::Fetched => {
                ("PodresourcesFetched", "ScanFailed", "failed to scan pod resources", progress.fetched)
            }
            Self::Updated => (
                "NodeTopologyUpdated",
                "UpdateFailed",
                "failed to update noderesourcetopology object",
                progress.updated,
            ),
        };
        Some(match went? {
            true => Condition { kind, status: "True", reason: "", message: "" },
            false => Condition { kind, status: "False", reason, message },
        })
    }
}

impl Condition {
    /// Whether `there`, an entry of `status.conditions`, has these values.
    fn is(&self, there: &Value) -> bool {
        let text = |key: &str| there.get(key).and_then(Value::as_str).unwrap_or_default();
        self.status == text("status") && self.reason == text("reason") && self.message == text("message")
    }

    /// The entry with these values. `before` is the present entry: its transition time stays if the status does.
    fn entry(&self, before: Option<&Value>, now: Timestamp) -> Value {
        let since = before
            .filter(|before| before.get("status").and_then(Value::as_str) == Some(self.status))
            .and_then(|before| before.get("lastTransitionTime"))
            .filter(|time| !time.is_null());
        let since = since.cloned().unwrap_or_else(|| json!(Time(now)));
        let mut entry = json!({ "type": self.kind, "status": self.status, "lastTransitionTime": since });
        for (key, text) in [("reason", self.reason), ("message", self.message)] {
            if !text.is_empty() {
                entry[key] = json!(text);
            }
        }
        entry
    }
}

impl Conditions {
    /// A task for the conditions of this pod.
    #[must_use]
    pub fn new(pod: PodName, client: kube::Client) -> Self {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Pod"), "pods");
        let pods = Api::namespaced_with(client, &pod.namespace, &resource);
        let writes = TokenBucket::new(WRITE_BURST, WRITE_REFILL, Instant::now());
        Self { pod, pods, known: [None, None], patching: true, writes }
    }

    /// Keeps the conditions equal to `progress`.
    ///
    /// # Errors
    /// When the sender of `progress` is gone.
    pub async fn run(mut self, mut progress: watch::Receiver<Progress>) -> Result<Infallible, RecvError> {
        let mut backoff = Backoff::new(RETRY_MIN, RETRY_MAX);
        let mut complaint = String::new();
        loop {
            tokio::time::sleep_until(self.writes.available_at().into()).await;
            let wanted = *progress.borrow_and_update();
            match self.settle(wanted).await {
                Ok(()) => {
                    backoff.reset();
                    if !complaint.is_empty() {
                        info!("conditions of the exporter's pod can be written again");
                        complaint.clear();
                    }
                    progress.changed().await?;
                }
                Err(error) => {
                    let text = error.to_string();
                    if complaint != text {
                        warn!(error = text, "cannot write conditions of the exporter's pod, trying again");
                        complaint = text;
                    }
                    let pause = tokio::time::sleep(backoff.next_delay());
                    tokio::select! {
                        () = pause => {}
                        // A change justifies an attempt, but not one each time.
                        changed = progress.changed() => {
                            changed?;
                            tokio::time::sleep(RETRY_MIN).await;
                        }
                    }
                }
            }
        }
    }

    /// Writes the conditions that differ.
    async fn settle(&mut self, progress: Progress) -> Result<(), Error> {
        for (slot, kind) in Kind::ALL.into_iter().enumerate() {
            let Some(wanted) = kind.of(progress) else { continue };
            if self.known[slot].as_ref() != Some(&wanted) {
                // Unknown until the write is confirmed: a write that failed may have been applied.
                self.known[slot] = None;
                self.state(&wanted).await?;
                self.known[slot] = Some(wanted);
            }
        }
        Ok(())
    }

    /// Writes one condition.
    async fn state(&mut self, wanted: &Condition) -> Result<(), Error> {
        let mut conflicts = 0;
        loop {
            let pod = match self.pods.get(&self.pod.name).await {
                Ok(pod) => Some(pod),
                // A patch does not need the pod.
                Err(error) if self.patching && is_forbidden(&error) => None,
                Err(error) => {
                    // Patching may have been granted meanwhile.
                    self.patching |= is_forbidden(&error);
                    return Err(self.error("get", "pods", error));
                }
            };
            let before = pod.as_ref().and_then(|pod| entry_of(pod, wanted.kind));
            if before.is_some_and(|before| wanted.is(before)) {
                return Ok(());
            }
            let entry = wanted.entry(before, Timestamp::now());
            self.writes.take(Instant::now());
            if self.patching {
                let Err(error) = self.patch(entry.clone()).await else { return Ok(()) };
                if !is_forbidden(&error) {
                    return Err(self.error("patch", "pods/status", error));
                }
                info!(
                    refusal = brief(&error),
                    "not allowed to patch pods/status, updating it instead; to avoid whole reads and writes, \
                     grant verb patch on pods/status in a Role of the exporter's namespace"
                );
                self.patching = false;
                // Without the pod an update is impossible: read it.
                continue;
            }
            let Some(pod) = pod else { continue };
            match self.replace(pod, entry).await {
                Ok(()) => return Ok(()),
                Err(error) if is_conflict(&error) && conflicts < CONFLICTS => conflicts += 1,
                Err(error) => {
                    self.patching |= is_forbidden(&error);
                    return Err(self.error("update", "pods/status", error));
                }
            }
        }
    }

    async fn patch(&self, mut entry: Value) -> kube::Result<()> {
        if let Some(entry) = entry.as_object_mut() {
            // A merge keeps members that are not mentioned.
            entry.entry("reason").or_insert(Value::Null);
            entry.entry("message").or_insert(Value::Null);
        }
        let patch = json!({ "status": { "conditions": [entry] } });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        self.pods.patch_status(&self.pod.name, &params, &Patch::Strategic(patch)).await?;
        debug!(condition = %entry, "condition of the exporter's pod patched");
        Ok(())
    }

    async fn replace(&self, mut pod: DynamicObject, entry: Value) -> kube::Result<()> {
        let conditions = &mut pod.data["status"]["conditions"];
        if !conditions.is_array() {
            *conditions = json!([]);
        }
        if let Some(conditions) = conditions.as_array_mut() {
            let same = |there: &&mut Value| there.get("type") == entry.get("type");
            match conditions.iter_mut().find(same) {
                Some(there) => *there = entry.clone(),
                None => conditions.push(entry.clone()),
            }
        }
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        self.pods.replace_status(&self.pod.name, &params, &pod).await?;
        debug!(condition = %entry, "condition of the exporter's pod updated");
        Ok(())
    }

    fn error(&self, verb: &'static str, resource: &'static str, source: kube::Error) -> Error {
        let PodName { namespace, name } = self.pod.clone();
        Error { verb, resource, namespace, name, source: Box::new(source) }
    }
}

/// The condition of this type, if the pod has one.
fn entry_of<'p>(pod: &'p DynamicObject, kind: &str) -> Option<&'p Value> {
    let conditions = pod.data.get("status")?.get("conditions")?.as_array()?;
    conditions.iter().find(|condition| condition.get("type").and_then(Value::as_str) == Some(kind))
}

#[cfg(test)]
mod tests;
