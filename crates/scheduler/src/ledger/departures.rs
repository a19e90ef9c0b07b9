//! Departures that nothing announces: a pod may leave between the binding of another one and its admission.
//!
//! In: a pod that fits. Out: the pods on which that relies. Never: a refusal; such a departure is unlikely, and a pod
//! that waited for a node where none matters might wait for ever.
//!
//! Cost: worlds x sets of leaving pods x pods that may leave x one admission; nothing for pods that more room never
//! keeps out, which is most.

use topology::request::PodNeeds;

use super::{Held, Ledger, PodId, Scratch, Stage};

impl Ledger {
    /// The admitted pods on which a pod that fits relies: once one of them leaves before the kubelet admits it, it may
    /// not fit. `None`: the kubelet is not known to refuse pods, or its state is not known.
    #[must_use]
    pub fn relied_on(&self, needs: &PodNeeds, scratch: &mut Scratch) -> Option<impl Iterator<Item = PodId>> {
        let topology = self.topology().filter(|_| self.is_modelled() && self.is_trusted())?;
        let first = self.worlds.first()?;
        let may_rely = needs.may_align() && first.amounts.is_non_monotonic(topology.rules, needs);
        let keeps_out = move |at: &usize| {
            let early = self.early_releases(|other| other == *at);
            self.check_worlds((topology.rules, needs), &early, scratch).is_err()
        };
        let admitted = self.indices(|stage| stage == Stage::Admitted).filter(move |_| may_rely);
        let relied_on = admitted.filter(|at| self.holds_something(*at)).filter(keeps_out);
        Some(relied_on.map(|at| self.rows[at].id))
    }

    /// Whether the kubelet has given something in zones to the pod.
    fn holds_something(&self, at: usize) -> bool {
        let held = self.worlds.iter().filter_map(|world| world.locations[at].held());
        held.into_iter().any(|held| held != Held::default())
    }
}
