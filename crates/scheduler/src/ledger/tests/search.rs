//! The search for the pods of a report: what it may cost.

use super::restart::{fits, pod, report, restarted};
use super::*;
use crate::ledger::identify::{MAX_HASHES, PAUSE, Trials};

/// Pods that no report has described yet, as many of them released as the ledger remembers.
const PODS: u64 = 164;

fn many_unsettled() -> Ledger {
    let mut scratch = Scratch::default();
    let mut ledger = restarted(&[], report([(8, 8), (8, 8)], &[], Method::All));
    let small: Vec<BoundPod> = (1..=PODS).map(|id| pod(id, &[])).collect();
    for pod in &small {
        ledger.bound(pod, &mut scratch);
        ledger.admitted(pod.id, &mut scratch);
    }
    ledger.report(report([(8, 8), (8, 8)], &small, Method::All), &mut scratch);
    for pod in small.iter().take(MAX_RELEASED_ROWS) {
        ledger.leaving(pod.id, &mut scratch);
        ledger.released(pod.id, &mut scratch);
    }
    ledger.rows.iter_mut().for_each(|row| row.described &= row.stage == Stage::Released);
    ledger
}

#[test]
fn a_search_ends_at_its_bound() {
    let ledger = many_unsettled();
    assert_eq!(ledger.rows.len() as u64, PODS);
    let unknown = Fingerprint::of(&mut [PodHash::of("ns", "never seen")]);
    let mut trials = Trials::new(&ledger.rows, unknown);
    assert_eq!(ledger.search(&vec![true; ledger.rows.len()], &mut trials), None);
    // The set that is under way is tried to its end.
    let bounds = MAX_HASHES..MAX_HASHES + ledger.rows.len();
    assert!(bounds.contains(&trials.spent), "{} hashes", trials.spent);
}

#[test]
fn a_search_without_result_pauses_until_there_is_a_new_report() {
    let (mut ledger, mut scratch) = (many_unsettled(), Scratch::default());
    let unknown = report([(7, 7), (8, 8)], &[pod(PODS + 1, &[])], Method::All);
    ledger.report(Arc::clone(&unknown), &mut scratch);
    assert!(ledger.summary().unexplained);
    let mut pauses = Vec::new();
    for _ in 0..=PAUSE {
        pauses.push(ledger.search_pause);
        ledger.explain_report(&mut scratch);
    }
    assert_eq!(pauses, (0..=PAUSE).rev().collect::<Vec<_>>(), "one search in {PAUSE} events");
    assert_eq!(ledger.search_pause, PAUSE, "and then again");
    ledger.explain_report(&mut scratch);
    ledger.report(unknown, &mut scratch);
    assert_eq!(ledger.search_pause, PAUSE, "a new report is searched at once");
}

/// Zones with 64 CPUs. A pod that has those of the first may have left before any of 24 others comes.
#[test]
fn pods_on_their_way_multiply_worlds_within_bounds() {
    let (mut ledger, mut scratch) = (Ledger::default(), Scratch::default());
    let leaving = pod(0, &[(ContainerKind::App, 64_000, 1)]);
    let others: Vec<BoundPod> = (1..=24).map(|id| pod(id, &[(ContainerKind::App, 1_000, 1)])).collect();
    let shown = |pods: &[BoundPod], available: [i64; 2]| {
        let mut report = (*report([(8, 8), (8, 8)], pods, Method::All)).clone();
        for (zone, available) in report.zones.iter_mut().zip(available) {
            for resource in &mut zone.resources {
                (resource.capacity, resource.allocatable) = (64_000, 64_000);
                resource.available = available * 1_000;
            }
        }
        Arc::new(report)
    };
    ledger.bound(&leaving, &mut scratch);
    ledger.admitted(leaving.id, &mut scratch);
    others.iter().for_each(|pod| ledger.bound(pod, &mut scratch));
    ledger.leaving(leaving.id, &mut scratch);
    ledger.report(shown(std::slice::from_ref(&leaving), [0, 64]), &mut scratch);
    assert!((1..=MAX_WORLDS).contains(&ledger.summary().worlds));
    assert!(fits(&ledger, 40) && !fits(&ledger, 41), "{ledger:#?}");
    others.iter().for_each(|pod| ledger.admitted(pod.id, &mut scratch));
    ledger.released(leaving.id, &mut scratch);
    ledger.report(shown(&others, [40, 64]), &mut scratch);
    assert!(fits(&ledger, 64), "{ledger:#?}");
}

/// Either of two pods alike in size may be in the lower zone. Worlds of both kinds were merged, and another of one kind
/// came after them.
#[test]
fn agreement_beside_a_merged_world_decides_nothing() {
    let mut scratch = Scratch::default();
    let five = |id| pod(id, &[(ContainerKind::App, 5_000, 1)]);
    let (pods, small) = ([five(1), five(2)], pod(3, &[(ContainerKind::App, 3_000, 1)]));
    let mut ledger = restarted(&[], report([(8, 8), (8, 8)], &[], Method::All));
    pods.iter().for_each(|pod| ledger.bound(pod, &mut scratch));
    pods.iter().for_each(|pod| ledger.admitted(pod.id, &mut scratch));
    let as_bound = ledger.worlds[0].clone();
    let mut changed = as_bound.clone();
    changed.locations.swap(0, 1);
    ledger.worlds = vec![merge_worst(&[as_bound, changed.clone()], &[true, true]), changed];
    ledger.report(report([(3, 7), (3, 7)], &pods, Method::All), &mut scratch);
    ledger.released(pods[0].id, &mut scratch);
    ledger.bound(&small, &mut scratch);
    assert!(fits(&ledger, 3) && !fits(&ledger, 6), "{ledger:#?}");
}
