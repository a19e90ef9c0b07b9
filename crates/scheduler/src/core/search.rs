//! The search for a pod's node: filters, extenders, scores.
//!
//! In: a pod, nodes with their ledgers. Out: the best of the nodes that fit, or the reasons against all. Never: a
//! charge; the node is the pod's once the attempt reserves it (`decision`).

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::trial::{IncomingPod, Trial};
use super::{Core, Profile};
use crate::affinity::Labels;
use crate::cycle::{self, Accounting, Known, PreFilterState, PreScoreState, RawScore};
use crate::ledger::{PodId, Scratch};
use crate::node::NodeView;
use crate::plugins::default_preemption::is_curable;
use crate::plugins::inter_pod_affinity::Domains;
use crate::pod::{PodView, Spec};
use crate::queue::Class;
use crate::reason::{Reason, Refusals};

/// The reasons of one node: one, but for several resources that are short or conflicts of volumes.
pub(super) type Reasons = SmallVec<[Reason; 1]>;

/// A verdict about a node: its scores, or the reasons against it.
pub(super) type Verdict = Result<RawScore, Reasons>;

/// Most nodes, after the best one, of which it is asked whether the pod fits there whichever pod leaves meanwhile.
const MAX_TOLERANCE_CHECKS: usize = 8;

/// The reason for which there is no node.
pub(super) enum NoNode {
    /// All nodes refuse the pod.
    Refused(Refusals),
    /// The attempt ended in an error.
    Error(String, Refusals),
}

impl Core {
    /// The node for a pod.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn choose(
        &mut self,
        id: PodId,
        pod: &PodView,
        profile: &Profile,
        now_ms: u64,
    ) -> Result<usize, NoNode> {
        let spec = &pod.spec;
        let existing = self.existing_domains((&pod.namespace, &pod.labels));
        spec.selectors().for_each(|pods| self.selections.follow(pods));
        let (selections, volumes, devices) = (&self.selections, &self.volumes, &self.devices);
        let known = Known { selections, volumes, devices, pod: Some(pod), now_ms };
        let spanning = PreFilterState::new(spec, existing, &profile.plugins, &self.nodes, known);
        self.stopwatch.lap("PreFilter", true);
        let count = self.node_order.len();
        let enough = match profile.scores() || self.is_filtered_by_extenders() {
            true => cycle::feasible_nodes_to_find(count, profile.percentage),
            false => 1,
        };
        let images = self.images.wanted(&pod.images, count);
        let mut cache = std::mem::take(&mut self.equivalence);
        let mut table = self.cached_class(id, &spanning).and_then(|class| cache.table(class, images.clone()));
        let prepared = PreScoreState::new(spec, profile, images, devices);
        let mut refusals = Refusals::default();
        self.feasible.clear();
        self.raw.clear();
        let preempts = profile.plugins.preemption.is_some();
        let mut scratch = std::mem::take(&mut self.scratch);
        let incoming = IncomingPod { id, rank: self.queue.rank(id), pod, profile, now_ms };
        let mut is_fine = |slot: &usize| self.judge(incoming, *slot, &spanning, &mut scratch).is_ok();
        let nominated = self.nominated_slot(id).filter(|slot| is_fine(slot));
        if let Some(slot) = nominated.filter(|slot| self.passes_extenders(pod, *slot)) {
            (self.scratch, self.equivalence) = (scratch, cache);
            self.stopwatch.lap("Filter", true);
            return Ok(slot);
        }
        let mut seen = 0;
        let mut first_choices = 0;
        while seen < count && first_choices < enough {
            let slot = self.node_order[(self.search_start + seen) % count];
            seen += 1;
            let node = &self.nodes[slot];
            let Some(view) = &node.view else { continue };
            // A node that expects others is judged with them there.
            let mut table = table.as_deref_mut().filter(|_| !self.is_expecting(slot));
            let revision = self.nodes.revision(slot);
            let created = (pod.created_s, node.ledger.has_unseen());
            let known = table.as_deref().and_then(|table| table.get(slot, revision, created));
            let judged = match known {
                Some(_) => None,
                None => {
                    let verdict = self.judge(incoming, slot, &spanning, &mut scratch);
                    Some(verdict.map(|()| prepared.raw_score(node, view, &spanning, &mut scratch)))
                }
            };
            match known.or(judged.as_ref()) {
                Some(Ok(score)) => {
                    self.feasible.push(slot);
                    self.raw.push(*score);
                    first_choices += usize::from(!score.is_second_choice);
                }
                Some(Err(reasons)) => {
                    if preempts && self.may_be_cured(incoming, (slot, view), reasons) {
                        self.curable.extend(reasons.first().map(|reason| (slot, *reason)));
                    }
                    reasons.iter().for_each(|reason| refusals.add(*reason));
                    if reasons.contains(&Reason::ClaimElsewhere) || reasons.contains(&Reason::ClaimError) {
                        self.elsewhere.push(slot);
                    }
                    if reasons.contains(&Reason::ClaimError) {
                        break;
                    }
                }
                None => {}
            }
            if let (Some(table), Some(verdict)) = (&mut table, judged) {
                table.put(slot, revision, pod.created_s, verdict);
            }
        }
        (self.scratch, self.equivalence) = (scratch, cache);
        self.search_start = if count == 0 { 0 } else { (self.search_start + seen) % count };
        if refusals.iter().any(|(reason, _)| reason == Reason::ClaimError) {
            self.stopwatch.lap("Filter", false);
            let slot = self.elsewhere.last().copied();
            let message = slot.and_then(|slot| self.claim_error(pod, slot, profile, now_ms));
            return Err(NoNode::Error(
                message.unwrap_or_else(|| refusals.message(count, &spec.needs)),
                refusals,
            ));
        }
        let extended = self.filter_by_extenders(pod, preempts, &mut refusals);
        self.stopwatch.lap("Filter", extended.is_ok());
        if let Err(message) = extended {
            return Err(NoNode::Error(message, refusals));
        }
        let plugins = &*profile.plugins;
        cycle::totals(&self.raw, &plugins.scores, &mut self.totals);
        let found = (&*self.feasible, &*self.nodes);
        cycle::add_spanning((pod, &self.existing_terms), found, &self.selections, plugins, &mut self.totals);
        self.score_by_extenders(pod);
        let best = self.totals.iter().max().copied().ok_or(NoNode::Refused(refusals))?;
        self.stopwatch.lap("Score", true);
        let ties = self.totals.iter().filter(|total| **total == best).count();
        let pick = usize::try_from(self.random.below(ties as u64)).unwrap_or(0);
        let winner = self.totals.iter().enumerate().filter(|(_, total)| **total == best).nth(pick);
        let winner =
            winner.map(|(at, _)| self.feasible[at]).ok_or_else(|| NoNode::Refused(Refusals::default()))?;
        let mut scratch = std::mem::take(&mut self.scratch);
        let chosen =
            self.most_tolerant((spec, profile), winner, (&self.feasible, &self.totals), &mut scratch);
        self.scratch = scratch;
        Ok(chosen)
    }

    /// The node for a pod: the best one, but where a pod that leaves before the kubelet admits this one could keep it
    /// out. Then the first of the next few where none can; if there is none, the best. `found`: nodes that fit, with
    /// their totals.
    pub(super) fn most_tolerant(
        &self,
        (spec, profile): (&Spec, &Profile),
        best: usize,
        (found, totals): (&[usize], &[i64]),
        scratch: &mut Scratch,
    ) -> usize {
        let is_exact = profile.zone_filter().is_some_and(|filter| filter.accounting == Accounting::Exact);
        if found.len() < 2 || !is_exact {
            return best;
        }
        let mut relies_on_any = |slot: usize| {
            let mut relied_on = self.nodes[slot].ledger.relied_on(&spec.needs, scratch)?;
            Some(relied_on.next().is_some())
        };
        if relies_on_any(best) != Some(true) {
            return best;
        }
        let others = best_first(found, totals).into_iter().filter(|slot| *slot != best);
        let next = others.take(MAX_TOLERANCE_CHECKS).find(|slot| relies_on_any(*slot) == Some(false));
        next.unwrap_or(best)
    }

    /// The nodes that the last attempt found to fit, with their total scores; none if it took the nominated node.
    pub fn last_scores(&self) -> impl Iterator<Item = (&Arc<str>, i64)> {
        let nodes = self.feasible.iter().map(|slot| &self.nodes[*slot].name);
        nodes.zip(self.totals.iter().copied())
    }

    /// The domains that pods on nodes keep a pod of this namespace with these labels away from.
    pub(super) fn existing_domains(&self, (namespace, labels): (&str, &Labels)) -> Domains {
        let target = self.selections.namespaces().target(namespace, labels);
        self.existing_terms.domains(target, &self.nodes)
    }

    /// What the constraints of a pod look at, on all nodes. Selections must follow its selectors.
    pub(super) fn pre_filter<'c>(
        &'c self,
        pod: &'c PodView,
        profile: &Profile,
        now_ms: u64,
    ) -> PreFilterState<'c> {
        let existing = self.existing_domains((&pod.namespace, &pod.labels));
        PreFilterState::new(&pod.spec, existing, &profile.plugins, &self.nodes, self.known(Some(pod), now_ms))
    }

    /// The objects that constraints look at.
    pub(super) fn known<'c>(&'c self, pod: Option<&'c PodView>, now_ms: u64) -> Known<'c> {
        let Self { selections, volumes, devices, .. } = self;
        Known { selections, volumes, devices, pod, now_ms }
    }

    /// The class by which verdicts about nodes are remembered; `None`: they depend on more than the node and the class,
    /// or no other pod would use them.
    pub(super) fn cached_class(&self, id: PodId, spanning: &PreFilterState<'_>) -> Option<Class> {
        self.queue.shared_class(id).filter(|_| spanning.is_empty() && !self.hold.is_active())
    }

    /// Whether the departure of pods may turn these reasons of a node, which then is the pod's.
    fn may_be_cured(
        &self,
        incoming: IncomingPod<'_>,
        (slot, view): (usize, &NodeView),
        reasons: &Reasons,
    ) -> bool {
        let IncomingPod { rank, pod, .. } = incoming;
        reasons.iter().all(|reason| is_curable(*reason, pod, view))
            && !rank.is_some_and(|rank| self.hold.keeps_off(slot, rank))
    }

    /// Whether other pods have to fit on a node beside the next one: nominated ones, or those that wait for volumes.
    pub(super) fn is_expecting(&self, slot: usize) -> bool {
        self.nominations.expects(&self.nodes[slot].name) || self.waits.on(slot).next().is_some()
    }

    /// Whether a pod may go to a node, which exists.
    ///
    /// # Errors
    /// The reasons against it.
    pub(super) fn judge<'c>(
        &'c self,
        incoming: IncomingPod<'_>,
        slot: usize,
        spanning: &PreFilterState<'c>,
        scratch: &mut Scratch,
    ) -> Result<(), Reasons> {
        let IncomingPod { rank, pod, profile, now_ms, .. } = incoming;
        let node = &self.nodes[slot];
        let Some(view) = &node.view else { return Err(Reasons::new()) };
        let is_expecting = self.is_expecting(slot);
        let trial = if is_expecting { Trial::new(self, slot) } else { None };
        let verdict = match trial {
            Some(trial) => trial.check(incoming, spanning, scratch),
            None => {
                let pod = (&*pod.spec, pod.created_s);
                let verdict = cycle::filter(node, view, pod, spanning, profile, now_ms, scratch);
                verdict.map_err(|reason| (reason, None))
            }
        };
        match verdict {
            Ok(()) if rank.is_some_and(|rank| self.hold.keeps_off(slot, rank)) => {
                Err(smallvec![Reason::Held])
            }
            Ok(()) => Ok(()),
            Err(against) => Err(self.all_reasons(incoming, slot, against)),
        }
    }
}

/// Nodes by their totals, the best first, of equal ones in their order. Where there are others, nodes of the second
/// choice are left out.
pub(super) fn best_first(found: &[usize], totals: &[i64]) -> Vec<usize> {
    let least = totals.iter().max().map_or(0, |best| best - cycle::SECOND_CHOICE / 2);
    let mut order: Vec<(i64, usize)> =
        totals.iter().copied().zip(found.iter().copied()).filter(|(total, _)| *total >= least).collect();
    order.sort_by_key(|(total, _)| std::cmp::Reverse(*total));
    order.into_iter().map(|(_, slot)| slot).collect()
}
