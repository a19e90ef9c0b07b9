//! The values of a specification, with the names they have in files.
//!
//! In: fields. Out: JSON or YAML with the fields that are set, in the order of the fields here. Never: a judgement;
//! [`check`](crate::check) has that. Required fields that are missing are read as empty, so that one pass finds all
//! that is wrong.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::name::Kind;

/// One specification: devices of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Spec {
    /// The version of the format, `0.3.0` to `1.1.0`; a leading `v` is allowed. Files written here have the lowest
    /// sufficient version.
    pub cdi_version: String,
    /// The kind of the devices, `<vendor>/<class>`.
    pub kind: String,
    /// Notes for people and tools; they reach no container. Since 0.6.0.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The devices, at least one.
    pub devices: Vec<Device>,
    /// The edits of a container that asks for any device of this file, made once.
    #[serde(skip_serializing_if = "ContainerEdits::is_empty")]
    pub container_edits: ContainerEdits,
}

/// One device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Device {
    /// The name, unique within the kind.
    pub name: String,
    /// Notes for people and tools; they reach no container. Since 0.6.0.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The edits of a container that asks for this device; never empty.
    pub container_edits: ContainerEdits,
}

/// The changes to a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ContainerEdits {
    /// Environment variables, `NAME=value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Device nodes of the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<DeviceNode>,
    /// Network interfaces moved from the host into the container. Since 1.1.0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub net_devices: Vec<NetDevice>,
    /// Programs that the runtime runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// Files and folders of the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// The class of service in resctrl. Since 0.7.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intel_rdt: Option<IntelRdt>,
    /// Further groups of the container's process; runtimes ignore 0. Since 0.7.0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub additional_gids: Vec<u32>,
}

/// A device node in the container. The runtime reads a missing `type`, `major` or `minor` from the host's node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DeviceNode {
    /// The path in the container.
    pub path: String,
    /// The path on the host; empty when equal to `path`. Since 0.5.0.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host_path: String,
    /// The type: `b` (block), `c` or `u` (character), `p` (FIFO).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub r#type: String,
    /// The major number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub major: Option<i64>,
    /// The minor number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minor: Option<i64>,
    /// The mode's permission bits, as a decimal number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_mode: Option<u32>,
    /// What the device cgroup lets the container do: any of `r`, `w`, `m`; empty means all, `none` nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub permissions: String,
    /// The owner's user id in the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The group id in the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
}

/// A mount.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Mount {
    /// The path on the host.
    pub host_path: String,
    /// The path in the container.
    pub container_path: String,
    /// Mount options, such as `ro`, `rbind`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// The type of file system. Since 0.4.0.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub r#type: String,
}

/// A program that the runtime runs on the host or in the container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Hook {
    /// When the hook runs: one of [`HOOKS`](crate::check::HOOKS).
    pub hook_name: String,
    /// The program's absolute path.
    pub path: String,
    /// The program's arguments, starting with its own name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// The program's environment variables, `NAME=value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// The time limit in seconds, more than 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
}

/// Cache and memory bandwidth limits, through resctrl.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct IntelRdt {
    /// The class of service: a file name, or `/` for the root class.
    #[serde(rename = "closID", skip_serializing_if = "String::is_empty")]
    pub clos_id: String,
    /// The schema of the L3 cache.
    #[serde(rename = "l3CacheSchema", skip_serializing_if = "String::is_empty")]
    pub l3_cache_schema: String,
    /// The schema of memory bandwidth.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mem_bw_schema: String,
    /// Lines of the class's schemata file. Since 1.1.0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schemata: Vec<String>,
    /// Whether the runtime makes a monitoring group. Since 1.1.0.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub enable_monitoring: bool,
}

/// A network interface that moves into the container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NetDevice {
    /// The interface's name on the host.
    pub host_interface_name: String,
    /// The interface's name in the container.
    pub name: String,
}

impl Spec {
    /// A specification of devices of a kind, with the lowest sufficient version.
    #[must_use]
    pub fn new(kind: &Kind, devices: Vec<Device>) -> Self {
        Self { kind: kind.to_string(), devices, ..Self::default() }.with_lowest_version()
    }

    /// The same specification with the lowest sufficient version: older runtimes refuse versions they do not know.
    #[must_use]
    pub fn with_lowest_version(mut self) -> Self {
        self.cdi_version = crate::Version::minimum(&self).to_string();
        self
    }

    /// All edits: those of the file, then those of each device.
    pub(crate) fn all_edits(&self) -> impl Iterator<Item = &ContainerEdits> {
        std::iter::once(&self.container_edits)
            .chain(self.devices.iter().map(|device| &device.container_edits))
    }
}

impl Device {
    /// A device with these edits.
    #[must_use]
    pub fn new(name: impl Into<String>, container_edits: ContainerEdits) -> Self {
        Self { name: name.into(), annotations: BTreeMap::new(), container_edits }
    }
}

impl ContainerEdits {
    /// Whether the container is not changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Appends the edits of `other`. There is one class of service; that of `other` takes precedence.
    pub fn extend(&mut self, other: &Self) {
        self.env.extend_from_slice(&other.env);
        self.device_nodes.extend_from_slice(&other.device_nodes);
        self.net_devices.extend_from_slice(&other.net_devices);
        self.hooks.extend_from_slice(&other.hooks);
        self.mounts.extend_from_slice(&other.mounts);
        self.intel_rdt = other.intel_rdt.clone().or(self.intel_rdt.take());
        self.additional_gids.extend_from_slice(&other.additional_gids);
    }
}

impl DeviceNode {
    /// A device node with the same path on the host and in the container.
    #[must_use]
    pub fn at(path: impl Into<String>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }
}
