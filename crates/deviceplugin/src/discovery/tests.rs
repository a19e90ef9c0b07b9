use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::*;
use crate::config::Config;

fn environment(sysfs: &Path) -> Environment {
    Environment { node: "worker-0".to_owned(), sysfs: sysfs.to_owned(), allow_host_paths: false }
}

fn resource(discovery: &str) -> Resource {
    let text = format!("version: v1alpha1\nresources:\n- name: example.com/nic\n  discovery: {discovery}\n");
    Config::parse("x", &text).unwrap().resources.remove(0)
}

/// `id zones` of healthy devices, `!` before others.
fn shown(scan: &Scan) -> Vec<String> {
    let device = |(id, found): (&DeviceId, &FoundDevice)| {
        let mark = if found.stated_unhealthy || found.problem.is_some() { "!" } else { "" };
        format!("{mark}{id} {:?}", found.hardware.zones)
    };
    scan.devices.iter().map(device).collect()
}

#[test]
fn lists_are_read_as_the_sample_plugin_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("example_com_nic.yaml");
    let file = resource(&format!("{{file: {{path: {}}}}}", path.display()));
    let sample = Resource { sample: true, ..file.clone() };
    let read = |resource: &Resource| read(resource, Path::new("/none")).map(|scan| shown(&scan));
    let text = "devices:\n  worker-0:\n  - {id: a, healthy: true, numanode: 1, devicename: tty0}\n  \
                - {id: b, healthy: true, numanode: -1}\n  \
                - {id: c}\n  - {id: d, healthy: false, numanodes: [1, 0]}\n  \"*\": [{id: x, healthy: true}]\n";
    fs::write(&path, text).unwrap();
    assert_eq!(read(&file).unwrap(), ["a [1]", "b []", "c []", "!d [0, 1]"]);
    // A missing value is zero there.
    assert_eq!(read(&sample).unwrap(), ["a [1]", "b []", "!c [0]", "!d [0, 1]"]);
    fs::write(&path, "devices:\n  other: [{id: y}]\n  \"*\": [{id: x, healthy: true, numanode: 2}]\n")
        .unwrap();
    assert_eq!(read(&file).unwrap(), ["x [2]"]);
    for (text, wanted) in [
        ("devices:\n  \"*\": [{id: x}, {id: x}]\n", "id \"x\" is listed twice"),
        ("devices:\n  \"*\": [{id: \"\"}]\n", "a device without id"),
        ("devices: [\n", "line"),
        ("devices:\n  \"*\": [{id: \"a b\"}]\n", "allowed are ids of 1 to 63 bytes"),
    ] {
        fs::write(&path, text).unwrap();
        let error = read(&file).unwrap_err();
        assert!(error.contains(wanted), "{error}");
    }
    // No devices are a valid answer, except in place of the sample plugin.
    for text in ["devices:\n  \"*\": []\n", "devices:\n  other: [{id: y}]\n"] {
        fs::write(&path, text).unwrap();
        assert!(read(&file).unwrap().is_empty(), "{text}");
        let error = read(&sample).unwrap_err();
        let words = "no devices for node \"worker-0\": the list has neither that name nor \"*\"";
        assert!(error.contains(words), "{error}");
    }
    fs::remove_file(&path).unwrap();
    assert!(read(&file).unwrap_err().contains("example_com_nic.yaml"));
}

#[test]
fn other_nodes_are_dropped_and_equal_hardware_is_shared() {
    let text = "version: v1alpha1\nresources:\n- name: example.com/nic\n  discovery:\n    list:\n      \
                devices:\n        \
                worker-0: [{id: a, numanode: 1}, {id: b, numanode: 1}, {id: c, numanode: 0}]\n        \
                worker-1: [{id: x}]\n        \"*\": [{id: y}]\n";
    let config = Config::parse("x", text).unwrap();
    for (node, ids) in [("worker-0", "abc"), ("worker-1", "x"), ("worker-2", "y")] {
        let resource = config.clone().of_node(node).resources.remove(0);
        assert_eq!(resource.discovery.list.as_ref().unwrap().devices.len(), 1, "{node}");
        let environment =
            Environment { node: node.to_owned(), sysfs: "/none".into(), allow_host_paths: false };
        let scan = scan(&resource, &environment).unwrap();
        assert_eq!(scan.devices.keys().map(|id| &**id).collect::<String>(), ids, "{node}");
        let hardware: Vec<_> = scan.devices.values().map(|found| &found.hardware).collect();
        // `a` and `b` are alike, `c` is not.
        let alike: Vec<bool> = hardware.windows(2).map(|pair| Arc::ptr_eq(pair[0], pair[1])).collect();
        assert!(alike.is_empty() || alike == [true, false], "{node}");
    }
}

#[test]
fn a_list_is_scanned_only_when_its_text_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list.yaml");
    let environment = environment(Path::new("/none"));
    let ids = |scan: Result<Option<Scan>, Error>| {
        scan.unwrap().map(|scan| scan.devices.keys().map(|id| &**id).collect::<String>())
    };
    let file = resource(&format!("{{file: {{path: {}}}}}", path.display()));
    let mut last = ContentHash::default();
    assert!(scan_if_changed(&file, &environment, &mut last).is_err());
    let mut again = |text: &str| {
        fs::write(&path, text).unwrap();
        ids(scan_if_changed(&file, &environment, &mut last))
    };
    assert_eq!(again("devices: {'*': [{id: a}]}").as_deref(), Some("a"));
    assert_eq!(again("devices: {'*': [{id: a}]}"), None);
    assert_eq!(again("devices: {'*': [{id: b}]}").as_deref(), Some("b"));
    // A node that was removed from the list has no devices.
    assert_eq!(again("devices: {other: [{id: b}]}").as_deref(), Some(""));
    let error = |text: &str, last: &mut ContentHash| {
        fs::write(&path, text).unwrap();
        scan_if_changed(&file, &environment, last).unwrap_err().reason
    };
    let first = error("devices: 1", &mut last);
    assert_eq!(error("devices: 1", &mut last), first, "what is wrong stays wrong");

    let list = resource("{list: {devices: {'*': [{id: a}]}}}");
    let mut last = ContentHash::default();
    assert_eq!(ids(scan_if_changed(&list, &environment, &mut last)).as_deref(), Some("a"));
    assert_eq!(ids(scan_if_changed(&list, &environment, &mut last)), None);
}

/// Devices of a list file or of a folder give no container the whole node, unless that is allowed.
#[test]
fn devices_of_files_and_folders_do_not_give_the_whole_node() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("devices.yaml");
    let file = resource(&format!("{{file: {{path: {}}}}}", path.display()));
    let shown = path.display().to_string();
    let list =
        |node: &str, path: &str| format!("devices: {{{node}: [{{id: a, deviceNodes: [/dev/x, {path}]}}]}}");
    for (text, refused) in [
        (list("worker-0", "/dev/mem"), Some("\"/dev/mem\"")),
        (list("'*'", "/"), Some("\"/\"")),
        (list("'*'", "/var/run/docker.sock"), Some("\"/var/run/docker.sock\"")),
        (list("'*'", "/dev/y"), None),
        (list("other", "/dev/mem"), None),
    ] {
        std::fs::write(&path, &text).unwrap();
        let wanted = refused.map(|refused| {
            format!(
                "{shown}: device \"a\": deviceNodes: {refused} gives each container the whole node: allowed with \
                 --allow-host-paths"
            )
        });
        let strict = environment(dir.path());
        assert_eq!(scan(&file, &strict).err().map(|error| error.reason), wanted, "{text}");
        assert!(scan(&file, &Environment { allow_host_paths: true, ..strict }).is_ok(), "{text}");
    }
    let folder = resource("{directory: {path: /dev, prefix: mem}}");
    let mut hardware = Hardware::default();
    hardware.injection.nodes.push(node(Path::new("/dev/mem")));
    let mut found = Scan::default();
    found
        .devices
        .insert("mem".into(), FoundDevice { hardware: Arc::new(hardware), ..FoundDevice::default() });
    let refused = without_whole_node(&found, &folder.discovery).unwrap_err().reason;
    assert!(
        refused.starts_with("device \"mem\": \"/dev/mem\" gives each container the whole node"),
        "{refused}"
    );
}

fn read(resource: &Resource, sysfs: &Path) -> Result<Scan, String> {
    scan(resource, &environment(sysfs)).map_err(|error| error.reason)
}

#[test]
fn health_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("health");
    let list = format!("{{list: {{devices: {{\"*\": [{{id: a, health: {{file: {}}}}}]}}}}}}", path.display());
    let resource = resource(&list);
    let problem = || scan(&resource, &environment(Path::new("/none"))).unwrap().devices["a"].problem.clone();
    assert!(problem().unwrap().contains("No such file"));
    for (text, healthy) in
        [("", true), ("ok\n", true), (" Healthy", true), ("1", true), ("0", false), ("link is down\n", false)]
    {
        fs::write(&path, text).unwrap();
        assert_eq!(problem().is_none(), healthy, "{text:?}: {:?}", problem());
    }
    assert!(problem().unwrap().ends_with("health: \"link is down\""));
    assert_eq!(
        scan(&resource, &environment(Path::new("/none"))).unwrap().health_folders(),
        [folder.path().to_owned()].into()
    );
    // Opening a pipe without a writer would block.
    fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success() && problem().unwrap().ends_with("not a regular file"));
}

/// Creates a PCI function as sysfs shows it.
fn function(sysfs: &Path, address: &str, files: &[(&str, &str)], driver: Option<&str>) {
    let dir = sysfs.join("bus/pci/devices").join(address);
    fs::create_dir_all(&dir).unwrap();
    for (name, text) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    if let Some(driver) = driver {
        symlink(format!("../../drivers/{driver}"), dir.join("driver")).unwrap();
    }
}

#[test]
fn functions_on_the_bus_are_filtered() {
    let sysfs = tempfile::tempdir().unwrap();
    let nic = [("vendor", "0x8086\n"), ("device", "0x1572\n"), ("class", "0x020000\n"), ("numa_node", "1\n")];
    function(sysfs.path(), "0000:3b:00.0", &nic, Some("i40e"));
    let gpu = [
        ("vendor", "0x10de\n"),
        ("device", "0x1db4\n"),
        ("class", "0x030200\n"),
        ("numa_node", "-1\n"),
        ("drm/card0/uevent", "MAJOR=226\nDEVNAME=dri/card0\n"),
        ("drm/renderD128/uevent", "DEVNAME=dri/renderD128\n"),
        ("drm/evil/uevent", "DEVNAME=../../etc/passwd\n"),
    ];
    function(sysfs.path(), "0000:af:00.0", &gpu, Some("nvidia"));
    let vfio = [("vendor", "0x8086\n"), ("device", "0x154c\n"), ("class", "0x020000\n")];
    function(sysfs.path(), "0000:3b:02.0", &vfio, Some("vfio-pci"));
    symlink(
        "../../../../kernel/iommu_groups/17",
        sysfs.path().join("bus/pci/devices/0000:3b:02.0/iommu_group"),
    )
    .unwrap();
    function(sysfs.path(), "0000:3b:02.1", &vfio, Some("vfio-pci"));

    let read =
        |filter: &str| shown(&read(&resource(&format!("{{pci: {{{filter}}}}}")), sysfs.path()).unwrap());
    assert_eq!(read("vendors: [\"8086\"], drivers: [i40e]"), ["0000:3b:00.0 [1]"]);
    assert_eq!(read("classes: [\"03\"]"), ["0000:af:00.0 []"]);
    assert_eq!(
        read("classes: [\"0302\", \"0200\"], devices: [\"1DB4\", \"1572\"]"),
        ["0000:3b:00.0 [1]", "0000:af:00.0 []"]
    );
    assert_eq!(read("addresses: [\"0000:AF:00.0\"]"), ["0000:af:00.0 []"]);
    assert_eq!(read("drivers: [vfio-pci]"), ["0000:3b:02.0 []", "!0000:3b:02.1 []"]);
    assert!(read("vendors: [\"1234\"]").is_empty());

    let paths = |filter: &str, id: &str| {
        let scan =
            super::scan(&resource(&format!("{{pci: {{{filter}}}}}")), &environment(sysfs.path())).unwrap();
        let nodes = scan.devices[id].hardware.injection.nodes.iter();
        nodes.map(|node| node.host_path.display().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(paths("classes: [\"03\"]", "0000:af:00.0"), ["/dev/dri/card0", "/dev/dri/renderD128"]);
    assert_eq!(paths("drivers: [vfio-pci]", "0000:3b:02.0"), ["/dev/vfio/vfio", "/dev/vfio/17"]);
    assert!(paths("classes: [\"03\"], nodes: none", "0000:af:00.0").is_empty());

    fs::write(sysfs.path().join("bus/pci/devices/0000:3b:00.0/numa_node"), "many\n").unwrap();
    let error = super::scan(&resource("{pci: {classes: [\"02\"]}}"), &environment(sysfs.path())).unwrap_err();
    assert!(error.reason.ends_with("0000:3b:00.0/numa_node: \"many\" is not a NUMA node or -1"), "{error}");
}

#[test]
fn device_nodes_of_a_folder_are_found_with_their_zones() {
    let folder = tempfile::tempdir().unwrap();
    let resource =
        |more: &str| resource(&format!("{{directory: {{path: {}{more}}}}}", folder.path().display()));
    let read = |more: &str| shown(&read(&resource(more), Path::new("/none")).unwrap());
    for name in ["acc0", "acc1", "other", ".acc2"] {
        fs::write(folder.path().join(name), "").unwrap();
    }
    // `/dev/null` through a link is a device node.
    symlink("/dev/null", folder.path().join("acc-null")).unwrap();
    symlink("/nowhere", folder.path().join("acc-nowhere")).unwrap();
    fs::create_dir(folder.path().join("acc-folder")).unwrap();
    assert_eq!(read(", prefix: acc"), ["acc-null []"]);
    assert_eq!(
        read(", prefix: acc, anyFile: true, zones: {acc0: [1], acc1: [0, 1]}"),
        ["acc-null []", "acc0 [1]", "acc1 [0, 1]"]
    );
    let error = super::scan(&resource("/none"), &environment(Path::new("/none"))).unwrap_err();
    assert!(error.gone && error.reason.contains("No such file"), "{error}");
}

#[test]
fn a_device_nodes_zone_is_that_of_its_bus() {
    use std::os::unix::fs::MetadataExt as _;
    let (sysfs, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    symlink("/dev/null", folder.path().join("acc0")).unwrap();
    let rdev = fs::metadata("/dev/null").unwrap().rdev();
    let number = format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev));
    let device = sysfs.path().join("devices/pci0000:3a/0000:3b:00.0/acc/acc0");
    fs::create_dir_all(&device).unwrap();
    fs::write(device.join("../../numa_node"), "1\n").unwrap();
    fs::create_dir_all(sysfs.path().join("dev/char")).unwrap();
    symlink(&device, sysfs.path().join("dev/char").join(number)).unwrap();
    let resource = resource(&format!("{{directory: {{path: {}}}}}", folder.path().display()));
    assert_eq!(shown(&read(&resource, sysfs.path()).unwrap()), ["acc0 [1]"]);
}

proptest! {
    /// Every list yields devices or a one-line error.
    #[test]
    fn arbitrary_lists_never_panic(
        text in "(devices:\n( {1,3}[*a-z\"-]{0,6}:? ?[\\[\\]{}a-z:, 0-9-]{0,30}\n){0,6})|\\PC{0,80}",
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.yaml");
        fs::write(&path, text).unwrap();
        let resource = resource(&format!("{{file: {{path: {}}}}}", path.display()));
        if let Err(error) = scan(&resource, &environment(Path::new("/none"))) {
            prop_assert!(!error.reason.contains('\n'), "{error}");
        }
    }
}
