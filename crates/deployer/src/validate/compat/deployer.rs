//! `deployer validate`.
//!
//! In: [`Evidence`] or a cluster. Out: the peer's findings as its text or JSON. Never: the peer's random order, or a
//! node left out silently; kubelets that do not answer are named on standard error.

use std::process::ExitCode;

use runtime::client::Options;
use runtime::output::{one_line, printable};
use runtime::stderr;

use super::{KUBELET, checks, found, list};
use crate::validate::check::Check;
use crate::validate::cli::gather;
use crate::validate::evidence::{Area, Evidence};
use crate::validate::finding::PeerFinding;

/// The checks, in the peer's order.
fn all() -> Vec<&'static Check> {
    checks(&[&["server-version", "worker-nodes", "podresources-gate"][..], &KUBELET].concat())
}

/// The findings: first of the cluster, then by node.
pub(crate) fn items(evidence: &Evidence) -> Vec<PeerFinding> {
    let mut items = found(evidence, all());
    // The sort is stable: each node's findings stay in the order of the checks.
    items.sort_by(|a, b| a.node.cmp(&b.node));
    items
}

/// The peer's text.
pub(crate) fn text(items: &[PeerFinding]) -> String {
    if items.is_empty() {
        return "PASSED>>: the cluster configuration looks ok!\n".to_owned();
    }
    list(items)
}

/// The peer's JSON.
pub(crate) fn json(items: &[PeerFinding]) -> String {
    super::json("success", items)
}

/// Checks a cluster: findings, and notes about missing evidence.
///
/// # Errors
/// When the cluster cannot be reached.
pub(crate) async fn inspect(options: &Options) -> anyhow::Result<(Vec<PeerFinding>, Vec<String>)> {
    let evidence = gather(options, &all()).await?;
    let mut notes: Vec<String> = evidence.gaps.values().cloned().collect();
    if !evidence.gaps.contains_key(&Area::KubeletConfig) {
        for node in evidence.workers() {
            if let Some(Err(reason)) = &node.kubelet {
                notes.push(format!("node {}: {reason}", node.name));
            }
        }
    }
    Ok((items(&evidence), notes))
}

/// Runs `deployer validate`. The exit code is 0 with any findings, as the peer's.
///
/// # Errors
/// When the cluster cannot be reached.
#[expect(clippy::print_stdout, reason = "the findings are this command's output")]
pub(crate) async fn run(options: &Options, as_json: bool) -> anyhow::Result<ExitCode> {
    let (items, notes) = inspect(options).await?;
    notes.iter().for_each(|note| stderr::line(format_args!("not checked: {}", one_line(note))));
    print!("{}", if as_json { json(&items) } else { printable(&text(&items)).into_owned() });
    Ok(ExitCode::SUCCESS)
}
