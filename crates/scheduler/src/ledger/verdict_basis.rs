//! All that verdicts about pods depend on, to compare before and after a report.
//!
//! In: the possible worlds. Out: a value that is the same as long as each check and score is. Never: a change of the
//! ledger.

use super::{Amounts, Ledger, Location, PodId, Stage, World};

/// What checks and scores depend on, but for the machine: by possible world.
#[derive(Debug, PartialEq)]
pub(super) struct VerdictBasis(Vec<(Amounts, Vec<PodBasis>)>);

/// A pod that has not left: whether its kubelet has seen it, and where it is.
type PodBasis = (PodId, bool, Location);

impl VerdictBasis {
    /// What verdicts depend on now; `None` where something is in doubt. Cost: worlds x pods.
    pub(super) fn of(ledger: &Ledger) -> Option<Self> {
        let basis = |world: &World| {
            let pods = ledger.rows.iter().zip(&world.locations);
            let pods = pods.filter(|(row, _)| row.stage != Stage::Released);
            let pods = pods.map(|(row, location)| (row.id, !row.is_unseen(), location.clone()));
            (world.amounts.clone(), pods.collect())
        };
        let is_known = ledger.is_trusted() && ledger.unexplained.is_none();
        is_known.then(|| Self(ledger.worlds.iter().map(basis).collect()))
    }
}
