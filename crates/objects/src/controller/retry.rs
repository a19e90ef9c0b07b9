//! Actions that failed, each with a retry slot of its own.
//!
//! In: results of actions. Out: which actions wait, and until when. Never: a failure of one action that delays another.

use std::time::Duration;

use runtime::backoff::Backoff;
use tokio::time::Instant;

/// The slot of one action: its failures, and the time of the next try.
#[derive(Debug)]
pub struct Retry {
    backoff: Backoff,
    next: Option<Instant>,
}

impl Retry {
    /// A slot without failures, whose pauses grow from `limits.0` to `limits.1`.
    #[must_use]
    pub fn new(limits: (Duration, Duration)) -> Self {
        Self { backoff: Backoff::new(limits.0, limits.1), next: None }
    }

    /// Notes a failure at `now`; the pause grows with each one.
    pub fn failed(&mut self, now: Instant) {
        self.next = Some(now + self.backoff.next_delay());
    }

    /// Puts the action off for `delay`; that is no failure.
    pub fn postponed(&mut self, now: Instant, delay: Duration) {
        self.next = Some(now + delay);
    }

    /// Notes a success.
    pub fn succeeded(&mut self) {
        self.backoff.reset();
        self.next = None;
    }

    /// The time of the next try; `None` after a success.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Whether the next try is still to come.
    #[must_use]
    pub fn is_waiting(&self, now: Instant) -> bool {
        self.next.is_some_and(|next| now < next)
    }
}

/// The slots of all failed actions of a key, with their failures.
#[derive(Debug)]
pub struct RetryState<A, F> {
    slots: Vec<Slot<A, F>>,
}

#[derive(Debug)]
struct Slot<A, F> {
    action: A,
    /// `None` if the action was only put off.
    failure: Option<F>,
    /// The pauses after failures; `None` before the first one.
    limits: Option<(Duration, Duration)>,
    retry: Retry,
}

impl<A, F> Default for RetryState<A, F> {
    fn default() -> Self {
        Self { slots: Vec::new() }
    }
}

impl<A: Clone + PartialEq, F> RetryState<A, F> {
    /// Notes that an action succeeded.
    pub fn succeeded(&mut self, action: &A) {
        self.slots.retain(|slot| slot.action != *action);
    }

    /// Notes that an action failed. Pauses grow from `limits.0` to `limits.1`, and start over when the limits change.
    pub fn failed(&mut self, action: &A, failure: F, limits: (Duration, Duration), now: Instant) {
        let slot = self.slot(action);
        if slot.limits.replace(limits) != Some(limits) {
            slot.retry = Retry::new(limits);
        }
        slot.failure = Some(failure);
        slot.retry.failed(now);
    }

    /// Puts an action off for `delay`. A failure of it stays known unless `forgive`.
    pub fn postponed(&mut self, action: &A, delay: Duration, forgive: bool, now: Instant) {
        let slot = self.slot(action);
        if forgive {
            slot.failure = None;
        }
        slot.retry.postponed(now, delay);
    }

    /// Whether an action waits for its next try.
    #[must_use]
    pub fn is_waiting(&self, action: &A, now: Instant) -> bool {
        self.slots.iter().any(|slot| slot.action == *action && slot.retry.is_waiting(now))
    }

    /// The actions that have not succeeded.
    pub fn actions(&self) -> impl Iterator<Item = (&A, Option<&F>)> {
        self.slots.iter().map(|slot| (&slot.action, slot.failure.as_ref()))
    }

    /// Forgets actions that are no longer wanted.
    pub fn retain(&mut self, wanted: impl Fn(&A) -> bool) {
        self.slots.retain(|slot| wanted(&slot.action));
    }

    /// The time of the earliest next try of the wanted actions.
    #[must_use]
    pub fn next(&self, wanted: impl Fn(&A) -> bool) -> Option<Instant> {
        let wanted = self.slots.iter().filter(|slot| wanted(&slot.action));
        wanted.filter_map(|slot| slot.retry.next()).min()
    }

    /// Whether every action succeeded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn slot(&mut self, action: &A) -> &mut Slot<A, F> {
        let index = self.slots.iter().position(|slot| slot.action == *action).unwrap_or_else(|| {
            let retry = Retry::new((Duration::ZERO, Duration::ZERO));
            self.slots.push(Slot { action: action.clone(), failure: None, limits: None, retry });
            self.slots.len() - 1
        });
        &mut self.slots[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

    #[test]
    fn one_failure_does_not_delay_another_action() {
        let now = Instant::now();
        let mut state = RetryState::<&str, &str>::default();
        state.failed(&"a", "denied", LIMITS, now);
        assert!(state.is_waiting(&"a", now) && !state.is_waiting(&"b", now));
        let late = now + LIMITS.1;
        assert!(!state.is_waiting(&"a", late));
        state.postponed(&"a", Duration::from_secs(5), false, late);
        assert_eq!(state.actions().collect::<Vec<_>>(), [(&"a", Some(&"denied"))]);
        assert_eq!(state.next(|_| true), Some(late + Duration::from_secs(5)));
        assert_eq!(state.next(|action| *action != "a"), None);
        state.postponed(&"a", Duration::from_secs(5), true, late);
        assert_eq!(state.actions().collect::<Vec<_>>(), [(&"a", None)]);
        state.succeeded(&"a");
        assert!(state.is_empty() && state.next(|_| true).is_none());
    }

    #[test]
    fn unwanted_actions_are_forgotten() {
        let mut state = RetryState::<u8, ()>::default();
        state.failed(&1, (), LIMITS, Instant::now());
        state.retain(|action| *action != 1);
        assert!(state.is_empty());
    }

    #[test]
    fn a_refusal_after_a_postponement_has_pauses_of_its_own() {
        let now = Instant::now();
        let mut state = RetryState::<u8, ()>::default();
        state.postponed(&1, Duration::from_millis(1), false, now);
        state.failed(&1, (), LIMITS, now);
        assert!(state.next(|_| true).is_some_and(|next| next >= now + LIMITS.0 / 2));
    }

    #[test]
    fn a_success_ends_the_pauses() {
        let now = Instant::now();
        let mut retry = Retry::new(LIMITS);
        retry.failed(now);
        assert!(retry.is_waiting(now) && !retry.is_waiting(now + LIMITS.1));
        retry.succeeded();
        assert!(!retry.is_waiting(now) && retry.next().is_none());
    }
}
