//! Machines that make no sense, and configurations with which a kubelet does not start.

use std::sync::Arc;

use crate::cpuset::CpuSet;
use crate::kubelet::device_manager::Lowest;
use crate::kubelet::hint::ZoneMask;
use crate::kubelet::machine::{Cpu, Machine, MachineZone};
use crate::kubelet::pod::Pod;
use crate::kubelet::profile::{
    CpuManager, CpuOptions, KubeletProfile, MemoryManager, Minor, ReservedCpus, Stage,
};
use crate::kubelet::report::{KubeletReport, ReportedDeviceGroup};
use crate::kubelet::start::{KubeletStart, PolicyOptions};
use crate::kubelet::zone_table::{Scratch, ZoneTable, fits};
use crate::kubelet::{Kubelet, admit};
use crate::placement::holdings::{HashKey, Holdings};
use crate::policy::{CpuOption, Policy};
use crate::request::{ContainerKind, ContainerRequest, PodRequest, Qos};
use crate::resource::ResourceName;
use crate::zone::{NodeTopology, Zone, ZoneId, ZoneResource};

const GIB: u64 = 1 << 30;

fn zone(id: u32) -> MachineZone {
    MachineZone { id, memory: GIB, ..MachineZone::default() }
}

fn cpu(id: u32, zone: u32) -> Cpu {
    Cpu { id, core: id, socket: zone, zone, cache: zone }
}

#[test]
fn machines_that_make_no_sense_are_refused_with_the_reason() {
    let with = |distances: &[u64], memory| MachineZone { distances: distances.to_vec(), memory, ..zone(0) };
    let cases: [(&str, Vec<MachineZone>, Vec<Cpu>); 10] = [
        ("CPU 3 is listed twice", vec![zone(0), zone(1)], vec![cpu(3, 0), cpu(3, 1)]),
        ("zone 0 is listed twice", vec![zone(0), zone(0)], vec![cpu(0, 0)]),
        ("zone id 64 is too large; the kubelet's masks hold 0 to 63", vec![zone(64)], vec![cpu(0, 64)]),
        ("CPU id 8192 is too large; allowed are 0 to 8191", vec![zone(0)], vec![cpu(8192, 0)]),
        ("CPU 1 is in zone 1, which is not listed", vec![zone(0)], vec![cpu(0, 0), cpu(1, 1)]),
        ("no CPU is listed", vec![zone(0)], vec![]),
        ("no CPU is listed", vec![], vec![]),
        ("no zone has memory; the memory of at least one is above 0", vec![with(&[10], 0)], vec![cpu(0, 0)]),
        (
            "zone 0 has 1 distances; allowed are none, or one to each of the 2 zones",
            vec![with(&[10], GIB), zone(1)],
            vec![cpu(0, 0), cpu(1, 1)],
        ),
        (
            "zone 0 has 3 distances; allowed are none, or one to each of the 1 zones",
            vec![with(&[10, 20, 20], GIB)],
            vec![cpu(0, 0)],
        ),
    ];
    for (message, zones, cpus) in cases {
        let error = Machine::new(zones, &cpus).unwrap_err().to_string();
        assert_eq!(error, message);
        assert!(!error.contains('\n'));
    }
}

/// Odd machines are real ones all the same: nothing panics, and counts agree with ids.
#[test]
fn odd_machines_have_kubelets() {
    let memoryless = MachineZone { memory: 0, ..zone(1) };
    let cases: [(&str, Vec<MachineZone>, Vec<Cpu>); 7] = [
        ("one CPU", vec![zone(0)], vec![cpu(0, 0)]),
        ("CPU 0 is offline", vec![zone(0)], vec![cpu(1, 0), cpu(2, 0), cpu(3, 0)]),
        ("ids up to 1023", vec![zone(0), zone(1)], (0..1024).map(|id| cpu(id, id % 2)).collect()),
        ("the largest id", vec![zone(0)], vec![cpu(0, 0), cpu(8191, 0)]),
        ("a zone without memory", vec![zone(0), memoryless], (0..4).map(|id| cpu(id, id % 2)).collect()),
        ("a zone without CPUs", vec![zone(5), zone(63)], vec![cpu(0, 63), cpu(1, 63)]),
        (
            "cores of different sizes",
            vec![zone(0)],
            (0..3).map(|id| Cpu { core: id / 2, ..cpu(id, 0) }).collect(),
        ),
    ];
    for (name, zones, cpus) in cases {
        let machine = Arc::new(Machine::new(zones, &cpus).unwrap_or_else(|error| panic!("{name}: {error}")));
        for policy in [Policy::None, Policy::BestEffort, Policy::Restricted, Policy::SingleNumaNode] {
            let options = [CpuOptions::NONE, CpuOptions::NONE.with(CpuOption::FullPcpusOnly)];
            for options in options {
                let cpu_manager = CpuManager::Static { options, reserved: ReservedCpus::Count(1) };
                let memory = machine.zones()[0].id;
                let memory_manager =
                    MemoryManager::Static { reserved: vec![(memory, ResourceName::MEMORY, 1 << 20)] };
                let profile =
                    KubeletProfile { policy, cpu_manager, memory_manager, ..KubeletProfile::default() };
                let kubelet =
                    Kubelet::new(machine.clone(), profile).unwrap_or_else(|e| panic!("{name}: {e}"));
                let mut state = kubelet.empty_state();
                let pod = pod(&kubelet, "1");
                let fit = fits(&kubelet, &ZoneTable::new(&kubelet, &state), &pod, &mut Scratch::default());
                let admitted = admit(&kubelet, &mut state, &pod, &Lowest);
                let agrees = match &fit {
                    crate::kubelet::zone_table::Fit::Yes => admitted.is_ok(),
                    crate::kubelet::zone_table::Fit::No(_) => admitted.is_err(),
                    crate::kubelet::zone_table::Fit::Undetermined => true,
                };
                assert!(agrees, "{name} {policy:?}: {fit:?} {admitted:?}");
            }
        }
    }
}

fn pod(kubelet: &Kubelet, cpus: &str) -> Pod {
    let requests =
        vec![(ResourceName::CPU, cpus.parse().unwrap()), (ResourceName::MEMORY, "1Mi".parse().unwrap())];
    let container =
        ContainerRequest { name: "c".into(), kind: ContainerKind::App, limits: requests.clone(), requests };
    let request = PodRequest {
        containers: vec![container],
        stated_qos: Some(Qos::Guaranteed),
        ..PodRequest::default()
    };
    Pod::new(kubelet.profile(), "uid".into(), &request)
}

/// The words are the kubelet's (1.36), so that people find them.
#[test]
fn kubelets_that_do_not_start_say_why_in_their_own_words() {
    let distances = vec![10; 9];
    let many: Vec<MachineZone> =
        (0..9).map(|id| MachineZone { distances: distances.clone(), ..zone(id) }).collect();
    let many = Machine::new(many, &(0..9).map(|id| cpu(id, id)).collect::<Vec<_>>()).unwrap();
    let two = |sockets: u32| {
        let cpus: Vec<Cpu> = (0..8).map(|id| Cpu { socket: id % sockets, ..cpu(id, id % 2) }).collect();
        Machine::new(vec![zone(0), zone(1)], &cpus).unwrap()
    };
    let cpus = |options: &[CpuOption], reserved| CpuManager::Static {
        options: options.iter().copied().collect(),
        reserved,
    };
    let named = |text| ReservedCpus::Named(CpuSet::parse(text).unwrap());
    let one = || ReservedCpus::Count(1);
    let base = KubeletProfile::default;
    let memory = |reserved: &[(u32, u64)]| MemoryManager::Static {
        reserved: reserved.iter().map(|(zone, bytes)| (*zone, ResourceName::MEMORY, *bytes)).collect(),
    };
    use CpuOption::{
        AlignBySocket, DistributeAcrossCores, DistributeAcrossNuma, FullPcpusOnly, PreferUncoreCache,
    };
    let aligned = KubeletProfile { policy: Policy::Restricted, ..base() };
    let single = KubeletProfile { policy: Policy::SingleNumaNode, ..base() };
    let static_cpus = |options: &[CpuOption]| KubeletProfile { cpu_manager: cpus(options, one()), ..base() };
    let reserved = |cpu_manager| KubeletProfile { cpu_manager, ..base() };
    let with_memory = |memory_manager| KubeletProfile { memory_manager, ..base() };
    let kept = Some(vec![(ResourceName::MEMORY, 400 << 20)]);
    let cases: Vec<(&str, Machine, KubeletProfile)> = vec![
        ("unsupported on machines with more than 8 NUMA Nodes", many, aligned.clone()),
        (
            "cannot discover NUMA topology: error getting NUMA distances from cadvisor",
            two(2),
            KubeletProfile { prefer_closest: true, ..aligned.clone() },
        ),
        (
            "static policy options full-pcpus-only and distribute-cpus-across-cores can not be used at the same time",
            two(2),
            static_cpus(&[FullPcpusOnly, DistributeAcrossCores]),
        ),
        (
            "static policy options distribute-cpus-across-numa and distribute-cpus-across-cores can not be used at the \
             same time",
            two(2),
            static_cpus(&[DistributeAcrossNuma, DistributeAcrossCores]),
        ),
        (
            "static policy options prefer-align-cpus-by-uncorecache and distribute-cpus-across-cores can not be used at \
             the same time",
            two(2),
            static_cpus(&[PreferUncoreCache, DistributeAcrossCores]),
        ),
        (
            "static policy options prefer-align-cpus-by-uncorecache and distribute-cpus-across-numa can not be used at \
             the same time",
            two(2),
            static_cpus(&[PreferUncoreCache, DistributeAcrossNuma]),
        ),
        (
            "Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option",
            two(2),
            KubeletProfile { cpu_manager: cpus(&[AlignBySocket], one()), ..single },
        ),
        (
            "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA",
            two(4),
            KubeletProfile { cpu_manager: cpus(&[AlignBySocket], one()), ..aligned },
        ),
        (
            "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero",
            two(2),
            reserved(cpus(&[], ReservedCpus::Count(0))),
        ),
        (
            "[cpumanager] unable to reserve the required amount of CPUs (size of  did not equal 9)",
            two(2),
            reserved(cpus(&[], ReservedCpus::Count(9))),
        ),
        (
            "[cpumanager] unable to build the reserved physical CPUs from the reserved set: unknown CPU ID: 8",
            two(2),
            reserved(cpus(&[], named("0,8-9"))),
        ),
        ("[memorymanager] you should specify the system reserved memory", two(2), with_memory(memory(&[]))),
        (
            "[memorymanager] you should specify the system reserved memory",
            two(2),
            with_memory(memory(&[(0, 0)])),
        ),
        (
            "the reserved memory configuration references a NUMA node 2 that does not exist on this machine",
            two(2),
            with_memory(memory(&[(0, 1), (2, 1)])),
        ),
        (
            "the total amount \"300Mi\" of type \"memory\" is not equal to the value \"400Mi\" determined by Node \
             Allocatable feature",
            two(2),
            KubeletProfile { kept_memory: kept, ..with_memory(memory(&[(0, 100 << 20), (1, 200 << 20)])) },
        ),
    ];
    for (message, machine, profile) in cases {
        let refusal = Kubelet::new(Arc::new(machine), profile).err();
        assert_eq!(refusal.map(|refusal| refusal.to_string()).as_deref(), Some(message));
    }
}

#[test]
fn options_have_the_stage_of_their_version() {
    let stages = |option| {
        [Minor::V34, Minor::V35, Minor::V36, Minor::V37].map(|minor| Stage::of(option, minor).as_str())
    };
    assert_eq!(stages(CpuOption::AlignBySocket), ["Alpha"; 4]);
    assert_eq!(stages(CpuOption::DistributeAcrossNuma), ["Beta"; 4]);
    assert_eq!(stages(CpuOption::StrictReservation), ["Beta", "Stable", "Stable", "Stable"]);
    assert_eq!(stages(CpuOption::PreferUncoreCache), ["Beta", "Beta", "Stable", "Stable"]);
    assert_eq!(stages(CpuOption::FullPcpusOnly), ["Stable"; 4]);
}

/// A node writes its report itself. One that speaks of more devices than a machine has is no reason to make them.
#[test]
fn no_report_makes_a_model_of_devices_without_number() {
    let report = |device_groups| KubeletReport {
        minor: Some(Minor::V36),
        cpu_options: CpuOptions::default(),
        prefer_closest: false,
        pod_level_managers: false,
        reserved_cpus: CpuSet::new(),
        cpus: vec![cpu(0, 0)],
        free_cpus: CpuSet::new(),
        memory_groups: Vec::new(),
        device_groups,
        holdings: Holdings::new(HashKey::Uid, Vec::new()),
    };
    let name = ResourceName::new("vendor.example/nic").unwrap();
    let zones = |count: i64| {
        let of_zone = |id| Zone {
            id: ZoneId(id),
            distances: Vec::new(),
            resources: vec![ZoneResource { name, capacity: count, allocatable: count, available: count }],
        };
        (0..3).map(of_zone).collect()
    };
    let group = |count| ReportedDeviceGroup {
        resource: name,
        zones: ZoneMask::parse("0,1").unwrap(),
        allocatable: count,
        available: count,
    };
    for (in_zone, groups, devices) in
        [(7_000, vec![], 21_000_u64), (0, vec![group(u32::MAX); 2], 2 * u64::from(u32::MAX))]
    {
        let kubelet = Some(Box::new(report(groups)));
        let topology = NodeTopology { zones: zones(in_zone), kubelet, ..NodeTopology::default() };
        let refusal = KubeletStart::new(&topology, PolicyOptions::default()).err();
        assert_eq!(refusal, Some(format!("{devices} devices; allowed are up to 20000")));
    }
}
