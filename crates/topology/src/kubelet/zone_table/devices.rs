//! Free devices by their zones, as one admission changes them.
//!
//! In: a state of the device manager, then numbers of devices that are taken near some zones. Out: the same numbers, as
//! long as they can be known without ids. Never: a number that may be wrong; `is_known` says when zones are not known.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use crate::kubelet::device_manager::{DeviceGroup, DeviceGroups, DeviceId, DeviceState};
use crate::kubelet::hint::ZoneMask;
use crate::kubelet::rejection::DeviceError;
use crate::request::ContainerKind;
use crate::resource::ResourceName;

/// Numbers of devices of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceCounts {
    pub name: ResourceName,
    /// Whether a plugin lists the resource; otherwise containers hold devices of it.
    is_registered: bool,
    pub has_zones: bool,
    pub healthy: usize,
    /// Devices that containers hold.
    pub in_use: usize,
    /// Healthy devices that no container holds, always known.
    pub free: usize,
    pub groups: DeviceGroups,
    /// Devices that init containers leave to the pod, by group, and their sum.
    kept: SmallVec<[usize; 8]>,
    pub kept_total: usize,
    /// Whether the numbers by group are known.
    pub is_known: bool,
}

/// The resources that plugins serve, or of which containers hold devices, ascending by name.
pub(super) fn fill(list: &mut Vec<DeviceCounts>, state: &DeviceState) {
    list.clear();
    let held = state.pods.iter().flat_map(|pod| &pod.containers).flat_map(|(_, devices)| devices.keys());
    let names: BTreeSet<ResourceName> = state.resources.keys().chain(held).copied().collect();
    list.extend(names.into_iter().map(|name| {
        let resource = state.resources.get(&name);
        let used = state.in_use(name);
        let is_healthy = |id: &DeviceId| {
            resource.and_then(|resource| resource.devices.get(id)).is_some_and(|device| device.healthy)
        };
        let is_free = |id: &DeviceId| is_healthy(id) && !used.contains(id);
        let groups = resource.map(|resource| resource.groups(is_free)).unwrap_or_default();
        let devices = || resource.iter().flat_map(|resource| resource.devices.values());
        DeviceCounts {
            name,
            is_registered: resource.is_some(),
            has_zones: resource.is_some_and(|resource| resource.has_zones()),
            healthy: devices().filter(|device| device.healthy).count(),
            in_use: used.len(),
            free: groups.iter().map(|group| group.free).sum(),
            kept: SmallVec::from_elem(0, groups.len()),
            kept_total: 0,
            groups,
            is_known: true,
        }
    }));
}

impl DeviceCounts {
    /// Whether a plugin lists the resource.
    pub(super) fn is_registered(&self) -> bool {
        self.is_registered
    }

    /// Free devices near zones.
    pub(super) fn near(&self, zones: ZoneMask) -> usize {
        self.groups.iter().filter(|group| group.meets(zones)).map(|group| group.free).sum()
    }

    /// kubelet `devicesToAllocate`, without the choice. Returns the devices that are newly in use.
    pub(super) fn check(&self, count: usize) -> Result<usize, DeviceError> {
        let resource = self.name;
        if !self.is_registered {
            return Err(DeviceError::Unregistered(resource));
        }
        if self.healthy == 0 {
            return Err(DeviceError::NoneHealthy(resource));
        }
        let requested = count - count.min(self.kept_total);
        if self.free < requested {
            return Err(DeviceError::Unavailable { resource, requested, available: self.free });
        }
        Ok(requested)
    }

    /// The zones of devices that init containers leave to the pod, device by device.
    pub(super) fn kept_zones(&self) -> SmallVec<[ZoneMask; 4]> {
        if self.kept_total == 0 {
            return SmallVec::new();
        }
        let kept = self.groups.iter().zip(&self.kept);
        kept.filter_map(|(group, count)| Some(std::iter::repeat_n(group.zones?, *count))).flatten().collect()
    }

    /// Takes devices that [`DeviceCounts::check`] found: those of init containers, then near ones, then others.
    pub(super) fn take(&mut self, zones: Option<ZoneMask>, count: usize, kind: ContainerKind) {
        let reused = count.min(self.kept_total);
        let mut fresh = count - reused;
        self.free -= fresh;
        if kind == ContainerKind::Init {
            self.kept_total += fresh;
        } else {
            self.kept_total -= reused;
            let kept = std::mem::take(&mut self.kept);
            self.kept = self.split(reused, |at, _| kept[at], |at, left| kept[at] - left);
        }
        let zones = zones.filter(|_| self.has_zones);
        let is_near = |group: &DeviceGroup| zones.is_some_and(|zones| group.meets(zones));
        for near in [true, false] {
            let offered = |group: &DeviceGroup| if is_near(group) == near { group.free } else { 0 };
            let part = fresh.min(self.groups.iter().map(offered).sum());
            let taken = self.split(part, |_, group| offered(group), |_, taken| taken);
            for ((group, kept), taken) in self.groups.iter_mut().zip(&mut self.kept).zip(taken) {
                group.free -= taken;
                *kept += if kind == ContainerKind::Init { taken } else { 0 };
            }
            fresh -= part;
        }
    }

    /// How many of `count` devices come from each group, given what groups offer. Known if all are taken, or if one
    /// group offers any.
    fn split(
        &mut self,
        count: usize,
        offered: impl Fn(usize, &DeviceGroup) -> usize,
        result: impl Fn(usize, usize) -> usize,
    ) -> SmallVec<[usize; 8]> {
        let offers: SmallVec<[usize; 8]> =
            self.groups.iter().enumerate().map(|(at, group)| offered(at, group)).collect();
        let is_all = offers.iter().sum::<usize>() == count;
        let givers = offers.iter().filter(|offer| **offer > 0).count();
        self.is_known &= count == 0 || is_all || givers == 1;
        let part = |offer: usize| {
            if is_all {
                offer
            } else if self.is_known {
                offer.min(count)
            } else {
                0
            }
        };
        offers.iter().enumerate().map(|(at, offer)| result(at, part(*offer))).collect()
    }
}
