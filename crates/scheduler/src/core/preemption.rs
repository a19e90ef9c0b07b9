//! Preemption: less important pods leave a node for a pod that fits nowhere.
//!
//! In: a pod and the nodes that have refused it. Out: a node with the pods to evict, or why there is none. Never: a
//! binding. The pod waits, with its nominated node, until it fits there or elsewhere.
//!
//! Source: kube-scheduler 1.36 `Evaluator.Preempt`, `DryRunPreemption` and `SelectVictimsOnNode`. As there, only nodes
//! are tried that refuse for something that the departure of pods can cure. Unlike there, zones count too
//! ([`Trial`]); a node whose zones are not known for certain is never a candidate; the same state gives the same node.
//!
//! Pods of a class need the same victims of a node that has not changed, so each node is tried once for all of them
//! ([`EquivalenceCache`](super::equivalence_cache::EquivalenceCache)).
//!
//! Cost, of a pod that fits nowhere: a look at the least important pod of each refusing node. On each node tried, of
//! which there are at most as many as candidates are enough plus those that fail: a filter for each less important pod,
//! and if the pod may align, two copies of the ledger for each, with two releases and one for each victim so far.

use std::sync::Arc;

use smallvec::smallvec;

use super::equivalence_cache::EquivalenceCache;
use super::search::Reasons;
use super::trial::{IncomingPod, Trial};
use super::victim_sets::smallest_set;
use super::{Core, Refused};
use crate::cycle::{self, PreFilterState};
use crate::ledger::{PodId, Scratch};
use crate::node::Node;
use crate::plugins::default_preemption::{self, Candidate, Victim};
use crate::pod::PodView;
use crate::queue::Head;
use crate::reason::{Reason, Refusals};

/// Pods to evict so that another fits.
#[derive(Clone, Debug)]
pub struct Preemption {
    /// The pod that fits nowhere, for [`Event::PreemptFailed`](super::Event::PreemptFailed).
    pub id: PodId,
    /// The refusal of the pod, for its event and condition.
    pub refused: Refused,
    /// The nominated node.
    pub node: Arc<str>,
    /// The pods to evict, the most important first. Those that are being deleted already need no call.
    pub victims: Vec<PodView>,
    /// Less important pods of which the nomination for this node has ended.
    pub displaced: Vec<PodView>,
}

/// The victims on a node, or the reasons against it.
pub(super) type Verdict = Result<Candidate, Reasons>;

/// What victims rest on beside the node and the class: the priority of the pod, and the revision of the budgets.
pub(super) type VictimsKey = (i32, u64);

/// The result of an attempt to preempt.
pub(super) enum Outcome {
    /// The profile does not preempt.
    Off,
    /// The pod may not, for this reason. Its nomination stays.
    Ineligible(&'static str),
    /// No node would fit.
    Nowhere(Refusals),
    Best(Candidate),
    /// An extender failed.
    Error(String),
}

impl Core {
    /// Looks for a node where evictions help. `refusing`: nodes whose refusal they may turn, each with its reason.
    pub(super) fn preempt(
        &mut self,
        id: PodId,
        pod: &PodView,
        refusing: &[(usize, Reason)],
        now_ms: u64,
    ) -> Outcome {
        let Some(profile) = self.profile_of(id).cloned() else { return Outcome::Off };
        // A gang evicts nothing: the room of one pod is of no use to it.
        let args = profile.plugins.preemption.filter(|_| !self.is_in_gang(id));
        let Some(args) = args else { return Outcome::Off };
        if !pod.spec.preempts {
            return Outcome::Ineligible("not eligible due to preemptionPolicy=Never.");
        }
        // A nominated node that cannot be cured holds nothing back.
        let nominated = self.nominated_slot(id);
        let nominated = nominated.filter(|slot| refusing.iter().any(|(refuses, _)| refuses == slot));
        if nominated.is_some_and(|slot| self.awaits_victims(pod, slot)) {
            return Outcome::Ineligible("not eligible due to a terminating pod on the nominated node.");
        }
        let mut refusals = Refusals::default();
        refusals.add_all(Reason::NotHelpful, self.node_order.len().saturating_sub(refusing.len()));
        let offset = match refusing.iter().any(|(slot, _)| self.has_lower(*slot, pod.priority)) {
            true => usize::try_from(self.random.below(refusing.len() as u64)).unwrap_or(0),
            false => 0,
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut cache = std::mem::take(&mut self.victims);
        let incoming = IncomingPod { id, rank: self.queue.rank(id), pod, profile: &profile, now_ms };
        let enough = args.enough_candidates(refusing.len());
        let order = refusing.iter().cycle().skip(offset).take(refusing.len());
        let found =
            self.candidates(incoming, order.copied(), enough, &mut refusals, (&mut cache, &mut scratch));
        (self.scratch, self.victims) = (scratch, cache);
        if found.is_empty() {
            return Outcome::Nowhere(refusals);
        }
        match self.agreed_by_extenders(pod, found) {
            Err(error) => Outcome::Error(error),
            Ok(agreed) => default_preemption::best(agreed)
                .map_or(Outcome::Ineligible("no candidate node for preemption"), Outcome::Best),
        }
    }

    /// The candidates, those that violate no budget first.
    fn candidates(
        &self,
        incoming: IncomingPod<'_>,
        order: impl Iterator<Item = (usize, Reason)>,
        enough: usize,
        refusals: &mut Refusals,
        (cache, scratch): (&mut EquivalenceCache<VictimsKey, Verdict>, &mut Scratch),
    ) -> Vec<Candidate> {
        let IncomingPod { id, pod, profile, now_ms, .. } = incoming;
        let mut spanning = self.pre_filter(pod, profile, now_ms);
        let mut table = self
            .cached_class(id, &spanning)
            .and_then(|class| cache.table(class, (pod.priority, self.budgets_revision)));
        let (mut harmless, mut violating) = (Vec::new(), Vec::new());
        for (slot, reason) in order {
            // A node that expects others is judged with them there.
            let mut table = table.as_deref_mut().filter(|_| !self.is_expecting(slot));
            let revision = self.nodes.revision(slot);
            let created = (pod.created_s, self.nodes[slot].ledger.has_unseen());
            let known = table.as_deref().and_then(|table| table.get(slot, revision, created)).cloned();
            let verdict = known.unwrap_or_else(|| {
                let tried = self.try_node(incoming, (slot, reason), &mut spanning, scratch);
                if let Some(table) = &mut table {
                    table.put(slot, revision, pod.created_s, tried.clone());
                }
                tried
            });
            match verdict {
                Ok(candidate) if candidate.violations == 0 => harmless.push(candidate),
                Ok(candidate) if violating.len() < enough => violating.push(candidate),
                Ok(_) => {}
                Err(reasons) => reasons.into_iter().for_each(|reason| refusals.add(reason)),
            }
            if !harmless.is_empty() && harmless.len() + violating.len() >= enough {
                break;
            }
        }
        harmless.append(&mut violating);
        harmless
    }

    /// The victims on one node, or the reasons against it.
    fn try_node<'c>(
        &'c self,
        incoming: IncomingPod<'_>,
        (slot, reason): (usize, Reason),
        spanning: &mut PreFilterState<'c>,
        scratch: &mut Scratch,
    ) -> Verdict {
        let pod = incoming.pod;
        let is_counted = |id: &PodId| self.pods.get(id).is_some_and(|entry| entry.charged.is_some());
        let lower: Vec<PodId> = self.lower(slot, pod.priority).collect();
        let views = lower.iter().filter(|id| is_counted(id)).filter_map(|id| Some((*id, self.view(*id)?)));
        let mut victims: Vec<Victim> = views.map(|(id, view)| Victim::of(id, view)).collect();
        if victims.is_empty() {
            return Err(smallvec![Reason::NoVictims]);
        }
        if matches!(reason, Reason::StaleTopology(_)) {
            return Err(smallvec![reason]);
        }
        let Some(mut trial) = Trial::new(self, slot) else { return Err(Reasons::new()) };
        lower.iter().for_each(|id| trial.remove(*id, pod, spanning));
        let found = match trial.check(incoming, spanning, scratch) {
            Err(against) => Err(self.all_reasons(incoming, slot, against)),
            Ok(()) => {
                victims.sort_unstable_by_key(Victim::importance);
                let spared = self.spare(incoming, &victims, &mut trial, spanning, scratch);
                let fewer = self.fewer(incoming, (&victims, &spared), &mut trial, spanning, scratch);
                let (victims, violations) = fewer.unwrap_or(spared);
                match victims.is_empty() {
                    // Only pods whose objects are gone are in the way.
                    true => Err(smallvec![Reason::NoVictims]),
                    false => Ok(Candidate { slot, victims, violations }),
                }
            }
        };
        lower.iter().for_each(|id| trial.restore(*id, pod, spanning));
        found
    }

    /// Spares each victim beside which the pod still fits, those first whose disruption a budget forbids, then by
    /// importance. Returns the others, and how many budgets forbid.
    fn spare<'c>(
        &'c self,
        incoming: IncomingPod<'_>,
        victims: &[Victim],
        trial: &mut Trial<'c>,
        spanning: &mut PreFilterState<'c>,
        scratch: &mut Scratch,
    ) -> (Vec<Victim>, usize) {
        let budgets = self.budgets.values();
        let (violating, others) = default_preemption::by_violation(victims, |id| self.view(id), budgets);
        let (mut evicted, mut violations) = (Vec::new(), 0);
        let order: Vec<Victim> = violating.iter().chain(&others).copied().collect();
        let ids: Vec<PodId> = order.iter().map(|victim| victim.id).collect();
        let mut ladder = trial.ladder(incoming, &ids, scratch);
        for (at, victim) in order.iter().enumerate() {
            trial.prepare(ladder.pop());
            trial.restore(victim.id, incoming.pod, spanning);
            if trial.check(incoming, spanning, scratch).is_err() {
                trial.remove(victim.id, incoming.pod, spanning);
                evicted.push(*victim);
                violations += usize::from(at < violating.len());
            }
        }
        evicted.sort_unstable_by_key(Victim::importance);
        (evicted, violations)
    }

    /// Fewer victims than those that were not spared, where zones decide: no more important than the most important of
    /// these, and with no more violations.
    fn fewer<'c>(
        &'c self,
        incoming: IncomingPod<'_>,
        (victims, (evicted, most_violations)): (&[Victim], &(Vec<Victim>, usize)),
        trial: &mut Trial<'c>,
        spanning: &mut PreFilterState<'c>,
        scratch: &mut Scratch,
    ) -> Option<(Vec<Victim>, usize)> {
        let most_important = evicted.first().filter(|_| evicted.len() > 1 && trial.asks_ledger(incoming))?;
        let may_leave = |it: &&Victim| it.priority <= most_important.priority;
        let candidates: Vec<Victim> = victims.iter().rev().filter(may_leave).copied().collect();
        let ids: Vec<PodId> = candidates.iter().map(|victim| victim.id).collect();
        let freed_zones = self.nodes[trial.slot()].ledger.freed_zones(&incoming.pod.spec.needs, &ids)?;
        let budgets = || self.budgets.values();
        let chosen = |set: &[usize]| -> Vec<Victim> {
            let mut chosen: Vec<Victim> = set.iter().map(|at| candidates[*at]).collect();
            chosen.sort_unstable_by_key(Victim::importance);
            chosen
        };
        let violations = |set: &[usize]| {
            let view = |id| self.view(id);
            default_preemption::by_violation(&chosen(set), view, budgets()).0.len()
        };
        let could_fit =
            |set: &[usize]| freed_zones.could_be_enough(set) && violations(set) <= *most_violations;
        trial.prepare(None);
        let fits = |set: &[usize]| {
            for (at, id) in ids.iter().enumerate() {
                match set.contains(&at) {
                    true => trial.remove(*id, incoming.pod, spanning),
                    false => trial.restore(*id, incoming.pod, spanning),
                }
            }
            trial.check(incoming, spanning, scratch).is_ok()
        };
        let found = smallest_set((ids.len(), evicted.len()), could_fit, fits)?;
        Some((chosen(&found), violations(&found)))
    }

    /// The reasons against a node, with each resource that is short or conflict of volumes, as kube-scheduler lists
    /// them.
    pub(super) fn all_reasons(
        &self,
        incoming: IncomingPod<'_>,
        slot: usize,
        (reason, totals): (Reason, Option<Box<Node>>),
    ) -> Reasons {
        let node = &self.nodes[slot];
        match (reason, &node.view) {
            (Reason::TooManyPods | Reason::Insufficient(_), Some(view)) => {
                let totals = totals.as_deref().unwrap_or(node);
                let plugins = &incoming.profile.plugins;
                let spec = &incoming.pod.spec;
                let delegated = self.devices.delegated(&spec.needs);
                let short = cycle::shortages(totals, view, (spec, &delegated), plugins);
                short.map(Reason::short_of).collect()
            }
            (Reason::VolumeBinding(conflicts), _) => conflicts.each().map(Reason::VolumeBinding).collect(),
            _ => smallvec![reason],
        }
    }

    /// Whether pods less important than this one are on their way out of a node.
    pub(super) fn awaits_victims(&self, pod: &PodView, slot: usize) -> bool {
        self.lower(slot, pod.priority).any(|id| self.is_evicted(id))
    }

    /// The pods of a node with a priority below this one, the least important first.
    fn lower(&self, slot: usize, priority: i32) -> impl Iterator<Item = PodId> + '_ {
        self.nodes[slot].residents.range(..(priority, PodId(0))).map(|(_, id)| *id)
    }

    fn has_lower(&self, slot: usize, priority: i32) -> bool {
        self.lower(slot, priority).next().is_some()
    }

    /// A pod.
    #[must_use]
    pub fn view(&self, id: PodId) -> Option<&PodView> {
        self.pods.get(&id).map(|entry| &entry.view)
    }
}

// === results ===

impl Core {
    /// Carries out a decision: nominates the node, and counts the victims as leaving from now on.
    pub(super) fn evict(&mut self, id: PodId, refused: Refused, candidate: &Candidate) -> Preemption {
        let node = Arc::clone(&self.nodes[candidate.slot].name);
        for victim in &candidate.victims {
            self.evicting.insert(victim.id, id);
        }
        let victims = candidate.victims.iter().filter_map(|victim| self.view(victim.id).cloned()).collect();
        let priority = refused.pod.priority;
        let lower = |other: &PodId| self.view(*other).is_some_and(|view| view.priority < priority);
        let less_important: Vec<PodId> = self.nominations.on(&node).filter(lower).collect();
        let displaced = less_important.iter().filter_map(|other| self.view(*other).cloned()).collect();
        for other in less_important {
            self.nominate(other, None);
            self.queue.wake(other);
        }
        self.nominate(id, Some(Arc::clone(&node)));
        let refused = Refused { nominated: Some(Arc::clone(&node)), ..refused };
        Preemption { id, refused, node, victims, displaced }
    }

    /// An eviction failed: the victims count as staying, and the pod is tried again after a while.
    pub(super) fn preempt_failed(&mut self, id: PodId, now_ms: u64) {
        let before = self.evicting.len();
        self.evicting.retain(|_, by| *by != id);
        let is_waiting = self.pods.get(&id).is_some_and(|entry| entry.lifecycle.slot().is_none());
        if before != self.evicting.len() && is_waiting {
            self.nominate(id, None);
            self.queue.back_off(id, now_ms, self.settings.backoff);
        }
    }

    /// Waiting pods that may preempt by now on a changed node, on which none fits: the first of each class that waits
    /// for no victims. Cost: a look at each class; of those with less important pods there, a filter.
    pub(super) fn preempting(&self, slot: usize, now_ms: u64, scratch: &mut Scratch) -> Vec<PodId> {
        let mut preemptors = Vec::new();
        let Some((lowest, _)) = self.nodes[slot].residents.first() else { return preemptors };
        for (rank, Head { spec, .. }) in self.queue.heads().filter(|(rank, _)| rank.priority() > *lowest) {
            if !spec.preempts || !spec.unsupported.is_empty() || !self.has_lower(slot, rank.priority()) {
                continue;
            }
            let awaits =
                |id, view| self.nominated_slot(id).is_some_and(|slot| self.awaits_victims(view, slot));
            let mut peers = self.queue.peers(rank.pod);
            let first = peers.find(|peer| {
                let view = self.view(peer.pod).filter(|_| !self.is_in_gang(peer.pod));
                view.is_some_and(|view| !awaits(peer.pod, view))
            });
            let Some((peer, pod)) = first.and_then(|peer| Some((peer, self.view(peer.pod)?))) else {
                continue;
            };
            let Some(profile) = self.profile_of(peer.pod) else { continue };
            if profile.plugins.preemption.is_none() || self.hold.keeps_off(slot, peer) {
                continue;
            }
            let incoming = IncomingPod { id: peer.pod, rank: Some(peer), pod, profile, now_ms };
            let mut spanning = self.pre_filter(pod, profile, now_ms);
            let Some(mut trial) = Trial::new(self, slot) else { continue };
            self.lower(slot, pod.priority).for_each(|id| trial.remove(id, pod, &mut spanning));
            if trial.check(incoming, &spanning, scratch).is_ok() {
                preemptors.push(peer.pod);
            }
        }
        preemptors
    }
}
