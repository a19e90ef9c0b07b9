//! Pods of others, which a report by ids shows before their objects are seen.

use super::*;

#[test]
fn pods_of_others_are_charged_until_they_are_known() {
    let mut node = node(Policy::Restricted, Scope::Pod, &[], HashKey::Uid);
    let foreign = pod(7, &[(ContainerKind::App, 6, 64, 2)]);
    kubelet::admit(&node.kubelet, &mut node.state, &Node::asked(&foreign), &Lowest).unwrap();
    node.pods.push(foreign.clone());
    node.report();
    let nics = |count| pod(8, &[(ContainerKind::App, 2, 64, count)]);
    assert!(node.fits(&nics(2)) && !node.fits(&nics(3)));
    // Its object is seen now.
    node.bind(&foreign);
    node.ledger.admitted(foreign.id, &mut node.scratch);
    node.report();
    assert!(node.fits(&nics(2)) && !node.fits(&nics(3)));
    node.release(0);
    node.report();
    assert!(node.fits(&pod(9, &[(ContainerKind::App, 15, 1_200, 0)])), "all CPUs are free");
}

/// A report that precedes the pod's object may be the last one for long: what is in use is charged once.
#[test]
fn a_pod_that_comes_after_its_report_is_charged_once() {
    for is_admitted in [true, false] {
        let mut node = node(Policy::Restricted, Scope::Pod, &[], HashKey::Uid);
        let [foreign, other] = [7, 8].map(|id| pod(id, &[(ContainerKind::App, 6, 64, 0)]));
        kubelet::admit(&node.kubelet, &mut node.state, &Node::asked(&foreign), &Lowest).unwrap();
        node.pods.push(foreign.clone());
        node.report();
        let reports = node.ledger.summary().reports;
        node.bind(&foreign);
        if is_admitted {
            node.ledger.admitted(foreign.id, &mut node.scratch);
        }
        let summary = node.ledger.summary();
        assert_eq!(
            (summary.in_doubt, summary.unreported, summary.corrections),
            (0, 0, 0),
            "{:#?}",
            node.ledger
        );
        assert!(summary.reports > reports);
        for cpus in 1..=8 {
            assert_eq!(node.fits(&app(9, cpus)), node.would_admit(&app(9, cpus)), "{cpus}");
        }
        // Another pod is in no report, so it is not looked for.
        node.bind(&other);
        assert_eq!(node.ledger.summary().reports, summary.reports);
    }
}
