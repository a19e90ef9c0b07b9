//! Devices that somebody listed, in the form of the topology-aware sample plugin: node names or `*`, each with devices.
//!
//! In: `devices: {<node name or "*">: [{id, healthy, numanode}]}`, with more keys of ours. Out: the devices of one node. Never: an
//! opinion about keys it does not know: files written for others have some (`devicename`).
//!
//! The sample plugin takes what is missing for Go's zero: a device without `healthy` is not, one without `numanode` is in zone
//! 0. That is so here only where we stand in for it; else it is healthy, and in no zone.

use std::collections::{BTreeMap, HashSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runtime::yaml::{self, Mode};
use serde::Deserialize;

use super::{Error, Found, Look};
use crate::config::MAX_DEVICES;
use crate::inventory::{Gives, Hardware, Id};

/// Devices of any node without a list of its own.
const ANY: &str = "*";
/// A health file is a word.
const MAX_HEALTH_BYTES: u64 = 4096;

/// The list.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Devices {
    /// By name of the node.
    pub devices: BTreeMap<String, Vec<Entry>>,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Entry {
    /// Its id.
    #[serde(default)]
    pub id: Id,
    /// Whether it may be used.
    #[serde(default)]
    pub healthy: Option<bool>,
    /// The zone it is close to; -1 for none.
    #[serde(default)]
    pub numanode: Option<i64>,
    /// Zones it is close to, instead.
    #[serde(default)]
    pub numanodes: Box<[u32]>,
    /// What tells about its health while we run.
    #[serde(default)]
    pub health: Option<HealthSource>,
    /// Device nodes of the host that a container gets.
    #[serde(default, rename = "deviceNodes")]
    pub device_nodes: Box<[PathBuf]>,
    /// Variables that a container gets.
    #[serde(default)]
    pub envs: BTreeMap<String, String>,
}

/// What tells about a device's health.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct HealthSource {
    /// A file that says `healthy`, `ok`, `1` or nothing while all is well, and why not else. One that is missing is no good sign.
    pub file: Arc<Path>,
}

impl Devices {
    /// The node's list and what it is called, if there is one.
    fn of(&self, node: &str) -> Option<(&String, &Vec<Entry>)> {
        self.devices.get_key_value(node).or_else(|| self.devices.get_key_value(ANY))
    }

    /// Lets go of the lists of other nodes.
    pub fn keep(&mut self, node: &str) {
        let own = self.of(node).map(|(name, _)| name.clone());
        self.devices.retain(|name, _| own.as_ref() == Some(name));
        self.devices.values_mut().for_each(Vec::shrink_to_fit);
    }
}

/// Checks what can be without a look at the node.
///
/// # Errors
/// Names the device.
pub fn check(devices: &Devices) -> Result<(), String> {
    for (node, entries) in &devices.devices {
        let mut ids: Vec<&str> = entries.iter().map(|entry| &*entry.id).collect();
        if ids.len() > MAX_DEVICES {
            return Err(format!("devices of {node:?}: {} devices: allowed are {MAX_DEVICES}", ids.len()));
        }
        if ids.contains(&"") {
            return Err(format!("devices of {node:?}: a device without id: each needs one"));
        }
        ids.sort_unstable();
        if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("devices of {node:?}: id {:?} is there twice: allowed is once", twice[0]));
        }
        for entry in entries {
            entry.check().map_err(|reason| format!("devices of {node:?}: {}: {reason}", entry.id))?;
        }
    }
    Ok(())
}

impl Entry {
    fn check(&self) -> Result<(), String> {
        if self.numanode.is_some() && !self.numanodes.is_empty() {
            return Err("numanode and numanodes: allowed is one of the two".to_owned());
        }
        let most = i64::from(u32::MAX);
        if let Some(zone) = self.numanode.filter(|zone| !(-1..=most).contains(zone)) {
            return Err(format!("numanode {zone}: allowed are -1 (none) to {most}"));
        }
        crate::config::variables(&self.envs)?;
        let nodes = self.device_nodes.iter().map(PathBuf::as_path);
        let health = self.health.iter().map(|health| &*health.file);
        nodes.chain(health).try_for_each(crate::config::absolute)
    }

    /// Those that are alike have one description: of thousands most are.
    fn found(&self, sample: bool, alike: &mut HashSet<Arc<Hardware>>) -> Found {
        let zone = if sample { Some(self.numanode.unwrap_or(0)) } else { self.numanode };
        let zone = zone.and_then(|zone| u32::try_from(zone).ok());
        let mut zones =
            if self.numanodes.is_empty() { Vec::from_iter(zone) } else { self.numanodes.to_vec() };
        zones.sort_unstable();
        zones.dedup();
        let nodes = self.device_nodes.iter().map(|path| super::node(path)).collect();
        let gives = Gives { nodes, mounts: Vec::new(), envs: self.envs.clone() };
        let hardware = Hardware { zones, gives, pci: None };
        let known = alike.get(&hardware).cloned();
        let hardware = known.unwrap_or_else(|| {
            let new = Arc::new(hardware);
            alike.insert(Arc::clone(&new));
            new
        });
        Found {
            hardware,
            stated_unhealthy: !self.healthy.unwrap_or(!sample),
            seen: self.health.as_ref().and_then(|health| ask(&health.file)),
            health_file: self.health.as_ref().map(|health| Arc::clone(&health.file)),
        }
    }
}

/// What a health file says against the device.
pub(crate) fn ask(path: &Path) -> Option<String> {
    let text = match read_health(path) {
        Ok(text) => text,
        Err(error) => return Some(format!("{}: {error}", path.display())),
    };
    match text.trim().to_ascii_lowercase().as_str() {
        "" | "healthy" | "ok" | "1" | "true" => None,
        _ => Some(format!("{}: {:?}", path.display(), text.trim().chars().take(200).collect::<String>())),
    }
}

fn read_health(path: &Path) -> std::io::Result<String> {
    // Others may block whoever opens them.
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("is no regular file"));
    }
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_HEALTH_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// The devices of one node: none, if it is not there.
///
/// # Errors
/// Where we stand in for the sample plugin, when there are none: it ends then.
pub fn of(devices: &Devices, node: &str, sample: bool) -> Result<Look, String> {
    let entries = devices.of(node).map(|(_, entries)| entries.as_slice()).unwrap_or_default();
    if sample && entries.is_empty() {
        return Err(format!("no devices of {node:?}: wanted is that name, or \"*\""));
    }
    let mut alike = HashSet::new();
    let devices =
        entries.iter().map(|entry| (Arc::clone(&entry.id), entry.found(sample, &mut alike))).collect();
    Ok(Look { devices, volatile: false })
}

/// The text of a file with devices.
///
/// # Errors
/// When it cannot be read.
pub fn text(path: &Path) -> Result<String, Error> {
    yaml::read_text(path, yaml::CONFIG_LIMIT_BYTES).map_err(|error| Error::new(error.to_string()))
}

/// The devices of one node in the text of a file.
///
/// # Errors
/// When it is no such list, or see [`check`] and [`of`].
pub fn parse(path: &Path, text: &str, node: &str, sample: bool) -> Result<Look, Error> {
    let file = path.display().to_string();
    let devices: Devices =
        yaml::read_str(&file, text, Mode::Lenient).map_err(|error| Error::new(error.to_string()))?;
    let named = |reason: String| Error::new(format!("{file}: {reason}"));
    check(&devices).map_err(named)?;
    of(&devices, node, sample).map_err(named)
}
