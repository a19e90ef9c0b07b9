//! What is counted on while a report is unexplained.
//!
//! In: a world, the report. Out: amounts of which each is that of the report or of the world, the smaller. Never: a
//! change of the ledger.
//!
//! The report may count pods that the ledger does not know, and the ledger pods that the report does not. Cost: rows.

use std::borrow::Cow;

use super::location::{charge, release};
use super::{Amounts, Ledger, Stage, World};

impl Ledger {
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
