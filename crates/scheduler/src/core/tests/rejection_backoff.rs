//! Controllers whose pods are rejected back off.

use super::*;
use crate::core::rejection_backoff::FIRST_WAIT_MS;

/// A pod of a ReplicaSet, on no node.
pub(super) fn waiting(name: &str) -> PodView {
    pod(name, 2, owned())
}

fn owned() -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "uid-r", "controller": true});
    json!({"metadata": {"ownerReferences": [owner], "creationTimestamp": "2026-01-01T00:00:00Z"}})
}

/// The same once a kubelet has rejected it, for something that says nothing of the amounts in zones.
fn rejected(name: &str) -> PodView {
    rejected_for(name, "SMTAlignmentError")
}

pub(super) fn rejected_for(name: &str, reason: &str) -> PodView {
    let mut object = owned();
    merge(&mut object, on("n"));
    merge(&mut object, json!({"status": {"phase": "Failed", "reason": reason}}));
    pod(name, 2, object)
}

#[test]
fn pods_of_a_controller_wait_after_three_rejections() {
    let mut core = core(&["n"]);
    let mut now = LATER;
    for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
        core.handle(Event::Pod(waiting(name)), now);
        assert_eq!(decide(&mut core, now), [format!("{name} -> n")]);
        core.handle(Event::Pod(rejected(name)), now);
        // The object changes again: that is no other rejection.
        core.handle(Event::Pod(rejected(name)), now);
        assert_eq!(decide(&mut core, now), [format!("{name} rejected, {}", at + 1)]);
        now += 1_000;
    }
    core.handle(Event::Pod(waiting("d")), now);
    core.handle(Event::Pod(pod("alone", 2, json!({}))), now);
    let text =
        "d: kubelets have rejected 3 pods of ReplicaSet r (SMTAlignmentError): the next one waits for 59 s";
    assert_eq!(decide(&mut core, now), [text, "alone -> n"]);
    assert_eq!(decide(&mut core, now + 58_000), [""; 0]);
    now += 59_000;
    assert_eq!(decide(&mut core, now), ["d -> n"]);
    core.handle(Event::Pod(rejected("d")), now);
    core.handle(Event::Pod(waiting("e")), now);
    let text =
        "e: kubelets have rejected 4 pods of ReplicaSet r (SMTAlignmentError): the next one waits for 120 s";
    assert_eq!(decide(&mut core, now), ["d rejected, 4", text]);
    // A long time later nothing is left of it.
    now += 30 * 60_000;
    assert_eq!(decide(&mut core, now), ["e -> n"]);
    core.handle(Event::Pod(rejected("e")), now);
    assert_eq!(decide(&mut core, now), ["e rejected, 1"]);
}

#[test]
fn rejected_pods_are_deleted_if_that_is_wanted_and_others_follow() {
    let decided = |deletes_rejected, view: PodView| {
        let mut core = Core::new(Settings { deletes_rejected, ..settings() });
        core.handle(Event::Node(node("n")), LATER);
        core.handle(Event::Pod(PodView { created_s: LATER / 1_000, ..view }), LATER);
        match core.next(LATER) {
            Some(Decision::NoteRejection(it)) => (it.is_ours, it.is_discarded, it.times),
            other => panic!("{other:?}"),
        }
    };
    let of_other = PodView { scheduler: "other".into(), ..rejected("a") };
    assert_eq!(decided(false, rejected("a")), (true, false, 1));
    assert_eq!(decided(true, rejected("a")), (true, true, 1));
    assert_eq!(decided(true, of_other), (false, true, 0), "another scheduler's");
    let mut mirror = rejected("a");
    let rejection = Arc::make_mut(mirror.rejection.as_mut().unwrap());
    rejection.owner.as_mut().unwrap().kind = "Node".into();
    assert!(!decided(true, mirror).1, "its kubelet has it from a file");
    let mut alone = rejected("a");
    Arc::make_mut(alone.rejection.as_mut().unwrap()).owner = None;
    assert_eq!(decided(true, alone), (true, false, 0), "no controller makes another one");
}

/// A gang waits as a whole: a pod of it that waited alone would make the others fail.
#[test]
fn a_gang_waits_as_a_whole() {
    let mut all = settings();
    Arc::make_mut(&mut all.profiles[0].plugins).gang_scheduling = true;
    let mut core = Core::new(all);
    core.handle(Event::Node(node("n")), LATER);
    core.handle(Event::Report("n".into(), report([8, 8], &[])), LATER);
    let (namespace, name, uid) = ("ns".into(), "g".into(), "g".into());
    let group = PodGroupView { namespace, name, uid, generation: 1, min_count: Some(2), scheduled: None };
    core.handle(Event::PodGroup(group), LATER);
    let member = |name: &str| {
        let mut object = owned();
        merge(&mut object, json!({"spec": {"schedulingGroup": {"podGroupName": "g"}}}));
        pod(name, 2, object)
    };
    for name in ["a", "b", "c"] {
        core.handle(Event::Pod(waiting(name)), LATER);
        decide(&mut core, LATER);
        core.handle(Event::Pod(rejected(name)), LATER);
        decide(&mut core, LATER);
    }
    ["m", "o"].iter().for_each(|name| core.handle(Event::Pod(member(name)), LATER));
    let waits =
        ": kubelets have rejected 3 pods of ReplicaSet r (SMTAlignmentError): the next one waits for 60 s";
    assert_eq!(decide(&mut core, LATER), [format!("m{waits}"), format!("o{waits}")]);
    let now = LATER + FIRST_WAIT_MS;
    assert_eq!(decide(&mut core, now), ["m -> n", "o -> n", "g: Scheduled"]);
    core.handle(Event::Pod(waiting("d")), now);
    assert_eq!(decide(&mut core, now), [format!("d{waits}")]);
}

/// Of pods that are placed at once, those that are rejected make one wait, and one of those that follow ends it.
#[test]
fn a_burst_of_rejections_is_one_wait() {
    let mut core = core(&["n"]);
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    names.iter().for_each(|name| core.handle(Event::Pod(waiting(name)), LATER));
    assert_eq!(decide(&mut core, LATER).len(), names.len());
    for name in &names[..5] {
        core.handle(Event::Pod(rejected(name)), LATER);
    }
    assert_eq!(decide(&mut core, LATER).last().unwrap(), "e rejected, 5");
    core.handle(Event::Pod(rejected("f")), LATER + 30_000);
    core.handle(Event::Pod(waiting("h")), LATER + 30_000);
    let told = decide(&mut core, LATER + 30_000);
    assert!(told.last().unwrap().ends_with("the next one waits for 30 s"), "{told:?}");
    let now = LATER + FIRST_WAIT_MS;
    assert_eq!(decide(&mut core, now), ["h -> n"]);
    core.handle(Event::Pod(rejected("h")), now);
    core.handle(Event::Pod(waiting("i")), now);
    let told = decide(&mut core, now);
    assert!(told.last().unwrap().ends_with("the next one waits for 120 s"), "{told:?}");
}

/// A process that does not lead keeps a bounded number.
#[test]
fn rejections_that_are_not_noted_are_bounded() {
    let mut core = core(&["n"]);
    for at in 0..1_100 {
        let view = PodView { uid: format!("u{at}").into(), created_s: LATER / 1_000, ..rejected("a") };
        core.handle(Event::Pod(view), LATER);
    }
    assert_eq!(decide(&mut core, LATER).len(), 1_024);
}

/// After the wait one pod shows whether the nodes have become better, before the others follow.
#[test]
fn one_pod_is_placed_after_the_wait_and_tells_for_all() {
    for admitted in [true, false] {
        let mut core = core(&["n"]);
        for name in ["a", "b", "c"] {
            core.handle(Event::Pod(waiting(name)), LATER);
            decide(&mut core, LATER);
            core.handle(Event::Pod(rejected(name)), LATER);
            decide(&mut core, LATER);
        }
        ["d", "e", "f"].iter().for_each(|name| core.handle(Event::Pod(waiting(name)), LATER));
        assert_eq!(decide(&mut core, LATER).len(), 3, "all wait");
        let mut now = LATER + FIRST_WAIT_MS;
        let decisions = decide(&mut core, now);
        let waits = ": kubelets have rejected 3 pods of ReplicaSet r (SMTAlignmentError): the next one waits for 60 s";
        assert_eq!(decisions, ["d -> n".to_owned(), format!("e{waits}"), format!("f{waits}")]);
        let mut runs = owned();
        merge(&mut runs, running("n"));
        match admitted {
            true => core.handle(Event::Pod(pod("d", 2, runs)), now),
            false => core.handle(Event::Pod(rejected("d")), now),
        }
        decide(&mut core, now);
        now += FIRST_WAIT_MS;
        let decisions = decide(&mut core, now);
        let placed = decisions.iter().filter(|told| told.contains("->")).count();
        assert_eq!(placed, if admitted { 2 } else { 0 }, "{decisions:?}");
    }
}
