//! Departures that nothing announces: a pod may leave between the binding of another one and its admission.
//!
//! In: the rows, and a pod that fits. Out: the sets of pods that may leave first, and those on which the pod relies.
//! Never: a refusal for what it relies on; such a departure is unlikely, and a pod that waited for a node where none
//! matters might wait for ever.
//!
//! Cost of what a pod relies on: worlds x sets of leaving pods x pods that may leave x one admission; nothing for pods
//! that more room never keeps out, which is most.

use topology::request::PodNeeds;

use super::{Ledger, PodId, Scratch, Stage};

/// Most leaving pods whose early release is tried in every combination; more are tried one by one and all together.
const MAX_COMBINED: usize = 3;
/// Most sets of several leaving pods and one that ends by itself; beyond, it ends with none or all of them.
const MAX_EARLY: usize = 256;

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
    pub(super) fn holds_something(&self, at: usize) -> bool {
        let mut held = self.worlds.iter().filter_map(|world| world.locations[at].held());
        held.any(|held| !held.is_empty())
    }

    /// Sets of pods that the kubelet may release before it admits the next one: the subsets of the leaving pods (of
    /// many, each alone and all together), each with at most one other pod, by its row, that `may_end`. A pod may end
    /// before its admission is known.
    pub(super) fn early_releases(&self, may_end: impl Fn(usize) -> bool) -> Vec<Vec<usize>> {
        let aligned = |has: fn(Stage) -> bool| self.indices(has).filter(|at| self.takes_zones(*at));
        let leaving: Vec<_> = aligned(Stage::is_leaving).collect();
        let sets = subsets(&leaving);
        let ending: Vec<_> = aligned(Stage::stays).filter(|at| may_end(*at)).collect();
        let are_many = leaving.len() > 1 && sets.len() * ending.len() > MAX_EARLY;
        let extremes = [vec![], leaving];
        let beside = if are_many { &extremes[..] } else { &sets };
        let with_one_more = beside
            .iter()
            .flat_map(|set| ending.iter().map(|at| set.iter().copied().chain([*at]).collect::<Vec<usize>>()));
        let all = sets.iter().cloned().chain(with_one_more);
        all.filter(|set| !set.is_empty()).collect()
    }

    /// The same where pods end by themselves.
    pub(super) fn likely_releases(&self) -> Vec<Vec<usize>> {
        self.early_releases(|at| self.may_end(at))
    }
}

/// The sets of rows that are tried: all of a few; of many the empty set, all, and each alone.
pub(super) fn subsets(rows: &[usize]) -> Vec<Vec<usize>> {
    if rows.len() > MAX_COMBINED {
        let alone = rows.iter().map(|at| vec![*at]);
        return [vec![], rows.to_vec()].into_iter().chain(alone).collect();
    }
    let chosen = |mask: usize| (0..rows.len()).filter(move |bit| mask >> bit & 1 == 1);
    (0..1_usize << rows.len()).map(|mask| chosen(mask).map(|bit| rows[bit]).collect()).collect()
}
