//! Nominated nodes: where pods were evicted for a pod that waits for their end.
//!
//! In: decisions to preempt, and `status.nominatedNodeName` after a restart. Out: the pods that are expected on a node
//! before others. Never: a binding; a pod is bound when it fits without the help of its nomination.
//!
//! A nomination ends when its pod is bound or gone, when another node is nominated, and when a more important pod
//! preempts on the node. Source: kube-scheduler 1.36 `nominator`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Core;
use super::trial::{IncomingPod, Trial};
use crate::cycle;
use crate::ledger::{PodId, Scratch};
use crate::pod::PodView;
use crate::queue::Rank;

/// The nominated node of each pod that has one, by name: after a restart the pod may be seen before the node.
#[derive(Debug, Default)]
pub(super) struct Nominations {
    by_pod: BTreeMap<PodId, Arc<str>>,
    by_node: BTreeMap<Arc<str>, BTreeSet<PodId>>,
}

impl Nominations {
    /// Whether no pod has a nominated node.
    pub(super) fn is_empty(&self) -> bool {
        self.by_pod.is_empty()
    }

    /// The nominated node of a pod.
    pub(super) fn of(&self, pod: PodId) -> Option<&Arc<str>> {
        self.by_pod.get(&pod)
    }

    /// The pods for which a node is nominated.
    pub(super) fn on(&self, node: &str) -> impl Iterator<Item = PodId> + '_ {
        self.by_node.get(node).into_iter().flatten().copied()
    }

    /// Whether a pod waits for this node.
    pub(super) fn expects(&self, node: &str) -> bool {
        self.by_node.contains_key(node)
    }

    /// Nominates a node, or none. Returns the node that was nominated before, if it was another one.
    fn set(&mut self, pod: PodId, node: Option<Arc<str>>) -> Option<Arc<str>> {
        if self.by_pod.get(&pod) == node.as_ref() {
            return None;
        }
        let before = self.by_pod.remove(&pod);
        if let Some(before) = &before
            && let Some(pods) = self.by_node.get_mut(before)
        {
            pods.remove(&pod);
            if pods.is_empty() {
                self.by_node.remove(before);
            }
        }
        if let Some(node) = node {
            self.by_node.entry(Arc::clone(&node)).or_default().insert(pod);
            self.by_pod.insert(pod, node);
        }
        before
    }
}

impl Core {
    /// Nominates a node for a pod, or none. The node that was nominated before may have room for others now.
    pub(super) fn nominate(&mut self, pod: PodId, node: Option<Arc<str>>) {
        let before = self.nominations.set(pod, node);
        if let Some(slot) = before.and_then(|before| self.slots.get(&before)) {
            self.changed.insert(*slot);
            self.freed.insert(*slot);
            self.groups.renew();
        }
    }

    /// The slot of a pod's nominated node, if the node exists.
    pub(super) fn nominated_slot(&self, pod: PodId) -> Option<usize> {
        let slot = *self.slots.get(self.nominations.of(pod)?)?;
        self.nodes[slot].view.is_some().then_some(slot)
    }

    /// The pods that are expected on a node before this one, as they are at least as important; the most important
    /// first.
    pub(super) fn expected_before(&self, pod: PodId, priority: i32, node: &str) -> Vec<(PodId, &PodView)> {
        if self.nominations.is_empty() {
            return Vec::new();
        }
        let others = self.nominations.on(node).filter(|other| *other != pod);
        let mut pods: Vec<_> = others
            .filter_map(|other| Some((other, &self.pods.get(&other)?.view)))
            .filter(|(_, view)| view.priority >= priority)
            .collect();
        pods.sort_by_key(|(other, view)| (Reverse(view.priority), *other));
        pods
    }

    /// The first waiting pod with this nominated node that fits there by now, or can never more.
    pub(super) fn next_nominated(&self, slot: usize, now_ms: u64, scratch: &mut Scratch) -> Option<PodId> {
        if self.nominations.is_empty() {
            return None;
        }
        let node = &self.nodes[slot];
        let mut pods: Vec<Rank> = self
            .nominations
            .on(&node.name)
            .filter(|pod| self.queue.is_waiting(*pod))
            .filter_map(|pod| self.queue.rank(pod))
            .collect();
        pods.sort_unstable();
        let mut pods = pods.into_iter().map(|rank| rank.pod);
        pods.find(|pod| self.is_ruled_out(*pod, slot) || self.fits_on(*pod, slot, now_ms, scratch))
    }

    /// Whether a pod can never be on a node as that is now. The nomination of a pod that may not preempt stays,
    /// whatever becomes of the node.
    fn is_ruled_out(&self, pod: PodId, slot: usize) -> bool {
        let (Some(entry), Some(profile)) = (self.pods.get(&pod), self.profile_of(pod)) else { return false };
        let (spec, view) = (&entry.view.spec, &self.nodes[slot].view);
        let fits = |view| cycle::properties(view, spec, &profile.plugins).is_ok();
        spec.preempts && view.as_ref().is_some_and(|view| !fits(view))
    }

    /// Ends the nomination of a pod for a node where it can never be. An attempt need not end it: with an error of an
    /// extender or a volume the pod would be tried again and again, and keep all others waiting.
    pub(super) fn end_vain_nomination(&mut self, pod: PodId) {
        if self.nominated_slot(pod).is_some_and(|slot| self.is_ruled_out(pod, slot)) {
            self.nominate(pod, None);
        }
    }

    /// Whether an attempt would find that a waiting pod fits on a node.
    pub(super) fn fits_on(&self, pod: PodId, slot: usize, now_ms: u64, scratch: &mut Scratch) -> bool {
        let (Some(entry), Some(profile), Some(rank)) =
            (self.pods.get(&pod), self.profile_of(pod), self.queue.rank(pod))
        else {
            return false;
        };
        let view = &entry.view;
        let incoming = IncomingPod { id: pod, rank: Some(rank), pod: view, profile, now_ms };
        let spanning = self.pre_filter(view, profile, now_ms);
        !self.hold.keeps_off(slot, rank)
            && Trial::new(self, slot).is_some_and(|trial| trial.check(incoming, &spanning, scratch).is_ok())
    }
}
