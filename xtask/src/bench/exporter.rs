//! `cargo xtask bench exporter`: what an exporter costs its node and the API server, and how fresh its object is.
//!
//! In: our program, built with the profile `dist` and, with `--peer`, another exporter. Out: one row per case
//! and exporter. Both run at the same time in one cluster, each on a real kubelet of its own with the same
//! machine, the same pods and the same load, so that their figures are a comparison whatever else the machine
//! does.
//!
//! How it is measured:
//! - Memory is the highest `VmRSS` while nothing happens, sampled once a second; beside it that right after the
//!   load, and `VmHWM`, the most there ever was.
//! - CPU is what the kernel's scheduler counted for the process, as a share of one core.
//! - Our exporter runs with narrow and with wide mounts. The cgroups that wake the narrow one are stand-ins, made when
//!   the kubelet makes the pod's folder: a moment after the real ones, and without the load of making them.
//! - An allocation begins when the kubelet renames `cpu_manager_state` into place and ends when a watch of the API
//!   server delivers an object in which one CPU fewer is available.
//! - Writes are those in the API server's audit log, between the creation of a pod and its deletion
//!   (allocation) and from there to the next creation (release); their size is that of the bodies.

use std::path::PathBuf;
use std::time::Duration;

use api::goduration::GoDuration;
use clap::ValueEnum;
use serde::Serialize;

use self::field::{Field, Shape, Subject};
use super::rig::build_dist;

mod audit;
mod field;
mod load;
mod meter;
mod report;

pub(super) use report::cpus;

/// Footprint and freshness of the exporter.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask bench exporter --json\n  \
    cargo xtask bench exporter --case small-128cpu-4zone-110pod --peer ./resource-topology-exporter")]
pub(crate) struct Args {
    /// Only this case; may be repeated
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<Case>,
    /// What our exporter sees of its node; several run side by side, joined by commas
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["narrow", "wide"])]
    mounts: Vec<Mounts>,
    /// A resource-topology-exporter to run beside ours
    #[arg(long, value_name = "PATH")]
    peer: Option<PathBuf>,
    /// How often the peer looks; the operator sets 10s
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = GoDuration::parse_std)]
    peer_interval: Duration,
    /// Allocations one after the other
    #[arg(long, default_value_t = 100)]
    allocations: usize,
    /// How long idle CPU is measured, after as much time to calm down
    #[arg(long, value_name = "DURATION", default_value = "40s", value_parser = GoDuration::parse_std)]
    idle: Duration,
    /// How long pods come and go in the case of churn
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = GoDuration::parse_std)]
    churn: Duration,
    /// One JSON object per case and exporter instead of text
    #[arg(long)]
    json: bool,
    /// The tholepin binary to measure; built with the profile `dist` when not given
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// What our exporter sees of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mounts {
    /// The default: pods' cgroups show changes. The rig's kubelets make none; stand-ins follow the pods' folders
    Narrow,
    /// The kubelet's root directory: state files show changes
    Wide,
    /// Neither
    Blind,
}

/// A case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Case {
    /// Nothing runs
    #[value(name = "idle-128cpu-4zone-0pod")]
    Idle,
    /// 110 pods run; allocations one after the other
    #[value(name = "small-128cpu-4zone-110pod")]
    Small,
    /// Besides the 110, four pods a second come and go
    #[value(name = "churn-128cpu-4zone-110pod")]
    Churn,
    /// 500 pods run on a large machine; allocations one after the other
    #[value(name = "large-512cpu-32zone-500pod")]
    Large,
}

/// What was measured of one exporter in one case; what a case does not have is null.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    case: Case,
    exporter: &'static str,
    /// The kubelet: `real`.
    kubelet: &'static str,
    /// The most at rest, or under the load of the case of churn.
    rss_mib: f64,
    /// Right after the load.
    rss_after_mib: f64,
    /// The most ever, start included.
    rss_peak_mib: f64,
    /// Per cent of one core: idle, or under the load of the case of churn.
    cpu_percent: f64,
    /// The same of the kubelet that is asked.
    kubelet_cpu_percent: f64,
    #[serde(flatten)]
    load: Load,
}

/// What the load of a case showed.
#[derive(Debug, Default, Serialize)]
pub(super) struct Load {
    allocations: Option<usize>,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    /// Of that: until the API server had the request.
    exporter_p50_ms: Option<f64>,
    /// Of that: from then until the watch delivered the object.
    server_p50_ms: Option<f64>,
    writes_per_allocation: Option<f64>,
    writes_per_release: Option<f64>,
    writes_per_second: Option<f64>,
    pods_per_second: Option<f64>,
    bytes_per_write: Option<f64>,
}

const SMALL: Shape = Shape { zones: 4, cpus_per_zone: 32, pods: 110, aligned: true };
const LARGE: Shape = Shape { zones: 32, cpus_per_zone: 16, pods: 500, aligned: false };

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let binary = match &args.binary {
        Some(path) => path.clone(),
        None => build_dist()?,
    };
    let subjects = args.subjects(binary);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        for (shape, cases) in
            [(SMALL, [Case::Idle, Case::Small, Case::Churn].as_slice()), (LARGE, &[Case::Large])]
        {
            let cases: Vec<Case> = cases.iter().copied().filter(|case| args.wants(*case)).collect();
            if !cases.is_empty() {
                stage(&args, shape, &cases, &subjects).await?;
            }
        }
        Ok(())
    })
}

/// The cases of one shape, on one cluster.
async fn stage(args: &Args, shape: Shape, cases: &[Case], subjects: &[Subject]) -> anyhow::Result<()> {
    eprintln!("starting a cluster: {shape:?}");
    let field = Field::start(shape, subjects).await?;
    let mut filled = false;
    for case in cases {
        if *case != Case::Idle && !filled {
            eprintln!("starting {} pods a node", shape.pods);
            field.fill().await?;
            filled = true;
        }
        eprintln!("measuring {}", case.name());
        let rows = match case {
            Case::Idle => load::idle(&field, *case, args.idle).await?,
            Case::Small | Case::Large => load::one_by_one(&field, *case, args.idle, args.allocations).await?,
            Case::Churn => load::churn(&field, *case, args.churn).await?,
        };
        for row in rows {
            print(&row, args.json)?;
        }
    }
    Ok(())
}

impl Args {
    fn wants(&self, case: Case) -> bool {
        self.cases.is_empty() || self.cases.contains(&case)
    }

    fn subjects(&self, binary: PathBuf) -> Vec<Subject> {
        let interval = format!("--sleep-interval={}ms", self.peer_interval.as_millis());
        // There is no pod whose conditions the peer could keep.
        let peers =
            ["--metrics-mode=http", "--metrics-ip=127.0.0.1", "--metrics-port=PORT", "--podreadiness=false"];
        let owned = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
        let ours = self.mounts.iter().map(|mounts| {
            let state = if *mounts == Mounts::Wide { "ROOT" } else { "" };
            let args = ["exporter", "--metrics-ip=127.0.0.1", "--metrics-port=PORT"].map(str::to_owned);
            Subject {
                label: mounts.label(),
                program: binary.clone(),
                args: args.into_iter().chain([format!("--kubelet-state-dir={state}")]).collect(),
                cgroups: *mounts == Mounts::Narrow,
            }
        });
        let mut subjects: Vec<Subject> = ours.collect();
        subjects.extend(self.peer.iter().map(|program| {
            let args = [owned(&peers), vec![interval.clone()]].concat();
            Subject { label: "peer", program: program.clone(), args, cgroups: false }
        }));
        subjects
    }
}

impl Mounts {
    fn label(self) -> &'static str {
        match self {
            Self::Narrow => "narrow",
            Self::Wide => "wide",
            Self::Blind => "blind",
        }
    }
}

impl Case {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

impl Serialize for Case {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

fn print(row: &Row, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(row)?);
        return Ok(());
    }
    print!(
        "{:<27} {:<9} RSS {:>5.1} MiB (after {:.1}, peak {:.1})  CPU {:>6.3} %  kubelet {:>6.2} %",
        row.case.name(),
        row.exporter,
        row.rss_mib,
        row.rss_after_mib,
        row.rss_peak_mib,
        row.cpu_percent,
        row.kubelet_cpu_percent
    );
    let load = &row.load;
    let fields = [
        ("p50", load.p50_ms, " ms"),
        ("p99", load.p99_ms, " ms"),
        ("to the server p50", load.exporter_p50_ms, " ms"),
        ("from there p50", load.server_p50_ms, " ms"),
        ("writes/allocation", load.writes_per_allocation, ""),
        ("writes/release", load.writes_per_release, ""),
        ("writes/s", load.writes_per_second, ""),
        ("pods/s", load.pods_per_second, ""),
        ("bytes/write", load.bytes_per_write, ""),
    ];
    for (name, value, unit) in fields {
        if let Some(value) = value {
            print!("  {name} {value}{unit}");
        }
    }
    println!();
    Ok(())
}
