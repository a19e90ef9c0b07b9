//! Writes of claims for devices: before a binding, and when a pod does not need them after all.
//!
//! In: claims with the devices that they get, and a pod. Out: the claims as they are then, or the first failure. Never:
//! a write over an allocation that is not ours; each write names the version that it rests on, and after a conflict the
//! claim is read again.
//!
//! Source: kube-scheduler 1.36 `dynamicresources` `bindClaim`, Unreserve and PostFilter. As there, the finalizer comes
//! first and by itself, and the allocation comes with the reservation. Unlike there, a write without an answer is sent
//! again until there is one: if it was stored, its devices are taken, and the conflict that follows shows it.

use std::time::Duration;

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use runtime::backoff::Backoff;
use runtime::client;
use runtime::random::Random;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::binding::is_final;
use super::{Completed, extended_claims};
use crate::core::{Deallocation, ReleaseClaims, Reservation, ReserveClaims};
use crate::devices::views::claim::{ClaimView, FINALIZER};
use crate::plugins::dynamic_resources::extended::ExtendedClaim;
use crate::pod::PodView;

/// Most attempts at one claim that end in conflicts (`retry.DefaultRetry`).
const MAX_CONFLICTS: u32 = 5;
/// The time between two of them.
const PAUSE: Duration = Duration::from_millis(10);
/// Most answers to one claim that leave open whether it was stored, such as 500. Without an answer it is tried on.
const MAX_ANSWERS: u32 = 10;

/// Writes the claims of a pod one after the other.
pub(super) async fn reserve(client: Client, reserve: ReserveClaims, stopped: CancellationToken) -> Completed {
    let ReserveClaims { binding, claims } = reserve;
    let mut written = Vec::new();
    let mut result = Ok(());
    for claim in &claims {
        let reserved = match &claim.made {
            None => reserve_one(&client, claim, &binding.pod, &stopped).await,
            Some(made) => make_one(&client, claim, made, &binding.pod, &stopped).await,
        };
        match reserved {
            Ok(object) => written.push(ClaimView::read(&object)),
            Err(reason) => {
                result = Err(reason);
                break;
            }
        }
    }
    Completed::Claims(binding.id, written, result)
}

/// Makes a claim for extended resources and reserves it. The pod's status names it then.
async fn make_one(
    client: &Client,
    claim: &Reservation,
    made: &ExtendedClaim,
    pod: &PodView,
    stopped: &CancellationToken,
) -> Result<ResourceClaim, String> {
    let created = extended_claims::create(client, claim, made, pod).await?;
    let reserved = async {
        let reserved = reserve_one(client, &created, pod, stopped).await?;
        extended_claims::name_in_status(client, &created.key, made, pod).await?;
        Ok(reserved)
    };
    let reserved = reserved.await;
    if reserved.is_err() {
        extended_claims::delete(client, &created.key, Some(&created.uid)).await;
    }
    reserved
}

async fn reserve_one(
    client: &Client,
    claim: &Reservation,
    pod: &PodView,
    stopped: &CancellationToken,
) -> Result<ResourceClaim, String> {
    let mut write = ReservationWrite::new(client, claim, pod);
    let (mut conflicts, mut answers) = (0, 0);
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    loop {
        match write.attempt().await {
            Ok(object) => return Ok(object),
            Err(Failure::Final(reason)) => return Err(reason),
            Err(Failure::Conflict(reason)) => {
                conflicts += 1;
                if conflicts >= MAX_CONFLICTS {
                    return Err(reason);
                }
                tokio::time::sleep(PAUSE).await;
            }
            Err(Failure::Open { reason, is_answered }) => {
                answers += u32::from(is_answered);
                let stops = tokio::time::timeout(backoff.next_delay(), stopped.cancelled()).await.is_ok();
                if stops || answers >= MAX_ANSWERS {
                    return Err(reason);
                }
            }
        }
    }
}

/// The reason for which an attempt at a write failed.
enum Failure {
    /// It rested on an old version.
    Conflict(String),
    /// It was not stored.
    Final(String),
    /// It may have been stored.
    Open { reason: String, is_answered: bool },
}

impl Failure {
    fn of(error: &kube::Error, purpose: &str) -> Self {
        let reason = format!("{purpose}: {}", message(error));
        match error {
            _ if client::is_conflict(error) => Self::Conflict(reason),
            _ if is_final(error) => Self::Final(reason),
            _ => Self::Open { reason, is_answered: client::code(error).is_some() },
        }
    }
}

/// The write of one claim, over all attempts at it.
struct ReservationWrite<'a> {
    api: Api<ResourceClaim>,
    claim: &'a Reservation,
    pod: &'a PodView,
    /// The version that the next attempt rests on.
    version: String,
    is_protected: bool,
    /// A conflict told that the version is an old one.
    is_stale: bool,
    /// An earlier attempt may have been stored.
    may_be_stored: bool,
}

impl<'a> ReservationWrite<'a> {
    fn new(client: &Client, claim: &'a Reservation, pod: &'a PodView) -> Self {
        Self {
            api: Api::namespaced(client.clone(), &claim.key.namespace),
            claim,
            pod,
            version: claim.version.to_string(),
            is_protected: claim.is_protected,
            is_stale: false,
            may_be_stored: false,
        }
    }

    async fn attempt(&mut self) -> Result<ResourceClaim, Failure> {
        let result = self.read_and_write().await;
        match &result {
            Err(Failure::Conflict(_)) => self.is_stale = true,
            Err(Failure::Open { .. }) => self.may_be_stored = true,
            Err(Failure::Final(_)) | Ok(_) => {}
        }
        result
    }

    async fn read_and_write(&mut self) -> Result<ResourceClaim, Failure> {
        if self.is_stale
            && let Some(stored) = self.read_anew().await?
        {
            return Ok(stored);
        }
        let (key, gets_devices) = (&self.claim.key, self.claim.allocation.is_some());
        if gets_devices && !self.is_protected {
            let finalizers = json!([FINALIZER]);
            let metadata =
                json!({ "uid": *self.claim.uid, "resourceVersion": self.version, "finalizers": finalizers });
            let patch = Patch::Strategic(json!({ "metadata": metadata }));
            let written = self.api.patch(&key.name, &PatchParams::default(), &patch).await;
            let object =
                written.map_err(|error| Failure::of(&error, &format!("add finalizer to claim {key}")))?;
            self.version = object.metadata.resource_version.unwrap_or_default();
            self.is_protected = true;
        }
        let what = if gets_devices { "allocation and reservation" } else { "reservation" };
        let patch = Patch::Strategic(status_patch(self.claim, &self.version, self.pod));
        let written = self.api.patch_status(&key.name, &PatchParams::default(), &patch).await;
        written.map_err(|error| Failure::of(&error, &format!("add {what} to claim {key}")))
    }

    /// Reads the claim. Returns it if an attempt before was stored.
    async fn read_anew(&mut self) -> Result<Option<ResourceClaim>, Failure> {
        let key = &self.claim.key;
        // A patch of nothing reads the claim, without a right of its own.
        let read = self.api.patch(&key.name, &PatchParams::default(), &Patch::Merge(json!({}))).await;
        let found =
            read.map_err(|error| Failure::of(&error, &format!("get updated claim {key} after conflict")))?;
        let view = ClaimView::read(&found);
        let elsewhere = |what| Failure::Final(format!("claim {key} got {what} in the meantime"));
        if view.is_leaving || view.uid != self.claim.uid {
            return Err(elsewhere("deleted"));
        }
        if self.may_be_stored && view.allocation.is_some() && view.is_reserved_for(&self.pod.uid) {
            return Ok(Some(found));
        }
        match (&self.claim.allocation, &view.allocation) {
            (Some(_), Some(_)) => return Err(elsewhere("allocated elsewhere")),
            (None, None) => return Err(elsewhere("deallocated elsewhere")),
            _ => {}
        }
        self.is_protected = view.is_protected;
        self.version = found.metadata.resource_version.unwrap_or_default();
        self.is_stale = false;
        Ok(None)
    }
}

pub(super) fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        _ => client::brief(error),
    }
}

/// The reservation for a pod, with the devices if the claim gets some.
fn status_patch(claim: &Reservation, version: &str, pod: &PodView) -> Value {
    let user = json!({ "resource": "pods", "name": *pod.name, "uid": *pod.uid });
    let mut status = json!({ "reservedFor": [user] });
    if let Some(allocation) = &claim.allocation {
        let mut allocation = allocation.wire.clone();
        let results = allocation.devices.iter_mut().flat_map(|devices| devices.results.iter_mut().flatten());
        let mut random = Random::from_entropy();
        for share in results.filter_map(|result| result.share_id.as_mut()) {
            *share = uuid(&mut random);
        }
        let mut written = json!(allocation);
        written["allocationTimestamp"] =
            json!(jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        status["allocation"] = written;
    }
    json!({ "metadata": { "uid": *claim.uid, "resourceVersion": version }, "status": status })
}

/// A random UUID (version 4).
fn uuid(random: &mut Random) -> String {
    let (high, low) = (random.bits(), random.bits());
    let (high, low) = ((high & !0xf000) | 0x4000, (low & !(0b11 << 62)) | (0b10 << 62));
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

/// Takes a pod out of the users of its claims. What fails is tried again with the pod.
pub(super) async fn release(client: Client, release: ReleaseClaims) -> Completed {
    let ReleaseClaims { pod, claims, made } = release;
    if let Some((key, uid)) = made {
        extended_claims::delete(&client, &key, Some(&uid)).await;
    }
    for (key, uid) in claims {
        let api: Api<ResourceClaim> = Api::namespaced(client.clone(), &key.namespace);
        let users = json!([{ "$patch": "delete", "uid": *pod.uid }]);
        let patch = json!({ "metadata": { "uid": *uid }, "status": { "reservedFor": users } });
        let written = api.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        if let Err(error) = written
            && !client::is_not_found(&error)
        {
            tracing::warn!(claim = %key, pod = pod.key(), reason = client::brief(&error), "cannot release a claim");
        }
    }
    Completed::Released
}

/// Gives the devices of a claim back that no pod uses, or deletes it if it was made for the pod.
pub(super) async fn deallocate(client: Client, claim: Deallocation) -> Completed {
    let Deallocation { key, version, deletes } = claim;
    if deletes {
        extended_claims::delete(&client, &key, None).await;
        return Completed::Released;
    }
    let api: Api<ResourceClaim> = Api::namespaced(client, &key.namespace);
    let status = json!({ "allocation": null, "reservedFor": null, "devices": null });
    let patch = json!({ "metadata": { "resourceVersion": version.to_string() }, "status": status });
    let written = api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await;
    if let Err(error) = written
        && !client::is_not_found(&error)
        && !client::is_conflict(&error)
    {
        tracing::warn!(claim = %key, reason = client::brief(&error), "cannot deallocate a claim");
    }
    Completed::Released
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::devices::views::claim::Allocation;
    use crate::volumes::reference::ClaimKey;
    use axum::extract::State;
    use axum::http::{StatusCode, Uri};
    use axum::{Json, Router};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn statuses_name_the_version_the_pod_and_each_share() {
        let pod = json!({ "metadata": { "namespace": "ns", "name": "p", "uid": "u-p" } });
        let pod = PodView::read(&serde_json::from_value(pod).unwrap());
        let result = |share: Option<&str>| json!({ "request": "r", "driver": "d", "pool": "p", "device": "0", "shareID": share });
        for (results, shares) in [(vec![result(None)], 0), (vec![result(Some("")), result(Some(""))], 2)] {
            let wire = serde_json::from_value(json!({ "devices": { "results": results } })).unwrap();
            let claim = Reservation {
                key: ClaimKey { namespace: "ns".into(), name: "c".into() },
                uid: "u-c".into(),
                version: 7,
                is_protected: true,
                allocation: Some(Arc::new(Allocation::read(wire))),
                made: None,
            };
            let patch = status_patch(&claim, "7", &pod);
            assert_eq!(patch["metadata"], json!({ "uid": "u-c", "resourceVersion": "7" }));
            let user = json!({ "resource": "pods", "name": "p", "uid": "u-p" });
            assert_eq!(patch["status"]["reservedFor"], json!([user]));
            let written = patch["status"]["allocation"]["devices"]["results"].as_array().unwrap();
            let ids: std::collections::BTreeSet<_> =
                written.iter().filter_map(|result| result["shareID"].as_str()).collect();
            assert_eq!(ids.len(), shares, "{patch}");
            assert!(ids.iter().all(|id| id.len() == 36 && id.as_bytes()[14] == b'4'), "{ids:?}");
        }
    }

    /// The answers of an API server to writes of a claim: the first is stored and ends in a timeout, so the second one
    /// conflicts. A patch of nothing reads.
    async fn stores_and_times_out(
        State(calls): State<Arc<AtomicUsize>>,
        uri: Uri,
    ) -> (StatusCode, Json<Value>) {
        let status = |code: StatusCode, reason: &str| {
            let code = code.as_u16();
            json!({ "kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": reason })
        };
        let stored = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": { "namespace": "ns", "name": "c", "uid": "u-c", "resourceVersion": "8" }, "spec": {},
            "status": { "allocation": {}, "reservedFor": [{ "resource": "pods", "name": "p", "uid": "u-p" }] },
        });
        if !uri.path().ends_with("/status") {
            return (StatusCode::OK, Json(stored));
        }
        match calls.fetch_add(1, Ordering::SeqCst) {
            0 => (StatusCode::GATEWAY_TIMEOUT, Json(status(StatusCode::GATEWAY_TIMEOUT, "Timeout"))),
            _ => (StatusCode::CONFLICT, Json(status(StatusCode::CONFLICT, "Conflict"))),
        }
    }

    /// Else the devices would be free for another claim, while this one has them.
    #[tokio::test]
    async fn a_write_without_an_answer_is_sent_again() {
        let calls = Arc::new(AtomicUsize::new(0));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(stores_and_times_out).with_state(Arc::clone(&calls));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let endpoint = client::HttpEndpoint { url, ..client::HttpEndpoint::default() };
        let connection = client::Connection::for_endpoint(&endpoint, "test").unwrap();
        let client = connection.client_with_timeout(Duration::from_secs(60)).unwrap();
        let pod = json!({ "metadata": { "namespace": "ns", "name": "p", "uid": "u-p" } });
        let claim = Reservation {
            key: ClaimKey { namespace: "ns".into(), name: "c".into() },
            uid: "u-c".into(),
            version: 7,
            is_protected: true,
            allocation: None,
            made: None,
        };
        let pod = PodView::read(&serde_json::from_value(pod).unwrap());
        let written = reserve_one(&client, &claim, &pod, &CancellationToken::new()).await.unwrap();
        assert_eq!(written.metadata.resource_version.as_deref(), Some("8"));
        assert_eq!(calls.load(Ordering::SeqCst), 2);
    }
}
