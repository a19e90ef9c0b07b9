//! Decisions: the next pod to try, its node, or the reasons against all nodes.
//!
//! In: the queue, nodes with their ledgers, the time. Out: one [`Decision`] after the other. Never: a change that no
//! decision needs, but for timers and pods that are woken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::claims::{Deallocation, ReleaseClaims, ReserveClaims};
use super::gang::GroupCondition;
use super::preemption::Outcome;
use super::search::NoNode;
use super::{Core, Lifecycle, Preemption, Profile, RejectedPod, Timer};
use crate::cycle::volumes::VolumeState;
use crate::cycle::{self, PreFilterState};
use crate::ledger::{PodId, Scratch};
use crate::node::NodeView;
use crate::plugins::inter_pod_affinity::Domains;
use crate::pod::{PodView, Spec};
use crate::queue::{Head, Rank};
use crate::reason::{Reason, Refusals};
use crate::volumes::reference::ClaimKey;
use crate::volumes::views::ClaimRef;

/// An output of the core.
#[derive(Debug)]
pub enum Decision {
    /// Bind the pod to the node. The core counts the pod there from now on.
    Bind(Binding),
    /// Write volumes and claims of a pod, of which the same is true. [`Decision::Bind`] follows once they are bound.
    BindVolumes(BindVolumes),
    /// Write the claims of a pod for devices. [`Decision::Bind`] follows once that is done.
    ReserveClaims(ReserveClaims),
    /// Give back claims that are reserved for a pod which is not bound after all.
    ReleaseClaims(ReleaseClaims),
    /// Report that the volumes or claims of a pod were not bound. The core no longer counts the pod on the node.
    FailVolumes(FailedVolumes),
    /// Report that the pod fits no node.
    Refuse(Refused),
    /// Report the same, and evict pods so that the pod will fit. The core counts their node as nominated from now on.
    Preempt(Preemption),
    /// Report whether a PodGroup is scheduled.
    SetGroupCondition(GroupCondition),
    /// Count that a kubelet has rejected a pod, and delete the pod if that is wanted.
    NoteRejection(RejectedPod),
    /// Withdraw the binding of a pod if it was not sent yet: its kubelet may reject the pod by now.
    /// [`Event::BindFailed`](super::Event::BindFailed) tells that it is withdrawn.
    Withdraw(PodId),
}

/// A pod and the node chosen for it.
#[derive(Clone, Debug)]
pub struct Binding {
    /// The pod, for [`Event::Bound`](super::Event::Bound) and [`Event::BindFailed`](super::Event::BindFailed).
    pub id: PodId,
    /// The pod as last seen.
    pub pod: PodView,
    /// The node.
    pub node: Arc<str>,
    /// Whether the node's kubelet has to admit such pods in the order of decisions: it may hold something in zones.
    pub is_ordered: bool,
    /// Pods of the node, each of which could keep this one out by leaving before the kubelet admits it. None of them
    /// may have left when the binding is sent; [`Event::BindFailed`](super::Event::BindFailed) tells that one has.
    pub relied_on: Vec<PodView>,
    /// Number of attempts, this one included.
    pub attempts: u32,
    /// The start of the first of them.
    pub first_attempt_ms: u64,
    /// The start of this one.
    pub attempt_ms: u64,
}

/// A pod whose volumes are to be bound before it is.
#[derive(Clone, Debug)]
pub struct BindVolumes {
    /// The pod and its node, for [`Event::VolumesWritten`](super::Event::VolumesWritten) and
    /// [`Event::VolumesFailed`](super::Event::VolumesFailed).
    pub binding: Binding,
    /// The volumes.
    pub volumes: VolumeBindings,
}

/// A pod whose volumes were not bound.
#[derive(Clone, Debug)]
pub struct FailedVolumes {
    /// The pod and its node.
    pub binding: Binding,
    /// The reason, in kube-scheduler's words.
    pub message: String,
}

/// What to write so that claims get their volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeBindings {
    /// Volumes that exist.
    pub chosen: Vec<ChosenVolume>,
    /// Claims for which volumes are provisioned.
    pub provisioned: Vec<Provision>,
}

/// A volume chosen for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenVolume {
    /// The volume.
    pub volume: Arc<str>,
    /// Its version: that of the decision, and of the answer once it is written.
    pub version: u64,
    /// The claim.
    pub claim: ClaimRef,
    /// The version of the claim.
    pub claim_version: u64,
    /// Whether the volume named no claim, so that it is marked as bound by a controller.
    pub marks: bool,
    /// Whether there is anything to write.
    pub writes: bool,
}

/// A claim for which a volume is provisioned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provision {
    /// The claim.
    pub claim: ClaimKey,
    /// Its version: that of the decision, and of the answer once it is written.
    pub version: u64,
    /// Whether there is anything to write.
    pub writes: bool,
}

/// A pod that fits no node, and the reason.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The pod as last seen.
    pub pod: PodView,
    /// The message, in kube-scheduler's words.
    pub message: String,
    /// Reasons with node counts, for metrics.
    pub refusals: Refusals,
    /// The nominated node from now on; the object may still say another.
    pub nominated: Option<Arc<str>>,
    /// A claim of the pod whose devices are of no use to it.
    pub deallocation: Option<Deallocation>,
    /// Whether preemption was tried, for metrics.
    pub tried_preemption: bool,
    /// Whether the attempt ended in an error, so that nodes may fit nevertheless.
    pub is_error: bool,
}

impl Core {
    /// The next decision, or `None` until an event arrives or [`Core::due`] has come.
    pub fn next(&mut self, now_ms: u64) -> Option<Decision> {
        self.run_timers(now_ms);
        self.rejections.forget_old(now_ms);
        self.queue.tick(now_ms);
        self.run_hold(now_ms);
        if let Some(id) = self.withdrawals.pop_first() {
            return Some(Decision::Withdraw(id));
        }
        if let Some(decision) = self.rejections.next().or_else(|| self.waits.next()) {
            return Some(decision);
        }
        self.wake(now_ms);
        let id = self.queue.pop(now_ms)?;
        self.try_next(id, now_ms)
    }

    /// The decision about one pod, which is taken from the queue.
    pub(super) fn try_pod(&mut self, id: PodId, now_ms: u64) -> Option<Decision> {
        self.stopwatch.start();
        let entry = self.pods.get(&id)?;
        let mut pod = entry.view.clone();
        let Some(profile) = self.settings.profiles.iter().find(|p| p.name == pod.scheduler).cloned() else {
            self.queue.forget(id);
            return self.next(now_ms);
        };
        if let Some(decision) = self.back_off_rejected(id, &pod, now_ms) {
            return Some(decision);
        }
        self.spread_by_default(id, &mut pod, &profile);
        let spec = Arc::clone(&pod.spec);
        let nodes = self.node_order.len();
        if let Some(message) = unsupported(&spec, nodes) {
            self.queue.wait(id, now_ms);
            self.nominate(id, None);
            let refusals = Refusals::default();
            return Some(Decision::Refuse(Refused::new((pod, message, refusals))));
        }
        if let Some((message, refusals)) = self.refused_at_once(&spec, &profile) {
            self.stopwatch.lap("PreFilter", false);
            return Some(self.refuse_at_once(id, (pod, message, refusals), now_ms));
        }
        self.curable.clear();
        self.elsewhere.clear();
        if let Some((message, refusals)) = self.claims_not_ready(&pod, &profile, now_ms) {
            self.stopwatch.lap("PreFilter", false);
            return Some(self.refuse(id, (pod, message, refusals), now_ms));
        }
        match self.choose(id, &pod, &profile, now_ms) {
            Ok(slot) => {
                self.end_hold_of(id, now_ms);
                let (attempts, first_attempt_ms) = self.queue.attempts(id);
                let node = Arc::clone(&self.nodes[slot].name);
                if spec.spans_nodes() || !spec.volumes.is_empty() || self.devices.concern(&spec) {
                    // There may be room for the next one as well.
                    self.retried.extend(self.queue.class(id));
                }
                let volumes = self.reserve_volumes(&pod, slot, &profile);
                let claims = self.reserve_claims(&pod, slot, &profile, now_ms);
                self.stopwatch.lap("Reserve", true);
                if !self.is_in_gang(id) {
                    self.note_placement(id, now_ms);
                }
                self.charge(id, &node);
                if let Some(entry) = self.pods.get_mut(&id) {
                    (entry.lifecycle, entry.placed_here) = (Lifecycle::Assumed { slot }, true);
                }
                let is_ordered = pod.spec.needs.may_align() && self.settings.counts_zones();
                let (attempt_ms, relied_on) = (now_ms, Vec::new());
                let binding =
                    Binding { id, pod, node, is_ordered, relied_on, attempts, first_attempt_ms, attempt_ms };
                if volumes.is_some() || !claims.is_empty() {
                    return Some(self.await_objects(slot, binding, (volumes, claims)));
                }
                Some(self.send(binding))
            }
            Err(NoNode::Error(message, refusals)) => {
                self.nominate(id, None);
                self.queue.back_off(id, now_ms, self.settings.backoff);
                Some(Decision::Refuse(Refused::error((pod, message, refusals))))
            }
            Err(NoNode::Refused(refusals)) => {
                let message = if self.node_order.is_empty() {
                    "no nodes available to schedule pods".to_owned()
                } else {
                    refusals.message(self.node_order.len(), &spec.needs)
                };
                Some(self.refuse(id, (pod, message, refusals), now_ms))
            }
        }
    }

    /// The message about a pod that is refused before nodes are looked at (kube-scheduler's PreFilter).
    pub(super) fn refused_at_once(&self, spec: &Spec, profile: &Profile) -> Option<(String, Refusals)> {
        let nodes = self.node_order.len();
        if let Some(message) = contradiction(spec, profile, nodes) {
            return Some((message, Refusals::default()));
        }
        let not_ready =
            VolumeState::new(spec, &profile.plugins, &self.volumes).err().filter(|_| nodes > 0)?;
        let mut refusals = Refusals::default();
        refusals.add_all(Reason::VolumesNotReady(not_ready.plugin), nodes);
        Some((format!("0/{nodes} nodes are available: {}.", not_ready.message), refusals))
    }

    /// The decision about such a pod. With DynamicResources, whose PreFilter then has not run, PostFilter ends with an
    /// error in kube-scheduler: it says `not found`, and the nomination stays.
    fn refuse_at_once(
        &mut self,
        id: PodId,
        (pod, message, refusals): (PodView, String, Refusals),
        now_ms: u64,
    ) -> Decision {
        self.curable.clear();
        self.elsewhere.clear();
        if !self.profile_of(id).is_some_and(|profile| profile.plugins.deallocates) {
            return self.refuse(id, (pod, message, refusals), now_ms);
        }
        self.queue.wait(id, now_ms);
        let mut refused = Refused::new((pod, format!("{message} not found"), refusals));
        refused.nominated = self.nominations.of(id).cloned();
        Decision::Refuse(refused)
    }

    /// The decision about a pod that fits no node: it waits, and others may be evicted for it.
    fn refuse(
        &mut self,
        id: PodId,
        (pod, message, refusals): (PodView, String, Refusals),
        now_ms: u64,
    ) -> Decision {
        match refusals.by_extenders && !self.is_in_gang(id) {
            true => self.queue.back_off(id, now_ms, self.settings.backoff),
            false => self.queue.wait(id, now_ms),
        }
        let curable = std::mem::take(&mut self.curable);
        let outcome = match self.node_order.is_empty() {
            true => Outcome::Off,
            false => self.preempt(id, &pod, &curable, now_ms),
        };
        if !matches!(outcome, Outcome::Off) {
            self.stopwatch.lap("PostFilter", matches!(outcome, Outcome::Best(_)));
        }
        self.curable = curable;
        let nodes = self.node_order.len();
        let profile = self.profile_of(id).filter(|profile| nodes > 0 && profile.plugins.deallocates);
        let deallocation = profile.and_then(|profile| self.deallocation(&pod, profile, now_ms));
        let has_none = !self.devices.concern(&pod.spec)
            || refusals.iter().any(|(reason, _)| reason == Reason::ClaimsNotReady);
        let claims = profile.map(|_| match &deallocation {
            _ if has_none => "no new claims to deallocate",
            Some(it) if it.deletes => "deletion of ResourceClaim completed",
            Some(_) => "deallocation of ResourceClaim completed",
            None => "still not schedulable",
        });
        let mut refused = Refused::new((pod, message, refusals));
        refused.deallocation = deallocation;
        refused.tried_preemption = !matches!(outcome, Outcome::Off);
        match outcome {
            Outcome::Off => {
                self.nominate(id, None);
                refused.explain(claims, None);
            }
            Outcome::Ineligible(reason) => {
                refused.explain(claims, Some(reason));
                refused.nominated = self.nominations.of(id).cloned();
            }
            Outcome::Error(error) => {
                refused.explain(None, Some(&error));
                refused.nominated = self.nominations.of(id).cloned();
            }
            // An error ends PostFilter, whatever other plugins say (kube-scheduler 1.36 `RunPostFilterPlugins`).
            Outcome::Nowhere(reasons) if reasons.iter().any(|(reason, _)| reason == Reason::ClaimError) => {
                let profile = self.profile_of(id);
                let mut slots = self.curable.iter().map(|(slot, _)| *slot);
                let error = profile.and_then(|profile| {
                    slots.find_map(|slot| self.claim_error(&refused.pod, slot, profile, now_ms))
                });
                refused.explain(None, error.as_deref());
                refused.nominated = self.nominations.of(id).cloned();
            }
            Outcome::Nowhere(reasons) => {
                self.nominate(id, None);
                let message = reasons.message(nodes, &refused.pod.spec.needs);
                refused.explain(claims, Some(&message));
            }
            Outcome::Best(candidate) => return Decision::Preempt(self.evict(id, refused, &candidate)),
        }
        Decision::Refuse(refused)
    }

    /// The time at which [`Core::next`] may have a decision without any further event.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        let timer = self.timers.first().map(|(due, _)| *due);
        let ended = (self.waits.has_decided() || self.rejections.has_notes()).then_some(0);
        timer.into_iter().chain(ended).chain(self.queue.due()).chain(self.hold_due()).min()
    }

    /// Wakes the first waiting pod that fits on a changed node. One at a time: its placement decides what the next one
    /// finds. A node stays marked until no waiting pod fits on it any more; a pod that is tried and refused there says
    /// nothing about the others.
    fn wake(&mut self, now_ms: u64) {
        if !self.queue.has_waiting() {
            self.changed.clear();
            self.freed.clear();
            self.retried.clear();
            return;
        }
        while let Some(class) = self.retried.pop_first() {
            if let Some(head) = self.queue.first_of(class) {
                self.wake_class(head);
                return;
            }
        }
        if self.changed.is_empty() {
            return;
        }
        for (_, spec) in self.queue.spanning() {
            spec.selectors().for_each(|pods| self.selections.follow(pods));
        }
        let mut marked = (std::mem::take(&mut self.changed), std::mem::take(&mut self.freed));
        let mut scratch = std::mem::take(&mut self.scratch);
        let pods = self.first_to_wake(&mut marked, now_ms, &mut scratch);
        ((self.changed, self.freed), self.scratch) = (marked, scratch);
        for pod in pods {
            self.end_vain_nomination(pod);
            self.queue.wake(pod);
        }
    }

    /// The first waiting pod that fits on a changed node, or those that may preempt there. Nodes of which nothing more
    /// is to be expected are no longer marked. Cost: changed nodes x waiting classes; two comparisons each where CPU or
    /// memory decides.
    fn first_to_wake(
        &self,
        (changed, freed): &mut (BTreeSet<usize>, BTreeSet<usize>),
        now_ms: u64,
        scratch: &mut Scratch,
    ) -> Vec<PodId> {
        let mut spanning = BTreeMap::new();
        while let Some(slot) = changed.first().copied() {
            let nominated = self.next_nominated(slot, now_ms, scratch);
            let mut first = || self.first_fitting(slot, &mut spanning, now_ms, scratch);
            if let Some(pod) = nominated.or_else(|| first().map(|rank| rank.pod)) {
                return vec![pod];
            }
            changed.remove(&slot);
            if !freed.remove(&slot) {
                continue;
            }
            let preemptors = self.preempting(slot, now_ms, scratch);
            if !preemptors.is_empty() {
                return preemptors;
            }
        }
        Vec::new()
    }

    /// The first waiting pod that fits on a node. `spanning`: what constraints of waiting classes look at, as far as
    /// that was asked.
    fn first_fitting<'c>(
        &'c self,
        slot: usize,
        spanning: &mut BTreeMap<Rank, PreFilterState<'c>>,
        now_ms: u64,
        scratch: &mut Scratch,
    ) -> Option<Rank> {
        let node = &self.nodes[slot];
        let view = node.view.as_ref()?;
        let is_expecting = self.is_expecting(slot);
        let left = self.settings.check_resources().then(|| node.left(view));
        let heads = self.queue.heads().filter(|(_, head)| !left.is_some_and(|left| head.exceeds(left)));
        let mut heads = heads
            .filter(|(rank, head)| head.spec.unsupported.is_empty() && !self.hold.keeps_off(slot, *rank));
        heads.find_map(|(rank, Head { spec, .. })| {
            let profile = self.profile_of(rank.pod)?;
            let created_s = self.pods.get(&rank.pod).map_or(0, |entry| entry.view.created_s);
            // Most nodes are refused by this already, before the constraints of the class are prepared.
            cycle::properties(view, spec, &profile.plugins).ok()?;
            let spanning = spanning.entry(rank).or_insert_with(|| {
                let known = self.known(self.view(rank.pod), now_ms);
                PreFilterState::new(spec, Domains::default(), &profile.plugins, &self.nodes, known)
            });
            let pod = (&**spec, created_s);
            cycle::filter(node, view, pod, spanning, profile, now_ms, scratch).ok()?;
            if self.may_be_in_gang(spec) {
                return self.first_helped(rank, slot, now_ms, scratch);
            }
            let first = self.first_allowed(rank, slot, view);
            // It is asked by itself, since its priority decides which pods are expected before it.
            first.filter(|rank| !is_expecting || self.fits_on(rank.pod, slot, now_ms, scratch))
        })
    }

    /// The first pod of a class that pods on nodes do not keep away from this node. Equal labels are looked at once.
    fn first_allowed(&self, head: Rank, slot: usize, view: &NodeView) -> Option<Rank> {
        let counts =
            self.profile_of(head.pod).is_some_and(|profile| profile.plugins.filters.inter_pod_affinity);
        if self.existing_terms.is_empty() || !counts {
            return Some(head);
        }
        let mut kept_away = BTreeSet::new();
        self.queue.peers(head.pod).find(|peer| {
            let Some(PodView { namespace, labels, .. }) = self.pods.get(&peer.pod).map(|entry| &entry.view)
            else {
                return false;
            };
            !self.hold.keeps_off(slot, *peer)
                && kept_away.insert((namespace, labels))
                && !self.existing_domains((namespace, labels)).contain(&view.labels)
        })
    }

    /// Lets pods end, reports be late and waits be over whose time has come.
    pub(crate) fn run_timers(&mut self, now_ms: u64) {
        while let Some((due, timer)) = self.timers.first().filter(|(due, _)| *due <= now_ms).copied() {
            self.timers.remove(&(due, timer));
            self.groups.renew();
            match timer {
                Timer::Vanished(id) => {
                    self.release(id);
                    self.drop_pod(id);
                }
                Timer::Unreported(slot) => {
                    self.read_kept_report(slot, now_ms);
                    self.look_again(slot);
                }
                Timer::Contradicted(slot) => self.look_again(slot),
                Timer::Unexplained(slot) => self.give_up_fingerprint(slot, now_ms),
                Timer::Volumes(id) => self.volumes_due(id, now_ms),
                Timer::Resync => self.resync(now_ms),
            }
        }
    }

    /// Time has passed that kept pods off a node.
    fn look_again(&mut self, slot: usize) {
        self.nodes.touch(slot);
        self.changed.insert(slot);
    }

    pub(super) fn profile_of(&self, id: PodId) -> Option<&Profile> {
        let scheduler = &self.pods.get(&id)?.view.scheduler;
        self.settings.profiles.iter().find(|profile| profile.name == *scheduler)
    }
}

/// The message about features that the pod needs and the scheduler lacks, in kube-scheduler's form.
pub(super) fn unsupported(spec: &Spec, nodes: usize) -> Option<String> {
    unsupported_features(spec).map(|features| format!("0/{nodes} nodes are available: {features}."))
}

/// The features that the pod needs and the scheduler lacks, as a reason.
pub(super) fn unsupported_features(spec: &Spec) -> Option<String> {
    let features: Vec<String> = spec.unsupported.iter().map(ToString::to_string).collect();
    (!features.is_empty()).then(|| format!("the scheduler does not yet support {}", features.join(", ")))
}

/// The message about node affinity that names no node, which kube-scheduler finds before it looks at nodes.
fn contradiction(spec: &Spec, profile: &Profile, nodes: usize) -> Option<String> {
    let found = nodes > 0 && profile.plugins.filters.node_names && spec.affinity.is_contradictory();
    found.then(|| format!("0/{nodes} nodes are available: pod affinity terms conflict."))
}
