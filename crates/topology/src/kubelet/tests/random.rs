//! Random machines, configurations and pods.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::kubelet::device_manager::{Device, Preference, Resource};
use crate::kubelet::hint::ZoneMask;
use crate::kubelet::machine::{Cpu, Machine, MachineZone};
use crate::kubelet::profile::{
    CpuManager, CpuOptions, KubeletProfile, MaxNumaNodes, MemoryManager, Minor, ReservedCpus,
};
use crate::kubelet::{Kubelet, NodeState};
use crate::policy::{CpuOption, Policy, Scope};
use crate::quantity::{Format, Quantity};
use crate::request::{ContainerKind, ContainerRequest, PodRequest, Qos};
use crate::resource::ResourceName;

const MIB: u64 = 1 << 20;
/// Memory of a zone, in MiB.
const ZONE_MIB: u64 = 1000;
const NAMES: [&str; 2] = ["vendor.example/gpu", "vendor.example/nic"];

/// A kubelet and what happens to it.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub shape: Shape,
    pub profile: KubeletProfile,
    /// Devices by resource: zones, by bits of a number; healthy.
    pub devices: Vec<Vec<(u8, bool)>>,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Admit(PodRequest),
    Remove(usize),
}

#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub zones: u32,
    pub cores: u32,
    pub threads: u32,
    /// Zones of a socket; 0: two sockets in a zone.
    pub zones_per_socket: u32,
    pub cores_per_cache: u32,
    pub hugepages: bool,
}

/// The number of cases: more with `CASES`.
pub(super) fn cases(or: u32) -> u32 {
    std::env::var("CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(or)
}

fn hugepages() -> ResourceName {
    ResourceName::new("hugepages-2Mi").unwrap()
}

impl Shape {
    fn machine(&self) -> Machine {
        let count = self.zones * self.cores;
        let mut cpus = Vec::new();
        for core in 0..count {
            let zone = core / self.cores;
            let socket = match self.zones_per_socket {
                0 => zone * 2 + u32::from(core % self.cores >= self.cores.div_ceil(2)),
                zones => zone / zones,
            };
            let cache = core / self.cores_per_cache.max(1);
            cpus.extend((0..self.threads).map(|thread| Cpu {
                id: core + thread * count,
                core,
                socket,
                zone,
                cache,
            }));
        }
        let zone = |id| MachineZone {
            id,
            memory: ZONE_MIB * MIB,
            hugepages: if self.hugepages { vec![(hugepages(), 200 * MIB)] } else { Vec::new() },
            distances: (0..self.zones)
                .map(|other| if other == id { 10 } else { 12 + u64::from(id.abs_diff(other)) })
                .collect(),
        };
        Machine::new((0..self.zones).map(zone).collect(), &cpus).unwrap()
    }
}

impl Scene {
    /// `None`: such a kubelet does not start.
    pub(super) fn kubelet(&self) -> Option<Kubelet> {
        Kubelet::new(Arc::new(self.shape.machine()), self.profile.clone()).ok()
    }

    pub(super) fn state(&self, kubelet: &Kubelet) -> NodeState {
        let mut state = kubelet.empty_state();
        for (name, devices) in NAMES.iter().zip(&self.devices) {
            let mask = |bits: u8| match bits {
                0 => None,
                bits => Some(
                    (0..self.shape.zones).filter(|zone| bits >> (zone % 8) & 1 == 1).collect::<ZoneMask>(),
                ),
            };
            let devices = devices.iter().enumerate().map(|(at, (bits, healthy))| {
                (format!("d{at:02}").into(), Device { zones: mask(*bits), healthy: *healthy })
            });
            let resource = Resource { devices: devices.collect(), preference: Preference::None };
            state.devices.resources.insert(ResourceName::new(name).unwrap(), resource);
        }
        state
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    let zones =
        prop_oneof![Just(1_u32), Just(2), Just(2), Just(2), Just(4), Just(4), Just(3), Just(6), Just(8)];
    (
        zones,
        1..=6_u32,
        1..=2_u32,
        prop_oneof![Just(1_u32), Just(1), Just(2), Just(0)],
        1..=3_u32,
        any::<bool>(),
    )
        .prop_map(|(zones, cores, threads, zones_per_socket, cores_per_cache, hugepages)| Shape {
            zones,
            cores,
            threads,
            zones_per_socket,
            cores_per_cache,
            hugepages,
        })
}

fn profiles() -> impl Strategy<Value = KubeletProfile> {
    let policy = prop_oneof![
        Just(Policy::None),
        Just(Policy::BestEffort),
        Just(Policy::Restricted),
        Just(Policy::Restricted),
        Just(Policy::SingleNumaNode),
        Just(Policy::SingleNumaNode),
    ];
    let minor = prop_oneof![Just(Minor::V35), Just(Minor::V36), Just(Minor::V36), Just(Minor::V37)];
    let scope = prop_oneof![Just(Scope::Container), Just(Scope::Pod)];
    let options = proptest::sample::subsequence(CpuOption::ALL.to_vec(), 0..=2);
    let reserved = prop_oneof![Just(1_usize), Just(1), Just(2), Just(3)];
    let managers = (0..10_u8, 0..10_u8, 0..10_u8, 0..10_u8);
    let memory = vec(50..200_u64, 1..=2);
    (policy, minor, scope, options, reserved, managers, memory, any::<bool>()).prop_map(
        |(policy, minor, scope, options, reserved, (cpu, pinned, pod_level, closest), memory, totals)| {
            let options: CpuOptions = if options.len() == 2 && cpu < 5 {
                options[..1].iter().copied().collect()
            } else {
                options.into_iter().collect()
            };
            let reserved_memory =
                memory.iter().zip(0..).map(|(mib, zone)| (zone, ResourceName::MEMORY, mib * MIB));
            KubeletProfile {
                unreserved_memory: None,
                minor,
                policy,
                scope,
                prefer_closest: closest < 3,
                max_numa_nodes: MaxNumaNodes(64),
                cpu_manager: if cpu == 0 {
                    CpuManager::None
                } else {
                    CpuManager::Static { options, reserved: ReservedCpus::Count(reserved) }
                },
                memory_manager: if pinned < 5 {
                    MemoryManager::Static {
                        reserved: reserved_memory.take(1 + usize::from(pinned == 0)).collect(),
                    }
                } else {
                    MemoryManager::None
                },
                kept_memory: None,
                pod_level_managers: minor >= Minor::V36 && pod_level == 0,
                allocatable: totals.then(|| vec![(ResourceName::CPU, 40_000), (ResourceName::PODS, 6)]),
            }
        },
    )
}

fn quantity(amount: u64) -> Quantity {
    Quantity::from_i64(i64::try_from(amount).unwrap(), Format::DecimalSI)
}

fn containers(hugepages_there: bool) -> impl Strategy<Value = ContainerRequest> {
    let kind = prop_oneof![
        Just(ContainerKind::App),
        Just(ContainerKind::App),
        Just(ContainerKind::App),
        Just(ContainerKind::Init),
        Just(ContainerKind::Sidecar),
    ];
    let cpus = prop_oneof![Just(0_u64), 1..=4_u64, 1..=4_u64, 1..=16_u64];
    let memory = prop_oneof![1..=400_u64, 1..=400_u64, 1..=2500_u64];
    (kind, cpus, memory, 0..6_u64, (0..6_u64, 0..6_u64)).prop_map(
        move |(kind, cpus, memory, pages, devices)| {
            let mut requests = vec![(ResourceName::MEMORY, quantity(memory * MIB))];
            if cpus > 0 {
                requests.insert(0, (ResourceName::CPU, quantity(cpus)));
            }
            if hugepages_there && pages > 3 {
                requests.push((hugepages(), quantity((pages - 3) * 60 * MIB)));
            }
            for (name, count) in NAMES.iter().zip([devices.0, devices.1]) {
                if count > 3 {
                    requests.push((ResourceName::new(name).unwrap(), quantity(count - 3)));
                }
            }
            requests.sort_unstable_by_key(|(name, _)| *name);
            ContainerRequest { name: "c".into(), kind, limits: requests.clone(), requests }
        },
    )
}

fn pods(hugepages_there: bool) -> impl Strategy<Value = PodRequest> {
    let containers = prop_oneof![
        vec(containers(hugepages_there), 1..=1),
        vec(containers(hugepages_there), 1..=1),
        vec(containers(hugepages_there), 2..=4),
    ];
    (containers, 0..10_u8, 0..10_u8).prop_map(|(mut containers, quality, pod_level)| {
        containers.sort_by_key(|container| container.kind == ContainerKind::App);
        for (at, container) in containers.iter_mut().enumerate() {
            container.name = format!("c{at}").into();
        }
        // An API server takes no pod without one.
        if let Some(last) = containers.last_mut() {
            last.kind = ContainerKind::App;
        }
        let mut request = PodRequest {
            containers,
            stated_qos: Some(if quality < 9 { Qos::Guaranteed } else { Qos::Burstable }),
            ..PodRequest::default()
        };
        if pod_level == 0 {
            let sum = |name| {
                let amounts = request.containers.iter().flat_map(|container| &container.requests);
                amounts.filter(|(of, _)| *of == name).map(|(_, amount)| amount.value()).sum::<i64>()
            };
            let amount = |value: i64| Quantity::from_i64(value, Format::DecimalSI);
            request.pod_level = vec![
                (ResourceName::CPU, amount(sum(ResourceName::CPU) + 1)),
                (ResourceName::MEMORY, amount(sum(ResourceName::MEMORY))),
            ];
            request.pod_level_limits = request.pod_level.clone();
            if let Some(last) = request.containers.last_mut() {
                last.requests.retain(|(name, _)| name.as_str().contains('/'));
                last.limits = last.requests.clone();
            }
        }
        request
    })
}

pub(super) fn scenes() -> impl Strategy<Value = Scene> {
    shapes().prop_flat_map(|shape| {
        let step = prop_oneof![
            3 => pods(shape.hugepages).prop_map(Step::Admit),
            1 => (0..8_usize).prop_map(Step::Remove),
        ];
        // Mostly one zone each, some of several zones or none.
        let all = (1_u16 << shape.zones.min(8)) - 1;
        let single = (0..shape.zones).prop_map(|zone| 1_u8 << (zone % 8));
        let any = (0..=all).prop_map(|bits| u8::try_from(bits).unwrap());
        let device = (prop_oneof![6 => single, 1 => any], prop::bool::weighted(0.95));
        let devices = vec(vec(device, 1..=6), 0..=2);
        (Just(shape), profiles(), devices, vec(step, 1..=9)).prop_map(
            |(shape, mut profile, devices, steps)| {
                if let MemoryManager::Static { reserved } = &mut profile.memory_manager {
                    reserved.retain(|(zone, ..)| *zone < shape.zones);
                }
                Scene { shape, profile, devices, steps }
            },
        )
    })
}

/// A pod of these containers: CPUs, and devices of the first resource.
fn pod(containers: &[(u64, u64)]) -> PodRequest {
    let containers = containers.iter().enumerate().map(|(at, (cpus, devices))| {
        let device = (ResourceName::new(NAMES[0]).unwrap(), quantity(*devices));
        let mut requests = vec![(ResourceName::CPU, quantity(*cpus)), device];
        requests.retain(|(_, amount)| amount.value() > 0);
        ContainerRequest {
            name: format!("c{at}").into(),
            kind: ContainerKind::App,
            limits: requests.clone(),
            requests,
        }
    });
    let stated_qos = Some(Qos::Guaranteed);
    PodRequest { containers: containers.collect(), stated_qos, ..PodRequest::default() }
}

/// A scene whose last pod is admitted, and rejected if the first one has left: its first container goes to the zone of
/// the device that is free then, and the second one finds no zone with four CPUs.
pub(super) fn worse_with_more_room() -> Scene {
    let shape =
        Shape { zones: 2, cores: 5, threads: 1, zones_per_socket: 1, cores_per_cache: 5, hugepages: false };
    let reserved = ReservedCpus::Named("0,5,6".parse().unwrap());
    let profile = KubeletProfile {
        policy: Policy::SingleNumaNode,
        cpu_manager: CpuManager::Static { options: CpuOptions::NONE, reserved },
        ..KubeletProfile::default()
    };
    let steps = vec![Step::Admit(pod(&[(0, 1)])), Step::Admit(pod(&[(2, 1), (4, 0)]))];
    Scene { shape, profile, devices: vec![vec![(1, true), (2, true)]], steps }
}
