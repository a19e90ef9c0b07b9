//! The devices of a node, now and whenever they change: what everything that offers them stands on.
//!
//! In: what discovery and health have found. Out: a value, and a channel that holds the newest one. Never: how a kubelet or an
//! API server is told.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

/// The newest inventory, for whoever offers devices. Nothing is known before the first look, which is not the same as no
/// devices.
pub type Feed = watch::Receiver<Arc<Inventory>>;

/// A device's id: one text for whoever knows the device, as there may be thousands.
pub type Id = Arc<str>;

/// Resources by their names. Costs a pointer per resource to copy, as the plugins have the same ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Those whose devices have been looked for with success at least once.
    pub resources: BTreeMap<String, Arc<Resource>>,
}

/// One resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// What its devices are called in Container Device Interface files, `vendor/class`; none when there is no file.
    pub cdi_kind: Option<String>,
    /// Its devices by their ids. Shared devices are here once.
    pub devices: BTreeMap<Id, Device>,
    /// What a container gets besides, once, when it gets any of the devices.
    pub common: Gives,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// What it is, whether well or not.
    pub hardware: Arc<Hardware>,
    /// Why it cannot be handed out; none when it can.
    pub trouble: Option<String>,
}

/// What a device is. One value for whoever knows the device: there may be thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hardware {
    /// Ids of the NUMA zones it is close to, ascending; empty when it has no locality or nobody knows it.
    pub zones: Vec<u32>,
    /// What a container that gets it needs.
    pub gives: Gives,
    /// What it is on the PCI bus, if it was found there.
    pub pci: Option<Box<Pci>>,
}

/// What a container needs to use devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gives {
    /// Device nodes.
    pub nodes: Vec<DeviceNode>,
    /// Files and folders of the host.
    pub mounts: Vec<Mount>,
    /// Variables of the environment.
    pub envs: BTreeMap<String, String>,
}

/// A device node of the host in a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNode {
    /// Where it is on the host.
    pub host_path: PathBuf,
    /// Where the container sees it.
    pub container_path: PathBuf,
    /// Some of `r`, `w` and `m`.
    pub permissions: String,
}

/// A file or folder of the host in a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mount {
    /// Where it is on the host.
    pub host_path: PathBuf,
    /// Where the container sees it.
    pub container_path: PathBuf,
    /// Whether the container may only read.
    pub read_only: bool,
}

/// A function on the PCI bus.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pci {
    /// `0000:3b:00.0`.
    pub address: String,
    /// Who made it, four hexadecimal digits.
    pub vendor: String,
    /// What it is, four hexadecimal digits.
    pub device: String,
}

impl Device {
    /// Whether it can be handed out.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.trouble.is_none()
    }
}

impl Gives {
    /// Whether a container needs nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.mounts.is_empty() && self.envs.is_empty()
    }
}

/// A channel for inventories, empty at first.
#[must_use]
pub fn channel() -> (watch::Sender<Arc<Inventory>>, Feed) {
    watch::channel(Arc::default())
}
