//! What is free on a node as counts by zone, and whether a pod fits them: yes, no, or not to be said without ids.
//!
//! In: a [`NodeState`], projected; a pod. Out: [`Fit`]. Never: an answer that [`admit`](super::admit) contradicts, nor
//! a CPU or a device.
//!
//! The rules are those of [`admit`](super::admit): the same order of managers, the same hints and the same merge run
//! over counts instead of ids. Memory is counted by zone in the kubelet itself, so for memory nothing is lost. For
//! CPUs and devices the answer is [`Fit::Undetermined`] where the next step depends on which of them an earlier one
//! took:
//!
//! - a container after one whose CPUs or devices came from several zones, and that has to be aligned as well;
//! - CPUs on machines with uneven cores or sockets, where the kubelet computes with means;
//! - CPUs from several zones under `distribute-cpus-across-numa`;
//! - under `full-pcpus-only`, a further container while a reserved core has a free thread;
//! - memory under `best-effort` where no alignment is preferred and the machine has more than four zones;
//! - memory where a node has more than eight zones, and reserves more than a zone has or prefers close zones.
//!
//! # Example
//! ```
//! use std::sync::Arc;
//! use topology::kubelet::machine::{Cpu, Machine, MachineZone};
//! use topology::kubelet::pod::Pod;
//! use topology::kubelet::profile::{CpuManager, CpuOptions, KubeletProfile, ReservedCpus};
//! use topology::kubelet::zone_table::{Fit, Scratch, ZoneTable, fits};
//! use topology::kubelet::{Kubelet, admit, device_manager::Lowest};
//! use topology::policy::Policy;
//! use topology::request::{ContainerKind, ContainerRequest, PodRequest, Qos};
//! use topology::resource::ResourceName;
//!
//! let cpu = |id| Cpu { id, core: id, socket: id / 4, zone: id / 4, cache: id / 4 };
//! let zone = |id| MachineZone { id, memory: 1 << 30, ..MachineZone::default() };
//! let machine = Machine::new(vec![zone(0), zone(1)], &(0..8).map(cpu).collect::<Vec<_>>()).unwrap();
//! let cpu_manager = CpuManager::Static { options: CpuOptions::NONE, reserved: ReservedCpus::Count(1) };
//! let profile = KubeletProfile { policy: Policy::SingleNumaNode, cpu_manager, ..KubeletProfile::default() };
//! let kubelet = Kubelet::new(Arc::new(machine), profile).unwrap();
//! let pod = |uid: &str, cpus: &str| {
//!     let requests = vec![(ResourceName::CPU, cpus.parse().unwrap())];
//!     let container =
//!         ContainerRequest { name: "main".into(), kind: ContainerKind::App, limits: requests.clone(), requests };
//!     let request =
//!         PodRequest { containers: vec![container], stated_qos: Some(Qos::Guaranteed), ..PodRequest::default() };
//!     Pod::new(kubelet.profile(), uid.into(), &request)
//! };
//!
//! let mut state = kubelet.empty_state();
//! let mut table = ZoneTable::new(&kubelet, &state);
//! let mut scratch = Scratch::default();
//! assert_eq!(fits(&kubelet, &table, &pod("a", "4"), &mut scratch), Fit::Yes);
//! admit(&kubelet, &mut state, &pod("a", "4"), &Lowest).unwrap();
//! table.update(&kubelet, &state);
//! assert!(matches!(fits(&kubelet, &table, &pod("b", "4"), &mut scratch), Fit::No(_)), "zone 0 has 3 CPUs for pods");
//! ```

mod counted;
mod cpus;
mod devices;
mod one_zone;
mod summary;

use crate::kubelet::admission::Admission;
use crate::kubelet::memory_manager::{MemoryCounts, ZoneMemory};
use crate::kubelet::pod::Pod;
use crate::kubelet::rejection::Rejection;
use crate::kubelet::zone_table::counted::{Counted, Stop};
use crate::kubelet::zone_table::cpus::CpuCounts;
use crate::kubelet::zone_table::devices::DeviceCounts;
use crate::kubelet::{Kubelet, NodeState};
use crate::resource::{ResourceKind, ResourceName};

pub use summary::ZoneSummary;

/// Whether a kubelet would admit a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It would.
    Yes,
    /// It would not, for this reason. Amounts in it are exact, but for CPUs after earlier containers of the pod, and
    /// CPUs under `best-effort`.
    No(Rejection),
    /// Counts cannot tell. [`admit`](super::admit) can.
    Undetermined,
}

/// What is free on a node, by zone. Pods that have ended are counted as gone, as an admission finds them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneTable {
    counts: Counts,
    /// Pods on the node.
    pods: i64,
    /// Whether the kubelet's totals are known, and so checked.
    checks_totals: bool,
    totals: Vec<Total>,
}

/// One of the node's totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Total {
    name: ResourceName,
    /// What pods take.
    used: i64,
    /// What the node may give to pods at least, if it knows the resource.
    capacity: Option<i64>,
}

/// Memory that admissions on counts use again and again.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    counts: Counts,
}

/// The counts of all managers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    cpus: CpuCounts,
    memory: MemoryCounts,
    devices: Vec<DeviceCounts>,
}

impl ZoneTable {
    /// The counts of a state. Cost: CPUs / 64 x zones, devices, and pods x resources.
    #[must_use]
    pub fn new(kubelet: &Kubelet, state: &NodeState) -> Self {
        let mut table = Self::default();
        table.update(kubelet, state);
        table
    }

    /// Replaces the counts by those of a state. Costs as much as a new table, but for the allocation of its lists.
    pub fn update(&mut self, kubelet: &Kubelet, state: &NodeState) {
        let mut swept = None;
        let state = if state.has_stale() {
            let state = swept.insert(state.clone());
            state.sweep();
            state
        } else {
            state
        };
        self.counts.cpus.fill(kubelet, &state.cpus);
        self.counts.memory.copy_from(&state.memory.counts);
        self.counts.memory.forget_reusable();
        devices::fill(&mut self.counts.devices, &state.devices);
        self.pods = i64::try_from(state.pods.len()).unwrap_or(i64::MAX);
        self.totals.clear();
        self.checks_totals = kubelet.profile.allocatable.is_some();
        for (name, amount) in kubelet.profile.allocatable.iter().flatten() {
            self.total(*name).capacity = Some(*amount);
        }
        for (name, resource) in &state.devices.resources {
            let healthy = resource.devices.values().filter(|device| device.healthy).count();
            self.total(*name).capacity = Some(i64::try_from(healthy).unwrap_or(i64::MAX));
        }
        for need in state.pods.iter().flat_map(|pod| &pod.totals) {
            let total = self.total(need.name);
            total.used = total.used.saturating_add(need.amount);
        }
        self.total(ResourceName::PODS).used = self.pods;
    }

    fn total(&mut self, name: ResourceName) -> &mut Total {
        let at = self.totals.iter().position(|total| total.name == name).unwrap_or_else(|| {
            self.totals.push(Total { name, used: 0, capacity: None });
            self.totals.len() - 1
        });
        &mut self.totals[at]
    }

    /// What is left of a total at least; `None` where that is not checked, as by `check_totals`.
    fn left(&self, name: ResourceName) -> Option<i64> {
        let total = self.totals.iter().find(|total| total.name == name);
        match total.and_then(|total| Some(total.capacity?.saturating_sub(total.used))) {
            _ if !self.checks_totals => None,
            Some(left) => Some(left),
            None if matches!(name.kind(), ResourceKind::Device | ResourceKind::Host) => None,
            None => Some(0),
        }
    }

    /// The free CPUs of a zone.
    fn cpus_of(&self, kubelet: &Kubelet, zone: u32) -> usize {
        let zones = kubelet.machine.cpu_zone_mask();
        let here = zones.contains(zone).then(|| self.counts.cpus.by_zone.get(zones.rank(zone)));
        here.flatten().copied().unwrap_or(0)
    }

    /// The memory of a zone.
    fn memory_of(&self, kubelet: &Kubelet, zone: u32) -> Option<&ZoneMemory> {
        self.counts.memory.zones.get(kubelet.machine.zone_mask().rank(zone))
    }

    /// Whether the node's totals are enough for one more pod.
    fn has_room(&self, pod: &Pod) -> bool {
        let has = |name, amount| self.left(name).is_none_or(|left| amount <= left);
        has(ResourceName::PODS, 1) && pod.totals.iter().all(|need| has(need.name, need.amount))
    }
}

/// Whether a kubelet in this state would admit a pod that it does not know yet. The table must be of the same kubelet.
///
/// Cost: zones x resources where one zone decides. Otherwise that of [`merge`](super::topology_manager::merge) for each
/// container, or once under the scope `pod`. Nothing is allocated for pods of one container; for others nothing once
/// `scratch` has its size.
#[must_use]
pub fn fits(kubelet: &Kubelet, table: &ZoneTable, pod: &Pod, scratch: &mut Scratch) -> Fit {
    one_zone::decide(kubelet, table, pod).unwrap_or_else(|| by_hints(kubelet, table, pod, scratch))
}

fn by_hints(kubelet: &Kubelet, table: &ZoneTable, pod: &Pod, scratch: &mut Scratch) -> Fit {
    let managers = Counted::new(kubelet, table, pod, scratch);
    match (Admission { kubelet, pod, managers }).run() {
        Ok(_) => Fit::Yes,
        Err(Stop::Rejected(rejection)) => Fit::No(rejection),
        Err(Stop::Unknown) => Fit::Undetermined,
    }
}
