//! Clusters that cannot be tested: one clear line, an exit code, nothing left.

use std::path::Path;

use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use testkit::cluster::install_crds;
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::net;

use super::rig::{command, programs, run, until};

/// Exit code and the last line on standard error.
async fn tried(program: &Path, kubeconfig: &Path, words: &[&str]) -> (Option<i32>, String) {
    let ended = run(command(program, kubeconfig, words)).await;
    (ended.code, ended.stderr.lines().last().unwrap_or_default().to_owned())
}

async fn expect(program: &Path, kubeconfig: &Path, line: &str) {
    for name in ["e2e", "test"] {
        let (code, said) = tried(program, kubeconfig, &[name, "--patience=30s"]).await;
        assert_eq!(code, Some(1), "{name}: {said}");
        assert!(said.starts_with("error: ") && said.contains(line), "{name}: {said}");
        assert!(said.len() <= 400, "{name}: {said}");
    }
}

/// A node that is ready, without a kubelet; returns when the control plane has noticed.
async fn add_node(client: &Client, name: &str) {
    let conditions = json!([{ "type": "Ready", "status": "True" }]);
    let node = json!({ "metadata": { "name": name }, "status": { "conditions": conditions } });
    let nodes = Api::<Node>::all(client.clone());
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    // The API server taints each new node.
    let has_no_taint = async || {
        nodes.get(name).await.unwrap().spec.is_none_or(|spec| spec.taints.is_none_or(|all| all.is_empty()))
    };
    assert!(until(has_no_taint).await, "node {name} keeps its taint");
}

#[test]
fn a_cluster_that_cannot_be_tested_gets_one_clear_line() {
    let Some((rig, program)) = programs() else { return };
    net::private(async |network| {
        let options = ControlPlaneOptions { network: Some(network), ..ControlPlaneOptions::default() };
        let control = ControlPlane::start(&rig.binaries, &options).await.unwrap();
        let _manager = control.start_controller_manager().await.unwrap();
        let client = control.client().await.unwrap();
        let admin = control.kubeconfig();
        expect(&program, admin, "the cluster has no NodeResourceTopology kind: no exporter is installed")
            .await;
        let crd = serde_json::to_string(&api::crd::nrt_crd()).unwrap();
        install_crds(&client, &crd).await.unwrap();
        expect(&program, admin, "no node can be used: there are no nodes").await;
        add_node(&client, "alone").await;
        expect(&program, admin, "no node can be used: alone: no exporter reports about it").await;
        let user = control.kubeconfig_for("user", "users").unwrap();
        expect(&program, &user, "the account may not watch nodes, watch pods, ").await;
        let left = Api::<Namespace>::all(client).get_opt(e2e::cluster::NAMESPACE).await.unwrap();
        assert_eq!(left, None);
    })
    .unwrap();
}
