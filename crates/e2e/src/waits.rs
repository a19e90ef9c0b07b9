//! What a run waits for.
//!
//! In: waits that begin, go on and end. Out: those under way, the oldest first, so that a long run can say why it takes
//! long. Never: a wait that has ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

/// A wait under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The condition, as `pod a runs`.
    pub what: String,
    /// Its beginning.
    pub since: Instant,
    /// Why it does not hold yet.
    pub last: String,
}

/// All waits under way; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Waits(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    begun: u64,
    waits: BTreeMap<u64, Wait>,
}

/// A wait; dropping it ends it.
#[derive(Debug)]
pub struct Waiting {
    waits: Waits,
    number: u64,
}

impl Waits {
    /// A wait begins.
    #[must_use]
    pub fn begin(&self, what: &str) -> Waiting {
        let wait = Wait { what: what.to_owned(), since: Instant::now(), last: String::new() };
        let number = self.with(|state| {
            state.begun += 1;
            state.waits.insert(state.begun, wait);
            state.begun
        });
        Waiting { waits: self.clone(), number }
    }

    /// The waits under way, the oldest first.
    #[must_use]
    pub fn now(&self) -> Vec<Wait> {
        self.with(|state| state.waits.values().cloned().collect())
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        // Nothing panics while it holds the lock.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Waiting {
    /// The condition does not hold yet, for this reason.
    pub fn goes_on(&self, reason: &str) {
        self.waits.with(|state| {
            if let Some(wait) = state.waits.get_mut(&self.number) {
                reason.clone_into(&mut wait.last);
            }
        });
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.waits.with(|state| state.waits.remove(&self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_wait_comes_first_and_an_ended_one_is_gone() {
        let waits = Waits::default();
        let words = || waits.now().into_iter().map(|wait| format!("{}: {}", wait.what, wait.last));
        let (first, second) = (waits.begin("a"), waits.begin("b"));
        first.goes_on("not yet");
        second.goes_on("never");
        assert_eq!(words().collect::<Vec<_>>(), ["a: not yet", "b: never"]);
        drop(first);
        assert_eq!(words().collect::<Vec<_>>(), ["b: never"]);
    }
}
