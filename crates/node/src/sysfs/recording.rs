//! The files of a sysfs that this crate reads for zones, cores and caches: a copy of the machine.
//!
//! In: sysfs. Out: [`Recording`]: paths below its root, with their texts. Never: a file that is not read for these, a
//! line of `meminfo` but the one that is read, or more than [`MAX_FILES`] files or [`MAX_BYTES`] bytes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use topology::zone::ZoneId;

use super::{Error, Sysfs, content, mem_total_line, number, online_zones};
use crate::file::{self, FileError};

/// The limit of files. A machine with 1,024 CPUs has about 14,000.
const MAX_FILES: usize = 100_000;
/// The limit of all texts together.
const MAX_BYTES: usize = 64 << 20;

/// A copy of what is read of a machine.
#[derive(Debug, Default)]
pub struct Recording {
    /// Texts by path below the root. Where only the name of a directory is read, it is an empty file.
    pub files: BTreeMap<PathBuf, String>,
    /// Files of cores and caches that cannot be read. They are empty files, so the copy too cannot be read for these.
    pub unreadable: Vec<FileError>,
}

impl Sysfs {
    /// Copies what [`Sysfs::machine`], [`Sysfs::layout`] and [`Sysfs::core_kinds`] read.
    ///
    /// # Errors
    /// As [`Sysfs::machine`]: of a machine that cannot be described there is no copy. See [`Error`].
    pub fn record(&self) -> Result<Recording, Error> {
        let machine = self.machine()?;
        let mut copy = Copy { root: &self.root, bytes: 0, recording: Recording::default() };
        copy.optional("devices/system/cpu/online")?;
        copy.optional("devices/system/node/online")?;
        for id in online_zones(&self.nodes())? {
            copy.zone(id)?;
        }
        for cpu in machine.cpus.iter() {
            copy.cpu(cpu)?;
        }
        for name in file::list_if_there(&self.root.join("devices"))?.unwrap_or_default() {
            if name.starts_with("cpu_") {
                copy.lenient(&format!("devices/{name}/cpus"))?;
            }
        }
        Ok(copy.recording)
    }
}

/// A copy under way.
struct Copy<'a> {
    root: &'a Path,
    bytes: usize,
    recording: Recording,
}

impl Copy<'_> {
    fn put(&mut self, path: &str, text: String) -> Result<(), Error> {
        self.bytes += text.len();
        self.recording.files.insert(path.into(), text);
        if self.recording.files.len() > MAX_FILES || self.bytes > MAX_BYTES {
            let limit = format!("the machine has more than {MAX_FILES} files or {MAX_BYTES} bytes to record");
            return Err(content(self.root.join(path), limit));
        }
        Ok(())
    }

    /// Copies a file that may be missing; whether it is there.
    fn optional(&mut self, path: &str) -> Result<bool, Error> {
        let Some(text) = file::read_if_there(&self.root.join(path))? else { return Ok(false) };
        self.put(path, text)?;
        Ok(true)
    }

    /// The same, for a file without which the zones are known all the same.
    fn lenient(&mut self, path: &str) -> Result<(), Error> {
        match file::read_if_there(&self.root.join(path)) {
            Ok(None) => Ok(()),
            Ok(Some(text)) => self.put(path, text),
            Err(error) => {
                self.recording.unreadable.push(error);
                self.put(path, String::new())
            }
        }
    }

    fn zone(&mut self, id: ZoneId) -> Result<(), Error> {
        let dir = format!("devices/system/node/node{}", id.0);
        if !self.optional(&format!("{dir}/cpulist"))? {
            for name in file::list_if_there(&self.root.join(&dir))?.unwrap_or_default() {
                if name.strip_prefix("cpu").is_some_and(|id| number(id).is_ok()) {
                    self.put(&format!("{dir}/{name}"), String::new())?;
                }
            }
        }
        let meminfo = format!("{dir}/meminfo");
        let path = self.root.join(&meminfo);
        let line = format!("{}\n", mem_total_line(&path, &file::read(&path)?)?);
        self.put(&meminfo, line)?;
        self.optional(&format!("{dir}/distance"))?;
        let hugepages = format!("{dir}/hugepages");
        for name in file::list_if_there(&self.root.join(&hugepages))?.unwrap_or_default() {
            if name.starts_with("hugepages-") {
                self.optional(&format!("{hugepages}/{name}/nr_hugepages"))?;
            }
        }
        Ok(())
    }

    fn cpu(&mut self, cpu: u32) -> Result<(), Error> {
        let dir = format!("devices/system/cpu/cpu{cpu}");
        self.lenient(&format!("{dir}/topology/thread_siblings_list"))?;
        let cache = format!("{dir}/cache");
        for index in file::list_if_there(&self.root.join(&cache)).ok().flatten().unwrap_or_default() {
            if index.starts_with("index") {
                for name in ["type", "level", "shared_cpu_list"] {
                    self.lenient(&format!("{cache}/{index}/{name}"))?;
                }
            }
        }
        Ok(())
    }
}
