//! Which sets of zones devices can come from, as hints for the Topology Manager.
//!
//! In: numbers of devices by their zones, a number. Out: whether a set of zones will do. Never: the id of a device.
//!
//! Source: kubelet 1.34 to 1.37 `devicemanager/topology_hints.go` (`generateDeviceTopologyHints`).

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::kubelet::hint::{ZoneMask, first_set, sum_of_largest};
use crate::kubelet::profile::Minor;
use crate::kubelet::topology_manager::HintSource;

/// Devices of one resource with the same zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceGroup {
    /// The zones: `None` if the plugin says nothing of zones, empty if it says that there are none.
    pub zones: Option<ZoneMask>,
    /// Devices, healthy or not.
    pub all: usize,
    /// Healthy devices that no container holds.
    pub free: usize,
}

/// The groups of a resource, nearly always one for each zone.
pub(crate) type DeviceGroups = SmallVec<[DeviceGroup; 8]>;

/// Devices that could be handed out.
#[derive(Clone, Debug)]
pub(crate) struct DeviceHints<'a> {
    domain: ZoneMask,
    groups: Cow<'a, [DeviceGroup]>,
    /// Zones of the devices of init containers. Each must meet the alignment.
    reusable: SmallVec<[ZoneMask; 4]>,
    request: usize,
}

impl<'a> DeviceHints<'a> {
    /// Since 1.36 only zones with devices count.
    pub(crate) fn new(
        minor: Minor,
        all_zones: ZoneMask,
        groups: Cow<'a, [DeviceGroup]>,
        reusable: SmallVec<[ZoneMask; 4]>,
        request: usize,
    ) -> Self {
        let listed = groups.iter().filter_map(|group| group.zones);
        let hosting = listed.fold(ZoneMask::EMPTY, ZoneMask::union).intersection(all_zones);
        let domain = if minor >= Minor::V36 && !hosting.is_empty() { hosting } else { all_zones };
        Self { domain, groups, reusable, request }
    }

    fn within(&self, zones: ZoneMask, of: impl Fn(&DeviceGroup) -> usize + Copy) -> usize {
        self.groups.iter().filter(|group| group.meets(zones)).map(of).sum()
    }

    /// The most devices that meet chosen zones or `count` of the others; devices with several zones may count twice.
    fn most(
        &self,
        chosen: ZoneMask,
        others: ZoneMask,
        count: u32,
        of: impl Fn(&DeviceGroup) -> usize + Copy,
    ) -> u64 {
        let by_zone = others.iter().map(|zone| self.within(ZoneMask::of(zone), of) as u64);
        self.within(chosen, of) as u64 + sum_of_largest(count, by_zone)
    }
}

impl DeviceGroup {
    /// Whether the devices are in one of the zones.
    pub(crate) fn meets(&self, zones: ZoneMask) -> bool {
        self.zones.is_some_and(|own| own.meets(zones))
    }
}

impl HintSource for DeviceHints<'_> {
    fn domain(&self) -> ZoneMask {
        self.domain
    }

    fn satisfies(&self, zones: ZoneMask) -> bool {
        self.reusable.iter().all(|of| of.meets(zones))
            && self.within(zones, |group| group.free) + self.reusable.len() >= self.request
    }

    fn may_satisfy(&self, chosen: ZoneMask, others: ZoneMask, count: u32) -> bool {
        let free = self.most(chosen, others, count, |group| group.free);
        free + self.reusable.len() as u64 >= self.request as u64
            && self.reusable.iter().all(|of| of.meets(chosen.union(others)))
    }

    /// All zones of the domain if even they have too few devices.
    fn narrowest(&self) -> u32 {
        let (domain, request) = (self.domain, self.request);
        let all = |group: &DeviceGroup| group.all;
        if domain.iter().any(|zone| self.within(ZoneMask::of(zone), all) >= request) {
            return 1;
        }
        if self.within(domain, all) < request {
            return domain.len();
        }
        let may = |chosen, others, count| self.most(chosen, others, count, all) >= request as u64;
        let has_set =
            |size| first_set(domain, size, &may, &mut |zones| self.within(zones, all) >= request).is_some();
        (2..=domain.len()).find(|size| has_set(*size)).unwrap_or(domain.len())
    }
}
