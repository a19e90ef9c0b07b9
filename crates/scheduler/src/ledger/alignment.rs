//! How well a node's kubelet would align a pod, where its policy does not enforce it.
//!
//! In: a ledger, a pod that fits. Out: aligned or not in every possible world, or not known. Never: a verdict about the
//! pod; that is the filter's.

use topology::kubelet::alignment::Alignment;
use topology::request::PodNeeds;

use super::amounts::Amounts;
use super::location::{charge, charge_all_zones};
use super::{Ledger, Location, Scratch, Stage};

impl Ledger {
    /// How well the kubelet would align a pod that fits; `None` if that is not known. Of a node that reports amounts
    /// and enforces nothing, the last report is known, and which pods it counts; others may be in any zone. Cost:
    /// nothing where the policy enforces alignment; else an admission for each world, or two by a report.
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
            let mut amounts = Amounts::Counts(topology.available());
            let by_report = amounts.alignment(rules, needs, scratch)?;
            let uncounted = self.rows.iter().filter(|row| !row.described && row.stage != Stage::Released);
            let anywhere = uncounted.map(|row| charge_all_zones(rules, &amounts, &row.needs));
            let anywhere: Vec<Location> =
                anywhere.filter(|it| it.held().is_some_and(|held| !held.is_empty())).collect();
            if by_report == Alignment::Misaligned || anywhere.is_empty() {
                return Some(by_report);
            }
            anywhere.iter().for_each(|location| charge(&mut amounts, location));
            return Some(by_report).filter(|said| amounts.alignment(rules, needs, scratch) == Some(*said));
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
