//! Default spread constraints: those of kube-scheduler, and required ones of a profile's list.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::*;
use crate::default_selector::SelectingKind;
use crate::plugins::pod_topology_spread;

/// A core without zones, with nodes `a1` and `a2` in zone `a`, and `b1` in zone `b`.
fn zones(spread: pod_topology_spread::Args, seed: u64) -> Core {
    let plugins = Arc::new(Plugins { deallocates: false, spread, ..Plugins::default() });
    let profile = Profile { name: "numa".into(), numa: None, plugins, percentage: 0 };
    let mut core = Core::new(Settings { profiles: vec![profile], seed, ..settings() });
    for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        let object = json!({
            "metadata": {
                "name": name, "uid": name,
                "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone},
            },
            "status": {"allocatable": {"cpu": "16", "memory": "32Gi", "pods": "20"}},
        });
        core.handle(
            Event::Node(NodeView::read(&serde_json::from_value::<wire::Node>(object).unwrap())),
            LATER,
        );
    }
    core
}

/// One constraint that is required.
fn one_each() -> pod_topology_spread::Args {
    let constraint = json!({
        "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
    });
    pod_topology_spread::Args::list(&[serde_json::from_value(constraint).unwrap()])
}

/// An object that selects pods by the label `app`.
fn selecting(kind: SelectingKind, name: &str, app: &str) -> Event {
    let key = SelectingKey { kind, namespace: "ns".into(), name: name.into() };
    let match_labels = Some([("app".to_owned(), app.to_owned())].into());
    Event::Selecting(SelectingView::new(key, Some(LabelSelector { match_labels, match_expressions: None })))
}

fn labelled(name: &str, more: Value) -> PodView {
    let mut all = json!({"metadata": {"labels": {"app": "web"}}});
    merge(&mut all, more);
    pod(name, 1, all)
}

/// A pod of a ReplicaSet.
fn owned(name: &str, set: &str, more: Value) -> PodView {
    let owner =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": set, "controller": true}]);
    let mut all = json!({"metadata": {"ownerReferences": owner}});
    merge(&mut all, more);
    labelled(name, all)
}

#[test]
fn pods_of_a_service_or_controller_spread() {
    for (event, owner, spreads) in [
        (selecting(SelectingKind::Service, "web", "web"), None, true),
        (selecting(SelectingKind::Service, "db", "db"), None, false),
        (selecting(SelectingKind::ReplicaSet, "web", "web"), None, false),
        (selecting(SelectingKind::ReplicaSet, "web", "web"), Some("web"), true),
        (selecting(SelectingKind::ReplicaSet, "web", "web"), Some("other"), false),
        (selecting(SelectingKind::StatefulSet, "web", "web"), Some("web"), false),
    ] {
        let what = format!("{event:?} {owner:?}");
        let event = || match &event {
            Event::Selecting(view) => Event::Selecting(view.clone()),
            other => panic!("{other:?}"),
        };
        let places = |seed| {
            let mut core = zones(pod_topology_spread::Args::default(), seed);
            core.handle(event(), LATER);
            core.handle(Event::Pod(labelled("x", running("a1"))), LATER);
            // Room is the same everywhere.
            core.handle(Event::Pod(pod("y", 1, running("a2"))), LATER);
            core.handle(Event::Pod(pod("z", 1, running("b1"))), LATER);
            let pod = owner.map_or_else(|| labelled("p", json!({})), |set| owned("p", set, json!({})));
            core.handle(Event::Pod(pod), LATER);
            decide(&mut core, LATER).remove(0)
        };
        let places: BTreeSet<String> = (0..16).map(places).collect();
        let on_b = BTreeSet::from(["p -> b1".to_owned()]);
        assert_eq!(places == on_b, spreads, "{what}: {places:?}");
    }
}

#[test]
fn a_list_of_required_constraints_refuses_and_wakes() {
    let mut core = zones(one_each(), 1);
    let web = || selecting(SelectingKind::Service, "web", "web");
    core.handle(web(), LATER);
    core.handle(Event::Pod(pod("full", 16, running("b1"))), LATER);
    core.handle(Event::Pod(labelled("x", running("a1"))), LATER);
    for name in ["p", "q"] {
        core.handle(Event::Pod(labelled(name, json!({}))), LATER);
    }
    core.handle(Event::Pod(pod("plain", 1, json!({}))), LATER);
    let refused = |name: &str| {
        let spread = "node(s) didn't match pod topology spread constraints";
        format!("{name}: 0/3 nodes are available: 1 Insufficient cpu, 2 {spread}.")
    };
    let decisions = decide(&mut core, LATER);
    assert_eq!(decisions[..2], ["p", "q"].map(refused));
    assert!(decisions[2].starts_with("plain -> a"), "{decisions:?}");
    // Neither an event about the pod itself, nor one about something else.
    core.handle(Event::Pod(labelled("p", json!({}))), LATER);
    core.handle(web(), LATER);
    core.handle(selecting(SelectingKind::Service, "db", "db"), LATER);
    assert_eq!(decide(&mut core, LATER), [""; 0]);
    // A pod that its domain counted ends.
    core.handle(Event::Pod(labelled("x", ended("a1"))), LATER);
    let decisions = decide(&mut core, LATER);
    assert!(decisions[0].starts_with("p -> a"), "{decisions:?}");
    assert_eq!(decisions[1..], [refused("q")]);
    // Nothing selects the other any more.
    let key = SelectingKey { kind: SelectingKind::Service, namespace: "ns".into(), name: "web".into() };
    core.handle(Event::SelectingGone(key), LATER);
    let decisions = decide(&mut core, LATER);
    assert!(decisions[0].starts_with("q -> a"), "{decisions:?}");
}

#[test]
fn stated_constraints_are_the_only_ones() {
    let mut core = zones(one_each(), 1);
    core.handle(selecting(SelectingKind::Service, "web", "web"), LATER);
    core.handle(Event::Pod(pod("full", 16, running("b1"))), LATER);
    core.handle(Event::Pod(labelled("x", running("a1"))), LATER);
    let stated = json!([{
        "maxSkew": 9, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }]);
    core.handle(Event::Pod(labelled("p", json!({"spec": {"topologySpreadConstraints": stated}}))), LATER);
    let decisions = decide(&mut core, LATER);
    assert!(decisions[0].starts_with("p -> a"), "{decisions:?}");
}
