//! Reports that only numbers can explain: without a fingerprint, with one that two pods share, or with one that is
//! never that of the known pods.
//!
//! In: a report, and the pods it may count. Out: whether its numbers prove that it counts them. Never: a report
//! believed that may be older than one of these pods.

use topology::resource::{ResourceKind, ResourceName};
use topology::zone::{Free, NodeTopology};

use super::assign::{used, visible_amounts};
use crate::ledger::{Held, Ledger, Location, Row, Stage};

/// Most pairs of namesakes that are told apart, in every combination.
const MAX_NAMESAKES: usize = 5;

impl Ledger {
    /// The rows that a report counts, by its numbers; `None` if they do not tell.
    pub(super) fn members_by_value(
        &self,
        report: &NodeTopology,
        free: &Free,
        expected: Vec<bool>,
    ) -> Option<Vec<bool>> {
        if self.worlds.is_empty() && !self.is_all_in_use(report, free, &expected) {
            // It may be old, and count pods that are gone: what is in use need not be of a known pod.
            return Some(vec![false; expected.len()]);
        }
        let is_believed = self.worlds.is_empty() || self.agrees_by_value(report, free, &expected);
        is_believed.then_some(expected)
    }

    /// Whether a report without a fingerprint can be believed by its numbers alone: they are those expected of the
    /// settled pods, or, on a node where nothing changes, they promise no more than was known. A report that promises
    /// more may precede the latest admissions, and one that decides between worlds may count a former pod of equal size
    /// instead of a new one.
    pub(super) fn agrees_by_value(&self, report: &NodeTopology, free: &Free, expected: &[bool]) -> bool {
        let tables: Vec<_> = self.worlds.iter().filter_map(|world| self.predicted(world, expected)).collect();
        if tables.is_empty() {
            return self.counts_all(report, free, expected) || self.is_proven(report, free, expected);
        }
        let quiet = self.rows.iter().all(|row| row.stage == Stage::Admitted);
        let promises_no_more =
            |table: &Free| free.cells().iter().zip(table.cells()).all(|(new, old)| new <= old);
        let decides = tables.len() < self.worlds.len() || tables.iter().any(|table| table != free);
        let is_ambiguous = || decides && !self.is_irreplaceable(report, free, expected);
        (tables.contains(free) && !is_ambiguous())
            || (quiet && tables.iter().any(promises_no_more))
            || self.is_proven(report, free, expected)
    }

    /// Whether the sums alone prove that the report counts `members` and nothing else, and no pod is on its way or
    /// leaves.
    fn is_proven(&self, report: &NodeTopology, free: &Free, members: &[bool]) -> bool {
        let is_settled = |row: &Row| matches!(row.stage, Stage::Admitted | Stage::Released);
        self.rows.iter().all(is_settled)
            && self.is_all_in_use(report, free, members)
            && self.has_no_substitute(report, free, members)
    }

    /// Whether a report that does not name its pods has more or less in use than `members` hold: it counts others.
    pub(super) fn is_of_unknown_pods(&self, report: &NodeTopology, free: &Free, members: &[bool]) -> bool {
        let names_pods = report.fingerprint.is_some() && !self.goes_by_amounts;
        !names_pods && !self.is_all_in_use(report, free, members)
    }

    /// Whether members hold as much as is in use, so that the report counts each of them and no other pod, unless one
    /// stands for another. Memory of which none is in use is not accounted for: the kubelet has no memory manager.
    pub(super) fn is_all_in_use(&self, report: &NodeTopology, free: &Free, members: &[bool]) -> bool {
        let (used, resources) = (used(report, free), free.layout().resources());
        let in_use: Vec<i64> = (0..resources.len()).map(|column| used.sum(column)).collect();
        let mut held = vec![0; resources.len()];
        for at in (0..self.rows.len()).filter(|at| members[*at]) {
            let visible = visible_amounts(report, free, &self.rows[at].needs);
            visible.iter().for_each(|(column, amount)| held[*column] += amount);
        }
        let is_unaccounted = |name: &ResourceName| name.kind() == ResourceKind::Memory;
        let mut columns = resources.iter().zip(in_use.iter().zip(&held));
        columns.all(|(name, (in_use, held))| in_use == held || (*in_use == 0 && is_unaccounted(name)))
    }

    /// Whether released pods cannot stand in the sums for a member that no report has counted so far: each is larger
    /// than all of them.
    fn has_no_substitute(&self, report: &NodeTopology, free: &Free, members: &[bool]) -> bool {
        self.are_larger_than_released((report, free), members, |row, _| !row.described)
    }

    /// Of a pod and its former namesake, which have one hash, the one that the report counts by its numbers. `None`:
    /// the numbers do not tell. (No wire field of a report carries the uid.)
    pub(super) fn tell_namesakes_apart(
        &self,
        report: &NodeTopology,
        free: &Free,
        counted: &[bool],
        found: Vec<bool>,
    ) -> Option<Vec<bool>> {
        let going = self.indices(|stage| stage == Stage::Released || stage.is_leaving());
        let pairs: Vec<(usize, usize)> = going
            .filter_map(|old| Some((old, self.successor(old)?)))
            .filter(|(old, new)| counted[*old] && counted[*new] && found[*old] != found[*new])
            .collect();
        if pairs.is_empty() || self.worlds.is_empty() {
            return Some(found);
        }
        if pairs.len() > MAX_NAMESAKES {
            return None;
        }
        let swapped = |mask: usize| {
            let mut members = found.clone();
            let chosen = pairs.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1);
            chosen.for_each(|(_, (old, new))| members.swap(*old, *new));
            members
        };
        (0..1_usize << pairs.len()).map(swapped).find(|members| self.is_evident(report, free, members))
    }

    /// A later row with the hash of this one.
    pub(super) fn successor(&self, old: usize) -> Option<usize> {
        let later = self.rows.iter().enumerate().skip(old + 1);
        later.rev().find(|(_, row)| row.hash == self.rows[old].hash).map(|(at, _)| at)
    }

    fn is_evident(&self, report: &NodeTopology, free: &Free, members: &[bool]) -> bool {
        let expected: Vec<Option<Free>> =
            self.worlds.iter().map(|world| self.predicted(world, members)).collect();
        match self.agreeing(&expected, free) {
            Some(agreeing) if !self.worlds.is_empty() => !agreeing.is_empty(),
            _ => self.counts_all(report, free, members),
        }
    }

    /// Whether the amounts in use prove that the report counts all `members`: nothing else can explain them.
    ///
    /// Members whose zones are known must be there. Of the others those that were counted before still are, because
    /// reports come in order. The rest must be in the sums, and no released pod may stand for one of them.
    fn counts_all(&self, report: &NodeTopology, free: &Free, members: &[bool]) -> bool {
        let mut used = used(report, free);
        let visible = |at: usize| visible_amounts(report, free, &self.rows[at].needs);
        let columns = free.layout().resources().len();
        let mut elsewhere = vec![0_i64; columns];
        for at in (0..self.rows.len()).filter(|at| members[*at]) {
            if let Location::Charged { held: Held::Cells(placement), .. } = self.agreed_location(at) {
                placement.grants.iter().for_each(|grant| used.add(grant.cell as usize, -grant.visible));
                continue;
            }
            visible(at).iter().for_each(|(column, amount)| elsewhere[*column] += amount);
        }
        !used.has_debt()
            && (0..columns).all(|column| used.sum(column) >= elsewhere[column])
            && self.is_irreplaceable(report, free, members)
    }

    /// The same of members whose zone is not known.
    fn is_irreplaceable(&self, report: &NodeTopology, free: &Free, members: &[bool]) -> bool {
        let is_new = |row: &Row, at: usize| !row.described && self.agreed_location(at) == Location::Unknown;
        self.are_larger_than_released((report, free), members, is_new)
    }

    fn are_larger_than_released(
        &self,
        (report, free): (&NodeTopology, &Free),
        members: &[bool],
        is_new: impl Fn(&Row, usize) -> bool,
    ) -> bool {
        let visible = |at: usize| visible_amounts(report, free, &self.rows[at].needs);
        let mut released = vec![0_i64; free.layout().resources().len()];
        for at in self.indices(|stage| stage == Stage::Released).filter(|at| !members[*at]) {
            visible(at).iter().for_each(|(column, amount)| released[*column] += amount);
        }
        let is_larger = |at: usize| visible(at).iter().any(|(column, amount)| *amount > released[*column]);
        (0..self.rows.len()).filter(|at| members[*at] && is_new(&self.rows[*at], *at)).all(is_larger)
    }
}
