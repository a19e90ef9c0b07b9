//! The machine as the kernel describes it: NUMA zones with CPUs, memory, hugepages and distances; cores and caches.
//!
//! In: the directory where sysfs is mounted. Out: [`Machine`] (the zones, cheap to read repeatedly), [`Layout`] (CPUs
//! that share a core or a cache) and the kinds of cores. CPUs that are offline are in none of them. Never: a panic, a
//! zone left out because of an invalid file, or an assumption that zone ids are dense: one invalid file is one error
//! that names it.
//!
//! Expected without an error: sparse ids, zones without CPUs or without memory, kernels without hugepages or caches.
//!
//! Taken with one line in the log: no list of online CPUs, a zone without a list of its CPUs, distances that do not
//! match the zones, ids beyond 63 without CPUs, more page sizes than any kernel has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use topology::cpuset::CpuSet;
use topology::resource::{ResourceName, ResourceNameError};
use topology::zone::{MAX_ZONES, ZoneId};

use crate::file::{self, FileError};

mod layout;
mod oddities;
pub mod pci;
mod recording;

pub use layout::Layout;
use oddities::{Oddities, Oddity};
pub use recording::Recording;

/// The NUMA zones of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// CPUs that are online.
    pub cpus: CpuSet,
    /// Zones that are online, ascending by id.
    pub zones: Vec<Zone>,
}

/// One NUMA zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// The kernel's number of the zone.
    pub id: ZoneId,
    /// Its online CPUs; empty for memory-only zones.
    pub cpus: CpuSet,
    /// Its whole memory in bytes (`MemTotal`), hugepages included.
    pub memory_bytes: u64,
    /// Its hugepages, ascending by size; a size without pages has a count of 0.
    pub hugepages: Vec<Hugepages>,
    /// The distance to each online zone, itself included, ascending by id; empty when the kernel does not say.
    pub distances: Vec<(ZoneId, u32)>,
}

/// The hugepages of one size in one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hugepages {
    /// The size of a page in bytes.
    pub page_bytes: u64,
    /// The size of all pages in bytes; `count * page_bytes`.
    pub total_bytes: u64,
}

impl Hugepages {
    /// The Kubernetes name: `hugepages-2Mi`.
    ///
    /// # Errors
    /// When there are too many resource names in this process.
    pub fn resource(&self) -> Result<ResourceName, ResourceNameError> {
        ResourceName::hugepages(self.page_bytes)
    }
}

/// Why the machine cannot be described.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A required file does not exist.
    #[error("{path} is missing: {hint}")]
    Missing {
        /// The file or directory.
        path: PathBuf,
        /// The probable cause.
        hint: &'static str,
    },
    /// A file has invalid content.
    #[error("{path}: {reason}")]
    Content {
        /// The file.
        path: PathBuf,
        /// The cause, with the offending value.
        reason: String,
    },
}

/// A sysfs mount.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
    oddities: Oddities,
}

/// Most sizes of hugepages that are read of a zone. No architecture has a dozen.
const MAX_PAGE_SIZES: usize = 32;

impl Sysfs {
    /// A sysfs mounted at `root` (`/sys`).
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), oddities: Oddities::default() }
    }

    /// Reads the zones, about five small files per zone.
    ///
    /// # Errors
    /// When a file is missing, unreadable or invalid; see [`Error`].
    pub fn machine(&self) -> Result<Machine, Error> {
        let nodes = self.nodes();
        let ids = online_zones(&nodes)?;
        let cpus = self.online_cpus()?;
        let mut zones = Vec::with_capacity(ids.len());
        for id in &ids {
            zones.push(self.zone(*id, &ids, &cpus)?);
        }
        for (index, zone) in zones.iter().enumerate() {
            if let Some(twin) = zones[..index].iter().find(|other| !other.cpus.is_disjoint(&zone.cpus)) {
                let path = nodes.join(format!("node{}/cpulist", zone.id.0));
                let both = twin.cpus.intersection(&zone.cpus);
                return Err(content(path, format!("CPUs {both} are in node{} too", twin.id.0)));
            }
        }
        self.leave_out_remote(&mut zones);
        Ok(Machine { cpus, zones })
    }

    /// Reads which CPUs share a core or a last-level cache. Reads a handful of files per CPU: meant for start-up, not
    /// for every scan.
    ///
    /// # Errors
    /// When a file is unreadable or invalid; see [`Error`].
    pub fn layout(&self) -> Result<Layout, Error> {
        layout::read(&self.root.join("devices/system/cpu"), &self.online_cpus()?)
    }

    /// The online CPUs of each socket, by its id (`cpuN/topology/physical_package_id`). CPUs of which the kernel names
    /// none are in socket 0. Reads a file per CPU.
    ///
    /// # Errors
    /// When a file is unreadable or invalid; see [`Error`].
    pub fn sockets(&self) -> Result<BTreeMap<u32, CpuSet>, Error> {
        let cpus = self.root.join("devices/system/cpu");
        let mut sockets = BTreeMap::<u32, CpuSet>::new();
        for cpu in self.online_cpus()?.iter() {
            let path = cpus.join(format!("cpu{cpu}/topology/physical_package_id"));
            let id = match file::read_if_there(&path)? {
                // Some kernels say -1 where they know of no socket.
                Some(text) if text.trim() == "-1" => 0,
                Some(text) => {
                    text.trim().parse().map_err(|_| content(path, format!("{:?} is no id", text.trim())))?
                }
                None => 0,
            };
            sockets.entry(id).or_default().insert_all(&CpuSet::from_ids([cpu]).unwrap_or_default());
        }
        Ok(sockets)
    }

    /// The online CPUs of each kind, on machines whose cores differ: `cpu_core` (fast) and `cpu_atom` (efficient) on
    /// Intel's, by the kernel's names; empty where all cores are alike. NFD publishes the same names.
    ///
    /// # Errors
    /// When a file is unreadable or invalid; see [`Error`].
    pub fn core_kinds(&self) -> Result<BTreeMap<String, CpuSet>, Error> {
        let devices = self.root.join("devices");
        let online = self.online_cpus()?;
        let mut kinds = BTreeMap::new();
        for name in file::list_if_there(&devices)?.unwrap_or_default() {
            let path = devices.join(&name).join("cpus");
            // Each kind has its own counters, and a directory for them; other devices have other prefixes.
            if !name.starts_with("cpu_") || !path.exists() {
                continue;
            }
            let cpus = cpu_list(&path)?.intersection(&online);
            if !cpus.is_empty() {
                kinds.insert(name, cpus);
            }
        }
        Ok(kinds)
    }

    fn nodes(&self) -> PathBuf {
        self.root.join("devices/system/node")
    }

    /// The CPUs in `online`; without that file those of the zones, whose lists have online CPUs only.
    fn online_cpus(&self) -> Result<CpuSet, Error> {
        let path = self.root.join("devices/system/cpu/online");
        let cpus = match file::read_if_there(&path)? {
            Some(text) => parse_cpus(&path, &text)?,
            None => {
                let mut cpus = CpuSet::new();
                for id in online_zones(&self.nodes())? {
                    cpus = cpus.union(&self.zone_cpus(id)?);
                }
                let text = || format!("{} is missing: the CPUs of all NUMA nodes are used", path.display());
                self.oddities.note(Oddity::NoOnlineCpus, text);
                cpus
            }
        };
        if cpus.is_empty() { Err(content(path, "no CPU is online".to_owned())) } else { Ok(cpus) }
    }

    fn zone(&self, id: ZoneId, online: &[ZoneId], online_cpus: &CpuSet) -> Result<Zone, Error> {
        let dir = self.nodes().join(format!("node{}", id.0));
        Ok(Zone {
            id,
            cpus: self.zone_cpus(id)?.intersection(online_cpus),
            memory_bytes: mem_total(&dir.join("meminfo"))?,
            hugepages: self.hugepages(&dir.join("hugepages"))?,
            distances: self.distances(&dir.join("distance"), online)?,
        })
    }

    /// The CPUs in a zone's `cpulist`; without that file those with a link `cpuN` in the zone's directory.
    fn zone_cpus(&self, id: ZoneId) -> Result<CpuSet, Error> {
        let dir = self.nodes().join(format!("node{}", id.0));
        let path = dir.join("cpulist");
        if let Some(text) = file::read_if_there(&path)? {
            return parse_cpus(&path, &text);
        }
        let hint = "it is in the list of online NUMA nodes";
        let names = file::list_if_there(&dir)?.ok_or_else(|| Error::Missing { path: dir.clone(), hint })?;
        let text = || format!("{} is missing: the directory's links to CPUs are used", path.display());
        self.oddities.note(Oddity::NoCpuList, text);
        let linked = names.iter().filter_map(|name| number(name.strip_prefix("cpu")?).ok());
        CpuSet::from_ids(linked.filter_map(|cpu| u32::try_from(cpu).ok()))
            .map_err(|error| content(dir, error.to_string()))
    }

    /// Leaves out zones that no kubelet can name and that hold no CPUs: memory of GPUs on POWER9 and Grace.
    fn leave_out_remote(&self, zones: &mut Vec<Zone>) {
        let is_remote = |zone: &Zone| zone.id.0 as usize >= MAX_ZONES && zone.cpus.is_empty();
        let remote: Vec<u32> = zones.iter().filter(|zone| is_remote(zone)).map(|zone| zone.id.0).collect();
        if remote.is_empty() {
            return;
        }
        // Lists of nodes have the form of lists of CPUs.
        let list = CpuSet::from_ids(remote.iter().copied()).unwrap_or_default();
        let text = || format!("NUMA nodes {list} are beyond 63 and hold no CPUs: they are left out");
        self.oddities.note(Oddity::Remote, text);
        zones.retain(|zone| !is_remote(zone));
        for zone in zones {
            zone.distances.retain(|(id, _)| remote.binary_search(&id.0).is_err());
        }
    }

    /// Reads every `hugepages-<K>kB/nr_hugepages` of a zone; empty without such a directory (memoryless zones, kernels
    /// without hugepages).
    fn hugepages(&self, dir: &Path) -> Result<Vec<Hugepages>, Error> {
        let mut sizes = Vec::new();
        for name in file::list_if_there(dir)?.unwrap_or_default() {
            let Some(size) = name.strip_prefix("hugepages-") else { continue };
            let bad_size = || content(dir.join(&name), "the name is not hugepages-<size>kB".to_owned());
            let kib = size.strip_suffix("kB").and_then(|kib| number(kib).ok()).filter(|kib| *kib > 0);
            let page_bytes = kib.and_then(|kib| kib.checked_mul(1024)).ok_or_else(bad_size)?;
            sizes.push((page_bytes, name));
        }
        sizes.sort_unstable();
        if let Some(pair) = sizes.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(content(dir.to_owned(), format!("pages of {} bytes are listed twice", pair[0].0)));
        }
        if let Some(rest) = sizes.len().checked_sub(MAX_PAGE_SIZES).filter(|rest| *rest > 0) {
            let path = dir.display();
            let text =
                || format!("{path}: the {MAX_PAGE_SIZES} smallest page sizes are used, {rest} are left out");
            self.oddities.note(Oddity::PageSizes, text);
            sizes.truncate(MAX_PAGE_SIZES);
        }
        sizes.into_iter().map(|(page_bytes, name)| pages(dir.join(name), page_bytes)).collect()
    }

    /// Reads one distance per *online* zone, in ascending order of ids: the position is not the id. Empty if their
    /// number is another: it does not say which zones they belong to.
    fn distances(&self, path: &Path, online: &[ZoneId]) -> Result<Vec<(ZoneId, u32)>, Error> {
        let Some(text) = file::read_if_there(path)? else { return Ok(Vec::new()) };
        let mut values = Vec::with_capacity(online.len());
        for word in text.split_ascii_whitespace() {
            let value =
                number(word).and_then(|value| u32::try_from(value).map_err(|error| error.to_string()));
            values.push(value.map_err(|reason| content(path.to_owned(), reason))?);
        }
        if values.len() != online.len() {
            let (path, values, online) = (path.display(), values.len(), online.len());
            let text = || format!("{path}: has {values} distances for {online} online NUMA nodes: left out");
            self.oddities.note(Oddity::Distances, text);
            return Ok(Vec::new());
        }
        Ok(online.iter().copied().zip(values).collect())
    }
}

/// Ids of online zones, ascending: those in `online`, else every existing `nodeN`.
fn online_zones(nodes: &Path) -> Result<Vec<ZoneId>, Error> {
    let path = nodes.join("online");
    if let Some(text) = file::read_if_there(&path)? {
        // Node lists and CPU lists have one syntax and compatible bounds.
        let ids = CpuSet::parse(&text).map_err(|error| content(path.clone(), error.to_string()))?;
        if ids.is_empty() {
            return Err(content(path, "no NUMA node is online".to_owned()));
        }
        return Ok(ids.iter().map(ZoneId).collect());
    }
    let hint = "the kernel was built without NUMA, or this is not a sysfs mount";
    let names = file::list_if_there(nodes)?.ok_or_else(|| Error::Missing { path: nodes.to_owned(), hint })?;
    let number = |name: &String| name.strip_prefix("node").and_then(|id| number(id).ok());
    let mut ids: Vec<_> =
        names.iter().filter_map(number).filter_map(|id| u32::try_from(id).ok()).map(ZoneId).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() { Err(Error::Missing { path: nodes.join("node0"), hint }) } else { Ok(ids) }
}

fn cpu_list(path: &Path) -> Result<CpuSet, Error> {
    parse_cpus(path, &file::read(path)?)
}

fn parse_cpus(path: &Path, text: &str) -> Result<CpuSet, Error> {
    CpuSet::parse(text).map_err(|error| content(path.to_owned(), error.to_string()))
}

/// The line `Node 0 MemTotal:  32718644 kB`, in bytes.
fn mem_total(path: &Path) -> Result<u64, Error> {
    let text = file::read(path)?;
    let line = mem_total_line(path, &text)?;
    let value = line.split_once("MemTotal:").map(|(_, value)| value.trim()).unwrap_or_default();
    let kib = value.strip_suffix("kB").map(str::trim_end).and_then(|kib| number(kib).ok());
    kib.and_then(|kib| kib.checked_mul(1024))
        .filter(|bytes| i64::try_from(*bytes).is_ok())
        .ok_or_else(|| content(path.to_owned(), format!("MemTotal is {value:?}, expected a number of kB")))
}

/// That line of the text.
fn mem_total_line<'t>(path: &Path, text: &'t str) -> Result<&'t str, Error> {
    let line = text.lines().find(|line| line.contains("MemTotal:"));
    line.ok_or_else(|| content(path.to_owned(), "has no line MemTotal".to_owned()))
}

/// The hugepages of one size, whose directory is given.
fn pages(dir: PathBuf, page_bytes: u64) -> Result<Hugepages, Error> {
    let path = dir.join("nr_hugepages");
    let count = number(file::read(&path)?.trim()).map_err(|reason| content(path.clone(), reason))?;
    let total_bytes = count
        .checked_mul(page_bytes)
        .filter(|bytes| i64::try_from(*bytes).is_ok())
        .ok_or_else(|| content(path, format!("{count} pages of {page_bytes} bytes is impossible")))?;
    Ok(Hugepages { page_bytes, total_bytes })
}

/// Parses a number that consists of digits only.
fn number(text: &str) -> Result<u64, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().ok_or_else(|| {
        format!("{:?} is not a number from 0 to {}", text.chars().take(40).collect::<String>(), u64::MAX)
    })
}

fn content(path: PathBuf, reason: String) -> Error {
    Error::Content { path, reason }
}

#[cfg(test)]
mod tests;
