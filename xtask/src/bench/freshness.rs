//! `cargo xtask bench freshness`: how long the API server's view of a node's zones lags behind the kubelet.
//!
//! One real kubelet, one exporter. Pods are created on the node one after the other; an allocation has happened
//! when the kubelet has written `cpu_manager_state` (its modification time), a release when the pod object
//! disappears. Both end when a watch of the API server delivers the NRT object that shows them.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use api::nrt::NodeResourceTopology;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde::Serialize;
use sim::record::percentile;
use testkit::load;

use super::exporter::cpus;
use super::rig::{ExporterProgram, Shape, TestBed, build_dist};

/// Allocations and releases on a real kubelet, and when they show.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:\n  cargo xtask bench freshness --allocations 200 --json")]
pub(crate) struct Args {
    /// Number of pods
    #[arg(long, default_value_t = 200)]
    allocations: usize,
    /// Delete pods by force instead of gracefully
    #[arg(long)]
    force: bool,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
    /// The tholepin binary to measure; built with the profile `dist` when not given
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// The result, in milliseconds.
#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    allocations: usize,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    exporter_rss_mib: f64,
}

/// Nothing takes this long unless it never happens.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let binary = match &args.binary {
        Some(path) => path.clone(),
        None => build_dist()?,
    };
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(measure(&args, binary))
}

async fn measure(args: &Args, binary: PathBuf) -> anyhow::Result<()> {
    let mut bed =
        TestBed::start(Shape { nodes: 1, zones: 2, cpus_per_zone: 16, ..Shape::NONE }, false, binary).await?;
    bed.start_exporters(&ExporterProgram::Tholepin).await?;
    let node = bed.cluster.nodes().first().context("no node")?;
    let state = node.kubelet().root_dir().join("cpu_manager_state");
    let client = bed.cluster.client().await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut reports = watcher(Api::<NodeResourceTopology>::all(client.clone()), watcher::Config::default())
        .applied_objects()
        .boxed();
    let mut gone = watcher(pods.clone(), watcher::Config::default()).boxed();
    let full = wait_for(&mut reports, |_| true).await?;
    let (mut allocated, mut released) = (Vec::new(), Vec::new());
    for number in 0..args.allocations {
        let name = format!("pod-{number}");
        let mut pod = load::guaranteed_pod(&name, "none", [("cpu", "2"), ("memory", "64Mi")]);
        if let Some(spec) = &mut pod.spec {
            spec.node_name = Some(node.name().to_owned());
        }
        pods.create(&PostParams::default(), &pod).await?;
        wait_for(&mut reports, |cpus| cpus < full).await?;
        let seen = SystemTime::now();
        let written = std::fs::metadata(&state)?.modified()?;
        allocated.push(seen.duration_since(written).unwrap_or_default());
        let grace =
            if args.force { DeleteParams::default().grace_period(0) } else { DeleteParams::default() };
        pods.delete(&name, &grace).await?;
        released.push(release(&mut gone, &mut reports, full, &name).await?);
    }
    let rss = bed.exporters.first().context("no exporter")?.memory()?.peak_kib as f64 / 1024.0;
    let case = if args.force { "release-forced" } else { "release" };
    print(&row("allocation", allocated, rss), args.json)?;
    print(&row(case, released, rss), args.json)
}

/// Waits for the pod to disappear and for the report that shows it; the time between the two (0 if the report
/// came first).
async fn release(
    gone: &mut (impl futures::Stream<Item = watcher::Result<watcher::Event<Pod>>> + Unpin),
    reports: &mut (impl futures::Stream<Item = watcher::Result<NodeResourceTopology>> + Unpin),
    full: i64,
    name: &str,
) -> anyhow::Result<Duration> {
    let (mut deleted, mut shown) = (None, None);
    let wait = async {
        while deleted.is_none() || shown.is_none() {
            tokio::select! {
                event = gone.next() => {
                    if let watcher::Event::Delete(pod) = event.context("the watch ended")??
                        && pod.metadata.name.as_deref() == Some(name)
                    {
                        deleted = Some(SystemTime::now());
                    }
                }
                report = reports.next() => {
                    if cpus(&report.context("the watch ended")??)? >= full {
                        shown = Some(SystemTime::now());
                    }
                }
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, wait).await.context("the release never showed")??;
    let (Some(deleted), Some(shown)) = (deleted, shown) else { bail!("the release never showed") };
    Ok(shown.duration_since(deleted).unwrap_or_default())
}

/// Waits for a report with so many CPUs available.
async fn wait_for(
    reports: &mut (impl futures::Stream<Item = watcher::Result<NodeResourceTopology>> + Unpin),
    test: impl Fn(i64) -> bool,
) -> anyhow::Result<i64> {
    let wait = async {
        loop {
            let cpus = cpus(&reports.next().await.context("the watch ended")??)?;
            if test(cpus) {
                return anyhow::Ok(cpus);
            }
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.context("the report never came")?
}

fn row(case: &'static str, times: Vec<Duration>, rss: f64) -> Row {
    let mut micros: Vec<u64> =
        times.iter().map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)).collect();
    micros.sort_unstable();
    let tenths = |value: f64| (value * 10.0).round() / 10.0;
    let at = |percent| tenths(percentile(&micros, percent) as f64 / 1000.0);
    let exporter_rss_mib = tenths(rss);
    Row { case, allocations: times.len(), p50_ms: at(50), p99_ms: at(99), max_ms: at(100), exporter_rss_mib }
}

fn print(row: &Row, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(row)?);
    } else {
        println!(
            "{:<15} {:>4} pods  p50 {:>6.1} ms  p99 {:>6.1} ms  max {:>6.1} ms  exporter RSS {:.1} MiB",
            row.case, row.allocations, row.p50_ms, row.p99_ms, row.max_ms, row.exporter_rss_mib
        );
    }
    Ok(())
}
