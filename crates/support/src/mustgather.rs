//! `must-gather`: the data for a support case, in one folder.
//!
//! In: a cluster, and the permissions of the user. Out: a folder in the layout of `oc adm inspect`, which `pfpsyncchk`
//! and `validate --offline` read; progress on standard error; an exit code: 0 complete, 2 some data is missing (listed
//! in `gather-errors.txt`), 1 nothing was collected. Never: a Secret, a write to the cluster, or an end at the first
//! item that cannot be collected.
//!
//! `objects` and `pods` collect, `trim` removes secrets, `folder` writes.

mod checks;
mod folder;
mod objects;
mod pods;
mod stack;
mod trim;

use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::goduration::GoDuration;
use kube::Client;
use runtime::client::{self, ClusterArgs, Connection};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::call::Call;
use folder::Folder;
use stack::Stack;

/// Timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Most concurrent requests.
const MAX_CONCURRENT: usize = 8;
/// Objects in a page of a list.
const PAGE: usize = 500;
/// Largest page accepted.
const MAX_PAGE_BYTES: usize = 256 << 20;
/// Most pages of a list, more than any cluster has.
const MAX_PAGES: usize = 10_000;
/// Folder of the image's `gather`, independent of the working directory.
const GATHERED: &str = "/must-gather";

/// Collect the data for a support case into a folder: objects, logs, metrics, fingerprints, results of validate and
/// pfpsyncchk.
///
/// Needs read access, and `create nodes/proxy` for the fingerprints. Secrets are never read. Exit codes: 0 complete, 2
/// some data is missing (listed in gather-errors.txt in the folder), 1 nothing was collected.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tholepin must-gather\n  tholepin must-gather --dest-dir /tmp/case-1 --log-limit 2\n  \
    tholepin pfpsyncchk -must-gather must-gather\n  tholepin validate --offline must-gather"
)]
pub struct Args {
    /// Folder to create; an existing one must be empty
    #[arg(long, value_name = "DIR", default_value = "must-gather")]
    pub dest_dir: PathBuf,
    /// Further namespaces to collect, besides those of operator, exporters and schedulers
    #[arg(short, long, value_name = "NAME", value_delimiter = ',')]
    pub namespace: Vec<String>,
    /// Limit of each container's log in MiB; the end of a longer log is kept
    #[arg(long, value_name = "MIB", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub log_limit: u32,
    /// Time after which to stop with the data collected so far
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = GoDuration::positive)]
    pub timeout: Duration,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The shared state of a collection.
struct Gatherer {
    client: Client,
    connection: Connection,
    folder: Folder,
    log_limit: usize,
    namespaces: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// When the cluster cannot be reached, or the folder cannot be created or is not empty.
pub async fn run(args: Args, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    let complete = collect(&args, true, stop).await?;
    Ok(ExitCode::from(if complete { 0 } else { 2 }))
}

/// Runs as the Go operator's `/usr/bin/gather`: without flags, into `/must-gather`, with exit code 0 if anything was
/// collected, so that `oc adm must-gather` fetches the folder.
///
/// # Errors
/// As [`run`].
pub async fn gather(call: &Call, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    if let Err(code) = call.flags(&[], false) {
        return Ok(code);
    }
    let args = Args {
        dest_dir: GATHERED.into(),
        namespace: Vec::new(),
        log_limit: 10,
        timeout: Duration::from_secs(600),
        cluster: ClusterArgs::default(),
    };
    collect(&args, false, stop).await?;
    Ok(ExitCode::SUCCESS)
}

/// Collects into the folder; whether the result is complete.
async fn collect(args: &Args, fresh: bool, stop: CancellationToken) -> anyhow::Result<bool> {
    let connection = Connection::open(&args.cluster.options("must-gather")).await?;
    let client = connection.client_with_timeout(REQUEST_TIMEOUT)?;
    let version = client::get_text(&client, "/version", 1 << 20).await;
    let version = version
        .map_err(|error| anyhow::anyhow!("the API server cannot be reached: {}", client::brief(&error)))?;
    if fresh && std::fs::read_dir(&args.dest_dir).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{}: the folder is not empty; name another one with --dest-dir", args.dest_dir.display());
    }
    let created = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&args.dest_dir);
    created.with_context(|| args.dest_dir.display().to_string())?;
    let gatherer = Gatherer {
        client,
        connection,
        folder: Folder::new(args.dest_dir.clone()),
        log_limit: usize::try_from(args.log_limit).unwrap_or(1024) << 20,
        namespaces: args.namespace.clone(),
    };
    gatherer.folder.write("version.json", version.as_bytes());
    let ours = format!("numaresources-operator/must-gather\n{}\n", env!("CARGO_PKG_VERSION"));
    gatherer.folder.write("version", ours.as_bytes());
    tokio::select! {
        () = gatherer.all() => {}
        () = stop.cancelled() => gatherer.folder.report_missing("stopped by a signal; the rest is missing"),
        () = tokio::time::sleep(args.timeout) => {
            gatherer.folder.report_missing(&format!("stopped after {:?}; the rest is missing", args.timeout));
        }
    }
    let folder = args.dest_dir.clone();
    // The comparison of files is done in any case.
    tokio::task::spawn_blocking(move || checks::fingerprints(&folder))
        .await
        .context("comparing fingerprints")?;
    Ok(gatherer.folder.finish())
}

impl Gatherer {
    async fn all(&self) {
        let (pods, trimmed) = objects::pods(self).await;
        let stack = Stack::new(&pods, &self.namespaces);
        drop(pods);
        objects::others(self, trimmed, &stack.namespaces());
        self.folder.progress(&format!("namespaces: {}", stack.namespaces().join(", ")));
        objects::cluster(self).await;
        for namespace in stack.namespaces() {
            objects::namespace(self, &namespace).await;
        }
        objects::leases(self).await;
        objects::events(self).await;
        pods::fingerprints(self, &stack, &objects::holders(self).await).await;
        pods::metrics(self, &stack).await;
        objects::kubelets(self).await;
        checks::validate(self).await;
        pods::logs(self, &stack).await;
        objects::audit(self, &stack).await;
    }

    /// Fetches a JSON value.
    async fn get(&self, path: &str) -> Result<Value, kube::Error> {
        let text = client::get_text(&self.client, path, MAX_PAGE_BYTES).await?;
        serde_json::from_str(&text).map_err(kube::Error::SerdeError)
    }

    /// Fetches all items of a list, each with its kind; `None` if the kind is not served.
    async fn list(&self, path: &str, query: &str, kind: &str) -> Result<Option<Vec<Value>>, kube::Error> {
        let (mut all, mut token) = (Vec::new(), String::new());
        for _ in 0..MAX_PAGES {
            let mut page = match self.get(&format!("{path}?limit={PAGE}{query}{token}")).await {
                Ok(page) => page,
                Err(error) if client::is_not_found(&error) && all.is_empty() => return Ok(None),
                Err(error) => return Err(error),
            };
            let version = page.get("apiVersion").cloned().unwrap_or_default();
            let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) else { break };
            all.extend(items.into_iter().map(|mut item| {
                item["kind"] = kind.into();
                item["apiVersion"] = version.clone();
                item
            }));
            match page.pointer("/metadata/continue").and_then(Value::as_str) {
                Some(next) if !next.is_empty() => {
                    token = format!("&continue={}", client::percent_encode(next))
                }
                _ => return Ok(Some(all)),
            }
        }
        Ok(Some(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_above_zero() {
        for (text, seconds) in
            [("90s", Some(90)), ("10m", Some(600)), ("0s", None), ("-1s", None), ("10", None)]
        {
            assert_eq!(GoDuration::positive(text).ok().map(|time| time.as_secs()), seconds, "{text}");
        }
    }
}
