//! Volumes in the core: changes of storage, the pods that they wake, and pods whose volumes are being bound.
//!
//! In: changes of storage objects, results of writes, the time. Out: bindings whose volumes are bound, and bindings
//! that failed. Never: a pod that holds up others while its volumes are bound.
//!
//! A pod that waits for its volumes takes part in the totals of its node from the decision on, and in the ledger from
//! the moment when its binding is sent: until then the kubelet sees every other pod first. Others are placed on the
//! node only where the waiting pod would still fit after them (`core/trial`), and that is checked again in the end.
//!
//! Source of behaviour: kube-scheduler 1.36 `volumebinding` Reserve, PreBind (`checkBindings`) and Unreserve. The wait
//! ends with the watch event that shows it, instead of with the next look. Cost: a change of a claim or volume costs a
//! look at the pods that wait for it, and one at each waiting class with volumes; a change of a node one at the pods
//! that wait for volumes there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::claims::{Claims, Reservation, ReserveClaims};
use super::decision::{
    BindVolumes, Binding, ChosenVolume, Decision, FailedVolumes, Provision, VolumeBindings,
};
use super::trial::filters_exactly;
use super::{Core, Profile, Timer};
use crate::cycle;
use crate::cycle::volumes::VolumeState;
use crate::ledger::{PodId, Scratch};
use crate::pod::PodView;
use crate::reason::Reason;
use crate::volumes::reference::{ClaimKey, VolumeRef};
use crate::volumes::{Change, Helped, unlist};

/// Pods whose volumes are being bound.
#[derive(Debug, Default)]
pub(super) struct Waits {
    pods: BTreeMap<PodId, Wait>,
    by_slot: BTreeMap<usize, BTreeSet<PodId>>,
    by_object: BTreeMap<Object, BTreeSet<PodId>>,
    /// Decisions about pods that no longer wait, or wait for something else.
    decisions: VecDeque<Decision>,
    /// Claims that are being written for pods that wait no longer.
    pub(super) open_writes: BTreeMap<PodId, Vec<Reservation>>,
}

/// A pod that waits.
#[derive(Debug)]
pub(super) struct Wait {
    slot: usize,
    pub(super) binding: Binding,
    volumes: VolumeBindings,
    /// Claims for devices.
    pub(super) claims: Claims,
    stage: Stage,
}

/// What a pod waits for, with the end of the wait; `None`: the objects are not written yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its volumes.
    Volumes(Option<u64>),
    /// Its claims for devices, after the volumes.
    Claims(Option<u64>),
}

/// An object whose change may end a wait.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Object {
    Claim(ClaimKey),
    Volume(Arc<str>),
    /// A claim for devices.
    Devices(ClaimKey),
}

impl Stage {
    fn until_ms(self) -> Option<u64> {
        match self {
            Self::Volumes(until_ms) | Self::Claims(until_ms) => until_ms,
        }
    }
}

impl Wait {
    fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        let claims = self.binding.pod.spec.claims.iter().filter_map(|claim| claim.key());
        self.volumes.objects().chain(claims.cloned().map(Object::Devices))
    }
}

impl Waits {
    /// Whether no pod waits.
    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// The pods that wait on a node.
    pub(super) fn on(&self, slot: usize) -> impl Iterator<Item = PodId> + '_ {
        self.by_slot.get(&slot).into_iter().flatten().copied()
    }

    /// The claims that are written for a pod.
    pub(super) fn reservations(&self, id: PodId) -> impl Iterator<Item = &Reservation> {
        self.pods.get(&id).into_iter().flat_map(|wait| &wait.claims.reservations)
    }

    /// The next decision about a pod that waits or did.
    pub(super) fn next(&mut self) -> Option<Decision> {
        self.decisions.pop_front()
    }

    /// Whether there is such a decision.
    pub(super) fn has_decided(&self) -> bool {
        !self.decisions.is_empty()
    }

    /// Adds such a decision.
    pub(super) fn decide(&mut self, decision: Decision) {
        self.decisions.push_back(decision);
    }

    fn insert(&mut self, id: PodId, wait: Wait) {
        self.by_slot.entry(wait.slot).or_default().insert(id);
        for object in wait.objects() {
            self.by_object.entry(object).or_default().insert(id);
        }
        self.pods.insert(id, wait);
    }

    fn remove(&mut self, id: PodId) -> Option<Wait> {
        let wait = self.pods.remove(&id)?;
        unlist(&mut self.by_slot, &wait.slot, &id);
        wait.objects().for_each(|object| unlist(&mut self.by_object, &object, &id));
        Some(wait)
    }

    fn of(&self, object: &Object) -> impl Iterator<Item = PodId> + '_ {
        self.by_object.get(object).into_iter().flatten().copied()
    }
}

fn failed(binding: Binding, stage: Stage, reason: &str) -> Decision {
    let plugin = match stage {
        Stage::Volumes(_) => "VolumeBinding",
        Stage::Claims(_) => "DynamicResources",
    };
    let message = format!("running PreBind plugin {plugin:?}: {reason}");
    Decision::FailVolumes(FailedVolumes { binding, message })
}

impl VolumeBindings {
    fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        let chosen = self.chosen.iter();
        let chosen = chosen
            .flat_map(|it| [Object::Volume(Arc::clone(&it.volume)), Object::Claim(it.claim.key.clone())]);
        chosen.chain(self.provisioned.iter().map(|it| Object::Claim(it.claim.clone())))
    }
}

// === changes ===

impl Core {
    /// Takes a change of storage in.
    pub(super) fn volumes_changed(&mut self, change: Change, now_ms: u64) {
        let affected = self.waiting_for(&change);
        let helped = self.volumes.apply(change);
        self.help(&helped);
        affected.into_iter().for_each(|id| self.check_wait(id, now_ms));
    }

    /// The pods whose wait a change may end.
    fn waiting_for(&self, change: &Change) -> BTreeSet<PodId> {
        if self.waits.is_empty() {
            return BTreeSet::new();
        }
        match change {
            Change::Claim(claim) => self.waits.of(&Object::Claim(claim.key.clone())).collect(),
            Change::ClaimGone(key) => self.waits.of(&Object::Claim(key.clone())).collect(),
            Change::Volume(volume) => {
                let of_claim = volume.claim.as_ref().map(|claim| Object::Claim(claim.key.clone()));
                let of_volume = self.waits.of(&Object::Volume(Arc::clone(&volume.name)));
                of_volume.chain(of_claim.iter().flat_map(|claim| self.waits.of(claim))).collect()
            }
            Change::VolumeGone(name) => self.waits.of(&Object::Volume(Arc::clone(name))).collect(),
            Change::CsiNode(node) => {
                self.slots.get(&node.name).into_iter().flat_map(|slot| self.waits.on(*slot)).collect()
            }
            _ => BTreeSet::new(),
        }
    }

    /// Wakes the waiting pods that a change may help. Cost: waiting classes with volumes.
    pub(super) fn help(&mut self, helped: &Helped) {
        if *helped != Helped::NoPod {
            let classes = self.queue.with_volumes();
            let classes = classes.filter(|(_, spec)| self.volumes.may_help(helped, spec));
            self.retried.extend(classes.map(|(class, _)| class));
        }
    }

    /// A pod has left the totals of its node: claims that one pod may have at a time are free.
    pub(super) fn release_claims(&mut self, volumes: &[VolumeRef]) {
        self.volumes.remove_used(volumes);
        for key in volumes.iter().filter_map(VolumeRef::shared_claim) {
            if self.volumes.claim(key).is_some_and(|claim| claim.is_for_one_pod()) {
                self.help(&Helped::Claim(key.clone()));
            }
        }
    }
}

// === binding ===

impl Core {
    /// Assumes the volumes that a pod gets on its node. `None`: they are bound already.
    pub(super) fn reserve_volumes(
        &mut self,
        pod: &PodView,
        slot: usize,
        profile: &Profile,
    ) -> Option<VolumeBindings> {
        profile.plugins.volume_binding?;
        let view = self.nodes[slot].view.as_ref()?;
        let state = VolumeState::new(&pod.spec, &profile.plugins, &self.volumes).ok()?;
        let found = state.claims()?.find(view).ok()?;
        let chosen = found.chosen.iter().map(|(claim, volume)| {
            let owner = volume.claim.as_ref();
            ChosenVolume {
                volume: Arc::clone(&volume.name),
                version: volume.version,
                claim: claim.reference(),
                claim_version: claim.version,
                marks: owner.is_none(),
                writes: owner.is_none_or(|owner| owner.uid != claim.uid),
            }
        });
        let provisioned = found.provisioned.iter().map(|claim| Provision {
            claim: claim.key.clone(),
            version: claim.version,
            writes: claim.selected_node.as_ref() != Some(&view.name),
        });
        let volumes = VolumeBindings { chosen: chosen.collect(), provisioned: provisioned.collect() };
        let node = Arc::clone(&view.name);
        for it in volumes.chosen.iter().filter(|it| it.writes) {
            self.volumes.choose(&it.volume, it.claim.clone());
        }
        volumes.provisioned.iter().for_each(|it| self.volumes.select(&it.claim, &node));
        (!volumes.chosen.is_empty() || !volumes.provisioned.is_empty()).then_some(volumes)
    }

    /// Lets a pod wait for its volumes and claims, which are to be written now.
    pub(super) fn await_objects(
        &mut self,
        slot: usize,
        binding: Binding,
        (volumes, claims): (Option<VolumeBindings>, Claims),
    ) -> Decision {
        let stage = if volumes.is_some() { Stage::Volumes(None) } else { Stage::Claims(None) };
        let written = volumes.clone().unwrap_or_default();
        let reservations = claims.reservations.clone();
        let wait = Wait { slot, binding: binding.clone(), volumes: written, claims, stage };
        self.waits.insert(binding.id, wait);
        match volumes {
            Some(volumes) => Decision::BindVolumes(BindVolumes { binding, volumes }),
            None => Decision::ReserveClaims(ReserveClaims { binding, claims: reservations }),
        }
    }

    /// Lets a waiting pod go on with its claims. Returns whether it waits.
    pub(super) fn wait_in_stage(&mut self, id: PodId, stage: Stage) -> bool {
        let Some(wait) = self.waits.pods.get_mut(&id) else { return false };
        wait.stage = stage;
        self.timers.extend(stage.until_ms().map(|until_ms| (until_ms, Timer::Volumes(id))));
        true
    }

    /// Looks at the pods that wait for a claim for devices.
    pub(super) fn check_waits_for(&mut self, key: &ClaimKey, now_ms: u64) {
        let pods: Vec<PodId> = match self.waits.is_empty() {
            true => Vec::new(),
            false => self.waits.of(&Object::Devices(key.clone())).collect(),
        };
        pods.into_iter().for_each(|id| self.check_wait(id, now_ms));
    }

    /// The volumes of a pod are written.
    pub(super) fn volumes_written(&mut self, id: PodId, volumes: VolumeBindings, now_ms: u64) {
        let timeout_s = self.profile_of(id).and_then(|profile| profile.plugins.volume_binding);
        let timeout_ms = timeout_s.unwrap_or_default().bind_timeout_s.saturating_mul(1_000);
        let Some(wait) = self.waits.pods.get_mut(&id) else { return };
        let until_ms = now_ms.saturating_add(timeout_ms);
        (wait.volumes, wait.stage) = (volumes, Stage::Volumes(Some(until_ms)));
        self.timers.insert((until_ms, Timer::Volumes(id)));
        self.check_wait(id, now_ms);
    }

    /// The volumes of a pod could not be written.
    pub(super) fn volumes_failed(&mut self, id: PodId, volumes: VolumeBindings, reason: &str, now_ms: u64) {
        if let Some(wait) = self.waits.pods.get_mut(&id) {
            wait.volumes = volumes;
            self.fail_wait(id, reason, now_ms);
        }
    }

    /// The pod waits no longer, if its time is over.
    pub(super) fn volumes_due(&mut self, id: PodId, now_ms: u64) {
        let Some(stage) = self.waits.pods.get(&id).map(|wait| wait.stage) else { return };
        let reason = match stage {
            Stage::Volumes(_) => "binding volumes: context deadline exceeded",
            Stage::Claims(_) => "device binding timeout: context deadline exceeded",
        };
        if stage.until_ms().is_some_and(|until_ms| until_ms <= now_ms) {
            self.fail_wait(id, reason, now_ms);
        }
    }

    /// Looks at the pods that wait for volumes on a node.
    pub(super) fn check_waits_on(&mut self, slot: usize, now_ms: u64) {
        let pods: Vec<PodId> = self.waits.on(slot).collect();
        pods.into_iter().for_each(|id| self.check_wait(id, now_ms));
    }

    /// Looks whether the volumes of a pod are bound, or the devices of its claims ready, once they are written.
    pub(super) fn check_wait(&mut self, id: PodId, now_ms: u64) {
        let Some(wait) = self.waits.pods.get(&id) else { return };
        let verdict = match wait.stage {
            Stage::Volumes(None) | Stage::Claims(None) => return,
            Stage::Volumes(Some(_)) => {
                self.are_bound(wait).map_err(|reason| format!("binding volumes: {reason}"))
            }
            Stage::Claims(Some(_)) => self.are_ready(wait, now_ms),
        };
        match (verdict, wait.stage) {
            (Ok(false), _) => {}
            (Ok(true), Stage::Volumes(_)) if !wait.claims.is_empty() => {
                let (binding, claims) = (wait.binding.clone(), wait.claims.reservations.clone());
                self.wait_in_stage(id, Stage::Claims(None));
                self.waits.decide(Decision::ReserveClaims(ReserveClaims { binding, claims }));
            }
            (Ok(true), _) => self.end_wait(id, now_ms),
            (Err(reason), _) => {
                self.fail_wait(id, &reason, now_ms);
            }
        }
    }

    /// Whether all volumes are bound (`checkBindings`).
    ///
    /// # Errors
    /// The reason for which they never will be.
    fn are_bound(&self, wait: &Wait) -> Result<bool, String> {
        let node = &wait.binding.node;
        let Some(view) = &self.nodes[wait.slot].view else {
            return Err(format!("failed to get node {node:?}: node {node:?} not found"));
        };
        let csi_node = self.volumes.csi_node(node);
        let reach = |name: &str| {
            let Some(volume) = self.volumes.volume(name) else { return Ok(false) };
            match volume.reaches(&view.labels, csi_node) {
                Some(true) => Ok(true),
                Some(false) => Err(format!(
                    "pv {name:?} node affinity doesn't match node {node:?}: no matching NodeSelectorTerms"
                )),
                None => Err("failed to translate pv to csi".to_owned()),
            }
        };
        let claim_of = |key: &ClaimKey, what: &str| {
            let gone = || format!("failed to check {what}: persistentvolumeclaims \"{key}\" not found");
            self.volumes.claim(key).ok_or_else(gone)
        };
        for it in &wait.volumes.chosen {
            let name = &it.volume;
            let gone = || format!("failed to check binding: persistentvolumes {name:?} not found");
            let volume = self.volumes.volume(name).ok_or_else(gone)?;
            let claim = claim_of(&it.claim.key, "binding")?;
            if it.version > volume.version {
                return Ok(false);
            }
            reach(name)?;
            if volume.claim.as_ref().is_none_or(|owner| owner.uid.is_empty()) {
                return Err(format!("ClaimRef got reset for pv {name:?}"));
            }
            if !claim.is_bound {
                return Ok(false);
            }
        }
        for it in &wait.volumes.provisioned {
            let claim = claim_of(&it.claim, "provisioning pvc")?;
            if it.version > claim.version {
                return Ok(false);
            }
            if claim.selected_node.as_ref() != Some(node) {
                return Err(format!("provisioning failed for PVC {:?}", it.claim.name));
            }
            if let Some(name) = &claim.volume
                && !reach(name)?
            {
                return Ok(false);
            }
            if !claim.is_bound {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The volumes of a pod are bound: its binding follows, if it still fits in the zones of the node.
    fn end_wait(&mut self, id: PodId, now_ms: u64) {
        let Some(Wait { slot, binding, .. }) = self.waits.pods.get(&id) else { return };
        let (slot, binding) = (*slot, binding.clone());
        let mut scratch = std::mem::take(&mut self.scratch);
        let verdict = self.fits_zones(id, slot, now_ms, &mut scratch);
        self.scratch = scratch;
        if let Err(reason) = verdict {
            self.fail_wait(id, &reason.to_string(), now_ms);
            return;
        }
        self.waits.remove(id);
        let sent = self.send(binding);
        self.changed.insert(slot);
        self.waits.decide(sent);
    }

    /// Whether a pod of a node that the ledger does not know yet fits there.
    fn fits_zones(&self, id: PodId, slot: usize, now_ms: u64, scratch: &mut Scratch) -> Result<(), Reason> {
        let node = &self.nodes[slot];
        match (self.profile_of(id), self.pods.get(&id), &node.view) {
            (Some(profile), Some(entry), Some(view)) if filters_exactly(profile) => {
                let pod = (&*entry.view.spec, entry.view.created_s);
                let zones = (&node.ledger, &node.over_reserve);
                cycle::filter_zones(zones, pod, profile.zone_filter(), now_ms, scratch)
            }
            _ => Ok(()),
        }
    }

    /// Takes a pod off its node whose volumes or claims are not bound. It is tried again after a while. Returns whether
    /// it waited.
    pub(super) fn fail_wait(&mut self, id: PodId, reason: &str, now_ms: u64) -> bool {
        let Some(wait) = self.stop_waiting(id) else { return false };
        self.bind_failed(id, now_ms);
        self.waits.decide(failed(wait.binding, wait.stage, reason));
        true
    }

    /// Whether the pod, which is being deleted or gone, waited for volumes. Then it is taken off its node.
    pub(super) fn cancel_wait(&mut self, id: PodId) -> bool {
        let Some(Wait { binding, stage, .. }) = self.stop_waiting(id) else { return false };
        self.unplace(id);
        self.release_claims_of(id);
        let reason = format!("pod does not exist any more: pod {:?} not found", binding.pod.name);
        let reason = match stage {
            Stage::Volumes(_) => format!("binding volumes: {reason}"),
            Stage::Claims(_) => reason,
        };
        self.waits.decide(failed(binding, stage, &reason));
        true
    }

    /// The API server has the pod on a node already.
    pub(super) fn overtake_wait(&mut self, id: PodId) {
        if self.stop_waiting(id).is_some() {
            self.confirm(id);
            self.enter_ledger(id);
        }
    }

    /// Ends a wait, and takes back what is assumed and not written.
    pub(super) fn stop_waiting(&mut self, id: PodId) -> Option<Wait> {
        let mut wait = self.waits.remove(id)?;
        for it in &wait.volumes.chosen {
            let helped = self.volumes.unchoose(&it.volume, it.version);
            self.help(&helped);
        }
        for it in &wait.volumes.provisioned {
            let helped = self.volumes.unselect(&it.claim, it.version);
            self.help(&helped);
        }
        let reservations = std::mem::take(&mut wait.claims.reservations);
        if wait.stage == Stage::Claims(None) {
            // They may be stored: the end of the write tells.
            self.waits.open_writes.insert(id, reservations);
        } else {
            self.unassume_claims(&reservations);
        }
        Some(wait)
    }
}
