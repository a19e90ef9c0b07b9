//! Required anti-affinity of pods that are there already.

use super::*;

/// Nodes `a1` and `a2` in rack `a`, `b1` in rack `b`.
pub(super) fn racks() -> Core {
    let mut core = Core::new(settings());
    for (name, rack) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        let object = json!({
            "metadata": {"name": name, "uid": name, "labels": {"rack": rack}},
            "status": {"allocatable": {"cpu": "16", "memory": "32Gi", "pods": "20"}},
        });
        let view = NodeView::read(&serde_json::from_value::<wire::Node>(object).unwrap());
        core.handle(Event::Node(view), LATER);
        core.handle(Event::Report(name.into(), report([8, 8], &[])), LATER);
    }
    core
}

/// A pod of another scheduler on a node, which keeps pods away by one term.
fn keeper(node: &str, term: &Value) -> PodView {
    let mut term = term.clone();
    term["topologyKey"] = "rack".into();
    let terms = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
    let spec = json!({"nodeName": node, "affinity": {"podAntiAffinity": terms}});
    pod("keeper", 1, json!({"spec": spec, "status": {"startTime": "2026-01-01T00:00:00Z"}}))
}

#[test]
fn pods_are_kept_from_the_domain_and_come_when_it_is_free() {
    let web = json!({"labelSelector": {"matchLabels": {"app": "web"}}});
    let mut core = racks();
    core.handle(Event::Pod(keeper("a1", &web)), LATER);
    let labelled = |name: &str, cpus| pod(name, cpus, json!({"metadata": {"labels": {"app": "web"}}}));
    core.handle(Event::Pod(labelled("p1", 8)), LATER);
    core.handle(Event::Pod(labelled("p2", 8)), LATER);
    core.handle(Event::Pod(labelled("p3", 8)), LATER);
    assert_eq!(
        decide(&mut core, LATER),
        [
            "p1 -> b1",
            "p2 -> b1",
            "p3: 0/3 nodes are available: 1 Insufficient cpu, \
             2 node(s) didn't satisfy existing pods anti-affinity rules.",
        ]
    );
    core.handle(Event::Pod(pod("other", 8, json!({}))), LATER);
    let decisions = decide(&mut core, LATER);
    assert!(decisions[0].starts_with("other -> a"), "{decisions:?}");
    core.handle(Event::PodGone(keeper("a1", &web)), LATER);
    let decisions = decide(&mut core, LATER + VANISHED_MS);
    assert!(decisions[0].starts_with("p3 -> a"), "{decisions:?}");
    assert!(core.existing_terms.is_empty());
}

#[test]
fn namespaces_and_selectors_decide_who_is_kept_away() {
    let any = json!({});
    for (term, placed) in [
        (json!({"labelSelector": any}), false),
        (json!({"labelSelector": any, "namespaces": ["elsewhere"]}), true),
        (json!({"labelSelector": any, "namespaces": ["ns"]}), false),
        (json!({"labelSelector": any, "namespaceSelector": {"matchLabels": {"team": "x"}}}), true),
        (json!({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}), true),
        (json!({}), true),
    ] {
        let mut core = racks();
        core.handle(Event::Pod(keeper("b1", &term)), LATER);
        core.handle(Event::Pod(pod("p", 1, json!({"spec": {"nodeSelector": {"rack": "b"}}}))), LATER);
        assert_eq!(decide(&mut core, LATER)[0] == "p -> b1", placed, "{term}");
    }
}

/// Pods of one spec wait as a class; labels tell apart those that are kept away.
#[test]
fn a_pod_that_is_kept_away_delays_no_other_of_its_class() {
    let mut core = racks();
    core.handle(Event::Pod(keeper("b1", &json!({"labelSelector": {"matchLabels": {"app": "web"}}}))), LATER);
    let on_b = |name: &str, app: &str| {
        let labels = json!({"app": app});
        pod(name, 8, json!({"metadata": {"labels": labels}, "spec": {"nodeSelector": {"rack": "b"}}}))
    };
    core.handle(Event::Pod(on_b("x", "db")), LATER);
    assert_eq!(decide(&mut core, LATER), ["x -> b1"]);
    core.handle(Event::Pod(on_b("head", "web")), LATER);
    core.handle(Event::Pod(on_b("next", "db")), LATER);
    decide(&mut core, LATER);
    for (name, more) in [("x", running("b1")), ("x", ended("b1"))] {
        core.handle(Event::Pod(pod(name, 8, more)), LATER);
    }
    core.handle(Event::PodGone(pod("x", 8, ended("b1"))), LATER);
    assert_eq!(decide(&mut core, LATER), ["next -> b1"]);
}
