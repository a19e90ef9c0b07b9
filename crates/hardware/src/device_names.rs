//! Names under which the devices of a driver are, or were, offered.
//!
//! In: a DeviceConfig, the annotation of its Module. Out: names of resources and of drivers of resource claims, by
//! version of the driver. Never: a name forgotten while a node has its version: pods may still hold devices there.

use std::collections::{BTreeMap, BTreeSet};

use objects::Object;
use serde_json::Value;

/// The annotation of a Module that records the names.
pub const ANNOTATION: &str = "hardware.tholepin.dev/resources";

/// Names by version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceNames(BTreeMap<String, BTreeSet<String>>);

impl DeviceNames {
    /// The names recorded on a Module; none if the annotation cannot be read.
    #[must_use]
    pub fn recorded_on(module: &Value) -> Self {
        let text = module["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or_default();
        Self(serde_json::from_str(text).unwrap_or_default())
    }

    /// Adds names that are offered with this version.
    #[must_use]
    pub fn with(mut self, version: &str, names: BTreeSet<String>) -> Self {
        if !names.is_empty() {
            self.0.entry(version.to_owned()).or_default().extend(names);
        }
        self
    }

    /// Keeps the names of these versions only.
    #[must_use]
    pub fn retain_versions(mut self, versions: &BTreeSet<&str>) -> Self {
        self.0.retain(|version, _| versions.contains(version.as_str()));
        self
    }

    /// All names.
    #[must_use]
    pub fn names(&self) -> BTreeSet<String> {
        self.0.values().flatten().cloned().collect()
    }

    /// Whether there are no names.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records the names in the annotation of a Module.
    #[must_use]
    pub fn record_on(&self, module: Object) -> Object {
        if self.is_empty() {
            return module;
        }
        let text = serde_json::json!(self.0).to_string();
        module.edited(|body| body["metadata"]["annotations"][ANNOTATION] = text.into())
    }
}

#[cfg(test)]
mod tests {
    use objects::ObjectKind;
    use serde_json::json;

    use super::*;

    #[test]
    fn names_stay_as_long_as_their_version() {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
        let offered = DeviceNames::default()
            .with("1", names(&["a/x"]))
            .with("1", names(&["a/y"]))
            .with("2", names(&["a/z"]));
        let module = Object::from_value(
            ObjectKind::new("g", "v", "Module", "modules"),
            json!({ "metadata": { "name": "m" } }),
        );
        let module = module.unwrap();
        let written = offered.record_on(module.clone());
        assert_eq!(DeviceNames::recorded_on(written.body()), offered);
        assert_eq!(offered.names(), names(&["a/x", "a/y", "a/z"]));
        assert_eq!(offered.clone().retain_versions(&BTreeSet::from(["2"])).names(), names(&["a/z"]));
        assert!(offered.retain_versions(&BTreeSet::new()).is_empty());
        let none = DeviceNames::default().with("1", BTreeSet::new());
        assert_eq!(none.record_on(module.clone()), module, "no names, no annotation");
        assert_eq!(
            DeviceNames::recorded_on(&json!({ "metadata": { "annotations": { ANNOTATION: "[" } } })),
            none
        );
    }
}
