//! `cargo xtask bench tae`: open arrivals on real kubelets, one scheduler after the other on fresh clusters.
//!
//! A pod lost to `TopologyAffinityError` counts as lost, not as served. The `ideal` is calculated, see
//! [`mod@ideal`] and [`mod@replay`].
//! `--matrix` goes through policies, scopes and exporters, each with several seeds.

mod ideal;
mod replay;

use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde::Serialize;
use sim::cli::{policy, scope};
use sim::record::percentile;
use sim::workload::{OpenArrivals, Workload};
use testkit::load::{self, Arrival, Record, Run};
use testkit::process_group::Process;
use topology::policy::{Policy, Scope};

use self::ideal::ideal;
use self::replay::ideal_in_same_state;
use super::rig::{ExporterProgram, STOCK, Shape, TOPO_AWARE, TestBed, build_dist};
use crate::gotool::{NFD, RTE};

/// Open arrivals on real kubelets.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask bench tae --nodes 4 --pods 120 --rate 3 --load 0.65 --seed 1 --json\n  \
    cargo xtask bench tae --load 2 --max-pending 6 --seed 1\n  \
    cargo xtask bench tae --cold-nodes\n  \
    cargo xtask bench tae --mixed --schedulers kube-scheduler,tholepin --kill-scheduler-at 15\n  \
    cargo xtask bench tae --schedulers tholepin --kill-scheduler-at 15\n  \
    cargo xtask bench tae --policy restricted --scope pod --exporter rte --stock-third\n  \
    cargo xtask bench tae --mixed --policy restricted --stop-delay 50\n  \
    cargo xtask bench tae --mixed --matrix --seeds 5 --pods 240 --schedulers kube-scheduler,tholepin\n  \
    cargo xtask bench tae --schedulers tholepin --pods 300 --stop-exporters-at 20 --stop-exporters-for 60"
)]
pub(crate) struct Args {
    /// Number of nodes
    #[arg(long, default_value_t = 4)]
    nodes: usize,
    /// NUMA zones of each node
    #[arg(long, default_value_t = 2)]
    zones: u32,
    /// CPUs of each zone
    #[arg(long, default_value_t = 16)]
    cpus_per_zone: u32,
    /// Number of pods
    #[arg(long, default_value_t = 120)]
    pods: usize,
    /// Pods a second
    #[arg(long, default_value_t = 3.0)]
    rate: f64,
    /// CPUs asked for on average, as a share of the allocatable ones
    #[arg(long, default_value_t = 0.65)]
    load: f64,
    /// Seed of the arrivals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A pod arrives only while fewer than this many wait
    #[arg(long)]
    max_pending: Option<usize>,
    /// No infrastructure pods; the arrivals come in waves, and between waves every node becomes empty
    #[arg(long)]
    cold_nodes: bool,
    /// Kubelets with the policies restricted and best-effort, whole cores of two threads; pods with init containers,
    /// sidecars, huge pages, devices, and more CPUs than a zone has
    #[arg(long)]
    mixed: bool,
    /// Topology manager policy of the kubelets [default: single-numa-node, of mixed ones restricted and best-effort by
    /// turns]
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    policy: Option<Policy>,
    /// Topology manager scope of the kubelets
    #[arg(long, value_name = "SCOPE", value_parser = scope, default_value = "container")]
    scope: Scope,
    /// Who reports nodes to our scheduler: tholepin, or, built from their Go modules, rte: resource-topology-exporter,
    /// nfd: nfd-topology-updater
    #[arg(long, value_enum, default_value_t)]
    exporter: ExporterChoice,
    /// Seconds between two looks of another exporter than ours
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    exporter_interval: u64,
    /// Let kube-scheduler place every third pod beside our scheduler, on the same nodes
    #[arg(long)]
    stock_third: bool,
    /// Each of three policies, both scopes, and three exporters: ours, rte every 10 seconds, and nfd every 60 seconds
    #[arg(long, conflicts_with_all = ["policy", "scope", "exporter", "exporter_interval"])]
    matrix: bool,
    /// Measure with so many seeds, --seed and those that follow
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Which schedulers, in this order. ideal after tholepin: also with pods that keep their places as long as they did
    /// under tholepin
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = SchedulerChoice::ALL)]
    schedulers: Vec<SchedulerChoice>,
    /// Kill our scheduler with SIGKILL after this many seconds, and start it again
    #[arg(long)]
    kill_scheduler_at: Option<f64>,
    /// Stop the exporters (SIGSTOP) after this many seconds
    #[arg(long)]
    stop_exporters_at: Option<f64>,
    /// ... and let them go on after so many more
    #[arg(long, default_value_t = 60.0, requires = "stop_exporters_at")]
    stop_exporters_for: f64,
    /// One JSON object per scheduler and line instead of a table
    #[arg(long)]
    json: bool,
    /// How long containers take to end once they are asked to, in milliseconds; at most their second of grace
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1000))]
    stop_delay: u64,
    /// Add what became of each pod to this file, one JSON object per pod and line. With `--schedulers ideal` alone it
    /// is read, and ideals are calculated for that run
    #[arg(long, value_name = "FILE")]
    records: Option<PathBuf>,
    /// Show every pod that waited longer than this many seconds
    #[arg(long)]
    slow: Option<f64>,
    /// The tholepin binary to measure; built with the profile `dist` when not given
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// A scheduler to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SchedulerChoice {
    KubeScheduler,
    Tholepin,
    Ideal,
}

impl SchedulerChoice {
    const ALL: [Self; 3] = [Self::KubeScheduler, Self::Tholepin, Self::Ideal];
}

/// An exporter to report nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum ExporterChoice {
    #[default]
    Tholepin,
    Rte,
    Nfd,
}

/// One line of the result.
#[derive(Debug, Default, Serialize)]
struct Row {
    scheduler: &'static str,
    /// Of the kubelets; mixed ones have two by turns.
    policy: &'static str,
    scope: &'static str,
    /// Who reported, and how many seconds lie between two looks. Of schedulers that look at reports.
    exporter: Option<String>,
    seed: u64,
    pods: usize,
    running: usize,
    tae: usize,
    /// Lost pods beside which another scheduler bound a pod to the node within a second.
    lost_same_second: usize,
    /// Pods of the other scheduler, and those of them that were lost. The other counts leave them out.
    other_scheduler: [usize; 2],
    /// `SMTAlignmentError`.
    smt: usize,
    /// Lost for another reason.
    other: usize,
    /// Reports that contradicted what our scheduler had booked.
    drifts: Option<f64>,
    p50_s: Option<f64>,
    p95_s: Option<f64>,
    /// The least and the most p95 of what is calculated: ties are broken by chance.
    p95_range_s: Option<[f64; 2]>,
    /// How long pods had a place and were not bound: half of them, 95 %, and all of them at most so long.
    late_s: Option<[f64; 3]>,
    exporter_rss_mib: Option<f64>,
    scheduler_rss_mib: Option<f64>,
}

impl Row {
    /// The row of a scheduler before anything is known.
    fn new(scheduler: &'static str, args: &Args) -> Self {
        let (policy, scope, _) = described(args);
        Self { scheduler, policy, scope, seed: args.seed, ..Self::default() }
    }
}

/// What a scheduler has to have bound so near before, in seconds, that ours cannot have known.
const SAME_SECOND: f64 = 1.0;
/// Each so many pods are kube-scheduler's with `--stock-third`.
const THIRD: usize = 3;
/// Kinds of pods with `--mixed`.
const MIX: usize = 8;
/// Number of waves with `--cold-nodes`.
const WAVES: usize = 4;

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let has_ideal = args.schedulers.contains(&SchedulerChoice::Ideal);
    anyhow::ensure!(
        !(args.mixed && has_ideal && args.policy.is_none() && !args.matrix),
        "--mixed without --policy has no ideal: name others with --schedulers"
    );
    let real = args.schedulers.iter().any(|scheduler| *scheduler != SchedulerChoice::Ideal);
    let binary = match (&args.binary, real) {
        (Some(path), _) => path.clone(),
        (None, true) => build_dist()?,
        (None, false) => PathBuf::new(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if !args.json {
        println!(
            "{:<17} {:<17} {:<9} {:<12} {:>4} {:>5} {:>8} {:>4} {:>4} {:>6} {:>6} {:>8} {:>8} {:>8} {:>13} {:>14}",
            "SCHEDULER",
            "POLICY",
            "SCOPE",
            "EXPORTER",
            "SEED",
            "PODS",
            "RUNNING",
            "TAE",
            "SMT",
            "OTHER",
            "DRIFTS",
            "P50",
            "P95",
            "LATE-P95",
            "EXPORTER-RSS",
            "SCHEDULER-RSS"
        );
    }
    let cells = cells(&args);
    let read = args.records.as_deref().filter(|_| !real).map(read_records).transpose()?;
    anyhow::ensure!(
        read.is_none() || cells.len() == 1,
        "--records has the pods of one run: no --matrix or --seeds"
    );
    for cell in cells {
        let mut measured: Option<Vec<Record>> = read.clone();
        for scheduler in &cell.schedulers {
            if *scheduler == SchedulerChoice::Ideal {
                print(&ideal(&cell, None)?, args.json)?;
                if let Some(records) = &measured {
                    print(&ideal(&cell, Some(records))?, args.json)?;
                    print(&ideal_in_same_state(&cell, records)?, args.json)?;
                }
                continue;
            }
            let (row, records) = runtime.block_on(measure(&cell, *scheduler, binary.clone()))?;
            print(&row, args.json)?;
            if *scheduler == SchedulerChoice::Tholepin {
                measured = Some(records);
            }
        }
    }
    Ok(())
}

/// What is measured, one after the other. Schedulers that look at no reports are measured with one exporter alone.
fn cells(args: &Args) -> Vec<Args> {
    let of_policy = |policy| {
        let of_scope = move |scope| {
            let ours = (ExporterChoice::Tholepin, args.exporter_interval);
            [ours, (ExporterChoice::Rte, 10), (ExporterChoice::Nfd, 60)].map(
                |(exporter, exporter_interval)| {
                    let schedulers = args.schedulers.iter().copied();
                    let is_wanted =
                        |it: &SchedulerChoice| exporter == ours.0 || *it == SchedulerChoice::Tholepin;
                    let schedulers = schedulers.filter(is_wanted).collect();
                    Args {
                        policy: Some(policy),
                        scope,
                        exporter,
                        exporter_interval,
                        schedulers,
                        ..args.clone()
                    }
                },
            )
        };
        [Scope::Container, Scope::Pod].into_iter().flat_map(of_scope)
    };
    let policies = [Policy::SingleNumaNode, Policy::Restricted, Policy::BestEffort];
    let cells: Vec<Args> =
        if args.matrix { policies.into_iter().flat_map(of_policy).collect() } else { vec![args.clone()] };
    let with_seeds =
        |cell: Args| (0..args.seeds).map(move |more| Args { seed: args.seed + more, ..cell.clone() });
    cells.into_iter().flat_map(with_seeds).collect()
}

/// Returns the records by arrival, too.
async fn measure(
    args: &Args,
    scheduler: SchedulerChoice,
    binary: PathBuf,
) -> anyhow::Result<(Row, Vec<Record>)> {
    let ours = scheduler == SchedulerChoice::Tholepin;
    let mut bed = TestBed::start(shape(args), !ours || args.stock_third, binary).await?;
    if ours {
        bed.start_exporters(&exporter(args)?).await?;
        bed.start_scheduler().await?;
    }
    if !args.cold_nodes {
        infrastructure(&bed).await?;
    }
    let scheduler = if ours { TOPO_AWARE } else { STOCK };
    let mut schedulers = [scheduler; THIRD];
    if args.stock_third {
        schedulers[THIRD - 1] = STOCK;
    }
    let client = bed.cluster.client().await?;
    let waves = waves(args)?;
    let trouble = async { if ours { trouble(args, &bed).await } else { std::future::pending().await } };
    let load = async {
        let mut records = Vec::new();
        for (number, plan) in waves.iter().enumerate() {
            let options = Run {
                name: format!("wave-{number}"),
                schedulers: schedulers.iter().map(|name| (*name).to_owned()).collect(),
                max_pending: args.max_pending,
                stop_delay: Duration::from_millis(args.stop_delay),
                ..Run::default()
            };
            records.extend(load::run(&client, &real(plan, args), &options).await?);
        }
        anyhow::Ok(records)
    };
    let records = tokio::select! {
        records = load => records?,
        failed = trouble => return Err(failed.err().unwrap_or_else(|| anyhow::anyhow!("trouble ended early"))),
    };
    if let Some(limit) = args.slow {
        for record in records.iter().filter(|r| r.wait_s().is_none_or(|wait| wait > limit)) {
            eprintln!("{record:?}");
        }
    }
    if let Some(file) = &args.records {
        append(file, &records)?;
    }
    let stock = bed.cluster.scheduler();
    let exporters: Option<f64> = bed.exporters.iter().filter_map(|p| peak_mib(Some(p))).reduce(f64::max);
    let name = if ours { "tholepin" } else { "kube-scheduler" };
    let rss = [exporters, peak_mib(bed.scheduler.as_ref().or(stock))];
    let drifts = bed.scheduler_metric("tholepin_ledger_corrections_total").await;
    let row = Row { drifts, ..row(name, args, (&records, scheduler), rss) };
    Ok((row, records))
}

/// Adds the records to a file, one to a line.
fn append(file: &Path, records: &[Record]) -> anyhow::Result<()> {
    let adding = || format!("adding records to {}", file.display());
    let open = OpenOptions::new().create(true).append(true).open(file);
    let mut out = BufWriter::new(open.with_context(adding)?);
    for record in records {
        writeln!(out, "{}", serde_json::to_string(record)?).with_context(adding)?;
    }
    out.flush().with_context(adding)
}

/// Reads what [`append`] has written.
fn read_records(file: &Path) -> anyhow::Result<Vec<Record>> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let lines = text.lines().enumerate();
    let record = |(at, line): (usize, &str)| {
        serde_json::from_str(line).with_context(|| format!("{}, line {}", file.display(), at + 1))
    };
    lines.map(record).collect()
}

/// What goes wrong on purpose. Never ends by itself.
async fn trouble(args: &Args, bed: &TestBed) -> anyhow::Result<()> {
    let kill = async {
        let Some(at) = args.kill_scheduler_at else { return anyhow::Ok(()) };
        tokio::time::sleep(Duration::from_secs_f64(at)).await;
        let scheduler = bed.scheduler.as_ref().context("no scheduler")?;
        scheduler.restart()?;
        eprintln!("scheduler killed and started again");
        bed.scheduler_ready().await
    };
    let stop = async {
        let Some(at) = args.stop_exporters_at else { return anyhow::Ok(()) };
        tokio::time::sleep(Duration::from_secs_f64(at)).await;
        bed.exporters.iter().try_for_each(Process::pause)?;
        eprintln!("exporters stopped");
        tokio::time::sleep(Duration::from_secs_f64(args.stop_exporters_for)).await;
        bed.exporters.iter().try_for_each(Process::resume)?;
        eprintln!("exporters go on");
        Ok(())
    };
    tokio::try_join!(kill, stop)?;
    std::future::pending().await
}

/// A pod on each node that asks for nothing special, as every real cluster has.
async fn infrastructure(bed: &TestBed) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(bed.cluster.client().await?);
    for node in bed.cluster.nodes() {
        let mut pod = load::guaranteed_pod(&format!("infra-{}", node.name()), "none", []);
        if let Some(spec) = &mut pod.spec {
            spec.node_name = Some(node.name().to_owned());
        }
        pods.create(&PostParams::default(), &pod).await?;
    }
    Ok(())
}

fn shape(args: &Args) -> Shape {
    let Args { nodes, zones, cpus_per_zone, mixed, policy, scope, .. } = *args;
    Shape { nodes, zones, cpus_per_zone, mixed, policy, scope }
}

fn exporter(args: &Args) -> anyhow::Result<ExporterProgram> {
    let interval = Duration::from_secs(args.exporter_interval);
    Ok(match args.exporter {
        ExporterChoice::Tholepin => ExporterProgram::Tholepin,
        ExporterChoice::Rte => ExporterProgram::Rte { program: RTE.program()?, interval },
        ExporterChoice::Nfd => ExporterProgram::Nfd { program: NFD.program()?, interval },
    })
}

/// The plan, in one piece or in waves that each begin at 0.
fn waves(args: &Args) -> anyhow::Result<Vec<Workload>> {
    let open = OpenArrivals {
        pods: args.pods,
        rate: args.rate,
        load: args.load,
        cpus: shape(args).allocatable_cpus(),
        max_pending: args.max_pending,
        seed: args.seed,
        ..OpenArrivals::default()
    };
    let all = open.workload()?.arrivals;
    let size = if args.cold_nodes { all.len().div_ceil(WAVES).max(1) } else { all.len().max(1) };
    let begin_at_zero = |wave: &[sim::workload::Arrival]| {
        let start = wave.first().map_or(0, |arrival| arrival.at_ms);
        let mut arrivals = wave.to_vec();
        arrivals.iter_mut().for_each(|arrival| arrival.at_ms -= start);
        Workload { max_pending: args.max_pending, arrivals }
    };
    Ok(all.chunks(size).map(begin_at_zero).collect())
}

/// The simulator's arrivals as real ones.
fn real(plan: &Workload, args: &Args) -> Vec<Arrival> {
    let seconds = |ms: u64| ms as f64 / 1000.0;
    let arrival = |(number, a): (usize, &sim::workload::Arrival)| {
        let plain = Arrival {
            at_s: seconds(a.at_ms),
            cpus: a.cpus,
            life_s: a.life_ms.map_or(f64::MAX, seconds),
            ..Arrival::default()
        };
        if args.mixed { mixed(number, plain, args) } else { plain }
    };
    plan.arrivals.iter().enumerate().map(arrival).collect()
}

/// The pod of this number with something that depends on more than CPUs.
fn mixed(number: usize, pod: Arrival, args: &Args) -> Arrival {
    // The others never take a pod whose CPUs need two zones and whose memory needs one.
    let may_be_wide = matches!(args.policy, None | Some(Policy::BestEffort));
    match number % MIX {
        0 => Arrival { init_cpus: pod.cpus + 2, ..pod },
        1 => Arrival { init_cpus: 2, ..pod },
        2 => Arrival { huge_pages: 8, ..pod },
        3 => Arrival { devices: 1, ..pod },
        4 if may_be_wide => Arrival { cpus: args.cpus_per_zone + 2, ..pod },
        5 => Arrival { devices: 1, huge_pages: 8, init_cpus: 2, ..pod },
        6 => Arrival { sidecar_cpus: 2, ..pod },
        _ => pod,
    }
}

/// `scheduler`: the one whose pods count.
fn row(
    name: &'static str,
    args: &Args,
    (records, scheduler): (&[Record], &str),
    [exporter_rss_mib, scheduler_rss_mib]: [Option<f64>; 2],
) -> Row {
    let (own, others): (Vec<&Record>, Vec<&Record>) =
        records.iter().partition(|record| record.scheduler == scheduler);
    let waits = Durations::of_seconds(own.iter().filter_map(|record| record.wait_s()));
    let lost = |reason: &str| {
        let losses = own.iter().filter_map(|record| record.lost.as_ref());
        losses.filter(|loss| loss.reason == reason).count()
    };
    let (tae, smt) = (lost("TopologyAffinityError"), lost("SMTAlignmentError"));
    let all = own.iter().filter(|record| record.lost.is_some()).count();
    let (.., exporter) = described(args);
    Row {
        exporter: (scheduler == TOPO_AWARE).then_some(exporter),
        pods: own.len(),
        running: waits.len(),
        tae,
        lost_same_second: own.iter().filter(|it| it.lost.is_some() && is_beside(it, &others)).count(),
        other_scheduler: [others.len(), others.iter().filter(|record| record.lost.is_some()).count()],
        smt,
        other: all - tae - smt,
        p50_s: waits.percentile_s(50),
        p95_s: waits.percentile_s(95),
        exporter_rss_mib,
        scheduler_rss_mib,
        ..Row::new(name, args)
    }
}

/// Durations in milliseconds, ascending.
struct Durations(Vec<u64>);

impl Durations {
    fn of_seconds(seconds: impl Iterator<Item = f64>) -> Self {
        let mut all: Vec<u64> = seconds.map(|s| (s * 1000.0).round() as u64).collect();
        all.sort_unstable();
        Self(all)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// In seconds; `None`: there are none.
    fn percentile_s(&self, percent: usize) -> Option<f64> {
        (!self.0.is_empty()).then(|| percentile(&self.0, percent) as f64 / 1000.0)
    }
}

/// Whether one of the others came to the node of a pod within the same second.
fn is_beside(record: &Record, others: &[&Record]) -> bool {
    others.iter().filter(|other| other.node == record.node).any(|other| {
        let times = record.scheduled_s.zip(other.scheduled_s);
        times.is_some_and(|(one, other)| (one - other).abs() <= SAME_SECOND)
    })
}

/// Policy, scope and exporter in words.
fn described(args: &Args) -> (&'static str, &'static str, String) {
    let policy = match args.policy {
        Some(policy) => policy.as_str(),
        None if args.mixed => "by turns",
        None => Policy::SingleNumaNode.as_str(),
    };
    let exporter = match args.exporter {
        ExporterChoice::Tholepin => "tholepin".to_owned(),
        ExporterChoice::Rte => format!("rte {} s", args.exporter_interval),
        ExporterChoice::Nfd => format!("nfd {} s", args.exporter_interval),
    };
    (policy, args.scope.as_str(), exporter)
}

fn peak_mib(process: Option<&Process>) -> Option<f64> {
    let memory = process?.memory().ok()?;
    Some((memory.peak_kib as f64 / 1024.0 * 10.0).round() / 10.0)
}

fn print(row: &Row, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(row)?);
        return Ok(());
    }
    let seconds = |value: Option<f64>| value.map_or("-".to_owned(), |s| format!("{s:.2}s"));
    let mib = |value: Option<f64>| value.map_or("-".to_owned(), |m| format!("{m:.1}MiB"));
    println!(
        "{:<17} {:<17} {:<9} {:<12} {:>4} {:>5} {:>8} {:>4} {:>4} {:>6} {:>6} {:>8} {:>8} {:>8} {:>13} {:>14}",
        row.scheduler,
        row.policy,
        row.scope,
        row.exporter.as_deref().unwrap_or("-"),
        row.seed,
        row.pods,
        row.running,
        row.tae,
        row.smt,
        row.other,
        row.drifts.map_or("-".to_owned(), |count| count.to_string()),
        seconds(row.p50_s),
        seconds(row.p95_s),
        seconds(row.late_s.map(|[_, late_s, _]| late_s)),
        mib(row.exporter_rss_mib),
        mib(row.scheduler_rss_mib),
    );
    Ok(())
}
