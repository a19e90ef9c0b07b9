//! What a report of tholepin's exporter says of its node beyond amounts: machine and configuration by ids, and what is
//! handed out.
//!
//! In: values of the report's attributes, or a kubelet of the model. Out: the same, as the model of the kubelet has
//! them. Never: a check against the amounts of the zones.

use std::collections::BTreeMap;

use crate::cpuset::CpuSet;
use crate::kubelet::hint::ZoneMask;
use crate::kubelet::machine::Cpu;
use crate::kubelet::pod::Container;
use crate::kubelet::profile::{CpuManager, CpuOptions, Minor};
use crate::kubelet::{Kubelet, NodeState};
use crate::placement::ContainerHash;
use crate::placement::holdings::{HashKey, HeldDeviceGroup, Holding, Holdings};
use crate::request::ContainerKind;
use crate::resource::ResourceName;

/// A kubelet, as its node's report describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletReport {
    /// The kubelet's version; `None` if the report does not say, or it is one that the model does not know.
    pub minor: Option<Minor>,
    /// Options of the CPU manager.
    pub cpu_options: CpuOptions,
    /// The option `prefer-closest-numa-nodes`.
    pub prefer_closest: bool,
    /// Whether resources of whole pods are managed (feature gate `PodLevelResourceManagers`).
    pub pod_level_managers: bool,
    /// CPUs that are handed out to no container.
    pub reserved_cpus: CpuSet,
    /// All CPUs, with core, cache, socket and zone.
    pub cpus: Vec<Cpu>,
    /// CPUs that are neither reserved nor held.
    pub free_cpus: CpuSet,
    /// Sets of zones whose memory is handed out together.
    pub memory_groups: Vec<ZoneMask>,
    /// Devices that are close to several zones.
    pub device_groups: Vec<ReportedDeviceGroup>,
    /// What containers hold. Those of ended pods may be among them.
    pub holdings: Holdings,
}

/// Devices of one resource that are close to the same zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedDeviceGroup {
    /// The resource.
    pub resource: ResourceName,
    /// The zones.
    pub zones: ZoneMask,
    /// Healthy devices.
    pub allocatable: u32,
    /// Those that no container holds.
    pub available: u32,
}

/// A pod of a kubelet, to be reported.
#[derive(Clone, Debug)]
pub struct ReportedPod<'a> {
    /// The UID in the kubelet's state.
    pub key: &'a str,
    /// The UID that the API server knows.
    pub uid: &'a str,
    /// The namespace.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
    /// Its containers.
    pub containers: &'a [Container],
}

impl KubeletReport {
    /// Whether both are about one machine and configuration; what is handed out may differ.
    pub(crate) fn is_same_kubelet(&self, other: &Self) -> bool {
        let groups = |report: &Self| -> Vec<_> {
            report
                .device_groups
                .iter()
                .map(|group| (group.resource, group.zones, group.allocatable))
                .collect()
        };
        (self.minor, self.cpu_options, self.prefer_closest, self.pod_level_managers)
            == (other.minor, other.cpu_options, other.prefer_closest, other.pod_level_managers)
            && self.reserved_cpus == other.reserved_cpus
            && self.cpus == other.cpus
            && groups(self) == groups(other)
    }

    /// What tholepin's exporter would say of a kubelet: with its checkpoints by UID, without them by name and of
    /// running containers only.
    #[must_use]
    pub fn of<'a>(
        kubelet: &Kubelet,
        state: &NodeState,
        key: HashKey,
        pods: impl IntoIterator<Item = ReportedPod<'a>>,
    ) -> Self {
        let (mut held, mut containers) = (CpuSet::new(), Vec::new());
        for pod in pods {
            let shown = |container: &&Container| key == HashKey::Uid || container.kind != ContainerKind::Init;
            for container in pod.containers.iter().filter(shown) {
                if let Some(holding) = holding(state, pod.key, &container.name) {
                    held.insert_all(&holding.cpus);
                    containers.push((pod.hash(key, &container.name), holding));
                }
            }
        }
        let profile = kubelet.profile();
        let cpu_options = match &profile.cpu_manager {
            CpuManager::Static { options, .. } => *options,
            CpuManager::None => CpuOptions::NONE,
        };
        let machine = kubelet.machine();
        let allocatable = kubelet.free_cpus(&kubelet.empty_state()).unwrap_or_default();
        let mut memory_groups: Vec<ZoneMask> =
            state.memory.counts.zones.iter().map(|zone| zone.group).filter(|group| group.len() > 1).collect();
        memory_groups.dedup();
        Self {
            minor: Some(profile.minor),
            cpu_options,
            prefer_closest: profile.prefer_closest,
            pod_level_managers: profile.pod_level_managers,
            reserved_cpus: kubelet.reserved_cpus(),
            cpus: machine.cpus().iter().filter_map(|id| machine.cpu(id)).collect(),
            free_cpus: allocatable.difference(&held),
            memory_groups,
            device_groups: device_groups(state),
            holdings: Holdings::new(key, containers),
        }
    }
}

impl ReportedPod<'_> {
    fn hash(&self, key: HashKey, container: &str) -> ContainerHash {
        match key {
            HashKey::Uid => ContainerHash::of_uid(self.uid, container),
            HashKey::Name => ContainerHash::of(self.namespace, self.name, container),
        }
    }
}

/// What a container holds; `None` if nothing.
fn holding(state: &NodeState, uid: &str, container: &str) -> Option<Holding> {
    let cpus = state.cpus.held(uid, container).cloned().unwrap_or_default();
    let blocks = state.memory.held(uid, container).unwrap_or_default();
    let memory = blocks.iter().map(|block| block.zones).fold(ZoneMask::EMPTY, ZoneMask::union);
    let mut groups = BTreeMap::<(ResourceName, ZoneMask), u32>::new();
    for (name, resource) in &state.devices.resources {
        for id in state.devices.held(uid, container, *name).into_iter().flatten() {
            if let Some(zones) = resource.devices.get(id).and_then(|device| device.zones) {
                *groups.entry((*name, zones)).or_default() += 1;
            }
        }
    }
    let devices: Vec<_> = groups
        .into_iter()
        .map(|((resource, zones), count)| HeldDeviceGroup { resource, zones, count })
        .collect();
    let is_empty = cpus.is_empty() && memory.is_empty() && devices.is_empty();
    (!is_empty).then_some(Holding { cpus, memory: Some(memory), devices })
}

fn device_groups(state: &NodeState) -> Vec<ReportedDeviceGroup> {
    let mut groups = BTreeMap::<(ResourceName, ZoneMask), (u32, u32)>::new();
    for (name, resource) in &state.devices.resources {
        let used = state.devices.in_use(*name);
        for (id, device) in &resource.devices {
            if let Some(zones) = device.zones.filter(|zones| zones.len() > 1) {
                let (allocatable, available) = groups.entry((*name, zones)).or_default();
                *allocatable += 1;
                *available += u32::from(!used.contains(id));
            }
        }
    }
    let group = |((resource, zones), (allocatable, available))| ReportedDeviceGroup {
        resource,
        zones,
        allocatable,
        available,
    };
    groups.into_iter().map(group).collect()
}
