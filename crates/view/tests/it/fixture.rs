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

/// A cluster as one in use: nodes of two zones, and one of four zones on two sockets, whose pods are known by their
/// cores.
pub(crate) fn showcase() -> (TempDir, ClusterInput) {
    let (folder, ClusterInput { dumps, .. }) = large(40, 2);
    let path = folder.path().join("showcase.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": shown_node()});
    std::fs::write(&path, list.to_string()).unwrap();
    (folder, input(dumps.into_iter().chain([path]).collect()))
}

/// Name, CPUs and zone of the pods of the showcase's node.
const SHOWN: [(&str, &str, usize); 6] = [
    ("trainer-0", "1-6", 0),
    ("packet-core-2", "8-13", 1),
    ("packet-core-5", "16-19", 2),
    ("cache-1", "20-21", 2),
    ("trainer-1", "24-30", 3),
    ("proxy-4", "14", 1),
];

fn shown_node() -> Vec<Value> {
    const NAME: &str = "worker-17";
    let cpus = |text: &str| CpuSet::parse(text).unwrap();
    let holding = |(name, held, _): &(&str, &str, usize)| {
        let held = Holding { cpus: cpus(held), ..Holding::default() };
        (ContainerHash::of_uid(name, "main"), held)
    };
    let holdings = Holdings::new(HashKey::Uid, SHOWN.iter().map(holding).collect());
    let zone = |id: usize| {
        let pods: Vec<_> = SHOWN.iter().filter(|(.., zone)| *zone == id).collect();
        let held: Vec<&str> = pods.iter().map(|(_, held, _)| *held).collect();
        let own = format!("{}-{}", 8 * id, 8 * id + 7);
        let taken = cpus(&[held.as_slice(), if id == 0 { &["0"] } else { &[] }].concat().join(","));
        let free: Vec<String> =
            cpus(&own).iter().filter(|cpu| !taken.contains(*cpu)).map(|cpu| cpu.to_string()).collect();
        let allocatable = if id == 0 { 7 } else { 8 };
        let memory = format!("{}Mi", 32 * 1024 - 256 - 1024 * pods.len());
        json!({"name": format!("node-{id}"), "type": "Node",
            "costs": (0..4).map(|to| json!({"name": format!("node-{to}"), "value":
                if to == id { 10 } else if to / 2 == id / 2 { 12 } else { 32 }})).collect::<Vec<_>>(),
            "attributes": [{"name": "cpus", "value": own}, {"name": "sockets", "value": format!("{}:{own}", id / 2)},
                {"name": "lastLevelCaches", "value": own}, {"name": "freeCPUs", "value": free.join(",")}],
            "resources": [
                {"name": "cpu", "capacity": "8", "allocatable": allocatable.to_string(), "available": free.len().to_string()},
                {"name": "memory", "capacity": "32Gi", "allocatable": "32512Mi", "available": memory}]})
    };
    let attributes = [
        ("topologyManagerPolicy", "single-numa-node".to_owned()),
        ("topologyManagerScope", "pod".to_owned()),
        ("cpuManagerPolicy", "static".to_owned()),
        ("memoryManagerPolicy", "Static".to_owned()),
        ("reservedSystemCPUs", "0".to_owned()),
        ("reservedMemory", (0..4).map(|id| format!("{id}:memory=256Mi")).collect::<Vec<_>>().join(";")),
        ("threadsPerCore", "1".to_owned()),
        ("threadSiblings", "0-31".to_owned()),
        ("kubeletVersion", "v1.36.3".to_owned()),
        ("containerHoldings", holdings.encode()),
    ];
    let attributes: Vec<Value> =
        attributes.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    let pod = |(name, held, _): &(&str, &str, usize)| {
        let amounts = json!({"cpu": cpus(held).len().to_string(), "memory": "1Gi"});
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "ns", "name": name, "uid": name, "creationTimestamp": "2026-11-01T00:00:00Z"},
            "spec": {"nodeName": NAME, "schedulerName": "topo-aware-scheduler", "containers": [
                {"name": "main", "resources": {"requests": amounts, "limits": amounts}}]},
            "status": {"phase": "Running", "qosClass": "Guaranteed", "startTime": "2026-11-01T00:00:01Z",
                "containerStatuses": [{"name": "main", "state": {"running": {}}, "started": true}]}})
    };
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME, "uid": NAME},
        "status": {"allocatable": {"cpu": "31", "memory": "127Gi", "pods": "110"}}});
    let report = json!({"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
        "metadata": {"name": NAME}, "attributes": attributes, "zones": (0..4).map(zone).collect::<Vec<_>>()});
    SHOWN.iter().map(pod).chain([node, report]).collect()
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
