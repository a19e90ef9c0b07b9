//! Torn reports: made of amounts, in the middle of an admission or of an end, so that one pod is shown in part.
//!
//! In: a report that no world agrees with, and what each world expected. Out: whether one pod explains the difference.
//! Never: a pod that has been there before this report, and stays.
//!
//! The kubelet hands out devices, CPUs and memory one after the other, and an exporter's call may come in between: a
//! pod counts with its CPUs and without its memory, or, where CPUs decide which pods count, its memory is shown of a
//! pod that does not count. The same happens when a pod ends during the call (kubelet 1.36 podresources `List` asks
//! each manager about each container).
//!
//! A torn report takes no world's place. But the difference may be real, and nothing may change after it: it stays
//! unexplained, so that no pod counts on more room than it shows, until another report comes. A pod that ends by itself
//! and still counts excuses one report: its end brings the next.
//!
//! Cost: worlds x rows on their way x cells.

use std::collections::BTreeSet;
use std::sync::Arc;

use topology::zone::{Free, NodeTopology};

use crate::ledger::{Held, Ledger, Location, PodId, Row, Stage};

/// Most reports one after the other that are taken for torn. The next one is believed.
const MAX_TORN: u8 = 3;

/// Reports one after the other that were taken for torn.
#[derive(Clone, Debug)]
pub(in crate::ledger) struct TornReports {
    newest: Arc<NodeTopology>,
    /// The pods that the newest counts.
    counted: Arc<BTreeSet<PodId>>,
    number: u8,
}

impl TornReports {
    /// The pods that a report counts, if it is the newest of these.
    pub(in crate::ledger) fn counted_by(&self, report: &Arc<NodeTopology>) -> Option<&BTreeSet<PodId>> {
        Arc::ptr_eq(&self.newest, report).then_some(&*self.counted)
    }
}

impl Ledger {
    /// Whether the report, which no world agrees with, is taken for torn. `expected`: the numbers of each world;
    /// `members`: the rows that the report counts.
    pub(super) fn is_torn(
        &mut self,
        report: &Arc<NodeTopology>,
        (expected, free): (&[Option<Free>], &Free),
        members: &[bool],
    ) -> bool {
        let number = match &self.torn {
            // An event has come since.
            Some(torn) if Arc::ptr_eq(&torn.newest, report) => torn.number,
            Some(torn) => torn.number + 1,
            None => 1,
        };
        let is_first = number == 1;
        let is_torn = number <= MAX_TORN && self.is_shown_in_part((expected, free), members, is_first);
        self.torn = is_torn.then(|| {
            let counted = self.rows.iter().zip(members).filter(|(_, member)| **member);
            let counted = Arc::new(counted.map(|(row, _)| row.id).collect());
            TornReports { newest: Arc::clone(report), counted, number }
        });
        is_torn
    }

    /// The rows that a report counts, if it was taken for torn before.
    pub(super) fn members_of_torn(&self, report: &Arc<NodeTopology>) -> Option<Vec<bool>> {
        let counted = self.torn.as_ref()?.counted_by(report)?;
        Some(self.rows.iter().map(|row| counted.contains(&row.id)).collect())
    }

    /// Whether a world agrees but for a part of one pod that comes or goes.
    fn is_shown_in_part(
        &self,
        (expected, free): (&[Option<Free>], &Free),
        members: &[bool],
        is_first: bool,
    ) -> bool {
        let comes_or_goes = |at: &usize| self.rows[*at].comes_or_goes(members[*at], is_first);
        let rows: Vec<usize> = (0..self.rows.len()).filter(comes_or_goes).collect();
        self.worlds.iter().zip(expected).any(|(world, table)| {
            let explains = |at: &usize, table| is_part(&world.locations[*at], members[*at], (table, free));
            table.as_ref().is_some_and(|table| rows.iter().any(|at| explains(at, table)))
        })
    }
}

impl Row {
    /// Whether the pod may be admitted, or may end, while a report is made that counts it, or does not. `is_first`: no
    /// report before it was taken for torn.
    fn comes_or_goes(&self, is_counted: bool, is_first: bool) -> bool {
        !self.described || self.stage != Stage::Admitted || self.finishes && (!is_counted || is_first)
    }
}

/// Whether all that differs from the expected amounts is a part of what the pod holds: missing if it counts, too much
/// if it does not.
fn is_part(location: &Location, is_member: bool, (expected, free): (&Free, &Free)) -> bool {
    let Location::Charged { held: Held::Cells(placement), exact: true } = location else { return false };
    let mut whole = vec![0; free.cells().len()];
    placement.grants.iter().for_each(|grant| whole[grant.cell as usize] += grant.visible);
    let cells = free.cells().iter().zip(expected.cells()).zip(&whole);
    cells.into_iter().all(|((shown, expected), whole)| {
        let (most, least) = if is_member { (shown, expected) } else { (expected, shown) };
        let missing = most.saturating_sub(*least);
        (0..=*whole).contains(&missing)
    })
}
