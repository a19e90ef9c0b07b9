//! Bindings that are called back: since the decision, something has happened, and the kubelet may reject the pod now.
//!
//! In: a node whose pods leave, or whose report is news. Out: the pods to call back. Never: a pod of a gang, which is
//! placed whole; a pod taken off its node while its binding may be under way.
//!
//! More room can make a pod of several aligned containers not fit. The bindings of a node are sent one after the other,
//! so one may wait while others end, and what waits can still be withdrawn. Cost: the pods of the node, and one
//! admission for each world and pod whose binding has not ended.

use super::{Core, Decision, Lifecycle};
use crate::cycle::Accounting;
use crate::ledger::PodId;

impl Core {
    /// Looks at the pods of a node whose bindings have not ended.
    pub(super) fn recall_from(&mut self, slot: usize) {
        let pods = self.nodes[slot].residents.iter().map(|(_, id)| *id);
        let pods: Vec<PodId> = pods.filter(|id| self.may_be_recalled(*id)).collect();
        for id in pods {
            if self.nodes[slot].ledger.may_be_rejected(id, &mut self.scratch) {
                self.recalls.insert(id);
            }
        }
    }

    /// The next pod to call back.
    pub(super) fn next_recall(&mut self) -> Option<Decision> {
        while let Some(id) = self.recalls.pop_first() {
            if self.may_be_recalled(id) {
                return Some(Decision::Recall(id));
            }
        }
        None
    }

    /// Whether the binding of a pod has not ended, and its node was chosen for its zones, by itself.
    fn may_be_recalled(&self, id: PodId) -> bool {
        let Some(entry) = self.pods.get(&id) else { return false };
        let filter = self.profile_of(id).and_then(|profile| profile.zone_filter());
        matches!(entry.lifecycle, Lifecycle::Assumed { .. })
            && entry.view.group.is_none()
            && filter.is_some_and(|filter| filter.accounting == Accounting::Exact)
    }
}
