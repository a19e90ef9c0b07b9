//! Shared parts of the tests: a scheduler in this process, objects, and waiting for conditions.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use api::nrt::NodeResourceTopology;
use clap::Parser as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use runtime::log;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use topology::fingerprint::Fingerprint;

/// Far above what anything here takes, for a machine busy with compiling.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    args: scheduler::args::Args,
}

/// A scheduler running in this process; dropping it ends it.
pub(crate) struct Running {
    token: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    pub(crate) fn start(kubeconfig: &Path, flags: &[&str]) -> Self {
        let kubeconfig = kubeconfig.display().to_string();
        let line = ["scheduler", "--kubeconfig", &kubeconfig, "--seed=1"];
        let any_port = Some("--http-bind-address=127.0.0.1:0");
        let any_port = any_port.filter(|_| !flags.iter().any(|flag| flag.starts_with("--http-bind-address")));
        let args = Cli::parse_from(line.into_iter().chain(any_port).chain(flags.iter().copied())).args;
        let token = CancellationToken::new();
        Self { task: tokio::spawn(scheduler::shell::run(args, level(), token.clone())), token }
    }

    /// Waits for its end, which something else brings about.
    pub(crate) async fn ended(mut self) -> anyhow::Result<()> {
        (&mut self.task).await.unwrap()
    }

    /// Ends it in order.
    pub(crate) async fn stop(mut self) {
        self.token.cancel();
        (&mut self.task).await.unwrap().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.token.cancel();
        self.task.abort();
    }
}

/// The log of this process.
pub(crate) fn level() -> log::Handle {
    static LEVEL: OnceLock<log::Handle> = OnceLock::new();
    LEVEL.get_or_init(|| log::init(log::Format::Text, 2).unwrap()).clone()
}

/// What a scheduler of this process says at its plain port.
pub(crate) async fn metrics(port: u16) -> String {
    let config = kube::Config::new(format!("http://127.0.0.1:{port}").parse().unwrap());
    let request = kube::core::Request::new("").get("metrics", &Default::default()).unwrap();
    kube::Client::try_from(config).unwrap().request_text(request).await.unwrap()
}

/// Waits until `test` says something.
pub(crate) async fn eventually<T>(what: &str, test: impl AsyncFn() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = test().await {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// A Guaranteed pod of our scheduler.
pub(crate) fn pod(name: &str, cpus: u32) -> Pod {
    let cpus = cpus.to_string();
    testkit::load::guaranteed_pod(name, "topo-aware-scheduler", [("cpu", cpus.as_str()), ("memory", "64Mi")])
}

pub(crate) fn pods(client: &Client) -> Api<Pod> {
    Api::default_namespaced(client.clone())
}

pub(crate) async fn create(client: &Client, pod: &Pod) {
    pods(client).create(&PostParams::default(), pod).await.unwrap();
}

/// Where the pod is bound.
pub(crate) async fn node_of(client: &Client, name: &str) -> Option<String> {
    pods(client).get(name).await.unwrap().spec?.node_name
}

/// The message of `PodScheduled=False`.
pub(crate) async fn refusal(client: &Client, name: &str) -> Option<String> {
    let conditions = pods(client).get(name).await.unwrap().status?.conditions?;
    conditions.into_iter().find(|c| c.type_ == "PodScheduled" && c.status == "False")?.message
}

pub(crate) async fn delete(client: &Client, name: &str) {
    let force = DeleteParams::default().grace_period(0);
    pods(client).delete(name, &force).await.unwrap();
}

/// A node without a kubelet: two zones of 8 CPUs, as far as it says.
pub(crate) async fn fake_node(client: &Client, name: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    nodes.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let amounts = json!({"cpu": "16", "memory": "32Gi", "pods": "50"});
    let status = json!({"status": {"allocatable": amounts, "capacity": amounts}});
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let taints = json!({"spec": {"taints": null}});
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(taints)).await.unwrap();
}

/// Writes a report with these zones, of a node without pods.
pub(crate) async fn report(client: &Client, node: &str, zones: Value) {
    report_of(client, node, zones, &[]).await;
}

/// Writes a report with these zones and the fingerprint of these pods, by namespace and name.
pub(crate) async fn report_of(client: &Client, node: &str, zones: Value, pods: &[(&str, &str)]) {
    let fingerprint = Fingerprint::of_names(pods.iter().copied()).to_string();
    let reports: Api<NodeResourceTopology> = Api::all(client.clone());
    let object = json!({
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": node},
        "attributes": [
            {"name": "topologyManagerPolicy", "value": "single-numa-node"},
            {"name": "topologyManagerScope", "value": "container"},
            {"name": "nodeTopologyPodsFingerprint", "value": fingerprint},
            {"name": "nodeTopologyPodsFingerprintMethod", "value": "with-exclusive-resources"},
        ],
        "zones": zones,
    });
    let apply = PatchParams::apply("test").force();
    reports.patch(node, &apply, &Patch::Apply(object)).await.unwrap();
}

/// A zone with so many CPUs, all of them free.
pub(crate) fn zone(name: &str, cpus: &str) -> Value {
    used_zone(name, cpus, cpus)
}

/// A zone with so many CPUs, and so many of them free.
pub(crate) fn used_zone(name: &str, cpus: &str, free: &str) -> Value {
    let resource = |name: &str, amount: &str, free: &str| json!({"name": name, "capacity": amount, "allocatable": amount, "available": free});
    let resources = [resource("cpu", cpus, free), resource("memory", "16Gi", "16Gi")];
    json!({"name": name, "type": "Node", "resources": resources})
}
