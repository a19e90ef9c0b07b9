//! The search for the pods of a report: what it may cost.

use super::restart::{pod, report, restarted};
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
