use node::kubelet::state::assignments::{Assignment, Assignments, Block};
use node::podresources::MemoryBlock;
use node::sysfs;

use super::*;

fn set(text: &str) -> CpuSet {
    CpuSet::parse(text).unwrap()
}

fn mask(ids: &[u32]) -> ZoneMask {
    ids.iter().copied().collect()
}

fn resource(text: &str) -> ResourceName {
    ResourceName::new(text).unwrap()
}

/// Zones 0 and 4 with eight CPUs each, and zone 9 without.
fn machine() -> Machine {
    let zone = |id, cpus| sysfs::Zone {
        id: ZoneId(id),
        cpus: set(cpus),
        memory_bytes: 1 << 30,
        hugepages: vec![],
        distances: vec![],
    };
    Machine { cpus: set("0-15"), zones: vec![zone(0, "0-7"), zone(4, "8-15"), zone(9, "")] }
}

fn allocatable() -> Allocatable {
    Allocatable { cpus: set("1-15"), ..Allocatable::default() }
}

fn devices(entries: &[(&str, &str, &[u32])]) -> Vec<Devices> {
    let entry = |(name, id, zones): &(&str, &str, &[u32])| Devices {
        resource: resource(name),
        ids: vec![(*id).to_owned()],
        zones: zones.iter().copied().map(ZoneId).collect(),
    };
    entries.iter().map(entry).collect()
}

/// A pod `ns/NAME` with a container `c`.
fn listed(name: &str, cpus: &str, memory: &[&[u32]], held: &[(&str, &str, &[u32])]) -> PodResources {
    let block = |zones: &&[u32]| MemoryBlock {
        resource: ResourceName::MEMORY,
        bytes: 1 << 20,
        zones: zones.iter().copied().map(ZoneId).collect(),
    };
    let memory = memory.iter().map(block).collect();
    let container =
        ContainerResources { name: "c".to_owned(), cpus: set(cpus), memory, devices: devices(held) };
    PodResources { namespace: "ns".to_owned(), name: name.to_owned(), containers: vec![container] }
}

/// What is written of the only container.
fn entry(memory_manager: Manager, pod: PodResources) -> String {
    let described = holding_attributes(&machine(), &allocatable(), memory_manager, None, &[pod]);
    let text = described.containers.encode();
    text.split(' ').nth(3).and_then(|entry| entry.split_once('=')).map_or("-", |(_, held)| held).to_owned()
}

#[test]
fn what_goes_without_saying_is_not_written() {
    let nic = "v.io/nic";
    for (manager, cpus, memory, held, wanted) in [
        (Manager::Off, "", &[][..], &[][..], "-"),
        (Manager::Off, "2-3", &[], &[], "2-3"),
        // With the memory manager the zones of the memory are those of the CPUs, unless said.
        (Manager::Static, "2-3", &[&[0][..]], &[], "2-3"),
        (Manager::Static, "2-3", &[&[0, 4]], &[], "2-3@0,4"),
        (Manager::Static, "2-3,8", &[&[0, 4], &[0, 4]], &[], "2-3,8"),
        (Manager::Static, "2-3", &[], &[], "2-3@"),
        (Manager::Static, "", &[&[9]], &[], "@9"),
        (Manager::Off, "2", &[], &[(nic, "a", &[0][..]), (nic, "b", &[0])], "2"),
        (Manager::Off, "2", &[], &[(nic, "a", &[0]), (nic, "b", &[4])], "2+v.io/nic@0*1+v.io/nic@4*1"),
        (Manager::Off, "2,8", &[], &[(nic, "a", &[0])], "2,8+v.io/nic@0*1"),
        (Manager::Off, "", &[], &[(nic, "a", &[0]), (nic, "a", &[4])], "+v.io/nic@0,4*1"),
        (Manager::Off, "", &[], &[(nic, "a", &[])], "-"),
        (Manager::Off, "2", &[], &[(nic, "a", &[])], "2"),
    ] {
        assert_eq!(entry(manager, listed("p", cpus, memory, held)), wanted, "{cpus} {memory:?} {held:?}");
    }
}

#[test]
fn free_cpus_are_neither_reserved_nor_held() {
    let pods = [listed("a", "1-3", &[], &[]), listed("b", "8-15", &[], &[])];
    let described = holding_attributes(&machine(), &allocatable(), Manager::Off, None, &pods);
    assert_eq!(described.free_cpus, BTreeMap::from([(ZoneId(0), set("4-7")), (ZoneId(4), set(""))]));
    let nothing = holding_attributes(&machine(), &Allocatable::default(), Manager::Off, None, &[]);
    assert_eq!(nothing.free_cpus, BTreeMap::new(), "no CPU is ever handed out");
}

#[test]
fn checkpoints_count_what_podresources_leaves_out() {
    let block = |zones: &[u32]| Block { resource: ResourceName::MEMORY, zones: mask(zones), bytes: 1 };
    let held = |cpus, memory: Vec<Block>| Assignment { cpus: set(cpus), memory, ..Default::default() };
    let container = |uid: &str, name: &str| (uid.to_owned(), name.to_owned());
    let checkpoints = Assignments {
        shared_cpus: set("0,6-15"),
        containers: BTreeMap::from([
            (container("u", "init"), held("2-5", vec![])),
            (container("u", "main"), held("1", vec![block(&[0, 4])])),
        ]),
    };
    let pods = [listed("p", "1", &[&[0, 4]], &[])];
    assert!(agree(&checkpoints, &pods));
    let described =
        holding_attributes(&machine(), &allocatable(), Manager::Static, Some(&checkpoints), &pods);
    assert_eq!(described.free_cpus[&ZoneId(0)], set("6-7"), "without those of the finished init container");
    let both = mask(&[0, 4]);
    assert_eq!(described.memory_groups, BTreeMap::from([(ZoneId(0), both), (ZoneId(4), both)]));
    let init = ContainerHash::of_uid("u", "init");
    let wanted = Holding { cpus: set("2-5"), memory: Some(ZoneMask::EMPTY), devices: vec![] };
    assert_eq!(described.containers.of(init), Some(&wanted), "its memory is given back");
    assert!(described.containers.are_of([init, ContainerHash::of_uid("u", "main")]));
    assert_eq!(described.containers.key(), HashKey::Uid);
}

#[test]
fn checkpoints_of_another_moment_are_told() {
    let none = Assignments::default();
    assert!(agree(&none, &[listed("p", "", &[&[0]], &[])]));
    assert!(!agree(&none, &[listed("p", "2", &[], &[])]));
}

#[test]
fn devices_of_several_zones_are_counted_by_their_zones() {
    let offered = devices(&[
        ("v.io/gpu", "a", &[0]),
        ("v.io/gpu", "a", &[4]),
        ("v.io/gpu", "b", &[0, 4]),
        ("v.io/gpu", "c", &[0]),
        ("v.io/nic", "n", &[0, 4, 9]),
        ("v.io/tpm", "t", &[]),
    ]);
    let held = [listed("p", "", &[], &[("v.io/gpu", "b", &[0]), ("v.io/gpu", "c", &[0])])];
    let none = BTreeSet::new();
    assert_eq!(device_groups(&offered, &held, &none), "v.io/gpu@0,4:2:1;v.io/nic@0,4,9:1:1");
    let exclude = BTreeSet::from(["v.io/gpu".to_owned()]);
    assert_eq!(device_groups(&offered, &held, &exclude), "v.io/nic@0,4,9:1:1");
}
