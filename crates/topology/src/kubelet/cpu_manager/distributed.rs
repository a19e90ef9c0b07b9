//! Which CPUs a container gets if those over several zones are spread evenly (`distribute-cpus-across-numa`).
//!
//! In: as for [`super::accumulator`]. Out: the same, balanced over the fewest zones that allow it.
//!
//! Source: kubelet 1.34 to 1.37 `takeByTopologyNUMADistributed`; 1.37 prefers zones of one socket under
//! `align-by-socket`. The kubelet keeps the best combination of zones as a Go slice, whose last zones later
//! combinations may overwrite in place; [`Combinations`] does the same, so that the same zones result.

use crate::cpuset::CpuSet;
use crate::kubelet::cpu_manager::accumulator::{Accumulator, Strategy, TakeError, take_packed};
use crate::kubelet::machine::Machine;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// CPUs.
    pub count: usize,
    /// CPUs that stay together: a core's threads, or 1.
    pub group: usize,
    /// Zones of one socket are better than balance (kubelet 1.37 under `align-by-socket`).
    pub by_socket: bool,
    /// No zone is to give more than it has (kubelet 1.37).
    pub bounded: bool,
}

/// Takes CPUs out of `available`. Cost: combinations of zones, exponential in their number as in the kubelet.
pub(crate) fn take_distributed(
    machine: &Machine,
    available: &CpuSet,
    ask: Ask,
    strategy: Strategy,
) -> Result<CpuSet, TakeError> {
    let strategy = Strategy { by_cache: false, ..strategy };
    if !ask.count.is_multiple_of(ask.group) {
        return take_packed(machine, available, ask.count, strategy);
    }
    let mut acc = Accumulator::new(machine, available, ask.count, strategy);
    if acc.is_satisfied() {
        return Ok(acc.taken());
    }
    if acc.free().len() < ask.count {
        return Err(TakeError::NotEnough { requested: ask.count, available: available.len() });
    }
    let zones: Vec<ZoneShare> = acc
        .zones()
        .into_iter()
        .map(|zone| ZoneShare { cpus: &zone.cpus, id: zone.id, free: acc.free().count_shared(&zone.cpus) })
        .collect();
    let Some(split) = best_split(machine, &zones, ask)? else {
        return take_packed(machine, available, ask.count, strategy);
    };
    let take = |acc: &mut Accumulator<'_>, zone: usize, count: usize| {
        let offered = acc.free().intersection(zones[zone].cpus);
        if let Ok(cpus) = take_packed(machine, &offered, count, strategy) {
            acc.take(&cpus);
        }
    };
    for zone in &split.zones {
        take(&mut acc, *zone, split.each);
    }
    let mut remainder = ask.count.cast_signed() - (split.each * split.zones.len()).cast_signed();
    while remainder > 0 {
        let before = remainder;
        for zone in &split.remainder {
            if remainder == 0 {
                break;
            }
            if acc.free().count_shared(zones[*zone].cpus) >= ask.group {
                take(&mut acc, *zone, ask.group);
                remainder -= ask.group.cast_signed();
            }
        }
        if remainder == before {
            return Err(TakeError::Endless);
        }
    }
    match acc.needed() {
        0 => Ok(acc.taken()),
        left if left > 0 => Err(TakeError::TooFew(left)),
        left => Err(TakeError::TooMany(left)),
    }
}

/// A zone and its free CPUs.
struct ZoneShare<'a> {
    id: u32,
    cpus: &'a CpuSet,
    free: usize,
}

/// Zones, by position, and CPUs from each.
struct Split {
    zones: Vec<usize>,
    each: usize,
    /// Zones that give one group more each.
    remainder: Vec<usize>,
}

/// The best combination of the smallest size that has one.
///
/// # Errors
/// [`TakeError::Endless`] where the kubelet looks at zones that have enough CPUs but no whole group left: it goes round
/// for ever. Zones with an odd number of free CPUs can do that, with cores of two threads that stay together.
fn best_split(machine: &Machine, zones: &[ZoneShare<'_>], ask: Ask) -> Result<Option<Split>, TakeError> {
    let groups = machine.cpus().len().div_ceil(ask.group);
    let per_zone = groups.div_ceil(machine.cpu_zones().len()).max(1);
    let wanted = ask.count.div_ceil(ask.group);
    for size in wanted.div_ceil(per_zone)..=wanted.min(zones.len()) {
        let mut search =
            Search { machine, zones, ask, best: f64::MAX, in_socket: false, found: None, is_endless: false };
        let mut combinations = Combinations::default();
        combinations.visit(zones.len(), size, &mut |arena, combination| search.consider(arena, combination));
        if search.is_endless {
            return Err(TakeError::Endless);
        }
        let Some((combination, remainder)) = search.found else { continue };
        let zones = combinations.read(combination);
        let each = share(ask, &zones, search.zones, ask.bounded);
        let remainder = remainder.map(|(arena, slice)| arena.read(slice)).unwrap_or_default();
        return Ok(Some(Split { each, zones, remainder }));
    }
    Ok(None)
}

/// CPUs that each zone of a combination gives.
fn share(ask: Ask, combination: &[usize], zones: &[ZoneShare<'_>], bounded: bool) -> usize {
    let even = ask.count / combination.len() / ask.group * ask.group;
    if !bounded {
        return even;
    }
    combination.iter().map(|zone| zones[*zone].free / ask.group * ask.group).fold(even, usize::min)
}

/// The search among combinations of one size.
struct Search<'a> {
    machine: &'a Machine,
    zones: &'a [ZoneShare<'a>],
    ask: Ask,
    best: f64,
    in_socket: bool,
    found: Option<(Slice, Option<(Combinations, Slice)>)>,
    is_endless: bool,
}

impl Search<'_> {
    /// Rates one combination. Returns whether to go on.
    fn consider(&mut self, arena: &Combinations, slice: Slice) -> bool {
        if self.best == 0.0 && (!self.ask.by_socket || self.in_socket) {
            return false;
        }
        let combination = arena.read(slice);
        let rated = match self.rate(&combination) {
            Ok(rated) => rated,
            Err(Endless) => {
                self.is_endless = true;
                return false;
            }
        };
        let Some((balance, remainder)) = rated else { return true };
        let in_socket = self.ask.by_socket && self.is_in_one_socket(&combination);
        let better =
            if self.ask.by_socket && in_socket != self.in_socket { in_socket } else { balance < self.best };
        if better {
            self.best = balance;
            self.in_socket = in_socket;
            self.found = Some((slice, remainder));
        }
        true
    }

    /// How balanced the zones are after this combination gives its CPUs, and which zones give the remainder. `None`:
    /// the combination cannot give them.
    fn rate(&self, combination: &[usize]) -> Result<Option<Rating>, Endless> {
        let Ask { count, group, .. } = self.ask;
        let free = |zone: &usize| self.zones[*zone].free;
        if combination.iter().map(free).sum::<usize>() < count
            || combination.iter().map(|zone| free(zone) / group).sum::<usize>() * group < count
        {
            return Ok(None);
        }
        let each = share(self.ask, combination, self.zones, self.ask.by_socket);
        if combination.iter().any(|zone| free(zone) < each) {
            return Ok(None);
        }
        let mut after: Vec<usize> = self.zones.iter().map(|zone| zone.free).collect();
        combination.iter().for_each(|zone| after[*zone] -= each);
        let remainder = count - each * combination.len();
        if remainder == 0 {
            return Ok(Some((deviation(&after), None)));
        }
        let givers: Vec<usize> = combination.iter().copied().filter(|zone| after[*zone] >= group).collect();
        let (mut best, mut found, mut is_endless) = (f64::MAX, None, false);
        for size in (1..=givers.len()).rev() {
            let mut subsets = Combinations::default();
            let mut of_size = None;
            subsets.visit(givers.len(), size, &mut |arena, slice| {
                let subset: Vec<usize> = arena.read(slice).into_iter().map(|at| givers[at]).collect();
                match balance_after(&after, &subset, remainder, group) {
                    Ok(Some(balance)) if balance < best => {
                        best = balance;
                        of_size = Some(slice);
                    }
                    Ok(_) => {}
                    Err(Endless) => is_endless = true,
                }
                !is_endless
            });
            if is_endless {
                return Err(Endless);
            }
            if let Some(slice) = of_size {
                subsets.translate(&givers);
                found = Some((subsets, slice));
            }
        }
        Ok(Some((best, found)))
    }

    fn is_in_one_socket(&self, combination: &[usize]) -> bool {
        let zones = combination.iter().map(|zone| self.zones[*zone].id).collect();
        self.machine.sockets_of(zones) <= 1
    }
}

/// The kubelet looks for a whole group in zones that have none, without an end.
struct Endless;

/// How balanced zones are, and which give the remainder.
type Rating = (f64, Option<(Combinations, Slice)>);

/// The balance after `subset` has given the remainder, group by group; `None` if it has not so many CPUs.
fn balance_after(
    free: &[usize],
    subset: &[usize],
    remainder: usize,
    group: usize,
) -> Result<Option<f64>, Endless> {
    if subset.iter().map(|zone| free[*zone]).sum::<usize>() < remainder {
        return Ok(None);
    }
    let (mut after, mut left) = (free.to_vec(), remainder);
    while left > 0 {
        let before = left;
        for zone in subset {
            if left > 0 && after[*zone] >= group {
                after[*zone] -= group;
                left -= group;
            }
        }
        if left == before {
            return Err(Endless);
        }
    }
    Ok(Some(deviation(&after)))
}

/// The standard deviation, mean and result rounded to thousandths (kubelet `standardDeviation`).
#[expect(clippy::cast_precision_loss, reason = "numbers of CPUs")]
fn deviation(values: &[usize]) -> f64 {
    let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
    let count = values.len() as f64;
    let mean = rounded(values.iter().map(|value| *value as f64).sum::<f64>() / count);
    let squares: f64 = values.iter().map(|value| (*value as f64 - mean) * (*value as f64 - mean)).sum();
    rounded((squares / count).sqrt())
}

/// The combinations of `k` out of `n` positions, kept as Go keeps slices: one that grows within its capacity shares its
/// array with its siblings, and the last written value stays.
#[derive(Default)]
struct Combinations {
    arrays: Vec<Vec<usize>>,
}

/// A Go slice: an array and a length.
#[derive(Clone, Copy)]
struct Slice {
    array: usize,
    len: usize,
}

impl Combinations {
    /// Calls `visit` with each combination, in order, until it returns false.
    fn visit(&mut self, n: usize, k: usize, visit: &mut dyn FnMut(&Self, Slice) -> bool) {
        if k >= 1 {
            self.arrays.push(Vec::new());
            self.descend(n, k, 0, Slice { array: self.arrays.len() - 1, len: 0 }, visit);
        }
    }

    fn descend(
        &mut self,
        n: usize,
        k: usize,
        start: usize,
        slice: Slice,
        visit: &mut dyn FnMut(&Self, Slice) -> bool,
    ) -> bool {
        if k == 0 {
            return visit(self, slice);
        }
        (start..(n + 1).saturating_sub(k)).all(|position| {
            let longer = self.append(slice, position);
            self.descend(n, k - 1, position + 1, longer, visit)
        })
    }

    /// Go's `append`: in place while the capacity lasts, otherwise into a new array of twice the capacity.
    fn append(&mut self, slice: Slice, value: usize) -> Slice {
        let array = if slice.len < self.arrays[slice.array].len() {
            slice.array
        } else {
            let mut grown = vec![0; (slice.len * 2).max(1)];
            grown[..slice.len].copy_from_slice(&self.arrays[slice.array][..slice.len]);
            self.arrays.push(grown);
            self.arrays.len() - 1
        };
        self.arrays[array][slice.len] = value;
        Slice { array, len: slice.len + 1 }
    }

    fn read(&self, slice: Slice) -> Vec<usize> {
        self.arrays[slice.array][..slice.len].to_vec()
    }

    /// Replaces positions by what stands there.
    fn translate(&mut self, values: &[usize]) {
        for entry in self.arrays.iter_mut().flatten() {
            *entry = values.get(*entry).copied().unwrap_or_default();
        }
    }
}
