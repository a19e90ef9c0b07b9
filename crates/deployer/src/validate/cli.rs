//! `tholepin validate` and `tholepin doctor`.
//!
//! In: flags. Out: a report on standard output, notes on standard error, the exit code of [`super::finding::Verdict`]. Never: a write
//! to the cluster.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use runtime::client::{Connection, Options};
use runtime::stdout;

use super::check::{Check, Selection};
use super::evidence::{Area, Evidence, Selector};
use super::finding::Verdict;
use super::print::{self, Output};
use super::{dump, examine, source};

/// Tells what is wrong with a cluster, as far as NUMA-aware scheduling goes: kubelets, reports, exporters, schedulers, pods.
///
/// Needs read access only, and installs nothing. Exit codes: 0 clean, 1 errors or warnings found, 2 something could not be
/// checked.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(after_help = "Examples:\n  tholepin validate\n  tholepin validate -l pool=numa -o wide\n  \
    tholepin validate --only topology-manager-policy,report-stale -o json\n  \
    tholepin validate --offline must-gather.local.123/")]
pub struct Args {
    /// Kubeconfig; without it KUBECONFIG, ~/.kube/config, then the pod's service account
    #[arg(long, value_name = "FILE", conflicts_with = "offline")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME", conflicts_with = "offline")]
    pub context: Option<String>,
    /// A folder with dumps of kubectl or oc, or a must-gather, instead of a cluster
    #[arg(long, value_name = "DIR")]
    pub offline: Option<PathBuf>,
    /// Which nodes to look at, by label: key, !key, key=value, key!=value, joined by commas [default: workers]
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<Selector>,
    /// Do these checks only
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Do not do these checks
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub skip: Vec<String>,
    /// How to print: text, wide, json or yaml
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        default_value = "text",
        value_enum,
        hide_possible_values = true
    )]
    pub output: Output,
}

/// Runs the command.
///
/// # Errors
/// When an output cannot be written. What else goes wrong is told on standard error and is exit code 2.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    match report(&args).await {
        Ok((text, verdict)) => {
            stdout::print(&text)?;
            Ok(ExitCode::from(verdict.code()))
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            Ok(ExitCode::from(Verdict::Incomplete.code()))
        }
    }
}

async fn report(args: &Args) -> anyhow::Result<(String, Verdict)> {
    let checks = Selection { only: args.only.clone(), skip: args.skip.clone() }.checks()?;
    let mut evidence = match &args.offline {
        Some(folder) => {
            let (evidence, notes) = dump::read(folder)?;
            notes.iter().for_each(|note| eprintln!("note: {note}"));
            evidence
        }
        None => {
            let options = Options {
                kubeconfig: args.kubeconfig.clone(),
                context: args.context.clone(),
                user_agent: user_agent(),
            };
            gather(&options, &checks).await?
        }
    };
    evidence.selector = args.selector.clone();
    let report = examine(&evidence, &checks);
    Ok((print::render(&report, args.output)?, report.verdict()))
}

/// Evidence for these checks from the cluster that `options` name.
///
/// # Errors
/// When the cluster cannot be reached.
pub async fn gather(options: &Options, checks: &[&'static Check]) -> anyhow::Result<Evidence> {
    let areas: BTreeSet<Area> = checks.iter().flat_map(|check| check.needs.iter().copied()).collect();
    let connection = Connection::open(options).await?;
    Ok(source::gather(&connection, &areas).await?)
}

/// What requests are sent as.
#[must_use]
pub fn user_agent() -> String {
    format!("tholepin-validate/{}", env!("CARGO_PKG_VERSION"))
}
