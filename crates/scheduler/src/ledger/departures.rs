//! Departures that nothing announces: a pod may leave between the binding of another one and its admission.
//!
//! In: a pod that fits. Out: whether it still does then. Never: a refusal; such a departure is unlikely, and a pod that
//! waited for a node where none matters might wait for ever.
//!
//! Cost: worlds x sets of leaving pods x pods that may leave x one admission; nothing for pods that more room never
//! keeps out, which is most.

use topology::request::PodNeeds;

use super::{Held, Ledger, Location, Scratch, Stage};

impl Ledger {
    /// Whether a pod that fits still does if one more admitted pod leaves before the kubelet admits it. `None`: the
    /// kubelet is not known to refuse pods, or its state is not known.
    #[must_use]
    pub fn tolerates_departures(&self, needs: &PodNeeds, scratch: &mut Scratch) -> Option<bool> {
        let topology = self.topology().filter(|_| self.is_modelled() && self.is_trusted())?;
        let first = self.worlds.first()?;
        if !needs.may_align() || !first.amounts.is_non_monotonic(topology.rules, needs) {
            return Some(true);
        }
        if self.worlds.iter().any(|world| self.is_bounded(world) || self.has_unknown_places(world)) {
            return Some(false);
        }
        let holds = |at: usize| self.worlds.iter().any(|world| holds_something(&world.locations[at]));
        let early = self.early_releases(holds);
        Some(self.check_worlds((topology.rules, needs), &early, scratch).is_ok())
    }

    fn has_unknown_places(&self, world: &super::World) -> bool {
        let mut rows = self.rows.iter().zip(&world.locations);
        rows.any(|(row, location)| row.stage != Stage::Released && *location == Location::Unknown)
    }
}

fn holds_something(location: &Location) -> bool {
    location.held().is_some_and(|held| held != Held::default())
}
