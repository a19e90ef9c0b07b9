//! Reports that are late, or that describe pods which the model cannot place.

use std::slice;

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

#[test]
fn a_contradiction_says_what_was_expected() {
    let mut scratch = Scratch::default();
    let pods = [app(1, 6)];
    let mut ledger = restarted(&[], report([(8, 8), (8, 8)], &[], Method::All));
    ledger.bound(&pods[0], &mut scratch);
    ledger.admitted(pods[0].id, &mut scratch);
    ledger.report(report([(8, 8), (2, 7)], &pods, Method::All), &mut scratch);
    let drift = ledger.take_drift().unwrap();
    assert_eq!(drift.pods, [pods[0].names.clone()]);
    let expected = "zone 0 cpu: expected 2000 free; reported 8000. zone 0 memory: expected 7 free; reported 8. \
                    zone 5 cpu: expected 8000 free; reported 2000. zone 5 memory: expected 8 free; reported 7";
    assert_eq!(drift.detail, expected);
}

/// An exporter's call comes between two managers of the kubelet: CPUs are shown and memory is not, or the other way
/// round, of a pod that does not count then.
#[test]
fn a_part_of_a_pod_that_comes_or_goes_says_nothing_new() {
    let mut scratch = Scratch::default();
    let pods = [app(1, 6)];
    for stays_away in [false, true] {
        let mut ledger = restarted(&[], report([(8, 8), (8, 8)], &[], Method::All));
        ledger.bound(&pods[0], &mut scratch);
        ledger.admitted(pods[0].id, &mut scratch);
        for _ in 0..3 {
            let (shown, counted) = if stays_away { ((8, 7), &[][..]) } else { ((2, 8), &pods[..]) };
            ledger.report(report([shown, (8, 8)], counted, Method::All), &mut scratch);
            assert!(ledger.take_drift().is_none() && fits(&ledger, 8), "{ledger:#?}");
            assert_eq!(ledger.free().unwrap().cells(), [2_000, 7, 8_000, 8]);
        }
        ledger.report(report([(2, 7), (8, 8)], &pods, Method::All), &mut scratch);
        assert_eq!((ledger.take_drift(), ledger.rows[0].missed), (None, 0));
    }
}

/// A pod of which a part is shown for good has that part.
#[test]
fn what_stays_a_part_is_believed() {
    let mut scratch = Scratch::default();
    let pods = [app(1, 6)];
    let mut ledger = restarted(&[], report([(8, 8), (8, 8)], &[], Method::All));
    ledger.bound(&pods[0], &mut scratch);
    ledger.admitted(pods[0].id, &mut scratch);
    for _ in 0..4 {
        assert_eq!(ledger.take_drift(), None);
        ledger.report(report([(2, 8), (8, 8)], &pods, Method::All), &mut scratch);
    }
    assert!(ledger.take_drift().is_some());
    assert_eq!(ledger.free().unwrap().cells(), [2_000, 8, 8_000, 8]);
}

/// A device may fail with its pod, and nothing changes after it: what the report does not show is not counted on.
#[test]
fn what_is_less_than_expected_for_good_is_not_promised() {
    let mut scratch = Scratch::default();
    let pods = [app(1, 6), app(2, 8)];
    for is_announced in [true, false] {
        let mut ledger = restarted(&[], report([(8, 8), (8, 8)], &[], Method::All));
        for pod in &pods {
            ledger.bound(pod, &mut scratch);
            ledger.admitted(pod.id, &mut scratch);
        }
        ledger.report(report([(2, 7), (0, 7)], &pods, Method::All), &mut scratch);
        ledger.leaving(PodId(1), &mut scratch);
        if is_announced {
            ledger.released(PodId(1), &mut scratch);
        }
        ledger.report(report([(4, 8), (0, 7)], &pods[1..], Method::All), &mut scratch);
        ledger.released(PodId(1), &mut scratch);
        assert!(fits(&ledger, 4) && !fits(&ledger, 5), "{is_announced} {ledger:#?}");
        assert!(ledger.summary().unconfirmed);
        ledger.report(report([(8, 8), (0, 7)], &pods[1..], Method::All), &mut scratch);
        assert!(fits(&ledger, 8) && !ledger.summary().unconfirmed, "{is_announced} {ledger:#?}");
    }
}

/// A pod that may end is a reason to doubt one report that counts it, not the next.
#[test]
fn what_stays_beside_a_pod_that_may_end_is_believed() {
    let mut scratch = Scratch::default();
    let pods = [BoundPod { finishes: true, ..app(1, 6) }];
    let mut ledger = restarted(&[], report([(8, 8), (8, 8)], &[], Method::All));
    ledger.bound(&pods[0], &mut scratch);
    ledger.admitted(pods[0].id, &mut scratch);
    ledger.report(report([(2, 7), (8, 8)], &pods, Method::All), &mut scratch);
    ledger.report(report([(2, 8), (8, 8)], &pods, Method::All), &mut scratch);
    assert!(ledger.take_drift().is_none() && ledger.summary().unconfirmed);
    ledger.report(report([(2, 8), (8, 8)], &pods, Method::All), &mut scratch);
    assert!(ledger.take_drift().is_some() && !ledger.summary().unconfirmed);
    assert_eq!(ledger.free().unwrap().cells(), [2_000, 8, 8_000, 8]);
}

/// What is counted on beside a torn report follows the pods that come and go after it, also in trials.
#[test]
fn a_torn_report_follows_the_pods_after_it() {
    let mut scratch = Scratch::default();
    let pods = [app(1, 6), app(2, 8)];
    let mut ledger = restarted(&[], report([(8, 8), (8, 8)], &[], Method::All));
    for pod in &pods {
        ledger.bound(pod, &mut scratch);
        ledger.admitted(pod.id, &mut scratch);
    }
    ledger.report(report([(2, 7), (0, 7)], &pods, Method::All), &mut scratch);
    ledger.leaving(PodId(1), &mut scratch);
    ledger.released(PodId(1), &mut scratch);
    ledger.report(report([(4, 8), (0, 7)], &pods[1..], Method::All), &mut scratch);
    assert!(ledger.summary().unconfirmed && fits(&ledger, 4) && !fits(&ledger, 5));
    // A victim of preemption makes room.
    let freed = ledger.without([PodId(2)], &mut scratch);
    assert!(fits(&freed, 8), "{freed:#?}");
    // The report precedes this pod, also once that is admitted.
    let next = app(3, 2);
    ledger.bound(&next, &mut scratch);
    assert!(fits(&ledger, 2) && !fits(&ledger, 3), "{ledger:#?}");
    ledger.admitted(next.id, &mut scratch);
    assert!(fits(&ledger, 2) && !fits(&ledger, 3), "{ledger:#?}");
}

/// After a start nothing tells how old a report without fingerprint is, but its numbers.
#[test]
fn a_first_report_without_fingerprint_is_believed_if_it_counts_all_pods() {
    let pods = [app(1, 6), app(2, 6)];
    for older in [[(8, 8), (8, 8)], [(2, 7), (8, 8)]] {
        let ledger = restarted(&pods, unsigned(older));
        assert!(!fits(&ledger, 3), "{older:?}");
    }
    let ledger = restarted(&pods, unsigned([(2, 7), (2, 7)]));
    assert!(fits(&ledger, 2) && !fits(&ledger, 3));
}

/// What such a report has in use may be of pods that have left since. With that room the init container goes to zone 0,
/// and the other does not fit there.
#[test]
fn a_pod_that_more_room_keeps_out_waits_beside_pods_of_no_name() {
    let rising = pod(5, &[(ContainerKind::Init, 1_000, 1), (ContainerKind::App, 8_000, 1)]);
    let admits = |ledger: &Ledger| {
        let check = ledger.check((&rising.needs, u64::MAX), &mut Scratch::default());
        check.is_ok()
    };
    assert!(admits(&restarted(&[app(1, 8)], unsigned([(0, 7), (8, 8)]))));
    let mut ledger = restarted(&[app(1, 5)], unsigned([(0, 6), (8, 8)]));
    ledger.released(PodId(1), &mut Scratch::default());
    assert!(fits(&ledger, 8) && !admits(&ledger), "{ledger:#?}");
    ledger.report(unsigned([(8, 8), (8, 8)]), &mut Scratch::default());
    assert!(admits(&ledger), "{ledger:#?}");
}

/// The first report counts pods that were gone when the scheduler started.
#[test]
fn an_empty_node_is_known_to_be_empty() {
    let mut ledger = restarted(&[], unsigned([(1, 7), (3, 7)]));
    assert!(fits(&ledger, 3) && !fits(&ledger, 4));
    ledger.report(unsigned([(8, 8), (8, 8)]), &mut Scratch::default());
    assert!(fits(&ledger, 8), "{ledger:#?}");
}

/// What is counted on is the less of what the report and the ledger say. With the more of it, the init container goes
/// to zone 0, and the other does not fit there.
#[test]
fn a_pod_that_more_room_keeps_out_waits_while_a_report_is_unexplained() {
    let known = [app(1, 5)];
    let mut ledger = restarted(&known, report([(3, 7), (8, 8)], &known, Method::All));
    let rising = pod(5, &[(ContainerKind::Init, 1_000, 1), (ContainerKind::App, 8_000, 1)]);
    ledger.report(
        report([(0, 6), (8, 8)], &[known[0].clone(), app(9, 3)], Method::All),
        &mut Scratch::default(),
    );
    assert!(ledger.summary().unexplained && fits(&ledger, 8));
    assert!(ledger.check((&rising.needs, u64::MAX), &mut Scratch::default()).is_err());
}

/// An exporter that ends after a report that was understood leaves later pods untold. Those that hold nothing in
/// zones do not count.
#[test]
fn pods_that_no_report_shows_are_counted() {
    let mut scratch = Scratch::default();
    let mut shared = app(3, 1);
    shared.needs = Arc::new(PodNeeds { qos: Qos::Burstable, ..(*shared.needs).clone() });
    let pods = [app(1, 6), app(2, 8)];
    let mut ledger = restarted(&[], report([(8, 8), (8, 8)], &[], Method::WithExclusiveResources));
    let numbers = |ledger: &Ledger| (ledger.summary().reports, ledger.summary().unreported);
    assert_eq!(numbers(&ledger), (1, 0));
    for pod in pods.iter().chain([&shared]) {
        ledger.bound(pod, &mut scratch);
    }
    assert_eq!(numbers(&ledger), (1, 0), "the kubelet has seen none");
    for pod in pods.iter().chain([&shared]) {
        ledger.admitted(pod.id, &mut scratch);
    }
    assert_eq!(numbers(&ledger), (1, 2));
    ledger.report(report([(2, 7), (8, 8)], &pods[..1], Method::WithExclusiveResources), &mut scratch);
    assert_eq!(numbers(&ledger), (2, 0), "an exporter may leave a pod out");
    ledger.report(report([(2, 7), (0, 7)], &pods, Method::WithExclusiveResources), &mut scratch);
    assert_eq!(numbers(&ledger), (3, 0));
}

/// A report counts a pod that the ledger does not know, so nothing tells which others it counts: not those that were
/// admitted after it.
#[test]
fn a_report_of_unknown_pods_precedes_those_admitted_since() {
    let mut scratch = Scratch::default();
    let (unknown, next) = (app(9, 4), app(1, 4));
    let mut ledger = restarted(&[], report([(8, 8), (0, 8)], &[], Method::All));
    ledger.report(report([(4, 7), (0, 8)], slice::from_ref(&unknown), Method::All), &mut scratch);
    assert!(ledger.summary().unexplained && fits(&ledger, 4) && !fits(&ledger, 5), "{ledger:#?}");
    ledger.bound(&next, &mut scratch);
    assert!(!fits(&ledger, 1), "{ledger:#?}");
    ledger.admitted(next.id, &mut scratch);
    assert!(!fits(&ledger, 1), "{ledger:#?}");
    // The next report came after it, and says as much.
    ledger.report(report([(0, 6), (0, 8)], &[unknown, next], Method::All), &mut scratch);
    assert!(!fits(&ledger, 1), "{ledger:#?}");
    ledger.leaving(PodId(1), &mut scratch);
    ledger.released(PodId(1), &mut scratch);
    ledger.report(report([(4, 7), (0, 8)], &[app(9, 4)], Method::All), &mut scratch);
    assert!(fits(&ledger, 4) && !fits(&ledger, 5), "{ledger:#?}");
}
