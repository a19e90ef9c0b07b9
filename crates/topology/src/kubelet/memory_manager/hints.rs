//! Which sets of zones memory can come from: hints for the Topology Manager, and the zones without one.
//!
//! In: bytes by zone ([`MemoryCounts`]), what is asked for. Out: whether a set of zones will do, the best set. Never: a
//! change of the counts.
//!
//! Source: kubelet 1.34 to 1.37 `memorymanager/policy_static.go` (`calculateHints`, `findBestHint`,
//! `regenerateHints`).

use crate::kubelet::hint::{ZoneMask, first_set, sum_of_largest};
use crate::kubelet::memory_manager::StaticPolicy;
use crate::kubelet::memory_manager::counts::{Block, MemoryCounts, MemoryTable, ZoneMemory};
use crate::kubelet::pod::{MemoryAmounts, PodUid};
use crate::kubelet::topology_manager::{HintSource, Hints};
use crate::resource::ResourceName;

/// Memory that could be handed out.
#[derive(Clone, Debug)]
pub(crate) struct MemoryHints<'a> {
    policy: &'a StaticPolicy,
    counts: &'a MemoryCounts,
    reusable: &'a [Block],
    request: &'a MemoryAmounts,
    /// The lowest zone that will do alone, once it is known.
    lowest: Option<u32>,
}

/// An alignment that is already held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldHints(ZoneMask);

impl<'a> MemoryHints<'a> {
    pub(super) fn new(
        policy: &'a StaticPolicy,
        counts: &'a MemoryCounts,
        uid: &PodUid,
        request: &'a MemoryAmounts,
    ) -> Self {
        Self { policy, counts, reusable: counts.reusable(uid), request, lowest: None }
    }

    /// Whether any set of zones will do. Such a set is one zone, a group of zones, or a part of the zones that nothing
    /// is in. Cost: zones x types.
    pub(super) fn is_possible(&mut self) -> bool {
        let all = self.domain();
        if self.policy.is_over_reserved {
            // Sums wrap around: more zones may have less, so each set counts.
            return (1..=all.len()).rev().flat_map(|size| all.subsets(size)).any(|set| self.satisfies(set));
        }
        self.lowest = all.iter().find(|zone| self.satisfies(ZoneMask::of(*zone)));
        self.lowest.is_some() || self.is_possible_for_several()
    }

    fn is_possible_for_several(&self) -> bool {
        let zones = &self.counts.zones;
        let idle: ZoneMask = zones.iter().filter(|zone| zone.assignments <= 0).map(|zone| zone.id).collect();
        (idle.len() > 1 && self.satisfies(idle))
            || zones.iter().any(|zone| !zone.group.is_single() && self.satisfies(zone.group))
    }

    /// The best zones around `within` that satisfy: preferred ones first, then the narrowest (kubelet `findBestHint`).
    pub(super) fn best(&mut self, within: ZoneMask) -> Option<ZoneMask> {
        if self.request.is_empty() || !self.is_possible() {
            return None; // No type, no hints.
        }
        let this = &*self;
        let all = this.domain();
        let may = |chosen: ZoneMask, others: ZoneMask, count| {
            let missing = within.without(chosen);
            others.contains_all(missing) && missing.len() <= count && this.may_satisfy(chosen, others, count)
        };
        let fitting = |size| {
            first_set(all, size, &may, &mut |zones| zones.contains_all(within) && this.satisfies(zones))
        };
        fitting(this.narrowest()).or_else(|| (1..=all.len()).find_map(fitting))
    }

    /// Whether these zones have so much of each type by `of`.
    fn have(&self, zones: ZoneMask, of: impl Fn(&MemoryTable) -> u64 + Copy) -> bool {
        self.request.iter().all(|(name, bytes)| self.sum(zones, *name, of) >= *bytes)
    }

    fn sum(&self, zones: ZoneMask, name: ResourceName, of: impl Fn(&MemoryTable) -> u64 + Copy) -> u64 {
        let tables = self.within(zones).filter_map(|zone| zone.table(name));
        tables.fold(0, |sum, table| sum.wrapping_add(of(table)))
    }

    /// The most that chosen zones with `count` others have of each type by `of` is enough.
    fn may_have(
        &self,
        chosen: ZoneMask,
        others: ZoneMask,
        count: u32,
        of: impl Fn(&MemoryTable) -> u64 + Copy,
    ) -> bool {
        self.request.iter().all(|(name, bytes)| {
            let here = self.sum(chosen, *name, of);
            let amounts = self.within(others).map(|zone| zone.table(*name).map_or(0, of));
            here >= *bytes || here.saturating_add(sum_of_largest(count, amounts)) >= *bytes
        })
    }

    fn within(&self, zones: ZoneMask) -> impl Iterator<Item = &ZoneMemory> {
        self.counts.within(self.domain(), zones)
    }

    fn reusable_bytes(&self, zones: ZoneMask, name: ResourceName) -> u64 {
        let block = self.reusable.iter().find(|block| block.zones == zones && block.name == name);
        block.map_or(0, |block| block.bytes)
    }

    /// Whether one zone has enough of each type.
    fn is_held_by(&self, zone: &ZoneMemory) -> bool {
        self.request.iter().all(|(name, bytes)| {
            let (allocatable, free) =
                zone.table(*name).map_or((0, 0), |table| (table.allocatable, table.free));
            let reusable = self.reusable_bytes(ZoneMask::of(zone.id), *name);
            allocatable >= *bytes && free.wrapping_add(reusable) >= *bytes
        })
    }

    /// Whether free bytes are enough, whatever else is in the zones.
    pub(super) fn are_enough(&self, zones: ZoneMask) -> bool {
        self.have(zones, |table| table.free)
    }

    /// Whether a zone of a set of several belongs to other zones.
    pub(super) fn violates(&self, zones: ZoneMask) -> bool {
        !zones.is_single() && self.within(zones).any(|zone| zone.refuses(zones))
    }
}

impl HintSource for MemoryHints<'_> {
    fn domain(&self) -> ZoneMask {
        self.policy.machine.zone_mask()
    }

    /// kubelet `calculateHints`.
    fn satisfies(&self, zones: ZoneMask) -> bool {
        if let Some(lowest) = self.lowest.filter(|_| zones.is_single())
            && (zones == ZoneMask::of(lowest) || zones.is_narrower_than(ZoneMask::of(lowest)))
        {
            return zones == ZoneMask::of(lowest);
        }
        if zones.is_single() {
            return self.within(zones).any(|zone| !zone.refuses(zones) && self.is_held_by(zone));
        }
        let free = |name: ResourceName| self.sum(zones, name, |table| table.free);
        self.have(zones, |table| table.allocatable)
            && !self.within(zones).any(|zone| zone.refuses(zones))
            && self
                .request
                .iter()
                .all(|(name, bytes)| free(*name).wrapping_add(self.reusable_bytes(zones, *name)) >= *bytes)
    }

    fn may_satisfy(&self, chosen: ZoneMask, others: ZoneMask, count: u32) -> bool {
        if self.policy.is_over_reserved || !self.reusable.is_empty() {
            return true;
        }
        // A zone that something is in comes with all zones of its group, and no others.
        let is_free = |zone: &ZoneMemory| zone.assignments <= 0;
        let mut usable = others;
        for zone in self.within(chosen) {
            if !is_free(zone) {
                let missing = zone.group.without(chosen);
                return zone.group.contains_all(chosen)
                    && others.contains_all(missing)
                    && missing.len() == count
                    && self.are_enough(zone.group);
            }
        }
        if !chosen.is_empty() {
            let joins = |zone: &&ZoneMemory| is_free(zone) || zone.group.contains_all(chosen);
            usable = self.within(others).filter(joins).map(|zone| zone.id).collect();
        }
        usable.len() >= count && self.may_have(chosen, usable, count, |table| table.free)
    }

    /// The fewest zones that could hold all types at once if nothing were in use; all zones if even they cannot.
    fn narrowest(&self) -> u32 {
        if self.lowest.is_some() {
            return 1;
        }
        let all = self.domain();
        let allocatable = |table: &MemoryTable| table.allocatable;
        let over_reserved = self.policy.is_over_reserved;
        if !over_reserved && !self.have(all, allocatable) {
            return all.len();
        }
        let may = |chosen, others, count| over_reserved || self.may_have(chosen, others, count, allocatable);
        let has_set = |size| first_set(all, size, &may, &mut |zones| self.have(zones, allocatable)).is_some();
        (1..=all.len()).find(|size| has_set(*size)).unwrap_or(all.len())
    }

    fn resources(&self) -> usize {
        self.request.len()
    }
}

impl HeldHints {
    /// kubelet `regenerateHints`: the zones that the container has; no hints if it asks for something else now.
    pub(super) fn of(blocks: &[Block], request: &MemoryAmounts) -> Hints<Self> {
        let same = blocks.len() == request.len()
            && blocks.iter().all(|block| {
                request.iter().any(|(name, bytes)| *name == block.name && *bytes == block.bytes)
            });
        match blocks.first() {
            Some(block) if same => Hints::Of(Self(block.zones)),
            _ => Hints::Any,
        }
    }
}

impl HintSource for HeldHints {
    fn domain(&self) -> ZoneMask {
        self.0
    }

    fn satisfies(&self, zones: ZoneMask) -> bool {
        zones == self.0
    }

    fn may_satisfy(&self, chosen: ZoneMask, others: ZoneMask, count: u32) -> bool {
        let missing = self.0.without(chosen);
        self.0.contains_all(chosen) && others.contains_all(missing) && missing.len() == count
    }

    fn narrowest(&self) -> u32 {
        self.0.len()
    }
}
