use std::fmt::Write;

use node::podresources::ContainerResources;
use node::sysfs::Hugepages;
use proptest::prelude::*;

use super::*;

fn set(text: &str) -> CpuSet {
    CpuSet::parse(text).unwrap()
}

fn name(text: &str) -> ResourceName {
    ResourceName::new(text).unwrap()
}

fn ids(zones: &[u32]) -> Vec<ZoneId> {
    zones.iter().copied().map(ZoneId).collect()
}

fn devices(resource: &str, ids_: &[&str], zones: &[u32]) -> Devices {
    Devices {
        resource: name(resource),
        ids: ids_.iter().map(|id| (*id).to_owned()).collect(),
        zones: ids(zones),
    }
}

fn memory(resource: &str, bytes: u64, zones: &[u32]) -> MemoryBlock {
    MemoryBlock { resource: name(resource), bytes, zones: ids(zones) }
}

/// Zones as (id, CPU list, memory).
fn machine(zones: &[(u32, &str, u64)]) -> Machine {
    let zone = |(id, cpus, memory_bytes): &(u32, &str, u64)| sysfs::Zone {
        id: ZoneId(*id),
        cpus: set(cpus),
        memory_bytes: *memory_bytes,
        hugepages: vec![],
        distances: zones
            .iter()
            .map(|(other, ..)| (ZoneId(*other), if other == id { 10 } else { 20 }))
            .collect(),
    };
    let zones: Vec<_> = zones.iter().map(zone).collect();
    Machine { cpus: zones.iter().fold(CpuSet::new(), |all, zone| all.union(&zone.cpus)), zones }
}

/// The peers' 24 CPUs, even ones in zone 0.
fn two_by_twelve() -> Machine {
    machine(&[(0, "0,2,4,6,8,10,12,14,16,18,20,22", 0), (1, "1,3,5,7,9,11,13,15,17,19,21,23", 0)])
}

fn pod(cpus: &str, memory: Vec<MemoryBlock>, devices: Vec<Devices>) -> PodResources {
    let container = ContainerResources { name: "c".to_owned(), cpus: set(cpus), memory, devices };
    PodResources { namespace: "ns".to_owned(), name: "p".to_owned(), containers: vec![container] }
}

/// `0: cpu 10/12/12 v.io/net 0/1/1`, a line a zone: available, allocatable, capacity, CPUs whole.
fn show(zones: &[Zone]) -> String {
    let mut text = String::new();
    for zone in zones {
        write!(text, "{}:", zone.id.0).unwrap();
        for resource in &zone.resources {
            let whole = |base: i64| base / resource.name.base_units();
            let [available, allocatable, capacity] =
                [resource.available, resource.allocatable, resource.capacity].map(whole);
            write!(text, " {} {available}/{allocatable}/{capacity}", resource.name).unwrap();
        }
        text.push('\n');
    }
    text
}

fn check(
    machine: &Machine,
    allocatable: &Allocatable,
    pods: &[PodResources],
    wanted: &str,
    remarks: &[Remark],
) {
    let (zones, odd) = zones(machine, allocatable, pods);
    let wanted: String = wanted.lines().map(|line| line.trim().to_owned() + "\n").collect();
    assert_eq!(show(&zones), wanted);
    assert_eq!(odd.into_iter().collect::<Vec<_>>(), remarks);
}

/// A sysfs with one zone of four CPUs, this `MemTotal`, and this number of hugepages of 2 MiB.
fn sysfs_of(kibibytes: u64, pages: u64) -> Machine {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("node/online", "0\n".to_owned()),
        ("cpu/online", "0-3\n".to_owned()),
        ("node/node0/cpulist", "0-3\n".to_owned()),
        ("node/node0/distance", "10\n".to_owned()),
        ("node/node0/meminfo", format!("Node 0 MemTotal: {kibibytes} kB\nNode 0 MemFree: 0 kB\n")),
        ("node/node0/hugepages/hugepages-2048kB/nr_hugepages", format!("{pages}\n")),
    ] {
        let path = dir.path().join("devices/system").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    sysfs::Sysfs::new(dir.path()).machine().unwrap()
}

/// A zone without memory, with all of it used, or with more reserved than there is: it is published with amounts from 0
/// on, and each contradiction is one remark.
#[test]
fn zones_that_are_starved_of_memory_are_published() {
    const GI: u64 = 1 << 30;
    let (below, more) = (
        Remark::BelowNothing { zone: 0, resource: "memory" },
        Remark::MoreThanCapacity { zone: 0, resource: "memory" },
    );
    let excess = Remark::MoreThanAllocatable { resource: "memory", excess: GI };
    // As the kubelet subtracts: the difference of two numbers without a sign.
    let wrapped = 0_u64.wrapping_sub(GI);
    let (kib, pages) = (GI >> 10, GI >> 21);
    for (machine, memory_, hugepages, held, wanted, remarks) in [
        (sysfs_of(0, 0), 0, 0, 0, (0, 0, 0), vec![]),
        (sysfs_of(0, 0), GI, 0, 0, (GI, GI, GI), vec![more]),
        (sysfs_of(0, 0), wrapped, 0, 0, (0, 0, 0), vec![below.clone()]),
        (sysfs_of(kib, 0), GI, 0, GI, (0, GI, GI), vec![]),
        (sysfs_of(kib, 0), GI, 0, 2 * GI, (0, GI, GI), vec![excess.clone()]),
        (sysfs_of(kib, 0), wrapped, 0, 0, (0, 0, GI), vec![below.clone()]),
        (sysfs_of(kib, 0), u64::MAX, 0, GI, (0, 0, GI), vec![below.clone(), excess]),
        (sysfs_of(kib, 2 * pages), wrapped, 2 * GI, 0, (0, 0, GI), vec![below]),
    ] {
        let blocks = vec![memory("memory", memory_, &[0]), memory("hugepages-2Mi", hugepages, &[0])];
        let offered = Allocatable { cpus: set("0-3"), memory: blocks, devices: vec![] };
        let holds = if held > 0 { vec![memory("memory", held, &[0])] } else { vec![] };
        let (available, allocatable, capacity) = wanted;
        let wanted = format!(
            "0: cpu 4/4/4 memory {available}/{allocatable}/{capacity} hugepages-2Mi {hugepages}/{hugepages}/{hugepages}"
        );
        check(&machine, &offered, &[pod("", holds, vec![])], &wanted, &remarks);
    }
}

#[test]
fn an_idle_node() {
    let allocatable = Allocatable {
        cpus: set("0-23"),
        devices: vec![
            devices("v.io/net", &["a", "b", "c", "d"], &[0]),
            devices("v.io/net", &["e", "f"], &[1]),
            devices("v.io/gpu", &["g"], &[1]),
        ],
        ..Allocatable::default()
    };
    check(
        &two_by_twelve(),
        &allocatable,
        &[],
        "0: cpu 12/12/12 v.io/net 4/4/4\n1: cpu 12/12/12 v.io/gpu 1/1/1 v.io/net 2/2/2",
        &[],
    );
}

#[test]
fn reserved_cpus_and_a_pod() {
    let allocatable = Allocatable {
        cpus: set("1-23"),
        devices: vec![devices("v.io/net", &["netAAA"], &[0]), devices("v.io/net", &["netBBB"], &[1])],
        ..Allocatable::default()
    };
    let pod = pod("5,7", vec![], vec![devices("v.io/net", &["netBBB"], &[1])]);
    check(
        &two_by_twelve(),
        &allocatable,
        &[pod],
        "0: cpu 11/11/12 v.io/net 1/1/1\n1: cpu 10/12/12 v.io/net 0/1/1",
        &[],
    );
}

/// The scans and aggregations of the peers' own unit tests that are not above.
#[test]
fn scans_of_the_peers() {
    let net = || vec![devices("v.io/net", &["netAAA"], &[0]), devices("v.io/net", &["netBBB"], &[1])];
    let held = |memory| pod("5,7", memory, vec![devices("v.io/net", &["netBBB"], &[1])]);
    let offers = |cpus: &str, memory, devices| Allocatable { cpus: set(cpus), memory, devices };
    let mut machine = two_by_twelve();
    for (name, allocatable, pods, wanted) in [
        (
            "nothing reserved, no pod",
            offers("0-23", vec![], net()),
            vec![],
            "0: cpu 12/12/12 v.io/net 1/1/1\n1: cpu 12/12/12 v.io/net 1/1/1",
        ),
        (
            "a CPU of each zone reserved",
            offers("2-23", vec![], vec![]),
            vec![],
            "0: cpu 11/11/12\n1: cpu 11/11/12",
        ),
        (
            "a pod",
            offers("0-23", vec![], net()),
            vec![held(vec![])],
            "0: cpu 12/12/12 v.io/net 1/1/1\n1: cpu 10/12/12 v.io/net 0/1/1",
        ),
        (
            "a pod with a part of a CPU and a device",
            offers("0-23", vec![], net()),
            vec![pod("", vec![], vec![devices("v.io/net", &["netAAA"], &[0])])],
            "0: cpu 12/12/12 v.io/net 0/1/1\n1: cpu 12/12/12 v.io/net 1/1/1",
        ),
    ] {
        eprintln!("{name}");
        check(&machine, &allocatable, &pods, wanted, &[]);
    }

    // With memory and pages, as NFD has it.
    for zone in &mut machine.zones {
        zone.memory_bytes = 2048;
    }
    machine.zones[1].hugepages = vec![Hugepages { page_bytes: 2 << 20, total_bytes: 2048 }];
    let blocks = || {
        let of = |resource, zone| memory(resource, 1024, &[zone]);
        vec![of("memory", 0), of("memory", 1), of("hugepages-2Mi", 1)]
    };
    let both = "0: cpu 11/11/12 memory 1024/1024/2048 v.io/net 4/4/4\n\
                1: cpu 11/11/12 memory 1024/1024/2048 hugepages-2Mi 1024/1024/2048 v.io/gpu 1/1/1 v.io/net 2/2/2";
    let many = vec![
        devices("v.io/net", &["a", "b", "c", "d"], &[0]),
        devices("v.io/net", &["e", "f"], &[1]),
        devices("v.io/gpu", &["g"], &[1]),
    ];
    check(&machine, &offers("2-23", blocks(), many), &[], both, &[]);
    let taken = held(vec![memory("memory", 512, &[1]), memory("hugepages-2Mi", 512, &[1])]);
    let wanted = "0: cpu 11/11/12 memory 1024/1024/2048 v.io/net 1/1/1\n\
                  1: cpu 10/12/12 memory 512/1024/2048 hugepages-2Mi 512/1024/2048 v.io/net 0/1/1";
    check(&machine, &offers("1-23", blocks(), net()), &[taken], wanted, &[]);
}

#[test]
fn cpu_stands_in_every_zone_whatever_the_managers_do() {
    let machine = machine(&[(0, "0-3", 1 << 30), (2, "", 1 << 30), (5, "4-7", 0)]);
    check(&machine, &Allocatable::default(), &[], "0: cpu 0/0/4\n2: cpu 0/0/0\n5: cpu 0/0/4", &[]);
}

#[test]
fn sparse_zones_keep_their_ids_and_distances() {
    let machine = machine(&[(0, "0-3", 100), (8, "4-7", 200), (250, "", 300)]);
    let allocatable = Allocatable {
        cpus: set("1-7"),
        memory: vec![memory("memory", 90, &[0]), memory("memory", 190, &[8]), memory("memory", 300, &[250])],
        devices: vec![devices("v.io/x", &["a"], &[250])],
    };
    let held = pod("4", vec![memory("memory", 40, &[8])], vec![devices("v.io/x", &["a"], &[250])]);
    check(
        &machine,
        &allocatable,
        std::slice::from_ref(&held),
        "0: cpu 3/3/4 memory 90/90/100\n8: cpu 3/4/4 memory 150/190/200\n250: cpu 0/0/0 memory 300/300/300 v.io/x 0/1/1",
        &[],
    );
    let (zones, _) = zones(&machine, &allocatable, &[held]);
    assert_eq!(zones[1].distances, [(ZoneId(0), 20), (ZoneId(8), 10), (ZoneId(250), 20)]);
}

#[test]
fn hugepages_of_every_size_have_their_capacity_from_the_kernel() {
    let mut machine = machine(&[(0, "0-1", 1 << 40), (1, "2-3", 1 << 40)]);
    let pages = |page_bytes, total_bytes| Hugepages { page_bytes, total_bytes };
    machine.zones[0].hugepages = vec![pages(64 << 10, 1 << 20), pages(2 << 20, 8 << 20), pages(1 << 30, 0)];
    let allocatable = Allocatable {
        cpus: set("0-3"),
        memory: vec![memory("hugepages-64Ki", 1 << 20, &[0]), memory("hugepages-2Mi", 6 << 20, &[0])],
        ..Allocatable::default()
    };
    let held = pod("", vec![memory("hugepages-2Mi", 2 << 20, &[0])], vec![]);
    check(
        &machine,
        &allocatable,
        &[held],
        "0: cpu 2/2/2 hugepages-2Mi 4194304/6291456/8388608 hugepages-64Ki 1048576/1048576/1048576\n1: cpu 2/2/2",
        &[],
    );
}

#[test]
fn memory_over_several_zones_fills_them_in_order() {
    let machine = machine(&[(0, "0-1", 100), (1, "2-3", 100), (2, "", 100)]);
    let blocks = (0..3).map(|zone| memory("memory", 100, &[zone])).collect();
    let allocatable = Allocatable { cpus: set("0-3"), memory: blocks, ..Allocatable::default() };
    let over_two = pod("", vec![memory("memory", 130, &[0, 1])], vec![]);
    let alone = pod("", vec![memory("memory", 10, &[2])], vec![]);
    let wanted =
        "0: cpu 2/2/2 memory 0/100/100\n1: cpu 2/2/2 memory 70/100/100\n2: cpu 0/0/0 memory 90/100/100";
    check(&machine, &allocatable, &[over_two.clone(), alone.clone()], wanted, &[]);
    check(&machine, &allocatable, &[alone, over_two], wanted, &[]);

    let too_much = pod("", vec![memory("memory", 250, &[0, 1])], vec![]);
    check(
        &machine,
        &allocatable,
        &[too_much],
        "0: cpu 2/2/2 memory 0/100/100\n1: cpu 2/2/2 memory 0/100/100\n2: cpu 0/0/0 memory 100/100/100",
        &[Remark::MoreThanAllocatable { resource: "memory", excess: 50 }],
    );
    let wide = Allocatable { memory: vec![memory("memory", 150, &[0, 1])], ..allocatable };
    check(
        &machine,
        &wide,
        &[],
        "0: cpu 2/2/2 memory 100/100/100\n1: cpu 2/2/2 memory 50/50/100\n2: cpu 0/0/0",
        &[],
    );
}

#[test]
fn a_device_close_to_several_zones_counts_in_each_and_is_taken_in_all() {
    let machine = machine(&[(0, "0-1", 0), (1, "2-3", 0)]);
    // The kubelet lists it once per zone; entries with both zones mean the same.
    for entries in [
        vec![devices("v.io/x", &["wide"], &[0]), devices("v.io/x", &["wide"], &[1])],
        vec![devices("v.io/x", &["wide"], &[0, 1])],
    ] {
        let devices_ = entries.into_iter().chain([devices("v.io/x", &["near"], &[1])]).collect();
        let allocatable = Allocatable { cpus: set("0-3"), devices: devices_, ..Allocatable::default() };
        check(&machine, &allocatable, &[], "0: cpu 2/2/2 v.io/x 1/1/1\n1: cpu 2/2/2 v.io/x 2/2/2", &[]);
        let held = pod("", vec![], vec![devices("v.io/x", &["wide"], &[0])]);
        check(&machine, &allocatable, &[held], "0: cpu 2/2/2 v.io/x 0/1/1\n1: cpu 2/2/2 v.io/x 1/2/2", &[]);
    }
}

#[test]
fn devices_that_are_held_and_no_longer_healthy_take_nothing_away() {
    let machine = machine(&[(0, "0-1", 0)]);
    let allocatable = Allocatable {
        cpus: set("0-1"),
        devices: vec![devices("v.io/x", &["b", "c"], &[0])],
        ..Allocatable::default()
    };
    let held = pod("", vec![], vec![devices("v.io/x", &["a", "b"], &[0])]);
    check(&machine, &allocatable, &[held], "0: cpu 2/2/2 v.io/x 1/2/2", &[]);
}

#[test]
fn devices_without_locality_do_not_appear() {
    let machine = machine(&[(0, "0-1", 0)]);
    let allocatable = Allocatable { devices: vec![devices("v.io/x", &["a"], &[])], ..Allocatable::default() };
    let held = pod("", vec![], vec![devices("v.io/x", &["a"], &[])]);
    check(&machine, &allocatable, &[held], "0: cpu 0/0/2", &[]);
}

#[test]
fn contradictions_are_told_and_the_kubelet_is_believed() {
    let machine = machine(&[(0, "0-1", 100)]);
    let allocatable = Allocatable {
        cpus: set("0-2"),
        memory: vec![memory("memory", 120, &[0]), memory("memory", 5, &[7])],
        devices: vec![devices("v.io/x", &["a"], &[9])],
    };
    let held = pod("1,40-41", vec![memory("memory", 5, &[7])], vec![]);
    check(
        &machine,
        &allocatable,
        &[held],
        "0: cpu 1/2/2 memory 120/120/120",
        &[
            Remark::StrayCpus("2,40-41".to_owned()),
            Remark::StrayZone { zone: 7, resource: "memory" },
            Remark::StrayZone { zone: 9, resource: "v.io/x" },
            Remark::MoreThanCapacity { zone: 0, resource: "memory" },
            Remark::MoreThanAllocatable { resource: "memory", excess: 5 },
        ],
    );
}

#[test]
fn cpus_claimed_twice_count_once() {
    let machine = machine(&[(0, "0-3", 0)]);
    let allocatable = Allocatable { cpus: set("0-3"), ..Allocatable::default() };
    check(
        &machine,
        &allocatable,
        &[pod("1-2", vec![], vec![]), pod("2-3", vec![], vec![])],
        "0: cpu 1/4/4",
        &[],
    );
}

fn any_cpus() -> impl Strategy<Value = CpuSet> {
    proptest::collection::vec(0_u32..12, 0..8).prop_map(|ids| CpuSet::from_ids(ids).unwrap())
}

fn any_zones() -> impl Strategy<Value = Vec<ZoneId>> {
    proptest::collection::btree_set(0_u32..6, 0..4).prop_map(|ids| ids.into_iter().map(ZoneId).collect())
}

fn any_memory() -> impl Strategy<Value = Vec<MemoryBlock>> {
    let bytes = prop_oneof![1_u64..500, Just(i64::MAX as u64)];
    let block = (prop::sample::select(vec!["memory", "hugepages-2Mi"]), bytes, any_zones());
    let block =
        block.prop_map(|(resource, bytes, zones)| MemoryBlock { resource: name(resource), bytes, zones });
    proptest::collection::vec(block, 0..5)
}

fn any_devices() -> impl Strategy<Value = Vec<Devices>> {
    let ids = proptest::collection::btree_set("[a-d]", 1..4).prop_map(|ids| ids.into_iter().collect());
    let entry = (prop::sample::select(vec!["v.io/x", "v.io/y"]), ids, any_zones());
    let entry = entry.prop_map(|(resource, ids, zones)| Devices { resource: name(resource), ids, zones });
    proptest::collection::vec(entry, 0..5)
}

proptest! {
    /// Whatever the kubelet says: the zones are the machine's, `cpu` is in each, amounts are in order, names are in
    /// order, and the order in which the kubelet lists things does not matter.
    #[test]
    fn invariants_hold_for_any_input(
        cpus in any_cpus(), memory in any_memory(), devices in any_devices(),
        held in proptest::collection::vec((any_cpus(), any_memory(), any_devices()), 0..4),
    ) {
        let machine = machine(&[(0, "0-3", 300), (2, "", 200), (5, "4-7", 100)]);
        let mut allocatable = Allocatable { cpus, memory, devices };
        let as_pod = |(cpus, memory, devices): (_, _, _)| pod(&ToString::to_string(&cpus), memory, devices);
        let mut pods: Vec<_> = held.into_iter().map(as_pod).collect();
        let result = zones(&machine, &allocatable, &pods);
        let (zones_, _) = &result;
        prop_assert_eq!(zones_.iter().map(|zone| zone.id.0).collect::<Vec<_>>(), [0, 2, 5]);
        for zone in zones_ {
            prop_assert_eq!(zone.resources[0].name, ResourceName::CPU);
            prop_assert!(zone.resources.windows(2).all(|pair| pair[0].name < pair[1].name));
            for r in &zone.resources {
                prop_assert!(0 <= r.available && r.available <= r.allocatable && r.allocatable <= r.capacity, "{r:?}");
            }
        }
        pods.reverse();
        allocatable.devices.reverse();
        prop_assert_eq!(zones(&machine, &allocatable, &pods), result);
    }
}
