//! How well an allocation is aligned.
//!
//! In: what a pod got, and the machine. Out: whether it is spread over more zones than it needs. Never: what was free
//! at the time: an empty machine is the measure.

use std::collections::BTreeMap;

use topology::cpuset::CpuSet;
use topology::kubelet::device_manager::DeviceIds;
use topology::kubelet::hint::ZoneMask;
use topology::kubelet::{Allocation, ContainerAllocation, Kubelet, NodeState};
use topology::policy::Scope;
use topology::resource::ResourceName;

/// Whether a pod's resources are close to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// Each container, or the pod in the scope `pod`, has what it holds from as few zones as on an empty machine; or it
    /// holds nothing.
    Aligned,
    /// From more zones. The policies `best-effort` and `none` admit that.
    Misaligned,
}

impl Alignment {
    /// The alignment of an allocation in the scope of the kubelet. Cost: CPUs, and zones x resources.
    pub(super) fn of(kubelet: &Kubelet, state: &NodeState, allocation: &Allocation) -> Self {
        let is_spread = |containers: &[ContainerAllocation]| {
            let holding = Holding::of(state, containers);
            holding.zones(kubelet, state).len() > holding.fewest_zones(kubelet, state)
        };
        let misaligned = match kubelet.profile().scope {
            Scope::Pod => is_spread(&allocation.containers),
            Scope::Container => allocation.containers.chunks(1).any(is_spread),
        };
        if misaligned { Self::Misaligned } else { Self::Aligned }
    }
}

/// What some containers hold together.
struct Holding {
    cpus: CpuSet,
    /// Bytes by type.
    memory: BTreeMap<ResourceName, u64>,
    memory_zones: ZoneMask,
    devices: BTreeMap<ResourceName, DeviceIds>,
}

impl Holding {
    fn of(state: &NodeState, containers: &[ContainerAllocation]) -> Self {
        let mut holding = Self {
            cpus: CpuSet::new(),
            memory: BTreeMap::new(),
            memory_zones: ZoneMask::EMPTY,
            devices: BTreeMap::new(),
        };
        for container in containers {
            holding.cpus.insert_all(&container.cpus);
            for block in container.memory.iter().filter(|block| block.bytes > 0) {
                *holding.memory.entry(block.name).or_default() += block.bytes;
                holding.memory_zones = holding.memory_zones.union(block.zones);
            }
            for (name, ids) in &container.devices {
                let listed = state.devices.resources.contains_key(name);
                holding.devices.entry(*name).or_default().extend(ids.iter().filter(|_| listed).cloned());
            }
        }
        holding
    }

    fn zones(&self, kubelet: &Kubelet, state: &NodeState) -> ZoneMask {
        let groups = kubelet.machine().cpu_zones().iter();
        let of_cpus = groups.filter(|group| !group.cpus.is_disjoint(&self.cpus)).map(|group| group.id);
        let of_devices = self.devices.iter().flat_map(|(name, ids)| {
            let listed = state.devices.resources.get(name);
            ids.iter().filter_map(move |id| listed?.devices.get(id)?.zones)
        });
        let zones = of_devices.fold(self.memory_zones, ZoneMask::union);
        zones.union(of_cpus.collect())
    }

    /// The zones that an empty machine would need, by the resource that needs most.
    fn fewest_zones(&self, kubelet: &Kubelet, state: &NodeState) -> u32 {
        let reserved = kubelet.reserved_cpus();
        let groups = kubelet.machine().cpu_zones().iter();
        let cpus = groups.map(|group| group.cpus.difference(&reserved).len() as u64).collect();
        let of_cpus = fewest(self.cpus.len() as u64, cpus);
        let of_memory = self.memory.iter().map(|(name, bytes)| {
            let tables = state.memory.counts.zones.iter().flat_map(|zone| &zone.tables);
            fewest(
                *bytes,
                tables.filter(|table| table.name == *name).map(|table| table.allocatable).collect(),
            )
        });
        let of_devices = self.devices.iter().map(|(name, ids)| {
            let devices = state.devices.resources.get(name).map(|listed| &listed.devices);
            let mut by_zone = BTreeMap::<ZoneMask, u64>::new();
            for device in devices.into_iter().flat_map(BTreeMap::values) {
                *by_zone.entry(device.zones.unwrap_or(ZoneMask::EMPTY)).or_default() += 1;
            }
            fewest(ids.len() as u64, by_zone.into_values().collect())
        });
        of_memory.chain(of_devices).fold(of_cpus, u32::max)
    }
}

/// How many of these rooms hold an amount; all if they do not.
fn fewest(amount: u64, mut rooms: Vec<u64>) -> u32 {
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
