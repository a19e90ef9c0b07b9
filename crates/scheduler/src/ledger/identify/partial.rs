//! Reports of amounts that show a part of what one pod holds.
//!
//! In: a report that no world agrees with, and what each world expected. Out: the pod that explains the difference.
//! Never: a pod that has been there before this report, and stays.
//!
//! The kubelet hands out devices, CPUs and memory one after the other, and an exporter's call may come in between: a
//! pod counts with its CPUs and without its memory, or, where CPUs decide which pods count, its memory is shown of a
//! pod that does not count. So it is when a pod ends during the call (kubelet 1.36 podresources `List` asks each
//! manager about each container). Such a report says nothing new, and another one follows.
//!
//! Cost: worlds x rows on their way x cells.

use topology::zone::Free;

use super::MAX_MISSED;
use crate::ledger::{Held, Ledger, Location, Row, Stage};

impl Ledger {
    /// The row of which the report shows a part, if a world agrees with the rest. `expected`: the numbers of each
    /// world; `members`: the rows that the report counts.
    pub(super) fn shown_in_part(
        &self,
        expected: &[Option<Free>],
        free: &Free,
        members: &[bool],
    ) -> Option<usize> {
        let may_be_shown_so =
            |at: &usize| self.rows[*at].comes_or_goes() && self.rows[*at].missed < MAX_MISSED;
        let rows: Vec<usize> = (0..self.rows.len()).filter(may_be_shown_so).collect();
        self.worlds.iter().zip(expected).find_map(|(world, table)| {
            let table = table.as_ref()?;
            let explains = |at: &usize| is_part(&world.locations[*at], members[*at], (table, free));
            rows.iter().copied().find(explains)
        })
    }
}

impl Row {
    /// Whether the pod is admitted, or may end, about now.
    fn comes_or_goes(&self) -> bool {
        !self.described || self.finishes || self.stage != Stage::Admitted
    }
}

/// Whether all that differs from the expected amounts is a part of what the pod holds: missing if it counts, too much
/// if it does not.
fn is_part(location: &Location, is_member: bool, (expected, free): (&Free, &Free)) -> bool {
    let Location::Charged { held: Held::Cells(placement), exact: true } = location else { return false };
    let mut left = free.clone();
    expected.cells().iter().enumerate().for_each(|(cell, amount)| left.add(cell, -amount));
    let mut whole = vec![0; left.cells().len()];
    placement.grants.iter().for_each(|grant| whole[grant.cell as usize] += grant.visible);
    left.cells().iter().zip(&whole).all(|(differs, whole)| {
        let missing = if is_member { *differs } else { -differs };
        (0..=*whole).contains(&missing)
    })
}
