//! Whether a device counts as healthy: bad news at once, good news only when they last.
//!
//! In: what was seen of a device, and when. Out: whether it may be handed out, and when that may change without further news. Never: a clock, a
//! file.
//!
//! A device that comes and goes is worse than one that is gone: each time it is back the kubelet gives it to a pod, which then
//! breaks. So it has to look healthy for a while, and for twice as long each time it breaks soon after it came back.

use std::time::Duration;

use crate::config;

/// One device. Times are since some moment that is the same for all calls. A pointer for those that have always been healthy: there may be
/// thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health(Option<Box<History>>);

/// Of a device that was not healthy at least once.
#[derive(Clone, Debug, PartialEq, Eq)]
struct History {
    /// Why it is not healthy; none when it is.
    trouble: Option<String>,
    /// Since when it has looked healthy, if it is not but looks so.
    good_since: Option<Duration>,
    /// How long it has to look healthy until it is.
    wait: Duration,
    /// When it was last taken for healthy again.
    recovered: Option<Duration>,
}

impl Health {
    /// A device seen for the first time: what is seen is believed.
    #[must_use]
    pub fn new(seen: Option<&str>, policy: &config::Health) -> Self {
        let first = |reason: &str| History {
            trouble: Some(reason.to_owned()),
            good_since: None,
            wait: policy.recover_after,
            recovered: None,
        };
        Self(seen.map(|reason| Box::new(first(reason))))
    }

    /// Takes in what is seen now: none is good.
    pub fn observe(&mut self, now: Duration, seen: Option<&str>, policy: &config::Health) {
        match (&mut self.0, seen) {
            (None, None) => {}
            (None, Some(_)) => *self = Self::new(seen, policy),
            (Some(history), Some(reason)) => history.worsen(now, reason, policy),
            (Some(history), None) => history.improve(now),
        }
    }

    /// Why it is not healthy, with what is left to wait if it looks better.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let history = self.0.as_ref()?;
        let trouble = history.trouble.as_ref()?;
        Some(match history.good_since {
            Some(_) => format!("{trouble}; has to look healthy for {:?} now", history.wait),
            None => trouble.clone(),
        })
    }

    /// When it is healthy if nothing happens until then.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        let history = self.0.as_ref()?;
        history.good_since.map(|since| since.saturating_add(history.wait))
    }
}

impl History {
    fn worsen(&mut self, now: Duration, reason: &str, policy: &config::Health) {
        if self.trouble.is_none() {
            let soon = self.recovered.is_some_and(|at| now.saturating_sub(at) < policy.recover_at_most);
            let doubled = self.wait.saturating_mul(2).min(policy.recover_at_most);
            self.wait = if soon { doubled.max(policy.recover_after) } else { policy.recover_after };
        }
        self.trouble = Some(reason.to_owned());
        self.good_since = None;
    }

    fn improve(&mut self, now: Duration) {
        if self.trouble.is_some() {
            let since = *self.good_since.get_or_insert(now);
            if now.saturating_sub(since) >= self.wait {
                (self.trouble, self.good_since, self.recovered) = (None, None, Some(now));
            }
        }
    }
}

#[cfg(test)]
mod tests;
