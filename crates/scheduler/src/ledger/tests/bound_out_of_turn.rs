//! Bindings of another scheduler that are seen after one of our own, which came later.

use super::restart::{fits, pod, report, restarted};
use super::*;

fn with_cpus(id: u64, cpus: i64) -> BoundPod {
    pod(id, &[(ContainerKind::App, cpus * 1_000, 1)])
}

/// With five CPUs left in the first zone, four of them for the other pod, our own with five goes to the second one.
#[test]
fn a_pod_shown_before_an_assumed_one_may_come_first() {
    let mut scratch = Scratch::default();
    let (own, other, resident) = (with_cpus(1, 5), with_cpus(2, 4), with_cpus(3, 3));
    let shown = report([(5, 7), (8, 8)], std::slice::from_ref(&resident), Method::All);
    let start = restarted(std::slice::from_ref(&resident), shown);
    let mut ledger = start.clone();
    ledger.assumed(&own, &mut scratch);
    ledger.bound(&other, &mut scratch);
    assert!(fits(&ledger, 3) && !fits(&ledger, 4), "{ledger:#?}");

    let mut ledger = start;
    ledger.assumed(&own, &mut scratch);
    ledger.shown(own.id);
    ledger.bound(&other, &mut scratch);
    assert!(fits(&ledger, 4), "{ledger:#?}");
}

/// The first pod ends by itself, and a report has the second one alone: that does not prove that the first one is gone.
#[test]
fn a_pod_that_comes_later_than_thought_is_not_taken_for_gone() {
    let mut scratch = Scratch::default();
    let own = BoundPod { finishes: true, ..with_cpus(1, 5) };
    let other = with_cpus(2, 4);
    let mut ledger = restarted(&[], report([(8, 8), (8, 8)], &[], Method::All));
    ledger.bound(&own, &mut scratch);
    ledger.bound(&other, &mut scratch);
    ledger.admitted(other.id, &mut scratch);
    ledger.report(report([(4, 7), (8, 8)], &[other], Method::All), &mut scratch);
    assert!(fits(&ledger, 3) && !fits(&ledger, 5), "{ledger:#?}");
}
