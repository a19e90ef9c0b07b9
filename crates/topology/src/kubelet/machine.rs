//! The machine as the kubelet sees it: CPUs with core, cache, socket and zone; zones with memory and distances.
//!
//! In: what cAdvisor reports of a machine. Out: the same, checked, with the CPUs of each core, cache, socket and zone
//! as sets. Static for the life of a kubelet, so one value is shared by all states of a node. Never: what is in use.

use std::collections::BTreeMap;

use crate::cpuset::{CpuSet, MAX_CPU};
use crate::kubelet::hint::{MAX_ZONE_ID, ZoneMask};
use crate::resource::ResourceName;

/// One hardware thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cpu {
    /// The id, unique on the machine.
    pub id: u32,
    /// The lowest id of the core's threads (kubelet 1.36 `topology.getUniqueCoreID`).
    pub core: u32,
    /// The socket's id.
    pub socket: u32,
    /// The NUMA zone's id.
    pub zone: u32,
    /// The id of the last-level cache; the socket's id where the machine reports none.
    pub cache: u32,
}

/// One NUMA zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MachineZone {
    /// The id.
    pub id: u32,
    /// All memory, in bytes, huge pages included.
    pub memory: u64,
    /// Bytes of each size of huge pages.
    pub hugepages: Vec<(ResourceName, u64)>,
    /// Distances to the zones of the machine, in their order; empty where the machine reports none.
    pub distances: Vec<u64>,
}

/// CPUs that share something, under its id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CpuGroup {
    /// The id of the core, cache, socket or zone.
    pub id: u32,
    /// Its CPUs.
    pub cpus: CpuSet,
}

/// A machine, checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    zones: Vec<MachineZone>,
    cpus: CpuSet,
    by_id: Vec<Option<Cpu>>,
    by_core: Vec<CpuGroup>,
    by_cache: Vec<CpuGroup>,
    by_socket: Vec<CpuGroup>,
    by_zone: Vec<CpuGroup>,
    zone_mask: ZoneMask,
    cpu_zone_mask: ZoneMask,
}

/// Why a machine makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// A CPU is listed twice, perhaps in two zones.
    #[error("CPU {0} is listed twice")]
    CpuTwice(u32),
    /// A CPU's id is too large.
    #[error("CPU id {0} is too large; allowed are 0 to {max}", max = MAX_CPU)]
    CpuId(u32),
    /// No CPU.
    #[error("no CPU is listed")]
    NoCpu,
    /// A zone is listed twice.
    #[error("zone {0} is listed twice")]
    ZoneTwice(u32),
    /// A zone's id does not fit the kubelet's masks.
    #[error("zone id {0} is too large; the kubelet's masks hold 0 to {max}", max = MAX_ZONE_ID - 1)]
    ZoneId(u32),
    /// No zone has memory.
    #[error("no zone has memory; the memory of at least one is above 0")]
    NoMemory,
    /// The distances of a zone are not those to all zones.
    #[error("zone {zone} has {found} distances; allowed are none, or one to each of the {wanted} zones")]
    Distances {
        /// The zone.
        zone: u32,
        /// Its distances.
        found: usize,
        /// Zones.
        wanted: usize,
    },
    /// A CPU names a zone that is not there.
    #[error("CPU {cpu} is in zone {zone}, which is not listed")]
    NoZone {
        /// The CPU.
        cpu: u32,
        /// The zone.
        zone: u32,
    },
}

impl Machine {
    /// Checks and indexes a machine. Cost: CPUs x log CPUs.
    ///
    /// # Errors
    /// [`MachineError`] names the CPU or zone that makes no sense.
    pub fn new(zones: Vec<MachineZone>, cpus: &[Cpu]) -> Result<Self, MachineError> {
        let mut zone_mask = ZoneMask::EMPTY;
        for zone in &zones {
            if zone.id >= MAX_ZONE_ID {
                return Err(MachineError::ZoneId(zone.id));
            }
            if zone_mask.contains(zone.id) {
                return Err(MachineError::ZoneTwice(zone.id));
            }
            zone_mask = zone_mask.union(ZoneMask::of(zone.id));
            let (found, wanted) = (zone.distances.len(), zones.len());
            if found != 0 && found != wanted {
                return Err(MachineError::Distances { zone: zone.id, found, wanted });
            }
        }
        let mut by_id: Vec<Option<Cpu>> = Vec::new();
        for cpu in cpus {
            if cpu.id > MAX_CPU {
                return Err(MachineError::CpuId(cpu.id));
            }
            if !zone_mask.contains(cpu.zone) {
                return Err(MachineError::NoZone { cpu: cpu.id, zone: cpu.zone });
            }
            let at = cpu.id as usize;
            by_id.resize(by_id.len().max(at + 1), None);
            if by_id[at].replace(*cpu).is_some() {
                return Err(MachineError::CpuTwice(cpu.id));
            }
        }
        if cpus.is_empty() {
            return Err(MachineError::NoCpu);
        }
        if zones.iter().all(|zone| zone.memory == 0) {
            return Err(MachineError::NoMemory);
        }
        let group = |id: fn(&Cpu) -> u32| groups(cpus, id);
        Ok(Self {
            cpus: set(cpus.iter().map(|cpu| cpu.id)),
            by_core: group(|cpu| cpu.core),
            by_cache: group(|cpu| cpu.cache),
            by_socket: group(|cpu| cpu.socket),
            by_zone: group(|cpu| cpu.zone),
            cpu_zone_mask: cpus.iter().map(|cpu| cpu.zone).collect(),
            zone_mask,
            by_id,
            zones,
        })
    }

    /// Zones, in the machine's order.
    #[must_use]
    pub fn zones(&self) -> &[MachineZone] {
        &self.zones
    }

    /// All CPUs.
    #[must_use]
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// A CPU by its id.
    #[must_use]
    pub fn cpu(&self, id: u32) -> Option<Cpu> {
        self.by_id.get(id as usize).copied().flatten()
    }

    /// Cores, ascending by id.
    #[must_use]
    pub fn cores(&self) -> &[CpuGroup] {
        &self.by_core
    }

    /// Last-level caches, ascending by id.
    #[must_use]
    pub fn caches(&self) -> &[CpuGroup] {
        &self.by_cache
    }

    /// Sockets, ascending by id.
    #[must_use]
    pub fn sockets(&self) -> &[CpuGroup] {
        &self.by_socket
    }

    /// Zones that have CPUs, ascending by id.
    #[must_use]
    pub fn cpu_zones(&self) -> &[CpuGroup] {
        &self.by_zone
    }

    /// All zones.
    #[must_use]
    pub fn zone_mask(&self) -> ZoneMask {
        self.zone_mask
    }

    /// The zones that have CPUs.
    #[must_use]
    pub fn cpu_zone_mask(&self) -> ZoneMask {
        self.cpu_zone_mask
    }

    /// Threads of a core, rounded down (kubelet 1.36 `CPUTopology.CPUsPerCore`).
    #[must_use]
    pub fn cpus_per_core(&self) -> usize {
        self.cpus.len() / self.by_core.len()
    }

    /// CPUs of a socket, rounded down (kubelet 1.36 `CPUTopology.CPUsPerSocket`).
    #[must_use]
    pub fn cpus_per_socket(&self) -> usize {
        self.cpus.len() / self.by_socket.len()
    }

    /// CPUs of a last-level cache, rounded down (kubelet 1.36 `CPUTopology.CPUsPerUncore`).
    #[must_use]
    pub fn cpus_per_cache(&self) -> usize {
        self.cpus.len() / self.by_cache.len()
    }

    /// The zones of these CPUs.
    #[must_use]
    pub fn zones_of(&self, cpus: &CpuSet) -> ZoneMask {
        self.by_zone.iter().filter(|zone| !zone.cpus.is_disjoint(cpus)).map(|zone| zone.id).collect()
    }

    /// The CPUs of these zones.
    #[must_use]
    pub fn cpus_of(&self, zones: ZoneMask) -> CpuSet {
        let mut cpus = CpuSet::new();
        self.by_zone
            .iter()
            .filter(|zone| zones.contains(zone.id))
            .for_each(|zone| cpus.insert_all(&zone.cpus));
        cpus
    }

    /// As many of these CPUs in a zone, at most, core by core, so that whole cores are left.
    #[must_use]
    pub fn core_by_core(&self, cpus: &CpuSet, zones: ZoneMask, count: usize) -> CpuSet {
        let mut ids: Vec<u32> = self.cpus_of(zones).intersection(cpus).iter().collect();
        ids.sort_by_key(|id| self.cpu(*id).map(|cpu| (cpu.core, cpu.id)));
        set(ids.into_iter().take(count))
    }

    /// The CPUs of the sockets that have a CPU in these zones.
    #[must_use]
    pub fn cpus_of_sockets(&self, zones: ZoneMask) -> CpuSet {
        let within = self.cpus_of(zones);
        let mut cpus = CpuSet::new();
        self.by_socket
            .iter()
            .filter(|socket| !socket.cpus.is_disjoint(&within))
            .for_each(|socket| cpus.insert_all(&socket.cpus));
        cpus
    }

    /// The number of sockets that have a CPU in these zones.
    #[must_use]
    pub fn sockets_of(&self, zones: ZoneMask) -> usize {
        let within = self.cpus_of(zones);
        self.by_socket.iter().filter(|socket| !socket.cpus.is_disjoint(&within)).count()
    }

    /// Whether all cores have as many CPUs, all sockets too, and zones, sockets and cores do not lie across each other;
    /// with `caches` neither do caches and zones.
    #[must_use]
    pub fn is_regular(&self, caches: bool) -> bool {
        let same_size =
            |groups: &[CpuGroup]| groups.windows(2).all(|pair| pair[0].cpus.len() == pair[1].cpus.len());
        let within = |inner: &[CpuGroup], outer: &[CpuGroup]| {
            inner.iter().all(|part| outer.iter().any(|whole| part.cpus.is_subset(&whole.cpus)))
        };
        let nested = if self.by_socket.len() >= self.by_zone.len() {
            within(&self.by_socket, &self.by_zone)
        } else {
            within(&self.by_zone, &self.by_socket)
        };
        nested
            && same_size(&self.by_core)
            && same_size(&self.by_socket)
            && within(&self.by_core, &self.by_zone)
            && within(&self.by_core, &self.by_socket)
            && (!caches || within(&self.by_cache, &self.by_zone))
    }

    /// The mean distance between the zones of a mask, each to itself included (kubelet 1.36
    /// `NUMADistances.CalculateAverageFor`). The kubelet takes ids for positions, and so do we; a distance that is not
    /// there counts as 0, where the kubelet panics.
    #[must_use]
    pub fn mean_distance(&self, zones: ZoneMask) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for from in zones.iter() {
            let distances = self.zones.iter().find(|zone| zone.id == from).map(|zone| &zone.distances);
            for to in zones.iter() {
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "distances are small; the kubelet uses float64 too"
                )]
                let distance = distances.and_then(|d| d.get(to as usize)).map_or(0.0, |d| *d as f64);
                sum += distance;
                count += 1.0;
            }
        }
        if count == 0.0 { 0.0 } else { sum / count }
    }
}

/// CPUs grouped by an id, ascending.
fn groups(cpus: &[Cpu], id: fn(&Cpu) -> u32) -> Vec<CpuGroup> {
    let mut by_id: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for cpu in cpus {
        by_id.entry(id(cpu)).or_default().insert_all(&set([cpu.id]));
    }
    by_id.into_iter().map(|(id, cpus)| CpuGroup { id, cpus }).collect()
}

/// A set of ids that were checked against [`MAX_CPU`].
fn set(ids: impl IntoIterator<Item = u32>) -> CpuSet {
    CpuSet::from_ids(ids).unwrap_or_default()
}
