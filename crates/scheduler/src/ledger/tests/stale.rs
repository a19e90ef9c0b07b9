//! Reports that are late, or that describe pods which the model cannot place.

use super::restart::{fits, pod, report, restarted};
use super::*;

fn app(id: u64, cpus: i64) -> BoundPod {
    pod(id, &[(ContainerKind::App, cpus * 1_000, 1)])
}

/// The report as an exporter without fingerprints writes it.
fn unsigned(available: [(i64, i64); 2]) -> Arc<NodeTopology> {
    let mut report = (*report(available, &[], Method::All)).clone();
    report.fingerprint = None;
    Arc::new(report)
}

/// On a restricted node: what spans zones is in the numbers, and the others keep their places.
#[test]
fn a_pod_over_several_zones_hides_no_other() {
    let pods = [app(1, 2), app(2, 10)];
    let mut topology = (*report([(2, 6), (2, 8)], &pods, Method::All)).clone();
    topology.rules.policy = Policy::Restricted;
    let mut ledger = restarted(&pods, Arc::new(topology));
    assert!(fits(&ledger, 2) && !fits(&ledger, 3));
    ledger.leaving(PodId(1), &mut Scratch::default());
    ledger.released(PodId(1), &mut Scratch::default());
    assert!(fits(&ledger, 4) && !fits(&ledger, 5), "{ledger:#?}");
}

/// A pod that the model could not place leaves nothing to compare a report with.
#[test]
fn a_late_report_without_fingerprint_gives_nothing_away() {
    let mut scratch = Scratch::default();
    let mut ledger = restarted(&[], unsigned([(8, 8), (8, 8)]));
    for pod in [app(1, 6), app(2, 6), app(3, 7)] {
        ledger.bound(&pod, &mut scratch);
        ledger.admitted(pod.id, &mut scratch);
    }
    for late in [[(8, 8), (8, 8)], [(2, 7), (8, 8)], [(2, 7), (2, 7)]] {
        ledger.report(unsigned(late), &mut scratch);
        assert!(!fits(&ledger, 3), "{late:?}");
    }
    // The first has left, and the third is where it was.
    ledger.leaving(PodId(1), &mut scratch);
    ledger.released(PodId(1), &mut scratch);
    ledger.report(unsigned([(1, 7), (2, 7)]), &mut scratch);
    assert!(!ledger.summary().unexplained && fits(&ledger, 2) && !fits(&ledger, 3), "{ledger:#?}");
}

/// A pod made anew under its name has the same fingerprint: numbers tell of which one a report speaks.
#[test]
fn a_report_of_the_former_pod_says_nothing_about_its_namesake() {
    let mut scratch = Scratch::default();
    let (guest, former, small) = (app(1, 6), app(2, 6), app(3, 1));
    let mut ledger = restarted(&[], report([(8, 8), (8, 8)], &[], Method::All));
    for pod in [&guest, &former, &small] {
        ledger.bound(pod, &mut scratch);
        ledger.admitted(pod.id, &mut scratch);
    }
    ledger.report(
        report([(1, 6), (2, 7)], &[guest.clone(), former.clone(), small.clone()], Method::All),
        &mut scratch,
    );
    ledger.released(guest.id, &mut scratch);
    let before = report([(7, 7), (2, 7)], &[former.clone(), small.clone()], Method::All);
    ledger.report(Arc::clone(&before), &mut scratch);
    ledger.leaving(former.id, &mut scratch);
    ledger.released(former.id, &mut scratch);
    let anew = BoundPod { id: PodId(4), ..former };
    ledger.bound(&anew, &mut scratch);
    ledger.admitted(anew.id, &mut scratch);
    assert!(fits(&ledger, 8), "zone 1 is free");
    for report in [before, report([(1, 6), (8, 8)], &[small, anew], Method::All)] {
        ledger.report(report, &mut scratch);
        ledger.bound(&app(5, 2), &mut scratch);
        assert!(fits(&ledger, 6) && !fits(&ledger, 7), "the pod of two CPUs is in zone 1: {ledger:#?}");
        ledger.forget(PodId(5), &mut scratch);
    }
    assert!(!ledger.summary().unexplained);
}

/// A pod admitted while later ones were bound may end before the kubelet has seen them.
#[test]
fn a_pod_that_ends_before_the_next_are_admitted_loses_none() {
    for fingerprints in [false, true] {
        let mut rig = Rig::new(Scope::Container, fingerprints);
        let bind = |cpu, memory, containers| Op::Bind {
            cpu,
            memory,
            containers,
            finishes: containers == 1,
            created_s: 0,
        };
        for op in [
            bind(1, 1, 1),
            Op::Kubelet,
            bind(1, 4, 2),
            bind(5, 1, 1),
            Op::PodEvent,
            Op::Finish(0),
            bind(4, 1, 1),
            Op::Kubelet,
            Op::Kubelet,
            Op::Kubelet,
        ] {
            rig.apply(&op);
        }
        assert!(rig.rejected.is_empty(), "{:#?}", rig.ledger);
    }
}
