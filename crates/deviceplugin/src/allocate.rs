//! What a container gets with its devices.
//!
//! In: a resource's configuration, its devices, the ids the kubelet chose. Out: device nodes, mounts, variables, names
//! for the container runtime; or why not. Never: a device that is unknown or unhealthy, a file, or a memory of earlier
//! answers: the same question has the same answer.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use cdi::QualifiedName;
use node::deviceplugin::wire;

use crate::config::{CdiMode, Resource};
use crate::inventory::{self, Device, Injection};
use crate::sharing;
use crate::variables::Variables;

/// Why a container gets no devices. The kubelet fails the pod with this message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request names no devices.
    #[error("no devices were asked for")]
    Empty,
    /// The request names an unknown device.
    #[error("device {id:?} of {resource} is unknown; known are {known}")]
    Unknown {
        /// The device's id.
        id: String,
        /// The resource.
        resource: String,
        /// The number of known ids, and some of them.
        known: String,
    },
    /// The request names an unhealthy device.
    #[error("device {id:?} of {resource} is not healthy: {unhealthy_reason}")]
    Unhealthy {
        /// The device's id.
        id: String,
        /// The resource.
        resource: String,
        /// Why the device is unhealthy.
        unhealthy_reason: String,
    },
    /// The request names a device twice.
    #[error("device {0:?} was asked for twice")]
    Twice(String),
    /// The request names more than one share, which the configuration forbids.
    #[error("{count} shares of {resource} were asked for; the configuration allows one for a container")]
    Shares {
        /// The number of shares.
        count: usize,
        /// The resource.
        resource: String,
    },
    /// A device's name is not valid for container runtimes.
    #[error("{0}")]
    Cdi(String),
}

impl Refusal {
    /// The reason as a word, for metrics.
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

    /// The gRPC status that the kubelet gets.
    #[must_use]
    pub fn status(&self) -> tonic::Status {
        match self {
            Self::Unhealthy { .. } => tonic::Status::failed_precondition(self.to_string()),
            _ => tonic::Status::invalid_argument(self.to_string()),
        }
    }
}

/// What a container with these ids needs. Grows with the ids of the container, not with the devices of the resource.
///
/// # Errors
/// See [`Refusal`].
pub fn allocate(
    config: &Resource,
    inventory: &inventory::Resource,
    ids: &[String],
) -> Result<wire::ContainerAllocateResponse, Refusal> {
    let mut ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    ids.sort_unstable();
    let devices = find_devices(config, inventory, &ids)?;
    let mut answer = wire::ContainerAllocateResponse::default();
    let injection = || devices.values().map(|device| &device.hardware.injection).chain([&inventory.common]);
    let mut envs = Variables::default();
    name_variables(&mut envs, config, &devices, &ids);
    // Variables go through the kubelet in every mode: of two devices that set a variable in their files, runtimes keep
    // one.
    injection().for_each(|injection| envs.add_all(&injection.envs));
    match config.cdi.mode {
        CdiMode::Off => {
            injection().for_each(|injection| add_injection(&mut answer, injection));
            if config.sample {
                add_injection(&mut answer, &dev_null());
            }
        }
        CdiMode::Field => {
            let names = qualified_names(config, &devices)?;
            let named = names.iter().map(|name| wire::CdiDevice { name: name.to_string() });
            answer.cdi_devices = named.collect();
        }
        CdiMode::Annotation => {
            let value = cdi::annotation::value(&qualified_names(config, &devices)?);
            let key = annotation_key(config).map_err(|error| Refusal::Cdi(error.to_string()))?;
            answer.annotations = BTreeMap::from([(key, value)]);
        }
    }
    answer.envs = envs.joined();
    Ok(answer)
}

/// The devices behind ids, each once.
fn find_devices<'a>(
    config: &Resource,
    inventory: &'a inventory::Resource,
    ids: &[&'a str],
) -> Result<BTreeMap<&'a str, &'a Device>, Refusal> {
    if ids.is_empty() {
        return Err(Refusal::Empty);
    }
    if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Refusal::Twice(shorten(twice[0])));
    }
    let resource = &config.name;
    if config.sharing.is_some_and(|sharing| sharing.one_per_container) && ids.len() > 1 {
        return Err(Refusal::Shares { count: ids.len(), resource: resource.clone() });
    }
    let mut found = BTreeMap::new();
    for id in ids {
        let device = sharing::device(id, config.replicas());
        let device = device.and_then(|device| inventory.devices.get_key_value(device));
        let Some((name, device)) = device else {
            let known = known(config, inventory);
            return Err(Refusal::Unknown { id: shorten(id), resource: resource.clone(), known });
        };
        if let Some(unhealthy_reason) = &device.unhealthy_reason {
            let unhealthy_reason = unhealthy_reason.clone();
            return Err(Refusal::Unhealthy { id: shorten(id), resource: resource.clone(), unhealthy_reason });
        }
        found.insert(&**name, device);
    }
    Ok(found)
}

/// The start of a text from outside, which may have any length.
pub(crate) fn shorten(id: &str) -> String {
    id.chars().take(80).collect()
}

/// The number of known ids, and the first of them.
fn known(config: &Resource, inventory: &inventory::Resource) -> String {
    let replicas = config.replicas();
    let ids = || inventory.devices.keys().flat_map(|device| sharing::ids(device, replicas));
    let some: Vec<String> = ids().take(3).collect();
    let more = if inventory.devices.len() * replicas as usize > some.len() { ", ..." } else { "" };
    format!("{} ({}{more})", inventory.devices.len() * replicas as usize, some.join(", "))
}

/// Adds device nodes and mounts to the answer; of two with one path in the container, the first counts.
fn add_injection(answer: &mut wire::ContainerAllocateResponse, injection: &Injection) {
    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    for node in &injection.nodes {
        let container_path = text(&node.container_path);
        if answer.devices.iter().all(|there| there.container_path != container_path) {
            let (host_path, permissions) = (text(&node.host_path), node.permissions.clone());
            answer.devices.push(wire::DeviceSpec { container_path, host_path, permissions });
        }
    }
    for mount in &injection.mounts {
        let container_path = text(&mount.container_path);
        if answer.mounts.iter().all(|there| there.container_path != container_path) {
            let (host_path, read_only) = (text(&mount.host_path), mount.read_only);
            answer.mounts.push(wire::Mount { container_path, host_path, read_only });
        }
    }
}

/// Adds the variables that name the container's devices.
fn name_variables(envs: &mut Variables, config: &Resource, devices: &BTreeMap<&str, &Device>, ids: &[&str]) {
    if config.sample {
        return sample_variables(envs, config, devices);
    }
    let name = variable_name(&config.name);
    ids.iter().for_each(|id| envs.add(&format!("{name}_DEVICES"), id));
    for pci in devices.values().filter_map(|device| device.hardware.pci.as_ref()) {
        // The SR-IOV network device plugin uses this name.
        envs.add(&format!("PCIDEVICE_{name}"), &pci.address);
    }
}

/// Adds the sample plugin's variables. Of several devices, that plugin itself keeps the last one's values only.
fn sample_variables(envs: &mut Variables, config: &Resource, devices: &BTreeMap<&str, &Device>) {
    for (id, device) in devices {
        let own = format!("{}_{id}", config.name).replace(['.', '/'], "").to_uppercase();
        envs.add("_SAMPLE_DEVICE_RESOURCE", &config.name);
        envs.add("_SAMPLE_DEVICE_ASSIGNED", id);
        envs.add("_SAMPLE_DEVICE_NUMA_LOCALITY", &zones_text(device));
        envs.add(&own, &zones_text(device));
    }
}

/// A device's zones as the value of a variable; `-1` for none.
pub(crate) fn zones_text(device: &Device) -> String {
    let zones: Vec<String> = device.hardware.zones.iter().map(ToString::to_string).collect();
    if zones.is_empty() { "-1".to_owned() } else { zones.join(",") }
}

/// A resource's name as part of a variable's: `vendor.example/device` becomes `VENDOR_EXAMPLE_DEVICE`.
#[must_use]
pub fn variable_name(resource: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    resource.chars().map(plain).collect()
}

/// The device node that the sample plugin adds to every container.
fn dev_null() -> Injection {
    let path = std::path::PathBuf::from("/dev/null");
    let node =
        inventory::DeviceNode { host_path: path.clone(), container_path: path, permissions: "rw".to_owned() };
    Injection { nodes: vec![node], ..Injection::default() }
}

fn qualified_names(
    config: &Resource,
    devices: &BTreeMap<&str, &Device>,
) -> Result<Vec<QualifiedName>, Refusal> {
    let refused = |error: cdi::name::Error| Refusal::Cdi(error.to_string());
    let kind: cdi::Kind = config.cdi_kind().parse().map_err(refused)?;
    let names: BTreeSet<String> = devices.keys().map(|id| cdi::name::device_name(id)).collect();
    names.iter().map(|name| kind.device(name).map_err(refused)).collect()
}

/// The annotation's key, one for each resource: of two annotations with one key, the kubelet would pass on the first.
fn annotation_key(config: &Resource) -> Result<String, cdi::annotation::Error> {
    let mut hasher = DefaultHasher::new();
    config.name.hash(&mut hasher);
    cdi::annotation::key("tholepin", &format!("{:016x}", hasher.finish()))
}

#[cfg(test)]
mod tests;
