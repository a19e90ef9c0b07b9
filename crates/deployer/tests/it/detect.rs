//! What a cluster is, asked of API servers that look like each kind.

use deployer::detect::{ClusterInfo, PlatformSpec, cluster, control_plane_nodes};
use deployer::platform::Platform;
use fakes::openshift::{Flavour, install};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::env::{Program, rig};

async fn detected(client: &Client, given: &str) -> ClusterInfo {
    let given = if given.is_empty() { PlatformSpec::default() } else { given.parse().unwrap() };
    cluster(client, &given).await
}

#[tokio::test]
async fn each_kind_of_cluster_is_told_and_the_user_is_believed() {
    let Ok(rig) = rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    let kubernetes = Program::ApiServer.wanted();

    let plain = detected(&client, "").await;
    assert_eq!(plain.to_string(), format!("Kubernetes:{kubernetes}"));
    // With OpenShift as stated platform only the version is unknown.
    let claimed = detected(&client, "openshift").await;
    assert_eq!(claimed.platform.get().unwrap(), &Platform::OpenShift);
    let error = claimed.version.get().unwrap_err().to_string();
    assert!(error.starts_with("reading ClusterOperator openshift-apiserver: 404 "), "{error}");
    assert_eq!(detected(&client, "hypershift:4.17.2").await.to_string(), "HyperShift:4.17.2");

    // A hosted cluster has less; so it comes first, and the rest is added.
    for (flavour, name) in [(Flavour::HyperShift, "HyperShift"), (Flavour::OpenShift, "OpenShift")] {
        install(&client, flavour, "4.18.7").await.unwrap();
        assert_eq!(detected(&client, "").await.to_string(), format!("{name}:4.18.7"));
        assert_eq!(detected(&client, "kubernetes").await.to_string(), format!("Kubernetes:{kubernetes}"));
        assert_eq!(detected(&client, "openshift:v4.14").await.to_string(), "OpenShift:v4.14");
    }
}

#[tokio::test]
async fn what_may_not_be_read_is_an_error_and_not_another_kind_of_cluster() {
    let Ok(rig) = rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    install(&control.client().await.unwrap(), Flavour::OpenShift, "4.18.7").await.unwrap();
    let file = control.kubeconfig_for("user", "users").unwrap();
    let client = control.client_with(&file).await.unwrap();

    let found = detected(&client, "").await;
    let error = found.platform.get().unwrap_err().to_string();
    assert!(error.starts_with("listing ClusterVersions: 403 Forbidden: "), "{error}");
    // All authenticated users may read the API server's version.
    assert_eq!(found.to_string(), format!("Unknown:{}", Program::ApiServer.wanted()));
    assert!(control_plane_nodes(&client).await.is_err());
}

#[tokio::test]
async fn control_plane_nodes_are_counted_whatever_their_labels_value() {
    let Ok(rig) = rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    for (name, labels) in [
        ("a", json!({ "node-role.kubernetes.io/control-plane": "" })),
        ("b", json!({ "node-role.kubernetes.io/control-plane": "true" })),
        ("c", json!({ "node-role.kubernetes.io/worker": "" })),
    ] {
        let node = json!({ "metadata": { "name": name, "labels": labels } });
        let node: Node = serde_json::from_value(node).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
    }
    assert_eq!(control_plane_nodes(&client).await.unwrap(), 2);
}
