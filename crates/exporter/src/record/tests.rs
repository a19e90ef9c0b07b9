use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use clap::Parser as _;

use super::*;

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

/// A small node, as files: what `--sysfs`, `fake://` and the kubelet's folder have.
fn node() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("sys/devices/system/cpu/online", "0-3\n"),
        ("sys/devices/system/node/online", "0-1\n"),
        ("sys/devices/system/node/node0/cpulist", "0-1\n"),
        ("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 4096 kB\nNode 0 MemFree: 1 kB\n"),
        ("sys/devices/system/node/node1/cpulist", "2-3\n"),
        ("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 4096 kB\n"),
        ("get_allocatable_resources.json", r#"{"cpu_ids": [1, 2, 3]}"#),
        (
            "list.json",
            r#"{"pod_resources": [{"name": "p", "namespace": "ns", "secret": "s3cret", "containers": [
                {"name": "c", "cpu_ids": [2]}]}]}"#,
        ),
        (
            "config.yaml",
            "topologyManagerPolicy: restricted\nauthentication: {x509: {clientCAFile: s3cret}}\n",
        ),
        ("cpu_manager_state", r#"{"policyName": "static", "token": "s3cret"}"#),
        ("memory_manager_state", "["),
    ] {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

/// The arguments that record such a node.
fn args(node: &Path, out: &Path, more: &[&str]) -> Args {
    let at = node.display();
    let words = [
        "record".to_owned(),
        format!("--out={}", out.display()),
        format!("--podresources-socket=fake://{at}"),
        format!("--sysfs={at}/sys"),
        format!("--kubelet-config-file={at}/config.yaml"),
        format!("--kubelet-state-dir={at}"),
        "--hostname=n1".to_owned(),
    ];
    Cli::parse_from(words.into_iter().chain(more.iter().map(|word| (*word).to_owned()))).args
}

/// All files below a folder, with their modes.
fn walk(dir: &Path, found: &mut Vec<(PathBuf, u32)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        found.push((entry.path(), entry.metadata().unwrap().permissions().mode() & 0o777));
        if entry.path().is_dir() {
            walk(&entry.path(), found);
        }
    }
}

#[tokio::test]
async fn only_known_fields_are_written_to_files_of_the_user() {
    let (node, place) = (node(), tempfile::tempdir().unwrap());
    let out = place.path().join("a/recorded");
    run(args(node.path(), &out, &[])).await.unwrap();
    let mut found = Vec::new();
    walk(&out, &mut found);
    for (path, mode) in &found {
        let wanted = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(*mode, wanted, "{}", path.display());
        let text = if path.is_file() { fs::read_to_string(path).unwrap() } else { String::new() };
        assert!(!text.contains("s3cret") && !text.contains("MemFree"), "{}: {text}", path.display());
    }
    let names = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    let wanted = ["config.yaml", "get_allocatable_resources.json", "list.json", MANIFEST, MACHINE];
    assert_eq!(names, wanted, "one checkpoint is none, so all are left out");
    assert_eq!(fs::read_dir(out.parent().unwrap()).unwrap().count(), 1, "nothing stays beside it");
}

#[tokio::test]
async fn the_recording_of_a_recording_is_the_same() {
    let (node, place) = (node(), tempfile::tempdir().unwrap());
    let [first, second] = ["first", "second"].map(|name| place.path().join(name));
    run(args(node.path(), &first, &[])).await.unwrap();
    run(args(&first, &second, &[])).await.unwrap();
    let mut found = Vec::new();
    walk(&first, &mut found);
    for (path, _) in found.iter().filter(|(path, _)| path.is_file()) {
        let twin = second.join(path.strip_prefix(&first).unwrap());
        assert_eq!(
            fs::read_to_string(path).unwrap(),
            fs::read_to_string(&twin).unwrap(),
            "{}",
            twin.display()
        );
    }
}

#[tokio::test]
async fn a_recording_is_replaced_when_asked_and_nothing_else_is() {
    let (node, place) = (node(), tempfile::tempdir().unwrap());
    let error = async |out: &Path, more: &[&str]| {
        let error = run(args(node.path(), out, more)).await.unwrap_err();
        format!("{error:#}").replace(&place.path().display().to_string(), "DIR")
    };
    let out = place.path().join("out");
    fs::create_dir(&out).unwrap();
    run(args(node.path(), &out, &[])).await.unwrap();
    fs::write(out.join("old"), "").unwrap();
    assert_eq!(error(&out, &[]).await, "--out: DIR/out is there; --force replaces the recording");
    run(args(node.path(), &out, &["--force"])).await.unwrap();
    assert!(!out.join("old").exists());
    fs::write(out.join("old"), "").unwrap();
    fs::remove_file(node.path().join("list.json")).unwrap();
    let gone = error(&out, &["--force"]).await;
    assert!(gone.starts_with("podresources list failed: cannot read "), "{gone}");
    assert!(out.join("old").exists(), "a failure replaces nothing");

    fs::create_dir(place.path().join("other")).unwrap();
    fs::write(place.path().join("other/file"), "").unwrap();
    let other =
        "--out: DIR/other is there, and is no recording (it has no recording.json); name another folder";
    assert_eq!(error(&place.path().join("other"), &["--force"]).await, other);
    let file = "--out: DIR/other/file is there, and is no folder; name another";
    assert_eq!(error(&place.path().join("other/file"), &["--force"]).await, file);
    assert_eq!(error(Path::new("/"), &["--force"]).await, "--out: \"/\" is not the name of a folder");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
}

#[test]
fn the_command_is_quoted_for_a_shell() {
    let args = args(Path::new("/n"), Path::new("it's here"), &["--topology-manager-policy=restricted"]);
    let (name, sources) = args.node.sources_in(&Environment::real()).unwrap();
    assert_eq!(
        command(&name, &sources, Path::new("it's here")),
        r"tholepin exporter --oneshot --dry-run --hostname=n1 '--podresources-socket=fake://it'\''s here' '--sysfs=it'\''s here/sys' '--kubelet-config-file=it'\''s here/config.yaml' '--kubelet-state-dir=it'\''s here' --topology-manager-policy=restricted"
    );
}
