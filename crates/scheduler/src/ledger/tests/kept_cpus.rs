//! A pod that leaves between two containers of another one's admission: the init container may keep its CPUs.

use super::*;

const INIT_AND_APP: Op = Op::BindInit { init_cpu: 4, cpu: 4, memory: 1, created_s: 1 };

fn bind(cpu: i64) -> Op {
    Op::Bind { cpu, memory: 1, containers: 1, finishes: false, created_s: 2 }
}

/// A pod of four CPUs leaves zone 0 while one with an init container is admitted there, which so holds all eight. The
/// first pod has the number 0, the second 1.
fn released_between_containers() -> Rig {
    let mut rig = Rig::new(Scope::Container, true);
    for op in [bind(4), Op::Kubelet, Op::PodEvent, Op::Delete(0), Op::Kubelet, INIT_AND_APP] {
        rig.apply(&op);
    }
    rig.apply(&Op::KubeletReleases { at: 0, before: 1 });
    while !rig.pod_events.is_empty() {
        rig.apply(&Op::PodEvent);
    }
    assert_eq!((rig.own.len(), rig.kubelet.free().cells()), (2, &[0, 7, 8_000, 8][..]));
    rig
}

/// The most CPUs of a pod that fits.
fn most(rig: &mut Rig) -> Option<i64> {
    (1..=8).filter(|cpus| rig.ledger.check((&needs(*cpus, 1, 1), 3), &mut rig.scratch).is_ok()).max()
}

#[test]
fn cpus_that_an_init_container_may_keep_are_not_counted_on() {
    let mut rig = released_between_containers();
    // By the model it goes to zone 0, by the kubelet to zone 1.
    rig.apply(&bind(4));
    assert_eq!(most(&mut rig), Some(4));
    rig.apply(&bind(4));
    rig.drain();
    assert!(rig.rejected.is_empty(), "{:#?}", rig.ledger);
    // Reports show nothing of these CPUs.
    assert_eq!((most(&mut rig), rig.kubelet.free().cells()), (None, &[0, 7, 0, 6][..]));
}

#[test]
fn nothing_is_kept_once_the_pod_has_left() {
    let mut rig = released_between_containers();
    for op in [Op::Delete(0), Op::Kubelet, Op::Release(0), Op::PodEvent] {
        rig.apply(&op);
    }
    assert_eq!(most(&mut rig), Some(8));
    assert!(rig.ledger.without_kept(&rig.ledger.worlds[0], &rig.ledger.worlds[0].amounts, &[]).is_empty());
}

/// Seconds are those of one clock, and whole.
#[test]
fn an_end_after_the_start_of_the_other_pod_proves_that_nothing_is_kept() {
    for (started, ended, is_proven) in [
        (Some(10), Some(11), true),
        (Some(10), Some(10), false),
        (Some(10), Some(9), false),
        (None, Some(11), false),
        (Some(10), None, false),
        (None, Some(u64::MAX), true),
    ] {
        for is_end_known_first in [false, true] {
            let mut rig = released_between_containers();
            let end = |rig: &mut Rig| ended.into_iter().for_each(|second| rig.ledger.ended(PodId(0), second));
            if is_end_known_first {
                end(&mut rig);
            }
            started.into_iter().for_each(|second| rig.ledger.started(PodId(1), second));
            if !is_end_known_first {
                end(&mut rig);
            }
            let world = &rig.ledger.worlds[0];
            let is_open = !rig.ledger.without_kept(world, &world.amounts, &[]).is_empty();
            assert_eq!(is_open, !is_proven, "{started:?} {ended:?}");
        }
    }
}

/// A report counts both pods: the one that leaves was there when the other had been admitted.
#[test]
fn a_report_of_both_pods_proves_that_nothing_is_kept() {
    for is_report_late in [false, true] {
        let mut rig = Rig::new(Scope::Container, true);
        for op in [bind(4), Op::Kubelet, Op::PodEvent, INIT_AND_APP, Op::Kubelet, Op::PodEvent, Op::Export] {
            rig.apply(&op);
        }
        if !is_report_late {
            rig.apply(&Op::NrtEvent);
        }
        for op in [Op::Delete(0), Op::Kubelet, Op::Release(0), Op::PodEvent] {
            rig.apply(&op);
        }
        let is_open = |rig: &Rig| {
            let world = &rig.ledger.worlds[0];
            !rig.ledger.without_kept(world, &world.amounts, &[]).is_empty()
        };
        assert_eq!(is_open(&rig), is_report_late);
        rig.apply(&Op::NrtEvent);
        assert!(!is_open(&rig) && most(&mut rig) == Some(8), "{:#?}", rig.ledger);
    }
}
