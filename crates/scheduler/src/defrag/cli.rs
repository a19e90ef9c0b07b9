//! The command line of `tholepin defrag`.
//!
//! In: flags. Out: a plan on standard output, progress and notes on standard error, an exit code. Never: an eviction
//! without `--apply`, or one that nobody has confirmed.

use std::collections::BTreeSet;
use std::io::{BufRead as _, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use api::goduration::GoDuration;
use runtime::output::{OutputArgs, TableFormat};
use runtime::stderr;
use runtime::stdout::print;
use tokio_util::sync::CancellationToken;

use super::apply::{Applied, Applier};
use super::{Objects, Plan, Rules, plan, waiting};
use crate::capacity::{asked, numbered, shape};
use crate::cluster_input::{ClusterInput, answered, tell};
use crate::pod::PodView;
use crate::shell::now_ms;
use crate::shell::snapshot::Snapshot;

/// Most pods that room is made for.
const MAX_PODS: usize = 1_000;

/// Plan the fewest moves of pods that make room for others, and carry them out if asked to.
///
/// A move is an eviction: the pod's controller makes it again, and the scheduler places it on another node. Each move is
/// played through with the scheduler's own code first. Pods without a controller, those that a PodDisruptionBudget
/// keeps, and those that are more important than the pod that gets the room, stay.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    tholepin defrag\n  \
    tholepin defrag --shape cpu=8,memory=16Gi,nvidia.com/gpu=4 --count 2\n  \
    tholepin defrag --pod trainer.yaml --cluster must-gather/ -o json\n  \
    tholepin defrag --apply --rate 2\n\n\
    The exit code is 0 if all pods have or get room, 1 if not, 2 for wrong input.")]
pub struct Args {
    /// Make room for the pods that wait for a node; the default
    #[arg(long, conflicts_with_all = ["pod", "shape"])]
    pub pending: bool,
    /// Make room for a pod: the first of a file, or the template of a Deployment or the like; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "shape")]
    pub pod: Option<PathBuf>,
    /// Make room for a Guaranteed pod of one container that asks for these amounts
    #[arg(long, value_name = "NAME=AMOUNT,...")]
    pub shape: Option<String>,
    /// How many such pods
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = count)]
    pub count: usize,
    /// Most moves for one pod
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = moves)]
    pub max_moves: usize,
    /// Pods that run to completion may begin anew
    #[arg(long)]
    pub move_jobs: bool,
    /// Pods may lose what is in their emptyDir volumes
    #[arg(long)]
    pub move_local_data: bool,
    /// Print the plan and change nothing; the default
    #[arg(long, conflicts_with = "apply")]
    pub plan: bool,
    /// Carry the plan out, move by move. Nodes that pods leave are cordoned meanwhile. Before each move the plan is made
    /// again; if it has become worse, nothing more is done
    #[arg(long, conflicts_with = "dumps")]
    pub apply: bool,
    /// Do not ask before the first eviction
    #[arg(long, requires = "apply")]
    pub yes: bool,
    /// Most moves in a minute
    #[arg(long, value_name = "NUMBER", default_value_t = 6, value_parser = rate, requires = "apply")]
    pub rate: u32,
    /// How long to wait for each pod to run again, and for reports of nodes
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = GoDuration::positive, requires = "apply")]
    pub patience: Duration,
    /// The cluster.
    #[command(flatten)]
    pub input: ClusterInput,
    /// The format of the result.
    #[command(flatten)]
    pub output: OutputArgs<TableFormat>,
}

fn number(text: &str, most: u32) -> Result<u32, String> {
    let parsed = text.parse().ok().filter(|number| (1..=most).contains(number));
    parsed.ok_or_else(|| format!("allowed are 1 to {most}"))
}

fn count(text: &str) -> Result<usize, String> {
    number(text, MAX_PODS as u32).map(|count| count as usize)
}

fn moves(text: &str) -> Result<usize, String> {
    number(text, 16).map(|moves| moves as usize)
}

fn rate(text: &str) -> Result<u32, String> {
    number(text, 600)
}

/// Runs the command. Wrong input is told on standard error, with file and field, and the exit code is 2.
///
/// # Errors
/// When the output cannot be written, a move fails, or `token` is cancelled. Nodes that were cordoned here are open
/// again then.
pub async fn run(args: Args, token: CancellationToken) -> anyhow::Result<ExitCode> {
    let (applier, plan) = match answered(first_look(&args), &token).await? {
        Ok(answer) => answer,
        Err(code) => return Ok(code),
    };
    print(&args.output.format.write(&plan, |wide| plan.text(wide))?)?;
    if let Some(mut applier) = applier.filter(|_| plan.moves > 0) {
        if !args.yes && !confirmed(&plan)? {
            stderr::line("nothing was changed");
            return Ok(ExitCode::FAILURE);
        }
        let Applied { moves } = applier.run(&args, plan.clone(), &token).await?;
        stderr::line(format_args!("{moves} of {} moves done", plan.moves));
    }
    Ok(if plan.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What carries a plan out, if one is to be, and the plan.
async fn first_look(args: &Args) -> anyhow::Result<(Option<Applier>, Plan)> {
    ensure!(
        !args.apply || args.count == 1,
        // The room of the first would be taken by pods that move for the second.
        "--count {}: --apply makes room for pods that wait; create them, and leave --shape and --pod out",
        args.count
    );
    let applier = match args.apply {
        true => Some(Applier::open(args).await?),
        false => None,
    };
    Ok((applier, planned(args, &BTreeSet::new(), true).await?))
}

/// The plan for the cluster as it is now. `closed`: nodes that count as open. Notes are told on standard error if
/// `is_first`.
///
/// # Errors
/// When a file or a cluster cannot be read.
pub(super) async fn planned(args: &Args, closed: &BTreeSet<String>, is_first: bool) -> anyhow::Result<Plan> {
    let settings = args.input.settings()?;
    let mut snapshot = Snapshot::finding_pinned();
    args.input.fill(&mut snapshot, "defrag").await?;
    snapshot.open(closed);
    let rules = Rules {
        max_moves: args.max_moves,
        moves_jobs: args.move_jobs,
        moves_local_data: args.move_local_data,
    };
    let now_ms = now_ms();
    let mut target = shape::of_flags(args.pod.as_deref(), args.shape.as_deref(), &settings)?;
    let pods: Vec<PodView> = match &mut target {
        Some(target) => {
            target.choose_profile(&settings)?;
            let pod = asked(target, now_ms);
            (0..args.count).map(|number| numbered(&pod, number)).collect()
        }
        None => waiting(&settings, &snapshot),
    };
    if let Some(target) = target.filter(|_| is_first) {
        tell(&target.notes);
    }
    ensure!(
        pods.len() <= MAX_PODS,
        "{} pods wait for a node: allowed are {MAX_PODS}; use --pod or --shape",
        pods.len()
    );
    let shows = is_first && std::io::stderr().is_terminal();
    let mut before_each = |number: usize| {
        if shows {
            stderr::line(format_args!(
                "looking for room for {}, {} of {}",
                pods[number].key(),
                number + 1,
                pods.len()
            ));
        }
    };
    Ok(plan(settings, Objects::of(snapshot), &pods, rules, now_ms, &mut before_each))
}

/// Whether a person agrees.
fn confirmed(plan: &Plan) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("--apply evicts pods: confirm with --yes where no terminal can be asked");
    }
    stderr::print(format_args!("Evict {} pods, one after the other? [y/N] ", plan.moves));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).context("reading the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
