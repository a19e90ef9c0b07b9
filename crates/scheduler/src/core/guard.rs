//! A guard against storms of rejections: pods of one controller that kubelets reject again and again.
//!
//! In: pods that a kubelet has rejected, the time. Out: until when the next pods of their controllers wait, and why.
//! Never: a verdict about a node.
//!
//! A controller makes a new pod for each that fails. Where a prediction is wrong for good, that would go on as fast as
//! pods can be placed. So after [`MAX_REJECTED`] rejections of one controller's pods within [`WINDOW_MS`], its pods
//! wait a minute, and twice as long after each further one, up to half an hour. Pods without a controller come once.
//!
//! Cost: nothing for pods that are not rejected but a look at a map of controllers in trouble, mostly empty.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Core, Decision, Refused};
use crate::ledger::PodId;
use crate::pod::{Owner, PodView};
use crate::reason::Refusals;

/// Rejections of one controller's pods after which the next one waits.
const MAX_REJECTED: usize = 3;
/// Rejections that are further apart have nothing to do with each other.
const WINDOW_MS: u64 = 10 * 60 * 1_000;
/// The first wait.
const FIRST_WAIT_MS: u64 = 60 * 1_000;
/// The longest wait.
const LONGEST_WAIT_MS: u64 = 30 * 60 * 1_000;
/// Most pods of one controller that are remembered, to count each once.
const MAX_REMEMBERED: usize = 32;

/// Controllers whose pods are rejected, by uid.
#[derive(Debug, Default)]
pub(super) struct Guard {
    storms: BTreeMap<Arc<str>, Storm>,
}

#[derive(Debug)]
struct Storm {
    owner: Owner,
    /// The kubelet's reason, of the last one.
    reason: Arc<str>,
    /// Rejected pods by uid, the last ones.
    pods: Vec<Arc<str>>,
    times: usize,
    last_ms: u64,
    until_ms: u64,
}

/// A pod that a kubelet has rejected.
#[derive(Clone, Debug)]
pub struct RejectedPod {
    /// The pod as last seen.
    pub pod: PodView,
    /// Whether one of our profiles has placed it.
    pub is_ours: bool,
    /// How many pods of its controller were rejected lately; 0 where that is not counted.
    pub times: usize,
    /// Whether it is to be deleted.
    pub is_discarded: bool,
}

impl Guard {
    /// Counts a rejection, once for each pod. Returns how many there were lately.
    fn count(&mut self, owner: &Owner, (uid, reason): (&Arc<str>, &Arc<str>), now_ms: u64) -> Option<usize> {
        self.storms.retain(|_, storm| now_ms < storm.last_ms.max(storm.until_ms).saturating_add(WINDOW_MS));
        let storm = self.storms.entry(Arc::clone(&owner.uid)).or_insert_with(|| Storm {
            owner: owner.clone(),
            reason: Arc::clone(reason),
            pods: Vec::new(),
            times: 0,
            last_ms: now_ms,
            until_ms: 0,
        });
        if storm.pods.contains(uid) {
            return None;
        }
        if storm.pods.len() == MAX_REMEMBERED {
            storm.pods.remove(0);
        }
        storm.pods.push(Arc::clone(uid));
        storm.times += 1;
        storm.reason = Arc::clone(reason);
        storm.last_ms = now_ms;
        if let Some(further) = storm.times.checked_sub(MAX_REJECTED) {
            let doubled =
                u32::try_from(further).ok().and_then(|times| FIRST_WAIT_MS.checked_shl(times.min(16)));
            let wait_ms = doubled.unwrap_or(LONGEST_WAIT_MS).min(LONGEST_WAIT_MS);
            storm.until_ms = now_ms.saturating_add(wait_ms);
        }
        Some(storm.times)
    }

    /// Until when pods of a controller wait, and why.
    fn wait(&self, owner: &Owner, now_ms: u64) -> Option<(u64, String)> {
        let storm = self.storms.get(&owner.uid).filter(|storm| now_ms < storm.until_ms)?;
        let Storm { owner, reason, times, until_ms, .. } = storm;
        let seconds = (until_ms - now_ms).div_ceil(1_000);
        let text = format!(
            "kubelets have rejected {times} pods of {} {} ({reason}): the next one waits for {seconds} s",
            owner.kind, owner.name
        );
        Some((*until_ms, text))
    }
}

impl Core {
    /// Looks whether a pod has been rejected by its kubelet just now.
    pub(super) fn guard(&mut self, pod: &PodView, now_ms: u64) {
        let Some(rejection) = &pod.rejection else { return };
        let known = self.ids.get(&pod.uid).and_then(|id| self.pods.get(id));
        let is_old = match known {
            Some(entry) => entry.view.rejection.is_some(),
            // Of pods that failed before this process started, the last ones count.
            None => pod.created_s.saturating_mul(1_000).saturating_add(WINDOW_MS) < now_ms,
        };
        if is_old {
            return;
        }
        let is_ours = self.settings.profiles.iter().any(|profile| profile.name == pod.scheduler);
        let counted = match &pod.owner {
            Some(owner) if is_ours => self.guard.count(owner, (&pod.uid, rejection), now_ms),
            _ => Some(0),
        };
        if let Some(times) = counted {
            self.waits.decide(Decision::NoteRejection(RejectedPod {
                pod: pod.clone(),
                is_ours,
                times,
                is_discarded: self.settings.deletes_rejected && pod.owner.is_some(),
            }));
        }
    }

    /// The decision about a pod whose controller's pods were rejected too often.
    pub(super) fn guarded(&mut self, id: PodId, pod: &PodView, now_ms: u64) -> Option<Decision> {
        let owner = pod.owner.as_ref()?;
        let (until_ms, message) = self.guard.wait(owner, now_ms)?;
        self.queue.delay(id, until_ms);
        Some(Decision::Refuse(Refused::new((pod.clone(), message, Refusals::default()))))
    }
}
