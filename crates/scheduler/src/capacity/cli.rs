//! The command line of `tholepin capacity`.
//!
//! In: flags. Out: a capacity on standard output, notes on standard error, an exit code. Never: a write to the cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use runtime::client::ClusterArgs;
use runtime::output::{OutputArgs, TableFormat};
use runtime::stderr;
use runtime::stdout::print;
use tokio_util::sync::CancellationToken;

use super::{Capacity, count, shape};
use crate::config;
use crate::explain::target_pod::TargetPod;
use crate::shell::snapshot::{Snapshot, Source};

/// The exit code for files that cannot be read and clusters that do not answer.
const WRONG_INPUT: u8 = 2;

/// Tell how many more pods like one fit, and on which nodes. The scheduler's own code decides, on a copy; nothing is
/// changed. Pods that wait for a node take nothing.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    tholepin capacity --shape cpu=4,memory=8Gi\n  \
    tholepin capacity --shape cpu=11,memory=40Gi,nvidia.com/gpu=1 --at-least 16 -o json\n  \
    tholepin capacity --pod trainer.yaml --cluster must-gather/\n  \
    kubectl get nodes,pods,noderesourcetopologies -A -o yaml >dump.yaml\n  \
    tholepin capacity --pod trainer.yaml --cluster dump.yaml --config scheduler.yaml\n\n\
    The exit code is 0 if at least so many fit as --at-least says, 1 if fewer do, 2 for wrong input.")]
pub struct Args {
    /// A pod: the first of a file, or the template of a Deployment or the like; - for standard input
    #[arg(long, value_name = "FILE", required_unless_present = "shape", conflicts_with = "shape")]
    pub pod: Option<PathBuf>,
    /// A Guaranteed pod of one container that asks for these amounts
    #[arg(long, value_name = "NAME=AMOUNT,...")]
    pub shape: Option<String>,
    /// How many have to fit
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub at_least: usize,
    /// How many to place at most
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    pub up_to: usize,
    /// The objects of the cluster, in place of an API server's: dumps as kubectl prints them, or folders of a
    /// must-gather
    #[arg(long = "cluster", value_name = "PATH", num_args = 1.., conflicts_with_all = ["kubeconfig", "context"])]
    pub dumps: Vec<PathBuf>,
    /// The scheduler's configuration file [default: that of tholepin scheduler without one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The cluster.
    #[command(flatten)]
    pub connection: ClusterArgs,
    /// The format of the result.
    #[command(flatten)]
    pub output: OutputArgs<TableFormat>,
}

/// Runs the command. Wrong input is told on standard error, with file and field, and the exit code is 2.
///
/// # Errors
/// When the output cannot be written, or `token` is cancelled before the answer.
pub async fn run(args: Args, token: CancellationToken) -> anyhow::Result<ExitCode> {
    let counted = tokio::select! {
        counted = counted(&args) => counted,
        () = token.cancelled() => bail!("interrupted"),
    };
    let capacity = match counted {
        Ok(capacity) => capacity,
        Err(error) => {
            stderr::line(format_args!("error: {error:#}"));
            return Ok(ExitCode::from(WRONG_INPUT));
        }
    };
    print(&args.output.format.write(&capacity, |wide| capacity.text(wide))?)?;
    Ok(if capacity.fits >= args.at_least { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the flags ask for. Notes are told on standard error.
///
/// # Errors
/// When a file or a cluster cannot be read.
pub async fn counted(args: &Args) -> anyhow::Result<Capacity> {
    let settings = config::read(args.config.as_deref(), 0)?;
    let target = match (&args.pod, &args.shape) {
        (Some(file), _) => TargetPod::of_file(file)?,
        (None, shape) => {
            let scheduler = settings.profiles.first().map_or("", |profile| &*profile.name);
            let manifest =
                shape::manifest(shape.as_deref().unwrap_or_default(), scheduler).context("--shape")?;
            TargetPod::of_manifest(manifest).map_err(anyhow::Error::msg)?
        }
    };
    let mut snapshot = Snapshot::default();
    snapshot.fill(Source { dumps: &args.dumps, connection: &args.connection, command: "capacity" }).await?;
    let now_ms = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
    let limit = args.up_to.max(args.at_least);
    let (capacity, notes) = count(settings, snapshot, target, limit, now_ms)?;
    for note in notes {
        stderr::line(format_args!("note: {note}"));
    }
    Ok(capacity)
}
