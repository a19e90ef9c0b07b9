//! Understanding a report: the pods that it describes, and the worlds that follow.
//!
//! In: the newest report that is not yet understood, and the ledger's rows. Out: worlds that agree with it. Never: a
//! report taken for the truth about an unknown pod set.
//!
//! Reports carry no time that could be compared with ours, and describe any moment between now and long ago. Their
//! fingerprint names the pods they count. Once the pod set is known, the other pods can be charged on top of its
//! numbers.

use smallvec::SmallVec;
use topology::admit::{self, Grant, Placement};
use topology::fingerprint::{Fingerprint, Method, PodHash};
use topology::policy::{Policy, Rules};
use topology::zone::{Free, NodeTopology};

use super::location::{charge, charge_all_zones, widen};
use super::{Amounts, Held, Ledger, Location, Row, Scratch, Stage, World};

mod assign;
mod by_id;
mod by_value;
mod torn;

pub(super) use torn::TornReports;

/// Most leaving and released pods whose membership is tried in every combination: 2^n fingerprints for each prefix of
/// the staying pods.
const MAX_COMBINED: usize = 7;
/// Most hashes of one search, some milliseconds of work. The likeliest sets come first.
pub(super) const MAX_HASHES: usize = 500_000;
/// Events without a search after one that found nothing within its bound. A new report is searched at once.
pub(super) const PAUSE: u32 = 16;
/// Most unsettled pods beside which one settled pod may have finished unnoticed. More combinations would cost too much,
/// and a match among very many combinations proves little.
const MAX_UNSETTLED: usize = 6;

/// A report whose pod set is known.
struct Understood<'a> {
    rules: Rules,
    /// What the report shows as available; by ids, what is free if none of the rows held anything.
    amounts: Amounts,
    /// Rows that the report counts.
    members: &'a [bool],
    /// Whether the report shows a release that the API server has not announced.
    released_unannounced: bool,
}

impl Ledger {
    /// Tries to understand the newest report; without success the report stays unexplained until the next event.
    ///
    /// Agreeing worlds survive. If none agrees, the kubelet decided differently from the model or another scheduler has
    /// bound pods: the report wins, and the locations are computed from its numbers.
    pub(super) fn explain_report(&mut self, scratch: &mut Scratch) {
        let Some(report) = self.unexplained.clone() else { return };
        if let Some(start) = self.start.clone() {
            return self.explain_by_ids(&report, start, scratch);
        }
        let free = report.available();
        let counted: Vec<bool> = self.rows.iter().map(|row| self.counts(&report, &free, row)).collect();
        let known = self.members_of_torn(&report);
        let Some(members) = known.or_else(|| self.members(&report, &free, &counted)) else { return };
        let expected: Vec<Option<Free>> =
            self.worlds.iter().map(|world| self.predicted(world, &members)).collect();
        let is_expected = expected.iter().any(|table| table.as_ref() == Some(&free));
        if !is_expected && self.is_torn(&report, (&expected, &free), &members) {
            return;
        }
        (self.unexplained, self.torn) = (None, None);
        let agreeing = self.agreeing(&expected, &free).filter(|_| is_expected);
        let bases = agreeing.unwrap_or_else(|| {
            let is_contradicted = expected.iter().all(Option::is_some);
            let bases = self.solve_locations(&report, &free, &members, is_contradicted);
            let is_elsewhere = |(at, _): (usize, &Row), said: &Location| {
                let differs = |base: &Vec<Location>| ![said, &Location::Unknown].contains(&&base[at]);
                members[at] && *said != Location::Unknown && bases.iter().all(differs)
            };
            // A world in which the zones of a pod are not known well enough expects nothing, so nothing contradicts it.
            if let Some(expected) = expected.into_iter().collect::<Option<Vec<Free>>>()
                && self.note_drift(is_elsewhere)
            {
                self.drifts.explain_amounts(&expected, &free);
            }
            bases
        });
        self.counts_unknown_pods =
            counted.contains(&true) && self.is_of_unknown_pods(&report, &free, &members);
        let released_unannounced = self.describe(&counted, &members);
        let (rules, amounts, members) = (report.rules, Amounts::Counts(free), members.as_slice());
        self.adopt(&Understood { rules, amounts, members, released_unannounced }, bases, scratch);
    }

    /// Takes a report by amounts of a node that enforces nothing: only which pods it counts, for
    /// [`Ledger::alignment`], which amounts tell under `best-effort` alone.
    pub(super) fn describe_by_amounts(&mut self, report: &NodeTopology) {
        if report.rules.policy != Policy::BestEffort {
            return;
        }
        let free = report.available();
        let counted: Vec<bool> = self.rows.iter().map(|row| self.counts(report, &free, row)).collect();
        if let Some(members) = self.members(report, &free, &counted) {
            self.describe(&counted, &members);
        }
    }

    /// The locations in each of the worlds that expect these amounts. `None`: in one of the worlds the zones of a pod
    /// are not known, so it expects nothing, and may agree too.
    pub(super) fn agreeing(&self, expected: &[Option<Free>], free: &Free) -> Option<Vec<Vec<Location>>> {
        if expected.contains(&None) {
            return None;
        }
        let agreeing =
            self.worlds.iter().zip(expected).filter(|(_, expected)| expected.as_ref() == Some(free));
        Some(agreeing.map(|(world, _)| world.locations.clone()).collect())
    }

    /// Notes that a report has contradicted every world, if there was any. `contradicts`: whether the report says of a
    /// row something else than this. Returns whether there was one.
    fn note_drift(&mut self, contradicts: impl Fn((usize, &Row), &Location) -> bool) -> bool {
        if self.worlds.is_empty() {
            return false;
        }
        let is_wrong =
            |row: &(usize, &Row)| self.worlds.iter().all(|world| contradicts(*row, &world.locations[row.0]));
        let wrong = self.rows.iter().enumerate().filter(is_wrong);
        self.drifts.note(wrong.map(|(_, row)| row.names.clone()));
        true
    }

    /// The rows that the report counts, or `None` if no set of known pods explains the report.
    fn members(&mut self, report: &NodeTopology, free: &Free, counted: &[bool]) -> Option<Vec<bool>> {
        let expected = self.expected(counted);
        let Some((fingerprint, _)) = report.fingerprint else {
            return self.members_by_value(report, free, expected);
        };
        match self.members_by_fingerprint(fingerprint, counted, &expected) {
            Some(found) => {
                self.goes_by_amounts = false;
                self.tell_namesakes_apart(report, free, counted, found)
            }
            None if self.goes_by_amounts => self.members_by_value(report, free, expected),
            None => None,
        }
    }

    fn members_by_fingerprint(
        &mut self,
        fingerprint: Fingerprint,
        counted: &[bool],
        expected: &[bool],
    ) -> Option<Vec<bool>> {
        let mut trials = Trials::new(&self.rows, fingerprint);
        if trials.test(expected) {
            return Some(expected.to_vec());
        }
        if self.search_pause > 0 {
            self.search_pause -= 1;
            return None;
        }
        let found = self.search(counted, &mut trials);
        if found.is_none() && trials.is_over() {
            self.search_pause = PAUSE;
        }
        found
    }

    /// Whether the exporter's fingerprint method counts a pod.
    pub(super) fn counts(&self, report: &NodeTopology, free: &Free, row: &Row) -> bool {
        match report.fingerprint {
            Some((_, Method::All)) => true,
            Some((_, Method::WithExclusiveResources)) | None => {
                admit::is_exclusive(report.rules, free, &row.needs)
            }
        }
    }

    /// The counted rows that the kubelet has, as far as is known.
    fn expected(&self, counted: &[bool]) -> Vec<bool> {
        self.select(counted, |row| matches!(row.stage, Stage::Admitted | Stage::Leaving { .. }))
    }

    /// Whether the pods of a report's fingerprint are those that are known to run.
    fn names_known_pods(&self, report: &NodeTopology) -> bool {
        let Some((fingerprint, _)) = report.fingerprint else { return false };
        let free = report.available();
        let counted: Vec<bool> = self.rows.iter().map(|row| self.counts(report, &free, row)).collect();
        Trials::new(&self.rows, fingerprint).test(&self.expected(&counted))
    }

    /// The counted rows that are `present`.
    fn select(&self, counted: &[bool], present: impl Fn(&Row) -> bool) -> Vec<bool> {
        self.rows.iter().zip(counted).map(|(row, counts)| *counts && present(row)).collect()
    }

    /// Tries pod sets, the likeliest first, until one passes `test`.
    ///
    /// The kubelet admits in row order, so of the staying pods a report counts those up to some row. Leaving and
    /// released pods may be counted or not, in any combination; of many, the earliest released are taken to have gone
    /// first. Cost: at most [`MAX_HASHES`].
    pub(super) fn search(&self, counted: &[bool], trials: &mut Trials<'_>) -> Option<Vec<bool>> {
        let settled = |row: &Row| row.described && row.stage == Stage::Admitted;
        let undecided = |at: &usize| counted[*at] && !settled(&self.rows[*at]);
        let goes = |at: &usize| matches!(self.rows[*at].stage, Stage::Leaving { .. } | Stage::Released);
        let (mut going, staying): (Vec<usize>, Vec<usize>) =
            (0..self.rows.len()).filter(undecided).partition(goes);
        going.sort_by_key(|at| self.rows[*at].released_at);
        let (early, late) = going.split_at(going.len().saturating_sub(MAX_COMBINED));
        let mut members = self.select(counted, |row| row.stage != Stage::Released || row.described);
        members.iter_mut().enumerate().for_each(|(at, member)| *member &= !early.contains(&at));
        for gone in (0..=early.len()).rev() {
            early[gone..].iter().for_each(|at| members[*at] = true);
            let mut trial = members.clone();
            for stay in (0..=staying.len()).rev() {
                staying[stay..].iter().for_each(|at| trial[*at] = false);
                if trials.try_all(&mut trial, late) {
                    return Some(trial);
                }
                if trials.is_over() {
                    return None;
                }
            }
        }
        if staying.len() + going.len() > MAX_UNSETTLED {
            return None;
        }
        // A settled pod may have finished by itself, and the API server may not show it yet.
        for at in (0..self.rows.len()).filter(|at| counted[*at] && settled(&self.rows[*at])) {
            let mut trial = self.select(counted, |row| row.stage != Stage::Released);
            trial[at] = false;
            let moving: Vec<usize> = staying.iter().chain(&going).copied().collect();
            if trials.try_all(&mut trial, &moving) {
                return Some(trial);
            }
        }
        None
    }

    /// The numbers of a report that counts `members`, if `world` is the truth. `None`: a location is not known exactly.
    ///
    /// Reports show less than the kubelet holds: podresources leaves out what finished init containers keep.
    fn predicted(&self, world: &World, members: &[bool]) -> Option<Free> {
        let mut free = world.amounts.free().clone();
        for ((row, location), member) in self.rows.iter().zip(&world.locations).zip(members) {
            let released = row.stage == Stage::Released;
            match location {
                Location::Unknown if *member => give_back_hidden(&self.hidden_anywhere(row), &mut free),
                Location::Unknown => return None,
                Location::Charged { exact: false, .. } if *member => return None,
                // Worlds by ids meet no report of amounts alone.
                Location::Charged { held: Held::Ids(_), .. } => return None,
                Location::Charged { held: Held::Cells(placement), .. } => match (released, *member) {
                    (false, false) => placement.release(&mut free),
                    (false, true) => give_back_hidden(placement, &mut free),
                    (true, true) => take_visible(placement, &mut free),
                    (true, false) => {}
                },
            }
        }
        Some(free)
    }

    /// Notes the pods that an understood report counts; returns whether it shows a release that was not announced.
    ///
    /// Reports come in order, so a pod that was counted before and no longer is has been released, whatever the API
    /// server says by now. A pod that was never counted may simply have been admitted after this report's scan. Of pods
    /// that the report's fingerprint method does not count it says nothing.
    fn describe(&mut self, counted: &[bool], members: &[bool]) -> bool {
        self.reports += 1;
        if !self.contradicts_unexplained {
            self.contradicted_until_ms = 0;
        }
        self.explanation_due_ms = None;
        self.drop_disproven(members);
        let mut released_unannounced = false;
        let has_left = |at: &usize| counted[*at] && !members[*at] && self.rows[*at].described;
        let left = self.indices(|stage| stage != Stage::Released).filter(has_left);
        left.collect::<Vec<_>>().into_iter().for_each(|at| self.note_departure(at));
        let rows = self.rows.iter_mut().zip(members).zip(counted);
        for ((row, member), _) in rows.filter(|(_, counted)| **counted) {
            let left = !*member && row.described;
            if left {
                released_unannounced |= row.stage.stays();
                row.stage = Stage::Released;
                row.released_at = row.released_at.min(self.releases);
            }
            row.described = *member;
        }
        released_unannounced
    }

    /// Starts from the report's numbers: members are where each of `bases` has them (one world each), the other pods
    /// are replayed on top.
    fn adopt(&mut self, understood: &Understood<'_>, bases: Vec<Vec<Location>>, scratch: &mut Scratch) {
        let mut rebuilt = Vec::new();
        for base in bases {
            self.add_worlds(&mut rebuilt, self.rebuild(understood, base, scratch));
        }
        self.worlds = rebuilt;
        for at in (0..self.rows.len()).rev() {
            // Later reports cannot count a released pod again once one does not.
            if self.rows[at].stage == Stage::Released && !understood.members[at] {
                self.drop_row(at);
            }
        }
        let worlds = std::mem::take(&mut self.worlds);
        self.settle(worlds, scratch);
    }

    /// The worlds that follow from one set of `locations` for the members.
    fn rebuild(
        &self,
        understood: &Understood<'_>,
        mut locations: Vec<Location>,
        scratch: &mut Scratch,
    ) -> Vec<World> {
        let amounts = self.true_amounts(understood, &locations);
        let replayed: Vec<usize> =
            (0..self.rows.len()).filter(|at| self.is_replayed(understood, *at)).collect();
        let mut kept: Vec<Option<Location>> = vec![None; self.rows.len()];
        for at in replayed.iter().copied() {
            // Holds nothing until its turn, so that earlier rows see the room that the kubelet saw.
            let predicted = std::mem::replace(&mut locations[at], Location::nowhere());
            kept[at] = self.keeps_prediction(understood, &predicted, at).then_some(predicted);
        }
        let early = self.likely_releases();
        let is_settled = replayed.iter().all(|at| kept[*at].is_some());
        let orders = if is_settled { vec![replayed] } else { self.orders(&replayed) };
        let start = World { amounts, locations };
        let mut rebuilt = Vec::new();
        for order in orders {
            let mut worlds = vec![start.clone()];
            for at in order {
                let from = (understood.rules, &*worlds);
                worlds = match &kept[at] {
                    Some(location) => self.keep_each(from, &early, (at, location), scratch),
                    None => self.replay_each(from, &early, at, scratch),
                };
            }
            self.add_worlds(&mut rebuilt, worlds);
        }
        rebuilt
    }

    /// The kubelet's amounts behind the report's: podresources does not show what finished init containers keep, and
    /// shows members that are released by now.
    fn true_amounts(&self, understood: &Understood<'_>, locations: &[Location]) -> Amounts {
        let mut amounts = understood.amounts.clone();
        for ((row, location), _) in
            self.rows.iter().zip(locations).zip(understood.members).filter(|(_, member)| **member)
        {
            match (&mut amounts, location) {
                (Amounts::Counts(free), Location::Charged { held: Held::Cells(placement), exact: true }) => {
                    take_hidden(placement, free);
                    if row.stage == Stage::Released {
                        placement.release(free);
                    }
                }
                (Amounts::Counts(free), Location::Unknown) => take_hidden(&self.hidden_anywhere(row), free),
                (Amounts::Counts(_), Location::Charged { .. }) => {}
                (amounts @ Amounts::Ids(_), location) if row.stage != Stage::Released => {
                    charge(amounts, location)
                }
                (Amounts::Ids(_), _) => {}
            }
        }
        amounts
    }

    /// What finished init containers of a pod may keep in each zone, unreported: a bound, as the pod may be in any.
    fn hidden_anywhere(&self, row: &Row) -> Placement {
        let has_init = row.needs.containers.iter().any(|container| !container.kind.keeps_running());
        let Some(topology) = self.topology.as_ref().filter(|_| has_init) else { return Placement::default() };
        let free = topology.allocatable();
        let zones = 0..free.layout().zones().len();
        let placed = zones.filter_map(|zone| {
            let only = assign::only_zone(&free, zone);
            admit::admit(topology.rules, &only, &row.needs, &mut admit::Scratch::default()).ok()
        });
        let mut grants: SmallVec<[Grant; 2]> = placed.flat_map(|placement| placement.grants).collect();
        for grant in &mut grants {
            (grant.held, grant.visible) = (grant.held - grant.visible, 0);
        }
        Placement { grants }
    }

    /// Whether a pod may hold, in any zone, what no report shows.
    pub(super) fn hides_something(&self, row: &Row) -> bool {
        self.hidden_anywhere(row).grants.iter().any(|grant| grant.held != grant.visible)
    }

    /// Whether the row holds resources that the report does not count.
    fn is_replayed(&self, understood: &Understood<'_>, at: usize) -> bool {
        !understood.members[at] && self.rows[at].stage != Stage::Released
    }

    /// Whether an earlier prediction still holds. After an unannounced release a pending pod finds more room than was
    /// predicted for it.
    fn keeps_prediction(&self, understood: &Understood<'_>, location: &Location, at: usize) -> bool {
        let invalidated = understood.released_unannounced && self.rows[at].stage == Stage::Pending;
        matches!(location, Location::Charged { exact: true, .. }) && !invalidated
    }

    /// The worlds that follow from each of `worlds` when the row's pod is where it was predicted. A debt says that
    /// another pod was gone by then, or that this one comes later than was thought: a scheduler sees the bindings of
    /// another one late. So it may also be where it is admitted now.
    fn keep_each(
        &self,
        (rules, worlds): (Rules, &[World]),
        early: &[Vec<usize>],
        (at, predicted): (usize, &Location),
        scratch: &mut Scratch,
    ) -> Vec<World> {
        let mut next = Vec::with_capacity(worlds.len());
        for world in worlds {
            let mut kept = world.clone();
            charge(&mut kept.amounts, predicted);
            kept.locations[at] = predicted.clone();
            let is_in_debt = kept.amounts.has_debt();
            self.add_worlds(&mut next, [kept]);
            if is_in_debt {
                self.add_worlds(&mut next, self.replay(rules, world, early, at, scratch));
            }
        }
        next
    }

    /// The worlds that follow from one when these rows, which hold nothing in it, are admitted one after the other.
    pub(super) fn replay_in_order(
        &self,
        (rules, start): (Rules, World),
        early: &[Vec<usize>],
        rows: impl IntoIterator<Item = usize>,
        scratch: &mut Scratch,
    ) -> Vec<World> {
        let admit = |worlds: Vec<World>, at| self.replay_each((rules, &worlds), early, at, scratch);
        rows.into_iter().fold(vec![start], admit)
    }

    /// The worlds that follow when the row's pod is admitted in one of `worlds`.
    fn replay_each(
        &self,
        (rules, worlds): (Rules, &[World]),
        early: &[Vec<usize>],
        at: usize,
        scratch: &mut Scratch,
    ) -> Vec<World> {
        let mut next = Vec::with_capacity(worlds.len());
        for world in worlds {
            self.add_worlds(&mut next, self.replay(rules, world, early, at, scratch));
        }
        next
    }

    /// The worlds that follow when the row's pod is admitted in `world`. A pod that is not pending was admitted some
    /// time ago, in an order that is not known: it may be anywhere.
    fn replay(
        &self,
        rules: Rules,
        world: &World,
        early: &[Vec<usize>],
        at: usize,
        scratch: &mut Scratch,
    ) -> impl Iterator<Item = World> {
        let row = &self.rows[at];
        let found = match row.stage {
            Stage::Pending => self.possible_locations(rules, world, early, &row.needs, scratch),
            _ => vec![charge_all_zones(rules, &world.amounts, &row.needs)],
        };
        let doubtful = self.may_be_in_doubt(world);
        found.into_iter().map(move |location| {
            let location =
                if doubtful { widen(rules, &world.amounts, &row.needs, location) } else { location };
            let mut world = world.clone();
            charge(&mut world.amounts, &location);
            world.locations[at] = location;
            world
        })
    }
}

/// Sets of rows, tried against the fingerprint of a report.
pub(super) struct Trials<'a> {
    rows: &'a [Row],
    fingerprint: Fingerprint,
    hashes: Vec<PodHash>,
    /// Hashes so far.
    pub(super) spent: usize,
}

impl<'a> Trials<'a> {
    pub(super) fn new(rows: &'a [Row], fingerprint: Fingerprint) -> Self {
        Self { rows, fingerprint, hashes: Vec::with_capacity(rows.len()), spent: 0 }
    }

    /// Whether as much was tried as may be.
    fn is_over(&self) -> bool {
        self.spent >= MAX_HASHES
    }

    /// Whether the report counts exactly these rows. Counts its own cost.
    fn test(&mut self, members: &[bool]) -> bool {
        let rows = self.rows.iter().zip(members).filter(|(_, member)| **member);
        self.hashes.clear();
        self.hashes.extend(rows.map(|(row, _)| row.hash));
        self.spent += self.hashes.len().max(1);
        Fingerprint::of(&mut self.hashes) == self.fingerprint
    }

    /// Flips the `undecided` entries of `members` through all combinations until a test passes; otherwise restores
    /// them. Ends early when no hashes are left.
    fn try_all(&mut self, members: &mut [bool], undecided: &[usize]) -> bool {
        let usual: Vec<bool> = undecided.iter().map(|at| members[*at]).collect();
        for mask in 0..1_usize << undecided.len() {
            if self.is_over() {
                break;
            }
            for (bit, at) in undecided.iter().enumerate() {
                members[*at] = usual[bit] ^ (mask >> bit & 1 == 1);
            }
            if self.test(members) {
                return true;
            }
        }
        for (bit, at) in undecided.iter().enumerate() {
            members[*at] = usual[bit];
        }
        false
    }
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
