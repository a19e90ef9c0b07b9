//! The Container Device Interface file of a resource.
//!
//! In: the resource, its kind, a folder. Out: the file says what is there; it is written anew when that changes, and when the file is not the
//! one we wrote. Never: removed, and no device taken out of it: the kubelet tells the names again when a container restarts,
//! whether we run by then or not.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cdi::check::refusal;
use cdi::{ContainerEdits, FileName, Kind, Spec};

use crate::allocate;
use crate::config::{self, MAX_DEVICES};
use crate::inventory::{self, Device, Gives, Hardware, Id};

/// One resource's file.
#[derive(Debug)]
pub struct CdiFile {
    folder: PathBuf,
    name: FileName,
    kind: Kind,
    resource: String,
    /// What was written last, and which file that was.
    written: Option<(Arc<inventory::Resource>, Stamp)>,
    /// Devices that are not there any more, by their names in the file: containers that run have them.
    former: BTreeMap<String, cdi::Device>,
}

/// Tells one file from another at the same path.
type Stamp = (u64, i64, i64, u64);

impl CdiFile {
    /// The file of a resource in this folder, when there is to be one. Nothing is written yet.
    ///
    /// # Errors
    /// As [`config::Resource::cdi_file`].
    pub fn of(resource: &config::Resource, folder: &Path) -> Result<Option<Self>, String> {
        let (folder, written, former) = (folder.to_owned(), None, BTreeMap::new());
        let file = resource.cdi_file()?;
        Ok(file.map(|(kind, name)| Self {
            folder,
            name,
            kind,
            resource: resource.name.clone(),
            written,
            former,
        }))
    }

    /// Makes the file say this; whether it had to be written.
    ///
    /// # Errors
    /// When it cannot be, or runtimes would refuse it.
    pub fn ensure(&mut self, stock: &Arc<inventory::Resource>) -> Result<bool, String> {
        let path = self.folder.join(self.name.as_str());
        if self
            .written
            .as_ref()
            .is_some_and(|(old, at)| says_the_same(old, stock) && stamp(&path) == Some(*at))
        {
            return Ok(false);
        }
        let mut devices = self.described(stock);
        let before = match &self.written {
            Some((old, _)) => self.described(old),
            // What was there before us counts too.
            None => self.found(&path),
        };
        self.former.extend(before);
        self.former.retain(|name, _| !devices.contains_key(name));
        let room = MAX_DEVICES.saturating_sub(devices.len());
        devices.extend(self.former.iter().take(room).map(|(name, device)| (name.clone(), device.clone())));
        if devices.is_empty() {
            // A specification without devices is none.
            return Ok(false);
        }
        let mut spec = Spec::new(&self.kind, devices.into_values().collect());
        spec.container_edits = edits(&stock.common);
        let spec = spec.with_lowest_version();
        cdi::file::write(&self.folder, &self.name, &spec).map_err(|error| chain(&error))?;
        self.written = stamp(&path).map(|stamp| (Arc::clone(stock), stamp));
        Ok(true)
    }

    /// What an earlier life wrote; nothing when runtimes would not take it, or it is another's.
    fn found(&self, path: &Path) -> BTreeMap<String, cdi::Device> {
        let spec = cdi::file::read(path).ok();
        let ours = spec.filter(|spec| spec.kind == self.kind.to_string() && refusal(spec).is_none());
        let devices = ours.into_iter().flat_map(|spec| spec.devices);
        devices.map(|device| (device.name.clone(), device)).collect()
    }

    /// The devices with those that the file does not describe as they are taken for unhealthy: containers could not start with them.
    #[must_use]
    pub fn held_back(&self, stock: &inventory::Resource, reason: &str) -> inventory::Resource {
        let mut stock = stock.clone();
        // Somebody may have taken it away, or put another in its place.
        let now = stamp(&self.folder.join(self.name.as_str()));
        let written = self.written.as_ref().filter(|(_, stamp)| now == Some(*stamp));
        let described = written.map(|(written, _)| &written.devices);
        for (id, device) in &mut stock.devices {
            let there = described.and_then(|devices| devices.get(id));
            if there.is_none_or(|there| there.hardware != device.hardware) {
                device.trouble.get_or_insert_with(|| reason.to_owned());
            }
        }
        stock
    }

    /// The devices as runtimes know them, by name.
    fn described(&self, stock: &inventory::Resource) -> BTreeMap<String, cdi::Device> {
        let described = |(id, device): (&Id, &Device)| {
            let name = cdi::name::device_name(id);
            (name.clone(), cdi::Device::new(name, edits_of(&self.resource, id, device)))
        };
        stock.devices.iter().map(described).collect()
    }
}

/// Whether the file would say the same: it does not tell who is healthy.
fn says_the_same(old: &inventory::Resource, new: &inventory::Resource) -> bool {
    fn told<'a>((id, device): (&'a Id, &'a Device)) -> (&'a Id, &'a Arc<Hardware>) {
        (id, &device.hardware)
    }
    old.common == new.common && old.devices.iter().map(told).eq(new.devices.iter().map(told))
}

fn stamp(path: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
}

/// What is done to a container that gets this device. There is always something: nothing at all would be refused.
fn edits_of(resource: &str, id: &str, device: &Device) -> ContainerEdits {
    let (name, zones) = zones(resource, id, device);
    ContainerEdits { env: vec![format!("{name}={zones}")], ..edits(&device.hardware.gives) }
}

/// The variable with a device's zones; each device has one of its own.
pub(crate) fn zones(resource: &str, id: &str, device: &Device) -> (String, String) {
    (allocate::variable(&format!("{resource}_{id}")), allocate::zones(device))
}

/// The nodes and mounts. Variables are handed over for several devices together, as runtimes keep one of two values.
pub(crate) fn edits(gives: &Gives) -> ContainerEdits {
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
        device_nodes: gives.nodes.iter().map(node).collect(),
        mounts: gives.mounts.iter().map(mount).collect(),
        ..ContainerEdits::default()
    }
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let cause =
        error.source().map(ToString::to_string).filter(|cause| !error.to_string().contains(cause.as_str()));
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

#[cfg(test)]
mod tests;
