//! The API server says no, says nothing, or what it says is lost on the way.

use testkit::controlplane::{ControlPlane, ControlPlaneOptions};

use super::*;

/// Every write fails so for a while: it is told, tried again at a bearable rate, and what is written in the end is the
/// newest state, not the one that was to be written first.
async fn writes_fail(name: &'static str, fault: Fault, told: &str) {
    const FAILURES: u32 = 5;
    // Doubling from 100 ms, each between half and all of it, or what the server asks for; then the last write may
    // follow.
    let doubling = (0..FAILURES).map(|n| Duration::from_millis(50 << n));
    let asked = Duration::from_secs(if matches!(fault, Fault::TooMany(_)) { 1 } else { 0 });
    let Some(mut rig) = Rig::start(name).await else { return };
    let _exporter = rig.export().await;
    rig.proxy.fail("PATCH", OBJECTS, FAILURES, fault);
    rig.admit("b", &[5]);
    rig.health_says(&format!("[-]publish failed: patch: {told}")).await;
    rig.admit("c", &[6]);
    rig.tries(1 + FAILURES as usize).await;
    rig.survived_well(Writes::AtMost(2 + FAILURES as usize)).await;
    let pauses = &rig.pauses()[1..];
    for (pause, least) in pauses.iter().zip(doubling) {
        assert!(*pause >= least.max(asked), "{pause:?} is less than {least:?} or {asked:?}: {pauses:?}");
    }
}

#[tokio::test]
async fn status_500() {
    writes_fail("status-500", Fault::Status(500), "500 InternalError: ").await;
}

#[tokio::test]
async fn status_503() {
    writes_fail("status-503", Fault::Status(503), "503 ServiceUnavailable: ").await;
}

#[tokio::test]
async fn status_504() {
    writes_fail("status-504", Fault::Status(504), "504 Timeout: ").await;
}

#[tokio::test]
async fn status_401_until_the_token_is_renewed() {
    writes_fail("status-401", Fault::Status(401), "401 Unauthorized: ").await;
}

/// No verb that writes is allowed for a while.
#[tokio::test]
async fn status_403_until_the_rights_are_granted() {
    let Some(mut rig) = Rig::start("status-403").await else { return };
    let _exporter = rig.export().await;
    for method in ["PATCH", "PUT"] {
        rig.proxy.fail(method, OBJECTS, u32::MAX, Fault::Status(403));
    }
    rig.admit("b", &[5]);
    rig.health_says("[-]publish failed: ").await;
    rig.health_says(": 403 Forbidden: ").await;
    rig.tries(4).await;
    rig.proxy.heal();
    rig.admit("c", &[6]);
    rig.survived_well(Writes::AtMost(12)).await;
}

#[tokio::test]
async fn status_429_with_retry_after() {
    writes_fail("status-429", Fault::TooMany(1), "429 TooManyRequests: ").await;
}

/// Every write meets a version that another writer made.
#[tokio::test]
async fn status_409_again_and_again() {
    const CONFLICTS: u32 = 8;
    let Some(mut rig) = Rig::start("status-409").await else { return };
    let _exporter = rig.export().await;
    rig.proxy.fail("PATCH", OBJECTS, CONFLICTS, Fault::Status(409));
    rig.admit("b", &[5]);
    rig.tries(1 + CONFLICTS as usize).await;
    rig.survived_well(Writes::AtMost(2 + CONFLICTS as usize)).await;
    // A few at once, as conflicts are normal; then at a bearable rate.
    let pauses = rig.pauses();
    let spread: Duration = pauses[1..].iter().sum();
    assert!(spread > Duration::from_millis(300), "{pauses:?}");
    let looks = rig.proxy.count("GET", OBJECTS);
    assert!(looks <= 1 + CONFLICTS as usize, "{looks} looks for {CONFLICTS} conflicts");
}

/// The first write, which creates the object.
#[tokio::test]
async fn creation_refused() {
    let Some(rig) = Rig::start("create-500").await else { return };
    rig.proxy.fail("POST", OBJECTS, 4, Fault::Status(500));
    let _exporter = Exporter::start(&rig.flags);
    rig.health_says("[-]publish failed: create: 500 InternalError: ").await;
    assert!(!rig.get("/readyz").await.starts_with("HTTP/1.0 200"));
    rig.is_ready().await;
    rig.survived_well(Writes::Exactly(5)).await;
}

#[tokio::test]
async fn connections_refused() {
    let Some(mut rig) = Rig::start("refused").await else { return };
    let _exporter = rig.export().await;
    rig.proxy.down();
    rig.admit("b", &[5]);
    rig.health_says("[-]publish failed: patch: ").await;
    rig.admit("c", &[6]);
    rig.proxy.up().unwrap();
    rig.survived_well(Writes::AtMost(3)).await;
}

#[tokio::test]
async fn connections_refused_at_the_start() {
    let Some(mut rig) = Rig::start("refused-early").await else { return };
    rig.proxy.down();
    let _exporter = Exporter::start(&rig.flags);
    rig.health_says("[+]scan ok").await;
    assert!(!rig.get("/readyz").await.starts_with("HTTP/1.0 200"));
    rig.proxy.up().unwrap();
    rig.is_ready().await;
    rig.survived_well(Writes::Exactly(1)).await;
}

#[tokio::test]
async fn no_answer_to_a_write() {
    let Some(mut rig) = Rig::start("api-silent").await else { return };
    let _exporter = rig.export().await;
    rig.proxy.fail("PATCH", OBJECTS, 1, Fault::Silence);
    rig.admit("b", &[5]);
    rig.tries(2).await;
    rig.admit("c", &[6]);
    rig.health_says("[-]publish failed: patch: ").await;
    rig.survived_well(Writes::Exactly(3)).await;
}

/// The write happened, but its answer is lost: the next attempt finds that nothing differs.
#[tokio::test]
async fn answer_lost_after_the_object_was_changed() {
    let Some(mut rig) = Rig::start("patch-lost").await else { return };
    let _exporter = rig.export().await;
    for (name, cpu, fault) in [("b", 5, Fault::Cut(0)), ("c", 6, Fault::Cut(200))] {
        let before = rig.writes();
        rig.proxy.fail("PATCH", OBJECTS, 1, fault);
        rig.admit(name, &[cpu]);
        rig.arrives().await;
        rig.tries(before + 1).await;
    }
    rig.survived_well(Writes::AtMost(5)).await;
}

#[tokio::test]
async fn answer_lost_after_the_object_was_created() {
    let Some(rig) = Rig::start("create-lost").await else { return };
    rig.proxy.fail("POST", OBJECTS, 1, Fault::Cut(0));
    let _exporter = rig.export().await;
    rig.survived_well(Writes::AtMost(2)).await;
}

/// The watch tells that the object is gone before the answer to the last write says what it was like.
#[tokio::test]
async fn answer_overtaken_by_a_deletion() {
    let Some(mut rig) = Rig::start("answer-late").await else { return };
    let _exporter = rig.export().await;
    rig.proxy.fail("PATCH", OBJECTS, 1, Fault::LateAnswer);
    rig.admit("b", &[5]);
    rig.arrives().await;
    let before = rig.proxy.watch_events();
    rig.nrts().delete(rig.name, &DeleteParams::default()).await.unwrap();
    until("the deletion reaches the watch", async || (rig.proxy.watch_events() > before).then_some(())).await;
    rig.proxy.heal();
    rig.survived_well(Writes::Exactly(3)).await;
}

/// A write that was given up arrives after all, when a newer one has been made: the version in it says that it is too
/// late.
#[tokio::test]
async fn write_arrives_late() {
    let Some(mut rig) = Rig::start("write-late").await else { return };
    let _exporter = rig.export().await;
    rig.proxy.fail("PATCH", OBJECTS, 1, Fault::Late);
    rig.admit("b", &[5]);
    rig.tries(1 + 1).await;
    rig.release("a");
    // The first try takes until the deadline.
    rig.arrives().await;
    rig.proxy.heal();
    rig.admit("c", &[6]);
    rig.survived_well(Writes::AtMost(4)).await;
}

#[tokio::test]
async fn watch_dropped() {
    let Some(mut rig) = Rig::start("watch-dropped").await else { return };
    let _exporter = rig.export().await;
    for times in 1..=3 {
        rig.proxy.drop_watches();
        rig.proxy.wait_for("WATCH", OBJECTS, 1 + times, PATIENCE).await.unwrap();
    }
    // It is watched again: a deletion is noticed, and so is what happens on the node.
    rig.nrts().delete(rig.name, &DeleteParams::default()).await.unwrap();
    rig.arrives().await;
    rig.admit("b", &[5]);
    rig.survived_well(Writes::Exactly(3)).await;
}

/// Changes of the object during an interruption of the watch are found when the watch is back.
#[tokio::test]
async fn watch_away_while_the_object_is_deleted() {
    let Some(rig) = Rig::start("watch-away").await else { return };
    let _exporter = rig.export().await;
    rig.proxy.fail("WATCH", OBJECTS, 3, Fault::Status(503));
    rig.proxy.drop_watches();
    rig.proxy.wait_for("WATCH", OBJECTS, 2, PATIENCE).await.unwrap();
    rig.nrts().delete(rig.name, &DeleteParams::default()).await.unwrap();
    rig.survived_well(Writes::Exactly(2)).await;
}

#[tokio::test]
async fn watch_gets_410() {
    let Some(mut rig) = Rig::start("watch-410").await else { return };
    let _exporter = rig.export().await;
    // In the running watch, and then for every attempt to resume it.
    rig.proxy.fail("WATCH", OBJECTS, 2, Fault::Status(410));
    rig.proxy.expire_watches();
    rig.proxy.wait_for("WATCH", OBJECTS, 4, PATIENCE).await.unwrap();
    rig.admit("b", &[5]);
    rig.arrives().await;
    rig.nrts().delete(rig.name, &DeleteParams::default()).await.unwrap();
    rig.survived_well(Writes::Exactly(3)).await;
}

async fn own_control() -> Option<ControlPlane> {
    let rig = testkit::env::rig().ok()?;
    Some(ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap())
}

#[tokio::test]
async fn kind_missing_then_created() {
    let Some(control) = own_control().await else { return };
    let mut rig = Rig::on(&control, "kind-missing").await;
    let _exporter = Exporter::start(&rig.flags);
    rig.health_says("[-]publish failed: create: 404 ").await;
    rig.tries(3).await;
    rig.admit("b", &[5]);
    let tries = rig.writes();
    testkit::cluster::install_crds(&rig.client, NRT_CRD_YAML).await.unwrap();
    rig.is_ready().await;
    rig.survived_well(Writes::AtMost(tries + 12)).await;
}

#[tokio::test]
async fn kind_deleted_and_created_again() {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    let Some(control) = own_control().await else { return };
    let mut rig = Rig::on(&control, "kind-deleted").await;
    testkit::cluster::install_crds(&rig.client, NRT_CRD_YAML).await.unwrap();
    let _exporter = rig.export().await;
    let crds = Api::<CustomResourceDefinition>::all(rig.client.clone());
    let name = "noderesourcetopologies.topology.node.k8s.io";
    for (pod, cpu) in [("b", 5), ("c", 6)] {
        crds.delete(name, &DeleteParams::default()).await.unwrap();
        until("the kind is gone", async || crds.get_opt(name).await.unwrap().is_none().then_some(())).await;
        rig.health_says("[-]publish failed: ").await;
        rig.admit(pod, &[cpu]);
        testkit::cluster::install_crds(&rig.client, NRT_CRD_YAML).await.unwrap();
        rig.arrives().await;
    }
    rig.survived_well(Writes::AtMost(60)).await;
}
