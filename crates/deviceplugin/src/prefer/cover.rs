//! The fewest zones that hold enough devices.
//!
//! In: the zones of each free device, of each that must be taken, how many are wanted. Out: zones. Never: more than needed while there are
//! few zones; with many, nearly never.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::Policy;

/// Up to so many zones all sets of them are tried; a machine has 1 to 8, with the finest partitions 16.
const EXACT: usize = 12;

/// The fewest zones such that enough free devices are close to one of them, and every device that must be taken is. Of sets of equal size the
/// one with the fewest devices left (packed) or the most (spread), then the lowest zones.
pub(super) fn fewest(free: &[&[u32]], must: &[&[u32]], size: usize, policy: Policy) -> BTreeSet<u32> {
    let zones: BTreeSet<u32> = free.iter().copied().flatten().copied().collect();
    let zones: Vec<u32> = zones.into_iter().collect();
    if zones.len() <= EXACT {
        exact(&zones, free, must, size, policy)
    } else {
        greedy(&zones, free, must, size)
    }
}

fn exact(zones: &[u32], free: &[&[u32]], must: &[&[u32]], size: usize, policy: Policy) -> BTreeSet<u32> {
    let mask = |of: &&[u32]| {
        let bits = of.iter().filter_map(|zone| zones.binary_search(zone).ok());
        bits.fold(0_u32, |mask, bit| mask | 1 << bit)
    };
    // Devices are many, their sets of zones few.
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    free.iter().for_each(|of| *counts.entry(mask(of)).or_default() += 1);
    let must: BTreeSet<u32> = must.iter().map(mask).filter(|mask| *mask != 0).collect();
    let without = counts.get(&0).copied().unwrap_or(0);
    let mut best = None;
    for set in 0..1_u32 << zones.len() {
        if must.iter().any(|mask| mask & set == 0) {
            continue;
        }
        let near: usize = counts.iter().filter(|(mask, _)| *mask & set != 0).map(|(_, count)| count).sum();
        if near + without < size {
            continue;
        }
        let room = match policy {
            Policy::Packed => near,
            Policy::Spread => usize::MAX - near,
        };
        // Zones by themselves before devices without one; of equals the first, which has the lowest zones.
        let worth = (set.count_ones(), near < size, room);
        if best.is_none_or(|(best, _)| worth < best) {
            best = Some((worth, set));
        }
    }
    let set = best.map_or(0, |(_, set)| set);
    zones.iter().enumerate().filter(|(bit, _)| set & 1 << bit != 0).map(|(_, zone)| *zone).collect()
}

/// One zone after the other, each time the one with the most devices that are not counted yet.
fn greedy(zones: &[u32], free: &[&[u32]], must: &[&[u32]], size: usize) -> BTreeSet<u32> {
    let mut chosen = BTreeSet::new();
    let near = |chosen: &BTreeSet<u32>, of: &[u32]| of.iter().any(|zone| chosen.contains(zone));
    loop {
        let open: Vec<&[u32]> =
            must.iter().copied().filter(|of| !of.is_empty() && !near(&chosen, of)).collect();
        let have = free.iter().filter(|of| of.is_empty() || near(&chosen, of)).count();
        if open.is_empty() && have >= size {
            return chosen;
        }
        let gain = |zone: &u32| {
            let most = open.iter().filter(|of| of.contains(zone)).count();
            let more = free.iter().filter(|of| of.contains(zone) && !near(&chosen, of)).count();
            (most, more, std::cmp::Reverse(*zone))
        };
        let next = zones.iter().filter(|zone| !chosen.contains(*zone)).max_by_key(|zone| gain(zone));
        let Some(next) = next.copied() else { return chosen };
        chosen.insert(next);
    }
}
