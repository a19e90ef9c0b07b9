//! What tholepin's exporter would say of a kubelet by ids.
//!
//! In: a kubelet, what its managers have handed out, its pods. Out: a [`KubeletReport`]. Never: an amount.

use std::collections::BTreeMap;

use topology::cpuset::CpuSet;
use topology::kubelet::hint::ZoneMask;
use topology::kubelet::pod::Container;
use topology::kubelet::profile::{CpuManager, CpuOptions};
use topology::kubelet::report::{KubeletReport, ReportedDeviceGroup};
use topology::kubelet::{Kubelet, NodeState};
use topology::placement::ContainerHash;
use topology::placement::holdings::{HashKey, HeldDeviceGroup, Holding, Holdings};
use topology::request::ContainerKind;
use topology::resource::ResourceName;

/// A pod of the kubelet.
pub(super) struct ReportedPod<'a> {
    /// The UID in the kubelet's state.
    pub key: &'a str,
    /// The UID that the API server knows.
    pub uid: String,
    pub namespace: &'a str,
    pub name: String,
    pub containers: &'a [Container],
}

impl ReportedPod<'_> {
    fn hash(&self, key: HashKey, container: &str) -> ContainerHash {
        match key {
            HashKey::Uid => ContainerHash::of_uid(&self.uid, container),
            HashKey::Name => ContainerHash::of(self.namespace, &self.name, container),
        }
    }
}

/// What the exporter would say: with the kubelet's checkpoints by UID, without them by name and of running containers.
pub(super) fn kubelet_report<'a>(
    kubelet: &Kubelet,
    state: &NodeState,
    key: HashKey,
    pods: impl IntoIterator<Item = ReportedPod<'a>>,
) -> KubeletReport {
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
    KubeletReport {
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
