//! Label selectors.
//!
//! In: text as `kubectl -l` takes it, without set expressions (`in`, `notin`). Out: yes or no for a set of labels.

use std::str::FromStr;

use anyhow::bail;
use kube::core::{self, Expression};

/// A conjunction of requirements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(pub core::Selector);

impl FromStr for Selector {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        text.split(',').map(|part| requirement(part.trim())).collect::<Result<_, _>>().map(Self)
    }
}

fn requirement(part: &str) -> anyhow::Result<Expression> {
    let key = |text: &str| {
        let text = text.trim();
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        if text.is_empty() || !text.bytes().all(fine) {
            let part: String = part.chars().take(100).collect();
            bail!("{part:?} in a label selector is none of key, !key, key=value, key!=value");
        }
        Ok(text.to_owned())
    };
    if let Some((left, right)) = part.split_once("!=") {
        return Ok(Expression::NotEqual(key(left)?, right.trim().to_owned()));
    }
    if let Some((left, right)) = part.split_once('=') {
        let right = right.strip_prefix('=').unwrap_or(right);
        return Ok(Expression::Equal(key(left)?, right.trim().to_owned()));
    }
    match part.strip_prefix('!') {
        Some(rest) => Ok(Expression::DoesNotExist(key(rest)?)),
        None => Ok(Expression::Exists(key(part)?)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kube::core::SelectorExt as _;

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
            assert_eq!(text.parse::<Selector>().unwrap().0.matches(&labels), matches, "{text}");
        }
        for text in ["", "a,,b", "=x", "role in (a, b)"] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
    }
}
