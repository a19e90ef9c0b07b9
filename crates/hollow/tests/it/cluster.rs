//! Shared parts of the tests: a control plane, hollow nodes and a scheduler in this process.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use clap::Parser as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use runtime::log;
use serde_json::json;
use testkit::cluster::Cluster;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Far above what anything here takes, for a machine busy with compiling.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// The user whose role is the one of hollow nodes.
const USER: &str = "hollow";

#[derive(clap::Parser)]
struct HollowCli {
    #[command(flatten)]
    args: hollow::Args,
}

#[derive(clap::Parser)]
struct SchedulerCli {
    #[command(flatten)]
    args: scheduler::args::Args,
}

/// A program that runs in this process; dropping it ends it.
pub(crate) struct Running {
    token: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    pub(crate) fn hollow(kubeconfig: &Path, flags: &str) -> Self {
        let kubeconfig = kubeconfig.display().to_string();
        let line = ["hollow", "--kubeconfig", &kubeconfig, "--http-bind-address=127.0.0.1:0"];
        let args = HollowCli::parse_from(line.into_iter().chain(flags.split_whitespace())).args;
        let token = CancellationToken::new();
        let settings = args.settings().unwrap();
        Self { task: tokio::spawn(hollow::shell::run(settings, level(), token.clone())), token }
    }

    pub(crate) fn scheduler(kubeconfig: &Path) -> Self {
        let kubeconfig = kubeconfig.display().to_string();
        let line = ["scheduler", "--kubeconfig", &kubeconfig, "--seed=1", "--leader-elect=false"];
        let line = line.into_iter().chain(["--http-bind-address=127.0.0.1:0"]);
        let args = SchedulerCli::parse_from(line).args;
        let token = CancellationToken::new();
        Self { task: tokio::spawn(scheduler::shell::run(args, level(), token.clone())), token }
    }

    /// Ends it in order.
    pub(crate) async fn stop(mut self) {
        self.token.cancel();
        (&mut self.task).await.unwrap().unwrap();
    }

    /// Waits for its end, which something else brings about.
    pub(crate) async fn ended(mut self) -> anyhow::Result<()> {
        (&mut self.task).await.unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.token.cancel();
        self.task.abort();
    }
}

/// The log of this process.
fn level() -> log::Handle {
    static LEVEL: OnceLock<log::Handle> = OnceLock::new();
    LEVEL.get_or_init(|| log::init(log::Format::Text, 2).unwrap()).clone()
}

/// A control plane without nodes, and the kubeconfig of a user who may do what hollow nodes need.
pub(crate) async fn control_plane(rig: &testkit::env::Rig) -> (Cluster, Client, PathBuf) {
    let cluster = Cluster::builder().machines([]).crds(api::crd::NRT_CRD_YAML).start(rig).await.unwrap();
    let client = cluster.client().await.unwrap();
    let role = json!({ "metadata": { "name": USER }, "rules": hollow::rbac::cluster(true) });
    let role: ClusterRole = serde_json::from_value(role).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &role).await.unwrap();
    let group = "rbac.authorization.k8s.io";
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": { "name": USER },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": USER },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": USER }],
    }))
    .unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &binding).await.unwrap();
    let kubeconfig = cluster.control().kubeconfig_for(USER, "testers").unwrap();
    // The API server learns of rights a moment after they are there.
    let nodes = Api::<Node>::all(cluster.control().client_with(&kubeconfig).await.unwrap());
    eventually("rights of the user", async || nodes.list(&ListParams::default()).await.ok()).await;
    (cluster, client, kubeconfig)
}

/// Waits until `test` says something.
pub(crate) async fn eventually<T>(what: &str, test: impl AsyncFn() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = test().await {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

pub(crate) fn pods(client: &Client) -> Api<Pod> {
    Api::default_namespaced(client.clone())
}

/// The number of pods by phase, and by reason where there is one: `400 Running`.
pub(crate) async fn phases(client: &Client) -> String {
    let mut counts = std::collections::BTreeMap::<String, usize>::new();
    for pod in pods(client).list(&ListParams::default()).await.unwrap() {
        let status = pod.status.unwrap_or_default();
        let text = [status.phase, status.reason].into_iter().flatten().collect::<Vec<_>>().join(" ");
        *counts.entry(text).or_default() += 1;
    }
    counts.iter().map(|(text, count)| format!("{count} {text}")).collect::<Vec<_>>().join(", ")
}
