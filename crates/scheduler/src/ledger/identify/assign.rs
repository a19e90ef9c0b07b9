//! Pod locations computed from a report's numbers.
//!
//! In: a report that contradicts every world, and the pods it counts. Out: every assignment of those pods to zones that
//! adds up to the report exactly, or unknown locations when there are too many. Never: an assignment that is only
//! likely.

use smallvec::SmallVec;
use topology::admit::{self, Grant, Placement, Scratch};
use topology::policy::Scope;
use topology::request::{ContainerKind, ContainerNeeds, Need, PodNeeds};
use topology::resource::ResourceName;
use topology::zone::{Free, NodeTopology};

use crate::ledger::{Held, Ledger, Location};

/// Most solutions that are kept as worlds; more tell nothing about any pod.
const MAX_SOLUTIONS: usize = 16;
/// Most steps of the search.
const MAX_STEPS: usize = 20_000;

/// Amounts that the kubelet allocates from one zone together.
#[derive(Debug)]
struct Item {
    row: usize,
    amounts: SmallVec<[(usize, i64); 4]>,
}

struct Search<'a> {
    items: &'a [Item],
    residual: Free,
    /// By column: amounts of pods that may be anywhere, which are left over in the end.
    anywhere: Vec<i64>,
    chosen: Vec<usize>,
    solutions: Vec<Vec<usize>>,
    steps: usize,
}

impl Ledger {
    /// The locations of all rows in each possible world.
    ///
    /// Locations on which all worlds agreed are kept if a solution exists with them: of each row if no world
    /// contradicts the report, else of those that an earlier report has shown. If none exists, all are searched, and
    /// those of rows that the report does not count stay unknown.
    pub(super) fn solve_locations(
        &self,
        report: &NodeTopology,
        free: &Free,
        members: &[bool],
        is_contradicted: bool,
    ) -> Vec<Vec<Location>> {
        let is_kept = |at: usize| !is_contradicted || (members[at] && self.rows[at].described);
        let kept = |at| if is_kept(at) { self.agreed_location(at) } else { Location::Unknown };
        let mut known: Vec<Location> = (0..self.rows.len()).map(kept).collect();
        let used = used(report, free);
        if let Some(worlds) = self.solve(report, &used, members, &known) {
            return worlds;
        }
        known.fill(Location::Unknown);
        self.solve(report, &used, members, &known).unwrap_or_else(|| vec![known])
    }

    /// The location on which all worlds agree.
    pub(super) fn agreed_location(&self, at: usize) -> Location {
        let mut locations = self.worlds.iter().map(|world| &world.locations[at]);
        match locations.next() {
            Some(first @ Location::Charged { exact: true, .. })
                if locations.all(|location| location == first) =>
            {
                first.clone()
            }
            _ => Location::Unknown,
        }
    }

    /// Pods that no single zone can hold, and pods whose parts cannot be told apart, stay unknown. They hide no other
    /// pod: their amounts are what is left over.
    fn solve(
        &self,
        report: &NodeTopology,
        used: &Free,
        members: &[bool],
        known: &[Location],
    ) -> Option<Vec<Vec<Location>>> {
        let allocatable = report.allocatable();
        let (mut items, mut searched) = (Vec::new(), Vec::new());
        let mut residual = used.clone();
        let mut anywhere = vec![0_i64; allocatable.layout().resources().len()];
        for at in (0..self.rows.len()).filter(|at| members[*at]) {
            let needs = &self.rows[at].needs;
            if let Location::Charged { held: Held::Cells(placement), .. } = &known[at] {
                placement.grants.iter().for_each(|grant| residual.add(grant.cell as usize, -grant.visible));
                continue;
            }
            let own = items_of(report, &allocatable, needs, at);
            match own.filter(|own| own.iter().all(|item| item.fits_a_zone(&allocatable))) {
                Some(own) => {
                    items.extend(own);
                    searched.push((at, has_init(report, &allocatable, needs)));
                }
                None => visible_amounts(report, &allocatable, needs).iter().for_each(|(column, amount)| {
                    anywhere[*column] = anywhere[*column].saturating_add(*amount)
                }),
            }
        }
        let (chosen, solutions) = (Vec::new(), Vec::new());
        let mut search = Search { items: &items, residual, anywhere, chosen, solutions, steps: 0 };
        search.run();
        let solved = !search.solutions.is_empty()
            && search.solutions.len() <= MAX_SOLUTIONS
            && search.steps < MAX_STEPS;
        let solutions = search.solutions;
        let locate = |zones: Vec<usize>| {
            let mut locations = known.to_vec();
            for (at, has_init) in &searched {
                let own = items.iter().zip(&zones).filter(|(item, _)| item.row == *at);
                let held = has_init.then_some(&*self.rows[*at].needs);
                locations[*at] = location_of(report, &allocatable, own, held);
            }
            locations
        };
        solved.then(|| solutions.into_iter().map(locate).collect())
    }
}

impl Item {
    fn fits_a_zone(&self, allocatable: &Free) -> bool {
        let fits =
            |zone| self.amounts.iter().all(|(column, amount)| allocatable.get(zone, *column) >= *amount);
        (0..allocatable.layout().zones().len()).any(fits)
    }
}

/// The amounts in use according to the report.
pub(super) fn used(report: &NodeTopology, free: &Free) -> Free {
    let mut used = report.allocatable();
    for (cell, available) in free.cells().iter().enumerate() {
        used.add(cell, -available);
    }
    used
}

/// The parts of a pod that go to one zone each; `None` for pods whose parts cannot be told apart: with init containers
/// that pin CPUs, and other containers that pin none.
fn items_of(report: &NodeTopology, free: &Free, needs: &PodNeeds, row: usize) -> Option<Vec<Item>> {
    let mut items: Vec<Item> = Vec::new();
    let together = report.rules.scope == Scope::Pod || stays_together(report, free, needs)?;
    for container in &needs.containers {
        let amounts = charged_amounts(report, free, needs, container);
        if amounts.is_empty() || container.kind == ContainerKind::Init {
            continue;
        }
        match items.first_mut().filter(|_| together) {
            Some(whole) => whole.amounts.extend(amounts),
            None => items.push(Item { row, amounts }),
        }
    }
    if items.is_empty() && has_init(report, free, needs) {
        items.push(Item { row, amounts: SmallVec::new() });
    }
    Some(items)
}

/// Whether all containers are in one zone because an init container pins CPUs, which the others must reuse there
/// (kubelet 1.36 `generateCPUTopologyHints`). `None`: an init container aligns something, and another container pins no
/// CPUs, so it may be elsewhere.
fn stays_together(report: &NodeTopology, free: &Free, needs: &PodNeeds) -> Option<bool> {
    if !has_init(report, free, needs) {
        return Some(false);
    }
    let cpu = free.layout().column(ResourceName::CPU);
    let pins = |container: &ContainerNeeds| {
        let amounts = charged_amounts(report, free, needs, container);
        amounts.is_empty() || amounts.iter().any(|(column, _)| Some(*column) == cpu)
    };
    needs.containers.iter().all(pins).then_some(true)
}

/// Whether an init container aligns anything.
fn has_init(report: &NodeTopology, free: &Free, needs: &PodNeeds) -> bool {
    let mut init = needs.containers.iter().filter(|container| container.kind == ContainerKind::Init);
    init.any(|container| !charged_amounts(report, free, needs, container).is_empty())
}

/// The amounts of a pod, by column, that a report shows once the pod runs.
pub(super) fn visible_amounts(report: &NodeTopology, free: &Free, needs: &PodNeeds) -> Vec<(usize, i64)> {
    let running = needs.containers.iter().filter(|container| container.kind.keeps_running());
    running.flat_map(|container| charged_amounts(report, free, needs, container)).collect()
}

fn charged_amounts(
    report: &NodeTopology,
    free: &Free,
    needs: &PodNeeds,
    container: &ContainerNeeds,
) -> SmallVec<[(usize, i64); 4]> {
    let column = |need: &Need| admit::charged_column(report.rules, free, needs.qos, *need);
    container.needs.iter().filter_map(|need| Some((column(need)?, need.amount))).collect()
}

/// The location of a row with these items, each in a zone. With init containers (`with_init` has the pod's needs) the
/// model says what they keep beside what a report shows.
fn location_of<'a>(
    report: &NodeTopology,
    allocatable: &Free,
    own: impl Iterator<Item = (&'a Item, &'a usize)>,
    with_init: Option<&PodNeeds>,
) -> Location {
    let mut grants: SmallVec<[Grant; 2]> = SmallVec::new();
    for (item, zone) in own {
        if let Some(needs) = with_init {
            let only = only_zone(allocatable, *zone);
            if let Ok(placement) = admit::admit(report.rules, &only, needs, &mut Scratch::default()) {
                return Location::Charged { held: Held::Cells(placement), exact: true };
            }
        }
        for (column, amount) in &item.amounts {
            let cell = u32::try_from(allocatable.index(*zone, *column)).unwrap_or(u32::MAX);
            match grants.iter_mut().find(|grant| grant.cell == cell) {
                Some(grant) => {
                    grant.held = grant.held.saturating_add(*amount);
                    grant.visible = grant.visible.saturating_add(*amount);
                }
                None => grants.push(Grant { cell, held: *amount, visible: *amount }),
            }
        }
    }
    grants.sort_unstable_by_key(|grant| grant.cell);
    Location::Charged { held: Held::Cells(Placement { grants }), exact: true }
}

/// The table of a node of which only this zone has anything.
pub(super) fn only_zone(free: &Free, zone: usize) -> Free {
    let columns = free.layout().resources().len().max(1);
    let mut only = free.clone();
    for (index, amount) in free.cells().iter().enumerate().filter(|(index, _)| index / columns != zone) {
        only.add(index, -amount);
    }
    only
}

impl Search<'_> {
    /// Searches depth first, zones ascending; stops at the bounds.
    fn run(&mut self) {
        self.steps += 1;
        if self.steps >= MAX_STEPS || self.solutions.len() > MAX_SOLUTIONS {
            return;
        }
        let Some(item) = self.items.get(self.chosen.len()) else {
            if self.is_used_up() {
                self.solutions.push(self.chosen.clone());
            }
            return;
        };
        for zone in 0..self.residual.layout().zones().len() {
            let fits =
                item.amounts.iter().all(|(column, amount)| self.residual.get(zone, *column) >= *amount);
            if fits {
                self.shift(item, zone, -1);
                self.chosen.push(zone);
                self.run();
                self.chosen.pop();
                self.shift(item, zone, 1);
            }
        }
    }

    /// Whether nothing is left over but the amounts of pods that may be anywhere.
    fn is_used_up(&self) -> bool {
        let zones = 0..self.residual.layout().zones().len();
        let left = |column: usize| zones.clone().map(|zone| self.residual.get(zone, column)).sum::<i64>();
        !self.residual.has_debt()
            && self.anywhere.iter().enumerate().all(|(column, amount)| left(column) == *amount)
    }

    fn shift(&mut self, item: &Item, zone: usize, sign: i64) {
        for (column, amount) in &item.amounts {
            let cell = self.residual.index(zone, *column);
            self.residual.add(cell, sign * amount);
        }
    }
}
