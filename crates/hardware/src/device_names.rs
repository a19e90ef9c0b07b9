//! Names under which the devices of a driver are, or were, offered.
//!
//! In: what a DeviceConfig says, what its Module remembers. Out: the names, of resources and of drivers of resource
//! claims, by the version of the driver of the devices. Never: a name forgotten while a node has the version with which
//! it was offered: pods that asked for it may still hold devices there.

use std::collections::{BTreeMap, BTreeSet};

use objects::Object;
use serde_json::Value;

/// The annotation of a Module that remembers them.
pub const ANNOTATION: &str = "hardware.tholepin.dev/resources";

/// Names by versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceNames(BTreeMap<String, BTreeSet<String>>);

impl DeviceNames {
    /// What a Module remembers; what cannot be read is nothing.
    #[must_use]
    pub fn on(module: &Value) -> Self {
        let text = module["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or_default();
        Self(serde_json::from_str(text).unwrap_or_default())
    }

    /// With these names, which are offered with this version.
    #[must_use]
    pub fn and(mut self, version: &str, names: BTreeSet<String>) -> Self {
        if !names.is_empty() {
            self.0.entry(version.to_owned()).or_default().extend(names);
        }
        self
    }

    /// Without those of versions that are nowhere any more.
    #[must_use]
    pub fn only(mut self, versions: &BTreeSet<&str>) -> Self {
        self.0.retain(|version, _| versions.contains(version.as_str()));
        self
    }

    /// All names.
    #[must_use]
    pub fn names(&self) -> BTreeSet<String> {
        self.0.values().flatten().cloned().collect()
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The Module, with an annotation that remembers the names.
    #[must_use]
    pub fn put_on(&self, module: Object) -> Object {
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
    fn names_are_remembered_as_long_as_their_version() {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
        let offered = DeviceNames::default()
            .and("1", names(&["a/x"]))
            .and("1", names(&["a/y"]))
            .and("2", names(&["a/z"]));
        let module = Object::from_value(
            ObjectKind::new("g", "v", "Module", "modules"),
            json!({ "metadata": { "name": "m" } }),
        );
        let module = module.unwrap();
        let written = offered.put_on(module.clone());
        assert_eq!(DeviceNames::on(written.body()), offered);
        assert_eq!(offered.names(), names(&["a/x", "a/y", "a/z"]));
        assert_eq!(offered.clone().only(&BTreeSet::from(["2"])).names(), names(&["a/z"]));
        assert!(offered.only(&BTreeSet::new()).is_empty());
        let none = DeviceNames::default().and("1", BTreeSet::new());
        assert_eq!(none.put_on(module.clone()), module, "nothing is said where there is nothing");
        assert_eq!(DeviceNames::on(&json!({ "metadata": { "annotations": { ANNOTATION: "[" } } })), none);
    }
}
