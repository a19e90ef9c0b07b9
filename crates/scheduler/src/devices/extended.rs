//! Extended resources that devices serve: those that classes name, and one for each class by the class's own name.
//!
//! In: the classes, the requests of a pod. Out: which of the requests devices may serve, the claims made for them, and
//! how many devices of a class a node has. Never: a claim; the plugin DynamicResources makes it.
//!
//! Source: kube-scheduler 1.36 `extendedresourcecache`, `shouldDelegateResourceToDRA` and `calculateDRAResourceTotals`.
//! Of several classes that name a resource, the newest counts, and of those the first by name. Cost: nothing without
//! classes; else log(classes) for each resource of a pod with a domain.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::SmallVec;
use topology::request::PodNeeds;
use topology::resource::{ResourceKind, ResourceName};

use super::views::claim::ClaimView;
use super::views::{ClassView, SlicePlace};
use super::{Devices, Helped};
use crate::node::NodeView;
use crate::pod::Spec;
use crate::volumes::reference::ClaimKey;
use crate::volumes::unlist;

/// The domain of the resources that have the names of classes (`ResourceDeviceClassPrefix`).
pub(super) const BY_CLASS: &str = "deviceclass.resource.kubernetes.io/";
/// The start of the names of claims that are not written yet, which is no name of an object (`specialClaimInMemName`).
pub(crate) const UNWRITTEN: &str = "<extended-resources>";

/// Resources that a pod asks for and that classes name.
pub type Delegated = SmallVec<[ResourceName; 1]>;

/// The classes that name a resource, the one that counts first.
pub(super) type ClassesByResource = BTreeMap<Arc<str>, BTreeSet<(Reverse<i64>, Arc<str>)>>;

/// Claims made for pods, with their uids, by the key of [`unwritten`].
pub(super) type ExtendedClaims = BTreeMap<ClaimKey, (ClaimKey, Arc<str>)>;

/// Whether devices may serve a resource of this name (1.36 `IsDRAExtendedResourceName`).
#[must_use]
pub fn is_extended(resource: ResourceName) -> bool {
    let name = resource.as_str();
    (resource.kind() == ResourceKind::Device && !name.starts_with("requests.")) || name.starts_with(BY_CLASS)
}

/// The key of the claim that is to be made for a pod, before it has a name.
#[must_use]
pub fn unwritten(namespace: &Arc<str>, pod_uid: &str) -> ClaimKey {
    ClaimKey { namespace: Arc::clone(namespace), name: format!("{UNWRITTEN}/{pod_uid}").into() }
}

impl Spec {
    /// Whether claims of the pod, or those made for it, may get devices.
    #[must_use]
    pub(crate) fn may_use_devices(&self) -> bool {
        !self.claims.is_empty() || self.needs.totals.iter().any(|need| is_extended(need.name))
    }
}

// === lookups ===

impl Devices {
    /// The class whose devices serve a resource, on nodes where no device plugin does.
    #[must_use]
    pub fn class_behind(&self, resource: ResourceName) -> Option<&ClassView> {
        if self.classes.is_empty() {
            return None;
        }
        let name = resource.as_str();
        match name.strip_prefix(BY_CLASS) {
            Some(class) => self.class(class),
            None => self.class(&self.classes_by_resource.get(name)?.first()?.1),
        }
    }

    /// The resources that a pod asks for and that classes name.
    #[must_use]
    pub fn delegated(&self, needs: &PodNeeds) -> Delegated {
        if self.classes.is_empty() {
            return Delegated::new();
        }
        let asked = needs.totals.iter().filter(|need| need.amount > 0 && is_extended(need.name));
        asked.map(|need| need.name).filter(|name| self.class_behind(*name).is_some()).collect()
    }

    /// Whether a pod has claims, or some may be made for it.
    #[must_use]
    pub fn concern(&self, spec: &Spec) -> bool {
        !spec.claims.is_empty() || !self.delegated(&spec.needs).is_empty()
    }

    /// The claim that was made for the extended resources of the pod with this namespace and uid.
    #[must_use]
    pub fn claim_made_for(&self, namespace: &Arc<str>, pod_uid: &str) -> Option<&ClaimView> {
        if self.made.is_empty() {
            return None;
        }
        self.claim(&self.made.get(&unwritten(namespace, pod_uid))?.0)
    }

    /// The devices of a class that a node reaches, and how many of them are taken. Selectors in error make it none.
    /// Cost: devices of the node x selectors.
    #[must_use]
    pub fn totals(&self, class: &ClassView, view: &NodeView) -> (i64, i64) {
        let (mut all, mut taken) = (0, 0);
        for slice in self.slices_for(&view.name) {
            if matches!(&slice.place, SlicePlace::Same(place) if !place.has(&view.name, &view.labels)) {
                continue;
            }
            let per_device = slice.place == SlicePlace::PerDevice;
            for device in &slice.devices {
                if per_device && !device.place.has(&view.name, &view.labels) {
                    continue;
                }
                let mut selectors = class.selectors.iter().flatten();
                match selectors.try_fold(true, |all, it| {
                    Ok::<_, ()>(all && it.selects(&slice.pool.0, device).map_err(drop)?)
                }) {
                    Ok(true) => {}
                    Ok(false) => continue,
                    Err(()) => return (0, 0),
                }
                all += 1;
                taken += i64::from(self.taken.has(&slice.id(device)));
            }
        }
        (all, taken)
    }
}

// === changes ===

impl Devices {
    /// A class names another resource from now on, or is gone.
    pub(super) fn rename(&mut self, before: Option<&ClassView>, after: Option<&ClassView>) {
        let namer = |class: &ClassView| (Reverse(class.created_s), Arc::clone(&class.name));
        if let Some((class, resource)) =
            before.and_then(|class| Some((class, class.extended_resource.as_ref()?)))
        {
            unlist(&mut self.classes_by_resource, resource, &namer(class));
        }
        if let Some((class, resource)) =
            after.and_then(|class| Some((class, class.extended_resource.as_ref()?)))
        {
            self.classes_by_resource.entry(Arc::clone(resource)).or_default().insert(namer(class));
        }
    }

    /// A claim is known that was made for a pod. Once it shows its devices, they are no longer pending.
    pub(super) fn made(&mut self, claim: &ClaimView) {
        let Some(pod) = claim.controller.as_ref().filter(|_| claim.is_extended) else { return };
        let of_pod = unwritten(&claim.key.namespace, pod);
        if claim.allocation.is_some() && self.claims.contains_key(&claim.key) {
            self.unassume(&of_pod);
        }
        self.made.insert(of_pod, (claim.key.clone(), Arc::clone(&claim.uid)));
    }

    /// A claim is gone. Returns whether it was made for a pod, which may be tried again.
    pub(super) fn unmade(&mut self, claim: &ClaimView) -> bool {
        let Some(pod) = claim.controller.as_ref().filter(|_| claim.is_extended) else { return false };
        let of_pod = unwritten(&claim.key.namespace, pod);
        if self.made.get(&of_pod).is_some_and(|(key, _)| *key == claim.key) {
            self.made.remove(&of_pod);
        }
        self.unassume(&of_pod);
        true
    }

    /// Takes back what is assumed of the claim made for a pod that is not bound. Returns which waiting pods that may
    /// help, and the claim if it was written.
    pub(crate) fn take_made(
        &mut self,
        namespace: &Arc<str>,
        pod_uid: &str,
    ) -> (Helped, Option<(ClaimKey, Arc<str>)>) {
        if self.pending.is_empty() && self.made.is_empty() {
            return (Helped::NoPod, None);
        }
        let of_pod = unwritten(namespace, pod_uid);
        let helped = self.unassume(&of_pod);
        let made = self.made.get(&of_pod).cloned();
        // What the watch has shown is known until the watch shows its end.
        if made.as_ref().is_some_and(|(key, _)| !self.claims.contains_key(key)) {
            self.made.remove(&of_pod);
        }
        (helped, made)
    }
}

#[cfg(test)]
mod tests;
