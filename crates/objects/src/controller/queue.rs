//! A queue of keys, and the loop that reconciles them.
//!
//! In: keys, in any number and order. Out: calls of a [`Reconciler`]. Never: two reconciles of one key at a time, nor a
//! key that keeps another one waiting, up to the concurrency.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// Keys that wait for a reconcile, each once.
#[derive(Debug)]
pub struct Queue<K> {
    due: Mutex<BTreeSet<K>>,
    added: Notify,
}

/// The rules of a controller, as [`run`] calls them.
pub trait Reconciler: Send + Sync + 'static {
    /// What is reconciled.
    type Key: Clone + Ord + Send + 'static;
    /// What is remembered of a key between its reconciles; lost in a restart.
    type State: Default + Send + 'static;

    /// Whether enough is known to reconcile; keys wait until then.
    fn is_ready(&self) -> bool {
        true
    }

    /// Reconciles a key.
    fn reconcile(&self, key: &Self::Key, state: &mut Self::State) -> impl Future<Output = Requeue> + Send;
}

/// The reason of a requeue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// An action failed and may succeed later.
    Failed,
    /// An object of another program has to be looked at again; no watch reports it.
    Refused,
    /// Something has to be verified that is not watched.
    Resync,
    /// A deadline passes.
    Deadline,
}

/// When a key is reconciled again though nothing changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requeue {
    next: Option<(Instant, Reason)>,
    not_before: Option<Instant>,
    forget: bool,
}

/// How [`run`] runs.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Keys that are reconciled at the same time.
    pub concurrency: usize,
    /// The time to wait for further changes after one.
    pub gather: Duration,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self { due: Mutex::new(BTreeSet::new()), added: Notify::new() }
    }
}

impl<K: Ord> Queue<K> {
    /// Adds keys.
    pub fn extend(&self, keys: impl IntoIterator<Item = K>) {
        let mut due = self.due();
        let mut keys = keys.into_iter().peekable();
        if keys.peek().is_some() {
            due.extend(keys);
            drop(due);
            self.added.notify_one();
        }
    }

    /// Adds a key.
    pub fn add(&self, key: K) {
        self.extend([key]);
    }

    fn take(&self) -> BTreeSet<K> {
        std::mem::take(&mut self.due())
    }

    fn due(&self) -> MutexGuard<'_, BTreeSet<K>> {
        // A set of keys cannot be left half changed.
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Requeue {
    /// The key needs no reconcile before something changes.
    #[must_use]
    pub fn await_change() -> Self {
        Self::default()
    }

    /// Nothing is left of the key: its state is dropped.
    #[must_use]
    pub fn forget() -> Self {
        Self { forget: true, ..Self::default() }
    }

    /// The key is reconciled at this time too; the earliest time counts.
    #[must_use]
    pub fn at(mut self, reason: Reason, at: impl Into<Option<Instant>>) -> Self {
        if let Some(at) = at.into()
            && self.next.is_none_or(|(next, _)| at < next)
        {
            self.next = Some((at, reason));
        }
        self
    }

    /// The key is not reconciled before this time, whatever changes.
    #[must_use]
    pub fn not_before(mut self, at: Instant) -> Self {
        self.not_before = Some(at);
        self
    }

    /// The time of the next reconcile, and its reason.
    #[must_use]
    pub fn next(&self) -> Option<(Instant, Reason)> {
        self.next
    }
}

struct Known<S> {
    state: S,
    requeue: Requeue,
}

/// Reconciles keys until cancelled; reconciles that run then are completed.
///
/// A panic of a reconcile is passed on. Cost of a wake-up grows with the number of known keys.
pub async fn run<R: Reconciler>(
    reconciler: Arc<R>,
    queue: &Queue<R::Key>,
    options: Options,
    cancel: CancellationToken,
) {
    let mut known: BTreeMap<R::Key, Known<R::State>> = BTreeMap::new();
    let mut running: BTreeSet<R::Key> = BTreeSet::new();
    let mut due: BTreeSet<R::Key> = BTreeSet::new();
    let mut tasks: JoinSet<(R::Key, R::State, Requeue)> = JoinSet::new();
    loop {
        if reconciler.is_ready() {
            due.extend(queue.take());
        }
        let now = Instant::now();
        let timed = known.iter().filter(|(_, one)| one.requeue.next.is_some_and(|(at, _)| at <= now));
        due.extend(timed.map(|(key, _)| key.clone()));
        let held = |key: &R::Key| {
            known.get(key).and_then(|one| one.requeue.not_before).filter(|not_before| *not_before > now)
        };
        let ready: Vec<R::Key> =
            due.iter().filter(|key| !running.contains(*key) && held(key).is_none()).cloned().collect();
        let released = due.iter().filter_map(held).min();
        for key in ready.into_iter().take(options.concurrency.saturating_sub(running.len())) {
            due.remove(&key);
            running.insert(key.clone());
            let mut state = known.remove(&key).map(|one| one.state).unwrap_or_default();
            let reconciler = Arc::clone(&reconciler);
            tasks.spawn(async move {
                let requeue = reconciler.reconcile(&key, &mut state).await;
                (key, state, requeue)
            });
        }
        let timers = known.values().filter_map(|one| one.requeue.next.map(|(at, _)| at));
        let next = timers.chain(released).min();
        let timer = async {
            match next {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => break,
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => match ended {
                Ok((key, state, requeue)) => {
                    running.remove(&key);
                    if !requeue.forget {
                        if let Some((_, reason)) = requeue.next {
                            tracing::trace!(?reason, "requeued");
                        }
                        known.insert(key, Known { state, requeue });
                    }
                }
                Err(error) => {
                    if let Ok(panic) = error.try_into_panic() {
                        std::panic::resume_unwind(panic);
                    }
                }
            },
            () = queue.added.notified() => sleep(options.gather).await,
            () = timer => {}
        }
    }
    while tasks.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts reconciles by key.
    #[derive(Default)]
    struct Counter {
        seen: Mutex<Vec<(u8, usize)>>,
        running: Mutex<(usize, usize)>,
        reconciled: Notify,
        again: Option<Duration>,
        held: Option<Duration>,
    }

    impl Reconciler for Counter {
        type Key = u8;
        type State = usize;

        async fn reconcile(&self, key: &u8, state: &mut usize) -> Requeue {
            {
                let mut running = self.running.lock().unwrap();
                running.0 += 1;
                running.1 = running.1.max(running.0);
            }
            tokio::task::yield_now().await;
            self.running.lock().unwrap().0 -= 1;
            *state += 1;
            self.seen.lock().unwrap().push((*key, *state));
            self.reconciled.notify_one();
            if *key == 9 {
                return Requeue::forget();
            }
            let now = Instant::now();
            let requeue = Requeue::await_change().at(Reason::Failed, self.again.map(|again| now + again));
            match self.held {
                Some(held) => requeue.not_before(now + held),
                None => requeue,
            }
        }
    }

    impl Counter {
        async fn until(&self, wanted: impl Fn(&[(u8, usize)]) -> bool) -> Vec<(u8, usize)> {
            loop {
                let seen = self.seen.lock().unwrap().clone();
                if wanted(&seen) {
                    return seen;
                }
                self.reconciled.notified().await;
            }
        }
    }

    const OPTIONS: Options = Options { concurrency: 2, gather: Duration::from_millis(1) };

    /// Runs a controller while `test` does.
    async fn with<F: Future<Output = ()>>(
        counter: Counter,
        test: impl FnOnce(Arc<Counter>, Arc<Queue<u8>>) -> F,
    ) {
        let (counter, queue) = (Arc::new(counter), Arc::new(Queue::default()));
        let cancel = CancellationToken::new();
        let (one, keys, token) = (Arc::clone(&counter), Arc::clone(&queue), cancel.clone());
        let task = tokio::spawn(async move { run(one, &keys, OPTIONS, token).await });
        test(counter, queue).await;
        cancel.cancel();
        task.await.unwrap();
    }

    #[tokio::test]
    async fn a_key_is_reconciled_once_however_often_it_is_added() {
        let test = async |counter: Arc<Counter>, queue: Arc<Queue<u8>>| {
            queue.extend([1, 2, 1, 3, 4, 4]);
            let mut seen = counter.until(|seen| seen.len() >= 4).await;
            seen.sort_unstable();
            assert_eq!(seen, [(1, 1), (2, 1), (3, 1), (4, 1)]);
            assert!(counter.running.lock().unwrap().1 <= OPTIONS.concurrency);
        };
        with(Counter::default(), test).await;
    }

    #[tokio::test]
    async fn keys_come_back_when_their_requeue_says_so() {
        let again = Some(Duration::from_millis(1));
        let test = async |counter: Arc<Counter>, queue: Arc<Queue<u8>>| {
            queue.add(1);
            let seen = counter.until(|seen| seen.len() >= 3).await;
            assert_eq!(seen[..3], [(1, 1), (1, 2), (1, 3)]);
        };
        with(Counter { again, ..Counter::default() }, test).await;
    }

    #[tokio::test]
    async fn a_forgotten_key_starts_over() {
        let test = async |counter: Arc<Counter>, queue: Arc<Queue<u8>>| {
            for round in 1..=2 {
                queue.extend([8, 9]);
                counter.until(|seen| seen.len() >= 2 * round).await;
            }
            let mut seen = counter.until(|_| true).await;
            seen.sort_unstable();
            assert_eq!(seen, [(8, 1), (8, 2), (9, 1), (9, 1)]);
        };
        with(Counter::default(), test).await;
    }

    #[tokio::test]
    async fn a_held_key_waits_though_it_changes() {
        let held = Some(Duration::from_secs(3_600));
        let test = async |counter: Arc<Counter>, queue: Arc<Queue<u8>>| {
            queue.add(1);
            counter.until(|seen| seen.len() == 1).await;
            queue.add(1);
            queue.add(2);
            let seen = counter.until(|seen| seen.contains(&(2, 1))).await;
            assert_eq!(seen, [(1, 1), (2, 1)]);
        };
        with(Counter { held, ..Counter::default() }, test).await;
    }

    #[test]
    fn the_earliest_requeue_counts() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let both = Requeue::await_change().at(Reason::Failed, later).at(Reason::Resync, now);
        assert_eq!(both.next(), Some((now, Reason::Resync)));
        assert_eq!(both.at(Reason::Deadline, None), both);
    }
}
