//! nfd-topology-updater's suite.

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use topology::fingerprint::Fingerprint;

use super::seat::{IDLE, Seat, WITH_MEMORY};
use super::*;

/// The fingerprint of all pods on the node, whatever they hold.
async fn all_signed(seat: &Seat) -> String {
    let here = ListParams::default().fields(&format!("spec.nodeName={}", seat.node().name()));
    let pods = Api::<Pod>::all(seat.client.clone()).list(&here).await.unwrap();
    let names: Vec<_> =
        pods.iter().map(|pod| (pod.namespace().unwrap_or_default(), pod.name_any())).collect();
    Fingerprint::of_names(names.iter().map(|(space, name)| (space.as_str(), name.as_str()))).to_string()
}

/// Waits until the fingerprint is that of all pods on the node.
async fn signs_all(seat: &Seat) {
    let wanted = all_signed(seat).await;
    let says = async || (fingerprint(&seat.object().await?) == wanted).then_some(());
    until("the fingerprint of all pods", says).await;
}

/// With interval 0 only events cause looks; the peer's first object waits for one, ours is there at once.
#[tokio::test]
async fn interval_0_creates_and_updates_by_events_and_signs_all_pods() {
    let Some(seat) = Seat::take(1).await else { return };
    let state = format!("-kubelet-state-dir={}", seat.node().kubelet().root_dir().display());
    let running = seat.nfd(&["-sleep-interval=0s", &state]).await;
    let before = seat.shows("cpu", IDLE).await;
    let default = Api::<Namespace>::all(seat.client.clone()).get("default").await.unwrap();
    // That it goes with its namespace is then the garbage collector's doing.
    let owner = json!([{ "apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": default.uid() }]);
    assert_eq!(json!(before.owner_references()), owner);
    assert_eq!(before.topology_policies, ["SingleNUMANodeContainerLevel"]);
    let rules = ["topologyManagerPolicy", "topologyManagerScope"]
        .map(|name| attribute::get(&before.attributes, name));
    assert_eq!(rules, [Some("single-numa-node"), Some("container")]);

    let writers: Vec<_> = before
        .managed_fields()
        .iter()
        .map(|entry| (entry.operation.as_deref(), entry.manager.as_deref()))
        .collect();
    assert_eq!(writers, [(Some("Apply"), Some("tholepin-exporter"))]);

    seat.create("best-effort", true, &[&[]]).await;
    seat.guaranteed("half", "500m").await;
    for pod in ["best-effort", "half"] {
        seat.runs(pod).await;
    }
    signs_all(&seat).await;
    assert_eq!(json!(seat.object().await.unwrap().zones), json!(before.zones));
    seat.guaranteed("one", "1").await;
    seat.shows("cpu", "0 6/7/8 | 1 8/8/8").await;
    signs_all(&seat).await;
    for pod in ["best-effort", "half", "one"] {
        seat.delete(pod).await;
    }
    seat.shows("cpu", IDLE).await;
    running.stop().await;
}

/// Without the state directory the timer has to do. A lost object is there again before the timer comes: it is watched.
#[tokio::test]
async fn without_state_dir_pods_are_seen_periodically_and_a_deleted_object_returns() {
    let Some(seat) = Seat::take(WITH_MEMORY).await else { return };
    let running = seat.nfd(&["-sleep-interval=300ms", "-kubelet-state-dir="]).await;
    seat.shows("cpu", IDLE).await;
    running.looks(6).await;
    seat.guaranteed("a", "1").await;
    seat.shows("cpu", "0 6/7/8 | 1 8/8/8").await;
    seat.runs("a").await;
    running.stop().await;

    let running = seat.nfd(&["-sleep-interval=1h", "-kubelet-state-dir="]).await;
    running.looks(5).await;
    let before = seat.shows("cpu", "0 6/7/8 | 1 8/8/8").await;
    raw(&seat.client).delete(seat.node().name(), &DeleteParams::default()).await.unwrap();
    let again = async || seat.object().await.filter(|nrt| nrt.uid() != before.uid());
    let nrt = until("another object", again).await;
    assert_eq!((json!(nrt.zones), json!(nrt.attributes)), (json!(before.zones), json!(before.attributes)));
    running.stop().await;

    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(nrt.zones.iter().all(|zone| zone.resources.iter().any(|r| r.name == "memory")));
    std::fs::write(&file, "excludeList:\n  '*': [memory]\n").unwrap();
    let config = format!("-config={}", file.path().display());
    let running = seat.nfd(&["-sleep-interval=300ms", "-kubelet-state-dir=", &config]).await;
    let nrt = seat.shows("memory", "0 - | 1 -").await;
    assert_eq!(show(&nrt, "cpu"), "0 6/7/8 | 1 8/8/8");
    seat.delete("a").await;
    seat.shows("cpu", IDLE).await;
    running.stop().await;
}
