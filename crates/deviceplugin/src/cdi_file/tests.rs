use std::collections::BTreeMap;

use super::*;
use crate::config::Config;

/// The file of `example.com/nic` in this folder.
fn file(folder: &Path) -> CdiFile {
    let text = "version: v1alpha1\nresources:\n- name: example.com/nic\n  discovery: {list: {devices: {}}}\n  \
                cdi: {mode: field}\n";
    let resource = Config::parse("x", text).unwrap().resources.remove(0);
    CdiFile::for_resource(&resource, folder).unwrap().unwrap()
}

fn inventory(ids: &[&str]) -> Arc<inventory::Resource> {
    let device = |id: &&str| {
        let path = PathBuf::from(format!("/dev/{id}"));
        let node =
            inventory::DeviceNode { host_path: path.clone(), container_path: path, permissions: "rw".into() };
        let injection = Injection { nodes: vec![node], ..Injection::default() };
        let hardware = Arc::new(Hardware { zones: vec![1], injection, pci: None });
        ((*id).into(), Device { hardware, unhealthy_reason: None })
    };
    let envs = BTreeMap::from([("A".to_owned(), "b".to_owned())]);
    let common = Injection { envs, ..Injection::default() };
    Arc::new(inventory::Resource { cdi_kind: None, devices: ids.iter().map(device).collect(), common })
}

#[test]
fn the_file_is_written_when_needed_and_devices_stay_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("cdi");
    let new = || file(&dir);
    let path = dir.join("example.com-nic.json");
    let names = || {
        let spec = cdi::file::read(&path).unwrap();
        assert!(cdi::check::refusal(&spec).is_none());
        spec.devices.into_iter().map(|device| device.name).collect::<Vec<_>>()
    };
    let mut file = new();
    assert_eq!(file.ensure(&inventory(&[])), Ok(false));
    assert_eq!(file.ensure(&inventory(&["a", "b"])), Ok(true));
    let spec = cdi::file::read(&path).unwrap();
    assert_eq!(spec.cdi_version, "0.3.0");
    assert!(spec.container_edits.is_empty(), "variables come in the answer: {:?}", spec.container_edits);
    assert_eq!(spec.devices[0].container_edits.env, ["EXAMPLE_COM_NIC_A=1"]);
    assert_eq!(file.ensure(&inventory(&["a", "b"])), Ok(false));
    // The file does not contain health.
    let mut sick = inventory(&["a", "b"]);
    Arc::make_mut(&mut sick).devices.get_mut("a").unwrap().unhealthy_reason = Some("burnt".to_owned());
    assert_eq!(file.ensure(&sick), Ok(false));
    // A file that is gone, changed or replaced is written again.
    std::fs::remove_file(&path).unwrap();
    assert_eq!(file.ensure(&inventory(&["a", "b"])), Ok(true));
    std::fs::write(&path, "{}").unwrap();
    assert_eq!(file.ensure(&inventory(&["a", "b"])), Ok(true));
    // Running containers have the names of removed devices, also after a restart of the plugin.
    assert_eq!(file.ensure(&inventory(&["c"])), Ok(true));
    assert_eq!(names(), ["a", "b", "c"]);
    let mut file = new();
    assert_eq!(file.ensure(&inventory(&["d"])), Ok(true));
    assert_eq!(names(), ["a", "b", "c", "d"]);
}

#[test]
fn devices_missing_from_the_file_are_unhealthy() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("cdi");
    let mut file = file(&dir);
    let held = |file: &CdiFile, inventory: &inventory::Resource| {
        let held = file.with_undescribed_unhealthy(inventory, "disk is full");
        held.devices
            .into_iter()
            .filter(|(_, device)| !device.is_healthy())
            .map(|(id, _)| id.to_string())
            .collect::<Vec<_>>()
    };
    let two = inventory(&["a", "b"]);
    assert_eq!(held(&file, &two), ["a", "b"]);
    file.ensure(&two).unwrap();
    let mut three = inventory(&["a", "b", "c"]);
    let moved = Arc::make_mut(&mut three).devices.get_mut("b").unwrap();
    Arc::make_mut(&mut moved.hardware).zones = vec![0];
    assert_eq!(held(&file, &three), ["b", "c"]);
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(held(&file, &three), ["a", "b", "c"]);
}

#[test]
fn files_of_other_kinds_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("example.com-nic.json");
    let text = |kind: &str, name: &str| {
        format!(
            r#"{{"cdiVersion":"0.3.0","kind":"{kind}",
                "devices":[{{"name":"{name}","containerEdits":{{"env":["A=1"]}}}}]}}"#
        )
    };
    for (before, names) in [
        (text("example.com/nic", "old"), vec!["a", "old"]),
        (text("example.com/other", "old"), vec!["a"]),
        // Runtimes would refuse the whole file.
        (text("example.com/nic", "no name"), vec!["a"]),
    ] {
        std::fs::write(&path, &before).unwrap();
        let mut file = file(folder.path());
        assert_eq!(file.ensure(&inventory(&["a"])), Ok(true), "{before}");
        let spec = cdi::file::read(&path).unwrap();
        assert_eq!(spec.devices.iter().map(|device| &*device.name).collect::<Vec<_>>(), names, "{before}");
    }
}

#[test]
fn write_errors_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let mut file = file(&folder.path().join("file"));
    let error = file.ensure(&inventory(&["a"])).unwrap_err();
    assert!(error.contains("/file"), "{error}");
    let mut none = config::Resource::new("x", config::Discovery::default());
    none.cdi = config::Cdi { mode: config::CdiMode::Field, kind: Some("nic".to_owned()) };
    assert!(CdiFile::for_resource(&none, folder.path()).is_err());
}

#[test]
fn a_full_disk_leaves_what_was_written_and_hides_what_was_not() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let small = || {
        let (flags, size) = (rustix::mount::MountFlags::empty(), Some(c"size=16k"));
        Ok(rustix::mount::mount("tmpfs", dir, "tmpfs", flags, size)?)
    };
    // Only root may mount.
    let Ok(namespaces) = testkit::namespace::Namespaces::default().with_mounts(small) else { return };
    let when_full = || {
        let mut file = file(dir);
        assert_eq!(file.ensure(&inventory(&["a"])), Ok(true));
        std::fs::write(dir.join("rest"), [0; 64 << 10]).unwrap_err();
        let both = inventory(&["a", "b"]);
        let error = file.ensure(&both).unwrap_err();
        assert!(error.contains("No space left on device"), "{error}");
        let offered = file.with_undescribed_unhealthy(&both, &error);
        let healthy = |id: &str| offered.devices[id].unhealthy_reason.is_none();
        assert_eq!([healthy("a"), healthy("b")], [true, false]);
        assert_eq!(cdi::file::read(&dir.join("example.com-nic.json")).unwrap().devices.len(), 1);
        // Nothing of the attempt is left.
        assert_eq!(std::fs::read_dir(dir).unwrap().count(), 2);
        std::fs::remove_file(dir.join("rest")).unwrap();
        assert_eq!(file.ensure(&both), Ok(true));
    };
    namespaces.run(when_full).unwrap();
}
