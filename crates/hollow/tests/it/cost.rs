//! What many hollow nodes cost, on demand: `HOLLOW_NODES=5000 cargo test -p hollow --test it -- --ignored --nocapture
//! cost::idle`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use api::nrt::NodeResourceTopology;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use testkit::cluster::Cluster;
use testkit::process_group::{Process, Spec};

use crate::cluster::Running;

/// The variable with the kubeconfig of [`hollow_process`].
const KUBECONFIG: &str = "HOLLOW_KUBECONFIG";
/// The variable with the number of nodes.
const NODES: &str = "HOLLOW_NODES";
/// How long the start may take.
const START: Duration = Duration::from_secs(400);
/// How long the idle process is watched: longer than one period of the heartbeats.
const IDLE: Duration = Duration::from_secs(80);

fn count() -> usize {
    std::env::var(NODES).ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}

#[tokio::test]
#[ignore = "a part of another test"]
async fn hollow_process() {
    let Some(kubeconfig) = std::env::var_os(KUBECONFIG) else { return };
    let flags = format!("--nodes {} --machine 2x32+gpu4 --qps 2000", count());
    Running::hollow(&PathBuf::from(kubeconfig), &flags).ended().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes with many nodes"]
async fn idle() {
    let Ok(rig) = testkit::env::rig() else { return };
    let cluster = Cluster::builder().machines([]).crds(api::crd::NRT_CRD_YAML).start(&rig).await.unwrap();
    let client = cluster.client().await.unwrap();
    let spec = Spec::new("hollow", std::env::current_exe().unwrap())
        .args(["--exact", "cost::hollow_process", "--ignored", "--nocapture"])
        .env(KUBECONFIG, cluster.control().kubeconfig().display().to_string())
        .env(NODES, count().to_string());
    let began = Instant::now();
    let process = cluster.spawn(spec).unwrap();
    let reports = Api::<NodeResourceTopology>::all(client.clone());
    let nodes = Api::<Node>::all(client.clone());
    while reports.list_metadata(&ListParams::default()).await.unwrap().items.len() < count() {
        assert!(process.exit().is_none() && began.elapsed() < START, "{}", process.log_tail(20));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(nodes.list_metadata(&ListParams::default()).await.unwrap().items.len(), count());
    let started = began.elapsed();
    let (before, at) = (cpu_s(&process), Instant::now());
    tokio::time::sleep(IDLE).await;
    let share = (cpu_s(&process) - before) / at.elapsed().as_secs_f64();
    let memory = process.memory().unwrap();
    println!(
        "{} nodes: started in {started:.1?}, idle {:.1} % of a core, {} MiB resident, {} MiB at most",
        count(),
        share * 100.0,
        memory.rss_kib / 1024,
        memory.peak_kib / 1024
    );
    assert!(share < 0.1, "{share}");
    assert!(memory.peak_kib < 300 * 1024, "{memory:?}");
}

/// Seconds of the processor that a process has used.
fn cpu_s(process: &Process) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid())).unwrap();
    // Fields 14 and 15 are user and system time, counted behind the name in parentheses, in hundredths of seconds.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_whitespace().skip(11).take(2).map(|text| text.parse::<u64>().unwrap());
    ticks.sum::<u64>() as f64 / 100.0
}
