//! A cluster as a dump: a node with ids and a pod, one with zones alone, one without a report, and a pod that waits.

use std::path::PathBuf;

use runtime::client::ClusterArgs;
use scheduler::cluster_input::ClusterInput;
use serde_json::{Value, json};
use tempfile::TempDir;
use topology::cpuset::CpuSet;
use topology::placement::ContainerHash;
use topology::placement::holdings::{HashKey, Holding, Holdings};

/// The dump in a file, which goes with the result.
pub(crate) fn dump() -> (TempDir, ClusterInput) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects()});
    std::fs::write(&path, list.to_string()).unwrap();
    (folder, input(vec![path]))
}

/// Nodes with zones, each as full as another.
pub(crate) fn large(nodes: usize, zones: usize) -> (TempDir, ClusterInput) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump.json");
    let objects = (0..nodes).flat_map(|number| {
        let name = format!("node-{number}");
        let zone = |id: usize| {
            let free = (number * 7 + id * 3) % 17;
            let amount = |name: &str, all: String, free: String| {
                json!({"name": name, "capacity": all, "allocatable": all, "available": free})
            };
            json!({"name": format!("node-{id}"), "type": "Node", "resources": [
                amount("cpu", "16".into(), free.to_string()),
                amount("memory", "64Gi".into(), format!("{}Gi", free * 4))]})
        };
        [
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name},
                "status": {"allocatable": {"cpu": (16 * zones).to_string(), "memory": "999Gi", "pods": "110"}}}),
            json!({"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
                "metadata": {"name": name},
                "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"},
                    {"name": "topologyManagerScope", "value": "container"}],
                "zones": (0..zones).map(zone).collect::<Vec<_>>()}),
        ]
    });
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects.collect::<Vec<_>>()});
    std::fs::write(&path, list.to_string()).unwrap();
    (folder, input(vec![path]))
}

pub(crate) fn input(dumps: Vec<PathBuf>) -> ClusterInput {
    ClusterInput { dumps, config: None, connection: ClusterArgs::default() }
}

fn objects() -> Vec<Value> {
    let node = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name},
            "status": {"allocatable": {"cpu": "7", "memory": "15Gi", "pods": "110"}}})
    };
    let pod = |name: &str, cpus: &str, node: Option<&str>, status: Value| {
        let amounts = json!({"cpu": cpus, "memory": "1Gi"});
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "ns", "name": name, "uid": name, "creationTimestamp": "2026-11-01T00:00:00Z"},
            "spec": {"nodeName": node, "schedulerName": "topo-aware-scheduler", "containers": [
                {"name": "main", "resources": {"requests": amounts, "limits": amounts}}]},
            "status": status})
    };
    let runs = json!({"phase": "Running", "qosClass": "Guaranteed", "startTime": "2026-11-01T00:00:01Z",
        "conditions": [{"type": "Initialized", "status": "True"}],
        "containerStatuses": [{"name": "main", "state": {"running": {}}, "started": true}]});
    let rejected = json!({"phase": "Failed", "reason": "TopologyAffinityError", "qosClass": "Guaranteed"});
    let waits = json!({"phase": "Pending", "qosClass": "Guaranteed", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}]});
    vec![
        node("by-ids"),
        node("by-zones"),
        node("silent"),
        by_ids(),
        by_zones(),
        pod("runs", "2", Some("by-ids"), runs),
        pod("lost", "6", Some("by-zones"), rejected),
        pod("waits", "5", None, waits),
    ]
}

/// Two zones of four CPUs; the first is reserved, 1 and 2 are held.
fn by_ids() -> Value {
    let held = Holding { cpus: CpuSet::parse("1-2").unwrap(), ..Holding::default() };
    let holdings = Holdings::new(HashKey::Uid, vec![(ContainerHash::of_uid("runs", "main"), held)]);
    let zone = |id: usize, cpus: &str, free: &str, available: &str, allocatable: &str, memory: &str| {
        json!({"name": format!("node-{id}"), "type": "Node",
            "costs": [{"name": "node-0", "value": 10 + 11 * id}, {"name": "node-1", "value": 21 - 11 * id}],
            "attributes": [{"name": "cpus", "value": cpus}, {"name": "sockets", "value": format!("0:{cpus}")},
                {"name": "lastLevelCaches", "value": cpus}, {"name": "freeCPUs", "value": free}],
            "resources": [
                {"name": "cpu", "capacity": "4", "allocatable": allocatable, "available": available},
                {"name": "memory", "capacity": "8Gi", "allocatable": "7936Mi", "available": memory}]})
    };
    json!({"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
        "metadata": {"name": "by-ids"},
        "attributes": [
            {"name": "topologyManagerPolicy", "value": "single-numa-node"},
            {"name": "topologyManagerScope", "value": "container"},
            {"name": "cpuManagerPolicy", "value": "static"},
            {"name": "memoryManagerPolicy", "value": "Static"},
            {"name": "reservedSystemCPUs", "value": "0"},
            {"name": "reservedMemory", "value": "0:memory=256Mi;1:memory=256Mi"},
            {"name": "threadsPerCore", "value": "1"},
            {"name": "threadSiblings", "value": "0-7"},
            {"name": "kubeletVersion", "value": "v1.36.3"},
            {"name": "containerHoldings", "value": holdings.encode()}],
        "zones": [zone(0, "0-3", "3", "1", "3", "6912Mi"), zone(1, "4-7", "4-7", "4", "4", "7936Mi")]})
}

/// As other exporters write it: amounts by zone.
fn by_zones() -> Value {
    let zone = |id: usize, available: &str| {
        json!({"name": format!("node-{id}"), "type": "Node", "resources": [
            {"name": "cpu", "capacity": "4", "allocatable": "4", "available": available}]})
    };
    json!({"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
        "metadata": {"name": "by-zones"},
        "attributes": [{"name": "topologyManagerPolicy", "value": "restricted"},
            {"name": "topologyManagerScope", "value": "pod"}],
        "zones": [zone(0, "4"), zone(1, "2")]})
}
