//! `deployer validate`.
//!
//! In: [`Evidence`] or a cluster. Out: the peer's findings as its text or JSON. Never: the peer's random order, or a
//! node left out silently; kubelets that do not answer are named on standard error.

use std::fmt::Write as _;
use std::process::ExitCode;

use runtime::client::Options;
use serde::Serialize;

use super::{go_json, sentence};
use crate::validate::check::{self, Check};
use crate::validate::cli::gather;
use crate::validate::evidence::{Area, Evidence};
use crate::validate::finding::PeerFinding;

/// The checks, in the peer's order.
const CHECKS: [&str; 9] = [
    "server-version",
    "worker-nodes",
    "podresources-gate",
    "cpu-manager-policy",
    "cpu-manager-reconcile-period",
    "reserved-cpus",
    "memory-manager-policy",
    "reserved-memory",
    "topology-manager-policy",
];

#[derive(Serialize)]
struct Answer<'a> {
    success: bool,
    #[serde(skip_serializing_if = "<[PeerFinding]>::is_empty")]
    errors: &'a [PeerFinding],
}

fn checks() -> Vec<&'static Check> {
    let all = check::all();
    CHECKS.iter().filter_map(|id| all.iter().find(|check| check.id == *id).copied()).collect()
}

/// The findings: first of the cluster, then by node.
#[must_use]
pub fn items(evidence: &Evidence) -> Vec<PeerFinding> {
    let mut items: Vec<PeerFinding> = checks()
        .into_iter()
        .flat_map(|check| check::run(check, evidence, ""))
        .filter_map(|finding| finding.item)
        .collect();
    // The sort is stable: each node's findings stay in the order of the checks.
    items.sort_by(|a, b| a.node.cmp(&b.node));
    items
}

/// The peer's text.
#[must_use]
pub fn text(items: &[PeerFinding]) -> String {
    if items.is_empty() {
        return "PASSED>>: the cluster configuration looks ok!\n".to_owned();
    }
    let mut text = String::new();
    for (number, item) in items.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "ERROR#{number:03}: {}", sentence(item));
    }
    text
}

/// The peer's JSON.
#[must_use]
pub fn json(items: &[PeerFinding]) -> String {
    go_json(&Answer { success: items.is_empty(), errors: items }) + "\n"
}

/// Checks a cluster: findings, and notes about missing evidence.
///
/// # Errors
/// When the cluster cannot be reached.
pub async fn inspect(options: &Options) -> anyhow::Result<(Vec<PeerFinding>, Vec<String>)> {
    let evidence = gather(options, &checks()).await?;
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
pub async fn run(options: &Options, as_json: bool) -> anyhow::Result<ExitCode> {
    let (items, notes) = inspect(options).await?;
    notes.iter().for_each(|note| eprintln!("not checked: {note}"));
    print!("{}", if as_json { json(&items) } else { text(&items) });
    Ok(ExitCode::SUCCESS)
}
