//! `tholepin simulate`.
//!
//! In: flags. Out: a table, JSON or YAML on standard output, charts and workloads in files, progress and notes on
//! standard error. Never: a change of a cluster, or a result that depends on anything but the flags and what they name.

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use runtime::client::ClusterArgs;
use runtime::output::{OutputArgs, TableFormat};
use runtime::stdout::print;
use serde::Serialize;
use topology::policy::{CpuOption, PREFER_CLOSEST_NUMA_NODES, Policy, Scope};

use crate::comparison::{Contender, Impairments, Outcome};
use crate::latency::{Faults, Latency, PluginPeriods};
use crate::machine::{Machine, Shape, open_cpus};
use crate::plural::count;
use crate::preset::{Defaults, Preset};
use crate::record::Summary;
use crate::report::HtmlReport;
use crate::spread::Spread;
use crate::workload::{Arrival, MAX_TIME_MS, OpenArrivals, Workload};

use crate::{chart, table};

mod machines;

use machines::{AddedNodes, Machines, machines};

/// Most seeds of one command.
const MAX_SEEDS: u64 = 1_000;

/// Simulate a cluster in virtual time, and compare schedulers on the same pods: one that is blind to NUMA zones, one by
/// the rules of the Go plugin, and tholepin.
///
/// Without flags: 120 pods on 4 nodes with 2 zones of 16 CPUs. The scheduler, its ledger and the model of the kubelet
/// are the code that runs in a cluster. The same flags give the same bytes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Cluster and pods by name: small, ci-inference (jobs of 1 to 8 GPUs), telco or hpc; the flags below replace its
    /// numbers one by one
    #[arg(long, value_name = "NAME", value_enum, default_value_t, hide_possible_values = true)]
    #[arg(conflicts_with = "pending")]
    pub preset: Preset,
    /// Shape of the nodes: ZONESxCPUS of each zone, with devices as +NAME or +NAMECOUNT, such as 2x16, 8x16, 2x64+gpu4
    /// [default: 2x16, or as in the preset]
    #[arg(long, value_name = "SHAPE", conflicts_with = "source")]
    pub machine: Option<Shape>,
    /// Number of nodes [default: 4, or as in the preset]
    #[arg(long, value_name = "N", conflicts_with = "source")]
    pub nodes: Option<usize>,
    /// Zones of each node, instead of --machine's; with --from, of nodes without a NodeResourceTopology object
    #[arg(long, value_name = "N")]
    pub zones: Option<u32>,
    /// CPUs of each zone, instead of --machine's
    #[arg(long, value_name = "N", conflicts_with = "source")]
    pub cpus_per_zone: Option<u32>,
    /// CPUs reserved for the system on each node
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "source")]
    pub reserved_cpus: u32,
    /// Nodes and running pods of a cluster: output of kubectl get nodes,pods,noderesourcetopologies -A -o yaml (or
    /// json), or the folder of a must-gather; - is standard input
    #[arg(long, value_name = "PATH", group = "source")]
    pub from: Option<PathBuf>,
    /// Nodes and running pods of the cluster of the kubeconfig, which is only read
    #[arg(long, group = "source")]
    pub live: bool,
    /// What if the cluster of --from or --live had more nodes: N of a shape, such as 2x64+gpu4=3; may be repeated
    #[arg(long, value_name = "SHAPE=N", requires = "source")]
    pub add: Vec<AddedNodes>,
    /// What if the cluster had this node no longer; its pods are made again first; may be repeated
    #[arg(long, value_name = "NODE", requires = "source")]
    pub remove: Vec<String>,
    /// Place the pods of --from or --live that are on no node, instead of generated ones
    #[arg(long, requires = "source", conflicts_with_all = ["workload", "pods", "rate", "load", "max_pending", "save_workload"])]
    pub pending: bool,
    /// Topology manager policy of the kubelets: none, best-effort, restricted or single-numa-node [default:
    /// single-numa-node, or as in the preset; with --from as in the file]
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    pub policy: Option<Policy>,
    /// Topology manager scope of the kubelets: container or pod [default: container, with --from as in the file]
    #[arg(long, value_name = "SCOPE", value_parser = scope)]
    pub scope: Option<Scope>,
    /// Options of the kubelets' CPU manager that are on, such as full-pcpus-only,distribute-cpus-across-numa
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = cpu_option)]
    pub cpu_manager_policy_options: Vec<CpuOption>,
    /// Options of the kubelets' topology manager that are on: prefer-closest-numa-nodes
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = [PREFER_CLOSEST_NUMA_NODES])]
    pub topology_manager_policy_options: Vec<String>,
    /// Threads of each core [default: 1, with --from as in the file]
    #[arg(long, value_name = "N")]
    pub threads_per_core: Option<u8>,
    /// File with the pods (YAML or JSON), instead of the four flags below
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pods", "rate", "load", "max_pending"])]
    pub workload: Option<PathBuf>,
    /// Number of pods; each requests 2 to 12 CPUs, or resources as in the preset [default: 120, or as in the preset]
    #[arg(long, value_name = "N")]
    pub pods: Option<usize>,
    /// Pods created per second [default: 3, or as in the preset]
    #[arg(long, value_name = "RATE")]
    pub rate: Option<f64>,
    /// Average share of the CPUs in use if no pod ever waited; determines how long pods live [default: 0.65, or as in
    /// the preset]
    #[arg(long, value_name = "SHARE")]
    pub load: Option<f64>,
    /// Hold arrivals back while this many pods are pending
    #[arg(long, value_name = "N")]
    pub max_pending: Option<usize>,
    /// Seed of sizes, lifetimes, delays and ties
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
    /// Run once with each of these seeds, and show the median and the range of each number, such as 1-20
    #[arg(long, value_name = "FROM-TO", value_parser = seeds, conflicts_with_all = ["seed", "chart", "report", "save_workload"])]
    pub seeds: Option<(u64, u64)>,
    /// Schedulers to compare: blind (as kube-scheduler), nrtmatch (the rules of the Go plugin), tholepin, ideal
    /// (tholepin with perfect knowledge and no latency)
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "blind,nrtmatch,tholepin,ideal")]
    pub schedulers: Vec<Contender>,
    /// Seconds between two looks of the exporters of nrtmatch
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = period)]
    pub nrtmatch_exporter_period: u64,
    /// Seconds between two resyncs of nrtmatch's cache
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = period)]
    pub nrtmatch_resync_period: u64,
    /// Delays between the parts, except for ideal: cluster (as in a small healthy one) or zero
    #[arg(long, value_name = "NAME", default_value = "cluster", value_parser = latency)]
    pub latency: Latency,
    /// Stop all exporters from the first to the second moment, in seconds (not for ideal)
    #[arg(long, value_name = "FROM-TO", value_parser = moments)]
    pub exporters_down: Option<(u64, u64)>,
    /// Kill the scheduler at the first moment and start a new one at the second, in seconds (not for ideal)
    #[arg(long, value_name = "FROM-TO", value_parser = moments)]
    pub scheduler_down: Option<(u64, u64)>,
    /// The format of the result.
    #[command(flatten)]
    pub output: OutputArgs<TableFormat>,
    /// Write a chart of the result to a file whose name ends in .svg
    #[arg(long, value_name = "FILE", value_parser = chart_file)]
    pub chart: Option<PathBuf>,
    /// Write the result to an HTML file with a chart and tables, for a ticket
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write the pods to a file for --workload
    #[arg(long, value_name = "FILE")]
    pub save_workload: Option<PathBuf>,
    /// The cluster of --live.
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// The result in JSON and YAML.
#[derive(Debug, Serialize)]
struct Document<'a> {
    seed: u64,
    nodes: usize,
    /// CPUs available to the pods.
    cpus: u32,
    pods: usize,
    /// Those of them that ran on nodes that are removed.
    #[serde(skip_serializing_if = "is_zero")]
    displaced: usize,
    /// Pods of such nodes that no controller makes again.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    lost: &'a [String],
    schedulers: &'a [Outcome],
}

/// The results of several seeds in JSON and YAML.
#[derive(Debug, Serialize)]
struct RangesDocument<'a> {
    first_seed: u64,
    last_seed: u64,
    nodes: usize,
    /// CPUs available to the pods.
    cpus: u32,
    schedulers: &'a [Spread],
}

/// Runs the command.
///
/// # Errors
/// When a flag or a file is invalid (flag, file and field are named), or an output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let machines = machines(args)?;
    let text = match args.seeds {
        Some(seeds) => run_seeds(args, &machines, seeds)?,
        None => run_once(args, &machines)?,
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The outcome of each contender with one seed, in the order of the flags.
fn outcomes(
    args: &Args,
    machines: &Machines,
    workload: &Workload,
    seed: u64,
    bar: &ProgressBar,
) -> Vec<Outcome> {
    let faults = Faults { exporters_down_ms: args.exporters_down, scheduler_down_ms: args.scheduler_down };
    let plugin =
        PluginPeriods { exporter_ms: args.nrtmatch_exporter_period, resync_ms: args.nrtmatch_resync_period };
    let impairments = Impairments { latency: args.latency, faults, plugin };
    let run = |contender: &Contender| {
        let before = bar.position();
        bar.set_message(contender.as_str());
        let progress = &mut |settled: usize| bar.set_position(before + settled as u64);
        contender.run(workload, &machines.machines, impairments, seed, progress)
    };
    args.schedulers.iter().map(run).collect()
}

/// Runs each seed on its own pods; the heading has those of the first.
fn run_seeds(args: &Args, machines: &Machines, (first, last): (u64, u64)) -> anyhow::Result<String> {
    let mut runs: Vec<Vec<Summary>> = vec![Vec::new(); args.schedulers.len()];
    let mut title = None;
    let bar = progress_bar(0);
    for seed in first..=last {
        let workload = workload(args, machines, seed)?;
        title.get_or_insert_with(|| heading(&workload, &machines.machines));
        bar.set_length(
            ((last - first + 1) as usize * args.schedulers.len() * workload.arrivals.len()) as u64,
        );
        let outcomes = outcomes(args, machines, &workload, seed, &bar);
        runs.iter_mut().zip(outcomes).for_each(|(runs, outcome)| runs.push(outcome.summary));
    }
    bar.finish_and_clear();
    let spreads: Vec<Spread> = runs.into_iter().filter_map(Spread::of).collect();
    let document = RangesDocument {
        first_seed: first,
        last_seed: last,
        nodes: machines.machines.len(),
        cpus: open_cpus(&machines.machines),
        schedulers: &spreads,
    };
    let table = |_| {
        let table = table::ranges(&spreads);
        let (title, verdict) = (title.clone().unwrap_or_default(), table::verdict_of_ranges(&spreads));
        format!("{title}\n{table}\n{verdict}{}\n", machines.guess())
    };
    Ok(args.output.format.write(&document, table)?)
}

fn run_once(args: &Args, found: &Machines) -> anyhow::Result<String> {
    let machines = &found.machines;
    let workload = workload(args, found, args.seed)?;
    if let Some(file) = &args.save_workload {
        write(file, runtime::yaml::write(&workload)?.as_bytes())?;
    }
    let bar = progress_bar(args.schedulers.len() * workload.arrivals.len());
    let entries = outcomes(args, found, &workload, args.seed, &bar);
    bar.finish_and_clear();
    if let Some(file) = &args.chart {
        draw(file, &entries, &heading(&workload, machines))?;
    }
    let sentences = format!("{}{}{}", table::verdict(&entries), found.guess(), found.removal());
    if let Some(file) = &args.report {
        let words: Vec<String> =
            std::env::args_os().skip(1).map(|word| quoted(&word.to_string_lossy())).collect();
        let report = HtmlReport {
            heading: &heading(&workload, machines),
            verdict: &sentences,
            command: &format!("tholepin {}", words.join(" ")),
            outcomes: &entries,
        };
        write(file, report.html().as_bytes())?;
    }
    let document = Document {
        seed: args.seed,
        nodes: machines.len(),
        cpus: open_cpus(machines),
        pods: workload.arrivals.len(),
        displaced: found.displaced.len(),
        lost: &found.lost,
        schedulers: &entries,
    };
    let table = |wide| {
        let table = table::render(&entries, wide);
        format!("{}\n{table}\n{sentences}\n{}", heading(&workload, machines), table::refusals(&entries))
    };
    Ok(args.output.format.write(&document, table)?)
}

/// The pods: those of removed nodes first, at the beginning.
fn workload(args: &Args, found: &Machines, seed: u64) -> anyhow::Result<Workload> {
    let mut workload = chosen_workload(args, found, seed)?;
    let displaced = found.displaced.iter().cloned().map(Arrival::of);
    workload.arrivals = displaced.chain(workload.arrivals).collect();
    Ok(workload)
}

fn chosen_workload(args: &Args, found: &Machines, seed: u64) -> anyhow::Result<Workload> {
    if let Some(pending) = &found.pending {
        let arrivals = pending.iter().cloned().map(Arrival::of).collect();
        return Ok(Workload { max_pending: None, arrivals });
    }
    if let Some(file) = &args.workload {
        return Ok(Workload::read(file)?);
    }
    let Defaults { pods, rate, load, kinds, .. } = args.preset.defaults();
    let open = OpenArrivals {
        pods: args.pods.unwrap_or(pods),
        rate: args.rate.unwrap_or(rate),
        load: args.load.unwrap_or(load),
        cpus: open_cpus(&found.machines),
        max_pending: args.max_pending,
        kinds,
        seed,
    };
    Ok(open.workload()?)
}

fn heading(workload: &Workload, machines: &[Machine]) -> String {
    let zones: Vec<usize> = machines.iter().map(|machine| machine.topology.zones.len()).collect();
    let zones = match (zones.iter().min(), zones.iter().max()) {
        (Some(low), Some(high)) if low == high => low.to_string(),
        (low, high) => format!("{} to {}", low.copied().unwrap_or(0), high.copied().unwrap_or(0)),
    };
    let zones = if zones == "1" { "1 NUMA zone".to_owned() } else { format!("{zones} NUMA zones") };
    format!(
        "{} on {} with {zones} each and {} available",
        count(workload.arrivals.len() as u64, "pod"),
        count(machines.len() as u64, "node"),
        count(u64::from(open_cpus(machines)), "CPU"),
    )
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=,./:+".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

fn draw(file: &Path, entries: &[Outcome], heading: &str) -> anyhow::Result<()> {
    write(file, chart::svg(entries, heading).as_bytes())
}

fn write(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    fs::write(file, bytes).with_context(|| format!("writing {}", file.display()))
}

fn progress_bar(pods: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(pods as u64), ProgressDrawTarget::stderr());
    match ProgressStyle::with_template("{msg:9} {bar:40} {pos}/{len} pods {elapsed}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A topology manager policy, as a flag has it.
///
/// # Errors
/// The names that are allowed.
pub fn policy(text: &str) -> Result<Policy, String> {
    Policy::parse(text)
        .ok_or_else(|| "allowed are none, best-effort, restricted, single-numa-node".to_owned())
}

/// A topology manager scope, as a flag has it.
///
/// # Errors
/// The names that are allowed.
pub fn scope(text: &str) -> Result<Scope, String> {
    Scope::parse(text).ok_or_else(|| "allowed are container, pod".to_owned())
}

fn cpu_option(text: &str) -> Result<CpuOption, String> {
    CpuOption::parse(text).ok_or_else(|| {
        let all: Vec<&str> = CpuOption::ALL.into_iter().map(CpuOption::as_str).collect();
        format!("allowed are {}", all.join(", "))
    })
}

fn latency(text: &str) -> Result<Latency, String> {
    match text {
        "cluster" => Ok(Latency::cluster()),
        "zero" => Ok(Latency::zero()),
        _ => Err("allowed are cluster, zero".to_owned()),
    }
}

/// A period of 0.001 s to a day, in milliseconds.
fn period(text: &str) -> Result<u64, String> {
    let seconds: Option<f64> = text.parse().ok();
    let seconds = seconds.filter(|seconds| (0.001..=86_400.0).contains(seconds));
    seconds
        .map(|s| (s * 1000.0).round() as u64)
        .ok_or_else(|| "allowed are 0.001 to 86400 seconds".to_owned())
}

/// `1-20`, both included.
fn seeds(text: &str) -> Result<(u64, u64), String> {
    let error =
        || format!("allowed are two seeds, the smaller one first, such as 1-20; at most {MAX_SEEDS} of them");
    let (first, last) = text.split_once('-').ok_or_else(error)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| error());
    let (first, last) = (number(first)?, number(last)?);
    if first <= last && last - first < MAX_SEEDS { Ok((first, last)) } else { Err(error()) }
}

/// `10-70.5` seconds, in milliseconds.
fn moments(text: &str) -> Result<(u64, u64), String> {
    let error = || "allowed are two moments in seconds, the earlier one first, such as 10-70".to_owned();
    let (from, to) = text.split_once('-').ok_or_else(error)?;
    let moment = |text: &str| {
        let seconds: f64 = text.parse().map_err(|_| error())?;
        let in_range = (0.0..=MAX_TIME_MS as f64 / 1000.0).contains(&seconds);
        if in_range { Ok((seconds * 1000.0).round() as u64) } else { Err(error()) }
    };
    let (from, to) = (moment(from)?, moment(to)?);
    if from <= to { Ok((from, to)) } else { Err(error()) }
}

fn chart_file(text: &str) -> Result<PathBuf, String> {
    let file = PathBuf::from(text);
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => Ok(file),
        Some("png") => Err(
            "charts are SVG, and a browser or rsvg-convert turns one into PNG: allowed are names that end in .svg"
                .to_owned(),
        ),
        _ => Err("allowed are names that end in .svg".to_owned()),
    }
}

#[cfg(test)]
mod tests;
