//! The configuration file: which resources there are, where their devices are found, and how they are handed out.
//!
//! In: YAML or JSON. Out: values that have been checked. Never: a default that hides a mistake: unknown fields, values that cannot
//! be and pairs that exclude each other are one line that names file, field and what is allowed.

mod check;
mod duration;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cdi::{FileName, Kind};
use runtime::yaml::{self, Mode};
use serde::Deserialize;

use crate::discovery::list::Devices;

pub use check::resource_name;
pub(crate) use check::{absolute, variables};

/// The version this program reads.
pub const VERSION: &str = api::hardware::PLUGIN_CONFIG_VERSION;
/// Resources in one file, at most.
pub const MAX_RESOURCES: usize = 64;
/// Devices of one resource, at most, shared ones counted as often as they are shared: the list of them has to fit into one
/// message of 4 MiB.
pub const MAX_DEVICES: usize = 16_384;
/// Length of a device's id, at most, in bytes: what the kubelet's interface documents.
pub const MAX_ID: usize = 63;

/// The file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// [`VERSION`].
    pub version: String,
    /// The resources, at least one.
    pub resources: Vec<Resource>,
}

/// One resource.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// Its name: `vendor.example/device`.
    pub name: String,
    /// Where its devices are found. May be long: a list has an entry for each device of each node.
    pub discovery: Arc<Discovery>,
    /// When a device counts as healthy.
    #[serde(default)]
    pub health: Health,
    /// Whether several containers get one device.
    #[serde(default)]
    pub sharing: Option<Sharing>,
    /// Which of several equal devices are taken.
    #[serde(default)]
    pub allocation: Allocation,
    /// Whether containers get devices through Container Device Interface files.
    #[serde(default)]
    pub cdi: Cdi,
    /// What every container that gets a device of the resource gets besides.
    #[serde(default)]
    pub container: Container,
    /// What is done before a container with devices starts.
    #[serde(default)]
    pub pre_start: Option<PreStart>,
    /// Variables of the sample plugin, and its `/dev/null`: only where we stand in for it.
    #[serde(skip)]
    pub sample: bool,
}

/// Where devices are found: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Discovery {
    /// They are listed here, by node.
    pub list: Option<Devices>,
    /// They are listed in a file of their own, by node.
    pub file: Option<File>,
    /// They are functions on the PCI bus.
    pub pci: Option<Pci>,
    /// They are device nodes in a folder.
    pub directory: Option<Directory>,
}

/// A file that lists devices.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// Where it is.
    pub path: PathBuf,
}

/// Which functions on the PCI bus. Filters that are given must all match; of each, one value must.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pci {
    /// Vendors, four hexadecimal digits.
    pub vendors: Vec<String>,
    /// Devices, four hexadecimal digits.
    pub devices: Vec<String>,
    /// Beginnings of class codes: `03` (display), `0200` (Ethernet), `120000`.
    pub classes: Vec<String>,
    /// Drivers of the kernel.
    pub drivers: Vec<String>,
    /// Addresses, `0000:3b:00.0`.
    pub addresses: Vec<String>,
    /// Which device nodes a container gets.
    pub nodes: Nodes,
}

/// Which device nodes of a PCI function a container gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Nodes {
    /// All the kernel made for it; with a driver for user space those of its VFIO group.
    #[default]
    Auto,
    /// None.
    None,
}

/// Device nodes in a folder.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Directory {
    /// The folder.
    pub path: PathBuf,
    /// What their names begin with.
    #[serde(default)]
    pub prefix: String,
    /// Zones of devices by their names; the kernel is asked about others.
    #[serde(default)]
    pub zones: BTreeMap<String, Vec<u32>>,
    /// Files of any kind count, not device nodes only.
    #[serde(default)]
    pub any_file: bool,
}

/// When a device counts as healthy again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Health {
    /// How long it has to look healthy first.
    #[serde(deserialize_with = "duration::read")]
    pub recover_after: Duration,
    /// The same at most, however often it broke: each time soon after the last doubles it.
    #[serde(deserialize_with = "duration::read")]
    pub recover_at_most: Duration,
    /// How long a device that vanished is still listed, as unhealthy.
    #[serde(deserialize_with = "duration::read")]
    pub forget_after: Duration,
    /// Between looks. Files that are news by themselves are looked at when they change.
    #[serde(deserialize_with = "duration::read")]
    pub check_every: Duration,
}

/// Sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sharing {
    /// How many containers get one device.
    pub replicas: u32,
    /// Refuses a container that asks for more than one share: several shares are no more of a device than one.
    #[serde(default)]
    pub one_per_container: bool,
}

/// Choosing among devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Allocation {
    /// Where there is a choice.
    pub policy: Policy,
}

/// Which of several equal choices is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Policy {
    /// The fullest zone, the device that is shared most already: what is left stays together.
    #[default]
    Packed,
    /// The emptiest zone, the device that is shared least.
    Spread,
}

/// Container Device Interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cdi {
    /// Whether, and how runtimes are told.
    pub mode: CdiMode,
    /// `vendor/class` of the devices; the resource's name when not given.
    pub kind: Option<String>,
}

/// How runtimes are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CdiMode {
    /// Not at all: the kubelet passes device nodes, mounts and variables on.
    #[default]
    Off,
    /// By the field that kubelets have for it.
    Field,
    /// By annotations, for kubelets and runtimes that do not know the field.
    Annotation,
}

/// What every container with a device gets.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Variables of the environment.
    pub envs: BTreeMap<String, String>,
    /// Files and folders of the host.
    pub mounts: Vec<Mount>,
    /// Device nodes of the host that belong to no device of their own.
    pub device_nodes: Vec<PathBuf>,
    /// What containers may do with device nodes: some of `r`, `w`, `m`.
    pub permissions: Option<String>,
}

/// A file or folder of the host.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// Where it is on the host.
    pub host_path: PathBuf,
    /// Where the container sees it; the same path when not given.
    #[serde(default)]
    pub container_path: Option<PathBuf>,
    /// Whether the container may only read.
    #[serde(default)]
    pub read_only: bool,
}

/// What is done with devices before a container starts. `{id}` stands for each device's id.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreStart {
    /// A program that is run once for each device.
    #[serde(default)]
    pub command: Vec<String>,
    /// A file that `1` is written into for each device.
    #[serde(default)]
    pub reset: Option<String>,
    /// For all of it. The kubelet waits for 30 s.
    #[serde(default = "duration::pre_start", deserialize_with = "duration::read")]
    pub timeout: Duration,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It cannot be read, or is not of this shape.
    #[error(transparent)]
    Yaml(#[from] yaml::Error),
    /// A field has a value that cannot be.
    #[error("{file}: {field}: {reason}")]
    Field {
        /// The file.
        file: String,
        /// Which field.
        field: String,
        /// What is wrong, and what is allowed.
        reason: String,
    },
}

impl Default for Health {
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

    /// Without what lists say of other nodes: there may be many.
    #[must_use]
    pub fn of_node(mut self, node: &str) -> Self {
        for resource in &mut self.resources {
            if let Some(list) = &mut Arc::make_mut(&mut resource.discovery).list {
                list.keep(node);
            }
        }
        self
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
                return Err(at(("name", format!("{:?} is there twice: allowed is once", resource.name))));
            }
            if let Some((_, file)) = resource.cdi_file().map_err(|reason| at(("cdi.kind", reason)))? {
                let taken =
                    format!("{:?}: its file {} is another resource's", resource.cdi_kind(), file.as_str());
                if !files.insert(file) {
                    return Err(at(("cdi.kind", taken)));
                }
            }
        }
        Ok(self)
    }
}

impl Resource {
    /// Whether all but where devices are found is the same: then the kubelet need not hear of a change but by the list of devices.
    #[must_use]
    pub fn differs_in_discovery_only(&self, other: &Self) -> bool {
        self == other || self.without_discovery() == other.without_discovery()
    }

    /// All but where its devices are found.
    #[must_use]
    pub fn without_discovery(&self) -> Self {
        Self { discovery: Arc::default(), ..self.clone() }
    }

    /// One with nothing but devices.
    #[must_use]
    pub fn new(name: &str, discovery: Discovery) -> Self {
        Self {
            name: name.to_owned(),
            discovery: Arc::new(discovery),
            health: Health::default(),
            sharing: None,
            allocation: Allocation::default(),
            cdi: Cdi::default(),
            container: Container::default(),
            pre_start: None,
            sample: false,
        }
    }

    /// `vendor/class` of its devices in Container Device Interface files.
    #[must_use]
    pub fn cdi_kind(&self) -> &str {
        self.cdi.kind.as_deref().unwrap_or(&self.name)
    }

    /// Kind and file name of the Container Device Interface file of its devices, when there is to be one.
    ///
    /// # Errors
    /// When its devices are of no kind, or of one whose file would have too long a name.
    pub fn cdi_file(&self) -> Result<Option<(Kind, FileName)>, String> {
        if self.cdi.mode == CdiMode::Off {
            return Ok(None);
        }
        let kind: Kind = self.cdi_kind().parse().map_err(|error: cdi::name::Error| error.to_string())?;
        let name = FileName::of(&kind).map_err(|error| error.to_string())?;
        Ok(Some((kind, name)))
    }

    /// How often each device is listed.
    #[must_use]
    pub fn replicas(&self) -> u32 {
        self.sharing.map_or(1, |sharing| sharing.replicas)
    }
}

#[cfg(test)]
mod tests;
