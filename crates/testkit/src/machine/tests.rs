use super::tree::{list, mask};
use super::*;
use std::fs;

fn read(tree: &Tree, path: &str) -> String {
    let full = tree.root().join(path);
    fs::read_to_string(&full)
        .unwrap_or_else(|error| panic!("{}: {error}", full.display()))
        .trim_end()
        .to_owned()
}

#[test]
fn zones_get_their_cpus() {
    fn check(machine: Machine, wanted: &[(u32, &str)]) {
        let layout = machine.layout().unwrap();
        let zones: Vec<(u32, String)> =
            layout.zones.iter().map(|zone| (zone.id, list(zone.cpus.iter().copied()).unwrap())).collect();
        let zones: Vec<(u32, &str)> = zones.iter().map(|(id, cpus)| (*id, cpus.as_str())).collect();
        assert_eq!(zones, wanted, "{machine:?}");
    }
    let small = || Machine::new().zones(2).cpus_per_zone(4);
    check(small(), &[(0, "0-3"), (1, "4-7")]);
    check(small().smt(true), &[(0, "0-1,4-5"), (1, "2-3,6-7")]);
    check(small().interleaved(true), &[(0, "0,2,4,6"), (1, "1,3,5,7")]);
    check(small().interleaved(true).smt(true), &[(0, "0,2,4,6"), (1, "1,3,5,7")]);
    check(small().zone_ids([0, 8]).unwrap(), &[(0, "0-3"), (8, "4-7")]);
    check(small().zone_ids([8, 0]).unwrap(), &[(0, "0-3"), (8, "4-7")]);
    check(small().zone(5, 2, 1024), &[(0, "0-3"), (1, "4-7"), (5, "8-9")]);
    check(small().zone(5, 2, 1024).interleaved(true), &[(0, "0,3,6,8"), (1, "1,4,7,9"), (5, "2,5")]);
    check(small().zone(2, 0, 1024), &[(0, "0-3"), (1, "4-7"), (2, "")]);
    check(small().offline([1, 6]), &[(0, "0,2-3"), (1, "4-5,7")]);
    check(Machine::new().zones(1).cpus_per_zone(1), &[(0, "0")]);
}

#[test]
fn cores_sockets_and_caches() {
    let layout =
        Machine::new().zones(4).cpus_per_zone(8).smt(true).sockets(2).llc_per_zone(2).layout().unwrap();
    assert_eq!(layout.cpus.len(), 32);
    // (cpu, zone, socket, core, llc)
    for wanted in [(0, 0, 0, 0, 0), (2, 0, 0, 2, 1), (7, 1, 0, 7, 3), (8, 2, 1, 0, 4), (31, 3, 1, 7, 7)] {
        let cpu = &layout.cpus[wanted.0 as usize];
        assert_eq!((cpu.id, cpu.zone, cpu.socket, cpu.core, cpu.llc.unwrap()), wanted);
    }
    assert_eq!(layout.cpus[16].siblings, [0, 16]);
    assert_eq!(layout.zones[0].distances, [10, 12, 20, 20]);
    assert_eq!(layout.zones[3].distances, [20, 20, 12, 10]);
}

#[test]
fn an_offline_thread_leaves_its_sibling_alone() {
    let layout = Machine::new().zones(1).cpus_per_zone(4).smt(true).offline([2]).layout().unwrap();
    assert_eq!(layout.cpus[0].siblings, [0]);
    assert!(layout.cpus[2].siblings.is_empty());
    assert_eq!(layout.online(), [0, 1, 3]);
}

#[test]
fn impossible_shapes_are_refused() {
    fn check(machine: Machine, wanted: ShapeError) {
        assert_eq!(machine.layout().unwrap_err(), wanted, "{machine:?}");
    }
    let small = || Machine::new().zones(2).cpus_per_zone(4);
    check(Machine::new().zones(0), ShapeError::Empty);
    check(small().cpus_per_zone(0), ShapeError::Empty);
    check(small().zone(1, 4, 1), ShapeError::DuplicateZone(1));
    check(small().cpus_per_zone(3).smt(true), ShapeError::HalfCore { zone: 0, cpus: 3 });
    check(small().sockets(3), ShapeError::Sockets { sockets: 3, zones: 2 });
    check(small().sockets(0), ShapeError::Sockets { sockets: 0, zones: 2 });
    check(small().zone(2, 0, 1).sockets(3), ShapeError::Sockets { sockets: 3, zones: 2 });
    check(small().llc_per_zone(3), ShapeError::Caches { zone: 0, cores: 4, caches: 3 });
    check(small().offline([0]), ShapeError::Offline(0, 7));
    check(small().offline([8]), ShapeError::Offline(8, 7));
    check(small().distances(vec![vec![10, 20]]), ShapeError::Distances(2));
    check(small().distances(vec![vec![10, 10], vec![20, 10]]), ShapeError::Distances(2));
    let huge = small().memory_mib_per_zone(1).hugepages(1, 2048, 1).unwrap();
    check(huge, ShapeError::Hugepages { zone: 1, hugepages_kib: 2048, memory_kib: 1024 });
    assert_eq!(small().zone_ids([1]).unwrap_err(), ShapeError::ZoneIds { ids: 1, zones: 2 });
    assert_eq!(small().hugepages(7, 2048, 1).unwrap_err(), ShapeError::NoZone(7));
}

#[test]
fn the_tree_reads_as_linux_would_show_it() {
    let dir = tempfile::tempdir().unwrap();
    let tree = Machine::new()
        .zones(2)
        .cpus_per_zone(4)
        .smt(true)
        .sockets(2)
        .memory_mib_per_zone(4096)
        .hugepages_per_zone(2048, 64)
        .zone(3, 0, 1024)
        .hugepages(0, 1 << 20, 1)
        .unwrap()
        .offline([7])
        .write_to(dir.path())
        .unwrap();
    let node = "sys/devices/system/node";
    let cpu = "sys/devices/system/cpu";
    for (path, wanted) in [
        (format!("{node}/online"), "0-1,3"),
        (format!("{node}/possible"), "0-3"),
        (format!("{node}/has_cpu"), "0-1"),
        (format!("{node}/has_memory"), "0-1,3"),
        (format!("{node}/node0/cpulist"), "0-1,4-5"),
        (format!("{node}/node1/cpulist"), "2-3,6"),
        (format!("{node}/node3/cpulist"), ""),
        (format!("{node}/node0/distance"), "10 20 30"),
        (format!("{node}/node0/hugepages/hugepages-1048576kB/nr_hugepages"), "1"),
        (format!("{node}/node1/hugepages/hugepages-2048kB/free_hugepages"), "64"),
        // Through the links, both ways.
        (format!("{node}/node0/cpu4/topology/thread_siblings_list"), "0,4"),
        (format!("{cpu}/cpu4/node0/cpulist"), "0-1,4-5"),
        (format!("{cpu}/online"), "0-6"),
        (format!("{cpu}/offline"), "7"),
        (format!("{cpu}/present"), "0-7"),
        (format!("{cpu}/cpu7/online"), "0"),
        (format!("{cpu}/cpu3/topology/thread_siblings_list"), "3"),
        (format!("{cpu}/cpu3/topology/physical_package_id"), "1"),
        (format!("{cpu}/cpu6/cache/index3/shared_cpu_list"), "2-3,6"),
        (format!("{cpu}/cpu6/cache/index3/shared_cpu_map"), "0000004c"),
        (format!("{cpu}/cpu6/cache/index3/id"), "1"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages".to_owned(), "128"),
        ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages".to_owned(), "1"),
    ] {
        assert_eq!(read(&tree, &path), wanted, "{path}");
    }
    assert!(!tree.root().join(cpu).join("cpu7/topology").exists());
    let zone: Vec<String> =
        read(&tree, &format!("{node}/node0/meminfo")).lines().map(str::to_owned).collect();
    assert_eq!(zone[0].split_whitespace().collect::<Vec<_>>(), ["Node", "0", "MemTotal:", "4194304", "kB"]);
    assert_eq!(zone[1].split_whitespace().nth(3), Some("3014656"), "1 GiB and 128 MiB are huge pages");
    let all = read(&tree, "proc/meminfo");
    assert_eq!(all.lines().next().unwrap().split_whitespace().nth(1), Some("9437184"));
    for (stand_in, _) in tree.mounts() {
        assert!(stand_in.exists(), "{}", stand_in.display());
    }
}

#[test]
fn masks_are_groups_of_32_bits_highest_first() {
    for (ids, count, text) in [
        (&[][..], 0, "00000000"),
        (&[0, 3], 4, "00000009"),
        (&[0, 32, 63], 64, "80000001,00000001"),
        (&[64], 65, "00000001,00000000,00000000"),
    ] {
        assert_eq!(mask(ids, count), text);
    }
}
