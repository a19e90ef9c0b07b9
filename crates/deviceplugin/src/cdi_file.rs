//! The Container Device Interface file of a resource.
//!
//! In: the resource, its kind, a folder. Out: the file describes the devices; it is written again when they change, or
//! when the file is not the one last written. Never: a removed file, or a device taken out of it: the kubelet passes
//! the names again when a container restarts, whether this process runs or not.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cdi::check::refusal;
use cdi::{ContainerEdits, FileName, Kind, Spec};

use crate::allocate;
use crate::config::{self, MAX_DEVICES};
use crate::inventory::{self, Device, DeviceId, Hardware, Injection};

/// The file of one resource.
#[derive(Debug)]
pub struct CdiFile {
    folder: PathBuf,
    name: FileName,
    kind: Kind,
    resource: String,
    /// What was written last, and the identity of that file.
    written: Option<(Arc<inventory::Resource>, FileIdentity)>,
    /// Devices that no longer exist, by their names in the file: running containers may have them.
    removed: BTreeMap<String, cdi::Device>,
}

/// Inode, modification time (seconds, nanoseconds) and size: these tell one file from another at the same path.
type FileIdentity = (u64, i64, i64, u64);

impl CdiFile {
    /// The file of a resource in this folder; none when the interface is not used. Nothing is written yet.
    ///
    /// # Errors
    /// As [`config::Resource::cdi_file`].
    pub fn for_resource(resource: &config::Resource, folder: &Path) -> Result<Option<Self>, String> {
        let (folder, written, removed) = (folder.to_owned(), None, BTreeMap::new());
        let file = resource.cdi_file()?;
        Ok(file.map(|(kind, name)| Self {
            folder,
            name,
            kind,
            resource: resource.name.clone(),
            written,
            removed,
        }))
    }

    /// Makes the file describe these devices; true if it was written. Cost when nothing changed: one `stat` and a
    /// comparison of the devices.
    ///
    /// # Errors
    /// When the file cannot be written, or runtimes would refuse it.
    pub fn ensure(&mut self, inventory: &Arc<inventory::Resource>) -> Result<bool, String> {
        let path = self.folder.join(self.name.as_str());
        if self
            .written
            .as_ref()
            .is_some_and(|(old, at)| same_contents(old, inventory) && identity(&path) == Some(*at))
        {
            return Ok(false);
        }
        let mut devices = self.described(inventory);
        let before = match &self.written {
            Some((old, _)) => self.described(old),
            // The devices of an earlier process count too.
            None => self.previous_devices(&path),
        };
        self.removed.extend(before);
        self.removed.retain(|name, _| !devices.contains_key(name));
        let room = MAX_DEVICES.saturating_sub(devices.len());
        devices.extend(self.removed.iter().take(room).map(|(name, device)| (name.clone(), device.clone())));
        if devices.is_empty() {
            // A specification without devices is invalid.
            return Ok(false);
        }
        let mut spec = Spec::new(&self.kind, devices.into_values().collect());
        spec.container_edits = edits(&inventory.common);
        let spec = spec.with_lowest_version();
        cdi::file::write(&self.folder, &self.name, &spec).map_err(|error| chain(&error))?;
        self.written = identity(&path).map(|identity| (Arc::clone(inventory), identity));
        Ok(true)
    }

    /// The devices that an earlier process wrote; none when runtimes would refuse the file, or its kind is another.
    fn previous_devices(&self, path: &Path) -> BTreeMap<String, cdi::Device> {
        let spec = cdi::file::read(path).ok();
        let ours = spec.filter(|spec| spec.kind == self.kind.to_string() && refusal(spec).is_none());
        let devices = ours.into_iter().flat_map(|spec| spec.devices);
        devices.map(|device| (device.name.clone(), device)).collect()
    }

    /// The devices, with those that the file does not describe correctly marked unhealthy: containers could not start
    /// with them.
    #[must_use]
    pub fn with_undescribed_unhealthy(
        &self,
        inventory: &inventory::Resource,
        reason: &str,
    ) -> inventory::Resource {
        let mut inventory = inventory.clone();
        // The file may have been removed or replaced.
        let now = identity(&self.folder.join(self.name.as_str()));
        let written = self.written.as_ref().filter(|(_, identity)| now == Some(*identity));
        let described = written.map(|(written, _)| &written.devices);
        for (id, device) in &mut inventory.devices {
            let there = described.and_then(|devices| devices.get(id));
            if there.is_none_or(|there| there.hardware != device.hardware) {
                device.unhealthy_reason.get_or_insert_with(|| reason.to_owned());
            }
        }
        inventory
    }

    /// The devices as runtimes know them, by name.
    fn described(&self, inventory: &inventory::Resource) -> BTreeMap<String, cdi::Device> {
        let described = |(id, device): (&DeviceId, &Device)| {
            let name = cdi::name::device_name(id);
            (name.clone(), cdi::Device::new(name, device_edits(&self.resource, id, device)))
        };
        inventory.devices.iter().map(described).collect()
    }
}

/// Whether the file would be the same. Health is not part of it.
fn same_contents(old: &inventory::Resource, new: &inventory::Resource) -> bool {
    fn contents<'a>((id, device): (&'a DeviceId, &'a Device)) -> (&'a DeviceId, &'a Arc<Hardware>) {
        (id, &device.hardware)
    }
    old.common == new.common && old.devices.iter().map(contents).eq(new.devices.iter().map(contents))
}

fn identity(path: &Path) -> Option<FileIdentity> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
}

/// The edits for one device. There is always a variable, since runtimes refuse a device without edits.
fn device_edits(resource: &str, id: &str, device: &Device) -> ContainerEdits {
    let (name, zones) = zones_variable(resource, id, device);
    ContainerEdits { env: vec![format!("{name}={zones}")], ..edits(&device.hardware.injection) }
}

/// The variable with a device's zones, and its value; each device has a variable of its own.
pub(crate) fn zones_variable(resource: &str, id: &str, device: &Device) -> (String, String) {
    (allocate::variable_name(&format!("{resource}_{id}")), allocate::zones_text(device))
}

/// Device nodes and mounts as edits. Variables go through the kubelet instead, since runtimes keep one of two values.
pub(crate) fn edits(injection: &Injection) -> ContainerEdits {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let node = |node: &inventory::DeviceNode| {
        let (path, host) = (text(&node.container_path), text(&node.host_path));
        let host_path = if host == path { String::new() } else { host };
        cdi::DeviceNode { host_path, permissions: node.permissions.clone(), ..cdi::DeviceNode::at(path) }
    };
    let mount = |mount: &inventory::Mount| {
        let options = if mount.read_only { ["rbind", "ro"] } else { ["rbind", "rw"] };
        cdi::Mount {
            host_path: text(&mount.host_path),
            container_path: text(&mount.container_path),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            ..cdi::Mount::default()
        }
    };
    ContainerEdits {
        device_nodes: injection.nodes.iter().map(node).collect(),
        mounts: injection.mounts.iter().map(mount).collect(),
        ..ContainerEdits::default()
    }
}

/// An error with its cause, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let cause =
        error.source().map(ToString::to_string).filter(|cause| !error.to_string().contains(cause.as_str()));
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

#[cfg(test)]
mod tests;
