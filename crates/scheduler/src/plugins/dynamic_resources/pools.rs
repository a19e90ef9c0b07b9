//! Pools of devices that a node reaches.
//!
//! In: slices. Out: the newest complete generation of each pool, with its devices in the order in which they are tried.
//! Never: devices of a pool that is being updated.
//!
//! Source: kube-scheduler 1.36 `GatherPools` and `buildPool` of `structured/internal/incubating`. Cost: the node's own
//! slices and those for several nodes; for a pool of which the node reaches a part, all of its slices.

use std::collections::{BTreeMap, BTreeSet};

use crate::devices::Devices;
use crate::devices::views::{Amounts, PoolId, SlicePlace, SliceView};
use crate::node::NodeView;

/// A pool of devices.
#[derive(Debug)]
pub(super) struct Pool<'a> {
    pub(super) id: &'a PoolId,
    pub(super) state: PoolState,
    /// Slices with devices that the node reaches, by name.
    pub(super) slices: Vec<&'a SliceView>,
    /// Slices with devices that it does not.
    pub(super) others: Vec<&'a SliceView>,
    /// Shared counters by set.
    pub(super) counters: BTreeMap<&'a str, &'a Amounts>,
}

/// Whether a pool can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolState {
    Usable,
    /// Slices are missing: a driver is updating it.
    Incomplete,
    /// Its slices contradict each other.
    Invalid,
}

/// The pools that a node reaches, in order; those with binding conditions come last.
pub(super) fn gather<'a>(devices: &'a Devices, node: &NodeView) -> Vec<Pool<'a>> {
    let mut newest: BTreeMap<&PoolId, Vec<&SliceView>> = BTreeMap::new();
    for slice in devices.slices_for(&node.name).filter(|slice| reaches(slice, node)) {
        let known = newest.entry(&slice.pool).or_default();
        match known.first().map(|first| slice.generation.cmp(&first.generation)) {
            Some(std::cmp::Ordering::Less) => {}
            Some(std::cmp::Ordering::Greater) => *known = vec![slice],
            _ => known.push(slice),
        }
    }
    let pools = newest.into_iter().filter_map(|(id, slices)| Pool::new(devices, id, slices));
    let (last, mut pools): (Vec<_>, Vec<_>) = pools.partition(Pool::has_conditions);
    pools.extend(last);
    pools
}

/// Whether a slice matters on a node: any of its devices is reached, or other slices need its counters.
fn reaches(slice: &SliceView, node: &NodeView) -> bool {
    if !slice.counters.is_empty() {
        return true;
    }
    match &slice.place {
        SlicePlace::Same(place) => place.has(&node.name, &node.labels),
        SlicePlace::PerDevice => slice.devices.iter().any(|it| it.place.has(&node.name, &node.labels)),
        SlicePlace::Unknown => false,
    }
}

impl<'a> Pool<'a> {
    /// `None`: a newer generation has nothing for the node.
    fn new(devices: &'a Devices, id: &'a PoolId, mut reached: Vec<&'a SliceView>) -> Option<Self> {
        let (generation, count) = reached.first().map(|first| (first.generation, first.slices))?;
        let is_all = |slices: usize| i64::try_from(slices) == Ok(count);
        let mut all = Vec::new();
        if !is_all(reached.len()) {
            if devices.slices_of(id).any(|slice| slice.generation > generation) {
                return None;
            }
            all.extend(devices.slices_of(id).filter(|slice| slice.generation == generation));
            if !is_all(all.len()) {
                return Some(Self::unusable(id, PoolState::Incomplete));
            }
        }
        reached.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let names: BTreeSet<_> = reached.iter().map(|slice| &slice.name).collect();
        let others: Vec<_> = all.into_iter().filter(|slice| !names.contains(&slice.name)).collect();
        let (with_counters, slices): (Vec<_>, Vec<_>) =
            reached.iter().copied().partition(|slice| !slice.counters.is_empty());
        let mut counters: BTreeMap<&str, &Amounts> = BTreeMap::new();
        let mut sets = with_counters.iter().flat_map(|slice| &slice.counters);
        let are_unique = sets.all(|(name, amounts)| counters.insert(name, amounts).is_none());
        let mut devices = BTreeSet::new();
        let mut of_slices = slices.iter().flat_map(|slice| &slice.devices);
        let is_valid = of_slices.all(|device| devices.insert(&device.name))
            && are_unique
            && reached.iter().chain(&others).all(|slice| are_counted(slice, &counters));
        match is_valid {
            true => Some(Self { id, state: PoolState::Usable, slices, others, counters }),
            false => Some(Self::unusable(id, PoolState::Invalid)),
        }
    }

    fn unusable(id: &'a PoolId, state: PoolState) -> Self {
        Self { id, state, slices: Vec::new(), others: Vec::new(), counters: BTreeMap::new() }
    }

    fn has_conditions(&self) -> bool {
        self.slices.iter().flat_map(|slice| &slice.devices).any(|device| device.binding_conditions.is_some())
    }
}

/// Whether the counters that the devices of a slice take exist.
fn are_counted(slice: &SliceView, counters: &BTreeMap<&str, &Amounts>) -> bool {
    slice.devices.iter().flat_map(|device| &device.consumes).all(|(set, amounts)| {
        counters.get(set.as_str()).is_some_and(|known| amounts.keys().all(|name| known.contains_key(name)))
    })
}
