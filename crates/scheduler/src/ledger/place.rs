//! Where a pod is, or may be, in one world; and many worlds folded into one.
//!
//! In: a world, and what a pod asks for. Out: the places the kubelet may choose. Never: a change of the ledger.

use topology::admit::{self, Grant, Placement, Scratch};
use topology::policy::Rules;
use topology::request::PodNeeds;
use topology::zone::Free;

use super::{Place, World};

/// Where the pod may end up in one world: where the model puts it now, and where it would put it if some of the leaving
/// pods were already gone in the kubelet.
pub(super) fn outcomes(
    rules: Rules,
    world: &World,
    early: &[Vec<usize>],
    needs: &PodNeeds,
    scratch: &mut Scratch,
) -> Vec<Place> {
    let mut places = vec![predict(rules, &world.free, needs, scratch)];
    for early in early {
        let mut free = world.free.clone();
        early.iter().for_each(|at| release(&mut free, &world.places[*at]));
        if let Ok(placement) = admit::admit(rules, &free, needs, scratch) {
            let place = Place::At { placement, exact: true };
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    places
}

/// Whether more room can make the pod not fit: with several containers aligned one by one, the first may move to where a later
/// one has to be.
pub(super) fn fickle(rules: Rules, free: &Free, needs: &PodNeeds) -> bool {
    let aligned = needs.containers.iter().filter(|c| {
        c.needs.iter().any(|need| admit::charged_column(rules, free, needs.qos, *need).is_some())
    });
    rules.scope == topology::policy::Scope::Container && aligned.count() > 1
}

pub(super) fn predict(rules: Rules, free: &Free, needs: &PodNeeds, scratch: &mut Scratch) -> Place {
    match admit::admit(rules, free, needs, scratch) {
        Ok(placement) => Place::At { placement, exact: true },
        // The kubelet will most likely reject it. Until it says so, it might sit anywhere.
        Err(_) => everywhere(rules, free, needs),
    }
}

/// The kubelet may have more room than we know: then the pod is where `place` says, or in a lower zone.
pub(super) fn hedge(rules: Rules, free: &Free, needs: &PodNeeds, place: Place) -> Place {
    let columns = free.layout().resources().len().max(1);
    let highest = match &place {
        Place::At { placement, exact: true } => {
            placement.grants.iter().map(|grant| grant.cell as usize / columns).max()
        }
        _ => return place,
    };
    match highest {
        None => place,
        Some(_) if fickle(rules, free, needs) => everywhere(rules, free, needs),
        Some(highest) => up_to(rules, free, needs, highest + 1),
    }
}

/// Charges the pod's exclusive needs to every zone.
pub(super) fn everywhere(rules: Rules, free: &Free, needs: &PodNeeds) -> Place {
    up_to(rules, free, needs, free.layout().zones().len())
}

/// Charges the pod's exclusive needs to each of the lowest `rows` zones.
fn up_to(rules: Rules, free: &Free, needs: &PodNeeds, rows: usize) -> Place {
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
    Place::At { placement: Placement { grants }, exact: false }
}

pub(super) fn charge(free: &mut Free, place: &Place) {
    if let Place::At { placement, .. } = place {
        placement.charge(free);
    }
}

pub(super) fn release(free: &mut Free, place: &Place) {
    if let Place::At { placement, .. } = place {
        placement.release(free);
    }
}

/// One world that is worse than each of `worlds`: a pod that is elsewhere in each of them holds the most it holds anywhere, so
/// what it holds is given back when it goes.
pub(super) fn fold(worlds: &[World], live: &[bool]) -> World {
    let mut folded = worlds[0].clone();
    let mut bases: Vec<Free> = worlds.iter().map(|world| world.free.clone()).collect();
    let mut moved = Vec::new();
    for (at, live) in live.iter().enumerate() {
        if !live || worlds.iter().all(|world| world.places[at] == worlds[0].places[at]) {
            continue;
        }
        // Where somebody does not know, what the pod holds is in the numbers and cannot be told apart from them.
        if worlds.iter().any(|world| world.places[at] == Place::Unknown) {
            folded.places[at] = Place::Unknown;
            continue;
        }
        let mut grants: std::collections::BTreeMap<u32, i64> = std::collections::BTreeMap::new();
        for (world, base) in worlds.iter().zip(&mut bases) {
            release(base, &world.places[at]);
            if let Place::At { placement, .. } = &world.places[at] {
                for grant in &placement.grants {
                    let most = grants.entry(grant.cell).or_default();
                    *most = (*most).max(grant.held);
                }
            }
        }
        let grants = grants.into_iter().map(|(cell, held)| Grant { cell, held, visible: 0 }).collect();
        folded.places[at] = Place::At { placement: Placement { grants }, exact: false };
        moved.push(at);
    }
    folded.free = bases[0].clone();
    bases[1..].iter().for_each(|base| folded.free.meet(base));
    for at in moved {
        charge(&mut folded.free, &folded.places[at]);
    }
    folded
}
