//! Capacities of whole clusters, against what kubelets would take one after the other.

use proptest::prelude::*;
use serde_json::{Value, json};
use topology::admit::{self, Scratch};

use super::*;
use crate::config;

const NOW_MS: u64 = 1_000_000_000;

/// A node with these CPUs free in its zones, of eight each, and its report.
fn node(name: &str, scope: &str, free: &[i64], pods: i64) -> [Value; 2] {
    let zones = free.iter().enumerate().map(|(id, cpus)| {
        let amount = |name: &str, allocatable: String, available: String| {
            json!({"name": name, "capacity": allocatable, "allocatable": allocatable, "available": available})
        };
        let resources =
            [amount("cpu", "8".into(), cpus.to_string()), amount("memory", "32Gi".into(), "32Gi".into())];
        json!({"name": format!("node-{id}"), "type": "Node", "resources": resources})
    });
    let all = 8 * free.len();
    [
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name},
            "status": {"allocatable": {"cpu": all.to_string(), "memory": "640Gi", "pods": pods.to_string()}},
        }),
        json!({
            "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
            "metadata": {"name": name},
            "attributes": [
                {"name": "topologyManagerPolicy", "value": "single-numa-node"},
                {"name": "topologyManagerScope", "value": scope},
            ],
            "zones": zones.collect::<Vec<_>>(),
        }),
    ]
}

fn capacity(objects: impl IntoIterator<Item = Value>, pod: Value, limit: usize) -> Capacity {
    let mut snapshot = Snapshot::default();
    objects.into_iter().for_each(|object| snapshot.take(object));
    let target = TargetPod::of_manifest(pod).unwrap();
    count(config::read(None, 0).unwrap(), snapshot, target, limit, NOW_MS).unwrap().0
}

fn shape(text: &str) -> Value {
    shape::manifest(text, "topo-aware-scheduler").unwrap()
}

fn by_node(capacity: &Capacity) -> Vec<(&str, usize)> {
    capacity.nodes.iter().map(|node| (&*node.node, node.fits)).collect()
}

#[test]
fn zones_decide_and_the_rest_is_stranded() {
    let objects = [node("a", "container", &[8, 5], 110), node("b", "container", &[3, 2], 110)].concat();
    let found = capacity(objects.clone(), shape("cpu=4,memory=1Gi"), 100);
    assert_eq!((found.fits, found.limited, by_node(&found)), (3, false, vec![("a", 3), ("b", 0)]));
    assert!(found.message.as_deref().unwrap().contains("cannot align container"), "{found:?}");
    let left: Vec<_> = found.nodes.iter().map(|node| listed(&node.left)).collect();
    assert_eq!(left, ["cpu 4, memory 637Gi", "cpu 16, memory 640Gi"]);
    let first = |order| found.clone().sorted(order).nodes[0].node.to_string();
    assert_eq!([NodeOrder::Name, NodeOrder::Fits, NodeOrder::Left].map(first), ["a", "a", "b"]);
    let limited = capacity(objects, shape("cpu=4,memory=1Gi"), 2);
    assert_eq!((limited.fits, limited.limited, limited.message.as_deref()), (2, true, None));
}

#[test]
fn pods_that_wait_take_nothing() {
    let waits = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ns", "name": "waits", "uid": "w"},
        "spec": {"schedulerName": "topo-aware-scheduler", "priority": 9, "containers": [
            {"name": "c", "resources": {"requests": {"cpu": "8"}}},
        ]},
    });
    let objects = node("a", "container", &[8], 110).into_iter().chain([waits]);
    assert_eq!(capacity(objects, shape("cpu=8,memory=1Gi"), 100).fits, 1);
}

#[test]
fn text_has_the_number_first_and_empty_nodes_when_wide() {
    let objects = [node("a", "container", &[8], 110), node("b", "container", &[0], 110)].concat();
    let found = capacity(objects, shape("cpu=8,memory=1Gi"), 100);
    let text = found.text(false);
    assert!(
        text.starts_with(
            "1 more pod of cpu 8, memory 1Gi would fit, by topo-aware-scheduler.\nThe next one: 0/2 nodes"
        ),
        "{text}"
    );
    assert!(!text.contains("\n b "), "{text}");
    assert!(found.text(true).contains("\n b "), "{}", found.text(true));
    assert!(text.contains("\n a     1     cpu 0, memory 639Gi"), "{text}");
}

/// Pods that are to keep apart count on other nodes as well.
#[test]
fn pods_that_look_at_others_are_placed_one_by_one() {
    let objects = [node("a", "container", &[8, 8], 110), node("b", "container", &[8, 8], 110)].concat();
    let mut pod = shape("cpu=2,memory=1Gi");
    pod["metadata"]["labels"] = json!({"app": "x"});
    pod["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"},
    ]}});
    let labelled = |mut object: Value| {
        if object["kind"] == "Node" {
            object["metadata"]["labels"] = json!({"kubernetes.io/hostname": object["metadata"]["name"]});
        }
        object
    };
    let found = capacity(objects.into_iter().map(labelled), pod, 100);
    assert_eq!(by_node(&found), [("a", 1), ("b", 1)], "{found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each node takes pods until its zones or its number of pods are used up.
    #[test]
    fn a_capacity_is_what_kubelets_take_one_by_one(
        nodes in prop::collection::vec((prop::collection::vec(0..=8_i64, 1..4), 1..9_i64), 1..5),
        cpus in 1..6_i64,
        is_pod_scope in any::<bool>(),
    ) {
        let scope = if is_pod_scope { "pod" } else { "container" };
        let named = |at: usize| format!("n{at}");
        let objects = nodes.iter().enumerate().flat_map(|(at, (free, pods))| node(&named(at), scope, free, *pods));
        let pod = shape(&format!("cpu={cpus},memory=1Gi"));
        let needs = PodView::read(&TargetPod::of_manifest(pod.clone()).unwrap().pod).spec.needs.clone();
        let found = capacity(objects.collect::<Vec<_>>(), pod, 1_000);
        let mut total = 0;
        for (at, (free, pods)) in nodes.iter().enumerate() {
            let report = node(&named(at), scope, free, *pods)[1].clone();
            let report = serde_json::from_value(report).unwrap();
            let (topology, _) = api::convert::node_topology(&report).unwrap();
            let mut left = topology.available();
            let mut taken = 0;
            while taken < *pods
                && let Ok(placement) = admit::admit(topology.rules, &left, &needs, &mut Scratch::default())
            {
                placement.charge(&mut left);
                taken += 1;
            }
            total += usize::try_from(taken).unwrap();
            prop_assert_eq!(found.nodes[at].fits, usize::try_from(taken).unwrap(), "node {}", at);
        }
        prop_assert_eq!(found.fits, total);
    }

    /// Nodes that are filled one by one take what the scheduler places, for the same reasons.
    #[test]
    fn room_is_what_the_scheduler_fills(
        nodes in prop::collection::vec((prop::collection::vec(0..=8_i64, 1..4), 1..9_i64, any::<bool>()), 1..5),
        cpus in 1..6_i64,
        port in any::<bool>(),
    ) {
        let scope = |is_pod: bool| if is_pod { "pod" } else { "container" };
        let objects = nodes.iter().enumerate();
        let objects = objects.flat_map(|(at, (free, pods, pod))| node(&format!("n{at}"), scope(*pod), free, *pods));
        let mut pod = shape(&format!("cpu={cpus},memory=1Gi"));
        if port {
            pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 1, "hostPort": 1, "protocol": "TCP"}]);
        }
        let pod = asked(&TargetPod::of_manifest(pod).unwrap(), NOW_MS);
        let mut snapshot = Snapshot::default();
        objects.for_each(|object| snapshot.take(object));
        let mut settings = config::read(None, 0).unwrap();
        place_only(&mut settings);
        let mut core = Core::new(settings);
        snapshot.into_events().for_each(|event| core.handle(event, NOW_MS));
        let mut headroom = core.headroom(&pod, 1_000, NOW_MS).unwrap();
        headroom.nodes.sort();
        prop_assert_eq!(headroom, fill(&mut core, &pod, 1_000, NOW_MS));
    }
}
