//! The devices as the scheduler is told of them.
//!
//! In: the inventory. Out: a name for each device and what can be known of it. Never: a device that cannot be handed out.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};
use xxhash_rust::xxh64::xxh64;

use crate::inventory::{self, Inventory};

/// The number of the NUMA zone a device is close to; the name that drivers agree on.
pub const NUMA_NODE: &str = "resource.kubernetes.io/numaNode";
/// The address on the PCI bus; Kubernetes' own name.
pub const PCI_BUS_ID: &str = "resource.kubernetes.io/pciBusID";
/// The longest name of a device, and the longest text of an attribute.
const MAX_NAME: usize = 63;
const MAX_TEXT: usize = 64;

/// A device by the names it has elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source<'a> {
    /// The resource it is of.
    pub resource: &'a str,
    /// Its id.
    pub id: &'a str,
    /// What is known of it.
    pub device: &'a inventory::Device,
}

/// All devices by their names in slices, those that cannot be handed out included.
#[must_use]
pub fn names(inventory: &Inventory) -> BTreeMap<String, Source<'_>> {
    let devices = inventory.resources.iter().flat_map(|(resource, stock)| {
        stock.devices.iter().map(move |(id, device)| Source { resource, id, device })
    });
    devices.map(|source| (name(source.resource, source.id), source)).collect()
}

/// The name of a device in slices: `<class>-<id>-<hash>`, class being what follows the slash in the resource's name, with dashes for what a DNS
/// label has not.
///
/// Nothing else tells it: a name that changed with other devices would be that of a free device to the scheduler, while a claim has it.
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

/// What the name begins with, and was as a whole in the first claims' files, where it was no other device's.
#[must_use]
pub fn short_name(resource: &str, id: &str) -> String {
    let class = resource.rsplit_once('/').map_or(resource, |(_, class)| class);
    format!("{class}-{id}")
}

/// The devices that can be handed out, by name.
#[must_use]
pub fn devices(inventory: &Inventory) -> Vec<Device> {
    let healthy = names(inventory).into_iter().filter(|(_, source)| source.device.is_healthy());
    healthy
        .map(|(name, source)| Device { name, attributes: Some(attributes(source)), ..Device::default() })
        .collect()
}

fn attributes(source: Source<'_>) -> BTreeMap<String, DeviceAttribute> {
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
    // Of a device close to several zones no single number is true.
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
            let stock: &mut Arc<Resource> = inventory.resources.entry((*resource).to_owned()).or_default();
            let hardware = Arc::new(Hardware { zones: zones.to_vec(), ..Hardware::default() });
            let device = inventory::Device { hardware, trouble: None };
            Arc::make_mut(stock).devices.insert((*id).into(), device);
        }
        inventory
    }

    #[test]
    fn what_is_told_of_a_device() {
        let mut inventory = inventory(&[
            ("v.example/nic", "a", &[1]),
            ("v.example/nic", "b", &[0, 1]),
            ("v.example/nic", "c", &[]),
        ]);
        let devices = devices(&inventory);
        let told: Vec<_> = devices
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
            told,
            [
                ("nic-a-a7465090", nic, Some("a"), Some("1"), Some(1)),
                ("nic-b-66c15d4d", nic, Some("b"), Some("0,1"), None),
                ("nic-c-d62cc1b1", nic, Some("c"), None, None)
            ]
        );
        let stock = Arc::make_mut(inventory.resources.get_mut("v.example/nic").unwrap());
        stock.devices.get_mut("a").unwrap().trouble = Some("burnt".to_owned());
        assert_eq!(super::devices(&inventory).len(), 2);
        assert_eq!(names(&inventory).len(), 3, "its name is still known");
    }

    #[test]
    fn names_begin_with_what_can_be_read() {
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
        fn each_device_has_a_name_of_its_own_whatever_others_there_are(
            ids in proptest::collection::btree_set("[a-zA-Z0-9:._ä-]{1,63}", 0..20), chosen in 0_usize..20,
        ) {
            let list: Vec<_> = ids.iter().flat_map(|id| [("v.example/nic", &**id, &[][..]), ("V.example/nic", id, &[])]).collect();
            let all = inventory(&list);
            let names = names(&all);
            prop_assert_eq!(names.len(), list.len());
            prop_assert!(names.keys().all(|name| is_label(name)), "{:?}", names.keys());
            if let Some(one) = list.get(chosen) {
                let alone = inventory(&[*one]);
                prop_assert!(super::names(&alone).keys().all(|name| names[name].id == one.1 && names[name].resource == one.0));
            }
        }
    }
}
