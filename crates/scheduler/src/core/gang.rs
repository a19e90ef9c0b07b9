//! Gangs: the pods of a PodGroup with the gang policy are placed together or not at all.
//!
//! In: groups, pods and where they are. Out: decisions about a whole gang. Never: a binding of a gang before so many
//! pods as it needs are placed, and never fewer of them on nodes, but for those that were bound before.
//!
//! Pods of a gang are held back until the group exists and has enough pods (PreEnqueue). Then an attempt at one of them
//! is one at all that are on no node: each is placed as a single pod is, with all that it charges, and sees those
//! before it. If the gang then has enough pods on nodes, the decisions about all of them follow; else all are taken
//! back. A gang that has enough is done: further pods of it are placed one by one. A gang that lost some to failed
//! bindings, or to a leader that ended between two bindings, comes before all other pods, since room was found for it
//! already.
//!
//! Of a gang that was taken back, the first refused pod of each class waits as other pods do, and the others follow it.
//! The nodes on which pods of the gang had been placed are kept in mind ([`Group::plan`]): a changed node wakes the
//! gang if a refused pod fits there *beside* those. A gang that was tried in vain is tried again after the next event.
//!
//! Source of behaviour: kube-scheduler 1.36 `gangscheduling`, `schedule_one_podgroup.go` and `podgroupstate.go`. Unlike
//! there, a gang evicts nothing, and a pod that cannot help its gang does not wake it.
//!
//! Cost: of an attempt, that of one for each of its pods. Of a changed node, a filter for each class of refused pods,
//! and if that finds room, a look at each gang of the class and a trial for each distinct set of pods beside it. Of an
//! event about a pod in a group, log(groups); of the first and last pod that it needs, all pods of the group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Core;
use super::decision::{Decision, Refused};
use super::trial::{IncomingPod, Trial};
use crate::ledger::{PodId, Scratch};
use crate::pod::{PodView, Spec};
use crate::pod_group::{PodGroupView, ScheduledCondition};
use crate::queue::{Class, Rank};
use crate::reason::Refusals;

/// The message about a gang without enough pods on nodes, and about a pod that was placed and taken back.
const UNSCHEDULABLE: &str = "pod group is unschedulable";
const TAKEN_BACK: &str = "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, \
                          one or more plugins asked to wait and no plugin rejected pod";

/// A namespace, and the name of a PodGroup.
pub(super) type GroupKey = (Arc<str>, Arc<str>);

/// The condition of a PodGroup from now on.
#[derive(Clone, Debug)]
pub struct GroupCondition {
    /// The group as last seen.
    pub group: PodGroupView,
    /// The condition.
    pub scheduled: ScheduledCondition,
}

/// The groups that exist or have pods.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Whether any profile places gangs. If none does, no pod counts as one of a group.
    is_on: bool,
    groups: BTreeMap<GroupKey, Group>,
    /// Gangs that were tried in vain since the last event.
    tried: BTreeSet<GroupKey>,
}

#[derive(Debug, Default)]
struct Group {
    /// The object, if it exists.
    object: Option<PodGroupView>,
    /// Its pods: those on nodes, and those of profiles that place gangs.
    pods: BTreeSet<PodId>,
    /// Those of them that the totals of nodes count.
    placed: BTreeSet<PodId>,
    stage: Stage,
    /// By slot, the pods that the last attempt had placed there before it took all back.
    plan: BTreeMap<usize, Vec<PodId>>,
}

/// The progress of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// The object or pods are missing: the pods are held back.
    #[default]
    Incomplete,
    /// A gang without a pod on a node.
    Waiting,
    /// A gang with some pods on nodes, and fewer than it needs.
    Partial,
    /// A gang with enough pods on nodes, or a group of another policy: its pods are placed one by one.
    Placed,
}

impl Group {
    fn stage(&self) -> Stage {
        let Some(object) = &self.object else { return Stage::Incomplete };
        match object.min_count {
            None => Stage::Placed,
            Some(min_count) if self.pods.len() < min_count => Stage::Incomplete,
            Some(min_count) if self.placed.len() >= min_count => Stage::Placed,
            Some(_) if self.placed.is_empty() => Stage::Waiting,
            Some(_) => Stage::Partial,
        }
    }

    fn is_gang(&self) -> bool {
        matches!(self.stage, Stage::Waiting | Stage::Partial)
    }
}

impl Groups {
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on, ..Self::default() }
    }

    /// Something has happened: gangs that were tried in vain may be tried again.
    pub(super) fn renew(&mut self) {
        self.tried.clear();
    }

    /// Counts whether a pod is on a node.
    pub(super) fn set_placed(&mut self, view: &PodView, id: PodId, is_placed: bool) {
        let Some(key) = self.is_on.then(|| key_of(view)).flatten() else { return };
        let Some(group) = self.groups.get_mut(&key) else { return };
        match is_placed && group.pods.contains(&id) {
            true => group.placed.insert(id),
            false => group.placed.remove(&id),
        };
    }

    /// The group of a pod that is to be placed with others.
    fn gang(&self, view: &PodView) -> Option<(GroupKey, &Group)> {
        let key = self.is_on.then(|| key_of(view)).flatten()?;
        let group = self.groups.get(&key).filter(|group| group.is_gang())?;
        Some((key, group))
    }
}

fn key_of(view: &PodView) -> Option<GroupKey> {
    Some((Arc::clone(&view.namespace), Arc::clone(view.group.as_ref()?)))
}

// === groups and their pods ===

impl Core {
    /// A group is new or has changed.
    pub(super) fn pod_group(&mut self, object: PodGroupView) {
        if self.groups.is_on {
            let key = (Arc::clone(&object.namespace), Arc::clone(&object.name));
            self.groups.groups.entry(key.clone()).or_default().object = Some(object);
            self.regroup(&key, None);
        }
    }

    /// A group is gone. Its pods on nodes stay; the others are held back.
    pub(super) fn pod_group_gone(&mut self, key: &GroupKey) {
        if let Some(group) = self.groups.groups.get_mut(key) {
            group.object = None;
            self.regroup(key, None);
        }
    }

    /// The group of a pod whose profile places gangs.
    fn group_of(&self, id: PodId) -> Option<GroupKey> {
        if !self.groups.is_on {
            return None;
        }
        let view = &self.pods.get(&id)?.view;
        view.group.as_ref()?;
        self.profile_of(id).filter(|profile| profile.plugins.gang_scheduling)?;
        key_of(view)
    }

    /// Whether a pod, which is on no node, is held back until its group is complete.
    pub(super) fn awaits_group(&self, id: PodId) -> bool {
        let Some(key) = self.group_of(id) else { return false };
        self.groups.groups.get(&key).is_none_or(|group| group.stage == Stage::Incomplete)
    }

    /// Whether a pod is to be placed with others.
    pub(super) fn is_in_gang(&self, id: PodId) -> bool {
        self.gang_of(id).is_some()
    }

    fn gang_of(&self, id: PodId) -> Option<GroupKey> {
        let key = self.group_of(id)?;
        self.groups.groups.get(&key).is_some_and(Group::is_gang).then_some(key)
    }

    /// Counts a pod in its group, as it is by now.
    pub(super) fn join_group(&mut self, id: PodId) {
        let Some(view) = self.pods.get(&id).map(|entry| &entry.view).filter(|_| self.groups.is_on) else {
            return;
        };
        let Some(key) = key_of(view) else { return };
        let belongs = !view.progress.terminal && (view.node.is_some() || self.group_of(id).is_some());
        let group = self.groups.groups.entry(key.clone()).or_default();
        if belongs {
            group.pods.insert(id);
        } else {
            group.pods.remove(&id);
            group.placed.remove(&id);
        }
        self.regroup(&key, Some(id));
    }

    /// The object of a pod is gone.
    pub(super) fn leave_group(&mut self, id: PodId) {
        let view = self.pods.get(&id).map(|entry| &entry.view).filter(|_| self.groups.is_on);
        let Some(key) = view.and_then(key_of) else { return };
        if let Some(group) = self.groups.groups.get_mut(&key) {
            group.pods.remove(&id);
            group.placed.remove(&id);
            self.regroup(&key, None);
        }
    }

    /// A pod of a group is on a node, or no longer.
    pub(super) fn regroup_of(&mut self, id: PodId) {
        let view = self.pods.get(&id).map(|entry| &entry.view).filter(|_| self.groups.is_on);
        if let Some(key) = view.and_then(key_of) {
            self.regroup(&key, None);
        }
    }

    /// Takes another stage of a group in. `except`: a pod about which the caller decides.
    fn regroup(&mut self, key: &GroupKey, except: Option<PodId>) {
        let Some(group) = self.groups.groups.get_mut(key) else { return };
        if group.object.is_none() && group.pods.is_empty() {
            self.groups.groups.remove(key);
            return;
        }
        let to = group.stage();
        let from = std::mem::replace(&mut group.stage, to);
        if from == to {
            return;
        }
        if !group.is_gang() {
            group.plan.clear();
        }
        let pods: Vec<PodId> = group.pods.difference(&group.placed).copied().collect();
        for id in pods.into_iter().filter(|id| Some(*id) != except) {
            if from == Stage::Incomplete || to == Stage::Incomplete {
                self.enqueue(id, true, false);
                continue;
            }
            self.queue.prefer(id, to == Stage::Partial);
            // A binding that has failed is tried again after its backoff.
            if from != Stage::Placed {
                self.queue.resume(id);
            }
        }
    }

    /// A pod has come into the queue: if its gang is placed in part, it comes first.
    pub(super) fn prefer_in_gang(&mut self, id: PodId) {
        let Some(key) = self.gang_of(id) else { return };
        if self.groups.groups.get(&key).is_some_and(|group| group.stage == Stage::Partial) {
            self.queue.prefer(id, true);
        }
    }

    /// Takes a pod off the queue. If others of its gang follow it, one of them is tried.
    pub(super) fn dequeue(&mut self, id: PodId) {
        let is_followed = self.groups.is_on && self.queue.rank(id).is_some() && !self.queue.is_following(id);
        self.queue.forget(id);
        let Some(key) = is_followed.then(|| self.gang_of(id)).flatten() else { return };
        let mut pods = self.groups.groups.get(&key).into_iter().flat_map(|group| &group.pods);
        if let Some(follower) = pods.find(|pod| self.queue.is_following(**pod)).copied() {
            self.queue.resume(follower);
        }
    }
}

// === attempts ===

impl Core {
    /// The decision about the next pod, which is taken from the queue; about its whole gang, if it is of one.
    pub(super) fn try_next(&mut self, id: PodId, now_ms: u64) -> Option<Decision> {
        let Some(key) = self.group_of(id) else { return self.try_pod(id, now_ms) };
        // Its binding failed while the group went.
        if self.awaits_group(id) {
            self.enqueue(id, true, false);
            return self.next(now_ms);
        }
        if let Some(gang) = self.gang_of(id) {
            self.try_gang(&gang, id, now_ms);
            return self.waits.next();
        }
        let decision = self.try_pod(id, now_ms);
        match &decision {
            Some(Decision::Refuse(_) | Decision::Preempt(_)) => {
                self.unscheduled(&key, "Unschedulable", UNSCHEDULABLE)
            }
            Some(_) => self.scheduled(&key),
            None => {}
        }
        decision
    }

    fn try_gang(&mut self, key: &GroupKey, popped: PodId, now_ms: u64) {
        let Some(group) = self.groups.groups.get(key) else { return };
        let needed = group.object.as_ref().and_then(|object| object.min_count).unwrap_or(0);
        let mut ranks: Vec<Rank> = group.pods.iter().filter_map(|id| self.queue.rank(*id)).collect();
        ranks.retain(|rank| !group.placed.contains(&rank.pod));
        ranks.sort_unstable();
        if let Some(error) = self.mixed_schedulers(&ranks) {
            let refused = self.refuse_gang(&ranks, popped, &error, now_ms);
            self.give_up(popped, refused, true, now_ms);
            return;
        }
        // What was kept for one of them alone is for others, whatever becomes of the gang.
        for rank in &ranks {
            self.nominate(rank.pod, None);
            self.end_hold_of(rank.pod, now_ms);
        }
        if self.back_off_gang(&ranks, popped, now_ms) {
            return;
        }
        // Nothing that is taken back in the end tells of a change.
        let marks = (
            std::mem::take(&mut self.changed),
            std::mem::take(&mut self.freed),
            std::mem::take(&mut self.retried),
        );
        let mut error: Option<String> = None;
        let mut decisions: Vec<(PodId, Decision)> = Vec::with_capacity(ranks.len());
        for id in ranks.iter().map(|rank| rank.pod) {
            if id != popped {
                self.queue.take(id, now_ms);
            }
            if let Some(error) = &error {
                decisions.extend(self.refuse_for(id, error).map(|refused| (id, Decision::Refuse(refused))));
                continue;
            }
            let Some(decision) = self.try_pod(id, now_ms) else { continue };
            if let Decision::Refuse(refused) = &decision
                && !self.queue.is_waiting(id)
            {
                let message = &refused.message;
                error = Some(format!("failed to schedule other pod from a pod group: {message}"));
            }
            decisions.push((id, decision));
        }
        let placed = self.groups.groups.get(key).map_or(0, |group| group.placed.len());
        if error.is_none() && placed >= needed {
            let (mut changed, mut freed, mut retried) = marks;
            self.changed.append(&mut changed);
            self.freed.append(&mut freed);
            self.retried.append(&mut retried);
            if let Some(group) = self.groups.groups.get_mut(key) {
                (group.stage, group.plan) = (Stage::Placed, BTreeMap::new());
            }
            for rank in &ranks {
                self.queue.prefer(rank.pod, false);
                self.note_placement(rank.pod, now_ms);
            }
            decisions.into_iter().for_each(|(_, decision)| self.waits.decide(decision));
            self.scheduled(key);
            return;
        }
        let refused = self.take_back(key, decisions, error.as_deref());
        (self.changed, self.freed, self.retried) = marks;
        self.groups.tried.insert(key.clone());
        self.give_up(popped, refused, error.is_some(), now_ms);
        match error {
            Some(error) => self.unscheduled(key, "SchedulerError", &error),
            None => self.unscheduled(key, "Unschedulable", UNSCHEDULABLE),
        }
    }

    /// Lets a gang wait if kubelets have rejected too many pods of a controller of it. Returns whether it waits.
    fn back_off_gang(&mut self, ranks: &[Rank], popped: PodId, now_ms: u64) -> bool {
        let wait = |rank: &Rank| self.rejection_wait(self.view(rank.pod)?, now_ms);
        let Some((until_ms, message)) = ranks.iter().filter_map(wait).max() else { return false };
        for (id, refused) in self.refuse_gang(ranks, popped, &message, now_ms) {
            match id == popped {
                true => self.queue.delay(id, until_ms),
                false => self.queue.follow(id),
            }
            self.waits.decide(Decision::Refuse(refused));
        }
        true
    }

    /// Takes the other pods of a gang from the queue too, and refuses all of them for one reason.
    fn refuse_gang(
        &mut self,
        ranks: &[Rank],
        popped: PodId,
        message: &str,
        now_ms: u64,
    ) -> Vec<(PodId, Refused)> {
        ranks.iter().filter(|rank| rank.pod != popped).for_each(|rank| self.queue.take(rank.pod, now_ms));
        let refused = ranks.iter().filter_map(|rank| Some((rank.pod, self.refuse_for(rank.pod, message)?)));
        refused.collect()
    }

    /// The error of a gang whose pods name several schedulers (`frameworkForPodGroup`).
    fn mixed_schedulers(&self, ranks: &[Rank]) -> Option<String> {
        let mut names = ranks.iter().filter_map(|rank| Some(&self.pods.get(&rank.pod)?.view.scheduler));
        let first = names.next()?;
        let other = names.find(|name| *name != first)?;
        Some(format!(
            "all pods in a single pod group should have the same .spec.schedulerName set, got: {first:?} and {other:?}"
        ))
    }

    fn refuse_for(&self, id: PodId, message: &str) -> Option<Refused> {
        let pod = self.pods.get(&id)?.view.clone();
        Some(Refused::new((pod, message.to_owned(), Refusals::default())))
    }

    /// Takes the placed pods of a gang off their nodes, and keeps those nodes in mind. Returns the refusals of all.
    fn take_back(
        &mut self,
        key: &GroupKey,
        decisions: Vec<(PodId, Decision)>,
        error: Option<&str>,
    ) -> Vec<(PodId, Refused)> {
        let mut plan: BTreeMap<usize, Vec<PodId>> = BTreeMap::new();
        let mut refused = Vec::with_capacity(decisions.len());
        for (id, decision) in decisions.into_iter().rev() {
            let pod = match decision {
                Decision::Refuse(it) => {
                    refused.push((id, it));
                    continue;
                }
                Decision::Bind(binding) => binding.pod,
                Decision::BindVolumes(bind) => bind.binding.pod,
                Decision::ReserveClaims(reserve) => reserve.binding.pod,
                // No attempt at a pod of a gang ends with one of these.
                Decision::ReleaseClaims(_)
                | Decision::FailVolumes(_)
                | Decision::Preempt(_)
                | Decision::SetGroupCondition(_)
                | Decision::NoteRejection(_)
                | Decision::Withdraw(_) => continue,
            };
            if let Some(slot) = self.pods.get(&id).and_then(|entry| entry.lifecycle.slot()) {
                plan.entry(slot).or_default().push(id);
            }
            self.stop_waiting(id);
            self.end_open_write(id);
            self.unplace(id);
            let message = error.unwrap_or(TAKEN_BACK).to_owned();
            refused.push((id, Refused::new((pod, message, Refusals::default()))));
        }
        if let Some(group) = self.groups.groups.get_mut(key) {
            group.plan = plan;
        }
        refused.reverse();
        refused
    }

    /// Refuses all pods of a gang. The first refused one of each class waits, and the others follow it; after an error
    /// one backs off instead.
    fn give_up(&mut self, popped: PodId, refused: Vec<(PodId, Refused)>, is_error: bool, now_ms: u64) {
        let mut classes = BTreeSet::new();
        for (id, refused) in refused {
            let leads = !is_error && self.queue.is_waiting(id) && classes.insert(self.queue.class(id));
            if !leads {
                self.queue.follow(id);
            }
            self.waits.decide(Decision::Refuse(refused));
        }
        if is_error {
            self.queue.back_off(popped, now_ms, self.settings.backoff);
        }
    }

    fn scheduled(&mut self, key: &GroupKey) {
        let (reason, message) = ("Scheduled".to_owned(), String::new());
        self.set_condition(key, ScheduledCondition { is_true: true, reason, message });
    }

    fn unscheduled(&mut self, key: &GroupKey, reason: &str, message: &str) {
        let (reason, message) = (reason.to_owned(), message.to_owned());
        self.set_condition(key, ScheduledCondition { is_true: false, reason, message });
    }

    /// Reports the condition of a group if it changes. A group that was scheduled once stays that
    /// (`updatePodGroupCondition`).
    fn set_condition(&mut self, key: &GroupKey, scheduled: ScheduledCondition) {
        let Some(group) = self.groups.groups.get_mut(key) else { return };
        let Some(object) = &mut group.object else { return };
        let was_scheduled = object.scheduled.as_ref().is_some_and(|before| before.is_true);
        if object.scheduled.as_ref() == Some(&scheduled) || (was_scheduled && !scheduled.is_true) {
            return;
        }
        let condition = GroupCondition { group: object.clone(), scheduled: scheduled.clone() };
        object.scheduled = Some(scheduled);
        self.waits.decide(Decision::SetGroupCondition(condition));
    }
}

// === waking ===

impl Core {
    /// Wakes the first waiting pod of a class; in groups all of them, since their gangs may need different numbers.
    pub(super) fn wake_class(&mut self, head: Rank) {
        let in_group = self.pods.get(&head.pod).is_some_and(|entry| entry.view.group.is_some());
        let count = if in_group && self.groups.is_on { usize::MAX } else { 1 };
        let pods: Vec<Rank> = self.queue.peers(head.pod).take(count).collect();
        pods.into_iter().for_each(|peer| self.queue.wake(peer.pod));
    }

    /// Whether pods like this one are woken as those of gangs are.
    pub(super) fn may_be_in_gang(&self, spec: &Spec) -> bool {
        self.groups.is_on && spec.in_group
    }

    /// The first waiting pod of a class in groups that fits on a node beside those of its gang that the last attempt
    /// had placed there. Gangs that look equal there are looked at once.
    pub(super) fn first_helped(
        &self,
        head: Rank,
        slot: usize,
        now_ms: u64,
        scratch: &mut Scratch,
    ) -> Option<Rank> {
        let mut refused = BTreeSet::new();
        self.queue.peers(head.pod).find(|peer| {
            let Some(view) = self.pods.get(&peer.pod).map(|entry| &entry.view) else { return false };
            let gang = self.groups.gang(view);
            if gang.as_ref().is_some_and(|(key, _)| self.groups.tried.contains(key)) {
                return false;
            }
            let beside = gang.and_then(|(_, gang)| gang.plan.get(&slot)).map_or(&[][..], Vec::as_slice);
            let classes: Vec<Option<Class>> = beside.iter().map(|id| self.queue.class(*id)).collect();
            refused.insert((&view.namespace, &view.labels, view.priority, classes))
                && self.fits_beside(*peer, (slot, beside), now_ms, scratch)
        })
    }

    fn fits_beside(
        &self,
        peer: Rank,
        (slot, beside): (usize, &[PodId]),
        now_ms: u64,
        scratch: &mut Scratch,
    ) -> bool {
        let (Some(entry), Some(profile)) = (self.pods.get(&peer.pod), self.profile_of(peer.pod)) else {
            return false;
        };
        let pod = &entry.view;
        let incoming = IncomingPod { id: peer.pod, rank: Some(peer), pod, profile, now_ms };
        let mut spanning = self.pre_filter(pod, profile, now_ms);
        let Some(mut trial) = Trial::new(self, slot) else { return false };
        trial.add(beside, pod, &mut spanning, scratch);
        !self.hold.keeps_off(slot, peer) && trial.check(incoming, &spanning, scratch).is_ok()
    }
}
