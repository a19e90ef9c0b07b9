//! Rejections that contradict what is known of a node.
//!
//! In: a pod that this process has placed and its kubelet has rejected. Out: a node that gets no pod which needs
//! alignment, for a time. Never: a doubt about a node for a pod that another one has placed there.
//!
//! Sums by zone do not show everything that a kubelet knows. The first rejection tells that something is wrong, and the
//! next report may tell what it is.

use topology::kubelet::rejection::TOPOLOGY_AFFINITY;

use super::{Core, Timer};
use crate::pod::{PodView, Rejection};

/// The longest wait for the report: other exporters than ours write one in this time by default.
pub(super) const CONTRADICTED_MS: u64 = 60 * 1_000;

impl Core {
    /// Looks whether a rejected pod, which this process has placed by its zones, should have been admitted.
    pub(super) fn look_for_contradiction(&mut self, pod: &PodView, rejection: &Rejection, now_ms: u64) {
        let slot = pod.node.as_ref().and_then(|node| self.slots.get(node).copied());
        let Some(slot) = slot.filter(|_| *rejection.reason == *TOPOLOGY_AFFINITY) else { return };
        let until_ms = now_ms + CONTRADICTED_MS;
        if self.nodes[slot].ledger.contradicted(until_ms) {
            self.timers.insert((until_ms, Timer::Contradicted(slot)));
            self.changed.insert(slot);
        }
    }
}
