//! The findings in the words of the programs we stand in for.
//!
//! In: evidence and reports. Out: the text and JSON of `deployer validate` ([`peer`]) and `nrovalidate` ([`nro`]). Never: a
//! check of their own where one of ours says the same.

pub mod nro;
pub mod peer;

use super::finding::Item;

/// A finding as both peers print it. Go's `%q` quotes as Rust does, for what stands in configurations.
#[must_use]
pub fn sentence(item: &Item) -> String {
    let Item { node, area, component, setting, expected, detected } = item;
    let place =
        if *area == "cluster" { "cluster:".to_owned() } else { format!("node {node:?} area {area:?}") };
    format!(
        "Incorrect configuration of {place} component {component:?} setting {setting:?}: expected {expected:?} detected {detected:?}"
    )
}

/// JSON as Go's encoder writes it: on one line, with `<`, `>` and `&` escaped.
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
