//! Objects that are kept complete.
//!
//! In: JSON. Out: [`ObservedObject`] with accessors. Never: a decision.

use api::hardware::keys;
use objects::ownership::{is_terminating, references, uid};
use serde_json::Value;

/// The labels of all objects that are made for the DeviceConfig of this name.
#[must_use]
pub fn marks(name: &str) -> [(&'static str, &str); 2] {
    [(keys::LABEL_MANAGED_BY, keys::MANAGED_BY), (keys::LABEL_DEVICE_CONFIG, name)]
}

/// An object as it is on the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedObject {
    /// The complete object.
    pub body: Value,
}

impl ObservedObject {
    /// The text at a JSON pointer; empty if there is none.
    #[must_use]
    pub fn text(&self, pointer: &str) -> &str {
        self.body.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The UID.
    #[must_use]
    pub fn uid(&self) -> &str {
        uid(&self.body)
    }

    /// The version of the driver that a Module loads.
    #[must_use]
    pub fn driver_version(&self) -> &str {
        self.text("/spec/moduleLoader/container/version")
    }

    /// Whether deletion has begun.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        is_terminating(&self.body)
    }

    /// Whether the object has the labels of an object of the DeviceConfig of this name.
    #[must_use]
    pub fn is_marked(&self, name: &str) -> bool {
        let labels = &self.body["metadata"]["labels"];
        marks(name).iter().all(|(label, value)| labels[*label] == *value)
    }

    /// The name of the DeviceConfig in the object's labels; empty without such a label.
    #[must_use]
    pub fn device_config(&self) -> &str {
        self.body["metadata"]["labels"][keys::LABEL_DEVICE_CONFIG].as_str().unwrap_or_default()
    }

    /// UID, kind and name of the owner that is the controller.
    #[must_use]
    pub fn controller(&self) -> Option<(&str, &str, &str)> {
        let owner = references(&self.body).iter().find(|owner| owner["controller"] == true)?;
        Some((owner["uid"].as_str()?, owner["kind"].as_str()?, owner["name"].as_str()?))
    }
}
