//! The program of `cargo xtask differential`.
//!
//! In: flags. Out: differences and, last, one JSON object with the counts; exit code 1 if there is a difference.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use differential::case::Case;
use differential::compare::compare;
use differential::kubelets::Kubelets;
use differential::respondent::{Respondent, RespondentKind};
use differential::scheduler;
use differential::search::{Failure, Options, keep, search};
use differential::tally::Tally;
use runtime::stderr;
use serde::de::DeserializeOwned;
use testkit::env::Program;
use testkit::oracle::{Oracle, Release};

/// Compare the model of the kubelet's admission with the kubelet's own packages, or with real kubelets, on random
/// machines, configurations and pods; or the scheduler with kube-scheduler's own plugins.
#[derive(Parser)]
#[command(name = "cargo xtask differential")]
#[command(args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Compare with real kubelets on the rig, with our device plugin; needs root
    #[arg(long)]
    kubelets: bool,
    /// Compare at least so many admissions [default: 20000, or 3000 with --kubelets]
    #[arg(long, value_name = "N")]
    admissions: Option<u64>,
    #[command(flatten)]
    search: SearchArgs,
    /// The kubelet: 1.34, 1.35, 1.36 or 1.37
    #[arg(long, value_name = "MINOR", default_value = "1.36")]
    kubernetes: Release,
    /// Compare one kept session instead of random ones
    #[arg(long, value_name = "FILE", conflicts_with_all = ["admissions", "seed", "first", "workers", "keep", "json"])]
    replay: Option<PathBuf>,
    /// Write the session of --replay and the kubelet's answers to a file, as a case for the tests
    #[arg(long, value_name = "FILE", requires = "replay")]
    record: Option<PathBuf>,
}

/// What every search can be told.
#[derive(clap::Args)]
struct SearchArgs {
    /// Seed of everything that is random
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Number of the first session or case, to go on with a search or look at one again
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u64,
    /// Oracles or kubelets at a time [default: one oracle or four kubelets for each CPU]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Folder for what differs: sessions for tholepin admit --session, or cases
    #[arg(long, value_name = "DIR", default_value = "target/differential")]
    keep: PathBuf,
    /// Print nothing but the counts, as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Compare the scheduler's core with kube-scheduler's own plugins on random clusters, configurations and pods
    Scheduler(SchedulerArgs),
}

#[derive(clap::Args)]
struct SchedulerArgs {
    /// Compare so many cases
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    cases: u64,
    #[command(flatten)]
    search: SearchArgs,
    /// Compare one kept case instead of random ones
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cases", "seed", "first", "workers", "keep", "json"])]
    replay: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if let Some(Command::Scheduler(args)) = &args.command {
        return against_kube_scheduler(args);
    }
    if args.kubelets {
        let kubelets = Kubelets::start(&testkit::env::check()?, args.kubernetes)?;
        run(&args, &|| Ok(kubelets.respondent()))
    } else {
        let program = args.kubernetes.find_or_build(&mut |_| {})?;
        run(&args, &|| Oracle::start(&program))
    }
}

/// Compares scheduling cycles.
fn against_kube_scheduler(args: &SchedulerArgs) -> anyhow::Result<ExitCode> {
    let programs = testkit::env::build::ensure(&mut |_| {})?;
    let program = programs.path(Program::SchedulerOracle);
    if let Some(file) = &args.replay {
        return replay_case(file, &mut Oracle::start(program)?);
    }
    let cpus = std::thread::available_parallelism().map_or(1, Into::into);
    let (seed, first, cases) = (args.search.seed, args.search.first, args.cases);
    let options =
        scheduler::search::Options { seed, first, cases, workers: args.search.workers.unwrap_or(cpus) };
    let begun = Instant::now();
    let tell = |tally: &scheduler::tally::Tally| {
        if !args.search.json && tally.cases.is_multiple_of(500) {
            stderr::line(format_args!("{} of {cases} cases, {} differences", tally.cases, tally.unexplained));
        }
    };
    let show = |failure: &scheduler::search::Failure| match keep(
        &failure.case,
        &format!("scheduler-{}", failure.number),
        &args.search.keep,
    ) {
        Ok(path) => {
            let scheduler::compare::Difference { stock, ours } = &failure.difference;
            stderr::line(format_args!("case {} differs: {}", failure.number, path.display()));
            stderr::line(format_args!("  kube-scheduler: {stock}\n  tholepin:       {ours}"));
        }
        Err(error) => stderr::line(format_args!("case {} differs: {error:#}", failure.number)),
    };
    let tally = scheduler::search::search(&options, program, &tell, &show)?;
    let mut counts = serde_json::to_value(&tally)?;
    counts["kubernetes"] = testkit::env::KUBERNETES_VERSION.into();
    counts["seed"] = seed.into();
    counts["seconds"] = begun.elapsed().as_secs().into();
    println!("{counts}");
    Ok(if tally.unexplained == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Compares one case.
fn replay_case(file: &Path, oracle: &mut Oracle) -> anyhow::Result<ExitCode> {
    let case = read(file)?;
    let mut tally = scheduler::tally::Tally::default();
    match scheduler::compare::compare(oracle, &case, 0, &mut tally)? {
        None => println!("no difference"),
        Some(found) => {
            println!("  kube-scheduler: {}\n  tholepin:       {}", found.stock, found.ours);
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Searches, or replays one session.
fn run<R: Respondent>(
    args: &Args,
    respondent: &(dyn Fn() -> anyhow::Result<R> + Sync),
) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.replay {
        return replay(file, args, &mut respondent()?);
    }
    let (kind, admissions) =
        if args.kubelets { (RespondentKind::Kubelets, 3_000) } else { (RespondentKind::Oracle, 20_000) };
    let admissions = args.admissions.unwrap_or(admissions);
    let mut options = Options::new(kind, args.kubernetes.minor().parse()?, args.search.seed, admissions);
    options.first = args.search.first;
    options.workers = args.search.workers.unwrap_or(options.workers);
    let begun = Instant::now();
    let tell = |tally: &Tally| {
        if !args.search.json {
            stderr::line(format_args!(
                "{} of {} admissions, {} differences",
                tally.admissions, options.admissions, tally.mismatches
            ));
        }
    };
    let show = |failure: &Failure| {
        if let Err(error) = show(failure, args) {
            stderr::line(format_args!("session {} differs: {error:#}", failure.number));
        }
    };
    let (tally, _) = search(&options, respondent, &tell, &show)?;
    let mut counts = serde_json::to_value(&tally)?;
    counts["against"] = if args.kubelets { "kubelets" } else { "oracle" }.into();
    counts["kubernetes"] = args.kubernetes.minor().into();
    counts["seed"] = args.search.seed.into();
    counts["seconds"] = begun.elapsed().as_secs().into();
    println!("{counts}");
    Ok(if tally.mismatches == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Compares one session.
fn replay(file: &Path, args: &Args, respondent: &mut dyn Respondent) -> anyhow::Result<ExitCode> {
    let session = read(file)?;
    let answers = respondent.answers(&session)?;
    let case = Case { kubernetes: args.kubernetes.minor().to_owned(), answers, session };
    if let Some(file) = &args.record {
        std::fs::write(file, serde_json::to_string(&case)?)
            .with_context(|| format!("writing {}", file.display()))?;
    }
    match compare(&case.session, &case.answers, args.kubernetes.minor().parse()?, &mut Tally::default())? {
        None => println!("no difference"),
        Some(found) => {
            println!("step {}\n  kubelet: {}\n  model:   {}", found.step, found.kubelet, found.model);
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(failure: &Failure, args: &Args) -> anyhow::Result<()> {
    let path = keep(&failure.session, &format!("session-{}", failure.number), &args.search.keep)?;
    let Failure { number, difference, came_back, .. } = failure;
    let again = if *came_back { "made small" } else { "by chance, it did not come back" };
    stderr::line(format_args!("session {number} differs, {again}: {}", path.display()));
    stderr::line(format_args!(
        "  step {}\n  kubelet: {}\n  model:   {}",
        difference.step, difference.kubelet, difference.model
    ));
    Ok(())
}

/// Reads what was kept.
fn read<T: DeserializeOwned>(file: &Path) -> anyhow::Result<T> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{}", file.display()))
}
