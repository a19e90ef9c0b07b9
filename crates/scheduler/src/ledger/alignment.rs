//! How well a node's kubelet would align a pod, where its policy does not enforce it.
//!
//! In: a ledger, a pod that fits. Out: aligned or not in every possible world, or not known. Never: a verdict about the
//! pod; that is the filter's.

use topology::kubelet::alignment::Alignment;
use topology::request::PodNeeds;

use super::amounts::Amounts;
use super::{Ledger, Scratch};

impl Ledger {
    /// How well the kubelet would align a pod that fits; `None` if that is not known. Of a node that reports amounts
    /// and enforces nothing, the last report is all that is known. Cost: nothing where the policy enforces alignment;
    /// else an admission for each world.
    #[must_use]
    pub fn alignment(&self, needs: &PodNeeds, scratch: &mut Scratch) -> Option<Alignment> {
        if !needs.may_align() {
            return Some(Alignment::Aligned);
        }
        let topology = self.topology.as_ref().filter(|_| !self.report_lost)?;
        let rules = topology.rules;
        if rules.policy.enforces() {
            return Some(Alignment::Aligned);
        }
        if self.worlds.is_empty() {
            return Amounts::Counts(topology.available()).alignment(rules, needs, scratch);
        }
        let mut all = Some(Alignment::Aligned);
        for world in &self.worlds {
            match world.amounts.alignment(rules, needs, scratch) {
                Some(Alignment::Aligned) => {}
                Some(Alignment::Misaligned) => return Some(Alignment::Misaligned),
                None => all = None,
            }
        }
        all
    }
}
