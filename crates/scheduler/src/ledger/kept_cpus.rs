//! CPUs that init containers may keep, because another pod left between two containers of their pod's admission.
//!
//! In: releases, and the times that statuses tell. Out: the amounts of a world without such CPUs. Never: a world of
//! its own: no report shows these CPUs, so it would last as long as the pod.
//!
//! A later container takes from all CPUs that are free by then, and so may take those of the pod that left instead of
//! those of the init container, which keeps them as long as the pod lives (kubelet 1.36 cpumanager `allocateCPUs`,
//! `updateCPUsToReuse`). Only amounts leave this open; by ids each case is a world (`Amounts::release_points`).
//!
//! Three things prove that a pod left at another moment: a report that counts both pods, before; an end of its
//! containers in a later second than the start of the other pod; and that none of its containers has ever run.
//!
//! Cost: rows at each release. A check looks at the rows of nodes where this is open, which are few.

use std::borrow::Cow;

use smallvec::SmallVec;
use topology::admit;
use topology::request::{ContainerKind, PodNeeds, Qos};
use topology::resource::ResourceName;

use super::location::charge_all_zones;
use super::row::Row;
use super::{Amounts, Held, Ledger, PodId, Stage, World};

/// A pod that may have left between two containers of another one's admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Departure {
    pod: PodId,
    /// By cell, the CPUs that it may have given back.
    freed: SmallVec<[(usize, i64); 2]>,
    /// The second in which its last container ended, if that is known.
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
        let Row { id: pod, described, .. } = self.rows[index];
        for (at, row) in self.rows.iter_mut().enumerate() {
            let was_admitted_before = row.described && described;
            if at != index && row.stage != Stage::Released && may_keep(&row.needs) && !was_admitted_before {
                row.departures.push(Departure { pod, freed: freed.clone(), ended_s: None });
                self.has_departures = true;
            }
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

    /// The CPUs of this row, by cell: the most in any world. None by ids.
    fn cpus_held_at_most(&self, index: usize) -> SmallVec<[(usize, i64); 2]> {
        let mut most = SmallVec::<[(usize, i64); 2]>::new();
        for world in &self.worlds {
            for (cell, held) in self.cpus_held(world, index) {
                match most.iter_mut().find(|(known, _)| *known == cell) {
                    Some((_, known)) => *known = held.max(*known),
                    None => most.push((cell, held)),
                }
            }
        }
        most
    }

    /// The CPUs of this row in a world, by cell: in each zone where the pod may be. None by ids.
    fn cpus_held(&self, world: &World, index: usize) -> SmallVec<[(usize, i64); 2]> {
        let (Amounts::Counts(free), Some(topology)) = (&world.amounts, &self.topology) else {
            return SmallVec::new();
        };
        let anywhere = || charge_all_zones(topology.rules, &world.amounts, &self.rows[index].needs).held();
        let (Some(Held::Cells(held)), Some(column)) =
            (world.locations[index].held().or_else(anywhere), free.layout().column(ResourceName::CPU))
        else {
            return SmallVec::new();
        };
        let columns = free.layout().resources().len();
        let grants = held.grants.iter().map(|grant| (grant.cell as usize, grant.held));
        grants.filter(|(cell, held)| cell % columns == column && *held > 0).collect()
    }

    /// The amounts of a world for which a verdict has to hold: what is counted on, and the same less the CPUs that init
    /// containers may keep.
    pub(super) fn counted_on<'w>(
        &self,
        world: &'w World,
    ) -> impl Iterator<Item = Cow<'w, Amounts>> + use<'w> {
        let known = self.cautious(world);
        let less = self.without_kept(world, &known).map(Cow::Owned);
        std::iter::once(known).chain(less)
    }

    /// These amounts of a world less the CPUs that init containers may keep; `None`: none does.
    pub(super) fn without_kept(&self, world: &World, amounts: &Amounts) -> Option<Amounts> {
        let (Amounts::Counts(free), Some(topology), true) = (amounts, &self.topology, self.has_departures)
        else {
            return None;
        };
        let mut less = None;
        let is_open = |row: &Row| !row.departures.is_empty() && row.stage != Stage::Released;
        for (at, row) in self.rows.iter().enumerate().filter(|(_, row)| is_open(row)) {
            for (cell, _) in self.cpus_held(world, at) {
                let freed = row.departures.iter().flat_map(|departure| &departure.freed);
                let freed = freed.filter(|(of, _)| *of == cell).map(|(_, cpus)| cpus).sum();
                let kept = admit::kept_after_release(topology.rules, free, &row.needs, freed);
                if kept > 0 {
                    less.get_or_insert_with(|| free.clone()).add(cell, -kept);
                }
            }
        }
        less.map(Amounts::Counts)
    }
}

impl Row {
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
