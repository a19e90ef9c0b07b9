//! A real kubelet says what it makes of its configuration files, and we must have read the same.
//!
//! The kubelet logs its merged configuration before it does anything else; without an API server it then ends by
//! itself.

#![expect(clippy::panic, reason = "a test fails by panicking; the exemption for tests misses helpers")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use node::kubelet::config::{Configuration, Files};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::env::{Program, Rig};

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
/// What keeps a kubelet from refusing this machine before it says what it read.
const LOOSE: &str =
    "failCgroupV1: false\ncgroupsPerQOS: false\nenforceNodeAllocatable: [none]\nfailSwapOn: false\n";

/// Files of a kubelet: `config`, and drop-ins in `d`.
fn files(main: &str, drop_ins: &[(String, String)]) -> (TempDir, Files) {
    let dir = tempfile::tempdir().unwrap();
    let files = Files { file: dir.path().join("config"), drop_ins: Some(dir.path().join("d")) };
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(&files.file, format!("{HEAD}{LOOSE}{main}")).unwrap();
    for (name, text) in drop_ins {
        let path = dir.path().join("d").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    (dir, files)
}

/// What the kubelet made of the files, or why it did not start.
fn kubelet(rig: &Rig, dir: &Path, files: &Files) -> Result<Configuration, String> {
    let log = dir.join("log");
    let mut command = Command::new(rig.binaries.path(Program::Kubelet));
    command.arg("--config").arg(&files.file).arg("--v=5");
    command.arg("--root-dir").arg(dir.join("root")).arg("--cert-dir").arg(dir.join("pki"));
    command.arg("--container-runtime-endpoint").arg(format!("unix://{}/none.sock", dir.display()));
    if let Some(drop_ins) = &files.drop_ins {
        command.arg("--config-dir").arg(drop_ins);
    }
    let output = fs::File::create(&log).unwrap();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output).status().unwrap();
    assert!(!status.success(), "a kubelet without an API server ends");
    let log = fs::read_to_string(log).unwrap();
    let Some((_, from)) = log.split_once("\"KubeletConfiguration\" configuration=<\n") else {
        let error = log.split_once("\"command failed\"").map(|(_, error)| error.to_owned());
        // Once it runs it has taken the configuration.
        let error = error.filter(|error| !error.contains("failed to run Kubelet"));
        return Err(error.unwrap_or_else(|| panic!("the kubelet does not say what it read: {log}")));
    };
    let (text, _) = from.split_once("\n >").unwrap();
    // Its internal structure has the fields of `/configz`, beginning in upper case.
    let internal: Value = serde_json::from_str(text).unwrap();
    let answer = json!({ "kubeletconfig": internal }).to_string();
    Ok(Configuration::from_configz(&answer, Path::new("the kubelet's log")).unwrap())
}

/// Compares; an error of one must be an error of the other.
fn check(rig: &Rig, dir: &Path, files: &Files) {
    let ours = Configuration::read(files).map_err(|error| error.to_string());
    let theirs = kubelet(rig, dir, files);
    match (&ours, &theirs) {
        (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs, "{files:?}"),
        (Err(_), Err(_)) => {}
        _ => panic!("we: {ours:?}\nthe kubelet: {theirs:?}"),
    }
}

#[test]
fn files_are_read_as_the_kubelet_reads_them() {
    let Ok(rig) = testkit::env::rig() else { return };
    let policy = |policy: &str| format!("topologyManagerPolicy: {policy}\n");
    let with_head = |text: &str| format!("{HEAD}{text}");
    let maps = "kubeReserved: {cpu: 500m, memory: 1Gi}\n\
                cpuManagerPolicyOptions: {full-pcpus-only: 'true', strict-cpu-reservation: 'true'}\n\
                reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}, {numaNode: 1, limits: {memory: 2e9}}]\n";
    let patch = "kubeReserved: {cpu: '2'}\nsystemReserved: {cpu: '1'}\n\
                 cpuManagerPolicyOptions: {full-pcpus-only: null, align-by-socket: 'true'}\n\
                 reservedMemory: [{numaNode: 1, limits: {hugepages-2Mi: 2097152}}]\n";
    let cases: Vec<(String, Vec<(&str, String)>)> = vec![
        (policy("restricted"), vec![]),
        ("TopologyManagerPolicy: restricted\n".to_owned(), vec![]),
        (policy("none") + &policy("restricted"), vec![]),
        (policy("none") + "---\n{broken: [\n", vec![]),
        (maps.to_owned(), vec![("1.conf", with_head(patch))]),
        (String::new(), vec![("1.conf", with_head("cpuManagerPolicy: none\ncpuManagerPolicy: static\n"))]),
        (String::new(), vec![("1.conf", with_head("cpuManagerPolicyOptions: {full-pcpus-only: true}\n"))]),
        (String::new(), vec![("1.conf", with_head("reservedSystemCPUs: 3\n"))]),
        (String::new(), vec![("1.conf", with_head("reservedSystemCPUs: 0,2-3\n"))]),
        (
            String::new(),
            vec![("1.conf", with_head("reservedMemory: [{numaNode: 0, limits: {memory: 0}}]\n"))],
        ),
        (String::new(), vec![("1.conf", with_head("topologyManagerScope: node\n"))]),
        (String::new(), vec![("1.conf", with_head("TopologyManagerPolicy: restricted\n"))]),
        (String::new(), vec![("1.conf", with_head("topologymanagerpolicy: restricted\n"))]),
        (String::new(), vec![("1.conf", policy("restricted"))]),
        (String::new(), vec![("1.conf", String::new())]),
        (String::new(), vec![("1.conf", "# nothing\n".to_owned())]),
    ];
    for (main, drop_ins) in cases {
        let drop_ins: Vec<_> = drop_ins.into_iter().map(|(name, text)| (name.to_owned(), text)).collect();
        let (dir, files) = files(&main, &drop_ins);
        check(&rig, dir.path(), &files);
    }
}

#[test]
fn directories_and_links_are_walked_as_the_kubelet_walks_them() {
    let Ok(rig) = testkit::env::rig() else { return };
    let (dir, files) = files("", &[]);
    let (here, d) = (dir.path(), dir.path().join("d"));
    let elsewhere = here.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("x.conf"), format!("{HEAD}topologyManagerPolicy: restricted\n")).unwrap();
    let check = |dir: &Path| check(&rig, here, &Files { drop_ins: Some(dir.to_owned()), ..files.clone() });
    symlink(&elsewhere, d.join("..data")).unwrap();
    check(&d);
    symlink("..data/x.conf", d.join("x.conf")).unwrap();
    check(&d);
    symlink(&d, here.join("link")).unwrap();
    check(&here.join("link"));
    check(&here.join("link").join(""));
    check(&here.join("missing"));
    symlink(&elsewhere, d.join("y.conf")).unwrap();
    check(&d);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn any_drop_ins_merge_as_in_the_kubelet(drop_ins in proptest::collection::btree_map(
        "(a|b|a\\.conf|10|9|)/?(a|b|\\.)(\\.conf|\\.yaml)?",
        proptest::collection::vec(prop_oneof![
            "(topologyManagerPolicy|topologymanagerpolicy|TopologyManagerPolicy): (none|restricted|null|''|best-effort)\n",
            "(topologyManagerScope|topologyManagerscope): (pod|container|null)\n",
            "(kubeReserved|systemReserved): (\\{\\}|\\{cpu: ('[1-9]'|null)\\}|\\{memory: 1Gi\\}|null)\n",
            "topologyManagerPolicyOptions: (\\{\\}|null|\\{(a|b): ('true'|null)\\})\n",
            "reservedMemory: (\\[\\]|null|\\[\\{numaNode: [0-2], limits: \\{(memory|hugepages-1Gi): [1-9]Gi\\}\\}\\])\n",
        ], 0..4),
        0..5,
    )) {
        let Ok(rig) = testkit::env::rig() else { return Ok(()) };
        // A name cannot be a file and a directory; a field stands once in a drop-in.
        let named = drop_ins.into_iter().filter(|(name, _)| !name.starts_with('/') && !name.ends_with('.'));
        let named = named.filter(|(name, _)| name.contains('/') || name.contains("9") || name.contains("10"));
        let text = |lines: Vec<String>| {
            let lines: BTreeMap<_, _> = lines.iter().filter_map(|line| line.split_once(':')).collect();
            lines.iter().fold(HEAD.to_owned(), |text, (name, value)| format!("{text}{name}:{value}"))
        };
        let drop_ins: Vec<_> = named.map(|(name, lines)| (name, text(lines))).collect();
        let (dir, files) = files("topologyManagerPolicy: restricted\nkubeReserved: {cpu: '3'}\n", &drop_ins);
        check(&rig, dir.path(), &files);
    }
}
