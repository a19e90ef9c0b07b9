//! `tholepin status`.
//!
//! In: flags. Out: the status on standard output; while waiting, changes on standard error; an exit code. Never: a
//! write to the cluster.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use runtime::client::{ClusterArgs, Connection};
use runtime::output::OutputArgs;
use runtime::stderr;
use runtime::stdout::print;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::NamespaceArgs;
use super::values::duration;
use crate::status::print::text;
use crate::status::{AREAS, State, Status};
use crate::validate::evidence::Evidence;
use crate::validate::{cli, dump, source};

/// The time between two looks while waiting: a look lists all pods.
const INTERVAL: Duration = Duration::from_secs(2);
/// Exit code when something could not be asked.
const UNKNOWN: u8 = 2;

/// Prints how the installation is: exporters, their reports, what is free in zones, schedulers, controllers, pods that
/// kubelets rejected in the last 24 hours, pods that wait, and what to type next.
///
/// Needs read access only. Exit codes: 0 ready, 1 not ready, 2 something could not be asked.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  tholepin status\n  tholepin status --wait --timeout 5m\n  \
    tholepin status -n team-a -o json\n  tholepin status --offline must-gather.local.123/")]
pub struct Args {
    /// Wait until everything is ready
    #[arg(short = 'W', long)]
    wait: bool,
    /// Time limit of the wait
    #[arg(short = 'T', long, value_name = "DURATION", default_value = "2m", value_parser = duration, requires = "wait")]
    timeout: Duration,
    #[command(flatten)]
    pods: NamespaceArgs,
    /// Directory or file with dumps of kubectl or oc, or a must-gather, instead of a cluster
    #[arg(long, value_name = "DIR", conflicts_with_all = ["wait", "kubeconfig", "context", "request_timeout"])]
    offline: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Runs the command.
///
/// # Errors
/// When standard output cannot be written. Other failures are printed on standard error and have exit code 2.
pub(super) async fn run(args: &Args, token: &CancellationToken) -> anyhow::Result<ExitCode> {
    let status = match args.status(token).await {
        Ok(status) => status,
        Err(error) => {
            stderr::line(format_args!("error: {error:#}"));
            return Ok(ExitCode::from(UNKNOWN));
        }
    };
    print(&args.output.format.write(&status, || text(&status))?)?;
    Ok(match status.state {
        State::Ready => ExitCode::SUCCESS,
        State::Absent | State::NotReady => ExitCode::FAILURE,
        State::Unknown => ExitCode::from(UNKNOWN),
    })
}

impl Args {
    async fn status(&self, token: &CancellationToken) -> anyhow::Result<Status> {
        if let Some(folder) = &self.offline {
            return Ok(self.of(&cli::tell(dump::read_with_cluster(folder)?)));
        }
        let connection = Connection::open(&self.cluster.options("status")).await?;
        let areas = AREAS.into_iter().collect();
        let deadline = Instant::now() + self.timeout;
        let mut told = String::new();
        loop {
            let status = self.of(&source::gather_with_cluster(&connection, &areas).await?);
            let is_final = status.state == State::Ready || !self.wait;
            if is_final || Instant::now() >= deadline || token.is_cancelled() {
                return Ok(status);
            }
            let now = text(&status);
            if now != told {
                stderr::print(&now);
                told = now;
            }
            tokio::select! {
                () = sleep(INTERVAL) => {}
                () = token.cancelled() => return Ok(status),
            }
        }
    }

    fn of(&self, evidence: &Evidence) -> Status {
        Status::of(evidence, self.pods.namespace.as_deref())
    }
}
