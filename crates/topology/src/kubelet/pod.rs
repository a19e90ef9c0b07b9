//! A pod as the kubelet's resource managers see it: what each container may get for itself.
//!
//! In: requests and limits ([`PodRequest`]) and a kubelet's profile. Out: whole CPUs, bytes and devices by container,
//! and for the pod as a whole. Never: what is free.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::kubelet::profile::KubeletProfile;
use crate::quantity::Quantity;
use crate::request::{ContainerKind, ContainerRequest, Need, PodRequest, Qos};
use crate::resource::{ResourceKind, ResourceName};

/// The UID of a pod.
pub type PodUid = Arc<str>;

/// Bytes of memory and of huge pages, ordered by name. Amounts of 0 that a pod states are kept, as the kubelet does.
pub type MemoryAmounts = SmallVec<[(ResourceName, u64); 2]>;

/// Numbers of devices, ordered by resource.
pub type DeviceCounts = SmallVec<[(ResourceName, usize); 2]>;

/// One container of a pod, in the order of admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The name.
    pub name: Box<str>,
    /// The role.
    pub kind: ContainerKind,
    /// Whole CPUs for this container alone; 0 if it runs on shared ones (kubelet `guaranteedCPUs`).
    pub cpus: usize,
    /// Memory for this container alone (kubelet `getContainerRequestedResources`); `None` if an amount is no whole
    /// number of bytes.
    pub memory: Option<MemoryAmounts>,
    /// Devices, by limits. Names that no device plugin serves are among them.
    pub devices: DeviceCounts,
    /// The CPU that the container requests.
    pub requested_cpu: Quantity,
    /// The memory that the container requests.
    pub requested_memory: Quantity,
    /// The limits of CPU and memory. They decide nothing, but a resize may change them alone.
    pub limits: [Quantity; 2],
}

/// A pod, prepared for the admissions of kubelets with one profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// The UID.
    pub uid: PodUid,
    /// The QoS class.
    pub qos: Qos,
    /// Init containers in order, then app containers in order.
    pub containers: Vec<Container>,
    /// Whole CPUs of the pod (kubelet `podGuaranteedCPUs`).
    pub cpus: usize,
    /// Memory of the pod (kubelet `getPodRequestedResources`); `None` as for containers.
    pub memory: Option<MemoryAmounts>,
    /// Devices of the pod (kubelet `getPodDeviceRequest`).
    pub devices: DeviceCounts,
    /// Whether the pod states resources as a whole.
    pub pod_level: bool,
    /// What the pod takes from the node's totals, in base units.
    pub totals: Vec<Need>,
}

impl Pod {
    /// Prepares a pod. Cost: containers x resources.
    #[must_use]
    pub fn new(profile: &KubeletProfile, uid: PodUid, request: &PodRequest) -> Self {
        let qos = request.qos();
        let pod_level = !request.pod_level.is_empty();
        let managed = profile.pod_level_managers && pod_level;
        let containers: Vec<_> =
            request.containers.iter().map(|container| Container::new(container, qos, managed)).collect();
        Self {
            cpus: if managed {
                pod_level_cpus(request, qos)
            } else {
                count(peak(&containers, |container| container.cpus as u64))
            },
            memory: if managed { pod_level_memory(request) } else { sum_memory(&containers) },
            devices: sum_devices(&containers),
            totals: request.totals(),
            uid,
            qos,
            containers,
            pod_level,
        }
    }

    /// The amount that the pod takes of one resource of the node, in base units.
    #[must_use]
    pub fn total(&self, name: ResourceName) -> i64 {
        self.totals.iter().find(|need| need.name == name).map_or(0, |need| need.amount)
    }

    /// Whether nothing of the pod is managed: it states resources as a whole, and the kubelet manages no such pod.
    #[must_use]
    pub fn is_left_alone(&self, profile: &KubeletProfile) -> bool {
        self.pod_level && !profile.pod_level_managers
    }
}

impl Container {
    fn new(request: &ContainerRequest, qos: Qos, pod_level_managed: bool) -> Self {
        let exclusive = qos == Qos::Guaranteed && (!pod_level_managed || is_guaranteed(request));
        Self {
            name: request.name.clone(),
            kind: request.kind,
            cpus: if exclusive { whole_cpus(&request.requests) } else { 0 },
            memory: if pod_level_managed && !is_guaranteed(request) {
                Some(MemoryAmounts::new())
            } else {
                memory(&request.requests)
            },
            devices: devices(&request.limits),
            requested_cpu: find(&request.requests, ResourceName::CPU).unwrap_or_default(),
            requested_memory: find(&request.requests, ResourceName::MEMORY).unwrap_or_default(),
            limits: [ResourceName::CPU, ResourceName::MEMORY]
                .map(|name| find(&request.limits, name).unwrap_or_default()),
        }
    }
}

/// kubelet 1.36 `IsContainerEquivalentQOSGuaranteed`.
fn is_guaranteed(request: &ContainerRequest) -> bool {
    [ResourceName::CPU, ResourceName::MEMORY].into_iter().all(|name| {
        let (asked, limit) = (find(&request.requests, name), find(&request.limits, name));
        asked.is_some_and(|asked| asked.value() > 0) && asked == limit
    })
}

fn find(list: &[(ResourceName, Quantity)], name: ResourceName) -> Option<Quantity> {
    list.iter().find(|(found, _)| *found == name).map(|(_, quantity)| *quantity)
}

/// The CPUs asked for; 0 if their number is not whole.
fn whole_cpus(requests: &[(ResourceName, Quantity)]) -> usize {
    find(requests, ResourceName::CPU)
        .filter(|cpu| cpu.value().checked_mul(1000) == Some(cpu.milli_value()))
        .and_then(|cpu| usize::try_from(cpu.value()).ok())
        .unwrap_or(0)
}

fn memory(requests: &[(ResourceName, Quantity)]) -> Option<MemoryAmounts> {
    let mut amounts: MemoryAmounts = requests
        .iter()
        .filter(|(name, _)| name.kind() == ResourceKind::Memory)
        .map(|(name, quantity)| Some((*name, whole_bytes(*quantity)?)))
        .collect::<Option<_>>()?;
    amounts.sort_unstable();
    Some(amounts)
}

fn whole_bytes(quantity: Quantity) -> Option<u64> {
    (quantity.floor_value() == quantity.value()).then(|| u64::try_from(quantity.value()).unwrap_or(0))
}

fn devices(limits: &[(ResourceName, Quantity)]) -> DeviceCounts {
    let mut counts: DeviceCounts = limits
        .iter()
        .filter(|(name, _)| name.kind() == ResourceKind::Device)
        .map(|(name, quantity)| (*name, usize::try_from(quantity.value()).unwrap_or(0)))
        .collect();
    counts.sort_unstable();
    counts
}

fn pod_level_cpus(request: &PodRequest, qos: Qos) -> usize {
    if qos == Qos::Guaranteed { whole_cpus(&request.pod_level) } else { 0 }
}

fn pod_level_memory(request: &PodRequest) -> Option<MemoryAmounts> {
    let mut amounts = memory(&request.pod_level)?;
    amounts.retain(|(_, bytes)| *bytes > 0);
    Some(amounts)
}

/// The larger of the init phase and the running phase. Each init container runs beside the sidecars before it (KEP-753;
/// kubelet 1.36 `podGuaranteedCPUs`, `getPodRequestedResources`, `AggregateContainerLimits`).
fn peak(containers: &[Container], of: impl Fn(&Container) -> u64) -> u64 {
    let (mut running, mut most) = (0_u64, 0);
    for container in containers {
        let sum = running.saturating_add(of(container));
        match container.kind {
            ContainerKind::Init => most = most.max(sum),
            ContainerKind::Sidecar | ContainerKind::App => running = sum,
        }
    }
    most.max(running)
}

fn count(sum: u64) -> usize {
    usize::try_from(sum).unwrap_or(usize::MAX)
}

/// Only types that an app container asks for count (kubelet 1.36 `getPodRequestedResources` goes through these last).
fn sum_memory(containers: &[Container]) -> Option<MemoryAmounts> {
    let mut names: SmallVec<[ResourceName; 4]> = SmallVec::new();
    for container in containers {
        let amounts = container.memory.as_ref()?;
        if container.kind == ContainerKind::App {
            names.extend(amounts.iter().map(|(name, _)| *name));
        }
    }
    names.sort_unstable();
    names.dedup();
    let bytes = |container: &Container, name| {
        let amounts = container.memory.iter().flatten();
        amounts.filter(|(found, _)| *found == name).fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes))
    };
    Some(names.into_iter().map(|name| (name, peak(containers, |container| bytes(container, name)))).collect())
}

fn sum_devices(containers: &[Container]) -> DeviceCounts {
    let mut names: SmallVec<[ResourceName; 4]> =
        containers.iter().flat_map(|container| container.devices.iter().map(|(name, _)| *name)).collect();
    names.sort_unstable();
    names.dedup();
    let devices = |container: &Container, name| {
        container.devices.iter().find(|(found, _)| *found == name).map_or(0, |(_, count)| *count as u64)
    };
    names.into_iter().map(|name| (name, count(peak(containers, |it| devices(it, name))))).collect()
}
