//! Writes of claims for devices: before a binding, and when a pod does not need them after all.
//!
//! In: claims with the devices that they get, and a pod. Out: the claims as they are then, or the first failure. Never:
//! a write over an allocation that is not ours; each write names the version that it rests on, and after a conflict the
//! claim is read again.
//!
//! Source: kube-scheduler 1.36 `dynamicresources` `bindClaim`, Unreserve and PostFilter. As there, the finalizer comes
//! first and by itself, and the allocation comes with the reservation. Unlike there, a write that may have been stored
//! ends only once the API server has told whether it was: its devices would be taken.

use std::time::Duration;

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use runtime::backoff::Backoff;
use runtime::client;
use runtime::random::Random;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::answers::{is_final, until_told};
use super::{Completed, extended_claims};
use crate::core::{Deallocation, ReleaseClaims, Reservation, ReserveClaims};
use crate::devices::views::claim::{ClaimView, FINALIZER};
use crate::plugins::dynamic_resources::extended::ExtendedClaim;
use crate::pod::PodView;

/// Most attempts at one claim that end in conflicts (`retry.DefaultRetry`).
const MAX_CONFLICTS: u32 = 5;
/// The time between two of them.
const PAUSE: Duration = Duration::from_millis(10);
/// Most attempts at one claim that leave open whether it was stored, before it is only looked up.
const MAX_OPEN: u32 = 10;

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

/// Writes a claim. An error means that it is not written, as far as the API server tells.
async fn reserve_one(
    client: &Client,
    claim: &Reservation,
    pod: &PodView,
    stopped: &CancellationToken,
) -> Result<ResourceClaim, String> {
    let mut write = ReservationWrite::new(client, claim, pod);
    let (mut conflicts, mut open) = (0, 0);
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    loop {
        match write.attempt().await {
            Ok(object) => return Ok(object),
            Err(Failure::Conflict(reason)) => {
                conflicts += 1;
                if conflicts >= MAX_CONFLICTS {
                    return Err(reason);
                }
                tokio::time::sleep(PAUSE).await;
            }
            // The refusal may be due to an earlier attempt, or come from a server that knows no rights yet.
            Err(Failure::Refused(reason)) if write.may_be_stored => return write.look_up(reason).await,
            Err(Failure::Refused(reason) | Failure::Lost(reason)) => return Err(reason),
            Err(Failure::Open(reason)) => {
                open += 1;
                if open >= MAX_OPEN || stopped.is_cancelled() {
                    return write.look_up(reason).await;
                }
                let _ = tokio::time::timeout(backoff.next_delay(), stopped.cancelled()).await;
            }
        }
    }
}

/// The reason for which an attempt at a write failed.
#[derive(Debug)]
enum Failure {
    /// It rested on an old version.
    Conflict(String),
    /// The claim is gone, or another's.
    Lost(String),
    /// This attempt was refused.
    Refused(String),
    /// This attempt may have been stored.
    Open(String),
}

impl Failure {
    fn of(error: &kube::Error, purpose: &str) -> Self {
        let reason = format!("{purpose}: {}", message(error));
        match error {
            _ if client::is_conflict(error) => Self::Conflict(reason),
            _ if is_final(error) => Self::Refused(reason),
            _ => Self::Open(reason),
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
    /// An earlier attempt may have stored the reservation.
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
        if self.is_stale
            && let Some(stored) = self.read_anew().await?
        {
            return Ok(stored);
        }
        let result = self.write().await;
        self.is_stale = matches!(result, Err(Failure::Conflict(_)));
        result
    }

    async fn write(&mut self) -> Result<ResourceClaim, Failure> {
        let (key, gets_devices) = (&self.claim.key, self.claim.allocation.is_some());
        if gets_devices && !self.is_protected {
            let finalizers = json!([FINALIZER]);
            let metadata =
                json!({ "uid": *self.claim.uid, "resourceVersion": self.version, "finalizers": finalizers });
            let patch = Patch::Strategic(json!({ "metadata": metadata }));
            let written = self.api.patch(&key.name, &PatchParams::default(), &patch).await;
            let object =
                written.map_err(|error| Failure::of(&error, &format!("add finalizer to claim {key}")))?;
            self.take_version(&object);
            self.is_protected = true;
        }
        let what = if gets_devices { "allocation and reservation" } else { "reservation" };
        let patch = Patch::Strategic(status_patch(self.claim, &self.version, self.pod));
        let written = self.api.patch_status(&key.name, &PatchParams::default(), &patch).await;
        let written = written.map_err(|error| Failure::of(&error, &format!("add {what} to claim {key}")));
        self.may_be_stored |= matches!(written, Err(Failure::Open(_)));
        written
    }

    /// Reads the claim after a conflict. Returns it if an earlier attempt was stored.
    async fn read_anew(&mut self) -> Result<Option<ResourceClaim>, Failure> {
        let key = &self.claim.key;
        let read = self.read().await;
        let found =
            read.map_err(|error| Failure::of(&error, &format!("get updated claim {key} after conflict")))?;
        let lost = |what| Failure::Lost(format!("claim {key} got {what} in the meantime"));
        let Some(found) = found else { return Err(lost("deleted")) };
        let view = ClaimView::read(&found);
        if self.is_ours(&view) {
            return Ok(Some(found));
        }
        match (&self.claim.allocation, &view.allocation) {
            (Some(_), Some(_)) => return Err(lost("allocated elsewhere")),
            (None, None) => return Err(lost("deallocated elsewhere")),
            _ => {}
        }
        self.is_protected = view.is_protected;
        self.take_version(&found);
        self.is_stale = false;
        Ok(None)
    }

    /// The claim if an attempt was stored, as the API server tells in the end, else the reason.
    async fn look_up(&self, reason: String) -> Result<ResourceClaim, String> {
        tracing::warn!(claim = %self.claim.key, reason, "asking whether a claim was written");
        let found = until_told(|| self.read()).await.flatten();
        found.filter(|found| self.is_ours(&ClaimView::read(found))).ok_or(reason)
    }

    /// The claim as the server has it; `None`: it is gone or going. A list of one name needs no right that the watch
    /// does not need, and no webhook sees it.
    async fn read(&self) -> Result<Option<ResourceClaim>, kube::Error> {
        let by_name = ListParams::default().fields(&format!("metadata.name={}", self.claim.key.name));
        let found = self.api.list(&by_name).await?.items.into_iter().next();
        let is_same = |found: &ResourceClaim| {
            found.metadata.uid.as_deref() == Some(&*self.claim.uid)
                && found.metadata.deletion_timestamp.is_none()
        };
        Ok(found.filter(is_same))
    }

    /// Whether an attempt of ours has stored what the claim has.
    fn is_ours(&self, view: &ClaimView) -> bool {
        let Some(stored) = view.allocation.as_ref().filter(|_| self.may_be_stored) else { return false };
        let has_our_devices = self.claim.allocation.as_ref().is_none_or(|ours| ours.has_devices_of(stored));
        has_our_devices && view.is_reserved_for(&self.pod.uid)
    }

    fn take_version(&mut self, object: &ResourceClaim) {
        if let Some(version) = &object.metadata.resource_version {
            self.version.clone_from(version);
        }
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

    /// An API server of one claim, which answers each call about it by the next of these steps.
    struct Script {
        steps: std::sync::Mutex<std::collections::VecDeque<Step>>,
    }

    /// The call that is expected, and what comes of it.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Step {
        /// A write of the status with this answer.
        Write(StatusCode),
        /// A list, which shows the claim reserved for our pod with this device, or for none.
        Read(Option<&'static str>),
        /// A list that is refused.
        ReadRefused,
    }

    fn stored(device: Option<&str>) -> Value {
        let results = json!([{ "request": "r", "driver": "d", "pool": "p", "device": device }]);
        let status = json!({
            "allocation": { "devices": { "results": results } },
            "reservedFor": [{ "resource": "pods", "name": "p", "uid": "u-p" }],
        });
        let finalizers = [FINALIZER];
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": {},
            "metadata": {
                "namespace": "ns", "name": "c", "uid": "u-c", "resourceVersion": "8", "finalizers": finalizers,
            },
            "status": if device.is_some() { status } else { json!({}) },
        })
    }

    async fn answer(State(script): State<Arc<Script>>, uri: Uri) -> (StatusCode, Json<Value>) {
        let refusal = |code: StatusCode| {
            let reason = code.canonical_reason().unwrap_or_default().replace(' ', "");
            json!({ "kind": "Status", "status": "Failure", "reason": reason, "code": code.as_u16(), "message": reason })
        };
        let step = script.steps.lock().unwrap().pop_front().expect("no further call");
        assert_eq!(uri.path().ends_with("/c/status"), matches!(step, Step::Write(_)), "{uri} {step:?}");
        let (code, body) = match step {
            Step::Write(StatusCode::OK) => (StatusCode::OK, stored(Some("d0"))),
            Step::Write(code) => (code, refusal(code)),
            Step::ReadRefused => (StatusCode::FORBIDDEN, refusal(StatusCode::FORBIDDEN)),
            Step::Read(device) => {
                assert_eq!(uri.query(), Some("&fieldSelector=metadata.name%3Dc"));
                let list = json!({
                    "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimList", "metadata": {},
                    "items": [stored(device)],
                });
                (StatusCode::OK, list)
            }
        };
        (code, Json(body))
    }

    /// Else the devices would be free for another claim, while this one has them.
    #[tokio::test]
    async fn a_write_ends_once_it_is_known_whether_it_is_stored() {
        const TIMEOUT: Step = Step::Write(StatusCode::GATEWAY_TIMEOUT);
        const CONFLICT: Step = Step::Write(StatusCode::CONFLICT);
        const REFUSED: Step = Step::Write(StatusCode::FORBIDDEN);
        let (ours, anothers) = (Step::Read(Some("d0")), Step::Read(Some("d1")));
        let none = Step::Read(None);
        // Whether the process ends, the calls, and the end.
        let cases: &[(bool, &[Step], Result<(), &str>)] = &[
            (false, &[TIMEOUT, CONFLICT, ours], Ok(())),
            (false, &[TIMEOUT, CONFLICT, none, Step::Write(StatusCode::OK)], Ok(())),
            (
                false,
                &[TIMEOUT, CONFLICT, anothers],
                Err("claim ns/c got allocated elsewhere in the meantime"),
            ),
            (false, &[CONFLICT, ours], Err("claim ns/c got allocated elsewhere in the meantime")),
            (false, &[REFUSED], Err("add allocation and reservation to claim ns/c: Forbidden")),
            (false, &[TIMEOUT, REFUSED, Step::ReadRefused, ours], Ok(())),
            (
                false,
                &[TIMEOUT, REFUSED, none],
                Err("add allocation and reservation to claim ns/c: Forbidden"),
            ),
            (true, &[TIMEOUT, Step::ReadRefused, ours], Ok(())),
            (true, &[TIMEOUT, none], Err("add allocation and reservation to claim ns/c: GatewayTimeout")),
        ];
        let pod = json!({ "metadata": { "namespace": "ns", "name": "p", "uid": "u-p" } });
        let pod = PodView::read(&serde_json::from_value(pod).unwrap());
        let ours: ResourceClaim = serde_json::from_value(stored(Some("d0"))).unwrap();
        let claim = Reservation {
            key: ClaimKey { namespace: "ns".into(), name: "c".into() },
            uid: "u-c".into(),
            version: 7,
            is_protected: true,
            allocation: ClaimView::read(&ours).allocation,
            made: None,
        };
        for (ends, steps, wanted) in cases {
            let script = Arc::new(Script { steps: std::sync::Mutex::new(steps.iter().copied().collect()) });
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let router = Router::new().fallback(answer).with_state(Arc::clone(&script));
            let server = tokio::spawn(async move { axum::serve(listener, router).await });
            let endpoint = client::HttpEndpoint { url, ..client::HttpEndpoint::default() };
            let connection = client::Connection::for_endpoint(&endpoint, "test").unwrap();
            let client = connection.client_with_timeout(Duration::from_secs(60)).unwrap();
            let stopped = CancellationToken::new();
            if *ends {
                stopped.cancel();
            }
            let written = reserve_one(&client, &claim, &pod, &stopped);
            // A call that is not expected ends its connection, and would be repeated without end.
            let written = tokio::time::timeout(Duration::from_secs(60), written).await.expect("an end");
            assert_eq!(written.map(drop), wanted.map_err(str::to_owned), "{steps:?}");
            assert!(script.steps.lock().unwrap().is_empty(), "{steps:?}");
            server.abort();
        }
    }
}
