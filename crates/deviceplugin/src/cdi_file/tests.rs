use std::collections::BTreeMap;

use super::*;
use crate::config::Config;

/// The file of `example.com/nic` in this folder.
fn file(folder: &Path) -> CdiFile {
    let text = "version: v1alpha1\nresources:\n- name: example.com/nic\n  discovery: {list: {devices: {}}}\n  cdi: {mode: field}\n";
    let resource = Config::parse("x", text).unwrap().resources.remove(0);
    CdiFile::of(&resource, folder).unwrap().unwrap()
}

fn stock(ids: &[&str]) -> Arc<inventory::Resource> {
    let device = |id: &&str| {
        let path = PathBuf::from(format!("/dev/{id}"));
        let node =
            inventory::DeviceNode { host_path: path.clone(), container_path: path, permissions: "rw".into() };
        let gives = Gives { nodes: vec![node], ..Gives::default() };
        let hardware = Arc::new(Hardware { zones: vec![1], gives, pci: None });
        ((*id).into(), Device { hardware, trouble: None })
    };
    let envs = BTreeMap::from([("A".to_owned(), "b".to_owned())]);
    let common = Gives { envs, ..Gives::default() };
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
    assert_eq!(file.ensure(&stock(&[])), Ok(false));
    assert_eq!(file.ensure(&stock(&["a", "b"])), Ok(true));
    let spec = cdi::file::read(&path).unwrap();
    assert_eq!(spec.cdi_version, "0.3.0");
    assert!(spec.container_edits.is_empty(), "variables come in the answer: {:?}", spec.container_edits);
    assert_eq!(spec.devices[0].container_edits.env, ["EXAMPLE_COM_NIC_A=1"]);
    assert_eq!(file.ensure(&stock(&["a", "b"])), Ok(false));
    // Nobody reads there who is healthy.
    let mut sick = stock(&["a", "b"]);
    Arc::make_mut(&mut sick).devices.get_mut("a").unwrap().trouble = Some("burnt".to_owned());
    assert_eq!(file.ensure(&sick), Ok(false));
    // Gone, changed, or another one's: written again.
    std::fs::remove_file(&path).unwrap();
    assert_eq!(file.ensure(&stock(&["a", "b"])), Ok(true));
    std::fs::write(&path, "{}").unwrap();
    assert_eq!(file.ensure(&stock(&["a", "b"])), Ok(true));
    // Containers that run have the names of what is gone, after our restart too.
    assert_eq!(file.ensure(&stock(&["c"])), Ok(true));
    assert_eq!(names(), ["a", "b", "c"]);
    let mut file = new();
    assert_eq!(file.ensure(&stock(&["d"])), Ok(true));
    assert_eq!(names(), ["a", "b", "c", "d"]);
}

#[test]
fn devices_that_are_not_in_the_file_are_held_back() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("cdi");
    let mut file = file(&dir);
    let held = |file: &CdiFile, stock: &inventory::Resource| {
        let held = file.held_back(stock, "disk is full");
        held.devices
            .into_iter()
            .filter(|(_, device)| !device.is_healthy())
            .map(|(id, _)| id.to_string())
            .collect::<Vec<_>>()
    };
    let two = stock(&["a", "b"]);
    assert_eq!(held(&file, &two), ["a", "b"]);
    file.ensure(&two).unwrap();
    let mut three = stock(&["a", "b", "c"]);
    let moved = Arc::make_mut(&mut three).devices.get_mut("b").unwrap();
    Arc::make_mut(&mut moved.hardware).zones = vec![0];
    assert_eq!(held(&file, &three), ["b", "c"]);
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(held(&file, &three), ["a", "b", "c"]);
}

#[test]
fn files_of_others_are_not_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("example.com-nic.json");
    let text = |kind: &str, name: &str| {
        format!(
            "{{\"cdiVersion\":\"0.3.0\",\"kind\":\"{kind}\",\"devices\":[{{\"name\":\"{name}\",\"containerEdits\":{{\"env\":[\"A=1\"]}}}}]}}"
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
        assert_eq!(file.ensure(&stock(&["a"])), Ok(true), "{before}");
        let spec = cdi::file::read(&path).unwrap();
        assert_eq!(spec.devices.iter().map(|device| &*device.name).collect::<Vec<_>>(), names, "{before}");
    }
}

#[test]
fn what_cannot_be_written_is_said() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let mut file = file(&folder.path().join("file"));
    let error = file.ensure(&stock(&["a"])).unwrap_err();
    assert!(error.contains("/file"), "{error}");
    let mut none = config::Resource::new("x", config::Discovery::default());
    none.cdi = config::Cdi { mode: config::CdiMode::Field, kind: Some("nic".to_owned()) };
    assert!(CdiFile::of(&none, folder.path()).is_err());
}
