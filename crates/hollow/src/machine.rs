//! The machine and the kubelet of hollow nodes, as the model and the exporter see them.
//!
//! In: a machine of the simulator. Out: the model of its kubelet, with the check of totals; the amounts of its Node
//! object; what the exporter would read of such a node, for the exporter's own [`report`]. Never: what pods hold.
//! Static, so that all nodes of one shape share one value.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use api::convert;
use exporter::configuration::KubeletSettings;
use exporter::object::Content;
use exporter::report::{NodeSnapshot, report};
use exporter::settings::Accounting;
use node::kubelet::state::assignments::{Assignment, Assignments, Block};
use node::kubelet::{Configuration, ReservedCpus};
use node::podresources::{Allocatable, ContainerResources, Devices, MemoryBlock, PodResources};
use node::sysfs::{Layout, Machine as Sysfs, Zone};
use topology::cpuset::CpuSet;
use topology::kubelet::device_manager::{DeviceId, DeviceState};
use topology::kubelet::hint::ZoneMask;
use topology::kubelet::profile::{KubeletProfile, MemoryManager};
use topology::kubelet::start::PolicyOptions;
use topology::kubelet::{Kubelet, NodeState};
use topology::policy::{DEFAULT_MAX_NUMA_NODES, PREFER_CLOSEST_NUMA_NODES};
use topology::resource::ResourceName;
use topology::zone::ZoneId;

/// The kubelet's version: the one that the model has by default.
pub const KUBELET_VERSION: &str = "v1.36.0";
/// The node's disk, in bytes.
const STORAGE_BYTES: i64 = 100 << 30;

/// A machine with its kubelet.
#[derive(Debug)]
pub struct Machine {
    /// The model of the kubelet.
    pub kubelet: Kubelet,
    /// What its managers know while nothing is handed out.
    vacant: Arc<NodeState>,
    /// `status.capacity` of the Node object.
    pub capacity: BTreeMap<&'static str, String>,
    /// `status.allocatable` of the Node object.
    pub allocatable: BTreeMap<&'static str, String>,
    sysfs: Sysfs,
    layout: Layout,
    sockets: BTreeMap<u32, CpuSet>,
    settings: KubeletSettings,
    offered: Allocatable,
    accounting: Accounting,
}

/// A pod of a node, as the kubelet's podresources service would list it.
#[derive(Clone, Copy, Debug)]
pub struct ListedPod<'a> {
    /// The UID.
    pub uid: &'a str,
    /// The namespace.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
    /// The names of its containers that run.
    pub running: &'a [&'a str],
}

impl Machine {
    /// The machine of a simulated one, whose kubelet has these options.
    ///
    /// # Errors
    /// When the kubelet refuses to start, or the exporter could publish nothing for such a machine.
    pub fn new(simulated: &sim::machine::Machine, options: PolicyOptions) -> anyhow::Result<Self> {
        let mut amounts: BTreeMap<ResourceName, i64> =
            simulated.view.allocatable.iter().map(|need| (need.name, need.amount)).collect();
        amounts.insert(ResourceName::EPHEMERAL_STORAGE, STORAGE_BYTES);
        let start = &simulated.start;
        let profile = KubeletProfile {
            allocatable: Some(amounts.iter().map(|(name, amount)| (*name, *amount)).collect()),
            ..start.kubelet.profile().clone()
        };
        let kubelet = Kubelet::new(Arc::new(start.kubelet.machine().clone()), profile)
            .map_err(|refusal| anyhow::anyhow!("the kubelet refuses to start: {refusal}"))?;
        let mut capacity = amounts.clone();
        for zone in &simulated.topology.zones {
            for resource in &zone.resources {
                let kept = resource.capacity.saturating_sub(resource.allocatable);
                let sum = capacity.entry(resource.name).or_default();
                *sum = sum.saturating_add(kept);
            }
        }
        let machine = kubelet.machine();
        let vacant = Arc::clone(&start.vacant);
        let machine = Self {
            capacity: texts(&capacity),
            allocatable: texts(&amounts),
            sysfs: sysfs(&kubelet),
            layout: Layout {
                cores: machine.cores().iter().map(|core| core.cpus.clone()).collect(),
                caches: machine.caches().iter().map(|cache| cache.cpus.clone()).collect(),
            },
            sockets: machine.sockets().iter().map(|socket| (socket.id, socket.cpus.clone())).collect(),
            settings: settings(&kubelet, simulated, options),
            offered: offered(&kubelet, &vacant),
            accounting: Accounting::default(),
            vacant,
            kubelet,
        };
        machine.report(&machine.vacant, &[]).context("the exporter")?;
        Ok(machine)
    }

    /// The state of a kubelet that has handed out nothing.
    #[must_use]
    pub fn vacant(&self) -> NodeState {
        NodeState::clone(&self.vacant)
    }

    /// What the exporter would publish now: its own code on what it would read. Cost: that of the exporter's report,
    /// which is CPUs, and what the listed pods hold.
    ///
    /// # Errors
    /// When the machine has zones that no kubelet can align on.
    pub fn report(&self, state: &NodeState, pods: &[ListedPod<'_>]) -> anyhow::Result<Content> {
        let checkpoints = assignments(state);
        let snapshot = NodeSnapshot {
            machine: &self.sysfs,
            layout: &self.layout,
            sockets: &self.sockets,
            core_kinds: &BTreeMap::new(),
            kubelet: &self.settings,
            allocatable: &self.offered,
            checkpoints: Some(&checkpoints),
        };
        let pods = pods.iter().map(|pod| pod_resources(state, *pod)).collect();
        Ok(report(snapshot, pods, &self.accounting)?.content)
    }
}

fn texts(amounts: &BTreeMap<ResourceName, i64>) -> BTreeMap<&'static str, String> {
    let text = |(name, amount): (&ResourceName, &i64)| {
        (name.as_str(), convert::quantity(*name, *amount).to_string())
    };
    amounts.iter().map(text).collect()
}

/// What `/sys` would show.
fn sysfs(kubelet: &Kubelet) -> Sysfs {
    let machine = kubelet.machine();
    let ids: Vec<ZoneId> = machine.zones().iter().map(|zone| ZoneId(zone.id)).collect();
    let zone = |zone: &topology::kubelet::machine::MachineZone| Zone {
        id: ZoneId(zone.id),
        cpus: machine.cpus_of(ZoneMask::of(zone.id)),
        memory_bytes: zone.memory,
        hugepages: Vec::new(),
        distances: ids
            .iter()
            .zip(&zone.distances)
            .map(|(id, distance)| (*id, u32::try_from(*distance).unwrap_or(u32::MAX)))
            .collect(),
    };
    Sysfs { cpus: machine.cpus().clone(), zones: machine.zones().iter().map(zone).collect() }
}

fn settings(kubelet: &Kubelet, simulated: &sim::machine::Machine, options: PolicyOptions) -> KubeletSettings {
    let rules = simulated.topology.rules;
    let on = |name: &str| (name.to_owned(), "true".to_owned());
    let mut reserved_memory = BTreeMap::<ZoneId, BTreeMap<ResourceName, u64>>::new();
    for (zone, name, bytes) in reserved(kubelet).iter().filter(|(_, _, bytes)| *bytes > 0) {
        reserved_memory.entry(ZoneId(*zone)).or_default().insert(*name, *bytes);
    }
    let zones = u32::try_from(simulated.topology.zones.len()).unwrap_or(u32::MAX);
    let configuration = Configuration {
        rules,
        cpu_manager_options: options.cpus.iter().map(|option| on(option.as_str())).collect(),
        topology_manager_options: options
            .prefer_closest
            .then(|| on(PREFER_CLOSEST_NUMA_NODES))
            .into_iter()
            .collect(),
        max_allowable_numa_nodes: DEFAULT_MAX_NUMA_NODES.max(zones),
        reserved_cpus: ReservedCpus::Listed(kubelet.reserved_cpus()),
        reserved_memory,
        ..Configuration::default()
    };
    KubeletSettings { rules, configuration: Some(configuration) }
}

/// Memory that is kept for the system, by zone.
fn reserved(kubelet: &Kubelet) -> &[(u32, ResourceName, u64)] {
    match &kubelet.profile().memory_manager {
        MemoryManager::Static { reserved } => reserved,
        MemoryManager::None => &[],
    }
}

/// What podresources would list as allocatable.
fn offered(kubelet: &Kubelet, vacant: &NodeState) -> Allocatable {
    let memory = kubelet.machine().zones().iter().filter(|_| {
        // Without the policy Static there is none.
        kubelet.profile().memory_manager != MemoryManager::None
    });
    let kept = |zone: u32| {
        let kept =
            reserved(kubelet).iter().filter(|(of, name, _)| *of == zone && *name == ResourceName::MEMORY);
        kept.map(|(_, _, bytes)| *bytes).fold(0, u64::saturating_add)
    };
    let memory = memory.map(|zone| MemoryBlock {
        resource: ResourceName::MEMORY,
        bytes: zone.memory.saturating_sub(kept(zone.id)),
        zones: vec![ZoneId(zone.id)],
    });
    let devices = vacant.devices.resources.iter().flat_map(|(name, resource)| {
        let healthy = resource.devices.iter().filter(|(_, device)| device.healthy).map(|(id, _)| id);
        by_zone(&vacant.devices, *name, healthy)
    });
    Allocatable {
        cpus: kubelet.free_cpus(vacant).unwrap_or_default(),
        memory: memory.collect(),
        devices: devices.collect(),
    }
}

/// Devices as podresources lists them: those with a zone once for each of their zones.
fn by_zone<'a>(
    state: &DeviceState,
    name: ResourceName,
    ids: impl IntoIterator<Item = &'a DeviceId>,
) -> Vec<Devices> {
    let mut groups = BTreeMap::<Option<u32>, Vec<String>>::new();
    for id in ids {
        let zones = zones_of(state, name, id);
        if zones.is_empty() {
            groups.entry(None).or_default().push(id.to_string());
        }
        for zone in zones.iter() {
            groups.entry(Some(zone)).or_default().push(id.to_string());
        }
    }
    let devices = |(zone, ids): (Option<u32>, _)| Devices {
        resource: name,
        ids,
        zones: zone.map(ZoneId).into_iter().collect(),
    };
    groups.into_iter().map(devices).collect()
}

fn zones_of(state: &DeviceState, name: ResourceName, id: &DeviceId) -> ZoneMask {
    let device = state.resources.get(&name).and_then(|resource| resource.devices.get(id));
    device.and_then(|device| device.zones).unwrap_or(ZoneMask::EMPTY)
}

/// What the checkpoints of the kubelet's managers would say.
fn assignments(state: &NodeState) -> Assignments {
    let mut containers = BTreeMap::<(String, String), Assignment>::new();
    let key = |uid: &str, container: &str| (uid.to_owned(), container.to_owned());
    for pod in &state.cpus.pods {
        for (container, cpus) in &pod.containers {
            containers.entry(key(&pod.uid, container)).or_default().cpus.clone_from(cpus);
        }
    }
    for pod in &state.memory.pods {
        for (container, blocks) in &pod.containers {
            let block = |block: &topology::kubelet::memory_manager::Block| Block {
                resource: block.name,
                zones: block.zones,
                bytes: block.bytes,
            };
            containers.entry(key(&pod.uid, container)).or_default().memory =
                blocks.iter().map(block).collect();
        }
    }
    for pod in &state.devices.pods {
        for (container, held) in &pod.containers {
            let devices = &mut containers.entry(key(&pod.uid, container)).or_default().devices;
            for (name, ids) in held {
                devices.extend(
                    ids.iter().map(|id| ((*name, id.to_string()), zones_of(&state.devices, *name, id))),
                );
            }
        }
    }
    containers.retain(|_, assignment| *assignment != Assignment::default());
    Assignments { shared_cpus: state.cpus.shared.clone(), containers }
}

/// What podresources would list of a pod.
fn pod_resources(state: &NodeState, pod: ListedPod<'_>) -> PodResources {
    let container = |name: &&str| {
        let memory = state.memory.held(pod.uid, name).unwrap_or_default();
        let memory = memory.iter().map(|block| MemoryBlock {
            resource: block.name,
            bytes: block.bytes,
            zones: block.zones.iter().map(ZoneId).collect(),
        });
        let devices = state.devices.resources.keys().flat_map(|resource| {
            let held = state.devices.held(pod.uid, name, *resource);
            by_zone(&state.devices, *resource, held.into_iter().flatten())
        });
        ContainerResources {
            name: (*name).to_owned(),
            cpus: state.cpus.held(pod.uid, name).cloned().unwrap_or_default(),
            memory: memory.collect(),
            devices: devices.collect(),
        }
    };
    PodResources {
        namespace: pod.namespace.to_owned(),
        name: pod.name.to_owned(),
        containers: pod.running.iter().map(container).collect(),
    }
}
