//! `cargo xtask bench schedule`: how many pods a second a scheduler places, on a real API server without kubelets.
//!
//! One scheduler after the other, each on a fresh control plane with the same nodes. The scheduler is stopped while the
//! pods are created, and time runs from the moment it goes on: else the rate at which pods can be created would be
//! measured. Then pods arrive at a steady rate, for latencies.
//!
//! With `--numa` the nodes are hollow ones (`tholepin hollow`): zones are reported, kubelets run or reject pods, which
//! are Guaranteed. tholepin is measured twice, the first time without a look at zones. Hollow nodes use the same
//! processors as all else.

mod contender;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use api::nrt::NodeResourceTopology;
use clap::ValueEnum;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Binding, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::Serialize;
use serde_json::json;
use sim::record::percentile;
use testkit::process_group::{Process, Spec};

use self::contender::{Contender, StartedScheduler};
use super::bound_pods::BoundPods;
use super::rig::{Shape, TestBed, build_dist};
use super::scheduler_perf;
use crate::gotool::SCHEDULER_PLUGINS;

/// Pods a second, on a real API server without kubelets.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask bench schedule --nodes 1000 --pods 3000 --json\n  \
    cargo xtask bench schedule --nodes 5000 --pods 10000 --schedulers tholepin\n  \
    cargo xtask bench schedule --scheduler-perf SchedulingBasic,TopologySpreading --json\n  \
    cargo xtask bench schedule --scheduler-perf all --scale 0.1\n  \
    cargo xtask bench schedule --nodes 1000 --pods 3000 --numa --zones 8 --rounds 3\n  \
    cargo xtask bench schedule --nodes 200 --pods 600 --numa --peer scheduler-plugins\n  \
    cargo xtask bench schedule --numa --peer bin/kube-scheduler --peer-config scheduler.yaml")]
pub(crate) struct Args {
    /// Number of nodes
    #[arg(long, default_value_t = 1000)]
    nodes: usize,
    /// Number of pods
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u64).range(1..))]
    pods: u64,
    /// Pods that arrive afterwards, for latencies
    #[arg(long, default_value_t = 500)]
    arrivals: u64,
    /// Arrivals a second
    #[arg(long, default_value_t = 100)]
    rate: u32,
    /// Nodes with zones that report what they have left, and pods whose CPUs must be in one zone
    #[arg(long)]
    numa: bool,
    /// Zones of each node, which share its 32 CPUs
    #[arg(long, requires = "numa", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=8))]
    zones: u32,
    /// Another scheduler that takes kube-scheduler's flags; scheduler-plugins: that of the Go plugins, which is built
    #[arg(long, value_name = "FILE")]
    peer: Option<PathBuf>,
    /// Its KubeSchedulerConfiguration; client and leader election are replaced
    #[arg(long, value_name = "FILE", requires = "peer")]
    peer_config: Option<PathBuf>,
    /// How often to measure each scheduler, by turns; the row has the median rate, and the ratios to the first
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Which schedulers
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = SchedulerChoice::ALL)]
    schedulers: Vec<SchedulerChoice>,
    /// One JSON object per scheduler and line instead of a table
    #[arg(long)]
    json: bool,
    /// The tholepin binary to measure; built with the profile `dist` when not given
    #[arg(long)]
    binary: Option<PathBuf>,
    #[command(flatten)]
    scheduler_perf: scheduler_perf::Args,
}

/// A scheduler to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum SchedulerChoice {
    KubeScheduler,
    Tholepin,
}

impl SchedulerChoice {
    const ALL: [Self; 2] = [Self::KubeScheduler, Self::Tholepin];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::KubeScheduler => "kube-scheduler",
            Self::Tholepin => "tholepin",
        }
    }
}

/// One line of the result.
#[derive(Debug, Serialize)]
struct Row {
    scheduler: String,
    /// Whether nodes have zones and the scheduler looks at them.
    numa: bool,
    zones: u32,
    nodes: usize,
    pods: u64,
    pods_per_s: f64,
    /// The median of `rate_ratios`.
    rate_ratio: Option<f64>,
    /// The rate beside that of the first scheduler in the same round, of each round.
    rate_ratios: Vec<f64>,
    p50_ms: Option<u64>,
    p99_ms: Option<u64>,
    rss_mib: u64,
    cpu_s_per_1000_pods: f64,
    raw_binds_per_s: f64,
    /// Pods that kubelets rejected; `None` without kubelets.
    rejected: Option<usize>,
}

/// Calls to the API server at a time.
const CALLS: usize = 64;
/// CPUs of a node.
const CPUS: u32 = 32;
/// How long hollow nodes may take to report.
const REPORTED_WITHIN: Duration = Duration::from_secs(600);

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let binary = match &args.binary {
        Some(path) => path.clone(),
        None => build_dist()?,
    };
    if !args.scheduler_perf.scheduler_perf.is_empty() {
        return scheduler_perf::run(&args.scheduler_perf, &args.schedulers, args.json, &binary);
    }
    let peer = match (&args.peer, &args.peer_config) {
        (Some(program), Some(config)) => Some(Contender::peer(program, config)?),
        (Some(program), None) if program.as_os_str() == SCHEDULER_PLUGINS.name => {
            let config = SCHEDULER_PLUGINS.module().join("config.yaml");
            Some(Contender::peer(&SCHEDULER_PLUGINS.program()?, &config)?)
        }
        (Some(program), None) => bail!("--peer {} needs --peer-config", program.display()),
        (None, _) => None,
    };
    let contenders = Contender::all(&args.schedulers, args.numa, peer);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if !args.json {
        println!(
            "{:<15} {:<5} {:>6} {:>6} {:>9} {:>18} {:>8} {:>8} {:>8} {:>12} {:>10} {:>9}",
            "SCHEDULER",
            "ZONES",
            "NODES",
            "PODS",
            "PODS/S",
            "RATIO (RANGE)",
            "P50",
            "P99",
            "RSS",
            "CPU/1000",
            "RAW/S",
            "REJECTED"
        );
    }
    let mut rows: Vec<Vec<Row>> = contenders.iter().map(|_| Vec::new()).collect();
    for turn in 0..args.rounds {
        // What a round leaves behind must not always meet the same one.
        let mut turns: Vec<usize> = (0..contenders.len()).collect();
        turns.rotate_left(turn as usize % contenders.len());
        for at in turns {
            let row = runtime.block_on(measure(args, &contenders[at], &binary))?;
            let (name, zones) = (&row.scheduler, if row.numa { " with zones" } else { "" });
            eprintln!("round {} of {}: {name}{zones}: {:.0} pods/s", turn + 1, args.rounds, row.pods_per_s);
            rows[at].push(row);
        }
    }
    let rates: Vec<Vec<f64>> =
        rows.iter().map(|rows| rows.iter().map(|row| row.pods_per_s).collect()).collect();
    for (rows, own) in rows.into_iter().zip(&rates) {
        let ratios = own.iter().zip(&rates[0]).map(|(rate, first)| round(rate / first)).collect();
        if let Some(row) = median_row(rows, ratios) {
            print(&row, args.json)?;
        }
    }
    Ok(())
}

/// The row with the median rate, and the ratios of all.
fn median_row(mut rows: Vec<Row>, rate_ratios: Vec<f64>) -> Option<Row> {
    rows.sort_by(|left, right| left.pods_per_s.total_cmp(&right.pods_per_s));
    let rate_ratio = scheduler_perf::median(rate_ratios.clone()).map(round);
    let row = rows.into_iter().nth(rate_ratios.len() / 2)?;
    Some(Row { rate_ratio, rate_ratios, ..row })
}

/// The ratio of a row's rate to the first scheduler's, with its range where there were rounds.
fn ratio(row: &Row) -> String {
    let extreme = |of: fn(f64, f64) -> f64| row.rate_ratios.iter().copied().reduce(of);
    match (row.rate_ratio, extreme(f64::min), extreme(f64::max)) {
        (Some(median), Some(least), Some(most)) if row.rate_ratios.len() > 1 => {
            format!("{median:.2} ({least:.2}-{most:.2})")
        }
        (Some(median), ..) => format!("{median:.2}"),
        (None, ..) => "-".to_owned(),
    }
}

fn print(row: &Row, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        println!("{}", serde_json::to_string(row)?);
        return Ok(());
    }
    let ms = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"));
    println!(
        "{:<15} {:<5} {:>6} {:>6} {:>9.0} {:>18} {:>8} {:>8} {:>4} MiB {:>10.2} s {:>10.0} {:>9}",
        row.scheduler,
        if row.numa { row.zones.to_string() } else { "-".to_owned() },
        row.nodes,
        row.pods,
        row.pods_per_s,
        ratio(row),
        ms(row.p50_ms),
        ms(row.p99_ms),
        row.rss_mib,
        row.cpu_s_per_1000_pods,
        row.raw_binds_per_s,
        row.rejected.map_or_else(|| "-".to_owned(), |rejected| rejected.to_string()),
    );
    Ok(())
}

async fn measure(args: &Args, contender: &Contender, binary: &Path) -> anyhow::Result<Row> {
    let mut bed = TestBed::start(Shape::NONE, false, binary.to_owned()).await?;
    let client = bed.cluster.client().await?;
    let raw_binds_per_s = raw_binds(&client, args.pods).await?;
    let _hollow = if args.numa {
        Some(hollow_nodes(&bed, &client, args).await?)
    } else {
        create_nodes(&client, args.nodes, 110).await?;
        None
    };
    let StartedScheduler { process, profile } = contender.start(&mut bed).await?;

    let bound = BoundPods::watch(&client);
    process.pause()?;
    create_pods(&client, "bench", (&profile, args.numa), args.pods).await?;
    let (began, cpu) = (Instant::now(), cpu_s(&process)?);
    process.resume()?;
    let took = bound.all(args.pods).await? - began;
    let spent = cpu_s(&process)? - cpu;

    let mut waits = arrive(&client, &profile, args, &bound).await?;
    waits.sort_unstable();
    let percentile_ms = |percent| (!waits.is_empty()).then(|| percentile(&waits, percent));
    let pods = args.pods as f64;
    Ok(Row {
        scheduler: contender.name(),
        numa: args.numa && contender.sees_zones(),
        zones: if args.numa { args.zones } else { 1 },
        nodes: args.nodes,
        pods: args.pods,
        pods_per_s: round(pods / took.as_secs_f64()),
        rate_ratio: None,
        rate_ratios: Vec::new(),
        p50_ms: percentile_ms(50),
        p99_ms: percentile_ms(99),
        rss_mib: process.memory()?.peak_kib / 1024,
        cpu_s_per_1000_pods: round(spent * 1000.0 / pods),
        raw_binds_per_s: round(raw_binds_per_s),
        rejected: if args.numa { Some(rejected(&client).await?) } else { None },
    })
}

/// Pods that kubelets rejected.
async fn rejected(client: &Client) -> anyhow::Result<usize> {
    let failed = ListParams::default().fields("status.phase=Failed");
    Ok(Api::<Pod>::default_namespaced(client.clone()).list_metadata(&failed).await?.items.len())
}

pub(super) fn round(figure: f64) -> f64 {
    (figure * 100.0).round() / 100.0
}

/// Seconds of the processor that a process has used.
pub(super) fn cpu_s(process: &Process) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid()))?;
    // Fields 14 and 15 are user and system time, counted behind the name in parentheses, in hundredths of seconds.
    let (_, fields) = stat.rsplit_once(')').context("/proc/PID/stat")?;
    let ticks: Vec<u64> =
        fields.split_whitespace().skip(11).take(2).filter_map(|text| text.parse().ok()).collect();
    Ok(ticks.iter().sum::<u64>() as f64 / 100.0)
}

/// Creates nodes that are ready, with room for so many pods each.
pub(super) async fn create_nodes(client: &Client, count: usize, room: u32) -> anyhow::Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let node = |at: usize| -> anyhow::Result<Node> {
        let name = format!("node-{at}");
        let amounts = json!({ "cpu": "32", "memory": "128Gi", "pods": room.to_string() });
        let ready = json!({ "type": "Ready", "status": "True", "reason": "Bench", "message": "" });
        Ok(serde_json::from_value(json!({
            "metadata": { "name": name, "labels": {
                "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": format!("zone-{}", at % 3),
            } },
            "status": { "capacity": amounts, "allocatable": amounts, "conditions": [ready] },
        }))?)
    };
    calls(count as u64, |at| {
        let api = api.clone();
        async move {
            let node = node(at as usize)?;
            api.create(&PostParams::default(), &node).await?;
            // New nodes get the taint of those that are not ready.
            let untainted = Patch::Merge(json!({ "spec": { "taints": null } }));
            let name = node.metadata.name.unwrap_or_default();
            Ok(api.patch(&name, &PatchParams::default(), &untainted).await.map(drop)?)
        }
    })
    .await
}

/// Starts hollow nodes, and waits until each has reported.
async fn hollow_nodes(bed: &TestBed, client: &Client, args: &Args) -> anyhow::Result<Process> {
    let count = args.nodes;
    let machine = format!("--machine={}x{}", args.zones, CPUS / args.zones);
    let kubeconfig = bed.cluster.control().kubeconfig().display().to_string();
    let spec = Spec::new("tholepin-hollow", bed.binary())
        .args(["hollow", "--untainted", "--name-prefix=node", "--http-bind-address=0"])
        .arg(machine)
        .args(["--qps=5000".to_owned(), format!("--nodes={count}"), format!("--kubeconfig={kubeconfig}")]);
    let process = bed.cluster.spawn(spec)?;
    let reports = Api::<NodeResourceTopology>::all(client.clone());
    let all = async || {
        let known = reports.list_metadata(&ListParams::default()).await;
        known.is_ok_and(|known| known.items.len() >= count)
    };
    process.wait_until("reporting", REPORTED_WITHIN, all).await?;
    Ok(process)
}

/// A pod for a scheduler. With zones it is Guaranteed, and its CPUs must be in one of them.
pub(super) fn pod(name: &str, (scheduler, numa): (&str, bool)) -> anyhow::Result<Pod> {
    let resources = if numa {
        let amounts = json!({ "cpu": "2", "memory": "128Mi" });
        json!({ "requests": amounts, "limits": amounts })
    } else {
        json!({ "requests": { "cpu": "100m", "memory": "128Mi" } })
    };
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "app": "bench" } },
        "spec": { "schedulerName": scheduler, "containers": [{
            "name": "main", "image": "registry.example/app:1", "resources": resources,
        }] },
    }))?)
}

async fn create_pods(client: &Client, prefix: &str, kind: (&str, bool), count: u64) -> anyhow::Result<()> {
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    calls(count, |at| {
        let (api, name) = (api.clone(), format!("{prefix}-{at}"));
        async move { Ok(api.create(&PostParams::default(), &pod(&name, kind)?).await.map(drop)?) }
    })
    .await
}

/// Bindings a second that the API server takes without a scheduler. The pods are deleted again.
async fn raw_binds(client: &Client, count: u64) -> anyhow::Result<f64> {
    create_pods(client, "raw", ("none", false), count).await?;
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    let began = Instant::now();
    calls(count, |at| {
        let (api, name) = (api.clone(), format!("raw-{at}"));
        async move {
            let binding = Binding {
                metadata: kube::api::ObjectMeta { name: Some(name.clone()), ..Default::default() },
                target: serde_json::from_value(
                    json!({ "kind": "Node", "name": format!("node-{}", at % 100) }),
                )?,
            };
            let _: serde_json::Value =
                api.create_subresource("binding", &name, &PostParams::default(), &binding).await?;
            Ok(())
        }
    })
    .await?;
    let rate = count as f64 / began.elapsed().as_secs_f64();
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    calls(count, |at| {
        let (api, name, now) = (api.clone(), format!("raw-{at}"), now.clone());
        async move { Ok(api.delete(&name, &now).await.map(drop)?) }
    })
    .await?;
    Ok(rate)
}

/// Makes calls, several at a time.
async fn calls<F>(count: u64, call: impl Fn(u64) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    futures::stream::iter(0..count).map(call).buffer_unordered(CALLS).try_collect::<()>().await
}

/// Lets pods arrive at a steady rate; how many milliseconds passed from the creation of each to its binding.
async fn arrive(
    client: &Client,
    scheduler: &str,
    args: &Args,
    bound: &BoundPods,
) -> anyhow::Result<Vec<u64>> {
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / args.rate.max(1));
    let mut created = Vec::new();
    for at in 0..args.arrivals {
        ticks.tick().await;
        let name = format!("arrival-{at}");
        let pod = pod(&name, (scheduler, args.numa))?;
        created.push((name, Instant::now()));
        api.create(&PostParams::default(), &pod).await?;
    }
    bound.all(args.pods + args.arrivals).await?;
    let seen = bound.seen();
    let wait = |(name, created): &(String, Instant)| {
        let waited = seen.places.get(name)?.at.saturating_duration_since(*created);
        u64::try_from(waited.as_millis()).ok()
    };
    Ok(created.iter().filter_map(wait).collect())
}
