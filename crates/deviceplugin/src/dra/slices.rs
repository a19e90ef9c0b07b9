//! The ResourceSlices of a node, and the writes that lead to them.
//!
//! In: devices, the slices that exist. Out: slices to write and to remove. Never: a write where nothing differs, or a
//! pool that is half old and half new under one generation.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{Device, ResourcePool, ResourceSlice, ResourceSliceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt as _;
use xxhash_rust::xxh64::xxh64;

/// The API server's limit of devices in a slice.
pub const MAX_DEVICES: usize = 128;
/// The API server's limit for the name of an object.
const MAX_NAME: usize = 253;

/// The pool of one driver on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The driver's name.
    pub driver: String,
    /// The node's name, which is also the pool's.
    pub node: String,
    /// The UID of the node's object, which owns the slices. A node that registers again has another.
    pub owner: String,
}

/// The writes to make, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Slices to create, or to write over the one of the same name.
    pub write: Vec<ResourceSlice>,
    /// Names of slices to remove.
    pub remove: Vec<String>,
}

impl Plan {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.write.is_empty() && self.remove.is_empty()
    }

    /// Whether a slice is to be created.
    #[must_use]
    pub fn creates(&self) -> bool {
        self.write.iter().any(|slice| slice.metadata.resource_version.is_none())
    }
}

impl Pool {
    /// The slices for these devices, all of one generation.
    #[must_use]
    pub fn slices(&self, devices: &[Device], generation: i64) -> Vec<ResourceSlice> {
        let chunks: Vec<_> = devices.chunks(MAX_DEVICES).collect();
        let count = i64::try_from(chunks.len()).unwrap_or(i64::MAX);
        let slice = |(index, devices): (usize, &&[Device])| ResourceSlice {
            metadata: ObjectMeta {
                name: Some(self.name(index)),
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Node".to_owned(),
                    name: self.node.clone(),
                    uid: self.owner.clone(),
                    controller: Some(true),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            spec: ResourceSliceSpec {
                driver: self.driver.clone(),
                node_name: Some(self.node.clone()),
                pool: ResourcePool { generation, name: self.node.clone(), resource_slice_count: count },
                devices: Some(devices.to_vec()),
                ..ResourceSliceSpec::default()
            },
        };
        chunks.iter().enumerate().map(slice).collect()
    }

    /// The writes that make the slices those of these devices, and no others. `last` is the highest generation ever
    /// seen. Cost: grows with the devices; both lists are compared once.
    #[must_use]
    pub fn plan(&self, devices: &[Device], observed: &BTreeMap<String, ResourceSlice>, last: i64) -> Plan {
        let generation = observed.values().map(|slice| slice.spec.pool.generation).max();
        let wanted = self.slices(devices, generation.unwrap_or(last));
        let same = |wanted: &ResourceSlice| {
            observed.get(&wanted.name_any()).is_some_and(|observed| is_same(wanted, observed))
        };
        if wanted.len() == observed.len() && wanted.iter().all(same) {
            return Plan::default();
        }
        let next = generation.unwrap_or(last).max(last).saturating_add(1);
        let mut write = self.slices(devices, next);
        let mut remove = Vec::new();
        for (name, observed) in observed {
            match write.iter_mut().find(|slice| slice.name_any() == *name) {
                Some(slice) => {
                    slice.metadata.resource_version.clone_from(&observed.metadata.resource_version)
                }
                None => remove.push(name.clone()),
            }
        }
        Plan { write, remove }
    }

    /// The slice's name `<node>-<driver>-<index>`; a node name that is too long is cut, and gets a hash.
    fn name(&self, index: usize) -> String {
        let end = format!("-{}-{index}", self.driver);
        if self.node.len() + end.len() <= MAX_NAME {
            return format!("{}{end}", self.node);
        }
        let hash = format!("{:016x}", xxh64(self.node.as_bytes(), 0));
        let cut: String =
            self.node.chars().take(MAX_NAME.saturating_sub(end.len() + hash.len() + 1)).collect();
        format!("{}-{hash}{end}", cut.trim_end_matches(['-', '.']))
    }
}

/// Whether an existing slice equals the wanted one; other metadata, such as labels, does not matter.
fn is_same(wanted: &ResourceSlice, observed: &ResourceSlice) -> bool {
    wanted.spec == observed.spec && wanted.metadata.owner_references == observed.metadata.owner_references
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Pool {
        Pool { driver: "d.example".to_owned(), node: "node-0".to_owned(), owner: "u".to_owned() }
    }

    fn devices(count: usize) -> Vec<Device> {
        (0..count).map(|index| Device { name: format!("d{index:04}"), ..Device::default() }).collect()
    }

    fn observed(slices: Vec<ResourceSlice>) -> BTreeMap<String, ResourceSlice> {
        let numbered = slices.into_iter().enumerate().map(|(index, mut slice)| {
            slice.metadata.resource_version = Some((100 + index).to_string());
            (slice.name_any(), slice)
        });
        numbered.collect()
    }

    /// Plans from one number of devices to another: the generation that is written, and how many slices are removed.
    fn check(before: usize, after: usize, generation: Option<i64>, removed: usize) {
        let there = observed(pool().slices(&devices(before), 7));
        let plan = pool().plan(&devices(after), &there, 7);
        let written: Vec<_> = plan.write.iter().map(|slice| slice.spec.pool.generation).collect();
        let slices = after.div_ceil(MAX_DEVICES);
        assert_eq!(
            written,
            vec![generation.unwrap_or_default(); if generation.is_some() { slices } else { 0 }]
        );
        assert!(plan.write.iter().all(|slice| slice.spec.pool.resource_slice_count == slices as i64));
        assert_eq!(plan.remove.len(), removed, "{before} to {after}");
        for slice in &plan.write {
            let old = there.get(&slice.name_any()).and_then(|old| old.metadata.resource_version.clone());
            assert_eq!(slice.metadata.resource_version, old);
        }
    }

    #[test]
    fn a_difference_rewrites_the_whole_pool() {
        check(0, 0, None, 0);
        check(5, 5, None, 0);
        check(300, 300, None, 0);
        check(0, 5, Some(8), 0);
        check(5, 6, Some(8), 0);
        check(128, 129, Some(8), 0);
        check(300, 128, Some(8), 2);
        check(5, 0, None, 1);
    }

    #[test]
    fn removed_and_changed_slices_are_written_again() {
        let plan = pool().plan(&devices(5), &BTreeMap::new(), 7);
        assert_eq!(plan.write[0].spec.pool.generation, 8, "never an older one than was seen");
        assert!(plan.creates());
        let mut there = observed(pool().slices(&devices(300), 7));
        there.pop_first();
        assert_eq!(pool().plan(&devices(300), &there, 7).write.len(), 3);
        let mut there = observed(pool().slices(&devices(5), 7));
        there.values_mut().for_each(|slice| slice.metadata.owner_references = None);
        assert_eq!(pool().plan(&devices(5), &there, 7).write.len(), 1);
        let again = Pool { owner: "of another life".to_owned(), ..pool() };
        let plan = again.plan(&devices(5), &observed(pool().slices(&devices(5), 7)), 7);
        assert!(plan.write.len() == 1 && !plan.creates(), "written over");
        let mut there = observed(pool().slices(&devices(5), 7));
        there.values_mut().for_each(|slice| slice.metadata.labels = Some(BTreeMap::default()));
        assert!(pool().plan(&devices(5), &there, 7).is_empty());
        let strange = pool().slices(&devices(5), 9).remove(0);
        let there = BTreeMap::from([("strange".to_owned(), strange)]);
        let plan = pool().plan(&devices(5), &there, 7);
        assert_eq!((plan.write[0].spec.pool.generation, plan.remove), (10, vec!["strange".to_owned()]));
    }

    #[test]
    fn slice_names_fit_the_limit() {
        let long = Pool { node: "n".repeat(253), ..pool() };
        assert_eq!(pool().name(3), "node-0-d.example-3");
        assert!(long.name(3).len() <= MAX_NAME && long.name(3).ends_with("-d.example-3"));
        let other = Pool { node: format!("{}m", "n".repeat(252)), ..pool() };
        assert_ne!(long.name(3), other.name(3));
    }
}
