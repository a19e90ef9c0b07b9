//! Pods waiting to be scheduled.
//!
//! In: pods, and what became of their attempts. Out: the next pod to try. Never: an opinion about where it fits; the core
//! asks for the first of each waiting class and wakes it when a node it fits has changed.
//!
//! Three places, as in kube-scheduler: *active* (try now), *backoff* (an error happened, try when its time has come) and
//! *waiting* (nothing fits; nodes must change). Unlike there, waiting pods are woken by a change that makes them fit, at once,
//! however often they failed before; backoff only slows down errors. Cost: log(pods) per step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ledger::PodId;
use crate::pod::Spec;

/// Order of trial: higher priority first, then first come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    priority: std::cmp::Reverse<i32>,
    arrival: u64,
    /// The pod.
    pub pod: PodId,
}

/// Pods that ask for the same, and so fit or do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class(u64);

/// Where a pod is; backoff and waiting with the time they end at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Active,
    Backoff(u64),
    Waiting(u64),
    /// Being tried, or assumed.
    Out,
}

#[derive(Debug)]
struct Entry {
    rank: Rank,
    class: Class,
    spec: Arc<Spec>,
    at: Where,
    errors: u32,
    attempts: u32,
}

/// The queue.
#[derive(Debug, Default)]
pub struct Queue {
    entries: BTreeMap<PodId, Entry>,
    active: BTreeSet<Rank>,
    /// Pods in backoff and waiting pods, by when they are tried again whatever happens.
    timed: BTreeSet<(u64, Rank)>,
    waiting: BTreeMap<Class, BTreeSet<Rank>>,
    classes: std::collections::HashMap<Arc<Spec>, (Class, usize)>,
    next_class: u64,
    arrivals: u64,
}

/// Backoff of pods whose attempt ended in an error, milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// `podInitialBackoffSeconds`.
    pub initial_ms: u64,
    /// `podMaxBackoffSeconds`.
    pub max_ms: u64,
}

/// Pods that have waited this long are tried again even if nothing we know of changed (kube-scheduler's
/// `--pod-max-in-unschedulable-pods-duration`).
const MAX_WAIT_MS: u64 = 5 * 60 * 1000;

impl Queue {
    /// Adds a pod to be tried. A pod that is already queued keeps its place in line; its wishes are taken anew.
    pub fn push(&mut self, pod: PodId, priority: i32, spec: &Arc<Spec>) {
        let previous = self.remove(pod);
        let arrival = previous.as_ref().map_or(self.arrivals, |entry| entry.rank.arrival);
        self.arrivals += u64::from(previous.is_none());
        let rank = Rank { priority: std::cmp::Reverse(priority), arrival, pod };
        let class = self.join(spec);
        let (errors, attempts) = previous.map_or((0, 0), |entry| (entry.errors, entry.attempts));
        self.active.insert(rank);
        let entry = Entry { rank, class, spec: Arc::clone(spec), at: Where::Active, errors, attempts };
        self.entries.insert(pod, entry);
    }

    /// Takes the next pod to try.
    pub fn pop(&mut self) -> Option<PodId> {
        let rank = self.active.pop_first()?;
        if let Some(entry) = self.entries.get_mut(&rank.pod) {
            entry.at = Where::Out;
            entry.attempts += 1;
        }
        Some(rank.pod)
    }

    /// Nothing fits: the pod waits for nodes to change.
    pub fn wait(&mut self, pod: PodId, now_ms: u64) {
        self.settle(pod, Where::Waiting(now_ms + MAX_WAIT_MS));
    }

    /// The attempt ended in an error: the pod is tried again after a while, longer each time.
    pub fn back_off(&mut self, pod: PodId, now_ms: u64, backoff: Backoff) {
        let Some(entry) = self.entries.get_mut(&pod) else { return };
        entry.errors = entry.errors.saturating_add(1);
        let factor = 1_u64 << entry.errors.saturating_sub(1).min(16);
        let delay = backoff.initial_ms.saturating_mul(factor).min(backoff.max_ms);
        self.settle(pod, Where::Backoff(now_ms + delay));
    }

    /// The pod is scheduled or gone.
    pub fn forget(&mut self, pod: PodId) {
        self.remove(pod);
    }

    /// The first waiting pod of each class, in order of trial.
    #[must_use]
    pub fn waiting_heads(&self) -> Vec<(Rank, Arc<Spec>)> {
        let mut heads: Vec<_> = self
            .waiting
            .values()
            .filter_map(|ranks| ranks.first())
            .filter_map(|rank| Some((*rank, Arc::clone(&self.entries.get(&rank.pod)?.spec))))
            .collect();
        heads.sort_unstable_by_key(|(rank, _)| *rank);
        heads
    }

    /// Whether any pod waits for nodes to change.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Moves a waiting pod to the active ones.
    pub fn wake(&mut self, pod: PodId) {
        self.settle(pod, Where::Active);
    }

    /// Moves pods whose time has come to the active ones.
    pub fn tick(&mut self, now_ms: u64) {
        while let Some((_, rank)) = self.timed.first().filter(|(due, _)| *due <= now_ms).copied() {
            self.settle(rank.pod, Where::Active);
        }
    }

    /// When [`Queue::tick`] next has something to do.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        self.timed.first().map(|(due, _)| *due)
    }

    /// (active, backoff, waiting): the `pending_pods` metric.
    #[must_use]
    pub fn lengths(&self) -> (usize, usize, usize) {
        let waiting = self.waiting.values().map(BTreeSet::len).sum();
        (self.active.len(), self.timed.len().saturating_sub(waiting), waiting)
    }

    /// How often the pod has been tried.
    #[must_use]
    pub fn attempts(&self, pod: PodId) -> u32 {
        self.entries.get(&pod).map_or(0, |entry| entry.attempts)
    }

    fn settle(&mut self, pod: PodId, to: Where) {
        let Some(entry) = self.entries.get_mut(&pod) else { return };
        let (from, rank, class) = (std::mem::replace(&mut entry.at, to), entry.rank, entry.class);
        self.leave(from, rank, class);
        match to {
            Where::Active => {
                self.active.insert(rank);
            }
            Where::Backoff(due) => {
                self.timed.insert((due, rank));
            }
            Where::Waiting(due) => {
                self.timed.insert((due, rank));
                self.waiting.entry(class).or_default().insert(rank);
            }
            Where::Out => {}
        }
    }

    fn leave(&mut self, from: Where, rank: Rank, class: Class) {
        match from {
            Where::Active => {
                self.active.remove(&rank);
            }
            Where::Backoff(due) => {
                self.timed.remove(&(due, rank));
            }
            Where::Waiting(due) => {
                self.timed.remove(&(due, rank));
                if let Some(ranks) = self.waiting.get_mut(&class) {
                    ranks.remove(&rank);
                    if ranks.is_empty() {
                        self.waiting.remove(&class);
                    }
                }
            }
            Where::Out => {}
        }
    }

    fn remove(&mut self, pod: PodId) -> Option<Entry> {
        let entry = self.entries.remove(&pod)?;
        self.leave(entry.at, entry.rank, entry.class);
        if let Some((_, members)) = self.classes.get_mut(&entry.spec) {
            *members -= 1;
            if *members == 0 {
                self.classes.remove(&entry.spec);
            }
        }
        Some(entry)
    }

    fn join(&mut self, spec: &Arc<Spec>) -> Class {
        if let Some((class, members)) = self.classes.get_mut(spec) {
            *members += 1;
            return *class;
        }
        self.next_class += 1;
        let class = Class(self.next_class);
        self.classes.insert(Arc::clone(spec), (class, 1));
        class
    }
}
