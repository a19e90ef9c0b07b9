//! Stories of pods on hollow nodes, without a cluster.

use std::fmt::Write as _;

use api::nrt::NodeResourceTopology;
use exporter::object::WriteContext;
use k8s_openapi::api::core::v1::Pod;
use runtime::watch::Key as WatchKey;
use serde_json::json;

use super::*;
use crate::node_group::{NodeGroup, plan};

/// Two nodes `n-0` and `n-1` with 2 zones of 4 CPUs, of which one is reserved, and a lag of 2 seconds.
fn fleet(times: Times) -> Fleet {
    fleet_with("single-numa-node", times)
}

fn fleet_with(policy: &str, times: Times) -> Fleet {
    let group = NodeGroup {
        policy: policy.to_owned(),
        name_prefix: "n".to_owned(),
        count: 2,
        machine: "2x4+gpu1".to_owned(),
        max_pods: 5,
        ..NodeGroup::default()
    };
    Fleet::new(&plan(vec![group]).unwrap(), times, Metrics::default())
}

const LAG: Times = Times { lag: Duration::from_secs(2), run_time: None };

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A Guaranteed pod of one container on `n-0`.
fn pod(name: &str, cpus: u32) -> PodView {
    pod_on("n-0", name, json!({ "cpu": cpus.to_string(), "memory": "64Mi" }))
}

fn pod_on(node: &str, name: &str, amounts: Value) -> PodView {
    let pod = json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": format!("uid-{name}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": { "nodeName": node, "restartPolicy": "Always", "containers": [
            { "name": "main", "image": "app", "resources": { "requests": amounts, "limits": amounts } },
        ] },
    });
    PodView::of(&serde_json::from_value::<Pod>(pod).unwrap()).unwrap()
}

fn deleted(mut pod: PodView) -> PodView {
    pod.is_deleted = true;
    pod
}

fn key(pod: &PodView) -> WatchKey {
    WatchKey { namespace: "ns".into(), name: pod.name.name.clone(), uid: (&*pod.uid).into() }
}

/// `a Running, b Failed OutOfpods, a Succeeded and deleted, report 0: 3000 4000`.
fn show(fleet: &Fleet, writes: &[Write]) -> String {
    let status = |patch: &Value| {
        let text = |field: &str| patch["status"][field].as_str().unwrap_or_default().to_owned();
        format!("{} {}", text("phase"), text("reason")).trim().to_owned()
    };
    let one = |write: &Write| match write {
        Write::Status { name, patch, .. } => format!("{} {}", name.name, status(patch)),
        Write::Delete { name, patch: Some(patch), .. } => {
            format!("{} {} and deleted", name.name, status(patch))
        }
        Write::Delete { name, patch: None, .. } => format!("{} deleted", name.name),
        Write::Report { node } => {
            let object = fleet.report(*node).unwrap().object(&WriteContext::new("n", "reactive"));
            let free = free_cpus(&object).iter().fold(String::new(), |mut text, cpus| {
                let _ = write!(text, " {cpus}");
                text
            });
            format!("report {node}:{free}")
        }
    };
    writes.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Free CPUs by zone, as a reader of the object understands it.
fn free_cpus(object: &NodeResourceTopology) -> Vec<i64> {
    let (topology, warnings) = api::convert::node_topology(object).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    assert!(topology.kubelet.is_some(), "ids are published");
    let cpu = topology::resource::ResourceName::CPU;
    topology.zones.iter().map(|zone| topology.available().amount(zone.id, cpu) / 1000).collect()
}

fn take(fleet: &mut Fleet, event: Event<PodView>, now: Timestamp) -> String {
    let writes = fleet.take(event, now);
    show(fleet, &writes)
}

fn due(fleet: &mut Fleet, now: Timestamp) -> String {
    let writes = fleet.due(now);
    show(fleet, &writes)
}

fn synced(fleet: &mut Fleet, pods: Vec<PodView>) -> String {
    let first = take(fleet, Event::Reset { objects: pods, vanished: vec![], served: true }, at(0));
    [first, due(fleet, at(2))].join(" | ")
}

#[test]
fn pods_run_or_fail_as_the_kubelet_says_and_reports_follow_after_the_lag() {
    let mut fleet = fleet(LAG);
    assert_eq!(synced(&mut fleet, vec![]), " | report 0: 3 4, report 1: 3 4");
    let gpus = json!({ "cpu": "1", "memory": "64Mi", "example.com/gpu": "3" });
    for (second, event, expected) in [
        (10, Event::Applied(pod("a", 3)), "a Running"),
        (10, Event::Applied(pod("a", 3)), ""),
        (11, Event::Applied(pod("b", 3)), "b Running"),
        (11, Event::Applied(pod("c", 2)), "c Failed TopologyAffinityError"),
        (11, Event::Applied(pod_on("n-9", "d", json!({}))), ""),
        (11, Event::Applied(pod_on("n-1", "e", gpus)), "e Failed TopologyAffinityError"),
        (13, Event::Applied(deleted(pod("a", 3))), "report 0: 0 1 | a Succeeded and deleted"),
        (13, Event::Applied(deleted(pod("a", 3))), ""),
        (13, Event::Applied(deleted(pod("c", 2))), "c deleted"),
        (14, Event::Deleted(deleted(pod("a", 3))), ""),
        (14, Event::Deleted(pod("b", 3)), ""),
        (16, Event::Applied(pod("f", 4)), "report 0: 3 4 | f Running"),
    ] {
        let due = due(&mut fleet, at(second));
        let writes = take(&mut fleet, event.clone(), at(second));
        let text = [due, writes].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" | ");
        assert_eq!(text, expected, "{second} s: {event:?}");
    }
    assert_eq!(fleet.next_due(), Some(at(18)));
    assert_eq!(due(&mut fleet, at(18)), "report 0: 3 0");
    assert_eq!(fleet.next_due(), None);
}

#[test]
fn the_node_as_a_whole_can_be_too_small() {
    let mut fleet = fleet(LAG);
    synced(&mut fleet, vec![]);
    let small = || json!({ "cpu": "100m", "memory": "64Mi" });
    for at_pod in 0..5 {
        let writes = take(&mut fleet, Event::Applied(pod_on("n-0", &format!("p{at_pod}"), small())), at(5));
        assert_eq!(writes, format!("p{at_pod} Running"));
    }
    let writes = take(&mut fleet, Event::Applied(pod_on("n-0", "sixth", small())), at(5));
    assert_eq!(writes, "sixth Failed OutOfpods");
    let huge = json!({ "cpu": "7500m" });
    let writes = take(&mut fleet, Event::Applied(pod_on("n-1", "huge", huge)), at(5));
    assert_eq!(writes, "huge Failed OutOfcpu");
}

#[test]
fn a_manager_can_have_too_little() {
    let mut fleet = fleet_with("none", LAG);
    synced(&mut fleet, vec![]);
    let gpus = json!({ "cpu": "1", "memory": "64Mi", "example.com/gpu": "3" });
    let writes = take(&mut fleet, Event::Applied(pod_on("n-0", "greedy", gpus)), at(5));
    assert_eq!(writes, "greedy Failed UnexpectedAdmissionError");
    assert_eq!(fleet.next_due(), None, "nothing has changed");
}

#[test]
fn jobs_end_after_their_time() {
    let mut fleet = fleet(Times { run_time: Some(Duration::from_secs(30)), ..LAG });
    synced(&mut fleet, vec![]);
    let job = |name, time| PodView { restarts: false, run_time: time, ..pod(name, 1) };
    let writes = take(&mut fleet, Event::Applied(job("usual", None)), at(10));
    assert_eq!(writes, "usual Running");
    fleet.take(Event::Applied(job("own", Some(Duration::from_secs(5)))), at(10));
    fleet.take(Event::Applied(job("gone", None)), at(10));
    fleet.take(Event::Applied(pod("service", 1)), at(10));
    assert_eq!(due(&mut fleet, at(15)), "own Succeeded, report 0: 1 3");
    assert_eq!(
        take(&mut fleet, Event::Applied(deleted(job("gone", None))), at(20)),
        "gone Succeeded and deleted"
    );
    assert_eq!(due(&mut fleet, at(39)), "report 0: 2 3");
    assert_eq!(due(&mut fleet, at(40)), "usual Succeeded");
    assert_eq!(due(&mut fleet, at(100)), "report 0: 3 3");
    assert_eq!(fleet.next_due(), None);
}

/// The pod as the API server has it after a write.
fn stored(mut pod: PodView, writes: &[Write]) -> PodView {
    let patch = writes.iter().find_map(|write| match write {
        Write::Status { uid, patch, .. } if *uid == pod.uid => Some(patch),
        _ => None,
    });
    let patch = patch.unwrap();
    pod.phase = Phase::Running;
    pod.started = Some(at(10));
    pod.held = patch["metadata"]["annotations"][checkpoint::KEY].as_str().map(str::to_owned);
    pod
}

#[test]
fn a_restart_takes_pods_over_with_what_they_hold() {
    let mut before = fleet(LAG);
    synced(&mut before, vec![]);
    let first = pod("first", 2);
    before.take(Event::Applied(first.clone()), at(10));
    let second = before.take(Event::Applied(pod("second", 1)), at(10));
    let third = before.take(Event::Applied(pod("third", 4)), at(10));
    before.take(Event::Deleted(first), at(11));
    let told = before.report(0).unwrap();

    let mut after = fleet(LAG);
    // Without what it holds, the second would get the first CPU of its zone, not the third.
    let pods = [stored(pod("third", 4), &third), stored(pod("second", 1), &second), pod("new", 3)];
    assert_eq!(synced(&mut after, pods[..2].to_vec()), " | report 0: 2 0, report 1: 3 4");
    let content = after.report(0).unwrap();
    assert_eq!(content.attributes, told.attributes);
    assert_eq!(content.zones, told.zones);
    assert_eq!(take(&mut after, Event::Applied(pods[2].clone()), at(21)), "new Failed TopologyAffinityError");
}

#[test]
fn a_restart_ends_what_was_left_undone() {
    let mut fleet = fleet(LAG);
    let ended = PodView { phase: Phase::Ended, started: Some(at(1)), ..pod("ended", 1) };
    let leaving = deleted(PodView { phase: Phase::Running, started: Some(at(1)), ..pod("leaving", 1) });
    let over = deleted(PodView { phase: Phase::Ended, started: Some(at(1)), ..pod("over", 1) });
    let nonsense = PodView {
        phase: Phase::Running,
        started: Some(at(1)),
        held: Some("?".to_owned()),
        ..pod("running", 2)
    };
    let late = PodView { created: at(9_999_999_999), ..pod("late", 3) };
    assert_eq!(
        synced(&mut fleet, vec![late, ended, leaving, over, nonsense]),
        "leaving Succeeded and deleted, over deleted, late Running | report 0: 1 1, report 1: 3 4"
    );
}

#[test]
fn a_new_list_is_compared_with_what_was_known() {
    let mut fleet = fleet(LAG);
    synced(&mut fleet, vec![pod("stays", 3), pod("goes", 4)]);
    let gone = key(&pod("goes", 4));
    let objects = vec![pod("stays", 3), pod("comes", 4)];
    let writes = take(&mut fleet, Event::Reset { objects, vanished: vec![gone], served: true }, at(5));
    assert_eq!(writes, "comes Running");
    assert_eq!(due(&mut fleet, at(7)), "report 0: 0 0");
}

/// Whatever the order of events, what is published after the last one is what the pods that are left hold.
#[test]
fn nothing_is_lost_or_counted_twice() {
    let mut random = 1_u64;
    let mut next = move |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for _ in 0..200 {
        let mut fleet = fleet(LAG);
        synced(&mut fleet, vec![]);
        let mut running = BTreeMap::new();
        for step in 0..30 {
            let (name, cpus) = (format!("p{}", next(6)), 1 + u32::try_from(next(4)).unwrap());
            let name = format!("{name}-{}", running.get(&name).map_or(step, |(at, _)| *at));
            let (short, now) = (name.split('-').next().unwrap().to_owned(), at(10 + step));
            match running.get(&short) {
                None => {
                    if take(&mut fleet, Event::Applied(pod(&name, cpus)), now).ends_with("Running") {
                        running.insert(short, (step, cpus));
                    }
                }
                Some((_, cpus)) => {
                    let pod = pod(&name, *cpus);
                    match next(3) {
                        0 => drop(fleet.take(Event::Deleted(pod), now)),
                        1 => drop(fleet.take(Event::Applied(deleted(pod)), now)),
                        _ => {
                            fleet.take(Event::Applied(PodView { phase: Phase::Ended, ..pod }), now);
                        }
                    }
                    running.remove(&short);
                }
            }
        }
        let held: u32 = running.values().map(|(_, cpus)| cpus).sum();
        let content = fleet.report(0).unwrap();
        let free: i64 = free_cpus(&content.object(&WriteContext::new("n", "reactive"))).iter().sum();
        assert_eq!(free, 7 - i64::from(held));
        assert_eq!(fleet.running, running.len());
    }
}
