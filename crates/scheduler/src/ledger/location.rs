//! The possible locations of a pod in one world, and many worlds merged into one.
//!
//! In: a world, and the requests of a pod. Out: the zones that the kubelet may choose. Never: a change of the ledger.
//!
//! Errors must go one way: too little room is idle capacity for a moment, too much is a rejected pod. Where the
//! kubelet's choice is uncertain, the functions here therefore charge every zone that it may have chosen.

use topology::admit::{self, Grant, Placement, Scratch};
use topology::policy::Rules;
use topology::request::PodNeeds;
use topology::zone::Free;

use super::{Location, World};

/// The locations that a pod may get in one world: the choice of the model now, and its choice if the kubelet has
/// already released each of the sets in `early`.
///
/// The kubelet picks the lowest zone that fits, so a release that precedes the admission can move the pod to another
/// zone. The API server shows such a release only later; until then each different choice is a world of its own.
pub(super) fn possible_locations(
    rules: Rules,
    world: &World,
    early: &[Vec<usize>],
    needs: &PodNeeds,
    scratch: &mut Scratch,
) -> Vec<Location> {
    let mut locations = vec![predict(rules, &world.free, needs, scratch)];
    for early in early {
        let mut free = world.free.clone();
        early.iter().for_each(|at| release(&mut free, &world.locations[*at]));
        if let Ok(placement) = admit::admit(rules, &free, needs, scratch) {
            let location = Location::Charged { placement, exact: true };
            if !locations.contains(&location) {
                locations.push(location);
            }
        }
    }
    locations
}

/// Whether more room can make the pod not fit.
///
/// With several containers aligned one by one, the first may move to the zone that a later one needs. For such pods a
/// check against the current room is not enough, and the worlds with early releases are checked as well.
pub(super) fn non_monotonic(rules: Rules, free: &Free, needs: &PodNeeds) -> bool {
    let aligned = needs.containers.iter().filter(|c| {
        c.needs.iter().any(|need| admit::charged_column(rules, free, needs.qos, *need).is_some())
    });
    rules.scope == topology::policy::Scope::Container && aligned.count() > 1
}

/// The location that the model predicts for the next pod admitted in this world.
pub(super) fn predict(rules: Rules, free: &Free, needs: &PodNeeds, scratch: &mut Scratch) -> Location {
    match admit::admit(rules, free, needs, scratch) {
        Ok(placement) => Location::Charged { placement, exact: true },
        // The kubelet will most likely reject the pod. Until its status says so, the kubelet may have had more room
        // than this world and put the pod anywhere.
        Err(_) => charge_all_zones(rules, free, needs),
    }
}

/// Widens a prediction for a kubelet that may have more room than the world: the pod is then in the predicted zone, or
/// in a lower one, because the kubelet takes the lowest that fits. A pod that is [`non_monotonic`] may be anywhere.
pub(super) fn widen(rules: Rules, free: &Free, needs: &PodNeeds, location: Location) -> Location {
    let columns = free.layout().resources().len().max(1);
    let highest = match &location {
        Location::Charged { placement, exact: true } => {
            placement.grants.iter().map(|grant| grant.cell as usize / columns).max()
        }
        _ => return location,
    };
    match highest {
        None => location,
        Some(_) if non_monotonic(rules, free, needs) => charge_all_zones(rules, free, needs),
        Some(highest) => charge_lowest_zones(rules, free, needs, highest + 1),
    }
}

/// Charges the pod's exclusive needs to every zone.
pub(super) fn charge_all_zones(rules: Rules, free: &Free, needs: &PodNeeds) -> Location {
    charge_lowest_zones(rules, free, needs, free.layout().zones().len())
}

/// Charges the pod's exclusive needs to each of the lowest `rows` zones.
fn charge_lowest_zones(rules: Rules, free: &Free, needs: &PodNeeds, rows: usize) -> Location {
    let mut held = vec![0_i64; free.cells().len()];
    for need in needs.containers.iter().flat_map(|container| &container.needs) {
        if let Some(column) = admit::charged_column(rules, free, needs.qos, *need) {
            for row in 0..rows {
                held[free.index(row, column)] += need.amount;
            }
        }
    }
    let grants = (0_u32..)
        .zip(held)
        .filter(|(_, held)| *held > 0)
        .map(|(cell, held)| Grant { cell, held, visible: 0 })
        .collect();
    Location::Charged { placement: Placement { grants }, exact: false }
}

/// Takes what a location holds off the free amounts; an unknown location is in the numbers already.
pub(super) fn charge(free: &mut Free, location: &Location) {
    if let Location::Charged { placement, .. } = location {
        placement.charge(free);
    }
}

/// Gives back what a location holds. For an unknown one the next report does that.
pub(super) fn release(free: &mut Free, location: &Location) {
    if let Location::Charged { placement, .. } = location {
        placement.release(free);
    }
}

/// Merges worlds that differ in nothing but the former locations of released pods. `live` marks the other rows.
///
/// A report made before the release tells such worlds apart, and with them the locations of the pods that came later.
/// They are merged for want of room only, and their differing rows agree with no report.
pub(super) fn merge_alike(worlds: Vec<World>, live: &[bool]) -> Vec<World> {
    let mut merged: Vec<World> = Vec::new();
    for world in worlds {
        let alike = |known: &&mut World| {
            let mut locations = live.iter().zip(known.locations.iter().zip(&world.locations));
            known.free == world.free && locations.all(|(live, (one, other))| !live || one == other)
        };
        match merged.iter_mut().find(alike) {
            Some(known) => blur_released(known, &world, live),
            None => merged.push(world),
        }
    }
    merged
}

/// Makes the former locations of released pods inexact where two worlds differ in them.
fn blur_released(world: &mut World, other: &World, live: &[bool]) {
    for ((location, other), live) in world.locations.iter_mut().zip(&other.locations).zip(live) {
        if !live && location != other {
            *location = Location::Charged { placement: Placement::default(), exact: false };
        }
    }
}

/// Merges worlds into one that is worse than each of them: a pod in different zones is charged to all of them.
///
/// The minimum of the free amounts alone would also be worse, but would never recover: the amounts must stay attached
/// to pods, so that they are given back when the pods leave. `live` marks the rows that still hold resources.
pub(super) fn merge_worst(worlds: &[World], live: &[bool]) -> World {
    let mut merged = worlds[0].clone();
    worlds[1..].iter().for_each(|other| blur_released(&mut merged, other, live));
    let mut bases: Vec<Free> = worlds.iter().map(|world| world.free.clone()).collect();
    let mut moved = Vec::new();
    for (at, live) in live.iter().enumerate() {
        if !live || worlds.iter().all(|world| world.locations[at] == worlds[0].locations[at]) {
            continue;
        }
        // In a world with an unknown location the pod's amounts are part of the numbers and cannot be taken out.
        if worlds.iter().any(|world| world.locations[at] == Location::Unknown) {
            merged.locations[at] = Location::Unknown;
            continue;
        }
        let mut grants: std::collections::BTreeMap<u32, i64> = std::collections::BTreeMap::new();
        for (world, base) in worlds.iter().zip(&mut bases) {
            release(base, &world.locations[at]);
            if let Location::Charged { placement, .. } = &world.locations[at] {
                for grant in &placement.grants {
                    let most = grants.entry(grant.cell).or_default();
                    *most = (*most).max(grant.held);
                }
            }
        }
        let grants = grants.into_iter().map(|(cell, held)| Grant { cell, held, visible: 0 }).collect();
        merged.locations[at] = Location::Charged { placement: Placement { grants }, exact: false };
        moved.push(at);
    }
    merged.free = bases[0].clone();
    bases[1..].iter().for_each(|base| merged.free.meet(base));
    for at in moved {
        charge(&mut merged.free, &merged.locations[at]);
    }
    merged
}
