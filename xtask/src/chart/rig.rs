//! The chart on a real cluster: installed, upgraded, rolled back, uninstalled.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::ApiResource;
use kube::{Client, ResourceExt};
use testkit::cluster::Cluster;
use testkit::cri::{Image, Images};
use testkit::dump::{assert_same, dump, settled};
use testkit::machine::Machine;
use testkit::{env, load, net};

use super::tests::{command, helm, written};
use crate::gotool::output;

/// Far above what anything here takes, for a machine busy with compiling.
const PATIENCE: Duration = Duration::from_secs(60);
/// The namespace of the release, which Helm does not make.
const NAMESPACE: &str = "numa";
/// The definition, which stays.
const DEFINITION: &str = "noderesourcetopologies.topology.node.k8s.io";

/// Helm, for one cluster.
struct Helm {
    program: PathBuf,
    home: tempfile::TempDir,
    chart: tempfile::TempDir,
    kubeconfig: PathBuf,
}

impl Helm {
    /// Runs a command with words after the release's name, and waits until everything is ready.
    fn run(&self, action: &[&str], words: &[&str]) {
        let mut command = self.command(action);
        command.args(["--wait", "--timeout", "60s"]).args(words);
        let began = Instant::now();
        output(&mut command).unwrap();
        println!("helm {} took {:?}", action.join(" "), began.elapsed());
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = command(&self.program, self.home.path(), words);
        command.args(["--namespace", NAMESPACE, "--kubeconfig"]).arg(&self.kubeconfig);
        command
    }

    fn chart(&self) -> &str {
        self.chart.path().to_str().unwrap()
    }

    /// The last revision's number and state.
    fn status(&self) -> (u64, String) {
        let (text, _) = output(&mut self.command(&["status", "numa-release", "--output", "json"])).unwrap();
        let status: serde_json::Value = serde_json::from_str(&text).unwrap();
        (status["version"].as_u64().unwrap(), status["info"]["status"].as_str().unwrap().to_owned())
    }
}

#[test]
fn a_release_comes_changes_goes_back_and_leaves_nothing() {
    let Ok(rig) = env::rig() else { return };
    let (Some(helm), Some(program)) = (helm(), env::tholepin()) else {
        eprintln!("SKIPPED: no helm or no tholepin; cargo xtask testenv and cargo build make them");
        assert!(std::env::var_os(env::REQUIRE).is_none_or(|value| value.is_empty()));
        return;
    };
    net::private(async |network| {
        let images = Images::new()
            .with("tholepin:0.1.0", Image::program(program.clone()))
            .with("tholepin:next", Image::program(program))
            .with("pause", Image::pause());
        let machines = [2, 4].map(|zones| Machine::new().zones(zones).cpus_per_zone(8));
        let cluster = Cluster::builder().machines(machines).installable(network, images);
        let cluster = cluster.start(&rig).await.unwrap();
        let client = cluster.client().await.unwrap();
        make_namespace(&client).await;
        settled(&client).await.unwrap();
        let helm = Helm {
            program: helm,
            home: tempfile::tempdir().unwrap(),
            chart: written("tholepin"),
            kubeconfig: cluster.control().kubeconfig().to_owned(),
        };
        let before = dump(&client).await.unwrap();
        changes(&client, &helm).await;
        // Afterwards a scheduler may be refused its lease: Helm takes rights away while pods end.
        let denied: Vec<_> = cluster.denied().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(denied, [""; 0]);
        uninstall(&client, &helm).await;
        assert_same(&before, &dump(&client).await.unwrap());
    })
    .unwrap();
}

/// From nothing to a release, to another one, and back to the first.
async fn changes(client: &Client, helm: &Helm) {
    helm.run(&["install", "numa-release", helm.chart()], &[]);
    reports(client).await;
    aligned_pod(client, "first", "topo-aware-scheduler").await;
    assert_eq!(images(client).await, ["tholepin:0.1.0", "tholepin:0.1.0"]);

    let changes = ["--set", "image.tag=next,scheduler.replicas=2,scheduler.schedulerName=numa"];
    helm.run(&["upgrade", "numa-release", helm.chart()], &changes);
    assert_eq!(images(client).await, ["tholepin:next", "tholepin:next"]);
    assert_eq!(replicas(client).await, Some(2));
    aligned_pod(client, "second", "numa").await;

    helm.run(&["rollback", "numa-release", "1"], &[]);
    assert_eq!(helm.status(), (3, "deployed".to_owned()));
    assert_eq!(images(client).await, ["tholepin:0.1.0", "tholepin:0.1.0"]);
    assert_eq!(replicas(client).await, Some(1));
    aligned_pod(client, "third", "topo-aware-scheduler").await;
}

/// Until no controller has anything to do.
async fn uninstall(client: &Client, helm: &Helm) {
    helm.run(&["uninstall", "numa-release"], &[]);
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.delete(DEFINITION, &DeleteParams::default()).await.expect("the definition was kept");
    until("the definition is gone", async || definitions.get_opt(DEFINITION).await.unwrap().is_none()).await;
    let pods: Api<Pod> = Api::all(client.clone());
    until("pods are gone", async || pods.list(&ListParams::default()).await.unwrap().items.is_empty()).await;
    settled(client).await.unwrap();
}

async fn make_namespace(client: &Client) {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(NAMESPACE.to_owned());
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
}

/// Every node has a report.
async fn reports(client: &Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list(&ListParams::default()).await.unwrap();
    let mut wanted: Vec<String> = nodes.iter().map(ResourceExt::name_any).collect();
    wanted.sort();
    let kind = ApiResource {
        group: "topology.node.k8s.io".to_owned(),
        version: "v1alpha2".to_owned(),
        api_version: "topology.node.k8s.io/v1alpha2".to_owned(),
        kind: "NodeResourceTopology".to_owned(),
        plural: "noderesourcetopologies".to_owned(),
    };
    let reports: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    until("reports of all nodes", async || {
        let all = reports.list(&ListParams::default()).await.unwrap();
        let mut names: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
        names.sort();
        names == wanted
    })
    .await;
}

/// A pod that only fits aligned runs, placed by our scheduler; then it is deleted.
async fn aligned_pod(client: &Client, name: &str, scheduler: &str) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = load::guaranteed_pod(name, scheduler, [("cpu", "6"), ("memory", "64Mi")]);
    pods.create(&PostParams::default(), &pod).await.unwrap();
    until("the pod runs", async || {
        let status = pods.get(name).await.unwrap().status.unwrap_or_default();
        assert_ne!(status.phase.as_deref(), Some("Failed"), "{status:?}");
        status.phase.as_deref() == Some("Running")
    })
    .await;
    pods.delete(name, &DeleteParams::default()).await.unwrap();
    until("the pod is gone", async || pods.get_opt(name).await.unwrap().is_none()).await;
}

/// The images of exporter and scheduler.
async fn images(client: &Client) -> [String; 2] {
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), NAMESPACE);
    let exporter = sets.get("tholepin-exporter").await.unwrap().spec.unwrap().template;
    let scheduler = deployment(client).await.spec.unwrap().template;
    [exporter, scheduler].map(|template| template.spec.unwrap().containers.remove(0).image.unwrap())
}

async fn replicas(client: &Client) -> Option<i32> {
    deployment(client).await.spec.unwrap().replicas
}

async fn deployment(client: &Client) -> Deployment {
    let all: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    all.get("tholepin-scheduler").await.unwrap()
}

/// Waits until it holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "{what}: still not after {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
