//! Pods that a departure would keep out of a node that has room for them.

use super::*;

/// A pod whose container has to keep the CPUs of its init container.
fn with_init_container(name: &str) -> PodView {
    let amounts = json!({"cpu": "2", "memory": "1Gi"});
    let init = json!([{"name": "i", "resources": {"requests": amounts, "limits": amounts}}]);
    pod(name, 6, json!({"spec": {"initContainers": init}}))
}

/// Nodes of which each has 8 CPUs free in zone 1. Those of "frail" in zone 0 are of two pods: once one leaves, the init
/// container goes there, and the container does not fit. Those of "firm" are of a pod, and of one of a single CPU.
/// "plain" has no report.
fn with_residents(nodes: &[&str]) -> Core {
    let mut core = Core::new(settings());
    for name in nodes {
        core.handle(Event::Node(node(name)), LATER);
        if *name != "plain" {
            core.handle(Event::Report((*name).into(), report([8, 8], &[])), LATER);
        }
    }
    for (name, node, cpus) in [("a", "frail", 4), ("b", "frail", 3), ("c", "firm", 7), ("d", "firm", 1)] {
        if nodes.contains(&node) {
            core.handle(Event::Pod(pod(name, cpus, running(node))), LATER);
        }
    }
    core
}

#[test]
fn a_node_that_admits_the_pod_whichever_pod_leaves_comes_first() {
    for (nodes, pod, wanted) in [
        (&["frail", "firm"][..], with_init_container("p"), "p -> firm"),
        (&["frail"], with_init_container("p"), "p -> frail"),
        // Of a node without a report nothing is known.
        (&["frail", "plain"], with_init_container("p"), "p -> frail"),
        // More room keeps none of these out: the emptier node is taken.
        (&["frail", "firm"], pod("p", 6, json!({})), "p -> frail"),
    ] {
        let mut core = with_residents(nodes);
        core.handle(Event::Pod(pod), LATER);
        assert_eq!(decide(&mut core, LATER), [wanted], "{nodes:?}");
    }
}

#[test]
fn a_binding_names_the_pods_it_relies_on() {
    for (node, pod, relied_on) in [
        ("frail", with_init_container("p"), &["a", "b"][..]),
        ("firm", with_init_container("p"), &[]),
        ("frail", pod("p", 6, json!({})), &[]),
    ] {
        let mut core = with_residents(&[node]);
        core.handle(Event::Pod(pod), LATER);
        let Some(Decision::Bind(binding)) = core.next(LATER) else { panic!("{node}") };
        let names: Vec<&str> = binding.relied_on.iter().map(|pod| &*pod.name).collect();
        assert_eq!(names, relied_on, "{node}");
    }
}

/// The first pod ends while the second is admitted. The container of that one may have taken CPUs of the first, unless
/// these were given back later.
#[test]
fn init_containers_keep_their_cpus_unless_the_other_pod_ended_later() {
    let time = |second: u64| format!("2026-01-01T00:00:{second:02}Z");
    for (started, ended, fits) in [(5, 6, true), (5, 5, false), (6, 5, false)] {
        let mut core = Core::new(settings());
        core.handle(Event::Node(node("n")), LATER);
        core.handle(Event::Report("n".into(), report([8, 8], &[])), LATER);
        let leaves = |more| {
            let mut all = json!({"metadata": {"deletionTimestamp": time(1)}, "spec": {"nodeName": "n"}});
            merge(&mut all, more);
            pod("leaves", 4, all)
        };
        core.handle(Event::Pod(pod("leaves", 4, running("n"))), LATER);
        core.handle(Event::Pod(leaves(json!({"status": {"startTime": time(0), "phase": "Running"}}))), LATER);
        let comes = |more| {
            let amounts = json!({"cpu": "4", "memory": "1Gi"});
            let init = json!([{"name": "i", "resources": {"requests": amounts, "limits": amounts}}]);
            let mut all = json!({"spec": {"initContainers": init}});
            merge(&mut all, more);
            pod("comes", 4, all)
        };
        core.handle(Event::Pod(comes(json!({}))), LATER);
        assert_eq!(decide(&mut core, LATER), ["comes -> n"]);
        let state = json!({"terminated": {"exitCode": 0, "finishedAt": time(ended)}});
        let statuses = json!([{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]);
        let status = json!({"startTime": time(0), "phase": "Succeeded", "containerStatuses": statuses});
        core.handle(Event::Pod(leaves(json!({"status": status}))), LATER);
        let status = json!({"startTime": time(started), "phase": "Pending"});
        core.handle(Event::Pod(comes(json!({"spec": {"nodeName": "n"}, "status": status}))), LATER);
        core.handle(Event::Pod(pod("next", 8, json!({}))), LATER);
        core.handle(Event::Pod(pod("last", 4, json!({}))), LATER);
        let decided = decide(&mut core, LATER);
        assert_eq!(decided.first().map(String::as_str), Some("next -> n"), "{started} {ended}");
        assert_eq!(
            decided.last().is_some_and(|last| last == "last -> n"),
            fits,
            "{started} {ended}: {decided:?}"
        );
    }
}

#[test]
fn explain_names_the_node_that_is_taken() {
    let mut core = with_residents(&["frail", "firm"]);
    core.handle(Event::Pod(with_init_container("p")), LATER);
    let verdicts = core.explain("uid-p", &topology::request::PodRequest::default(), LATER).unwrap();
    let total = |at: usize| verdicts.nodes[at].total;
    assert!(total(0) < total(1), "firm has less room: {verdicts:?}");
    assert_eq!(verdicts.chosen.as_deref(), Some("firm"));
}

/// A finalizer keeps a pod that is being deleted. The API server refuses its binding, and no event follows.
#[test]
fn a_pod_that_is_being_deleted_is_not_tried_again() {
    let mut core = core(&["n"]);
    core.handle(Event::Pod(pod("a", 8, json!({}))), LATER);
    let Some(Decision::Bind(binding)) = core.next(LATER) else { panic!("not bound") };
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}});
    core.handle(Event::Pod(pod("a", 8, deleted)), LATER);
    core.handle(Event::BindFailed(binding.id), LATER);
    assert_eq!(decide(&mut core, LATER + 3_600_000), [""; 0]);
    assert_eq!(core.queue_lengths(), (0, 0, 0));
    recount(&core);
}
