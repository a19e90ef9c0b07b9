//! `deployer validate`.
//!
//! In: [`Evidence`], or a cluster. Out: the peer's findings, in its text or JSON. Never: its random order of nodes, or a node
//! that is left out in silence: nodes that could not be asked are named on standard error.

use std::fmt::Write as _;
use std::process::ExitCode;

use runtime::client::Options;
use serde::Serialize;

use super::{go_json, sentence};
use crate::validate::check::{self, Check};
use crate::validate::cli::gather;
use crate::validate::evidence::{Area, Evidence};
use crate::validate::finding::Item;

/// Its checks, in its order.
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
    #[serde(skip_serializing_if = "<[Item]>::is_empty")]
    errors: &'a [Item],
}

fn checks() -> Vec<&'static Check> {
    let all = check::all();
    CHECKS.iter().filter_map(|id| all.iter().find(|check| check.id == *id).copied()).collect()
}

/// What it finds: of the cluster first, then node by node.
#[must_use]
pub fn items(evidence: &Evidence) -> Vec<Item> {
    let mut items: Vec<Item> = checks()
        .into_iter()
        .flat_map(|check| check::run(check, evidence, ""))
        .filter_map(|finding| finding.item)
        .collect();
    // Stable, so that each node's findings stay in the order of the checks.
    items.sort_by(|a, b| a.node.cmp(&b.node));
    items
}

/// Its text.
#[must_use]
pub fn text(items: &[Item]) -> String {
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

/// Its JSON.
#[must_use]
pub fn json(items: &[Item]) -> String {
    go_json(&Answer { success: items.is_empty(), errors: items }) + "\n"
}

/// Looks at a cluster: findings, and for people what could not be looked at.
///
/// # Errors
/// When the cluster cannot be reached.
pub async fn look(options: &Options) -> anyhow::Result<(Vec<Item>, Vec<String>)> {
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

/// Runs `deployer validate`. The exit code is 0 whatever was found, as the peer's.
///
/// # Errors
/// When the cluster cannot be reached.
#[expect(clippy::print_stdout, reason = "the findings are this command's output")]
pub async fn run(options: &Options, as_json: bool) -> anyhow::Result<ExitCode> {
    let (items, notes) = look(options).await?;
    notes.iter().for_each(|note| eprintln!("not checked: {note}"));
    print!("{}", if as_json { json(&items) } else { text(&items) });
    Ok(ExitCode::SUCCESS)
}
