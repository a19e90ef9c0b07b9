//! `cargo xtask bench operator`: what the operator costs a cluster of many nodes.
//!
//! In: our program, built with the profile `dist`, or the one that is given. Out: one row for each size. The
//! API server is real, nodes are objects without kubelets, and who plays kubelet and controller-manager is this
//! benchmark: it says of DaemonSets and Deployments that all their pods run.
//!
//! How it is measured:
//! - Memory is `VmRSS` at rest and `VmHWM`, the most there ever was, the lists at the start included.
//! - A reconcile's time is the operator's own, without waiting for the API server, of all reconciles: at the
//!   start, while what is asked for changes, and while nodes change. Its histogram doubles, so a percentile is
//!   a bound: it was not more.
//! - Writes and reconciles at rest are those of the time given with `--idle`, after everything has calmed down.
//! - Watches are those the API server has more than before the operator was started.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use api::crd::{NRT_CRD_YAML, OPERATOR_CRD_YAML, SCHEDULER_CRD_YAML};
use api::goduration::GoDuration;
use api::numaresources::{GROUP, VERSION, keys, operator, scheduler};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use serde::Serialize;
use serde_json::Value;
use testkit::cluster::install_crds;
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::env;
use testkit::process_group::{Process, Spec};

use super::figures::Figures;
use super::rig::{build_dist, get};

mod objects;

/// Where the operator works.
const NAMESPACE: &str = "numaresources";
/// How long the operator may take until everything is as it was asked for.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long nothing must have happened before rest is measured.
const CALM: Duration = Duration::from_secs(3);

/// Footprint of the operator.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo xtask bench operator --nodes 500 --idle 60s --json")]
pub(crate) struct Args {
    /// So many nodes; may be repeated
    #[arg(long, value_name = "COUNT", default_values_t = [500, 5000])]
    nodes: Vec<usize>,
    /// How often what is asked for changes
    #[arg(long, default_value_t = 20)]
    changes: usize,
    /// How long rest is measured
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = GoDuration::parse_std)]
    idle: Duration,
    /// One JSON object for each size instead of text
    #[arg(long)]
    json: bool,
    /// The tholepin binary to measure; built with the profile `dist` when not given
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Row {
    nodes: usize,
    groups: usize,
    rss_mib: f64,
    rss_peak_mib: f64,
    /// From the request to both objects being `Available`.
    available_ms: f64,
    reconciles: f64,
    reconcile_p50_ms: Option<f64>,
    reconcile_p99_ms: Option<f64>,
    reconciles_per_minute_at_rest: f64,
    writes_per_minute_at_rest: f64,
    watches: f64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let binary = match &args.binary {
        Some(path) => path.clone(),
        None => build_dist()?,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        for nodes in &args.nodes {
            let row = measure(args, *nodes, &binary).await?;
            if args.json {
                println!("{}", serde_json::to_string(&row)?);
            } else {
                tell(&row);
            }
        }
        Ok(())
    })
}

fn tell(row: &Row) {
    let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1} ms"));
    println!(
        "{} nodes in {} groups: {:.1} MiB at rest, {:.1} MiB at most; available after {:.0} ms; {} reconciles, p50 at most {}, p99 at most \
         {}; at rest {:.1} reconciles and {:.1} writes a minute; {} watches",
        row.nodes,
        row.groups,
        row.rss_mib,
        row.rss_peak_mib,
        row.available_ms,
        row.reconciles,
        ms(row.reconcile_p50_ms),
        ms(row.reconcile_p99_ms),
        row.reconciles_per_minute_at_rest,
        row.writes_per_minute_at_rest,
        row.watches
    );
}

/// A cluster with an operator.
struct TestBed {
    // Before the server it talks to.
    process: Process,
    client: Client,
    metrics: u16,
    _plane: ControlPlane,
}

async fn measure(args: &Args, nodes: usize, binary: &Path) -> anyhow::Result<Row> {
    let rig = match env::check() {
        Ok(rig) => rig,
        Err(reason) => bail!("the benchmark needs the rig: {reason}"),
    };
    let plane = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await?;
    let client = plane.client().await?;
    eprintln!("making {nodes} nodes");
    for definition in [NRT_CRD_YAML, OPERATOR_CRD_YAML, SCHEDULER_CRD_YAML] {
        install_crds(&client, definition).await?;
    }
    objects::prepare(&client, nodes).await?;
    let before = watches(&client).await?;
    let bed = TestBed::start(plane, client, binary).await?;
    let began = Instant::now();
    objects::ask(&bed.client).await?;
    bed.available().await?;
    let available_ms = began.elapsed().as_secs_f64() * 1e3;
    eprintln!("changing what is asked for {} times, and labels of nodes", args.changes);
    for round in 0..args.changes {
        bed.change(round).await?;
        objects::relabel(&bed.client, nodes, round).await?;
    }
    let watches = watches(&bed.client).await? - before;
    bed.calm().await?;
    let figures = bed.figures().await?;
    eprintln!("resting for {:?}", args.idle);
    tokio::time::sleep(args.idle).await;
    let after = bed.figures().await?;
    let per_minute =
        |name: &str| (after.sum(name) - figures.sum(name)) * 60.0 / args.idle.as_secs_f64().max(1.0);
    let memory = bed.process.memory()?;
    let mib = |kib: u64| kib as f64 / 1024.0;
    let quantile =
        |part| after.quantile("tholepin_operator_reconcile_seconds", part).map(|seconds| seconds * 1e3);
    Ok(Row {
        nodes,
        groups: objects::GROUPS.len(),
        rss_mib: mib(memory.rss_kib),
        rss_peak_mib: mib(memory.peak_kib),
        available_ms,
        reconciles: after.sum("tholepin_operator_reconciles_total"),
        reconcile_p50_ms: quantile(0.5),
        reconcile_p99_ms: quantile(0.99),
        reconciles_per_minute_at_rest: per_minute("tholepin_operator_reconciles_total"),
        writes_per_minute_at_rest: per_minute("tholepin_operator_writes_total"),
        watches,
    })
}

impl TestBed {
    /// Starts the operator and waits until it has seen everything.
    async fn start(plane: ControlPlane, client: Client, binary: &Path) -> anyhow::Result<Self> {
        let (metrics, health) = (testkit::port::free()?, testkit::port::free()?);
        let kubeconfig = plane.kubeconfig().display().to_string();
        let spec = Spec::new("tholepin-operator", binary)
            .args(["operator", "--leader-elect=false", "--namespace", NAMESPACE, "--platform", "kubernetes"])
            .args(["--kubeconfig", kubeconfig.as_str()])
            .args(["--metrics-bind-address".to_owned(), format!("127.0.0.1:{metrics}")])
            .args(["--health-probe-bind-address".to_owned(), format!("127.0.0.1:{health}")]);
        let process = plane.process_group().spawn(spec)?;
        let is_ready =
            async || get(health, "/readyz").await.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"));
        process.wait_until("ready", PATIENCE, is_ready).await?;
        Ok(Self { process, client, metrics, _plane: plane })
    }

    /// Plays kubelets and controller-manager until both objects are `Available`.
    async fn available(&self) -> anyhow::Result<()> {
        let done = async || {
            let played = objects::play(&self.client, NAMESPACE).await;
            let kinds = [(operator::KIND, keys::OPERATOR), (scheduler::KIND, keys::SCHEDULER)];
            let mut all = played.is_ok();
            for (kind, name) in kinds {
                all &= objects::is_available(&self.client, kind, name).await.unwrap_or(false);
            }
            all
        };
        self.process.wait_until("done with what was asked for", PATIENCE, done).await
    }

    /// Asks for something else.
    async fn change(&self, round: usize) -> anyhow::Result<()> {
        let level = if round.is_multiple_of(2) { "Debug" } else { "Normal" };
        let spec = serde_json::json!({"spec": {"logLevel": level}});
        let api = objects::api(&self.client, GROUP, VERSION, operator::KIND, None);
        api.patch(keys::OPERATOR, &PatchParams::default(), &Patch::Merge(spec)).await?;
        self.available().await
    }

    /// Waits until the operator has not looked at anything for a while.
    async fn calm(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        let count = async || anyhow::Ok(self.figures().await?.sum("tholepin_operator_reconciles_total"));
        let mut last = count().await?;
        loop {
            tokio::time::sleep(CALM).await;
            let now = count().await?;
            if now == last {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "the operator does not come to rest");
            last = now;
        }
    }

    async fn figures(&self) -> anyhow::Result<Figures> {
        let answer = get(self.metrics, "/metrics").await.context("metrics of the operator")?;
        Ok(Figures::parse(&answer))
    }
}

/// How many watches the API server serves.
async fn watches(client: &Client) -> anyhow::Result<f64> {
    let request = Request::new("").get("metrics", &kube::api::GetParams::default())?;
    let text = client.request_text(request).await?;
    Ok(Figures::parse(&text).sum_where("apiserver_longrunning_requests", "verb=\"WATCH\""))
}
