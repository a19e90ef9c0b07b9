//! The free amounts in each NUMA zone of one node: computed from events, and corrected by reports.
//!
//! In: reports (NRT objects, from any exporter), and the pod states that the API server shows: bound, admitted,
//! leaving, released. Out: whether a pod would be admitted, and the table for scores. Never: I/O, a clock, or a look at
//! other nodes.
//!
//! A report alone is always late, and charging every new pod to every zone until it arrives (as the peers do) leaves
//! capacity idle for seconds. The kubelet's choice is deterministic, so the ledger computes it. The unknown is the
//! order of events inside the kubelet while a pod is *pending* (bound, not yet seen admitted): another pod may have
//! left before or after, or have been admitted out of turn (`order`). The ledger therefore keeps every possible outcome
//! as a *world*; nearly always there is one. A pod fits only if it fits in all worlds. A report whose fingerprint names
//! a known pod set removes the worlds that disagree. If no world agrees, the report is the truth, and the placements
//! are computed anew from its numbers.
//!
//! Reports of tholepin's exporter say by ids what is free and what each container holds. A world holds the state of the
//! kubelet's managers then, and the kubelet's model decides (`amounts`); no set of pods has to be guessed
//! (`identify/by_id`). Reports of other exporters have amounts by zone.
//!
//! Invariants (property-tested against a kubelet in `ledger/tests.rs`):
//! - the kubelet's true state is one of the worlds as long as reports tell the truth;
//! - each pod is charged at most once per world, and not at all once the kubelet has released it;
//! - without a report that explains itself, nothing that needs alignment fits.
//!
//! Cost: a check is a look at the zones where one of them certainly has all (`check_cache`), else worlds x one
//! admission. Events cost worlds x orders of pending pods x sets of leaving pods x admissions, all bounded and nearly
//! always few; reports additionally the search for the pod set, which is bounded by event and paused when it finds
//! nothing. A report that says what was expected is no reason to check anything anew.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

use topology::kubelet::start::KubeletStart;
use topology::policy::{Policy, Rules};
use topology::reason::Misfit;
use topology::request::PodNeeds;
use topology::zone::{Free, NodeTopology};

mod alignment;
mod amounts;
mod check_cache;
mod departures;
mod drift;
mod explain;
mod freed_zones;
mod identify;
mod kept_cpus;
mod kubelet_model_cache;
mod location;
mod order;
mod pod_location;
mod readmission;
mod refusal;
mod report;
mod row;
mod unexplained_report;
mod verdict_basis;

pub use amounts::Scratch;
use amounts::{Amounts, Held, HeldIds};
use check_cache::CheckCache;
pub use drift::Drift;
use drift::Drifts;
pub use explain::{LedgerSummary, Predictions};
use identify::TornReports;
use location::{charge, merge_alike, merge_worst, release, release_rows, widen};
use order::AdmissionKey;
pub use pod_location::{PodHoldings, PodLocation};
use readmission::check_release_points;
pub use refusal::{Doubt, Refusal};
use row::Row;
pub use row::{BoundPod, PodId, PodNames, Stage};

/// Most possible worlds; more are merged into one that is worse than each of them.
const MAX_WORLDS: usize = 64;
/// Most released pods kept to understand reports that still describe them.
const MAX_RELEASED_ROWS: usize = 64;

/// The zones of a pod in one world.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Location {
    /// Somewhere in the numbers of the report.
    Unknown,
    /// Charged so. Not `exact`: charged wherever the pod might be, so more than once.
    Charged { held: Held, exact: bool },
}

impl Location {
    /// What is charged; `None` where that is not known.
    fn held(&self) -> Option<Held> {
        match self {
            Self::Unknown => None,
            Self::Charged { held, .. } => Some(held.clone()),
        }
    }

    /// Whether it is known what is held.
    fn is_exact(&self) -> bool {
        matches!(self, Self::Charged { exact: true, .. })
    }

    /// The location of a pod that holds nothing yet.
    fn nowhere() -> Self {
        Self::Charged { held: Held::default(), exact: true }
    }
}

/// One possible state of the kubelet.
#[derive(Clone, Debug, PartialEq)]
struct World {
    amounts: Amounts,
    /// Parallel to [`Ledger::rows`].
    locations: Vec<Location>,
}

/// The ledger of one node. A copy tells what other events would bring.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    topology: Option<Arc<NodeTopology>>,
    /// The node's kubelet, if the last readable report says all that its model needs.
    start: Option<Arc<KubeletStart>>,
    /// The newest report, while no known pod set has its fingerprint, or while it is taken for torn.
    unexplained: Option<Arc<NodeTopology>>,
    /// The newest reports, while they are taken for torn.
    torn: Option<TornReports>,
    /// Whether the last report believed has in use what pods known by then need not hold: they may leave it behind.
    counts_unknown_pods: bool,
    /// Reports by ids, the newest ones, that were left out because they show a pod in part.
    partial_reports: u8,
    /// Pods in the order in which they came to be known, which is the order in which the kubelet sees them but for
    /// those of [`order`].
    rows: Vec<Row>,
    /// Whether rows may have [`Row::departures`], since the last report.
    has_departures: bool,
    /// The possible worlds; none: no report was understood yet.
    worlds: Vec<World>,
    /// The report was deleted or cannot be read: the node may enforce alignment, but its state is no longer reported.
    report_lost: bool,
    /// The time until which a first report is expected, in milliseconds.
    report_due_ms: u64,
    /// A kubelet's rejection contradicts what is known: the next report is awaited until this time, in ms.
    contradicted_until_ms: u64,
    /// Whether the newest report was not understood when that was. It is from before, whatever it tells later.
    contradicts_unexplained: bool,
    /// The time by which a report must be understood, in ms, where none was so far.
    explanation_due_ms: Option<u64>,
    /// Whether reports go by their amounts, until a fingerprint is that of known pods.
    goes_by_amounts: bool,
    /// Number of releases so far; orders them.
    releases: u64,
    /// Number of bindings so far that the API server has shown; orders them.
    bindings_shown: u64,
    /// Number of reports understood so far.
    reports: u64,
    /// Reports that contradicted every world.
    drifts: Drifts,
    predictions: Predictions,
    /// Number of events so far.
    revision: u64,
    /// Events for which an unexplained report is not searched again.
    search_pause: u32,
    /// What checks and scores ask for again and again, until the next event.
    cache: OnceCell<CheckCache>,
}

// === reading ===

impl Ledger {
    /// Whether a pod with these needs, created in this second, would be admitted by the node's kubelet, beside all that
    /// are on their way.
    ///
    /// A node without any report ever admits everything: it may not align at all. The peers do the same; the caller
    /// decides how long a young node is given to report.
    ///
    /// # Errors
    /// The [`Refusal`].
    pub fn check(&self, (needs, created_s): (&PodNeeds, u64), scratch: &mut Scratch) -> Result<(), Refusal> {
        if !needs.may_align() {
            return Ok(());
        }
        let key = AdmissionKey { needs, created_s, shown_at: u64::MAX };
        let overtaking = || self.has_unseen().then(|| self.overtaking(key)).flatten();
        if self.has_certain_room(needs) && overtaking().is_none() {
            return Ok(());
        }
        let Some(topology) = &self.topology else {
            return if self.report_lost { Err(Refusal::Stale(Doubt::ReportLost)) } else { Ok(()) };
        };
        let rules = topology.rules;
        if !self.is_modelled() {
            return Ok(());
        }
        let Some(first) = self.worlds.first() else {
            let aligned = Amounts::Counts(topology.available()).needs_alignment(rules, needs);
            return if aligned { Err(Refusal::Stale(Doubt::Unexplained)) } else { Ok(()) };
        };
        if !first.amounts.needs_alignment(rules, needs) {
            return Ok(());
        }
        if self.report_lost {
            return Err(Refusal::Stale(Doubt::ReportLost));
        }
        let is_non_monotonic = first.amounts.is_non_monotonic(rules, needs);
        let early = if is_non_monotonic { self.likely_releases() } else { Vec::new() };
        self.check_worlds((rules, needs), &early, scratch).map_err(Refusal::Misfit)?;
        // The kubelet may have more room than is known or counted on, which keeps such a pod out.
        let may_have_more = |world: &World| self.is_in_doubt(world) || self.counts_on_less(world);
        if is_non_monotonic && self.worlds.iter().any(may_have_more) {
            return Err(Refusal::Stale(Doubt::UnknownZones));
        }
        let Some(overtaking) = overtaking() else { return Ok(()) };
        for world in &self.worlds {
            for amounts in self.counted_on(world) {
                self.check_orders((world, &amounts), needs, &overtaking, scratch)?;
            }
        }
        Ok(())
    }

    /// Whether the pod fits in each world, also after each of the sets `early` is released.
    fn check_worlds(
        &self,
        (rules, needs): (Rules, &PodNeeds),
        early: &[Vec<usize>],
        scratch: &mut Scratch,
    ) -> Result<(), Misfit> {
        for world in &self.worlds {
            for amounts in self.counted_on(world) {
                let amounts = &*amounts;
                amounts.check(rules, needs, scratch)?;
                for regrouped in amounts.regrouped(rules) {
                    regrouped.check(rules, needs, scratch)?;
                }
                for early in early {
                    let mut amounts = amounts.clone();
                    release_rows(&mut amounts, &world.locations, early);
                    for amounts in self.with_less(world, Cow::Owned(amounts), early) {
                        amounts.check(rules, needs, scratch)?;
                    }
                }
                check_release_points((world, amounts), (rules, needs), early, scratch)?;
            }
        }
        Ok(())
    }

    /// Whether `needs` would be admitted on a node without other pods. Allocates a table of the node.
    #[must_use]
    pub fn could_fit(&self, needs: &PodNeeds, scratch: &mut Scratch) -> bool {
        let Some(topology) = self.topology.as_ref().filter(|_| self.is_modelled()) else {
            return !(self.report_lost && needs.may_align());
        };
        let vacant = match &self.start {
            Some(start) => Amounts::vacant(Arc::clone(start)),
            None => Amounts::Counts(topology.allocatable()),
        };
        !vacant.needs_alignment(topology.rules, needs)
            || (self.is_trusted() && vacant.check(topology.rules, needs, scratch).is_ok())
    }

    /// The ledger once the kubelet has released these pods. It is as exact as the ledger: where pods are on their way,
    /// each possible order is a world, and zones of a pod that are not known stay taken. Cost: a copy and one release;
    /// where pods are on their way, or worlds many, the releases.
    #[must_use]
    pub fn without(&self, pods: impl IntoIterator<Item = PodId>, scratch: &mut Scratch) -> Self {
        let mut ledger = self.clone();
        let pods: Vec<PodId> = pods.into_iter().collect();
        if !ledger.all_released(&pods) {
            pods.iter().for_each(|pod| ledger.released(*pod, scratch));
        }
        let is_staying =
            |pod: &PodId| self.index(*pod).is_some_and(|at| self.rows[at].stage == Stage::Admitted);
        ledger.drop_later(|pod| pods.contains(pod) && is_staying(pod));
        ledger
    }

    /// Whether the node's kubelet may reject pods for what they get in zones, and the ledger tells when.
    fn is_modelled(&self) -> bool {
        self.start.is_some()
            || self.topology.as_ref().is_some_and(|topology| topology.rules.policy.enforces())
    }

    /// Whether the first report of the node, readable or not, is still expected.
    #[must_use]
    pub fn awaits_report(&self, now_ms: u64) -> bool {
        self.topology.is_none() && !self.report_lost && now_ms < self.report_due_ms
    }

    /// Whether a rejection contradicts what is known of the zones, the pod may need some, and no report has come since.
    #[must_use]
    pub fn is_contradicted(&self, needs: &PodNeeds, now_ms: u64) -> bool {
        let needs_alignment = |world: &World| {
            self.topology().is_some_and(|topology| world.amounts.needs_alignment(topology.rules, needs))
        };
        now_ms < self.contradicted_until_ms && self.worlds.first().is_some_and(needs_alignment)
    }

    /// Whether the possible worlds rest on a report that still exists.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        !self.report_lost && !self.worlds.is_empty()
    }

    /// Whether the last readable report still exists.
    #[must_use]
    pub fn has_report(&self) -> bool {
        self.topology.is_some() && !self.report_lost
    }

    /// The last readable report.
    #[must_use]
    pub fn topology(&self) -> Option<&NodeTopology> {
        self.topology.as_deref()
    }

    /// Whether the kubelet aligns pods with pod-level resources as a whole (gate `PodLevelResourceManagers`).
    #[must_use]
    pub fn aligns_whole_pods(&self) -> bool {
        let manages =
            |topology: &&NodeTopology| topology.kubelet.as_deref().is_some_and(|r| r.pod_level_managers);
        self.topology().filter(manages).is_some_and(|topology| topology.rules.policy != Policy::None)
    }

    /// Whether it has a pod that no report has shown yet.
    pub(crate) fn has_unreported(&self, pod: PodId) -> bool {
        self.index(pod).is_some_and(|at| !self.rows[at].described)
    }

    /// The free amounts of the first possible world.
    #[must_use]
    pub fn free(&self) -> Option<&Free> {
        self.worlds.first().map(|world| world.amounts.free())
    }
}

// === events ===

impl Ledger {
    /// The API server shows that a pod is bound to the node. Pods that are only assumed so far come after it.
    pub fn bound(&mut self, pod: &BoundPod, scratch: &mut Scratch) {
        if self.index(pod.id).is_some() {
            return self.shown(pod.id);
        }
        self.bindings_shown += 1;
        self.enter(pod, self.bindings_shown, scratch);
        self.read_again(pod.id, scratch);
    }

    /// Adds a pod that is about to be bound to the node. A known pod changes nothing.
    pub fn assumed(&mut self, pod: &BoundPod, scratch: &mut Scratch) {
        if self.index(pod.id).is_none() {
            self.enter(pod, u64::MAX, scratch);
        }
    }

    /// The API server shows that an assumed pod is bound. No verdict changes; pods that it shows later come after it.
    pub fn shown(&mut self, id: PodId) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.id == id && row.shown_at == u64::MAX) {
            self.bindings_shown += 1;
            row.shown_at = self.bindings_shown;
        }
    }

    fn enter(&mut self, pod: &BoundPod, shown_at: u64, scratch: &mut Scratch) {
        self.changes();
        let early = self.likely_releases();
        let overtaking =
            self.overtaking(AdmissionKey { needs: &pod.needs, created_s: pod.created_s, shown_at });
        let BoundPod { id, names, hash, needs, finishes, created_s } = pod.clone();
        self.rows.push(Row {
            id,
            names,
            hash,
            needs,
            finishes,
            created_s,
            shown_at,
            stage: Stage::Pending,
            described: false,
            may_follow_report: true,
            reports_before: 0,
            missed: 0,
            initialized: false,
            released_at: u64::MAX,
            alike: None,
            started_s: None,
            departures: Vec::new(),
        });
        self.note_alike();
        let Some(rules) = self.topology.as_ref().map(|t| t.rules) else { return };
        let mut next = Vec::with_capacity(self.worlds.len());
        for world in &self.worlds {
            let doubtful = self.may_be_in_doubt(world);
            for location in self.possible_locations(rules, world, &early, &pod.needs, scratch) {
                let location =
                    if doubtful { widen(rules, &world.amounts, &pod.needs, location) } else { location };
                let mut world = world.clone();
                charge(&mut world.amounts, &location);
                world.locations.push(location);
                self.add_worlds(&mut next, [world]);
            }
        }
        if let Some(overtaking) = &overtaking {
            self.add_worlds(&mut next, self.overtaken_worlds(overtaking, scratch));
        }
        self.settle(next, scratch);
    }

    /// The kubelet has admitted the pod. A pod that finishes by itself may be gone before the kubelet admits those that
    /// are pending now.
    pub fn admitted(&mut self, id: PodId, scratch: &mut Scratch) {
        self.changes();
        let Some(index) = self.index(id) else { return };
        let others_pend = self.rows.iter().any(|row| row.stage == Stage::Pending && row.id != id);
        let row = &mut self.rows[index];
        match &mut row.stage {
            Stage::Pending => {
                row.stage = Stage::Admitted;
                row.reports_before = self.reports;
                if row.finishes && others_pend {
                    self.fork(index, scratch, |world| charge(&mut world.amounts, &world.locations[index]));
                } else {
                    self.explain_report(scratch);
                }
            }
            Stage::Leaving { admitted } => *admitted = true,
            Stage::Admitted | Stage::Released => {}
        }
    }

    /// The pod's init containers have ended. The kubelet takes their memory back when the next container starts
    /// (memorymanager `AddContainer`), and reports by pod names do not show it.
    pub fn initialized(&mut self, id: PodId) {
        let Some(index) = self.index(id).filter(|index| !self.rows[*index].initialized) else { return };
        self.changes();
        let frees = |world: &World| self.rows[index].without_init_memory(&world.locations[index]).is_some();
        if self.worlds.iter().any(frees) {
            self.tell_apart(index);
        }
        self.rows[index].initialized = true;
        for world in &mut self.worlds {
            if let Some(location) = self.rows[index].without_init_memory(&world.locations[index]) {
                let before = std::mem::replace(&mut world.locations[index], location);
                if self.rows[index].stage != Stage::Released {
                    release(&mut world.amounts, &before);
                    charge(&mut world.amounts, &world.locations[index]);
                }
            }
        }
    }

    /// The pod's deletion was requested, or its object vanished before the kubelet was done with the pod. From now on
    /// the kubelet may release the pod unannounced, also before it admits the pods that are pending now.
    pub fn leaving(&mut self, id: PodId, scratch: &mut Scratch) {
        let Some(index) = self.index(id) else { return };
        self.changes();
        let stage = self.rows[index].stage;
        if stage.stays() {
            self.tell_apart(index);
            self.rows[index].stage = Stage::Leaving { admitted: stage == Stage::Admitted };
            self.fork(index, scratch, |world| charge(&mut world.amounts, &world.locations[index]));
        }
    }

    /// The kubelet has rejected a pod that fits by all that is known: some of it is wrong. Until a report is
    /// understood, or this time comes, nothing fits that needs alignment. Returns whether that is so: reports of
    /// tholepin's exporter come by themselves, and at once.
    pub fn contradicted(&mut self, until_ms: u64) -> bool {
        let awaits = self.start.is_none() && self.is_modelled() && self.is_trusted();
        if awaits {
            self.changes();
            self.contradicted_until_ms = until_ms;
            self.contradicts_unexplained = self.unexplained.is_some();
        }
        awaits
    }

    /// The kubelet has released or rejected the pod. The moment relative to the admission of pending pods is unknown,
    /// so each possibility becomes a world.
    pub fn released(&mut self, id: PodId, scratch: &mut Scratch) {
        let Some(index) = self.index(id) else { return };
        if self.rows[index].stage == Stage::Released {
            return;
        }
        self.changes();
        self.release_row(index, scratch);
        self.trim_released();
    }

    /// The same for a row that is not released yet. All rows keep their places.
    fn release_row(&mut self, index: usize, scratch: &mut Scratch) {
        self.releases += 1;
        self.tell_apart(index);
        self.note_departure(index);
        self.rows[index].stage = Stage::Released;
        self.rows[index].released_at = self.releases;
        self.fork(index, scratch, |_| {});
    }

    /// The kubelet has released all of these pods. Returns whether that has one result whatever the order: there is one
    /// world, no pod is on its way, each is told apart from those alike, and no report is to be explained. If not,
    /// nothing has changed.
    fn all_released(&mut self, pods: &[PodId]) -> bool {
        let is_told_apart = |pod: &PodId| self.index(*pod).is_none_or(|at| self.rows[at].alike.is_none());
        if self.unexplained.is_some()
            || self.worlds.len() != 1
            || !self.unsettled().is_empty()
            || !pods.iter().all(is_told_apart)
        {
            return false;
        }
        self.changes();
        let mut held = Vec::new();
        for index in pods.iter().filter_map(|pod| self.index(*pod)).collect::<Vec<_>>() {
            if self.rows[index].stage != Stage::Released {
                self.releases += 1;
                self.note_departure(index);
                self.rows[index].stage = Stage::Released;
                self.rows[index].released_at = self.releases;
                held.extend(self.worlds.first().and_then(|world| world.locations[index].held()));
            }
        }
        self.worlds.iter_mut().for_each(|world| world.amounts.release_all(&held));
        self.trim_released();
        true
    }

    /// The pod never reached the node, because its binding failed for certain. Those bound after it may be elsewhere
    /// than was predicted, also if they are admitted by now.
    pub fn forget(&mut self, id: PodId, scratch: &mut Scratch) {
        let Some(index) = self.index(id) else { return };
        self.changes();
        self.worlds = self.as_pending(index + 1, |ledger| ledger.without_row(index, scratch));
        self.drop_row(index);
        let worlds = std::mem::take(&mut self.worlds);
        self.settle(worlds, scratch);
    }
}

// === internals ===

impl Ledger {
    fn index(&self, id: PodId) -> Option<usize> {
        self.rows.iter().position(|row| row.id == id)
    }

    fn indices(&self, has: impl Fn(Stage) -> bool) -> impl Iterator<Item = usize> {
        self.rows.iter().enumerate().filter(move |(_, row)| has(row.stage)).map(|(at, _)| at)
    }

    /// Rows that the kubelet may not have admitted yet, in the order in which it will.
    fn unsettled(&self) -> Vec<usize> {
        self.indices(Stage::may_be_admitted_later).collect()
    }

    /// Ends an event: adopts the new worlds within bounds, then tries once more to explain a report that was not
    /// understood so far.
    fn settle(&mut self, worlds: Vec<World>, scratch: &mut Scratch) {
        self.worlds = self.bounded(worlds);
        self.explain_report(scratch);
    }

    /// The worlds without duplicates and without impossible ones, at most [`MAX_WORLDS`].
    fn bounded(&self, worlds: Vec<World>) -> Vec<World> {
        let mut unique: Vec<World> = Vec::with_capacity(worlds.len());
        for world in worlds {
            if !unique.contains(&world) {
                unique.push(world);
            }
        }
        let may_be_early =
            self.rows.iter().any(|row| row.stage.is_leaving() || (row.finishes && row.stage.stays()));
        // A pod charged wherever it might be causes debts that are no contradiction.
        let impossible = |world: &World| world.amounts.has_debt() && !self.may_be_in_doubt(world);
        if !may_be_early && !unique.iter().all(impossible) {
            unique.retain(|world| !impossible(world));
        }
        if unique.len() > MAX_WORLDS {
            let live: Vec<bool> = self.rows.iter().map(|row| row.stage != Stage::Released).collect();
            unique = merge_alike(unique, &live);
            if unique.len() > MAX_WORLDS {
                unique = vec![merge_worst(&unique, &live)];
            }
        }
        unique
    }

    /// Adds worlds to those found so far. Each further pod or release multiplies them, so they are kept within bounds
    /// meanwhile.
    fn add_worlds(&self, found: &mut Vec<World>, more: impl IntoIterator<Item = World>) {
        for world in more {
            if found.contains(&world) {
                continue;
            }
            found.push(world);
            if found.len() > MAX_WORLDS {
                *found = self.bounded(std::mem::take(found));
            }
        }
    }

    /// Whether it is not known where a pod is that leaves, or that is charged wherever it might be, or which pods hold
    /// something: the kubelet may have more room than the world.
    fn is_in_doubt(&self, world: &World) -> bool {
        let is_unclear = |(row, location): (&Row, &Location)| match location {
            Location::Charged { exact, .. } => !exact && row.stage != Stage::Released,
            Location::Unknown => {
                row.stage.is_leaving() || row.stage == Stage::Released || self.hides_something(row)
            }
        };
        self.counts_unknown_pods
            || world.amounts.has_unknown_pods()
            || self.rows.iter().zip(&world.locations).any(is_unclear)
    }

    /// Whether it is in doubt, or may be before the kubelet admits the next pod: one of unknown place may finish.
    fn may_be_in_doubt(&self, world: &World) -> bool {
        let may_finish = |(row, location): (&Row, &Location)| row.finishes && *location == Location::Unknown;
        self.is_in_doubt(world) || self.rows.iter().zip(&world.locations).any(may_finish)
    }

    fn drop_row(&mut self, index: usize) {
        self.rows.remove(index);
        for world in &mut self.worlds {
            world.locations.remove(index);
        }
    }

    /// Drops the oldest released pods beyond the bound.
    fn trim_released(&mut self) {
        let released = |stage| stage == Stage::Released;
        while self.indices(released).count() > MAX_RELEASED_ROWS {
            let Some(oldest) = self.indices(released).next() else { return };
            self.drop_row(oldest);
        }
    }
}

#[cfg(test)]
mod tests;
