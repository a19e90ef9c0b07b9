//! Which pods of a node would have to leave for another one to fit, by the amounts of zones.
//!
//! In: a ledger, the needs of a pod, pods of the node. Out: whether it could be enough that some of them leave. Never:
//! a yes for certain; that takes the ledger without them (`without`). A no is certain where the pod has to be in one
//! zone.
//!
//! Cost: zones x needs for each set, after a count of what each pod holds.

use smallvec::SmallVec;
use topology::admit::charged_column;
use topology::policy::{Policy, Rules, Scope};
use topology::request::PodNeeds;

use super::amounts::Amounts;
use super::{Held, Ledger, Location, PodId};

/// What zones would have of what a pod needs, once other pods have left.
#[derive(Clone, Debug)]
pub(crate) struct FreedZones {
    /// By need, how much the pod asks for.
    wanted: SmallVec<[i64; 4]>,
    /// A row for each zone, a column for each need.
    free: Vec<i64>,
    /// The same table for each pod, in the order in which they were given.
    held: Vec<Vec<i64>>,
    /// Whether one zone has to have it all.
    in_one_zone: bool,
}

impl Ledger {
    /// What zones would have for a pod with these needs once some of `pods` have left; `None` where zones do not
    /// decide, or are not known for certain.
    pub(crate) fn freed_zones(&self, needs: &PodNeeds, pods: &[PodId]) -> Option<FreedZones> {
        let rules = self.topology.as_ref()?.rules;
        let [world] = &*self.worlds else { return None };
        if !rules.policy.enforces() || self.report_lost || !needs.may_align() {
            return None;
        }
        let free = world.amounts.free();
        let column = |need| Some((charged_column(rules, free, needs.qos, need)?, need.amount));
        let columns: SmallVec<[(usize, i64); 4]> =
            needs.pod_scope.iter().filter_map(|need| column(*need)).collect();
        let table = |amount: &dyn Fn(usize, usize) -> i64| -> Vec<i64> {
            let rows = 0..free.layout().zones().len();
            rows.flat_map(|row| columns.iter().map(move |(column, _)| amount(row, *column))).collect()
        };
        if pods.iter().filter_map(|id| self.index(*id)).any(|at| self.rows[at].alike.is_some()) {
            return None;
        }
        let location = |id: &PodId| Some(&world.locations[self.index(*id)?]);
        let held = |id: &PodId| match location(id) {
            Some(Location::Charged { held, .. }) => {
                table(&|row, column| world.amounts.held_in(held, row, column))
            }
            // It frees nothing that is known.
            Some(Location::Unknown) | None => table(&|_, _| 0),
        };
        Some(FreedZones {
            wanted: columns.iter().map(|(_, amount)| *amount).collect(),
            free: table(&|row, column| free.get(row, column)),
            held: pods.iter().map(held).collect(),
            in_one_zone: is_for_one_zone(rules, &world.amounts, needs),
        })
    }
}

/// Whether the kubelet takes the pod in one zone alone.
fn is_for_one_zone(rules: Rules, amounts: &Amounts, needs: &PodNeeds) -> bool {
    let is_one_request = needs.containers.len() == 1 || rules.scope == Scope::Pod;
    let is_narrow = match rules.policy {
        Policy::SingleNumaNode => true,
        Policy::Restricted => amounts.has_zone_for(needs),
        Policy::BestEffort | Policy::None => false,
    };
    is_one_request && is_narrow
}

impl FreedZones {
    /// Whether it could be enough that these pods leave, by their positions.
    pub(crate) fn could_be_enough(&self, pods: &[usize]) -> bool {
        let columns = self.wanted.len();
        let left = |cell: usize| self.free[cell] + pods.iter().map(|at| self.held[*at][cell]).sum::<i64>();
        let mut zones = (0..self.free.len()).step_by(columns.max(1));
        let mut wanted = self.wanted.iter().enumerate();
        if self.in_one_zone {
            zones.any(|first| self.wanted.iter().enumerate().all(|(at, amount)| left(first + at) >= *amount))
        } else {
            wanted.all(|(at, amount)| {
                zones.clone().map(|first| left(first + at).max(0)).sum::<i64>() >= *amount
            })
        }
    }
}

impl Amounts {
    /// What is held at most of a cell.
    fn held_in(&self, held: &Held, row: usize, column: usize) -> i64 {
        let cell = self.free().index(row, column);
        match (self, held) {
            (Self::Ids(ids), Held::Ids(held)) => ids.held_in(held, row, column),
            (_, Held::Cells(placement)) => placement
                .grants
                .iter()
                .filter(|grant| grant.cell as usize == cell)
                .map(|grant| grant.held)
                .sum(),
            (Self::Counts(_), Held::Ids(_)) => 0,
        }
    }
}
