//! The fewest zones that hold enough devices.
//!
//! In: the zones of each free device and of each required one, and a number. Out: zones. Never: more zones than needed,
//! for up to 12; with more zones, rarely.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::Policy;

/// Up to this many zones, all sets of them are tried. Machines have 1 to 8, with the finest partitions 16.
const EXACT: usize = 12;

/// The fewest zones such that enough free devices, and every required one, are close to one of them. Of sets of equal
/// size, the one with the fewest devices left (packed) or the most (spread), then the lowest zones.
///
/// Cost: up to 12 zones, 2^zones x distinct sets of zones; beyond, zones squared x devices.
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
    // Devices are many, their distinct sets of zones few.
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
        // Devices with a zone before devices without one; of equal sets the first, which has the lowest zones.
        let worth = (set.count_ones(), near < size, room);
        if best.is_none_or(|(best, _)| worth < best) {
            best = Some((worth, set));
        }
    }
    let set = best.map_or(0, |(_, set)| set);
    zones.iter().enumerate().filter(|(bit, _)| set & 1 << bit != 0).map(|(_, zone)| *zone).collect()
}

/// Adds one zone after the other, each time the one with the most devices that are not covered yet.
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
