//! The command line of `tholepin defrag`.
//!
//! In: flags. Out: a plan on standard output, progress and notes on standard error, an exit code. Never: an eviction
//! without `--apply`, or one that was not confirmed.

use std::collections::BTreeSet;
use std::io::{BufRead as _, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use api::goduration::GoDuration;
use runtime::output::{OutputArgs, TableFormat};
use runtime::stderr;
use runtime::stdout::print;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::apply::Applier;
use super::{ClusterObjects, Plan, PlanOptions, plan, waiting};
use crate::capacity::{asked, numbered, shape};
use crate::cluster_input::{ClusterInput, answered, tell};
use crate::core::Settings;
use crate::pod::PodView;
use crate::shell::now_ms;
use crate::shell::snapshot::Snapshot;

/// Most pods that room is made for.
const MAX_PODS: usize = 1_000;

/// Plan the fewest moves of pods that make room for others, and make them if asked.
///
/// A move is an eviction: the pod's controller makes it again, and the scheduler places it on another node. Each move
/// is played through with the scheduler's own code first. Pods without a controller, those that a PodDisruptionBudget
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
    /// Carry the plan out, move by move. Nodes that pods leave are cordoned meanwhile. Before each move the plan is
    /// made again; if it has become worse, nothing more is done
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
    let (request, applier, plan) = match answered(first_look(args), &token).await? {
        Ok(answer) => answer,
        Err(code) => return Ok(code),
    };
    let args = &request.args;
    print(&args.output.format.write(&plan, |wide| plan.text(wide))?)?;
    if let Some(mut applier) = applier.filter(|_| plan.moves > 0) {
        let agreed = args.yes || interruptible(confirmed(plan.moves), &token).await?;
        if !agreed {
            stderr::line("nothing was changed");
            return Ok(ExitCode::FAILURE);
        }
        let moves = applier.run(&request, &plan, &token).await?;
        stderr::line(format_args!("{moves} of {} moves done", plan.moves));
    }
    Ok(if plan.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The request, what carries a plan out if that is asked for, and the plan.
async fn first_look(args: Args) -> anyhow::Result<(PlanRequest, Option<Applier>, Plan)> {
    ensure!(
        !args.apply || args.count == 1,
        // The room of the first would be taken by pods that move for the second.
        "--count {}: --apply makes room for pods that wait; create them, and leave --shape and --pod out",
        args.count
    );
    let request = PlanRequest::of(args)?;
    let (applier, opened) = match request.args.apply {
        true => Some(Applier::open(&request.args).await?).unzip(),
        false => (None, None),
    };
    let plan = request.plan(&opened.unwrap_or_default(), None).await?;
    Ok((request, applier, plan))
}

/// What is asked for. Files and standard input are read once.
pub(super) struct PlanRequest {
    pub(super) args: Args,
    settings: Settings,
    /// The pods that need room, if not those that wait.
    pods: Option<Vec<PodView>>,
}

impl PlanRequest {
    fn of(args: Args) -> anyhow::Result<Self> {
        let settings = args.input.settings()?;
        let target = shape::of_flags(args.pod.as_deref(), args.shape.as_deref(), &settings)?;
        let pods = target.map(|mut target| {
            target.choose_profile(&settings)?;
            tell(&target.notes);
            let pod = asked(&target, now_ms());
            anyhow::Ok((0..args.count).map(|number| numbered(&pod, number)).collect())
        });
        Ok(Self { pods: pods.transpose()?, args, settings })
    }

    /// The plan for the cluster as it is now. `cordoned`: nodes that count as open. `only`: the uids of the pods that
    /// it may be about; `None`: all, with progress on a terminal.
    ///
    /// # Errors
    /// When the cluster or a file cannot be read.
    pub(super) async fn plan(
        &self,
        cordoned: &BTreeSet<String>,
        only: Option<&BTreeSet<Arc<str>>>,
    ) -> anyhow::Result<Plan> {
        let mut snapshot = Snapshot::finding_blockers();
        self.args.input.fill(&mut snapshot, "defrag").await?;
        snapshot.uncordon(cordoned);
        let mut pods = self.pods.clone().unwrap_or_else(|| waiting(&self.settings, &snapshot));
        pods.retain(|pod| only.is_none_or(|uids| uids.contains(&pod.uid)));
        ensure!(
            pods.len() <= MAX_PODS,
            "{} pods wait for a node: allowed are {MAX_PODS}; use --pod or --shape",
            pods.len()
        );
        let rules = PlanOptions {
            max_moves: self.args.max_moves,
            moves_jobs: self.args.move_jobs,
            moves_local_data: self.args.move_local_data,
        };
        let (settings, objects) = (self.settings.clone(), ClusterObjects::of(snapshot));
        let shows = only.is_none() && std::io::stderr().is_terminal();
        // A search may take a while, and signals are to be heard meanwhile.
        beside(move || {
            let mut before_each = |number: usize| {
                if shows {
                    let (pod, all) = (pods[number].key(), pods.len());
                    stderr::line(format_args!("looking for room for {pod}, {} of {all}", number + 1));
                }
            };
            plan(settings, objects, &pods, rules, now_ms(), &mut before_each)
        })
        .await
    }
}

/// Whether a person agrees.
async fn confirmed(moves: usize) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("--apply evicts pods: confirm with --yes where no terminal can be asked");
    }
    stderr::print(format_args!("Evict {moves} pods, one after the other? [y/N] "));
    let read = || {
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer).map(|_| answer)
    };
    let answer = beside(read).await?.context("reading the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The result of work on a thread of its own, which ends with the process at the latest.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> anyhow::Result<T> {
    let (send, receive) = oneshot::channel();
    // A receiver that is gone was interrupted.
    std::thread::spawn(move || drop(send.send(work())));
    receive.await.context("a thread has ended without a result")
}

/// The result, unless `token` is cancelled before.
pub(super) async fn interruptible<T>(
    work: impl Future<Output = anyhow::Result<T>>,
    token: &CancellationToken,
) -> anyhow::Result<T> {
    tokio::select! {
        biased;
        () = token.cancelled() => bail!("interrupted"),
        result = work => result,
    }
}
