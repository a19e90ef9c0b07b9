//! A node's accounts as they would be with other pods: what capacities and relocations are counted on.
//!
//! In: a node, pods that come and leave. Out: the filters' verdict about one more. Never: a change of the node; a pod
//! whose verdict looks at other nodes.
//!
//! Pods that come run at once: the next pod finds nothing on its way. Unlike in a [`Trial`](super::trial::Trial), what
//! the node expects (nominated pods, pods that wait for volumes) does not count.
//!
//! Cost: a copy of the totals; of the ledger only if a pod that may align comes or leaves.

use std::borrow::Cow;

use topology::resource::ResourceName;

use super::{Core, Profile};
use crate::cycle::{self, PreFilterState};
use crate::ledger::{BoundPod, Ledger, PodId, Scratch};
use crate::node::{Node, NodeView};
use crate::pod::PodView;
use crate::reason::Reason;

/// A copy of what a node counts.
pub(super) struct NodeCopy<'c> {
    node: &'c Node,
    view: &'c NodeView,
    /// The totals and ports.
    pub(super) totals: Node,
    ledger: Cow<'c, Ledger>,
}

impl Clone for NodeCopy<'_> {
    fn clone(&self) -> Self {
        Self { totals: self.totals.totals(), ledger: self.ledger.clone(), ..*self }
    }
}

impl<'c> NodeCopy<'c> {
    /// The node as it is; `None` if it does not exist.
    pub(super) fn new(core: &'c Core, slot: usize) -> Option<Self> {
        let node = core.nodes.get(slot)?;
        let view = node.view.as_ref()?;
        Some(Self { node, view, totals: node.totals(), ledger: Cow::Borrowed(&node.ledger) })
    }

    /// Whether a pod fits that allows every node (`PreFilterState::is_empty`).
    ///
    /// # Errors
    /// The first reason against it.
    pub(super) fn check(
        &self,
        (pod, profile): (&PodView, &Profile),
        spanning: &PreFilterState<'_>,
        now_ms: u64,
        scratch: &mut Scratch,
    ) -> Result<(), Reason> {
        cycle::filter_node(&self.totals, self.view, &pod.spec, spanning, &profile.plugins)?;
        let zones = (&*self.ledger, &self.node.over_reserve);
        cycle::filter_zones(zones, (&pod.spec, pod.created_s), profile.zone_filter(), now_ms, scratch)
    }

    /// A pod comes, and runs.
    pub(super) fn add(&mut self, id: PodId, pod: &PodView, scratch: &mut Scratch) {
        self.totals.add(&pod.charged);
        self.totals.occupy(&pod.spec);
        if pod.spec.needs.may_align() {
            let ledger = self.ledger.to_mut();
            ledger.assumed(&BoundPod::of(id, pod), scratch);
            ledger.admitted(id, scratch);
            ledger.initialized(id);
        }
    }

    /// A pod that the totals count leaves, and its zones are free.
    pub(super) fn remove(&mut self, id: PodId, pod: &PodView, scratch: &mut Scratch) {
        self.totals.remove(&pod.charged);
        self.totals.vacate(&pod.spec);
        if pod.spec.needs.may_align() {
            self.ledger = Cow::Owned(self.ledger.without([id], scratch));
        }
    }

    /// What is free of a resource by the totals.
    pub(super) fn free(&self, name: ResourceName) -> i64 {
        self.totals.left_of(self.view, name)
    }
}
