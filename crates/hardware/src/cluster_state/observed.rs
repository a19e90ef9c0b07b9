//! Objects that are kept complete.
//!
//! In: JSON. Out: [`ObservedObject`] with what is asked of it. Never: a decision.

use api::hardware::keys;
use objects::ownership::{is_terminating, references, uid};
use serde_json::Value;

/// The labels of every object that is made for the DeviceConfig of this name.
#[must_use]
pub fn marks(name: &str) -> [(&'static str, &str); 2] {
    [(keys::LABEL_MANAGED_BY, keys::MANAGED_BY), (keys::LABEL_DEVICE_CONFIG, name)]
}

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
        uid(&self.body)
    }

    /// It is being deleted.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        is_terminating(&self.body)
    }

    /// Whether it has the marks of an object of the DeviceConfig of this name.
    #[must_use]
    pub fn is_marked(&self, name: &str) -> bool {
        let labels = &self.body["metadata"]["labels"];
        marks(name).iter().all(|(label, value)| labels[*label] == *value)
    }

    /// The name of the DeviceConfig that it was made for; empty if no label says so.
    #[must_use]
    pub fn device_config(&self) -> &str {
        self.body["metadata"]["labels"][keys::LABEL_DEVICE_CONFIG].as_str().unwrap_or_default()
    }

    /// The UID of its controller, with kind and name.
    #[must_use]
    pub fn controller(&self) -> Option<(&str, &str, &str)> {
        let one = references(&self.body).iter().find(|one| one["controller"] == true)?;
        Some((one["uid"].as_str()?, one["kind"].as_str()?, one["name"].as_str()?))
    }
}
