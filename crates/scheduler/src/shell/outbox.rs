//! API calls for decisions.
//!
//! In: bindings and refusals. Out: the results of bindings. Never: two bindings to one node at a time, a result that is
//! only likely (after a timeout the binding is sent again), or a condition older than the last decision about its pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use k8s_openapi::api::core::v1::{Binding as WireBinding, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Api, Client, Resource};
use runtime::backoff::Backoff;
use runtime::client;
use runtime::events::{self, Recorder, Severity, Subject};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::core::{Binding, Refused};
use crate::pod::PodView;

mod bind_queue;

use bind_queue::BindQueue;

/// Most condition writes in flight; only people read conditions, so they may be late.
const MAX_CONDITIONS: usize = 8;
/// Most answers to one binding that leave open whether it was stored, such as 500, before the pod is only looked up.
const MAX_ANSWERS: u32 = 5;

/// The result of a call.
#[derive(Debug)]
pub(super) enum CallResult {
    Bound(Box<Binding>),
    BindFailed(Box<Binding>),
    ConditionWritten,
}

/// The reason for which a binding failed.
#[derive(Debug, PartialEq)]
enum BindFailure {
    /// The namespace of the pod is being deleted, and the pod with it.
    NamespaceTerminating(String),
    Other(String),
}

enum Completed {
    Bind(Box<Binding>, Result<(), BindFailure>),
    Condition(Arc<str>),
}

/// Calls that wait or are in flight.
pub(super) struct Outbox {
    client: Client,
    recorder: Recorder,
    in_flight: FuturesUnordered<BoxFuture<'static, Completed>>,
    binds: BindQueue,
    conditions: BTreeMap<Arc<str>, Refused>,
    busy_pods: BTreeSet<Arc<str>>,
    /// Nothing is sent any more, but what is in flight.
    stopped: CancellationToken,
}

impl Outbox {
    pub(super) fn new(client: Client, recorder: Recorder) -> Self {
        Self {
            client,
            recorder,
            in_flight: FuturesUnordered::new(),
            binds: BindQueue::default(),
            conditions: BTreeMap::new(),
            busy_pods: BTreeSet::new(),
            stopped: CancellationToken::new(),
        }
    }

    /// Drops what was not sent yet, and waits until the bindings in flight have ended, at most for `limit`. Returns
    /// whether they have.
    pub(super) async fn stop(&mut self, limit: Duration) -> bool {
        self.stopped.cancel();
        self.binds.drop_waiting();
        self.conditions.clear();
        let ended = async { while self.binds.is_busy() && self.next_result().await.is_some() {} };
        tokio::time::timeout(limit, ended).await.is_ok()
    }

    /// Binds a pod, after all earlier bindings to the same node.
    pub(super) fn bind(&mut self, binding: Binding) {
        self.conditions.remove(&binding.pod.uid);
        self.binds.push(binding);
        self.start();
    }

    /// Reports that a pod fits no node: an event, and the condition `PodScheduled` if its message changed.
    pub(super) fn refuse(&mut self, refused: Refused) {
        self.record(
            &refused.pod,
            Severity::Warning,
            "FailedScheduling",
            "Scheduling",
            refused.message.clone(),
        );
        if refused.pod.unschedulable.as_deref() != Some(refused.message.as_str()) {
            self.conditions.insert(Arc::clone(&refused.pod.uid), refused);
            self.start();
        }
    }

    /// Whether so many bindings wait that decisions should pause until the next call ends.
    pub(super) fn is_full(&self) -> bool {
        self.binds.is_full()
    }

    /// Drops the pending condition of a pod that is gone.
    pub(super) fn drop_pod(&mut self, uid: &Arc<str>) {
        self.conditions.remove(uid);
    }

    /// Waits for the next call to end; `None` when none is in flight.
    pub(super) async fn next_result(&mut self) -> Option<CallResult> {
        let completed = self.in_flight.next().await?;
        let result = match completed {
            Completed::Bind(binding, Ok(())) => {
                self.binds.done(&binding.node);
                let note = format!("Successfully assigned {} to {}", binding.pod.key(), binding.node);
                self.record(&binding.pod, Severity::Normal, "Scheduled", "Binding", note);
                CallResult::Bound(binding)
            }
            Completed::Bind(binding, Err(BindFailure::NamespaceTerminating(reason))) => {
                self.binds.done(&binding.node);
                // An event would be refused for the same reason.
                tracing::debug!(pod = binding.pod.key(), node = %binding.node, reason, "binding failed");
                CallResult::BindFailed(binding)
            }
            Completed::Bind(binding, Err(BindFailure::Other(reason))) => {
                self.binds.done(&binding.node);
                tracing::warn!(pod = binding.pod.key(), node = %binding.node, reason, "binding failed");
                self.record(&binding.pod, Severity::Warning, "FailedScheduling", "Scheduling", reason);
                CallResult::BindFailed(binding)
            }
            Completed::Condition(uid) => {
                self.busy_pods.remove(&uid);
                CallResult::ConditionWritten
            }
        };
        self.start();
        Some(result)
    }

    fn start(&mut self) {
        while let Some(binding) = self.binds.next() {
            self.in_flight.push(Box::pin(bind(self.client.clone(), binding, self.stopped.clone())));
        }
        while self.busy_pods.len() < MAX_CONDITIONS {
            let next = self.conditions.keys().find(|uid| !self.busy_pods.contains(*uid)).cloned();
            let Some(refused) = next.and_then(|uid| self.conditions.remove(&uid)) else { break };
            self.busy_pods.insert(Arc::clone(&refused.pod.uid));
            self.in_flight.push(Box::pin(write_condition(self.client.clone(), refused)));
        }
    }

    fn record(&self, pod: &PodView, severity: Severity, reason: &str, action: &str, note: String) {
        let regarding = Subject {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: pod.namespace.to_string(),
            name: pod.name.to_string(),
            uid: pod.uid.to_string(),
        };
        let (reason, action) = (reason.to_owned(), action.to_owned());
        let event = events::Event { regarding, related: None, severity, reason, action, note };
        self.recorder.named(&pod.scheduler).record(event);
    }
}

impl BindFailure {
    fn of(error: &kube::Error) -> Self {
        let reason = client::brief(error);
        if client::is_namespace_terminating(error) {
            Self::NamespaceTerminating(reason)
        } else {
            Self::Other(reason)
        }
    }
}

/// Binds a pod. A call without an answer may be stored later, which no reading can rule out. Only a second one can: the
/// server stores one binding of a pod and refuses all others.
async fn bind(client: Client, binding: Binding, stopped: CancellationToken) -> Completed {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    let (mut sent, mut answers) = (0, 0);
    let result = loop {
        let Err(error) = post_binding(&client, &binding).await else { break Ok(()) };
        let reason = BindFailure::of(&error);
        sent += 1;
        answers += u32::from(client::code(&error).is_some());
        match is_final(&error) {
            true if sent == 1 => break Err(reason),
            // The refusal may be due to an earlier call.
            true => break look_up(&client, &binding, reason).await,
            // A webhook that fails for this pod must not keep the node from others.
            false if answers >= MAX_ANSWERS => break look_up(&client, &binding, reason).await,
            false => {}
        }
        let stops = tokio::time::timeout(backoff.next_delay(), stopped.cancelled()).await.is_ok();
        if stops {
            break look_up(&client, &binding, reason).await;
        }
    };
    Completed::Bind(Box::new(binding), result)
}

async fn post_binding(client: &Client, binding: &Binding) -> Result<(), kube::Error> {
    let object = WireBinding {
        metadata: ObjectMeta {
            name: Some(binding.pod.name.to_string()),
            namespace: Some(binding.pod.namespace.to_string()),
            uid: Some(binding.pod.uid.to_string()),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(binding.node.to_string()),
            ..ObjectReference::default()
        },
    };
    let body = serde_json::to_vec(&object).map_err(kube::Error::SerdeError)?;
    let request = Request::new(Pod::url_path(&(), Some(&binding.pod.namespace)))
        .create_subresource("binding", &binding.pod.name, &PostParams::default(), body)
        .map_err(kube::Error::BuildRequest)?;
    client.request::<Status>(request).await.map(drop)
}

/// Whether the answer proves that the server did not store the binding.
fn is_final(error: &kube::Error) -> bool {
    client::code(error).is_some_and(|code| (400..500).contains(&code) && code != 408 && code != 429)
}

/// Reads the pod until the server answers: whether it is bound to the node by now.
async fn look_up(client: &Client, binding: &Binding, reason: BindFailure) -> Result<(), BindFailure> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &binding.pod.namespace);
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    loop {
        match api.get_opt(&binding.pod.name).await {
            Ok(Some(pod)) if pod.metadata.uid.as_deref() == Some(binding.pod.uid.as_ref()) => {
                let node = pod.spec.and_then(|spec| spec.node_name);
                return if node.as_deref() == Some(binding.node.as_ref()) { Ok(()) } else { Err(reason) };
            }
            Ok(_) => return Err(reason),
            Err(error) if is_final(&error) => return Err(reason),
            Err(_) => tokio::time::sleep(backoff.next_delay()).await,
        }
    }
}

async fn write_condition(client: Client, refused: Refused) -> Completed {
    let api: Api<Pod> = Api::namespaced(client, &refused.pod.namespace);
    let mut condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": refused.message,
    });
    if refused.pod.unschedulable.is_none() {
        condition["lastTransitionTime"] =
            json!(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::now()));
    }
    let patch =
        json!({ "metadata": { "uid": refused.pod.uid.as_ref() }, "status": { "conditions": [condition] } });
    let result = api.patch_status(&refused.pod.name, &PatchParams::default(), &Patch::Strategic(patch)).await;
    if let Err(error) = result
        && !client::is_not_found(&error)
        && !client::is_conflict(&error)
    {
        tracing::warn!(
            pod = refused.pod.key(),
            reason = client::brief(&error),
            "cannot write the pod's condition"
        );
    }
    Completed::Condition(refused.pod.uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_is_being_deleted_is_no_failure_to_tell() {
        let cause =
            json!({ "reason": "NamespaceTerminating", "message": "it is being terminated", "field": "" });
        for (causes, is_told) in [(vec![cause], false), (vec![], true)] {
            let status = json!({
                "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no",
                "details": { "causes": causes },
            });
            let error = kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()));
            assert!(is_final(&error));
            assert_eq!(matches!(BindFailure::of(&error), BindFailure::Other(_)), is_told);
        }
    }
}
