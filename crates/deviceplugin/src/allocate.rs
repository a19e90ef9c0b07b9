//! What a container gets with its devices.
//!
//! In: a resource's configuration, its devices, the ids the kubelet chose. Out: device nodes, mounts, variables, names for the
//! container runtime; or why not. Never: a device that is unknown or not healthy, a file, a memory of earlier answers: the same question
//! has the same answer.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use cdi::QualifiedName;
use node::deviceplugin::wire;

use crate::config::{CdiMode, Resource};
use crate::inventory::{self, Device, Gives};
use crate::sharing;
use crate::variables::Variables;

/// Why a container gets nothing; the kubelet fails the pod with these words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No devices are asked for.
    #[error("no devices were asked for")]
    Empty,
    /// One that there is not.
    #[error("device {id:?} of {resource} is unknown; known are {known}")]
    Unknown {
        /// The device.
        id: String,
        /// Of what.
        resource: String,
        /// How many there are, and some of them.
        known: String,
    },
    /// One that cannot be used.
    #[error("device {id:?} of {resource} is not healthy: {trouble}")]
    Unhealthy {
        /// The device.
        id: String,
        /// Of what.
        resource: String,
        /// Why.
        trouble: String,
    },
    /// One twice.
    #[error("device {0:?} was asked for twice")]
    Twice(String),
    /// More than one share of what is shared.
    #[error("{count} shares of {resource} were asked for; the configuration allows one for a container")]
    Shares {
        /// How many.
        count: usize,
        /// Of what.
        resource: String,
    },
    /// A name that container runtimes would not take.
    #[error("{0}")]
    Cdi(String),
}

impl Refusal {
    /// A word for metrics.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Unknown { .. } => "unknown",
            Self::Unhealthy { .. } => "unhealthy",
            Self::Twice(_) => "twice",
            Self::Shares { .. } => "shares",
            Self::Cdi(_) => "cdi",
        }
    }

    /// As the kubelet gets it.
    #[must_use]
    pub fn status(&self) -> tonic::Status {
        match self {
            Self::Unhealthy { .. } => tonic::Status::failed_precondition(self.to_string()),
            _ => tonic::Status::invalid_argument(self.to_string()),
        }
    }
}

/// What a container that gets these ids needs.
///
/// # Errors
/// See [`Refusal`].
pub fn allocate(
    config: &Resource,
    stock: &inventory::Resource,
    ids: &[String],
) -> Result<wire::ContainerAllocateResponse, Refusal> {
    let mut ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    ids.sort_unstable();
    let devices = find(config, stock, &ids)?;
    let mut answer = wire::ContainerAllocateResponse::default();
    let gives = || devices.values().map(|device| &device.hardware.gives).chain([&stock.common]);
    let mut envs = Variables::default();
    named(&mut envs, config, &devices, &ids);
    // In whatever way devices come: of two that set a variable in files for it, runtimes keep one.
    gives().for_each(|gives| envs.add_all(&gives.envs));
    match config.cdi.mode {
        CdiMode::Off => {
            gives().for_each(|gives| add(&mut answer, gives));
            if config.sample {
                add(&mut answer, &null());
            }
        }
        CdiMode::Field => {
            let names = names(config, &devices)?;
            let named = names.iter().map(|name| wire::CdiDevice { name: name.to_string() });
            answer.cdi_devices = named.collect();
        }
        CdiMode::Annotation => {
            let value = cdi::annotation::value(&names(config, &devices)?);
            let key = annotation_key(config).map_err(|error| Refusal::Cdi(error.to_string()))?;
            answer.annotations = BTreeMap::from([(key, value)]);
        }
    }
    answer.envs = envs.joined();
    Ok(answer)
}

/// The devices behind ids, each once.
fn find<'a>(
    config: &Resource,
    stock: &'a inventory::Resource,
    ids: &[&'a str],
) -> Result<BTreeMap<&'a str, &'a Device>, Refusal> {
    if ids.is_empty() {
        return Err(Refusal::Empty);
    }
    if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Refusal::Twice(shown(twice[0])));
    }
    let resource = &config.name;
    if config.sharing.is_some_and(|sharing| sharing.one_per_container) && ids.len() > 1 {
        return Err(Refusal::Shares { count: ids.len(), resource: resource.clone() });
    }
    let mut found = BTreeMap::new();
    for id in ids {
        let device = sharing::device(id, config.replicas());
        let device = device.and_then(|device| stock.devices.get_key_value(device));
        let Some((name, device)) = device else {
            let known = known(config, stock);
            return Err(Refusal::Unknown { id: shown(id), resource: resource.clone(), known });
        };
        if let Some(trouble) = &device.trouble {
            let trouble = trouble.clone();
            return Err(Refusal::Unhealthy { id: shown(id), resource: resource.clone(), trouble });
        }
        found.insert(&**name, device);
    }
    Ok(found)
}

/// A word of somebody else's as it is shown: it may be anything, of any length.
pub(crate) fn shown(id: &str) -> String {
    id.chars().take(80).collect()
}

/// How many ids there are, and the first of them.
fn known(config: &Resource, stock: &inventory::Resource) -> String {
    let replicas = config.replicas();
    let ids = || stock.devices.keys().flat_map(|device| sharing::ids(device, replicas));
    let some: Vec<String> = ids().take(3).collect();
    let more = if stock.devices.len() * replicas as usize > some.len() { ", ..." } else { "" };
    format!("{} ({}{more})", stock.devices.len() * replicas as usize, some.join(", "))
}

/// The container's view of device nodes and mounts; what is at one path in it is there once.
fn add(answer: &mut wire::ContainerAllocateResponse, gives: &Gives) {
    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    for node in &gives.nodes {
        let container_path = text(&node.container_path);
        if answer.devices.iter().all(|there| there.container_path != container_path) {
            let (host_path, permissions) = (text(&node.host_path), node.permissions.clone());
            answer.devices.push(wire::DeviceSpec { container_path, host_path, permissions });
        }
    }
    for mount in &gives.mounts {
        let container_path = text(&mount.container_path);
        if answer.mounts.iter().all(|there| there.container_path != container_path) {
            let (host_path, read_only) = (text(&mount.host_path), mount.read_only);
            answer.mounts.push(wire::Mount { container_path, host_path, read_only });
        }
    }
}

/// Variables that say which devices there are.
fn named(envs: &mut Variables, config: &Resource, devices: &BTreeMap<&str, &Device>, ids: &[&str]) {
    if config.sample {
        return sample(envs, config, devices);
    }
    let name = variable(&config.name);
    ids.iter().for_each(|id| envs.add(&format!("{name}_DEVICES"), id));
    for pci in devices.values().filter_map(|device| device.hardware.pci.as_ref()) {
        // As the SR-IOV network device plugin names it.
        envs.add(&format!("PCIDEVICE_{name}"), &pci.address);
    }
}

/// As the sample plugin names them. Of several devices it keeps the last one's values only.
fn sample(envs: &mut Variables, config: &Resource, devices: &BTreeMap<&str, &Device>) {
    for (id, device) in devices {
        let own = format!("{}_{id}", config.name).replace(['.', '/'], "").to_uppercase();
        envs.add("_SAMPLE_DEVICE_RESOURCE", &config.name);
        envs.add("_SAMPLE_DEVICE_ASSIGNED", id);
        envs.add("_SAMPLE_DEVICE_NUMA_LOCALITY", &zones(device));
        envs.add(&own, &zones(device));
    }
}

/// A device's zones as the value of a variable.
pub(crate) fn zones(device: &Device) -> String {
    let zones: Vec<String> = device.hardware.zones.iter().map(ToString::to_string).collect();
    if zones.is_empty() { "-1".to_owned() } else { zones.join(",") }
}

/// `vendor.example/device` as the beginning of a variable's name: `VENDOR_EXAMPLE_DEVICE`.
#[must_use]
pub fn variable(resource: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    resource.chars().map(plain).collect()
}

/// What the sample plugin gives with every device.
fn null() -> Gives {
    let path = std::path::PathBuf::from("/dev/null");
    let node =
        inventory::DeviceNode { host_path: path.clone(), container_path: path, permissions: "rw".to_owned() };
    Gives { nodes: vec![node], ..Gives::default() }
}

fn names(config: &Resource, devices: &BTreeMap<&str, &Device>) -> Result<Vec<QualifiedName>, Refusal> {
    let refused = |error: cdi::name::Error| Refusal::Cdi(error.to_string());
    let kind: cdi::Kind = config.cdi_kind().parse().map_err(refused)?;
    let names: BTreeSet<String> = devices.keys().map(|id| cdi::name::device_name(id)).collect();
    names.iter().map(|name| kind.device(name).map_err(refused)).collect()
}

/// One key for each resource: of two annotations of one key, the kubelet would pass on the first.
fn annotation_key(config: &Resource) -> Result<String, cdi::annotation::Error> {
    let mut hasher = DefaultHasher::new();
    config.name.hash(&mut hasher);
    cdi::annotation::key("tholepin", &format!("{:016x}", hasher.finish()))
}

#[cfg(test)]
mod tests;
