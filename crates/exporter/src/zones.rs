//! Computes the zones of an NRT object. Pure: the same inputs give the same zones in the same order.
//!
//! In: the machine (sysfs), what the kubelet can hand out and what it has handed out (podresources). Out: one zone per
//! online NUMA zone with capacity, allocatable, available and distances, and [`Remark`]s about inputs that do not
//! agree. Never: a negative or contradictory amount (`0 <= available <= allocatable <= capacity` always holds), a zone
//! the kernel does not have, or a different order for the same content.
//!
//! # Rules
//! - `cpu` stands in every zone, memory-only zones included (consumers count on it): capacity is the online CPUs,
//!   allocatable those of them the CPU manager may hand out (none with its policy `none`), available those no container
//!   holds.
//! - Memory and hugepages stand in the zones where the memory manager has some (policy `Static`); capacity is what
//!   sysfs says, for every page size.
//! - A device counts in every zone it is close to, and is taken in all of them once a container holds it, whatever
//!   zones the container's entry names. Devices without locality do not appear. Devices that are held but no longer
//!   healthy are not allocatable, so they take nothing away. (RTE and NFD subtract them all the same.)
//! - A memory block over several zones has one size for all of them. It is charged to its zones in ascending order,
//!   each filled before the next: what the kubelet's memory manager itself does. (RTE charges the whole size to each
//!   zone.) Its zones serve no other set of zones meanwhile, so the sum over them is exact whatever came and went.
//! - Where capacity and the kubelet's allocatable disagree, the kubelet is believed, as the peers do. But where it
//!   reserves more than a zone has, its amount wraps around below 0, and counts as 0.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use node::podresources::{Allocatable, Devices, MemoryBlock, PodResources};
use node::sysfs::{self, Machine};
use topology::cpuset::CpuSet;
use topology::resource::ResourceName;
use topology::zone::{Zone, ZoneId, ZoneResource};

/// A contradiction between the inputs that does not prevent the computation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remark {
    /// The kubelet counts on CPUs that are in no online zone.
    StrayCpus(String),
    /// The kubelet names a zone that is not online.
    StrayZone {
        /// The zone's id.
        zone: u32,
        /// The resource that the kubelet places there.
        resource: &'static str,
    },
    /// The kubelet offers more than the kernel has.
    MoreThanCapacity {
        /// The zone's id.
        zone: u32,
        /// The resource.
        resource: &'static str,
    },
    /// The kubelet offers less than nothing: more is reserved, or is hugepages, than the zone has. The kubelet's amount
    /// has no sign, so it is near 2^64.
    BelowNothing {
        /// The zone's id.
        zone: u32,
        /// The resource.
        resource: &'static str,
    },
    /// Containers hold more than the kubelet offers.
    MoreThanAllocatable {
        /// The resource.
        resource: &'static str,
        /// The excess, in bytes.
        excess: u64,
    },
    /// A page size whose name cannot be used.
    Hugepages(String),
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StrayCpus(cpus) => {
                write!(f, "the kubelet uses CPUs {cpus}, which are online in no NUMA zone")
            }
            Self::StrayZone { zone, resource } => {
                write!(f, "the kubelet places {resource} in NUMA zone {zone}, which is not online")
            }
            Self::MoreThanCapacity { zone, resource } => {
                write!(
                    f,
                    "the kubelet offers more {resource} in NUMA zone {zone} than the kernel has; the kubelet's is used"
                )
            }
            Self::BelowNothing { zone, resource } => {
                write!(
                    f,
                    "the kubelet offers less than nothing of {resource} in NUMA zone {zone}: its reservations and \
                     hugepages exceed the zone; 0 is used"
                )
            }
            Self::MoreThanAllocatable { resource, excess } => {
                write!(f, "containers hold {excess} bytes of {resource} more than the kubelet offers")
            }
            Self::Hugepages(reason) => write!(f, "hugepages are left out: {reason}"),
        }
    }
}

/// The zones, ascending by id, with their resources by name; and the contradictions.
#[must_use]
pub fn zones(
    machine: &Machine,
    allocatable: &Allocatable,
    pods: &[PodResources],
) -> (Vec<Zone>, BTreeSet<Remark>) {
    let mut remarks = BTreeSet::new();
    let mut tables: BTreeMap<ZoneId, BTreeMap<ResourceName, Amounts>> =
        machine.zones.iter().map(|zone| (zone.id, capacities(zone, &mut remarks))).collect();
    let containers = || pods.iter().flat_map(|pod| &pod.containers);

    let held = containers().fold(CpuSet::new(), |held, container| held.union(&container.cpus));
    add_cpus(&mut tables, machine, &allocatable.cpus, &held, &mut remarks);
    let held = containers().flat_map(|container| &container.memory);
    add_memory(&mut tables, &allocatable.memory, held, &mut remarks);
    let held = containers().flat_map(|container| &container.devices);
    add_devices(&mut tables, &allocatable.devices, held, &mut remarks);

    let zones = machine.zones.iter().map(|zone| Zone {
        id: zone.id,
        resources: tables
            .remove(&zone.id)
            .map(|table| finish(zone.id, table, &mut remarks))
            .unwrap_or_default(),
        distances: zone.distances.clone(),
    });
    (zones.collect(), remarks)
}

/// The sums of one resource in one zone. Whole CPUs, bytes or devices.
#[derive(Clone, Copy, Debug, Default)]
struct Amounts {
    capacity: u64,
    allocatable: u64,
    held: u64,
    /// The kubelet's managers have something of it here, so the zone lists it.
    listed: bool,
}

fn capacities(zone: &sysfs::Zone, remarks: &mut BTreeSet<Remark>) -> BTreeMap<ResourceName, Amounts> {
    let amounts = |capacity| Amounts { capacity, ..Amounts::default() };
    let mut table = BTreeMap::from([
        (ResourceName::CPU, Amounts { listed: true, ..amounts(zone.cpus.len() as u64) }),
        (ResourceName::MEMORY, amounts(zone.memory_bytes)),
    ]);
    for pages in &zone.hugepages {
        match pages.resource() {
            Ok(name) => drop(table.insert(name, amounts(pages.total_bytes))),
            Err(error) => drop(remarks.insert(Remark::Hugepages(error.to_string()))),
        }
    }
    table
}

type Tables = BTreeMap<ZoneId, BTreeMap<ResourceName, Amounts>>;

fn add_cpus(
    tables: &mut Tables,
    machine: &Machine,
    allocatable: &CpuSet,
    held: &CpuSet,
    remarks: &mut BTreeSet<Remark>,
) {
    let mut stray = allocatable.union(held);
    for zone in &machine.zones {
        stray = stray.difference(&zone.cpus);
        let here = allocatable.intersection(&zone.cpus);
        if let Some(cpu) = tables.get_mut(&zone.id).and_then(|table| table.get_mut(&ResourceName::CPU)) {
            cpu.allocatable = here.len() as u64;
            cpu.held = here.intersection(held).len() as u64;
        }
    }
    if !stray.is_empty() {
        remarks.insert(Remark::StrayCpus(stray.to_string()));
    }
}

fn add_memory<'a>(
    tables: &mut Tables,
    allocatable: &[MemoryBlock],
    held: impl Iterator<Item = &'a MemoryBlock>,
    remarks: &mut BTreeSet<Remark>,
) {
    for block in allocatable {
        let block = &or_nothing(block, remarks);
        let left = fill(tables, block, remarks, |amounts, left| {
            amounts.listed = true;
            let room = amounts.capacity.saturating_sub(amounts.allocatable);
            // A block of one zone is taken as it is; only a block over several zones is fitted to their capacities.
            let taken = if block.zones.len() == 1 { left } else { left.min(room) };
            amounts.allocatable = amounts.allocatable.saturating_add(taken);
            taken
        });
        if left > 0 && !block.zones.is_empty() {
            remarks.insert(Remark::MoreThanAllocatable { resource: block.resource.as_str(), excess: left });
        }
    }
    // One order, whatever order the kubelet lists pods in; single zones first.
    let mut held: Vec<_> = held.collect();
    held.sort_by_key(|block| (block.zones.len(), &block.zones, block.resource, block.bytes));
    for block in held {
        let left = fill(tables, block, remarks, |amounts, left| {
            let taken = left.min(amounts.allocatable.saturating_sub(amounts.held));
            amounts.held += taken;
            taken
        });
        if left > 0 && !block.zones.is_empty() {
            remarks.insert(Remark::MoreThanAllocatable { resource: block.resource.as_str(), excess: left });
        }
    }
}

/// The block; an amount that is negative as a signed number is none.
fn or_nothing(block: &MemoryBlock, remarks: &mut BTreeSet<Remark>) -> MemoryBlock {
    let mut block = block.clone();
    if i64::try_from(block.bytes).is_err() {
        let below = |zone: &ZoneId| Remark::BelowNothing { zone: zone.0, resource: block.resource.as_str() };
        remarks.extend(block.zones.iter().map(below));
        block.bytes = 0;
    }
    block
}

/// Offers a block to its zones in ascending order; `take` returns how much of the rest a zone takes. Returns the rest.
fn fill(
    tables: &mut Tables,
    block: &MemoryBlock,
    remarks: &mut BTreeSet<Remark>,
    mut take: impl FnMut(&mut Amounts, u64) -> u64,
) -> u64 {
    let mut left = block.bytes;
    for zone in &block.zones {
        match tables.get_mut(zone) {
            Some(table) => left -= take(table.entry(block.resource).or_default(), left).min(left),
            None => drop(remarks.insert(stray(*zone, block.resource))),
        }
    }
    left
}

/// Devices by resource and id, each once.
pub(crate) fn device_ids<'a>(
    entries: impl Iterator<Item = &'a Devices>,
) -> BTreeSet<(ResourceName, &'a str)> {
    entries.flat_map(|entry| entry.ids.iter().map(|id| (entry.resource, id.as_str()))).collect()
}

fn add_devices<'a>(
    tables: &mut Tables,
    allocatable: &[Devices],
    held: impl Iterator<Item = &'a Devices>,
    remarks: &mut BTreeSet<Remark>,
) {
    let held = device_ids(held);
    // The kubelet lists a device once per zone, possibly in several entries: a set counts it once in each.
    let offered: BTreeSet<(ZoneId, ResourceName, &str)> = allocatable
        .iter()
        .flat_map(|entry| entry.zones.iter().map(move |zone| (*zone, entry)))
        .flat_map(|(zone, entry)| entry.ids.iter().map(move |id| (zone, entry.resource, id.as_str())))
        .collect();
    for (zone, resource, id) in offered {
        let Some(table) = tables.get_mut(&zone) else {
            remarks.insert(stray(zone, resource));
            continue;
        };
        let amounts = table.entry(resource).or_default();
        amounts.listed = true;
        amounts.capacity += 1;
        amounts.allocatable += 1;
        amounts.held += u64::from(held.contains(&(resource, id)));
    }
}

fn stray(zone: ZoneId, resource: ResourceName) -> Remark {
    Remark::StrayZone { zone: zone.0, resource: resource.as_str() }
}

/// Converts whole amounts to the base units of [`ZoneResource`], and enforces the invariants.
fn finish(
    zone: ZoneId,
    table: BTreeMap<ResourceName, Amounts>,
    remarks: &mut BTreeSet<Remark>,
) -> Vec<ZoneResource> {
    let mut resources = Vec::with_capacity(table.len());
    for (name, mut amounts) in table.into_iter().filter(|(_, amounts)| amounts.listed) {
        if amounts.allocatable > amounts.capacity {
            remarks.insert(Remark::MoreThanCapacity { zone: zone.0, resource: name.as_str() });
            amounts.capacity = amounts.allocatable;
        }
        let base = |whole: u64| i64::try_from(whole).unwrap_or(i64::MAX).saturating_mul(name.base_units());
        resources.push(ZoneResource {
            name,
            capacity: base(amounts.capacity),
            allocatable: base(amounts.allocatable),
            available: base(amounts.allocatable.saturating_sub(amounts.held)),
        });
    }
    resources
}

#[cfg(test)]
mod tests;
