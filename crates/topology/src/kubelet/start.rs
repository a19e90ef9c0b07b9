//! A kubelet and what its managers have handed out, by a report.
//!
//! In: amounts of zones, settings of a kubelet; what tholepin's exporter says by ids, if the report is its. Out: the
//! model, and what its managers have handed out already. Never: the real ids of devices, which reports lack. Without
//! ids of CPUs, they are numbered as Linux usually does, the first threads of all cores before the second ones, and
//! each zone is a socket.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cpuset::{CpuSet, MAX_CPU};
use crate::kubelet::device_manager::{Device, DeviceId, DeviceIds, HeldDevices, Preference, Resource};
use crate::kubelet::hint::ZoneMask;
use crate::kubelet::machine::{Cpu, Machine, MachineError, MachineZone};
use crate::kubelet::memory_manager::Block;
use crate::kubelet::pod::{Container, Pod};
use crate::kubelet::profile::{
    CpuManager, CpuOptions, KubeletProfile, MaxNumaNodes, MemoryManager, ReservedCpus,
};
use crate::kubelet::report::{KubeletReport, ReportedDeviceGroup};
use crate::kubelet::{ContainerAllocation, Kubelet, NodeState};
use crate::placement::holdings::Holding;
use crate::policy::Manager;
use crate::request::{ContainerKind, Qos};
use crate::resource::{ResourceKind, ResourceName};
use crate::zone::{Free, MAX_ZONES, NodeTopology, Zone, ZoneResource};

/// Settings of a kubelet, in place of those in reports, which most exporters do not write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyOptions {
    /// `cpuManagerPolicyOptions`.
    pub cpus: CpuOptions,
    /// `prefer-closest-numa-nodes` of `topologyManagerPolicyOptions`.
    pub prefer_closest: bool,
}

/// A kubelet at the moment of a report.
#[derive(Clone, Debug)]
pub struct KubeletStart {
    /// Machine and configuration.
    pub kubelet: Arc<Kubelet>,
    /// What the managers know if nothing is handed out.
    pub vacant: Arc<NodeState>,
    /// What is not available, whichever containers have it.
    pub residents: ContainerAllocation,
    /// Whether CPUs have the ids of a real node.
    pub has_ids: bool,
    /// What zones may give to pods.
    pub allocatable: Arc<Free>,
}

/// Most devices of a node, more than any machine has.
const MAX_DEVICES: i64 = 20_000;
/// The name under which residents hold what a report says is not available.
const RESIDENTS: &str = "residents";

impl KubeletStart {
    /// The model of the kubelet that a report is about. Cost: CPUs and devices.
    ///
    /// # Errors
    /// Why there can be no such machine, or why its kubelet refuses to start.
    pub fn new(topology: &NodeTopology, options: PolicyOptions) -> Result<Self, String> {
        let report = topology.kubelet.as_deref();
        check_sizes(topology, report.map_or(&[][..], |report| &report.device_groups))?;
        let (machine, reserved) = match report {
            Some(report) => (Machine::new(zones(topology), &report.cpus), report.reserved_cpus.clone()),
            None => numbered(topology),
        };
        let machine = machine.map_err(|error| error.to_string())?;
        let kubelet = Kubelet::new(Arc::new(machine), profile(topology, options, report, reserved))
            .map_err(|refusal| format!("the kubelet refuses to start: {refusal}"))?;
        let mut vacant = kubelet.empty_state();
        let groups = report.map_or(&[][..], |report| &report.device_groups);
        vacant.devices.resources = devices(topology, groups);
        let (kubelet, vacant) = (Arc::new(kubelet), Arc::new(vacant));
        let residents = all_residents(topology, &kubelet, &vacant);
        let allocatable = Arc::new(topology.allocatable());
        Ok(Self { kubelet, vacant, residents, has_ids: report.is_some(), allocatable })
    }

    /// The same kubelet at the moment of a later report; `None` if that is about another machine or configuration.
    /// Cost: CPUs and devices, to compare.
    #[must_use]
    pub fn later(&self, before: &NodeTopology, now: &NodeTopology) -> Option<Self> {
        is_same_node(before, now).then(|| Self {
            kubelet: Arc::clone(&self.kubelet),
            vacant: Arc::clone(&self.vacant),
            residents: all_residents(now, &self.kubelet, &self.vacant),
            has_ids: self.has_ids,
            allocatable: Arc::clone(&self.allocatable),
        })
    }

    /// What the managers have handed out.
    #[must_use]
    pub fn state(&self) -> NodeState {
        self.state_with(self.residents.clone())
    }

    /// What the managers have handed out if residents hold only so much.
    #[must_use]
    pub fn state_with(&self, residents: ContainerAllocation) -> NodeState {
        let mut state = NodeState::clone(&self.vacant);
        state.hold(&RESIDENTS.into(), residents);
        state
    }

    /// Takes what containers of a pod hold, by the report, from what `residents` hold, and returns it, in the same
    /// order. Of devices near the same zones it does not matter which ones these are; those of init containers are
    /// reused first. Finished init containers hold CPUs and devices only (kubelet memorymanager `AddContainer`), and
    /// the report says so. Cost: the residents' devices.
    #[must_use]
    pub fn claim(
        &self,
        residents: &mut ContainerAllocation,
        pod: &Pod,
        held: &[(&Container, &Holding)],
    ) -> Vec<ContainerAllocation> {
        let mut reusable = HeldDevices::new();
        let claim = |(container, holding): &(&Container, &Holding)| {
            residents.cpus.remove_all(&holding.cpus);
            let near = self.kubelet.machine().zones_of(&holding.cpus);
            let zones = holding.memory.unwrap_or(near);
            let pins_memory = self.pins_memory(pod, container) && !zones.is_empty();
            let amounts = container.memory.iter().flatten().filter(|_| pins_memory);
            let memory: Vec<_> =
                amounts.map(|(name, bytes)| Block { zones, name: *name, bytes: *bytes }).collect();
            memory.iter().for_each(|block| take_block(&mut residents.memory, *block));
            let named =
                holding.devices.iter().map(|group| (group.resource, group.zones, group.count as usize));
            let usual = container.devices.iter().filter(|_| holding.devices.is_empty());
            let groups = named.chain(usual.map(|(name, count)| (*name, near, *count)));
            let mut devices = HeldDevices::new();
            for (name, zones, count) in groups {
                let mut ids = self.take_devices(&mut reusable, name, zones, count);
                ids.extend(self.take_devices(&mut residents.devices, name, zones, count - ids.len()));
                if container.kind == ContainerKind::Init {
                    reusable.entry(name).or_default().extend(ids.iter().cloned());
                }
                if !ids.is_empty() {
                    devices.entry(name).or_default().extend(ids);
                }
            }
            let (name, cpus) = (container.name.clone(), holding.cpus.clone());
            ContainerAllocation { name, cpus, memory, devices }
        };
        let claimed = held.iter().map(claim).collect();
        // An empty block would still tie its zones together.
        residents.memory.retain(|block| block.bytes > 0);
        claimed
    }

    /// Whether the kubelet hands out CPUs to this container alone.
    #[must_use]
    pub fn pins_cpus(&self, pod: &Pod, container: &Container) -> bool {
        let profile = self.kubelet.profile();
        container.cpus > 0 && profile.cpu_manager != CpuManager::None && !pod.is_left_alone(profile)
    }

    /// Whether the kubelet pins memory of this container, for as long as it runs.
    #[must_use]
    pub fn pins_memory(&self, pod: &Pod, container: &Container) -> bool {
        let profile = self.kubelet.profile();
        pod.qos == Qos::Guaranteed
            && container.memory.as_ref().is_some_and(|amounts| !amounts.is_empty())
            && profile.memory_manager != MemoryManager::None
            && !pod.is_left_alone(profile)
    }

    /// Whether the container gets devices that are near zones.
    #[must_use]
    pub fn pins_devices(&self, container: &Container) -> bool {
        container.devices.iter().any(|(name, _)| self.vacant.devices.resources.contains_key(name))
    }

    /// So many devices of those near these zones, or fewer.
    fn take_devices(
        &self,
        from: &mut HeldDevices,
        name: ResourceName,
        zones: ZoneMask,
        count: usize,
    ) -> DeviceIds {
        let (Some(held), Some(resource)) = (from.get_mut(&name), self.vacant.devices.resources.get(&name))
        else {
            return DeviceIds::new();
        };
        let is_near =
            |id: &&DeviceId| resource.devices.get(*id).is_some_and(|device| device.zones == Some(zones));
        let taken: DeviceIds = held.iter().filter(is_near).take(count).cloned().collect();
        held.retain(|id| !taken.contains(id));
        taken
    }
}

/// Whether two reports differ only in what is handed out.
fn is_same_node(one: &NodeTopology, other: &NodeTopology) -> bool {
    let same_resource = |(one, other): (&ZoneResource, &ZoneResource)| {
        (one.name, one.capacity, one.allocatable) == (other.name, other.capacity, other.allocatable)
    };
    let same_zone = |(one, other): (&Zone, &Zone)| {
        one.id == other.id
            && one.distances == other.distances
            && one.resources.len() == other.resources.len()
            && one.resources.iter().zip(&other.resources).all(same_resource)
    };
    let same_report = match (one.kubelet.as_deref(), other.kubelet.as_deref()) {
        (Some(one), Some(other)) => one.is_same_kubelet(other),
        (one, other) => one.is_none() && other.is_none(),
    };
    one.rules == other.rules
        && one.threads_per_core == other.threads_per_core
        && one.zones.len() == other.zones.len()
        && one.zones.iter().zip(&other.zones).all(same_zone)
        && same_report
}

/// All that is not available.
fn all_residents(topology: &NodeTopology, kubelet: &Kubelet, vacant: &NodeState) -> ContainerAllocation {
    let report = topology.kubelet.as_deref();
    let groups = report.map_or(&[][..], |report| &report.device_groups);
    let mut residents = residents(topology, groups, report.map_or(&[], |report| &report.memory_groups));
    let shared = vacant.cpus.shared.difference(&kubelet.reserved_cpus());
    residents.cpus = match report {
        Some(report) => shared.difference(&report.free_cpus),
        None => first_cpus(topology, kubelet, &shared),
    };
    residents
}

/// Takes bytes from blocks of the same type, those of the same zones first.
fn take_block(blocks: &mut [Block], taken: Block) {
    let mut left = taken.bytes;
    for same in [true, false] {
        for block in blocks.iter_mut().filter(|block| block.name == taken.name) {
            if (block.zones == taken.zones) == same && block.zones.meets(taken.zones) {
                let bytes = block.bytes.min(left);
                block.bytes -= bytes;
                left -= bytes;
            }
        }
    }
}

/// # Errors
/// When a node has more than a model is made for, which no machine has.
fn check_sizes(topology: &NodeTopology, groups: &[ReportedDeviceGroup]) -> Result<(), String> {
    let all: u64 = topology.zones.iter().map(|zone| cpus(zone, capacity)).fold(0, u64::saturating_add);
    if all > u64::from(MAX_CPU) + 1 {
        return Err(format!("{all} CPUs; allowed are up to {}", MAX_CPU + 1));
    }
    let of_zones = topology.zones.iter().flat_map(device_resources).map(|resource| resource.allocatable);
    let of_groups = groups.iter().map(|group| i64::from(group.allocatable));
    let devices = of_zones.chain(of_groups).fold(0, i64::saturating_add);
    if devices > MAX_DEVICES {
        return Err(format!("{devices} devices; allowed are up to {MAX_DEVICES}"));
    }
    Ok(())
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
        let count = usize::try_from(cpus(zone, taken)).unwrap_or(usize::MAX);
        held.insert_all(&kubelet.machine().core_by_core(shared, ZoneMask::of(zone.id.0), count));
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
