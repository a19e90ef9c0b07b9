//! Reports that say by ids what each container holds.
//!
//! In: such a report, and the ledger's rows. Out: worlds that agree with it, or one made of it. Never: a search; the
//! report names the containers, and pods that the ledger does not know hold what is left over.
//!
//! A report of a moment at which the kubelet was admitting a pod shows some of its containers only. It is left out: the
//! next one is on its way. The kubelet also takes back devices, CPUs and memory one after the other, so a report that
//! shows a part of what a pod is known to hold says nothing new of it. Reports by pod names, made without the kubelet's
//! checkpoints, leave out what finished init containers hold. A world that agrees in all else tells; without one a
//! bound is charged.
//!
//! Cost: containers x log containers, a hash for each, and worlds x rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;
use topology::admit::Grant;
use topology::cpuset::CpuSet;
use topology::kubelet::ContainerAllocation;
use topology::kubelet::hint::ZoneMask;
use topology::kubelet::pod::Container;
use topology::kubelet::start::KubeletStart;
use topology::placement::holdings::{HashKey, Holdings};
use topology::policy::Policy;
use topology::request::ContainerKind;
use topology::resource::{ResourceKind, ResourceName};
use topology::zone::NodeTopology;

use super::Understood;
use crate::ledger::amounts::{Amounts, Held, HeldIds, Ids, Scratch, Vacant};
use crate::ledger::drift::MAX_NAMED;
use crate::ledger::{Ledger, Location, PodId, Predictions, Row, Stage, World};

/// Reports after its admission that show nothing of a pod, until it is taken to hold nothing: the kubelet may have
/// admitted it under other settings.
const MAX_MISSED: u8 = 3;

/// Reports one after the other that are left out because they show a pod in part.
const MAX_PARTIAL: u8 = 3;

/// What a report says of one pod.
enum Reported {
    /// The pod holds nothing on this node.
    Nothing,
    /// The pod would hold something, and the report shows none of it.
    Absent,
    /// All that the pod would hold is of init containers, which the report leaves out.
    Hidden,
    /// Two containers have one hash.
    Unclear,
    /// What the pod holds. Devices stand for others near the same zones.
    Holds(Arc<HeldIds>),
}

/// A report, as rows are looked up in it.
struct Lookup<'a> {
    start: &'a KubeletStart,
    holdings: &'a Holdings,
    /// What pods hold that were not looked up yet.
    residents: ContainerAllocation,
}

impl Ledger {
    /// Takes a report by ids: see the module.
    pub(super) fn explain_by_ids(
        &mut self,
        report: &NodeTopology,
        start: Arc<KubeletStart>,
        scratch: &mut Scratch,
    ) {
        self.unexplained = None;
        let Some(holdings) = report.kubelet.as_deref().map(|kubelet| &kubelet.holdings) else { return };
        let mut lookup = Lookup { start: &start, holdings, residents: start.residents.clone() };
        let hidden_by_namesake = self.hidden_by_namesakes(&lookup);
        let look_up = |(at, row): (usize, &Row)| match hidden_by_namesake.contains(&at) {
            true => Some(Reported::Absent),
            false => lookup.look_up(row),
        };
        let Some(mut reported) = self.rows.iter().enumerate().map(look_up).collect::<Option<Vec<_>>>() else {
            // Worlds of before are as good as they were. The first report has to do.
            if self.worlds.is_empty() {
                self.worlds = self.unknown_worlds(start, report);
            }
            return;
        };
        let residents = lookup.residents;
        if self.is_partial(&reported, holdings.key(), &start) {
            return;
        }
        for (at, (row, reported)) in self.rows.iter_mut().zip(&mut reported).enumerate() {
            let is_missed = matches!(reported, Reported::Absent)
                && row.stage == Stage::Admitted
                && !row.described
                && !hidden_by_namesake.contains(&at);
            row.missed = if is_missed { row.missed.saturating_add(1).min(MAX_MISSED) } else { 0 };
            if row.missed == MAX_MISSED {
                *reported = Reported::Nothing;
            }
        }
        let is_silent = |of: &Reported| matches!(of, Reported::Nothing | Reported::Hidden);
        let counted: Vec<bool> = reported.iter().map(|of| !is_silent(of)).collect();
        let members: Vec<bool> =
            reported.iter().map(|of| matches!(of, Reported::Holds(_) | Reported::Unclear)).collect();
        let key = holdings.key();
        let vacant = Arc::new(Vacant::new(Arc::clone(&start), residents, || self.names_known_pods(report)));
        self.tell_apart_as_shown(&reported, key, &start);
        self.let_go_what_is_gone(&reported, key, &start, scratch);
        let agreeing: Vec<&World> =
            self.worlds.iter().filter(|world| self.agrees_by_ids(world, &reported, key, &start)).collect();
        let predictions = self.judge_predictions(&reported, key, &start);
        let bases: Vec<Vec<Location>> = if agreeing.is_empty() {
            let contradicts = |(at, row): (usize, &Row), said: &Location| match &reported[at] {
                Reported::Holds(shown) => !is_as_shown(row, said, shown, key, &start),
                Reported::Nothing | Reported::Absent | Reported::Hidden | Reported::Unclear => false,
            };
            if self.note_drift(contradicts) {
                self.explain_drift(&reported, contradicts);
            }
            vec![self.reported_locations(&reported, key, &vacant, None)]
        } else {
            agreeing
                .iter()
                .map(|world| self.reported_locations(&reported, key, &vacant, Some(world)))
                .collect()
        };
        self.predictions = predictions;
        let released_unannounced = self.describe(&counted, &members);
        let amounts = Amounts::Ids(Arc::new(Ids::new(vacant)));
        self.adopt(
            &Understood { rules: report.rules, amounts, members: &members, released_unannounced },
            bases,
            scratch,
        );
    }

    /// Reads the newest report once more if it shows this pod, which came after it and was taken for an unknown one.
    /// There need not be another report.
    pub(in crate::ledger) fn read_again(&mut self, id: PodId, scratch: &mut Scratch) {
        if self.unexplained.is_some() || self.report_lost || !self.is_shown_by_uid(id) {
            return;
        }
        let missed: Vec<(PodId, u8)> = self.rows.iter().map(|row| (row.id, row.missed)).collect();
        self.unexplained.clone_from(&self.topology);
        self.explain_report(scratch);
        for row in &mut self.rows {
            let before = missed.iter().find(|(id, _)| *id == row.id);
            row.missed = before.map_or(row.missed, |(_, missed)| *missed);
        }
    }

    /// Whether the newest report, by ids, has something of a pod. Names may be those of a former pod.
    fn is_shown_by_uid(&self, id: PodId) -> bool {
        let report = self.topology.as_ref().filter(|_| self.start.is_some());
        let holdings = report.and_then(|report| report.kubelet.as_deref()).map(|kubelet| &kubelet.holdings);
        let row = self.rows.iter().find(|row| row.id == id);
        let Some((holdings, row)) = holdings.zip(row).filter(|(it, _)| it.key() == HashKey::Uid) else {
            return false;
        };
        let mut containers = row.needs.pod.containers.iter();
        containers.any(|it| holdings.of(row.names.hash(HashKey::Uid, &it.name)).is_some())
    }

    /// Whether a report shows a pod, which no world has so, without a part of what it gets: the kubelet was handing it
    /// out, or taking it back. Such reports are left out, but for the first one and those after several.
    fn is_partial(&mut self, reported: &[Reported], key: HashKey, start: &KubeletStart) -> bool {
        let is_known = |at: usize, row: &Row, shown: &HeldIds| {
            let mut locations = self.worlds.iter().map(|world| &world.locations[at]);
            locations.any(|it| it.is_exact() && is_as_shown(row, it, shown, key, start))
        };
        let mut rows = self.rows.iter().zip(reported).enumerate();
        let is_partial = rows.any(|(at, (row, of))| match of {
            Reported::Holds(shown) => !shows_all(row, shown, key, start) && !is_known(at, row, shown),
            Reported::Nothing | Reported::Absent | Reported::Hidden | Reported::Unclear => false,
        });
        let is_left_out = is_partial && !self.worlds.is_empty() && self.partial_reports < MAX_PARTIAL;
        self.partial_reports = if is_left_out { self.partial_reports + 1 } else { 0 };
        is_left_out
    }

    /// Adds to the newest drift what was booked for the first pod that is wrong in all worlds; if there is none, for
    /// those that are wrong in some.
    fn explain_drift(
        &mut self,
        reported: &[Reported],
        contradicts: impl Fn((usize, &Row), &Location) -> bool,
    ) {
        let is_wrong = |world: &World, at: usize| contradicts((at, &self.rows[at]), &world.locations[at]);
        let rows = || 0..self.rows.len();
        let in_all = rows().find(|at| self.worlds.iter().all(|world| is_wrong(world, *at)));
        let in_some = rows().filter(|at| self.worlds.iter().any(|world| is_wrong(world, *at)));
        let told: Vec<usize> = match in_all {
            Some(first) => vec![first],
            None => in_some.take(MAX_NAMED).collect(),
        };
        for at in told {
            if let Reported::Holds(shown) = &reported[at] {
                let booked = self.worlds.iter().map(|world| &world.locations[at]);
                self.drifts.explain(&self.rows[at].names, booked, shown);
            }
        }
    }

    /// The predictions, with those about pods that the report is the first to tell. Of pods that were there before the
    /// ledger, nothing was predicted.
    fn judge_predictions(&self, reported: &[Reported], key: HashKey, start: &KubeletStart) -> Predictions {
        let mut predictions = self.predictions;
        for (at, (row, reported)) in self.rows.iter().zip(reported).enumerate() {
            let Reported::Holds(shown) = reported else { continue };
            let locations = || self.worlds.iter().map(|world| &world.locations[at]);
            let is_predicted = locations().any(Location::is_exact);
            if row.described || !is_predicted {
                continue;
            }
            match locations().any(|location| is_as_shown(row, location, shown, key, start)) {
                true => predictions.right += 1,
                false => predictions.wrong += 1,
            }
        }
        predictions
    }

    /// Of pods that a report by names cannot tell from a later pod of the same name: those that it does not show. It
    /// shows the later one, unless what it shows is what only the former held.
    fn hidden_by_namesakes(&self, lookup: &Lookup<'_>) -> Vec<usize> {
        if lookup.holdings.key() == HashKey::Uid {
            return Vec::new();
        }
        let pairs = (0..self.rows.len()).filter_map(|old| Some((old, self.successor(old)?)));
        let is_shown_by = |at: usize| {
            let (row, residents) = (&self.rows[at], lookup.residents.clone());
            match (Lookup { residents, ..*lookup }).look_up(row) {
                Some(Reported::Holds(shown)) => {
                    let location = self.agreed_location(at);
                    location != Location::Unknown
                        && is_as_shown(row, &location, &shown, HashKey::Name, lookup.start)
                }
                _ => false,
            }
        };
        pairs.map(|(old, new)| if !is_shown_by(new) && is_shown_by(old) { new } else { old }).collect()
    }

    /// The world of a first report in which a pod's admission had not ended: all is held by unknown containers, and
    /// pods on their way are charged beside.
    fn unknown_worlds(&self, start: Arc<KubeletStart>, report: &NodeTopology) -> Vec<World> {
        let residents = start.residents.clone();
        let vacant = Arc::new(Vacant::new(start, residents, || false));
        let amounts = Amounts::Ids(Arc::new(Ids::new(vacant)));
        let locations = vec![Location::nowhere(); self.rows.len()];
        let mut world = World { amounts, locations };
        for (at, row) in self.rows.iter().enumerate().filter(|(_, row)| row.stage == Stage::Pending) {
            let location = super::charge_all_zones(report.rules, &world.amounts, &row.needs);
            super::charge(&mut world.amounts, &location);
            world.locations[at] = location;
        }
        vec![world]
    }

    /// Where no world agrees with a report: takes pods that an earlier report has shown, and this one does not, for
    /// released, if a world agrees then. They have ended by themselves, and others were admitted in their room, before
    /// the API server told. Worlds have at most one such pod gone early. Reports by names leave pods out that still
    /// hold something, so they tell nothing of it.
    fn let_go_what_is_gone(
        &mut self,
        reported: &[Reported],
        key: HashKey,
        start: &KubeletStart,
        scratch: &mut Scratch,
    ) {
        let agrees = |ledger: &Self| {
            ledger.worlds.iter().any(|world| ledger.agrees_by_ids(world, reported, key, start))
        };
        let is_gone = |at: &usize| {
            let row = &self.rows[*at];
            matches!(reported[*at], Reported::Absent) && row.described && row.stage == Stage::Admitted
        };
        let gone: Vec<usize> = (0..self.rows.len()).filter(is_gone).collect();
        if gone.is_empty() || key != HashKey::Uid || agrees(self) {
            return;
        }
        let mut other = Self { unexplained: None, ..self.clone() };
        // No report has told yet whether the others were admitted before.
        other.as_pending(0, |other| gone.into_iter().for_each(|at| other.release_row(at, scratch)));
        if agrees(&other) {
            *self = Self { unexplained: self.unexplained.take(), ..other };
        }
    }

    /// Tells pods alike apart: each that the report shows is where it shows it, and another one alike in its place.
    fn tell_apart_as_shown(&mut self, reported: &[Reported], key: HashKey, start: &KubeletStart) {
        let Self { rows, worlds, .. } = self;
        for (at, shown) in reported.iter().enumerate() {
            let (class @ Some(_), Reported::Holds(shown)) = (rows[at].alike, shown) else { continue };
            rows[at].alike = None;
            let is_here = |location: &Location| is_as_shown(&rows[at], location, shown, key, start);
            for world in worlds.iter_mut().filter(|world| !is_here(&world.locations[at])) {
                let is_there =
                    |other: &usize| rows[*other].alike == class && is_here(&world.locations[*other]);
                if let Some(other) = (0..rows.len()).find(is_there) {
                    world.locations.swap(at, other);
                }
            }
        }
    }

    /// Whether pods hold what this world says, as far as the report shows it.
    fn agrees_by_ids(
        &self,
        world: &World,
        reported: &[Reported],
        key: HashKey,
        start: &KubeletStart,
    ) -> bool {
        let mut rows = self.rows.iter().zip(&world.locations).zip(reported);
        rows.all(|((row, location), reported)| match reported {
            Reported::Holds(shown) => is_as_shown(row, location, shown, key, start),
            Reported::Nothing | Reported::Absent | Reported::Hidden | Reported::Unclear => true,
        })
    }

    /// Where pods are by the report; where it says nothing, as in an agreeing world.
    fn reported_locations(
        &self,
        reported: &[Reported],
        key: HashKey,
        vacant: &Vacant,
        world: Option<&World>,
    ) -> Vec<Location> {
        let location = |(at, of): (usize, &Reported)| {
            let before = world.map(|world| &world.locations[at]);
            match of {
                Reported::Nothing => Location::nowhere(),
                Reported::Absent => before.cloned().unwrap_or(Location::Unknown),
                Reported::Hidden | Reported::Unclear => {
                    before.cloned().unwrap_or_else(|| self.agreed_location(at))
                }
                Reported::Holds(shown) => {
                    let row = &self.rows[at];
                    // Another pod may have contradicted the worlds.
                    let agreed = self.agreed_location(at);
                    let agreed = Some(&agreed).filter(|it| is_as_shown(row, it, shown, key, &vacant.start));
                    match before.or(agreed).filter(|known| known.is_exact()) {
                        // It has more: what the report hides, and which devices are used twice.
                        Some(known) => known.clone(),
                        None => with_hidden(row, shown, key, vacant),
                    }
                }
            }
        };
        reported.iter().enumerate().map(location).collect()
    }
}

impl Lookup<'_> {
    /// What the report says of a pod; `None` if the kubelet was admitting it.
    fn look_up(&mut self, row: &Row) -> Option<Reported> {
        let Self { start, holdings, .. } = *self;
        let pod = &row.needs.pod;
        // Memory of init containers goes when they end.
        let pinned = |container: &Container| {
            start.pins_cpus(pod, container)
                || container.kind != ContainerKind::Init && start.pins_memory(pod, container)
        };
        let holding = pod.containers.iter().filter(|it| pinned(it) || start.pins_devices(it));
        let (containers, hidden): (Vec<&Container>, Vec<&Container>) =
            holding.partition(|container| is_shown(container, holdings.key()));
        if containers.is_empty() {
            return Some(if hidden.is_empty() { Reported::Nothing } else { Reported::Hidden });
        }
        let hash = |container: &Container| row.names.hash(holdings.key(), &container.name);
        if containers.iter().any(|container| holdings.is_ambiguous(hash(container))) {
            return Some(Reported::Unclear);
        }
        let found: Vec<_> = containers
            .iter()
            .filter_map(|container| Some((*container, holdings.of(hash(container))?)))
            .collect();
        if found.is_empty() {
            return Some(Reported::Absent);
        }
        // Devices may be near no zone, and are in no report then.
        let is_found =
            |container: &&Container| found.iter().any(|(known, _)| std::ptr::eq(*known, *container));
        if !containers.iter().filter(|container| pinned(container)).all(is_found) {
            return None;
        }
        let claimed = start.claim(&mut self.residents, pod, &found);
        Some(Reported::Holds(Arc::new(HeldIds::exactly(claimed))))
    }
}

/// Whether a pod holds what this location says, as far as the report shows it. A bound is no contradiction.
fn is_as_shown(row: &Row, location: &Location, shown: &HeldIds, key: HashKey, start: &KubeletStart) -> bool {
    match location {
        Location::Charged { held: Held::Ids(predicted), exact: true } => {
            compared(row, predicted, shown, key, start).all(|(shown, predicted)| shown.is_part_of(&predicted))
        }
        Location::Charged { exact, .. } => !exact,
        Location::Unknown => true,
    }
}

/// Of each container that reports show: what this one shows, and what was predicted.
fn compared<'a>(
    row: &'a Row,
    predicted: &'a HeldIds,
    shown: &'a HeldIds,
    key: HashKey,
    start: &'a KubeletStart,
) -> impl Iterator<Item = (Shown, Shown)> + 'a {
    let containers = row.needs.pod.containers.iter().filter(move |container| is_shown(container, key));
    containers.map(|container| (Shown::of(shown, container, start), Shown::of(predicted, container, start)))
}

/// Whether reports show the container. Those by names come from podresources, which leaves out init containers.
fn is_shown(container: &Container, key: HashKey) -> bool {
    key == HashKey::Uid || container.kind != ContainerKind::Init
}

/// What a container holds, as far as reports tell.
#[derive(Default, PartialEq)]
struct Shown {
    cpus: CpuSet,
    memory: ZoneMask,
    /// By resource and zones.
    devices: BTreeMap<(ResourceName, Option<ZoneMask>), usize>,
}

impl Shown {
    fn of(held: &HeldIds, container: &Container, start: &KubeletStart) -> Self {
        let held = held.containers.iter().find(|held| held.name == container.name);
        let Some(held) = held else { return Self::default() };
        // Of a finished init container only CPUs and devices are left.
        let keeps_memory = container.kind != ContainerKind::Init;
        let memory = held.memory.iter().filter(|_| keeps_memory).map(|block| block.zones);
        let mut devices = BTreeMap::new();
        for (name, ids) in &held.devices {
            let listed = start.vacant.devices.resources.get(name);
            for id in ids {
                let zones = listed.and_then(|listed| listed.devices.get(id)?.zones);
                *devices.entry((*name, zones)).or_default() += 1;
            }
        }
        Self { cpus: held.cpus.clone(), memory: memory.fold(ZoneMask::EMPTY, ZoneMask::union), devices }
    }

    /// Whether a container that holds `all` shows this while the kubelet takes it back, or hands it out.
    fn is_part_of(&self, all: &Self) -> bool {
        let is_held = |(group, count): (&_, &usize)| all.devices.get(group).is_some_and(|held| count <= held);
        (self.cpus.is_empty() || self.cpus == all.cpus)
            && (self.memory.is_empty() || self.memory == all.memory)
            && self.devices.iter().all(is_held)
    }
}

/// Whether a report shows something of each kind that the kubelet hands out to the pod's containers.
fn shows_all(row: &Row, shown: &HeldIds, key: HashKey, start: &KubeletStart) -> bool {
    let pod = &row.needs.pod;
    pod.containers.iter().filter(|container| is_shown(container, key)).all(|container| {
        let shown = Shown::of(shown, container, start);
        // Memory of init containers goes when they end.
        let has_memory = container.kind == ContainerKind::Init || !shown.memory.is_empty();
        (has_memory || !start.pins_memory(pod, container))
            && (!shown.cpus.is_empty() || !start.pins_cpus(pod, container))
    })
}

/// Where a pod is by the report alone, with a bound of what finished init containers hold beside.
fn with_hidden(row: &Row, shown: &Arc<HeldIds>, key: HashKey, vacant: &Vacant) -> Location {
    let (pod, start) = (&row.needs.pod, &vacant.start);
    let hidden = pod.containers.iter().filter(|container| {
        let holds_memory = !row.initialized && start.pins_memory(pod, container);
        let holds = start.pins_cpus(pod, container) || start.pins_devices(container) || holds_memory;
        holds && !is_shown(container, key)
    });
    let hidden: Vec<&Container> = hidden.collect();
    if hidden.is_empty() {
        return Location::Charged { held: Held::Ids(Arc::clone(shown)), exact: true };
    }
    let bounds = hidden_bound(row, &hidden, shown, vacant);
    Location::Charged { held: Held::Ids(Arc::new(HeldIds { bounds, ..HeldIds::clone(shown) })), exact: false }
}

/// What init containers may hold: all of theirs in the zones of the pod's other containers, or in each. Memory only
/// while they run.
fn hidden_bound(row: &Row, hidden: &[&Container], shown: &HeldIds, vacant: &Vacant) -> SmallVec<[Grant; 2]> {
    let others = shown.containers.iter().fold(CpuSet::new(), |all, held| all.union(&held.cpus));
    // An init container is in the one zone of the others, which may reuse its CPUs. With several it may be in any.
    let is_single = vacant.start.kubelet.profile().policy == Policy::SingleNumaNode;
    let near = if is_single { vacant.start.kubelet.machine().zones_of(&others) } else { ZoneMask::EMPTY };
    let layout = vacant.allocatable().layout();
    let mut grants = SmallVec::new();
    for (at, zone) in layout.zones().iter().enumerate() {
        if !near.is_empty() && !near.contains(zone.0) {
            continue;
        }
        for (column, name) in layout.resources().iter().enumerate() {
            let held: i64 = hidden.iter().map(|container| amount(container, *name, row.initialized)).sum();
            if let (Ok(cell), true) = (u32::try_from(vacant.allocatable().index(at, column)), held > 0) {
                grants.push(Grant { cell, held, visible: 0 });
            }
        }
    }
    grants
}

/// What an init container holds of a resource, in base units.
fn amount(container: &Container, name: ResourceName, has_ended: bool) -> i64 {
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(name.base_units());
    match name.kind() {
        ResourceKind::Cpu => count(container.cpus),
        ResourceKind::Device => {
            container.devices.iter().filter(|(of, _)| *of == name).map(|(_, n)| count(*n)).sum()
        }
        ResourceKind::Memory if !has_ended => {
            let blocks = container.memory.iter().flatten().filter(|(of, _)| *of == name);
            blocks.map(|(_, bytes)| i64::try_from(*bytes).unwrap_or(i64::MAX)).sum()
        }
        ResourceKind::Memory | ResourceKind::Host => 0,
    }
}
