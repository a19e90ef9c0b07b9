//! Pods that may have a device.
//!
//! In: pods, one by one. Out: [`Pods`] by name and by node. Never: a pod that cannot have a device.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::claim::Id;
use crate::claims_in_use::ClaimsInUse;
use crate::index::Index;

/// A pod that may have a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The node.
    pub node: Arc<str>,
    /// The UID, by which resource claims name the pod.
    pub uid: Box<str>,
    /// The extended resources that it requests, sorted.
    pub resources: Vec<Arc<str>>,
    /// Deletion has begun.
    pub terminating: bool,
    /// After an eviction its controller would make it again on this node, in spite of the cordon taint.
    pub returns: bool,
}

/// Pods, by name and by node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    pub(super) all: BTreeMap<Id, Pod>,
    by_node: Index<Arc<str>, Id>,
}

impl Pod {
    /// Whether the pod has devices under one of these names: by a request, or by a resource claim of such a driver.
    #[must_use]
    pub fn uses(&self, names: &BTreeSet<String>, claims: Option<&ClaimsInUse>) -> bool {
        let claims = claims.into_iter().flat_map(|claims| claims.of(&self.uid));
        let drivers = claims.flat_map(|(_, claim)| &claim.drivers);
        self.resources.iter().chain(drivers).any(|name| names.contains(&**name))
    }
}

impl Pods {
    /// The pods on a node, sorted.
    pub fn on(&self, node: &str) -> impl Iterator<Item = (&Id, &Pod)> + use<'_> {
        self.by_node.of(node).filter_map(|id| Some((id, self.all.get(id)?)))
    }

    /// Replaces a pod; `None` removes it. Returns the affected nodes.
    pub fn put(&mut self, id: Id, pod: Option<Pod>) -> BTreeSet<Arc<str>> {
        if self.all.get(&id) == pod.as_ref() {
            return BTreeSet::new();
        }
        let before = self.all.remove(&id);
        if let Some(before) = &before {
            self.by_node.remove(&before.node, &id);
        }
        if let Some(pod) = &pod {
            self.by_node.insert(Arc::clone(&pod.node), id.clone());
        }
        let nodes = before.iter().chain(&pod).map(|pod| Arc::clone(&pod.node)).collect();
        self.all.extend(pod.map(|pod| (id, pod)));
        nodes
    }
}
