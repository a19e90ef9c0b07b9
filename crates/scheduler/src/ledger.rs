//! What is free in each NUMA zone of one node, from what we know rather than from what was last reported.
//!
//! In: reports (NRT objects, from any exporter), and what the API server says of the node's pods: bound, admitted, leaving,
//! released. Out: whether a pod would be admitted, and the table scores read. Never: I/O, a clock, or a look at other nodes.
//!
//! A report alone is always late, and charging every new pod to every zone until it arrives (as the peers do) leaves
//! capacity idle for seconds. The kubelet's choice is deterministic, so the ledger computes it. What it cannot know is the
//! order of things inside the kubelet while a pod is *pending* (bound, not yet seen admitted): another pod may have left
//! before or after. It therefore keeps every outcome that is possible, as worlds; nearly always there is one. A pod fits
//! only if it fits in all of them. A report whose fingerprint names a pod set we know removes the worlds that disagree, and
//! if none agrees it is the truth and the placements are worked out again from it.
//!
//! Invariants (property-tested against a kubelet in `ledger/tests.rs`):
//! - the kubelet's true state is one of the worlds as long as reports tell the truth;
//! - each pod is charged at most once per world, and not at all once the kubelet has released it;
//! - without a report that explains itself, nothing that needs alignment fits.
//!
//! Cost: a check is worlds x one admission. Events cost worlds x pending pods; reports additionally the search for the pod
//! set, which is bounded.

use std::sync::Arc;

use topology::admit::{self, Placement, Scratch};
use topology::fingerprint::PodHash;
use topology::policy::Rules;
use topology::reason::Misfit;
use topology::request::PodNeeds;
use topology::zone::{Free, NodeTopology};

mod explain;
mod identify;
mod place;

pub use explain::LedgerSummary;
use place::{charge, fickle, fold, hedge, outcomes, predict, release};

/// More possible worlds than this are folded into one that is worse than each of them.
const MAX_WORLDS: usize = 64;
/// Released pods kept to understand reports that still describe them.
const MAX_REMEMBERED: usize = 64;
/// Leaving pods whose early release is considered in every combination; beyond that one by one and all together.
const MAX_COMBINED: usize = 3;

/// A pod, as the ledger names it. Unique per pod object (a recreated pod has another).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodId(pub u64);

/// How far a pod on the node has come, as far as the API server has told us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Bound or about to be; the kubelet may not have seen it.
    Pending,
    /// The kubelet has reported a status: it holds its resources.
    Admitted,
    /// Its deletion has been asked for, or the object is gone by force: the kubelet may or may not have released it.
    Leaving,
    /// The kubelet has released it. Kept for a while to understand reports made before.
    Released,
}

/// A pod as it is bound.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The pod object.
    pub id: PodId,
    /// Hash of namespace and name, for fingerprints.
    pub hash: PodHash,
    /// What it asks for.
    pub needs: Arc<PodNeeds>,
    /// Whether it may finish by itself (`restartPolicy` other than `Always`).
    pub finishes: bool,
}

/// Why the ledger refuses a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The kubelet would (or in some possible world might) reject it.
    Misfit(Misfit),
    /// There is no report, or none that could be matched with the pods we know.
    Stale,
}

/// One pod's row.
#[derive(Clone, Debug)]
struct Row {
    id: PodId,
    hash: PodHash,
    needs: Arc<PodNeeds>,
    stage: Stage,
    /// Whether the kubelet is known to have taken it in.
    admitted: bool,
    /// Whether the pod may finish by itself, unannounced (`restartPolicy` other than `Always`).
    finishes: bool,
    /// Whether the last report that was understood counts this pod.
    described: bool,
    /// When it was released, in events; `u64::MAX` while it is there.
    gone_at: u64,
}

/// Where a pod is in one world.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// In the report's numbers, we cannot tell where.
    Unknown,
    /// Charged here; `exact` is false when it is charged wherever it might be.
    At { placement: Placement, exact: bool },
}

/// One possible state of the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct World {
    free: Free,
    /// Parallel to [`Ledger::rows`].
    places: Vec<Place>,
}

/// The ledger of one node.
#[derive(Debug, Default)]
pub struct Ledger {
    topology: Option<Arc<NodeTopology>>,
    /// The newest report, while no known pod set explains its fingerprint.
    unexplained: Option<Arc<NodeTopology>>,
    /// In the order the kubelet gets to see them.
    rows: Vec<Row>,
    /// Empty: nothing is known.
    worlds: Vec<World>,
    /// There was a report and it was deleted, or there is one and it cannot be read: the node may enforce alignment, but
    /// nobody tells how it stands.
    lost: bool,
    /// Counts releases, to order them.
    releases: u64,
    /// Times a report contradicted every world.
    corrections: u64,
    /// Counts events.
    revision: u64,
}

// === reading ===

impl Ledger {
    /// Whether `needs` would be admitted by the node's kubelet.
    ///
    /// A node nobody has ever reported admits everything: it may not align at all (the peers do the same; the caller decides
    /// how long a young node is given the benefit of the doubt).
    ///
    /// # Errors
    /// The [`Refusal`].
    pub fn check(&self, needs: &PodNeeds, scratch: &mut Scratch) -> Result<(), Refusal> {
        let Some(topology) = &self.topology else {
            return if self.lost && needs.may_align() { Err(Refusal::Stale) } else { Ok(()) };
        };
        let rules = topology.rules;
        if !rules.policy.enforces() {
            return Ok(());
        }
        let Some(first) = self.worlds.first() else {
            let aligned = admit::needs_alignment(rules, &topology.available(), needs);
            return if aligned { Err(Refusal::Stale) } else { Ok(()) };
        };
        if !admit::needs_alignment(rules, &first.free, needs) {
            return Ok(());
        }
        if self.lost {
            return Err(Refusal::Stale);
        }
        let doubt = self.unexplained.as_ref().map(|report| report.available());
        let early = if fickle(rules, &first.free, needs) { self.early_releases() } else { Vec::new() };
        for world in &self.worlds {
            let cautious = doubt.as_ref().map(|report| self.cautious(world, report));
            let free = cautious.as_ref().unwrap_or(&world.free);
            admit::admit(rules, free, needs, scratch).map_err(Refusal::Misfit)?;
            for early in &early {
                let mut free = free.clone();
                early.iter().for_each(|at| release(&mut free, &world.places[*at]));
                admit::admit(rules, &free, needs, scratch).map_err(Refusal::Misfit)?;
            }
        }
        Ok(())
    }

    /// Whether an exporter has ever said something about the node, be it readable or not.
    #[must_use]
    pub fn is_reported(&self) -> bool {
        self.topology.is_some() || self.lost
    }

    /// Whether somebody still vouches for what is known.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        !self.lost && !self.worlds.is_empty()
    }

    /// The node as last described.
    #[must_use]
    pub fn topology(&self) -> Option<&NodeTopology> {
        self.topology.as_deref()
    }

    /// The table scores read: the first possible world.
    #[must_use]
    pub fn free(&self) -> Option<&Free> {
        self.worlds.first().map(|world| &world.free)
    }

    /// A report we cannot explain may know of pods we do not: believe neither it nor us beyond the other. Pods it may
    /// not have counted yet are taken off it.
    fn cautious(&self, world: &World, report: &Free) -> Free {
        let mut view = report.clone();
        for (row, place) in self.rows.iter().zip(&world.places) {
            if let (Stage::Pending, Place::At { placement, .. }) = (row.stage, place) {
                placement.charge(&mut view);
            }
        }
        view.meet(&world.free);
        view
    }
}

// === events ===

impl Ledger {
    /// A pod is bound to the node, or about to be. The same pod again changes nothing.
    pub fn bound(&mut self, pod: &Bound, scratch: &mut Scratch) {
        if self.index(pod.id).is_some() {
            return;
        }
        self.revision += 1;
        let early = self.early_releases();
        let Bound { id, hash, needs, finishes } = pod.clone();
        self.rows.push(Row {
            id,
            hash,
            needs,
            finishes,
            stage: Stage::Pending,
            admitted: false,
            described: false,
            gone_at: u64::MAX,
        });
        let Some(rules) = self.topology.as_ref().map(|t| t.rules) else { return };
        let mut next = Vec::with_capacity(self.worlds.len());
        for world in &self.worlds {
            let doubtful = self.doubtful(world);
            for place in outcomes(rules, world, &early, &pod.needs, scratch) {
                let place = if doubtful { hedge(rules, &world.free, &pod.needs, place) } else { place };
                let mut world = world.clone();
                charge(&mut world.free, &place);
                world.places.push(place);
                next.push(world);
            }
        }
        self.settle(next, scratch);
    }

    /// The kubelet has taken the pod in.
    pub fn admitted(&mut self, id: PodId, scratch: &mut Scratch) {
        self.revision += 1;
        if let Some(row) = self.rows.iter_mut().find(|row| row.id == id) {
            row.admitted = true;
        }
        self.set_stage(id, Stage::Pending, Stage::Admitted, scratch);
    }

    /// The pod's deletion was asked for, or its object vanished before the kubelet said it was done: from now on the
    /// kubelet may release it without telling, also before it admits what is pending now.
    pub fn leaving(&mut self, id: PodId, scratch: &mut Scratch) {
        let Some(index) = self.index(id) else { return };
        self.revision += 1;
        if matches!(self.rows[index].stage, Stage::Pending | Stage::Admitted) {
            self.rows[index].stage = Stage::Leaving;
            self.fork(index, scratch, |world| charge(&mut world.free, &world.places[index]));
        }
    }

    /// The kubelet has released the pod (or rejected it). When exactly, relative to the admission of pending pods, is
    /// unknown, so each possibility becomes a world.
    pub fn released(&mut self, id: PodId, scratch: &mut Scratch) {
        let Some(index) = self.index(id) else { return };
        if self.rows[index].stage == Stage::Released {
            return;
        }
        self.revision += 1;
        self.releases += 1;
        self.rows[index].stage = Stage::Released;
        self.rows[index].gone_at = self.releases;
        self.fork(index, scratch, |_| {});
        self.trim_released();
    }

    /// The pod never reached the node: the binding failed for certain.
    pub fn forget(&mut self, id: PodId, scratch: &mut Scratch) {
        let Some(index) = self.index(id) else { return };
        self.revision += 1;
        let rules = self.topology.as_ref().map(|t| t.rules).unwrap_or_default();
        let later: Vec<_> = self.unsettled().into_iter().filter(|at| *at > index).collect();
        let mut worlds = std::mem::take(&mut self.worlds);
        for world in &mut worlds {
            self.readmit(world, &later, rules, scratch, |world| {
                release(&mut world.free, &world.places[index])
            });
        }
        self.worlds = worlds;
        self.drop_row(index);
        let worlds = std::mem::take(&mut self.worlds);
        self.settle(worlds, scratch);
    }

    /// A new report about the node.
    pub fn report(&mut self, topology: Arc<NodeTopology>, scratch: &mut Scratch) {
        self.revision += 1;
        self.lost = false;
        let same_table = self.worlds.first().is_none_or(|w| w.free.layout() == topology.available().layout());
        let same_rules = self.topology.as_ref().is_none_or(|old| old.rules == topology.rules);
        if !topology.rules.policy.enforces() || !same_table || !same_rules {
            // Cells and predictions of the old table mean nothing in the new one.
            self.worlds.clear();
            self.rows.iter_mut().for_each(|row| row.described = false);
        }
        self.topology = Some(Arc::clone(&topology));
        self.unexplained = topology.rules.policy.enforces().then_some(topology);
        self.explain_report(scratch);
    }

    /// The report object was deleted. What we knew still holds, but nobody will correct it.
    pub fn report_deleted(&mut self) {
        self.revision += 1;
        self.lost = self.topology.as_ref().is_some_and(|t| t.rules.policy.enforces());
        self.unexplained = None;
    }

    /// There is a report, but it cannot be read. Whatever it says, somebody exports this node, so it may well enforce
    /// alignment.
    pub fn report_unreadable(&mut self) {
        self.revision += 1;
        self.lost = true;
        self.unexplained = None;
    }
}

// === internals ===

impl Ledger {
    fn index(&self, id: PodId) -> Option<usize> {
        self.rows.iter().position(|row| row.id == id)
    }

    fn indices(&self, stage: Stage) -> impl Iterator<Item = usize> + '_ {
        self.rows.iter().enumerate().filter(move |(_, row)| row.stage == stage).map(|(at, _)| at)
    }

    /// Rows the kubelet may not have admitted yet, in the order it will.
    fn unsettled(&self) -> Vec<usize> {
        let unsettled = |row: &Row| !row.admitted && row.stage != Stage::Released;
        self.rows.iter().enumerate().filter(|(_, row)| unsettled(row)).map(|(at, _)| at).collect()
    }

    fn set_stage(&mut self, id: PodId, from: Stage, to: Stage, scratch: &mut Scratch) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.id == id && row.stage == from) {
            row.stage = to;
            self.explain_report(scratch);
        }
    }

    /// Ends an event: the new worlds, without twins, without those that cannot be, within bounds; then another try at a
    /// report that was not understood so far.
    fn settle(&mut self, mut worlds: Vec<World>, scratch: &mut Scratch) {
        let mut unique: Vec<World> = Vec::with_capacity(worlds.len());
        for world in worlds.drain(..) {
            if !unique.iter().any(|known| self.same(known, &world)) {
                unique.push(world);
            }
        }
        let may_be_early = self
            .rows
            .iter()
            .any(|row| row.stage == Stage::Leaving || (row.finishes && row.stage == Stage::Admitted));
        // A pod that is charged wherever it might be makes debts that mean nothing.
        let impossible = |world: &World| world.free.has_debt() && !self.doubtful(world);
        if !may_be_early && !unique.iter().all(impossible) {
            unique.retain(|world| !impossible(world));
        }
        if unique.len() > MAX_WORLDS {
            let live: Vec<bool> = self.rows.iter().map(|row| row.stage != Stage::Released).collect();
            unique = vec![fold(&unique, &live)];
        }
        self.worlds = unique;
        self.explain_report(scratch);
    }

    /// Whether two worlds differ at most in where pods were that are no longer there.
    fn same(&self, one: &World, other: &World) -> bool {
        let places = self.rows.iter().zip(one.places.iter().zip(&other.places));
        one.free == other.free
            && places.into_iter().all(|(row, (a, b))| row.stage == Stage::Released || a == b)
    }

    /// Sets of pods the kubelet may release before it admits the next one: the subsets of those that are leaving (for many,
    /// each alone and all together), each with at most one that finishes by itself.
    fn early_releases(&self) -> Vec<Vec<usize>> {
        let leaving: Vec<_> = self.indices(Stage::Leaving).collect();
        let chosen = |mask: usize| (0..leaving.len()).filter(move |bit| mask >> bit & 1 == 1);
        let sets: Vec<Vec<usize>> = if leaving.len() <= MAX_COMBINED {
            (0..1_usize << leaving.len()).map(|mask| chosen(mask).map(|bit| leaving[bit]).collect()).collect()
        } else {
            let alone = leaving.iter().map(|at| vec![*at]);
            [vec![], leaving.clone()].into_iter().chain(alone).collect()
        };
        let finishing: Vec<_> = self.indices(Stage::Admitted).filter(|at| self.rows[*at].finishes).collect();
        let with_one_more = sets.iter().flat_map(|set| {
            finishing.iter().map(|at| set.iter().copied().chain([*at]).collect::<Vec<usize>>())
        });
        let all = sets.iter().cloned().chain(with_one_more);
        all.filter(|set| !set.is_empty()).collect()
    }

    /// Replaces each world by those in which the row is released before some of the unsettled pods are admitted; `then`
    /// finishes each of them.
    fn fork(&mut self, index: usize, scratch: &mut Scratch, then: impl Fn(&mut World)) {
        let rules = self.topology.as_ref().map(|t| t.rules).unwrap_or_default();
        let unsettled: Vec<_> = self.unsettled().into_iter().filter(|at| *at != index).collect();
        let mut next = Vec::with_capacity(self.worlds.len());
        for world in &self.worlds {
            if world.places[index] == Place::Unknown {
                next.push(world.clone());
                continue;
            }
            for cut in (0..=unsettled.len()).rev() {
                let mut world = world.clone();
                self.readmit(&mut world, &unsettled[cut..], rules, scratch, |world| {
                    release(&mut world.free, &world.places[index]);
                });
                then(&mut world);
                next.push(world);
            }
        }
        self.settle(next, scratch);
    }

    /// Whether the kubelet may have more room than the world says, so that what it does next cannot be told exactly.
    fn doubtful(&self, world: &World) -> bool {
        self.rows.iter().zip(&world.places).any(|(row, place)| match place {
            Place::At { exact, .. } => !exact && row.stage != Stage::Released,
            Place::Unknown => row.finishes || matches!(row.stage, Stage::Leaving | Stage::Released),
        })
    }

    /// Takes `later` out of a world, lets `change` happen, and admits them again in order.
    fn readmit(
        &self,
        world: &mut World,
        later: &[usize],
        rules: Rules,
        scratch: &mut Scratch,
        change: impl Fn(&mut World),
    ) {
        later.iter().for_each(|at| release(&mut world.free, &world.places[*at]));
        change(world);
        for at in later {
            world.places[*at] = Place::At { placement: Placement::default(), exact: true };
        }
        for at in later {
            let needs = &self.rows[*at].needs;
            let mut place = predict(rules, &world.free, needs, scratch);
            if self.doubtful(world) {
                place = hedge(rules, &world.free, needs, place);
            }
            charge(&mut world.free, &place);
            world.places[*at] = place;
        }
    }

    fn drop_row(&mut self, index: usize) {
        self.rows.remove(index);
        for world in &mut self.worlds {
            world.places.remove(index);
        }
    }

    /// Forgets the oldest released pods beyond the bound, those first whose release is complete.
    fn trim_released(&mut self) {
        while self.indices(Stage::Released).count() > MAX_REMEMBERED {
            let Some(oldest) = self.indices(Stage::Released).next() else { return };
            self.drop_row(oldest);
        }
    }
}

#[cfg(test)]
mod tests;
