//! The verbs of an extender for another scheduler.

use super::preemption::budget;
use super::*;
use crate::extender::MetaVictims;

/// The pods are of another scheduler.
fn other(name: &str, cpus: i64, more: Value) -> PodView {
    let mut base = json!({"spec": {"schedulerName": "other"}});
    merge(&mut base, more);
    pod(name, cpus, base)
}

fn on_node(name: &str, cpus: i64, priority: i32) -> PodView {
    let mut base = running("n");
    merge(&mut base, json!({"spec": {"priority": priority}}));
    other(name, cpus, base)
}

/// Two zones of 8 CPUs: `a` and `b` in the first, `c` and `d` in the second.
fn filled() -> Core {
    let mut core = core(&["n"]);
    for (name, cpus, priority) in [("a", 5, 1), ("b", 3, 3), ("c", 5, 2), ("d", 3, 9)] {
        core.handle(Event::Pod(on_node(name, cpus, priority)), LATER);
    }
    core
}

#[test]
fn nodes_are_refused_for_their_zones_alone() {
    let mut core = core(&["n", "m"]);
    core.handle(Event::Pod(on_node("a", 5, 0)), LATER);
    core.handle(Event::Pod(on_node("b", 5, 0)), LATER);
    let names: Vec<Arc<str>> = ["n", "m", "unknown"].map(Arc::from).into();
    let verdicts = core.filter_zones(&other("p", 5, json!({})), &names, LATER);
    let told = verdicts.into_iter().map(|(node, verdict)| match verdict {
        Ok(()) => format!("{node} fits"),
        Err(refusal) => format!("{node}: {} {}", refusal.reason, refusal.is_curable),
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            "n: cannot align container \"c\": cpu: requested 5, most in one zone 3 (zone 0) true",
            "m fits",
            "unknown: the node is not known false",
        ]
    );
}

/// The emptier zone has the higher score, as in a cycle; what nothing is known of has none.
#[test]
fn nodes_have_the_scores_of_their_zones() {
    let mut core = core(&["n", "m"]);
    core.handle(Event::Node(node("plain")), LATER);
    for name in ["a", "b"] {
        core.handle(Event::Pod(on_node(name, 4, 0)), LATER);
    }
    let names: Vec<Arc<str>> = ["n", "m", "plain", "unknown"].map(Arc::from).into();
    let scores = core.score_zones(&other("p", 2, json!({})), &names);
    let [n, m, plain, unknown] = &*scores else { panic!("{scores:?}") };
    assert!(m.1 > n.1 && n.1 > 0 && plain.1 == 0 && unknown.1 == 0, "{scores:?}");
}

#[test]
fn victims_are_as_few_more_as_free_a_zone() {
    let victims = |uids: &[&str]| MetaVictims {
        pods: uids.iter().map(|name| format!("uid-{name}").into()).collect(),
        violations: 1,
    };
    for (cpus, priority, given, wanted) in [
        (5, 5, &["a"][..], Some(&["a"][..])),
        // Of d, more important, nothing may be taken, and a alone frees 5.
        (8, 5, &["a"], Some(&["a", "b"])),
        (8, 5, &["c"], Some(&["c", "b", "a"])),
        (8, 2, &["a"], None),
        (5, 5, &["unknown"], Some(&["unknown", "a"])),
    ] {
        let pod = other("p", cpus, json!({"spec": {"priority": priority}}));
        let kept = filled().victims_by_zones(&pod, [("n".into(), victims(given))].into(), LATER);
        let mut kept = kept.into_values().next();
        let sort = |it: &mut MetaVictims| it.pods.sort();
        kept.iter_mut().for_each(sort);
        let mut wanted = wanted.map(victims);
        wanted.iter_mut().for_each(sort);
        assert_eq!(kept, wanted, "{cpus} CPUs, {given:?}");
    }
}

/// Two pods in the order of their importance would do, and one alone does.
#[test]
fn one_victim_is_better_than_two_that_are_as_important() {
    let mut core = core(&["n"]);
    for (name, cpus, priority) in [("a", 4, 1), ("b", 4, 1), ("c", 8, 1)] {
        core.handle(Event::Pod(on_node(name, cpus, priority)), LATER);
    }
    let pod = other("p", 8, json!({"spec": {"priority": 5}}));
    let given = MetaVictims { pods: vec![], violations: 0 };
    let kept = core.victims_by_zones(&pod, [("n".into(), given)].into(), LATER);
    assert_eq!(kept.into_values().next().unwrap().pods, ["uid-c".into()]);
}

/// A pod whose disruption is forbidden leaves if no other is enough, and is counted then.
#[test]
fn added_victims_are_those_that_budgets_allow() {
    // budgets by pod -> added victims, of which budgets forbid so many
    for (budgets, added, violations) in
        [(&[("a", 1)][..], "a", 0), (&[("a", 0)], "c", 0), (&[("a", 0), ("c", 0), ("b", 0)], "a", 1)]
    {
        let mut core = core(&["n"]);
        for (name, cpus, priority) in [("a", 5, 1), ("b", 3, 3), ("c", 5, 2), ("d", 3, 9)] {
            let mut view = on_node(name, cpus, priority);
            view.labels = Arc::new([("app".to_owned(), name.to_owned())].into());
            core.handle(Event::Pod(view), LATER);
        }
        budgets.iter().for_each(|(app, allowed)| core.handle(budget(app, app, *allowed, &[]), LATER));
        let pod = other("p", 5, json!({"spec": {"priority": 5}}));
        let given = MetaVictims { pods: vec![], violations: 0 };
        let kept = core.victims_by_zones(&pod, [("n".into(), given)].into(), LATER);
        let wanted = MetaVictims { pods: vec![format!("uid-{added}").into()], violations };
        assert_eq!(kept.into_values().next(), Some(wanted), "{budgets:?}");
    }
}

#[test]
fn a_pod_is_counted_from_the_moment_it_is_to_be_bound() {
    let mut core = core(&["n"]);
    for name in ["p", "q", "r"] {
        core.handle(Event::Pod(other(name, 8, json!({}))), LATER);
    }
    assert_eq!(decide(&mut core, LATER), [""; 0], "pods of another scheduler");
    let node: Arc<str> = "n".into();
    let p = core.assume("uid-p", &node, LATER).unwrap();
    core.assume("uid-q", &node, LATER).unwrap();
    let refused = core.assume("uid-r", &node, LATER).unwrap_err();
    assert_eq!(refused, "cannot align container \"c\": cpu: requested 8, most in one zone 0 (zone 0)");
    assert_eq!(core.assume("uid-p", &node, LATER).unwrap_err(), "the pod is on node n already");
    assert_eq!(core.assume("uid-x", &node, LATER).unwrap_err(), "the pod is not known yet");
    core.handle(Event::BindFailed(p.id), LATER);
    assert!(core.assume("uid-r", &node, LATER).is_ok(), "the failed binding holds nothing");
    recount(&core);
}

/// A pod whose object is gone frees its zone by itself. The other scheduler knows it no more, and would give up.
#[test]
fn no_victim_is_a_pod_that_is_gone() {
    let mut core = core(&["n"]);
    for (name, cpus, priority) in [("a", 5, 0), ("b", 3, 0), ("c", 8, 9)] {
        core.handle(Event::Pod(on_node(name, cpus, priority)), LATER);
    }
    core.handle(Event::PodGone(on_node("a", 5, 0)), LATER);
    let pod = other("p", 8, json!({"spec": {"priority": 5}}));
    let given = MetaVictims { pods: vec!["uid-b".into()], violations: 0 };
    let kept = core.victims_by_zones(&pod, [("n".into(), given.clone())].into(), LATER);
    assert_eq!(kept.into_values().next(), Some(given));
}
