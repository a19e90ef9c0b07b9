//! What the zones of a node say of a pod: filter, second choice, score.
//!
//! In: a node's ledger, or upstream's accounting; a pod. Out: the [`Reason`] against it, whether other nodes come
//! before, a score. Never: a look at other nodes.

use api::schedulerconfig::{NodesWithoutTopology, ResyncMethod};
use topology::kubelet::alignment::Alignment;
use topology::request::PodNeeds;
use topology::score::{Strategy, Weights, ZoneScorer};

use crate::core::Profile;
use crate::ledger::{Doubt, Ledger, Scratch};
use crate::node::Node;
use crate::over_reserve::OverReserve;
use crate::pod::{AlignmentIntent, Spec};
use crate::reason::Reason;

/// Zone filter and zone score of a profile.
#[derive(Clone, Debug)]
pub struct Numa {
    /// The strategy by which zones are scored.
    pub strategy: Strategy,
    /// Weights of resources in the zone score.
    pub weights: Weights,
    /// Whether nodes are filtered by zones.
    pub filters: bool,
    /// Weight of the zone score among the scores; 0: not scored.
    pub score_weight: i64,
    /// How the free amounts of zones are known.
    pub accounting: Accounting,
    /// Nodes without a report, for pods that a kubelet could have to align.
    pub unreported: NodesWithoutTopology,
}

/// How zones filter nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneFilter {
    /// How the free amounts are known.
    pub accounting: Accounting,
    /// Nodes without a report.
    pub unreported: NodesWithoutTopology,
}

/// The accounting of zones between two reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accounting {
    /// By the ledger.
    #[default]
    Exact,
    /// As upstream's plugin does: each pod is charged to every zone until a resync finds a matching report.
    OverReserve {
        /// Time between two resyncs.
        resync_ms: u64,
        /// The pods that a fingerprint counts.
        method: ResyncMethod,
        /// Whether a preemption counts the zones that victims leave (`preemptionMode: Enabled`).
        preempts: bool,
    },
}

impl Accounting {
    /// That of upstream's plugin with its defaults, with this time between two resyncs.
    #[must_use]
    pub fn over_reserve(resync_ms: u64) -> Self {
        Self::OverReserve { resync_ms, method: ResyncMethod::default(), preempts: false }
    }
}

impl Numa {
    /// The scorer of zones for a pod.
    #[must_use]
    pub fn scorer<'a>(&self, needs: &'a PodNeeds) -> ZoneScorer<'a> {
        ZoneScorer::new(self.strategy, &self.weights, needs)
    }
}

impl Profile {
    /// How zones filter nodes; `None`: they do not.
    #[must_use]
    pub fn zone_filter(&self) -> Option<ZoneFilter> {
        let numa = self.numa.as_ref().filter(|numa| numa.filters)?;
        Some(ZoneFilter { accounting: numa.accounting, unreported: numa.unreported })
    }

    /// The same once pods have left a node for another. Upstream's accounting frees no zone before a resync.
    #[must_use]
    pub fn zone_filter_of_preemption(&self) -> Option<ZoneFilter> {
        let filter = self.zone_filter()?;
        Some(match filter.accounting {
            Accounting::OverReserve { preempts: true, .. } => {
                ZoneFilter { accounting: Accounting::Exact, ..filter }
            }
            _ => filter,
        })
    }

    /// Whether any plugin ranks nodes.
    #[must_use]
    pub fn scores(&self) -> bool {
        !self.plugins.scores.is_empty() || self.numa.as_ref().is_some_and(|numa| numa.score_weight > 0)
    }
}

/// Whether a pod fits in the zones of a node. `filter`: `None` where zones do not filter.
///
/// # Errors
/// The first [`Reason`] against it.
pub fn filter_zones(
    (ledger, over_reserve): (&Ledger, &OverReserve),
    (spec, created_s): (&Spec, u64),
    filter: Option<ZoneFilter>,
    now_ms: u64,
    scratch: &mut Scratch,
) -> Result<(), Reason> {
    let Some(filter) = filter else { return Ok(()) };
    if filter.accounting != Accounting::Exact {
        over_reserve.check(&spec.needs, &mut scratch.counts).map_err(Reason::Misaligned)?;
        return filter_by_intent(ledger, spec, filter, scratch);
    }
    if !ledger.is_enforced() && ledger.awaits_report(now_ms) && spec.needs.may_align() {
        return Err(Reason::StaleTopology(Doubt::Awaited));
    }
    if spec.needs.pod.pod_level && ledger.aligns_whole_pods() {
        return Err(Reason::PodLevelManagers);
    }
    if ledger.is_contradicted(&spec.needs, now_ms) {
        return Err(Reason::StaleTopology(Doubt::Contradicted));
    }
    ledger.check((&spec.needs, created_s), scratch)?;
    filter_by_intent(ledger, spec, filter, scratch)
}

/// Whether a node that does not enforce alignment is good enough for what the pod and the profile want.
fn filter_by_intent(
    ledger: &Ledger,
    spec: &Spec,
    filter: ZoneFilter,
    scratch: &mut Scratch,
) -> Result<(), Reason> {
    match spec.intent {
        AlignmentIntent::Require => match ledger.alignment(&spec.needs, scratch) {
            Some(Alignment::Aligned) => Ok(()),
            Some(Alignment::Misaligned) => Err(Reason::WouldSpread),
            None => Err(Reason::AlignmentUnknown),
        },
        AlignmentIntent::Unstated | AlignmentIntent::Prefer
            if filter.unreported == NodesWithoutTopology::Reject =>
        {
            let is_fine = ledger.has_report() || !spec.needs.may_align();
            if is_fine { Ok(()) } else { Err(Reason::NoTopology) }
        }
        AlignmentIntent::Unstated | AlignmentIntent::Prefer | AlignmentIntent::Ignore => Ok(()),
    }
}

/// Whether a node that fits is one for lack of others: nothing tells that its kubelet would align the pod, and the pod
/// or the profile prefers nodes that do.
pub(super) fn is_second_choice(
    ledger: &Ledger,
    spec: &Spec,
    filter: ZoneFilter,
    scratch: &mut Scratch,
) -> bool {
    let prefers = match spec.intent {
        AlignmentIntent::Require | AlignmentIntent::Ignore => return false,
        AlignmentIntent::Prefer => true,
        AlignmentIntent::Unstated => false,
    };
    if ledger.is_enforced() || !spec.needs.may_align() {
        return false;
    }
    if !ledger.has_report() {
        return prefers || filter.unreported == NodesWithoutTopology::PreferAligned;
    }
    match ledger.alignment(&spec.needs, scratch) {
        Some(Alignment::Aligned) => false,
        Some(Alignment::Misaligned) => true,
        None => prefers,
    }
}

pub(crate) fn zone_score(node: &Node, accounting: Accounting, scorer: &ZoneScorer<'_>) -> i64 {
    match accounting {
        Accounting::Exact => zone_score_of(&node.ledger, scorer),
        Accounting::OverReserve { .. } => node.over_reserve.score(scorer),
    }
}

/// The zone score of a node with this ledger. The strategies but LeastNUMANodes score the zones of nodes that enforce
/// alignment. Other nodes get 0 and rank below, except for pods that are not Guaranteed, for which all nodes score the
/// same.
pub(crate) fn zone_score_of(ledger: &Ledger, scorer: &ZoneScorer<'_>) -> i64 {
    if scorer.is_neutral() {
        return topology::score::MAX_SCORE;
    }
    ledger.score(scorer).unwrap_or(0)
}
