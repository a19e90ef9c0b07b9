//! Working placements out of a report's numbers.
//!
//! In: a report that contradicts what the ledger thought, and the pods it counts. Out: every way of putting those pods into
//! zones that adds up to the report exactly, or no opinion when there are too many.

use smallvec::SmallVec;
use topology::admit::{self, Grant, Placement};
use topology::policy::Scope;
use topology::request::{ContainerKind, PodNeeds};
use topology::zone::{Free, NodeTopology};

use crate::ledger::{Ledger, Place};

/// More solutions than this say nothing useful.
const MAX_SOLUTIONS: usize = 16;
/// Bounds the search.
const MAX_STEPS: usize = 20_000;

/// Amounts that the kubelet puts into one zone together.
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
    /// Places of all rows in each possible world; rows the report does not count are left open.
    pub(super) fn work_out(&self, report: &NodeTopology, free: &Free, members: &[bool]) -> Vec<Vec<Place>> {
        let mut known: Vec<Place> = (0..self.rows.len())
            .map(|at| if members[at] && self.rows[at].described { self.agreed(at) } else { Place::Unknown })
            .collect();
        let used = used(report, free);
        if let Some(worlds) = self.solve(report, free, &used, members, &known) {
            return worlds;
        }
        known.fill(Place::Unknown);
        self.solve(report, free, &used, members, &known).unwrap_or_else(|| vec![known])
    }

    /// Where all worlds agree the row is.
    fn agreed(&self, at: usize) -> Place {
        let mut places = self.worlds.iter().map(|world| &world.places[at]);
        match places.next() {
            Some(first @ Place::At { exact: true, .. }) if places.all(|place| place == first) => {
                first.clone()
            }
            _ => Place::Unknown,
        }
    }

    fn solve(
        &self,
        report: &NodeTopology,
        free: &Free,
        used: &Free,
        members: &[bool],
        known: &[Place],
    ) -> Option<Vec<Vec<Place>>> {
        let mut residual = used.clone();
        let mut items = Vec::new();
        for at in (0..self.rows.len()).filter(|at| members[*at]) {
            match &known[at] {
                Place::At { placement, .. } => {
                    placement
                        .grants
                        .iter()
                        .for_each(|grant| residual.add(grant.cell as usize, -grant.visible));
                }
                Place::Unknown => items.extend(items_of(report, free, &self.rows[at].needs, at)?),
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
                    let mut places = known.to_vec();
                    for at in (0..self.rows.len()).filter(|at| members[*at] && known[*at] == Place::Unknown) {
                        places[at] = place(free, &items, zones, at);
                    }
                    places
                })
                .collect()
        })
    }
}

/// What the report says is in use.
fn used(report: &NodeTopology, free: &Free) -> Free {
    let mut used = report.allocatable();
    for (cell, available) in free.cells().iter().enumerate() {
        used.add(cell, -available);
    }
    used
}

/// The units of a pod that each go to one zone; `None` for pods whose share the report does not show in full (init
/// containers).
fn items_of(report: &NodeTopology, free: &Free, needs: &PodNeeds, row: usize) -> Option<Vec<Item>> {
    let mut items: Vec<Item> = Vec::new();
    for container in &needs.containers {
        let amounts: SmallVec<[(usize, i64); 4]> = container
            .needs
            .iter()
            .filter_map(|need| {
                admit::charged_column(report.rules, free, needs.qos, *need)
                    .map(|column| (column, need.amount))
            })
            .collect();
        if amounts.is_empty() {
            continue;
        }
        if container.kind == ContainerKind::Init {
            return None;
        }
        match (report.rules.scope, items.first_mut()) {
            (Scope::Pod, Some(whole)) => whole.amounts.extend(amounts),
            _ => items.push(Item { row, amounts }),
        }
    }
    Some(items)
}

fn place(free: &Free, items: &[Item], zones: &[usize], row: usize) -> Place {
    let mut grants: SmallVec<[Grant; 2]> = SmallVec::new();
    for (item, zone) in items.iter().zip(zones).filter(|(item, _)| item.row == row) {
        for (column, amount) in &item.amounts {
            let cell = u32::try_from(free.index(*zone, *column)).unwrap_or(u32::MAX);
            match grants.iter_mut().find(|grant| grant.cell == cell) {
                Some(grant) => {
                    grant.held += amount;
                    grant.visible += amount;
                }
                None => grants.push(Grant { cell, held: *amount, visible: *amount }),
            }
        }
    }
    grants.sort_unstable_by_key(|grant| grant.cell);
    Place::At { placement: Placement { grants }, exact: true }
}

impl Search<'_> {
    /// Depth first, zones ascending; stops when the bounds are reached.
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
