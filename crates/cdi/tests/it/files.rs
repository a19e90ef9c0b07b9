//! Files: names, atomic replacement, removal.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use cdi::{ContainerEdits, Device, FileName, Kind, Spec, file};

fn kind() -> Kind {
    "vendor.example/nic".parse().unwrap()
}

fn spec(devices: usize, value: &str) -> Spec {
    let edits = ContainerEdits { env: vec![format!("VALUE={value}")], ..ContainerEdits::default() };
    Spec::new(&kind(), (0..devices).map(|index| Device::new(format!("d{index}"), edits.clone())).collect())
}

#[test]
fn names() {
    assert_eq!(FileName::for_kind(&kind()).unwrap().as_str(), "vendor.example-nic.json");
    let transient = |id: &str| FileName::transient(&kind(), id);
    assert_eq!(transient("claim/a").unwrap().as_str(), "vendor.example-nic_claim_a.json");
    for id in ["", "a b", "ä", "a\n", "\0", &*"x".repeat(255)] {
        assert!(transient(id).is_err(), "{id:?}");
    }
    for (name, id) in [
        ("vendor.example-nic_claim_a.json", Some("claim_a")),
        ("vendor.example-nic_.json", None),
        ("vendor.example-nic.json", None),
        ("vendor.example-nic_a.yaml", None),
        ("vendor.example-nics_a.json", None),
        ("other.example-nic_a.json", None),
    ] {
        assert_eq!(FileName::transient_id(&kind(), name), id, "{name}");
    }
}

#[test]
fn writing_and_removing() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("run/cdi");
    let name = FileName::for_kind(&kind()).unwrap();
    assert!(!file::remove(&dir, &name).unwrap(), "nothing there, nothing wrong");
    assert!(file::write(&dir, &name, &spec(1, "a")).unwrap());
    let path = dir.join(name.as_str());
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&dir), mode(&path)), (0o755, 0o644));
    assert_eq!(file::read(&path).unwrap(), spec(1, "a"));
    assert!(!file::write(&dir, &name, &spec(1, "a")).unwrap(), "the same again touches nothing");
    assert!(file::write(&dir, &name, &spec(2, "a")).unwrap());
    // A version that is higher than necessary is lowered.
    let high = Spec { cdi_version: "1.1.0".to_owned(), ..spec(1, "b") };
    assert!(file::write(&dir, &name, &high).unwrap());
    assert_eq!(file::read(&path).unwrap().cdi_version, "0.3.0");
    let error = file::write(&dir, &name, &Spec { devices: vec![], ..spec(1, "a") }).unwrap_err().to_string();
    assert_eq!(
        error,
        "CDI specification of \"vendor.example/nic\": devices: is empty; at least one is required"
    );
    assert_eq!(file::read(&path).unwrap(), spec(1, "b"), "what is refused leaves the file as it was");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "no temporary file stays");
    assert!(file::remove(&dir, &name).unwrap() && !file::remove(&dir, &name).unwrap());
    // A folder in the file's place is an error, and no temporary file stays.
    fs::create_dir(&path).unwrap();
    let error = file::write(&dir, &name, &spec(1, "a")).unwrap_err().to_string();
    assert!(error.starts_with("cannot write /") && error.contains("vendor.example-nic.json: "), "{error}");
    assert!(file::remove(&dir, &name).is_err());
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
}

#[test]
fn transient_files_are_found_again() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(file::transient_ids(&dir.path().join("missing"), &kind()).unwrap(), Vec::<String>::new());
    for id in ["claim-b", "claim-a"] {
        file::write(dir.path(), &FileName::transient(&kind(), id).unwrap(), &spec(1, id)).unwrap();
    }
    file::write(dir.path(), &FileName::for_kind(&kind()).unwrap(), &spec(1, "")).unwrap();
    assert_eq!(file::transient_ids(dir.path(), &kind()).unwrap(), ["claim-a", "claim-b"]);
}

#[test]
fn readers_never_see_a_partial_file() {
    let dir = tempfile::tempdir().unwrap();
    let name = FileName::for_kind(&kind()).unwrap();
    let (small, large) = (spec(1, "small"), spec(500, "large"));
    file::write(dir.path(), &name, &small).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut seen_small, mut seen_large) = (0_u32, 0_u32);
            while !done.load(Ordering::Relaxed) {
                let read = file::read(&dir.path().join(name.as_str())).expect("whole");
                assert!(read == small || read == large, "one or the other");
                if read == small {
                    seen_small += 1
                } else {
                    seen_large += 1
                }
                let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
                let visible = names.filter(|name| name.to_string_lossy().ends_with(".json")).count();
                assert_eq!(visible, 1, "temporary files are none that readers take");
                done.fetch_or(seen_small > 20 && seen_large > 20, Ordering::Relaxed);
            }
        });
        while !reader.is_finished() {
            file::write(dir.path(), &name, &large).unwrap();
            file::write(dir.path(), &name, &small).unwrap();
        }
        reader.join().unwrap();
    });
}
