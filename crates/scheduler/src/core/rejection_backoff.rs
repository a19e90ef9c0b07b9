//! The backoff of controllers whose pods kubelets reject again and again.
//!
//! In: pods that a kubelet has rejected, the time. Out: a note of each; until when the next pods of their controllers
//! wait, and why. Never: a verdict about a node, or a wait of a part of a gang.
//!
//! A controller makes a new pod for each that fails. Where a prediction is wrong for good, that would go on as fast as
//! pods can be placed. So after [`MAX_REJECTED`] rejections of one controller's pods, each within [`WINDOW_MS`] of the
//! one before, its pods wait a minute. Then one of them is placed a minute, until a kubelet admits one: all is
//! forgotten then. If it is rejected, they wait twice as long as before, up to half an hour. Pods that were placed
//! before a wait began make it no longer, however many there are. Pods without a controller come once.
//!
//! Cost: nothing for pods that are not rejected but a look at a map of controllers in trouble, mostly empty.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{Core, Decision, Refused};
use crate::ledger::PodId;
use crate::pod::{Owner, PodView, Rejection};
use crate::reason::Refusals;

/// Rejections of one controller's pods after which the next one waits.
const MAX_REJECTED: usize = 3;
/// Rejections that are further apart have nothing to do with each other.
const WINDOW_MS: u64 = 10 * 60 * 1_000;
/// The first wait.
pub(super) const FIRST_WAIT_MS: u64 = 60 * 1_000;
/// The longest wait.
const LONGEST_WAIT_MS: u64 = 30 * 60 * 1_000;
/// Most pods of one controller that are remembered, to count each once.
const MAX_REMEMBERED: usize = 32;
/// Most rejections that are not noted yet; a process that does not lead notes none, and forgets the oldest.
const MAX_NOTES: usize = 1_024;

/// Rejections of pods.
#[derive(Debug, Default)]
pub(super) struct RejectionBackoff {
    /// By the uid of the controller.
    controllers: BTreeMap<Arc<str>, ControllerRejections>,
    notes: VecDeque<RejectedPod>,
    /// The node of each rejected pod that is still there, by the pod's uid.
    there: BTreeMap<Arc<str>, Arc<str>>,
}

/// Rejected pods of one controller.
#[derive(Debug)]
struct ControllerRejections {
    /// The kubelet's reason, of the last one.
    reason: Arc<str>,
    owner: Owner,
    /// Rejected pods by uid, the last ones.
    pods: Vec<Arc<str>>,
    times: usize,
    /// Waits so far.
    waits: u32,
    last_ms: u64,
    until_ms: u64,
    /// The uids of pods that were placed after waits since the last rejection, the last ones.
    tried: Vec<Arc<str>>,
}

impl ControllerRejections {
    fn is_over(&self, now_ms: u64) -> bool {
        now_ms >= self.last_ms.max(self.until_ms).saturating_add(WINDOW_MS)
    }
}

/// A pod that a kubelet has rejected.
#[derive(Clone, Debug)]
pub struct RejectedPod {
    /// The pod as last seen.
    pub pod: PodView,
    /// The kubelet's reason.
    pub reason: Arc<str>,
    /// Whether one of our profiles has placed it.
    pub is_ours: bool,
    /// How many pods of its controller were rejected lately; 0 where that is not counted.
    pub times: usize,
    /// Whether it is to be deleted.
    pub is_discarded: bool,
}

impl RejectionBackoff {
    /// Forgets controllers whose last rejection, and wait, are long ago.
    pub(super) fn forget_old(&mut self, now_ms: u64) {
        self.controllers.retain(|_, of| !of.is_over(now_ms));
    }

    /// Counts a rejection, once for each pod. Returns how many there were lately.
    fn count(&mut self, owner: &Owner, (uid, reason): (&Arc<str>, &Arc<str>), now_ms: u64) -> Option<usize> {
        self.forget_old(now_ms);
        let of = self.controllers.entry(Arc::clone(&owner.uid)).or_insert_with(|| ControllerRejections {
            owner: owner.clone(),
            reason: Arc::clone(reason),
            pods: Vec::new(),
            times: 0,
            waits: 0,
            last_ms: now_ms,
            until_ms: 0,
            tried: Vec::new(),
        });
        if of.pods.contains(uid) {
            return None;
        }
        remember(&mut of.pods, uid);
        of.times += 1;
        of.reason = Arc::clone(reason);
        of.last_ms = now_ms;
        let was_placed_before = now_ms < of.until_ms && !of.tried.contains(uid);
        if of.times >= MAX_REJECTED && !was_placed_before {
            of.tried.clear();
            of.until_ms = now_ms.saturating_add((FIRST_WAIT_MS << of.waits.min(16)).min(LONGEST_WAIT_MS));
            of.waits += 1;
        }
        Some(of.times)
    }

    /// Until when pods of a controller wait, and why.
    fn wait(&self, owner: &str, now_ms: u64) -> Option<(u64, String)> {
        let of = self.controllers.get(owner).filter(|of| now_ms < of.until_ms)?;
        let ControllerRejections { owner, reason, times, until_ms, .. } = of;
        let seconds = (until_ms - now_ms).div_ceil(1_000);
        let text = format!(
            "kubelets have rejected {times} pods of {} {} ({reason}): the next one waits for {seconds} s",
            owner.kind, owner.name
        );
        Some((*until_ms, text))
    }

    /// A pod of a controller is placed. After a wait it is the only one until its kubelet has seen it.
    fn placed(&mut self, owner: &str, uid: &Arc<str>, now_ms: u64) {
        let Some(of) = self.controllers.get_mut(owner) else { return };
        if of.times >= MAX_REJECTED && !of.is_over(now_ms) {
            of.until_ms = now_ms.saturating_add(FIRST_WAIT_MS);
            remember(&mut of.tried, uid);
        }
    }

    /// A kubelet has admitted a pod. If it was placed after a wait, all is well with its controller by now.
    fn admitted(&mut self, uid: &Arc<str>) {
        self.controllers.retain(|_, of| !of.tried.contains(uid));
    }

    fn note(&mut self, rejected: RejectedPod) {
        if self.notes.len() == MAX_NOTES {
            self.notes.pop_front();
        }
        self.notes.push_back(rejected);
    }

    /// The next rejection to note.
    pub(super) fn next(&mut self) -> Option<Decision> {
        self.notes.pop_front().map(Decision::NoteRejection)
    }

    /// All rejections to note.
    pub(super) fn take_notes(&mut self) -> Vec<RejectedPod> {
        std::mem::take(&mut self.notes).into()
    }

    /// A pod is gone.
    pub(super) fn forget(&mut self, uid: &str) {
        self.there.remove(uid);
    }

    /// The node of each rejected pod that is still there.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.there.values()
    }

    /// Whether there is one.
    pub(super) fn has_notes(&self) -> bool {
        !self.notes.is_empty()
    }
}

/// Whether an owner makes another pod. The owner of a mirror pod, its node, does not.
fn is_controller(owner: &Owner) -> bool {
    *owner.kind != *"Node"
}

/// Adds a uid; of [`MAX_REMEMBERED`] the oldest goes.
fn remember(uids: &mut Vec<Arc<str>>, uid: &Arc<str>) {
    if uids.len() == MAX_REMEMBERED {
        uids.remove(0);
    }
    uids.push(Arc::clone(uid));
}

impl Core {
    /// The number of controllers whose pods wait, or come one by one.
    #[must_use]
    pub fn controllers_backing_off(&self) -> usize {
        self.rejections.controllers.values().filter(|of| of.times >= MAX_REJECTED).count()
    }

    /// Looks whether a pod has been rejected by its kubelet just now.
    pub(super) fn look_for_rejection(&mut self, pod: &PodView, now_ms: u64) {
        let Some(rejection) = &pod.rejection else {
            // One that failed at once may have been refused for something else, before a look at zones.
            if pod.progress.admitted && !pod.progress.terminal {
                self.rejections.admitted(&pod.uid);
            }
            return;
        };
        if let Some(node) = &pod.node {
            self.rejections.there.insert(Arc::clone(&pod.uid), Arc::clone(node));
        }
        let known = self.ids.get(&pod.uid).and_then(|id| self.pods.get(id));
        let is_old = match known {
            Some(entry) => entry.view.rejection.is_some(),
            // Of pods that failed before this process started, the last ones count.
            None => pod.created_s.saturating_mul(1_000).saturating_add(WINDOW_MS) < now_ms,
        };
        if is_old {
            return;
        }
        let placed_here = known.is_some_and(|entry| entry.placed_here);
        let profile = self.settings.profiles.iter().find(|profile| profile.name == pod.scheduler);
        let is_ours = profile.is_some();
        if placed_here && profile.is_some_and(|profile| profile.zone_filter().is_some()) {
            self.look_for_contradiction(pod, rejection, now_ms);
        }
        let Rejection { reason, owner } = &**rejection;
        let counted = match owner {
            Some(owner) if is_ours => self.rejections.count(owner, (&pod.uid, reason), now_ms),
            _ => Some(0),
        };
        if let Some(times) = counted {
            self.rejections.note(RejectedPod {
                pod: pod.clone(),
                reason: Arc::clone(reason),
                is_ours,
                times,
                is_discarded: self.settings.deletes_rejected && owner.as_ref().is_some_and(is_controller),
            });
        }
    }

    /// The decision about a pod whose controller's pods were rejected too often. A gang waits as a whole.
    pub(super) fn back_off_rejected(&mut self, id: PodId, pod: &PodView, now_ms: u64) -> Option<Decision> {
        let (until_ms, message) = self.rejection_wait(pod, now_ms).filter(|_| !self.is_in_gang(id))?;
        // What is kept for it would be of no use to anybody meanwhile.
        self.nominate(id, None);
        self.end_hold_of(id, now_ms);
        self.queue.delay(id, until_ms);
        Some(Decision::Refuse(Refused::new((pod.clone(), message, Refusals::default()))))
    }

    /// Until when the next pod of this one's controller waits, and why.
    pub(super) fn rejection_wait(&self, pod: &PodView, now_ms: u64) -> Option<(u64, String)> {
        self.rejections.wait(pod.owner.as_ref()?, now_ms)
    }

    /// Notes that a pod has been placed for good.
    pub(super) fn note_placement(&mut self, id: PodId, now_ms: u64) {
        let Some(pod) = self.pods.get(&id).map(|entry| &entry.view) else { return };
        if let Some(owner) = &pod.owner {
            self.rejections.placed(owner, &pod.uid, now_ms);
        }
    }
}
