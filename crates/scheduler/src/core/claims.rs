//! Claims for devices in the core: their changes, the pods that these wake, and pods whose claims are written.
//!
//! In: changes of claims, slices and classes, results of writes, the time. Out: claims to write before a binding, and
//! claims to give back. Never: two pods that get one device.
//!
//! A pod waits for its claims as for its volumes, and after them (`core/volumes`): it takes part in the totals of its
//! node, and its devices are taken from the decision on.
//!
//! Source of behaviour: kube-scheduler 1.36 `dynamicresources` Reserve, PreBind, Unreserve and PostFilter. Cost: a
//! change costs a look at each waiting class of pods with claims.

use std::sync::Arc;

use super::decision::{Binding, Decision};
use super::volumes::{Stage, Wait};
use super::{Core, Profile};
use crate::devices::extended::unwritten;
use crate::devices::views::claim::{Allocation, ClaimView, Readiness};
use crate::devices::{Change, Helped};
use crate::ledger::PodId;
use crate::plugins::dynamic_resources::PodClaims;
use crate::plugins::dynamic_resources::allocator::Failure;
use crate::plugins::dynamic_resources::extended::ExtendedClaim;
use crate::pod::PodView;
use crate::reason::{Reason, Refusals};
use crate::volumes::reference::ClaimKey;

/// A pod whose claims are to be written before it is bound.
#[derive(Clone, Debug)]
pub struct ReserveClaims {
    /// The pod and its node, for [`Event::ClaimsWritten`](super::Event::ClaimsWritten) and
    /// [`Event::ClaimsFailed`](super::Event::ClaimsFailed).
    pub binding: Binding,
    /// The claims; none if conditions of their devices alone are waited for.
    pub claims: Vec<Reservation>,
}

/// A claim to reserve for a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Reservation {
    /// The claim.
    pub key: ClaimKey,
    /// Its uid.
    pub uid: Arc<str>,
    /// Its version.
    pub version: u64,
    /// Whether it has the finalizer of allocated claims.
    pub is_protected: bool,
    /// The devices that it gets; `None`: it has some.
    pub allocation: Option<Arc<Allocation>>,
    /// The claim to make for extended resources of the pod first; `None`: it exists.
    pub made: Option<Arc<ExtendedClaim>>,
}

/// Claims to give back.
#[derive(Clone, Debug)]
pub struct ReleaseClaims {
    /// The pod.
    pub pod: PodView,
    /// The claims with their uids.
    pub claims: Vec<(ClaimKey, Arc<str>)>,
    /// The claim that was made for the pod, with its uid. It is deleted.
    pub made: Option<(ClaimKey, Arc<str>)>,
}

/// A claim whose devices are to be given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deallocation {
    /// The claim.
    pub key: ClaimKey,
    /// Its version.
    pub version: u64,
    /// Whether it was made for the pod, so that it is deleted as a whole.
    pub deletes: bool,
}

// === changes ===

impl Core {
    /// Takes a change of devices or claims in.
    pub(super) fn devices_changed(&mut self, change: Change, now_ms: u64) {
        let key = match &change {
            Change::Claim(claim) => Some(claim.key.clone()),
            Change::ClaimGone(key) => Some(key.clone()),
            _ => None,
        };
        let owner = match &change {
            Change::Claim(claim) if claim.is_extended => claim.controller.clone(),
            _ => None,
        };
        let helped = self.devices.apply(change);
        self.help_with_devices(&helped);
        if let Some(id) = owner.and_then(|uid| self.ids.get(&uid).copied()) {
            self.check_wait(id, now_ms);
        }
        if let Some(key) = key {
            self.check_waits_for(&key, now_ms);
        }
    }

    /// Wakes the waiting pods that a change may help.
    pub(super) fn help_with_devices(&mut self, helped: &Helped) {
        if *helped != Helped::NoPod {
            let classes = self.queue.with_claims();
            let classes = classes.filter(|(_, spec)| self.devices.may_help(helped, spec));
            self.retried.extend(classes.map(|(class, _)| class));
        }
    }
}

// === binding ===

impl Core {
    /// The claims of a pod as its profile sees them; `None`: it has none, or they are not ready.
    fn pod_claims<'c>(&'c self, pod: &'c PodView, profile: &Profile, now_ms: u64) -> Option<PodClaims<'c>> {
        let args = profile.plugins.dynamic_resources?;
        PodClaims::new((&pod.spec, Some(pod)), &self.devices, args, now_ms).ok()?
    }

    /// Assumes the devices that a pod's claims get on its node. Returns the claims to write, and whether the binding
    /// waits for devices.
    pub(super) fn reserve_claims(
        &mut self,
        pod: &PodView,
        slot: usize,
        profile: &Profile,
        now_ms: u64,
    ) -> Claims {
        let Some(view) = self.nodes[slot].view.as_ref().filter(|_| self.devices.concern(&pod.spec)) else {
            return Claims::default();
        };
        let Some(claims) = self.pod_claims(pod, profile, now_ms) else { return Claims::default() };
        let Ok((found, made)) = claims.allocate(view) else { return Claims::default() };
        let mut found = found.into_iter().map(|wire| Arc::new(Allocation::read(wire)));
        let reservation = |claim: &ClaimView, allocation: Option<Arc<Allocation>>| Reservation {
            key: claim.key.clone(),
            uid: Arc::clone(&claim.uid),
            version: claim.version,
            is_protected: claim.is_protected,
            allocation,
            made: None,
        };
        let mut reservations = Vec::new();
        let mut waits = false;
        for claim in claims.all() {
            let allocation = if claim.allocation.is_none() { found.next() } else { None };
            waits |= claim.readiness != Readiness::Ready;
            // A pod may name a claim twice.
            let is_new = !reservations.iter().any(|it: &Reservation| it.key == claim.key);
            if is_new && !claim.is_reserved_for(&pod.uid) {
                reservations.push(reservation(claim, allocation));
            }
        }
        if let Some(made) = made {
            let mut new = reservation(&made.view, found.next());
            new.key = unwritten(&pod.namespace, &pod.uid);
            new.made = Some(Arc::new(made));
            reservations.push(new);
        }
        for it in &reservations {
            if let Some(allocation) = &it.allocation {
                self.devices.assume(&it.key, Arc::clone(allocation));
            }
        }
        Claims { reservations, waits }
    }

    /// The claims of a pod are written.
    pub(super) fn claims_written(&mut self, id: PodId, claims: Vec<ClaimView>, now_ms: u64) {
        self.take_written(claims);
        let timeout_ms = self.profile_of(id).and_then(|profile| profile.plugins.dynamic_resources);
        let until_ms = now_ms.saturating_add(timeout_ms.unwrap_or_default().binding_timeout_ms);
        if self.wait_in_stage(id, Stage::Claims(Some(until_ms))) {
            self.check_wait(id, now_ms);
        } else {
            self.end_open_write(id);
            self.release_claims_of(id);
        }
    }

    /// The claims of a pod are not written, but for these.
    pub(super) fn claims_failed(&mut self, id: PodId, claims: Vec<ClaimView>, reason: &str, now_ms: u64) {
        self.take_written(claims);
        let waited = self.fail_wait(id, reason, now_ms);
        self.end_open_write(id);
        if !waited {
            self.release_claims_of(id);
        }
    }

    fn take_written(&mut self, claims: Vec<ClaimView>) {
        for claim in claims {
            let helped = self.devices.written(claim);
            self.help_with_devices(&helped);
        }
    }

    /// The write of claims has ended for a pod that waits no longer, or was never sent.
    pub(super) fn end_open_write(&mut self, id: PodId) {
        let reservations = self.waits.open_writes.remove(&id).unwrap_or_default();
        self.unassume_claims(&reservations);
    }

    /// Takes back the devices of claims that are not written.
    pub(super) fn unassume_claims(&mut self, reservations: &[Reservation]) {
        for it in reservations.iter().filter(|it| it.allocation.is_some()) {
            let helped = self.devices.unassume(&it.key);
            self.help_with_devices(&helped);
        }
    }

    /// The claims that a waiting pod is about to get devices for.
    pub fn pending_claims(&self, id: PodId) -> impl Iterator<Item = (&ClaimKey, &Allocation)> {
        let reservations = self.waits.reservations(id);
        reservations.filter_map(|it| Some((&it.key, &**it.allocation.as_ref()?)))
    }

    /// Lets go of the claims that are reserved for a pod which is on no node (Unreserve).
    pub(super) fn release_claims_of(&mut self, id: PodId) {
        let Some(entry) = self.pods.get(&id).filter(|entry| entry.lifecycle.slot().is_none()) else { return };
        let pod = &entry.view;
        let (helped, made) = self.devices.take_made(&pod.namespace, &pod.uid);
        let keys = pod.spec.claims.iter().filter_map(|claim| claim.key());
        let reserved =
            keys.filter_map(|key| self.devices.claim(key)).filter(|it| it.is_reserved_for(&pod.uid));
        let claims: Vec<(ClaimKey, Arc<str>)> =
            reserved.map(|claim| (claim.key.clone(), Arc::clone(&claim.uid))).collect();
        if !claims.is_empty() || made.is_some() {
            let release = ReleaseClaims { pod: pod.clone(), claims, made };
            self.waits.decide(Decision::ReleaseClaims(release));
        }
        self.help_with_devices(&helped);
    }

    /// Whether conditions of all devices of a waiting pod hold (1.36 `isPodReadyForBinding`).
    ///
    /// # Errors
    /// The reason for which they never will.
    pub(super) fn are_ready(&self, wait: &Wait, now_ms: u64) -> Result<bool, String> {
        let pod = &wait.binding.pod;
        let args = self.profile_of(wait.binding.id).and_then(|profile| profile.plugins.dynamic_resources);
        let timeout_ms = args.unwrap_or_default().binding_timeout_ms;
        let made = wait.claims.reservations.iter().find(|it| it.made.is_some());
        let has_conditions = |it: &&Reservation| it.allocation.as_ref().is_some_and(|it| it.has_conditions);
        let made = match made
            .filter(has_conditions)
            .map(|_| self.devices.claim_made_for(&pod.namespace, &pod.uid))
        {
            // The watch has not shown it yet.
            Some(None) => return Ok(false),
            made => made.flatten(),
        };
        let own = pod.spec.claims.iter().filter_map(|claim| claim.key());
        for key in own.chain(made.map(|claim| &claim.key)) {
            let gone = || format!("could not find ResourceClaim \"{key}\"");
            match &self.devices.claim(key).ok_or_else(gone)?.readiness {
                Readiness::Ready => {}
                Readiness::Failed(reason) => return Err(reason.clone()),
                Readiness::Waiting(Some(since)) if since.saturating_add(timeout_ms) < now_ms => {
                    return Err(format!("device binding timeout: claim={}", key.name));
                }
                Readiness::Waiting(_) => return Ok(false),
            }
        }
        Ok(true)
    }
}

// === refusals ===

impl Core {
    /// The message about a pod whose claims refuse it (DynamicResources' PreFilter).
    pub(super) fn claims_not_ready(
        &self,
        pod: &PodView,
        profile: &Profile,
        now_ms: u64,
    ) -> Option<(String, Refusals)> {
        let spec = &*pod.spec;
        let (plugins, nodes) = (&profile.plugins, self.node_order.len());
        if spec.claims.is_empty() || !plugins.filters.dynamic_resources || nodes == 0 {
            return None;
        }
        let args = plugins.dynamic_resources.unwrap_or_default();
        let reason = PodClaims::new((spec, Some(pod)), &self.devices, args, now_ms).err()?;
        let mut refusals = Refusals::default();
        refusals.add_all(Reason::ClaimsNotReady, nodes);
        Some((format!("0/{nodes} nodes are available: {reason}."), refusals))
    }

    /// A claim of a pod that fits nowhere, whose devices are of no use and in no use (PostFilter). `elsewhere`: nodes
    /// that do not reach devices of the pod's claims.
    pub(super) fn deallocation(&self, pod: &PodView, profile: &Profile, now_ms: u64) -> Option<Deallocation> {
        if self.elsewhere.is_empty() && !self.devices.concern(&pod.spec) {
            return None;
        }
        let claims = self.pod_claims(pod, profile, now_ms)?;
        if let Some(stale) = claims.stale() {
            return Some(Deallocation { key: stale.key.clone(), version: stale.version, deletes: true });
        }
        let views = self.elsewhere.iter().filter_map(|slot| self.nodes[*slot].view.as_ref());
        let mut unavailable = views.flat_map(|view| claims.unavailable(view).collect::<Vec<_>>());
        let is_free = |claim: &&ClaimView| claim.reserved_for.iter().all(|uid| *uid == pod.uid);
        let claim = unavailable.find(|claim| is_free(claim) && claim.reserved_for.len() <= 1)?;
        Some(Deallocation { key: claim.key.clone(), version: claim.version, deletes: false })
    }

    /// The message about claims or classes that are in error on the last node that was looked at.
    pub(super) fn claim_error(
        &self,
        pod: &PodView,
        slot: usize,
        profile: &Profile,
        now_ms: u64,
    ) -> Option<String> {
        let view = self.nodes[slot].view.as_ref()?;
        match self.pod_claims(pod, profile, now_ms)?.allocate(view) {
            Err(Failure::Error(reason)) => {
                Some(format!("running \"DynamicResources\" filter plugin: {reason}"))
            }
            _ => None,
        }
    }
}

/// The claims of a pod that is about to be bound.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    /// Those to write.
    pub(super) reservations: Vec<Reservation>,
    /// Whether conditions of devices do not hold yet.
    pub(super) waits: bool,
}

impl Claims {
    /// Whether the binding waits for nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.reservations.is_empty() && !self.waits
    }
}
