//! One node: sockets, zones, cores with the pods that hold them, and its pods with predicted and observed places.
//!
//! In: a core, a name. Out: a [`NodeDetail`]. Never: a guess at cores where the report does not have them; other
//! exporters' reports have zones alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use scheduler::core::Core;
use scheduler::ledger::{PodHoldings, PodLocation, PodNames, Stage};
use scheduler::pod::PodView;
use serde::Serialize;
use topology::cpuset::CpuSet;
use topology::kubelet::ContainerAllocation;
use topology::kubelet::hint::ZoneMask;
use topology::kubelet::report::KubeletReport;
use topology::placement::holdings::Holding;
use topology::reason::Amount;
use topology::request::Need;
use topology::zone::NodeTopology;

use crate::cluster::NodeRow;

/// A node with all that is known of it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeDetail {
    /// As in the cluster.
    #[serde(flatten)]
    pub row: NodeRow,
    /// Settings of its kubelet's managers that decide alignment.
    pub settings: BTreeMap<&'static str, String>,
    /// Distances between zones: of each zone to the zones in order; none if no exporter says.
    pub distances: Vec<Distances>,
    /// Its sockets; none if the report has no ids.
    pub sockets: Vec<Socket>,
    /// Devices close to several zones.
    pub device_groups: Vec<DeviceGroup>,
    /// Its pods that hold something in zones or may, in the order in which its kubelet sees them.
    pub pods: Vec<PodRow>,
    /// How often its report has contradicted what was expected.
    pub corrections: u64,
}

/// The distances of a zone.
#[derive(Clone, Debug, Serialize)]
pub struct Distances {
    /// The zone.
    pub zone: u32,
    /// Other zones, and itself, with the distance.
    pub to: Vec<(u32, u32)>,
}

/// A socket.
#[derive(Clone, Debug, Serialize)]
pub struct Socket {
    /// Its id.
    pub id: u32,
    /// Its zones, by id.
    pub zones: Vec<SocketZone>,
}

/// The CPUs of a zone in a socket.
#[derive(Clone, Debug, Serialize)]
pub struct SocketZone {
    /// The zone.
    pub id: u32,
    /// Its last-level caches, by id.
    pub caches: Vec<Cache>,
}

/// A last-level cache.
#[derive(Clone, Debug, Serialize)]
pub struct Cache {
    /// Its id.
    pub id: u32,
    /// The cores under it.
    pub cores: Vec<CpuCore>,
}

/// A core.
#[derive(Clone, Debug, Serialize)]
pub struct CpuCore {
    /// Its threads.
    pub threads: Vec<Thread>,
}

/// A CPU as the kernel counts them.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Thread {
    /// Its id.
    pub cpu: u32,
    /// What it is used for.
    pub usage: CpuAssignment,
    /// The pod that holds it, as its place in [`NodeDetail::pods`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<usize>,
}

/// The use of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CpuAssignment {
    /// No container has it to itself.
    Free,
    /// Handed out to no container.
    Reserved,
    /// A container has it to itself.
    Exclusive,
    /// The report says that it is not free, and no known container holds it.
    Unknown,
}

/// Devices close to several zones.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceGroup {
    /// The resource.
    pub resource: &'static str,
    /// The zones.
    pub zones: Vec<u32>,
    /// Healthy devices.
    pub allocatable: u32,
    /// Those that no container has, by the report.
    pub free: u32,
}

/// A pod of the node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRow {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its stage in the kubelet.
    pub stage: &'static str,
    /// Its priority.
    pub priority: i32,
    /// What it asks for.
    pub requests: BTreeMap<&'static str, String>,
    /// Whether what is predicted is certain.
    pub is_certain: bool,
    /// The zones in which it is predicted to hold something.
    pub zones: Vec<u32>,
    /// What is predicted of its containers; none if only zones are known.
    pub predicted: Vec<ContainerHolding>,
    /// What the report says of its containers; none if it says nothing by container.
    pub observed: Vec<ContainerHolding>,
    /// Whether the report says what was predicted; none if one of the two is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_as_predicted: Option<bool>,
}

/// What a container holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContainerHolding {
    /// Its name; empty: the pod as a whole.
    pub container: String,
    /// Its exclusive CPUs, as a list of the kernel.
    pub cpus: String,
    /// The zones of its memory, where it is pinned.
    pub memory: Vec<u32>,
    /// Its devices by resource; of observed ones those that are not all close to the zone of its CPUs.
    pub devices: BTreeMap<&'static str, usize>,
}

impl NodeDetail {
    /// A node; `None` if there is none of this name. Cost: CPUs, and pods x worlds.
    #[must_use]
    pub fn of(core: &Core, name: &str) -> Option<Self> {
        let node = core.node_named(name)?;
        let rejected = core.rejected_pods().get(&node.name).copied().unwrap_or_default();
        let topology = node.ledger.topology();
        let report = topology.and_then(|topology| topology.kubelet.as_deref());
        let places: Vec<PodLocation<'_>> = node.ledger.pod_locations().collect();
        let placed = |place| PodRow::of(place, core.view(place.id), report);
        let pods: Vec<PodRow> = places.iter().map(placed).collect();
        Some(Self {
            row: NodeRow::of(node, rejected),
            settings: topology.map(settings).unwrap_or_default(),
            distances: topology.map(distances).unwrap_or_default(),
            sockets: report.map(|report| sockets(report, &owners(&places))).unwrap_or_default(),
            device_groups: report.map(device_groups).unwrap_or_default(),
            pods,
            corrections: node.ledger.summary().corrections,
        })
    }
}

fn settings(topology: &NodeTopology) -> BTreeMap<&'static str, String> {
    let rules = topology.rules;
    let mut settings = BTreeMap::from([
        ("cpuManagerPolicy", format!("{:?}", rules.cpu_manager).to_lowercase()),
        ("memoryManagerPolicy", format!("{:?}", rules.memory_manager).to_lowercase()),
    ]);
    if let Some(report) = &topology.kubelet {
        settings.insert("reservedCPUs", report.reserved_cpus.to_string());
    }
    settings
}

fn distances(topology: &NodeTopology) -> Vec<Distances> {
    let zones = topology.zones.iter().filter(|zone| !zone.distances.is_empty());
    let to = |zone: &topology::zone::Zone| zone.distances.iter().map(|(id, cost)| (id.0, *cost)).collect();
    zones.map(|zone| Distances { zone: zone.id.0, to: to(zone) }).collect()
}

/// The pod that holds each CPU, as its place in the list. Cost: CPUs.
fn owners(places: &[PodLocation<'_>]) -> BTreeMap<u32, usize> {
    let mut owners = BTreeMap::new();
    for (at, place) in places.iter().enumerate() {
        let PodHoldings::Containers(containers) = place.held else { continue };
        let cpus = containers.iter().flat_map(|container| container.cpus.iter());
        owners.extend(cpus.map(|cpu| (cpu, at)));
    }
    owners
}

fn sockets(report: &KubeletReport, owners: &BTreeMap<u32, usize>) -> Vec<Socket> {
    // Socket, zone, cache, core.
    let mut cpus: Vec<_> = report.cpus.iter().collect();
    cpus.sort_by_key(|cpu| (cpu.socket, cpu.zone, cpu.cache, cpu.core, cpu.id));
    let mut sockets: Vec<Socket> = Vec::new();
    let mut last = None;
    for cpu in cpus {
        let socket =
            entry(&mut sockets, |it| it.id == cpu.socket, || Socket { id: cpu.socket, zones: vec![] });
        let zone =
            entry(&mut socket.zones, |it| it.id == cpu.zone, || SocketZone { id: cpu.zone, caches: vec![] });
        let cache =
            entry(&mut zone.caches, |it| it.id == cpu.cache, || Cache { id: cpu.cache, cores: vec![] });
        if last != Some((cpu.socket, cpu.zone, cpu.cache, cpu.core)) {
            cache.cores.push(CpuCore { threads: Vec::new() });
            last = Some((cpu.socket, cpu.zone, cpu.cache, cpu.core));
        }
        let pod = owners.get(&cpu.id).copied();
        let usage = match pod {
            Some(_) => CpuAssignment::Exclusive,
            None if report.reserved_cpus.contains(cpu.id) => CpuAssignment::Reserved,
            None if report.free_cpus.contains(cpu.id) => CpuAssignment::Free,
            None => CpuAssignment::Unknown,
        };
        if let Some(core) = cache.cores.last_mut() {
            core.threads.push(Thread { cpu: cpu.id, usage, pod });
        }
    }
    sockets
}

/// The last entry if it is the one, else a new one.
fn entry<T>(list: &mut Vec<T>, is_it: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> &mut T {
    if !list.last().is_some_and(is_it) {
        list.push(new());
    }
    let last = list.len() - 1;
    &mut list[last]
}

fn device_groups(report: &KubeletReport) -> Vec<DeviceGroup> {
    let group = |group: &topology::kubelet::report::ReportedDeviceGroup| DeviceGroup {
        resource: group.resource.as_str(),
        zones: group.zones.iter().collect(),
        allocatable: group.allocatable,
        free: group.available,
    };
    report.device_groups.iter().map(group).collect()
}

impl PodRow {
    fn of(place: &PodLocation<'_>, view: Option<&PodView>, report: Option<&KubeletReport>) -> Self {
        let containers = view.map(|view| view.spec.needs.pod.containers.as_slice()).unwrap_or_default();
        let observed = report.into_iter().flat_map(|report| {
            let names = containers.iter().map(|container| &*container.name).chain([""]);
            let of_name =
                |name| Some(ContainerHolding::observed(name, holding(report, place.names, name)?, report));
            names.filter_map(of_name)
        });
        let observed: Vec<ContainerHolding> = observed.collect();
        let (zones, predicted) = match place.held {
            PodHoldings::Zones(zones) => (zones, Vec::new()),
            PodHoldings::Unknown => (ZoneMask::EMPTY, Vec::new()),
            PodHoldings::Containers(all) => {
                let places = all.iter().map(ContainerHolding::predicted).collect();
                (all.iter().map(|it| zones_of(it, report)).fold(ZoneMask::EMPTY, ZoneMask::union), places)
            }
        };
        let is_as_predicted = (!observed.is_empty() && !predicted.is_empty())
            .then(|| observed.iter().all(|seen| predicted.iter().any(|place| place.agrees(seen))));
        let totals = view.map(|view| view.spec.needs.totals.as_slice()).unwrap_or_default();
        let amount = |need: &Need| (need.name.as_str(), Amount(need.name, need.amount).to_string());
        Self {
            namespace: Arc::clone(&place.names.namespace),
            name: Arc::clone(&place.names.name),
            stage: stage(place.stage),
            priority: view.map_or(0, |view| view.priority),
            requests: totals.iter().map(amount).collect(),
            is_certain: place.is_certain,
            zones: zones.iter().collect(),
            predicted,
            observed,
            is_as_predicted,
        }
    }
}

/// The zones in which a container holds CPUs or memory.
fn zones_of(container: &ContainerAllocation, report: Option<&KubeletReport>) -> ZoneMask {
    let memory = container.memory.iter().fold(ZoneMask::EMPTY, |zones, block| zones.union(block.zones));
    report.map_or(memory, |report| memory.union(near(&container.cpus, report)))
}

/// The zones of CPUs. Cost: CPUs of the node.
fn near(cpus: &CpuSet, report: &KubeletReport) -> ZoneMask {
    report.cpus.iter().filter(|cpu| cpus.contains(cpu.id)).map(|cpu| cpu.zone).collect()
}

fn holding<'h>(report: &'h KubeletReport, names: &PodNames, container: &str) -> Option<&'h Holding> {
    report.holdings.of(names.hash(report.holdings.key(), container))
}

fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Pending => "on its way",
        Stage::Admitted => "admitted",
        Stage::Leaving { .. } => "leaving",
        Stage::Released => "released",
    }
}

impl ContainerHolding {
    fn predicted(container: &ContainerAllocation) -> Self {
        let memory = container.memory.iter().fold(ZoneMask::EMPTY, |zones, block| zones.union(block.zones));
        Self {
            container: container.name.to_string(),
            cpus: container.cpus.to_string(),
            memory: memory.iter().collect(),
            devices: container.devices.iter().map(|(name, ids)| (name.as_str(), ids.len())).collect(),
        }
    }

    /// Memory that the report leaves out as usual is in the zones of the CPUs.
    fn observed(container: &str, holding: &Holding, report: &KubeletReport) -> Self {
        let mut devices = BTreeMap::new();
        for group in &holding.devices {
            *devices.entry(group.resource.as_str()).or_default() += group.count as usize;
        }
        let memory = holding.memory.unwrap_or_else(|| near(&holding.cpus, report));
        Self {
            container: container.to_owned(),
            cpus: holding.cpus.to_string(),
            memory: memory.iter().collect(),
            devices,
        }
    }

    /// Whether a report says what was predicted of a container. Usual devices and memory are not in it.
    fn agrees(&self, seen: &Self) -> bool {
        let memory = self.memory.is_empty() || self.memory == seen.memory;
        self.container == seen.container && self.cpus == seen.cpus && memory
    }
}
