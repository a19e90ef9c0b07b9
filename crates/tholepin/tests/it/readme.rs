//! The commands of the peer's README, in its order, on a real cluster: deploy, validate, remove.
//!
//! Its sentences are held; names are those of the peer's later releases, which are what there is to install today (the
//! objects of the README's transcripts are of its release 0.0.1). `docs/compatibility-deployer.md` has each line that
//! differs, and why.

use std::path::Path;

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testkit::cluster::Cluster;
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::cri::{Image, Images};
use testkit::env::{Program, rig};
use testkit::machine::Machine;
use testkit::net;
use testkit::proxy::{Fault, Proxy};

use super::{Installed, run_async};

/// Has to be named: the deployer's own choice is the peer's.
pub(super) const NFD_IMAGE: &str = "tholepin:nfd";

/// The output of `deploy -W`, without parts that depend on the moment.
const DEPLOYED: &str = r#"
deploying topology-aware-scheduling API...
-  API> created CustomResourceDefinition "noderesourcetopologies.topology.node.k8s.io"
...deployed topology-aware-scheduling API!
deploying topology-aware-scheduling topology updater...
-  RTE> created Namespace "tas-topology-updater"
-  RTE> created ClusterRole "rte"
-  RTE> created ClusterRoleBinding "rte"
-  RTE> created ServiceAccount "rte"
-  RTE> created DaemonSet "resource-topology-exporter"
wait for all the pods in deployment tas-topology-updater resource-topology-exporter to be running and ready
all the pods in daemonset tas-topology-updater resource-topology-exporter are running and ready!
...deployed topology-aware-scheduling topology updater!
deploying topology-aware-scheduling scheduler plugin...
-  SCD> created ServiceAccount "topology-aware-scheduler"
-  SCD> created ConfigMap "scheduler-config"
-  SCD> created Deployment "topology-aware-scheduler"
wait for all the pods in deployment tas-scheduler topology-aware-scheduler to be running and ready
all the pods in deployment tas-scheduler topology-aware-scheduler are running and ready!
...deployed topology-aware-scheduling scheduler plugin!
"#;

/// The output of `remove -W`.
const REMOVED: &str = r#"
removing topology-aware-scheduling scheduler plugin...
-  SCD> deleted Deployment "topology-aware-scheduler"
wait for all the pods in deployment tas-scheduler topology-aware-scheduler to be gone
...removed topology-aware-scheduling scheduler plugin!
removing topology-aware-scheduling topology updater...
-  RTE> deleted Namespace "tas-topology-updater"
wait for the deployment namespace "tas-topology-updater" to be gone
namespace gone for daemonset "tas-topology-updater"!
...removed topology-aware-scheduling topology updater!
removing topology-aware-scheduling API...
-  API> deleted CustomResourceDefinition "noderesourcetopologies.topology.node.k8s.io"
...removed topology-aware-scheduling API!
"#;

/// The output of `validate` for kubelets with only a CPU manager.
const SIX_ERRORS: &str = r#"
ERROR#000: Incorrect configuration of node "kind-worker" area "kubelet" component "feature gates" setting "": expected "present" detected "missing data"
ERROR#001: Incorrect configuration of node "kind-worker" area "kubelet" component "topology manager" setting "policy": expected "single-numa-node" detected "none"
ERROR#002: Incorrect configuration of node "kind-worker2" area "kubelet" component "feature gates" setting "": expected "present" detected "missing data"
ERROR#003: Incorrect configuration of node "kind-worker2" area "kubelet" component "topology manager" setting "policy": expected "single-numa-node" detected "none"
ERROR#004: Incorrect configuration of node "kind-worker3" area "kubelet" component "feature gates" setting "": expected "present" detected "missing data"
ERROR#005: Incorrect configuration of node "kind-worker3" area "kubelet" component "topology manager" setting "policy": expected "single-numa-node" detected "none"
"#;

/// The answers of the API server of the README's cluster.
const VERSION: &str =
    r#"{ "major": "1", "minor": "21", "gitVersion": "v1.21.1", "platform": "linux/amd64" }"#;

/// The answers of its kubelets: the README's settings, and defaults.
const CONFIGZ: &str = r#"{ "kubeletconfig": { "cpuManagerPolicy": "static", "cpuManagerReconcilePeriod": "10s",
    "memoryManagerPolicy": "None", "topologyManagerPolicy": "none", "topologyManagerScope": "container",
    "reservedSystemCPUs": "0,16" } }"#;

#[test]
fn deploy_validate_and_remove_as_the_readme_has_them() {
    let Ok(rig) = rig() else { return };
    let scheduler = rig.binaries.path(Program::Scheduler).to_owned();
    net::private(async |network| {
        let machine = Machine::new().zones(2).cpus_per_zone(8);
        let images = images(Path::new(env!("CARGO_BIN_EXE_tholepin")), &scheduler);
        let cluster =
            Cluster::builder().machines([machine]).installable(network, images).start(&rig).await.unwrap();
        as_kind_does(&cluster.client().await.unwrap()).await;
        let installed = Installed::under("deployer");
        let kubeconfig = cluster.control().kubeconfig().display().to_string();
        let run =
            async |words: &str| run_async(&installed.program, words, &[("KUBECONFIG", &kubeconfig)]).await;

        let (code, stdout, stderr) = run("deploy -W").await;
        assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
        in_order(&stderr, DEPLOYED);
        let (code, stdout, stderr) = run("validate").await;
        assert_eq!(
            (code, stdout.as_str()),
            (0, "PASSED>>: the cluster configuration looks ok!\n"),
            "{stderr}"
        );
        let (code, stdout, _) = run("detect --json").await;
        assert!(code == 0 && stdout.starts_with(r#"{"platform":{"autoDetected":"Kubernetes","#), "{stdout}");
        let (code, stdout, stderr) = run("remove -W").await;
        assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
        in_order(&stderr, REMOVED);
    })
    .unwrap();
}

/// There is no API server of that version to be had, and no kubelet: a real API server has the nodes, the proxy before
/// it says how old it is and what kubelets would say.
#[tokio::test]
async fn six_errors_are_found_as_the_readme_has_them() {
    let Ok(rig) = rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let proxy = Proxy::start(&control, control.process_group().dir()).await.unwrap();
    let nodes: Api<Node> = Api::all(control.client().await.unwrap());
    for (name, labels) in [
        ("kind-worker3", json!({})),
        ("kind-worker", json!({})),
        ("kind-worker2", json!({})),
        (
            "kind-control-plane",
            json!({ "node-role.kubernetes.io/control-plane": "", "node-role.kubernetes.io/master": "" }),
        ),
    ] {
        let node = serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels } })).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
    }
    proxy.fail("GET", "/version", u32::MAX, Fault::Answer(VERSION));
    proxy.fail("GET", "/proxy/configz", u32::MAX, Fault::Answer(CONFIGZ));
    let installed = Installed::under("deployer");
    let kubeconfig = proxy.kubeconfig().display().to_string();
    let run = async |words: &str| run_async(&installed.program, words, &[("KUBECONFIG", &kubeconfig)]).await;

    let (code, stdout, stderr) = run("validate").await;
    assert_eq!((code, stdout.trim_end(), stderr.as_str()), (0, SIX_ERRORS.trim(), ""));
    let (code, stdout, stderr) = run("validate --json").await;
    assert_eq!((code, stderr.as_str()), (0, ""));
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&answer["success"], answer["errors"].as_array().unwrap().len()), (&Value::Bool(false), 6));
    let last = json!({ "node": "kind-worker3", "area": "kubelet", "component": "topology manager",
        "setting": "policy", "expected": "single-numa-node", "detected": "none" });
    assert_eq!(answer["errors"][5], last);
}

/// An image with our program, under the name of a peer's.
pub(super) const IMAGE: &str = "quay.io/k8stopologyawareschedwg/resource-topology-exporter:v0.19.3";

/// Ours stands in for the exporters, the stock scheduler for the one with plugins (whose configuration it would not
/// take), and something that waits for the controller, and goes when it is told to: the first process of a container
/// has no default for that.
pub(super) fn images(tholepin: &Path, scheduler: &Path) -> Images {
    let registry = "registry.k8s.io/scheduler-plugins";
    let command = "exec /kube-scheduler --leader-elect=false --bind-address=0.0.0.0";
    Images::new()
        .with(IMAGE, Image::program(tholepin).file(tholepin, "/bin/resource-topology-exporter"))
        .with(NFD_IMAGE, Image::program(tholepin).file(tholepin, "/bin/nfd-topology-updater"))
        .with("registry.k8s.io/pause:3.10", Image::pause())
        .with(
            format!("{registry}/kube-scheduler:v0.27.8"),
            Image::tools().file(scheduler, "/kube-scheduler").entrypoint(["sh", "-c", command]),
        )
        .with(
            format!("{registry}/controller:v0.27.8"),
            Image::tools().entrypoint(["sh", "-c", "trap exit TERM; sleep 1000000 & wait"]),
        )
}

/// The roles that nodes of the README's cluster have.
pub(super) async fn as_kind_does(client: &Client) {
    let roles = json!({ "node-role.kubernetes.io/control-plane": "", "node-role.kubernetes.io/worker": "" });
    let patch = json!({ "metadata": { "labels": roles } });
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.patch("node-0", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

/// Each wanted line is there, in this order, with a time before it.
fn in_order(told: &str, wanted: &str) {
    let mut lines = told.lines();
    for line in wanted.trim().lines() {
        let found = lines.any(|told| told.get(20..) == Some(line) && is_time(&told[..20]));
        assert!(found, "{line:?} is not there, or not in its place:\n{told}");
    }
}

/// `2021/07/20 06:16:34 `
fn is_time(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape == "0000/00/00 00:00:00 "
}
