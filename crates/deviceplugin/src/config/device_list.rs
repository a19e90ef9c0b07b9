//! Lists of devices in configuration files, in the form of the topology-aware sample plugin.
//!
//! In: `devices: {<node name or "*">: [{id, healthy, numanode}]}`, with further keys of our own. Out: the entries of
//! one node. Never: an error for an unknown key; files written for other plugins have some (`devicename`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use super::MAX_DEVICES;
use super::check::{absolute, variables};
use crate::inventory::DeviceId;

/// The entry for every node that has none of its own.
const ANY_NODE: &str = "*";

/// Devices by node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceList {
    /// Devices by node name; `*` stands for every node that is not named.
    pub devices: BTreeMap<String, Vec<ListedDevice>>,
}

/// One device of a list.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ListedDevice {
    /// The id, unique within the node.
    #[serde(default)]
    pub id: DeviceId,
    /// Whether the device may be allocated. The default is yes; for the sample plugin it is no.
    #[serde(default)]
    pub healthy: Option<bool>,
    /// The NUMA zone; -1 for none. The default is none; for the sample plugin it is 0. Excludes `numanodes`.
    #[serde(default)]
    pub numanode: Option<i64>,
    /// Several NUMA zones. Excludes `numanode`.
    #[serde(default)]
    pub numanodes: Box<[u32]>,
    /// Where the device's health is read while the plugin runs.
    #[serde(default)]
    pub health: Option<HealthSource>,
    /// Device nodes of the host, as absolute paths, that a container with this device gets.
    #[serde(default, rename = "deviceNodes")]
    pub device_nodes: Box<[PathBuf]>,
    /// Environment variables that a container with this device gets.
    #[serde(default)]
    pub envs: BTreeMap<String, String>,
}

/// Where a device's health is read.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct HealthSource {
    /// A file. The device is healthy while the file is empty or says `healthy`, `ok`, `1` or `true`; any other text is
    /// the reason why it is not. A missing file makes the device unhealthy.
    pub file: Arc<Path>,
}

impl DeviceList {
    /// The devices of a node: its own entry, else that of `*`, else none.
    #[must_use]
    pub fn of_node(&self, node: &str) -> &[ListedDevice] {
        self.entry(node).map(|(_, devices)| devices.as_slice()).unwrap_or_default()
    }

    /// Drops the entries of other nodes, to save memory.
    pub fn retain_node(&mut self, node: &str) {
        let own = self.entry(node).map(|(name, _)| name.clone());
        self.devices.retain(|name, _| own.as_ref() == Some(name));
        self.devices.values_mut().for_each(Vec::shrink_to_fit);
    }

    /// Checks what can be checked without looking at the node.
    ///
    /// # Errors
    /// Names the node, the device, and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        for (node, devices) in &self.devices {
            let mut ids: Vec<&str> = devices.iter().map(|device| &*device.id).collect();
            if ids.len() > MAX_DEVICES {
                return Err(format!("devices of {node:?}: {} devices: allowed are {MAX_DEVICES}", ids.len()));
            }
            if ids.contains(&"") {
                return Err(format!("devices of {node:?}: a device without id: each needs one"));
            }
            ids.sort_unstable();
            if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(format!(
                    "devices of {node:?}: id {:?} is listed twice: allowed is once",
                    twice[0]
                ));
            }
            for device in devices {
                device.check().map_err(|reason| format!("devices of {node:?}: {}: {reason}", device.id))?;
            }
        }
        Ok(())
    }

    fn entry(&self, node: &str) -> Option<(&String, &Vec<ListedDevice>)> {
        self.devices.get_key_value(node).or_else(|| self.devices.get_key_value(ANY_NODE))
    }
}

impl ListedDevice {
    fn check(&self) -> Result<(), String> {
        if self.numanode.is_some() && !self.numanodes.is_empty() {
            return Err("numanode and numanodes: allowed is one of the two".to_owned());
        }
        let most = i64::from(u32::MAX);
        if let Some(zone) = self.numanode.filter(|zone| !(-1..=most).contains(zone)) {
            return Err(format!("numanode {zone}: allowed are -1 (none) to {most}"));
        }
        variables(&self.envs)?;
        let nodes = self.device_nodes.iter().map(PathBuf::as_path);
        let health = self.health.iter().map(|health| &*health.file);
        nodes.chain(health).try_for_each(absolute)
    }
}
