//! Synthetic machines: the shape of a computer as the kernel would show it.
//!
//! In: zones, CPUs, SMT, sockets, caches, distances, memory, huge pages. Out: a [`Layout`] (who is where,
//! worked out) and a folder that mirrors `/sys` and `/proc` of such a machine, for a kubelet (bind-mounted over
//! the real ones) or for code that takes the root of sysfs as an argument. Shapes that no machine can have are
//! refused.
//!
//! ```
//! use testkit::machine::Machine;
//!
//! let layout = Machine::new().zones(2).cpus_per_zone(16).smt(true).layout().unwrap();
//! assert_eq!(layout.cpus[3].siblings, [3, 19]);
//! ```

mod reported;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Size of the huge pages that `/proc/meminfo` speaks of, in KiB.
const DEFAULT_HUGE_PAGE_KIB: u64 = 2048;

/// A machine being described. Nothing is checked before [`Machine::layout`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    zones: Vec<ZoneSpec>,
    smt: bool,
    interleaved: bool,
    sockets: u32,
    llc_per_zone: u32,
    offline: BTreeSet<u32>,
    distances: Option<Vec<Vec<u32>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ZoneSpec {
    id: u32,
    cpus: u32,
    memory_mib: u64,
    /// Page size in KiB -> pages.
    hugepages: BTreeMap<u64, u64>,
}

/// A machine worked out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// By ascending id.
    pub zones: Vec<Zone>,
    /// By ascending id. Those of a [`Machine`] run from 0 without gaps, offline ones included.
    pub cpus: Vec<Cpu>,
}

/// A NUMA zone of a [`Layout`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// The N of `nodeN`; not necessarily the position.
    pub id: u32,
    /// Online CPUs.
    pub cpus: Vec<u32>,
    /// All memory, huge pages included.
    pub memory_kib: u64,
    /// Page size in KiB -> pages.
    pub hugepages: BTreeMap<u64, u64>,
    /// To every zone of the machine in order of their ids; 10 to itself.
    pub distances: Vec<u32>,
}

/// A logical CPU of a [`Layout`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The M of `cpuM`.
    pub id: u32,
    /// Id of its zone.
    pub zone: u32,
    /// Physical package.
    pub socket: u32,
    /// Core, numbered within the socket.
    pub core: u32,
    /// Online CPUs of the same core, itself included unless offline.
    pub siblings: Vec<u32>,
    /// Last-level cache, where the kernel shows one.
    pub llc: Option<u32>,
    /// Whether the kernel uses it.
    pub online: bool,
}

/// A shape that no machine can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// No zone at all, or none with CPUs.
    #[error("a machine needs at least one zone with CPUs")]
    Empty,
    /// Two zones with one id.
    #[error("zone id {0} is given twice")]
    DuplicateZone(u32),
    /// Ids and zones do not pair up.
    #[error("{ids} zone ids for {zones} zones")]
    ZoneIds {
        /// Ids given.
        ids: usize,
        /// Zones there are.
        zones: usize,
    },
    /// A builder call named a zone that is not there.
    #[error("there is no zone {0}")]
    NoZone(u32),
    /// With SMT a zone holds whole cores.
    #[error("zone {zone}: {cpus} CPUs are not whole cores of two threads")]
    HalfCore {
        /// Id of the zone.
        zone: u32,
        /// Its CPUs.
        cpus: u32,
    },
    /// Sockets hold whole zones.
    #[error("{sockets} sockets for {zones} zones with CPUs: allowed are 1 to {zones}")]
    Sockets {
        /// Sockets given.
        sockets: u32,
        /// Zones with CPUs.
        zones: usize,
    },
    /// Caches hold equal shares of a zone's cores.
    #[error("zone {zone}: {cores} cores cannot be shared by {caches} last-level caches evenly")]
    Caches {
        /// Id of the zone.
        zone: u32,
        /// Its cores.
        cores: u32,
        /// Caches per zone.
        caches: u32,
    },
    /// An offline CPU that is not there, or CPU 0, which Linux never takes offline here.
    #[error("cpu {0} cannot be offline: allowed are 1 to {1}")]
    Offline(u32, u32),
    /// The matrix is not square, or a zone is not the nearest to itself.
    #[error("distances must be {0} rows of {0}, with 10 on the diagonal and more than 10 elsewhere")]
    Distances(usize),
    /// Huge pages are cut from the zone's memory.
    #[error("zone {zone}: huge pages take {hugepages_kib} KiB of {memory_kib} KiB")]
    Hugepages {
        /// Id of the zone.
        zone: u32,
        /// Memory of all its huge pages.
        hugepages_kib: u64,
        /// Memory of the zone.
        memory_kib: u64,
    },
}

/// A machine written to disk: a folder that mirrors the root of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    root: PathBuf,
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine {
    /// Two zones of 16 CPUs and 64 GiB, no SMT, one socket, one last-level cache per zone.
    #[must_use]
    pub fn new() -> Self {
        let zone = |id| ZoneSpec { id, cpus: 16, memory_mib: 64 << 10, hugepages: BTreeMap::new() };
        Self {
            zones: vec![zone(0), zone(1)],
            smt: false,
            interleaved: false,
            sockets: 1,
            llc_per_zone: 1,
            offline: BTreeSet::new(),
            distances: None,
        }
    }

    /// As many zones, with ids from 0, all like the first one now.
    #[must_use]
    pub fn zones(mut self, zones: u32) -> Self {
        let first = self.zones.first().cloned();
        let like =
            first.unwrap_or(ZoneSpec { id: 0, cpus: 16, memory_mib: 64 << 10, hugepages: BTreeMap::new() });
        self.zones = (0..zones).map(|id| ZoneSpec { id, ..like.clone() }).collect();
        self
    }

    /// CPUs (threads) in every zone there is now.
    #[must_use]
    pub fn cpus_per_zone(mut self, cpus: u32) -> Self {
        self.zones.iter_mut().for_each(|zone| zone.cpus = cpus);
        self
    }

    /// Memory of every zone there is now, in MiB.
    #[must_use]
    pub fn memory_mib_per_zone(mut self, mib: u64) -> Self {
        self.zones.iter_mut().for_each(|zone| zone.memory_mib = mib);
        self
    }

    /// Huge pages of one size in every zone there is now; repeat for further sizes.
    #[must_use]
    pub fn hugepages_per_zone(mut self, page_kib: u64, pages: u64) -> Self {
        for zone in &mut self.zones {
            zone.hugepages.insert(page_kib, pages);
        }
        self
    }

    /// Renames the zones, in order: ids may be sparse.
    ///
    /// # Errors
    /// When there are not as many ids as zones.
    pub fn zone_ids(mut self, ids: impl IntoIterator<Item = u32>) -> Result<Self, ShapeError> {
        let ids: Vec<u32> = ids.into_iter().collect();
        if ids.len() != self.zones.len() {
            return Err(ShapeError::ZoneIds { ids: ids.len(), zones: self.zones.len() });
        }
        for (zone, id) in self.zones.iter_mut().zip(ids) {
            zone.id = id;
        }
        Ok(self)
    }

    /// Adds a zone of its own size; without CPUs it is a memory-only zone (CXL, HBM).
    #[must_use]
    pub fn zone(mut self, id: u32, cpus: u32, memory_mib: u64) -> Self {
        self.zones.push(ZoneSpec { id, cpus, memory_mib, hugepages: BTreeMap::new() });
        self
    }

    /// Huge pages of one size in one zone.
    ///
    /// # Errors
    /// When there is no such zone.
    pub fn hugepages(mut self, zone: u32, page_kib: u64, pages: u64) -> Result<Self, ShapeError> {
        let spec = self.zones.iter_mut().find(|spec| spec.id == zone).ok_or(ShapeError::NoZone(zone))?;
        spec.hugepages.insert(page_kib, pages);
        Ok(self)
    }

    /// Two threads a core, numbered `i` and `i + n/2` as Linux does on x86.
    #[must_use]
    pub fn smt(mut self, on: bool) -> Self {
        self.smt = on;
        self
    }

    /// Deals cores to zones in turn (zone 0 gets 0, 2, 4, ...), as some vendors' firmware does, instead of in blocks.
    #[must_use]
    pub fn interleaved(mut self, on: bool) -> Self {
        self.interleaved = on;
        self
    }

    /// Sockets; the zones with CPUs are spread over them in order.
    #[must_use]
    pub fn sockets(mut self, sockets: u32) -> Self {
        self.sockets = sockets;
        self
    }

    /// Last-level caches in each zone with CPUs, each for an equal share of its cores.
    #[must_use]
    pub fn llc_per_zone(mut self, caches: u32) -> Self {
        self.llc_per_zone = caches;
        self
    }

    /// CPUs that exist but are switched off.
    #[must_use]
    pub fn offline(mut self, cpus: impl IntoIterator<Item = u32>) -> Self {
        self.offline = cpus.into_iter().collect();
        self
    }

    /// Distances between the zones in order of their ids. Without it: 10 to itself, 12 within a socket, 20
    /// across, and 30 to and from memory-only zones.
    #[must_use]
    pub fn distances(mut self, matrix: Vec<Vec<u32>>) -> Self {
        self.distances = Some(matrix);
        self
    }

    /// Works the shape out.
    ///
    /// # Errors
    /// When no machine can look like that.
    pub fn layout(&self) -> Result<Layout, ShapeError> {
        let specs = self.checked_zones()?;
        let threads: u32 = if self.smt { 2 } else { 1 };
        let sockets = self.sockets_of(&specs)?;
        let cores = deal_cores(&specs, threads, self.interleaved);
        let count = u32::try_from(cores.len()).unwrap_or(u32::MAX);
        let last = (count * threads).saturating_sub(1);
        if let Some(&cpu) = self.offline.iter().find(|&&cpu| cpu == 0 || cpu > last) {
            return Err(ShapeError::Offline(cpu, last));
        }

        let llcs = self.caches_of(&specs, threads)?;
        let mut dealt_in_zone: BTreeMap<u32, u32> = BTreeMap::new();
        let mut dealt_in_socket: BTreeMap<u32, u32> = BTreeMap::new();
        let mut cpus = Vec::new();
        for (core, &zone) in (0..count).zip(&cores) {
            let all: Vec<u32> = (0..threads).map(|thread| core + thread * count).collect();
            let online: Vec<u32> = all.iter().copied().filter(|cpu| !self.offline.contains(cpu)).collect();
            let socket = sockets[&zone];
            let (first_llc, cores_per_llc) = llcs[&zone];
            let llc = Some(first_llc + bump(&mut dealt_in_zone, zone) / cores_per_llc);
            let core = bump(&mut dealt_in_socket, socket);
            cpus.extend(all.into_iter().map(|id| {
                let is_online = online.contains(&id);
                let siblings = if is_online { online.clone() } else { Vec::new() };
                Cpu { id, zone, socket, core, siblings, llc, online: is_online }
            }));
        }
        cpus.sort_by_key(|cpu| cpu.id);

        let distances = self.distances_of(&specs, &sockets)?;
        let zones = specs
            .into_iter()
            .zip(distances)
            .map(|(spec, distances)| Zone {
                id: spec.id,
                cpus: cpus.iter().filter(|cpu| cpu.online && cpu.zone == spec.id).map(|cpu| cpu.id).collect(),
                memory_kib: spec.memory_mib << 10,
                hugepages: spec.hugepages.clone(),
                distances,
            })
            .collect();
        Ok(Layout { zones, cpus })
    }

    /// Writes the machine into a folder, as [`Layout::write_to`] does.
    ///
    /// # Errors
    /// When no machine can look like that, or the folder cannot be written.
    pub fn write_to(&self, root: &Path) -> anyhow::Result<Tree> {
        self.layout()?.write_to(root)
    }

    /// The zones by id, each possible in itself.
    fn checked_zones(&self) -> Result<Vec<&ZoneSpec>, ShapeError> {
        let mut specs: Vec<&ZoneSpec> = self.zones.iter().collect();
        specs.sort_by_key(|spec| spec.id);
        if let Some(pair) = specs.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(ShapeError::DuplicateZone(pair[0].id));
        }
        if specs.iter().all(|spec| spec.cpus == 0) {
            return Err(ShapeError::Empty);
        }
        for spec in &specs {
            if self.smt && !spec.cpus.is_multiple_of(2) {
                return Err(ShapeError::HalfCore { zone: spec.id, cpus: spec.cpus });
            }
            let hugepages_kib = spec.hugepages.iter().map(|(size, pages)| size * pages).sum();
            let memory_kib = spec.memory_mib << 10;
            if hugepages_kib > memory_kib {
                return Err(ShapeError::Hugepages { zone: spec.id, hugepages_kib, memory_kib });
            }
        }
        Ok(specs)
    }

    /// Zone id -> socket, for zones with CPUs.
    fn sockets_of(&self, specs: &[&ZoneSpec]) -> Result<BTreeMap<u32, u32>, ShapeError> {
        let with_cpus: Vec<u32> = specs.iter().filter(|spec| spec.cpus > 0).map(|spec| spec.id).collect();
        let zones = with_cpus.len();
        if self.sockets == 0 || self.sockets as usize > zones {
            return Err(ShapeError::Sockets { sockets: self.sockets, zones });
        }
        let socket = |position: usize| (position * self.sockets as usize / zones) as u32;
        Ok(with_cpus.into_iter().enumerate().map(|(position, id)| (id, socket(position))).collect())
    }

    /// Zone id -> (its first last-level cache, cores per cache), for zones with CPUs.
    fn caches_of(&self, specs: &[&ZoneSpec], threads: u32) -> Result<BTreeMap<u32, (u32, u32)>, ShapeError> {
        let caches = self.llc_per_zone;
        let mut first = 0;
        let mut all = BTreeMap::new();
        for spec in specs.iter().filter(|spec| spec.cpus > 0) {
            let cores = spec.cpus / threads;
            if caches == 0 || !cores.is_multiple_of(caches) {
                return Err(ShapeError::Caches { zone: spec.id, cores, caches });
            }
            all.insert(spec.id, (first, cores / caches));
            first += caches;
        }
        Ok(all)
    }

    fn distances_of(
        &self,
        specs: &[&ZoneSpec],
        sockets: &BTreeMap<u32, u32>,
    ) -> Result<Vec<Vec<u32>>, ShapeError> {
        let size = specs.len();
        let Some(matrix) = &self.distances else {
            let distance = |a: u32, b: u32| match (sockets.get(&a), sockets.get(&b)) {
                _ if a == b => 10,
                (Some(a), Some(b)) if a == b => 12,
                (Some(_), Some(_)) => 20,
                _ => 30,
            };
            return Ok(specs.iter().map(|a| specs.iter().map(|b| distance(a.id, b.id)).collect()).collect());
        };
        let row_ok = |(i, row): (usize, &Vec<u32>)| {
            row.len() == size && row.iter().enumerate().all(|(j, &d)| if i == j { d == 10 } else { d > 10 })
        };
        if matrix.len() != size || !matrix.iter().enumerate().all(row_ok) {
            return Err(ShapeError::Distances(size));
        }
        Ok(matrix.clone())
    }
}

impl Layout {
    /// Writes the machine into a folder: `sys/devices/system/{node,cpu}`, `sys/kernel/mm/hugepages`, `proc/meminfo` and
    /// `proc/cpuinfo`.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn write_to(&self, root: &Path) -> anyhow::Result<Tree> {
        tree::write(self, root)?;
        Ok(Tree { root: root.to_owned() })
    }

    /// Memory of the whole machine in KiB.
    #[must_use]
    pub fn memory_kib(&self) -> u64 {
        self.zones.iter().map(|zone| zone.memory_kib).sum()
    }

    /// Huge pages of the whole machine: page size in KiB -> pages.
    #[must_use]
    pub fn hugepages(&self) -> BTreeMap<u64, u64> {
        let mut all = BTreeMap::new();
        for (&size, &pages) in self.zones.iter().flat_map(|zone| &zone.hugepages) {
            *all.entry(size).or_default() += pages;
        }
        all
    }

    /// Online CPUs in order.
    #[must_use]
    pub fn online(&self) -> Vec<u32> {
        self.cpus.iter().filter(|cpu| cpu.online).map(|cpu| cpu.id).collect()
    }
}

impl Tree {
    /// The folder; what a real machine has at `/sys/...` is at `sys/...` below it.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The stand-in for `/sys`.
    #[must_use]
    pub fn sys(&self) -> PathBuf {
        self.root.join("sys")
    }

    /// What to mount over what: `(stand-in, real path)`.
    #[must_use]
    pub fn mounts(&self) -> Vec<(PathBuf, PathBuf)> {
        tree::MOUNTS.iter().map(|path| (self.root.join(path), Path::new("/").join(path))).collect()
    }
}

/// The zone of each core, by core number.
fn deal_cores(specs: &[&ZoneSpec], threads: u32, interleaved: bool) -> Vec<u32> {
    let mut left: Vec<(u32, u32)> = specs.iter().map(|spec| (spec.id, spec.cpus / threads)).collect();
    if !interleaved {
        return left.into_iter().flat_map(|(id, cores)| (0..cores).map(move |_| id)).collect();
    }
    let mut dealt = Vec::new();
    while left.iter().any(|&(_, cores)| cores > 0) {
        for (id, cores) in left.iter_mut().filter(|(_, cores)| *cores > 0) {
            dealt.push(*id);
            *cores -= 1;
        }
    }
    dealt
}

/// The count so far, then one more.
fn bump(counts: &mut BTreeMap<u32, u32>, key: u32) -> u32 {
    let count = counts.entry(key).or_default();
    *count += 1;
    *count - 1
}

#[cfg(test)]
mod tests;
