//! All nodes by slot, each with a revision.
//!
//! In: events of nodes. Out: the nodes, and a revision that no two states of a slot share. Never: a change that leaves
//! the revision as it was, but for a report that says what was expected: there is no other way to a node that can be
//! changed.

use std::ops::{Deref, Index, IndexMut};
use std::sync::Arc;

use topology::zone::NodeTopology;

use super::{Core, Timer};
use crate::cycle::UNREPORTED_GRACE_MS;
use crate::ledger::{Drift, Ledger, Scratch};
use crate::node::{Node, NodeView, ReportObject};

/// The longest time in which the fingerprint of a node's first reports may be that of other pods than are known: three
/// reports of an exporter that writes one a minute.
pub(super) const UNEXPLAINED_MS: u64 = 3 * 60 * 1_000;

/// The nodes.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    nodes: Vec<Node>,
    revisions: Vec<u64>,
    last: u64,
}

impl Nodes {
    /// Adds a node; returns its slot.
    pub(super) fn push(&mut self, node: Node) -> usize {
        self.last += 1;
        self.nodes.push(node);
        self.revisions.push(self.last);
        self.nodes.len() - 1
    }

    /// The revision of a slot, at least 1.
    pub(super) fn revision(&self, slot: usize) -> u64 {
        self.revisions[slot]
    }

    /// Takes a report about the node of a slot. Returns whether it says something else than was expected; if not, the
    /// revision stays.
    pub(super) fn report(&mut self, slot: usize, topology: Arc<NodeTopology>, scratch: &mut Scratch) -> bool {
        let is_news = self.nodes[slot].ledger.report(topology, scratch);
        if is_news {
            self.touch(slot);
        }
        is_news
    }

    /// Gives a slot another revision: what is said of the node depends on the time, and that has come.
    pub(super) fn touch(&mut self, slot: usize) {
        self.last += 1;
        self.revisions[slot] = self.last;
    }
}

impl Deref for Nodes {
    type Target = [Node];

    fn deref(&self) -> &[Node] {
        &self.nodes
    }
}

impl Index<usize> for Nodes {
    type Output = Node;

    fn index(&self, slot: usize) -> &Node {
        &self.nodes[slot]
    }
}

impl IndexMut<usize> for Nodes {
    fn index_mut(&mut self, slot: usize) -> &mut Node {
        self.touch(slot);
        &mut self.nodes[slot]
    }
}

impl Core {
    /// Whether there is a node of this name.
    #[must_use]
    pub fn has_node(&self, name: &str) -> bool {
        self.slots.get(name).is_some_and(|slot| self.nodes[*slot].view.is_some())
    }

    /// All ledgers by node, also those of nodes that may come back.
    pub(crate) fn ledgers(&self) -> impl Iterator<Item = (&Arc<str>, &Ledger)> {
        self.slots.iter().map(|(name, slot)| (name, &self.nodes[*slot].ledger))
    }

    /// Contradictions of ledgers by reports since the last call, at most one of each node. Cost: nodes.
    pub fn take_drifts(&mut self) -> Vec<(NodeView, Drift)> {
        let slots: Vec<usize> =
            (0..self.nodes.len()).filter(|at| self.nodes[*at].ledger.has_drift()).collect();
        let take = |slot: usize| {
            let drift = self.nodes[slot].ledger.take_drift()?;
            Some((self.nodes[slot].view.clone()?, drift))
        };
        slots.into_iter().filter_map(take).collect()
    }

    /// A report about a node is new or has changed.
    pub(super) fn report(&mut self, name: &Arc<str>, topology: Arc<NodeTopology>, now_ms: u64) {
        let slot = self.slot(name);
        let reserves = self.settings.resync_ms().is_some();
        if reserves {
            self.nodes[slot].over_reserve.report(Arc::clone(&topology));
        }
        if self.nodes.report(slot, topology, &mut self.scratch) || reserves {
            self.zones_changed(slot);
        }
        self.await_explanation(slot, now_ms);
        self.set_report_object(slot, ReportObject::Readable);
        self.changed.append(&mut self.resynced);
    }

    /// The report about a node is gone.
    pub(super) fn report_gone(&mut self, name: &Arc<str>) {
        let slot = self.slot(name);
        self.nodes[slot].ledger.report_deleted();
        self.set_report_object(slot, ReportObject::Absent);
        self.changed.insert(slot);
        self.reclaim(slot);
    }

    /// The report about a node cannot be read.
    pub(super) fn report_unreadable(&mut self, name: &Arc<str>) {
        let slot = self.slot(name);
        self.nodes[slot].ledger.report_unreadable();
        self.set_report_object(slot, ReportObject::Unreadable);
    }

    /// No verdict about a node that exists depends on it.
    fn set_report_object(&mut self, slot: usize, object: ReportObject) {
        if self.nodes[slot].report_object != object {
            self.nodes[slot].report_object = object;
        }
    }

    /// Reads a report again that stayed when its node went. A node that came back had the time to write another one,
    /// and the garbage collector to take the old one.
    pub(super) fn read_kept_report(&mut self, slot: usize, now_ms: u64) {
        let node = &self.nodes[slot];
        let kept = node.ledger.lost_report(now_ms).filter(|_| node.report_object == ReportObject::Readable);
        if let Some(topology) = kept.filter(|_| node.view.is_some()).cloned() {
            self.nodes.report(slot, topology, &mut self.scratch);
            self.await_explanation(slot, now_ms);
            self.zones_changed(slot);
        }
    }

    /// Gives the first report of a node that is not understood a time in which the pods that it counts may come.
    fn await_explanation(&mut self, slot: usize, now_ms: u64) {
        if self.nodes[slot].ledger.needs_explanation() {
            let due_ms = now_ms + UNEXPLAINED_MS;
            self.nodes[slot].ledger.expect_explanation(due_ms);
            self.timers.insert((due_ms, Timer::Unexplained(slot)));
        }
    }

    /// That time is over.
    pub(super) fn give_up_fingerprint(&mut self, slot: usize, now_ms: u64) {
        if self.nodes[slot].ledger.give_up_fingerprint(now_ms, &mut self.scratch) {
            self.zones_changed(slot);
        }
    }

    /// Other things are known of the zones of a node than were expected.
    pub(super) fn zones_changed(&mut self, slot: usize) {
        self.withdraw_from(slot);
        self.changed.insert(slot);
        self.freed.insert(slot);
    }

    /// A node is new or has changed.
    pub(super) fn node(&mut self, mut view: NodeView, now_ms: u64) {
        let slot = self.slot(&view.name);
        let node = &mut self.nodes[slot];
        // The API server's clock may be ahead of ours. No node is younger than our first sight of it.
        let known = node.view.as_ref().filter(|old| old.uid == view.uid);
        view.created_ms = view.created_ms.min(known.map_or(now_ms, |old| old.created_ms));
        if node.view.is_none() {
            self.node_order.push(slot);
        } else if node.view.as_ref().is_some_and(|old| old.uid != view.uid) {
            // Another machine under the same name: the report of the old one does not apply.
            node.ledger.report_deleted();
        }
        let images = std::mem::take(&mut view.images);
        self.images.replace(&mut node.images, &images);
        if node.view.as_ref() != Some(&view) {
            let place = |view: &NodeView| (view.labels.clone(), view.taints.clone());
            let is_elsewhere = node.view.as_ref().map(place) != Some(place(&view));
            node.view = Some(view);
            self.changed.insert(slot);
            self.freed.insert(slot);
            if is_elsewhere {
                self.retried.extend(self.queue.spanning().map(|(class, _)| class));
            }
            self.check_waits_on(slot, now_ms);
        }
        self.expect_report(slot, now_ms);
    }

    /// The API server has the kind of reports, or not: then there are no exporters to wait for. Cost: all nodes.
    pub(super) fn set_reports_served(&mut self, served: bool, now_ms: u64) {
        if std::mem::replace(&mut self.reports_served, served) != served {
            for slot in self.node_order.clone() {
                self.expect_report(slot, now_ms);
                self.changed.insert(slot);
            }
        }
    }

    /// A young node is given time for its first report.
    fn expect_report(&mut self, slot: usize, now_ms: u64) {
        let node = &mut self.nodes[slot];
        let Some(view) = &node.view else { return };
        let due_ms = if self.reports_served { view.created_ms + UNREPORTED_GRACE_MS } else { 0 };
        node.ledger.expect_report(due_ms);
        match due_ms > now_ms {
            true => drop(self.timers.insert((due_ms, Timer::Unreported(slot)))),
            false => self.read_kept_report(slot, now_ms),
        }
    }

    /// A node is gone.
    pub(super) fn node_gone(&mut self, name: &Arc<str>, now_ms: u64) {
        let slot = self.slot(name);
        self.nodes[slot].view = None;
        self.images.replace(&mut self.nodes[slot].images, &[]);
        self.nodes[slot].ledger.report_deleted();
        self.node_order.retain(|listed| *listed != slot);
        self.nominations.on(name).for_each(|pod| self.queue.wake(pod));
        self.retried.extend(self.queue.spanning().map(|(class, _)| class));
        self.check_waits_on(slot, now_ms);
        self.reclaim(slot);
    }
}
