//! CPUs that share a core (SMT siblings) or a last-level cache.

use std::path::Path;

use topology::cpuset::CpuSet;

use super::{Error, content, cpu_list, number};
use crate::file;

/// Groups of online CPUs. Within each list the groups are disjoint and ordered by their smallest CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// CPUs of one core each. Every online CPU is in exactly one.
    pub cores: Vec<CpuSet>,
    /// CPUs under one last-level cache each. CPUs for which the kernel lists no cache (many virtual machines) are in
    /// none.
    pub caches: Vec<CpuSet>,
}

/// Reads `cpuN/topology/thread_siblings_list` and `cpuN/cache/index*` below `cpus`.
pub(super) fn read(cpus: &Path, online: &CpuSet) -> Result<Layout, Error> {
    let mut layout = Layout::default();
    let (mut in_core, mut in_cache) = (CpuSet::new(), CpuSet::new());
    for cpu in online.iter() {
        let dir = cpus.join(format!("cpu{cpu}"));
        if !in_core.contains(cpu) {
            let path = dir.join("topology/thread_siblings_list");
            let siblings = match file::read_if_there(&path)? {
                Some(text) => CpuSet::parse(&text),
                None => CpuSet::from_ids([cpu]),
            };
            let siblings = siblings.map_err(|error| content(path.clone(), error.to_string()))?;
            join(&mut layout.cores, &mut in_core, siblings.intersection(online), cpu, &path)?;
        }
        if !in_cache.contains(cpu)
            && let Some(shared) = last_level_cache(&dir.join("cache"))?
        {
            join(&mut layout.caches, &mut in_cache, shared.intersection(online), cpu, &dir.join("cache"))?;
        }
    }
    Ok(layout)
}

/// Adds a group that must contain `cpu`, and no CPU of another group.
fn join(
    groups: &mut Vec<CpuSet>,
    taken: &mut CpuSet,
    group: CpuSet,
    cpu: u32,
    path: &Path,
) -> Result<(), Error> {
    if !group.contains(cpu) {
        return Err(content(path.to_owned(), format!("CPU {cpu} is not in its own group {group}")));
    }
    if !group.is_disjoint(taken) {
        let both = group.intersection(taken);
        return Err(content(path.to_owned(), format!("CPUs {both} are in another group too")));
    }
    *taken = taken.union(&group);
    groups.push(group);
    Ok(())
}

/// The CPUs that share the cache of the highest level, instruction caches aside.
fn last_level_cache(dir: &Path) -> Result<Option<CpuSet>, Error> {
    let mut best: Option<(u64, CpuSet)> = None;
    for name in file::list_if_there(dir)?.unwrap_or_default() {
        if !name.starts_with("index") {
            continue;
        }
        let index = dir.join(&name);
        if file::read_if_there(&index.join("type"))?.is_some_and(|kind| kind.trim() == "Instruction") {
            continue;
        }
        let path = index.join("level");
        let level = number(file::read(&path)?.trim()).map_err(|reason| content(path, reason))?;
        if best.as_ref().is_none_or(|(highest, _)| level > *highest) {
            best = Some((level, cpu_list(&index.join("shared_cpu_list"))?));
        }
    }
    Ok(best.map(|(_, cpus)| cpus))
}
