//! How often which plugin decided what.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::scheduler::case::Answer;

/// Counts of a filter, in nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FilterCount {
    /// Nodes that it refused.
    pub refused: u64,
    /// Nodes that it looked at and that fit.
    pub passed: u64,
}

/// Counts of a score, in cases in which several nodes fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScoreCount {
    /// Cases in which it told nodes apart.
    pub differing: u64,
    /// Cases in which all nodes were equal to it.
    pub equal: u64,
}

/// Counts of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Cases compared.
    pub cases: u64,
    /// Cases with a difference.
    pub unexplained: u64,
    /// Cases with a difference that docs/compatibility.md explains, by its reason.
    pub explained: BTreeMap<String, u64>,
    /// Pods that fit a node.
    pub placed: u64,
    /// Pods that fit none.
    pub refused: u64,
    /// Of those, pods for which preemption frees a node.
    pub preempting: u64,
    /// Preemptions by their number of victims.
    pub victims: BTreeMap<usize, u64>,
    /// By plugin.
    pub filters: BTreeMap<String, FilterCount>,
    /// By plugin.
    pub scores: BTreeMap<String, ScoreCount>,
}

impl Tally {
    /// Counts a case by the answer of kube-scheduler.
    pub fn count(&mut self, answer: &Answer) {
        self.cases += 1;
        *(if answer.fits.is_empty() { &mut self.refused } else { &mut self.placed }) += 1;
        if !answer.nominated.is_empty() {
            self.preempting += 1;
            *self.victims.entry(answer.victims.len()).or_default() += 1;
        }
        for refusal in answer.refused.values() {
            self.filters.entry(refusal.plugin.clone()).or_default().refused += 1;
        }
        for filter in &answer.filters {
            self.filters.entry(filter.clone()).or_default().passed += answer.fits.len() as u64;
        }
        let plugins: BTreeSet<&String> =
            answer.scores.values().flat_map(|score| score.plugins.keys()).collect();
        for plugin in plugins {
            let given: BTreeSet<_> = answer.scores.values().map(|score| score.plugins.get(plugin)).collect();
            let count = self.scores.entry(plugin.clone()).or_default();
            *(if given.len() > 1 { &mut count.differing } else { &mut count.equal }) += 1;
        }
    }

    /// Adds the counts of another part of the search.
    pub fn add(&mut self, other: Self) {
        self.cases += other.cases;
        self.unexplained += other.unexplained;
        self.placed += other.placed;
        self.refused += other.refused;
        self.preempting += other.preempting;
        for (count, times) in other.victims {
            *self.victims.entry(count).or_default() += times;
        }
        for (reason, times) in other.explained {
            *self.explained.entry(reason).or_default() += times;
        }
        for (plugin, count) in other.filters {
            let mine = self.filters.entry(plugin).or_default();
            mine.refused += count.refused;
            mine.passed += count.passed;
        }
        for (plugin, count) in other.scores {
            let mine = self.scores.entry(plugin).or_default();
            mine.differing += count.differing;
            mine.equal += count.equal;
        }
    }
}
