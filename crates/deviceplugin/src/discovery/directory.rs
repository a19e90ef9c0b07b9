//! Devices that are nodes in a folder: what a driver without a bus of its own makes.
//!
//! In: a folder, a beginning of names, zones by name, sysfs. Out: one device for each node. Never: a node opened.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;

use node::sysfs::Sysfs;

use super::{Error, Found, Look};
use crate::config::{Directory, MAX_DEVICES};
use crate::inventory::{Gives, Hardware};

/// Looks through the folder.
///
/// # Errors
/// When it is not there or cannot be read: a driver that is not loaded is no empty list.
pub fn look(directory: &Directory, sysfs: &Path) -> Result<Look, Error> {
    let failed = |error: std::io::Error| Error {
        reason: format!("{}: {error}", directory.path.display()),
        gone: error.kind() == std::io::ErrorKind::NotFound,
    };
    let sysfs = Sysfs::new(sysfs);
    let mut look = Look { volatile: true, ..Look::default() };
    for entry in std::fs::read_dir(&directory.path).map_err(failed)? {
        let Ok(name) = entry.map_err(failed)?.file_name().into_string() else { continue };
        if !name.starts_with(&directory.prefix) || name.starts_with('.') {
            continue;
        }
        let path = directory.path.join(&name);
        // Gone between the two looks, or a link to nowhere: not there.
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
        let gives = Gives { nodes: vec![super::node(&path)], ..Gives::default() };
        let hardware = Arc::new(Hardware { zones, gives, pci: None });
        look.devices.insert(name.into(), Found { hardware, ..Found::default() });
        if look.devices.len() > MAX_DEVICES {
            let path = directory.path.display();
            return Err(Error::new(format!(
                "{path}: more than {MAX_DEVICES} devices: allowed are {MAX_DEVICES}"
            )));
        }
    }
    Ok(look)
}
