//! A [`Layout`] as files: what Linux shows of a machine under `/sys/devices/system`, `/sys/kernel/mm/hugepages`,
//! `/proc/meminfo` and `/proc/cpuinfo`, as far as the kubelet (cAdvisor) and exporters read it.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::Context as _;
use topology::cpuset::CpuSet;

use super::{Cpu, DEFAULT_HUGE_PAGE_KIB, Layout, Zone};

/// What the tree has stand-ins for, below the root.
pub(super) const MOUNTS: [&str; 5] = [
    "sys/devices/system/node",
    "sys/devices/system/cpu",
    "sys/kernel/mm/hugepages",
    "proc/meminfo",
    "proc/cpuinfo",
];

/// Writes all of it below `root`.
pub(super) fn write(layout: &Layout, root: &Path) -> anyhow::Result<()> {
    let system = root.join("sys/devices/system");
    write_nodes(layout, &system.join("node"))?;
    write_cpus(layout, &system.join("cpu"))?;
    write_machine_hugepages(layout, &root.join("sys/kernel/mm/hugepages"))?;
    put(&root.join("proc"), "meminfo", &machine_meminfo(layout))?;
    put(&root.join("proc"), "cpuinfo", &cpuinfo(layout))
}

/// Linux' list format, for CPUs and zones alike.
pub(super) fn list(ids: impl IntoIterator<Item = u32>) -> anyhow::Result<String> {
    Ok(CpuSet::from_ids(ids)?.to_string())
}

/// Linux' mask format: groups of 32 bits in hex, the highest first.
pub(super) fn mask(ids: &[u32], count: usize) -> String {
    let mut groups = vec![0u32; count.div_ceil(32).max(1)];
    for &id in ids {
        if let Some(group) = groups.get_mut(id as usize / 32) {
            *group |= 1 << (id % 32);
        }
    }
    let texts: Vec<String> = groups.iter().rev().map(|group| format!("{group:08x}")).collect();
    texts.join(",")
}

fn write_nodes(layout: &Layout, dir: &Path) -> anyhow::Result<()> {
    let ids = || layout.zones.iter().map(|zone| zone.id);
    let max = ids().max().unwrap_or(0);
    put(dir, "online", &list(ids())?)?;
    put(dir, "possible", &list(0..=max)?)?;
    put(
        dir,
        "has_cpu",
        &list(layout.zones.iter().filter(|zone| !zone.cpus.is_empty()).map(|zone| zone.id))?,
    )?;
    let with_memory = list(layout.zones.iter().filter(|zone| zone.memory_kib > 0).map(|zone| zone.id))?;
    put(dir, "has_memory", &with_memory)?;
    put(dir, "has_normal_memory", &with_memory)?;
    for zone in &layout.zones {
        let node = dir.join(format!("node{}", zone.id));
        put(&node, "cpulist", &list(zone.cpus.iter().copied())?)?;
        put(&node, "cpumap", &mask(&zone.cpus, ids_of(layout)))?;
        let distances: Vec<String> = zone.distances.iter().map(u32::to_string).collect();
        put(&node, "distance", &distances.join(" "))?;
        put(&node, "meminfo", &zone_meminfo(zone))?;
        fs::create_dir_all(node.join("hugepages"))?;
        for (size, pages) in &zone.hugepages {
            let pool = node.join(format!("hugepages/hugepages-{size}kB"));
            put(&pool, "nr_hugepages", &pages.to_string())?;
            put(&pool, "free_hugepages", &pages.to_string())?;
            put(&pool, "surplus_hugepages", "0")?;
        }
        for cpu in &zone.cpus {
            link(&format!("../../cpu/cpu{cpu}"), &node.join(format!("cpu{cpu}")))?;
        }
    }
    Ok(())
}

fn write_cpus(layout: &Layout, dir: &Path) -> anyhow::Result<()> {
    let all = || layout.cpus.iter();
    let last = ids_of(layout).saturating_sub(1);
    put(dir, "online", &list(layout.online())?)?;
    put(dir, "offline", &list(all().filter(|cpu| !cpu.online).map(|cpu| cpu.id))?)?;
    put(dir, "possible", &list(all().map(|cpu| cpu.id))?)?;
    put(dir, "present", &list(all().map(|cpu| cpu.id))?)?;
    put(dir, "kernel_max", &last.to_string())?;
    for cpu in all() {
        let own = dir.join(format!("cpu{}", cpu.id));
        if cpu.id != 0 {
            put(&own, "online", if cpu.online { "1" } else { "0" })?;
        }
        // The kernel takes a CPU's topology, caches and node links away while it is offline.
        if cpu.online {
            write_topology(layout, cpu, &own.join("topology"))?;
            write_caches(layout, cpu, &own.join("cache"))?;
            link(&format!("../../node/node{}", cpu.zone), &own.join(format!("node{}", cpu.zone)))?;
        }
    }
    Ok(())
}

fn write_topology(layout: &Layout, cpu: &Cpu, dir: &Path) -> anyhow::Result<()> {
    let package: Vec<u32> = online(layout, |other| other.socket == cpu.socket);
    put(dir, "core_id", &cpu.core.to_string())?;
    put(dir, "physical_package_id", &cpu.socket.to_string())?;
    put(dir, "die_id", "0")?;
    for name in ["thread_siblings_list", "core_cpus_list"] {
        put(dir, name, &list(cpu.siblings.iter().copied())?)?;
    }
    for name in ["core_siblings_list", "package_cpus_list"] {
        put(dir, name, &list(package.iter().copied())?)?;
    }
    Ok(())
}

fn write_caches(layout: &Layout, cpu: &Cpu, dir: &Path) -> anyhow::Result<()> {
    let sharing = online(layout, |other| other.llc == cpu.llc);
    let core_id = cpu.siblings.first().copied().unwrap_or(cpu.id);
    let of_core = [(1, "Data", "32K"), (1, "Instruction", "32K"), (2, "Unified", "1024K")];
    let of_core = of_core.map(|(level, kind, size)| (level, kind, size, core_id, &cpu.siblings));
    let last = cpu.llc.map(|id| (3, "Unified", "32768K", id, &sharing));
    let caches = of_core.into_iter().chain(last);
    for (index, (level, kind, size, id, shared)) in caches.enumerate() {
        let own = dir.join(format!("index{index}"));
        put(&own, "level", &level.to_string())?;
        put(&own, "type", kind)?;
        put(&own, "size", size)?;
        put(&own, "id", &id.to_string())?;
        put(&own, "shared_cpu_list", &list(shared.iter().copied())?)?;
        put(&own, "shared_cpu_map", &mask(shared, ids_of(layout)))?;
    }
    Ok(())
}

fn write_machine_hugepages(layout: &Layout, dir: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    for (size, pages) in layout.hugepages() {
        let pool = dir.join(format!("hugepages-{size}kB"));
        put(&pool, "nr_hugepages", &pages.to_string())?;
        put(&pool, "free_hugepages", &pages.to_string())?;
        put(&pool, "resv_hugepages", "0")?;
        put(&pool, "surplus_hugepages", "0")?;
    }
    Ok(())
}

fn zone_meminfo(zone: &Zone) -> String {
    let free = zone.memory_kib - huge_kib(&zone.hugepages);
    let pages = zone.hugepages.get(&DEFAULT_HUGE_PAGE_KIB).copied().unwrap_or(0);
    let mut text = String::new();
    for (key, value, unit) in [
        ("MemTotal", zone.memory_kib, " kB"),
        ("MemFree", free, " kB"),
        ("MemUsed", zone.memory_kib - free, " kB"),
        ("HugePages_Total", pages, ""),
        ("HugePages_Free", pages, ""),
        ("HugePages_Surp", 0, ""),
    ] {
        let _ = writeln!(text, "Node {} {:<16}{value:>10}{unit}", zone.id, format!("{key}:"));
    }
    text
}

fn machine_meminfo(layout: &Layout) -> String {
    let huge = layout.hugepages();
    let total = layout.memory_kib();
    let free = total - huge_kib(&huge);
    let pages = huge.get(&DEFAULT_HUGE_PAGE_KIB).copied().unwrap_or(0);
    let mut text = String::new();
    for (key, value, unit) in [
        ("MemTotal", total, " kB"),
        ("MemFree", free, " kB"),
        ("MemAvailable", free, " kB"),
        ("SwapTotal", 0, " kB"),
        ("SwapFree", 0, " kB"),
        ("HugePages_Total", pages, ""),
        ("HugePages_Free", pages, ""),
        ("HugePages_Rsvd", 0, ""),
        ("HugePages_Surp", 0, ""),
        ("Hugepagesize", DEFAULT_HUGE_PAGE_KIB, " kB"),
        ("Hugetlb", huge_kib(&huge), " kB"),
    ] {
        let _ = writeln!(text, "{:<16}{value:>10}{unit}", format!("{key}:"));
    }
    text
}

/// The part that cAdvisor reads: cores, sockets, and a clock (cAdvisor `machine.Info`).
fn cpuinfo(layout: &Layout) -> String {
    let mut text = String::new();
    for cpu in layout.cpus.iter().filter(|cpu| cpu.online) {
        for (key, value) in [
            ("processor", cpu.id.to_string()),
            ("vendor_id", "testkit".to_owned()),
            ("cpu MHz", "2000.000".to_owned()),
            ("physical id", cpu.socket.to_string()),
            ("core id", cpu.core.to_string()),
        ] {
            let _ = writeln!(text, "{key:<16}: {value}");
        }
        text.push('\n');
    }
    text
}

/// Ids that CPUs may have: one more than the highest.
fn ids_of(layout: &Layout) -> usize {
    layout.cpus.iter().map(|cpu| cpu.id as usize + 1).max().unwrap_or(0)
}

fn huge_kib(pools: &std::collections::BTreeMap<u64, u64>) -> u64 {
    pools.iter().map(|(size, pages)| size * pages).sum()
}

fn online(layout: &Layout, with: impl Fn(&Cpu) -> bool) -> Vec<u32> {
    layout.cpus.iter().filter(|cpu| cpu.online && with(cpu)).map(|cpu| cpu.id).collect()
}

fn put(dir: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let path = dir.join(name);
    fs::write(&path, format!("{}\n", text.trim_end_matches('\n')))
        .with_context(|| format!("writing {}", path.display()))
}

fn link(target: &str, path: &Path) -> anyhow::Result<()> {
    symlink(target, path).with_context(|| format!("linking {}", path.display()))
}
