//! What a gang that was tried in vain leaves behind, and who is tried next.

use super::*;

fn placements(core: &mut Core, now: u64) -> Vec<String> {
    let placed = |decision| match decision {
        Decision::Bind(binding) => Some(format!("{} -> {}", binding.pod.name, binding.node)),
        _ => None,
    };
    std::iter::from_fn(|| core.next(now)).filter_map(placed).collect()
}

/// Of equal pods one waits for all. It may end on no node, as by the hand of another program.
#[test]
fn the_pod_that_waits_for_its_gang_may_end() {
    let mut core = core(&["n"]);
    for line in ["on n x 8", "on n y 8", "group g 2", "pod a 8 g", "pod b 8 g", "pod c 8 g"] {
        core.handle(event(line), LATER);
    }
    assert_eq!(placements(&mut core, LATER), [""; 0]);
    core.handle(Event::Pod(member("a", "g", 8, json!({"status": {"phase": "Failed"}}))), LATER);
    core.handle(Event::Node(node("m")), LATER);
    core.handle(Event::Report("m".into(), report([8, 8], &[])), LATER);
    assert_eq!(placements(&mut core, LATER), ["b -> m", "c -> m"]);
    recount(&core);
}

/// A further pod of a gang has a node nominated. The gang loses another one, and is tried in vain as a whole: the room
/// that was kept is for others then.
#[test]
fn a_nomination_that_ends_with_a_vain_attempt_wakes_others() {
    let mut core = core(&["n"]);
    let victim = json!({"spec": {"nodeName": "n", "priority": 0}, "status": running("n")["status"]});
    core.handle(Event::Pod(pod("victim", 8, victim)), LATER);
    for line in ["group g 2", "pod a 2 g", "pod b 2 g"] {
        core.handle(event(line), LATER);
    }
    assert_eq!(placements(&mut core, LATER), ["a -> n", "b -> n"]);
    for name in ["a", "b"] {
        core.handle(Event::Pod(member(name, "g", 2, running("n"))), LATER);
    }
    core.handle(Event::Pod(member("further", "g", 8, json!({"spec": {"priority": 5}}))), LATER);
    assert_eq!(placements(&mut core, LATER), [""; 0]);
    assert!(!core.nominations.is_empty(), "the victim has to leave");
    core.handle(Event::Pod(pod("other", 4, json!({"spec": {"priority": 1}}))), LATER + 1_000);
    assert_eq!(placements(&mut core, LATER + 1_000), [""; 0], "the room is kept");
    core.handle(Event::PodGone(member("a", "g", 2, ended("n"))), LATER + 1_000);
    let retried = LATER + crate::config::MAX_WAIT_MS;
    assert_eq!(placements(&mut core, retried), ["other -> n"]);
    recount(&core);
}
