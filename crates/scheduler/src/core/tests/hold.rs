//! A node is held for a pod that waits long: bounded in time for that pod, and for those kept off the node.

use super::*;

/// The time in seconds at which a stream of pods of 4 CPUs lets a pod of 8 through; `None`: not while 360 of them end.
/// A pod of the stream ends every so many seconds, and the next one is there already.
fn let_through(core: &mut Core, every_s: u64) -> Option<u64> {
    core.handle(
        Event::Pod(pod("big", 8, json!({"spec": {"priority": 10, "preemptionPolicy": "Never"}}))),
        LATER,
    );
    for at in 0..360 {
        let now = LATER + at * every_s * 1_000;
        core.handle(
            Event::Pod(pod(
                &format!("s{}", at + 4),
                4,
                json!({"spec": {"priority": 10, "preemptionPolicy": "Never"}}),
            )),
            now,
        );
        let name = format!("s{at}");
        core.handle(Event::Pod(pod(&name, 4, running("n"))), now);
        core.handle(Event::PodGone(pod(&name, 4, ended("n"))), now);
        for second in (0..every_s).step_by(every_s.div_ceil(75).max(10) as usize) {
            if decide(core, now + second * 1_000).contains(&"big -> n".to_owned()) {
                return Some(at * every_s + second);
            }
        }
    }
    None
}

/// Pods that run for 40 seconds, and for five hours: the second of two ends comes 75 minutes after the first.
#[test]
fn a_stream_of_small_pods_lets_a_large_one_through() {
    for (every_s, within_s) in [(10, 120), (75 * 60, 20 * 3_600)] {
        let mut core = core(&["n"]);
        for at in 0..4 {
            core.handle(Event::Pod(pod(&format!("s{at}"), 4, json!({}))), LATER);
        }
        assert_eq!(decide(&mut core, LATER).len(), 4);
        let waited = let_through(&mut core, every_s).expect("a large pod waits for ever");
        assert!(waited <= within_s, "{waited} s");
    }
}

/// A more important pod does not wait for the end of another's hold, but only once. Then they have turns.
#[test]
fn a_hold_gives_way_to_a_more_important_pod() {
    let mut core = core(&["n"]);
    for at in 0..3 {
        core.handle(Event::Pod(pod(&format!("s{at}"), 4, json!({}))), LATER);
    }
    let of = |core: &Core| core.held().map(|(_, view)| view.name.to_string());
    let large = |name: &str, cpus: i64, priority: i32| {
        pod(name, cpus, json!({"spec": {"priority": priority, "preemptionPolicy": "Never"}}))
    };
    decide(&mut core, LATER);
    core.handle(Event::Pod(large("big", 8, 0)), LATER);
    let mut turns: Vec<(u64, String)> = Vec::new();
    for second in (0..700).step_by(5) {
        if second == 30 {
            core.handle(Event::Pod(large("urgent", 7, 1)), LATER + 30_000);
        }
        decide(&mut core, LATER + second * 1_000);
        if let Some(name) = of(&core).filter(|name| turns.last().is_none_or(|(_, last)| last != name)) {
            turns.push((second, name));
        }
    }
    let names: Vec<&str> = turns.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["big", "urgent", "big"], "{turns:?}");
    assert_eq!(turns[1].0, 90, "a minute after it came: {turns:?}");
}

/// Of a pod that nothing makes room for, others see a node that is closed at most half of the time.
#[test]
fn a_hold_in_vain_ends_and_leaves_the_important_alone() {
    let mut core = core(&["n"]);
    for at in 0..3 {
        core.handle(Event::Pod(pod(&format!("s{at}"), 4, json!({}))), LATER);
    }
    assert_eq!(decide(&mut core, LATER).len(), 3);
    core.handle(Event::Pod(pod("big", 8, json!({}))), LATER);
    decide(&mut core, LATER);
    let (mut closed, mut longest, mut run) = (0, 0, 0);
    for second in 0..7_620_u64 {
        let now = LATER + second * 1_000;
        let name = format!("p{second}");
        core.handle(Event::Pod(pod(&name, 1, json!({}))), now);
        let refused =
            decide(&mut core, now).iter().any(|text| text.contains("1 node(s) were held for a pod"));
        run = if refused { run + 1 } else { 0 };
        (closed, longest) = (closed + u64::from(refused), longest.max(run));
        if refused {
            let urgent = pod("urgent", 1, json!({"spec": {"priority": 1}}));
            core.handle(Event::Pod(urgent.clone()), now);
            assert_eq!(decide(&mut core, now), ["urgent -> n"]);
            core.handle(Event::BindFailed(core.ids["uid-urgent"]), now);
            core.handle(Event::PodGone(urgent), now);
        } else if let Some(id) = core.ids.get(format!("uid-{name}").as_str()).copied() {
            core.handle(Event::BindFailed(id), now);
        }
        core.handle(Event::PodGone(pod(&name, 1, json!({}))), now);
        decide(&mut core, now + VANISHED_MS.min(999));
    }
    assert!((60..=3_600).contains(&longest) && closed >= 60, "{longest} s, {closed} s in all");
    assert!(closed * 2 <= 7_620, "closed for {closed} s until the end of the last rest");
}

/// What a DaemonSet keeps there leaves no room for a pod that needs the whole node.
#[test]
fn no_node_is_held_for_a_pod_that_could_never_fit() {
    let owner = |kind: &str| {
        let owner = json!([{"apiVersion": "v1", "kind": kind, "name": "o", "uid": "o", "controller": true}]);
        json!({"metadata": {"ownerReferences": owner}, "spec": {"nodeName": "n"}})
    };
    for (kind, held) in [("DaemonSet", false), ("Node", false), ("ReplicaSet", true)] {
        let mut core = core(&["n"]);
        core.handle(Event::Pod(pod("there", 1, owner(kind))), LATER);
        let blind = json!({"spec": {"schedulerName": "blind"}});
        core.handle(Event::Pod(pod("whole", 16, blind)), LATER);
        decide(&mut core, LATER);
        decide(&mut core, LATER + 60_000);
        assert_eq!(core.held().is_some(), held, "{kind}");
        assert!(core.due().is_some_and(|due| due > LATER + 60_000));
    }
}

#[test]
fn without_the_setting_no_node_is_held() {
    let mut core = Core::new(Settings { hold_after_ms: None, ..settings() });
    core.handle(Event::Node(node("n")), LATER);
    core.handle(Event::Report("n".into(), report([8, 8], &[])), LATER);
    for at in 0..4 {
        core.handle(Event::Pod(pod(&format!("s{at}"), 4, json!({}))), LATER);
    }
    decide(&mut core, LATER);
    assert_eq!(let_through(&mut core, 10), None);
}
