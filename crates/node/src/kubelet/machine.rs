//! A machine as the kubelet learns of it: cAdvisor's MachineInfo.
//!
//! In: MachineInfo as JSON, which the kubelet's cAdvisor serves on `/spec`. Out: a [`Machine`] for the model of the
//! kubelet's admission. The same from the kernel's files, by [`of_sysfs`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use topology::cpuset::CpuSet;
use topology::kubelet::machine::{Cpu, Machine, MachineError, MachineZone};
use topology::resource::{ResourceName, ResourceNameError};

use crate::sysfs::{self, Layout, Sysfs};

/// cAdvisor's MachineInfo, as far as resource managers read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineInfo {
    /// Hardware threads.
    pub num_cores: usize,
    /// Cores.
    #[serde(default)]
    pub num_physical_cores: usize,
    /// Sockets.
    #[serde(default)]
    pub num_sockets: usize,
    /// Bytes of memory.
    pub memory_capacity: u64,
    /// Huge pages of the machine.
    #[serde(default)]
    pub hugepages: Option<Vec<HugePages>>,
    /// NUMA nodes.
    pub topology: Vec<Node>,
}

/// Huge pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugePages {
    /// The size of a page in KiB.
    pub page_size: u64,
    /// Their number.
    pub num_pages: u64,
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The zone's id.
    pub node_id: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Huge pages of the zone.
    #[serde(default)]
    pub hugepages: Option<Vec<HugePages>>,
    /// Cores; none for a zone of memory only.
    #[serde(default)]
    pub cores: Option<Vec<Core>>,
    /// Distances to all zones, in their order.
    #[serde(default)]
    pub distances: Option<Vec<u64>>,
}

/// One core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// The id within the socket.
    pub core_id: u32,
    /// Its hardware threads.
    pub thread_ids: Vec<u32>,
    /// The socket.
    #[serde(default)]
    pub socket_id: u32,
    /// Last-level caches that not the whole socket shares.
    #[serde(default)]
    pub uncore_caches: Option<Vec<Cache>>,
}

/// One cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// The id.
    pub id: u32,
}

/// Why a MachineInfo makes no machine.
#[derive(Debug, thiserror::Error)]
pub enum MachineInfoError {
    /// A CPU or zone makes no sense.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A size of huge pages makes no name.
    #[error(transparent)]
    Name(#[from] ResourceNameError),
    /// The kernel's files.
    #[error(transparent)]
    Sysfs(#[from] sysfs::Error),
    /// A core has no threads.
    #[error("core {core} of zone {zone} has no thread")]
    NoThread {
        /// The zone.
        zone: u32,
        /// The core.
        core: u32,
    },
}

impl MachineInfo {
    /// The machine.
    ///
    /// # Errors
    /// [`MachineInfoError`] names what makes no sense.
    pub fn machine(&self) -> Result<Machine, MachineInfoError> {
        let (mut zones, mut cpus) = (Vec::new(), Vec::new());
        for node in &self.topology {
            let hugepages = node.hugepages.iter().flatten().map(|pages| {
                Ok((
                    ResourceName::hugepages(pages.page_size.saturating_mul(1024))?,
                    pages.num_pages.saturating_mul(pages.page_size.saturating_mul(1024)),
                ))
            });
            zones.push(MachineZone {
                id: node.node_id,
                memory: node.memory,
                hugepages: hugepages.collect::<Result<_, ResourceNameError>>()?,
                distances: node.distances.clone().unwrap_or_default(),
            });
            for core in node.cores.iter().flatten() {
                let none = MachineInfoError::NoThread { zone: node.node_id, core: core.core_id };
                let lowest = *core.thread_ids.iter().min().ok_or(none)?;
                let cache =
                    core.uncore_caches.iter().flatten().next().map_or(core.socket_id, |cache| cache.id);
                let cpu = |id| Cpu { id, core: lowest, socket: core.socket_id, zone: node.node_id, cache };
                cpus.extend(core.thread_ids.iter().map(|id| cpu(*id)));
            }
        }
        Ok(Machine::new(zones, &cpus)?)
    }
}

/// The machine whose kernel's files are at `sysfs`. Caches count where a socket has several, as for cAdvisor.
///
/// # Errors
/// When a file cannot be read, or what the files say makes no machine.
pub fn of_sysfs(sysfs: &Sysfs) -> Result<Machine, MachineInfoError> {
    of_kernel(&sysfs.machine()?, &sysfs.layout()?, &sysfs.sockets()?)
}

/// The machine of which the kernel says this. Cost: CPUs x cores.
///
/// # Errors
/// When what it says makes no machine.
pub fn of_kernel(
    kernel: &sysfs::Machine,
    layout: &Layout,
    sockets: &BTreeMap<u32, CpuSet>,
) -> Result<Machine, MachineInfoError> {
    let position = |groups: &[CpuSet], cpu| {
        (0_u32..).zip(groups).find(|(_, group)| group.contains(cpu)).map(|(at, _)| at)
    };
    let mut cpus = Vec::new();
    for zone in &kernel.zones {
        for id in zone.cpus.iter() {
            let core =
                layout.cores.iter().find(|core| core.contains(id)).and_then(CpuSet::first).unwrap_or(id);
            let socket = sockets.iter().find(|(_, cpus)| cpus.contains(id)).map_or(0, |(socket, _)| *socket);
            let split = layout.caches.len() > sockets.len();
            let cache = position(&layout.caches, id).filter(|_| split).unwrap_or(socket);
            cpus.push(Cpu { id, core, socket, zone: zone.id.0, cache });
        }
    }
    let mut zones = Vec::new();
    for zone in &kernel.zones {
        let pages = zone.hugepages.iter().map(|pages| Ok((pages.resource()?, pages.total_bytes)));
        zones.push(MachineZone {
            id: zone.id.0,
            memory: zone.memory_bytes,
            hugepages: pages.collect::<Result<_, ResourceNameError>>()?,
            distances: zone.distances.iter().map(|(_, distance)| u64::from(*distance)).collect(),
        });
    }
    Ok(Machine::new(zones, &cpus)?)
}
