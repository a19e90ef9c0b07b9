//! LeastNUMANodes: the fewer zones a pod spans, and the closer they are, the better.
//!
//! In: zones with what is free and their distances, needs. Out: a score of 0 to 100. Never: a verdict; a pod that no
//! zones hold scores 0. It counts under every policy of the Topology Manager.
//!
//! Source: the NodeResourceTopologyMatch plugin, `least_numa.go`, with its numbers. Unlike there, zone ids may be
//! sparse, and what no zone lists takes no part.
//!
//! Cost: sets of zones, as few as decide; a search that has looked at [`MAX_STEPS`] of them takes the best so far. With
//! 8 zones there are 255 sets.

use smallvec::SmallVec;

use super::MAX_SCORE;
use crate::policy::{DEFAULT_MAX_NUMA_NODES, Scope};
use crate::request::{Need, PodNeeds};
use crate::zone::{Free, NodeTopology};

/// The distance of zones that name none, and the greatest that counts.
const FAR: u64 = 255;
/// The most partial sets of zones that a search looks at.
const MAX_STEPS: u32 = 100_000;

/// Rows of zones, ascending.
type Rows = SmallVec<[usize; 8]>;

/// The zones for a request.
struct Span {
    rows: Rows,
    /// Whether no set of so many zones is closer.
    is_closest: bool,
}

/// The score of a node for a Guaranteed pod.
pub(super) fn score(topology: &NodeTopology, free: &Free, needs: &PodNeeds) -> i64 {
    let max = topology.max_numa_nodes.unwrap_or(DEFAULT_MAX_NUMA_NODES);
    let mut left = free.clone();
    let (mut most, mut are_closest) = (0, true);
    let containers = needs.containers.iter().map(|container| &container.needs);
    let requests: SmallVec<[&Vec<Need>; 4]> = match topology.rules.scope {
        Scope::Pod => [&needs.pod_scope].into_iter().collect(),
        Scope::Container => containers.collect(),
    };
    for request in requests {
        let listed: SmallVec<[(usize, i64); 8]> = request
            .iter()
            .filter(|need| need.amount > 0)
            .filter_map(|need| Some((free.layout().column(need.name)?, need.amount)))
            .collect();
        if listed.is_empty() {
            continue;
        }
        let Some(span) = Search::new(topology, &left, &listed).run() else { return 0 };
        for (column, amount) in &listed {
            drain(&mut left, &span.rows, *column, *amount);
        }
        most = most.max(span.rows.len());
        are_closest &= span.is_closest;
    }
    if most == 0 { MAX_SCORE } else { normalized(most, are_closest, max) }
}

/// Takes an amount from zones, each emptied before the next.
fn drain(free: &mut Free, rows: &[usize], column: usize, amount: i64) {
    let mut amount = amount;
    for row in rows {
        let taken = amount.min(free.get(*row, column)).max(0);
        free.add(free.index(*row, column), -taken);
        amount -= taken;
    }
}

/// The score of so many zones, of at most `max`.
fn normalized(zones: usize, are_closest: bool, max: u32) -> i64 {
    let step = MAX_SCORE / i64::from(max.max(1));
    let zones = i64::try_from(zones).unwrap_or(MAX_SCORE);
    let bonus = if are_closest { step / 2 } else { 0 };
    (MAX_SCORE - zones.saturating_mul(step) + bonus).max(0)
}

/// A search for the zones of one request.
struct Search<'a> {
    free: &'a Free,
    /// Columns with amounts.
    request: &'a [(usize, i64)],
    /// Whether a zone lists all of them.
    is_eligible: SmallVec<[bool; 8]>,
    /// By two rows, in both directions together; of a row and itself, once.
    distances: Vec<u64>,
    zones: usize,
    steps: u32,
}

impl<'a> Search<'a> {
    fn new(topology: &NodeTopology, free: &'a Free, request: &'a [(usize, i64)]) -> Self {
        let zones = &topology.zones;
        let distance = |from: usize, to: usize| {
            let known = zones[from].distances.iter().find(|(id, _)| *id == zones[to].id);
            known.map_or(FAR, |(_, distance)| u64::from(*distance))
        };
        let pairs = (0..zones.len()).flat_map(|a| (0..zones.len()).map(move |b| (a, b)));
        let both = |(a, b)| if a == b { distance(a, a) } else { distance(a, b) + distance(b, a) };
        let names = free.layout().resources();
        let lists = |zone: &crate::zone::Zone| {
            request.iter().all(|(column, _)| {
                zone.resources.iter().any(|resource| Some(&resource.name) == names.get(*column))
            })
        };
        Self {
            free,
            request,
            is_eligible: zones.iter().map(lists).collect(),
            distances: pairs.map(both).collect(),
            zones: zones.len(),
            steps: 0,
        }
    }

    fn run(mut self) -> Option<Span> {
        for size in 1..=self.zones {
            if !self.may_hold(size) {
                continue;
            }
            let (mut closest, mut found) = (u64::MAX, None);
            self.extend(&mut Rows::new(), (0, size), 0, (true, &mut closest), &mut found);
            let Some(rows) = found else { continue };
            // Whether a closer set exists, which then does not hold the request. Nothing counts as farther than FAR.
            let mut is_closest = closest <= FAR * (size as u64).pow(2);
            let mut closer = None;
            self.extend(&mut Rows::new(), (0, size), 0, (false, &mut closest), &mut closer);
            is_closest &= closer.is_none() && self.steps <= MAX_STEPS;
            return Some(Span { rows, is_closest });
        }
        None
    }

    /// Whether so many zones may hold the request together.
    fn may_hold(&self, size: usize) -> bool {
        self.request.iter().all(|(column, amount)| {
            let mut free: SmallVec<[i64; 8]> = (0..self.zones)
                .filter(|row| self.is_eligible[*row])
                .map(|row| self.free.get(row, *column))
                .collect();
            free.sort_unstable_by(|a, b| b.cmp(a));
            free.len() >= size && free.iter().take(size).sum::<i64>() >= *amount
        })
    }

    /// Completes a set of zones in lexicographic order, and keeps the first of the closest. `must_hold`: only sets that
    /// hold the request count.
    fn extend(
        &mut self,
        rows: &mut Rows,
        (next, size): (usize, usize),
        distance: u64,
        (must_hold, closest): (bool, &mut u64),
        found: &mut Option<Rows>,
    ) {
        self.steps += 1;
        if distance >= *closest || self.steps > MAX_STEPS {
            return;
        }
        if rows.len() == size {
            if !must_hold || self.holds(rows) {
                *closest = distance;
                *found = Some(rows.clone());
            }
            return;
        }
        for row in next..=self.zones - (size - rows.len()) {
            if must_hold && !self.is_eligible[row] {
                continue;
            }
            let to_others: u64 = rows.iter().map(|other| self.distances[row * self.zones + other]).sum();
            let own = self.distances[row * self.zones + row];
            rows.push(row);
            let distance = distance + to_others + own;
            self.extend(rows, (row + 1, size), distance, (must_hold, &mut *closest), found);
            rows.pop();
        }
    }

    fn holds(&self, rows: &[usize]) -> bool {
        self.request.iter().all(|(column, amount)| {
            rows.iter().map(|row| self.free.get(*row, *column)).sum::<i64>() >= *amount
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_fall_with_zones_and_rise_with_closeness() {
        for (zones, are_closest, max, wanted) in [
            (1, false, 8, 88),
            (1, true, 8, 94),
            (2, true, 8, 82),
            (8, false, 8, 4),
            (8, true, 8, 10),
            (1, true, 16, 97),
            (2, false, 16, 88),
            (1, false, 64, 99),
            (64, true, 64, 36),
            (1, true, 101, 100),
            (3, false, 1_024, 100),
        ] {
            assert_eq!(normalized(zones, are_closest, max), wanted, "{zones} {are_closest} {max}");
        }
    }
}
