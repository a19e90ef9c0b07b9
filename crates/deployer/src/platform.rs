//! Platforms and their versions.
//!
//! In: text from flags or an API server. Out: comparable values. Never: an API call.

use std::fmt;
use std::str::FromStr;

/// The platforms that need different objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Platform {
    /// Any other Kubernetes.
    #[default]
    Kubernetes,
    /// OpenShift with its own control plane: MachineConfigs, SecurityContextConstraints.
    OpenShift,
    /// OpenShift with a hosted control plane: SecurityContextConstraints, no MachineConfigs.
    HyperShift,
}

/// A version such as `v1.36.3`, `4.18.0-rc.1` or `v1.32.2-gke.100+build`. Its text form is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    text: String,
    numbers: Vec<u64>,
    pre_release: Option<String>,
}

/// Malformed text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a platform.
    #[error("platform {0:?} is none of Kubernetes, OpenShift, HyperShift")]
    Platform(String),
    /// Not a version.
    #[error("malformed version: {0}")]
    Version(String),
}

impl Platform {
    /// All platforms.
    pub const ALL: [Self; 3] = [Self::Kubernetes, Self::OpenShift, Self::HyperShift];

    /// Whether the platform is a kind of OpenShift, where pods need SecurityContextConstraints.
    #[must_use]
    pub fn is_openshift(self) -> bool {
        self != Self::Kubernetes
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The variants have the names of the platforms.
        write!(f, "{self:?}")
    }
}

impl FromStr for Platform {
    type Err = Error;

    /// Reads a name in any letter case, as the Go deployer does.
    fn from_str(text: &str) -> Result<Self, Error> {
        let named = |platform: &Self| platform.to_string().eq_ignore_ascii_case(text);
        Self::ALL.into_iter().find(named).ok_or_else(|| Error::Platform(text.to_owned()))
    }
}

impl Version {
    /// Whether this version has at least these numbers. Missing numbers count as zero, suffixes do not count.
    ///
    /// Vendors append suffixes to versions that are complete, such as `v1.32.0-gke.100`.
    #[must_use]
    pub fn at_least(&self, numbers: &[u64]) -> bool {
        let places = self.numbers.len().max(numbers.len());
        let padded = |numbers: &[u64]| -> Vec<u64> {
            numbers.iter().copied().chain(std::iter::repeat(0)).take(places).collect()
        };
        padded(&self.numbers) >= padded(numbers)
    }

    /// The number at an index: 0 is major, 1 is minor; a missing number is 0.
    #[must_use]
    pub fn number(&self, place: usize) -> u64 {
        self.numbers.get(place).copied().unwrap_or(0)
    }

    /// The suffix after `-`, without build metadata.
    #[must_use]
    pub fn pre_release(&self) -> Option<&str> {
        self.pre_release.as_deref()
    }
}

impl FromStr for Version {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let malformed = || Error::Version(text.to_owned());
        let body = text.strip_prefix('v').unwrap_or(text);
        let body = body.split_once('+').map_or(body, |(version, _)| version);
        let (numbers, pre_release) = match body.split_once('-') {
            Some((_, "")) => return Err(malformed()),
            Some((numbers, pre)) => (numbers, Some(pre.to_owned())),
            None => (body, None),
        };
        let number =
            |part: &str| part.parse::<u64>().ok().filter(|_| part.bytes().all(|b| b.is_ascii_digit()));
        let numbers: Option<Vec<u64>> = numbers.split('.').map(number).collect();
        let numbers = numbers.ok_or_else(malformed)?;
        Ok(Self { text: text.to_owned(), numbers, pre_release })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_are_read_in_any_case() {
        for platform in Platform::ALL {
            assert_eq!(platform.to_string().to_uppercase().parse(), Ok(platform));
        }
        let error = "foobar".parse::<Platform>().unwrap_err().to_string();
        assert_eq!(error, "platform \"foobar\" is none of Kubernetes, OpenShift, HyperShift");
    }

    #[test]
    fn versions_are_in_order() {
        let ordered = ["v1.9", "1.21", "v1.21.1+build", "v1.36.3", "4.18.0-rc.1", "4.18.1"];
        let versions: Vec<Version> = ordered.iter().map(|text| text.parse().unwrap()).collect();
        for (place, version) in versions.iter().enumerate() {
            for (other, later) in versions.iter().enumerate() {
                assert_eq!(later.at_least(&version.numbers), other >= place, "{later} {version}");
            }
        }
        let same: [Version; 2] = ["1.21", "v1.21.0.0+x"].map(|text| text.parse().unwrap());
        assert!(same[0].at_least(&same[1].numbers) && same[1].at_least(&same[0].numbers));
    }

    #[test]
    fn vendors_suffixes_do_not_make_a_version_earlier() {
        let version: Version = "v1.21.0-gke.1".parse().unwrap();
        assert!(version.at_least(&[1, 21]) && !version.at_least(&[1, 22]));
        assert_eq!((version.number(0), version.number(1), version.number(7)), (1, 21, 0));
        assert_eq!(version.pre_release(), Some("gke.1"));
    }

    #[test]
    fn malformed_versions_are_rejected() {
        for text in ["", "v", "INVALID", "1.x", "1..2", "-1", "1.2-", "99999999999999999999", "1.+2"] {
            let error = text.parse::<Version>().unwrap_err();
            assert_eq!(error.to_string(), format!("malformed version: {text}"));
        }
    }
}
