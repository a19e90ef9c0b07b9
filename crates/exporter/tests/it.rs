//! The exporter against a real API server and real kubelets.
//!
//! Needs the rig; where its parts are missing, each test says so and passes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking; the exemption for tests misses helpers")]

#[path = "it/access.rs"]
mod access;
#[path = "it/allocation.rs"]
mod allocation;
#[path = "it/cli.rs"]
mod cli;
#[path = "it/configuration.rs"]
mod configuration;
#[path = "it/devices.rs"]
mod devices;
#[path = "it/faults.rs"]
mod faults;
#[path = "it/garbage.rs"]
mod garbage;
#[path = "it/holdings.rs"]
mod holdings;
#[path = "it/modes.rs"]
mod modes;
#[path = "it/outage.rs"]
mod outage;
#[path = "it/parity.rs"]
mod parity;
#[path = "it/policies.rs"]
mod policies;
#[path = "it/readiness.rs"]
mod readiness;
#[path = "it/sequences.rs"]
mod sequences;
#[path = "it/validity.rs"]
mod validity;

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use api::crd::NRT_CRD_YAML;
use api::nrt::NodeResourceTopology;
use api::nrt::attribute;
use clap::Parser as _;
use exporter::Settings;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use testkit::cluster::{Builder, Cluster};
use testkit::load;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Far above what anything here takes, for a machine busy with compiling.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    args: exporter::Args,
}

/// An exporter running in this process; dropping it ends it.
struct Exporter {
    token: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Exporter {
    /// Runs with these flags.
    fn start(flags: &[String]) -> Self {
        let (args, token) = (args(flags), CancellationToken::new());
        let ends = token.clone();
        let task = tokio::spawn(async move { exporter::run(args.settings()?, ends).await });
        Self { token, task }
    }

    /// Runs with these settings.
    fn with(settings: Settings) -> Self {
        let token = CancellationToken::new();
        Self { task: tokio::spawn(exporter::run(settings, token.clone())), token }
    }

    /// Ends it in order.
    async fn stop(mut self) {
        self.token.cancel();
        (&mut self.task).await.unwrap().unwrap();
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.token.cancel();
        self.task.abort();
        if !std::thread::panicking() {
            assert_eq!(*INVALID.lock().unwrap(), <[String; 0]>::default());
        }
    }
}

/// What was wrong with objects so far, in any test: many are seen by tasks without a waiter.
static INVALID: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// An object as a type. It has to be valid, unless the test changed it by hand.
fn valid(object: DynamicObject) -> NodeResourceTopology {
    let object = serde_json::to_value(object).unwrap();
    if !validity::is_by_hand(&object)
        && let Err(wrong) = validity::check(&object, &validity::Expected::default())
    {
        INVALID.lock().unwrap().push(format!("{wrong:?} in {object}"));
        assert_eq!(wrong, <[String; 0]>::default(), "{object:#}");
    }
    serde_json::from_value(object).unwrap()
}

/// The objects of this kind, as they are on the wire.
fn raw(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<NodeResourceTopology>(&()))
}

fn args(flags: &[String]) -> exporter::Args {
    Cli::parse_from(std::iter::once("exporter").chain(flags.iter().map(String::as_str))).args
}

/// What flags say.
fn settings(flags: &[String]) -> Settings {
    args(flags).settings().unwrap()
}

/// The flags an exporter of this node needs.
fn flags(cluster: &Cluster, number: usize) -> Vec<String> {
    let node = &cluster.nodes()[number];
    let root = node.kubelet().root_dir();
    let path = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
    vec![
        format!("--hostname={}", node.name()),
        format!("--podresources-socket=unix://{}", node.podresources_socket().display()),
        path("sysfs", &node.kubelet().machine().sys()),
        path("kubelet-state-dir", root),
        path("kubelet-config-file", &node.kubelet().config_file()),
        path("kubeconfig", cluster.control().kubeconfig()),
        "--metrics-port=0".to_owned(),
    ]
}

/// A cluster with the NRT kind, or `None` where the rig cannot run.
async fn cluster(describe: impl FnOnce(Builder) -> Builder) -> Option<Cluster> {
    let rig = testkit::env::rig().ok()?;
    let _ = tracing_subscriber::fmt()
        .with_env_filter("warn,exporter=debug,kube_client=off")
        .with_test_writer()
        .try_init();
    let cluster = describe(Cluster::builder().crds(NRT_CRD_YAML)).start(&rig).await.unwrap();
    // Whatever the test looks at, every object is checked.
    let mut all = states(&cluster.client().await.unwrap());
    tokio::spawn(async move { while all.recv().await.is_some() {} });
    Some(cluster)
}

/// Waits until `ask` has an answer.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: still not after {PATIENCE:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Every state of the objects of this kind, with the time it was seen through the API server.
fn states(client: &Client) -> mpsc::UnboundedReceiver<(Instant, NodeResourceTopology)> {
    let api = raw(client);
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            if let Ok(watcher::Event::Apply(nrt) | watcher::Event::InitApply(nrt)) = event
                && sender.send((Instant::now(), valid(nrt))).is_err()
            {
                return;
            }
        }
    });
    receiver
}

async fn next<T>(receiver: &mut mpsc::UnboundedReceiver<T>) -> T {
    timeout(PATIENCE, receiver.recv()).await.expect("an event in time").unwrap()
}

/// The object of `node-0` once it shows this of a resource.
async fn shows(client: &Client, resource: &str, wanted: &str) -> NodeResourceTopology {
    node_shows(client, "node-0", resource, wanted).await
}

/// The object of a node once it shows this of a resource.
async fn node_shows(client: &Client, node: &str, resource: &str, wanted: &str) -> NodeResourceTopology {
    let api = raw(client);
    let mut last = String::new();
    let began = Instant::now();
    loop {
        if let Ok(nrt) = api.get(node).await {
            let nrt = valid(nrt);
            last = show(&nrt, resource);
            if last == wanted {
                return nrt;
            }
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{resource} of {node}: {wanted:?} wanted, still {last:?} after {PATIENCE:?}"
        );
        sleep(Duration::from_millis(5)).await;
    }
}

/// A Guaranteed pod already bound to the node.
fn bound_pod(name: &str, node: &str, cpus: u32) -> Pod {
    let cpus = cpus.to_string();
    let mut pod = load::guaranteed_pod(name, "nobody", [("cpu", cpus.as_str()), ("memory", "64Mi")]);
    pod.spec.get_or_insert_default().node_name = Some(node.to_owned());
    pod
}

/// Creates a Guaranteed pod already bound to the node.
async fn place(client: &Client, name: &str, node: &str, cpus: u32) -> Pod {
    let pods = Api::<Pod>::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &bound_pod(name, node, cpus)).await.unwrap()
}

/// Waits until the pod runs: only then has the kubelet written all it has to say about it. (One that is killed between
/// its memory manager's two writes refuses to start ever after.)
async fn runs(client: &Client, name: &str) {
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let phase = async || pods.get(name).await.unwrap().status.unwrap_or_default().phase;
    until("running", async || (phase().await.as_deref() == Some("Running")).then_some(())).await;
}

/// `0 28/31/32 | 1 ..`: available, allocatable and capacity of one resource in every zone.
fn show(nrt: &NodeResourceTopology, resource: &str) -> String {
    let zone = |zone: &api::nrt::Zone| {
        let amounts = zone.resources.iter().find(|r| r.name == resource);
        let amounts = amounts
            .map_or("-".to_owned(), |r| format!("{}/{}/{}", r.available.0, r.allocatable.0, r.capacity.0));
        format!("{} {amounts}", zone.name.trim_start_matches("node-"))
    };
    nrt.zones.iter().map(zone).collect::<Vec<_>>().join(" | ")
}

fn fingerprint(nrt: &NodeResourceTopology) -> &str {
    attribute::get(&nrt.attributes, api::keys::ATTRIBUTE_FINGERPRINT).unwrap_or_default()
}
