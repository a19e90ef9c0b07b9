//! The program of `cargo xtask differential`.
//!
//! In: flags. Out: differences and, last, one JSON object with the counts; exit code 1 if there is a difference.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use clap::Parser;
use differential::case::Case;
use differential::compare::compare;
use differential::kubelets::Kubelets;
use differential::respondent::{Respondent, RespondentKind};
use differential::search::{Failure, Options, keep, search};
use differential::tally::Tally;
use runtime::stderr;
use testkit::oracle::{Oracle, Release};

/// Compare the model of the kubelet's admission with the kubelet's own packages, or with real kubelets, on random
/// machines, configurations and pods.
#[derive(Parser)]
#[command(name = "cargo xtask differential")]
struct Args {
    /// Compare with real kubelets on the rig, with our device plugin; needs root
    #[arg(long)]
    kubelets: bool,
    /// Compare at least so many admissions [default: 20000, or 3000 with --kubelets]
    #[arg(long, value_name = "N")]
    admissions: Option<u64>,
    /// Seed of all machines, configurations and pods
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Number of the first session, to go on with a search or look at one session again
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u64,
    /// The kubelet: 1.34, 1.35, 1.36 or 1.37
    #[arg(long, value_name = "MINOR", default_value = "1.36")]
    kubernetes: Release,
    /// Oracles or kubelets at a time [default: one oracle or four kubelets for each CPU]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Folder for sessions with a difference, for tholepin admit --session
    #[arg(long, value_name = "DIR", default_value = "target/differential")]
    keep: PathBuf,
    /// Print nothing but the counts, as one JSON object
    #[arg(long)]
    json: bool,
    /// Compare one kept session instead of random ones
    #[arg(long, value_name = "FILE", conflicts_with_all = ["admissions", "seed", "first", "workers", "keep", "json"])]
    replay: Option<PathBuf>,
    /// Write the session of --replay and the kubelet's answers to a file, as a case for the tests
    #[arg(long, value_name = "FILE", requires = "replay")]
    record: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if args.kubelets {
        let kubelets = Kubelets::start(&testkit::env::check()?, args.kubernetes)?;
        run(&args, &|| Ok(kubelets.respondent()))
    } else {
        let program = args.kubernetes.find_or_build(&mut |_| {})?;
        run(&args, &|| Oracle::start(&program))
    }
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
    let mut options = Options::new(kind, args.kubernetes.minor().parse()?, args.seed, admissions);
    options.first = args.first;
    options.workers = args.workers.unwrap_or(options.workers);
    let begun = Instant::now();
    let tell = |tally: &Tally| {
        if !args.json {
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
    counts["seed"] = args.seed.into();
    counts["seconds"] = begun.elapsed().as_secs().into();
    println!("{counts}");
    Ok(if tally.mismatches == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Compares one session.
fn replay(file: &Path, args: &Args, respondent: &mut dyn Respondent) -> anyhow::Result<ExitCode> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let session = serde_json::from_str(&text).with_context(|| format!("{}", file.display()))?;
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
    let path = keep(failure, &args.keep)?;
    let Failure { number, difference, came_back, .. } = failure;
    let again = if *came_back { "made small" } else { "by chance, it did not come back" };
    stderr::line(format_args!("session {number} differs, {again}: {}", path.display()));
    stderr::line(format_args!(
        "  step {}\n  kubelet: {}\n  model:   {}",
        difference.step, difference.kubelet, difference.model
    ));
    Ok(())
}
