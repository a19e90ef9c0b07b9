//! Pods waiting to be scheduled.
//!
//! In: pods, and the results of their attempts. Out: the next pod to try. Never: a judgement of where a pod fits; the
//! core tests the first pod of each waiting class and wakes it when it fits on a changed node.
//!
//! There are three queues, as in kube-scheduler: *active* (try now), *backoff* (try later, after an error) and
//! *waiting* (fits no node; nodes must change). Unlike there, a change that makes a waiting pod fit wakes the pod at
//! once, however often it has failed; backoff only slows down errors. Cost: log(pods) per step.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use runtime::backoff;
use topology::resource::ResourceName;

use crate::ledger::PodId;
use crate::node;
use crate::pod::Spec;

/// Order of attempts: higher priority first, then first come, first served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Pods of a gang that is bound in part come first: room was found for them already.
    preferred: std::cmp::Reverse<bool>,
    priority: std::cmp::Reverse<i32>,
    arrival: u64,
    /// The pod.
    pub pod: PodId,
}

impl Rank {
    /// Whether the pod has a higher priority than another.
    #[must_use]
    pub fn is_more_important(self, than: Self) -> bool {
        self.priority < than.priority
    }
}

/// Pods of one profile with equal specs, which fit or do not fit together, but for anti-affinity: that of other pods
/// tells them apart by their labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class(u64);

/// What all pods of a waiting class have in common; the amounts beside the spec, to be compared at once.
#[derive(Debug)]
pub struct Head {
    /// CPU that a pod takes of its node's total, in thousandths.
    pub cpu: i64,
    /// Memory that a pod takes of its node's total, in bytes.
    pub memory: i64,
    /// The constraints.
    pub spec: Arc<Spec>,
}

/// The scheduler name of a profile, and a spec.
type ClassKey = (Arc<str>, Arc<Spec>);

/// The queue of a pod; backoff and waiting with the time at which they end at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueState {
    Active,
    Backoff(u64),
    Waiting(u64),
    /// Waiting with others of its gang, of which each attempt takes all.
    Following,
    /// In no queue: being tried, or assumed.
    Popped,
}

#[derive(Debug)]
struct Entry {
    rank: Rank,
    class: Class,
    key: ClassKey,
    state: QueueState,
    errors: u32,
    attempts: u32,
    /// The start of the first attempt.
    first_attempt_ms: Option<u64>,
    /// The first refusal.
    refused_ms: Option<u64>,
    /// Number of times that a node was held for the pod.
    holds: u32,
}

/// The pods to be scheduled.
#[derive(Debug, Default)]
pub struct Queue {
    entries: BTreeMap<PodId, Entry>,
    active: BTreeSet<Rank>,
    /// Pods in backoff and waiting pods, by the time at which they are tried again in any case.
    timed: BTreeSet<(u64, Rank)>,
    waiting: BTreeMap<Class, BTreeSet<Rank>>,
    /// The first pod of each waiting class.
    heads: BTreeMap<Rank, Head>,
    /// Those of them whose verdict about a node depends on others.
    spanning: BTreeMap<Class, Arc<Spec>>,
    /// Those of them with volumes that limit where they can run.
    with_volumes: BTreeMap<Class, Arc<Spec>>,
    /// Those of them with claims for devices, or with extended resources, which devices may serve.
    with_claims: BTreeMap<Class, Arc<Spec>>,
    /// Waiting pods by their first refusal.
    refused: BTreeSet<(u64, PodId)>,
    /// Each class with the number of its pods.
    classes: HashMap<ClassKey, (Class, usize)>,
    next_class: u64,
    arrivals: u64,
    /// Time after which waiting pods are tried again even without a change.
    max_wait_ms: u64,
    incoming: Incoming,
    /// Number of pods that follow others of their gang.
    following: usize,
}

/// The way of a pod into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    Added,
    Gated,
    Updated,
    Woken,
    BackoffOver,
    WaitOver,
    Refused,
    Failed,
}

/// Numbers of arrivals in each queue since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Incoming([u64; 8]);

impl Incoming {
    /// Queue and event of each number, with kube-scheduler's names. A pod that is woken has been found to fit, which is
    /// no event there; it counts as activated.
    pub const NAMES: [(&str, &str); 8] = [
        ("active", "UnschedulablePodAdd"),
        ("unschedulable", "UnschedulablePodAdd"),
        ("active", "UnschedulablePodUpdate"),
        ("active", "ForceActivate"),
        ("active", "BackoffComplete"),
        ("active", "UnschedulableTimeout"),
        ("unschedulable", "ScheduleAttemptFailure"),
        ("backoff", "ScheduleAttemptFailure"),
    ];

    fn count(&mut self, arrival: Arrival) {
        if let Some(count) = self.0.get_mut(arrival as usize) {
            *count += 1;
        }
    }

    /// Each number with its queue and event.
    pub fn iter(&self) -> impl Iterator<Item = ((&'static str, &'static str), u64)> {
        Self::NAMES.into_iter().zip(self.0)
    }
}

/// Limits of the backoff after errors, in milliseconds. No jitter: attempts are serial anyway, and runs stay
/// reproducible.
#[derive(Clone, Copy, Debug)]
pub struct BackoffLimits {
    /// `podInitialBackoffSeconds`.
    pub initial_ms: u64,
    /// `podMaxBackoffSeconds`.
    pub max_ms: u64,
}

impl Rank {
    /// The priority of the pod.
    #[must_use]
    pub fn priority(self) -> i32 {
        self.priority.0
    }
}

impl Head {
    fn of(spec: &Arc<Spec>) -> Self {
        let amount = |name| node::amount(&spec.needs.totals, name);
        Self { cpu: amount(ResourceName::CPU), memory: amount(ResourceName::MEMORY), spec: Arc::clone(spec) }
    }

    /// Whether a node with so much CPU and memory left has too little of one. Cost: two comparisons.
    #[must_use]
    pub fn exceeds(&self, (cpu, memory): (i64, i64)) -> bool {
        (self.cpu > 0 && self.cpu > cpu) || (self.memory > 0 && self.memory > memory)
    }
}

impl Queue {
    /// A queue whose waiting pods are tried again after this time in any case.
    #[must_use]
    pub fn new(max_wait_ms: u64) -> Self {
        Self { max_wait_ms, ..Self::default() }
    }

    /// Adds a pod of a profile to be tried. A queued pod keeps its rank among equals and gets the new spec and
    /// priority.
    pub fn push(&mut self, pod: PodId, priority: i32, (profile, spec): (&Arc<str>, &Arc<Spec>)) {
        let previous = self.remove(pod);
        self.incoming.count(if previous.is_none() { Arrival::Added } else { Arrival::Updated });
        let arrival = previous.as_ref().map_or(self.arrivals, |entry| entry.rank.arrival);
        self.arrivals += u64::from(previous.is_none());
        let preferred = std::cmp::Reverse(false);
        let rank = Rank { preferred, priority: std::cmp::Reverse(priority), arrival, pod };
        let key = (Arc::clone(profile), Arc::clone(spec));
        let class = self.class_of(&key);
        self.active.insert(rank);
        let entry = match previous {
            Some(previous) => Entry { rank, class, key, state: QueueState::Active, ..previous },
            None => {
                let (state, refused_ms) = (QueueState::Active, None);
                Entry {
                    rank,
                    class,
                    key,
                    state,
                    errors: 0,
                    attempts: 0,
                    first_attempt_ms: None,
                    refused_ms,
                    holds: 0,
                }
            }
        };
        self.entries.insert(pod, entry);
    }

    /// Takes the next pod to try.
    pub fn pop(&mut self, now_ms: u64) -> Option<PodId> {
        let pod = self.active.first()?.pod;
        self.take(pod, now_ms);
        Some(pod)
    }

    /// Takes this pod to try, wherever it is.
    pub fn take(&mut self, pod: PodId, now_ms: u64) {
        self.move_to(pod, QueueState::Popped);
        if let Some(entry) = self.entries.get_mut(&pod) {
            entry.attempts += 1;
            entry.first_attempt_ms.get_or_insert(now_ms);
        }
    }

    /// The pod waits until another one of its gang is tried.
    pub fn follow(&mut self, pod: PodId) {
        if !self.is_waiting(pod) {
            self.incoming.count(Arrival::Refused);
        }
        self.move_to(pod, QueueState::Following);
    }

    /// Whether the pod follows another one of its gang.
    #[must_use]
    pub fn is_following(&self, pod: PodId) -> bool {
        self.entries.get(&pod).is_some_and(|entry| entry.state == QueueState::Following)
    }

    /// Moves a pod that waits or follows another one to the active ones.
    pub fn resume(&mut self, pod: PodId) {
        if self.is_waiting(pod) || self.is_following(pod) {
            self.incoming.count(Arrival::Woken);
            self.move_to(pod, QueueState::Active);
        }
    }

    /// Whether the pod comes before all that are not preferred, from now on.
    pub fn prefer(&mut self, pod: PodId, is_preferred: bool) {
        let preferred = std::cmp::Reverse(is_preferred);
        let Some(entry) = self.entries.get(&pod).filter(|entry| entry.rank.preferred != preferred) else {
            return;
        };
        let state = entry.state;
        self.move_to(pod, QueueState::Popped);
        if let Some(entry) = self.entries.get_mut(&pod) {
            entry.rank.preferred = preferred;
        }
        self.move_to(pod, state);
    }

    /// The pod fits no node, and waits for nodes to change.
    pub fn wait(&mut self, pod: PodId, now_ms: u64) {
        if let Some(entry) = self.entries.get_mut(&pod) {
            entry.refused_ms.get_or_insert(now_ms);
        }
        self.incoming.count(Arrival::Refused);
        self.move_to(pod, QueueState::Waiting(now_ms.saturating_add(self.max_wait_ms)));
    }

    /// The attempt ended in an error. The pod is tried again after a delay that doubles with each error.
    pub fn back_off(&mut self, pod: PodId, now_ms: u64, limits: BackoffLimits) {
        let Some(entry) = self.entries.get_mut(&pod) else { return };
        let (min, max) = (Duration::from_millis(limits.initial_ms), Duration::from_millis(limits.max_ms));
        let delay_ms = backoff::doubled(min, max, entry.errors).as_millis();
        entry.errors = entry.errors.saturating_add(1);
        let until_ms = now_ms.saturating_add(u64::try_from(delay_ms).unwrap_or(u64::MAX));
        self.incoming.count(Arrival::Failed);
        self.move_to(pod, QueueState::Backoff(until_ms));
    }

    /// The pod is not tried before a time.
    pub fn delay(&mut self, pod: PodId, until_ms: u64) {
        self.incoming.count(Arrival::Failed);
        self.move_to(pod, QueueState::Backoff(until_ms));
    }

    /// The pod is scheduled or gone.
    pub fn forget(&mut self, pod: PodId) {
        self.remove(pod);
    }

    /// The first waiting pod of each class, in order of attempts.
    pub fn heads(&self) -> impl Iterator<Item = (Rank, &Head)> + '_ {
        self.heads_after(None)
    }

    /// Those of them that come after a rank, if one is given.
    pub fn heads_after(&self, rank: Option<Rank>) -> impl Iterator<Item = (Rank, &Head)> + '_ {
        let after = rank.map_or(Unbounded, Excluded);
        self.heads.range((after, Unbounded)).map(|(rank, head)| (*rank, head))
    }

    /// Waiting classes whose verdict about a node depends on others, with their specs.
    pub fn spanning(&self) -> impl Iterator<Item = (Class, &Spec)> + '_ {
        self.spanning.iter().map(|(class, spec)| (*class, &**spec))
    }

    /// Waiting classes with volumes that limit where they can run, with their specs.
    pub fn with_volumes(&self) -> impl Iterator<Item = (Class, &Spec)> + '_ {
        self.with_volumes.iter().map(|(class, spec)| (*class, &**spec))
    }

    /// Waiting classes with claims for devices, with their specs.
    pub fn with_claims(&self) -> impl Iterator<Item = (Class, &Spec)> + '_ {
        self.with_claims.iter().map(|(class, spec)| (*class, &**spec))
    }

    /// The first waiting pod of a class.
    #[must_use]
    pub fn first_of(&self, class: Class) -> Option<Rank> {
        self.waiting.get(&class)?.first().copied()
    }

    /// The class of a pod.
    #[must_use]
    pub fn class(&self, pod: PodId) -> Option<Class> {
        self.entries.get(&pod).map(|entry| entry.class)
    }

    /// The class of a pod, if there are others of it.
    #[must_use]
    pub fn shared_class(&self, pod: PodId) -> Option<Class> {
        let entry = self.entries.get(&pod)?;
        self.classes.get(&entry.key).filter(|(_, pods)| *pods > 1).map(|(class, _)| *class)
    }

    /// Waiting pods of the class of this one, in order of attempts.
    pub fn peers(&self, pod: PodId) -> impl Iterator<Item = Rank> + '_ {
        let class = self.entries.get(&pod).and_then(|entry| self.waiting.get(&entry.class));
        class.into_iter().flatten().copied()
    }

    /// The place of a pod in the order of attempts; `None`: it is not queued.
    #[must_use]
    pub fn rank(&self, pod: PodId) -> Option<Rank> {
        self.entries.get(&pod).map(|entry| entry.rank)
    }

    /// The earliest first refusal of the waiting pods.
    #[must_use]
    pub fn longest_refused_ms(&self) -> Option<u64> {
        self.refused.first().map(|(since, _)| *since)
    }

    /// The time of a pod's first refusal.
    #[must_use]
    pub fn refused_ms(&self, pod: PodId) -> Option<u64> {
        self.entries.get(&pod)?.refused_ms
    }

    /// How often a node was held for the pod.
    #[must_use]
    pub fn holds(&self, pod: PodId) -> u32 {
        self.entries.get(&pod).map_or(0, |entry| entry.holds)
    }

    /// Counts that a node is held for the pod; returns how often one was before.
    pub fn count_hold(&mut self, pod: PodId) -> u32 {
        self.entries.get_mut(&pod).map_or(0, |entry| {
            entry.holds = entry.holds.saturating_add(1);
            entry.holds - 1
        })
    }

    /// A pod that is being tried has another spec from now on.
    pub fn respecify(&mut self, pod: PodId, spec: &Arc<Spec>) {
        let Some(entry) = self.entries.get(&pod).filter(|entry| entry.state == QueueState::Popped) else {
            return;
        };
        let before = entry.key.clone();
        let key = (Arc::clone(&before.0), Arc::clone(spec));
        let class = self.class_of(&key);
        self.leave_class(&before);
        if let Some(entry) = self.entries.get_mut(&pod) {
            (entry.key, entry.class) = (key, class);
        }
    }

    /// The pods that wait for nodes to change.
    pub fn waiting(&self) -> impl Iterator<Item = PodId> + '_ {
        self.waiting.values().flatten().map(|rank| rank.pod)
    }

    /// Whether the pod waits for nodes to change.
    #[must_use]
    pub fn is_waiting(&self, pod: PodId) -> bool {
        self.entries.get(&pod).is_some_and(|entry| matches!(entry.state, QueueState::Waiting(_)))
    }

    /// Whether any pod waits for nodes to change.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Moves a waiting pod to the active ones.
    pub fn wake(&mut self, pod: PodId) {
        if self.is_waiting(pod) {
            self.incoming.count(Arrival::Woken);
        }
        self.move_to(pod, QueueState::Active);
    }

    /// Moves pods whose backoff or wait is over to the active ones.
    pub fn tick(&mut self, now_ms: u64) {
        while let Some((_, rank)) = self.timed.first().filter(|(due, _)| *due <= now_ms).copied() {
            let waited = self.is_waiting(rank.pod);
            self.incoming.count(if waited { Arrival::WaitOver } else { Arrival::BackoffOver });
            self.move_to(rank.pod, QueueState::Active);
        }
    }

    /// The time at which [`Queue::tick`] next has something to do.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        self.timed.first().map(|(due, _)| *due)
    }

    /// Numbers of active pods, pods in backoff and waiting pods, for the metric `pending_pods`.
    #[must_use]
    pub fn lengths(&self) -> (usize, usize, usize) {
        let waiting: usize = self.waiting.values().map(BTreeSet::len).sum();
        (self.active.len(), self.timed.len().saturating_sub(waiting), waiting + self.following)
    }

    /// Number of attempts of a pod so far, and the start of the first.
    #[must_use]
    pub fn attempts(&self, pod: PodId) -> (u32, u64) {
        let entry = self.entries.get(&pod);
        entry.map_or((0, 0), |entry| (entry.attempts, entry.first_attempt_ms.unwrap_or(0)))
    }

    /// Counts a pod with scheduling gates. It is in no queue here; in kube-scheduler it is among those that wait.
    pub fn count_gated(&mut self) {
        self.incoming.count(Arrival::Gated);
    }

    /// How often pods came into each queue.
    #[must_use]
    pub fn incoming(&self) -> Incoming {
        self.incoming
    }

    fn move_to(&mut self, pod: PodId, to: QueueState) {
        let Some(entry) = self.entries.get_mut(&pod) else { return };
        let (from, rank, class) = (std::mem::replace(&mut entry.state, to), entry.rank, entry.class);
        let (refused_ms, spec) = (entry.refused_ms, Arc::clone(&entry.key.1));
        self.remove_from(from, rank, class);
        self.refused.remove(&(refused_ms.unwrap_or(0), pod));
        match to {
            QueueState::Active => {
                self.active.insert(rank);
            }
            QueueState::Backoff(due) => {
                self.timed.insert((due, rank));
            }
            QueueState::Waiting(due) => {
                self.timed.insert((due, rank));
                let ranks = self.waiting.entry(class).or_default();
                let first = ranks.first().copied();
                ranks.insert(rank);
                if first.is_none_or(|first| rank < first) {
                    let known = first.and_then(|first| self.heads.remove(&first));
                    self.heads.insert(rank, known.unwrap_or_else(|| Head::of(&spec)));
                }
                if !spec.volumes.is_empty() {
                    self.with_volumes.insert(class, Arc::clone(&spec));
                }
                if spec.may_use_devices() {
                    self.with_claims.insert(class, Arc::clone(&spec));
                }
                if spec.spans_nodes() {
                    self.spanning.insert(class, spec);
                }
                self.refused.extend(refused_ms.map(|since| (since, pod)));
            }
            QueueState::Following => self.following += 1,
            QueueState::Popped => {}
        }
    }

    fn remove_from(&mut self, from: QueueState, rank: Rank, class: Class) {
        match from {
            QueueState::Active => {
                self.active.remove(&rank);
            }
            QueueState::Backoff(due) => {
                self.timed.remove(&(due, rank));
            }
            QueueState::Waiting(due) => {
                self.timed.remove(&(due, rank));
                let head = self.heads.remove(&rank);
                if let Some(ranks) = self.waiting.get_mut(&class) {
                    ranks.remove(&rank);
                    self.heads.extend(head.and_then(|head| Some((*ranks.first()?, head))));
                    if ranks.is_empty() {
                        self.waiting.remove(&class);
                        self.spanning.remove(&class);
                        self.with_volumes.remove(&class);
                        self.with_claims.remove(&class);
                    }
                }
            }
            QueueState::Following => self.following = self.following.saturating_sub(1),
            QueueState::Popped => {}
        }
    }

    fn remove(&mut self, pod: PodId) -> Option<Entry> {
        let entry = self.entries.remove(&pod)?;
        self.remove_from(entry.state, entry.rank, entry.class);
        self.refused.remove(&(entry.refused_ms.unwrap_or(0), pod));
        self.leave_class(&entry.key);
        Some(entry)
    }

    fn leave_class(&mut self, key: &ClassKey) {
        if let Some((_, members)) = self.classes.get_mut(key) {
            *members -= 1;
            if *members == 0 {
                self.classes.remove(key);
            }
        }
    }

    fn class_of(&mut self, key: &ClassKey) -> Class {
        if let Some((class, members)) = self.classes.get_mut(key) {
            *members += 1;
            return *class;
        }
        self.next_class += 1;
        let class = Class(self.next_class);
        self.classes.insert(key.clone(), (class, 1));
        class
    }
}
