//! Sequences that the property tests have found once, each a defect of its time.

use super::*;

fn bind(cpu: i64, memory: i64, containers: usize) -> Op {
    Op::Bind { cpu, memory, containers, finishes: false, created_s: 0 }
}

fn relist(messages: usize) -> Op {
    Op::Relist { messages, backwards: false }
}

fn admits_all(fingerprints: bool, ops: &[Op]) {
    let mut rig = Rig::new(Scope::Container, fingerprints);
    for op in ops {
        rig.apply(op);
        rig.recount();
        assert!(rig.rejected.is_empty(), "TopologyAffinityError after {op:?}: {:#?}", rig.ledger);
    }
    rig.drain();
    assert!(rig.rejected.is_empty(), "TopologyAffinityError at last");
}

/// The former zone of a released pod tells worlds apart that are else the same: a report made before the release does.
#[test]
fn worlds_that_differ_in_a_released_pod_are_both_kept() {
    admits_all(
        true,
        &[
            bind(2, 1, 1),
            Op::Kubelet,
            Op::ForceDelete(0),
            bind(4, 1, 1),
            Op::Export,
            relist(2),
            Op::NrtEvent,
            bind(3, 1, 1),
            Op::Delete(0),
            Op::Kubelet,
            Op::Kubelet,
            Op::Release(0),
            Op::Delete(0),
            Op::Export,
            Op::Kubelet,
            bind(2, 1, 1),
            bind(1, 1, 2),
            Op::Release(0),
            Op::PodEvent,
            Op::NrtEvent,
            bind(5, 1, 2),
            bind(1, 1, 1),
        ],
    );
}

/// An old report without fingerprint counts a pod that was released since; another of equal size must not be taken for
/// it, as that one is in another zone.
#[test]
fn a_former_pod_of_equal_size_is_not_taken_for_a_new_one() {
    admits_all(
        false,
        &[
            bind(1, 1, 2),
            bind(3, 1, 1),
            bind(5, 1, 1),
            relist(2),
            Op::ForceDelete(1),
            bind(1, 1, 1),
            bind(1, 3, 2),
            Op::Export,
            bind(3, 1, 1),
            Op::Delete(0),
            Op::Delete(0),
            relist(4),
            Op::ForceDelete(0),
            Op::Finish(0),
            Op::ForceDelete(6),
            Op::Delete(0),
            relist(2),
            bind(2, 1, 1),
            Op::NrtEvent,
            Op::Kubelet,
            Op::Timer,
            bind(7, 1, 1),
            Op::Kubelet,
        ],
    );
}

/// A pod on its way may be admitted when several leaving pods are gone, though the first of them began to leave when
/// the others stayed.
#[test]
fn several_pods_that_leave_may_be_gone_before_one_on_its_way() {
    let mut rig = Rig::new(Scope::Container, true);
    let late = Op::Bind { cpu: 2, memory: 1, containers: 1, finishes: false, created_s: 1 };
    for op in [
        bind(1, 1, 1),
        bind(1, 1, 1),
        bind(3, 1, 2),
        late,
        Op::Kubelet,
        Op::ForceDelete(0),
        Op::Kubelet,
        Op::PodEvent,
        Op::ForceDelete(0),
        relist(4),
        Op::Export,
        Op::NrtEvent,
    ] {
        rig.apply(&op);
    }
    assert_eq!(rig.ledger.take_drift(), None, "{:#?}", rig.ledger);
}

/// A pod may end by itself before the API server shows that the kubelet has admitted it.
#[test]
fn a_pod_may_be_gone_before_its_admission_is_known() {
    let finishing = Op::Bind { cpu: 1, memory: 1, containers: 1, finishes: true, created_s: 0 };
    let younger = Op::Bind { cpu: 1, memory: 4, containers: 2, finishes: false, created_s: 1 };
    admits_all(true, &[finishing, Op::Kubelet, younger, Op::Finish(0), bind(5, 1, 2)]);
}
