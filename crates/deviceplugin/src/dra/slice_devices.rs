//! The devices as ResourceSlices describe them to the scheduler.
//!
//! In: the inventory. Out: a name and attributes for each device. Never: a device that cannot be allocated.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};
use xxhash_rust::xxh64::xxh64;

use crate::inventory::{self, Inventory};

/// The attribute with the number of the device's NUMA zone; drivers agree on this name.
pub const NUMA_NODE: &str = "resource.kubernetes.io/numaNode";
/// The attribute with the address on the PCI bus; Kubernetes' own name.
pub const PCI_BUS_ID: &str = "resource.kubernetes.io/pciBusID";
/// The API server's limits for the name of a device and for the text of an attribute.
const MAX_NAME: usize = 63;
const MAX_TEXT: usize = 64;

/// A device with the names that identify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedDevice<'a> {
    /// The device's resource.
    pub resource: &'a str,
    /// The device's id within the resource.
    pub id: &'a str,
    /// The device.
    pub device: &'a inventory::Device,
}

/// All devices by their names in slices, including those that cannot be allocated.
#[must_use]
pub fn names(inventory: &Inventory) -> BTreeMap<String, NamedDevice<'_>> {
    let devices = inventory.resources.iter().flat_map(|(resource, devices)| {
        devices.devices.iter().map(move |(id, device)| NamedDevice { resource, id, device })
    });
    devices.map(|source| (name(source.resource, source.id), source)).collect()
}

/// The name of a device in slices: `<class>-<id>-<hash>`. The class is what follows the slash in the resource's name;
/// characters that a DNS label cannot have become dashes.
///
/// The name depends on nothing else. If it changed with other devices, the scheduler would take the device for another,
/// free one while a claim has it.
#[must_use]
pub fn name(resource: &str, id: &str) -> String {
    let legal = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_lowercase() || c.is_ascii_digit() => c,
        _ => '-',
    };
    let readable: String = short_name(resource, id).chars().map(legal).take(MAX_NAME - 9).collect();
    let readable = readable.trim_matches('-');
    let hash = xxh64(format!("{resource}/{id}").as_bytes(), 0) >> 32;
    if readable.is_empty() { format!("{hash:08x}") } else { format!("{readable}-{hash:08x}") }
}

/// The readable start of the name. In the first versions of claim files this was the whole name, where it was unique.
#[must_use]
pub fn short_name(resource: &str, id: &str) -> String {
    let class = resource.rsplit_once('/').map_or(resource, |(_, class)| class);
    format!("{class}-{id}")
}

/// The devices that can be allocated, by name.
#[must_use]
pub fn devices(inventory: &Inventory) -> Vec<Device> {
    let healthy = names(inventory).into_iter().filter(|(_, source)| source.device.is_healthy());
    healthy
        .map(|(name, source)| Device { name, attributes: Some(attributes(source)), ..Device::default() })
        .collect()
}

fn attributes(source: NamedDevice<'_>) -> BTreeMap<String, DeviceAttribute> {
    let mut attributes = BTreeMap::new();
    let mut text = |name: &str, value: &str| {
        if !value.is_empty() && value.len() <= MAX_TEXT {
            let attribute = DeviceAttribute { string: Some(value.to_owned()), ..DeviceAttribute::default() };
            attributes.insert(name.to_owned(), attribute);
        }
    };
    text("resource", source.resource);
    text("id", source.id);
    let zones: Vec<String> = source.device.hardware.zones.iter().map(ToString::to_string).collect();
    text("zones", &zones.join(","));
    if let Some(pci) = &source.device.hardware.pci {
        text(PCI_BUS_ID, &pci.address);
        text("pciVendor", &pci.vendor);
        text("pciDevice", &pci.device);
    }
    // No single number is true for a device close to several zones.
    if let [zone] = source.device.hardware.zones[..] {
        let attribute = DeviceAttribute { int: Some(i64::from(zone)), ..DeviceAttribute::default() };
        attributes.insert(NUMA_NODE.to_owned(), attribute);
    }
    attributes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::inventory::{Hardware, Resource};
    use proptest::prelude::*;

    fn inventory(devices: &[(&str, &str, &[u32])]) -> Inventory {
        let mut inventory = Inventory::default();
        for (resource, id, zones) in devices {
            let devices: &mut Arc<Resource> = inventory.resources.entry((*resource).to_owned()).or_default();
            let hardware = Arc::new(Hardware { zones: zones.to_vec(), ..Hardware::default() });
            let device = inventory::Device { hardware, unhealthy_reason: None };
            Arc::make_mut(devices).devices.insert((*id).into(), device);
        }
        inventory
    }

    #[test]
    fn devices_have_attributes() {
        let mut inventory = inventory(&[
            ("v.example/nic", "a", &[1]),
            ("v.example/nic", "b", &[0, 1]),
            ("v.example/nic", "c", &[]),
        ]);
        let devices = devices(&inventory);
        let attributes_of: Vec<_> = devices
            .iter()
            .map(|device| {
                let attributes = device.attributes.as_ref().unwrap();
                let text = |name: &str| attributes.get(name).and_then(|value| value.string.as_deref());
                let numa = attributes.get(NUMA_NODE).and_then(|value| value.int);
                (&*device.name, text("resource"), text("id"), text("zones"), numa)
            })
            .collect();
        let nic = Some("v.example/nic");
        assert_eq!(
            attributes_of,
            [
                ("nic-a-a7465090", nic, Some("a"), Some("1"), Some(1)),
                ("nic-b-66c15d4d", nic, Some("b"), Some("0,1"), None),
                ("nic-c-d62cc1b1", nic, Some("c"), None, None)
            ]
        );
        let devices = Arc::make_mut(inventory.resources.get_mut("v.example/nic").unwrap());
        devices.devices.get_mut("a").unwrap().unhealthy_reason = Some("burnt".to_owned());
        assert_eq!(super::devices(&inventory).len(), 2);
        assert_eq!(names(&inventory).len(), 3, "its name is still known");
    }

    #[test]
    fn slice_names_start_with_a_readable_part() {
        assert_eq!(super::name("vendor.example/nic", "a"), "nic-a-0d458cc1", "as in docs/dra.md");
        let name = |resource: &str, id: &str| {
            let name = super::name(resource, id);
            name.rsplit_once('-').map_or_else(String::new, |(readable, _)| readable.to_owned())
        };
        assert_eq!(name("v.example/nic", "0000:3b:00.0"), "nic-0000-3b-00-0");
        assert_eq!(name("v.example/nic", "A"), "nic-a");
        assert_eq!(name("v.example/nic", &"ä".repeat(63)), "nic");
        assert_eq!(name("v.example/nic", &"a".repeat(63)).len(), 54);
    }

    fn is_label(name: &str) -> bool {
        let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let inside = |c: char| ends(c) || c == '-';
        name.len() <= MAX_NAME && name.starts_with(ends) && name.ends_with(ends) && name.chars().all(inside)
    }

    proptest! {
        #[test]
        fn device_names_are_unique_and_independent_of_others(
            ids in proptest::collection::btree_set("[a-zA-Z0-9:._ä-]{1,63}", 0..20), chosen in 0_usize..20,
        ) {
            let twice = |id| [("v.example/nic", id, &[][..]), ("V.example/nic", id, &[])];
            let list: Vec<_> = ids.iter().flat_map(|id| twice(&**id)).collect();
            let all = inventory(&list);
            let names = names(&all);
            prop_assert_eq!(names.len(), list.len());
            prop_assert!(names.keys().all(|name| is_label(name)), "{:?}", names.keys());
            if let Some(one) = list.get(chosen) {
                let alone = inventory(&[*one]);
                let same = |name: &String| names[name].id == one.1 && names[name].resource == one.0;
                prop_assert!(super::names(&alone).keys().all(same));
            }
        }
    }
}
