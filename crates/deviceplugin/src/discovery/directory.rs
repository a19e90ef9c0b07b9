//! Devices that are nodes in a folder: those of drivers without a bus of their own.
//!
//! In: a folder, a prefix of names, zones by name, sysfs. Out: one device for each node. Never: a node that is opened.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;

use node::sysfs::Sysfs;

use super::{Error, FoundDevice, Scan};
use crate::config::{Directory, MAX_DEVICES};
use crate::inventory::{Hardware, Injection};

/// Scans the folder. Cost: a `stat` and at most a few small reads per name with the prefix.
///
/// # Errors
/// When the folder does not exist or cannot be read: a driver that is not loaded is not an empty list.
pub fn scan(directory: &Directory, sysfs: &Path) -> Result<Scan, Error> {
    let failed = |error: std::io::Error| Error {
        reason: format!("{}: {error}", directory.path.display()),
        gone: error.kind() == std::io::ErrorKind::NotFound,
    };
    let sysfs = Sysfs::new(sysfs);
    let mut scan = Scan { volatile: true, ..Scan::default() };
    for entry in std::fs::read_dir(&directory.path).map_err(failed)? {
        let Ok(name) = entry.map_err(failed)?.file_name().into_string() else { continue };
        if !name.starts_with(&directory.prefix) || name.starts_with('.') {
            continue;
        }
        let path = directory.path.join(&name);
        // A node that vanished meanwhile, or a link to nowhere, is not there.
        let Ok(found) = std::fs::metadata(&path) else { continue };
        let kind = found.file_type();
        let is_node = kind.is_char_device() || kind.is_block_device();
        if !(is_node || directory.any_file && kind.is_file()) {
            continue;
        }
        let stated = directory.zones.get(&name).cloned();
        let zones = stated.unwrap_or_else(|| {
            let zone = is_node.then(|| sysfs.zone_of_node(found.rdev(), kind.is_block_device())).flatten();
            Vec::from_iter(zone)
        });
        let injection = Injection { nodes: vec![super::node(&path)], ..Injection::default() };
        let hardware = Arc::new(Hardware { zones, injection, pci: None });
        scan.devices.insert(name.into(), FoundDevice { hardware, ..FoundDevice::default() });
        if scan.devices.len() > MAX_DEVICES {
            let path = directory.path.display();
            return Err(Error::new(format!(
                "{path}: more than {MAX_DEVICES} devices: allowed are {MAX_DEVICES}"
            )));
        }
    }
    Ok(scan)
}
