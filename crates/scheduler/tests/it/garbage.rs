//! Invalid reports, and reports and nodes that come and go: clear refusals, never a wrong placement.

use api::nrt::NodeResourceTopology;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};

use crate::cluster::{
    Running, create, delete, eventually, fake_node, metrics, node_of, pod, pods, refusal, report, report_of,
    used_zone, zone,
};

const STALE: &str = "0/1 nodes are available: 1 invalid node topology data: the report is gone or cannot be \
                     read. no new claims to deallocate, \
                     preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";

/// The refusal of a node that has no report yet.
fn awaited() -> String {
    STALE.replace("the report is gone or cannot be read", "the first report is awaited")
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_refused_and_what_follows_it_is_not() {
    let Ok(rig) = testkit::env::rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    testkit::cluster::install_crds(&client, api::crd::NRT_CRD_YAML).await.unwrap();
    let scheduler = Running::start(control.kubeconfig(), &["--leader-elect=false"]);
    fake_node(&client, "n").await;
    let broken: [(&str, Value); 5] = [
        ("negative", json!([zone("node-0", "-8")])),
        ("overflow", json!([zone("node-0", "99999999999999999999E")])),
        ("twice", json!([zone("node-0", "8"), zone("node-0", "8")])),
        ("names", json!([zone("socket-0", "8")])),
        ("nothing", json!([])),
    ];
    let mut former = awaited();
    for (name, zones) in broken {
        report(&client, "n", zones).await;
        // Zones that are left out because their name says nothing leave a node that can align nothing.
        let expected = if matches!(name, "names" | "nothing") {
            "0/1 nodes are available: 1 cannot align container \"main\": cpu: no zone lists it. no new \
             claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
        } else {
            STALE
        };
        // Pods and reports come by two watches: a pod that came before the report was judged by the former one.
        let attempt = async || {
            create(&client, &pod(name, 2)).await;
            let message = eventually(name, async || refusal(&client, name).await).await;
            delete(&client, name).await;
            (message == expected || message != former).then_some(message)
        };
        assert_eq!(eventually(name, attempt).await, expected, "{name}");
        expected.clone_into(&mut former);
    }
    report(&client, "n", json!([zone("node-3", "8"), zone("node-9", "8")])).await;
    create(&client, &pod("after", 8)).await;
    assert_eq!(eventually("after", async || node_of(&client, "after").await).await, "n");
    a_contradiction_is_told(&client).await;
    scheduler.stop().await;
}

/// The pod runs in the zone that the kubelet's model did not say.
async fn a_contradiction_is_told(client: &Client) {
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"status": {"phase": "Running", "conditions": [ready]}});
    pods(client).patch_status("after", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let mut zones = json!([zone("node-3", "8"), used_zone("node-9", "8", "0")]);
    zones[1]["resources"][1]["available"] = "16320Mi".into();
    report_of(client, "n", zones, &[("default", "after")]).await;
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let note = eventually("an event about the node", async || {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().find(|event| event.reason.as_deref() == Some("LedgerDrift"))
    })
    .await;
    let node = note.regarding.unwrap_or_default();
    assert_eq!((node.kind.as_deref(), node.name.as_deref()), (Some("Node"), Some("n")));
    let wanted = "The report of the node's zones contradicts what the scheduler had booked for default/after; the report counts";
    assert_eq!(note.note.as_deref(), Some(wanted));
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_and_nodes_come_and_go() {
    let Ok(rig) = testkit::env::rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    let port = testkit::port::free().unwrap();
    let serving = format!("--http-bind-address=127.0.0.1:{port}");
    // The kind is not there yet when the scheduler starts: no exporter runs, and no node is waited for.
    let scheduler = Running::start(control.kubeconfig(), &["--leader-elect=false", &serving]);
    fake_node(&client, "n").await;
    create(&client, &pod("early", 2)).await;
    assert_eq!(eventually("early", async || node_of(&client, "early").await).await, "n");
    delete(&client, "early").await;
    testkit::cluster::install_crds(&client, api::crd::NRT_CRD_YAML).await.unwrap();
    let listed = "tholepin_watch_resets_total{resource=\"noderesourcetopologies\"} 1";
    let is_listed = async || metrics(port).await.lines().any(|line| line == listed).then_some(());
    eventually("the kind is noticed", is_listed).await;
    create(&client, &pod("young", 2)).await;
    assert_eq!(eventually("young", async || refusal(&client, "young").await).await, awaited());
    report(&client, "n", json!([zone("node-0", "8"), zone("node-1", "8")])).await;
    assert_eq!(eventually("young", async || node_of(&client, "young").await).await, "n");

    let reports: Api<NodeResourceTopology> = Api::all(client.clone());
    reports.delete("n", &DeleteParams::default()).await.unwrap();
    create(&client, &pod("lost", 2)).await;
    assert_eq!(eventually("lost", async || refusal(&client, "lost").await).await, STALE);

    let nodes: Api<Node> = Api::all(client.clone());
    nodes.delete("n", &DeleteParams::default()).await.unwrap();
    let none = "no nodes available to schedule pods";
    create(&client, &pod("none", 2)).await;
    assert_eq!(eventually("none", async || refusal(&client, "none").await).await, none);
    delete(&client, "young").await;
    fake_node(&client, "n").await;
    report(&client, "n", json!([zone("node-0", "8"), zone("node-1", "8")])).await;
    for name in ["lost", "none"] {
        assert_eq!(eventually(name, async || node_of(&client, name).await).await, "n");
    }
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_scheduler_waits_for_the_lease() {
    let Ok(rig) = testkit::env::rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    testkit::cluster::install_crds(&client, api::crd::NRT_CRD_YAML).await.unwrap();
    fake_node(&client, "n").await;
    report(&client, "n", json!([zone("node-0", "8"), zone("node-1", "8")])).await;
    let first = Running::start(control.kubeconfig(), &["--leader-elect"]);
    create(&client, &pod("a", 1)).await;
    eventually("a", async || node_of(&client, "a").await).await;
    let second = Running::start(control.kubeconfig(), &["--leader-elect"]);
    first.stop().await;
    create(&client, &pod("b", 1)).await;
    eventually("b", async || node_of(&client, "b").await).await;
    second.stop().await;
}
