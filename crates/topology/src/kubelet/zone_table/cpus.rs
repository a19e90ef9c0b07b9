//! Free CPUs by zone, as one admission changes them.
//!
//! In: a state of the CPU manager, then numbers of CPUs that are taken near some zones. Out: the same numbers, as long
//! as they can be known without ids. Never: a number that may be wrong; `is_known` says when zones are not known any
//! more.

use crate::kubelet::Kubelet;
use crate::kubelet::cpu_manager::{CpuState, StaticPolicy};
use crate::kubelet::hint::ZoneMask;
use crate::policy::CpuOption;
use crate::request::ContainerKind;

/// Numbers of CPUs that containers of one pod may get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuCounts {
    /// In each zone with CPUs, ascending by id: free CPUs, and those that init containers leave to the pod.
    pub by_zone: Vec<usize>,
    /// Their sum, always known.
    pub total: usize,
    /// Whether the numbers by zone are known.
    pub is_known: bool,
    /// Free CPUs on cores of which none is reserved: at least, at most.
    pub on_whole_cores: (usize, usize),
    /// Free CPUs on other cores, at most.
    fragments: usize,
    pub kept: Kept,
}

/// CPUs that init containers leave to the pod. The next alignment must include their zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub zones: ZoneMask,
    least: usize,
    most: usize,
}

impl Kept {
    /// Whether there may be such CPUs, or none.
    pub(crate) fn is_uncertain(&self) -> bool {
        self.least == 0 && self.most > 0
    }
}

impl CpuCounts {
    pub(super) fn fill(&mut self, kubelet: &Kubelet, state: &CpuState) {
        let Some(policy) = &kubelet.cpus else { return };
        let available = policy.available(state);
        self.by_zone.clear();
        let zones = kubelet.machine.cpu_zones().iter();
        self.by_zone.extend(zones.map(|zone| available.count_shared(&zone.cpus)));
        self.total = available.len();
        let on_whole_cores = policy.on_whole_cores(state);
        self.on_whole_cores = (on_whole_cores, on_whole_cores);
        self.fragments = self.total.saturating_sub(on_whole_cores);
        (self.is_known, self.kept) = (true, Kept::default());
    }

    pub(super) fn copy_from(&mut self, other: &Self) {
        let Self { total, is_known, on_whole_cores, fragments, kept, .. } = *other;
        self.by_zone.clone_from(&other.by_zone);
        (self.total, self.is_known, self.on_whole_cores) = (total, is_known, on_whole_cores);
        (self.fragments, self.kept) = (fragments, kept);
    }

    fn sum(&self, all: ZoneMask, zones: ZoneMask) -> usize {
        zones.iter().filter_map(|zone| self.by_zone.get(all.rank(zone))).sum()
    }

    /// Zones with CPUs to hand out.
    fn filled(&self, all: ZoneMask, zones: ZoneMask) -> ZoneMask {
        zones
            .iter()
            .filter(|zone| self.by_zone.get(all.rank(*zone)).is_some_and(|count| *count > 0))
            .collect()
    }

    /// The zones of CPUs that count as near to an alignment; none without one.
    pub(super) fn near(kubelet: &Kubelet, policy: &StaticPolicy, zones: Option<ZoneMask>) -> ZoneMask {
        let zones = zones.unwrap_or(ZoneMask::EMPTY).intersection(kubelet.machine.cpu_zone_mask());
        if policy.options().has(CpuOption::AlignBySocket) {
            kubelet.machine.zones_of(&kubelet.machine.cpus_of_sockets(zones))
        } else {
            zones
        }
    }

    /// Whether taking so many CPUs of a regular machine succeeds for sure; the total must be enough. CPUs that are
    /// spread over zones may come out as too few: the kubelet goes by combinations of zones that it has overwritten
    /// meanwhile.
    pub(super) fn is_safe(&self, policy: &StaticPolicy, all: ZoneMask, near: ZoneMask, count: usize) -> bool {
        if !policy.options().has(CpuOption::DistributeAcrossNuma) {
            return true;
        }
        let inside = self.sum(all, near);
        let (here, there) = (self.filled(all, near), self.filled(all, all.without(near)));
        self.is_known && (inside == 0 || here.is_single()) && (inside >= count || there.len() <= 1)
    }

    /// CPUs that could be taken near an alignment.
    pub(super) fn inside(&self, all: ZoneMask, near: ZoneMask) -> usize {
        self.sum(all, near)
    }

    /// Takes CPUs, near ones first.
    pub(super) fn take(&mut self, all: ZoneMask, near: ZoneMask, count: usize, kind: ContainerKind) {
        let reused = count.min(self.kept.most);
        let (least, most) = self.on_whole_cores;
        let fresh = count.saturating_sub(reused + self.fragments);
        self.on_whole_cores = (least.saturating_sub(count), most.saturating_sub(fresh));
        let from = if self.is_known { self.filled(all, near) } else { all };
        if kind == ContainerKind::Init {
            // These CPUs stay with the pod, so all that it is offered stays the same.
            let (least, most) = (self.kept.least.max(count), self.kept.most + count);
            self.kept = Kept { zones: self.kept.zones.union(from), least, most: most.min(self.total) };
            self.is_known &= from.is_single() && self.inside(all, near) >= count;
            return;
        }
        if self.is_known {
            let inside = self.inside(all, near).min(count);
            self.is_known =
                self.subtract(all, near, inside) && self.subtract(all, all.without(near), count - inside);
        }
        self.total = self.total.saturating_sub(count);
        let Kept { zones, least, most } = self.kept;
        let offered = if self.is_known { self.sum(all, zones) } else { self.total };
        self.kept = Kept { zones, least: least.saturating_sub(count), most: most.min(offered) };
        if self.kept.most == 0 {
            self.kept = Kept::default();
        }
    }

    /// Takes CPUs of these zones. Returns whether it is known of which.
    fn subtract(&mut self, all: ZoneMask, zones: ZoneMask, count: usize) -> bool {
        let filled = self.filled(all, zones);
        let is_all = count == self.sum(all, zones);
        if count > 0 && !is_all && filled.len() != 1 {
            return false;
        }
        for zone in filled.iter() {
            if let Some(left) = self.by_zone.get_mut(all.rank(zone)) {
                *left = if is_all { 0 } else { left.saturating_sub(count) };
            }
        }
        true
    }
}
