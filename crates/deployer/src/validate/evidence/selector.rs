//! Label selectors.
//!
//! In: text as `kubectl -l` takes it, without set expressions (`in`, `notin`). Out: yes or no for a set of labels.

use std::collections::BTreeMap;
use std::str::FromStr;

/// A conjunction of requirements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Equals(String, String),
    Differs(String, String),
    Present(String),
    Absent(String),
}

/// A malformed selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} in a label selector is none of key, !key, key=value, key!=value")]
pub struct SelectorError(String);

impl Selector {
    /// Whether labels match.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::Equals(key, value) => labels.get(key) == Some(value),
            Requirement::Differs(key, value) => labels.get(key) != Some(value),
            Requirement::Present(key) => labels.contains_key(key),
            Requirement::Absent(key) => !labels.contains_key(key),
        })
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        text.split(',').map(|part| requirement(part.trim())).collect::<Result<_, _>>().map(Self)
    }
}

fn requirement(part: &str) -> Result<Requirement, SelectorError> {
    let key = |text: &str| {
        let text = text.trim();
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        let is_key = !text.is_empty() && text.bytes().all(fine);
        if is_key { Ok(text.to_owned()) } else { Err(SelectorError(part.chars().take(100).collect())) }
    };
    if let Some((left, right)) = part.split_once("!=") {
        return Ok(Requirement::Differs(key(left)?, right.trim().to_owned()));
    }
    if let Some((left, right)) = part.split_once('=') {
        let right = right.strip_prefix('=').unwrap_or(right);
        return Ok(Requirement::Equals(key(left)?, right.trim().to_owned()));
    }
    match part.strip_prefix('!') {
        Some(rest) => Ok(Requirement::Absent(key(rest)?)),
        None => Ok(Requirement::Present(key(part)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_match_as_in_kubectl() {
        let labels: BTreeMap<String, String> =
            [("role", "worker"), ("empty", "")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        for (text, matches) in [
            ("role=worker", true),
            ("role==worker", true),
            ("role=", false),
            ("empty=", true),
            ("role", true),
            ("!role", false),
            ("!other", true),
            ("role!=worker", false),
            ("other!=x", true),
            ("role=worker, empty", true),
            ("role=worker,other", false),
        ] {
            assert_eq!(text.parse::<Selector>().unwrap().matches(&labels), matches, "{text}");
        }
        for text in ["", "a,,b", "=x", "role in (a, b)"] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
    }
}
