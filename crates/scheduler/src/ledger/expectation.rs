//! What the ledger expects: of the next report, and of the kubelet about a pod on its way.
//!
//! In: the possible worlds. Out: values to compare before and after an event; whether a pod may be rejected. Never: a
//! change of the ledger.

use super::location::release;
use super::{Amounts, Ledger, Location, PodId, Scratch, Stage, World};

/// The amounts of a world, and its pods that have not left: whether their kubelet has seen them, and where they are.
pub(super) type Expected = (Amounts, Vec<(PodId, bool, Location)>);

impl Ledger {
    /// All that checks and scores depend on, but for the machine; `None` where something is in doubt. Cost: worlds x
    /// pods.
    pub(super) fn expectation(&self) -> Option<Vec<Expected>> {
        let expected = |world: &World| {
            let pods = self.rows.iter().zip(&world.locations).filter(|(row, _)| row.stage != Stage::Released);
            let pods = pods.map(|(row, location)| (row.id, row.is_unseen(), location.clone()));
            (world.amounts.clone(), pods.collect())
        };
        let is_known = self.is_trusted() && self.unexplained.is_none();
        is_known.then(|| self.worlds.iter().map(expected).collect())
    }

    /// Whether there is a possible world in which the kubelet rejects a pod that is on its way, by what is known now.
    /// Cost: worlds x one admission.
    #[must_use]
    pub fn may_be_rejected(&self, pod: PodId, scratch: &mut Scratch) -> bool {
        let row = self.index(pod).filter(|at| self.rows[*at].stage == Stage::Pending && self.is_modelled());
        let (Some(row), Some(topology)) = (row, &self.topology) else { return false };
        let (rules, needs) = (topology.rules, &self.rows[row].needs);
        let later: Vec<usize> = self.unsettled().into_iter().skip_while(|at| *at != row).collect();
        self.worlds.iter().any(|world| {
            let mut before = world.amounts.clone();
            later.iter().for_each(|at| release(&mut before, &world.locations[*at]));
            before.needs_alignment(rules, needs) && before.check(rules, needs, scratch).is_err()
        })
    }
}
