//! Amounts by zone against the kubelet's model by ids, while other pods leave.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::kubelet::device_manager::Lowest;
use crate::kubelet::machine::{Cpu, Machine, MachineZone};
use crate::kubelet::pod::Pod;
use crate::kubelet::profile::{CpuManager, CpuOptions, KubeletProfile, MemoryManager, ReservedCpus};
use crate::kubelet::{self, Allocation, Kubelet, NodeState};

/// CPUs of a zone that pods may have.
const CPUS: u32 = 12;

/// Two zones; a core of the first is reserved.
fn machine(scope: Scope, threads: u32) -> Kubelet {
    let cpu = |id| {
        let zone = u32::from(id >= CPUS + threads);
        Cpu { id, core: id / threads, socket: zone, zone, cache: zone }
    };
    let zone = |id| MachineZone { id, memory: 101, ..MachineZone::default() };
    let cpus: Vec<Cpu> = (0..2 * CPUS + threads).map(cpu).collect();
    let machine = Machine::new(vec![zone(0), zone(1)], &cpus).unwrap();
    let profile = KubeletProfile {
        policy: Policy::SingleNumaNode,
        scope,
        cpu_manager: CpuManager::Static {
            options: CpuOptions::default(),
            reserved: ReservedCpus::Named(format!("0-{}", threads - 1).parse().unwrap()),
        },
        memory_manager: MemoryManager::Static {
            reserved: [0, 1].map(|zone| (zone, ResourceName::MEMORY, 1)).to_vec(),
        },
        ..KubeletProfile::default()
    };
    Kubelet::new(Arc::new(machine), profile).unwrap()
}

/// The CPUs of a zone that are free, in thousandths.
fn free_cpus(kubelet: &Kubelet, state: &NodeState, zone: u32) -> i64 {
    let free = kubelet.free_cpus(state).unwrap();
    i64::try_from(kubelet.machine().cpus_of(ZoneMask::of(zone)).count_shared(&free)).unwrap() * 1_000
}

fn free(kubelet: &Kubelet, state: &NodeState, threads: u32) -> Free {
    let resources = |zone| {
        let of = |name, n| ZoneResource { name, capacity: n, allocatable: n, available: n };
        vec![of(ResourceName::CPU, free_cpus(kubelet, state, zone)), of(ResourceName::MEMORY, 100)]
    };
    let zones =
        [0, 1].map(|zone| Zone { id: ZoneId(zone), resources: resources(zone), distances: vec![] }).into();
    NodeTopology { zones, threads_per_core: Some(u8::try_from(threads).unwrap()), ..NodeTopology::default() }
        .available()
}

/// The CPUs of a pod in each zone, in thousandths: those of all containers, and those that podresources shows.
fn held(kubelet: &Kubelet, pod: &Pod, allocation: &Allocation) -> [(i64, i64); 2] {
    [0, 1].map(|zone| {
        let in_zone = kubelet.machine().cpus_of(ZoneMask::of(zone));
        let sum = |shown: bool| {
            let containers = allocation.containers.iter().zip(&pod.containers);
            let counted = containers.filter(|(_, asked)| !shown || asked.kind.keeps_running());
            let cpus = counted.fold(crate::cpuset::CpuSet::default(), |mut all, (held, _)| {
                all.insert_all(&held.cpus);
                all
            });
            i64::try_from(in_zone.count_shared(&cpus)).unwrap() * 1_000
        };
        (sum(false), sum(true))
    })
}

fn kind() -> impl Strategy<Value = ContainerKind> {
    prop_oneof![3 => Just(Init), 1 => Just(Sidecar), 3 => Just(App)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whether another pod leaves between two containers or not: on cores of one thread the verdict by amounts is the
    /// kubelet's, and so are the CPUs that a report shows. Beside these the pod holds no more than is said.
    #[test]
    fn amounts_bound_what_a_kubelet_holds(
        is_by_pod in any::<bool>(),
        threads in 1..=2_u32,
        residents in prop::collection::vec((1..=5_u32, any::<bool>()), 1..8),
        mut containers in prop::collection::vec((kind(), 1..=6_u32), 1..5),
        before in 1..4_usize,
    ) {
        containers.sort_by_key(|(kind, _)| *kind == App);
        let scope = if is_by_pod { Scope::Pod } else { Scope::Container };
        let (kubelet, rules) = (machine(scope, threads), Rules { scope, ..SINGLE });
        let needs = |containers: &[(ContainerKind, u32)]| {
            let texts: Vec<_> = containers.iter().map(|(_, cpus)| format!("cpu={cpus} memory=1")).collect();
            let each: Vec<_> =
                containers.iter().zip(&texts).map(|((kind, _), text)| (*kind, text.as_str())).collect();
            guaranteed(&each)
        };
        let asked = |needs: &PodNeeds, uid: &str| Pod { uid: uid.into(), ..Pod::clone(&needs.pod) };
        let mut state = kubelet.empty_state();
        let mut leaving: Vec<Arc<str>> = vec![];
        for (at, (cpus, leaves)) in residents.iter().enumerate() {
            let uid = format!("resident {at}");
            let pod = asked(&needs(&[(App, *cpus)]), &uid);
            if kubelet::admit(&kubelet, &mut state, &pod, &Lowest).is_ok() && *leaves {
                leaving.push(uid.as_str().into());
            }
        }
        let mut later = state.clone();
        for uid in &leaving {
            later.remove(uid);
            later.sweep();
        }
        let tables = [&state, &later].map(|state| free(&kubelet, state, threads));
        let comes = needs(&containers);
        let pod = asked(&comes, "comes");
        let release = kubelet::MidAdmissionRelease { before, pods: &leaving };
        let mut after = state.clone();
        let truth = kubelet::admit_with_release(&kubelet, &mut after, &pod, &Lowest, Some(release));
        let mut scratch = Scratch::default();
        let place = |sparing_until| {
            let release = MidAdmissionRelease { later: &tables[1], before, sparing_until };
            admit_with_release(rules, &tables[0], release, &comes, &mut scratch)
        };
        let placed: Vec<Result<Placement, Misfit>> = (0..=containers.len()).map(place).collect();
        let cpu = tables[0].layout().column(ResourceName::CPU).unwrap();
        let grant = |placed: &Placement, row| {
            let cell = tables[0].index(row, cpu);
            let grant = placed.grants.iter().find(|grant| grant.cell as usize == cell);
            grant.map_or((0, 0), |grant| (grant.held, grant.visible))
        };
        let Ok(truth) = truth else {
            prop_assert!(threads > 1 || placed.iter().any(Result::is_err), "{:?}", placed);
            return Ok(());
        };
        let held = held(&kubelet, &pod, &truth);
        let is_same = |placed: &&Placement| {
            (0..2).all(|row| {
                let ((bound, visible), (held, shown)) = (grant(placed, row), held[row]);
                visible == shown && (bound > 0) == (held > 0)
            })
        };
        let is_bounded = |placed: &Placement| {
            (0..2).all(|row| {
                let freed = tables[1].get(row, cpu) - tables[0].get(row, cpu);
                let kept = kept_after_release(rules, &tables[0], &comes, freed);
                held[row].0 <= grant(placed, row).0 + kept
            })
        };
        let mut same = placed.iter().flatten().filter(is_same).peekable();
        // What is left of a core may keep later containers in its zone.
        prop_assert!(threads > 1 || same.peek().is_some(), "{:?} {:?}", held, placed);
        prop_assert!(same.peek().is_none() || same.any(is_bounded), "{:?} {:?}", held, placed);
    }
}
