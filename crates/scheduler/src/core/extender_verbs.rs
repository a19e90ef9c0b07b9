//! The verbs of an extender for another scheduler: filter, prioritize, preempt, bind. Zones alone count; everything
//! else is that scheduler's own.
//!
//! In: a pod, as the other scheduler knows it; names of nodes. Out: verdicts, scores, victims; a pod that is counted on
//! a node from the moment at which it is about to be bound. Never: a decision about a pod of the queue.
//!
//! Cost: a check of the ledger for each node that is asked about.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::victim_sets::{fewest_to_leave, smallest_set};
use super::{Binding, Core, Lifecycle};
use crate::cycle::{self, zones};
use crate::extender::MetaVictims;
use crate::ledger::{Ledger, PodId, Scratch};
use crate::plugins::default_preemption::{Victim, by_violation, is_curable};
use crate::pod::PodView;

/// A node that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedNode {
    /// The reason, for people.
    pub reason: String,
    /// Whether the departure of pods may help.
    pub is_curable: bool,
}

impl Core {
    /// Whether the zones of each node fit. Nodes that are not known do not.
    pub fn filter_zones(
        &mut self,
        pod: &PodView,
        nodes: &[Arc<str>],
        now_ms: u64,
    ) -> Vec<(Arc<str>, Result<(), FailedNode>)> {
        let verdict = |name: &Arc<str>| (Arc::clone(name), self.zone_verdict(pod, name, now_ms));
        nodes.iter().map(verdict).collect()
    }

    fn zone_verdict(&mut self, pod: &PodView, node: &str, now_ms: u64) -> Result<(), FailedNode> {
        let unknown = || FailedNode { reason: "the node is not known".to_owned(), is_curable: false };
        let slot = *self.slots.get(node).ok_or_else(unknown)?;
        let view = self.nodes[slot].view.as_ref().ok_or_else(unknown)?;
        let profile = self.settings.profiles.first().ok_or_else(unknown)?;
        let node = &self.nodes[slot];
        let zones = (&node.ledger, &node.over_reserve);
        let asked = (&*pod.spec, pod.created_s);
        let judged = cycle::filter_zones(zones, asked, profile.zone_filter(), now_ms, &mut self.scratch);
        judged.map_err(|reason| FailedNode {
            reason: reason.text(&pod.spec.needs),
            is_curable: is_curable(reason, pod, view),
        })
    }

    /// The score of each node's zones, 0 to 100.
    #[must_use]
    pub fn score_zones(&self, pod: &PodView, nodes: &[Arc<str>]) -> Vec<(Arc<str>, i64)> {
        let numa = self.settings.profiles.first().and_then(|profile| profile.numa.as_ref());
        let scorer = numa.map(|numa| (numa.accounting, numa.scorer(&pod.spec.needs)));
        let score = |name: &Arc<str>| {
            let slot = self.slots.get(name)?;
            let (accounting, scorer) = scorer.as_ref()?;
            Some(zones::zone_score(&self.nodes[*slot], *accounting, scorer))
        };
        nodes.iter().map(|name| (Arc::clone(name), score(name).unwrap_or(0))).collect()
    }

    /// Of candidates for a preemption those whose zones fit once the victims have left, with more of lower priority if
    /// those are not enough: as our own preemption takes them, the least important, few, and those last whose
    /// disruption a budget forbids. Victims that are not known free nothing.
    pub fn victims_by_zones(
        &mut self,
        pod: &PodView,
        candidates: BTreeMap<Arc<str>, MetaVictims>,
        now_ms: u64,
    ) -> BTreeMap<Arc<str>, MetaVictims> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let found = candidates.into_iter().filter_map(|(node, victims)| {
            let victims = self.more_victims(pod, &node, victims, now_ms, &mut scratch)?;
            Some((node, victims))
        });
        let found = found.collect();
        self.scratch = scratch;
        found
    }

    fn more_victims(
        &self,
        pod: &PodView,
        node: &str,
        mut victims: MetaVictims,
        now_ms: u64,
        scratch: &mut Scratch,
    ) -> Option<MetaVictims> {
        let filter = self.settings.profiles.first()?.zone_filter_of_preemption();
        let slot = *self.slots.get(node)?;
        let named: Vec<PodId> = victims.pods.iter().filter_map(|uid| self.ids.get(uid)).copied().collect();
        let node = &self.nodes[slot];
        let residents = node.residents.range(..(pod.priority, PodId(0))).map(|(_, id)| *id);
        // A pod without an object leaves by itself, and the other scheduler knows it no more.
        let is_there = |id: &PodId| self.pods.get(id).is_some_and(|entry| entry.charged.is_some());
        let (mut others, gone): (Vec<PodId>, Vec<PodId>) =
            residents.filter(|id| !named.contains(id)).partition(is_there);
        let without_named: Ledger = node.ledger.without([&*named, &*gone].concat(), scratch);
        let mut fits = |left: &[PodId]| {
            let ledger = without_named.without(left.iter().copied(), scratch);
            let asked = (&*pod.spec, pod.created_s);
            cycle::filter_zones((&ledger, &node.over_reserve), asked, filter, now_ms, scratch).is_ok()
        };
        if fits(&[]) {
            return Some(victims);
        }
        // The last ones are spared first.
        let forbidden = self.forbidden([&*named, &*others].concat());
        others.sort_by_key(|id| forbidden.contains(id));
        let more = fewest_to_leave(&others, &mut fits)?;
        let priority = |id: &PodId| self.view(*id).map(|view| view.priority);
        let most_important = more.iter().map(priority).max()?;
        others.retain(|id| priority(id) <= most_important);
        let violations = |more: &[PodId]| more.iter().filter(|id| forbidden.contains(id)).count();
        let chosen = |set: &[usize]| -> Vec<PodId> { set.iter().map(|at| others[*at]).collect() };
        let freed_zones = without_named.freed_zones(&pod.spec.needs, &others);
        let could_fit = |set: &[usize]| {
            violations(&chosen(set)) <= violations(&more)
                && freed_zones.as_ref().is_none_or(|zones| zones.could_be_enough(set))
        };
        let fewer = smallest_set((others.len(), more.len()), could_fit, |set| fits(&chosen(set)));
        let more = fewer.map_or(more, |set| chosen(&set));
        victims.pods.extend(more.iter().filter_map(|id| self.view(*id)).map(|view| Arc::clone(&view.uid)));
        victims.violations += violations(&more);
        Some(victims)
    }

    /// Those of some pods whose disruption budgets forbid if all of them leave.
    fn forbidden(&self, pods: Vec<PodId>) -> Vec<PodId> {
        let victims = pods.into_iter().filter_map(|id| Some(Victim::of(id, self.view(id)?)));
        let mut victims: Vec<Victim> = victims.collect();
        victims.sort_unstable_by_key(Victim::importance);
        let (violating, _) = by_violation(&victims, |id| self.view(id), self.budgets.values());
        violating.into_iter().map(|victim| victim.id).collect()
    }

    /// Counts a pod on a node where another scheduler wants to bind it, if its zones still fit.
    ///
    /// # Errors
    /// The reason for which it may not be bound there.
    pub fn assume(&mut self, uid: &str, node: &Arc<str>, now_ms: u64) -> Result<Binding, String> {
        let known = self.ids.get(uid).and_then(|id| Some((*id, self.pods.get(id)?)));
        let Some((id, entry)) = known else { return Err("the pod is not known yet".to_owned()) };
        let (pod, lifecycle) = (entry.view.clone(), entry.lifecycle);
        match lifecycle {
            Lifecycle::Unbound => {}
            Lifecycle::Bound { slot } | Lifecycle::Assumed { slot } => {
                return Err(format!("the pod is on node {} already", self.nodes[slot].name));
            }
            Lifecycle::Ended { .. } => return Err("the pod has ended".to_owned()),
        }
        self.zone_verdict(&pod, node, now_ms).map_err(|refusal| refusal.reason)?;
        self.charge(id, node);
        let slot = self.slot(node);
        if let Some(entry) = self.pods.get_mut(&id) {
            (entry.lifecycle, entry.placed_here) = (Lifecycle::Assumed { slot }, true);
        }
        self.enter_ledger(id);
        let is_ordered = pod.spec.needs.may_align();
        let node = Arc::clone(node);
        // It is sent at once: the stock scheduler waits for the answer.
        let relied_on = Vec::new();
        let (attempts, first_attempt_ms, attempt_ms) = (1, now_ms, now_ms);
        Ok(Binding { id, pod, node, is_ordered, relied_on, attempts, first_attempt_ms, attempt_ms })
    }
}
