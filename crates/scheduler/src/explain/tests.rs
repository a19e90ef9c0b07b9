//! Explanations of whole clusters, as objects in JSON.

use serde_json::json;

use super::*;
use crate::config;

const NOW_MS: u64 = 1_000_000_000;

fn node(name: &str, cpus: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name},
        "status": {"allocatable": {"cpu": cpus.to_string(), "memory": "64Gi", "pods": "110", "v.io/nic": "4"}},
    })
}

/// A report with these amounts of CPUs and NICs, allocatable and available, by zone.
fn report(node: &str, scope: &str, zones: &[[i64; 4]]) -> Value {
    let amount = |name: &str, allocatable: i64, available: i64| {
        let (allocatable, available) = (allocatable.to_string(), available.to_string());
        json!({"name": name, "capacity": allocatable, "allocatable": allocatable, "available": available})
    };
    let zones = zones.iter().enumerate().map(|(id, [cpus, free_cpus, nics, free_nics])| {
        let memory =
            json!({"name": "memory", "capacity": "32Gi", "allocatable": "32Gi", "available": "32Gi"});
        let resources = [amount("cpu", *cpus, *free_cpus), amount("v.io/nic", *nics, *free_nics), memory];
        json!({"name": format!("node-{id}"), "type": "Node", "resources": resources})
    });
    json!({
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
        "metadata": {"name": node},
        "attributes": [
            {"name": "topologyManagerPolicy", "value": "single-numa-node"},
            {"name": "topologyManagerScope", "value": scope},
        ],
        "zones": zones.collect::<Vec<_>>(),
    })
}

fn pod(name: &str, node: Option<&str>, containers: &[(&str, i64, i64)]) -> Value {
    let container = |(name, cpus, nics): &(&str, i64, i64)| {
        let mut amounts = json!({"cpu": cpus.to_string(), "memory": "1Gi"});
        if *nics > 0 {
            amounts["v.io/nic"] = nics.to_string().into();
        }
        json!({"name": name, "image": "i", "resources": {"requests": amounts, "limits": amounts}})
    };
    let containers: Vec<Value> = containers.iter().map(container).collect();
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}")},
        "spec": {"schedulerName": "topo-aware-scheduler", "containers": containers},
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
        pod["status"] =
            json!({"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "qosClass": "Guaranteed"});
    }
    pod
}

#[test]
fn each_node_says_why_and_what_would_help() {
    let objects = [
        node("a-short", 16),
        report("a-short", "container", &[[8, 4, 0, 0], [8, 5, 2, 2]]),
        pod("small", Some("a-short"), &[("c", 3, 0)]),
        pod("other", Some("a-short"), &[("c", 4, 0)]),
        node("b-apart", 16),
        report("b-apart", "container", &[[8, 8, 0, 0], [8, 2, 2, 2]]),
        node("c-scope", 16),
        report("c-scope", "pod", &[[8, 8, 2, 2], [8, 8, 2, 2]]),
        node("d-full", 4),
        node("e-fits", 16),
        report("e-fits", "container", &[[8, 8, 2, 2], [8, 8, 2, 2]]),
    ];
    let asked = pod("asked", None, &[("main", 6, 1), ("side", 3, 0)]);
    let explanation = of_objects(config::default_settings(0), objects, asked, NOW_MS).unwrap();
    assert_eq!(
        print::text(&explanation, false),
        r#"Pod ns/asked fits 1 of 5 nodes for topo-aware-scheduler; it would be on e-fits.

 NODE     FITS  WHY                                                                           WOULD FIT WITH
 e-fits   yes   score 498
 a-short  no    cannot align container "main": cpu: requested 6, most in one zone 5 (zone 1)  cpu 5 instead of 6 in container "main"
 b-apart  no    cannot align container "main": no zone has all resources at once              cpu 2 instead of 6 in container "main"
 c-scope  no    cannot align pod: cpu: requested 9, most in one zone 8 (zone 0)               cpu 5 instead of 6 in container "main"
 d-full   no    Insufficient cpu                                                              cpu 1 instead of 6 in container "main"
"#
    );
}
