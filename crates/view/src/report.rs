//! `tholepin report`: a cluster as one file, to be sent with a ticket.
//!
//! In: a cluster or a dump. Out: the page of [`crate::web`] with its data in it, which needs no server. Never: a change
//! after it was written, or an answer about another shape; `tholepin web --cluster` has that.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use runtime::{stderr, stdout};
use scheduler::cluster_input::{ClusterInput, answered};
use scheduler::core::Core;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::cluster::ClusterView;
use crate::node::NodeDetail;
use crate::page;

/// Most nodes whose cores and pods are in the file; of others only the zones are.
const MAX_PAGES: usize = 200;

/// Write a cluster as one HTML file: zones, cores, pods and what waits, to be opened without a server.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    tholepin report >cluster.html\n  \
    tholepin report --cluster must-gather/ --to cluster.html\n\n\
    The exit code is 2 for wrong input.")]
pub struct Args {
    /// The cluster.
    #[command(flatten)]
    pub input: ClusterInput,
    /// The file to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
}

/// The data of a report.
#[derive(Clone, Debug, Serialize)]
struct PageData {
    cluster: ClusterView,
    pages: BTreeMap<Arc<str>, NodeDetail>,
}

impl PageData {
    fn of(core: &Core, now_ms: u64) -> Self {
        let cluster = ClusterView::of(core, now_ms);
        let names = cluster.nodes.iter().take(MAX_PAGES).map(|node| &node.name);
        let pages = names.filter_map(|name| Some((Arc::clone(name), NodeDetail::of(core, name)?))).collect();
        Self { cluster, pages }
    }
}

/// Runs the command. Wrong input is told on standard error, and the exit code is 2.
///
/// # Errors
/// When the output cannot be written, or `token` is cancelled before.
pub async fn run(args: Args, token: CancellationToken) -> anyhow::Result<ExitCode> {
    let page = match answered(page(&args), &token).await? {
        Ok(page) => page,
        Err(code) => return Ok(code),
    };
    match &args.to {
        None => stdout::print(&page)?,
        Some(path) => {
            std::fs::write(path, &page).with_context(|| path.display().to_string())?;
            stderr::line(format_args!("{} written, {} bytes", path.display(), page.len()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn page(args: &Args) -> anyhow::Result<String> {
    let observer = args.input.observe_once("report").await?;
    let report = observer.ask(|core, now_ms| PageData::of(core, now_ms)).await.map_err(anyhow::Error::msg)?;
    Ok(page::with_data(&report)?)
}
