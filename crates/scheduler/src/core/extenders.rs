//! Extenders in attempts: after the filters, after the scores, and among candidates for preemption.
//!
//! In: nodes that fit, candidates. Out: those of them to which extenders agree. Never: a node that a filter refuses.
//! A pod that extenders refuse is tried again after its backoff, since no change of a node tells when they agree.
//! Source: kube-scheduler 1.36 `findNodesThatPassExtenders`, `prioritizeNodes` and `callExtenders`.

use std::sync::Arc;

use super::Core;
use crate::extender::{Extender, MetaVictims, NodeVictims};
use crate::plugins::default_preemption::{Candidate, Victim};
use crate::pod::PodView;
use crate::reason::{Reason, Refusals};

impl Core {
    /// Asks these extenders in all attempts from now on, in this order.
    pub fn extend(&mut self, extenders: Vec<Extender>) {
        self.extenders = extenders;
    }

    /// Whether extenders filter nodes, so that more than one has to be found.
    pub(super) fn is_filtered_by_extenders(&self) -> bool {
        self.extenders.iter().any(|extender| extender.filters)
    }

    /// Whether a node that fits passes all extenders. One that fails does not let it pass: then all nodes are tried.
    pub(super) fn passes_extenders(&self, pod: &PodView, slot: usize) -> bool {
        let name = &self.nodes[slot].name;
        self.extenders.iter().filter(|extender| extender.filters_for(pod)).all(|extender| {
            let answer = extender.call.filter(pod, std::slice::from_ref(name));
            let filtered = extender.check(answer);
            filtered.is_ok_and(|filtered| filtered.is_none_or(|filtered| filtered.fits.contains(name)))
        })
    }

    /// Takes nodes that extenders refuse from those found to fit.
    ///
    /// # Errors
    /// The failure of an extender that may not be passed over.
    pub(super) fn filter_by_extenders(
        &mut self,
        pod: &PodView,
        preempts: bool,
        refusals: &mut Refusals,
    ) -> Result<(), String> {
        let Self { extenders, feasible, raw, curable, nodes, slots, .. } = self;
        for extender in extenders.iter().filter(|extender| extender.filters_for(pod)) {
            if feasible.is_empty() {
                break;
            }
            let names: Vec<Arc<str>> = feasible.iter().map(|slot| Arc::clone(&nodes[*slot].name)).collect();
            let answer = extender.check(extender.call.filter(pod, &names));
            let Some(filtered) = answer.map_err(|error| error.to_string())? else { continue };
            filtered.unresolvable.values().for_each(|text| refusals.add_text(text));
            for (name, text) in &filtered.failed {
                if !filtered.unresolvable.contains_key(name) {
                    refusals.add_text(text);
                    let slot = slots.get(name).filter(|_| preempts);
                    curable.extend(slot.map(|slot| (*slot, Reason::Extender)));
                }
            }
            let mut kept = names.iter().map(|name| filtered.fits.contains(name));
            let mut also = kept.clone();
            feasible.retain(|_| kept.next().unwrap_or_default());
            raw.retain(|_| also.next().unwrap_or_default());
            if feasible.len() < names.len() {
                refusals.by_extenders = true;
            }
        }
        Ok(())
    }

    /// Adds the scores of extenders to the totals of nodes that fit, of which there are several. As in kube-scheduler
    /// an extender that fails gives none.
    pub(super) fn score_by_extenders(&mut self, pod: &PodView) {
        let Self { extenders, feasible, totals, nodes, .. } = self;
        if extenders.is_empty() || feasible.len() < 2 {
            return;
        }
        let names: Vec<Arc<str>> = feasible.iter().map(|slot| Arc::clone(&nodes[*slot].name)).collect();
        let asked =
            extenders.iter().filter(|extender| extender.weight.is_some() && extender.managed.concern(pod));
        for extender in asked {
            for (name, score) in extender.call.prioritize(pod, &names).unwrap_or_default() {
                let total = names.iter().position(|known| *known == name).and_then(|at| totals.get_mut(at));
                if let Some(total) = total {
                    *total = total.saturating_add(extender.scaled(score));
                }
            }
        }
    }

    /// The candidates to which extenders agree, with the victims that they name.
    ///
    /// # Errors
    /// The failure of an extender that may not be passed over.
    pub(super) fn agreed_by_extenders(
        &self,
        pod: &PodView,
        mut candidates: Vec<Candidate>,
    ) -> Result<Vec<Candidate>, String> {
        let asked =
            self.extenders.iter().filter(|extender| extender.preempts && extender.managed.concern(pod));
        for extender in asked {
            if candidates.is_empty() {
                break;
            }
            let victims: Vec<NodeVictims> =
                candidates.iter().map(|candidate| self.node_victims(candidate)).collect();
            let answer = extender.check(extender.call.preempt(pod, &victims));
            let Some(answer) = answer.map_err(|error| error.to_string())? else { continue };
            let mut agreed = Vec::new();
            for (node, uids) in &answer {
                if !uids.pods.is_empty() {
                    agreed.push(self.candidate(node, uids)?);
                } else if !extender.ignorable {
                    return Err(format!("expected at least one victim pod on node {node:?}"));
                }
            }
            candidates = agreed;
        }
        Ok(candidates)
    }

    fn node_victims(&self, candidate: &Candidate) -> NodeVictims {
        NodeVictims {
            node: Arc::clone(&self.nodes[candidate.slot].name),
            pods: candidate.victims.iter().filter_map(|victim| self.view(victim.id).cloned()).collect(),
            violations: candidate.violations,
        }
    }

    fn candidate(&self, node: &str, uids: &MetaVictims) -> Result<Candidate, String> {
        let slot = self.slots.get(node).copied();
        let slot = slot.ok_or_else(|| format!("an extender names node {node:?}, which does not exist"))?;
        let victim = |uid: &Arc<str>| {
            let id = self.ids.get(uid).copied();
            let entry = id.and_then(|id| Some((id, self.pods.get(&id)?)));
            let (id, entry) = entry.filter(|(_, entry)| entry.lifecycle.slot() == Some(slot))?;
            Some(Victim::of(id, &entry.view))
        };
        let mut victims = Vec::with_capacity(uids.pods.len());
        for uid in &uids.pods {
            let missing = || {
                format!("an extender would evict the pod with UID {uid} on node {node}, which is not there")
            };
            victims.push(victim(uid).ok_or_else(missing)?);
        }
        victims.sort_unstable_by_key(Victim::importance);
        Ok(Candidate { slot, victims, violations: uids.violations })
    }
}
