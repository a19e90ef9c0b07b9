//! `tholepin validate` and `tholepin doctor`.
//!
//! In: flags. Out: findings on standard output, notes on standard error, the exit code of [`super::finding::Verdict`].
//! Never: a write to the cluster.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use runtime::client::{ClusterArgs, Connection, Options};
use runtime::output::{OutputArgs, one_line};
use runtime::stderr;
use runtime::stdout;

use super::check::{Check, Selection};
use super::evidence::{Area, Evidence, Selector};
use super::finding::Verdict;
use super::print::{self, Format};
use super::{dump, examine, source};
use crate::cli::NamespaceArgs;

/// Checks a cluster for NUMA-aware scheduling: kubelets, reports, exporters, schedulers and pods.
///
/// Needs read access only, and installs nothing. Exit codes: 0 clean, 1 errors or warnings, 2 some checks could not be
/// done.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(
    after_help = "Examples:\n  tholepin validate\n  tholepin validate --pre\n  tholepin validate -l pool=numa -o wide\n  \
    tholepin validate --only topology-manager-policy,report-stale -o json\n  \
    tholepin validate --offline must-gather.local.123/\n  tholepin validate --list"
)]
pub struct Args {
    /// The pods that findings are about.
    #[command(flatten)]
    pub pods: NamespaceArgs,
    /// Show the checks that found nothing too
    #[arg(long)]
    pub show_passed: bool,
    /// List the chosen checks, and run none
    #[arg(long)]
    pub list: bool,
    /// Directory with dumps of kubectl or oc, or a must-gather, instead of a cluster
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kubeconfig", "context", "request_timeout"])]
    pub offline: Option<PathBuf>,
    /// Label selector of the nodes to check: key, !key, key=value, key!=value, joined by commas [default: workers]
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<Selector>,
    /// The checks to run.
    #[command(flatten)]
    pub selection: Selection,
    /// The format of the report.
    #[command(flatten)]
    pub output: OutputArgs<Format>,
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// Runs the command.
///
/// # Errors
/// When standard output cannot be written. Other failures are printed on standard error and have exit code 2.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    match report(&args).await {
        Ok((text, verdict)) => {
            stdout::print(&text)?;
            Ok(ExitCode::from(verdict.code()))
        }
        Err(error) => {
            stderr::line(format_args!("error: {error:#}"));
            Ok(ExitCode::from(Verdict::Incomplete.code()))
        }
    }
}

async fn report(args: &Args) -> anyhow::Result<(String, Verdict)> {
    let checks = args.selection.checks()?;
    if args.list {
        return Ok((print::list(&checks, args.output.format)?, Verdict::Clean));
    }
    let mut evidence = match &args.offline {
        Some(folder) => read(folder)?,
        None => gather(&args.cluster.options(PROGRAM), &checks).await?,
    };
    evidence.selector = args.selector.clone();
    let mut report = examine(&evidence, &checks);
    if let Some(namespace) = &args.pods.namespace {
        report.keep_namespace(namespace);
    }
    let is_for_people = matches!(args.output.format, Format::Text | Format::Wide);
    let passed =
        if args.show_passed && is_for_people { print::passed(&report) + "\n" } else { String::new() };
    Ok((passed + &print::render(&report, args.output.format)?, report.verdict()))
}

/// Reads the evidence in files; what is ignored is told on standard error.
///
/// # Errors
/// When the files cannot be read, or have no object.
fn read(folder: &Path) -> anyhow::Result<Evidence> {
    dump::read(folder).map(tell)
}

/// Tells what of files was ignored on standard error.
pub(crate) fn tell((evidence, notes): (Evidence, Vec<String>)) -> Evidence {
    notes.iter().for_each(|note| stderr::line(format_args!("note: {}", one_line(note))));
    evidence
}

/// Gathers the evidence for these checks from the cluster.
///
/// # Errors
/// When the cluster cannot be reached.
pub async fn gather(options: &Options, checks: &[&'static Check]) -> anyhow::Result<Evidence> {
    let areas: BTreeSet<Area> = checks.iter().flat_map(|check| check.needs.iter().copied()).collect();
    let connection = Connection::open(options).await?;
    source::gather(&connection, &areas).await
}

/// Our name in the `User-Agent` of requests.
pub(crate) const PROGRAM: &str = "validate";
