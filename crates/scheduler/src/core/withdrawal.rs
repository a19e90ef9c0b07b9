//! Bindings that are withdrawn: since the decision, something has happened, and the kubelet may reject the pod now.
//!
//! In: a node whose pods leave, or whose report is news. Out: the pods whose bindings are withdrawn, if they were not
//! sent. Never: a pod of a gang, which is placed whole; a pod taken off its node while its binding may be under way.
//!
//! More room can make a pod of several aligned containers not fit. The bindings of a node are sent one after the other,
//! so one may wait while others end. Before one of a pod that relies on others is sent, the API server is asked for
//! them (`shell/outbox/binding`). Cost: the ledger's rows, and one admission for each world and pod on its way.

use super::{Binding, Core, Decision, Lifecycle};
use crate::cycle::Accounting;
use crate::ledger::PodId;
use crate::pod::PodView;

impl Core {
    /// Lets the kubelet of its node see a pod after all that the ledger knows: the decision that sends its binding.
    pub(super) fn send(&mut self, binding: Binding) -> Decision {
        let relied_on = self.relied_on(&binding);
        self.enter_ledger(binding.id);
        Decision::Bind(Binding { relied_on, ..binding })
    }

    /// The pods on which it relies that a binding can be stored, if it may be withdrawn.
    fn relied_on(&mut self, Binding { id, pod, .. }: &Binding) -> Vec<PodView> {
        let slot = self.pods.get(id).and_then(|entry| entry.lifecycle.slot());
        let Some(slot) = slot.filter(|_| self.may_be_withdrawn(*id)) else { return Vec::new() };
        let relied_on = self.nodes[slot].ledger.relied_on(&pod.spec.needs, &mut self.scratch);
        let views = relied_on.into_iter().flatten().filter_map(|id| self.pods.get(&id));
        views.map(|entry| entry.view.clone()).collect()
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
