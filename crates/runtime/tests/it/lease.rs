//! Several candidates for one lease.

use crate::{admin, namespace, shared, soon, until};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Api, Client};
use runtime::lease::{Candidate, Config, Error, Status};
use std::time::Duration;
use testkit::controlplane::ControlPlane;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A candidate at work.
pub(crate) struct Running {
    pub(crate) name: &'static str,
    pub(crate) status: watch::Receiver<Status>,
    pub(crate) release: CancellationToken,
    pub(crate) task: JoinHandle<Result<(), Error>>,
}

/// Quick terms, so that a take-over is a matter of two seconds.
pub(crate) fn terms(namespace: &str, name: &str) -> Config {
    Config {
        lease_duration: Duration::from_secs(2),
        renew_deadline: Duration::from_millis(1200),
        retry_period: Duration::from_millis(200),
        ..Config::new(namespace, "leader", name.to_owned())
    }
}

/// Starts a candidate with a client of its own.
pub(crate) async fn stand(plane: &ControlPlane, namespace: &str, name: &'static str) -> Running {
    stand_by(plane, terms(namespace, name), name).await
}

async fn stand_by(plane: &ControlPlane, terms: Config, name: &'static str) -> Running {
    let candidate = Candidate::new(admin(plane).await, terms).unwrap();
    let release = CancellationToken::new();
    let status = candidate.status();
    let task = tokio::spawn(candidate.run(release.clone()));
    Running { name, status, release, task }
}

async fn leader(candidates: &[Running]) -> usize {
    until("a leader", async || candidates.iter().position(|candidate| candidate.status.borrow().leads()))
        .await
}

async fn spec(client: &Client, namespace: &str) -> LeaseSpec {
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    api.get("leader").await.unwrap().spec.unwrap()
}

#[tokio::test]
async fn there_is_one_leader_at_most_through_death_and_release() {
    let Some(plane) = shared().await else { return };
    let client = admin(plane).await;
    let space = namespace(&client, "lease-takeover").await;
    let mut candidates = Vec::new();
    for name in ["one", "two", "three", "four"] {
        candidates.push(stand(plane, space, name).await);
    }
    // The status of an aborted candidate stays unchanged, as that of a frozen process would.
    let statuses: Vec<_> = candidates.iter().map(|candidate| candidate.status.clone()).collect();
    let sampler = tokio::spawn(async move {
        let (mut most, mut samples) = (0, 0_u64);
        loop {
            most = most.max(statuses.iter().filter(|status| status.borrow().leads()).count());
            samples += 1;
            assert!(most <= 1, "two leaders at once");
            if statuses.iter().all(|status| status.has_changed().is_err()) {
                return (most, samples);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });

    let first = candidates.remove(leader(&candidates).await);
    assert_eq!(spec(&client, space).await.lease_transitions, Some(0));
    first.task.abort();
    let second = until("a second leader", async || {
        candidates.iter().position(|candidate| candidate.status.borrow().leads())
    });
    let second = candidates.remove(second.await);
    let lease = spec(&client, space).await;
    assert_eq!(lease.holder_identity.as_deref(), Some(second.name));
    assert_eq!((lease.lease_transitions, lease.lease_duration_seconds), (Some(1), Some(2)));

    second.release.cancel();
    soon("release", second.task).await.unwrap().unwrap();
    let third = candidates.remove(leader(&candidates).await);
    let lease = spec(&client, space).await;
    assert_eq!((lease.holder_identity.as_deref(), lease.lease_transitions), (Some(third.name), Some(2)));

    let fourth = candidates.remove(0);
    for candidate in [fourth, third] {
        candidate.release.cancel();
        soon("release", candidate.task).await.unwrap().unwrap();
    }
    assert_eq!(spec(&client, space).await.holder_identity.as_deref(), Some(""));
    let (most, samples) = soon("sampler", sampler).await.unwrap();
    assert_eq!(most, 1);
    assert!(samples > 100, "{samples}");
}

#[tokio::test]
async fn a_leader_that_finds_another_name_in_its_lease_ends() {
    let Some(plane) = shared().await else { return };
    let client = admin(plane).await;
    let space = namespace(&client, "lease-stolen").await;
    // Durations so long that only the other holder, and not the clock, can end the term within this test.
    let (lease_duration, renew_deadline) = (Duration::from_secs(3600), Duration::from_secs(1800));
    let patient = Config { lease_duration, renew_deadline, ..terms(space, "honest") };
    let candidate = stand_by(plane, patient, "honest").await;
    until("leading", async || candidate.status.borrow().leads().then_some(())).await;
    let api: Api<Lease> = Api::namespaced(client, space);
    let theft = serde_json::json!({ "spec": { "holderIdentity": "thief" } });
    api.patch("leader", &Default::default(), &kube::api::Patch::Merge(theft)).await.unwrap();
    let end = soon("the end", candidate.task).await.unwrap();
    assert_eq!(end, Err(Error::Lost(format!("{space}/leader"))));
    assert!(!candidate.status.borrow().leads());
    assert_eq!(api.get("leader").await.unwrap().spec.unwrap().holder_identity.as_deref(), Some("thief"));
}

#[tokio::test]
async fn a_deleted_lease_is_made_again() {
    let Some(plane) = shared().await else { return };
    let client = admin(plane).await;
    let space = namespace(&client, "lease-deleted").await;
    let candidate = stand(plane, space, "only").await;
    until("leading", async || candidate.status.borrow().leads().then_some(())).await;
    let api: Api<Lease> = Api::namespaced(client, space);
    let old = api.get("leader").await.unwrap().metadata.uid;
    api.delete("leader", &Default::default()).await.unwrap();
    until("another lease", async || {
        api.get_opt("leader").await.unwrap().filter(|lease| lease.metadata.uid != old).map(drop)
    })
    .await;
    assert!(candidate.status.borrow().leads());
    candidate.release.cancel();
    soon("release", candidate.task).await.unwrap().unwrap();
}
