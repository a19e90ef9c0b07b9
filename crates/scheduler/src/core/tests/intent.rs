//! What pods want of zones beyond what kubelets enforce, and nodes without a report.

use api::schedulerconfig::NodesWithoutTopology::{self, Accept, PreferAligned, Reject};

use super::*;

/// A node, by what its report says: CPUs free in each of two zones under a policy, or nothing.
fn add(core: &mut Core, kind: &str) {
    core.handle(Event::Node(node(kind)), LATER);
    let (policy, free) = match kind {
        "single" => (Policy::SingleNumaNode, [6, 6]),
        "best" => (Policy::BestEffort, [6, 6]),
        "spread" => (Policy::BestEffort, [3, 3]),
        "none" => (Policy::None, [8, 8]),
        "plain" => return,
        other => panic!("{other}"),
    };
    let mut topology = NodeTopology::clone(&report(free, &[]));
    topology.rules.policy = policy;
    core.handle(Event::Report(kind.into(), Arc::new(topology)), LATER);
}

/// What is decided about a pod of 5 CPUs with this annotation. Nodes that align have another pod, so that without zones
/// they come last.
fn decided(unreported: NodesWithoutTopology, intent: &str, nodes: &[&str]) -> String {
    let mut all = settings();
    all.profiles[0].numa.as_mut().unwrap().unreported = unreported;
    all.profiles[0].numa.as_mut().unwrap().score_weight = 0;
    let mut core = Core::new(all);
    for kind in nodes {
        add(&mut core, kind);
        if ["single", "best"].contains(kind) {
            let burstable = json!({"status": {"qosClass": "Burstable"}});
            let mut other = running(kind);
            merge(&mut other, burstable);
            core.handle(Event::Pod(pod(&format!("on-{kind}"), 2, other)), LATER);
        }
    }
    let annotations = if intent.is_empty() { json!({}) } else { json!({"tholepin.dev/alignment": intent}) };
    core.handle(Event::Pod(pod("p", 5, json!({"metadata": {"annotations": annotations}}))), LATER);
    decide(&mut core, LATER).pop().unwrap()
}

#[test]
fn nodes_that_align_a_pod_come_first_or_alone() {
    const SPREAD: &str =
        "p: 0/1 nodes are available: 1 node(s) would spread the pod over more zones than it needs.";
    const UNKNOWN: &str =
        "p: 0/1 nodes are available: 1 node(s) were not known to align the pod, as it requires.";
    const UNREPORTED: &str = "p: 0/1 nodes are available: 1 node(s) had no NodeResourceTopology.";
    for (option, intent, nodes, wanted) in [
        // Without a word a kubelet that would spread the pod comes last, and what is not known counts as the others.
        (Accept, "", &["spread", "best"][..], "p -> best"),
        (Accept, "", &["spread"], "p -> spread"),
        (Accept, "", &["single", "plain"], "p -> plain"),
        (Accept, "", &["none", "best"], "p -> none"),
        (Accept, "prefer", &["single", "plain"], "p -> single"),
        (Accept, "prefer", &["none", "best"], "p -> best"),
        (Accept, "prefer", &["plain"], "p -> plain"),
        (Accept, "ignore", &["spread", "best"], "p -> spread"),
        (Accept, "require", &["spread", "best", "plain"], "p -> best"),
        (Accept, "require", &["single"], "p -> single"),
        (Accept, "require", &["spread"], SPREAD),
        (Accept, "require", &["none"], UNKNOWN),
        (Accept, "require", &["plain"], UNKNOWN),
        (Reject, "", &["plain"], UNREPORTED),
        (Reject, "prefer", &["plain"], UNREPORTED),
        (Reject, "ignore", &["plain"], "p -> plain"),
        (Reject, "", &["none"], "p -> none"),
        (PreferAligned, "", &["single", "plain"], "p -> single"),
        (PreferAligned, "", &["plain"], "p -> plain"),
        (PreferAligned, "ignore", &["single", "plain"], "p -> plain"),
    ] {
        assert_eq!(decided(option, intent, nodes), wanted, "{option:?}, {intent:?}, {nodes:?}");
    }
}

/// The exporter of a node that enforces nothing reports amounts, from time to time: pods since then may be in any zone.
#[test]
fn pods_since_the_report_may_be_in_any_zone() {
    const UNKNOWN: &str =
        "0/1 nodes are available: 1 node(s) were not known to align the pod, as it requires.";
    let mut core = Core::new(settings());
    add(&mut core, "best");
    let requires = json!({"metadata": {"annotations": {"tholepin.dev/alignment": "require"}}});
    for name in ["a", "b", "c"] {
        core.handle(Event::Pod(pod(name, 3, requires.clone())), LATER);
    }
    let waits = format!("c: {UNKNOWN}");
    assert_eq!(decide(&mut core, LATER), ["a -> best", "b -> best", &waits]);
    for name in ["a", "b"] {
        let mut runs = running("best");
        merge(&mut runs, requires.clone());
        core.handle(Event::Pod(pod(name, 3, runs)), LATER);
    }
    let mut told = NodeTopology::clone(&report([3, 6], &["a"]));
    told.rules.policy = Policy::BestEffort;
    core.handle(Event::Report("best".into(), Arc::new(told)), LATER);
    assert_eq!(decide(&mut core, LATER), ["c -> best"], "b leaves three CPUs in one zone, wherever it is");
    core.handle(Event::Pod(pod("d", 3, requires)), LATER);
    assert_eq!(decide(&mut core, LATER), [format!("d: {UNKNOWN}")]);
}

#[test]
fn another_word_keeps_the_pod_waiting() {
    let told = decided(Accept, "always", &["plain"]);
    let reason = "annotation tholepin.dev/alignment is \"always\": allowed are require, prefer and ignore";
    assert!(told.contains(reason), "{told}");
}
