//! Which devices a resource has on this node.
//!
//! In: where to look, the node's files. Out: devices as they were found, or why nobody knows. Never: an empty list for a look
//! that failed: the two are different things, and the last list stays.

pub mod directory;
pub mod list;
pub mod pci;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use node::watch::{Names, Target};

use crate::config::{Directory, Discovery, MAX_DEVICES, MAX_ID, Resource};
use crate::inventory::{DeviceNode, Hardware, Id};
use crate::last::Last;

/// Where this node's files are, and what it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The name of the node.
    pub node: String,
    /// Where sysfs is mounted.
    pub sysfs: PathBuf,
}

/// A device that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// What it is.
    pub hardware: Arc<Hardware>,
    /// Somebody wrote down that it is not to be used: counts at once, in both directions.
    pub stated_unhealthy: bool,
    /// What was seen of it: none is good. A change for the better has to last.
    pub seen: Option<String>,
    /// The file that tells about its health, if one does.
    pub health_file: Option<Arc<Path>>,
}

/// What one look found, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The devices.
    pub devices: BTreeMap<Id, Found>,
    /// Whether one that is missing may be back soon, as its node in a folder is after a reset; else it was taken out on purpose.
    pub volatile: bool,
}

/// Why nobody knows which devices there are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Error {
    /// Where, and what is wrong.
    pub reason: String,
    /// What makes the devices is not there (a driver's folder): those that were there are gone with it.
    pub gone: bool,
}

impl Error {
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), gone: false }
    }
}

/// Looks for the devices of a resource. Reads a few small files.
///
/// # Errors
/// Names the file and what is wrong.
pub fn look(resource: &Resource, place: &Place) -> Result<Look, Error> {
    // A first look is never the same as the last.
    look_again(resource, place, &mut Last::default()).map(Option::unwrap_or_default)
}

/// The same again and again: none when there cannot be other devices than last time, files about health aside, as a list has the same text. For
/// one resource as it is configured; with another begin anew.
///
/// # Errors
/// As [`look`].
pub fn look_again(resource: &Resource, place: &Place, last: &mut Last) -> Result<Option<Look>, Error> {
    let found = find(resource, place, last);
    if found.is_err() {
        *last = Last::default();
    }
    found
}

fn find(resource: &Resource, place: &Place, last: &mut Last) -> Result<Option<Look>, Error> {
    let Discovery { list, file, pci, directory } = &*resource.discovery;
    let look = if let Some(devices) = list {
        if last.is("") {
            return Ok(None);
        }
        list::of(devices, &place.node, resource.sample).map_err(Error::new)
    } else if let Some(file) = file {
        let text = list::text(&file.path)?;
        if last.is(&text) {
            return Ok(None);
        }
        list::parse(&file.path, &text, &place.node, resource.sample)
    } else if let Some(pci) = pci {
        pci::look(pci, &place.sysfs)
    } else if let Some(directory) = directory {
        directory::look(directory, &place.sysfs)
    } else {
        Err(Error::new("there is nowhere to look"))
    };
    checked(look?, resource).map(Some)
}

/// Bounds what was found.
fn checked(mut look: Look, resource: &Resource) -> Result<Look, Error> {
    let replicas = resource.replicas();
    let listed = look.devices.len().saturating_mul(replicas as usize);
    if listed > MAX_DEVICES {
        return Err(Error::new(format!("{listed} devices, shares counted: allowed are {MAX_DEVICES}")));
    }
    // What a share's number and the colons before it take.
    let room = MAX_ID - if replicas > 1 { 2 + (replicas - 1).to_string().len() } else { 0 };
    for id in look.devices.keys() {
        id_is_legal(id, room, replicas > 1).map_err(Error::new)?;
    }
    if let Some(permissions) = &resource.container.permissions {
        for device in look.devices.values_mut() {
            let nodes = &mut Arc::make_mut(&mut device.hardware).gives.nodes;
            nodes.iter_mut().for_each(|node| node.permissions.clone_from(permissions));
        }
    }
    Ok(look)
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

impl Look {
    /// Folders with files that tell about health, each once.
    #[must_use]
    pub fn health_folders(&self) -> BTreeSet<PathBuf> {
        let files = self.devices.values().filter_map(|found| found.health_file.as_ref());
        files.filter_map(|file| file.parent()).map(Path::to_owned).collect()
    }
}

/// The folders in which something happens when the devices of a resource change, those with files about health besides.
#[must_use]
pub fn targets(resource: &Resource) -> Vec<Target<()>> {
    let Discovery { file, directory, .. } = &*resource.discovery;
    let all = |dir: &Path| Target { dir: dir.to_owned(), names: Names::All, tag: () };
    let listed = |directory: &Directory| {
        // In `/dev` whoever writes to `/dev/null` would be news.
        let names = Names::Listed(directory.prefix.clone());
        Target { dir: directory.path.clone(), names, tag: () }
    };
    let mut targets: Vec<_> = directory.iter().map(listed).collect();
    // Everything in the folder: a ConfigMap changes by a link that the file's name leads through.
    targets.extend(file.iter().filter_map(|file| file.path.parent()).map(all));
    targets
}

/// A node that is at the same path on the host and in the container.
fn node(path: &Path) -> DeviceNode {
    DeviceNode { host_path: path.to_owned(), container_path: path.to_owned(), permissions: "rw".to_owned() }
}

#[cfg(test)]
mod tests;
