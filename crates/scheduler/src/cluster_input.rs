//! The input of commands that ask about a cluster: `tholepin explain` and `tholepin capacity`.
//!
//! In: flags. Out: the settings of the scheduler, and the objects of a cluster or a dump. Never: a write to the
//! cluster.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{bail, ensure};
use prometheus_client::registry::Registry;
use runtime::client::{ClusterArgs, Connection};
use runtime::shutdown::Tasks;
use runtime::stderr;
use runtime::yaml::dump;
use tokio_util::sync::CancellationToken;

use crate::config;
use crate::core::Settings;
use crate::shell::now_ms;
use crate::shell::observer::{Observer, WatchedKinds};
use crate::shell::snapshot::Snapshot;

/// The exit code for files that cannot be read and clusters that do not answer.
const WRONG_INPUT: u8 = 2;
/// The time limit of a list.
const PATIENCE: Duration = Duration::from_secs(30);

/// Flags that name a cluster, and how its scheduler is configured.
#[derive(Clone, Debug, clap::Args)]
pub struct ClusterInput {
    /// The objects of the cluster, in place of an API server's: dumps as kubectl prints them, or folders of a
    /// must-gather
    #[arg(
        long = "cluster",
        alias = "from", // as `simulate` has it
        value_name = "PATH",
        num_args = 1..,
        conflicts_with_all = ["kubeconfig", "context"]
    )]
    pub dumps: Vec<PathBuf>,
    /// The scheduler's configuration file [default: that of tholepin scheduler without one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The cluster.
    #[command(flatten)]
    pub connection: ClusterArgs,
}

impl ClusterInput {
    /// The scheduler's settings.
    ///
    /// # Errors
    /// When the configuration file cannot be read.
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        config::read(self.config.as_deref(), 0)
    }

    /// Takes all objects of the dumps, or of the API server if there are none. What cannot be read is told on standard
    /// error. `command`: the command that asks, for the server's log.
    ///
    /// # Errors
    /// When a file or a list cannot be read, or there is no node.
    pub(crate) async fn fill(&self, snapshot: &mut Snapshot, command: &str) -> anyhow::Result<()> {
        if self.dumps.is_empty() {
            let timeout = self.connection.request_timeout.unwrap_or(PATIENCE);
            let cluster = Connection::open(&self.connection.options(command)).await?;
            snapshot.take_cluster(&cluster.client_with_timeout(timeout)?).await?;
        }
        for path in &self.dumps {
            dump::objects(path, &mut |object| snapshot.take(object))?;
        }
        tell(snapshot.warnings());
        ensure!(
            snapshot.has_nodes(),
            "there is no node; a dump needs nodes, pods and noderesourcetopologies"
        );
        Ok(())
    }
}

impl ClusterInput {
    /// An observer of the dumps, or of the cluster if there are none.
    ///
    /// # Errors
    /// When a file cannot be read, there is no node in a dump, or the cluster cannot be followed.
    pub async fn observe(
        &self,
        command: &str,
        (tasks, registry): (&mut Tasks, &mut Registry),
    ) -> anyhow::Result<Observer> {
        if self.dumps.is_empty() {
            let settings = self.settings()?;
            let connection = Connection::open(&self.connection.options(command)).await?;
            return Observer::of_cluster(settings, WatchedKinds::All, &connection, (tasks, registry));
        }
        self.observe_once(command).await
    }

    /// An observer of the objects as they are now, in the dumps or in the cluster.
    ///
    /// # Errors
    /// When a file or a list cannot be read, or there is no node.
    pub async fn observe_once(&self, command: &str) -> anyhow::Result<Observer> {
        let mut snapshot = Snapshot::keeping_waiting();
        self.fill(&mut snapshot, command).await?;
        Observer::of_snapshot(self.settings()?, snapshot, now_ms())
    }
}

/// Tells notes on standard error.
pub(crate) fn tell(notes: impl IntoIterator<Item = impl fmt::Display>) {
    notes.into_iter().for_each(|note| stderr::line(format_args!("note: {note}")));
}

/// The answer to a question; the exit code if the input is wrong, which is told on standard error.
///
/// # Errors
/// When `token` is cancelled before the answer.
pub async fn answered<T>(
    question: impl Future<Output = anyhow::Result<T>>,
    token: &CancellationToken,
) -> anyhow::Result<Result<T, ExitCode>> {
    let answer = tokio::select! {
        answer = question => answer,
        () = token.cancelled() => bail!("interrupted"),
    };
    Ok(answer.map_err(|error| {
        stderr::line(format_args!("error: {error:#}"));
        ExitCode::from(WRONG_INPUT)
    }))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        input: ClusterInput,
    }

    #[test]
    fn dumps_have_two_names() {
        for flag in ["--cluster", "--from"] {
            let cli = Cli::try_parse_from(["tholepin", flag, "a.yaml", "b.yaml"]).unwrap();
            assert_eq!(cli.input.dumps, [PathBuf::from("a.yaml"), PathBuf::from("b.yaml")]);
            assert!(Cli::try_parse_from(["tholepin", flag, "a.yaml", "--context", "c"]).is_err(), "{flag}");
        }
    }
}
