//! Constraints that look at other nodes and their pods: PodTopologySpread, InterPodAffinity.

use super::anti_affinity::racks;
use super::*;

const NO_SPREAD: &str = "node(s) didn't match pod topology spread constraints";
const NO_AFFINITY: &str = "node(s) didn't match pod affinity rules";
const NO_ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";

fn app(name: &str) -> Value {
    json!({"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": "rack"})
}

/// A pod of the application `web` that is placed by one more rule.
fn web(name: &str, cpus: i64, rule: &Value) -> PodView {
    let mut more = json!({"metadata": {"labels": {"app": "web"}}});
    merge(&mut more, json!({"spec": rule}));
    pod(name, cpus, more)
}

fn spread(more: &Value) -> Value {
    let mut constraint = app("web");
    merge(&mut constraint, json!({"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}));
    for (field, value) in more.as_object().unwrap() {
        constraint[field] = value.clone();
    }
    json!({"topologySpreadConstraints": [constraint]})
}

fn required(kind: &str, term: &Value) -> Value {
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

fn preferred(kind: &str, term: &Value) -> Value {
    let wish = json!({"weight": 1, "podAffinityTerm": term});
    json!({"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}})
}

/// A pod of another scheduler.
fn other(name: &str, app: &str, node: &str) -> PodView {
    let mut more = running(node);
    merge(&mut more, json!({"metadata": {"labels": {"app": app}}, "spec": {"schedulerName": "other"}}));
    pod(name, 1, more)
}

/// The racks of the decisions, and refusals as they are.
fn racks_of(decisions: &[String]) -> Vec<String> {
    let rack = |decision: &String| match decision.split_once(" -> ") {
        Some((pod, node)) => format!("{pod} {}", &node[..1]),
        None => decision.clone(),
    };
    decisions.iter().map(rack).collect()
}

#[test]
fn pods_spread_over_racks() {
    let mut core = racks();
    core.handle(Event::Pod(other("x", "web", "a1")), LATER);
    core.handle(Event::Pod(other("y", "db", "b1")), LATER);
    for at in 1..=4 {
        core.handle(Event::Pod(web(&format!("p{at}"), 1, &spread(&json!({})))), LATER);
    }
    let placed = racks_of(&decide(&mut core, LATER));
    assert_eq!(placed[0], "p1 b");
    let in_rack = |rack| placed.iter().filter(|place| place.ends_with(rack)).count();
    // With the pod that was there three or two in rack a.
    assert!(matches!((in_rack(" a"), in_rack(" b")), (1, 3) | (2, 2)), "{placed:?}");
}

#[test]
fn a_spread_pod_waits_until_the_skew_allows_it() {
    let mut core = racks();
    // Rack b is full.
    core.handle(Event::Pod(pod("full", 15, running("b1"))), LATER);
    core.handle(Event::Pod(other("x", "web", "a1")), LATER);
    core.handle(Event::Pod(web("p", 2, &spread(&json!({})))), LATER);
    let refused = format!("p: 0/3 nodes are available: 1 Insufficient cpu, 2 {NO_SPREAD}.");
    assert_eq!(decide(&mut core, LATER), [refused]);
    // Neither a pod that does not count, nor one that ends elsewhere.
    core.handle(Event::Pod(other("db", "db", "a2")), LATER);
    assert!(decide(&mut core, LATER).is_empty());
    core.handle(Event::PodGone(other("x", "web", "a1")), LATER);
    assert_eq!(racks_of(&decide(&mut core, LATER)), ["p a"]);
}

#[test]
fn constraints_count_as_kube_scheduler_does() {
    let db = json!({"labelSelector": {"matchLabels": {"app": "db"}}});
    // Rack a has two pods of web; the pod may go to rack b alone, or to both.
    for (more, both) in [
        (json!({}), false),
        (json!({"maxSkew": 3}), true),
        // The pod itself does not count.
        (db, true),
        // Rack b is no domain, so none has fewer than rack a. Rack b then has none as well.
        (json!({"nodeTaintsPolicy": "Honor"}), false),
        (json!({"minDomains": 3}), false),
        (json!({"labelSelector": {}}), true),
        (json!({"matchLabelKeys": ["app"]}), false),
    ] {
        for rack in ["a", "b"] {
            let mut core = racks();
            core.handle(Event::Pod(other("x", "web", "a1")), LATER);
            core.handle(Event::Pod(other("y", "web", "a2")), LATER);
            let mut rule = spread(&more);
            // Affinity that constraints do not look at keeps the pod in one rack.
            merge(&mut rule, json!({"nodeSelector": {"rack": rack}}));
            rule["topologySpreadConstraints"][0]["nodeAffinityPolicy"] = "Ignore".into();
            core.handle(Event::Pod(web("p", 1, &rule)), LATER);
            let decisions = racks_of(&decide(&mut core, LATER));
            let placed = decisions == [format!("p {rack}")];
            assert_eq!(placed, both || rack == "b", "{more} {rack} {decisions:?}");
        }
    }
}

/// An empty selector counts no pod on a node, but one that is nominated for it (kube-scheduler 1.36 `updateWithPod`).
#[test]
fn a_nominated_pod_counts_for_an_empty_selector() {
    for (selector, is_placed) in [(json!({}), false), (json!({"matchLabels": {"app": "db"}}), true)] {
        let mut core = racks();
        core.handle(Event::Pod(pod("full", 16, running("a2"))), LATER);
        core.handle(Event::Pod(pod("full too", 16, running("b1"))), LATER);
        let mut waits =
            json!({"metadata": {"labels": {"app": "web"}}, "status": {"nominatedNodeName": "a1"}});
        merge(&mut waits, json!({"spec": {"preemptionPolicy": "Never", "nodeSelector": {"never": "there"}}}));
        core.handle(Event::Pod(pod("waits", 1, waits)), LATER);
        core.handle(Event::Pod(web("p", 1, &spread(&json!({"labelSelector": selector})))), LATER);
        let decisions = decide(&mut core, LATER);
        assert_eq!(decisions.contains(&"p -> a1".to_owned()), is_placed, "{decisions:?}");
    }
}

#[test]
fn a_node_without_the_label_is_refused() {
    let mut core = racks();
    core.handle(Event::Pod(web("p", 1, &spread(&json!({"topologyKey": "row"})))), LATER);
    let refused = format!("p: 0/3 nodes are available: 3 {NO_SPREAD} (missing required label).");
    assert_eq!(decide(&mut core, LATER), [refused]);
    // The label comes.
    let labels = json!({"rack": "b", "row": "1"});
    let object = json!({
        "metadata": {"name": "b1", "uid": "b1", "labels": labels},
        "status": {"allocatable": {"cpu": "16", "memory": "32Gi", "pods": "20"}},
    });
    core.handle(Event::Node(NodeView::read(&serde_json::from_value::<wire::Node>(object).unwrap())), LATER);
    assert_eq!(decide(&mut core, LATER), ["p -> b1"]);
}

#[test]
fn pods_wait_for_the_pod_that_they_must_be_near() {
    let mut core = racks();
    for name in ["p", "q", "r"] {
        core.handle(Event::Pod(web(name, 1, &required("podAffinity", &app("db")))), LATER);
    }
    let refused = |name: &str| format!("{name}: 0/3 nodes are available: 3 {NO_AFFINITY}.");
    assert_eq!(decide(&mut core, LATER), ["p", "q", "r"].map(refused));
    core.handle(Event::Pod(other("x", "cache", "a1")), LATER);
    assert!(decide(&mut core, LATER).is_empty(), "no pod that they look for");
    core.handle(Event::Pod(other("db", "db", "b1")), LATER);
    assert_eq!(decide(&mut core, LATER), ["p -> b1", "q -> b1", "r -> b1"]);
}

#[test]
fn the_first_pod_of_those_that_want_each_other_is_placed() {
    let mut core = racks();
    for name in ["p", "q"] {
        core.handle(Event::Pod(web(name, 1, &required("podAffinity", &app("web")))), LATER);
    }
    let placed = racks_of(&decide(&mut core, LATER));
    assert_eq!(placed[0].replace('p', "q"), placed[1], "{placed:?}");
    // Not so for one that does not select itself.
    core.handle(Event::Pod(pod("s", 1, json!({"spec": required("podAffinity", &app("none"))}))), LATER);
    assert!(decide(&mut core, LATER)[0].contains(NO_AFFINITY));
}

#[test]
fn pods_keep_away_from_others_until_those_are_gone() {
    let mut core = racks();
    core.handle(Event::Pod(other("x", "db", "a1")), LATER);
    core.handle(Event::Pod(other("y", "db", "b1")), LATER);
    for name in ["p", "q"] {
        core.handle(Event::Pod(web(name, 1, &required("podAntiAffinity", &app("db")))), LATER);
    }
    let refused = |name: &str| format!("{name}: 0/3 nodes are available: 3 {NO_ANTI_AFFINITY}.");
    assert_eq!(decide(&mut core, LATER), ["p", "q"].map(refused));
    // It becomes another application: rack b is free.
    core.handle(Event::Pod(other("y", "cache", "b1")), LATER);
    assert_eq!(decide(&mut core, LATER), ["p -> b1", "q -> b1"]);
}

/// The namespace `name` with the label `team`, or with none.
fn namespace(name: &str, team: Option<&str>) -> Event {
    let labels = team.map(|team| [("team".to_owned(), team.to_owned())].into()).unwrap_or_default();
    Event::Namespace(NamespaceView { name: name.into(), labels: Arc::new(labels) })
}

fn of_team_x(kind: &str) -> Value {
    let mut term = app("db");
    term["namespaceSelector"] = json!({"matchLabels": {"team": "x"}});
    required(kind, &term)
}

#[test]
fn terms_follow_the_labels_of_namespaces() {
    let mut core = racks();
    core.handle(Event::Pod(other("db", "db", "b1")), LATER);
    for name in ["p", "q"] {
        core.handle(Event::Pod(web(name, 1, &of_team_x("podAffinity"))), LATER);
    }
    let refused = |name: &str| format!("{name}: 0/3 nodes are available: 3 {NO_AFFINITY}.");
    assert_eq!(decide(&mut core, LATER), ["p", "q"].map(refused));
    for event in [namespace("elsewhere", Some("x")), namespace("ns", None), namespace("ns", Some("y"))] {
        core.handle(event, LATER);
        let decisions = decide(&mut core, LATER);
        assert!(decisions.iter().all(|decision| *decision == refused("p")), "{decisions:?}");
    }
    core.handle(namespace("ns", Some("x")), LATER);
    assert_eq!(decide(&mut core, LATER), ["p -> b1", "q -> b1"]);
    core.handle(Event::NamespaceGone("ns".into()), LATER);
    core.handle(Event::Pod(web("r", 1, &of_team_x("podAffinity"))), LATER);
    assert_eq!(decide(&mut core, LATER), [refused("r")]);
    // All namespaces, known or not.
    let mut term = app("db");
    term["namespaceSelector"] = json!({});
    core.handle(Event::Pod(web("s", 1, &required("podAffinity", &term))), LATER);
    assert_eq!(decide(&mut core, LATER), ["s -> b1"]);
}

#[test]
fn a_pod_is_the_first_of_its_terms_by_the_labels_of_its_namespace() {
    for (team, placed) in [(Some("x"), true), (Some("y"), false), (None, false)] {
        let mut core = racks();
        core.handle(namespace("ns", team), LATER);
        let mut more = json!({"metadata": {"labels": {"app": "db"}}});
        merge(&mut more, json!({"spec": of_team_x("podAffinity")}));
        core.handle(Event::Pod(pod("p", 1, more)), LATER);
        assert_eq!(decide(&mut core, LATER)[0].starts_with("p -> "), placed, "{team:?}");
    }
}

#[test]
fn a_pod_is_kept_away_until_its_namespace_has_other_labels() {
    let mut core = racks();
    core.handle(namespace("ns", Some("x")), LATER);
    let mut keeper = json!({"spec": of_team_x("podAntiAffinity")});
    merge(&mut keeper, json!({"metadata": {"namespace": "elsewhere"}}));
    merge(&mut keeper, running("b1"));
    core.handle(Event::Pod(pod("keeper", 1, keeper)), LATER);
    let more = json!({"metadata": {"labels": {"app": "db"}}, "spec": {"nodeSelector": {"rack": "b"}}});
    core.handle(Event::Pod(pod("p", 1, more)), LATER);
    let decisions = decide(&mut core, LATER);
    assert!(decisions[0].contains("existing pods anti-affinity"), "{decisions:?}");
    core.handle(namespace("ns", Some("x")), LATER);
    assert!(decide(&mut core, LATER).is_empty());
    core.handle(namespace("ns", None), LATER);
    assert_eq!(decide(&mut core, LATER), ["p -> b1"]);
}

#[test]
fn a_host_port_serves_one_pod_of_a_node() {
    let serving = |name: &str, more: Value| {
        let ports = json!([{"containerPort": 80, "hostPort": 80}]);
        let mut more = more;
        merge(&mut more, json!({"spec": {"containers": [{"name": "c", "ports": ports}]}}));
        pod(name, 1, more)
    };
    let mut core = racks();
    for node in ["a1", "a2", "b1"] {
        core.handle(Event::Pod(serving(&format!("on-{node}"), running(node))), LATER);
    }
    core.handle(Event::Pod(serving("p", json!({}))), LATER);
    let refused = "p: 0/3 nodes are available: 3 node(s) didn't have free ports for the requested pod ports.";
    assert_eq!(decide(&mut core, LATER), [refused]);
    core.handle(Event::PodGone(serving("on-a2", ended("a2"))), LATER);
    assert_eq!(decide(&mut core, LATER), ["p -> a2"]);
}

#[test]
fn wishes_decide_among_nodes() {
    let softly = json!({"whenUnsatisfiable": "ScheduleAnyway"});
    for (rule, there, rack) in [
        (spread(&softly), "web", "b"),
        (preferred("podAffinity", &app("db")), "db", "a"),
        (preferred("podAntiAffinity", &app("db")), "db", "b"),
    ] {
        for seed in 0..8 {
            let mut core = racks();
            core.random = Random::seeded(seed);
            core.handle(Event::Pod(other("x", there, "a1")), LATER);
            // Room is the same everywhere.
            core.handle(Event::Pod(pod("y", 1, running("a2"))), LATER);
            core.handle(Event::Pod(pod("z", 1, running("b1"))), LATER);
            core.handle(Event::Pod(web("p", 1, &rule)), LATER);
            assert_eq!(racks_of(&decide(&mut core, LATER)), [format!("p {rack}")], "{rule}");
        }
    }
    // A pod that is there attracts the new one.
    let mut core = racks();
    let mut friend = json!({"spec": preferred("podAffinity", &app("web"))});
    merge(&mut friend, running("a1"));
    core.handle(Event::Pod(pod("x", 1, friend)), LATER);
    core.handle(Event::Pod(pod("z", 1, running("b1"))), LATER);
    core.handle(Event::Pod(web("p", 1, &json!({}))), LATER);
    assert_eq!(racks_of(&decide(&mut core, LATER)), ["p a"]);
}
