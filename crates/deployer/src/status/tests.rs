use serde_json::json;

use super::print::text;
use super::*;
use crate::validate::tests::fixture::{ClusterFixture, pod};

type Change = fn(&mut ClusterFixture);

fn status(change: Change) -> Status {
    let mut world = ClusterFixture::healthy();
    change(&mut world);
    Status::of(&world.evidence(), None)
}

#[test]
fn a_line_for_each_part() {
    assert_eq!(
        text(&status(|_| {})),
        "Exporters     2 of 2 ready, DaemonSet tholepin/tholepin-exporter\n\
         Reports       2 of 2 fresh\n\
         Zones         4 on 2 nodes; cpu 56 of 60 free, at most 16 in one zone (node-1 zone 1); example.com/gpu 8 of 8 free, \
         at most 2 in one zone (node-0 zone 0)\n\
         Schedulers    1 of 1 ready, Deployment tholepin/tholepin-scheduler, schedulerName: topo-aware-scheduler, \
         leader: tholepin-scheduler-x_1\n\
         Lost pods     none in 24 h\n\
         Waiting pods  none\n\nready; next: tholepin test\n"
    );
}

#[test]
fn what_is_wrong_is_told_with_the_next_command() {
    // a change -> a part of the text, the state, the next command
    let table: [(Change, &str, State, &str); 8] = [
        (
            |world| world.get("DaemonSet tholepin-exporter")["status"]["numberReady"] = 1.into(),
            "Exporters     1 of 2 ready",
            State::NotReady,
            "tholepin validate",
        ),
        (
            |world| world.attribute("node-1", api::keys::ATTRIBUTE_FINGERPRINT, "pfp0v0010000000000000000"),
            "Reports       1 of 2 fresh, stale: node-1",
            State::NotReady,
            "tholepin validate",
        ),
        (
            |world| world.remove("Lease topo-aware-scheduler"),
            ", without a leader\n",
            State::NotReady,
            "tholepin validate",
        ),
        (
            |world| world.remove("Deployment tholepin-scheduler"),
            "Schedulers    none\n",
            State::NotReady,
            "tholepin deploy scheduler --wait",
        ),
        (
            |world| world.objects.retain(|key, _| key.starts_with("Node ")),
            "Exporters     none\nReports       none\nSchedulers    none\n",
            State::Absent,
            "tholepin deploy --wait",
        ),
        (
            |world| {
                let mut failed =
                    pod("default", "lost", Some("node-0"), "topo-aware-scheduler", "2", "Failed");
                failed["status"] = json!({ "phase": "Failed", "reason": "TopologyAffinityError",
                    "startTime": "2026-03-01T09:00:00Z" });
                world.add(failed);
            },
            "Lost pods     1 in 24 h: default/lost\n",
            State::Ready,
            "tholepin validate --only pod-rejected",
        ),
        (
            |world| {
                let mut failed =
                    pod("default", "lost", Some("node-0"), "topo-aware-scheduler", "2", "Failed");
                failed["status"] = json!({ "phase": "Failed", "reason": "TopologyAffinityError",
                    "startTime": "2026-02-28T09:00:00Z" });
                world.add(failed);
            },
            "Lost pods     none in 24 h\n",
            State::Ready,
            "tholepin test",
        ),
        (
            |world| {
                world.objects.retain(|key, _| key.starts_with("Node "));
                world.add(
                    json!({ "kind": "Deployment", "metadata": { "namespace": "numa", "name": "operator" },
                    "spec": { "replicas": 1, "template": { "spec": { "containers": [
                        { "name": "m", "image": "x/tholepin:1", "args": ["operator"] }] } } },
                    "status": { "readyReplicas": 1 } }),
                );
                world.add(
                    json!({ "kind": "Lease", "metadata": { "namespace": "numa", "name": OPERATOR_LEASE },
                    "spec": { "holderIdentity": "", "leaseDurationSeconds": 15 } }),
                );
            },
            "Controllers   1 of 1 ready, Deployment numa/operator, without a leader\n",
            State::NotReady,
            "kubectl describe numaresourcesoperators,numaresourcesschedulers",
        ),
    ];
    for (change, line, state, next) in table {
        let status = status(change);
        let text = text(&status);
        assert!(text.contains(line), "{line}: {text}");
        assert_eq!((status.state, status.next), (state, next), "{text}");
        assert!(text.ends_with(&format!("; next: {next}\n")), "{text}");
    }
}

#[test]
fn pods_of_one_namespace_are_counted() {
    let mut world = ClusterFixture::healthy();
    let event = |namespace: &str| {
        json!({ "kind": "Event", "metadata": { "namespace": namespace, "name": namespace },
            "reason": "TopologyAffinityError",
            "involvedObject": { "kind": "Pod", "namespace": namespace, "name": "gone", "uid": namespace } })
    };
    world.add(event("a"));
    world.add(event("b"));
    let evidence = world.evidence();
    let lost = |namespace| Status::of(&evidence, namespace).lost.len();
    assert_eq!([lost(None), lost(Some("a")), lost(Some("c"))], [2, 1, 0]);
}

#[test]
fn pods_wait_for_a_reason() {
    let mut world = ClusterFixture::healthy();
    for (name, scheduler, created) in [
        ("late", "topo-aware-scheduler", "2026-03-01T11:00:00Z"),
        ("early", "topo-aware-scheduler", "2026-03-01T10:00:00Z"),
        ("other", "default-scheduler", "2026-03-01T09:00:00Z"),
    ] {
        let mut waits = pod("team-a", name, None, scheduler, "40", "Pending");
        waits["metadata"]["creationTimestamp"] = created.into();
        waits["status"]["conditions"] = json!([{ "type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": format!("no room for {name}") }]);
        world.add(waits);
    }
    let evidence = world.evidence();
    let said = text(&Status::of(&evidence, Some("team-a")));
    let wanted = "Waiting pods  2: team-a/early, team-a/late\n\
        \x20             team-a/early: no room for early\n\
        \x20             team-a/late: no room for late\n";
    assert!(said.contains(wanted), "{said}");
    assert!(text(&Status::of(&evidence, Some("team-b"))).contains("Waiting pods  none\n"));
}

#[test]
fn a_missing_right_is_told() {
    let mut evidence = ClusterFixture::healthy().evidence();
    evidence.gaps.insert(Area::Leases, "not allowed to list leases".to_owned());
    let status = Status::of(&evidence, None);
    assert_eq!((status.state, status.next), (State::Unknown, "tholepin validate"));
    assert!(text(&status).contains("Not known     not allowed to list leases\n"));
}
