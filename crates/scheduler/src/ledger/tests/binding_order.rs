//! The order of bindings: those of another scheduler that are seen late, and those that fail after others came.

use super::restart::{fits, pod, report, restarted};
use super::*;

fn with_cpus(id: u64, cpus: i64) -> BoundPod {
    pod(id, &[(ContainerKind::App, cpus * 1_000, 1)])
}

/// A ledger with five CPUs left in the first of two zones, beside pod 3, and all eight in the second.
fn five_and_eight_left() -> Ledger {
    let resident = [with_cpus(3, 3)];
    restarted(&resident, report([(5, 7), (8, 8)], &resident, Method::All))
}

/// With five CPUs left in the first zone, four of them for the other pod, our own with five goes to the second one.
#[test]
fn a_pod_shown_before_an_assumed_one_may_come_first() {
    let mut scratch = Scratch::default();
    let (own, other) = (with_cpus(1, 5), with_cpus(2, 4));
    let mut ledger = five_and_eight_left();
    ledger.assumed(&own, &mut scratch);
    ledger.bound(&other, &mut scratch);
    assert!(fits(&ledger, 3) && !fits(&ledger, 4), "{ledger:#?}");

    let mut ledger = five_and_eight_left();
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

/// The first of two pods on their way is not bound after all. It had all CPUs of the second zone.
#[test]
fn both_orders_stay_possible_after_a_failed_binding() {
    let mut scratch = Scratch::default();
    let (failing, own, other) = (with_cpus(1, 8), with_cpus(2, 5), with_cpus(4, 4));
    let mut ledger = five_and_eight_left();
    ledger.assumed(&failing, &mut scratch);
    ledger.assumed(&own, &mut scratch);
    ledger.bound(&other, &mut scratch);
    ledger.forget(failing.id, &mut scratch);
    assert!(fits(&ledger, 3) && !fits(&ledger, 4), "{ledger:#?}");
}

/// Once the first pod, which had the first zone, is not bound after all, either of the others may go there.
#[test]
fn a_failed_binding_moves_later_ones_in_each_order() {
    let mut scratch = Scratch::default();
    let (failing, own, older) = (with_cpus(1, 5), with_cpus(4, 4), with_cpus(2, 3));
    let mut ledger = five_and_eight_left();
    for pod in [&failing, &own, &older] {
        ledger.assumed(pod, &mut scratch);
    }
    ledger.forget(failing.id, &mut scratch);
    assert!(fits(&ledger, 4) && !fits(&ledger, 5), "{ledger:#?}");
}

/// Another pod leaves the first zone meanwhile, before the second one is admitted or after.
#[test]
fn a_failed_binding_leaves_later_ones_where_they_may_be() {
    let mut scratch = Scratch::default();
    let (failing, own, leaving, resident) =
        (with_cpus(1, 1), with_cpus(2, 4), with_cpus(3, 1), with_cpus(4, 4));
    let found = [leaving, resident];
    let mut ledger = restarted(&found, report([(3, 6), (8, 8)], &found, Method::All));
    ledger.assumed(&failing, &mut scratch);
    ledger.assumed(&own, &mut scratch);
    ledger.released(found[0].id, &mut scratch);
    ledger.forget(failing.id, &mut scratch);
    assert!(fits(&ledger, 4) && !fits(&ledger, 5), "{ledger:#?}");
}

/// The second pod is admitted before the first one is known not to be bound: it went where that was thought to be.
#[test]
fn a_failed_binding_moves_later_ones_that_are_admitted() {
    let mut scratch = Scratch::default();
    let (failing, own, last) = (with_cpus(1, 5), with_cpus(2, 4), with_cpus(4, 5));
    let mut ledger = five_and_eight_left();
    ledger.assumed(&failing, &mut scratch);
    ledger.assumed(&own, &mut scratch);
    ledger.shown(own.id);
    ledger.admitted(own.id, &mut scratch);
    ledger.forget(failing.id, &mut scratch);
    ledger.bound(&last, &mut scratch);
    assert!(fits(&ledger, 3) && !fits(&ledger, 4), "{ledger:#?}");
}

/// Three different pods of our own are on their way when two of another scheduler are seen: more orders than are tried.
#[test]
fn pods_in_too_many_orders_may_be_anywhere() {
    let mut scratch = Scratch::default();
    let own = [3_i64, 2, 1].map(|cpus| with_cpus(cpus.unsigned_abs(), cpus));
    let others = [(4, 1_000, 2), (5, 4_000, 1)]
        .map(|(id, milli, memory)| pod(id, &[(ContainerKind::App, milli, memory)]));
    let all = [&own[..], &others[..]].concat();
    let mut ledger = restarted(&[], report([(8, 8), (8, 8)], &[], Method::All));
    own.iter().for_each(|pod| ledger.assumed(pod, &mut scratch));
    others.iter().for_each(|pod| ledger.bound(pod, &mut scratch));
    assert!(!fits(&ledger, 4), "{ledger:#?}");
    all.iter().for_each(|pod| ledger.admitted(pod.id, &mut scratch));
    ledger.report(report([(1, 3), (4, 7)], &all, Method::All), &mut scratch);
    assert!(fits(&ledger, 4) && !fits(&ledger, 5), "{ledger:#?}");
}
