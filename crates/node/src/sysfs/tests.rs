use std::fs;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// A sysfs tree given as (file, content) below `devices/system`.
fn tree<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join("devices/system").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

/// Zones 0 and 2 with CPUs (5 is offline), zone 8 with memory only and no hugepages directory.
const SPARSE: [(&str, &str); 15] = [
    ("cpu/online", "0-4,6-7\n"),
    ("node/online", "0,2,8\n"),
    ("node/node0/cpulist", "0,2,4,6\n"),
    ("node/node0/meminfo", "\nNode 0 MemTotal:       32718644 kB\nNode 0 MemFree:  1 kB\n"),
    ("node/node0/distance", "10 21 17\n"),
    ("node/node0/hugepages/hugepages-2048kB/nr_hugepages", "6\n"),
    ("node/node0/hugepages/hugepages-1048576kB/nr_hugepages", "16\n"),
    ("node/node0/hugepages/hugepages-64kB/nr_hugepages", "0\n"),
    ("node/node2/cpulist", "1,3,5,7\n"),
    ("node/node2/meminfo", "Node 2 MemTotal:  0 kB\n"),
    ("node/node2/distance", "21 10 28\n"),
    ("node/node2/hugepages/hugepages-2048kB/nr_hugepages", "8\n"),
    ("node/node8/cpulist", "\n"),
    ("node/node8/meminfo", "Node 8 MemTotal: 1024 kB\n"),
    ("node/node8/distance", "17 28 10\n"),
];

/// [`SPARSE`] with one file replaced (`Some`) or removed (`None`).
fn sparse(name: &str, text: Option<&[u8]>) -> TempDir {
    let kept = SPARSE.iter().filter(|(n, _)| *n != name).map(|(n, t)| (*n, t.as_bytes()));
    tree(kept.chain(text.map(|text| (name, text))))
}

fn set(text: &str) -> CpuSet {
    CpuSet::parse(text).unwrap()
}

#[test]
fn sparse_ids_offline_cpus_and_memory_only_zones() {
    let dir = sparse("", None);
    let machine = Sysfs::new(dir.path()).machine().unwrap();
    assert_eq!(machine.cpus, set("0-4,6-7"));
    let pages = |page_bytes, total_bytes| Hugepages { page_bytes, total_bytes };
    let zones = vec![
        Zone {
            id: ZoneId(0),
            cpus: set("0,2,4,6"),
            memory_bytes: 32_718_644 * 1024,
            hugepages: vec![pages(1 << 16, 0), pages(2 << 20, 12_582_912), pages(1 << 30, 17_179_869_184)],
            distances: vec![(ZoneId(0), 10), (ZoneId(2), 21), (ZoneId(8), 17)],
        },
        Zone {
            id: ZoneId(2),
            cpus: set("1,3,7"),
            memory_bytes: 0,
            hugepages: vec![pages(2 << 20, 16_777_216)],
            distances: vec![(ZoneId(0), 21), (ZoneId(2), 10), (ZoneId(8), 28)],
        },
        Zone {
            id: ZoneId(8),
            cpus: CpuSet::new(),
            memory_bytes: 1 << 20,
            hugepages: vec![],
            distances: vec![(ZoneId(0), 17), (ZoneId(2), 28), (ZoneId(8), 10)],
        },
    ];
    assert_eq!(machine.zones, zones);
}

#[test]
fn without_the_online_file_every_node_directory_is_a_zone() {
    let dir = sparse("node/online", None);
    let ids: Vec<_> = Sysfs::new(dir.path()).machine().unwrap().zones.iter().map(|zone| zone.id.0).collect();
    assert_eq!(ids, [0, 2, 8]);
}

#[test]
fn without_distances_there_are_no_costs() {
    let dir = sparse("node/node2/distance", None);
    assert_eq!(Sysfs::new(dir.path()).machine().unwrap().zones[1].distances, []);
}

#[test]
fn hugepage_names_are_the_kubelets() {
    for (kib, name) in
        [(8, "8Ki"), (64, "64Ki"), (2048, "2Mi"), (4096, "4Mi"), (1 << 20, "1Gi"), (16 << 20, "16Gi")]
    {
        let pages = Hugepages { page_bytes: kib * 1024, total_bytes: 0 };
        assert_eq!(pages.resource().unwrap().as_str(), format!("hugepages-{name}"));
    }
}

#[test]
fn odd_files_are_named() {
    let table: [(&str, Option<&str>, &str); 19] = [
        ("cpu/online", Some("\n"), "{}/cpu/online: no CPU is online"),
        ("cpu/online", Some("0-70000"), "{}/cpu/online: CPU id 70000 is too large; allowed are 0 to 8191"),
        ("node/online", Some("\n"), "{}/node/online: no NUMA node is online"),
        (
            "node/online",
            Some("0-"),
            "{}/node/online: \"0-\" in a CPU list is neither a CPU id nor a range such as 0-3",
        ),
        ("node/online", Some("1,2,8"), "{}/node/node1 is missing: it is in the list of online NUMA nodes"),
        ("node/node0/cpulist", Some("3-1"), "{}/node/node0/cpulist: CPU range 3-1 runs backwards"),
        ("node/node2/cpulist", Some("1,2,3"), "{}/node/node2/cpulist: CPUs 2 are in node0 too"),
        ("node/node2/meminfo", None, "cannot read {}/node/node2/meminfo"),
        ("node/node2/meminfo", Some("MemFree: 1 kB"), "{}/node/node2/meminfo: has no line MemTotal"),
        (
            "node/node2/meminfo",
            Some("Node 2 MemTotal: -5 kB"),
            "{}/node/node2/meminfo: MemTotal is \"-5 kB\", expected a number of kB",
        ),
        (
            "node/node2/meminfo",
            Some("Node 2 MemTotal: 18014398509481984 kB"),
            "{}/node/node2/meminfo: MemTotal is \"18014398509481984 kB\", expected a number of kB",
        ),
        (
            "node/node2/meminfo",
            Some("Node 2 MemTotal: 5 MB"),
            "{}/node/node2/meminfo: MemTotal is \"5 MB\", expected a number of kB",
        ),
        (
            "node/node8/distance",
            Some("10 x 20"),
            "{}/node/node8/distance: \"x\" is not a number from 0 to 18446744073709551615",
        ),
        (
            "node/node8/distance",
            Some("10 99999999999 20"),
            "{}/node/node8/distance: out of range integral type conversion attempted",
        ),
        (
            "node/node0/hugepages/hugepages-xkB/nr_hugepages",
            Some("1"),
            "{}/node/node0/hugepages/hugepages-xkB: the name is not hugepages-<size>kB",
        ),
        (
            "node/node0/hugepages/hugepages-0kB/nr_hugepages",
            Some("1"),
            "{}/node/node0/hugepages/hugepages-0kB: the name is not hugepages-<size>kB",
        ),
        (
            "node/node0/hugepages/hugepages-2048kB/nr_hugepages",
            Some("many"),
            "{}/node/node0/hugepages/hugepages-2048kB/nr_hugepages: \"many\" is not a number from 0 to \
             18446744073709551615",
        ),
        (
            "node/node0/hugepages/hugepages-2048kB/nr_hugepages",
            Some("9223372036854775807"),
            "{}/node/node0/hugepages/hugepages-2048kB/nr_hugepages: 9223372036854775807 pages of 2097152 bytes is \
             impossible",
        ),
        (
            "node/node0/hugepages/hugepages-02048kB/nr_hugepages",
            Some("1"),
            "{}/node/node0/hugepages: pages of 2097152 bytes are listed twice",
        ),
    ];
    for (name, text, wanted) in table {
        let dir = sparse(name, text.map(str::as_bytes));
        let error = Sysfs::new(dir.path()).machine().expect_err(name).to_string();
        let below = dir.path().join("devices/system").display().to_string();
        assert_eq!(error, wanted.replace("{}", &below));
    }
}

#[test]
fn an_empty_tree_and_endless_or_binary_files_are_errors() {
    let empty = tempfile::tempdir().unwrap();
    let error = Sysfs::new(empty.path()).machine().unwrap_err().to_string();
    assert!(error.ends_with("the kernel was built without NUMA, or this is not a sysfs mount"), "{error}");

    let dir = sparse("node/node0/meminfo", Some(&[b' '; (1 << 20) + 1]));
    let error = Sysfs::new(dir.path()).machine().unwrap_err().to_string();
    assert!(
        error.ends_with("node0/meminfo has more than 1048576 bytes, which is not a file of this kind"),
        "{error}"
    );

    let dir = sparse("node/node0/meminfo", Some(&[0xff, 0xfe]));
    let error = Sysfs::new(dir.path()).machine().unwrap_err().to_string();
    assert!(error.ends_with("node0/meminfo is not UTF-8 text"), "{error}");
}

/// What a machine with one odd file is, without the rest of what is in [`SPARSE`]: the CPUs of each zone, and the text.
#[test]
fn odd_machines_are_described_with_one_line() {
    for (name, text, cpus, line) in [
        (
            "cpu/online",
            None,
            ["0,2,4,6", "1,3,5,7", ""],
            "cpu/online is missing: the CPUs of all NUMA nodes are used",
        ),
        (
            "node/node2/cpulist",
            None,
            ["0,2,4,6", "3", ""],
            "cpulist is missing: the directory's links to CPUs are used",
        ),
        (
            "node/node8/distance",
            Some("10 20"),
            ["0,2,4,6", "1,3,7", ""],
            "has 2 distances for 3 online NUMA nodes: left out",
        ),
        (
            "node/node8/distance",
            Some("1 2 3 4"),
            ["0,2,4,6", "1,3,7", ""],
            "has 4 distances for 3 online NUMA nodes: left out",
        ),
        ("node/node0/cpulist", Some("0,2,4,6\n\0"), ["0,2,4,6", "1,3,7", ""], ""),
    ] {
        let dir = sparse(name, text.map(str::as_bytes));
        for link in ["cpu3", "cpu5", "cpufreq"] {
            fs::write(dir.path().join("devices/system/node/node2").join(link), "").unwrap();
        }
        let sysfs = Sysfs::new(dir.path());
        for _ in 0..2 {
            let machine = sysfs.machine().expect(name);
            let found: Vec<String> = machine.zones.iter().map(|zone| zone.cpus.to_string()).collect();
            assert_eq!(found, cpus, "{name}");
            if name.ends_with("distance") {
                assert_eq!((machine.zones[2].distances.len(), machine.zones[0].distances.len()), (0, 3));
            }
        }
        let told = sysfs.oddities.texts();
        assert_eq!(told.len(), usize::from(!line.is_empty()), "{told:?}");
        assert!(told.iter().all(|told| told.ends_with(line)), "{told:?}");
    }
}

#[test]
fn memory_of_gpus_beyond_the_kubelets_masks_is_left_out() {
    let files = [
        ("cpu/online", "0-3"),
        ("node/online", "0,8,252-255"),
        ("node/node0/cpulist", "0-1"),
        ("node/node8/cpulist", "2-3"),
    ];
    let mut files: Vec<(String, String)> =
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    for id in [0, 8, 252, 253, 254, 255] {
        files.push((format!("node/node{id}/meminfo"), format!("Node {id} MemTotal: 1024 kB")));
        files.push((format!("node/node{id}/distance"), "10 40 80 80 80 80".to_owned()));
        if id > 63 {
            files.push((format!("node/node{id}/cpulist"), "\n".to_owned()));
        }
    }
    let dir = tree(files.iter().map(|(name, text)| (name.as_str(), text.as_bytes())));
    let sysfs = Sysfs::new(dir.path());
    let machine = sysfs.machine().unwrap();
    let zones: Vec<_> = machine.zones.iter().map(|zone| (zone.id.0, zone.distances.len())).collect();
    assert_eq!(zones, [(0, 2), (8, 2)]);
    assert_eq!(
        sysfs.oddities.texts(),
        ["NUMA nodes 252-255 are beyond 63 and hold no CPUs: they are left out"]
    );
    // With CPUs it is not ours to leave out; the exporter refuses such a machine.
    fs::write(dir.path().join("devices/system/node/node8/cpulist"), "2").unwrap();
    fs::write(dir.path().join("devices/system/node/node254/cpulist"), "3").unwrap();
    let ids: Vec<_> = sysfs.machine().unwrap().zones.iter().map(|zone| zone.id.0).collect();
    assert_eq!(ids, [0, 8, 254]);
}

#[test]
fn page_sizes_are_bounded() {
    let sizes: Vec<String> =
        (1..=200).map(|kib| format!("node/node8/hugepages/hugepages-{kib}kB/nr_hugepages")).collect();
    let files = SPARSE.iter().map(|(name, text)| (*name, text.as_bytes()));
    let dir = tree(files.chain(sizes.iter().map(|name| (name.as_str(), &b"1"[..]))));
    let sysfs = Sysfs::new(dir.path());
    let found = &sysfs.machine().unwrap().zones[2].hugepages;
    assert_eq!((found.len(), found[31].page_bytes), (MAX_PAGE_SIZES, 32 * 1024));
    assert!(sysfs.oddities.texts()[0].ends_with("the 32 smallest page sizes are used, 168 are left out"));
}

#[test]
fn pipes_and_devices_are_refused_at_once() {
    let dir = sparse("node/node0/meminfo", None);
    let path = dir.path().join("devices/system/node/node0/meminfo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
    let error = || Sysfs::new(dir.path()).machine().unwrap_err().to_string();
    assert!(error().ends_with("node0/meminfo is not a regular file"), "{}", error());
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    assert!(error().ends_with("node0/meminfo is not a regular file"), "{}", error());
}

#[test]
fn this_machine_can_be_read() {
    let sysfs = Sysfs::new("/sys");
    if !Path::new("/sys/devices/system/node/online").exists() {
        eprintln!("skipped: no NUMA information under /sys here");
        return;
    }
    let machine = sysfs.machine().unwrap();
    assert!(machine.zones.iter().any(|zone| !zone.cpus.is_empty() && zone.memory_bytes > 0));
    sysfs.core_kinds().unwrap();
    let in_cores: usize = sysfs.layout().unwrap().cores.iter().map(CpuSet::len).sum();
    assert_eq!(in_cores, machine.cpus.len());
}

/// CPUs 0-3, siblings (i, i + 2); a data cache of level 2 per core and one of level 3 for 0 and 2 only.
fn layout_files() -> Vec<(String, String)> {
    let mut files = vec![("cpu/online".to_owned(), "0-3".to_owned())];
    for cpu in 0..4 {
        let core = format!("{},{}", cpu % 2, cpu % 2 + 2);
        files.push((format!("cpu/cpu{cpu}/topology/thread_siblings_list"), core.clone()));
        for (index, level, kind) in [(0, 1, "Data"), (1, 1, "Instruction"), (2, 2, "Unified")] {
            let cache = format!("cpu/cpu{cpu}/cache/index{index}");
            files.push((format!("{cache}/level"), format!("{level}\n")));
            files.push((format!("{cache}/type"), format!("{kind}\n")));
            files.push((format!("{cache}/shared_cpu_list"), core.clone()));
        }
    }
    files
}

fn layout_of(files: &[(String, String)]) -> Result<Layout, String> {
    let dir = tree(files.iter().map(|(name, text)| (name.as_str(), text.as_bytes())));
    let below = dir.path().join("devices/system").display().to_string();
    Sysfs::new(dir.path()).layout().map_err(|error| error.to_string().replace(&below, "{}"))
}

#[test]
fn cores_and_last_level_caches() {
    let mut files = layout_files();
    assert_eq!(layout_of(&files).unwrap().caches, [set("0,2"), set("1,3")], "level 2 is the last");
    for cpu in 0..4 {
        let cache = format!("cpu/cpu{cpu}/cache/index3");
        files.push((format!("{cache}/level"), "3".to_owned()));
        files.push((format!("{cache}/shared_cpu_list"), "0-3".to_owned()));
    }
    let layout = layout_of(&files).unwrap();
    assert_eq!(layout.cores, [set("0,2"), set("1,3")]);
    assert_eq!(layout.caches, [set("0-3")]);
}

#[test]
fn machines_without_siblings_or_caches_have_single_cores() {
    let layout = layout_of(&[("cpu/online".to_owned(), "0,5".to_owned())]).unwrap();
    assert_eq!(layout, Layout { cores: vec![set("0"), set("5")], caches: vec![] });
}

#[test]
fn offline_cpus_are_in_no_core_and_no_cache() {
    let mut files = layout_files();
    files[0].1 = "0-1,3".to_owned();
    // As the kernel leaves it while CPU 2 goes: its directory is there, its siblings still name it.
    let layout = layout_of(&files).unwrap();
    assert_eq!(layout.cores, [set("0"), set("1,3")]);
    assert_eq!(layout.caches, [set("0"), set("1,3")]);
}

#[test]
fn kinds_of_cores() {
    let kinds = |files: &[(&str, &str)]| {
        let online = [("cpu/online", &b"0-5"[..])];
        let dir = tree(online.into_iter().chain(files.iter().map(|(name, text)| (*name, text.as_bytes()))));
        let here = dir.path().display().to_string();
        Sysfs::new(dir.path()).core_kinds().map_err(|error| error.to_string().replace(&here, "{}"))
    };
    assert_eq!(kinds(&[]), Ok(BTreeMap::new()));
    let hybrid = [
        ("../cpu_core/cpus", "0-3\n"),
        ("../cpu_atom/cpus", "4-7\n"),
        ("../cpu_lowpower/cpus", "8-9\n"), // all offline
        ("../cpu_other/type", "4\n"),
        ("../cpu/type", "4\n"),
        ("../uncore_imc_0/cpus", "0\n"),
    ];
    let wanted = [("cpu_atom", "4-5"), ("cpu_core", "0-3")];
    let wanted = wanted.map(|(name, cpus)| (name.to_owned(), set(cpus)));
    assert_eq!(kinds(&hybrid), Ok(BTreeMap::from(wanted)));
    let error = kinds(&[("../cpu_core/cpus", "fast")]).unwrap_err();
    assert!(error.starts_with("{}/devices/cpu_core/cpus: "), "{error}");
}

#[test]
fn contradicting_layouts_are_named() {
    for (file, text, wanted) in [
        (
            "cpu/cpu0/topology/thread_siblings_list",
            "1",
            "{}/cpu/cpu0/topology/thread_siblings_list: CPU 0 is not in its own group 1",
        ),
        (
            "cpu/cpu1/topology/thread_siblings_list",
            "1-2",
            "{}/cpu/cpu1/topology/thread_siblings_list: CPUs 2 are in another group too",
        ),
        (
            "cpu/cpu0/cache/index2/level",
            "L2",
            "{}/cpu/cpu0/cache/index2/level: \"L2\" is not a number from 0 to 18446744073709551615",
        ),
    ] {
        let mut files = layout_files();
        files.iter_mut().find(|(name, _)| name == file).unwrap().1 = text.to_owned();
        assert_eq!(layout_of(&files), Err(wanted.to_owned()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever is in a file, reading ends with a machine whose zones are sane, or with an error that names a file.
    #[test]
    fn garbage_never_panics(index in 0..SPARSE.len(), bytes in prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..64),
        "[0-9, \\-\\nkBMemTotal:]{0,40}".prop_map(String::into_bytes),
    ]) {
        let dir = sparse(SPARSE[index].0, Some(&bytes));
        match Sysfs::new(dir.path()).machine() {
            Ok(machine) => {
                let cpus: usize = machine.zones.iter().map(|zone| zone.cpus.len()).sum();
                prop_assert!(cpus <= machine.cpus.len());
                prop_assert!(machine.zones.windows(2).all(|pair| pair[0].id < pair[1].id));
            }
            Err(error) => prop_assert!(error.to_string().contains("devices/system"), "{error}"),
        }
    }
}

/// Cores, caches and kinds of cores beside [`SPARSE`].
const CORES: [(&str, &str); 9] = [
    ("cpu/cpu0/topology/thread_siblings_list", "0,2\n"),
    ("cpu/cpu2/topology/thread_siblings_list", "0,2\n"),
    ("cpu/cpu0/cache/index0/type", "Data\n"),
    ("cpu/cpu0/cache/index0/level", "1\n"),
    ("cpu/cpu0/cache/index0/shared_cpu_list", "0,2\n"),
    ("cpu/cpu0/cache/index0/id", "7\n"),
    ("../cpu_core/cpus", "0-4\n"),
    ("../cpu_atom/cpus", "6-7\n"),
    ("../tracepoint/secret", "x\n"),
];

/// Writes a recording to a folder.
fn replay(recording: &Recording) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in &recording.files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

#[test]
fn a_recording_is_read_as_the_machine() {
    for missing in ["", "node/node0/cpulist", "cpu/online", "node/online", "node/node2/distance"] {
        let files = SPARSE.iter().chain(&CORES).filter(|(name, _)| *name != missing);
        let dir = tree(files.map(|(name, text)| (*name, text.as_bytes())));
        for cpu in [0, 2, 4, 6] {
            fs::create_dir(dir.path().join(format!("devices/system/node/node0/cpu{cpu}"))).unwrap();
        }
        let sysfs = Sysfs::new(dir.path());
        let recording = sysfs.record().unwrap();
        let copy = replay(&recording);
        let read =
            |sysfs: &Sysfs| (sysfs.machine().unwrap(), sysfs.layout().unwrap(), sysfs.core_kinds().unwrap());
        assert_eq!(read(&Sysfs::new(copy.path())), read(&sysfs), "without {missing:?}");
        assert!(recording.unreadable.is_empty());
        let meminfo = &recording.files[Path::new("devices/system/node/node0/meminfo")];
        assert_eq!(meminfo, "Node 0 MemTotal:       32718644 kB\n");
        let names: Vec<_> = recording.files.keys().filter_map(|path| path.file_name()).collect();
        assert!(!names.iter().any(|name| *name == "id" || *name == "secret"), "{names:?}");
    }
}

#[test]
fn what_cannot_be_read_of_cores_cannot_be_read_of_the_recording() {
    let files = SPARSE.iter().map(|(name, text)| (*name, text.as_bytes()));
    let dir = tree(files.chain([("cpu/cpu0/topology/thread_siblings_list", &b"\xff"[..])]));
    let sysfs = Sysfs::new(dir.path());
    let recording = sysfs.record().unwrap();
    assert_eq!(recording.unreadable.len(), 1, "{:?}", recording.unreadable);
    let copy = replay(&recording);
    assert!(sysfs.layout().is_err() && Sysfs::new(copy.path()).layout().is_err());
    assert!(Sysfs::new(dir.path().join("nowhere")).record().is_err());
}
