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

use crate::ledger::{Ledger, Location};

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
    chosen: Vec<usize>,
    solutions: Vec<Vec<usize>>,
    steps: usize,
}

impl Ledger {
    /// The locations of all rows in each possible world. Rows that the report does not count stay unknown.
    ///
    /// Locations on which all worlds agreed are kept if a solution exists with them; else all are searched.
    pub(super) fn solve_locations(
        &self,
        report: &NodeTopology,
        free: &Free,
        members: &[bool],
    ) -> Vec<Vec<Location>> {
        let mut known: Vec<Location> = (0..self.rows.len())
            .map(|at| {
                if members[at] && self.rows[at].described {
                    self.agreed_location(at)
                } else {
                    Location::Unknown
                }
            })
            .collect();
        let used = used(report, free);
        if let Some(worlds) = self.solve(report, free, &used, members, &known) {
            return worlds;
        }
        known.fill(Location::Unknown);
        self.solve(report, free, &used, members, &known).unwrap_or_else(|| vec![known])
    }

    /// The location on which all worlds agree.
    fn agreed_location(&self, at: usize) -> Location {
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

    fn solve(
        &self,
        report: &NodeTopology,
        free: &Free,
        used: &Free,
        members: &[bool],
        known: &[Location],
    ) -> Option<Vec<Vec<Location>>> {
        let mut residual = used.clone();
        let mut items = Vec::new();
        for at in (0..self.rows.len()).filter(|at| members[*at]) {
            match &known[at] {
                Location::Charged { placement, .. } => {
                    placement
                        .grants
                        .iter()
                        .for_each(|grant| residual.add(grant.cell as usize, -grant.visible));
                }
                Location::Unknown => items.extend(items_of(report, free, &self.rows[at].needs, at)?),
            }
        }
        let mut search =
            Search { items: &items, residual, chosen: Vec::new(), solutions: Vec::new(), steps: 0 };
        search.run();
        let solved = !search.solutions.is_empty()
            && search.solutions.len() <= MAX_SOLUTIONS
            && search.steps < MAX_STEPS;
        solved.then(|| {
            search
                .solutions
                .iter()
                .map(|zones| {
                    let mut locations = known.to_vec();
                    for at in
                        (0..self.rows.len()).filter(|at| members[*at] && known[*at] == Location::Unknown)
                    {
                        locations[at] = location_of(report, &items, zones, (at, &self.rows[at].needs));
                    }
                    locations
                })
                .collect()
        })
    }
}

/// The amounts in use according to the report.
fn used(report: &NodeTopology, free: &Free) -> Free {
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

fn charged_amounts(
    report: &NodeTopology,
    free: &Free,
    needs: &PodNeeds,
    container: &ContainerNeeds,
) -> SmallVec<[(usize, i64); 4]> {
    let column = |need: &Need| admit::charged_column(report.rules, free, needs.qos, *need);
    container.needs.iter().filter_map(|need| Some((column(need)?, need.amount))).collect()
}

/// The location of a row whose items are in these zones. What init containers keep beside what a report shows follows
/// from the model.
fn location_of(report: &NodeTopology, items: &[Item], zones: &[usize], at: (usize, &PodNeeds)) -> Location {
    let free = report.allocatable();
    let (row, needs) = at;
    let mut own = items.iter().zip(zones).filter(|(item, _)| item.row == row);
    if let Some((_, zone)) = own.clone().next()
        && has_init(report, &free, needs)
    {
        let only = only_zone(&free, *zone);
        if let Ok(placement) = admit::admit(report.rules, &only, needs, &mut Scratch::default()) {
            return Location::Charged { placement, exact: true };
        }
    }
    let mut grants: SmallVec<[Grant; 2]> = SmallVec::new();
    for (column, amount, zone) in own
        .by_ref()
        .flat_map(|(item, zone)| item.amounts.iter().map(move |(column, amount)| (*column, *amount, *zone)))
    {
        let cell = u32::try_from(free.index(zone, column)).unwrap_or(u32::MAX);
        match grants.iter_mut().find(|grant| grant.cell == cell) {
            Some(grant) => {
                grant.held += amount;
                grant.visible += amount;
            }
            None => grants.push(Grant { cell, held: amount, visible: amount }),
        }
    }
    grants.sort_unstable_by_key(|grant| grant.cell);
    Location::Charged { placement: Placement { grants }, exact: true }
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
            if self.residual.cells().iter().all(|left| *left == 0) {
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

    fn shift(&mut self, item: &Item, zone: usize, sign: i64) {
        for (column, amount) in &item.amounts {
            let cell = self.residual.index(zone, *column);
            self.residual.add(cell, sign * amount);
        }
    }
}
