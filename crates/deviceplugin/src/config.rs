//! The configuration file: which resources there are, where their devices are found, and how they are allocated.
//!
//! In: YAML or JSON. Out: checked values. Never: a default that hides a mistake. An unknown field, an impossible value
//! or a pair of fields that exclude each other is one line that names file, field and what is allowed.

mod check;
mod device_list;
mod duration;
pub(crate) mod host_paths;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cdi::{FileName, Kind};
use runtime::yaml::{self, Mode};
use serde::Deserialize;

pub use check::resource_name;
pub use device_list::{DeviceList, HealthSource, ListedDevice};

/// The version this program reads.
pub const VERSION: &str = api::hardware::PLUGIN_CONFIG_VERSION;
/// The largest number of resources in one file.
pub const MAX_RESOURCES: usize = 64;
/// The largest number of devices of one resource, with a shared device counted once per share: their list has to fit
/// into one message of 4 MiB.
pub const MAX_DEVICES: usize = 16_384;
/// The largest length of a device's id in bytes, as the kubelet's interface documents it.
pub const MAX_ID: usize = 63;

/// The configuration file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// The version of the format, [`VERSION`].
    pub version: String,
    /// The resources, 1 to [`MAX_RESOURCES`].
    pub resources: Vec<Resource>,
}

/// One resource.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// The resource's name: `vendor.example/device`.
    pub name: String,
    /// Where the devices are found. May be long: a list has an entry for each device of each node.
    pub discovery: Arc<Discovery>,
    /// When a device counts as healthy.
    #[serde(default)]
    pub health: HealthPolicy,
    /// How many containers share one device; none when devices are not shared.
    #[serde(default)]
    pub sharing: Option<Sharing>,
    /// Which of several equal devices are taken.
    #[serde(default)]
    pub allocation: Allocation,
    /// Whether containers get devices through Container Device Interface files.
    #[serde(default)]
    pub cdi: Cdi,
    /// What every container with a device of the resource gets in addition.
    #[serde(default)]
    pub container: Container,
    /// What is done before a container with devices starts.
    #[serde(default)]
    pub pre_start: Option<PreStart>,
    /// Whether the plugin acts in place of the sample plugin: its variables, its `/dev/null`, its defaults.
    #[serde(skip)]
    pub sample: bool,
}

/// Where devices are found: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Discovery {
    /// A list in the configuration, by node.
    pub list: Option<DeviceList>,
    /// A list in a file of its own, by node.
    pub file: Option<File>,
    /// Functions on the PCI bus.
    pub pci: Option<Pci>,
    /// Device nodes in a folder.
    pub directory: Option<Directory>,
}

/// A file that lists devices.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// The file's absolute path.
    pub path: PathBuf,
}

/// Which functions on the PCI bus are devices. All filters that are given must match; of each filter, one value must.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pci {
    /// Vendor ids, four hexadecimal digits each.
    pub vendors: Vec<String>,
    /// Device ids, four hexadecimal digits each.
    pub devices: Vec<String>,
    /// Prefixes of class codes: `03` (display), `0200` (Ethernet), `120000`.
    pub classes: Vec<String>,
    /// Names of kernel drivers.
    pub drivers: Vec<String>,
    /// Addresses, such as `0000:3b:00.0`.
    pub addresses: Vec<String>,
    /// Which device nodes a container gets.
    pub nodes: Nodes,
}

/// Which device nodes of a PCI function a container gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Nodes {
    /// All nodes that the kernel made for the function; with a driver for user space, those of its VFIO group.
    #[default]
    Auto,
    /// No device nodes.
    None,
}

/// Device nodes in a folder.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Directory {
    /// The folder's absolute path.
    pub path: PathBuf,
    /// The prefix of the device nodes' names; required for `/dev`.
    #[serde(default)]
    pub prefix: String,
    /// Zones of devices by name; the kernel says those of others.
    #[serde(default)]
    pub zones: BTreeMap<String, Vec<u32>>,
    /// Whether files of any kind count, not only device nodes.
    #[serde(default)]
    pub any_file: bool,
}

/// When a device counts as healthy again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HealthPolicy {
    /// How long a device has to look healthy before it counts as healthy again.
    #[serde(deserialize_with = "duration::read")]
    pub recover_after: Duration,
    /// The upper limit of that time. It doubles each time the device breaks soon after it recovered.
    #[serde(deserialize_with = "duration::read")]
    pub recover_at_most: Duration,
    /// How long a device that vanished is still listed, as unhealthy.
    #[serde(deserialize_with = "duration::read")]
    pub forget_after: Duration,
    /// The time between scans. A change of a watched file or folder causes a scan at once.
    #[serde(deserialize_with = "duration::read")]
    pub check_every: Duration,
}

/// How devices are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sharing {
    /// The number of containers that share one device, at least 2.
    pub replicas: u32,
    /// Whether a container that asks for more than one share is refused: several shares are no more of a device than
    /// one.
    #[serde(default)]
    pub one_per_container: bool,
}

/// How devices are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Allocation {
    /// The policy where there is a choice.
    pub policy: Policy,
}

/// Which of several equal choices is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Policy {
    /// The zone with the fewest devices left, and the device with most shares in use: what is left stays together.
    #[default]
    Packed,
    /// The zone with the most devices left, and the device with the fewest shares in use.
    Spread,
}

/// Use of the Container Device Interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cdi {
    /// Whether it is used, and how the runtime learns the names.
    pub mode: CdiMode,
    /// The kind `vendor/class` of the devices; the resource's name by default.
    pub kind: Option<String>,
}

/// How container runtimes learn the names of devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CdiMode {
    /// Not at all: the kubelet passes device nodes, mounts and variables on.
    #[default]
    Off,
    /// By the field of the kubelet's interface.
    Field,
    /// By annotations, for kubelets and runtimes that do not know the field.
    Annotation,
}

/// What every container with a device gets in addition.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Environment variables.
    pub envs: BTreeMap<String, String>,
    /// Files and folders of the host.
    pub mounts: Vec<Mount>,
    /// Device nodes of the host that belong to no device.
    pub device_nodes: Vec<PathBuf>,
    /// What containers may do with device nodes: some of `r`, `w`, `m`; `rw` by default.
    pub permissions: Option<String>,
}

/// A file or folder of the host.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// The absolute path on the host.
    pub host_path: PathBuf,
    /// The absolute path in the container; the host's path by default.
    #[serde(default)]
    pub container_path: Option<PathBuf>,
    /// Whether the container may only read.
    #[serde(default)]
    pub read_only: bool,
}

/// What is done before a container with devices starts: exactly one of `command` and `reset`. `{id}` stands for the
/// device's id.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreStart {
    /// A program, with arguments, that is run once for each device.
    #[serde(default)]
    pub command: Vec<String>,
    /// A file into which `1` is written for each device.
    #[serde(default)]
    pub reset: Option<String>,
    /// The time limit for all devices of a container, at most 30 s, which is the kubelet's own limit.
    #[serde(default = "duration::pre_start", deserialize_with = "duration::read")]
    pub timeout: Duration,
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The file cannot be read, or does not have this shape.
    #[error(transparent)]
    Yaml(#[from] yaml::Error),
    /// A field has an impossible value.
    #[error("{file}: {field}: {reason}")]
    Field {
        /// The file.
        file: String,
        /// The field, as a path within the file.
        field: String,
        /// What is wrong, and what is allowed.
        reason: String,
    },
}

impl Default for HealthPolicy {
    fn default() -> Self {
        Self {
            recover_after: Duration::from_secs(10),
            recover_at_most: Duration::from_secs(600),
            forget_after: Duration::from_secs(60),
            check_every: Duration::from_secs(5),
        }
    }
}

impl Config {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        let config: Self = yaml::read_file(path, Mode::Strict, yaml::CONFIG_LIMIT_BYTES)?;
        config.checked(&path.display().to_string())
    }

    /// Reads and checks a text; `name` stands for the file in errors.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn parse(name: &str, text: &str) -> Result<Self, Error> {
        yaml::read_str::<Self>(name, text, Mode::Strict)?.checked(name)
    }

    /// Drops the listed devices of other nodes, of which there may be many.
    #[must_use]
    pub fn of_node(mut self, node: &str) -> Self {
        for resource in &mut self.resources {
            if let Some(list) = &mut Arc::make_mut(&mut resource.discovery).list {
                list.retain_node(node);
            }
        }
        self
    }

    /// Refuses paths that give a container the whole node; `name` stands for the file in errors.
    ///
    /// # Errors
    /// Names the field and the flag that allows them.
    pub fn without_whole_node(self, name: &str) -> Result<Self, Error> {
        let mut resources = self.resources.iter().enumerate();
        let found = resources.find_map(|(index, one)| Some((index, host_paths::of_whole_node(one)?)));
        let Some((index, (field, reason))) = found else { return Ok(self) };
        Err(Error::Field { file: name.to_owned(), field: format!("resources[{index}].{field}"), reason })
    }

    fn checked(self, file: &str) -> Result<Self, Error> {
        let field = |(field, reason)| Error::Field { file: file.to_owned(), field, reason };
        if self.version != VERSION {
            return Err(field(("version".to_owned(), format!("{:?}: allowed is {VERSION}", self.version))));
        }
        let count = self.resources.len();
        if !(1..=MAX_RESOURCES).contains(&count) {
            let reason = format!("{count} resources: allowed are 1 to {MAX_RESOURCES}");
            return Err(field(("resources".to_owned(), reason)));
        }
        let mut names = BTreeSet::new();
        let mut files = BTreeSet::new();
        for (index, resource) in self.resources.iter().enumerate() {
            let at = |(name, reason): (&str, String)| field((format!("resources[{index}].{name}"), reason));
            check::resource(resource).map_err(at)?;
            if !names.insert(&resource.name) {
                return Err(at(("name", format!("{:?} is listed twice: allowed is once", resource.name))));
            }
            if let Some((_, file)) = resource.cdi_file().map_err(|reason| at(("cdi.kind", reason)))? {
                let taken = format!(
                    "{:?}: its file {} is used by another resource",
                    resource.cdi_kind(),
                    file.as_str()
                );
                if !files.insert(file) {
                    return Err(at(("cdi.kind", taken)));
                }
            }
        }
        Ok(self)
    }
}

impl Resource {
    /// Whether two configurations of the resource are equal except for discovery. The kubelet then needs a new list of
    /// devices, but no new registration.
    #[must_use]
    pub fn differs_in_discovery_only(&self, other: &Self) -> bool {
        self == other || self.without_discovery() == other.without_discovery()
    }

    /// The configuration with an empty discovery.
    #[must_use]
    pub fn without_discovery(&self) -> Self {
        Self { discovery: Arc::default(), ..self.clone() }
    }

    /// A configuration with defaults for everything but name and discovery.
    #[must_use]
    pub fn new(name: &str, discovery: Discovery) -> Self {
        Self {
            name: name.to_owned(),
            discovery: Arc::new(discovery),
            health: HealthPolicy::default(),
            sharing: None,
            allocation: Allocation::default(),
            cdi: Cdi::default(),
            container: Container::default(),
            pre_start: None,
            sample: false,
        }
    }

    /// The kind `vendor/class` of the devices in Container Device Interface files.
    #[must_use]
    pub fn cdi_kind(&self) -> &str {
        self.cdi.kind.as_deref().unwrap_or(&self.name)
    }

    /// Kind and name of the devices' Container Device Interface file; none when the interface is not used.
    ///
    /// # Errors
    /// When the kind is malformed, or the file's name would be too long.
    pub fn cdi_file(&self) -> Result<Option<(Kind, FileName)>, String> {
        if self.cdi.mode == CdiMode::Off {
            return Ok(None);
        }
        let kind: Kind = self.cdi_kind().parse().map_err(|error: cdi::name::Error| error.to_string())?;
        let name = FileName::for_kind(&kind).map_err(|error| error.to_string())?;
        Ok(Some((kind, name)))
    }

    /// The number of ids under which each device is listed; 1 when devices are not shared.
    #[must_use]
    pub fn replicas(&self) -> u32 {
        self.sharing.map_or(1, |sharing| sharing.replicas)
    }
}

#[cfg(test)]
mod tests;
