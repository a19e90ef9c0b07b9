//! The possible locations of a pod in one world, and many worlds merged into one.
//!
//! In: a world, and the requests of a pod. Out: the zones that the kubelet may choose. Never: a change of the ledger.
//!
//! Errors must go one way: too little room is idle capacity for a moment, too much is a rejected pod. Where the
//! kubelet's choice is uncertain, the functions here therefore charge every zone that it may have chosen.

use std::borrow::Cow;

use topology::policy::Rules;
use topology::request::PodNeeds;

use super::{Amounts, Held, Ledger, Location, Scratch, World};

impl Ledger {
    /// The locations that a pod may get in one world: the choice of the model now, with what init containers may keep,
    /// and its choice if the kubelet has already released each of the sets in `early`, or does so between two of the
    /// pod's containers.
    ///
    /// The kubelet picks the lowest zone that fits, so a release that precedes the admission can move the pod to
    /// another zone. The API server shows such a release only later; until then each different choice is a world of its
    /// own.
    pub(super) fn possible_locations(
        &self,
        rules: Rules,
        world: &World,
        early: &[Vec<usize>],
        needs: &PodNeeds,
        scratch: &mut Scratch,
    ) -> Vec<Location> {
        let mut locations = vec![predict(rules, &world.amounts, needs, scratch)];
        let after = |early: &Vec<usize>| {
            let mut amounts = world.amounts.clone();
            release_rows(&mut amounts, &world.locations, early);
            amounts
        };
        let mut add = |held| {
            let location = Location::Charged { held, exact: true };
            if !locations.contains(&location) {
                locations.push(location);
            }
        };
        let less = self.without_kept(world, &world.amounts, &[]);
        let others = world.amounts.regrouped(rules).into_iter().chain(less).map(Cow::Owned);
        let after_each =
            early.iter().flat_map(|early| self.with_less(world, Cow::Owned(after(early)), early));
        for amounts in others.chain(after_each) {
            amounts.admit(rules, needs, scratch).into_iter().for_each(&mut add);
        }
        for early in early {
            for point in world.amounts.release_points(needs) {
                let ended = early.iter().map(|at| &world.locations[*at]);
                let held = world.amounts.admit_with_release(rules, needs, point, ended, scratch);
                held.into_iter().for_each(&mut add);
            }
        }
        locations
    }
}

/// The location that the model predicts for the next pod admitted in this world.
pub(super) fn predict(rules: Rules, amounts: &Amounts, needs: &PodNeeds, scratch: &mut Scratch) -> Location {
    match amounts.admit(rules, needs, scratch) {
        Ok(held) => Location::Charged { held, exact: true },
        // The kubelet will most likely reject the pod. Until its status says so, the kubelet may have had more room
        // than this world and put the pod anywhere.
        Err(_) => charge_all_zones(rules, amounts, needs),
    }
}

/// Widens a prediction for a kubelet that may have more room than the world: the pod is then in the predicted zone, or
/// in a lower one, because the kubelet takes the lowest that fits; if there is none, its amounts are as exact as they
/// were. A pod for which more room may be worse, or that is in several zones, may be anywhere.
pub(super) fn widen(rules: Rules, amounts: &Amounts, needs: &PodNeeds, location: Location) -> Location {
    let Location::Charged { held, exact: true } = &location else { return location };
    match amounts.highest_zone(held) {
        None => location,
        Some(_) if amounts.is_non_monotonic(rules, needs) => {
            let anywhere = amounts.in_lowest_zones(rules, needs, amounts.free().layout().zones().len());
            Location::Charged { held: held.union(&anywhere), exact: false }
        }
        Some(0) if matches!(held, Held::Cells(_)) => location,
        Some(highest) => {
            let lower = amounts.in_lowest_zones(rules, needs, highest);
            Location::Charged { held: held.union(&lower), exact: false }
        }
    }
}

/// Charges the pod's exclusive needs to every zone.
pub(super) fn charge_all_zones(rules: Rules, amounts: &Amounts, needs: &PodNeeds) -> Location {
    let zones = amounts.free().layout().zones().len();
    Location::Charged { held: amounts.in_lowest_zones(rules, needs, zones), exact: false }
}

/// Takes what a location holds off the free amounts; an unknown location is in the numbers already.
pub(super) fn charge(amounts: &mut Amounts, location: &Location) {
    if let Location::Charged { held, .. } = location {
        amounts.charge(held);
    }
}

/// Gives back what a location holds. For an unknown one the next report does that.
pub(super) fn release(amounts: &mut Amounts, location: &Location) {
    if let Location::Charged { held, .. } = location {
        amounts.release(held);
    }
}

/// Gives back what these rows hold, with one count for all of them.
pub(super) fn release_rows(amounts: &mut Amounts, locations: &[Location], rows: &[usize]) {
    let held: Vec<Held> = rows.iter().filter_map(|at| locations[*at].held()).collect();
    amounts.release_all(&held);
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
            known.amounts == world.amounts && locations.all(|(live, (one, other))| !live || one == other)
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
            *location = Location::Charged { held: Held::default(), exact: false };
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
    let mut moved = Vec::new();
    for (at, live) in live.iter().enumerate() {
        if !live || worlds.iter().all(|world| world.locations[at] == worlds[0].locations[at]) {
            continue;
        }
        // In a world with an unknown location the pod's amounts are part of the numbers and cannot be taken out.
        merged.locations[at] = match worlds.iter().map(|world| world.locations[at].held()).reduce(either) {
            Some(Some(held)) => {
                moved.push(at);
                Location::Charged { held, exact: false }
            }
            _ => Location::Unknown,
        };
    }
    merged.amounts = without(worlds, &moved);
    for at in moved {
        charge(&mut merged.amounts, &merged.locations[at]);
    }
    merged
}

/// All that is held in either world.
fn either(one: Option<Held>, other: Option<Held>) -> Option<Held> {
    Some(one?.union(&other?))
}

/// What is free in all worlds once these rows are taken out.
fn without(worlds: &[World], rows: &[usize]) -> Amounts {
    let base = |world: &World| {
        let mut amounts = world.amounts.clone();
        release_rows(&mut amounts, &world.locations, rows);
        amounts
    };
    let mut least = base(&worlds[0]);
    // By ids the others hold the same in each world.
    let by_amounts = worlds[1..].iter().filter(|world| !world.amounts.is_by_ids());
    for other in by_amounts.map(base) {
        if let (Amounts::Counts(least), Amounts::Counts(other)) = (&mut least, &other) {
            least.meet(other);
        }
    }
    least
}
