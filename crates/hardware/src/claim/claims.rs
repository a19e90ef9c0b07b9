//! The table of claims: DeviceConfigs and nodes, matched by labels.
//!
//! In: changes of DeviceConfigs and nodes. Out: the [`Assignment`] of each node. Never: a result that depends on the
//! order of changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Claimant, Id, Labels, Selector};
use crate::index::Index;

/// The assignment of a node to DeviceConfigs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// No claim, and no DeviceConfig asks for the node.
    Free,
    /// Claimed by a DeviceConfig that matches, or whose selector is unknown.
    Held(Id),
    /// Claimed by a DeviceConfig that no longer matches, or is being deleted. Released once no pod uses the devices.
    Ending {
        /// The DeviceConfig with the claim.
        owner: Id,
        /// The DeviceConfig that gets the node afterwards.
        next: Option<Id>,
        /// The owner is being deleted.
        deleting: bool,
    },
    /// No claim or an unknown one; this DeviceConfig gets the node.
    Claimable(Id),
    /// An unknown claim, and no DeviceConfig asks for the node.
    Orphaned,
}

/// All DeviceConfigs and nodes, with the claims on nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    label: String,
    pub(super) configs: BTreeMap<Id, Claimant>,
    owners: BTreeMap<String, Id>,
    /// DeviceConfigs by [`index_key`].
    by_label: Index<String, Id>,
    pub(super) nodes: BTreeMap<Arc<str>, NodeClaim>,
    matching: Index<Id, Arc<str>>,
    claimed: Index<Arc<str>, Arc<str>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeClaim {
    /// DeviceConfigs whose selector matches.
    pub(super) matched: BTreeSet<Id>,
    claim: Option<Arc<str>>,
}

impl Assignment {
    /// The DeviceConfig that has the node in the end.
    #[must_use]
    pub fn final_owner(self) -> Option<Id> {
        match self {
            Self::Held(owner) | Self::Claimable(owner) => Some(owner),
            Self::Ending { owner, next, .. } => next.or(Some(owner)),
            Self::Free | Self::Orphaned => None,
        }
    }
}

impl Claims {
    /// An empty table; claims are values of `label`.
    #[must_use]
    pub fn new(label: &str) -> Self {
        Self { label: label.to_owned(), ..Self::default() }
    }

    /// Adds or replaces a node. Returns the affected DeviceConfigs: those that match or own it, before or now.
    pub fn put_node(&mut self, name: &Arc<str>, labels: &Labels) -> BTreeSet<Id> {
        let matched = self.matching_configs(labels);
        let node = NodeClaim { matched, claim: labels.get(self.label.as_str()).cloned() };
        if self.nodes.get(name) == Some(&node) {
            return BTreeSet::new();
        }
        let mut affected = self.remove_node(name);
        for id in &node.matched {
            self.matching.insert(id.clone(), Arc::clone(name));
        }
        if let Some(claim) = &node.claim {
            self.claimed.insert(Arc::clone(claim), Arc::clone(name));
        }
        self.nodes.insert(Arc::clone(name), node);
        affected.extend(self.affected(name));
        affected
    }

    /// Removes a node. Returns the DeviceConfigs that matched or owned it.
    pub fn remove_node(&mut self, name: &Arc<str>) -> BTreeSet<Id> {
        let affected = self.affected(name);
        let Some(node) = self.nodes.remove(name) else { return affected };
        for id in &node.matched {
            self.matching.remove(id, name);
        }
        if let Some(claim) = &node.claim {
            self.claimed.remove(claim, name);
        }
        affected
    }

    /// Adds or replaces a DeviceConfig; `nodes` are all nodes. Returns the affected DeviceConfigs: itself, and those
    /// that share a node with it or could, before or now.
    pub fn put<'a>(
        &mut self,
        claimant: Claimant,
        nodes: impl Iterator<Item = (&'a Arc<str>, &'a Labels)>,
    ) -> BTreeSet<Id> {
        let id = claimant.id.clone();
        if self.configs.get(&id) == Some(&claimant) {
            return BTreeSet::from([id]);
        }
        let mut affected = self.remove(&id);
        if let Some(key) = index_key(&claimant.selector) {
            self.by_label.insert(key, id.clone());
        }
        for (name, _) in nodes.filter(|(_, labels)| claimant.selector.matches(labels)) {
            self.nodes.entry(Arc::clone(name)).or_default().matched.insert(id.clone());
            self.matching.insert(id.clone(), Arc::clone(name));
        }
        self.owners.insert(claimant.claim.clone(), id.clone());
        self.configs.insert(id.clone(), claimant);
        affected.extend(self.related(&id));
        affected.insert(id);
        affected
    }

    /// Removes a DeviceConfig. Returns those that shared a node with it or could.
    pub fn remove(&mut self, id: &Id) -> BTreeSet<Id> {
        let affected = self.related(id);
        let Some(claimant) = self.configs.remove(id) else { return BTreeSet::new() };
        for name in self.matching.take(id) {
            if let Some(node) = self.nodes.get_mut(&name) {
                node.matched.remove(id);
            }
        }
        if self.owner(&claimant.claim) == Some(id) {
            self.owners.remove(&claimant.claim);
        }
        if let Some(key) = index_key(&claimant.selector) {
            self.by_label.remove(&key, id);
        }
        affected
    }

    /// The assignment of a node.
    #[must_use]
    pub fn assignment(&self, node: &str) -> Assignment {
        let Some(node) = self.nodes.get(node) else { return Assignment::Free };
        let candidates = node.matched.iter().filter_map(|id| self.configs.get(id));
        let oldest = candidates.filter(|one| !one.deleting).min_by_key(|one| (one.created, &one.id));
        let next = oldest.map(|claimant| claimant.id.clone());
        let Some(claim) = &node.claim else { return next.map_or(Assignment::Free, Assignment::Claimable) };
        let Some(owner) = self.owner(claim).and_then(|id| self.configs.get(id)) else {
            return next.map_or(Assignment::Orphaned, Assignment::Claimable);
        };
        let deleting = owner.deleting;
        let is_matched = owner.selector == Selector::None || node.matched.contains(&owner.id);
        match owner.id.clone() {
            owner if is_matched && !deleting => Assignment::Held(owner),
            owner => Assignment::Ending { owner, next, deleting },
        }
    }

    /// The claim that a node has.
    #[must_use]
    pub fn claim_on(&self, node: &str) -> Option<&str> {
        self.nodes.get(node)?.claim.as_deref()
    }

    /// The nodes that match a DeviceConfig, sorted.
    pub fn matching(&self, id: &Id) -> impl Iterator<Item = &Arc<str>> + use<'_> {
        self.matching.of(id)
    }

    /// The nodes with this claim, sorted.
    pub fn claimed(&self, claim: &str) -> impl Iterator<Item = &Arc<str>> + use<'_> {
        self.claimed.of(claim)
    }

    /// Claims on nodes that belong to no known DeviceConfig, sorted.
    pub fn orphaned(&self) -> impl Iterator<Item = &Arc<str>> + use<'_> {
        self.claimed.keys().filter(|claim| self.owner(claim).is_none())
    }

    /// The DeviceConfig with this claim.
    #[must_use]
    pub fn owner(&self, claim: &str) -> Option<&Id> {
        self.owners.get(claim)
    }

    /// The DeviceConfig whose claim a node has.
    #[must_use]
    pub fn owner_of_node(&self, node: &str) -> Option<&Id> {
        self.owner(self.claim_on(node)?)
    }

    /// The DeviceConfigs that match or own a node.
    #[must_use]
    pub fn affected(&self, node: &str) -> BTreeSet<Id> {
        let matched = self.nodes.get(node).into_iter().flat_map(|node| &node.matched);
        matched.chain(self.owner_of_node(node)).cloned().collect()
    }

    fn matching_configs(&self, labels: &Labels) -> BTreeSet<Id> {
        let keys = labels.iter().map(|(key, value)| format!("{key}={value}"));
        let candidates = keys.chain([String::new()]).flat_map(|key| self.by_label.of(&key));
        let matches =
            |id: &&Id| self.configs.get(*id).is_some_and(|claimant| claimant.selector.matches(labels));
        candidates.filter(matches).cloned().collect()
    }

    /// The other DeviceConfigs that share a node with this one, or could.
    fn related(&self, id: &Id) -> BTreeSet<Id> {
        let claim = self.configs.get(id).map_or("", |claimant| claimant.claim.as_str());
        let nodes = self.matching(id).chain(self.claimed(claim));
        let mut related: BTreeSet<Id> = nodes.flat_map(|node| self.affected(node)).collect();
        related.extend(self.may_overlap(id).cloned());
        related.remove(id);
        related
    }
}

/// One label of a selector as `key=value`; empty for all nodes.
fn index_key(selector: &Selector) -> Option<String> {
    match selector {
        Selector::None => None,
        Selector::All => Some(String::new()),
        Selector::Labels(labels) => {
            Some(labels.first_key_value().map(|(key, value)| format!("{key}={value}")).unwrap_or_default())
        }
    }
}
