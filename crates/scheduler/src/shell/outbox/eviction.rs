//! The eviction of pods for a more important one.
//!
//! In: a decision to preempt. Out: the pods that were evicted, and whether all that had to be were. Never: another pod
//! of the same name; each call names the uid.
//!
//! Each victim gets the condition `DisruptionTarget` and is then deleted, in its own grace period. A pod that is being
//! deleted already needs no call, and one that is gone counts as evicted. Source: kube-scheduler 1.36 `Executor`.

use std::time::Duration;

use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use runtime::backoff::Backoff;
use runtime::client;
use serde_json::{Value, json};

use crate::core::Preemption;
use crate::pod::PodView;

/// Most calls for the victims of one decision at a time.
const MAX_CALLS: usize = 8;
/// Most attempts of one call.
const MAX_ATTEMPTS: u32 = 4;

/// The result of a decision to preempt.
#[derive(Debug)]
pub(super) struct Evicted {
    pub(super) preemption: Box<Preemption>,
    /// Victims that this process has deleted, in their order.
    pub(super) pods: Vec<PodView>,
    /// The first failure. The pod cannot count on its node then.
    pub(super) failure: Option<String>,
}

/// The result of a call.
enum Answer {
    Done,
    /// The pod is gone, or another one has its name.
    Gone,
}

/// Evicts the victims of a decision.
pub(super) async fn evict(client: Client, preemption: Box<Preemption>) -> Evicted {
    let victims = preemption.victims.iter().filter(|victim| !victim.progress.deleting);
    let calls = victims.map(|victim| evict_one(&client, &preemption.refused.pod, victim));
    let calls: Vec<_> = calls.collect();
    let results: Vec<_> = stream::iter(calls).buffered(MAX_CALLS).collect().await;
    let (mut pods, mut failure) = (Vec::new(), None);
    for result in results {
        match result {
            Ok(pod) => pods.extend(pod.cloned()),
            Err(reason) => drop(failure.get_or_insert(reason)),
        }
    }
    Evicted { preemption, pods, failure }
}

/// Returns the victim, or `None` if it was gone already.
async fn evict_one<'a>(
    client: &Client,
    preemptor: &PodView,
    victim: &'a PodView,
) -> Result<Option<&'a PodView>, String> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &victim.namespace);
    let condition = disruption(victim, &preemptor.scheduler);
    let mark = || async {
        let patch = Patch::Strategic(&condition);
        api.patch_status(&victim.name, &PatchParams::default(), &patch).await.map(drop)
    };
    if let Answer::Gone = repeat(mark).await.map_err(|reason| format!("{}: {reason}", victim.key()))? {
        return Ok(None);
    }
    match delete(&api, victim).await.map_err(|reason| format!("{}: {reason}", victim.key()))? {
        Answer::Done => Ok(Some(victim)),
        Answer::Gone => Ok(None),
    }
}

/// Deletes this pod, and no later one of its name.
async fn delete(api: &Api<Pod>, pod: &PodView) -> Result<Answer, String> {
    let uid = Some(pod.uid.to_string());
    let preconditions = Some(Preconditions { uid, resource_version: None });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    repeat(|| async { api.delete(&pod.name, &params).await.map(drop) }).await
}

/// Deletes a pod that its kubelet has rejected.
pub(super) async fn discard(client: Client, pod: PodView) {
    match delete(&Api::namespaced(client, &pod.namespace), &pod).await {
        Ok(_) => tracing::info!(pod = pod.key(), "a rejected pod is deleted"),
        Err(reason) => tracing::warn!(pod = pod.key(), reason, "a rejected pod cannot be deleted"),
    }
}

/// The status patch of a victim.
fn disruption(victim: &PodView, scheduler: &str) -> Value {
    json!({
        "metadata": { "uid": victim.uid.as_ref() },
        "status": { "conditions": [{
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": format!("{scheduler}: preempting to accommodate a higher priority pod"),
            "lastTransitionTime": Time(jiff::Timestamp::now()),
        }] },
    })
}

/// Makes a call that may be made twice until it has an answer that stays.
async fn repeat<F: Future<Output = Result<(), kube::Error>>>(call: impl Fn() -> F) -> Result<Answer, String> {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
    let mut attempts = 1;
    loop {
        match call().await {
            Ok(()) => return Ok(Answer::Done),
            Err(error) if client::is_not_found(&error) || client::is_conflict(&error) => {
                return Ok(Answer::Gone);
            }
            Err(error) if attempts < MAX_ATTEMPTS && client::is_retryable(&error) => {
                attempts += 1;
                tokio::time::sleep(backoff.next_delay()).await;
            }
            Err(error) => return Err(client::brief(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_end_with_an_answer_that_stays() {
        let error = |code: u16, reason: &str| {
            let status = json!({ "status": "Failure", "reason": reason, "code": code, "message": "no" });
            kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
        };
        for (code, reason, gone, calls) in [
            (404, "NotFound", Some(true), 1),
            (409, "Conflict", Some(true), 1),
            (403, "Forbidden", None, 1),
            (0, "", Some(false), 1),
        ] {
            let count = std::cell::Cell::new(0);
            let call = || async {
                count.set(count.get() + 1);
                if code == 0 { Ok(()) } else { Err(error(code, reason)) }
            };
            let answer = repeat(call).await.ok().map(|answer| matches!(answer, Answer::Gone));
            assert_eq!((answer, count.get()), (gone, calls), "{code}");
        }
    }

    #[test]
    fn a_victim_is_marked_in_upstreams_words() {
        let object = json!({ "metadata": { "namespace": "ns", "name": "v", "uid": "u" } });
        let mut patch = disruption(&PodView::read(&serde_json::from_value(object).unwrap()), "mine");
        let condition = patch["status"]["conditions"][0].as_object_mut().unwrap();
        assert!(condition.remove("lastTransitionTime").is_some());
        assert_eq!(patch["metadata"]["uid"], "u");
        assert_eq!(
            patch["status"]["conditions"][0],
            json!({
                "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                "message": "mine: preempting to accommodate a higher priority pod",
            })
        );
    }
}
