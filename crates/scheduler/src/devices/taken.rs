//! Devices that claims have.
//!
//! In: allocations. Out: whether a device is taken, and how much of its capacity. Never: devices with admin access,
//! which take nothing.
//!
//! Source: kube-scheduler 1.36 `allocatedDevices`, with counts instead of sets. Cost: log(devices).

use std::collections::BTreeMap;

use topology::quantity::Quantity;

use super::views::claim::Allocation;
use super::views::{Amounts, DeviceId};

/// Devices with the number of claims that have them.
#[derive(Debug, Default)]
pub struct Taken {
    exclusive: BTreeMap<DeviceId, usize>,
    shared: BTreeMap<DeviceId, usize>,
    capacity: BTreeMap<DeviceId, Amounts>,
}

impl Taken {
    /// Counts the devices of a claim.
    pub(super) fn add(&mut self, allocation: &Allocation) {
        for id in &allocation.exclusive {
            *self.exclusive.entry(id.clone()).or_default() += 1;
        }
        for (id, amounts) in &allocation.shared {
            *self.shared.entry(id.clone()).or_default() += 1;
            if let Some(amounts) = amounts {
                add(self.capacity.entry(id.clone()).or_default(), amounts);
            }
        }
    }

    /// Takes [`Self::add`] back.
    pub(super) fn remove(&mut self, allocation: &Allocation) {
        allocation.exclusive.iter().for_each(|id| decrement(&mut self.exclusive, id));
        for (id, amounts) in &allocation.shared {
            decrement(&mut self.shared, id);
            if let (Some(amounts), Some(taken)) = (amounts, self.capacity.get_mut(id)) {
                subtract(taken, amounts);
                if taken.values().all(Quantity::is_zero) {
                    self.capacity.remove(id);
                }
            }
        }
    }

    /// Whether a claim has the device for itself.
    #[must_use]
    pub fn is_exclusive(&self, id: &DeviceId) -> bool {
        self.exclusive.contains_key(id)
    }

    /// Whether any claim has the device, so that its counters are taken.
    #[must_use]
    pub fn has(&self, id: &DeviceId) -> bool {
        self.is_exclusive(id) || self.shared.contains_key(id) || self.capacity.contains_key(id)
    }

    /// The capacities taken of a device; `None`: none.
    #[must_use]
    pub fn capacity(&self, id: &DeviceId) -> Option<&Amounts> {
        self.capacity.get(id)
    }
}

fn decrement(counts: &mut BTreeMap<DeviceId, usize>, id: &DeviceId) {
    if let Some(count) = counts.get_mut(id) {
        *count -= 1;
        if *count == 0 {
            counts.remove(id);
        }
    }
}

/// Adds amounts to others.
pub(crate) fn add(to: &mut Amounts, amounts: &Amounts) {
    for (name, amount) in amounts {
        let sum = to.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

/// Takes amounts from others, as far as these are known.
pub(crate) fn subtract(from: &mut Amounts, amounts: &Amounts) {
    for (name, amount) in amounts {
        if let Some(left) = from.get_mut(name) {
            *left = left.saturating_sub(*amount);
        }
    }
}
