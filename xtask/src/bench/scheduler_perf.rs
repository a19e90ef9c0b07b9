//! `cargo xtask bench schedule --scheduler-perf`: the performance cases of Kubernetes itself
//! (`test/integration/scheduler_perf`), with kube-scheduler and tholepin.
//!
//! In: names of cases. Out: a row for each case, workload and scheduler, and ratios. The cases are read from Go's
//! module cache. Each run has a fresh control plane with the flags that upstream gives to its API server. Both
//! schedulers read the same configuration file, so tholepin runs without its NUMA plugin. Other than upstream's, the
//! schedulers are processes of their own, and kube-scheduler keeps its default feature gates (upstream turns off
//! `OpportunisticBatching`).

mod config;
mod executor;
mod objects;
mod operations;
mod pods;
mod server;
mod template;
mod throughput;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use testkit::controlplane::ControlPlaneOptions;

use super::rig::TestBed;
use super::schedule::{SchedulerChoice, round};
use config::{Case, Plan};
use throughput::{Throughput, throughput};

/// The cases that `all` names: those without special configuration, and of resource claims that of templates.
const ALL: [&str; 31] = [
    "SchedulingBasic",
    "SchedulingDaemonset",
    "PreemptionBasic",
    "PreemptionAsync",
    "Unschedulable",
    "SchedulingWithMixedChurn",
    "MixedSchedulingBasePod",
    "SchedulingWhileGated",
    "SchedulingGatedPodsWithPodAffinityImpactForThroughput",
    "SchedulingDeletedPodsWithFinalizers",
    "TopologySpreading",
    "PreferredTopologySpreading",
    "DefaultTopologySpreading",
    "SchedulingWithNodeInclusionPolicy",
    "SchedulingPodAntiAffinity",
    "SchedulingPodMatchingAntiAffinity",
    "SchedulingPodAffinity",
    "SchedulingPreferredPodAffinity",
    "SchedulingPreferredPodAntiAffinity",
    "SchedulingRequiredPodAntiAffinityWithNSSelector",
    "SchedulingPreferredAntiAffinityWithNSSelector",
    "SchedulingRequiredPodAffinityWithNSSelector",
    "SchedulingPreferredAffinityWithNSSelector",
    "SchedulingNodeAffinity",
    "SchedulingSecrets",
    "SchedulingInTreePVs",
    "SchedulingMigratedInTreePVs",
    "SchedulingCSIPVs",
    "PreemptionPVs",
    "SchedulingWithExtendedResource",
    "SchedulingWithResourceClaimTemplate",
];

/// Which cases, and how large.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// Cases of upstream's scheduler_perf instead; `all` is those for which tholepin is compared
    #[arg(long, num_args = 1.., value_delimiter = ',', value_name = "CASE")]
    pub(super) scheduler_perf: Vec<String>,
    /// The workload of each case; the largest of at most --max-nodes when not given
    #[arg(long, requires = "scheduler_perf")]
    workload: Option<String>,
    /// The most nodes of a workload, before --scale
    #[arg(long, default_value_t = 1000, requires = "scheduler_perf")]
    max_nodes: usize,
    /// Scale of the numbers of nodes and pods
    #[arg(long, default_value_t = 1.0, requires = "scheduler_perf", value_parser = scale)]
    scale: f64,
    /// Runs of each workload; the median counts for ratios
    #[arg(long, default_value_t = 1, requires = "scheduler_perf")]
    repeat: usize,
    /// Seconds that a run may take
    #[arg(long, default_value_t = 600, requires = "scheduler_perf")]
    time_limit: u64,
}

fn scale(text: &str) -> Result<f64, String> {
    let scale: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if scale > 0.0 && scale.is_finite() { Ok(scale) } else { Err("not above 0".to_owned()) }
}

/// One line of the result.
#[derive(Debug, Clone, Serialize)]
struct Row {
    case: String,
    workload: String,
    scheduler: &'static str,
    /// Which of several measurements of a workload.
    measurement: String,
    nodes: usize,
    /// Pods that were scheduled while it was measured.
    pods: usize,
    /// From the start of the measurement until the last pod was on a node.
    seconds: f64,
    /// None when all was over before the second sample.
    throughput: Option<Throughput>,
    cpu_s: f64,
    error: Option<String>,
}

/// Tholepin's figures divided by those of kube-scheduler; above 1 it is faster.
#[derive(Debug, Serialize)]
struct Ratio {
    case: String,
    workload: String,
    measurement: String,
    /// Of average throughputs.
    throughput_ratio: Option<f64>,
    /// Of pods by the time until the last one was on a node.
    rate_ratio: Option<f64>,
}

/// The geometric means over all cases.
#[derive(Debug, Serialize)]
struct Means {
    measurements: usize,
    throughput_ratio: Option<f64>,
    rate_ratio: Option<f64>,
}

/// Runs the cases.
pub(super) fn run(
    args: &Args,
    schedulers: &[SchedulerChoice],
    json: bool,
    binary: &Path,
) -> anyhow::Result<()> {
    let all = config::cases(&config::folder()?)?;
    let wanted: Vec<&str> = args
        .scheduler_perf
        .iter()
        .flat_map(|name| if name == "all" { ALL.to_vec() } else { vec![name.as_str()] })
        .collect();
    let find = |name: &&str| {
        let found = all.iter().find(|case| case.name == *name);
        found.with_context(|| {
            let names: Vec<&str> = all.iter().map(|case| case.name.as_str()).collect();
            format!("there is no case {name}, but {}", names.join(", "))
        })
    };
    let cases: Vec<&Case> = wanted.iter().map(find).collect::<anyhow::Result<_>>()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if !json {
        println!("{}", Row::header());
    }
    let mut ratios = Vec::new();
    for case in cases {
        let workload = case.workload(args.workload.as_deref(), args.max_nodes)?;
        let plan = case.plan(workload, args.scale)?;
        let mut rows: Vec<Row> = Vec::new();
        for _ in 0..args.repeat.max(1) {
            for choice in schedulers {
                let made = runtime.block_on(measure(args, &plan, *choice, binary));
                let made = rows_of(case, &workload.name, &plan, *choice, made);
                made.iter().try_for_each(|row| print(row, &row.to_string(), json))?;
                rows.extend(made);
            }
        }
        for ratio in ratios_of(&rows) {
            print(&ratio, &ratio.to_string(), json)?;
            ratios.push(ratio);
        }
    }
    let means = Means {
        measurements: ratios.len(),
        throughput_ratio: geometric_mean(ratios.iter().filter_map(|ratio| ratio.throughput_ratio)),
        rate_ratio: geometric_mean(ratios.iter().filter_map(|ratio| ratio.rate_ratio)),
    };
    print(&means, &means.to_string(), json)
}

fn print(line: &impl Serialize, text: &str, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(line)?);
    } else {
        println!("{text}");
    }
    Ok(())
}

/// Runs a plan once, within the time limit.
async fn measure(
    args: &Args,
    plan: &Plan,
    choice: SchedulerChoice,
    binary: &Path,
) -> anyhow::Result<Vec<executor::Result>> {
    let limit = Duration::from_secs(args.time_limit);
    let run = measure_for_ever(plan, choice, binary.to_owned());
    let made = tokio::time::timeout(limit, Box::pin(run)).await;
    made.with_context(|| format!("not finished within {} s", args.time_limit))?
}

async fn measure_for_ever(
    plan: &Plan,
    choice: SchedulerChoice,
    binary: PathBuf,
) -> anyhow::Result<Vec<executor::Result>> {
    let gates: Vec<String> = plan.feature_gates.iter().map(|(gate, on)| format!("{gate}={on}")).collect();
    let gates = format!("--feature-gates={}", gates.join(","));
    let api_server_flags = vec![
        "--disable-admission-plugins=TaintNodesByCondition,Priority".to_owned(),
        "--request-timeout=10m".to_owned(),
        gates.clone(),
    ];
    let options = ControlPlaneOptions { api_server_flags, ..ControlPlaneOptions::default() };
    let mut bed = TestBed::without_nodes(options, binary).await?;
    let control = bed.cluster.control();
    // Claims of templates are made by this controller.
    let _controllers = if plan.feature_gates.get("DynamicResourceAllocation") == Some(&true) {
        Some(control.start_controllers(&["resourceclaim-controller"]).await?)
    } else {
        None
    };
    let own = match choice {
        SchedulerChoice::KubeScheduler => Some(control.start_scheduler_with(&[gates]).await?),
        SchedulerChoice::Tholepin => {
            bed.start_scheduler_as_stock().await?;
            None
        }
    };
    let process = own.as_ref().or(bed.scheduler.as_ref()).context("no scheduler")?;
    let client = bed.cluster.client().await?;
    executor::execute(plan, client, process).await
}

fn rows_of(
    case: &Case,
    workload: &str,
    plan: &Plan,
    choice: SchedulerChoice,
    made: anyhow::Result<Vec<executor::Result>>,
) -> Vec<Row> {
    let empty = Row {
        case: case.name.clone(),
        workload: workload.to_owned(),
        scheduler: choice.name(),
        measurement: String::new(),
        nodes: plan.nodes(),
        pods: 0,
        seconds: 0.0,
        throughput: None,
        cpu_s: 0.0,
        error: None,
    };
    match made {
        Err(error) => vec![Row { error: Some(format!("{error:#}")), ..empty }],
        Ok(results) => {
            let row = |result: executor::Result| Row {
                measurement: result.measurement.name.clone(),
                pods: result.measurement.scheduled.len(),
                seconds: result.measurement.scheduled.iter().max().map_or(0.0, Duration::as_secs_f64),
                throughput: throughput(&result.measurement.scheduled, result.measurement.lasted),
                cpu_s: round(result.cpu_s),
                ..empty.clone()
            };
            results.into_iter().map(row).collect()
        }
    }
}

/// A ratio for each measurement that both schedulers have.
fn ratios_of(rows: &[Row]) -> Vec<Ratio> {
    let mut by_measurement: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.error.is_none() && row.pods > 0) {
        by_measurement.entry(&row.measurement).or_default().push(row);
    }
    let ratio = |(measurement, rows): (&str, Vec<&Row>)| {
        let figure = |choice: SchedulerChoice, figure: fn(&Row) -> Option<f64>| {
            let of_choice = rows.iter().filter(|row| row.scheduler == choice.name());
            median(of_choice.filter_map(|row| figure(row)).collect())
        };
        let divided = |value: fn(&Row) -> Option<f64>| {
            Some(figure(SchedulerChoice::Tholepin, value)? / figure(SchedulerChoice::KubeScheduler, value)?)
        };
        let first = rows.first()?;
        let rate_ratio = divided(|row| (row.seconds > 0.0).then(|| row.pods as f64 / row.seconds))?;
        Some(Ratio {
            case: first.case.clone(),
            workload: first.workload.clone(),
            measurement: measurement.to_owned(),
            throughput_ratio: divided(|row| row.throughput.map(|throughput| throughput.average)),
            rate_ratio: Some(rate_ratio),
        })
    };
    by_measurement.into_iter().filter_map(ratio).collect()
}

pub(super) fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let half = figures.len() / 2;
    let upper = figures.get(half)?;
    if figures.len() % 2 == 1 {
        return Some(*upper);
    }
    Some(f64::midpoint(*upper, *figures.get(half.checked_sub(1)?)?))
}

fn geometric_mean(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let logarithms: Vec<f64> = figures.map(f64::ln).collect();
    (!logarithms.is_empty()).then(|| (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp())
}

impl Row {
    fn header() -> String {
        format!(
            "{:<50} {:<40} {:<15} {:>6} {:>6} {:>8} {:>8} {:>7} {:>7} {:>7} {:>8}",
            "CASE",
            "WORKLOAD",
            "SCHEDULER",
            "NODES",
            "PODS",
            "SECONDS",
            "AVERAGE",
            "P50",
            "P90",
            "P99",
            "CPU"
        )
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:<50} {:<40} {:<15} {:>6}", self.case, self.workload, self.scheduler, self.nodes)?;
        if let Some(error) = &self.error {
            return write!(f, " {error}");
        }
        let rate = |figure: fn(&Throughput) -> f64| {
            self.throughput.as_ref().map_or_else(|| "-".to_owned(), |rates| format!("{:.0}", figure(rates)))
        };
        let (average, p50, p90, p99) =
            (rate(|t| t.average), rate(|t| t.p50), rate(|t| t.p90), rate(|t| t.p99));
        write!(
            f,
            " {:>6} {:>6.2} s {average:>8} {p50:>7} {p90:>7} {p99:>7} {:>6.2} s",
            self.pods, self.seconds, self.cpu_s
        )
    }
}

fn ratio_text(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (throughput, rate) = (ratio_text(self.throughput_ratio), ratio_text(self.rate_ratio));
        write!(
            f,
            "{:<50} {:<40} tholepin/kube-scheduler: throughput {throughput}, pods by time {rate}",
            self.case, self.workload
        )
    }
}

impl std::fmt::Display for Means {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (throughput, rate) = (ratio_text(self.throughput_ratio), ratio_text(self.rate_ratio));
        write!(
            f,
            "geometric mean of {} measurements, tholepin/kube-scheduler: throughput {throughput}, pods by time {rate}",
            self.measurements
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scheduler: SchedulerChoice, measurement: &str, seconds: f64, average: Option<f64>) -> Row {
        let throughput =
            average.map(|average| Throughput { average, p50: average, p90: average, p99: average });
        Row {
            case: "Case".to_owned(),
            workload: "workload".to_owned(),
            scheduler: scheduler.name(),
            measurement: measurement.to_owned(),
            nodes: 1,
            pods: 100,
            seconds,
            throughput,
            cpu_s: 1.0,
            error: None,
        }
    }

    #[test]
    fn ratios_are_of_medians_and_of_what_both_have() {
        use SchedulerChoice::{KubeScheduler, Tholepin};
        let failed = Row { error: Some("late".to_owned()), ..row(Tholepin, "c", 1.0, Some(1.0)) };
        let rows = [
            row(KubeScheduler, "a", 4.0, Some(20.0)),
            row(KubeScheduler, "a", 2.0, Some(60.0)),
            row(KubeScheduler, "a", 5.0, Some(30.0)),
            row(Tholepin, "a", 2.0, Some(60.0)),
            row(KubeScheduler, "b", 1.0, None),
            row(Tholepin, "b", 2.0, Some(10.0)),
            row(KubeScheduler, "c", 1.0, Some(1.0)),
            failed,
        ];
        let ratios = ratios_of(&rows);
        let figures: Vec<_> =
            ratios.iter().map(|r| (r.measurement.as_str(), r.throughput_ratio, r.rate_ratio)).collect();
        assert_eq!(figures, [("a", Some(2.0), Some(2.0)), ("b", None, Some(0.5))]);
    }

    #[test]
    fn means_are_geometric() {
        let mean = geometric_mean([2.0, 8.0].into_iter()).unwrap();
        assert!((mean - 4.0).abs() < 1e-9, "{mean}");
        assert_eq!(geometric_mean(std::iter::empty()), None);
        for (figures, expected) in
            [(vec![], None), (vec![3.0, 1.0], Some(2.0)), (vec![9.0, 1.0, 2.0], Some(2.0))]
        {
            assert_eq!(median(figures), expected);
        }
    }
}
