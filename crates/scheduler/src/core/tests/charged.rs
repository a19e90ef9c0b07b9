//! The requests that the totals of nodes count: resizes, pod-level resources, names of tenants.

use topology::cpuset::CpuSet;
use topology::kubelet::profile::{CpuOptions, Minor};
use topology::kubelet::report::KubeletReport;
use topology::placement::holdings::{HashKey, Holdings};

use super::*;

/// CPUs in use on the only node, in thousandths.
fn used(core: &Core) -> i64 {
    let node = core.nodes().next().unwrap();
    node.used.iter().find(|need| need.name == ResourceName::CPU).map_or(0, |need| need.amount)
}

/// A running pod that desires so many CPUs, and has others allocated.
fn resized(desired: i64, allocated: i64, infeasible: bool) -> PodView {
    let allocated = json!({"cpu": allocated.to_string()});
    let reason = if infeasible { "Infeasible" } else { "Deferred" };
    let status = json!({
        "startTime": "2026-01-01T00:00:00Z",
        "phase": "Running",
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
        "containerStatuses": [{
            "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "allocatedResources": allocated, "resources": {"requests": allocated},
        }],
    });
    pod("a", desired, json!({"spec": {"nodeName": "n"}, "status": status}))
}

#[test]
fn a_resize_counts_its_larger_side_and_leaves_nothing_behind() {
    let mut core = core(&["n"]);
    core.handle(Event::Pod(pod("a", 1, running("n"))), LATER);
    assert_eq!(used(&core), 1_000);
    for (view, cpus) in [
        (resized(4, 1, false), 4_000),
        (resized(2, 4, false), 4_000),
        (resized(8, 2, true), 2_000),
        (resized(4, 4, false), 4_000),
    ] {
        core.handle(Event::Pod(view), LATER);
        assert_eq!(used(&core), cpus);
    }
    core.handle(Event::PodGone(pod("a", 4, ended("n"))), LATER);
    assert_eq!(used(&core), 0);
}

/// A scheduler that starts after a resize was refused reads the desired amount in the spec. The kubelet never gave it.
#[test]
fn zones_hold_what_the_kubelet_has_allocated() {
    for (desired, allocated, fits) in [(6, 2, true), (2, 6, false), (6, 6, false)] {
        let mut core = core(&["n"]);
        core.handle(Event::Report("n".into(), report([8, 0], &[])), LATER);
        core.handle(Event::Pod(resized(desired, allocated, true)), LATER);
        core.handle(Event::Pod(pod("b", 6, json!({}))), LATER);
        let placed = decide(&mut core, LATER) == ["b -> n"];
        let stated = resized(desired, allocated, true).spec.needs.totals.clone();
        assert_eq!(crate::node::amount(&stated, ResourceName::CPU), desired * 1_000, "the spec is as it is");
        assert_eq!(placed, fits, "{desired} desired, {allocated} allocated");
    }
}

#[test]
fn pods_on_nodes_count_by_pod_level_resources() {
    let mut core = core(&["n"]);
    let level = json!({"requests": {"cpu": "6", "memory": "2Gi"}, "limits": {"cpu": "6", "memory": "2Gi"}});
    let mut more = running("n");
    more["spec"]["resources"] = level.clone();
    core.handle(Event::Pod(pod("a", 2, more)), LATER);
    assert_eq!(used(&core), 6_000);
}

/// Pod-level resources decide whether a pod fits, while its containers ask for less; and where the kubelet would align
/// the pod as a whole, it is refused.
#[test]
fn pods_with_pod_level_resources_are_placed_by_them() {
    let level = |cpus: &str| json!({"spec": {"resources": {"requests": {"cpu": cpus, "memory": "2Gi"}}}});
    let mut core = core(&["n"]);
    core.handle(Event::Pod(pod("a", 1, level("10"))), LATER);
    core.handle(Event::Pod(pod("b", 1, level("10"))), LATER);
    assert_eq!(decide(&mut core, LATER), ["a -> n", "b: 0/1 nodes are available: 1 Insufficient cpu."]);
    assert_eq!(used(&core), 10_000);
}

/// A kubelet with the gate may reject such a pod for what it gets as a whole.
#[test]
fn kubelets_that_align_whole_pods_get_none() {
    let kubelet = KubeletReport {
        minor: Some(Minor::V36),
        cpu_options: CpuOptions::default(),
        prefer_closest: false,
        pod_level_managers: true,
        reserved_cpus: CpuSet::default(),
        cpus: Vec::new(),
        free_cpus: CpuSet::default(),
        memory_groups: Vec::new(),
        device_groups: Vec::new(),
        holdings: Holdings::new(HashKey::Uid, Vec::new()),
    };
    for (policy, is_refused) in [(Policy::SingleNumaNode, true), (Policy::None, false)] {
        let mut topology = NodeTopology::clone(&report([8, 8], &[]));
        topology.kubelet = Some(Box::new(kubelet.clone()));
        topology.rules.policy = policy;
        let mut core = core(&["n"]);
        core.handle(Event::Report("n".into(), Arc::new(topology)), LATER);
        let level = json!({"spec": {"resources": {"requests": {"cpu": "2", "memory": "2Gi"}}}});
        core.handle(Event::Pod(pod("a", 1, level)), LATER);
        let decisions = decide(&mut core, LATER);
        let refused = "a: 0/1 nodes are available: 1 node(s) had PodLevelResourceManagers enabled.";
        assert_eq!(decisions == [refused], is_refused, "{decisions:?}");
    }
}

/// A resize of the pod as a whole counts its larger side.
#[test]
fn a_resize_of_pod_level_resources_counts() {
    let mut core = core(&["n"]);
    let amounts = |cpus: &str| json!({"cpu": cpus, "memory": "2Gi"});
    for (desired, allocated, cpus) in [("6", "4", 6_000), ("2", "4", 4_000)] {
        let mut more = running("n");
        more["spec"]["resources"] = json!({"requests": amounts(desired)});
        more["status"]["resources"] = json!({"requests": amounts(allocated)});
        more["status"]["allocatedResources"] = amounts(allocated);
        core.handle(Event::Pod(pod("a", 1, more)), LATER);
        assert_eq!(used(&core), cpus, "{desired} {allocated}");
    }
}

/// A pod whose claims take CPUs of the node, as the scheduler that bound it says: they count as if requested, but not
/// where the pod as a whole states its CPUs. Zones are as before, since the kubelet's managers know of no claims.
#[test]
fn what_claims_take_of_the_node_counts() {
    let claim = |name: &str, cpus: &str| json!({"resourceClaimName": name, "containers": ["c"], "resources": {"cpu": cpus, "memory": "1Gi"}});
    let claims = json!([claim("one", "2"), claim("two", "1500m")]);
    let level = json!({"requests": {"cpu": "4", "memory": "1Gi"}});
    for (level, cpus) in [(json!({}), 4_500), (level, 4_000)] {
        let mut core = core(&["n"]);
        core.handle(Event::Report("n".into(), report([8, 0], &[])), LATER);
        let mut more = running("n");
        more["spec"]["resources"] = level;
        more["status"]["nodeAllocatableResourceClaimStatuses"] = claims.clone();
        core.handle(Event::Pod(pod("a", 1, more.clone())), LATER);
        assert_eq!(used(&core), cpus);
        core.handle(Event::PodGone(pod("a", 1, more)), LATER);
        assert_eq!(used(&core), 0);
    }
}

/// One pod with more names than the table of names has room for: its neighbours are placed, reports with names not
/// seen before are read, and what can be read of the pod itself counts.
#[test]
fn no_pod_fills_the_table_of_names() {
    let mut core = core(&["n"]);
    let mut amounts = json!({"cpu": "2", "memory": "1Gi"});
    for number in 0..16_400 {
        amounts[format!("tenant.example/flood{number}")] = "1".into();
    }
    let flood = json!([{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]);
    let mut more = running("n");
    more["spec"]["containers"] = flood.clone();
    core.handle(Event::Pod(pod("flood", 2, more)), LATER);
    assert_eq!(used(&core), 2_000);
    core.handle(Event::Pod(pod("pending", 2, json!({"spec": {"containers": flood}}))), LATER);
    core.handle(Event::Pod(pod("neighbour", 2, json!({}))), LATER);
    let decisions = decide(&mut core, LATER);
    assert!(decisions[0].contains("names that no node has"), "{decisions:?}");
    assert_eq!(decisions[1..], ["neighbour -> n"]);
    let fresh = json!({"name": "hugepages-32Mi", "capacity": "1", "allocatable": "1", "available": "1"});
    let object = json!({
        "metadata": {"name": "n"}, "zones": [{"name": "node-0", "type": "Node", "resources": [fresh]}],
    });
    let (topology, warnings) = api::convert::node_topology(&serde_json::from_value(object).unwrap()).unwrap();
    assert_eq!((topology.zones[0].resources.len(), warnings.len()), (1, 0));
}

/// Pods that ask for more than there are numbers for, bound by their `nodeName`. Once they are gone, the totals and
/// zones of the node are what they were; before, no other pod fits.
#[test]
fn pods_that_ask_for_everything_leave_a_node_as_it_was() {
    let mut core = core(&["n"]);
    core.handle(Event::Pod(pod("a", 2, running("n"))), LATER);
    let state = |core: &Core| {
        let node = core.nodes().next().unwrap();
        (node.used.clone(), node.used_nonzero, node.ledger.free().cloned())
    };
    let before = state(&core);
    let everything = json!({"cpu": "9223372036854775807", "memory": "100000000000E"});
    let containers = json!([{"name": "c", "resources": {"requests": everything, "limits": everything}}]);
    let greedy = |name: &str, phase: &str| {
        let spec = json!({"nodeName": "n", "containers": containers});
        pod(name, 1, json!({"spec": spec, "status": {"phase": phase}}))
    };
    let names = ["w", "x", "y", "z"];
    names.iter().for_each(|name| core.handle(Event::Pod(greedy(name, "Pending")), LATER));
    core.handle(Event::Pod(pod("b", 2, json!({}))), LATER);
    let refused = "b: 0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.";
    assert_eq!(decide(&mut core, LATER), [refused]);
    names.iter().for_each(|name| core.handle(Event::Pod(greedy(name, "Failed")), LATER));
    assert_eq!(state(&core), before);
    assert_eq!(decide(&mut core, LATER), ["b -> n"]);
}

/// What a resize asks for before the kubelet has admitted the pod is what the kubelet then looks for. Before a resize
/// to less it may have taken the pod with more.
#[test]
fn the_larger_of_two_sizes_before_the_admission_counts_in_zones() {
    let bound = |cpus| pod("a", cpus, on("n"));
    for (before, after, fits) in [(2, 6, "b: "), (6, 2, "b: "), (2, 3, "b -> n")] {
        let mut core = core(&["n"]);
        core.handle(Event::Pod(pod("full", 8, running("n"))), LATER);
        core.handle(Event::Pod(bound(before)), LATER);
        core.handle(Event::Pod(bound(after)), LATER);
        core.handle(Event::Pod(pod("b", 4, json!({}))), LATER);
        let decisions = decide(&mut core, LATER);
        assert!(decisions[0].starts_with(fits), "{before} to {after} CPUs: {decisions:?}");
        recount(&core);
    }
}
