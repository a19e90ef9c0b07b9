//! Describes what containers hold by ids: attributes for readers that compute what the kubelet will do next. Pure.
//!
//! In: the machine, what the kubelet offers, and what containers hold: by the checkpoints of the kubelet's managers
//! where they are visible, otherwise by podresources. Out: the text of the node's attribute ([`Holdings`]), and by zone
//! the CPUs that are free and the zones whose memory goes together. Never: an opinion; a container that has ended but
//! whose CPUs no manager has taken back still holds them.
//!
//! Podresources knows pods by name, and leaves out finished init containers, whose CPUs look free then. Checkpoints
//! know pods by UID, and leave out nothing.

use std::collections::{BTreeMap, BTreeSet};

use node::kubelet::state::assignments::Assignments;
use node::podresources::{Allocatable, ContainerResources, Devices, PodResources};
use node::sysfs::Machine;
use topology::cpuset::CpuSet;
use topology::kubelet::hint::ZoneMask;
use topology::placement::ContainerHash;
use topology::placement::holdings::{HashKey, HeldDeviceGroup, Holding, Holdings};
use topology::policy::Manager;
use topology::resource::ResourceName;
use topology::zone::ZoneId;

use crate::zones::device_ids;

/// What containers hold, as attributes have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldingAttributes {
    /// By container.
    pub containers: Holdings,
    /// CPUs by zone that are neither reserved nor held; each zone with CPUs that could be handed out has an entry.
    pub free_cpus: BTreeMap<ZoneId, CpuSet>,
    /// The zones that a zone's memory is handed out with, where they are several.
    pub memory_groups: BTreeMap<ZoneId, ZoneMask>,
}

/// What one container holds.
struct Held {
    container: ContainerHash,
    cpus: CpuSet,
    /// The zones of each block.
    memory: Vec<ZoneMask>,
    /// Devices by resource and zones.
    devices: BTreeMap<(ResourceName, ZoneMask), u32>,
}

/// Describes what containers hold. Cost: a pass over their resources, and a sort.
#[must_use]
pub fn holding_attributes(
    machine: &Machine,
    allocatable: &Allocatable,
    memory_manager: Manager,
    checkpoints: Option<&Assignments>,
    pods: &[PodResources],
) -> HoldingAttributes {
    let (key, held) = match checkpoints {
        Some(checkpoints) => (HashKey::Uid, by_uid(checkpoints)),
        None => (HashKey::Name, by_name(pods)),
    };
    let all = held.iter().fold(CpuSet::new(), |all, held| all.union(&held.cpus));
    let free = allocatable.cpus.difference(&all);
    let free_cpus = machine
        .zones
        .iter()
        .filter(|zone| !zone.cpus.is_disjoint(&allocatable.cpus))
        .map(|zone| (zone.id, zone.cpus.intersection(&free)))
        .collect();
    let memory_groups = memory_groups(&held);
    let containers = held.into_iter().map(|held| (held.container, held.holding(machine, memory_manager)));
    HoldingAttributes { containers: Holdings::new(key, containers.collect()), free_cpus, memory_groups }
}

/// Whether checkpoints that were read beside a list can be of the same moment: exclusive CPUs of listed containers are
/// in both.
#[must_use]
pub fn agree(checkpoints: &Assignments, pods: &[PodResources]) -> bool {
    let written = checkpoints.containers.values().fold(CpuSet::new(), |all, held| all.union(&held.cpus));
    pods.iter().flat_map(|pod| &pod.containers).all(|container| container.cpus.is_subset(&written))
}

/// Devices close to several zones: `NAME@ZONES:ALLOCATABLE:AVAILABLE`, by name and zones, joined by `;`.
#[must_use]
pub fn device_groups(offered: &[Devices], pods: &[PodResources], exclude: &BTreeSet<String>) -> String {
    let held =
        device_ids(pods.iter().flat_map(|pod| &pod.containers).flat_map(|container| &container.devices));
    let mut groups: BTreeMap<(ResourceName, ZoneMask), (usize, usize)> = BTreeMap::new();
    for ((name, id), zones) in zones_of_devices(offered) {
        if zones.len() > 1 && !exclude.contains(name.as_str()) {
            let (allocatable, available) = groups.entry((name, zones)).or_default();
            *allocatable += 1;
            *available += usize::from(!held.contains(&(name, id)));
        }
    }
    let texts = groups
        .into_iter()
        .map(|((name, zones), (allocatable, available))| format!("{name}@{zones}:{allocatable}:{available}"));
    texts.collect::<Vec<_>>().join(";")
}

fn by_uid(checkpoints: &Assignments) -> Vec<Held> {
    let held = checkpoints.containers.iter().map(|((uid, container), held)| Held {
        container: ContainerHash::of_uid(uid, container),
        cpus: held.cpus.clone(),
        memory: held.memory.iter().map(|block| block.zones).collect(),
        devices: counts(held.devices.iter().map(|((name, _), zones)| (*name, *zones))),
    });
    held.filter(|held| !held.is_empty()).collect()
}

fn by_name(pods: &[PodResources]) -> Vec<Held> {
    let containers = pods.iter().flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)));
    let held = containers.map(|(pod, container)| Held {
        container: ContainerHash::of(&pod.namespace, &pod.name, &container.name),
        cpus: container.cpus.clone(),
        memory: blocks(container),
        devices: counts(
            zones_of_devices(&container.devices).into_iter().map(|((name, _), zones)| (name, zones)),
        ),
    });
    held.filter(|held| !held.is_empty()).collect()
}

fn blocks(container: &ContainerResources) -> Vec<ZoneMask> {
    container.memory.iter().map(|block| mask(&block.zones)).filter(|zones| !zones.is_empty()).collect()
}

/// Devices without a zone are left out: no alignment depends on them.
fn counts(
    devices: impl Iterator<Item = (ResourceName, ZoneMask)>,
) -> BTreeMap<(ResourceName, ZoneMask), u32> {
    let mut counts = BTreeMap::new();
    for (name, zones) in devices.filter(|(_, zones)| !zones.is_empty()) {
        *counts.entry((name, zones)).or_default() += 1;
    }
    counts
}

/// The zones of each device: the kubelet lists it once for each.
fn zones_of_devices(entries: &[Devices]) -> BTreeMap<(ResourceName, &str), ZoneMask> {
    let mut zones: BTreeMap<(ResourceName, &str), ZoneMask> = BTreeMap::new();
    for entry in entries {
        let here = mask(&entry.zones);
        for id in &entry.ids {
            let known = zones.entry((entry.resource, id)).or_default();
            *known = known.union(here);
        }
    }
    zones
}

fn mask(zones: &[ZoneId]) -> ZoneMask {
    zones.iter().map(|zone| zone.0).collect()
}

/// By zone the largest set of zones that a block with it has, if they are several.
fn memory_groups(held: &[Held]) -> BTreeMap<ZoneId, ZoneMask> {
    let mut groups: BTreeMap<ZoneId, ZoneMask> = BTreeMap::new();
    for zones in held.iter().flat_map(|held| &held.memory).filter(|zones| zones.len() > 1) {
        for zone in zones.iter() {
            let known = groups.entry(ZoneId(zone)).or_default();
            if known.len() < zones.len() {
                *known = *zones;
            }
        }
    }
    groups
}

impl Held {
    fn is_empty(&self) -> bool {
        self.cpus.is_empty() && self.memory.is_empty() && self.devices.is_empty()
    }

    /// What is to be written, without what goes without saying.
    fn holding(self, machine: &Machine, memory_manager: Manager) -> Holding {
        let near = machine.zones.iter().filter(|zone| !zone.cpus.is_disjoint(&self.cpus));
        let near: ZoneMask = near.map(|zone| zone.id.0).collect();
        let memory = self.memory.into_iter().fold(ZoneMask::EMPTY, ZoneMask::union);
        // Of a finished init container only the CPUs are left.
        let goes_without_saying = memory == near || memory.is_empty() && memory_manager != Manager::Static;
        let usual = near.len() == 1 && self.devices.keys().all(|(_, zones)| *zones == near);
        let devices = self.devices.into_iter().filter(|_| !usual);
        Holding {
            cpus: self.cpus,
            memory: (!goes_without_saying).then_some(memory),
            devices: devices
                .map(|((resource, zones), count)| HeldDeviceGroup { resource, zones, count })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests;
