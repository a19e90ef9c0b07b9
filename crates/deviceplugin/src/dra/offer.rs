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
///
/// A name is `<class>-<id>`, class being what follows the slash in the resource's name. Where that is no DNS label, or is that of two devices,
/// it ends in a hash.
#[must_use]
pub fn names(inventory: &Inventory) -> BTreeMap<String, Source<'_>> {
    let mut plain: BTreeMap<String, Vec<Source<'_>>> = BTreeMap::new();
    for (resource, stock) in &inventory.resources {
        let class = resource.rsplit_once('/').map_or(&**resource, |(_, class)| class);
        for (id, device) in &stock.devices {
            plain.entry(format!("{class}-{id}")).or_default().push(Source { resource, id, device });
        }
    }
    let mut names = BTreeMap::new();
    for (name, sources) in plain {
        let unique = sources.len() == 1 && is_label(&name);
        for source in sources {
            let name = if unique { name.clone() } else { hashed(&name, source) };
            names.insert(name, source);
        }
    }
    names
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

fn is_label(name: &str) -> bool {
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inside = |c: char| ends(c) || c == '-';
    name.len() <= MAX_NAME && name.starts_with(ends) && name.ends_with(ends) && name.chars().all(inside)
}

fn hashed(name: &str, source: Source<'_>) -> String {
    let legal = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_lowercase() || c.is_ascii_digit() => c,
        _ => '-',
    };
    let readable: String = name.chars().map(legal).take(MAX_NAME - 9).collect();
    let readable = readable.trim_matches('-');
    let hash = xxh64(format!("{}/{}", source.resource, source.id).as_bytes(), 0) >> 32;
    if readable.is_empty() { format!("{hash:08x}") } else { format!("{readable}-{hash:08x}") }
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
                ("nic-a", nic, Some("a"), Some("1"), Some(1)),
                ("nic-b", nic, Some("b"), Some("0,1"), None),
                ("nic-c", nic, Some("c"), None, None)
            ]
        );
        let stock = Arc::make_mut(inventory.resources.get_mut("v.example/nic").unwrap());
        stock.devices.get_mut("a").unwrap().trouble = Some("burnt".to_owned());
        assert_eq!(super::devices(&inventory).len(), 2);
        assert_eq!(names(&inventory).len(), 3, "its name is still known");
    }

    #[test]
    fn names_are_labels_and_differ() {
        let inventory = inventory(&[
            ("v.example/nic", "0000:3b:00.0", &[]),
            ("v.example/nic", "A", &[]),
            ("v.example/nic", "a", &[]),
            ("v.example/gpu", "0", &[]),
            ("w.example/gpu", "0", &[]),
        ]);
        let names: Vec<_> = names(&inventory).into_keys().collect();
        let begin = ["gpu-0-", "gpu-0-", "nic-0000-3b-00-0-", "nic-a", "nic-a-"];
        assert!(names.iter().zip(begin).all(|(name, begin)| name.starts_with(begin)), "{names:?}");
    }

    proptest! {
        #[test]
        fn any_inventory_has_a_name_for_each_device(ids in proptest::collection::btree_set("[a-zA-Z0-9:._ä-]{1,63}", 0..20)) {
            let list: Vec<_> = ids.iter().flat_map(|id| [("v.example/nic", &**id, &[][..]), ("V.example/nic", id, &[])]).collect();
            let inventory = inventory(&list);
            let names = names(&inventory);
            prop_assert_eq!(names.len(), list.len());
            prop_assert!(names.keys().all(|name| is_label(name)), "{:?}", names.keys());
        }
    }
}
