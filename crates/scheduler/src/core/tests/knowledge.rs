//! What is known of a node: reports that go, and clocks that disagree.

use super::*;

#[test]
fn a_deleted_report_after_an_unreadable_one_opens_nothing() {
    for (first, opens) in [(None, false), (Some(Policy::SingleNumaNode), false), (Some(Policy::None), true)] {
        let mut core = Core::new(settings());
        core.handle(Event::Node(node("n")), LATER);
        if let Some(policy) = first {
            let mut topology = (*report([8, 8], &[])).clone();
            topology.rules.policy = policy;
            core.handle(Event::Report("n".into(), Arc::new(topology)), LATER);
        }
        core.handle(Event::ReportUnreadable("n".into()), LATER);
        core.handle(Event::Pod(pod("a", 1, json!({}))), LATER);
        let mut decisions = decide(&mut core, LATER);
        core.handle(Event::ReportGone("n".into()), LATER);
        decisions.extend(decide(&mut core, LATER));
        assert_eq!(decisions.contains(&"a -> n".to_owned()), opens, "{first:?}: {decisions:?}");
    }
}

/// A node made in the future of our clock is young for as long as any other.
#[test]
fn a_clock_that_is_behind_closes_no_node_for_long() {
    let mut core = Core::new(settings());
    let mut early = node("n");
    early.created_ms = LATER + 3_600_000;
    core.handle(Event::Node(early.clone()), LATER);
    core.handle(Event::Pod(pod("a", 1, json!({}))), LATER);
    assert_eq!(
        decide(&mut core, LATER),
        ["a: 0/1 nodes are available: 1 invalid node topology data: the first report is awaited."]
    );
    core.handle(Event::Node(early), LATER + 30_000);
    assert_eq!(decide(&mut core, LATER + UNREPORTED_GRACE_MS), ["a -> n"]);
}

/// Where the server does not know reports, no exporter runs. Once it does, young nodes are given their time.
#[test]
fn without_the_kind_of_reports_no_node_is_waited_for() {
    let mut core = Core::new(settings());
    let mut young = node("n");
    young.created_ms = LATER;
    core.handle(Event::Node(young), LATER);
    core.handle(Event::Pod(pod("a", 1, json!({}))), LATER);
    assert_eq!(
        decide(&mut core, LATER),
        ["a: 0/1 nodes are available: 1 invalid node topology data: the first report is awaited."]
    );
    core.handle(Event::ReportsServed(false), LATER + 1);
    assert_eq!(decide(&mut core, LATER + 1), ["a -> n"]);
    core.handle(Event::ReportsServed(true), LATER + 2);
    core.handle(Event::Pod(pod("b", 1, json!({}))), LATER + 2);
    assert_eq!(
        decide(&mut core, LATER + 2),
        ["b: 0/1 nodes are available: 1 invalid node topology data: the first report is awaited."]
    );
    assert_eq!(decide(&mut core, LATER + UNREPORTED_GRACE_MS), ["b -> n"]);
}

/// In a list the kubelet admits the older pod first, which takes the zone of the younger one.
#[test]
fn an_older_pod_is_woken_when_the_younger_one_is_admitted() {
    let mut core = core(&["n"]);
    let older = pod("older", 2, json!({}));
    for (name, cpus) in [("a", 3), ("b", 6)] {
        core.handle(Event::Pod(pod(name, cpus, running("n"))), LATER);
    }
    core.handle(Event::Pod(pod("younger", 5, json!({}))), LATER);
    assert_eq!(decide(&mut core, LATER), ["younger -> n"]);
    core.handle(Event::Pod(older), LATER);
    assert_eq!(
        decide(&mut core, LATER),
        [
            "older: 0/1 nodes are available: 1 cannot align container \"c\": cpu: requested 5, most in one zone 3 (zone 0)."
        ]
    );
    core.handle(Event::Pod(pod("younger", 5, running("n"))), LATER);
    assert_eq!(decide(&mut core, LATER), ["older -> n"]);
}

/// Whatever zone the ledger predicts, the report has the pod in the other one.
#[test]
fn a_contradiction_is_told_once_with_node_and_pod() {
    let mut core = core(&["n"]);
    core.handle(Event::Report("n".into(), report([8, 8], &[])), LATER);
    core.handle(Event::Pod(pod("a", 3, running("n"))), LATER);
    assert!(core.take_drifts().is_empty());
    let free = core.nodes().next().unwrap().ledger.free().unwrap().cells().to_vec();
    let other = if free[0] < 8_000 { [8, 5] } else { [5, 8] };
    core.handle(Event::Report("n".into(), report(other, &["a"])), LATER);
    let drifts = core.take_drifts();
    let told = drifts.iter().map(|(node, drift)| (&*node.name, drift.pods.iter().map(|pod| &*pod.name)));
    let told: Vec<(&str, Vec<&str>)> = told.map(|(node, pods)| (node, pods.collect())).collect();
    assert_eq!(told, [("n", vec!["a"])]);
    assert!(core.take_drifts().is_empty());
}

/// A report that its node does not own stays when the node goes, and its exporter need not write it again.
#[test]
fn a_report_that_outlives_its_node_counts_when_the_node_is_back() {
    const AWAITED: &str =
        "b: 0/1 nodes are available: 1 invalid node topology data: the report is gone or cannot be read.";
    for is_gone in [true, false] {
        let mut core = core(&["n"]);
        core.handle(Event::Pod(pod("a", 8, running("n"))), LATER);
        core.handle(Event::Report("n".into(), report([0, 8], &["a"])), LATER);
        if is_gone {
            core.handle(Event::NodeGone("n".into()), LATER);
        }
        let mut again = node("n");
        (again.uid, again.created_ms) = ("another".into(), LATER);
        core.handle(Event::Node(again), LATER);
        core.handle(Event::Pod(pod("b", 8, json!({}))), LATER);
        assert_eq!(decide(&mut core, LATER), [AWAITED], "it may be that of the former node");
        let now = LATER + UNREPORTED_GRACE_MS;
        core.handle(Event::Pod(pod("c", 4, json!({}))), now);
        let refused = "c: 0/1 nodes are available: 1 Insufficient cpu.";
        assert_eq!(decide(&mut core, now), ["b -> n", refused]);
    }
}

/// The watch of nodes begins anew: to the core the node was away for a moment.
#[test]
fn a_node_that_was_away_for_a_moment_keeps_its_report() {
    let mut core = core(&["n"]);
    core.handle(Event::NodeGone("n".into()), LATER);
    core.handle(Event::Node(node("n")), LATER);
    for (name, cpus) in [("a", 5), ("b", 5), ("c", 4)] {
        core.handle(Event::Pod(pod(name, cpus, json!({}))), LATER);
    }
    let refused = "c: 0/1 nodes are available: 1 cannot align container \"c\": cpu: requested 4, most in one zone 3 (zone 0).";
    assert_eq!(decide(&mut core, LATER), ["a -> n", "b -> n", refused]);
}

/// A pod on its way to a node that is gone holds its slot no longer than itself.
#[test]
fn a_failed_binding_frees_the_slot_of_a_node_that_is_gone() {
    let mut core = core(&["n"]);
    core.handle(Event::Pod(pod("a", 2, json!({}))), LATER);
    let Some(Decision::Bind(binding)) = core.next(LATER) else { panic!("not bound") };
    core.handle(Event::NodeGone("n".into()), LATER);
    core.handle(Event::ReportGone("n".into()), LATER);
    assert_eq!(core.slots.len(), 1, "the binding may be stored yet");
    core.handle(Event::BindFailed(binding.id), LATER);
    assert_eq!((core.slots.len(), core.free_slots.len()), (0, 1));
}
