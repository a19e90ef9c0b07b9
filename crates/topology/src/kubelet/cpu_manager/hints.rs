//! Which sets of zones CPUs can come from, as hints for the Topology Manager.
//!
//! In: free CPUs by zone, a number. Out: whether a set of zones will do. Never: the id of a CPU.
//!
//! Source: kubelet 1.34 to 1.37 `cpumanager/policy_static.go` (`generateCPUTopologyHints`, `isHintSocketAligned`).

use std::borrow::Cow;

use crate::kubelet::cpu_manager::StaticPolicy;
use crate::kubelet::hint::{ZoneMask, sum_of_largest};
use crate::kubelet::topology_manager::HintSource;
use crate::policy::CpuOption;

/// CPUs that could be handed out.
#[derive(Clone, Debug)]
pub(crate) struct CpuHints<'a> {
    pub policy: &'a StaticPolicy,
    /// CPUs in each zone that has CPUs, ascending by id: free ones, and those of the pod's init containers.
    pub offered: Cow<'a, [usize]>,
    /// The zones of init containers' CPUs, which must be in the alignment.
    pub required: ZoneMask,
    pub request: usize,
}

impl CpuHints<'_> {
    fn count(&self, zone: u32) -> usize {
        self.offered.get(self.domain().rank(zone)).copied().unwrap_or(0)
    }

    fn sum(&self, zones: ZoneMask) -> usize {
        zones.intersection(self.domain()).iter().map(|zone| self.count(zone)).sum()
    }

    /// kubelet `isHintSocketAligned`: the zones are in as few sockets as the narrowest alignment needs.
    fn is_aligned_by_socket(&self, zones: ZoneMask) -> bool {
        let machine = &self.policy.machine;
        let per_socket = machine.cpu_zones().len() / machine.sockets().len();
        per_socket > 0 && machine.sockets_of(zones) == (self.narrowest() as usize).div_ceil(per_socket)
    }
}

impl HintSource for CpuHints<'_> {
    fn domain(&self) -> ZoneMask {
        self.policy.machine.cpu_zone_mask()
    }

    fn satisfies(&self, zones: ZoneMask) -> bool {
        zones.contains_all(self.required) && self.sum(zones) >= self.request
    }

    fn may_satisfy(&self, chosen: ZoneMask, others: ZoneMask, count: u32) -> bool {
        let (here, missing) = (self.sum(chosen), self.required.without(chosen));
        let there = || {
            let amounts = others.iter().filter(|zone| self.domain().contains(*zone));
            sum_of_largest(count, amounts.map(|zone| self.count(zone) as u64))
        };
        others.contains_all(missing)
            && missing.len() <= count
            && (here >= self.request || here as u64 + there() >= self.request as u64)
    }

    fn narrowest(&self) -> u32 {
        self.policy.narrowest(self.request)
    }

    fn prefers(&self, zones: ZoneMask) -> bool {
        zones.len() == self.narrowest() || (self.prefers_any_size() && self.is_aligned_by_socket(zones))
    }

    fn prefers_any_size(&self) -> bool {
        self.policy.options.has(CpuOption::AlignBySocket)
    }
}
