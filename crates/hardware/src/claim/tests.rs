//! Tables of assignments; random histories compared with a table built from scratch.

use proptest::prelude::*;

use std::collections::BTreeSet;

use super::*;

const LABEL: &str = "claim";

fn claimant(name: &str, age: i64, selector: &str, deleting: bool) -> Claimant {
    let labels = selector.split(',').filter_map(|one| one.split_once('='));
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Claimant {
        id: Id::new("hw", name),
        claim: format!("hw.{name}"),
        created: Timestamp::from_second(age).unwrap(),
        selector: match selector {
            "*" => Selector::All,
            "" => Selector::None,
            _ => Selector::Labels(labels.collect()),
        },
        deleting,
    }
}

fn labels(text: &str) -> Labels {
    let pairs = text.split(',').filter_map(|one| one.split_once('='));
    pairs.map(|(key, value)| (key.into(), value.into())).collect()
}

fn claims(nodes: &BTreeMap<Arc<str>, Labels>, claimants: &[Claimant]) -> Claims {
    let mut claims = Claims::new(LABEL);
    for (name, labels) in nodes {
        claims.put_node(name, labels);
    }
    for claimant in claimants {
        claims.put(claimant.clone(), nodes.iter());
    }
    claims
}

#[test]
fn each_node_is_assigned_by_itself() {
    let id = |name| Id::new("hw", name);
    let table = [
        ("", Assignment::Free),
        ("a=1", Assignment::Claimable(id("old"))),
        ("b=1", Assignment::Claimable(id("young"))),
        ("a=1,b=1", Assignment::Claimable(id("old"))),
        ("a=1,b=1,claim=hw.young", Assignment::Held(id("young"))),
        (
            "a=1,claim=hw.young",
            Assignment::Ending { owner: id("young"), next: Some(id("old")), deleting: false },
        ),
        ("claim=hw.young", Assignment::Ending { owner: id("young"), next: None, deleting: false }),
        (
            "a=1,c=1,claim=hw.gone",
            Assignment::Ending { owner: id("gone"), next: Some(id("old")), deleting: true },
        ),
        ("c=1", Assignment::Free),
        ("claim=hw.unknown", Assignment::Orphaned),
        ("a=1,claim=hw.unknown", Assignment::Claimable(id("old"))),
        ("a=1,claim=hw.odd", Assignment::Held(id("odd"))),
    ];
    let all = [
        claimant("young", 2, "b=1", false),
        claimant("old", 1, "a=1", false),
        claimant("gone", 0, "c=1", true),
        claimant("odd", 0, "", false),
    ];
    for (text, wanted) in table {
        let nodes = BTreeMap::from([("n".into(), labels(text))]);
        assert_eq!(claims(&nodes, &all).assignment("n"), wanted, "{text}");
    }
}

#[test]
fn claimants_of_equal_age_are_ordered_by_name() {
    let nodes = BTreeMap::from([("n".into(), labels("a=1"))]);
    let all = [claimant("z", 1, "a=1", false), claimant("b", 1, "*", false)];
    assert_eq!(claims(&nodes, &all).assignment("n"), Assignment::Claimable(Id::new("hw", "b")));
}

#[test]
fn conflicts_are_reported_to_both_sides_only() {
    let nodes = BTreeMap::from([
        ("both".into(), labels("a=1,b=1")),
        ("held".into(), labels("a=1,b=1,claim=hw.young")),
        ("one".into(), labels("a=1")),
        ("third".into(), labels("c=1")),
    ]);
    let all = [
        claimant("old", 1, "a=1", false),
        claimant("young", 2, "b=1", false),
        claimant("third", 3, "c=1", false),
        claimant("deleting", 0, "*", true),
    ];
    let claims = claims(&nodes, &all);
    let conflict = |other: &str, node: &str, won| Conflict {
        other: Id::new("hw", other),
        nodes: vec![node.to_owned()],
        won,
    };
    let of = |name| claims.conflicts(&Id::new("hw", name));
    assert_eq!(of("old"), [conflict("young", "held", false), conflict("young", "both", true)]);
    assert_eq!(of("young"), [conflict("old", "both", false), conflict("old", "held", true)]);
    assert_eq!(of("third"), []);
}

#[test]
fn a_change_reports_affected_configs_only() {
    let nodes = BTreeMap::from([("one".into(), labels("a=1")), ("two".into(), labels("b=1"))]);
    let all =
        [claimant("a", 1, "a=1", false), claimant("b", 2, "b=1", false), claimant("far", 3, "x=1", false)];
    let mut claims = claims(&nodes, &all);
    let ids = |names: &[&str]| names.iter().map(|name| Id::new("hw", name)).collect::<BTreeSet<_>>();
    // New labels of the node, affected DeviceConfigs.
    for (text, wanted) in [
        ("a=1", ids(&[])),
        ("a=1,other=2", ids(&[])),
        ("a=1,claim=hw.a", ids(&["a"])),
        ("b=1,claim=hw.a", ids(&["a", "b"])),
        ("b=1", ids(&["a", "b"])),
        ("q=1", ids(&["b"])),
    ] {
        assert_eq!(claims.put_node(&"one".into(), &labels(text)), wanted, "{text}");
    }
    // DeviceConfigs with overlapping selectors are affected, too.
    claims.put(claimant("other", 4, "b=2", false), nodes.iter());
    let far = claimant("far", 3, "b=1", false);
    assert_eq!(claims.put(far, nodes.iter()), ids(&["a", "b", "far", "other"]));
    assert_eq!(claims.remove(&Id::new("hw", "far")), ids(&["a", "b"]));
    assert_eq!(claims.remove(&Id::new("hw", "far")), ids(&[]));
}

#[test]
fn selectors_overlap_unless_a_label_needs_two_values() {
    let all = [
        claimant("one", 1, "a=1", false),
        claimant("two", 2, "a=2", false),
        claimant("both", 3, "a=1,b=1", false),
        claimant("other", 4, "b=1", false),
        claimant("all", 5, "*", false),
        claimant("none", 6, "", false),
        claimant("deleting", 7, "*", true),
    ];
    let claims = claims(&BTreeMap::new(), &all);
    for (name, wanted) in [
        ("one", ["all", "both", "other"].as_slice()),
        ("two", &["all", "other"]),
        ("both", &["all", "one", "other"]),
        ("all", &["both", "one", "other", "two"]),
        ("none", &[]),
        ("deleting", &[]),
        ("missing", &[]),
    ] {
        let found: Vec<&str> =
            claims.may_overlap(&Id::new("hw", name)).map(|other| other.name.as_str()).collect();
        assert_eq!(found, wanted, "{name}");
    }
}

/// A change of the cluster.
#[derive(Clone, Debug)]
enum Change {
    Config(usize, i64, String, bool),
    NoConfig(usize),
    Node(usize, String),
    NoNode(usize),
    /// The assignment is written to this node.
    Settle(usize),
}

fn selector() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("*".to_owned()),
        Just("a=1".to_owned()),
        Just("b=1".to_owned()),
        Just("a=1,b=1".to_owned()),
        Just("a=2".to_owned()),
        Just(String::new()),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let labels =
        prop_oneof![Just("a=1"), Just("b=1"), Just("a=1,b=1"), Just("a=2,b=1"), Just("x=1"), Just("")];
    prop_oneof![
        (0..4_usize, 0..4_i64, selector(), prop::bool::weighted(0.2))
            .prop_map(|(which, age, selector, deleting)| Change::Config(which, age, selector, deleting)),
        (0..4_usize).prop_map(Change::NoConfig),
        (0..4_usize, labels).prop_map(|(which, labels)| Change::Node(which, labels.to_owned())),
        (0..4_usize).prop_map(Change::NoNode),
        (0..4_usize).prop_map(Change::Settle),
        (0..4_usize).prop_map(Change::Settle),
    ]
}

/// The cluster as the test has it, and the claims that follow it.
#[derive(Default)]
struct Model {
    nodes: BTreeMap<Arc<str>, Labels>,
    claimants: BTreeMap<Id, Claimant>,
}

impl Model {
    fn play(&mut self, claims: &mut Claims, change: Change) {
        let node = |which: usize| Arc::<str>::from(format!("n{which}"));
        match change {
            Change::Config(which, age, selector, deleting) => {
                let one = claimant(&format!("c{which}"), age, &selector, deleting);
                self.claimants.insert(one.id.clone(), one.clone());
                claims.put(one, self.nodes.iter());
            }
            Change::NoConfig(which) => {
                let id = Id::new("hw", &format!("c{which}"));
                self.claimants.remove(&id);
                claims.remove(&id);
            }
            Change::Node(which, text) => {
                let mut labels = labels(&text);
                let claim = self.nodes.get(&node(which)).and_then(|labels| labels.get(LABEL));
                labels.extend(claim.map(|claim| (LABEL.into(), Arc::clone(claim))));
                claims.put_node(&node(which), &labels);
                self.nodes.insert(node(which), labels);
            }
            Change::NoNode(which) => {
                self.nodes.remove(&node(which));
                claims.remove_node(&node(which));
            }
            Change::Settle(which) => self.settle(claims, &node(which)),
        }
    }

    fn settle(&mut self, claims: &mut Claims, node: &Arc<str>) {
        let Some(labels) = self.nodes.get_mut(node) else { return };
        let before = labels.get(LABEL).map(|claim| claim.to_string());
        match claims.assignment(node) {
            Assignment::Claimable(id) => {
                let known = before.is_some_and(|claim| self.claimants.values().any(|one| one.claim == claim));
                assert!(!known, "a known claim is never taken away");
                let claim = self.claimants[&id].claim.as_str();
                labels.insert(LABEL.into(), claim.into());
            }
            Assignment::Ending { owner, deleting: false, .. } => {
                assert!(!self.claimants[&owner].selector.matches(labels));
                labels.remove(LABEL);
            }
            Assignment::Orphaned => drop(labels.remove(LABEL)),
            Assignment::Held(owner) => assert_eq!(before.as_ref(), Some(&self.claimants[&owner].claim)),
            Assignment::Ending { deleting: true, .. } | Assignment::Free => {}
        }
        claims.put_node(node, labels);
    }
}

proptest! {
    /// Any history gives the table built from scratch; an owner keeps its node while it matches.
    #[test]
    fn the_history_has_no_influence(changes in prop::collection::vec(change(), 1..60)) {
        let (mut model, mut history) = (Model::default(), Claims::new(LABEL));
        for change in changes {
            model.play(&mut history, change);
            let mut all: Vec<Claimant> = model.claimants.values().cloned().collect();
            all.reverse();
            let scratch = claims(&model.nodes, &all);
            for name in model.nodes.keys() {
                prop_assert_eq!(scratch.assignment(name), history.assignment(name));
            }
            for id in model.claimants.keys() {
                prop_assert_eq!(scratch.conflicts(id), history.conflicts(id));
                prop_assert!(scratch.matching(id).eq(history.matching(id)));
            }
            prop_assert!(scratch.orphaned().eq(history.orphaned()));
        }
    }

    /// After all assignments are written none changes, and each node has the claim of a matching DeviceConfig, if any.
    #[test]
    fn it_settles(changes in prop::collection::vec(change(), 1..60)) {
        let (mut model, mut claims) = (Model::default(), Claims::new(LABEL));
        for change in changes {
            model.play(&mut claims, change);
        }
        for _ in 0..2 {
            (0..4).for_each(|which| model.play(&mut claims, Change::Settle(which)));
        }
        for (name, labels) in &model.nodes {
            let staying = model.claimants.values().any(|one| !one.deleting && one.selector.matches(labels));
            match claims.assignment(name) {
                Assignment::Held(owner) => {
                    let selector = &model.claimants[&owner].selector;
                    prop_assert!(*selector == Selector::None || selector.matches(labels));
                }
                Assignment::Ending { deleting: true, .. } => {}
                Assignment::Free => prop_assert!(!staying),
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
