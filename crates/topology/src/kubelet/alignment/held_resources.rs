//! What some containers of a pod hold together, by zone.
//!
//! In: allocations, the machine, what plugins list. Out: CPUs and devices of each zone, the zones in use, and the
//! fewest that would do. Never: a thing twice that two containers share, as an init container and a later one do.

use std::collections::BTreeMap;

use crate::cpuset::CpuSet;
use crate::kubelet::device_manager::{Device, DeviceId, DeviceIds};
use crate::kubelet::hint::ZoneMask;
use crate::kubelet::{ContainerAllocation, Kubelet, NodeState};
use crate::resource::ResourceName;

/// What some containers hold together.
#[derive(Debug)]
pub struct HeldResources<'a> {
    kubelet: &'a Kubelet,
    state: &'a NodeState,
    cpus: CpuSet,
    /// Bytes by type.
    memory: BTreeMap<ResourceName, u64>,
    memory_zones: ZoneMask,
    devices: BTreeMap<ResourceName, DeviceIds>,
}

impl<'a> HeldResources<'a> {
    /// The sum of these allocations. Cost: CPUs and devices.
    #[must_use]
    pub fn of(
        kubelet: &'a Kubelet,
        state: &'a NodeState,
        containers: impl IntoIterator<Item = &'a ContainerAllocation>,
    ) -> Self {
        let mut held = Self {
            kubelet,
            state,
            cpus: CpuSet::new(),
            memory: BTreeMap::new(),
            memory_zones: ZoneMask::EMPTY,
            devices: BTreeMap::new(),
        };
        for container in containers {
            held.cpus.insert_all(&container.cpus);
            for block in container.memory.iter().filter(|block| block.bytes > 0) {
                *held.memory.entry(block.name).or_default() += block.bytes;
                held.memory_zones = held.memory_zones.union(block.zones);
            }
            for (name, ids) in &container.devices {
                held.devices.entry(*name).or_default().extend(ids.iter().cloned());
            }
        }
        held
    }

    /// CPUs of a zone.
    #[must_use]
    pub fn cpus_in(&self, zone: u32) -> usize {
        let of_zone = self.kubelet.machine().cpu_zones().iter().find(|group| group.id == zone);
        of_zone.map_or(0, |group| group.cpus.count_shared(&self.cpus))
    }

    /// Devices of a zone.
    #[must_use]
    pub fn devices_in(&self, zone: u32, name: ResourceName) -> usize {
        self.device_zones(name).filter(|zones| zones.contains(zone)).count()
    }

    /// All zones in use.
    #[must_use]
    pub fn zones(&self) -> ZoneMask {
        let groups = self.kubelet.machine().cpu_zones().iter();
        let of_cpus = groups.filter(|group| !group.cpus.is_disjoint(&self.cpus)).map(|group| group.id);
        let of_devices = self.devices.keys().flat_map(|name| self.device_zones(*name));
        of_devices.fold(self.memory_zones, ZoneMask::union).union(of_cpus.collect())
    }

    /// The zones that an empty machine would need, by the resource that needs most.
    #[must_use]
    pub fn fewest_zones(&self) -> u32 {
        let reserved = self.kubelet.reserved_cpus();
        let groups = self.kubelet.machine().cpu_zones().iter();
        let cpus = groups.map(|group| group.cpus.difference(&reserved).len() as u64).collect();
        let of_cpus = fewest_zones_for(self.cpus.len() as u64, cpus);
        let of_memory = self.memory.iter().map(|(name, bytes)| {
            let tables = self.state.memory.counts.zones.iter().flat_map(|zone| &zone.tables);
            fewest_zones_for(
                *bytes,
                tables.filter(|table| table.name == *name).map(|table| table.allocatable).collect(),
            )
        });
        let of_devices = self.devices.iter().map(|(name, ids)| {
            let mut by_zone = BTreeMap::<ZoneMask, u64>::new();
            for device in self.listed(*name).into_iter().flat_map(BTreeMap::values) {
                *by_zone.entry(device.zones.unwrap_or(ZoneMask::EMPTY)).or_default() += 1;
            }
            fewest_zones_for(ids.len() as u64, by_zone.into_values().collect())
        });
        of_memory.chain(of_devices).fold(of_cpus, u32::max)
    }

    /// The zones of each device of a resource that has some.
    fn device_zones(&self, name: ResourceName) -> impl Iterator<Item = ZoneMask> {
        let listed = self.listed(name);
        let ids = self.devices.get(&name).into_iter().flatten();
        ids.filter_map(move |id| listed?.get(id)?.zones)
    }

    /// What plugins list of a resource.
    fn listed(&self, name: ResourceName) -> Option<&'a BTreeMap<DeviceId, Device>> {
        self.state.devices.resources.get(&name).map(|resource| &resource.devices)
    }
}

/// How many of these rooms hold an amount; all if they do not.
#[must_use]
pub fn fewest_zones_for(amount: u64, mut rooms: Vec<u64>) -> u32 {
    rooms.sort_unstable_by_key(|room| std::cmp::Reverse(*room));
    let mut left = amount;
    let mut used = 0;
    for room in rooms {
        if left == 0 {
            break;
        }
        left = left.saturating_sub(room);
        used += 1;
    }
    used
}
