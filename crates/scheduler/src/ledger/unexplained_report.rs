//! A report that is unexplained: what is counted on meanwhile, and how long it may last at the start.
//!
//! In: a world, the report, the time. Out: amounts of which each is that of the report or of the world, the smaller.
//! Never: a node that is closed for good because its exporter names other pods than are known.
//!
//! The report may count pods that the ledger does not know, and the ledger pods that the report does not. Cost: rows.

use std::borrow::Cow;

use super::location::{charge, release};
use super::{Amounts, Ledger, Scratch, Stage, World};

impl Ledger {
    /// Whether no report was understood so far, the newest is not, and no time is set by which one must be.
    pub(crate) fn needs_explanation(&self) -> bool {
        self.unexplained.is_some() && self.worlds.is_empty() && self.explanation_due_ms.is_none()
    }

    /// By this time a report must be understood.
    pub(crate) fn expect_explanation(&mut self, due_ms: u64) {
        self.explanation_due_ms = Some(due_ms);
    }

    /// The time has come. If no report was understood, its amounts have to do: its exporter leaves pods out of the
    /// fingerprint, or counts others than the API server has. Returns whether that is so.
    pub(crate) fn give_up_fingerprint(&mut self, now_ms: u64, scratch: &mut Scratch) -> bool {
        let is_due = self.explanation_due_ms.take_if(|due| *due <= now_ms).is_some();
        let gives_up = is_due && self.unexplained.is_some() && self.worlds.is_empty();
        if gives_up {
            self.changes();
            self.goes_by_amounts = true;
            self.explain_report(scratch);
        }
        gives_up
    }

    /// The amounts of a world, and no more than an unexplained report shows. What pods hold is charged to a report that
    /// does not count them, and given back where they have left since. Of a report of unknown pods only that is known
    /// which pods it may precede: those that were pending when it came, and those after them.
    pub(super) fn cautious<'w>(&self, world: &'w World) -> Cow<'w, Amounts> {
        let Some(report) = &self.unexplained else { return Cow::Borrowed(&world.amounts) };
        let counted = self.torn.as_ref().and_then(|torn| torn.counted_by(report));
        let mut view = Amounts::Counts(report.available());
        for (row, location) in self.rows.iter().zip(&world.locations) {
            let is_released = row.stage == Stage::Released;
            match counted.map(|pods| pods.contains(&row.id)) {
                Some(true) if is_released => release(&mut view, location),
                Some(false) if !is_released => charge(&mut view, location),
                None if row.may_follow_report && !is_released => charge(&mut view, location),
                _ => {}
            }
        }
        match &mut view {
            Amounts::Counts(view) => view.meet(world.amounts.free()),
            Amounts::Ids(_) => {}
        }
        Cow::Owned(view)
    }

    /// Whether less is counted on than a world has: either may be what the kubelet has.
    pub(super) fn counts_on_less(&self, world: &World) -> bool {
        self.unexplained.is_some() && self.cautious(world).free().cells() != world.amounts.free().cells()
    }
}
