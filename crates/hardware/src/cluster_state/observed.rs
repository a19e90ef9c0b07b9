//! Objects that are kept complete.
//!
//! In: JSON. Out: [`ObservedObject`] with what is asked of it. Never: a decision.

use api::hardware::keys;
use serde_json::Value;

/// An object as it is on the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedObject {
    /// All of it.
    pub body: Value,
}

impl ObservedObject {
    /// A text in it.
    #[must_use]
    pub fn text(&self, pointer: &str) -> &str {
        self.body.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Its UID.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    /// It is being deleted.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.body.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
    }

    /// It has our mark, and says that it was made for this one.
    #[must_use]
    pub fn is_marked(&self, name: &str) -> bool {
        let labels = &self.body["metadata"]["labels"];
        labels[keys::LABEL_MANAGED_BY] == keys::MANAGED_BY && labels[keys::LABEL_DEVICE_CONFIG] == name
    }

    /// The UID of its controller, with kind and name.
    #[must_use]
    pub fn controller(&self) -> Option<(&str, &str, &str)> {
        let all = self.body["metadata"]["ownerReferences"].as_array()?;
        let one = all.iter().find(|one| one["controller"] == true)?;
        Some((one["uid"].as_str()?, one["kind"].as_str()?, one["name"].as_str()?))
    }
}
