//! Describes the zones in which each container is placed. Pure.
//!
//! In: the machine, the pods that hold resources. Out: attributes for node and zones. The peers' vectors are used if
//! each container is in one zone; otherwise our own form describes all containers. It is also used where zone ids have
//! gaps, which the vectors cannot express. Never: both forms, or a zone that a container is not in.
//!
//! # The zones of a container
//! A container is in the zones of its exclusive CPUs and its memory. A device that is close to one of these zones adds
//! none; one that is close to other zones adds those. So a container with CPUs in zone 0 and a device close to 0 and 1
//! is in zone 0. (RTE considers the first CPU only, and gives up on the whole node over a memory block of two zones.)

use std::collections::{BTreeMap, BTreeSet};

use api::keys;
use api::nrt::Attribute;
use node::podresources::{ContainerResources, PodResources};
use node::sysfs::Machine;
use topology::placement::spread::{self, Spread};
use topology::placement::{ContainerHash, vectors};
use topology::zone::ZoneId;

/// The attributes that describe placements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placements {
    /// The attribute of the node.
    pub node: Option<Attribute>,
    /// Values of the zones' attribute; zones without an entry have none.
    pub zones: BTreeMap<ZoneId, String>,
}

/// Describes the placements of these pods. Cost: one pass over their resources, and a sort of the containers.
#[must_use]
pub fn placements(machine: &Machine, pods: &[PodResources]) -> Placements {
    let mut spreads = Vec::new();
    for pod in pods {
        for container in &pod.containers {
            let zones = zones_of(machine, container);
            if !zones.is_empty() {
                let container = ContainerHash::of(&pod.namespace, &pod.name, &container.name);
                spreads.push(Spread { container, zones: zones.into_iter().collect() });
            }
        }
    }
    single_zone(machine, &spreads).unwrap_or_else(|| multi_zone(spreads))
}

/// The peers' form, if it can express the placements.
fn single_zone(machine: &Machine, spreads: &[Spread]) -> Option<Placements> {
    let one = |spread: &Spread| match spread.zones.as_slice() {
        [(zone, _)] => Some((spread.container, *zone)),
        _ => None,
    };
    let containers = spreads.iter().map(one).collect::<Option<Vec<_>>>()?;
    // The form has to name a zone even without any container, and that is zone 0.
    if containers.is_empty() && !machine.zones.iter().any(|zone| zone.id == ZoneId(0)) {
        return None;
    }
    let vectors = vectors::encode(containers, u32::try_from(machine.zones.len()).ok()?).ok()?;
    let node = Attribute { name: keys::ATTRIBUTE_PLACEMENT_METADATA.to_owned(), value: vectors.metadata };
    Some(Placements { node: Some(node), zones: vectors.zones.into_iter().collect() })
}

/// Our own form. Two containers with one hash would make it empty; in practice there are none.
fn multi_zone(spreads: Vec<Spread>) -> Placements {
    let name = keys::ATTRIBUTE_MULTI_ZONE_PLACEMENTS.to_owned();
    let node = spread::encode(spreads).ok().map(|value| Attribute { name, value });
    Placements { node, ..Placements::default() }
}

/// The zones of a container, with the number of its exclusive CPUs in each.
fn zones_of(machine: &Machine, container: &ContainerResources) -> BTreeMap<ZoneId, u32> {
    let mut zones_of = BTreeMap::new();
    if !container.cpus.is_empty() {
        for zone in &machine.zones {
            let cpus = container.cpus.intersection(&zone.cpus).len();
            if cpus > 0 {
                zones_of.insert(zone.id, u32::try_from(cpus).unwrap_or(u32::MAX));
            }
        }
    }
    for zone in container.memory.iter().flat_map(|block| &block.zones) {
        zones_of.entry(*zone).or_default();
    }
    // A device that is close to several zones may come as an entry for each: its zones belong together.
    let mut devices: BTreeMap<_, BTreeSet<ZoneId>> = BTreeMap::new();
    for entry in &container.devices {
        for id in &entry.ids {
            devices.entry((entry.resource, id)).or_default().extend(&entry.zones);
        }
    }
    // Devices with the fewest zones first: they leave the least choice.
    let mut devices: Vec<_> = devices.into_values().collect();
    devices.sort_by_key(|zones| zones.len());
    for zones in devices {
        if zones.iter().all(|zone| !zones_of.contains_key(zone)) {
            zones_of.extend(zones.into_iter().map(|zone| (zone, 0)));
        }
    }
    zones_of.retain(|zone, _| machine.zones.iter().any(|known| known.id == *zone));
    zones_of
}

#[cfg(test)]
mod tests {
    use node::podresources::{Devices, MemoryBlock};
    use node::sysfs;
    use topology::cpuset::CpuSet;
    use topology::resource::ResourceName;

    use super::*;

    fn machine(ids: &[u32]) -> Machine {
        let cpus = |id: u32| CpuSet::from_ids(4 * id..4 * id + 4).unwrap();
        let zone = |id: &u32| sysfs::Zone {
            id: ZoneId(*id),
            cpus: cpus(*id),
            memory_bytes: 0,
            hugepages: vec![],
            distances: vec![],
        };
        let zones: Vec<_> = ids.iter().map(zone).collect();
        Machine { cpus: zones.iter().fold(CpuSet::new(), |all, zone| all.union(&zone.cpus)), zones }
    }

    /// `cpus / memory zones / device zones; ...`, such as `0-3 / 0 1 / 1; 2`.
    fn container(text: &str) -> ContainerResources {
        let parts: Vec<_> = text.split('/').map(str::trim).collect();
        let zones =
            |text: &str| text.split_whitespace().map(|id| ZoneId(id.parse().unwrap())).collect::<Vec<_>>();
        let block = |zones| MemoryBlock { resource: ResourceName::MEMORY, bytes: 1, zones };
        let resource = ResourceName::new("v.io/nic").unwrap();
        let device =
            |(i, text): (usize, &str)| Devices { resource, ids: vec![i.to_string()], zones: zones(text) };
        ContainerResources {
            name: "c".to_owned(),
            cpus: CpuSet::parse(parts[0]).unwrap(),
            memory: Some(zones(parts[1])).filter(|zones| !zones.is_empty()).map(block).into_iter().collect(),
            devices: parts[2]
                .split(';')
                .filter(|text| !text.trim().is_empty())
                .enumerate()
                .map(device)
                .collect(),
        }
    }

    #[test]
    fn seats_of_a_container() {
        for (text, wanted) in [
            ("/ /", ""),
            ("1,2 / /", "0:2"),
            ("3-5 / /", "0:1 1:2"),
            ("1 / 0 /", "0:1"),
            ("1 / 0 1 /", "0:1 1:0"),
            ("/ 1 /", "1:0"),
            ("1 / / 0 1", "0:1"),
            ("1 / / 1 2", "0:1 1:0 2:0"),
            ("/ / 1 2", "1:0 2:0"),
            ("/ / 1; 1 2", "1:0"),
            ("/ / 9", ""),
        ] {
            let zones_of = zones_of(&machine(&[0, 1, 2]), &container(text));
            let zones_of: Vec<_> = zones_of.iter().map(|(zone, cpus)| format!("{}:{cpus}", zone.0)).collect();
            assert_eq!(zones_of.join(" "), wanted, "{text}");
        }
    }

    fn pods(containers: &[&str]) -> Vec<PodResources> {
        let pod = |(i, text): (usize, &&str)| PodResources {
            namespace: "ns".to_owned(),
            name: format!("p{i}"),
            containers: vec![container(text)],
        };
        containers.iter().enumerate().map(pod).collect()
    }

    #[test]
    fn one_zone_each_is_said_as_the_peers_say_it() {
        let placements = placements(&machine(&[0, 1]), &pods(&["1 / 0 /", "4 / 1 /", "5 / 1 /", "/ /"]));
        let node = placements.node.unwrap();
        assert_eq!(node.name, "topology.node.k8s.io/numaplacement-metadata");
        assert_eq!(node.value, "npv0v001::ve=leb89::cc=3::nn=2::bn=1");
        assert_eq!(placements.zones.keys().map(|zone| zone.0).collect::<Vec<_>>(), [0]);
        let empty = super::placements(&machine(&[0, 1]), &[]);
        assert_eq!(empty.node.unwrap().value, "npv0v001::ve=leb89::cc=0::nn=2::bn=0");
    }

    #[test]
    fn several_zones_and_gaps_are_said_our_way() {
        for (ids, containers, wanted) in [
            (&[0, 1][..], &["1 / 0 /", "3,4 / /"][..], vec!["0:1", "0:1 1:1"]),
            (&[0, 2], &["8 / 2 /"], vec!["2:1"]),
            (&[1, 2], &[], vec![]),
        ] {
            let placements = placements(&machine(ids), &pods(containers));
            assert!(placements.zones.is_empty());
            let node = placements.node.unwrap();
            assert_eq!(node.name, "multiNUMAPlacements");
            let spreads = spread::decode(&node.value).unwrap();
            let mut found: Vec<_> = (0..containers.len())
                .map(|i| {
                    let hash = ContainerHash::of("ns", &format!("p{i}"), "c");
                    let spread = spreads.iter().find(|spread| spread.container == hash).unwrap();
                    let zones_of = spread.zones.iter().map(|(zone, cpus)| format!("{}:{cpus}", zone.0));
                    zones_of.collect::<Vec<_>>().join(" ")
                })
                .collect();
            found.sort();
            assert_eq!(found, wanted);
        }
    }
}
