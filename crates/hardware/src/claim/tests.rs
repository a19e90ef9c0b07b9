//! Tables of verdicts, and random histories held against a count from scratch.

use proptest::prelude::*;

use super::*;

const LABEL: &str = "claim";

fn claimant(name: &str, age: i64, selector: &str, leaving: bool) -> Claimant {
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
        leaving,
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
fn each_node_is_decided_on_its_own() {
    let id = |name| Id::new("hw", name);
    let table = [
        ("", Verdict::Free),
        ("a=1", Verdict::Open(id("old"))),
        ("b=1", Verdict::Open(id("young"))),
        ("a=1,b=1", Verdict::Open(id("old"))),
        ("a=1,b=1,claim=hw.young", Verdict::Held(id("young"))),
        ("a=1,claim=hw.young", Verdict::Ending { owner: id("young"), heir: Some(id("old")) }),
        ("claim=hw.young", Verdict::Ending { owner: id("young"), heir: None }),
        ("a=1,c=1,claim=hw.gone", Verdict::Leaving { owner: id("gone"), heir: Some(id("old")) }),
        ("c=1", Verdict::Free),
        ("claim=hw.unknown", Verdict::Stale),
        ("a=1,claim=hw.unknown", Verdict::Open(id("old"))),
        ("a=1,claim=hw.odd", Verdict::Held(id("odd"))),
    ];
    let all = [
        claimant("young", 2, "b=1", false),
        claimant("old", 1, "a=1", false),
        claimant("gone", 0, "c=1", true),
        claimant("odd", 0, "", false),
    ];
    for (text, wanted) in table {
        let nodes = BTreeMap::from([("n".into(), labels(text))]);
        assert_eq!(claims(&nodes, &all).verdict("n"), wanted, "{text}");
    }
}

#[test]
fn of_the_same_age_the_first_by_name_comes_first() {
    let nodes = BTreeMap::from([("n".into(), labels("a=1"))]);
    let all = [claimant("z", 1, "a=1", false), claimant("b", 1, "*", false)];
    assert_eq!(claims(&nodes, &all).verdict("n"), Verdict::Open(Id::new("hw", "b")));
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
        claimant("leaving", 0, "*", true),
    ];
    let claims = claims(&nodes, &all);
    let told = |other: &str, node: &str, won| Conflict {
        other: Id::new("hw", other),
        nodes: vec![node.to_owned()],
        won,
    };
    let of = |name| claims.conflicts(&Id::new("hw", name));
    assert_eq!(of("old"), [told("young", "held", false), told("young", "both", true)]);
    assert_eq!(of("young"), [told("old", "both", false), told("old", "held", true)]);
    assert_eq!(of("third"), []);
}

#[test]
fn only_who_is_concerned_hears_of_a_change() {
    let nodes = BTreeMap::from([("one".into(), labels("a=1")), ("two".into(), labels("b=1"))]);
    let all =
        [claimant("a", 1, "a=1", false), claimant("b", 2, "b=1", false), claimant("far", 3, "x=1", false)];
    let mut claims = claims(&nodes, &all);
    let ids = |names: &[&str]| names.iter().map(|name| Id::new("hw", name)).collect::<BTreeSet<_>>();
    // what the node becomes -> who hears of it
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
    // Whose selectors may meet, too, but for those that contradict each other.
    claims.put(claimant("other", 4, "b=2", false), nodes.iter());
    let far = claimant("far", 3, "b=1", false);
    assert_eq!(claims.put(far, nodes.iter()), ids(&["a", "b", "far", "other"]));
    assert_eq!(claims.remove(&Id::new("hw", "far")), ids(&["a", "b"]));
    assert_eq!(claims.remove(&Id::new("hw", "far")), ids(&[]));
}

#[test]
fn selectors_meet_unless_a_label_would_need_two_values() {
    let all = [
        claimant("one", 1, "a=1", false),
        claimant("two", 2, "a=2", false),
        claimant("both", 3, "a=1,b=1", false),
        claimant("other", 4, "b=1", false),
        claimant("all", 5, "*", false),
        claimant("none", 6, "", false),
        claimant("leaving", 7, "*", true),
    ];
    let claims = claims(&BTreeMap::new(), &all);
    for (name, wanted) in [
        ("one", ["all", "both", "other"].as_slice()),
        ("two", &["all", "other"]),
        ("both", &["all", "one", "other"]),
        ("all", &["both", "one", "other", "two"]),
        ("none", &[]),
        ("leaving", &[]),
        ("nobody", &[]),
    ] {
        let found: Vec<&str> =
            claims.may_meet(&Id::new("hw", name)).map(|other| other.name.as_str()).collect();
        assert_eq!(found, wanted, "{name}");
    }
}

/// Something that happens.
#[derive(Clone, Debug)]
enum Change {
    Config(usize, i64, String, bool),
    NoConfig(usize),
    Node(usize, String),
    NoNode(usize),
    /// Whatever is decided is done on this node.
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
            .prop_map(|(which, age, selector, leaving)| Change::Config(which, age, selector, leaving)),
        (0..4_usize).prop_map(Change::NoConfig),
        (0..4_usize, labels).prop_map(|(which, labels)| Change::Node(which, labels.to_owned())),
        (0..4_usize).prop_map(Change::NoNode),
        (0..4_usize).prop_map(Change::Settle),
        (0..4_usize).prop_map(Change::Settle),
    ]
}

/// The world as the test has it, and the claims that follow it.
#[derive(Default)]
struct Model {
    nodes: BTreeMap<Arc<str>, Labels>,
    claimants: BTreeMap<Id, Claimant>,
}

impl Model {
    fn play(&mut self, claims: &mut Claims, change: Change) {
        let node = |which: usize| Arc::<str>::from(format!("n{which}"));
        match change {
            Change::Config(which, age, selector, leaving) => {
                let one = claimant(&format!("c{which}"), age, &selector, leaving);
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
        match claims.verdict(node) {
            Verdict::Open(id) => {
                let known = before.is_some_and(|claim| self.claimants.values().any(|one| one.claim == claim));
                assert!(!known, "a known claim is never taken away");
                let claim = self.claimants[&id].claim.as_str();
                labels.insert(LABEL.into(), claim.into());
            }
            Verdict::Ending { owner, .. } => {
                assert!(!self.claimants[&owner].selector.matches(labels));
                labels.remove(LABEL);
            }
            Verdict::Stale => drop(labels.remove(LABEL)),
            Verdict::Held(owner) => assert_eq!(before.as_ref(), Some(&self.claimants[&owner].claim)),
            Verdict::Leaving { .. } | Verdict::Free => {}
        }
        claims.put_node(node, labels);
    }
}

proptest! {
    /// Any history gives the same as a count from scratch; an owner keeps its node while it matches.
    #[test]
    fn histories_do_not_matter(changes in prop::collection::vec(change(), 1..60)) {
        let (mut model, mut history) = (Model::default(), Claims::new(LABEL));
        for change in changes {
            model.play(&mut history, change);
            let mut all: Vec<Claimant> = model.claimants.values().cloned().collect();
            all.reverse();
            let scratch = claims(&model.nodes, &all);
            for name in model.nodes.keys() {
                prop_assert_eq!(scratch.verdict(name), history.verdict(name));
            }
            for id in model.claimants.keys() {
                prop_assert_eq!(scratch.conflicts(id), history.conflicts(id));
                prop_assert!(scratch.matching(id).eq(history.matching(id)));
            }
            prop_assert!(scratch.unknown().eq(history.unknown()));
        }
    }

    /// Once everything is decided nothing is left to decide, and each node has the claim of one who matches, if there
    /// is one.
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
            let staying = model.claimants.values().any(|one| !one.leaving && one.selector.matches(labels));
            match claims.verdict(name) {
                Verdict::Held(owner) => {
                    let selector = &model.claimants[&owner].selector;
                    prop_assert!(*selector == Selector::None || selector.matches(labels));
                }
                Verdict::Leaving { .. } => {}
                Verdict::Free => prop_assert!(!staying),
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
