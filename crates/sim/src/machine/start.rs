//! The kubelet of a machine at the start of a simulation, by what a report says of its zones.
//!
//! In: amounts of zones, settings of a kubelet; what tholepin's exporter says by ids, if the report is its. Out: the
//! model, and what its managers have handed out already. Never: the real ids of devices, which reports lack. Without
//! ids of CPUs, they are numbered as Linux usually does, the first threads of all cores before the second ones, and
//! each zone is a socket.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use topology::cpuset::CpuSet;
use topology::kubelet::device_manager::{Device, Preference, Resource};
use topology::kubelet::hint::ZoneMask;
use topology::kubelet::machine::{Cpu, MAX_CPU_ID, Machine, MachineError, MachineZone};
use topology::kubelet::memory_manager::Block;
use topology::kubelet::profile::{
    CpuManager, CpuOptions, KubeletProfile, MaxNumaNodes, MemoryManager, ReservedCpus,
};
use topology::kubelet::report::{KubeletReport, ReportedDeviceGroup};
use topology::kubelet::{ContainerAllocation, Kubelet, NodeState};
use topology::policy::Manager;
use topology::resource::{ResourceKind, ResourceName};
use topology::zone::{MAX_ZONES, NodeTopology, Zone, ZoneResource};

/// Settings of a kubelet, in place of those in reports, which most exporters do not write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyOptions {
    /// `cpuManagerPolicyOptions`.
    pub cpus: CpuOptions,
    /// `prefer-closest-numa-nodes` of `topologyManagerPolicyOptions`.
    pub prefer_closest: bool,
}

/// A machine's kubelet when the simulation begins.
#[derive(Clone, Debug)]
pub struct KubeletStart {
    /// Machine and configuration.
    pub kubelet: Arc<Kubelet>,
    /// What the managers have handed out to the machine's residents.
    pub state: NodeState,
    /// Whether CPUs have the ids of a real node.
    pub has_ids: bool,
}

/// Most devices of a resource in a zone, more than any machine has.
const MAX_DEVICES: i64 = 10_000;
/// The name under which residents hold what a report says is not available.
const RESIDENTS: &str = "residents";

impl KubeletStart {
    /// The model of the kubelet that a report is about. Cost: CPUs and devices.
    ///
    /// # Errors
    /// Why there can be no such machine, or why its kubelet refuses to start.
    pub fn new(
        topology: &NodeTopology,
        options: PolicyOptions,
        report: Option<&KubeletReport>,
    ) -> Result<Self, String> {
        check_sizes(topology)?;
        let (machine, reserved) = match report {
            Some(report) => (Machine::new(zones(topology), &report.cpus), report.reserved_cpus.clone()),
            None => numbered(topology),
        };
        let machine = machine.map_err(|error| error.to_string())?;
        let kubelet = Kubelet::new(Arc::new(machine), profile(topology, options, report, reserved))
            .map_err(|refusal| format!("the kubelet refuses to start: {refusal}"))?;
        let mut state = kubelet.empty_state();
        let groups = report.map_or(&[][..], |report| &report.device_groups);
        state.devices.resources = devices(topology, groups);
        let mut held = residents(topology, groups, report.map_or(&[], |report| &report.memory_groups));
        let shared = state.cpus.shared.difference(&kubelet.reserved_cpus());
        held.cpus = match report {
            Some(report) => shared.difference(&report.free_cpus),
            None => first_cpus(topology, &kubelet, &shared),
        };
        state.hold(&RESIDENTS.into(), held);
        Ok(Self { kubelet: Arc::new(kubelet), state, has_ids: report.is_some() })
    }
}

/// # Errors
/// When a zone has more than a model is made for, which no machine has.
fn check_sizes(topology: &NodeTopology) -> Result<(), String> {
    let all: u64 = topology.zones.iter().map(|zone| cpus(zone, capacity)).fold(0, u64::saturating_add);
    if all > u64::from(MAX_CPU_ID) + 1 {
        return Err(format!("{all} CPUs; allowed are up to {}", MAX_CPU_ID + 1));
    }
    let resources = topology.zones.iter().flat_map(|zone| &zone.resources);
    let is_device = |resource: &&ZoneResource| resource.name.kind() == ResourceKind::Device;
    match resources.filter(is_device).find(|resource| resource.allocatable > MAX_DEVICES) {
        Some(resource) => Err(format!(
            "{} of {} in a zone; allowed are up to {MAX_DEVICES}",
            resource.allocatable, resource.name
        )),
        None => Ok(()),
    }
}

/// The machine with CPUs numbered as usual, and its reserved CPUs.
fn numbered(topology: &NodeTopology) -> (Result<Machine, MachineError>, CpuSet) {
    let threads = u64::from(topology.threads_per_core.unwrap_or(1).max(1));
    let counts: Vec<u64> = topology.zones.iter().map(|zone| cpus(zone, capacity)).collect();
    let all_cores: u64 = counts.iter().map(|count| count.div_ceil(threads)).sum();
    let (mut list, mut reserved) = (Vec::new(), CpuSet::new());
    let mut first_core = 0;
    for (zone, count) in topology.zones.iter().zip(&counts) {
        let to_reserve = count.saturating_sub(cpus(zone, |r| r.allocatable));
        for at in 0..*count {
            let core = first_core + at / threads;
            let id = number(core + at % threads * all_cores);
            list.push(Cpu { id, core: number(core), socket: zone.id.0, zone: zone.id.0, cache: zone.id.0 });
            if at < to_reserve {
                // An id beyond the machine's limit is refused below.
                let _ = reserved.insert(id);
            }
        }
        first_core += count.div_ceil(threads);
    }
    if list.is_empty()
        && let Some(zone) = topology.zones.first()
    {
        // Reports of kubelets without the policy static have no CPUs; no machine has none.
        list.push(Cpu { id: 0, core: 0, socket: zone.id.0, zone: zone.id.0, cache: zone.id.0 });
    }
    (Machine::new(zones(topology), &list), reserved)
}

fn zones(topology: &NodeTopology) -> Vec<MachineZone> {
    let distances = |zone: &Zone| -> Option<Vec<u64>> {
        let to =
            |other: &Zone| zone.distances.iter().find(|(id, _)| *id == other.id).map(|(_, d)| u64::from(*d));
        topology.zones.iter().map(to).collect()
    };
    let all: Option<Vec<Vec<u64>>> = topology.zones.iter().map(distances).collect();
    let mut all = all.unwrap_or_default().into_iter();
    let zone = |zone: &Zone| {
        let pages = |resource: &&ZoneResource| {
            resource.name.kind() == ResourceKind::Memory && resource.name != ResourceName::MEMORY
        };
        let hugepages: Vec<_> =
            zone.resources.iter().filter(pages).map(|page| (page.name, bytes(page.allocatable))).collect();
        let of_pages = hugepages.iter().map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
        let memory = resource(zone, ResourceName::MEMORY);
        let memory = memory.map_or(0, |memory| bytes(memory.allocatable).saturating_add(kept(memory)));
        // A machine without memory makes no sense, and reports without a memory manager list none.
        let memory = memory.saturating_add(of_pages).max(1);
        MachineZone { id: zone.id.0, memory, hugepages, distances: all.next().unwrap_or_default() }
    };
    topology.zones.iter().map(zone).collect()
}

fn profile(
    topology: &NodeTopology,
    options: PolicyOptions,
    report: Option<&KubeletReport>,
    reserved: CpuSet,
) -> KubeletProfile {
    let rules = topology.rules;
    let reported = report.map_or(CpuOptions::NONE, |report| report.cpu_options);
    let cpu_options = if options.cpus == CpuOptions::NONE { reported } else { options.cpus };
    let memory = topology.zones.iter().filter_map(|zone| {
        Some((zone.id.0, ResourceName::MEMORY, kept(resource(zone, ResourceName::MEMORY)?)))
    });
    let memory: Vec<_> = memory.collect();
    KubeletProfile {
        minor: report.and_then(|report| report.minor).unwrap_or_default(),
        policy: rules.policy,
        scope: rules.scope,
        prefer_closest: options.prefer_closest || report.is_some_and(|report| report.prefer_closest),
        max_numa_nodes: MaxNumaNodes(u32::try_from(MAX_ZONES).unwrap_or(u32::MAX)),
        cpu_manager: match rules.cpu_manager {
            Manager::Off => CpuManager::None,
            Manager::Unknown | Manager::Static => {
                CpuManager::Static { options: cpu_options, reserved: ReservedCpus::Named(reserved) }
            }
        },
        memory_manager: match rules.memory_manager {
            // A kubelet with the policy Static has memory to hand out.
            Manager::Unknown | Manager::Static if !memory.is_empty() => {
                MemoryManager::Static { reserved: memory }
            }
            _ => MemoryManager::None,
        },
        pod_level_managers: report.is_some_and(|report| report.pod_level_managers),
        ..KubeletProfile::default()
    }
}

/// What plugins list: devices of one zone each, but for those that a report names with several.
fn devices(topology: &NodeTopology, groups: &[ReportedDeviceGroup]) -> BTreeMap<ResourceName, Resource> {
    let mut resources = BTreeMap::<ResourceName, Resource>::new();
    let mut list = |name, zones: ZoneMask, count: i64| {
        let listed = resources
            .entry(name)
            .or_insert_with(|| Resource { devices: BTreeMap::new(), preference: Preference::First });
        let device = Device { zones: Some(zones), healthy: true };
        listed.devices.extend((0..count).map(|at| (device_id(zones, at), device)));
    };
    for zone in &topology.zones {
        for resource in device_resources(zone) {
            let alone = resource.allocatable - in_groups(groups, zone, resource, |group| group.allocatable);
            list(resource.name, ZoneMask::of(zone.id.0), alone);
        }
    }
    for group in groups {
        list(group.resource, group.zones, group.allocatable.into());
    }
    resources
}

fn device_resources(zone: &Zone) -> impl Iterator<Item = &ZoneResource> {
    zone.resources.iter().filter(|resource| resource.name.kind() == ResourceKind::Device)
}

/// Devices of a zone that are close to other zones too.
fn in_groups(
    groups: &[ReportedDeviceGroup],
    zone: &Zone,
    resource: &ZoneResource,
    count: impl Fn(&ReportedDeviceGroup) -> u32,
) -> i64 {
    let here =
        groups.iter().filter(|group| group.resource == resource.name && group.zones.contains(zone.id.0));
    here.map(|group| i64::from(count(group))).sum()
}

/// Memory and devices that are not available: residents have them. They stay, so that it does not matter which one has
/// what.
fn residents(
    topology: &NodeTopology,
    device_groups: &[ReportedDeviceGroup],
    memory_groups: &[ZoneMask],
) -> ContainerAllocation {
    let mut held = ContainerAllocation { name: RESIDENTS.into(), ..ContainerAllocation::default() };
    let mut hold = |name, zones: ZoneMask, count: i64| {
        let ids: BTreeSet<_> = (0..count).map(|at| device_id(zones, at)).collect();
        if !ids.is_empty() {
            held.devices.entry(name).or_default().extend(ids);
        }
    };
    let gone = |group: &ReportedDeviceGroup| group.allocatable.saturating_sub(group.available);
    for zone in &topology.zones {
        for resource in device_resources(zone) {
            let alone = taken(resource) - in_groups(device_groups, zone, resource, gone);
            hold(resource.name, ZoneMask::of(zone.id.0), alone);
        }
    }
    for group in device_groups {
        hold(group.resource, group.zones, gone(group).into());
    }
    let mut memory = BTreeMap::<(ZoneMask, ResourceName), u64>::new();
    for zone in &topology.zones {
        let group = memory_groups.iter().find(|group| group.contains(zone.id.0)).copied();
        let zones = group.unwrap_or(ZoneMask::of(zone.id.0));
        let is_memory = |resource: &&ZoneResource| resource.name.kind() == ResourceKind::Memory;
        for resource in zone.resources.iter().filter(is_memory) {
            *memory.entry((zones, resource.name)).or_default() += bytes(taken(resource));
        }
    }
    let blocks = memory.into_iter().filter(|(_, bytes)| *bytes > 0);
    held.memory = blocks.map(|((zones, name), bytes)| Block { zones, name, bytes }).collect();
    held
}

/// As many CPUs of each zone as are not available, core by core, so that whole cores stay free.
fn first_cpus(topology: &NodeTopology, kubelet: &Kubelet, shared: &CpuSet) -> CpuSet {
    let mut held = CpuSet::new();
    for zone in &topology.zones {
        let of_zone = kubelet.machine().cpu_zones().iter().find(|group| group.id == zone.id.0);
        let mut free: Vec<u32> =
            of_zone.map(|group| group.cpus.intersection(shared).iter().collect()).unwrap_or_default();
        free.sort_by_key(|id| kubelet.machine().cpu(*id).map(|cpu| (cpu.core, cpu.id)));
        for id in free.into_iter().take(usize::try_from(cpus(zone, taken)).unwrap_or(usize::MAX)) {
            // An id of the machine is within the limits of a set.
            let _ = held.insert(id);
        }
    }
    held
}

fn resource(zone: &Zone, name: ResourceName) -> Option<&ZoneResource> {
    zone.resources.iter().find(|resource| resource.name == name)
}

fn capacity(resource: &ZoneResource) -> i64 {
    resource.capacity.max(resource.allocatable)
}

/// What residents hold of a resource.
fn taken(resource: &ZoneResource) -> i64 {
    resource.allocatable.saturating_sub(resource.available).clamp(0, resource.allocatable.max(0))
}

/// Whole CPUs of a zone: parts of one are not handed out.
fn cpus(zone: &Zone, amount: impl Fn(&ZoneResource) -> i64) -> u64 {
    resource(zone, ResourceName::CPU)
        .map_or(0, |cpu| bytes(amount(cpu)) / ResourceName::CPU.base_units().unsigned_abs())
}

/// Memory kept for the system. A kubelet keeps some, also where a report does not say so.
fn kept(memory: &ZoneResource) -> u64 {
    bytes(memory.capacity.saturating_sub(memory.allocatable)).max(1)
}

fn device_id(zones: ZoneMask, at: i64) -> Arc<str> {
    // Ids are taken in their order.
    let first = zones.iter().next().unwrap_or_default();
    format!("{first:03}-{zones}-{at:05}").into()
}

fn bytes(amount: i64) -> u64 {
    u64::try_from(amount).unwrap_or(0)
}

fn number(id: u64) -> u32 {
    u32::try_from(id).unwrap_or(u32::MAX)
}
