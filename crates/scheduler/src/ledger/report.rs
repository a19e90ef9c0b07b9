//! The report of a node: a new one, one that is gone, and one that is expected.
//!
//! In: the node's NodeResourceTopology object, as it changes. Out: the ledger with what the report tells. Never: which
//! pods it counts; the identification of pods tells that.

use std::sync::Arc;

use topology::zone::NodeTopology;

use super::verdict_basis::VerdictBasis;
use super::{Ledger, Scratch};

impl Ledger {
    /// Takes a new report about the node. Returns whether it says something else than was expected: if not, each check
    /// and each score is what it was.
    pub fn report(&mut self, topology: Arc<NodeTopology>, scratch: &mut Scratch) -> bool {
        let later = self.start.as_ref().zip(self.topology.as_ref());
        let later = later.and_then(|(start, before)| start.later(before, &topology));
        let expected = later.as_ref().and_then(|_| VerdictBasis::of(self));
        self.changes();
        self.search_pause = 0;
        self.report_lost = false;
        self.contradicts_unexplained = false;
        self.start = later.or_else(|| scratch.models.of(&topology)).map(Arc::new);
        let same_table = self.worlds.first().is_none_or(|world| {
            world.amounts.is_by_ids() == self.start.is_some()
                && world.amounts.free().layout() == topology.available().layout()
        });
        let same_rules = self.topology.as_ref().is_none_or(|old| old.rules == topology.rules);
        let is_modelled = self.start.is_some() || topology.rules.policy.enforces();
        if !is_modelled || !same_table || !same_rules {
            // Cells and predictions of the old table do not apply to the new one.
            self.worlds.clear();
            self.counts_unknown_pods = false;
            self.torn = None;
        }
        if !same_table {
            self.rows.iter_mut().for_each(|row| row.departures.clear());
        }
        if !same_table || !same_rules {
            self.rows.iter_mut().for_each(|row| row.described = false);
        }
        self.rows.iter_mut().for_each(|row| row.may_follow_report = row.stage.may_be_admitted_later());
        self.topology = Some(Arc::clone(&topology));
        if is_modelled {
            self.unexplained = Some(topology);
            self.explain_report(scratch);
        } else {
            self.unexplained = None;
            self.describe_by_amounts(&topology);
        }
        expected.is_none() || expected != VerdictBasis::of(self)
    }

    /// The report object was deleted. The worlds still hold, but no report will correct them. A node whose reports were
    /// never readable has an exporter, and may well enforce alignment.
    pub fn report_deleted(&mut self) {
        self.changes();
        self.report_lost = if self.topology.is_some() { self.is_modelled() } else { self.report_lost };
        self.unexplained = None;
    }

    /// The last report if it was given up for the object or the node, and none is expected any more. The object may be
    /// there all the same.
    pub(crate) fn lost_report(&self, now_ms: u64) -> Option<&Arc<NodeTopology>> {
        self.topology.as_ref().filter(|_| self.report_lost && now_ms >= self.report_due_ms)
    }

    /// The node's first report is expected until `due_ms`.
    pub fn expect_report(&mut self, due_ms: u64) {
        self.report_due_ms = due_ms;
    }

    /// The report cannot be read. It proves that the node has an exporter, so the node may well enforce alignment.
    pub fn report_unreadable(&mut self) {
        self.changes();
        self.report_lost = true;
        self.unexplained = None;
    }
}
