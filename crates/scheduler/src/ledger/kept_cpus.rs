//! CPUs that init containers may keep, because another pod left between two containers of their pod's admission.
//!
//! In: releases, and the times that statuses tell. Out: the amounts of a world without such CPUs. Never: a world of
//! its own: no report shows these CPUs, so it would last as long as the pod.
//!
//! A later container takes from all CPUs that are free by then, and so may take those of the pod that left instead of
//! those of the init container, which keeps them as long as the pod lives (kubelet 1.36 cpumanager `allocateCPUs`,
//! `updateCPUsToReuse`). Only amounts leave this open; by ids each case is a world (`Amounts::release_points`).
//!
//! Three things prove that a pod left at another moment: a report that counts both pods, before; a start or an end of
//! its containers in a later second than the start of the other pod; and that none of its containers has ever run.
//!
//! Cost: rows at each release. A check takes rows x departures where this is open, and the same for each set of pods
//! that may leave; and up to `MAX_LEVELS` admissions more where CPUs may be kept.

use std::borrow::Cow;

use smallvec::SmallVec;
use topology::admit;
use topology::request::{ContainerKind, PodNeeds, Qos};
use topology::resource::ResourceName;

use super::location::charge_all_zones;
use super::row::Row;
use super::{Amounts, Held, Ledger, PodId, Stage, World};

/// Thousandths of CPUs by cell.
type CpusByCell = SmallVec<[(usize, i64); 2]>;

/// Most numbers of kept CPUs that are tried.
const MAX_LEVELS: i64 = 16;

/// A pod that may have left between two containers of another one's admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Departure {
    pod: PodId,
    /// By cell, the CPUs that it may have given back.
    freed: CpusByCell,
    /// A second in which one of its containers was there still, if one is known.
    ended_s: Option<u64>,
}

impl Ledger {
    /// The kubelet has started a pod that it admitted before, in this second of its clock.
    pub fn started(&mut self, id: PodId, second: u64) {
        let Some(at) = self.index(id) else { return };
        self.rows[at].started_s = Some(second);
        if self.rows[at].drop_proven() {
            self.changes();
        }
    }

    /// The last container of a pod ended in this second of the kubelet's clock; `u64::MAX`: none has ever run. The
    /// kubelet has released the pod since, and its row may be gone.
    pub fn ended(&mut self, id: PodId, second: u64) {
        let mut has_changed = false;
        for row in &mut self.rows {
            let departure = row.departures.iter_mut().find(|departure| departure.pod == id);
            if let Some(departure) = departure {
                departure.ended_s = Some(second);
                has_changed |= row.drop_proven();
            }
        }
        if has_changed {
            self.changes();
        }
    }

    /// Notes that the pod of this row has left, for those in whose admission that may have been.
    pub(super) fn note_departure(&mut self, index: usize) {
        let freed = self.cpus_held_at_most(index);
        if freed.is_empty() {
            return;
        }
        // It ended no earlier than it started.
        let departure = Departure { pod: self.rows[index].id, freed, ended_s: self.rows[index].started_s };
        for at in (0..self.rows.len()).filter(|at| self.may_leave_within(index, *at)).collect::<Vec<_>>() {
            self.rows[at].departures.push(departure.clone());
            self.has_departures = true;
        }
    }

    /// Whether the pod of row `index` may leave, or have left, between two containers of the admission of that of row
    /// `at`, which then may keep CPUs.
    fn may_leave_within(&self, index: usize, at: usize) -> bool {
        let (leaving, row) = (&self.rows[index], &self.rows[at]);
        let was_admitted_before = row.described && leaving.described;
        let started_later = leaving.started_s.zip(row.started_s).is_some_and(|(later, first)| later > first);
        index != at
            && row.stage != Stage::Released
            && !was_admitted_before
            && !started_later
            && may_keep(&row.needs)
    }

    /// Drops departures of pods that leave after the admissions that are known.
    pub(super) fn drop_later(&mut self, leaves_later: impl Fn(&PodId) -> bool) {
        for row in self.rows.iter_mut().filter(|row| row.stage == Stage::Admitted) {
            row.departures.retain(|departure| !leaves_later(&departure.pod));
        }
    }

    /// Drops departures of pods that a report counts beside the pod that was admitted then.
    pub(super) fn drop_disproven(&mut self, members: &[bool]) {
        let counted: Vec<PodId> =
            self.rows.iter().zip(members).filter(|(_, member)| **member).map(|(row, _)| row.id).collect();
        for (row, _) in self.rows.iter_mut().zip(members).filter(|(_, member)| **member) {
            row.departures.retain(|departure| !counted.contains(&departure.pod));
        }
        self.has_departures = self.rows.iter().any(|row| !row.departures.is_empty());
    }

    /// The CPUs of this row, by cell: the most in any world, with what it may keep itself. None by ids.
    fn cpus_held_at_most(&self, index: usize) -> CpusByCell {
        let mut most = CpusByCell::new();
        for world in &self.worlds {
            for (cell, held) in self.cpus_given_back(world, index) {
                match most.iter_mut().find(|(known, _)| *known == cell) {
                    Some((_, known)) => *known = held.max(*known),
                    None => most.push((cell, held)),
                }
            }
        }
        most
    }

    /// The CPUs of this row in a world, by cell: in each zone where the pod may be. None by ids.
    fn cpus_held(&self, world: &World, index: usize) -> CpusByCell {
        let (Amounts::Counts(free), Some(topology)) = (&world.amounts, &self.topology) else {
            return CpusByCell::new();
        };
        let anywhere = || charge_all_zones(topology.rules, &world.amounts, &self.rows[index].needs).held();
        let (Some(Held::Cells(held)), Some(column)) =
            (world.locations[index].held().or_else(anywhere), free.layout().column(ResourceName::CPU))
        else {
            return CpusByCell::new();
        };
        let columns = free.layout().resources().len();
        let grants = held.grants.iter().map(|grant| (grant.cell as usize, grant.held));
        grants.filter(|(cell, held)| cell % columns == column && *held > 0).collect()
    }

    /// The most CPUs that the pod of this row gives back when it leaves, by cell.
    fn cpus_given_back(&self, world: &World, index: usize) -> CpusByCell {
        let freed: CpusByCell = self.rows[index].freed().collect();
        let mut cells = self.cpus_held(world, index);
        for (cell, held) in &mut cells {
            *held += self.cpus_kept(world, index, *cell, &freed);
        }
        cells
    }

    /// The CPUs of a cell that the init containers of this row may keep where others have given these back.
    fn cpus_kept(&self, world: &World, index: usize, cell: usize, freed: &CpusByCell) -> i64 {
        let (Amounts::Counts(free), Some(topology)) = (&world.amounts, &self.topology) else { return 0 };
        let freed = freed.iter().filter(|(of, _)| *of == cell).map(|(_, cpus)| cpus).sum();
        admit::kept_after_release(topology.rules, free, &self.rows[index].needs, freed)
    }

    /// The amounts of a world for which a verdict has to hold: what is counted on, and the same less the CPUs that init
    /// containers may keep.
    pub(super) fn counted_on<'w>(
        &self,
        world: &'w World,
    ) -> impl Iterator<Item = Cow<'w, Amounts>> + use<'w> {
        self.with_less(world, self.cautious(world), &[])
    }

    /// These amounts of a world, and then [`Ledger::without_kept`] of them.
    pub(super) fn with_less<'w>(
        &self,
        world: &World,
        amounts: Cow<'w, Amounts>,
        gone: &[usize],
    ) -> impl Iterator<Item = Cow<'w, Amounts>> + use<'w> {
        let less = self.without_kept(world, &amounts, gone);
        std::iter::once(amounts).chain(less.into_iter().map(Cow::Owned))
    }

    /// These amounts of a world less the CPUs that init containers may keep, also if the rows `gone` have left, whose
    /// release is not known: less all of them, and less each smaller number, since less room can be better for pods of
    /// several containers. None where nothing is kept.
    pub(super) fn without_kept(&self, world: &World, amounts: &Amounts, gone: &[usize]) -> Vec<Amounts> {
        let may_be_open = self.has_departures || !gone.is_empty();
        let (Amounts::Counts(free), true) = (amounts, may_be_open) else { return Vec::new() };
        let kept = self.all_kept(world, gone);
        let most = kept.iter().map(|(_, kept)| *kept).max().unwrap_or(0);
        let step = (most / 1_000 / MAX_LEVELS + 1) * 1_000;
        let levels = std::iter::successors(Some(most), |level| Some(level - step));
        let less = |level: i64| {
            let mut free = free.clone();
            kept.iter().for_each(|(cell, kept)| free.add(*cell, -level.min(*kept)));
            Amounts::Counts(free)
        };
        levels.take_while(|level| *level > 0).map(less).collect()
    }

    /// What init containers may keep, by cell.
    fn all_kept(&self, world: &World, gone: &[usize]) -> CpusByCell {
        let mut all = CpusByCell::new();
        // The row of a pod that enters has no location yet.
        let rows = self.rows.iter().take(world.locations.len()).enumerate();
        for (at, row) in rows.filter(|(_, row)| row.stage != Stage::Released) {
            let within = gone.iter().filter(|index| self.may_leave_within(**index, at));
            let mut freed: CpusByCell =
                within.flat_map(|index| self.cpus_given_back(world, *index)).collect();
            freed.extend(row.freed());
            if !freed.is_empty() {
                let held = self.cpus_held(world, at).into_iter();
                all.extend(held.map(|(cell, _)| (cell, self.cpus_kept(world, at, cell, &freed))));
            }
        }
        all
    }
}

impl Row {
    /// What its departures may have given back.
    fn freed(&self) -> impl Iterator<Item = (usize, i64)> {
        self.departures.iter().flat_map(|departure| departure.freed.iter().copied())
    }

    /// Drops departures that are proven to have been after the pod's admission. Returns whether there were any.
    fn drop_proven(&mut self) -> bool {
        let before = self.departures.len();
        let started = self.started_s;
        let is_open = |departure: &Departure| match (started, departure.ended_s) {
            // Whole seconds: in the same one, either may have been first.
            (Some(started), Some(ended)) => ended <= started,
            (None, Some(ended)) => ended != u64::MAX,
            _ => true,
        };
        self.departures.retain(|departure| is_open(departure));
        self.departures.len() < before
    }
}

/// Whether init containers of the pod may have CPUs of their own.
fn may_keep(needs: &PodNeeds) -> bool {
    let mut init = needs.containers.iter().filter(|container| container.kind == ContainerKind::Init);
    needs.qos == Qos::Guaranteed
        && init.any(|container| {
            container.needs.iter().any(|need| need.name == ResourceName::CPU && need.is_whole())
        })
}
