//! Verdicts that are remembered for the next pod of a class.

use super::*;

/// Nodes with a remembered verdict in the revision that they have.
fn remembered(core: &mut Core, name: &str) -> usize {
    let id = core.ids[format!("uid-{name}").as_str()];
    let images = core.images.wanted(&core.pods[&id].view.images, core.node_order.len());
    let Some(class) = core.queue.class(id) else { return 0 };
    let nodes = core.node_order.clone();
    let Core { equivalence, nodes: all, .. } = core;
    let table = equivalence.table(class, images).unwrap();
    nodes.iter().filter(|slot| table.get(**slot, all.revision(**slot), (0, false)).is_some()).count()
}

#[test]
fn the_next_pod_of_a_class_is_judged_by_nodes_that_changed() {
    let mut core = core(&["a", "b", "c"]);
    let later = |core: &mut Core| core.next(LATER).map(drop);
    for name in ["p", "q", "r", "s"] {
        core.handle(Event::Pod(pod(name, 1, json!({}))), LATER);
    }
    assert_eq!(remembered(&mut core, "s"), 0);
    later(&mut core);
    assert_eq!(remembered(&mut core, "s"), 2, "the pod's own node has changed since");
    // Whatever changes a node makes its verdict void.
    let cordoned = NodeView { unschedulable: true, ..node("b") };
    core.handle(Event::Node(node("b")), LATER);
    let before = remembered(&mut core, "s");
    core.handle(Event::Node(cordoned), LATER);
    core.handle(Event::Report("c".into(), report([8, 8], &[])), LATER);
    assert!(remembered(&mut core, "s") < before);
    let nodes: Vec<String> = decide(&mut core, LATER);
    assert!(nodes.iter().all(|line| !line.ends_with("b")), "{nodes:?}");
}

#[test]
fn another_class_and_a_lone_pod_have_tables_of_their_own_or_none() {
    let mut core = core(&["a", "b"]);
    for (name, cpus) in [("p", 1), ("q", 2), ("r", 2)] {
        core.handle(Event::Pod(pod(name, cpus, json!({}))), LATER);
    }
    core.next(LATER).unwrap();
    assert_eq!(remembered(&mut core, "r"), 0, "p was alone");
    core.next(LATER).unwrap();
    assert_eq!(remembered(&mut core, "r"), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// Few classes, so that most verdicts are remembered ones.
    #[test]
    fn the_cache_changes_no_decision(steps in prop::collection::vec(step(), 1..80)) {
        let run = |remembers: bool| {
            let mut core = core(&["n0", "n1", "n2"]);
            if !remembers {
                core.equivalence = EquivalenceCache::disabled();
                core.victims = EquivalenceCache::disabled();
            }
            let mut world = World::default();
            for step in &steps {
                let step = match step {
                    Step::Create(pod, cpus) => Step::Create(*pod, 1 + cpus % 2 * 2),
                    other => other.clone(),
                };
                world.apply(&mut core, &step);
            }
            (world.pods, decide(&mut core, LATER + world.now))
        };
        prop_assert_eq!(run(true), run(false));
    }
}
