//! A recording of a real kubelet: elsewhere the exporter prints the same object as on the node.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use testkit::cluster::Cluster;
use testkit::env::rig;
use testkit::kubelet::KubeletOptions;
use testkit::load;
use testkit::machine::Machine;

use super::{Installed, exporter_flags, run_async, told};

/// Far above what a kubelet takes, for a machine busy with compiling.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn the_exporter_prints_the_object_of_the_node_elsewhere() {
    let Ok(rig) = rig() else { return };
    let machine = Machine::new().zones(2).cpus_per_zone(8);
    let cluster = Cluster::builder().node(machine, KubeletOptions::default()).start(&rig).await.unwrap();
    let node = &cluster.nodes()[0];
    let pods: Api<Pod> = Api::default_namespaced(cluster.client().await.unwrap());
    for (name, cpus) in [("first", "3"), ("second", "2")] {
        let mut pod = load::guaranteed_pod(name, "nobody", [("cpu", cpus), ("memory", "64Mi")]);
        pod.spec.get_or_insert_default().node_name = Some(node.name().to_owned());
        pods.create(&PostParams::default(), &pod).await.unwrap();
        runs(&pods, name).await;
    }

    let installed = Installed::under("tholepin");
    let folder = installed.program.parent().unwrap();
    let flags = exporter_flags(node);
    let run = async |words: &str| run_async(&installed.program, words, &[]).await;
    let (code, there, stderr) = run(&format!("exporter --oneshot --dry-run {flags}")).await;
    assert_eq!(code, 0, "{stderr}");

    let out = folder.join("node");
    let (code, command, stderr) = run(&format!("record --out {} {flags}", out.display())).await;
    assert_eq!(code, 0, "{stderr}");
    let wanted = format!(
        "recorded {}: 2 NUMA zones and 2 pods with CPUs, memory or devices of their own; ",
        node.name()
    );
    assert!(stderr.starts_with(&wanted) && stderr.lines().count() == 1, "{stderr}");
    drop(cluster);

    // What it prints is the command, also where the folder has been moved to.
    let moved = folder.join("moved");
    std::fs::rename(&out, &moved).unwrap();
    let command = command.replace(&out.display().to_string(), &moved.display().to_string());
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-ec", &command]).env_clear().env("PATH", path);
    let (code, here, stderr) = told(shell.output().await.unwrap());
    assert_eq!(code, 0, "{command}\n{stderr}");
    assert_eq!(here, there);
    assert!(there.contains("kind: NodeResourceTopology") && there.contains("pfp0v001"), "{there}");
    for name in ["cpu_manager_state", "memory_manager_state"] {
        let checkpoint = moved.join(name);
        assert!(std::fs::read_to_string(&checkpoint).unwrap().contains("\"policyName\""), "{name}");
        assert_eq!(mode(&checkpoint), 0o600);
    }
    assert_eq!(mode(&moved), 0o700);
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

async fn runs(pods: &Api<Pod>, name: &str) {
    let began = Instant::now();
    while pods.get(name).await.unwrap().status.unwrap_or_default().phase.as_deref() != Some("Running") {
        assert!(began.elapsed() < PATIENCE, "{name} does not run");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
