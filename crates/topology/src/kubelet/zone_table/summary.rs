//! What decides most verdicts about a node, side by side in memory: the amounts of its zones and its totals.
//!
//! In: a [`ZoneTable`], and the same zones as a [`Free`] table. Out: a certain yes, and the amounts for scores. Never:
//! a no; a pod that is not held may fit all the same ([`fits`](super::fits)).
//!
//! A scheduler looks at thousands of nodes for a pod, and at each of them for the first time since the last pod. What
//! counts then is the number of places in memory. One zone that has all amounts of a pod, needed or not, is an
//! alignment that every manager prefers (`one_zone`).

use smallvec::SmallVec;

use crate::kubelet::Kubelet;
use crate::kubelet::hint::ZoneMask;
use crate::kubelet::pod::{Container, MemoryAmounts};
use crate::kubelet::zone_table::ZoneTable;
use crate::policy::CpuOption;
use crate::request::{ContainerKind, PodNeeds, Qos};
use crate::resource::{ResourceKind, ResourceName};
use crate::zone::{Cells, Free, MAX_ZONES};

/// The amounts of a node's zones, and what is left of its totals.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C)] // what is read first comes first, in as few cache lines as can be
pub struct ZoneSummary {
    /// The zones that certainly have what their rows say; a bit for each row.
    certain: u64,
    /// The CPUs that may be handed out as whole cores.
    on_whole_cores: u32,
    /// CPUs of a container come in such multiples.
    cpus_per_core: u16,
    zones: u16,
    resources: SmallVec<[ResourceName; 4]>,
    /// A row for each zone, then one of the totals if the kubelet's are known.
    cells: SmallVec<[i64; 16]>,
}

impl ZoneSummary {
    /// The summary of a node; `None` where numbers of CPUs or bytes do not decide. `free`: the zones' amounts for
    /// scores.
    #[must_use]
    pub fn new(kubelet: &Kubelet, table: &ZoneTable, free: &Free) -> Option<Self> {
        let cpus = kubelet.cpus.as_ref();
        let is_simple = cpus.is_none_or(|policy| {
            policy.is_regular() && !policy.options().has(CpuOption::DistributeAcrossNuma)
        });
        let zones = free.layout().zones();
        if !is_simple
            || kubelet.memory.as_ref().is_some_and(|policy| policy.is_over_reserved())
            || zones.len() > MAX_ZONES
        {
            return None;
        }
        let mut resources: SmallVec<[ResourceName; 4]> = free.layout().resources().iter().copied().collect();
        let is_new = |name: &ResourceName| !resources.contains(name) && table.left(*name).is_some();
        let only_totals: SmallVec<[_; 4]> =
            table.totals.iter().map(|total| total.name).filter(is_new).collect();
        resources.extend(only_totals);
        let rows = 0..zones.len();
        let amounts = rows.clone().flat_map(|row| {
            let listed = free.layout().resources().len();
            (0..resources.len()).map(move |column| if column < listed { free.get(row, column) } else { 0 })
        });
        let totals = resources.iter().filter(|_| table.checks_totals);
        let totals = totals.map(|name| table.left(*name).unwrap_or(i64::MAX));
        let is_certain = |row: &usize| has_what_is_listed(kubelet, table, free, *row);
        let certain = rows.clone().filter(is_certain).fold(0, |bits, row| bits | 1 << row);
        let whole = cpus.filter(|policy| policy.options().has(CpuOption::FullPcpusOnly));
        Some(Self {
            zones: u16::try_from(zones.len()).ok()?,
            certain,
            cpus_per_core: whole.map_or(Ok(1), |_| kubelet.machine.cpus_per_core().max(1).try_into()).ok()?,
            on_whole_cores: whole
                .map_or(Ok(u32::MAX), |_| table.counts.cpus.on_whole_cores.0.try_into())
                .ok()?,
            cells: amounts.chain(totals).collect(),
            resources,
        })
    }

    /// The amounts by zone.
    #[must_use]
    pub fn amounts(&self) -> Cells<'_> {
        Cells { zones: self.zones.into(), resources: &self.resources, amounts: &self.cells }
    }

    /// Whether one zone certainly has all that the pod asks for, and the node's totals have. Cost: resources of the pod
    /// x zones.
    #[must_use]
    pub fn holds(&self, needs: &PodNeeds) -> bool {
        if !is_plain(needs) || !self.has_cores(needs) {
            return false;
        }
        let (zones, totals) = (self.amounts(), self.totals());
        let column = |name| self.resources.iter().position(|listed| *listed == name);
        let has_pods = || column(ResourceName::PODS).is_none_or(|column| totals[column] > 0);
        if !totals.is_empty() && !has_pods() {
            return false;
        }
        let mut wanted = SmallVec::<[(usize, i64); 6]>::new();
        for need in &needs.totals {
            let column = column(need.name);
            let left = column.and_then(|column| totals.get(column));
            match column {
                _ if left.is_some_and(|left| need.amount > *left) => return false,
                _ if need.name.kind() == ResourceKind::Host => {}
                Some(column) => wanted.push((column, need.amount)),
                None => return false,
            }
        }
        let has = |zone: &[i64]| wanted.iter().all(|(column, amount)| zone[*column] >= *amount);
        let is_certain = |row: &usize| self.certain >> row & 1 == 1;
        (0..zones.zones).filter(is_certain).any(|row| has(zones.row(row)))
    }

    fn has_cores(&self, needs: &PodNeeds) -> bool {
        let cores = |count: usize| count.is_multiple_of(self.cpus_per_core.into());
        needs.pod.cpus <= self.on_whole_cores as usize
            && (self.cpus_per_core == 1 || needs.pod.containers.iter().all(|it| cores(it.cpus)))
    }

    fn totals(&self) -> &[i64] {
        &self.cells[usize::from(self.zones) * self.resources.len()..]
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
