//! Bindings that are withdrawn: since the decision, something has happened, and the kubelet may reject the pod now.
//!
//! In: a node whose pods leave, or whose report is news. Out: the pods whose bindings are withdrawn, if they were not
//! sent. Never: a pod of a gang, which is placed whole; a pod taken off its node while its binding may be under way.
//!
//! More room can make a pod of several aligned containers not fit. The bindings of a node are sent one after the other,
//! so one may wait while others end; that of a pod that a departure could keep out waits for news in any case. Cost:
//! the ledger's rows, and one admission for each world and pod on its way.

use super::{Core, Lifecycle};
use crate::cycle::Accounting;
use crate::ledger::PodId;
use crate::pod::PodView;

impl Core {
    /// Whether a pod that leaves before the kubelet of this node admits this pod, which is to go there, could keep it
    /// out, and its binding would be withdrawn then.
    pub(super) fn is_exposed(&mut self, (id, pod): (PodId, &PodView), slot: usize) -> bool {
        let ledger = &self.nodes[slot].ledger;
        let tolerates = ledger.tolerates_departures(&pod.spec.needs, &mut self.scratch);
        tolerates == Some(false) && self.may_be_withdrawn(id)
    }

    /// Looks at the pods on their way to a node.
    pub(super) fn withdraw_from(&mut self, slot: usize) {
        for id in self.nodes[slot].ledger.may_be_rejected(&mut self.scratch) {
            if self.may_be_withdrawn(id) {
                self.withdrawals.insert(id);
            }
        }
    }

    /// Whether the binding of a pod has not ended, and its node was chosen for its zones, by itself.
    fn may_be_withdrawn(&self, id: PodId) -> bool {
        let Some(entry) = self.pods.get(&id) else { return false };
        let filter = self.profile_of(id).and_then(|profile| profile.zone_filter());
        matches!(entry.lifecycle, Lifecycle::Assumed { .. })
            && entry.view.group.is_none()
            && filter.is_some_and(|filter| filter.accounting == Accounting::Exact)
    }
}
