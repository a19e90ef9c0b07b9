//! A ledger that begins anew beside running pods: reports do not show what finished init containers keep.

use super::*;

pub(super) fn pod(id: u64, containers: &[(ContainerKind, i64, i64)]) -> BoundPod {
    let hash = PodHash::of("ns", &format!("p{id}"));
    BoundPod {
        id: PodId(id),
        names: PodNames::default(),
        hash,
        needs: needs_of(containers),
        finishes: false,
        created_s: id,
    }
}

/// A report of these pods, with so many CPUs and so much memory available in each zone.
pub(super) fn report(available: [(i64, i64); 2], pods: &[BoundPod], method: Method) -> Arc<NodeTopology> {
    let mut free = topology(Scope::Container, None, None).available();
    for (zone, (cpus, memory)) in available.into_iter().enumerate() {
        free.add(free.index(zone, 0), cpus * 1_000 - CPUS);
        free.add(free.index(zone, 1), memory - MEMORY);
    }
    let mut hashes: Vec<PodHash> = pods.iter().map(|pod| pod.hash).collect();
    let mut report = topology(Scope::Container, Some(&free), None);
    report.fingerprint = Some((Fingerprint::of(&mut hashes), method));
    Arc::new(report)
}

pub(super) fn restarted(pods: &[BoundPod], report: Arc<NodeTopology>) -> Ledger {
    let (mut ledger, mut scratch) = (Ledger::default(), Scratch::default());
    for pod in pods {
        ledger.bound(pod, &mut scratch);
        ledger.admitted(pod.id, &mut scratch);
    }
    ledger.report(report, &mut scratch);
    ledger
}

pub(super) fn fits(ledger: &Ledger, cpus: i64) -> bool {
    ledger.check((&needs(cpus, 1, 1), u64::MAX), &mut Scratch::default()).is_ok()
}

#[test]
fn hidden_cpus_of_init_containers_stay_held() {
    let init = (ContainerKind::Init, 4_000, 1);
    let whole = pod(1, &[init, (ContainerKind::App, 1_000, 1)]);
    let fraction = pod(1, &[init, (ContainerKind::App, 500, 1)]);
    let other = pod(2, &[(ContainerKind::App, 4_000, 1)]);
    // The first pod holds four CPUs of a zone, and shows one of them or none.
    for (first, shown) in [(whole, 7), (fraction, 8)] {
        let pods = [first, other.clone()];
        let ledger = restarted(&pods, report([(shown, 7), (4, 7)], &pods, Method::WithExclusiveResources));
        assert!(ledger.is_trusted());
        assert!(!fits(&ledger, 5), "{shown}: no zone has five CPUs");
        assert!(fits(&ledger, 4), "{shown}");
    }
}

#[test]
fn another_fingerprint_method_loses_no_pod() {
    let aligned = pod(1, &[(ContainerKind::App, 6_000, 1)]);
    let mut shared = pod(2, &[(ContainerKind::App, 500, 0)]);
    shared.needs = Arc::new(PodNeeds { qos: Qos::BestEffort, ..(*shared.needs).clone() });
    let pods = [aligned.clone(), shared];
    let mut ledger = restarted(&pods, report([(2, 7), (8, 8)], &pods, Method::All));
    let mut scratch = Scratch::default();
    let exclusive = report([(2, 7), (8, 8)], &[aligned], Method::WithExclusiveResources);
    for next in [exclusive, report([(2, 7), (8, 8)], &pods, Method::All)] {
        ledger.report(next, &mut scratch);
        assert!(ledger.unexplained.is_none(), "each report is explained by the same two pods");
    }
}

/// Where a pod of unknown zones leaves, one that is on its way may get its room, and not what was predicted.
#[test]
fn room_in_unknown_zones_may_go_to_a_pod_on_its_way() {
    let app = |id, cpus: i64, memory| pod(id, &[(ContainerKind::App, cpus * 1_000, memory)]);
    // Of six equal pods three are in each zone, in more ways than are told apart.
    let mut pods: Vec<BoundPod> = (1..=6).map(|id| app(id, 1, 1)).collect();
    pods.extend([app(7, 4, 1), app(8, 3, 4)]);
    let last = app(10, 1, 3).needs;
    for is_on_its_way in [true, false] {
        let mut scratch = Scratch::default();
        let mut ledger = restarted(&pods, report([(1, 4), (2, 1)], &pods, Method::All));
        ledger.bound(&app(9, 2, 1), &mut scratch);
        if !is_on_its_way {
            ledger.admitted(PodId(9), &mut scratch);
        }
        let fits = |ledger: &Ledger| ledger.check((&last, u64::MAX), &mut Scratch::default()).is_ok();
        assert!(fits(&ledger), "beside the ninth in the second zone");
        ledger.leaving(PodId(3), &mut scratch);
        assert_eq!(fits(&ledger), !is_on_its_way, "the ninth may be in the first zone");
        ledger.released(PodId(3), &mut scratch);
        assert_eq!(fits(&ledger), !is_on_its_way);
    }
}

/// An exporter may leave pods out of the fingerprint for good. After a time its amounts count.
#[test]
fn a_fingerprint_of_other_pods_does_not_close_a_node_for_good() {
    let app = |id, cpus: i64| pod(id, &[(ContainerKind::App, cpus * 1_000, 1)]);
    let (one, left_out, three) = (app(1, 2), pod(2, &[]), app(3, 2));
    let named = [one.clone(), three.clone()];
    let pods = [one, left_out, three];
    let mut scratch = Scratch::default();
    let mut ledger = restarted(&pods, report([(4, 6), (8, 8)], &named, Method::All));
    assert!(ledger.needs_explanation() && !fits(&ledger, 1));
    ledger.expect_explanation(1_000);
    assert!(!ledger.needs_explanation());
    assert!(!ledger.give_up_fingerprint(999, &mut scratch) && !fits(&ledger, 1));
    assert!(ledger.give_up_fingerprint(1_000, &mut scratch));
    assert!(fits(&ledger, 8) && !fits(&ledger, 9));
    assert!(ledger.summary().unexplained, "it is told all the same");
    ledger.report(report([(4, 6), (8, 8)], &pods, Method::All), &mut scratch);
    assert!(fits(&ledger, 8) && !ledger.summary().unexplained);
}
