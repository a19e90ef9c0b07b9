//! Static pods: the kubelet's managers know them by another uid than the API server.

use std::fs;

use serde_json::json;

use crate::cluster::{Running, create, eventually, pod, pods, refusal};
use crate::whole_loop::{exporting, runs};

/// A scheduler that starts after a static pod knows its zone from the exporter's report.
#[tokio::test(flavor = "multi_thread")]
async fn static_pod_is_charged_in_its_zone_alone() {
    let Ok(rig) = testkit::env::rig() else { return };
    let (cluster, client, _exporters) = exporting(&rig, 1).await;
    let node = &cluster.nodes()[0];
    let manifests = node.kubelet().root_dir().join("manifests");
    fs::create_dir(&manifests).unwrap();
    // Zones of 7 and 8 CPUs have room for five once each.
    fs::write(manifests.join("pod.json"), serde_json::to_string(&pod("static", 5)).unwrap()).unwrap();
    let changes = json!({ "staticPodPath": manifests });
    node.kubelet().configure(changes.as_object().unwrap()).unwrap();
    node.kubelet().restart().await.unwrap();
    let mirror = format!("static-{}", node.name());
    eventually("the mirror pod", async || pods(&client).get_opt(&mirror).await.unwrap()).await;
    eventually("the static pod", async || runs(&client, &mirror).await).await;

    let scheduler = Running::start(cluster.control().kubeconfig(), &["--leader-elect=false"]);
    for name in ["a", "b"] {
        create(&client, &pod(name, 5)).await;
    }
    eventually("one pod beside it", async || runs(&client, "a").await).await;
    let message = eventually("no room for two", async || refusal(&client, "b").await).await;
    assert!(message.contains("most in one zone 3"), "{message}");
    scheduler.stop().await;
}
