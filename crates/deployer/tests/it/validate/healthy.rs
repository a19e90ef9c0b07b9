//! Clusters in which all is well.

use serde_json::{Map, Value, json};
use testkit::kubelet::KubeletOptions;
use testkit::machine::Machine;
use topology::policy::{Policy, Scope};

use super::*;

fn with(config: Value) -> KubeletOptions {
    KubeletOptions { config: config.as_object().unwrap().clone(), ..KubeletOptions::default() }
}

/// Ten kinds of machines and kubelets, each a pool of its own.
fn shapes() -> Vec<(&'static str, Machine, KubeletOptions)> {
    let smt = || Machine::new().smt(true);
    let cores = |config: Value| KubeletOptions { reserved_cpus: "0,16".to_owned(), ..with(config) };
    vec![
        ("two-zones", Machine::new(), KubeletOptions::default()),
        ("one-zone", Machine::new().zones(1), KubeletOptions::default()),
        ("smt", smt(), cores(json!({}))),
        (
            "whole-cores",
            smt(),
            cores(
                json!({ "cpuManagerPolicyOptions": { "full-pcpus-only": "true", "strict-cpu-reservation": "true" } }),
            ),
        ),
        ("pod-scope", Machine::new(), KubeletOptions { scope: Scope::Pod, ..KubeletOptions::default() }),
        (
            "four-zones",
            Machine::new().zones(4).cpus_per_zone(8).sockets(2),
            KubeletOptions { reserved_cpus: "0,8".to_owned(), ..KubeletOptions::default() },
        ),
        ("sparse-ids", Machine::new().zone_ids([1, 6]).unwrap(), KubeletOptions::default()),
        ("memory-only-zone", Machine::new().zone(2, 0, 32 << 10), KubeletOptions::default()),
        (
            "closest",
            Machine::new().interleaved(true),
            with(json!({ "topologyManagerPolicyOptions": { "prefer-closest-numa-nodes": "true" } })),
        ),
        (
            "restricted",
            Machine::new(),
            KubeletOptions { policy: Policy::Restricted, ..KubeletOptions::default() },
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_healthy_shapes_have_no_findings() {
    let shapes = shapes();
    let describe = |builder: Builder| {
        shapes
            .iter()
            .fold(builder, |builder, (_, machine, kubelet)| builder.node(machine.clone(), kubelet.clone()))
    };
    let Some(installed) = Installed::start(describe).await else { return };
    for (number, (name, ..)) in shapes.iter().enumerate() {
        let labels: Map<String, Value> =
            [("karpenter.sh/nodepool".to_owned(), (*name).into())].into_iter().collect();
        let patch = Patch::Merge(json!({ "metadata": { "labels": labels } }));
        let nodes = installed.api("Node", None);
        nodes.patch(&format!("node-{number}"), &PatchParams::default(), &patch).await.unwrap();
        let pod = pod("default", &format!("work-{number}"), Some(&format!("node-{number}")), "numa", "2");
        installed.create(&pod).await;
    }
    installed.is_fine().await;
    // Not even things worth knowing, but of the one node that is not single-numa-node.
    let report = installed.report().await;
    assert_eq!(lines(&report).len(), 1, "{:#?}", lines(&report));
    assert_eq!(
        (report.findings[0].id, report.findings[0].object.as_str()),
        ("topology-manager-policy", "Node node-9")
    );
    assert_eq!(report.verdict().code(), 0);
}
