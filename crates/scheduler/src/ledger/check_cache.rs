//! What checks and scores ask of a ledger again and again between two events, in one place in memory.
//!
//! In: a ledger. Out: whether pods are on their way, a certain yes for most pods that fit, and the zone score. Never: a
//! no; that takes a look at each world (`check`).
//!
//! Cost: the rows and zones once after each event. Then a look at a node takes a few neighbouring cache lines, while
//! worlds, their managers and the report are many.

use topology::kubelet::zone_table::ZoneSummary;
use topology::policy::{Rules, Scope};
use topology::request::PodNeeds;
use topology::score::{Strategy, ZoneScorer};

use super::Ledger;
use super::row::Row;

/// What is known until the next event.
#[derive(Clone, Debug)]
#[repr(C)] // in the order in which it is read
pub(super) struct CheckCache {
    /// How the node aligns pods.
    rules: Rules,
    /// Whether the kubelet may not have seen a pod yet.
    has_unseen: bool,
    /// The zones, if a certain yes needs nothing else: one world by ids, all reports explained, and a policy that keeps
    /// pods in the zones that they prefer.
    zones: Option<ZoneSummary>,
}

impl Ledger {
    /// An event comes, after which what was known of the ledger is not.
    pub(super) fn changes(&mut self) {
        self.revision += 1;
        self.cache.take();
    }

    fn cached(&self) -> &CheckCache {
        self.cache.get_or_init(|| CheckCache {
            rules: self.topology.as_ref().map(|topology| topology.rules).unwrap_or_default(),
            has_unseen: self.rows.iter().any(Row::is_unseen),
            zones: self.zone_summary(),
        })
    }

    fn zone_summary(&self) -> Option<ZoneSummary> {
        let rules = self.topology.as_ref()?.rules;
        let [world] = &*self.worlds else { return None };
        let is_certain = rules.policy.enforces() && !self.report_lost && self.unexplained.is_none();
        world.amounts.zone_summary().filter(|_| is_certain)
    }

    /// Whether the kubelet may not have seen a pod yet.
    pub(crate) fn has_unseen(&self) -> bool {
        self.cached().has_unseen
    }

    /// Whether one zone has all that the pod asks for, whatever leaves meanwhile. A pod of several containers that are
    /// aligned one by one depends on what leaves.
    pub(super) fn has_certain_room(&self, needs: &PodNeeds) -> bool {
        let CheckCache { rules, zones, .. } = self.cached();
        (needs.containers.len() == 1 || rules.scope == Scope::Pod)
            && zones.as_ref().is_some_and(|zones| zones.holds(needs))
    }

    /// Whether it is known at once that the kubelet's policy enforces alignment.
    pub(crate) fn is_enforced(&self) -> bool {
        self.cached().zones.is_some()
    }

    /// The zone score by the first possible world; `None` if that rests on no report.
    #[must_use]
    pub fn score(&self, scorer: &ZoneScorer<'_>) -> Option<i64> {
        if let CheckCache { rules, zones: Some(zones), .. } = self.cached()
            && let Some(score) = scorer.score_zones(rules.scope, &zones.amounts())
        {
            return Some(score);
        }
        let topology = self.topology().filter(|_| !self.report_lost)?;
        // By the other strategies upstream scores the zones of no node that enforces nothing, whichever exporter it
        // has.
        let is_least = scorer.strategy() == Strategy::LeastNumaNodes;
        match self.free() {
            Some(free) => {
                (is_least || topology.rules.policy.enforces()).then(|| scorer.score(topology, free))
            }
            // Of a node that enforces nothing and tells no ids, the report is all that is known.
            None => is_least.then(|| scorer.score(topology, &topology.available())),
        }
    }
}
