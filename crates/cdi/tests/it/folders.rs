//! Folders: which file describes a device.

use std::fs;
use std::path::Path;

use cdi::{Registry, Severity};
use tempfile::TempDir;

/// Two folders and their files: name, vendor/class, devices.
fn folders(files: &[(&str, &str, &[&str])]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for dir in ["etc", "run"] {
        fs::create_dir(root.path().join(dir)).unwrap();
    }
    for (path, kind, devices) in files {
        let devices: Vec<_> =
            devices.iter().map(|name| format!("{{name: {name}, containerEdits: {{env: [A=b]}}}}")).collect();
        let text = format!("cdiVersion: 0.6.0\nkind: {kind}\ndevices: [{}]\n", devices.join(", "));
        fs::write(root.path().join(path), text).unwrap();
    }
    root
}

fn read(root: &Path) -> Registry {
    Registry::read(&[root.join("etc"), root.join("run")])
}

/// Checks the devices with the files that describe them, and the number of errors.
fn check(files: &[(&str, &str, &[&str])], devices: &[(&str, &str)], errors: usize) {
    let root = folders(files);
    let registry = read(root.path());
    let found: Vec<_> = registry
        .devices()
        .map(|(name, device, file)| {
            assert!(registry.device(name).is_some_and(|(same, _)| same == device));
            (name.to_string(), file.path.strip_prefix(root.path()).unwrap().display().to_string())
        })
        .collect();
    let found: Vec<_> = found.iter().map(|(name, file)| (name.as_str(), file.as_str())).collect();
    assert_eq!(found, devices, "{files:?}");
    assert_eq!(registry.findings.len(), errors, "{:?}", registry.findings);
    assert_eq!(registry.has_errors(), errors > 0);
}

#[test]
fn the_later_folder_wins_and_clashes_make_devices_unresolvable() {
    check(&[], &[], 0);
    check(&[("etc/a.json", "v/c", &["y", "x"])], &[("v/c=x", "etc/a.json"), ("v/c=y", "etc/a.json")], 0);
    let overridden = [("etc/a.json", "v/c", &["x", "y"][..]), ("run/b.yaml", "v/c", &["x"])];
    check(&overridden, &[("v/c=x", "run/b.yaml"), ("v/c=y", "etc/a.json")], 0);
    let clash = [("run/a.json", "v/c", &["x", "y"][..]), ("run/b.yaml", "v/c", &["x", "z"])];
    check(&clash, &[("v/c=y", "run/a.json"), ("v/c=z", "run/b.yaml")], 1);
    let three =
        [("run/a.json", "v/c", &["x"][..]), ("run/b.yaml", "v/c", &["x"]), ("run/c.json", "v/c", &["x"])];
    check(&three, &[], 2);
    let hidden =
        [("etc/a.json", "v/c", &["x"][..]), ("etc/b.json", "v/c", &["x"]), ("run/c.json", "v/c", &["x"])];
    check(&hidden, &[], 1);
    let strangers = [("run/a.json", "v/c", &["x"][..]), ("run/b.yaml", "v/d", &["x"])];
    check(&strangers, &[("v/c=x", "run/a.json"), ("v/d=x", "run/b.yaml")], 0);
}

#[test]
fn a_conflict_names_device_and_both_files() {
    let root = folders(&[("run/a.json", "v/c", &["x"]), ("run/b.yaml", "v/c", &["x"])]);
    let registry = read(root.path());
    let (path, finding) = &registry.findings[0];
    assert!(path.ends_with("run/b.yaml") && finding.severity == Severity::Error);
    assert!(
        finding.problem.starts_with("v/c=x is also described in ") && finding.problem.contains("run/a.json"),
        "{finding}"
    );
}

#[test]
fn one_bad_file_does_not_hide_the_others() {
    let root = folders(&[
        ("run/good.json", "v/c", &["x"]),
        ("run/empty.json", "v/c", &[]),
        ("run/other.txt", "v/c", &["y"]),
    ]);
    let run = root.path().join("run");
    fs::write(run.join("garbage.json"), "\0{[").unwrap();
    fs::create_dir(run.join("folder.json")).unwrap();
    std::os::unix::fs::symlink(run.join("folder.json"), run.join("link.json")).unwrap();
    std::os::unix::fs::symlink(run.join("missing"), run.join("dangling.json")).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(run.join("pipe.yaml")).status().unwrap();
    assert!(pipe.success());
    let large = fs::File::create(run.join("large.json")).unwrap();
    large.set_len(cdi::file::LIMIT_BYTES + 1).unwrap();
    let registry = read(root.path());
    let names: Vec<_> = registry.devices().map(|(name, ..)| name.to_string()).collect();
    assert_eq!(names, ["v/c=x"]);
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let found: Vec<_> = registry.findings.iter().map(|(path, _)| name(path)).collect();
    assert_eq!(found, ["empty.json", "garbage.json", "large.json", "link.json", "pipe.yaml"]);
    let unreadable: Vec<_> = registry.unreadable.iter().map(|(path, _)| name(path)).collect();
    assert_eq!(unreadable, ["dangling.json"]);
}
