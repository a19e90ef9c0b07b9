//! The command line of `tholepin capacity`.
//!
//! In: flags. Out: a capacity on standard output, notes on standard error, an exit code. Never: a write to the cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use runtime::output::{OutputArgs, TableFormat};
use runtime::stdout::print;
use tokio_util::sync::CancellationToken;

use super::{Capacity, NodeOrder, count, shape};
use crate::cluster_input::{ClusterInput, answered, tell};
use crate::shell::now_ms;
use crate::shell::snapshot::Snapshot;

/// Tell how many more pods like one fit, and on which nodes. The scheduler's own code decides, on a copy; nothing is
/// changed. Pods that wait for a node take nothing.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    tholepin capacity --shape cpu=4,memory=8Gi\n  \
    tholepin capacity --shape cpu=11,memory=40Gi,nvidia.com/gpu=1 --at-least 16 -o json\n  \
    tholepin capacity --pod trainer.yaml --cluster must-gather/\n  \
    tholepin capacity --shape cpu=4,memory=8Gi --sort left -o wide\n  \
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
    /// How many to count at most on a node, or in all if pods like it look at other nodes (spread, affinity)
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    pub up_to: usize,
    /// The order of nodes
    #[arg(long, value_name = "ORDER", value_enum, default_value_t, hide_possible_values = false)]
    pub sort: NodeOrder,
    /// The cluster.
    #[command(flatten)]
    pub input: ClusterInput,
    /// The format of the result.
    #[command(flatten)]
    pub output: OutputArgs<TableFormat>,
}

/// Runs the command. Wrong input is told on standard error, with file and field, and the exit code is 2.
///
/// # Errors
/// When the output cannot be written, or `token` is cancelled before the answer.
pub async fn run(args: Args, token: CancellationToken) -> anyhow::Result<ExitCode> {
    let capacity = match answered(counted(&args), &token).await? {
        Ok(capacity) => capacity,
        Err(code) => return Ok(code),
    };
    print(&args.output.format.write(&capacity, |wide| capacity.text(wide))?)?;
    Ok(if capacity.fits >= args.at_least { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the flags ask for. Notes are told on standard error.
///
/// # Errors
/// When a file or a cluster cannot be read.
pub async fn counted(args: &Args) -> anyhow::Result<Capacity> {
    let settings = args.input.settings()?;
    let target = shape::of_flags(args.pod.as_deref(), args.shape.as_deref(), &settings)?;
    let target = target.context("either --pod or --shape is needed")?;
    let mut snapshot = Snapshot::default();
    args.input.fill(&mut snapshot, "capacity").await?;
    let limit = args.up_to.max(args.at_least);
    let (capacity, notes) = count(settings, snapshot, target, limit, now_ms())?;
    tell(&notes);
    Ok(capacity.sorted(args.sort))
}
