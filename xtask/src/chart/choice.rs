//! Options of which each value makes other manifests, and the conditions of templates that tell the values apart.
//!
//! In: how an option is set to each of its values, and the expression by which a template asks for it. Out: variants of
//! the options, conditions as text. Never: an object.

use std::collections::BTreeSet;

use deployer::options::Options;

/// Sets an option.
pub(super) type Set = fn(&mut Options);

/// An option. Its first value is the one that makes the most.
pub(super) struct Choice {
    /// What a template asks: true or false, or one of the words.
    subject: &'static str,
    values: Vec<(Word, Set)>,
}

/// What a subject may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Something or nothing.
    Truth(bool),
    /// A text.
    Text(&'static str),
}

/// Options whose effects meet in the same places, and so are tried in all combinations. A combination is a case, by
/// its number; 0 has the first value of each.
pub(super) struct Group(pub(super) Vec<Choice>);

/// Holds for these cases of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Test {
    pub(super) group: usize,
    pub(super) cases: BTreeSet<usize>,
}

impl Choice {
    /// An option that is on or off.
    pub(super) fn switch(subject: &'static str, on: Set, off: Set) -> Self {
        Self { subject, values: vec![(Word::Truth(true), on), (Word::Truth(false), off)] }
    }

    /// An option of several words.
    pub(super) fn words(subject: &'static str, values: &[(&'static str, Set)]) -> Self {
        Self { subject, values: values.iter().map(|(word, set)| (Word::Text(word), *set)).collect() }
    }

    /// The condition for some of the values.
    fn condition(&self, chosen: &BTreeSet<usize>) -> String {
        let subject = self.subject;
        let word = |number: &usize| match self.values[*number].0 {
            Word::Text(word) => format!("{word:?}"),
            Word::Truth(truth) => truth.to_string(),
        };
        if let (Word::Truth(_), 2, 1) = (self.values[0].0, self.values.len(), chosen.len()) {
            return if chosen.contains(&0) { subject.to_owned() } else { format!("not {subject}") };
        }
        let left: Vec<usize> = (0..self.values.len()).filter(|number| !chosen.contains(number)).collect();
        let chosen: Vec<String> = chosen.iter().map(word).collect();
        match (&*chosen, &*left) {
            ([only], _) => format!("eq {subject} {only}"),
            (_, [only]) => format!("ne {subject} {}", word(only)),
            _ => format!("has {subject} (list {})", chosen.join(" ")),
        }
    }
}

impl Group {
    /// The number of cases.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|choice| choice.values.len()).product()
    }

    /// The number of the value that each option has in a case.
    fn values(&self, case: usize) -> Vec<usize> {
        let mut rest = case;
        let mut number = |choice: &Choice| {
            let number = rest % choice.values.len();
            rest /= choice.values.len();
            number
        };
        self.0.iter().map(&mut number).collect()
    }

    /// Sets the options as in a case.
    pub(super) fn set(&self, case: usize, options: &mut Options) {
        for (choice, number) in self.0.iter().zip(self.values(case)) {
            choice.values[number].1(options);
        }
    }

    /// The condition that holds for these cases and for no other but those that cannot be; `None` if it always holds.
    pub(super) fn condition(&self, cases: &BTreeSet<usize>, impossible: &BTreeSet<usize>) -> Option<String> {
        let wanted: BTreeSet<usize> = cases.difference(impossible).copied().collect();
        let mut left = wanted.clone();
        let mut conditions = Vec::new();
        while let Some(case) = left.first().copied() {
            let allowed = self.widened(case, |other| wanted.contains(&other) || impossible.contains(&other));
            left.retain(|case| !self.covers(&allowed, *case));
            let asked = self.0.iter().zip(&allowed);
            // An option of which every value will do is not asked for.
            let asked = asked.filter(|(choice, allowed)| allowed.len() < choice.values.len());
            conditions.push(all(asked.map(|(choice, allowed)| choice.condition(allowed)).collect())?);
        }
        any(conditions)
    }

    /// The values that options may have, beginning with those of a case, so that every case of them will do.
    fn widened(&self, case: usize, will_do: impl Fn(usize) -> bool) -> Vec<BTreeSet<usize>> {
        let mut allowed: Vec<BTreeSet<usize>> =
            self.values(case).into_iter().map(|number| BTreeSet::from([number])).collect();
        for (at, choice) in self.0.iter().enumerate() {
            for number in 0..choice.values.len() {
                let mut wider = allowed.clone();
                wider[at].insert(number);
                if (0..self.len()).filter(|case| self.covers(&wider, *case)).all(&will_do) {
                    allowed = wider;
                }
            }
        }
        allowed
    }

    fn covers(&self, allowed: &[BTreeSet<usize>], case: usize) -> bool {
        self.values(case).iter().zip(allowed).all(|(number, allowed)| allowed.contains(number))
    }
}

/// The condition that all of these hold; `None` if there are none.
pub(super) fn all(mut conditions: Vec<String>) -> Option<String> {
    conditions.dedup();
    match conditions.len() {
        0 | 1 => conditions.pop(),
        _ => Some(format!("and {}", conditions.into_iter().map(bracketed).collect::<Vec<_>>().join(" "))),
    }
}

/// The condition that one of these holds.
pub(super) fn any(mut conditions: Vec<String>) -> Option<String> {
    conditions.sort();
    conditions.dedup();
    match conditions.len() {
        0 | 1 => conditions.pop(),
        _ => Some(format!("or {}", conditions.into_iter().map(bracketed).collect::<Vec<_>>().join(" "))),
    }
}

/// As an argument of a function.
fn bracketed(condition: String) -> String {
    if condition.contains(' ') && !is_one(&condition) { format!("({condition})") } else { condition }
}

/// Whether brackets that open at the beginning close at the end.
fn is_one(condition: &str) -> bool {
    let mut depth = 0;
    let closes = condition.char_indices().find(|(_, c)| {
        depth += i32::from(*c == '(') - i32::from(*c == ')');
        depth == 0
    });
    closes.is_some_and(|(at, _)| at + 1 == condition.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> Group {
        let nothing: Set = |_| {};
        Group(vec![
            Choice::switch("$.Values.a", nothing, nothing),
            Choice::words("(f $)", &[("x", nothing), ("y", nothing), ("z", nothing)]),
        ])
    }

    #[test]
    fn conditions_ask_for_no_more_than_they_must() {
        let check = |cases: &[usize], impossible: &[usize], wanted: Option<&str>| {
            let set = |numbers: &[usize]| numbers.iter().copied().collect();
            let got = group().condition(&set(cases), &set(impossible));
            assert_eq!(got.as_deref(), wanted, "{cases:?} {impossible:?}");
        };
        // Even numbers have a; 0 and 1 have x, 2 and 3 y, 4 and 5 z.
        check(&[0, 1, 2, 3, 4, 5], &[], None);
        check(&[0, 2, 4], &[], Some("$.Values.a"));
        check(&[1, 3, 5], &[], Some("not $.Values.a"));
        check(&[0, 1], &[], Some("eq (f $) \"x\""));
        check(&[0, 1, 4, 5], &[], Some("ne (f $) \"y\""));
        check(&[0], &[], Some("and $.Values.a (eq (f $) \"x\")"));
        check(&[0], &[2, 4], Some("$.Values.a"));
        check(&[0, 1, 3], &[1, 3, 4, 5], Some("ne (f $) \"y\""));
        check(
            &[0, 3],
            &[],
            Some("or (and $.Values.a (eq (f $) \"x\")) (and (not $.Values.a) (eq (f $) \"y\"))"),
        );
        check(&[0, 2, 3], &[], Some("or (and $.Values.a (ne (f $) \"z\")) (eq (f $) \"y\")"));
    }
}
