//! Many variants of the same objects as one tree with conditions.
//!
//! In: objects as the first cases of all groups make them, and as each other case of each group makes them. Out: a
//! tree from which every variant can be read. Never: a guess; where the options of two groups meet, it is an error.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{bail, ensure};
use serde_json::Value;

use super::choice::{Group, Test};

/// A value, parts of which depend on tests.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    /// Neither a map nor a list.
    Scalar(Value),
    /// Of each key the alternatives, of which at most one holds.
    Map(Vec<(String, Vec<Alternative>)>),
    /// The elements that hold.
    List(Vec<Alternative>),
}

/// What is there while all tests hold.
pub(super) type Alternative = (Vec<Test>, Node);

/// A value as one case of a group makes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variant<'a> {
    pub(super) group: usize,
    pub(super) case: usize,
    pub(super) value: &'a Value,
}

/// Merges variants of lists of objects.
pub(super) struct Merge<'g>(pub(super) &'g [Group]);

/// An element of a list by what it is in all variants: a name, or else the whole; and how many before it are the same.
type Identity = (String, usize);

/// Something that variants have and the base has not: where it is, and the cases that have it.
#[derive(Default)]
struct Added<'a>(Vec<(usize, usize, &'a Value, BTreeSet<usize>)>);

impl Merge<'_> {
    /// The tree.
    ///
    /// # Errors
    /// When options of different groups change the same value.
    pub(super) fn merge(&self, base: &Value, variants: &[Variant<'_>]) -> anyhow::Result<Vec<Alternative>> {
        let other: Vec<Variant<'_>> =
            variants.iter().copied().filter(|variant| variant.value != base).collect();
        if other.is_empty() {
            return Ok(vec![(Vec::new(), Node::of(base))]);
        }
        let all = |is: fn(&Value) -> bool| is(base) && other.iter().all(|variant| is(variant.value));
        if all(Value::is_object) {
            return Ok(vec![(Vec::new(), self.map(base, variants)?)]);
        }
        if all(Value::is_array) {
            return Ok(vec![(Vec::new(), self.list(base, variants)?)]);
        }
        let group = other[0].group;
        ensure!(
            other.iter().all(|variant| variant.group == group),
            "groups {group} and others both change {base}"
        );
        let mut added = Added::default();
        other.iter().for_each(|variant| added.add(0, variant));
        let rest = self.without(group, other.iter().map(|variant| variant.case));
        let mut alternatives = vec![(vec![rest], Node::of(base))];
        alternatives.extend(
            added
                .0
                .into_iter()
                .map(|(_, group, value, cases)| (vec![Test { group, cases }], Node::of(value))),
        );
        Ok(alternatives)
    }

    fn map(&self, base: &Value, variants: &[Variant<'_>]) -> anyhow::Result<Node> {
        let mut entries = Vec::new();
        for (key, value) in base.as_object().into_iter().flatten() {
            let (tests, with) = self.split(variants, |value| value.get(key));
            entries.push((key.clone(), conditional(&tests, self.merge(value, &with)?)));
        }
        let mut more: BTreeMap<&String, Added<'_>> = BTreeMap::new();
        for variant in variants {
            let keys = variant.value.as_object().into_iter().flatten();
            for (key, value) in keys.filter(|(key, _)| base.get(*key).is_none()) {
                more.entry(key).or_default().add(0, &Variant { value, ..*variant });
            }
        }
        for (key, Added(added)) in more {
            if added.iter().any(|(_, group, ..)| *group != added[0].1) {
                bail!("several groups add {key} to {base}");
            }
            let alternatives = added.into_iter();
            let alternatives =
                alternatives.map(|(_, group, value, cases)| (vec![Test { group, cases }], Node::of(value)));
            entries.push((key.clone(), alternatives.collect()));
        }
        Ok(Node::Map(entries))
    }

    fn list(&self, base: &Value, variants: &[Variant<'_>]) -> anyhow::Result<Node> {
        let known = identified(base);
        // Behind which element of the base something new stands; 0 is before the first.
        let mut added = Added::default();
        for variant in variants {
            let mut behind = 0;
            for (identity, value) in identified(variant.value) {
                match known.iter().position(|(other, _)| *other == identity) {
                    Some(at) => behind = at + 1,
                    None => added.add(behind, &Variant { value, ..*variant }),
                }
            }
        }
        let mut elements = added.at(0);
        for (at, (identity, value)) in known.iter().enumerate() {
            let same = |list| {
                let mut elements = identified(list).into_iter();
                elements.find(|(other, _)| other == identity).map(|(_, value)| value)
            };
            let (tests, with) = self.split(variants, same);
            elements.extend(conditional(&tests, self.merge(value, &with)?));
            elements.extend(added.at(at + 1));
        }
        Ok(Node::List(elements))
    }

    /// The variants that have a part, and the tests that hold where it is.
    fn split<'v>(
        &self,
        variants: &[Variant<'v>],
        part: impl Fn(&'v Value) -> Option<&'v Value>,
    ) -> (Vec<Test>, Vec<Variant<'v>>) {
        let mut with = Vec::new();
        let mut lacking: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for variant in variants {
            match part(variant.value) {
                Some(value) => with.push(Variant { value, ..*variant }),
                None => drop(lacking.entry(variant.group).or_default().insert(variant.case)),
            }
        }
        (self.tests(lacking), with)
    }

    fn tests(&self, lacking: BTreeMap<usize, BTreeSet<usize>>) -> Vec<Test> {
        lacking.into_iter().map(|(group, cases)| self.without(group, cases)).collect()
    }

    /// The test that holds for all other cases of a group.
    fn without(&self, group: usize, cases: impl IntoIterator<Item = usize>) -> Test {
        let cases: BTreeSet<usize> = cases.into_iter().collect();
        Test { group, cases: (0..self.0[group].len()).filter(|case| !cases.contains(case)).collect() }
    }
}

impl Node {
    /// A value that depends on nothing.
    pub(super) fn of(value: &Value) -> Self {
        let always = |value: &Value| (Vec::new(), Self::of(value));
        match value {
            Value::Object(map) => {
                Self::Map(map.iter().map(|(key, value)| (key.clone(), vec![always(value)])).collect())
            }
            Value::Array(list) => Self::List(list.iter().map(always).collect()),
            scalar => Self::Scalar(scalar.clone()),
        }
    }
}

impl<'a> Added<'a> {
    fn add(&mut self, behind: usize, variant: &Variant<'a>) {
        let Variant { group, case, value } = *variant;
        let same = self.0.iter_mut().find(|(at, of, known, _)| (*at, *of, *known) == (behind, group, value));
        match same {
            Some((.., cases)) => drop(cases.insert(case)),
            None => self.0.push((behind, group, value, BTreeSet::from([case]))),
        }
    }

    fn at(&self, behind: usize) -> Vec<Alternative> {
        let here = self.0.iter().filter(|(at, ..)| *at == behind);
        here.map(|(_, group, value, cases)| {
            (vec![Test { group: *group, cases: cases.clone() }], Node::of(value))
        })
        .collect()
    }
}

fn conditional(tests: &[Test], alternatives: Vec<Alternative>) -> Vec<Alternative> {
    let with = |(more, node): Alternative| (tests.iter().cloned().chain(more).collect(), node);
    alternatives.into_iter().map(with).collect()
}

/// The elements of a list with what they are.
fn identified(list: &Value) -> Vec<(Identity, &Value)> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let elements = list.as_array().into_iter().flatten();
    elements
        .map(|value| {
            let name = name(value);
            let count = seen.entry(name.clone()).or_default();
            *count += 1;
            ((name, *count), value)
        })
        .collect()
}

/// What an element of a list is called, whatever else is in it.
fn name(value: &Value) -> String {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
    match (text("/kind"), text("/metadata/name"), text("/name").or_else(|| text("/key"))) {
        (Some(kind), Some(name), _) => format!("{kind} {name}"),
        (_, _, Some(name)) => name.to_owned(),
        _ => value.to_string(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::super::choice::{Choice, Set};
    use super::*;

    /// What the tree is when each group has this case; parts of which no alternative holds are not there.
    pub(crate) fn read(alternatives: &[Alternative], cases: &[usize]) -> Option<Value> {
        let holds = |tests: &[Test]| tests.iter().all(|test| test.cases.contains(&cases[test.group]));
        let (_, node) = alternatives.iter().find(|(tests, _)| holds(tests))?;
        Some(match node {
            Node::Scalar(value) => value.clone(),
            Node::Map(entries) => {
                let read = |(key, of): &(String, Vec<_>)| Some((key.clone(), read(of, cases)?));
                let map: serde_json::Map<String, Value> = entries.iter().filter_map(read).collect();
                return Some(map).filter(|map| !map.is_empty() || entries.is_empty()).map(Value::Object);
            }
            Node::List(elements) => {
                let each = elements.iter().filter_map(|one| read(std::slice::from_ref(one), cases));
                let list: Vec<Value> = each.collect();
                return Some(list).filter(|list| !list.is_empty() || elements.is_empty()).map(Value::Array);
            }
        })
    }

    #[test]
    fn each_variant_can_be_read_back() {
        let nothing: Set = |_| {};
        let switch = || Group(vec![Choice::switch("$.Values.a", nothing, nothing)]);
        let groups = [switch(), switch()];
        let base = json!({"args": ["a", "b", "c"], "env": [{"name": "x", "value": 1}], "on": {"deep": true}});
        let first =
            json!({"args": ["a", "d", "c"], "env": [{"name": "x", "value": 2}], "on": {"deep": true}});
        let second = json!({"args": ["b", "c", "e"], "env": [{"name": "x", "value": 1}], "more": 1});
        let variants =
            [Variant { group: 0, case: 1, value: &first }, Variant { group: 1, case: 1, value: &second }];
        let tree = Merge(&groups).merge(&base, &variants).unwrap();
        for (cases, wanted) in [([0, 0], &base), ([1, 0], &first), ([0, 1], &second)] {
            assert_eq!(read(&tree, &cases).as_ref(), Some(wanted));
        }
        let both = json!({"args": ["d", "c", "e"], "env": [{"name": "x", "value": 2}], "more": 1});
        assert_eq!(read(&tree, &[1, 1]), Some(both));
    }

    #[test]
    fn options_that_meet_are_not_merged() {
        let nothing: Set = |_| {};
        let switch = || Group(vec![Choice::switch("$.Values.a", nothing, nothing)]);
        let [base, first, second] = [json!(1), json!(2), json!(3)];
        let variants =
            [Variant { group: 0, case: 1, value: &first }, Variant { group: 1, case: 1, value: &second }];
        let error = Merge(&[switch(), switch()]).merge(&base, &variants).unwrap_err();
        assert_eq!(error.to_string(), "groups 0 and others both change 1");
    }
}
