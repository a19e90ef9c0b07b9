//! Versions as attributes and selectors have them: Semantic Versioning 2.0.
//!
//! In: text. Out: a version that can be compared. Never: a version that is not in its full form, such as `1.2`.

use std::cmp::Ordering;

/// A version; build metadata does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Semver {
    /// Major, minor and patch.
    pub numbers: [u64; 3],
    /// The parts of the pre-release; empty: a release.
    pre_release: Vec<Identifier>,
}

/// A part of a pre-release. Numbers come before names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Name(String),
}

impl Semver {
    /// Reads a version.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
        if build.is_some_and(|build| !build.split('.').all(is_identifier)) {
            return None;
        }
        let (core, pre) = text.split_once('-').map_or((text, None), |(core, pre)| (core, Some(pre)));
        let mut parts = core.split('.').map(number);
        let numbers = [parts.next()??, parts.next()??, parts.next()??];
        if parts.next().is_some() {
            return None;
        }
        let pre_release = pre.map(|pre| pre.split('.').map(Identifier::parse).collect::<Option<Vec<_>>>());
        Some(Self { numbers, pre_release: pre_release.unwrap_or_else(|| Some(Vec::new()))? })
    }
}

impl Identifier {
    fn parse(text: &str) -> Option<Self> {
        if !is_identifier(text) {
            return None;
        }
        match text.bytes().all(|byte| byte.is_ascii_digit()) {
            true => number(text).map(Self::Number),
            false => Some(Self::Name(text.to_owned())),
        }
    }
}

impl Ord for Semver {
    fn cmp(&self, other: &Self) -> Ordering {
        // A release comes after all of its pre-releases.
        let release = self.pre_release.is_empty().cmp(&other.pre_release.is_empty());
        self.numbers.cmp(&other.numbers).then(release).then_with(|| self.pre_release.cmp(&other.pre_release))
    }
}

impl PartialOrd for Semver {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A number without leading zeros.
fn number(text: &str) -> Option<u64> {
    let is_short = text == "0" || !text.starts_with('0');
    (is_short && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_the_specification_says() {
        let order = [
            "0.9.9",
            "1.0.0-1",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0",
            "1.0.1",
            "1.10.0",
            "2.0.0",
        ];
        let versions: Vec<Semver> = order.iter().map(|text| Semver::parse(text).unwrap()).collect();
        assert!(versions.is_sorted_by(|one, other| one < other), "{versions:?}");
        assert_eq!(Semver::parse("1.0.0+a.b"), Semver::parse("1.0.0"));
    }

    #[test]
    fn what_is_no_version_is_none() {
        for text in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "01.2.3",
            "v1.2.3",
            "1.2.3-",
            "1.2.3-a..b",
            "1.2.3-01",
            "1.2.3+",
            "1.2.x",
        ] {
            assert_eq!(Semver::parse(text), None, "{text:?}");
        }
    }
}
