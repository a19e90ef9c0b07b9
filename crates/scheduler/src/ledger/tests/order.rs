//! A kubelet that admits pods in the order of their creation: after a restart, or a broken watch.

use super::*;

fn bind(cpu: i64, created_s: u64) -> Op {
    Op::Bind { cpu, memory: 1, containers: 1, finishes: false, created_s }
}

/// Zones with 5 and 2 free CPUs, and a pod of 5 on its way. One of 2 goes to the second zone if it comes later.
#[test]
fn an_older_pod_waits_until_a_younger_one_is_admitted() {
    for (created_s, fits) in [(11, true), (10, false), (9, false)] {
        for messages in [1, 2] {
            let mut rig = Rig::new(Scope::Container, true);
            for op in [bind(3, 1), bind(6, 2), Op::Kubelet, Op::Kubelet, Op::PodEvent, Op::PodEvent] {
                rig.apply(&op);
            }
            rig.apply(&bind(5, 10));
            rig.apply(&bind(2, created_s));
            assert_eq!(rig.own.len(), if fits { 4 } else { 3 }, "created at {created_s}");
            rig.apply(&Op::Relist { messages, backwards: true });
            rig.apply(&Op::PodEvent);
            if !fits {
                rig.apply(&bind(2, created_s));
                assert_eq!(rig.own.len(), 4, "the younger one has its place");
            }
            rig.drain();
            assert!(rig.rejected.is_empty(), "{:#?}", rig.ledger);
        }
    }
}

/// Pods that fit in both orders but go to other zones: what comes next fits beside either.
#[test]
fn both_orders_are_possible_until_a_report_tells() {
    for messages in [1, 2] {
        let mut rig = Rig::new(Scope::Container, true);
        for op in [bind(5, 2), bind(4, 1)] {
            rig.apply(&op);
        }
        assert_eq!(rig.ledger.summary().worlds, 2);
        // 3 and 4 CPUs are left, or 4 and 3.
        rig.apply(&Op::Relist { messages, backwards: false });
        rig.apply(&Op::Kubelet);
        rig.apply(&bind(4, 3));
        assert_eq!(rig.own.len(), 3);
        rig.apply(&bind(4, 4));
        assert_eq!(rig.own.len(), 3, "it fits in neither order");
        rig.drain();
        assert_eq!(rig.ledger.summary().worlds, 1);
        rig.apply(&bind(3, 5));
        rig.drain();
        assert_eq!((rig.own.len(), rig.rejected.len()), (4, 0), "{:#?}", rig.ledger);
    }
}

/// Where there is room for all, and among equal pods, the order changes nothing.
#[test]
fn an_order_without_effect_makes_no_worlds() {
    for pods in [vec![(3, 2), (2, 1), (1, 0)], vec![(5, 2), (5, 1)]] {
        let mut rig = Rig::new(Scope::Container, true);
        for (cpu, created_s) in &pods {
            rig.apply(&bind(*cpu, *created_s));
        }
        assert_eq!((rig.own.len(), rig.ledger.summary().worlds), (pods.len(), 1), "{pods:?}");
    }
}

/// More pods than orders can be tried: the next waits until some are admitted.
#[test]
fn many_pods_on_their_way_close_the_node_to_older_ones() {
    let mut rig = Rig::new(Scope::Container, true);
    // Which one goes to the first zone depends on all orders.
    for (cpu, created_s) in [(2, 9), (3, 8), (1, 7), (4, 6), (2, 5), (3, 4), (1, 3)] {
        rig.apply(&bind(cpu, created_s));
    }
    assert!(rig.own.len() < 7, "{:#?}", rig.ledger);
    while !rig.inbox.is_empty() {
        rig.apply(&Op::Relist { messages: 7, backwards: false });
    }
    rig.drain();
    assert!(rig.rejected.is_empty());
}

/// The oldest pod may come before all others, although the last of them is alike. In that order the last one, which is
/// not the one that is placed now, would be rejected.
#[test]
fn an_older_pod_may_precede_those_before_one_alike() {
    for messages in [1, 5] {
        let mut rig = Rig::new(Scope::Container, true);
        for op in [bind(6, 5), bind(2, 6), bind(1, 7), bind(3, 8)] {
            rig.apply(&op);
        }
        rig.apply(&bind(3, 4));
        assert_eq!(rig.own.len(), 4);
        rig.apply(&Op::Relist { messages, backwards: false });
        rig.drain();
        rig.apply(&bind(3, 4));
        rig.drain();
        assert_eq!((rig.own.len(), rig.rejected.len()), (5, 0), "{:#?}", rig.ledger);
    }
}

/// Zones with 5 and 2 free CPUs, a pod of 5 on its way, and one that takes nothing from zones. One of 2 may precede
/// both.
#[test]
fn an_older_pod_may_precede_those_before_one_without_zones() {
    let mut rig = Rig::new(Scope::Container, true);
    for op in [bind(3, 1), bind(6, 2), Op::Kubelet, Op::Kubelet, Op::PodEvent, Op::PodEvent, bind(5, 10)] {
        rig.apply(&op);
    }
    let burstable = PodNeeds { qos: Qos::Burstable, ..(*needs(1, 1, 1)).clone() };
    assert!(!burstable.may_align());
    let id = rig.pod(Arc::new(burstable), false, 1);
    rig.ledger.bound(&rig.pods[&id], &mut rig.scratch);
    rig.apply(&bind(2, 9));
    assert_eq!(rig.own.len(), 3);
}

/// Of two pods alike the one bound later is the elder, and a third is admitted between them.
#[test]
fn a_pod_may_come_between_two_alike() {
    let wide = |created_s| Op::Bind { cpu: 1, memory: 2, containers: 2, finishes: false, created_s };
    let mut rig = Rig::new(Scope::Container, true);
    for op in [wide(2), wide(0), bind(1, 1), Op::Relist { messages: 3, backwards: false }] {
        rig.apply(&op);
    }
    rig.drain();
    assert_eq!((rig.own.len(), rig.ledger.take_drift()), (3, None), "{:#?}", rig.ledger);
}

/// Two pods alike are in zones 0 and 1. Once one leaves, it matters which: the one bound later may be in zone 0.
#[test]
fn pods_alike_are_told_apart_once_one_leaves() {
    for leaving in 0..2 {
        let mut rig = Rig::new(Scope::Container, true);
        for op in [bind(6, 3), bind(6, 0), Op::Relist { messages: 2, backwards: false }] {
            rig.apply(&op);
        }
        rig.drain();
        assert_eq!(rig.ledger.summary().worlds, 1);
        for op in [Op::Delete(leaving), Op::Kubelet, Op::Release(0), Op::PodEvent] {
            rig.apply(&op);
        }
        assert_eq!(rig.ledger.summary().worlds, 2, "{:#?}", rig.ledger);
        rig.drain();
        assert_eq!((rig.ledger.summary().worlds, rig.ledger.free()), (1, Some(&rig.kubelet.free())));
        assert_eq!(rig.ledger.take_drift(), None, "{:#?}", rig.ledger);
    }
}

/// Two pods alike, of which the first zone has one. A report counts the first of them only: it is the one in that zone.
#[test]
fn a_pod_that_a_report_counts_is_told_from_one_alike() {
    let mut scratch = Scratch::default();
    let of = |id, milli| BoundPod { created_s: 1, ..restart::pod(id, &[(ContainerKind::App, milli, 1)]) };
    let (first, second, resident) = (of(1, 5_000), of(2, 5_000), of(3, 2_000));
    let shown = restart::report([(8, 8), (6, 7)], std::slice::from_ref(&resident), Method::All);
    let mut ledger = restart::restarted(std::slice::from_ref(&resident), shown);
    [&first, &second].into_iter().for_each(|pod| ledger.bound(pod, &mut scratch));
    [&first, &second].into_iter().for_each(|pod| ledger.admitted(pod.id, &mut scratch));
    let counted = [resident, first.clone()];
    ledger.report(restart::report([(3, 7), (6, 7)], &counted, Method::All), &mut scratch);
    ledger.released(first.id, &mut scratch);
    assert!(restart::fits(&ledger, 8), "{ledger:#?}");
}
