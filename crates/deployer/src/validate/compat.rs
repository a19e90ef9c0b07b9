//! Findings in the words of the peers.
//!
//! In: evidence. Out: the text and JSON of `deployer validate` (`deployer`) and of [`nrovalidate`]. Never: a check of
//! its own where one of ours finds the same.

pub(crate) mod deployer;
pub mod nrovalidate;

use std::fmt::Write as _;

use super::check::{self, Check};
use super::evidence::Evidence;
use super::finding::PeerFinding;

/// The kubelet checks that both peers have, in their order.
const KUBELET: [&str; 6] = [
    "cpu-manager-policy",
    "cpu-manager-reconcile-period",
    "reserved-cpus",
    "memory-manager-policy",
    "reserved-memory",
    "topology-manager-policy",
];

/// The checks with these ids.
fn checks(ids: &[&str]) -> Vec<&'static Check> {
    let all = check::all();
    ids.iter().filter_map(|id| all.iter().find(|check| check.id == *id).copied()).collect()
}

/// What these checks find, in the peers' form.
fn found(evidence: &Evidence, checks: Vec<&'static Check>) -> Vec<PeerFinding> {
    let found = checks.into_iter().flat_map(|check| check::run(check, evidence, ""));
    found.filter_map(|finding| finding.item).collect()
}

/// The findings as the peers list them, one numbered line each.
fn list(items: &[PeerFinding]) -> String {
    let mut text = String::new();
    for (number, item) in items.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "ERROR#{number:03}: {}", sentence(item));
    }
    text
}

/// The findings as the peers' JSON; `success` is the peer's name of that field.
fn json(success: &str, items: &[PeerFinding]) -> String {
    let errors = if items.is_empty() { String::new() } else { format!(",\"errors\":{}", go_json(items)) };
    format!("{{{success:?}:{}{errors}}}\n", items.is_empty())
}

/// A finding as both peers print it. For the texts in configurations Go's `%q` equals Rust's `{:?}`.
pub(crate) fn sentence(item: &PeerFinding) -> String {
    let PeerFinding { node, area, component, setting, expected, detected } = item;
    let place =
        if *area == "cluster" { "cluster:".to_owned() } else { format!("node {node:?} area {area:?}") };
    format!(
        "Incorrect configuration of {place} component {component:?} setting {setting:?}: expected {expected:?} detected {detected:?}"
    )
}

/// JSON as Go's encoder writes it: in one line, with `<`, `>` and `&` escaped.
fn go_json(value: &[PeerFinding]) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    let mut escaped = String::with_capacity(text.len() + 1);
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            other => escaped.push(other),
        }
    }
    escaped
}
