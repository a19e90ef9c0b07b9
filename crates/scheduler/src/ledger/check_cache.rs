//! What is asked of a ledger again and again between two events, in one place in memory.
//!
//! In: a ledger. Out: whether pods are on their way, a certain yes for most pods that fit, and the zone score. Never: a
//! no; that takes a look at each world (`check`).
//!
//! Cost: the rows and zones once after each event. Then a look at a node takes a few neighbouring cache lines, while
//! worlds, their managers and the report are many.

use topology::kubelet::zone_table::Room;
use topology::policy::{Rules, Scope};
use topology::request::PodNeeds;
use topology::score::{Strategy, ZoneScorer};

use super::Ledger;
use super::row::Row;

/// What is known until the next event.
#[derive(Clone, Debug)]
#[repr(C)] // in the order in which it is read
pub(super) struct Facts {
    /// How the node aligns pods.
    rules: Rules,
    /// Whether the kubelet may not have seen a pod yet.
    has_unseen: bool,
    /// The zones, if a certain yes needs nothing else: one world by ids, all reports explained, and a policy that keeps
    /// pods in the zones that they prefer.
    room: Option<Room>,
}

impl Ledger {
    /// An event comes, after which other facts hold.
    pub(super) fn changes(&mut self) {
        self.revision += 1;
        self.facts.take();
    }

    fn facts(&self) -> &Facts {
        self.facts.get_or_init(|| Facts {
            rules: self.topology.as_ref().map(|topology| topology.rules).unwrap_or_default(),
            has_unseen: self.rows.iter().any(Row::is_unseen),
            room: self.room(),
        })
    }

    fn room(&self) -> Option<Room> {
        let rules = self.topology.as_ref()?.rules;
        let [world] = &*self.worlds else { return None };
        let is_certain = rules.policy.enforces() && !self.report_lost && self.unexplained.is_none();
        world.amounts.room().filter(|_| is_certain)
    }

    /// Whether the kubelet may not have seen a pod yet.
    pub(crate) fn has_unseen(&self) -> bool {
        self.facts().has_unseen
    }

    /// Whether one zone has all that the pod asks for, whatever leaves meanwhile. A pod of several containers that are
    /// aligned one by one depends on what leaves.
    pub(super) fn has_certain_room(&self, needs: &PodNeeds) -> bool {
        let Facts { rules, room, .. } = self.facts();
        (needs.containers.len() == 1 || rules.scope == Scope::Pod)
            && room.as_ref().is_some_and(|room| room.holds(needs))
    }

    /// Whether it is known at once that the kubelet's policy enforces alignment.
    pub(crate) fn is_enforced(&self) -> bool {
        self.facts().room.is_some()
    }

    /// The zone score by the first possible world; `None` if that rests on no report.
    #[must_use]
    pub fn score(&self, scorer: &ZoneScorer<'_>) -> Option<i64> {
        if let Facts { rules, room: Some(room), .. } = self.facts()
            && let Some(score) = scorer.score_zones(rules.scope, room.zones())
        {
            return Some(score);
        }
        let topology = self.topology().filter(|_| !self.report_lost)?;
        match self.free() {
            Some(free) => Some(scorer.score(topology, free)),
            // Of a node that enforces nothing and tells no ids, the report is all that is known.
            None if scorer.strategy() == Strategy::LeastNumaNodes => {
                Some(scorer.score(topology, &topology.available()))
            }
            None => None,
        }
    }
}
