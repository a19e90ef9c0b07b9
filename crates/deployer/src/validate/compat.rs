//! Findings in the words of the peers.
//!
//! In: evidence. Out: the text and JSON of `deployer validate` ([`deployer`]) and of [`nrovalidate`]. Never: a check of
//! its own where one of ours finds the same.

pub mod deployer;
pub mod nrovalidate;

use super::finding::PeerFinding;

/// A finding as both peers print it. For the texts in configurations Go's `%q` equals Rust's `{:?}`.
#[must_use]
pub fn sentence(item: &PeerFinding) -> String {
    let PeerFinding { node, area, component, setting, expected, detected } = item;
    let place =
        if *area == "cluster" { "cluster:".to_owned() } else { format!("node {node:?} area {area:?}") };
    format!(
        "Incorrect configuration of {place} component {component:?} setting {setting:?}: expected {expected:?} detected {detected:?}"
    )
}

/// JSON as Go's encoder writes it: in one line, with `<`, `>` and `&` escaped.
fn go_json<T: serde::Serialize>(value: &T) -> String {
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
