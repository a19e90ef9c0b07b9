//! Our own commands against an API server: their answers and exit codes.

use std::process::Stdio;
use std::time::Duration;

use fakes::openshift::{Flavour, install};
use serde_json::Value;
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::env::{Program, rig};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::{Installed, run_async};

/// A dump may come through a pipe, as single objects in several documents.
#[test]
fn dumps_are_read_from_standard_input() {
    let dump = "apiVersion: v1\nkind: Node\nmetadata: {name: w}\nstatus: {allocatable: {cpu: \"9\", memory: 9Gi, \
                pods: \"9\"}}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: x}\nspec: \
                {containers: [{name: c, resources: {limits: {cpu: \"8\", memory: 1Gi}}}]}\n";
    let installed = Installed::under("tholepin");
    let file = installed.program.with_file_name("dump.yaml");
    std::fs::write(&file, dump).unwrap();
    let run = |words: &str| {
        let mut command = std::process::Command::new(&installed.program);
        command.args(words.split_whitespace()).env_clear().stdin(std::fs::File::open(&file).unwrap());
        super::told(command.output().unwrap())
    };
    let (code, stdout, stderr) = run("simulate --from - --pending --zones 2 --schedulers tholepin");
    let refused = "Not placed under tholepin: 1 pod (p): 0/1 nodes are available: 1 cannot align container ";
    assert!(code == 0 && stdout.contains(refused), "{stdout}{stderr}");
    let (code, stdout, stderr) = run("status --offline -");
    assert!(code == 2 && stdout.contains("Exporters     none"), "{stdout}{stderr}");
}

#[tokio::test]
async fn changes_are_reported_and_a_repetition_changes_nothing() {
    let Ok(rig) = rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let installed = Installed::under("tholepin");
    let kubeconfig = control.kubeconfig().display().to_string();
    let run = async |words: &str| run_async(&installed.program, words, &[("KUBECONFIG", &kubeconfig)]).await;

    let version = Program::ApiServer.wanted();
    assert_eq!(run("detect").await, (0, format!("Kubernetes:{version}\n"), String::new()));
    assert_eq!(run("detect --control-plane").await, (0, "nodes=0\n".to_owned(), String::new()));
    // Without OpenShift, no ClusterOperator has the version.
    let (code, stdout, stderr) = run("detect -P openshift").await;
    assert_eq!((code, stdout.as_str()), (2, "OpenShift:\n"));
    assert!(stderr.starts_with("error: reading ClusterOperator openshift-apiserver: 404 "), "{stderr}");

    // Pods of an image that does not exist would never start.
    for command in ["deploy --wait", "deploy scheduler-plugin", "setup --force"] {
        let (code, stdout, stderr) = run(command).await;
        assert!(code == 1 && !stdout.contains("created"), "{command}: {code} {stdout}");
        assert!(stderr.contains("is in no registry, and none of 0 nodes has it\nBuild it with "), "{stderr}");
    }
    let (code, stdout, stderr) = run("deploy --diff").await;
    assert!(code == 1 && stdout.contains("\n+kind: DaemonSet\n"), "{code} {stdout} {stderr}");
    let (code, stdout, stderr) = run("deploy --dry-run=client -o json").await;
    assert_eq!((code, changes(&stdout)), (0, vec!["created".to_owned()]), "{stderr}");
    let (code, stdout, stderr) = run("deploy --image tholepin:test -o json").await;
    assert_eq!((code, changes(&stdout)), (0, vec!["created".to_owned()]), "{stderr}");
    assert!(
        stderr.starts_with("deploying api\n  CustomResourceDefinition noderesourcetopologies."),
        "{stderr}"
    );
    let (code, stdout, stderr) = run("deploy --image tholepin:test -o json").await;
    assert_eq!((code, changes(&stdout)), (0, vec!["unchanged".to_owned()]), "{stderr}");
    let (code, stdout, stderr) = run("deploy --image tholepin:test --diff").await;
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
    let (code, stdout, stderr) = run("deploy --image tholepin:test --diff --updater-verbose=6").await;
    assert!(code == 1 && stdout.contains("DaemonSet"), "{code} {stdout} {stderr}");
    let (code, stdout, stderr) = run("remove -o json").await;
    let removed: Value = serde_json::from_str(&stdout).unwrap();
    assert!(code == 0 && !removed["deleted"].as_array().unwrap().is_empty(), "{stderr}");

    install(&control.client().await.unwrap(), Flavour::OpenShift, "4.20.1").await.unwrap();
    assert_eq!(run("detect").await.1, "OpenShift:4.20.1\n");
    let (code, stdout, stderr) =
        run("deploy topology-updater --dry-run=server -o json --updater-type rte").await;
    assert!(code == 0 && stdout.contains("SecurityContextConstraints"), "{code} {stdout} {stderr}");
}

/// The results of objects, each word once.
fn changes(json: &str) -> Vec<String> {
    let outcome: Value = serde_json::from_str(json).unwrap();
    let words = outcome["applied"].as_array().unwrap().iter();
    let mut words: Vec<String> = words.map(|object| object["change"].as_str().unwrap().to_owned()).collect();
    words.sort();
    words.dedup();
    words
}

#[tokio::test]
async fn a_signal_ends_waiting_and_what_was_done_stays() {
    let Ok(rig) = rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let installed = Installed::under("tholepin");
    let mut child = tokio::process::Command::new(&installed.program)
        .args(["deploy", "--image", "tholepin:test", "--wait", "--kubeconfig"])
        .arg(control.kubeconfig())
        .env_clear()
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    // No kubelet runs pods here.
    while !lines.next_line().await.unwrap().unwrap().starts_with("  waiting for DaemonSet ") {}
    let pid = rustix::process::Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let rest = async {
        let mut last = String::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            last = line;
        }
        (child.wait().await.unwrap().code(), last)
    };
    let (code, last) = tokio::time::timeout(Duration::from_secs(20), rest).await.unwrap();
    assert!(code == Some(1) && last.starts_with("error: interrupted: "), "{code:?} {last}");
}
