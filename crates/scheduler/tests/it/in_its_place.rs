//! Our scheduler with kube-scheduler's command line, as the operator starts it.

use std::net::TcpListener;

use kube::api::GetParams;
use kube::core::Request;
use kube::{Client, Config};
use scheduler::compat::{self, Start};
use serde_json::{Value, json};
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::env::rig;
use tokio_util::sync::CancellationToken;

use super::cluster::{create, eventually, fake_node, level, node_of, pod, report, zone};

/// The configuration of spec 4.4 of the operator, word for word but for the order of keys.
fn config() -> Value {
    let plugins = |names: &[&str]| names.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>();
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {
            "leaderElect": true, "resourceNamespace": "default", "resourceName": "numa-scheduler-leader",
        },
        "profiles": [{
            "schedulerName": "topo-aware-scheduler",
            "plugins": {
                "multiPoint": {
                    "disabled": plugins(&["DynamicResources"]), "enabled": plugins(&["NodeResourceTopologyMatch"]),
                },
                "filter": {
                    "disabled": plugins(&["*"]),
                    "enabled": plugins(&["NodeUnschedulable", "KNIDebug", "NodeResourcesFit", "NodeResourceTopologyMatch"]),
                },
            },
            "pluginConfig": [{ "name": "NodeResourceTopologyMatch", "args": {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "NodeResourceTopologyMatchArgs",
                "cacheResyncPeriodSeconds": 5,
                "cache": {
                    "foreignPodsDetect": "OnlyExclusiveResources", "informerMode": "Dedicated", "resyncMethod": "Autodetect",
                },
                "scoringStrategy": { "type": "LeastAllocated" },
            }}],
        }],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn it_schedules_serves_and_writes_down_as_kube_scheduler_does() {
    let Ok(rig) = rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    testkit::cluster::install_crds(&client, api::crd::NRT_CRD_YAML).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (file, dumps) = (dir.path().join("config.yaml"), dir.path().join("pfpstatus"));
    std::fs::write(&file, config().to_string()).unwrap();
    std::fs::create_dir(&dumps).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let words = format!(
        "/bin/kube-scheduler --config={} -v=2 --tls-min-version=VersionTLS12 \
         --tls-cipher-suites=TLS_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 --kubeconfig={} \
         --bind-address=127.0.0.1 --secure-port={port}",
        file.display(),
        control.kubeconfig().display()
    );
    let words = words.split_whitespace().map(str::to_owned).collect();
    let directory = dumps.display().to_string();
    let variable = |name: &str| (name == "PFP_STATUS_DUMP").then(|| directory.clone());
    let Start::Run(plan) = compat::start("kube-scheduler", words, &variable) else { panic!() };
    let token = CancellationToken::new();
    let running = tokio::spawn(scheduler::shell::run(plan.args, level(), token.clone()));

    fake_node(&client, "a.example").await;
    report(&client, "a.example", json!([zone("node-0", "8"), zone("node-1", "8")])).await;
    create(&client, &pod("one", 4)).await;
    eventually("the pod is bound", async || node_of(&client, "one").await).await;

    let mut secure = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    secure.accept_invalid_certs = true;
    let health = Client::try_from(secure).unwrap();
    for path in ["healthz", "readyz"] {
        let request = Request::new("").get(path, &GetParams::default()).unwrap();
        assert_eq!(health.request_text(request).await.unwrap(), "ok", "{path}");
    }
    let status = eventually("the node's statuses", async || {
        let text = std::fs::read_to_string(dumps.join("a_example")).ok()?;
        let all: Vec<Value> = serde_json::from_str(&text).unwrap();
        all.last().filter(|status| status["nodeName"] == "a.example").cloned()
    })
    .await;
    assert_eq!(status["fingerprintExpected"], "pfp0v001ef46db3751d8e999");
    assert!(status["fingerprintComputed"].is_string() && status["recordTime"].is_string(), "{status}");
    token.cancel();
    running.await.unwrap().unwrap();
}
