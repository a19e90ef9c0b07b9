//! The plugins in the core: what they count of pods and nodes, and which profiles they run in.

use super::*;
use crate::affinity::NodeAffinity;
use crate::plugins::{Filters, Scores};

/// A core with one profile without zones, and nodes without reports.
fn core_with(plugins: Plugins, nodes: &[Value]) -> Core {
    let plugins = Arc::new(Plugins { deallocates: false, ..plugins });
    let profile = Profile { name: "numa".into(), numa: None, plugins, percentage: 0 };
    let mut core = Core::new(Settings { profiles: vec![profile], ..settings() });
    for node in nodes {
        core.handle(Event::Node(read(node.clone())), LATER);
    }
    core
}

fn read(more: Value) -> NodeView {
    let mut object = json!({
        "metadata": {"name": "n", "uid": "n"},
        "status": {"allocatable": {"cpu": "16", "memory": "32Gi", "pods": "20"}},
    });
    merge(&mut object, more);
    NodeView::read(&serde_json::from_value::<wire::Node>(object).unwrap())
}

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name, "uid": name}})
}

fn port(port: i32) -> Value {
    json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": port}]}]}})
}

const NO_PORT: &str = "node(s) didn't have free ports for the requested pod ports";

#[test]
fn a_port_of_the_host_is_given_once_and_its_release_wakes() {
    let mut core = core_with(Plugins::default(), &[named("n")]);
    for name in ["a", "b", "c"] {
        core.handle(Event::Pod(pod(name, 1, port(80))), LATER);
    }
    core.handle(Event::Pod(pod("other", 1, port(81))), LATER);
    let refused = |name| format!("{name}: 0/1 nodes are available: 1 {NO_PORT}.");
    assert_eq!(
        decide(&mut core, LATER),
        ["a -> n".to_owned(), refused("b"), refused("c"), "other -> n".to_owned()]
    );
    let with = |mut more: Value| {
        merge(&mut more, port(80));
        more
    };
    core.handle(Event::Pod(pod("a", 1, with(running("n")))), LATER);
    assert_eq!(decide(&mut core, LATER), [""; 0]);
    core.handle(Event::PodGone(pod("a", 1, with(ended("n")))), LATER);
    assert_eq!(decide(&mut core, LATER), ["b -> n"]);
    // A failed binding gives the port back.
    let id = core.ids[&Arc::<str>::from("uid-b")];
    core.handle(Event::BindFailed(id), LATER);
    assert_eq!(decide(&mut core, LATER), ["c -> n"]);
    // A pod of another scheduler counts, and frees its port when its object is gone.
    core.handle(Event::PodGone(pod("c", 1, with(ended("n")))), LATER);
    assert_eq!(decide(&mut core, LATER + 1_000), ["b -> n"]);
    assert!(!core.nodes[0].ports.are_free(&pod("x", 1, port(80)).spec.host_ports));
    core.handle(Event::PodGone(pod("b", 1, with(running("n")))), LATER + 1_000);
    assert!(core.nodes[0].ports.are_free(&pod("x", 1, port(80)).spec.host_ports));
    assert!(!core.nodes[0].ports.are_free(&pod("x", 1, port(81)).spec.host_ports));
}

#[test]
fn images_decide_between_equal_nodes_and_wake_nothing() {
    let with_image = |name: &str| {
        let mut node = named(name);
        node["status"]["images"] = json!([{"names": ["r.io/app:1"], "sizeBytes": 2_000 << 20}]);
        node
    };
    let nodes = [named("a"), named("b"), with_image("c"), named("d")];
    let mut core = core_with(Plugins::default(), &nodes);
    let image = json!({"spec": {"containers": [{"name": "c", "image": "r.io/app:1"}]}});
    core.handle(Event::Pod(pod("a", 1, image.clone())), LATER);
    // 2000 MiB on one node of four: 500, which makes 48.
    assert_eq!(decide(&mut core, LATER), ["a -> c"]);
    core.changed.clear();
    core.handle(Event::Node(read(with_image("d"))), LATER);
    assert!(core.changed.is_empty());
    assert_eq!(core.images.wanted(&pod("x", 1, image.clone()).images, 4).score(&core.nodes[3].images), 100);
    core.handle(Event::NodeGone("c".into()), LATER);
    core.handle(Event::Node(read(named("d"))), LATER);
    assert_eq!(core.images.wanted(&pod("x", 1, image).images, 3).score(&core.nodes[2].images), 0);
}

#[test]
fn filters_that_are_off_do_not_run() {
    let tainted = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    let cordoned = json!({"spec": {"unschedulable": true}});
    let full = json!({"status": {"allocatable": {"cpu": "0"}}});
    let selector = json!({"spec": {"nodeSelector": {"disk": "ssd"}}});
    let all = Filters::default();
    for (filters, node, more, reason) in [
        (Filters { node_unschedulable: false, ..all }, cordoned, json!({}), "node(s) were unschedulable"),
        (Filters { taint_toleration: false, ..all }, tainted, json!({}), "node(s) had untolerated taint(s)"),
        (Filters { node_resources_fit: false, ..all }, full, json!({}), "Insufficient cpu"),
        (
            Filters { node_affinity: false, ..all },
            json!({}),
            selector,
            "node(s) didn't match Pod's node affinity/selector",
        ),
        (Filters { node_ports: false, ..all }, json!({}), port(80), NO_PORT),
        (
            Filters { pod_topology_spread: false, ..all },
            json!({}),
            json!({"spec": {"topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "none", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}},
            ]}}),
            "node(s) didn't match pod topology spread constraints (missing required label)",
        ),
        (
            Filters { inter_pod_affinity: false, ..all },
            json!({}),
            json!({"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "none", "labelSelector": {"matchLabels": {"app": "x"}}},
            ]}}}}),
            "node(s) didn't match pod affinity rules",
        ),
    ] {
        for (filters, wanted) in
            [(all, format!("a: 0/1 nodes are available: 1 {reason}.")), (filters, "a -> n".to_owned())]
        {
            let plugins = Plugins { filters, ..Plugins::default() };
            let mut core = core_with(plugins, std::slice::from_ref(&node));
            let mut there = port(80);
            merge(&mut there, running("n"));
            core.handle(Event::Pod(pod("there", 0, there)), LATER);
            core.handle(Event::Pod(pod("a", 1, more.clone())), LATER);
            assert_eq!(decide(&mut core, LATER), [wanted], "{reason}");
        }
    }
}

#[test]
fn scores_that_are_off_do_not_count() {
    let off = Scores {
        taint_toleration: 0,
        node_affinity: 0,
        node_resources_fit: 0,
        balanced_allocation: 0,
        image_locality: 0,
        pod_topology_spread: 0,
        inter_pod_affinity: 0,
        dynamic_resources: 0,
    };
    let shy = json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}});
    let small = json!({"status": {"allocatable": {"cpu": "4", "memory": "8Gi"}}});
    let preferred = json!({"metadata": {"labels": {"disk": "ssd"}}});
    let terms = json!([{"weight": 1, "preference": {
        "matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}],
    }}]);
    let wish = json!({"spec": {"affinity": {"nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": terms,
    }}}});
    // Of two nodes, the first differs. With its score alone the wanted one is taken, each time.
    for (scores, node, more, wanted) in [
        (Scores { taint_toleration: 1, ..off }, &shy, json!({}), "plain"),
        (Scores { node_resources_fit: 1, ..off }, &small, json!({}), "plain"),
        (Scores { node_affinity: 1, ..off }, &preferred, wish, "odd"),
    ] {
        for (scores, wanted) in [(scores, Some(wanted)), (off, None)] {
            let mut taken = BTreeSet::new();
            for seed in 0..32 {
                let mut odd = node.clone();
                merge(&mut odd, named("odd"));
                let plugins = Plugins { scores, ..Plugins::default() };
                let mut core = core_with(plugins, &[odd, named("plain")]);
                core.random = Random::seeded(seed);
                core.search_start = usize::try_from(seed % 2).unwrap();
                core.handle(Event::Pod(pod("a", 1, more.clone())), LATER);
                taken.extend(decide(&mut core, LATER));
            }
            let all = ["a -> odd", "a -> plain"].map(str::to_owned);
            let wanted = wanted.map_or(BTreeSet::from(all), |node| BTreeSet::from([format!("a -> {node}")]));
            assert_eq!(taken, wanted, "{scores:?}");
        }
    }
}

#[test]
fn names_of_nodes_in_affinity_read_as_in_kube_scheduler() {
    let terms = |lists: &[&[&str]]| {
        let fields: Vec<_> = lists
            .iter()
            .map(|names| json!({"key": "metadata.name", "operator": "In", "values": names}))
            .collect();
        json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": fields}],
        }}}}})
    };
    let mut cordoned = named("b");
    cordoned["spec"] = json!({"unschedulable": true});
    let nodes = [named("a"), cordoned, named("c")];
    for (more, wanted) in [
        (terms(&[&["a"]]), "x -> a"),
        (
            terms(&[&["b"]]),
            "x: 0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't satisfy plugin(s) \
             [NodeAffinity].",
        ),
        (terms(&[&["a"], &["b"]]), "x: 0/3 nodes are available: pod affinity terms conflict."),
    ] {
        let mut core = core_with(Plugins::default(), &nodes);
        core.handle(Event::Pod(pod("x", 1, more)), LATER);
        assert_eq!(decide(&mut core, LATER), [wanted]);
    }
}

#[test]
fn affinity_that_a_profile_adds_counts_for_every_pod() {
    let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}],
    }});
    let plugins = Plugins {
        added_affinity: NodeAffinity::of(&serde_json::from_value(affinity).unwrap()),
        ..Plugins::default()
    };
    let mut core = core_with(plugins, &[named("n")]);
    core.handle(Event::Pod(pod("a", 1, json!({}))), LATER);
    let reason = "node(s) didn't match scheduler-enforced node affinity";
    assert_eq!(decide(&mut core, LATER), [format!("a: 0/1 nodes are available: 1 {reason}.")]);
    core.handle(Event::Node(read(json!({"metadata": {"labels": {"pool": "x"}}}))), LATER);
    assert_eq!(decide(&mut core, LATER), ["a -> n"]);
}
