//! The orders in which the kubelet may admit pods that are on their way.
//!
//! In: pods that it may not have seen yet, in the order of their binding. Out: the worlds that follow from other
//! orders, whether a pod can be added without a rejection in any, which pods may be rejected. Never: two orders that
//! differ only in pods alike, which take the same amounts from the same zones. These are told apart once one leaves.
//!
//! A watch delivers pods in the order of their binding. After a restart of the kubelet or a broken watch a list does:
//! of its pods the unknown ones are admitted by age (1.36 `HandlePodAdditions`), those of one second in any order. No
//! object tells which pods were in a list. A pod may therefore precede those bound before it that are not older.
//!
//! A pod enters the ledger before it is bound. One of another scheduler may have been bound by then, and be seen only
//! after it; the order in which the API server shows bindings is that of the bindings.
//!
//! Cost of a check: nothing while no pod is on its way, a look at each row while none is younger, and one admission for
//! each that is on its way while the order decides nothing. Else worlds x orders, at most [`MAX_MOVED`]! of them; with
//! more such pods the next one waits.

use std::borrow::Cow;

use topology::policy::Rules;
use topology::request::PodNeeds;

use super::location::{charge, charge_all_zones, release, release_rows};
use super::readmission::{check_release_points, take_out};
use super::{Amounts, Doubt, Held, Ledger, Location, MAX_WORLDS, PodId, Refusal, Row, Scratch, Stage, World};

/// Most different pods on their way whose orders are all tried.
const MAX_MOVED: usize = 3;
/// Most orders times worlds that are tried for one pod.
const MAX_TRIED: usize = 128;
/// Most pods on their way that another one may precede; beside more it waits.
const MAX_OVERTAKEN: usize = 16;

/// What decides when the kubelet admits a pod among others, and with which result.
#[derive(Clone, Copy)]
pub(super) struct AdmissionKey<'a> {
    pub(super) needs: &'a PodNeeds,
    /// The second of its creation.
    pub(super) created_s: u64,
    /// See [`Row::shown_at`].
    pub(super) shown_at: u64,
}

/// A pod that may be admitted before others, bound earlier.
pub(super) struct Overtaking {
    /// The others, in the order of their binding.
    rows: Vec<usize>,
    /// Sets of pods that may be gone before; see [`Ledger::early_releases`].
    early: Vec<Vec<usize>>,
    /// In each order, those admitted after the pod. `None`: too many to try.
    orders: Option<Vec<Vec<usize>>>,
}

impl Ledger {
    /// The pods on their way that the kubelet rejects in a possible world, if it admits them in the order of their
    /// binding. Cost: rows, and worlds x one admission for each pod on its
    /// way; of a pod of several containers as many as there are moments at which others may leave.
    #[must_use]
    pub fn may_be_rejected(&self, scratch: &mut Scratch) -> Vec<PodId> {
        let Some(rules) = self.topology.as_ref().map(|it| it.rules).filter(|_| self.is_modelled()) else {
            return Vec::new();
        };
        let unsettled = self.unsettled();
        if unsettled.is_empty() {
            return Vec::new();
        }
        let is_leaving = |set: &Vec<usize>| set.iter().all(|at| self.rows[*at].stage.is_leaving());
        let early: Vec<_> = self.likely_releases().into_iter().filter(is_leaving).collect();
        let mut is_rejected = |place: usize| {
            let needs = &self.rows[unsettled[place]].needs;
            let mut amounts = self.worlds.iter().flat_map(|world| {
                let amounts = self.with_less(world, Cow::Borrowed(&world.amounts), &[]);
                amounts.map(move |amounts| (world, amounts))
            });
            amounts.any(|(world, amounts)| {
                let mut before = amounts.into_owned();
                release_rows(&mut before, &world.locations, &unsettled[place..]);
                before.needs_alignment(rules, needs)
                    && (before.check(rules, needs, scratch).is_err()
                        || before.is_non_monotonic(rules, needs)
                            && check_release_points((world, &before), (rules, needs), &early, scratch)
                                .is_err())
            })
        };
        let is_on_its_way = |place: &usize| self.rows[unsettled[*place]].stage == Stage::Pending;
        let rejected = (0..unsettled.len()).filter(|place| is_on_its_way(place) && is_rejected(*place));
        rejected.map(|place| self.rows[unsettled[place]].id).collect()
    }

    /// The pods that this one, which is bound last, may precede; `None`: it is admitted after all others.
    pub(super) fn overtaking(&self, pod: AdmissionKey<'_>) -> Option<Overtaking> {
        let from = self.rows.iter().position(|row| may_precede(pod, row))?;
        let rows = (from..self.rows.len()).filter(|at| self.rows[*at].is_unseen());
        let rows: Vec<usize> = rows.filter(|at| self.takes_zones(*at)).collect();
        let fixed = rows.len().saturating_sub(MAX_MOVED);
        let is_complete = (0..fixed).all(|at| {
            let later = rows[at + 1..].iter().map(|later| self.rows[*later].admission_key());
            later.into_iter().all(|later| !may_precede(later, &self.rows[rows[at]]))
        });
        let orders = (rows.len() <= MAX_OVERTAKEN && is_complete).then(|| {
            let all = self.all_orders(&rows);
            let after_pod = |order: &Vec<usize>| {
                let is_other = |place: &usize| {
                    order.get(*place).is_some_and(|at| !are_alike(pod.needs, &self.rows[*at].needs))
                };
                let places = self.places(pod, order).into_iter().filter(is_other);
                let order = self.with_alike_in_order(order);
                places.map(|place| order[place..].to_vec()).collect::<Vec<_>>()
            };
            let mut orders: Vec<Vec<usize>> = all.iter().flat_map(after_pod).collect();
            orders.sort_unstable();
            orders.dedup();
            orders
        });
        let orders = orders.filter(|orders| orders.len() * self.worlds.len() <= MAX_TRIED);
        Some(Overtaking { rows, early: self.likely_releases(), orders })
    }

    /// All orders in which the kubelet may admit these rows, given in the order of their binding: that one, and those
    /// in which some of the last precede others. Rows that take nothing from zones are in none. Of orders that differ
    /// in rows alike, one.
    pub(super) fn orders(&self, rows: &[usize]) -> Vec<Vec<usize>> {
        let mut orders: Vec<Vec<usize>> = Vec::new();
        for order in self.all_orders(rows) {
            let order = self.with_alike_in_order(&order);
            if !orders.contains(&order) {
                orders.push(order);
            }
        }
        orders
    }

    /// The same order with other names: of rows alike, those that were bound first come first.
    fn with_alike_in_order(&self, order: &[usize]) -> Vec<usize> {
        let mut named = order.to_vec();
        for at in 0..named.len() {
            let needs = &self.rows[named[at]].needs;
            let alike =
                (at + 1..named.len()).filter(|later| are_alike(needs, &self.rows[named[*later]].needs));
            if let Some(first) =
                alike.min_by_key(|later| named[*later]).filter(|first| named[*first] < named[at])
            {
                named.swap(at, first);
            }
        }
        named
    }

    /// Orders of rows, of which some may differ in rows alike alone.
    fn all_orders(&self, rows: &[usize]) -> Vec<Vec<usize>> {
        let rows: Vec<usize> = rows.iter().copied().filter(|at| self.takes_zones(*at)).collect();
        let (fixed, moved) = rows.split_at(rows.len().saturating_sub(MAX_MOVED));
        let mut orders = vec![fixed.to_vec()];
        for row in moved {
            let pod = &self.rows[*row];
            let with_row = |order: &Vec<usize>| {
                let movable = &order[fixed.len()..];
                let places = match pod.is_unseen() {
                    true => self.places(pod.admission_key(), movable),
                    false => vec![movable.len()],
                };
                let insert = |place: usize| {
                    let (before, after) = order.split_at(fixed.len() + place);
                    [before, &[*row], after].concat()
                };
                places.into_iter().map(insert).collect::<Vec<_>>()
            };
            orders = orders.iter().flat_map(with_row).collect();
        }
        orders
    }

    pub(super) fn takes_zones(&self, at: usize) -> bool {
        self.rows[at].needs.may_align()
    }

    /// The places in an order of rows that a pod may take which is bound after them, the last place first.
    fn places(&self, pod: AdmissionKey<'_>, order: &[usize]) -> Vec<usize> {
        let passed = order.iter().rev().take_while(|at| may_pass(pod, &self.rows[**at])).count();
        (order.len() - passed..=order.len()).rev().collect()
    }

    /// Notes which earlier rows the last one, bound just now, may change places with.
    pub(super) fn note_alike(&mut self) {
        let Some((last, earlier)) = self.rows.split_last_mut() else { return };
        let class = Some(last.id);
        for at in 0..earlier.len() {
            let row = &mut earlier[at];
            if may_pass(last.admission_key(), row) && are_alike(&last.needs, &row.needs) {
                last.alike = class;
                if let known @ Some(_) = std::mem::replace(&mut row.alike, class) {
                    earlier.iter_mut().filter(|row| row.alike == known).for_each(|row| row.alike = class);
                }
            }
        }
    }

    /// Adds the worlds in which a row is where one alike is said to be. From now on it is told apart; of the others,
    /// which are not, it makes no difference which one at a place changes with it, if the same is known of them. A
    /// report that counts one of two has told them apart.
    pub(super) fn tell_apart(&mut self, at: usize) {
        let Some(class) = self.rows[at].alike.take() else { return };
        let described = self.rows[at].described;
        let is_alike = |other: &usize| {
            let row = &self.rows[*other];
            row.alike == Some(class) && row.stage != Stage::Released && row.described == described
        };
        let alike: Vec<usize> = (0..self.rows.len()).filter(is_alike).collect();
        let mut next = self.worlds.clone();
        for world in &self.worlds {
            let mut places = Vec::new();
            for other in &alike {
                let place = (self.rows[*other].stage, &world.locations[*other]);
                if places.contains(&place) || *place.1 == world.locations[at] {
                    continue;
                }
                places.push(place);
                let mut swapped = world.clone();
                swapped.locations.swap(at, *other);
                self.add_worlds(&mut next, [swapped]);
            }
        }
        self.worlds = self.bounded(next);
    }

    /// Whether the kubelet may have a pod at the place of this row that ends by itself.
    pub(super) fn may_end(&self, at: usize) -> bool {
        let Row { finishes, alike, .. } = self.rows[at];
        finishes || alike.is_some() && self.rows.iter().any(|row| row.alike == alike && row.finishes)
    }

    /// Whether the kubelet would admit the pod and those that it may precede in every order, if `free` are the amounts
    /// of this world.
    pub(super) fn check_orders(
        &self,
        (world, amounts): (&World, &Amounts),
        pod: &PodNeeds,
        overtaking: &Overtaking,
        scratch: &mut Scratch,
    ) -> Result<(), Refusal> {
        let Some(rules) = self.topology.as_ref().map(|topology| topology.rules) else { return Ok(()) };
        if self.is_order_without_effect((world, amounts), pod, &overtaking.rows, scratch) {
            return Ok(());
        }
        let Some(orders) = overtaking.orders.as_ref().filter(|_| !self.may_be_in_doubt(world)) else {
            return Err(Refusal::Stale(Doubt::UnknownOrder));
        };
        for order in orders {
            let mut start = World { amounts: amounts.clone(), locations: world.locations.clone() };
            take_out(&mut start, order);
            let mut states = self.admit_each(rules, &[start], (pod, None), &overtaking.early, scratch)?;
            for at in order {
                let row = (&*self.rows[*at].needs, Some(*at));
                states = self.admit_each(rules, &states, row, &overtaking.early, scratch)?;
            }
        }
        Ok(())
    }

    /// The states after one more admission, of a row or of a pod without one, in each of these, with and without early
    /// releases.
    fn admit_each(
        &self,
        rules: Rules,
        states: &[World],
        (needs, at): (&PodNeeds, Option<usize>),
        early: &[Vec<usize>],
        scratch: &mut Scratch,
    ) -> Result<Vec<World>, Refusal> {
        let mut next: Vec<World> = Vec::new();
        for state in states {
            let (amounts, locations) = (&state.amounts, &state.locations);
            let holds = |at: &usize| locations[*at].held().is_some_and(|held| held != Held::default());
            let released = early.iter().map(Vec::as_slice).filter(|set| set.iter().any(holds));
            for released in std::iter::once(&[][..]).chain(released) {
                let mut room = amounts.clone();
                release_rows(&mut room, locations, released);
                let held = room.admit(rules, needs, scratch).map_err(Refusal::Misfit)?;
                let mut all = vec![held];
                for point in amounts.release_points(needs).filter(|_| !released.is_empty()) {
                    let ended = released.iter().map(|at| &locations[*at]);
                    let held = amounts.admit_with_release(rules, needs, point, ended, scratch);
                    let held = held.map_err(Refusal::Misfit)?;
                    if !all.contains(&held) {
                        all.push(held);
                    }
                }
                for held in all {
                    let mut after = state.clone();
                    after.amounts.charge(&held);
                    if let Some(at) = at {
                        after.locations[at] = Location::Charged { held, exact: true };
                    }
                    if !next.contains(&after) {
                        next.push(after);
                    }
                }
                if next.len() > MAX_WORLDS {
                    return Err(Refusal::Stale(Doubt::UnknownOrder));
                }
            }
        }
        Ok(next)
    }

    /// The worlds in which the last row, bound just now, is admitted before others.
    pub(super) fn overtaken_worlds(&self, overtaking: &Overtaking, scratch: &mut Scratch) -> Vec<World> {
        let (Some(rules), Some(at)) =
            (self.topology.as_ref().map(|topology| topology.rules), self.rows.len().checked_sub(1))
        else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for world in &self.worlds {
            if self.is_order_without_effect(
                (world, &world.amounts),
                &self.rows[at].needs,
                &overtaking.rows,
                scratch,
            ) {
                continue;
            }
            let Some(orders) = &overtaking.orders else {
                found.push(self.in_any_order(world, &overtaking.rows, at));
                continue;
            };
            for order in orders {
                let mut start = vacate(world, order);
                start.locations.push(Location::nowhere());
                let rows = std::iter::once(at).chain(order.iter().copied());
                let worlds = self.replay_in_order((rules, start), &overtaking.early, rows, scratch);
                self.add_worlds(&mut found, worlds);
            }
        }
        found
    }

    /// A world that is worse than each in which the last row, bound just now, and `rows` are admitted in some order.
    fn in_any_order(&self, world: &World, rows: &[usize], last: usize) -> World {
        let rules = self.topology.as_ref().map(|topology| topology.rules).unwrap_or_default();
        let mut world = vacate(world, rows);
        world.locations.push(Location::nowhere());
        for at in rows.iter().copied().chain([last]) {
            let location = charge_all_zones(rules, &world.amounts, &self.rows[at].needs);
            charge(&mut world.amounts, &location);
            world.locations[at] = location;
        }
        world
    }

    /// Whether the pod, and those that it may precede, go to the same zones in every order.
    fn is_order_without_effect(
        &self,
        (world, amounts): (&World, &Amounts),
        pod: &PodNeeds,
        rows: &[usize],
        scratch: &mut Scratch,
    ) -> bool {
        let Some(rules) = self.topology.as_ref().map(|topology| topology.rules) else { return true };
        let last = amounts.admit(rules, pod, scratch).ok();
        let most = self.most_room((world, amounts), rows);
        last.is_some()
            && !amounts.is_non_monotonic(rules, pod)
            && most.admit(rules, pod, scratch).ok() == last
            && self.are_certain(world, &most, rows, scratch)
    }

    /// Whether the kubelet admits these rows to the same zones in every order, whatever may leave meanwhile, with row
    /// `leaving` too.
    pub(super) fn is_unmoved(
        &self,
        world: &World,
        rows: &[usize],
        leaving: usize,
        scratch: &mut Scratch,
    ) -> bool {
        let mut most = self.most_room((world, &world.amounts), rows);
        release(&mut most, &world.locations[leaving]);
        self.are_certain(world, &most, rows, scratch)
    }

    /// The amounts without these rows and without all that may leave.
    fn most_room(&self, (world, amounts): (&World, &Amounts), rows: &[usize]) -> Amounts {
        let may_be_gone = |at: &usize| {
            let stage = self.rows[*at].stage;
            rows.contains(at) || stage.is_leaving() || stage.stays() && self.may_end(*at)
        };
        let gone: Vec<usize> = (0..world.locations.len()).filter(may_be_gone).collect();
        let mut most = amounts.clone();
        release_rows(&mut most, &world.locations, &gone);
        most
    }

    /// Whether these rows would be where they are with the most room.
    ///
    /// A pod goes to the lowest zone that fits. If that zone is the same with the most room and with the least (beside
    /// all others, where it is now), then it is the same with any room between.
    fn are_certain(&self, world: &World, most: &Amounts, rows: &[usize], scratch: &mut Scratch) -> bool {
        let Some(rules) = self.topology.as_ref().map(|topology| topology.rules) else { return true };
        let is_certain = |at: &usize| {
            let needs = &self.rows[*at].needs;
            let first = most.admit(rules, needs, scratch);
            !most.is_non_monotonic(rules, needs)
                && first.is_ok_and(|held| world.locations[*at] == Location::Charged { held, exact: true })
        };
        !self.may_be_in_doubt(world) && rows.iter().all(is_certain)
    }
}

impl Row {
    /// Whether the kubelet may not have seen the pod yet. A report that counts it proves that it has.
    pub(super) fn is_unseen(&self) -> bool {
        !self.described && matches!(self.stage, Stage::Pending | Stage::Leaving { admitted: false })
    }

    fn admission_key(&self) -> AdmissionKey<'_> {
        AdmissionKey { needs: &self.needs, created_s: self.created_s, shown_at: self.shown_at }
    }
}

/// Whether the kubelet may admit a pod before one that the ledger knew earlier, with another result.
fn may_precede(pod: AdmissionKey<'_>, earlier: &Row) -> bool {
    may_pass(pod, earlier) && !are_alike(pod.needs, &earlier.needs)
}

/// Whether the kubelet may admit a pod before one that the ledger knew earlier.
fn may_pass(pod: AdmissionKey<'_>, earlier: &Row) -> bool {
    let is_bound_earlier = pod.shown_at < earlier.shown_at;
    let may_be_listed_earlier = pod.created_s <= earlier.created_s;
    earlier.is_unseen()
        && (is_bound_earlier || may_be_listed_earlier)
        && pod.needs.may_align()
        && earlier.needs.may_align()
}

/// Whether the kubelet treats two pods alike.
fn are_alike(one: &PodNeeds, other: &PodNeeds) -> bool {
    let same =
        one.containers.iter().zip(&other.containers).all(|(a, b)| a.kind == b.kind && a.needs == b.needs);
    one.qos == other.qos && one.containers.len() == other.containers.len() && same
}

/// The world before these rows were admitted.
fn vacate(world: &World, rows: &[usize]) -> World {
    let mut world = world.clone();
    take_out(&mut world, rows);
    world
}
