//! The devices a resource has on this node.
//!
//! In: the resource's configuration, the node's files. Out: the devices found, or why they are unknown. Never: an empty
//! list for a failed scan; the last list stays then.

pub mod directory;
pub mod list;
pub mod pci;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use node::watch::{Names, Target};

use crate::config::{Directory, Discovery, MAX_DEVICES, MAX_ID, Resource, host_paths};
use crate::content_hash::ContentHash;
use crate::inventory::{DeviceId, DeviceNode, Hardware};

/// The node that is scanned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The node's name, for lists.
    pub node: String,
    /// The folder where sysfs is mounted.
    pub sysfs: PathBuf,
    /// Whether devices may give containers the whole node, as `/dev/mem` does.
    pub allow_host_paths: bool,
}

/// A device that a scan found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundDevice {
    /// What the device is.
    pub hardware: Arc<Hardware>,
    /// A list says that the device must not be used. Counts at once, in both directions.
    pub stated_unhealthy: bool,
    /// The problem observed on the device, if any. Its end has to last before the device counts as healthy.
    pub problem: Option<String>,
    /// The file with the device's health, if it has one.
    pub health_file: Option<Arc<Path>>,
}

/// The devices that one scan found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// The devices by id.
    pub devices: BTreeMap<DeviceId, FoundDevice>,
    /// Whether a missing device may be back soon, as a device node is after a reset; otherwise it was removed on
    /// purpose.
    pub volatile: bool,
}

/// Why the devices are unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Error {
    /// The file or folder, and what is wrong.
    pub reason: String,
    /// What makes the devices, such as a driver's folder, does not exist: devices that were known are gone with it.
    pub gone: bool,
}

impl Error {
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), gone: false }
    }
}

/// Scans for the devices of a resource. Reads small files: a list, or a few for each PCI function or device node.
///
/// # Errors
/// Names the file and what is wrong.
pub fn scan(resource: &Resource, environment: &Environment) -> Result<Scan, Error> {
    // A first scan never equals the last one.
    scan_if_changed(resource, environment, &mut ContentHash::default()).map(Option::unwrap_or_default)
}

/// Scans again; none when the devices cannot have changed since `last`, apart from their health files, as a list has
/// the same text. `last` belongs to one configuration of the resource.
///
/// # Errors
/// As [`scan`].
pub fn scan_if_changed(
    resource: &Resource,
    environment: &Environment,
    last: &mut ContentHash,
) -> Result<Option<Scan>, Error> {
    let found = find(resource, environment, last);
    if found.is_err() {
        *last = ContentHash::default();
    }
    found
}

fn find(
    resource: &Resource,
    environment: &Environment,
    last: &mut ContentHash,
) -> Result<Option<Scan>, Error> {
    let Discovery { list, file, pci, directory } = &*resource.discovery;
    let scan = if let Some(listed) = list {
        if last.is_unchanged("") {
            return Ok(None);
        }
        list::devices_of_node(listed, &environment.node, resource.sample).map_err(Error::new)
    } else if let Some(file) = file {
        let text = list::read_text(&file.path)?;
        if last.is_unchanged(&text) {
            return Ok(None);
        }
        list::parse(&file.path, &text, &environment.node, resource.sample)
    } else if let Some(pci) = pci {
        pci::scan(pci, &environment.sysfs)
    } else if let Some(directory) = directory {
        directory::scan(directory, &environment.sysfs)
    } else {
        Err(Error::new("no discovery is configured"))
    };
    let scan = checked(scan?, resource)?;
    if !environment.allow_host_paths {
        without_whole_node(&scan, &resource.discovery)?;
    }
    Ok(Some(scan))
}

/// Refuses devices that give a container the whole node. A configuration is checked when it is read; here are those
/// that a file lists or a folder has.
fn without_whole_node(scan: &Scan, discovery: &Discovery) -> Result<(), Error> {
    let of_device = |(id, found): (&DeviceId, &FoundDevice)| {
        let nodes = &found.hardware.injection.nodes;
        let refusal = nodes.iter().find_map(|node| host_paths::refusal(&node.host_path))?;
        let place = match &discovery.file {
            Some(file) => format!("{}: device {id:?}: deviceNodes", file.path.display()),
            None => format!("device {id:?}"),
        };
        Some(Error::new(format!("{place}: {refusal}")))
    };
    scan.devices.iter().find_map(of_device).map_or(Ok(()), Err)
}

/// Enforces the limits on devices and ids, and applies the configured permissions.
fn checked(mut scan: Scan, resource: &Resource) -> Result<Scan, Error> {
    let replicas = resource.replicas();
    let listed = scan.devices.len().saturating_mul(replicas as usize);
    if listed > MAX_DEVICES {
        return Err(Error::new(format!("{listed} devices, shares counted: allowed are {MAX_DEVICES}")));
    }
    // The length of a share's number and the colons before it.
    let room = MAX_ID - if replicas > 1 { 2 + (replicas - 1).to_string().len() } else { 0 };
    for id in scan.devices.keys() {
        id_is_legal(id, room, replicas > 1).map_err(Error::new)?;
    }
    if let Some(permissions) = &resource.container.permissions {
        for device in scan.devices.values_mut() {
            let nodes = &mut Arc::make_mut(&mut device.hardware).injection.nodes;
            nodes.iter_mut().for_each(|node| node.permissions.clone_from(permissions));
        }
    }
    Ok(scan)
}

fn id_is_legal(id: &str, room: usize, shared: bool) -> Result<(), String> {
    let odd = |c: char| c.is_control() || c.is_whitespace() || c == ',';
    if id.is_empty() || id.len() > room || id.contains(odd) {
        return Err(format!("device {id:?}: allowed are ids of 1 to {room} bytes without spaces and commas"));
    }
    if shared && id.contains("::") {
        return Err(format!("device {id:?}: ids of shared devices have no \"::\""));
    }
    Ok(())
}

impl Scan {
    /// The folders with health files, each once.
    #[must_use]
    pub fn health_folders(&self) -> BTreeSet<PathBuf> {
        let files = self.devices.values().filter_map(|found| found.health_file.as_ref());
        files.filter_map(|file| file.parent()).map(Path::to_owned).collect()
    }
}

/// The folders to watch for changes of a resource's devices, apart from those with health files.
#[must_use]
pub fn targets(resource: &Resource) -> Vec<Target<()>> {
    let Discovery { file, directory, .. } = &*resource.discovery;
    let all = |dir: &Path| Target { dir: dir.to_owned(), names: Names::All, tag: () };
    let listed = |directory: &Directory| {
        // Without the prefix, each write to `/dev/null` would be an event.
        let names = Names::Listed(directory.prefix.clone());
        Target { dir: directory.path.clone(), names, tag: () }
    };
    let mut targets: Vec<_> = directory.iter().map(listed).collect();
    // Every name in the folder: a ConfigMap changes by a link that the file's path leads through.
    targets.extend(file.iter().filter_map(|file| file.path.parent()).map(all));
    targets
}

/// A device node with the same path on the host and in the container.
fn node(path: &Path) -> DeviceNode {
    DeviceNode { host_path: path.to_owned(), container_path: path.to_owned(), permissions: "rw".to_owned() }
}

#[cfg(test)]
mod tests;
