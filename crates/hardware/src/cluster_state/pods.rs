//! Pods that may have a device.
//!
//! In: pods, one by one. Out: [`Pods`] by name and by node. Never: a pod that cannot have a device.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::claim::Id;
use crate::claims_in_use::ClaimsInUse;

/// A pod that may have a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Where it runs.
    pub node: Arc<str>,
    /// What resource claims know it by.
    pub uid: Box<str>,
    /// Which resources of others than Kubernetes it asks for, sorted.
    pub resources: Vec<Arc<str>>,
    /// It is being deleted.
    pub leaving: bool,
}

/// Pods, by name and by node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    pub(super) all: BTreeMap<Id, Pod>,
    on: BTreeMap<Arc<str>, BTreeSet<Id>>,
}

impl Pod {
    /// It has devices under one of these names: it asks for a resource of this name, or was given a device of such a
    /// driver by a claim.
    #[must_use]
    pub fn uses(&self, names: &BTreeSet<String>, claims: Option<&ClaimsInUse>) -> bool {
        let given = claims.into_iter().flat_map(|claims| claims.of(&self.uid));
        let drivers = given.flat_map(|(_, holding)| &holding.drivers);
        self.resources.iter().chain(drivers).any(|name| names.contains(&**name))
    }
}

impl Pods {
    /// The pods on a node, sorted.
    pub fn on(&self, node: &str) -> impl Iterator<Item = (&Id, &Pod)> + use<'_> {
        let ids = self.on.get(node).into_iter().flatten();
        ids.filter_map(|id| Some((id, self.all.get(id)?)))
    }

    /// A pod is like this, or of no interest. Says on which nodes that makes a difference.
    pub fn put(&mut self, id: Id, pod: Option<Pod>) -> BTreeSet<Arc<str>> {
        if self.all.get(&id) == pod.as_ref() {
            return BTreeSet::new();
        }
        let mut nodes = BTreeSet::new();
        if let Some(before) = self.all.remove(&id) {
            if let Some(ids) = self.on.get_mut(&before.node) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.on.remove(&before.node);
                }
            }
            nodes.insert(before.node);
        }
        if let Some(pod) = pod {
            nodes.insert(Arc::clone(&pod.node));
            self.on.entry(Arc::clone(&pod.node)).or_default().insert(id.clone());
            self.all.insert(id, pod);
        }
        nodes
    }
}
