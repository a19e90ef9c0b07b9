//! The controllers that a process runs.
//!
//! In: their names. Out: a set of [`Part`]s. Never: an empty set.

use std::collections::BTreeSet;
use std::str::FromStr;

/// Controllers that belong together and are independent of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// NUMAResourcesOperators and NUMAResourcesSchedulers.
    NumaResources,
    /// DeviceConfigs.
    DeviceConfig,
}

/// A set of [`Part`]s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controllers(BTreeSet<Part>);

/// A name that no controller has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no controller: numaresources, deviceconfig, or both separated by a comma")]
pub struct UnknownPart(String);

impl Default for Controllers {
    fn default() -> Self {
        Self(BTreeSet::from([Part::NumaResources]))
    }
}

impl Controllers {
    /// Whether this part runs.
    #[must_use]
    pub fn has(&self, part: Part) -> bool {
        self.0.contains(&part)
    }
}

impl FromStr for Controllers {
    type Err = UnknownPart;

    fn from_str(text: &str) -> Result<Self, UnknownPart> {
        let part = |name: &str| match name.trim() {
            "numaresources" => Ok(Part::NumaResources),
            "deviceconfig" => Ok(Part::DeviceConfig),
            _ => Err(UnknownPart(text.to_owned())),
        };
        text.split(',').map(part).collect::<Result<BTreeSet<_>, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        use Part::{DeviceConfig, NumaResources};
        for (text, wanted) in [
            ("numaresources", Some([NumaResources].as_slice())),
            ("deviceconfig", Some([DeviceConfig].as_slice())),
            ("deviceconfig, numaresources", Some([NumaResources, DeviceConfig].as_slice())),
            ("", None),
            ("numaresources,", None),
            ("DeviceConfig", None),
        ] {
            let wanted = wanted.map(|parts| Controllers(parts.iter().copied().collect()));
            assert_eq!(text.parse::<Controllers>().ok(), wanted, "{text}");
        }
        let error = "all".parse::<Controllers>().unwrap_err().to_string();
        assert!(error.contains("\"all\"") && error.contains("deviceconfig"), "{error}");
    }
}
