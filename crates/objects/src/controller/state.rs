//! The observed state, between the watches that feed it and the reconciles that read it.
//!
//! In: what watches and the answers to writes say. Out: a look at it; keys in the queue. Never: a wait while it is
//! locked.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Queue;

/// A state and the queue of the keys that its changes concern.
#[derive(Debug)]
pub struct SharedState<S, K> {
    state: Mutex<S>,
    /// The queue.
    pub queue: Queue<K>,
}

impl<S, K: Ord> SharedState<S, K> {
    /// Shares a state; the queue is empty.
    #[must_use]
    pub fn new(state: S) -> Self {
        Self { state: Mutex::new(state), queue: Queue::default() }
    }

    /// Reads the state; no other access is possible meanwhile.
    pub fn read<T>(&self, look: impl FnOnce(&S) -> T) -> T {
        look(&self.lock())
    }

    /// Changes the state. The change returns the keys that it concerns; they are queued.
    pub fn update<C: IntoIterator<Item = K>>(&self, change: impl FnOnce(&mut S) -> C) {
        let concerned = change(&mut self.lock());
        self.queue.extend(concerned);
    }

    /// Changes the state where no key is concerned, or where the caller queues keys.
    pub fn edit<T>(&self, change: impl FnOnce(&mut S) -> T) -> T {
        change(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, S> {
        // A panic ends the process; until then the state is what it was.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
