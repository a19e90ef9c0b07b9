//! NodeModulesConfig: the desired and the loaded modules of a node. It has the name of the node.
//!
//! In: objects of KMM. Out: typed values; equal configurations mean the same module, loaded in the same way. Never: a
//! write by tholepin.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::null::null_as_default;

/// The kind.
pub const KIND: &str = "NodeModulesConfig";
/// The resource name.
pub const PLURAL: &str = "nodemodulesconfigs";

/// A node's modules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeModulesConfig {
    /// Standard object metadata; the name is the node's.
    pub metadata: ObjectMeta,
    /// The desired modules.
    #[serde(deserialize_with = "null_as_default")]
    pub spec: Modules,
    /// The loaded modules.
    #[serde(deserialize_with = "null_as_default")]
    pub status: Modules,
}

/// Modules of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Modules {
    /// The modules.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub modules: Vec<Entry>,
}

/// A module of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Entry {
    /// The Module's namespace.
    pub namespace: String,
    /// The Module's name.
    pub name: String,
    /// The Module's version, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Service account of the pods that load and unload it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// The whole configuration. Spec and status are compared field by field, unknown fields included.
    #[serde(deserialize_with = "null_as_default")]
    pub config: Map<String, Value>,
    /// In the status: the boot id of the node at the time of loading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
}

impl Modules {
    /// The entry of a Module.
    #[must_use]
    pub fn of(&self, namespace: &str, name: &str) -> Option<&Entry> {
        self.modules.iter().find(|entry| entry.namespace == namespace && entry.name == name)
    }
}

impl Entry {
    /// The kernel version of the entry.
    #[must_use]
    pub fn kernel(&self) -> &str {
        self.text("kernelVersion")
    }

    /// The image of the entry.
    #[must_use]
    pub fn image(&self) -> &str {
        self.text("containerImage")
    }

    fn text(&self, field: &str) -> &str {
        self.config.get(field).and_then(Value::as_str).unwrap_or_default()
    }
}
