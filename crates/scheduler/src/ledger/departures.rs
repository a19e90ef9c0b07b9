//! Departures that nothing announces: a pod may leave between the binding of another one and its admission.
//!
//! In: a pod that fits. Out: the pods on which that relies. Never: a refusal; such a departure is unlikely, and a pod that
//! waited for a node where none matters might wait for ever.
//!
//! Cost: worlds x sets of leaving pods x pods that may leave x one admission; nothing for pods that more room never
//! keeps out, which is most.

use topology::request::PodNeeds;

use super::{Held, Ledger, Location, PodId, Scratch, Stage};

impl Ledger {
    /// The admitted pods on which a pod that fits relies: once one of them leaves before the kubelet admits it, it may
    /// not fit. `None`: the kubelet is not known to refuse pods, or its state is not known.
    #[must_use]
    pub fn relied_on(&self, needs: &PodNeeds, scratch: &mut Scratch) -> Option<Vec<PodId>> {
        let topology = self.topology().filter(|_| self.is_modelled() && self.is_trusted())?;
        let first = self.worlds.first()?;
        if !needs.may_align() || !first.amounts.is_non_monotonic(topology.rules, needs) {
            return Some(Vec::new());
        }
        let is_in_doubt =
            self.worlds.iter().any(|world| self.is_bounded(world) || self.has_unknown_places(world));
        let mut keeps_out = |at: &usize| {
            let is_it = |other: usize| other == *at;
            is_in_doubt
                || self.check_worlds((topology.rules, needs), &self.early_releases(is_it), scratch).is_err()
        };
        let admitted = self.indices(|stage| stage == Stage::Admitted);
        let relied_on = admitted.filter(|at| self.may_hold(*at)).filter(|at| keeps_out(at));
        Some(relied_on.map(|at| self.rows[at].id).collect())
    }

    /// Whether the kubelet may have given something in zones to the pod.
    fn may_hold(&self, at: usize) -> bool {
        self.worlds.iter().any(|world| match &world.locations[at] {
            Location::Unknown => true,
            Location::Charged { held, .. } => *held != Held::default(),
        })
    }

    fn has_unknown_places(&self, world: &super::World) -> bool {
        let mut rows = self.rows.iter().zip(&world.locations);
        rows.any(|(row, location)| row.stage != Stage::Released && *location == Location::Unknown)
    }
}
