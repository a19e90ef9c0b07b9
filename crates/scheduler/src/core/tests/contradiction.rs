//! Nodes whose kubelets contradict their reports.

use super::rejection_backoff::{rejected_for, waiting};
use super::*;
use crate::core::contradiction::CONTRADICTED_MS;

/// What the kubelet rejects contradicts the sums of a report: they are not relied on before the next report. A pod that
/// another one has placed says nothing of them.
#[test]
fn a_node_whose_kubelet_contradicts_its_report_is_left_alone_until_the_next() {
    for (placed_here, has_report) in [(true, false), (true, true), (false, false)] {
        let mut core = Core::new(settings());
        core.handle(Event::Node(node("n")), LATER);
        core.handle(Event::Report("n".into(), report([8, 8], &[])), LATER);
        if placed_here {
            core.handle(Event::Pod(waiting("a")), LATER);
            assert_eq!(decide(&mut core, LATER), ["a -> n"]);
        }
        let rejected = rejected_for("a", "TopologyAffinityError");
        core.handle(Event::Pod(PodView { created_s: LATER / 1_000, ..rejected }), LATER);
        core.handle(Event::Pod(waiting("b")), LATER);
        if !placed_here {
            assert_eq!(decide(&mut core, LATER), ["a rejected, 1", "b -> n"]);
            continue;
        }
        let wanted = "b: 0/1 nodes are available: 1 invalid node topology data: the kubelet rejected a pod that should \
                      fit, and the next report is awaited.";
        assert_eq!(decide(&mut core, LATER), ["a rejected, 1", wanted]);
        let mut now = LATER + 30_000;
        assert_eq!(decide(&mut core, now), [""; 0]);
        match has_report {
            true => core.handle(Event::Report("n".into(), report([8, 8], &[])), now),
            false => now = LATER + CONTRADICTED_MS,
        }
        assert_eq!(decide(&mut core, now), ["b -> n"], "{has_report}");
    }
}

/// An exporter may leave pods out of its fingerprint.
#[test]
fn a_node_whose_fingerprint_names_other_pods_opens_after_a_time() {
    let mut core = Core::new(settings());
    core.handle(Event::Node(node("n")), LATER);
    core.handle(Event::Report("n".into(), report([8, 8], &["left out"])), LATER);
    core.handle(Event::Pod(pod("a", 8, json!({}))), LATER);
    let why =
        "a: 0/1 nodes are available: 1 invalid node topology data: no report matches the pods there yet.";
    assert_eq!(decide(&mut core, LATER), [why]);
    assert_eq!(decide(&mut core, LATER + nodes::UNEXPLAINED_MS - 1), [""; 0]);
    assert_eq!(decide(&mut core, LATER + nodes::UNEXPLAINED_MS), ["a -> n"]);
}
