//! A [`Layout`] from what cAdvisor reports of a machine, so that a kubelet on it finds just that again.
//!
//! In: a MachineInfo. Out: the layout of such a machine. Never: what cAdvisor does not report: CPUs that are off,
//! caches that a whole zone shares.

use std::collections::BTreeMap;

use node::kubelet::machine::{MachineInfo, Node};

use super::{Cpu, Layout, Zone};

impl Layout {
    /// The machine of which cAdvisor reports this. Memory is rounded down to KiB.
    #[must_use]
    pub fn reported(info: &MachineInfo) -> Self {
        let mut cpus: Vec<Cpu> = info.topology.iter().flat_map(cpus_of).collect();
        cpus.sort_by_key(|cpu| cpu.id);
        let mut zones: Vec<Zone> = info.topology.iter().map(zone).collect();
        zones.sort_by_key(|zone| zone.id);
        Self { zones, cpus }
    }
}

fn cpus_of(node: &Node) -> impl Iterator<Item = Cpu> {
    node.cores.iter().flatten().flat_map(|core| {
        core.thread_ids.iter().map(|&id| Cpu {
            id,
            zone: node.node_id,
            socket: core.socket_id,
            core: core.core_id,
            siblings: core.thread_ids.clone(),
            llc: core.uncore_caches.iter().flatten().next().map(|cache| cache.id),
            online: true,
        })
    })
}

fn zone(node: &Node) -> Zone {
    let mut cpus: Vec<u32> =
        node.cores.iter().flatten().flat_map(|core| core.thread_ids.iter().copied()).collect();
    cpus.sort_unstable();
    let pages = node.hugepages.iter().flatten().map(|pages| (pages.page_size, pages.num_pages));
    let narrow = |distance: &u64| u32::try_from(*distance).unwrap_or(u32::MAX);
    Zone {
        id: node.node_id,
        cpus,
        memory_kib: node.memory / 1024,
        hugepages: pages.collect::<BTreeMap<_, _>>(),
        distances: node.distances.iter().flatten().map(narrow).collect(),
    }
}
