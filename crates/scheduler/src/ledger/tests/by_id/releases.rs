//! Pods that leave while others are admitted, at whatever moment.

use topology::kubelet::ContainerAllocation;
use topology::kubelet::memory_manager::Block;

use super::*;
use crate::ledger::amounts::HeldIds;

/// Managers take back what an ended pod held whenever they are asked, also between two containers.
#[test]
fn a_pod_may_leave_between_two_containers_of_another() {
    for scope in [Scope::Container, Scope::Pod] {
        for is_bound_first in [true, false] {
            let mut node = node(Policy::SingleNumaNode, scope, &[], HashKey::Uid);
            let leaves = app(1, 4);
            node.run(&leaves);
            node.report();
            let comes = pod(2, &[(ContainerKind::Init, 2, 64, 0), (ContainerKind::App, 2, 64, 0)]);
            assert!(node.fits(&comes));
            if is_bound_first {
                node.bind(&comes);
            }
            node.ledger.leaving(leaves.id, &mut node.scratch);
            node.bind(&comes);
            let ended = [Arc::clone(&leaves.names.uid)];
            let (kubelet, asked) = (&node.kubelet, Node::asked(&comes));
            let release = Some(kubelet::MidAdmissionRelease { before: 1, pods: &ended });
            kubelet::admit_with_release(kubelet, &mut node.state, &asked, &Lowest, release).unwrap();
            node.pods = vec![comes.clone()];
            node.ledger.admitted(comes.id, &mut node.scratch);
            node.ledger.released(leaves.id, &mut node.scratch);
            node.report();
            let summary = node.ledger.summary();
            assert_eq!((summary.corrections, summary.worlds), (0, 1), "{scope:?} {is_bound_first}");
            assert_eq!(summary.predictions.wrong, 0);
        }
    }
}

/// A report tells that two pods have ended, and that a third was admitted in their room, before the API server does.
#[test]
fn pods_that_have_ended_by_themselves_make_room_before_it_is_told() {
    let mut node = node(Policy::SingleNumaNode, Scope::Container, &[], HashKey::Uid);
    let finishing = |id| BoundPod { finishes: true, ..app(id, 2) };
    for pod in [finishing(1), finishing(2), app(3, 2)] {
        node.run(&pod);
    }
    node.report();
    node.release(2);
    let comes = app(4, 4);
    node.bind(&comes);
    let ended: Vec<BoundPod> = node.pods.drain(..).collect();
    ended.iter().for_each(|pod| node.state.remove(&pod.names.uid));
    node.admit(&comes);
    node.report();
    let summary = node.ledger.summary();
    assert_eq!((summary.corrections, summary.predictions.wrong), (0, 0));
    ended.iter().for_each(|pod| node.ledger.released(pod.id, &mut node.scratch));
    assert_eq!((node.ledger.summary().worlds, node.ledger.summary().in_doubt), (1, 0));
    assert!(node.fits(&app(5, 8)), "zone 1 is empty");
}

/// The first container is placed without the room that another pod leaves, the second with it, where the third has to
/// go: neither moment before nor after is that bad.
#[test]
fn a_pod_that_is_rejected_if_another_leaves_between_its_containers_does_not_fit() {
    let mut node = node(Policy::SingleNumaNode, Scope::Container, &[], HashKey::Uid);
    let nics = |id| pod(id, &[(ContainerKind::App, 1, 64, 2)]);
    for one in [nics(1), nics(2)] {
        node.run(&one);
    }
    node.release(0);
    let (stays, leaves) = (app(3, 2), app(4, 3));
    for one in [&stays, &leaves] {
        node.run(one);
    }
    node.report();
    let kinds = [(3, 0), (4, 0), (2, 1)].map(|(cpus, nics)| (ContainerKind::App, cpus, 64, nics));
    let comes = pod(5, &kinds);
    assert!(node.fits(&comes) && node.would_admit(&comes));
    node.ledger.leaving(leaves.id, &mut node.scratch);
    let ended = [Arc::clone(&leaves.names.uid)];
    let outcome = |before| {
        let release = Some(kubelet::MidAdmissionRelease { before, pods: &ended });
        let state = &mut node.state.clone();
        kubelet::admit_with_release(&node.kubelet, state, &Node::asked(&comes), &Lowest, release).is_ok()
    };
    assert_eq!([0, 1, 2].map(outcome), [true, false, true]);
    assert!(!node.fits(&comes));
}

/// The kubelet hears of deletions before the scheduler does, or after the binding. An init container then goes to the
/// lower zone, and the container that has to keep its CPUs there finds too few.
#[test]
fn a_pod_that_more_room_keeps_out_relies_on_those_that_hold_it() {
    for (residents, relied_on) in [(&[3, 4][..], &[1, 2][..]), (&[7], &[])] {
        let mut node = node(Policy::SingleNumaNode, Scope::Container, &[], HashKey::Uid);
        for (cpus, id) in residents.iter().zip(1..) {
            let resident = app(id, *cpus);
            node.run(&resident);
        }
        node.report();
        let comes = pod(9, &[(ContainerKind::Init, 2, 64, 0), (ContainerKind::App, 6, 64, 0)]);
        assert!(node.fits(&comes) && node.would_admit(&comes), "{residents:?}");
        let told = node.ledger.relied_on(&comes.needs, &mut node.scratch);
        let told = told.map(|pods| pods.map(|pod| pod.0).collect::<Vec<_>>());
        assert_eq!(told.as_deref(), Some(relied_on), "{residents:?}");
        node.release(0);
        assert_eq!(node.would_admit(&comes), relied_on.is_empty(), "{residents:?}");
    }
}

/// Containers of no known pod leave unannounced. The init container goes to the lower zone then, and the other with it.
#[test]
fn a_pod_that_more_room_keeps_out_waits_beside_unknown_containers() {
    let mut node = node(Policy::SingleNumaNode, Scope::Container, &[], HashKey::Uid);
    let foreign = app(7, 7);
    kubelet::admit(&node.kubelet, &mut node.state, &Node::asked(&foreign), &Lowest).unwrap();
    node.pods.push(foreign.clone());
    node.report();
    let rising = pod(1, &[(ContainerKind::Init, 1, 64, 0), (ContainerKind::App, 8, 64, 0)]);
    assert!(node.would_admit(&rising) && !node.fits(&rising) && node.fits(&app(2, 8)));
    node.bind(&foreign);
    node.ledger.admitted(foreign.id, &mut node.scratch);
    node.report();
    assert!(node.fits(&rising), "the departure of a known pod is seen");
}

/// A pod that is charged in each zone has CPUs of one of them, which are a guess.
#[test]
fn a_guess_is_no_knowledge_of_what_init_containers_hold() {
    let mut node = node(Policy::SingleNumaNode, Scope::Container, &[], HashKey::Name);
    let with_init = |id| pod(id, &[(ContainerKind::Init, 5, 64, 0), (ContainerKind::App, 2, 64, 0)]);
    let (former, comes) = (with_init(1), with_init(2));
    node.run(&former);
    // From now on it is not known which CPUs its init container has.
    node.restart_scheduler();
    node.bind(&comes);
    // It leaves before the next one is admitted, which so gets to zone 0 as well.
    node.pods.clear();
    node.state.remove(&former.names.uid);
    node.state.sweep();
    node.admit(&comes);
    node.report();
    node.ledger.released(former.id, &mut node.scratch);
    node.report();
    let large = app(3, 8);
    assert!(node.fits(&large), "zone 1 is free: {:#?}", node.ledger);
    node.run(&large);
    node.report();
    assert!(!node.would_admit(&app(4, 3)) && !node.fits(&app(4, 3)), "{:#?}", node.ledger);
}

/// A pod over both zones has made them a group. A pod that may be in the one or the other was there before, or holds
/// memory of both.
#[test]
fn a_pod_in_one_of_two_zones_splits_no_group() {
    let mut node = node(Policy::Restricted, Scope::Pod, &[], HashKey::Uid);
    let wide = pod(1, &[(ContainerKind::App, 9, 1_500, 0)]);
    node.run(&wide);
    let small = app(2, 1);
    assert!(!node.would_admit(&small) && !node.fits(&small));
    let alone = |zone| {
        let block = Block { zones: ZoneMask::of(zone), name: ResourceName::MEMORY, bytes: 64 << 20 };
        let memory = vec![block];
        let container = ContainerAllocation { name: "c0".into(), memory, ..ContainerAllocation::default() };
        Held::Ids(Arc::new(HeldIds::exactly(vec![container])))
    };
    let rules = node.ledger.topology().unwrap().rules;
    let mut amounts = node.ledger.worlds[0].amounts.clone();
    amounts.charge(&alone(0).union(&alone(1)));
    assert!(amounts.admit(rules, &small.needs, &mut node.scratch).is_err(), "{amounts:#?}");
}

/// Podresources shows the device with the second container only, which uses that of the first.
#[test]
fn a_device_of_an_init_container_is_held_once() {
    let mut node = node(Policy::None, Scope::Container, &[], HashKey::Name);
    let [init, app] = [ContainerKind::Init, ContainerKind::App];
    let pods = [pod(1, &[(init, 1, 64, 1), (app, 1, 64, 0)]), pod(2, &[(init, 1, 64, 1), (app, 1, 64, 1)])];
    pods.iter().for_each(|pod| node.run(pod));
    node.release(0);
    node.report();
    node.run(&pod(3, &[(app, 1, 64, 1)]));
    node.report();
    node.expect_no_surprise();
}

/// As many pods have left as are remembered, and one more of which only the report knows.
#[test]
fn pods_keep_their_rows_while_a_report_is_explained() {
    let mut node = node(Policy::SingleNumaNode, Scope::Container, &[], HashKey::Uid);
    node.run(&app(1, 4));
    node.report();
    for id in (2..).take(MAX_RELEASED_ROWS) {
        node.run(&app(id, 1));
        node.release(1);
    }
    let gone = node.pods.remove(0);
    node.state.remove(&gone.names.uid);
    node.state.sweep();
    node.run(&app(99, 4));
    node.report();
    let summary = node.ledger.summary();
    assert_eq!((summary.corrections, summary.worlds), (0, 1), "{:#?}", node.ledger);
    assert!(node.fits(&app(100, 8)) && node.would_admit(&app(100, 8)));
}
