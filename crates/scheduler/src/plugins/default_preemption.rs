//! DefaultPreemption: which pods leave a node for a more important one.
//!
//! In: pods of lower priority on a node, budgets, candidates. Out: the order in which victims are spared, and the best
//! candidate. Never: a verdict about a node; the core asks the filters (`core/preemption`).
//!
//! Source: kube-scheduler 1.36 `defaultpreemption` and `preemption`.

use std::cmp::Reverse;

use crate::budget::BudgetView;
use crate::ledger::PodId;
use crate::node::NodeView;
use crate::pod::PodView;
use crate::reason::Reason;

/// `DefaultPreemptionArgs`: how many candidates are enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Args {
    /// `minCandidateNodesPercentage`, 0 to 100 percent of the nodes that preemption may help.
    pub min_candidate_nodes_percentage: usize,
    /// `minCandidateNodesAbsolute`.
    pub min_candidate_nodes_absolute: usize,
}

/// A pod that may have to leave its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The pod.
    pub id: PodId,
    /// `spec.priority`.
    pub priority: i32,
    /// `status.startTime`, seconds since the epoch; `u64::MAX`: it has not started, so it counts as started now.
    pub started_s: u64,
}

/// A node that fits a pod once these victims have left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The slot of the node.
    pub slot: usize,
    /// The victims, the most important first; at least one.
    pub victims: Vec<Victim>,
    /// Victims whose budgets do not allow their disruption.
    pub violations: usize,
}

impl Default for Args {
    fn default() -> Self {
        Self { min_candidate_nodes_percentage: 10, min_candidate_nodes_absolute: 100 }
    }
}

impl Args {
    /// The number of candidates among so many nodes at which a search ends (`calculateNumCandidates`).
    #[must_use]
    pub fn enough_candidates(self, nodes: usize) -> usize {
        let percentage = nodes.saturating_mul(self.min_candidate_nodes_percentage) / 100;
        percentage.max(self.min_candidate_nodes_absolute).min(nodes)
    }
}

impl Victim {
    /// A pod on a node.
    #[must_use]
    pub fn of(id: PodId, pod: &PodView) -> Self {
        Self { id, priority: pod.priority, started_s: pod.started_s.unwrap_or(u64::MAX) }
    }

    /// The order of importance, the most important first (`MoreImportantPod`). Equals stay in the order of arrival.
    #[must_use]
    pub fn importance(&self) -> (Reverse<i32>, u64, PodId) {
        (Reverse(self.priority), self.started_s, self.id)
    }
}

/// Whether the departure of pods may turn a refusal for this reason: kube-scheduler's `Unschedulable`, while the others
/// are its `UnschedulableAndUnresolvable`. A held node stays held when pods leave it.
#[must_use]
pub fn is_curable(reason: Reason, pod: &PodView, view: &NodeView) -> bool {
    match reason {
        Reason::Unschedulable
        | Reason::Taint
        | Reason::OtherNode
        | Reason::AddedAffinity
        | Reason::Affinity
        | Reason::NoSpreadLabel
        | Reason::PodAffinity
        | Reason::VolumesNotReady(_)
        | Reason::VolumeBinding(_)
        | Reason::VolumeZone
        | Reason::VolumeUnreadable
        | Reason::PodLevelManagers
        | Reason::ClaimsNotReady
        | Reason::ClaimElsewhere
        | Reason::DevicesUnavailable
        | Reason::InvalidPools
        | Reason::ClaimError
        | Reason::MissingFeatures
        | Reason::StaleClaim
        | Reason::NotServed
        | Reason::NoTopology
        | Reason::AlignmentUnknown
        | Reason::Held
        | Reason::NoVictims
        | Reason::NotHelpful => false,
        // More than the node has will not be free (`fitsRequest`).
        Reason::Insufficient(name) => {
            let asked = crate::node::amount(&pod.spec.needs.totals, name);
            asked <= view.allocatable(name)
        }
        Reason::HostPort
        | Reason::TooManyPods
        | Reason::DiskConflict
        | Reason::ClaimInUse
        | Reason::TooManyVolumes
        | Reason::Spread
        | Reason::PodAntiAffinity
        | Reason::ExistingAntiAffinity
        | Reason::Misaligned(_)
        | Reason::WouldSpread
        | Reason::Extender
        | Reason::StaleTopology(_) => true,
    }
}

/// Parts victims by whether a budget forbids their disruption, those first; both keep their order
/// (`filterPodsWithPDBViolation`). Cost: victims x budgets.
#[must_use]
pub fn by_violation<'a>(
    victims: &[Victim],
    pod: impl Fn(PodId) -> Option<&'a PodView>,
    budgets: impl Iterator<Item = &'a BudgetView>,
) -> (Vec<Victim>, Vec<Victim>) {
    let mut left: Vec<(&BudgetView, i32)> = budgets.map(|budget| (budget, budget.allowed())).collect();
    victims.iter().partition(|victim| {
        let Some(pod) = pod(victim.id) else { return false };
        let mut violates = false;
        for (_, allowed) in left.iter_mut().filter(|(budget, _)| budget.covers(pod)) {
            *allowed = allowed.saturating_sub(1);
            violates |= *allowed < 0;
        }
        violates
    })
}

/// The best candidate, the first of equals (`pickOneNodeForPreemption`).
#[must_use]
pub fn best(candidates: Vec<Candidate>) -> Option<Candidate> {
    candidates.into_iter().min_by_key(Candidate::harm)
}

impl Candidate {
    /// The harm that the eviction does; the least is best. In this order: violated budgets, the highest priority, the
    /// sum of priorities, the number of victims, and how early the most important ones have started.
    fn harm(&self) -> (usize, i32, i64, usize, Reverse<u64>) {
        let highest = self.victims.iter().map(|victim| victim.priority).max().unwrap_or(i32::MIN);
        // Each priority counts above 0, so that few victims of negative priority are better than many.
        let sum = self.victims.iter().map(|victim| i64::from(victim.priority) + (1 << 31)).sum();
        let top = self.victims.iter().filter(|victim| victim.priority == highest);
        let earliest = top.map(|victim| victim.started_s).min().unwrap_or(u64::MAX);
        (self.violations, highest, sum, self.victims.len(), Reverse(earliest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(slot: usize, violations: usize, victims: &[(i32, u64)]) -> Candidate {
        let victims = victims.iter().zip(0..);
        let victims = victims.map(|((priority, started_s), id)| Victim {
            id: PodId(id),
            priority: *priority,
            started_s: *started_s,
        });
        Candidate { slot, victims: victims.collect(), violations }
    }

    #[test]
    fn candidates_are_compared_one_criterion_after_the_other() {
        type Node = (usize, &'static [(i32, u64)]);
        let table: [(&str, [Node; 3], usize); 9] = [
            ("fewest violations", [(1, &[(0, 1)]), (0, &[(9, 1), (8, 1)]), (2, &[(0, 1)])], 1),
            ("lowest highest priority", [(0, &[(5, 1)]), (0, &[(4, 1), (4, 1)]), (0, &[(5, 1), (0, 1)])], 1),
            ("smallest sum", [(0, &[(5, 1), (4, 1)]), (0, &[(5, 1), (3, 1)]), (0, &[(5, 1), (5, 1)])], 1),
            (
                "fewer victims by the sum",
                [(0, &[(5, 1), (0, 1)]), (0, &[(5, 1)]), (0, &[(5, 1), (-1, 1)])],
                1,
            ),
            ("negative priorities", [(0, &[(-5, 1), (-5, 1)]), (0, &[(-5, 1)]), (0, &[(-4, 1)])], 1),
            ("latest start", [(0, &[(5, 1)]), (0, &[(5, 3)]), (0, &[(5, 2)])], 1),
            (
                "earliest of the highest",
                [(0, &[(5, 9), (5, 1)]), (0, &[(5, 4), (5, 3)]), (0, &[(5, 9), (5, 2)])],
                1,
            ),
            (
                "others' start does not count",
                [(0, &[(5, 2), (4, 9)]), (0, &[(5, 3), (4, 1)]), (0, &[(5, 1), (4, 9)])],
                1,
            ),
            ("not started is latest", [(0, &[(5, 7)]), (0, &[(5, u64::MAX)]), (0, &[(5, 8)])], 1),
        ];
        for (criterion, nodes, wanted) in table {
            let all = nodes.iter().enumerate();
            let all = all.map(|(slot, (violations, victims))| candidate(slot, *violations, victims));
            assert_eq!(best(all.collect()).unwrap().slot, wanted, "{criterion}");
        }
        let equal = (0..3).map(|slot| candidate(slot, 0, &[(1, 1)]));
        assert_eq!(best(equal.collect()).unwrap().slot, 0, "the first of equals");
        assert_eq!(best(Vec::new()), None);
        assert!(candidate(0, 0, &[(i32::MIN, 0)]).harm() < candidate(0, 0, &[(i32::MAX, 0)]).harm());
    }

    #[test]
    fn victims_are_ordered_by_priority_then_start() {
        let victim = |id, priority, started_s| Victim { id: PodId(id), priority, started_s };
        let mut victims =
            [victim(0, 1, 5), victim(1, 2, u64::MAX), victim(2, 2, 9), victim(3, 1, 4), victim(4, 1, 5)];
        victims.sort_unstable_by_key(Victim::importance);
        assert_eq!(victims.map(|victim| victim.id.0), [2, 1, 3, 0, 4]);
    }

    #[test]
    fn enough_candidates_are_those_of_the_arguments() {
        for (percentage, absolute, nodes, wanted) in
            [(10, 100, 50, 50), (10, 100, 500, 100), (10, 100, 5_000, 500), (0, 1, 5_000, 1), (100, 0, 7, 7)]
        {
            let args =
                Args { min_candidate_nodes_percentage: percentage, min_candidate_nodes_absolute: absolute };
            assert_eq!(args.enough_candidates(nodes), wanted, "{args:?} {nodes}");
        }
    }
}
