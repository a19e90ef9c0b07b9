//! Admissions over again: what a pod that leaves at another moment changes for those that are admitted meanwhile.
//!
//! In: a world, the rows that may be admitted after a change. Out: the worlds for each moment of it. Never: an event.
//!
//! A kubelet's managers take back what an ended pod held when they are asked the next time: before a pod is admitted,
//! or between two of its containers (kubelet 1.36 `removeStaleState`, at each `GetTopologyHints` and `Allocate`).
//! Not told apart is a release between two managers asked about one container: each of them has more choice then, and
//! the zones that they have in common are at least those before.

use topology::policy::Rules;
use topology::reason::Misfit;
use topology::request::PodNeeds;

use super::departures::subsets;
use super::location::{charge, predict, release, release_rows, widen};
use super::{Amounts, Held, Ledger, Location, Row, Scratch, Stage, World};

/// Most leaving pods of which sets between none and all are tried, each with an admission of all later pods.
const MAX_LEAVING: usize = 8;

/// Whether the kubelet would admit the pod in this world, with these amounts, if one of the sets `early` is released
/// between two of its containers. Cost: sets x containers x one admission.
pub(super) fn check_release_points(
    (world, amounts): (&World, &Amounts),
    (rules, needs): (Rules, &PodNeeds),
    early: &[Vec<usize>],
    scratch: &mut Scratch,
) -> Result<(), Misfit> {
    for early in early {
        for point in amounts.release_points(needs) {
            let ended = early.iter().map(|at| &world.locations[*at]);
            amounts.admit_with_release(rules, needs, point, ended, scratch)?;
        }
    }
    Ok(())
}

/// Takes rows out of a world, to admit them again.
pub(super) fn take_out(world: &mut World, rows: &[usize]) {
    release_rows(&mut world.amounts, &world.locations, rows);
    rows.iter().for_each(|at| world.locations[*at] = Location::nowhere());
}

impl Ledger {
    /// Replaces each world by those in which the row is released before some of the unsettled pods are admitted: after
    /// all of them, before the last, and so on, in each order. `then` completes each new world.
    pub(super) fn fork(&mut self, index: usize, scratch: &mut Scratch, then: impl Fn(&mut World)) {
        let rules = self.topology.as_ref().map(|t| t.rules).unwrap_or_default();
        let unsettled: Vec<_> = self.unsettled().into_iter().filter(|at| *at != index).collect();
        let orders = self.orders(&unsettled);
        let mut next = Vec::with_capacity(self.worlds.len());
        for world in &self.worlds {
            if world.locations[index] == Location::Unknown {
                self.add_worlds(&mut next, [self.widened(world, &unsettled, rules)]);
                continue;
            }
            if !unsettled.is_empty() && self.is_unmoved(world, &unsettled, index, scratch) {
                let mut world = world.clone();
                release(&mut world.amounts, &world.locations[index]);
                then(&mut world);
                next.push(world);
                continue;
            }
            for (order, cut) in
                orders.iter().flat_map(|order| (0..=order.len()).rev().map(move |cut| (order, cut)))
            {
                let later = &order[cut..];
                let before = self.released_before(world, later, index, rules, scratch);
                for mut forked in
                    before.into_iter().chain(self.released_within(world, later, index, rules, scratch))
                {
                    then(&mut forked);
                    self.add_worlds(&mut next, [forked]);
                }
            }
        }
        self.settle(next, scratch);
    }

    /// A world in which a pod that holds what is not known may have left before these rows are admitted.
    fn widened(&self, world: &World, rows: &[usize], rules: Rules) -> World {
        let mut world = world.clone();
        for at in rows {
            let predicted = std::mem::replace(&mut world.locations[*at], Location::nowhere());
            release(&mut world.amounts, &predicted);
            let location = widen(rules, &world.amounts, &self.rows[*at].needs, predicted);
            charge(&mut world.amounts, &location);
            world.locations[*at] = location;
        }
        world
    }

    /// Does something while admitted pods from row `first` on count as pending, if no report has described them: where
    /// they are is a prediction.
    pub(super) fn as_pending<T>(&mut self, first: usize, then: impl FnOnce(&mut Self) -> T) -> T {
        let is_predicted = |row: &&mut Row| row.stage == Stage::Admitted && !row.described;
        let mut predicted = Vec::new();
        for row in self.rows.iter_mut().skip(first).filter(is_predicted) {
            row.stage = Stage::Pending;
            predicted.push(row.id);
        }
        let result = then(self);
        let rows = self.rows.iter_mut().filter(|row| predicted.contains(&row.id));
        rows.for_each(|row| row.stage = Stage::Admitted);
        result
    }

    /// The worlds in which row `index` never was: the other unsettled rows are where they are, or are admitted anew, in
    /// each order. Cost: worlds x orders x an admission of each.
    pub(super) fn without_row(&self, index: usize, scratch: &mut Scratch) -> Vec<World> {
        let rules = self.topology.as_ref().map(|t| t.rules).unwrap_or_default();
        let others: Vec<_> = self.unsettled().into_iter().filter(|at| *at != index).collect();
        let (orders, early) = (self.orders(&others), self.likely_releases());
        let mut next = Vec::with_capacity(self.worlds.len());
        for world in &self.worlds {
            let mut without = world.clone();
            take_out(&mut without, &[index]);
            for order in &orders {
                let mut start = without.clone();
                take_out(&mut start, order);
                let worlds = self.replay_in_order((rules, start), &early, order.iter().copied(), scratch);
                self.add_worlds(&mut next, worlds);
            }
            self.add_worlds(&mut next, [without]);
        }
        next
    }

    /// The worlds in which row `index` is released before the rows `later` are admitted, which come after all others
    /// of the world: with no other leaving pod gone by then, with all, and with some. Each pod has brought worlds
    /// without itself when it began to leave, none without those that began after it.
    ///
    /// What goes to the same zones with the least room and with the most does so with any room between. Cost: sets of
    /// leaving pods x an admission of each of `later`.
    fn released_before(
        &self,
        world: &World,
        later: &[usize],
        index: usize,
        rules: Rules,
        scratch: &mut Scratch,
    ) -> Vec<World> {
        let mut without = |gone: &[usize]| {
            let mut forked = world.clone();
            self.readmit(&mut forked, later, rules, scratch, |world| {
                release(&mut world.amounts, &world.locations[index]);
                release_rows(&mut world.amounts, &world.locations, gone);
            });
            gone.iter().for_each(|at| charge(&mut forked.amounts, &forked.locations[*at]));
            forked
        };
        let least = without(&[]);
        let is_other = |at: &usize| *at != index && !later.contains(at);
        let others: Vec<usize> = self.indices(Stage::is_leaving).filter(is_other).collect();
        if later.is_empty() || others.is_empty() {
            return vec![least];
        }
        let most = without(&others);
        let is_monotonic = |at: &usize| !world.amounts.is_non_monotonic(rules, &self.rows[*at].needs);
        if most.locations == least.locations && later.iter().all(is_monotonic) {
            return vec![least];
        }
        let mut worlds = vec![least, most];
        if others.len() <= MAX_LEAVING {
            let sets = subsets(&others);
            let between = sets.iter().filter(|gone| (1..others.len()).contains(&gone.len()));
            worlds.extend(between.map(|gone| without(gone)));
        }
        worlds
    }

    /// The worlds in which row `index` is released between two containers of the first of these rows, which come after
    /// all others of the world, and which are not those of a release before or after it. Cost: points x one admission;
    /// for each world one of each of `later`.
    fn released_within(
        &self,
        world: &World,
        later: &[usize],
        index: usize,
        rules: Rules,
        scratch: &mut Scratch,
    ) -> Vec<World> {
        let Some((first, rest)) = later.split_first() else { return Vec::new() };
        let needs = &self.rows[*first].needs;
        let mut points = world.amounts.release_points(needs).peekable();
        if points.peek().is_none() {
            return Vec::new();
        }
        let mut start = world.clone();
        take_out(&mut start, later);
        let mut found: Vec<Held> = Vec::new();
        for point in points {
            let ended = std::iter::once(&start.locations[index]);
            // A pod that is rejected then is one that its status tells of.
            let held = start.amounts.admit_with_release(rules, needs, point, ended, scratch);
            found.extend(held.ok().filter(|held| !found.contains(held)));
        }
        let after = world.locations[*first].held();
        release(&mut start.amounts, &world.locations[index]);
        let before = start.amounts.admit(rules, needs, scratch).ok();
        let within = found.into_iter().map(Some).filter(|held| ![&after, &before].contains(&held));
        let admit = |held| {
            let mut world = start.clone();
            let location = Location::Charged { held, exact: true };
            let location = if self.may_be_in_doubt(&world) {
                widen(rules, &world.amounts, needs, location)
            } else {
                location
            };
            charge(&mut world.amounts, &location);
            world.locations[*first] = location;
            self.admit_in_order(&mut world, rest, rules, scratch);
            world
        };
        within.flatten().map(admit).collect()
    }

    /// Takes the rows `later` out of a world, applies `change`, and admits them again in order.
    pub(super) fn readmit(
        &self,
        world: &mut World,
        later: &[usize],
        rules: Rules,
        scratch: &mut Scratch,
        change: impl Fn(&mut World),
    ) {
        take_out(world, later);
        change(world);
        self.admit_in_order(world, later, rules, scratch);
    }

    /// Admits rows that hold nothing.
    fn admit_in_order(&self, world: &mut World, rows: &[usize], rules: Rules, scratch: &mut Scratch) {
        for at in rows {
            let needs = &self.rows[*at].needs;
            let mut location = predict(rules, &world.amounts, needs, scratch);
            if self.may_be_in_doubt(world) {
                location = widen(rules, &world.amounts, needs, location);
            }
            charge(&mut world.amounts, &location);
            world.locations[*at] = location;
        }
    }
}
