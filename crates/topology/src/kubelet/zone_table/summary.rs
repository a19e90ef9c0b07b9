//! What decides most verdicts about a node, side by side in memory: the amounts of its zones.
//!
//! In: a [`ZoneTable`], and the same zones as a [`Free`] table. Out: a certain yes, and the amounts for scores. Never:
//! a no; a pod that is not held may fit all the same ([`fits`](super::fits)).
//!
//! A scheduler looks at thousands of nodes for a pod, and at each of them for the first time since the last pod. What
//! counts then is the number of places in memory. One zone that has all amounts of a pod, needed or not, is an
//! alignment that every manager prefers (`one_zone`).

use std::sync::Arc;

use smallvec::SmallVec;

use crate::kubelet::Kubelet;
use crate::kubelet::hint::ZoneMask;
use crate::kubelet::pod::{Container, MemoryAmounts};
use crate::kubelet::zone_table::ZoneTable;
use crate::policy::CpuOption;
use crate::request::{ContainerKind, PodNeeds, Qos};
use crate::resource::{ResourceKind, ResourceName};
use crate::zone::{Cells, Free, Layout, MAX_ZONES};

/// The amounts of a node's zones.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C)] // what is read first comes first, in as few cache lines as can be
pub struct ZoneSummary {
    /// The zones that certainly have what their rows say; a bit for each row.
    certain: u64,
    /// The CPUs that may be handed out as whole cores.
    on_whole_cores: u32,
    /// CPUs of a container come in such multiples.
    cpus_per_core: u32,
    /// Rows and columns, of which equal nodes share one.
    layout: Arc<Layout>,
    cells: SmallVec<[i64; 8]>,
}

impl ZoneSummary {
    /// The summary of a node; `None` where numbers of CPUs or bytes do not decide, or where the kubelet's totals are
    /// known, which it leaves out. `free`: the zones' amounts for scores.
    #[must_use]
    pub fn new(kubelet: &Kubelet, table: &ZoneTable, free: &Free) -> Option<Self> {
        let cpus = kubelet.cpus.as_ref();
        let is_simple = cpus.is_none_or(|policy| {
            policy.is_regular() && !policy.options().has(CpuOption::DistributeAcrossNuma)
        });
        let rows = 0..free.layout().zones().len();
        if !is_simple
            || table.checks_totals
            || kubelet.memory.as_ref().is_some_and(|policy| policy.is_over_reserved())
            || rows.len() > MAX_ZONES
        {
            return None;
        }
        let is_certain = |row: &usize| has_what_is_listed(kubelet, table, free, *row);
        let certain = rows.filter(is_certain).fold(0, |bits, row| bits | 1 << row);
        let whole = cpus.filter(|policy| policy.options().has(CpuOption::FullPcpusOnly));
        let cpus_per_core = whole.map_or(1, |_| kubelet.machine.cpus_per_core().max(1));
        let on_whole_cores = whole.map_or(usize::MAX, |_| table.counts.cpus.on_whole_cores.0);
        Some(Self {
            certain,
            on_whole_cores: on_whole_cores.try_into().unwrap_or(u32::MAX),
            cpus_per_core: cpus_per_core.try_into().ok()?,
            layout: free.shared_layout(),
            cells: free.cells().into(),
        })
    }

    /// The amounts by zone.
    #[must_use]
    pub fn amounts(&self) -> Cells<'_> {
        let Self { layout, cells, .. } = self;
        Cells { zones: layout.zones().len(), resources: layout.resources(), amounts: cells }
    }

    /// Whether one zone certainly has all that the pod asks for. Cost: resources of the pod x zones.
    #[must_use]
    pub fn holds(&self, needs: &PodNeeds) -> bool {
        if !is_plain(needs) || !self.has_cores(needs) {
            return false;
        }
        let zones = self.amounts();
        let mut rows = self.certain;
        for need in needs.totals.iter().filter(|need| need.name.kind() != ResourceKind::Host) {
            let Some(column) = zones.column(need.name) else { return false };
            // By index: an iterator with steps divides by their number.
            for row in 0..zones.zones {
                rows &= !(u64::from(zones.row(row)[column] < need.amount) << row);
            }
        }
        rows != 0
    }

    fn has_cores(&self, needs: &PodNeeds) -> bool {
        let per_core = self.cpus_per_core as usize;
        needs.pod.cpus <= self.on_whole_cores as usize
            && (per_core == 1 || needs.pod.containers.iter().all(|it| it.cpus.is_multiple_of(per_core)))
    }
}

/// Whether the sum of the containers says all that the managers go by.
fn is_plain(needs: &PodNeeds) -> bool {
    let states_memory = |container: &Container| container.memory.as_ref().is_some_and(|all| !all.is_empty());
    let is_plain = |container: &Container| {
        container.kind == ContainerKind::App && (needs.qos != Qos::Guaranteed || states_memory(container))
    };
    !needs.pod.pod_level && needs.pod.containers.iter().all(is_plain)
}

/// Whether the managers have in a zone what the table of amounts says.
fn has_what_is_listed(kubelet: &Kubelet, table: &ZoneTable, free: &Free, row: usize) -> bool {
    let layout = free.layout();
    let zone = layout.zones()[row].0;
    let mut memory = MemoryAmounts::new();
    let mut has = |column: usize, name: ResourceName| {
        let amount = free.get(row, column);
        let units = usize::try_from(name.whole_units(amount)).unwrap_or(0);
        match name.kind() {
            ResourceKind::Cpu if kubelet.cpus.is_some() => table.cpus_of(kubelet, zone) >= units,
            ResourceKind::Memory if kubelet.memory.is_some() => {
                memory.push((name, u64::try_from(amount).unwrap_or(0)));
                true
            }
            ResourceKind::Device => {
                let counts = table.counts.devices.iter().find(|counts| counts.name == name);
                counts.is_some_and(|counts| {
                    counts.check(units).is_ok()
                        && (!counts.has_zones || counts.near(ZoneMask::of(zone)) >= units)
                })
            }
            ResourceKind::Cpu | ResourceKind::Memory | ResourceKind::Host => true,
        }
    };
    layout.resources().iter().enumerate().all(|(column, name)| has(column, *name))
        && (kubelet.memory.is_none() || table.memory_of(kubelet, zone).is_some_and(|it| it.holds(&memory)))
}
