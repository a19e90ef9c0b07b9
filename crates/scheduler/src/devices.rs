//! Devices of the cluster and the claims for them (Dynamic Resource Allocation).
//!
//! In: changes of ResourceClaims, ResourceSlices and DeviceClasses. Out: lookups for the plugin DynamicResources, the
//! devices that are taken, and which waiting pods a change may help. Never: a verdict, or a write.
//!
//! The allocation of a decision that the API server has not confirmed is *pending*: its devices are taken, and no other
//! pod may have the claim yet (kube-scheduler 1.36 `claimTracker`). Cost: log(objects) and the devices of a claim for a
//! change; slices are found by their node and their pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::pod::Spec;
use crate::volumes::reference::ClaimKey;
use crate::volumes::unlist;

pub mod extended;
pub mod reference;
pub mod selector;
pub mod semver;
pub mod taken;
pub mod views;

use selector::Selector;
use taken::Taken;
use views::claim::{Allocation, ClaimView};
use views::{ClassView, Place, PoolId, SlicePlace, SliceView};

/// A change of an object.
#[derive(Clone, Debug)]
pub enum Change {
    /// A claim is new or has changed.
    Claim(Box<ClaimView>),
    /// A claim is gone.
    ClaimGone(ClaimKey),
    /// A slice is new or has changed.
    Slice(Box<SliceView>),
    /// The slice with this name is gone.
    SliceGone(Arc<str>),
    /// A class is new or has changed.
    Class(Box<ClassView>),
    /// The class with this name is gone.
    ClassGone(Arc<str>),
}

/// The waiting pods that a change may help (kube-scheduler 1.36 `EventsToRegister`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Helped {
    /// None.
    NoPod,
    /// Those with this claim.
    Claim(ClaimKey),
    /// Those with a claim that asks for this class.
    Class(Arc<str>),
    /// All with claims.
    All,
}

/// The most selectors that are remembered before those that no object has are forgotten.
const MAX_SELECTORS: usize = 1_024;

/// The objects, and what decisions assume of them.
#[derive(Debug, Default)]
pub struct Devices {
    claims: BTreeMap<ClaimKey, ClaimView>,
    slices: BTreeMap<Arc<str>, SliceView>,
    classes: BTreeMap<Arc<str>, ClassView>,
    /// The classes behind extended resources.
    classes_by_resource: extended::ClassesByResource,
    /// Claims made for extended resources.
    made: extended::ExtendedClaims,
    /// Names of slices for one node.
    of_node: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Names of all others.
    of_nodes: BTreeSet<Arc<str>>,
    /// Names of slices by their pool.
    of_pool: BTreeMap<PoolId, BTreeSet<Arc<str>>>,
    /// Allocations that are not confirmed.
    pending: BTreeMap<ClaimKey, Arc<Allocation>>,
    /// Versions of claims that we wrote and the watch has not shown.
    written: BTreeMap<ClaimKey, u64>,
    taken: Taken,
    /// Selectors in use, so that equal ones are compiled once.
    selectors: BTreeMap<Arc<str>, Arc<Selector>>,
}

// === changes ===

impl Devices {
    /// Takes a change in. Returns which waiting pods it may help.
    pub fn apply(&mut self, change: Change) -> Helped {
        match change {
            Change::Claim(claim) => self.claim_changed(*claim),
            Change::ClaimGone(key) => {
                let was_allocated = self.allocation(&key).is_some();
                self.written.remove(&key);
                let mut gone = None;
                self.retake(&key, |devices| {
                    gone = devices.claims.remove(&key);
                    devices.pending.remove(&key);
                });
                let was_made = gone.is_some_and(|gone| self.unmade(&gone));
                if was_allocated || was_made { Helped::All } else { Helped::NoPod }
            }
            Change::Slice(slice) => self.slice_changed(*slice),
            Change::SliceGone(name) => {
                self.remove_slice(&name);
                // A pool may be complete without it.
                Helped::All
            }
            Change::Class(mut class) => {
                class.selectors.iter_mut().flatten().for_each(|selector| self.share(selector));
                let name = Arc::clone(&class.name);
                let is_other = self.classes.get(&name) != Some(&*class);
                let before = self.classes.remove(&name);
                self.rename(before.as_ref(), Some(&class));
                self.classes.insert(Arc::clone(&name), *class);
                if is_other { Helped::Class(name) } else { Helped::NoPod }
            }
            Change::ClassGone(name) => {
                let gone = self.classes.remove(&name);
                self.rename(gone.as_ref(), None);
                Helped::NoPod
            }
        }
    }

    fn claim_changed(&mut self, mut claim: ClaimView) -> Helped {
        let key = claim.key.clone();
        let before = self.claims.get(&key);
        let is_same = before.is_some_and(|before| before.uid == claim.uid);
        match self.written.get(&key) {
            // The watch is behind our own write.
            Some(version) if is_same && claim.version < *version => return Helped::NoPod,
            _ => self.written.remove(&key),
        };
        let was_allocated = before.is_some_and(|before| before.allocation.is_some());
        let says = |claim: &ClaimView| {
            (claim.allocation.clone(), claim.reserved_for.clone(), claim.readiness.clone(), claim.is_leaving)
        };
        let helped = match before.filter(|_| is_same) {
            _ if was_allocated && claim.allocation.is_none() => Helped::All,
            Some(before) if says(before) == says(&claim) => Helped::NoPod,
            _ => Helped::Claim(key.clone()),
        };
        claim.selectors_mut().for_each(|selector| self.share(selector));
        self.retake(&key, |devices| {
            if !is_same {
                devices.pending.remove(&key);
            }
            devices.claims.insert(key.clone(), claim);
        });
        if let Some(made) = self.claims.get(&key).filter(|claim| claim.is_extended).cloned() {
            self.made(&made);
        }
        helped
    }

    fn slice_changed(&mut self, slice: SliceView) -> Helped {
        let name = Arc::clone(&slice.name);
        if self.slices.get(&name) == Some(&slice) {
            return Helped::NoPod;
        }
        self.remove_slice(&name);
        match only_node(&slice) {
            Some(node) => self.of_node.entry(Arc::clone(node)).or_default().insert(Arc::clone(&name)),
            None => self.of_nodes.insert(Arc::clone(&name)),
        };
        self.of_pool.entry(slice.pool.clone()).or_default().insert(Arc::clone(&name));
        self.slices.insert(name, slice);
        Helped::All
    }

    fn remove_slice(&mut self, name: &Arc<str>) {
        let Some(gone) = self.slices.remove(name) else { return };
        if let Some(node) = only_node(&gone) {
            unlist(&mut self.of_node, node, name);
        }
        self.of_nodes.remove(name);
        unlist(&mut self.of_pool, &gone.pool, name);
    }

    /// Replaces a selector by the equal one that is known.
    fn share(&mut self, selector: &mut Arc<Selector>) {
        if let Some(known) = self.selectors.get(selector.text()) {
            *selector = Arc::clone(known);
            return;
        }
        if self.selectors.len() >= MAX_SELECTORS {
            self.selectors.retain(|_, known| Arc::strong_count(known) > 1);
        }
        self.selectors.insert(Arc::clone(selector.text()), Arc::clone(selector));
    }

    /// Changes a claim, with the devices that it takes.
    fn retake(&mut self, key: &ClaimKey, change: impl FnOnce(&mut Self)) {
        if let Some(allocation) = self.allocation(key).cloned() {
            self.taken.remove(&allocation);
        }
        change(self);
        if let Some(allocation) = self.allocation(key).cloned() {
            self.taken.add(&allocation);
        }
    }
}

/// The only node of a slice. Counters are for all slices of the pool.
fn only_node(slice: &SliceView) -> Option<&Arc<str>> {
    match &slice.place {
        SlicePlace::Same(Place::Node(node)) if slice.counters.is_empty() => Some(node),
        _ => None,
    }
}

// === allocations of decisions ===

impl Devices {
    /// A claim gets these devices, which are to be written.
    pub(crate) fn assume(&mut self, key: &ClaimKey, allocation: Arc<Allocation>) {
        self.retake(key, |devices| {
            devices.pending.insert(key.clone(), allocation);
        });
    }

    /// Takes [`Self::assume`] back. Returns which waiting pods that may help.
    pub(crate) fn unassume(&mut self, key: &ClaimKey) -> Helped {
        let mut was_pending = false;
        self.retake(key, |devices| was_pending = devices.pending.remove(key).is_some());
        if was_pending { Helped::All } else { Helped::NoPod }
    }

    /// A claim is written, and looks like this now.
    pub(crate) fn written(&mut self, claim: ClaimView) -> Helped {
        let (key, version) = (claim.key.clone(), claim.version);
        self.made(&claim);
        if self.claims.get(&key).is_none_or(|known| known.version > version) {
            // The watch was faster, or has not shown yet what was made.
            return self.unassume(&key);
        }
        let helped = self.claim_changed(claim);
        self.written.insert(key.clone(), version);
        self.retake(&key, |devices| {
            devices.pending.remove(&key);
        });
        helped
    }
}

// === lookups ===

impl Devices {
    /// A claim.
    #[must_use]
    pub fn claim(&self, key: &ClaimKey) -> Option<&ClaimView> {
        self.claims.get(key)
    }

    /// A class.
    #[must_use]
    pub fn class(&self, name: &str) -> Option<&ClassView> {
        self.classes.get(name)
    }

    /// Whether a claim gets devices that are not written yet.
    #[must_use]
    pub fn is_pending(&self, key: &ClaimKey) -> bool {
        self.pending.contains_key(key)
    }

    /// The devices that claims have.
    #[must_use]
    pub fn taken(&self) -> &Taken {
        &self.taken
    }

    /// Slices that may be for a node: its own, and those for several.
    pub fn slices_for(&self, node: &str) -> impl Iterator<Item = &SliceView> + '_ {
        let own = self.of_node.get(node).into_iter().flatten();
        own.chain(&self.of_nodes).filter_map(|name| self.slices.get(name))
    }

    /// The slices of a pool, by name.
    pub fn slices_of(&self, pool: &PoolId) -> impl Iterator<Item = &SliceView> + '_ {
        self.of_pool.get(pool).into_iter().flatten().filter_map(|name| self.slices.get(name))
    }

    /// The devices of a claim, also those that are not written yet.
    fn allocation(&self, key: &ClaimKey) -> Option<&Arc<Allocation>> {
        let known = self.claims.get(key).and_then(|claim| claim.allocation.as_ref());
        known.or_else(|| self.pending.get(key))
    }

    /// Whether a change may help pods with this spec. Cost: the requests of its claims.
    #[must_use]
    pub fn may_help(&self, helped: &Helped, spec: &Spec) -> bool {
        let mut keys = spec.claims.iter().filter_map(|claim| claim.key());
        match helped {
            Helped::NoPod => false,
            Helped::All => self.concern(spec),
            Helped::Claim(key) => keys.any(|own| own == key),
            Helped::Class(class) => {
                let asks = |claim: &ClaimView| claim.asks().any(|ask| ask.class == *class);
                let is_behind = |resource| self.class_behind(resource).is_some_and(|it| it.name == *class);
                keys.any(|key| self.claim(key).is_some_and(asks))
                    || self.delegated(&spec.needs).into_iter().any(is_behind)
            }
        }
    }
}

#[cfg(test)]
mod tests;
