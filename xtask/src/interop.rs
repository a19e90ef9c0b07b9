//! Our parts beside those of others, with a real kubelet: reports of resource-topology-exporter and of
//! nfd-topology-updater before our scheduler, and our exporter's reports before the Go plugin.
//!
//! `cargo xtask nightly interop` builds the others' programs (`INTEROP=1`), which takes minutes; other runs use the
//! exporters that are in the cache. The Go scheduler leaves pods that it has refused for minutes.

use std::path::PathBuf;
use std::time::Duration;

use api::nrt::NodeResourceTopology;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde_json::Value;
use testkit::load::guaranteed_pod;
use tokio::time::{Instant, sleep};
use topology::policy::Scope;

use crate::bench::rig::{ExporterProgram, Shape, TOPO_AWARE, TestBed};
use crate::gotool::{GoTool, NFD, RTE, SCHEDULER_PLUGINS, is_set};

/// A node with zones of 7 and 8 CPUs.
const NODE: Shape =
    Shape { nodes: 1, zones: 2, cpus_per_zone: 8, mixed: false, policy: None, scope: Scope::Container };

/// CPUs of each pod: a zone has room for one, and two zones have enough CPUs for three.
const CPUS: &str = "5";

/// How often the others look at the kubelet: most of the story happens between two looks.
const INTERVAL: Duration = Duration::from_secs(5);

/// Far above what a step takes. A pod that the Go scheduler has refused may wait for minutes.
const PATIENCE: Duration = Duration::from_secs(400);

const ASKED: &str = "INTEROP";

fn exporter(tool: GoTool) -> Option<PathBuf> {
    tool.asked(ASKED, "interop")
}

/// A node without an exporter.
async fn bed() -> Option<TestBed> {
    let rig = testkit::env::rig();
    assert!(rig.is_ok() || !is_set(ASKED), "the rig is needed");
    rig.ok()?;
    let binary = testkit::env::tholepin().expect("cargo xtask test builds the binary");
    Some(TestBed::start(NODE, false, binary).await.unwrap())
}

/// The pods of a test.
struct Pods(Api<Pod>);

impl Pods {
    fn new(client: Client) -> Self {
        Self(Api::default_namespaced(client))
    }

    async fn create(&self, name: &str) {
        let pod = guaranteed_pod(name, TOPO_AWARE, [("cpu", CPUS), ("memory", "64Mi")]);
        self.0.create(&PostParams::default(), &pod).await.unwrap();
    }

    async fn delete(&self, name: &str) {
        self.0.delete(name, &DeleteParams::default()).await.unwrap();
    }

    async fn eventually<T>(&self, name: &str, what: &str, test: impl Fn(&Pod) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let pod = self.0.get(name).await.unwrap();
            let reason = pod.status.as_ref().and_then(|status| status.reason.as_deref());
            assert_eq!(reason, None, "{name} is lost: {:?}", pod.status);
            if let Some(value) = test(&pod) {
                return value;
            }
            assert!(Instant::now() < deadline, "{name}: not {what} within {PATIENCE:?}: {:?}", pod.status);
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn runs(&self, name: &str) {
        let is_running = |pod: &Pod| {
            let phase = pod.status.as_ref()?.phase.as_deref()?;
            (phase == "Running").then_some(())
        };
        self.eventually(name, "running", is_running).await;
    }

    /// Two zones have five CPUs together, and none has five alone.
    async fn is_refused(&self, name: &str) {
        let refusal = |pod: &Pod| {
            let conditions = pod.status.as_ref()?.conditions.as_ref()?;
            conditions.iter().find(|it| it.type_ == "PodScheduled" && it.status == "False")?.message.clone()
        };
        let message = self.eventually(name, "refused", refusal).await;
        let wanted = "0/1 nodes are available: 1 cannot align container";
        assert!(message.starts_with(wanted), "{name}: {message}");
    }
}

/// Pods come and leave between two reports, and around a restart of our scheduler. None is lost, none waits for a
/// report, and in the end a report has confirmed the ledger.
async fn reports_are_understood(exporter: ExporterProgram) {
    let Some(mut bed) = bed().await else { return };
    bed.start_exporters(&exporter).await.unwrap();
    bed.start_scheduler().await.unwrap();
    let pods = Pods::new(bed.cluster.client().await.unwrap());
    pods.create("pod-0").await;
    pods.create("pod-1").await;
    pods.runs("pod-0").await;
    pods.runs("pod-1").await;
    for last in 2..8 {
        let next = format!("pod-{last}");
        pods.create(&next).await;
        pods.is_refused(&next).await;
        if last == 5 {
            // All that the next leader knows of zones is what the report says.
            confirmed(&bed).await;
            bed.scheduler = None;
            bed.start_scheduler().await.unwrap();
        }
        pods.delete(&format!("pod-{}", last - 2)).await;
        pods.runs(&next).await;
    }
    confirmed(&bed).await;
}

/// Waits until the newest report is understood and shows all admitted pods.
async fn confirmed(bed: &TestBed) {
    let metrics = ["tholepin_ledger_unexplained_reports", "tholepin_ledger_age_seconds"];
    let are_zero = async || {
        let values = futures::future::join_all(metrics.map(|name| bed.scheduler_metric(name))).await;
        values.iter().all(|value| *value == Some(0.0))
    };
    let scheduler = bed.scheduler.as_ref().unwrap();
    scheduler.wait_until("confirmed by a report", PATIENCE, are_zero).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_of_resource_topology_exporter_are_understood() {
    let Some(program) = exporter(RTE) else { return };
    reports_are_understood(ExporterProgram::Rte { program, interval: INTERVAL }).await;
    println!("interop: resource-topology-exporter's reports: no pod lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_of_nfd_topology_updater_are_understood() {
    let Some(program) = exporter(NFD) else { return };
    reports_are_understood(ExporterProgram::Nfd { program, interval: INTERVAL }).await;
    println!("interop: nfd-topology-updater's reports: no pod lost");
}

/// The Go plugin charges a pod to both zones until a report of ours has the fingerprint of the node's pods.
#[tokio::test(flavor = "multi_thread")]
async fn the_go_plugin_understands_our_reports() {
    if !is_set(ASKED) {
        eprintln!("SKIPPED: cargo xtask nightly interop has the Go plugin place pods, for minutes");
        return;
    }
    let program = SCHEDULER_PLUGINS.program().unwrap();
    let Some(mut bed) = bed().await else { return };
    bed.start_exporters(&ExporterProgram::Tholepin).await.unwrap();
    let file = SCHEDULER_PLUGINS.module().join("config.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let config: Value = runtime::yaml::read_many("config.yaml", &text, 1).unwrap().remove(0);
    let control = bed.cluster.control();
    let config = control.scheduler_config_of("peer", config).unwrap();
    let _scheduler = control.start_scheduler_program(&program, &config).await.unwrap();
    let client = bed.cluster.client().await.unwrap();
    let pods = Pods::new(client.clone());
    pods.create("pod-0").await;
    pods.create("pod-1").await;
    pods.runs("pod-0").await;
    pods.runs("pod-1").await;
    pods.create("pod-2").await;
    pods.is_refused("pod-2").await;
    pods.delete("pod-0").await;
    pods.runs("pod-2").await;
    let reports: Api<NodeResourceTopology> = Api::all(client);
    let node = bed.cluster.nodes()[0].name();
    let attributes = reports.get(node).await.unwrap().attributes;
    assert!(attributes.iter().any(|it| it.name == "nodeTopologyPodsFingerprint"), "{attributes:?}");
    println!("interop: the Go plugin understands our reports");
}
