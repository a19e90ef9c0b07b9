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
