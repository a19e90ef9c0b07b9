//! Volumes of the cluster, as far as they decide where pods can run.
//!
//! In: changes of claims, PersistentVolumes, classes, CSINodes, drivers, capacities and attachments. Out: lookups for
//! the volume plugins, and which waiting pods a change may help. Never: a verdict, or a write.
//!
//! A volume or claim of a decision that the API server has not confirmed is *assumed*: lookups show it as it will be,
//! until a newer version of the object arrives (kube-scheduler 1.36 `passiveAssumeCache`). Cost: log(objects) for a
//! change; volumes are found by their class, and capacities by theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::pod::Spec;

pub mod migration;
pub mod reference;
pub mod views;

use reference::{ClaimKey, VolumeRef};
use views::{
    AttachmentView, CapacityView, ClaimRef, ClaimView, ClassView, CsiNodeView, DriverView, VolumeView,
};

/// A change of an object.
#[derive(Clone, Debug)]
pub enum Change {
    /// A claim is new or has changed.
    Claim(ClaimView),
    /// A claim is gone.
    ClaimGone(ClaimKey),
    /// A PersistentVolume is new or has changed.
    Volume(Box<VolumeView>),
    /// The PersistentVolume with this name is gone.
    VolumeGone(Arc<str>),
    /// A StorageClass is new or has changed.
    Class(ClassView),
    /// The StorageClass with this name is gone.
    ClassGone(Arc<str>),
    /// A CSINode is new or has changed.
    CsiNode(CsiNodeView),
    /// The CSINode with this name is gone.
    CsiNodeGone(Arc<str>),
    /// A CSIDriver is new or has changed.
    Driver(DriverView),
    /// The CSIDriver with this name is gone.
    DriverGone(Arc<str>),
    /// A CSIStorageCapacity is new or has changed.
    Capacity(CapacityView),
    /// The CSIStorageCapacity with this namespace and name is gone.
    CapacityGone(Arc<str>, Arc<str>),
    /// A VolumeAttachment is new or has changed.
    Attachment(AttachmentView),
    /// The VolumeAttachment with this name is gone.
    AttachmentGone(Arc<str>),
}

/// The waiting pods that a change may help (kube-scheduler 1.36 `EventsToRegister` of the four plugins).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Helped {
    /// None.
    NoPod,
    /// Those with this claim.
    Claim(ClaimKey),
    /// Those with a claim of this class that has no volume yet.
    Class(Arc<str>),
    /// Those with a claim that has this volume, or of its class and without one.
    Volume(Arc<str>, Arc<str>),
    /// Those with a claim without a volume that this driver provisions.
    Driver(Arc<str>),
    /// All with volumes.
    All,
}

/// Namespace and name of a CSIStorageCapacity.
pub type CapacityKey = (Arc<str>, Arc<str>);

/// The objects, and what decisions assume of them.
#[derive(Debug, Default)]
pub struct Volumes {
    claims: BTreeMap<ClaimKey, ClaimView>,
    volumes: BTreeMap<Arc<str>, VolumeView>,
    /// Names of volumes by their class.
    of_class: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    classes: BTreeMap<Arc<str>, ClassView>,
    csi_nodes: BTreeMap<Arc<str>, CsiNodeView>,
    drivers: BTreeMap<Arc<str>, DriverView>,
    capacities: BTreeMap<CapacityKey, CapacityView>,
    /// Keys of capacities by their class.
    capacities_of: BTreeMap<Arc<str>, BTreeSet<CapacityKey>>,
    attachments: BTreeMap<Arc<str>, AttachmentView>,
    /// Names of attachments by their node.
    attached_to: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Nodes selected for claims, each with the version of the claim.
    selected: BTreeMap<ClaimKey, (u64, Arc<str>)>,
    /// Claims chosen for volumes, each with the version of the volume.
    chosen: BTreeMap<Arc<str>, (u64, ClaimRef)>,
    /// Claims of pods on nodes, with the number of those pods.
    used: BTreeMap<ClaimKey, usize>,
}

// === changes ===

impl Volumes {
    /// Takes a change in. Returns which waiting pods it may help.
    pub fn apply(&mut self, change: Change) -> Helped {
        match change {
            Change::Claim(claim) => self.claim_changed(claim),
            Change::ClaimGone(key) => {
                self.claims.remove(&key);
                self.selected.remove(&key);
                Helped::NoPod
            }
            Change::Volume(volume) => self.volume_changed(*volume),
            Change::VolumeGone(name) => {
                if let Some(gone) = self.volumes.remove(&name) {
                    unlist(&mut self.of_class, &gone.class, &name);
                }
                self.chosen.remove(&name);
                Helped::NoPod
            }
            Change::Class(class) => {
                let name = Arc::clone(&class.name);
                let before = self.classes.insert(Arc::clone(&name), class);
                let is_other = before.as_ref() != self.classes.get(&name);
                if is_other { Helped::Class(name) } else { Helped::NoPod }
            }
            Change::ClassGone(name) => {
                self.classes.remove(&name);
                Helped::NoPod
            }
            Change::CsiNode(node) => {
                let before = self.csi_nodes.get(&node.name);
                let helps = before.is_none_or(|before| node.may_take_more_than(before));
                self.csi_nodes.insert(Arc::clone(&node.name), node);
                if helps { Helped::All } else { Helped::NoPod }
            }
            Change::CsiNodeGone(name) => {
                self.csi_nodes.remove(&name);
                Helped::NoPod
            }
            Change::Driver(driver) => {
                let before = self.drivers.insert(Arc::clone(&driver.name), driver.clone());
                let helps = before.is_some_and(|before| before.tracks_capacity) && !driver.tracks_capacity;
                if helps { Helped::Driver(driver.name) } else { Helped::NoPod }
            }
            Change::DriverGone(name) => {
                self.drivers.remove(&name);
                Helped::Driver(name)
            }
            Change::Capacity(capacity) => self.capacity_changed(capacity),
            Change::CapacityGone(namespace, name) => {
                self.remove_capacity(&(namespace, name));
                Helped::NoPod
            }
            Change::Attachment(attachment) => {
                self.remove_attachment(&Arc::clone(&attachment.name));
                let on_node = self.attached_to.entry(Arc::clone(&attachment.node)).or_default();
                on_node.insert(Arc::clone(&attachment.name));
                self.attachments.insert(Arc::clone(&attachment.name), attachment);
                Helped::NoPod
            }
            Change::AttachmentGone(name) => {
                if self.remove_attachment(&name) {
                    Helped::All
                } else {
                    Helped::NoPod
                }
            }
        }
    }

    fn claim_changed(&mut self, claim: ClaimView) -> Helped {
        let key = claim.key.clone();
        if self.selected.get(&key).is_some_and(|(version, _)| *version != claim.version) {
            self.selected.remove(&key);
        }
        let before = self.claims.insert(key.clone(), claim);
        let is_other = self.claims.get(&key).is_some_and(|claim| !before.is_some_and(|b| b.says(claim)));
        if is_other { Helped::Claim(key) } else { Helped::NoPod }
    }

    fn volume_changed(&mut self, volume: VolumeView) -> Helped {
        let (name, class) = (Arc::clone(&volume.name), Arc::clone(&volume.class));
        if self.chosen.get(&name).is_some_and(|(version, _)| *version != volume.version) {
            self.chosen.remove(&name);
        }
        let before = self.volumes.insert(Arc::clone(&name), volume);
        if let Some(before) = before.as_ref().filter(|before| before.class != class) {
            unlist(&mut self.of_class, &before.class, &name);
        }
        self.of_class.entry(Arc::clone(&class)).or_default().insert(Arc::clone(&name));
        let is_other = self.volumes.get(&name).is_some_and(|volume| !before.is_some_and(|b| b.says(volume)));
        if is_other { Helped::Volume(name, class) } else { Helped::NoPod }
    }

    fn capacity_changed(&mut self, capacity: CapacityView) -> Helped {
        let (key, class) = (capacity.key(), Arc::clone(&capacity.class));
        let before = self.capacities.get(&key).map(|before| before.limit);
        let helps = before.is_none_or(|before| capacity.limit > before);
        self.remove_capacity(&key);
        self.capacities_of.entry(Arc::clone(&class)).or_default().insert(key.clone());
        self.capacities.insert(key, capacity);
        if helps { Helped::Class(class) } else { Helped::NoPod }
    }

    fn remove_capacity(&mut self, key: &CapacityKey) {
        if let Some(gone) = self.capacities.remove(key) {
            unlist(&mut self.capacities_of, &gone.class, key);
        }
    }

    fn remove_attachment(&mut self, name: &Arc<str>) -> bool {
        let Some(gone) = self.attachments.remove(name) else { return false };
        unlist(&mut self.attached_to, &gone.node, name);
        true
    }

    /// Pods on nodes use these claims from now on.
    pub(crate) fn add_used(&mut self, volumes: &[VolumeRef]) {
        for key in volumes.iter().filter_map(VolumeRef::shared_claim) {
            *self.used.entry(key.clone()).or_default() += 1;
        }
    }

    /// Takes [`Self::add_used`] back.
    pub(crate) fn remove_used(&mut self, volumes: &[VolumeRef]) {
        for key in volumes.iter().filter_map(VolumeRef::shared_claim) {
            if let Some(pods) = self.used.get_mut(key) {
                *pods = pods.saturating_sub(1);
                if *pods == 0 {
                    self.used.remove(key);
                }
            }
        }
    }

    /// Assumes that a volume is for a claim, and has the version that it has now.
    pub(crate) fn choose(&mut self, volume: &Arc<str>, claim: ClaimRef) {
        if let Some(view) = self.volumes.get(volume) {
            self.chosen.insert(Arc::clone(volume), (view.version, claim));
        }
    }

    /// Assumes that a node is selected for a claim.
    pub(crate) fn select(&mut self, claim: &ClaimKey, node: &Arc<str>) {
        if let Some(view) = self.claims.get(claim) {
            self.selected.insert(claim.clone(), (view.version, Arc::clone(node)));
        }
    }

    /// Takes [`Self::choose`] back, if the volume still has this version.
    pub(crate) fn unchoose(&mut self, volume: &Arc<str>, version: u64) -> Helped {
        if self.chosen.get(volume).is_none_or(|(of, _)| *of != version) {
            return Helped::NoPod;
        }
        self.chosen.remove(volume);
        let class = self.volumes.get(volume).map(|view| Arc::clone(&view.class)).unwrap_or_default();
        Helped::Volume(Arc::clone(volume), class)
    }

    /// Takes [`Self::select`] back, if the claim still has this version.
    pub(crate) fn unselect(&mut self, claim: &ClaimKey, version: u64) -> Helped {
        if self.selected.get(claim).is_none_or(|(of, _)| *of != version) {
            return Helped::NoPod;
        }
        self.selected.remove(claim);
        Helped::Claim(claim.clone())
    }
}

/// Takes a value off the list of a key; no key has an empty list.
pub(crate) fn unlist<K: Ord, V: Ord>(index: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(values) = index.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            index.remove(key);
        }
    }
}

// === lookups ===

impl Volumes {
    /// A claim, as the API server has it.
    #[must_use]
    pub fn claim(&self, key: &ClaimKey) -> Option<&ClaimView> {
        self.claims.get(key)
    }

    /// The node selected for a claim that is to be provisioned, also one that is assumed.
    #[must_use]
    pub fn selected_node<'a>(&'a self, claim: &'a ClaimView) -> Option<&'a Arc<str>> {
        self.selected.get(&claim.key).map(|(_, node)| node).or(claim.selected_node.as_ref())
    }

    /// A PersistentVolume, as the API server has it.
    #[must_use]
    pub fn volume(&self, name: &str) -> Option<&VolumeView> {
        self.volumes.get(name)
    }

    /// The claim of a volume, also one that is assumed.
    #[must_use]
    pub fn claim_of<'a>(&'a self, volume: &'a VolumeView) -> Option<&'a ClaimRef> {
        self.chosen.get(&volume.name).map(|(_, claim)| claim).or(volume.claim.as_ref())
    }

    /// The PersistentVolumes of a class, by name.
    pub fn of_class(&self, class: &str) -> impl Iterator<Item = &VolumeView> + '_ {
        self.of_class.get(class).into_iter().flatten().filter_map(|name| self.volumes.get(name))
    }

    /// A StorageClass.
    #[must_use]
    pub fn class(&self, name: &str) -> Option<&ClassView> {
        self.classes.get(name)
    }

    /// The CSINode of a node.
    #[must_use]
    pub fn csi_node(&self, node: &str) -> Option<&CsiNodeView> {
        self.csi_nodes.get(node)
    }

    /// Whether a driver tells capacities.
    #[must_use]
    pub fn tracks_capacity(&self, driver: &str) -> bool {
        self.drivers.get(driver).is_some_and(|driver| driver.tracks_capacity)
    }

    /// The capacities of a class.
    pub fn capacities(&self, class: &str) -> impl Iterator<Item = &CapacityView> + '_ {
        self.capacities_of.get(class).into_iter().flatten().filter_map(|key| self.capacities.get(key))
    }

    /// The volumes attached to a node, or about to be.
    pub fn attachments(&self, node: &str) -> impl Iterator<Item = &AttachmentView> + '_ {
        let names = self.attached_to.get(node).into_iter().flatten();
        names.filter_map(|name| self.attachments.get(name))
    }

    /// Whether pods on nodes use a claim.
    #[must_use]
    pub fn is_used(&self, claim: &ClaimKey) -> bool {
        self.used.contains_key(claim)
    }

    /// Whether a change may help pods with this spec. Cost: the volumes of the spec.
    #[must_use]
    pub fn may_help(&self, helped: &Helped, spec: &Spec) -> bool {
        let mut claims = spec.volumes.iter().filter_map(VolumeRef::claim);
        let unbound = |claim: &ClaimView, class: &str| claim.volume.is_none() && *claim.class == *class;
        match helped {
            Helped::NoPod => false,
            Helped::All => !spec.volumes.is_empty(),
            Helped::Claim(key) => claims.any(|claim| claim == key),
            Helped::Class(class) => claims.any(|key| self.claim(key).is_some_and(|it| unbound(it, class))),
            Helped::Volume(name, class) => claims.any(|key| {
                self.claim(key).is_some_and(|it| it.volume.as_ref() == Some(name) || unbound(it, class))
            }),
            Helped::Driver(driver) => claims.any(|key| {
                let claim = self.claim(key).filter(|claim| claim.volume.is_none());
                let class = claim.and_then(|claim| self.class(&claim.class));
                class.is_some_and(|class| class.provisioner == *driver)
            }),
        }
    }
}

#[cfg(test)]
mod tests;
