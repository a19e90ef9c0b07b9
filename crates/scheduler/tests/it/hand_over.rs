//! A standby takes over from a leader that ends.

use std::net::TcpListener;

use kube::core::Request;
use kube::{Client, Config};
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::env::rig;
use tokio::time::Instant;

use super::cluster::{Running, create, eventually, fake_node, node_of, pod, report, zone};

/// The time from the leader's end to the binding by the standby is printed; aim: 2 s.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_binds_soon_after_the_leader_has_ended() {
    let Ok(rig) = rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    testkit::cluster::install_crds(&client, api::crd::NRT_CRD_YAML).await.unwrap();
    fake_node(&client, "a").await;
    report(&client, "a", serde_json::json!([zone("node-0", "8"), zone("node-1", "8")])).await;

    let leader = Running::start(control.kubeconfig(), &["--leader-elect"]);
    create(&client, &pod("one", 1)).await;
    eventually("the leader binds", async || node_of(&client, "one").await).await;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("--http-bind-address=127.0.0.1:{port}");
    let standby = Running::start(control.kubeconfig(), &["--leader-elect", &address]);
    let health = Client::try_from(Config::new(format!("http://127.0.0.1:{port}").parse().unwrap())).unwrap();
    eventually("the standby is ready", async || {
        let request = Request::new("").get("readyz", &kube::api::GetParams::default()).unwrap();
        health.request_text(request).await.ok()
    })
    .await;

    let began = Instant::now();
    leader.stop().await;
    let stopped = began.elapsed();
    create(&client, &pod("two", 1)).await;
    eventually("the standby binds", async || node_of(&client, "two").await).await;
    println!(
        "hand-over: the leader ended after {stopped:?}, the standby had bound after {:?}",
        began.elapsed()
    );
    standby.stop().await;
}
