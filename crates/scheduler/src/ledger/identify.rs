//! Understanding a report: which pods does it describe, and what follows for the worlds.
//!
//! In: the newest report that is not yet understood, and the ledger's rows. Out: worlds that agree with it. Never: a
//! report taken for the truth about a pod set we could not name.

use std::sync::Arc;

use topology::admit::{self, Placement, Scratch};
use topology::fingerprint::{Fingerprint, Method};
use topology::zone::{Free, NodeTopology};

use super::place::{charge, everywhere, hedge, outcomes};
use super::{Ledger, Place, Stage, World};

mod assign;

/// Going pods whose membership is tried in every combination (2^n fingerprints per prefix of the staying ones).
const MAX_COMBINED: usize = 7;
/// With at most this many pods in motion, any one settled pod may additionally have finished unnoticed.
const MAX_UNSETTLED: usize = 6;

impl Ledger {
    /// Tries to understand the newest report; without success it stays unexplained until the next event.
    pub(super) fn explain_report(&mut self, scratch: &mut Scratch) {
        let Some(report) = self.unexplained.clone() else { return };
        let free = report.available();
        let Some(members) = self.members(&report, &free) else { return };
        self.unexplained = None;
        let agreeing: Vec<_> = self
            .worlds
            .iter()
            .filter(|world| self.predicted(world, &members).is_some_and(|table| table == free))
            .cloned()
            .collect();
        let bases = if agreeing.is_empty() {
            self.corrections += u64::from(!self.worlds.is_empty());
            self.work_out(&report, &free, &members)
        } else {
            agreeing.into_iter().map(|world| world.places).collect()
        };
        self.adopt(&report, &free, &members, bases, scratch);
    }

    /// Which rows the report counts, or `None` if no set of pods we know explains it.
    fn members(&self, report: &NodeTopology, free: &Free) -> Option<Vec<bool>> {
        let counted: Vec<bool> = self.rows.iter().map(|row| self.counts(report, free, row)).collect();
        let usual = self.usual(&counted, |row| matches!(row.stage, Stage::Admitted | Stage::Leaving));
        let Some((fingerprint, _)) = report.fingerprint else {
            return self.agrees_by_value(free, &usual).then_some(usual);
        };
        let mut hashes = Vec::with_capacity(self.rows.len());
        let mut test = |members: &[bool]| {
            hashes.clear();
            hashes.extend(
                self.rows.iter().zip(members).filter(|(_, member)| **member).map(|(row, _)| row.hash),
            );
            Fingerprint::of(&mut hashes) == fingerprint
        };
        if test(&usual) {
            return Some(usual);
        }
        self.search(&counted, &mut test)
    }

    /// Without a fingerprint only the numbers can tell. They are believed when they are what we expect of the settled pods,
    /// or, on a node where nothing is in motion, when they promise nothing we did not know.
    fn agrees_by_value(&self, free: &Free, usual: &[bool]) -> bool {
        let mut tables = self.worlds.iter().filter_map(|world| self.predicted(world, usual)).peekable();
        if self.worlds.is_empty() || tables.peek().is_none() {
            return true;
        }
        let quiet = self.rows.iter().all(|row| row.stage == Stage::Admitted);
        let modest = |table: &Free| free.cells().iter().zip(table.cells()).all(|(new, old)| new <= old);
        tables.any(|table| table == *free || (quiet && modest(&table)))
    }

    /// Whether the exporter's fingerprint method counts a pod.
    pub(super) fn counts(&self, report: &NodeTopology, free: &Free, row: &super::Row) -> bool {
        match report.fingerprint {
            Some((_, Method::All)) => true,
            Some((_, Method::WithExclusiveResources)) | None => {
                admit::is_exclusive(report.rules, free, &row.needs)
            }
        }
    }

    fn usual(&self, counted: &[bool], present: impl Fn(&super::Row) -> bool) -> Vec<bool> {
        self.rows.iter().zip(counted).map(|(row, counts)| *counts && present(row)).collect()
    }

    /// Tries pod sets, the likeliest first, until one passes `test`.
    ///
    /// The kubelet admits in row order, so of the pods that stay, a report counts those up to some row. Pods that go may be
    /// counted or not, whatever the order; with many of them, the earliest to go went first.
    fn search(&self, counted: &[bool], test: &mut impl FnMut(&[bool]) -> bool) -> Option<Vec<bool>> {
        let settled = |row: &super::Row| row.described && row.stage == Stage::Admitted;
        let undecided = |at: &usize| counted[*at] && !settled(&self.rows[*at]);
        let goes = |at: &usize| matches!(self.rows[*at].stage, Stage::Leaving | Stage::Released);
        let (mut going, staying): (Vec<usize>, Vec<usize>) =
            (0..self.rows.len()).filter(undecided).partition(goes);
        going.sort_by_key(|at| self.rows[*at].gone_at);
        let (early, late) = going.split_at(going.len().saturating_sub(MAX_COMBINED));
        let mut members = self.usual(counted, |row| row.stage != Stage::Released || row.described);
        members.iter_mut().enumerate().for_each(|(at, member)| *member &= !early.contains(&at));
        for gone in (0..=early.len()).rev() {
            early[gone..].iter().for_each(|at| members[*at] = true);
            let mut trial = members.clone();
            for stay in (0..=staying.len()).rev() {
                staying[stay..].iter().for_each(|at| trial[*at] = false);
                if try_all(&mut trial, late, test) {
                    return Some(trial);
                }
            }
        }
        if staying.len() + going.len() > MAX_UNSETTLED {
            return None;
        }
        // A settled pod may have finished by itself and not been announced yet.
        for at in (0..self.rows.len()).filter(|at| counted[*at] && settled(&self.rows[*at])) {
            let mut trial = self.usual(counted, |row| row.stage != Stage::Released);
            trial[at] = false;
            let moving: Vec<usize> = staying.iter().chain(&going).copied().collect();
            if try_all(&mut trial, &moving, test) {
                return Some(trial);
            }
        }
        None
    }

    /// What the report should say if `world` is the truth and `members` are the pods it counts. `None`: cannot be said.
    fn predicted(&self, world: &World, members: &[bool]) -> Option<Free> {
        let mut free = world.free.clone();
        for ((row, place), member) in self.rows.iter().zip(&world.places).zip(members) {
            let released = row.stage == Stage::Released;
            match place {
                Place::Unknown if *member => {}
                Place::Unknown => return None,
                Place::At { exact: false, .. } if *member => return None,
                Place::At { placement, .. } => match (released, *member) {
                    (false, false) => placement.release(&mut free),
                    (false, true) => give_back_hidden(placement, &mut free),
                    (true, true) => take_visible(placement, &mut free),
                    (true, false) => {}
                },
            }
        }
        Some(free)
    }

    /// Starts from the report's numbers: members sit where `bases` says (one world each), the others are replayed on top.
    fn adopt(
        &mut self,
        report: &Arc<NodeTopology>,
        free: &Free,
        members: &[bool],
        bases: Vec<Vec<Place>>,
        scratch: &mut Scratch,
    ) {
        let mut news = false;
        for (row, member) in self.rows.iter_mut().zip(members) {
            // Reports come in order, so a pod that was counted before and no longer is has been released, whatever the API
            // server says by now. One that never was may simply have been admitted after this report's scan.
            let left = !*member && row.described;
            if left {
                // Nobody said so before: what is admitted after this report finds more room than we thought.
                news |= matches!(row.stage, Stage::Pending | Stage::Admitted);
                row.stage = Stage::Released;
                row.gone_at = row.gone_at.min(self.releases);
            }
            row.described = *member;
        }
        let worlds = bases
            .into_iter()
            .flat_map(|places| self.rebuild(report, free, members, places, news, scratch))
            .collect();
        self.worlds = worlds;
        for at in (0..self.rows.len()).rev() {
            if self.rows[at].stage == Stage::Released && !members[at] {
                self.drop_row(at);
            }
        }
        let worlds = std::mem::take(&mut self.worlds);
        self.settle(worlds, scratch);
    }

    fn rebuild(
        &self,
        report: &NodeTopology,
        free: &Free,
        members: &[bool],
        mut places: Vec<Place>,
        news: bool,
        scratch: &mut Scratch,
    ) -> Vec<World> {
        let mut free = free.clone();
        for ((row, place), member) in self.rows.iter().zip(&places).zip(members) {
            if let (true, Place::At { placement, exact: true }) = (*member, place) {
                take_hidden(placement, &mut free);
                if row.stage == Stage::Released {
                    placement.release(&mut free);
                }
            }
        }
        let mut keep = vec![true; self.rows.len()];
        for at in 0..self.rows.len() {
            let row = &self.rows[at];
            if !members[at] && row.stage != Stage::Released {
                keep[at] = matches!(places[at], Place::At { exact: true, .. })
                    && !(news && row.stage == Stage::Pending);
                if !keep[at] {
                    places[at] = Place::At { placement: Placement::default(), exact: true };
                }
            }
        }
        let early = self.early_releases();
        let mut worlds = vec![World { free, places }];
        for at in 0..self.rows.len() {
            let row = &self.rows[at];
            if members[at] || row.stage == Stage::Released {
                continue;
            }
            if keep[at] {
                worlds.iter_mut().for_each(|world| charge(&mut world.free, &world.places[at]));
                continue;
            }
            let mut next = Vec::new();
            for world in worlds {
                let found = match row.stage {
                    Stage::Pending => outcomes(report.rules, &world, &early, &row.needs, scratch),
                    _ => vec![everywhere(report.rules, &world.free, &row.needs)],
                };
                let doubtful = self.doubtful(&world);
                for place in found {
                    let place =
                        if doubtful { hedge(report.rules, &world.free, &row.needs, place) } else { place };
                    let mut world = world.clone();
                    charge(&mut world.free, &place);
                    world.places[at] = place;
                    next.push(world);
                }
            }
            worlds = next;
        }
        worlds
    }
}

/// Flips the `undecided` entries of `members` through all combinations until `test` passes; else restores them.
fn try_all(members: &mut [bool], undecided: &[usize], test: &mut impl FnMut(&[bool]) -> bool) -> bool {
    let usual: Vec<bool> = undecided.iter().map(|at| members[*at]).collect();
    for mask in 0..1_usize << undecided.len() {
        for (bit, at) in undecided.iter().enumerate() {
            members[*at] = usual[bit] ^ (mask >> bit & 1 == 1);
        }
        if test(members) {
            return true;
        }
    }
    for (bit, at) in undecided.iter().enumerate() {
        members[*at] = usual[bit];
    }
    false
}

fn give_back_hidden(placement: &Placement, free: &mut Free) {
    placement.grants.iter().for_each(|grant| free.add(grant.cell as usize, grant.held - grant.visible));
}

fn take_hidden(placement: &Placement, free: &mut Free) {
    placement.grants.iter().for_each(|grant| free.add(grant.cell as usize, grant.visible - grant.held));
}

fn take_visible(placement: &Placement, free: &mut Free) {
    placement.grants.iter().for_each(|grant| free.add(grant.cell as usize, -grant.visible));
}
