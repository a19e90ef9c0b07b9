//! Which specs run at the same time.
//!
//! In: specs in their order, with the nodes that each may use; how many may run at once. Out: the next spec that may
//! begin, with its nodes. Never: two specs on one node, or a spec beside one that changes the whole cluster.
//!
//! Cost: a look at each waiting spec and its nodes for each spec that begins.

use std::collections::BTreeSet;

/// What a spec asks of the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRequest {
    /// Whether it changes more than its own nodes.
    pub alone: bool,
    /// The fewest nodes with which it can be tried.
    pub least: usize,
    /// Groups of nodes; it may have nodes of one of them. Preferred ones come first.
    pub groups: Vec<Vec<String>>,
}

/// A spec that may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Its place among the specs.
    pub spec: usize,
    /// Its nodes.
    pub nodes: Vec<String>,
    alone: bool,
}

/// Specs that wait, and nodes in use.
#[derive(Debug)]
pub struct Lanes {
    most: usize,
    waiting: Vec<(usize, NodeRequest)>,
    running: usize,
    busy: BTreeSet<String>,
    is_alone: bool,
}

impl Lanes {
    /// All specs wait; `most` run at a time.
    #[must_use]
    pub fn new(most: usize, requests: impl IntoIterator<Item = NodeRequest>) -> Self {
        let waiting = requests.into_iter().enumerate().collect();
        Self { most: most.max(1), waiting, running: 0, busy: BTreeSet::new(), is_alone: false }
    }

    /// The first waiting spec that may begin now.
    pub fn begin(&mut self) -> Option<Turn> {
        if self.is_alone || self.running >= self.most {
            return None;
        }
        let found = self.waiting.iter().enumerate().find_map(|(at, (spec, request))| {
            let nodes = self.nodes(request)?;
            Some((at, Turn { spec: *spec, nodes, alone: request.alone }))
        });
        let (at, turn) = found?;
        self.waiting.remove(at);
        self.running += 1;
        self.is_alone = turn.alone;
        self.busy.extend(turn.nodes.iter().cloned());
        Some(turn)
    }

    /// A spec has ended.
    pub fn ended(&mut self, turn: &Turn) {
        self.running -= 1;
        self.is_alone = false;
        for node in &turn.nodes {
            self.busy.remove(node);
        }
    }

    /// The nodes that a spec would get now. One spec at a time has a whole group; specs beside each other have as few
    /// as they need.
    fn nodes(&self, request: &NodeRequest) -> Option<Vec<String>> {
        if request.alone && self.running > 0 {
            return None;
        }
        let is_whole = request.alone || self.most == 1;
        let fitting = request.groups.iter().find_map(|group| {
            let free: Vec<&String> = group.iter().filter(|node| !self.busy.contains(*node)).collect();
            let wanted = if is_whole { group.len() } else { request.least };
            (free.len() >= wanted).then(|| free.into_iter().take(wanted).cloned().collect())
        });
        fitting.or_else(|| request.groups.is_empty().then(Vec::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(alone: bool, least: usize, groups: &[&[&str]]) -> NodeRequest {
        let group = |group: &&[&str]| group.iter().map(|node| (*node).to_owned()).collect();
        NodeRequest { alone, least, groups: groups.iter().map(group).collect() }
    }

    /// Specs as they begin until none may, with their nodes.
    fn begin(lanes: &mut Lanes) -> Vec<Turn> {
        std::iter::from_fn(|| lanes.begin()).collect()
    }

    fn words(turns: &[Turn]) -> Vec<String> {
        turns.iter().map(|turn| format!("{}:{}", turn.spec, turn.nodes.join(""))).collect()
    }

    #[test]
    fn specs_run_beside_each_other_where_they_do_not_meet() {
        let (container, pod): (&[&str], &[&str]) = (&["a", "b"], &["c", "d"]);
        let either = request(false, 2, &[container, pod]);
        let requests = [
            request(false, 2, &[container]),
            request(false, 2, &[container]),
            either.clone(),
            request(true, 0, &[]),
            request(false, 0, &[]),
            either,
        ];
        let cases: [(usize, &[&[&str]]); 2] = [
            (1, &[&["0:ab"], &["1:ab"], &["2:ab"], &["3:"], &["4:"], &["5:ab"]]),
            (3, &[&["0:ab", "2:cd", "4:"], &["1:ab", "5:cd"], &["3:"]]),
        ];
        for (most, rounds) in cases {
            let mut lanes = Lanes::new(most, requests.clone());
            for round in rounds {
                let turns = begin(&mut lanes);
                assert_eq!(words(&turns), *round, "{most} at a time");
                turns.iter().for_each(|turn| lanes.ended(turn));
            }
            assert_eq!(begin(&mut lanes), [], "{most} at a time");
        }
    }

    #[test]
    fn large_groups_are_shared_and_nothing_begins_beside_a_spec_that_is_alone() {
        let group: &[&str] = &["a", "b", "c", "d", "e"];
        let pair = request(false, 2, &[group]);
        let mut lanes = Lanes::new(8, [pair.clone(), pair.clone(), pair, request(true, 2, &[group])]);
        let first = begin(&mut lanes);
        assert_eq!(words(&first), ["0:ab", "1:cd"]);
        lanes.ended(&first[0]);
        let third = begin(&mut lanes);
        assert_eq!(words(&third), ["2:ab"]);
        lanes.ended(&first[1]);
        assert_eq!(begin(&mut lanes), []);
        lanes.ended(&third[0]);
        assert_eq!(words(&begin(&mut lanes)), ["3:abcde"]);
    }
}
