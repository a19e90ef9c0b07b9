//! The devices of a node, now and whenever they change.
//!
//! In: the devices that discovery found, with their health. Out: a value, and a channel that holds the newest one.
//! Never: how a kubelet or an API server learns of them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

/// Receives the newest inventory. It is empty before the first scan, which does not mean that there are no devices.
pub type Feed = watch::Receiver<Arc<Inventory>>;

/// A device's id. One text is shared by all that refer to the device, as there may be thousands.
pub type DeviceId = Arc<str>;

/// Resources by name. A copy costs a pointer per resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The resources whose devices have been scanned with success at least once.
    pub resources: BTreeMap<String, Arc<Resource>>,
}

/// The devices of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// The kind `vendor/class` of the devices in Container Device Interface files; none when there is no file.
    pub cdi_kind: Option<String>,
    /// The devices by id. A shared device is listed once.
    pub devices: BTreeMap<DeviceId, Device>,
    /// What a container with any of the devices gets in addition, once.
    pub common: Injection,
}

/// A device and its health.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// What the device is, independent of its health.
    pub hardware: Arc<Hardware>,
    /// Why the device cannot be allocated; none when it is healthy.
    pub unhealthy_reason: Option<String>,
}

/// What a device is. Equal hardware is one shared value, as there may be thousands of devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hardware {
    /// Ids of the NUMA zones the device is close to, ascending; empty when its locality is none or unknown.
    pub zones: Vec<u32>,
    /// What a container with the device needs.
    pub injection: Injection,
    /// The device's PCI function, if it was found on the PCI bus.
    pub pci: Option<Box<Pci>>,
}

/// What is injected into a container so that it can use devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Injection {
    /// The device nodes.
    pub nodes: Vec<DeviceNode>,
    /// The files and folders of the host.
    pub mounts: Vec<Mount>,
    /// The environment variables.
    pub envs: BTreeMap<String, String>,
}

/// A device node of the host in a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNode {
    /// The path on the host.
    pub host_path: PathBuf,
    /// The path in the container.
    pub container_path: PathBuf,
    /// What the container may do: some of `r`, `w` and `m`.
    pub permissions: String,
}

/// A file or folder of the host in a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mount {
    /// The path on the host.
    pub host_path: PathBuf,
    /// The path in the container.
    pub container_path: PathBuf,
    /// Whether the container may only read.
    pub read_only: bool,
}

/// A function on the PCI bus.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pci {
    /// The address, such as `0000:3b:00.0`.
    pub address: String,
    /// The vendor id, four hexadecimal digits.
    pub vendor: String,
    /// The device id, four hexadecimal digits.
    pub device: String,
}

impl Device {
    /// Whether the device can be allocated.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.unhealthy_reason.is_none()
    }
}

impl Injection {
    /// Whether nothing is injected.
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
