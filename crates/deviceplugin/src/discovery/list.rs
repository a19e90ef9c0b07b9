//! Devices that a configuration or a file of its own lists.
//!
//! In: a [`DeviceList`], or the text of one. Out: the devices of one node, with the health that their files report.
//! Never: an error for an unknown key in a list file.
//!
//! The sample plugin reads a missing value as Go's zero: a device without `healthy` is unhealthy, one without
//! `numanode` is in zone 0. This plugin does the same only in its place (`sample`); otherwise such a device is healthy
//! and in no zone.

use std::collections::HashSet;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use runtime::yaml::{self, Mode};

use super::{Error, FoundDevice, Scan};
use crate::config::{DeviceList, ListedDevice};
use crate::inventory::{Hardware, Injection};

/// How much of a health file is read; a word is expected.
const MAX_HEALTH_BYTES: u64 = 4096;
/// How much of a health file's text a reason shows.
const MAX_REASON_CHARS: usize = 200;

/// The devices of one node; none when the list has no entry for it. Reads the health file of each device that has one.
///
/// # Errors
/// In place of the sample plugin, when the node has no devices: that plugin exits then.
pub fn devices_of_node(list: &DeviceList, node: &str, sample: bool) -> Result<Scan, String> {
    let listed = list.of_node(node);
    if sample && listed.is_empty() {
        return Err(format!("no devices for node {node:?}: the list has neither that name nor \"*\""));
    }
    let mut shared = HashSet::new();
    let devices =
        listed.iter().map(|device| (Arc::clone(&device.id), found(device, sample, &mut shared))).collect();
    Ok(Scan { devices, volatile: false })
}

/// The text of a list file.
///
/// # Errors
/// When the file cannot be read.
pub fn read_text(path: &Path) -> Result<String, Error> {
    yaml::read_text(path, yaml::CONFIG_LIMIT_BYTES).map_err(|error| Error::new(error.to_string()))
}

/// The devices of one node, from the text of a list file; `path` stands for the file in errors.
///
/// # Errors
/// When the text is no such list, [`DeviceList::check`] refuses it, or as [`devices_of_node`].
pub fn parse(path: &Path, text: &str, node: &str, sample: bool) -> Result<Scan, Error> {
    let file = path.display().to_string();
    let list: DeviceList =
        yaml::read_str(&file, text, Mode::Lenient).map_err(|error| Error::new(error.to_string()))?;
    let named = |reason: String| Error::new(format!("{file}: {reason}"));
    list.check().map_err(named)?;
    devices_of_node(&list, node, sample).map_err(named)
}

/// Reads a health file: the reason why the device is unhealthy, or nothing when it is healthy.
pub(crate) fn health_problem(path: &Path) -> Option<String> {
    let text = match read_health(path) {
        Ok(text) => text,
        Err(error) => return Some(format!("{}: {error}", path.display())),
    };
    match text.trim().to_ascii_lowercase().as_str() {
        "" | "healthy" | "ok" | "1" | "true" => None,
        _ => {
            let start: String = text.trim().chars().take(MAX_REASON_CHARS).collect();
            Some(format!("{}: {start:?}", path.display()))
        }
    }
}

fn read_health(path: &Path) -> std::io::Result<String> {
    // Opening a pipe would block.
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_HEALTH_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Devices with equal hardware share one value in `shared`: of thousands, most are alike.
fn found(device: &ListedDevice, sample: bool, shared: &mut HashSet<Arc<Hardware>>) -> FoundDevice {
    let zone = if sample { Some(device.numanode.unwrap_or(0)) } else { device.numanode };
    let zone = zone.and_then(|zone| u32::try_from(zone).ok());
    let mut zones =
        if device.numanodes.is_empty() { Vec::from_iter(zone) } else { device.numanodes.to_vec() };
    zones.sort_unstable();
    zones.dedup();
    let nodes = device.device_nodes.iter().map(|path| super::node(path)).collect();
    let injection = Injection { nodes, mounts: Vec::new(), envs: device.envs.clone() };
    let hardware = Hardware { zones, injection, pci: None };
    let known = shared.get(&hardware).cloned();
    let hardware = known.unwrap_or_else(|| {
        let new = Arc::new(hardware);
        shared.insert(Arc::clone(&new));
        new
    });
    FoundDevice {
        hardware,
        stated_unhealthy: !device.healthy.unwrap_or(!sample),
        problem: device.health.as_ref().and_then(|health| health_problem(&health.file)),
        health_file: device.health.as_ref().map(|health| Arc::clone(&health.file)),
    }
}
