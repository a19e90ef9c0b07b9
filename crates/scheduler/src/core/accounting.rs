//! Accounting: ids of pods, slots of nodes, and the pods charged to nodes.
//!
//! In: pods that are placed, released or gone. Out: totals and ledgers that count each pod once. Never: a decision.

use std::sync::Arc;

use super::{Core, Lifecycle, Timer};
use crate::ledger::{BoundPod, PodId};
use crate::node::{Node, ReportObject};
use crate::plugins::inter_pod_affinity::TermEffect;
use crate::pod::{PodView, Spec};
use crate::selection::PodSelector;

impl Core {
    pub(super) fn id(&mut self, uid: &Arc<str>) -> PodId {
        if let Some(id) = self.ids.get(uid) {
            return *id;
        }
        let id = PodId(self.next_id);
        self.next_id += 1;
        self.ids.insert(Arc::clone(uid), id);
        id
    }

    /// The pods that are not over, wherever they are.
    pub fn pods(&self) -> impl Iterator<Item = &PodView> {
        let all = self.pods.values().filter(|entry| !matches!(entry.lifecycle, Lifecycle::Ended { .. }));
        all.map(|entry| &entry.view).filter(|view| !view.progress.terminal)
    }

    pub(super) fn slot(&mut self, name: &Arc<str>) -> usize {
        if let Some(slot) = self.slots.get(name) {
            return *slot;
        }
        let node = Node { name: Arc::clone(name), ..Node::default() };
        let slot = match self.free_slots.pop() {
            Some(slot) => {
                self.nodes[slot] = node;
                slot
            }
            None => self.nodes.push(node),
        };
        self.slots.insert(Arc::clone(name), slot);
        slot
    }

    /// Frees the slot of a node without an object, report and pods. A report outlives its node where that does not own
    /// it, and comes no second time.
    pub(super) fn reclaim(&mut self, slot: usize) {
        let node = &self.nodes[slot];
        let is_empty = node.view.is_none()
            && node.report_object == ReportObject::Absent
            && !self.pods.values().any(|entry| entry.lifecycle.slot() == Some(slot));
        if is_empty && self.slots.remove(&node.name).is_some() {
            self.changed.remove(&slot);
            self.freed.remove(&slot);
            let of_slot =
                [Timer::Unreported, Timer::Contradicted, Timer::Unexplained].map(|timer| timer(slot));
            self.timers.retain(|(_, timer)| !of_slot.contains(timer));
            self.nodes[slot] = Node::default();
            self.free_slots.push(slot);
        }
    }

    /// Charges a pod to a node, and to its ledger.
    pub(super) fn place(&mut self, id: PodId, node: &Arc<str>) {
        self.charge(id, node);
        self.enter_ledger(id);
    }

    /// Lets the ledger of its node know a pod: as assumed, or as bound for all to see.
    pub(super) fn enter_ledger(&mut self, id: PodId) {
        let Some(entry) = self.pods.get(&id) else { return };
        let Some(slot) = entry.lifecycle.slot() else { return };
        let (ledger, pod) = (&mut self.nodes[slot].ledger, BoundPod::of(id, &entry.view));
        if let Lifecycle::Assumed { .. } = entry.lifecycle {
            return ledger.assumed(&pod, &mut self.scratch);
        }
        let reports = ledger.reports();
        ledger.bound(&pod, &mut self.scratch);
        // The pod explains a report that came before it.
        if ledger.reports() != reports {
            self.zones_changed(slot);
        }
    }

    /// Lets the ledger of its node know a pod with larger requests, unless a report shows it already: then the kubelet
    /// has admitted it before. A pod that waits for volumes or claims is not in the ledger yet.
    pub(super) fn reenter_ledger(&mut self, id: PodId, slot: usize) {
        if self.nodes[slot].ledger.has_unreported(id) {
            self.nodes[slot].ledger.forget(id, &mut self.scratch);
            self.enter_ledger(id);
            self.zones_changed(slot);
        }
    }

    /// Charges a pod to the totals of a node.
    pub(super) fn charge(&mut self, id: PodId, node: &Arc<str>) {
        let slot = self.slot(node);
        let Some(entry) = self.pods.get_mut(&id) else { return };
        entry.lifecycle = Lifecycle::Bound { slot };
        let spec = Arc::clone(&entry.view.spec);
        let charged = entry.charged.insert(Arc::clone(&entry.view.charged));
        self.groups.set_placed(&entry.view, id, true);
        let node = &mut self.nodes[slot];
        node.residents.insert((entry.view.priority, id));
        node.add(charged);
        node.occupy(&spec);
        self.volumes.add_used(&spec.volumes);
        self.existing_terms.add(&entry.view.terms, slot);
        if self.settings.resync_ms().is_some() {
            node.over_reserve.reserve(id, &spec.needs);
        }
        self.nominate(id, None);
        self.select(id);
    }

    /// The API server has the binding of a pod.
    pub(super) fn confirm(&mut self, id: PodId) {
        if let Some(entry) = self.pods.get_mut(&id) {
            entry.lifecycle = entry.lifecycle.confirmed();
        }
    }

    /// Undoes [`Core::place`]: the pod never reached the node.
    pub(super) fn unplace(&mut self, id: PodId) {
        let Some(slot) = self.pods.get(&id).and_then(|entry| entry.lifecycle.slot()) else { return };
        self.discharge(id);
        if let Some(entry) = self.pods.get_mut(&id) {
            entry.lifecycle = Lifecycle::Unbound;
            self.nodes[slot].residents.remove(&(entry.view.priority, id));
        }
        self.nodes[slot].over_reserve.unreserve(id);
        self.nodes[slot].ledger.forget(id, &mut self.scratch);
        self.changed.insert(slot);
        self.freed.insert(slot);
        self.reclaim(slot);
    }

    /// A pod is not bound after all.
    pub(super) fn bind_failed(&mut self, id: PodId, now_ms: u64) {
        match self.pods.get(&id).map(|entry| entry.lifecycle) {
            Some(Lifecycle::Assumed { .. }) => {
                self.unplace(id);
                match self.view(id).is_some_and(|view| view.progress.deleting) {
                    // A finalizer keeps it. No event would take it off the queue.
                    true => self.dequeue(id),
                    false => self.queue.back_off(id, now_ms, self.settings.backoff),
                }
                self.release_claims_of(id);
                self.regroup_of(id);
            }
            Some(Lifecycle::Ended { assumed: true, .. }) => {
                self.unplace(id);
                self.drop_pod(id);
            }
            _ => {}
        }
    }

    /// Takes a pod off its node: the kubelet has released it.
    pub(super) fn release(&mut self, id: PodId) {
        let Some(entry) = self.pods.get_mut(&id) else { return };
        let Some(slot) = entry.lifecycle.slot() else { return };
        if !matches!(entry.lifecycle, Lifecycle::Ended { .. }) {
            let assumed = matches!(entry.lifecycle, Lifecycle::Assumed { .. });
            entry.lifecycle = Lifecycle::Ended { slot, assumed };
            self.discharge(id);
        }
        if let Some(entry) = self.pods.get(&id) {
            self.nodes[slot].residents.remove(&(entry.view.priority, id));
        }
        self.nodes[slot].over_reserve.ended(id);
        self.nodes[slot].ledger.released(id, &mut self.scratch);
        if let Some(second) = self.pods.get(&id).and_then(|entry| entry.view.ended_s) {
            self.nodes[slot].ledger.ended(id, second);
        }
        self.withdraw_from(slot);
        self.changed.insert(slot);
        self.freed.insert(slot);
    }

    /// Lets a pod of a node have another priority from now on.
    pub(super) fn reprioritize(&mut self, id: PodId, priority: i32) {
        let Some(entry) = self.pods.get(&id) else { return };
        let (Some(slot), before) = (entry.lifecycle.slot(), entry.view.priority) else { return };
        let residents = &mut self.nodes[slot].residents;
        if before != priority && residents.remove(&(before, id)) {
            residents.insert((priority, id));
        }
    }

    /// Counts other requests of a pod that is counted, after a resize. Its zones stay: the kubelet does not resize
    /// what it has aligned (1.36 `isInPlacePodVerticalScalingAllowed`).
    pub(super) fn recharge(&mut self, id: PodId) {
        let Some(entry) = self.pods.get_mut(&id) else { return };
        let (Some(slot), Some(before)) = (entry.lifecycle.slot(), &entry.charged) else { return };
        if *before != entry.view.charged {
            self.nodes[slot].remove(before);
            self.nodes[slot].add(&entry.view.charged);
            entry.charged = Some(Arc::clone(&entry.view.charged));
            self.changed.insert(slot);
        }
    }

    /// Takes what the totals of its node count of a pod off them, and the terms of its anti-affinity.
    pub(super) fn discharge(&mut self, id: PodId) {
        let Some(entry) = self.pods.get_mut(&id) else { return };
        let mut released = None;
        if let (Some(slot), Some(charged)) = (entry.lifecycle.slot(), entry.charged.take()) {
            self.nodes[slot].remove(&charged);
            self.nodes[slot].vacate(&entry.view.spec);
            self.groups.set_placed(&entry.view, id, false);
            released = Some(Arc::clone(&entry.view.spec)).filter(|spec| !spec.volumes.is_empty());
            let terms = &entry.view.terms;
            self.existing_terms.remove(terms, slot);
            if terms.iter().any(|(_, effect)| *effect == TermEffect::KeepsAway) {
                // Its domain may be many nodes.
                self.changed.extend(&self.node_order);
            }
        }
        if let Some(spec) = released {
            self.release_claims(&spec.volumes);
        }
        self.select(id);
    }

    /// Lets constraints of other pods see a pod where it is, as it is. Waiting pods of which a constraint looks at it
    /// may fit by now. Cost: selectors in use, and those of waiting classes if anything has changed.
    pub(super) fn select(&mut self, id: PodId) {
        let Some(entry) = self.pods.get(&id) else { return };
        let view = &entry.view;
        let now = view.selectable();
        let slot = entry.lifecycle.slot().filter(|_| entry.charged.is_some());
        let Some(before) = self.selections.set(id, slot.map(|slot| (slot, now.clone()))) else { return };
        let namespaces = self.selections.namespaces();
        let selects = |pods: &PodSelector| [&before, &now].iter().any(|pod| pods.selects(pod, namespaces));
        let looks = |spec: &Spec| spec.selectors().any(|pods| selects(pods));
        self.retried.extend(self.queue.spanning().filter(|(_, spec)| looks(spec)).map(|(class, _)| class));
    }

    /// Forgets a pod.
    pub(super) fn drop_pod(&mut self, id: PodId) {
        if let Some(entry) = self.pods.remove(&id) {
            let (helped, _) = self.devices.take_made(&entry.view.namespace, &entry.view.uid);
            self.help_with_devices(&helped);
            self.ids.remove(&entry.view.uid);
            if let Some(slot) = entry.lifecycle.slot() {
                self.reclaim(slot);
            }
        }
        self.queue.forget(id);
        self.gated.remove(&id);
        self.nominate(id, None);
        self.evicting.remove(&id);
    }
}
