//! Preemption: who leaves which node for whom, and what others see of it meanwhile.

use super::*;
use crate::budget::BudgetView;
use crate::extender::{Call, CallError, Extender, Filtered, Managed, MetaVictims, NodeVictims};
use crate::plugins::default_preemption;

mod properties;

/// All decisions at a time, with whole messages; evictions as `pod evicts victim, victim on node`.
fn tell(core: &mut Core, now: u64) -> Vec<String> {
    let names = |pods: &[PodView]| pods.iter().map(|pod| pod.name.to_string()).collect::<Vec<_>>().join(", ");
    std::iter::from_fn(|| core.next(now))
        .map(|decision| match decision {
            Decision::Bind(binding) => format!("{} -> {}", binding.pod.name, binding.node),
            Decision::Refuse(refused) => format!("{}: {}", refused.pod.name, refused.message),
            other @ (Decision::BindVolumes(_)
            | Decision::ReserveClaims(_)
            | Decision::ReleaseClaims(_)
            | Decision::FailVolumes(_)
            | Decision::SetGroupCondition(_)
            | Decision::NoteRejection(_)
            | Decision::Withdraw(_)) => panic!("{other:?}"),
            Decision::Preempt(it) => {
                assert_eq!(it.refused.nominated.as_ref(), Some(&it.node));
                assert!(!it.refused.message.contains("preemption:"), "{}", it.refused.message);
                let displaced = match it.displaced.is_empty() {
                    true => String::new(),
                    false => format!(", displaces {}", names(&it.displaced)),
                };
                format!("{} evicts {} on {}{displaced}", it.refused.pod.name, names(&it.victims), it.node)
            }
        })
        .collect()
}

/// A core with nodes of 16 CPUs whose zones nothing reports.
fn plain(nodes: &[&str]) -> Core {
    with_plugins(nodes, Plugins::default())
}

fn with_plugins(nodes: &[&str], plugins: Plugins) -> Core {
    let plugins = Arc::new(Plugins { deallocates: false, ..plugins });
    let profile = Profile { name: "numa".into(), numa: None, plugins, percentage: 0 };
    let mut core = Core::new(Settings { profiles: vec![profile], hold_after_ms: None, ..settings() });
    for name in nodes {
        core.handle(Event::Node(node(name)), LATER);
    }
    core
}

fn merged(mut base: Value, more: Value) -> Value {
    merge(&mut base, more);
    base
}

fn priority(priority: i32) -> Value {
    json!({"spec": {"priority": priority}})
}

/// A pod that runs on a node since a second.
fn runs(name: &str, cpus: i64, node: &str, (prio, since_s): (i32, i64), more: Value) -> PodView {
    let time = jiff::Timestamp::from_second(1_700_000_000 + since_s).unwrap().to_string();
    let base = merged(running(node), priority(prio));
    pod(name, cpus, merged(merged(base, json!({"status": {"startTime": time}})), more))
}

fn run_all(core: &mut Core, pods: &[(&str, i64, &str, i32, i64)]) {
    for (name, cpus, node, prio, since_s) in pods {
        core.handle(Event::Pod(runs(name, *cpus, node, (*prio, *since_s), json!({}))), LATER);
    }
}

/// The victim ends: first its deletion is seen, then its last state.
fn end(core: &mut Core, name: &str, cpus: i64, node: &str, prio: i32) {
    let last = merged(ended(node), priority(prio));
    core.handle(Event::Pod(pod(name, cpus, last.clone())), LATER);
    core.handle(Event::PodGone(pod(name, cpus, last)), LATER);
}

pub(super) fn budget(name: &str, app: &str, allowed: i32, disrupted: &[&str]) -> Event {
    let disrupted: BTreeMap<_, _> = disrupted.iter().map(|name| (*name, "2026-01-01T00:00:00Z")).collect();
    Event::Budget(BudgetView::read(
        &serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": name},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {
                "disruptionsAllowed": allowed, "disruptedPods": disrupted, "currentHealthy": 0,
                "desiredHealthy": 0, "expectedPods": 0,
            },
        }))
        .unwrap(),
    ))
}

fn app(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}})
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const NO_CPU: &str = "1 Insufficient cpu.";
const NO_VICTIMS: &str = "1 No preemption victims found for incoming pod.";

/// Victims on one node: the pods there, the pod that comes, and what is decided.
#[test]
fn victims_are_the_least_that_make_room() {
    type Pods = &'static [(&'static str, i64, i32, i64)];
    let table: [(&str, Pods, (i64, i32), &str); 8] = [
        ("one is enough", &[("a", 8, 1, 1), ("b", 8, 2, 1)], (8, 5), "p evicts a on n"),
        ("the older is spared", &[("a", 8, 1, 2), ("b", 8, 1, 1)], (8, 5), "p evicts a on n"),
        ("a small one is spared", &[("a", 4, 1, 1), ("b", 12, 2, 1)], (12, 5), "p evicts b on n"),
        ("as many as it takes", &[("a", 8, 1, 1), ("b", 8, 2, 1)], (16, 5), "p evicts b, a on n"),
        (
            "by importance",
            &[("a", 4, 1, 2), ("b", 4, 1, 1), ("c", 4, 2, 9), ("d", 4, 3, 9)],
            (12, 5),
            "p evicts c, b, a on n",
        ),
        ("none of equal priority", &[("a", 8, 5, 1), ("b", 8, 4, 1)], (8, 5), "p evicts b on n"),
        (
            "equal priority alone",
            &[("a", 16, 5, 1)],
            (8, 5),
            "p: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: \
             1 No preemption victims found for incoming pod.",
        ),
        (
            "too little in all",
            &[("a", 8, 5, 1), ("b", 8, 4, 1)],
            (12, 5),
            "p: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Insufficient cpu.",
        ),
    ];
    for (case, there, (cpus, prio), wanted) in table {
        let mut core = plain(&["n"]);
        for (name, cpus, prio, since_s) in there {
            run_all(&mut core, &[(name, *cpus, "n", *prio, *since_s)]);
        }
        core.handle(Event::Pod(pod("p", cpus, priority(prio))), LATER);
        assert_eq!(tell(&mut core, LATER), [wanted], "{case}");
    }
}

#[test]
fn the_node_is_chosen_by_the_harm_done() {
    type Pods = &'static [(&'static str, i64, &'static str, i32, i64)];
    let table: [(&str, Pods, &str); 4] = [
        ("lowest highest priority", &[("a", 16, "n", 3, 1), ("b", 16, "m", 2, 1)], "p evicts b on m"),
        (
            "smallest sum",
            &[("a", 8, "n", 2, 1), ("b", 8, "n", 2, 1), ("c", 16, "m", 2, 1)],
            "p evicts c on m",
        ),
        ("latest start", &[("a", 16, "n", 2, 1), ("b", 16, "m", 2, 5)], "p evicts b on m"),
        ("free nodes first", &[("a", 16, "n", 2, 1), ("b", 1, "m", 2, 5)], "p -> m"),
    ];
    for (case, there, wanted) in table {
        let mut core = plain(&["n", "m"]);
        run_all(&mut core, there);
        core.handle(Event::Pod(pod("p", 10, priority(5))), LATER);
        assert_eq!(tell(&mut core, LATER), [wanted], "{case}");
    }
}

#[test]
fn budgets_choose_victims_and_nodes() {
    let with = |budgets: Vec<Event>, nodes: &[&str], there: &[(&str, i64, &str, i32, &str)]| {
        let mut core = plain(nodes);
        budgets.into_iter().for_each(|budget| core.handle(budget, LATER));
        for (name, cpus, node, prio, label) in there {
            core.handle(Event::Pod(runs(name, *cpus, node, (*prio, 1), app(label))), LATER);
        }
        core.handle(Event::Pod(pod("p", 8, priority(9))), LATER);
        tell(&mut core, LATER).join("; ")
    };
    let two = [("a", 8, "n", 1, "web"), ("b", 8, "n", 2, "db")];
    for (case, budgets, wanted) in [
        ("without budgets", vec![], "p evicts a on n"),
        ("the covered pod is spared first", vec![budget("x", "web", 0, &[])], "p evicts b on n"),
        ("an allowance lets it go", vec![budget("x", "web", 1, &[])], "p evicts a on n"),
        ("a counted disruption too", vec![budget("x", "web", 0, &["a"])], "p evicts a on n"),
        ("both are covered", vec![budget("x", "web", 0, &[]), budget("y", "db", 0, &[])], "p evicts a on n"),
        (
            "a budget that has gone",
            vec![budget("x", "web", 0, &[]), Event::BudgetGone("ns".into(), "x".into())],
            "p evicts a on n",
        ),
    ] {
        assert_eq!(with(budgets, &["n"], &two), wanted, "{case}");
    }
    // An allowance of one: the less important pod of two is the one too many, and is spared.
    let pair = [("a", 8, "n", 1, "web"), ("b", 8, "n", 2, "web")];
    assert_eq!(with(vec![budget("x", "web", 1, &[])], &["n"], &pair), "p evicts b on n");
    let nodes = [("a", 16, "n", 1, "web"), ("b", 16, "m", 5, "db")];
    assert_eq!(with(vec![budget("x", "web", 0, &[])], &["n", "m"], &nodes), "p evicts b on m");
    let nodes = [("a", 16, "n", 5, "web"), ("b", 16, "m", 1, "web")];
    assert_eq!(with(vec![budget("x", "web", 0, &[])], &["n", "m"], &nodes), "p evicts b on m");
}

#[test]
fn some_pods_do_not_preempt() {
    let base = "p: 0/1 nodes are available: 1 Insufficient cpu.";
    let never = json!({"spec": {"priority": 9, "preemptionPolicy": "Never"}});
    let lower = json!({"spec": {"priority": 9, "preemptionPolicy": "PreemptLowerPriority"}});
    for (more, plugins, wanted) in [
        (
            never,
            Plugins::default(),
            format!("{base} preemption: not eligible due to preemptionPolicy=Never."),
        ),
        (lower, Plugins::default(), "p evicts a on n".to_owned()),
        (priority(9), Plugins { preemption: None, ..Plugins::default() }, base.to_owned()),
        (
            priority(1),
            Plugins::default(),
            format!("{base} preemption: 0/1 nodes are available: {NO_VICTIMS}"),
        ),
    ] {
        let mut core = with_plugins(&["n"], plugins);
        run_all(&mut core, &[("a", 16, "n", 1, 1)]);
        core.handle(Event::Pod(pod("p", 8, more)), LATER);
        assert_eq!(tell(&mut core, LATER), [wanted]);
    }
    let mut core = plain(&[]);
    core.handle(Event::Pod(pod("p", 8, priority(9))), LATER);
    assert_eq!(tell(&mut core, LATER), ["p: no nodes available to schedule pods"]);
}

/// Only what pods on the node cause can be cured by their departure.
#[test]
fn nodes_that_evictions_do_not_help_are_left_alone() {
    const NOT_HELPFUL: &str = "1 Preemption is not helpful for scheduling.";
    let tainted = json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}});
    let term = |key: &str| json!([{"topologyKey": key, "labelSelector": {"matchLabels": {"app": "x"}}}]);
    let affinity = |kind: &str, key: &str| json!({"spec": {"affinity": {kind: {REQUIRED: term(key)}}}});
    let spread = |key: &str| {
        let labels = json!({"matchLabels": {"app": "x"}});
        json!({
            "metadata": {"labels": {"app": "x"}},
            "spec": {"topologySpreadConstraints": [
                {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": labels},
            ]},
        })
    };
    let ports = |port: i32| {
        let ports = json!([{"containerPort": 1, "hostPort": port}]);
        json!({"spec": {"containers": [{"name": "c", "ports": ports}]}})
    };
    let evicts = Some("p evicts a on n");
    for (case, node_more, there, more, cpus, wanted) in [
        ("cordon", json!({"spec": {"unschedulable": true}}), json!({}), json!({}), 8, None),
        ("taint", tainted, json!({}), json!({}), 8, None),
        ("selector", json!({}), json!({}), json!({"spec": {"nodeSelector": {"disk": "ssd"}}}), 8, None),
        ("more than the node has", json!({}), json!({}), json!({}), 17, None),
        ("no pod to be near", json!({}), json!({}), affinity("podAffinity", "zone"), 1, None),
        ("no label to spread over", json!({}), json!({}), spread("rack"), 1, None),
        ("room", json!({}), json!({}), json!({}), 8, evicts),
        ("port", json!({}), ports(80), ports(80), 1, evicts),
        ("a pod to be away from", json!({}), app("x"), affinity("podAntiAffinity", "zone"), 1, evicts),
        ("pods", json!({"status": {"allocatable": {"pods": "1"}}}), json!({}), json!({}), 1, evicts),
    ] {
        let mut core = plain(&[]);
        let mut object = json!({
            "metadata": {"name": "n", "uid": "n", "labels": {"zone": "n"}},
            "status": {"allocatable": {"cpu": "16", "memory": "32Gi", "pods": "20"}},
        });
        merge(&mut object, node_more);
        core.handle(Event::Node(NodeView::read(&serde_json::from_value(object).unwrap())), LATER);
        let there_cpus = if cpus == 1 { 1 } else { 16 };
        core.handle(Event::Pod(runs("a", there_cpus, "n", (1, 1), there)), LATER);
        core.handle(Event::Pod(pod("p", cpus, merged(priority(9), more))), LATER);
        let told = tell(&mut core, LATER).join("; ");
        match wanted {
            Some(wanted) => assert_eq!(told, wanted, "{case}"),
            None => {
                let tail = format!(" preemption: 0/1 nodes are available: {NOT_HELPFUL}");
                assert!(
                    told.starts_with("p: 0/1 nodes are available: ") && told.ends_with(&tail),
                    "{case}: {told}"
                );
            }
        }
    }
}

/// The constraints of pods on nodes are counted without the victims, and with those that are spared.
#[test]
fn constraints_on_other_pods_count_without_the_victims() {
    let away = json!([{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "p"}}}]);
    let away = json!({"spec": {"affinity": {"podAntiAffinity": {REQUIRED: away}}}});
    let mut core = plain(&["n"]);
    core.handle(Event::Pod(runs("keeps-away", 1, "n", (1, 1), away)), LATER);
    core.handle(Event::Pod(runs("other", 1, "n", (1, 2), json!({}))), LATER);
    core.handle(Event::Pod(pod("p", 1, merged(priority(9), app("p")))), LATER);
    assert_eq!(tell(&mut core, LATER), ["p evicts keeps-away on n"]);

    // Two pods of the kind are on n, and none on m, which is full of a more important pod: one has to leave.
    let spread = json!([{
        "topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "p"}},
    }]);
    let mut core = plain(&["n", "m"]);
    core.handle(Event::Pod(runs("m", 16, "m", (99, 1), json!({}))), LATER);
    core.handle(Event::Pod(runs("old", 1, "n", (1, 1), app("p"))), LATER);
    core.handle(Event::Pod(runs("foreign", 1, "n", (1, 3), json!({}))), LATER);
    let constrained = merged(json!({"spec": {"topologySpreadConstraints": spread}}), app("p"));
    core.handle(Event::Pod(pod("p", 1, merged(priority(9), constrained))), LATER);
    assert_eq!(tell(&mut core, LATER), ["p evicts old on n"]);
}

/// Nothing is bound before the room is there, the victims' room is kept, and the pod does not preempt twice.
#[test]
fn a_nominated_pod_waits_for_its_victims_and_keeps_its_room() {
    let mut core = plain(&["n"]);
    run_all(&mut core, &[("a", 8, "n", 1, 1), ("b", 8, "n", 9, 1)]);
    core.handle(Event::Pod(pod("p", 8, priority(5))), LATER);
    assert_eq!(tell(&mut core, LATER), ["p evicts a on n"]);
    // Tried again for another reason, it waits, and says so.
    core.handle(
        Event::Pod(pod("p", 8, merged(priority(5), json!({"spec": {"nodeSelector": {"zone": "n"}}})))),
        LATER,
    );
    let waits = "p: 0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to a terminating pod on \
                 the nominated node.";
    assert_eq!(tell(&mut core, LATER), [waits]);
    let leaving = merged(ended("n"), priority(1));
    core.handle(Event::Pod(pod("a", 8, leaving)), LATER);
    assert_eq!(tell(&mut core, LATER), [""; 0], "the kubelet has not released it");
    // The room that comes is kept from others as long as they are not more important.
    core.handle(Event::Pod(pod("low", 8, priority(1))), LATER);
    core.handle(Event::Pod(pod("equal", 8, priority(5))), LATER);
    assert_eq!(tell(&mut core, LATER).len(), 2);
    end(&mut core, "a", 8, "n", 1);
    assert_eq!(tell(&mut core, LATER), ["p -> n"]);
    assert!(core.nominations.is_empty() && core.evicting.is_empty());
}

#[test]
fn nominations_count_for_pods_of_no_higher_priority() {
    for (prio, wanted) in [(1, false), (5, false), (6, true)] {
        // p waits for n; 8 CPUs of n are free, and p needs them and the 8 of a.
        let mut core = plain(&["n"]);
        run_all(&mut core, &[("a", 8, "n", 1, 1)]);
        core.handle(Event::Pod(pod("p", 16, priority(5))), LATER);
        assert_eq!(tell(&mut core, LATER), ["p evicts a on n"]);
        core.handle(Event::Pod(pod("q", 4, priority(prio))), LATER);
        let told = tell(&mut core, LATER);
        assert_eq!(told == ["q -> n"], wanted, "{prio}: {told:?}");
    }
}

#[test]
fn a_more_important_pod_takes_the_node_over() {
    let mut core = plain(&["n"]);
    run_all(&mut core, &[("a", 8, "n", 1, 1), ("b", 8, "n", 2, 1)]);
    core.handle(Event::Pod(pod("p", 8, priority(5))), LATER);
    assert_eq!(tell(&mut core, LATER), ["p evicts a on n"]);
    // The room that p waits for is not kept from q; b has to leave as well, since a has not gone.
    core.handle(Event::Pod(pod("q", 16, priority(7))), LATER);
    let told = tell(&mut core, LATER);
    assert_eq!(told[0], "q evicts b, a on n, displaces p");
    assert!(told[1].starts_with("p: 0/1 nodes are available: ") && told.len() == 2, "{told:?}");
    end(&mut core, "a", 8, "n", 1);
    assert_eq!(tell(&mut core, LATER), [""; 0], "half of the node is kept for q");
    end(&mut core, "b", 8, "n", 2);
    assert_eq!(tell(&mut core, LATER), ["q -> n"]);
}

#[test]
fn a_failed_eviction_ends_the_nomination_and_the_pod_is_tried_again() {
    let mut core = plain(&["n"]);
    run_all(&mut core, &[("a", 16, "n", 1, 1)]);
    core.handle(Event::Pod(pod("p", 8, priority(5))), LATER);
    assert_eq!(tell(&mut core, LATER), ["p evicts a on n"]);
    let id = core.ids["uid-p"];
    core.handle(Event::PreemptFailed(id), LATER);
    assert!(core.nominations.is_empty() && core.evicting.is_empty());
    assert_eq!(tell(&mut core, LATER), [""; 0]);
    assert_eq!(tell(&mut core, LATER + 1_000), ["p evicts a on n"]);
    // The pod that it was for may be gone by then.
    core.handle(Event::PodGone(pod("p", 8, priority(5))), LATER + 1_000);
    core.handle(Event::PreemptFailed(id), LATER + 1_000);
    assert!(core.nominations.is_empty() && core.evicting.is_empty());
}

#[test]
fn pods_on_their_way_out_are_waited_for() {
    let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let mark = json!({"status": {"conditions": [
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"},
    ]}});
    let nominated = merged(priority(5), json!({"status": {"nominatedNodeName": "n"}}));
    let waits = "p: 0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to a terminating pod on \
                 the nominated node.";
    // After a restart: the objects tell.
    for (there, pod_more, wanted) in [
        (merged(leaving.clone(), mark.clone()), nominated.clone(), waits),
        (leaving.clone(), nominated.clone(), "p evicts a on n"),
        (mark, nominated.clone(), "p evicts a on n"),
        (leaving.clone(), priority(5), "p evicts a on n"),
    ] {
        let mut core = plain(&["n"]);
        core.handle(Event::Pod(runs("a", 16, "n", (1, 1), there.clone())), LATER);
        core.handle(Event::Pod(pod("p", 8, pod_more)), LATER);
        assert_eq!(tell(&mut core, LATER), [wanted]);
        // In any case once: now it waits for them.
        core.handle(Event::Pod(runs("a", 16, "n", (1, 1), merged(there, leaving.clone()))), LATER);
        assert_eq!(tell(&mut core, LATER), [""; 0]);
        end(&mut core, "a", 16, "n", 1);
        assert_eq!(tell(&mut core, LATER), ["p -> n"]);
    }
    // A forced deletion: its room counts as taken by the kubelet for a while, and b does not pay for it.
    let mut core = core(&["n"]);
    run_all(&mut core, &[("a", 8, "n", 1, 1), ("b", 8, "n", 2, 1)]);
    core.handle(Event::Report("n".into(), report([0, 0], &["a", "b"])), LATER);
    core.handle(Event::PodGone(runs("a", 8, "n", (1, 1), json!({}))), LATER);
    core.handle(Event::Pod(pod("p", 8, nominated)), LATER);
    assert!(tell(&mut core, LATER)[0].ends_with("terminating pod on the nominated node."));
    assert_eq!(tell(&mut core, LATER + VANISHED_MS).len(), 1);
}

#[test]
fn the_nominated_node_is_tried_first() {
    for (nominated, wanted) in [("n", "p -> n"), ("m", "p -> m"), ("gone", "p -> m")] {
        let mut core = plain(&["n", "m"]);
        // By its score m, the emptier node, would be chosen.
        run_all(&mut core, &[("a", 4, "n", 1, 1)]);
        let more = json!({"status": {"nominatedNodeName": nominated}});
        core.handle(Event::Pod(pod("p", 8, more)), LATER);
        assert_eq!(tell(&mut core, LATER), [wanted], "{nominated}");
        assert!(core.nominations.is_empty());
    }
}

#[test]
fn a_nomination_ends_where_nothing_can_be_gained() {
    let mut core = plain(&["n"]);
    run_all(&mut core, &[("a", 16, "n", 9, 1)]);
    let more = merged(priority(5), json!({"status": {"nominatedNodeName": "n"}}));
    core.handle(Event::Pod(pod("p", 8, more.clone())), LATER);
    let told = tell(&mut core, LATER);
    assert_eq!(
        told,
        [format!("p: 0/1 nodes are available: {NO_CPU} preemption: 0/1 nodes are available: {NO_VICTIMS}")]
    );
    assert!(core.nominations.is_empty());
    // The object still has it. That is no news.
    core.handle(Event::Pod(pod("p", 8, more)), LATER);
    assert!(core.nominations.is_empty());
    core.handle(Event::Pod(pod("p", 8, priority(5))), LATER);
    core.handle(
        Event::Pod(pod("p", 8, merged(priority(5), json!({"status": {"nominatedNodeName": "m"}})))),
        LATER,
    );
    assert_eq!(core.nominations.of(core.ids["uid-p"]).map(|node| &**node), Some("m"));
}

/// A node from which an important pod leaves can be preempted on by a waiting pod from then on.
#[test]
fn a_change_lets_a_waiting_pod_preempt() {
    let mut core = plain(&["n"]);
    run_all(&mut core, &[("a", 8, "n", 9, 1), ("b", 8, "n", 1, 1)]);
    core.handle(Event::Pod(pod("p", 16, priority(5))), LATER);
    assert!(tell(&mut core, LATER)[0].starts_with("p: "));
    end(&mut core, "a", 8, "n", 9);
    assert_eq!(tell(&mut core, LATER), ["p evicts b on n"]);
    assert_eq!(tell(&mut core, LATER), [""; 0]);
    // The nominated node goes: another is looked for.
    core.handle(Event::Node(node("m")), LATER);
    run_all(&mut core, &[("c", 16, "m", 1, 1)]);
    core.handle(Event::NodeGone("n".into()), LATER);
    assert_eq!(tell(&mut core, LATER), ["p evicts c on m"]);
}

/// Only the pod in the zone that is needed has to leave.
#[test]
fn the_zone_of_the_right_victim_is_freed() {
    for (prio_of_first, wanted) in [(2, "p evicts b on n"), (1, "p evicts a on n")] {
        let mut core = core(&["n"]);
        // Each takes most of one zone: a zone 0, b zone 1. Together 4 CPUs are free, but in no zone.
        for (name, prio) in [("a", prio_of_first), ("b", 3 - prio_of_first)] {
            core.handle(Event::Pod(pod(name, 6, priority(prio))), LATER);
            tell(&mut core, LATER);
        }
        for (name, prio) in [("a", prio_of_first), ("b", 3 - prio_of_first)] {
            core.handle(Event::Pod(runs(name, 6, "n", (prio, 1), json!({}))), LATER);
        }
        core.handle(Event::Pod(pod("p", 4, priority(5))), LATER);
        assert_eq!(tell(&mut core, LATER), [wanted]);
        let victim = if prio_of_first == 1 { "a" } else { "b" };
        // A small pod would be put into zone 0 now. It must not be where p will be.
        core.handle(Event::Pod(pod("small", 2, priority(1))), LATER);
        let told = tell(&mut core, LATER);
        assert!(told[0].starts_with("small"), "{told:?}");
        end(&mut core, victim, 6, "n", 1);
        assert!(tell(&mut core, LATER).contains(&"p -> n".to_owned()));
    }
}

/// A pod is kept out of a zone that a nominated pod needs, and let into another.
#[test]
fn the_zone_of_a_nominated_pod_is_kept() {
    let mut core = core(&["n"]);
    // a takes 2 CPUs of zone 0, b takes 4 of zone 1.
    for (name, cpus, prio) in [("a", 2, 1), ("filler", 6, 1), ("b", 4, 9)] {
        core.handle(Event::Pod(pod(name, cpus, priority(prio))), LATER);
        tell(&mut core, LATER);
    }
    for (name, cpus, prio) in [("a", 2, 1), ("filler", 6, 1), ("b", 4, 9)] {
        core.handle(Event::Pod(runs(name, cpus, "n", (prio, 1), json!({}))), LATER);
    }
    end(&mut core, "filler", 6, "n", 1);
    core.handle(Event::Pod(pod("p", 7, priority(5))), LATER);
    assert_eq!(tell(&mut core, LATER), ["p evicts a on n"]);
    // In all there is room for 3 more. Its kubelet would put a pod of 3 into zone 0, which p needs.
    core.handle(Event::Pod(pod("q", 3, priority(1))), LATER);
    let told = tell(&mut core, LATER);
    assert!(
        told[0].starts_with(
            "q: 0/1 nodes are available: 1 cannot align container \"c\": cpu: requested 7, most in one zone 5"
        ),
        "{told:?}"
    );
    end(&mut core, "a", 2, "n", 1);
    assert_eq!(tell(&mut core, LATER), ["p -> n", "q -> n"]);
}

/// A pod whose zones are unknown frees none.
#[test]
fn stale_and_unknown_zones_are_no_reason_to_evict() {
    let mut core = core(&["n"]);
    run_all(&mut core, &[("a", 8, "n", 1, 1), ("b", 8, "n", 1, 1)]);
    core.handle(Event::ReportGone("n".into()), LATER);
    core.handle(Event::Pod(pod("p", 4, merged(priority(5), json!({})))), LATER);
    let told = tell(&mut core, LATER);
    assert!(told[0].contains(" preemption: 0/1 nodes are available: "), "{told:?}");
}

#[test]
fn the_search_ends_with_enough_candidates() {
    let names: Vec<String> = (0..20).map(|at| format!("n{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let best = |absolute| {
        let args = default_preemption::Args {
            min_candidate_nodes_percentage: 0,
            min_candidate_nodes_absolute: absolute,
        };
        let mut core = with_plugins(&names, Plugins { preemption: Some(args), ..Plugins::default() });
        for (at, name) in names.iter().enumerate() {
            let prio = if at == 11 { 0 } else { 1 };
            run_all(&mut core, &[(&format!("v{at}"), 16, name, prio, 1)]);
        }
        (0..4).any(|at| {
            core.handle(Event::Pod(pod(&format!("p{at}"), 8, priority(5))), LATER);
            tell(&mut core, LATER)[0].ends_with("evicts v11 on n11") && at == 0
        })
    };
    assert!(best(20), "all are looked at, and the best is chosen");
    assert!(!best(1), "the first will do");
}

#[test]
fn a_refusal_tells_of_claims_before_preemption() {
    let profile = Profile { name: "numa".into(), numa: None, plugins: Arc::default(), percentage: 0 };
    let mut core = Core::new(Settings { profiles: vec![profile], ..settings() });
    core.handle(Event::Node(node("a")), LATER);
    core.handle(Event::Pod(pod("wide", 99, json!({}))), LATER);
    let Some(Decision::Refuse(refused)) = core.next(LATER) else { panic!("placed") };
    assert_eq!(
        refused.message,
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: \
         1 Preemption is not helpful for scheduling."
    );
}

/// By upstream's accounting no pod frees a zone, but with `preemptionMode: Enabled`.
#[test]
fn upstreams_accounting_needs_its_preemption_mode() {
    let method = api::schedulerconfig::ResyncMethod::Autodetect;
    let enabled = Accounting::OverReserve { resync_ms: 5_000, method, preempts: true };
    for (accounting, wanted) in [
        (Accounting::Exact, "q evicts p on n"),
        (enabled, "q evicts p on n"),
        (Accounting::over_reserve(5_000), "q: 0/1 nodes are available: "),
    ] {
        let mut all = settings();
        all.profiles[0].numa.as_mut().unwrap().accounting = accounting;
        let mut core = Core::new(all);
        core.handle(Event::Node(node("n")), LATER);
        core.handle(Event::Report("n".into(), report([8, 8], &[])), LATER);
        core.handle(Event::Pod(pod("p", 5, priority(0))), LATER);
        assert_eq!(tell(&mut core, LATER), ["p -> n"]);
        core.handle(Event::Pod(runs("p", 5, "n", (0, 1), json!({}))), LATER);
        core.handle(Event::Pod(runs("o", 5, "n", (7, 1), json!({}))), LATER);
        core.handle(Event::Pod(pod("q", 5, priority(5))), LATER);
        let told = tell(&mut core, LATER);
        assert!(told[0].starts_with(wanted), "{accounting:?}: {told:?}");
    }
}

/// An extender that agrees to no candidate.
#[derive(Debug)]
struct Unwilling;

impl Call for Unwilling {
    fn filter(&self, _: &PodView, _: &[Arc<str>]) -> Result<Filtered, CallError> {
        unreachable!()
    }

    fn prioritize(&self, _: &PodView, _: &[Arc<str>]) -> Result<Vec<(Arc<str>, i64)>, CallError> {
        unreachable!()
    }

    fn preempt(&self, _: &PodView, _: &[NodeVictims]) -> Result<BTreeMap<Arc<str>, MetaVictims>, CallError> {
        Ok(BTreeMap::new())
    }
}

/// The nominated node is cordoned, and there is no other: the pod waits, and does not keep others waiting.
#[test]
fn a_pod_whose_nominated_node_is_closed_is_tried_once() {
    let mut core = plain(&["n", "m"]);
    run_all(&mut core, &[("a", 16, "n", 1, 1), ("b", 16, "m", 9, 1)]);
    core.handle(Event::Pod(pod("p", 16, priority(5))), LATER);
    assert_eq!(tell(&mut core, LATER), ["p evicts a on n"]);
    core.extend(vec![Extender {
        managed: Managed::default(),
        filters: false,
        weight: None,
        preempts: true,
        ignorable: false,
        call: Box::new(Unwilling),
    }]);
    let mut closed = node("n");
    closed.unschedulable = true;
    core.handle(Event::Node(closed), LATER);
    run_all(&mut core, &[("b", 16, "m", 1, 1)]);
    core.handle(Event::Node(node("l")), LATER);
    run_all(&mut core, &[("c", 4, "l", 9, 1)]);
    core.handle(Event::Pod(pod("q", 4, priority(1))), LATER);
    let told: Vec<String> = std::iter::from_fn(|| core.next(LATER))
        .take(10)
        .map(|decision| match decision {
            Decision::Bind(binding) => format!("{} -> {}", binding.pod.name, binding.node),
            Decision::Refuse(refused) => refused.pod.name.to_string(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(told, ["p", "q -> l"]);
}
