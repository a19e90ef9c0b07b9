//! Whether a device counts as healthy: a problem counts at once, recovery only when it lasts.
//!
//! In: the problem observed on a device, if any, and when. Out: whether the device may be allocated, and when that may
//! change without further observations. Never: a clock, a file.
//!
//! A device that comes and goes is worse than one that is gone: each time it is back the kubelet gives it to a pod,
//! which then breaks. So a device has to look healthy for a while, and for twice as long each time it breaks soon after
//! it recovered.

use std::time::Duration;

use crate::config;

/// The health of one device. Times are durations since one moment that all calls share. A device that has always been
/// healthy costs a null pointer, as there may be thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health(Option<Box<History>>);

/// The history of a device that was unhealthy at least once.
#[derive(Clone, Debug, PartialEq, Eq)]
struct History {
    /// Why the device is unhealthy; none when it is healthy.
    unhealthy_reason: Option<String>,
    /// Since when an unhealthy device has looked healthy, if it does.
    good_since: Option<Duration>,
    /// How long the device has to look healthy before it counts as healthy.
    wait: Duration,
    /// When the device last recovered.
    recovered: Option<Duration>,
}

impl Health {
    /// A device seen for the first time: the first observation counts at once.
    #[must_use]
    pub fn new(problem: Option<&str>, policy: &config::HealthPolicy) -> Self {
        let first = |reason: &str| History {
            unhealthy_reason: Some(reason.to_owned()),
            good_since: None,
            wait: policy.recover_after,
            recovered: None,
        };
        Self(problem.map(|reason| Box::new(first(reason))))
    }

    /// Records an observation: a problem, or none. Cost: constant, and an allocation at the device's first problem.
    pub fn observe(&mut self, now: Duration, problem: Option<&str>, policy: &config::HealthPolicy) {
        match (&mut self.0, problem) {
            (None, None) => {}
            (None, Some(_)) => *self = Self::new(problem, policy),
            (Some(history), Some(reason)) => history.worsen(now, reason, policy),
            (Some(history), None) => history.improve(now),
        }
    }

    /// Why the device is unhealthy, with the time it must look healthy if it does so now.
    #[must_use]
    pub fn unhealthy_reason(&self) -> Option<String> {
        let history = self.0.as_ref()?;
        let unhealthy_reason = history.unhealthy_reason.as_ref()?;
        Some(match history.good_since {
            Some(_) => format!("{unhealthy_reason}; must look healthy for {:?}", history.wait),
            None => unhealthy_reason.clone(),
        })
    }

    /// When the device becomes healthy if no problem is observed until then.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        let history = self.0.as_ref()?;
        history.good_since.map(|since| since.saturating_add(history.wait))
    }
}

impl History {
    fn worsen(&mut self, now: Duration, reason: &str, policy: &config::HealthPolicy) {
        if self.unhealthy_reason.is_none() {
            let soon = self.recovered.is_some_and(|at| now.saturating_sub(at) < policy.recover_at_most);
            let doubled = self.wait.saturating_mul(2).min(policy.recover_at_most);
            self.wait = if soon { doubled.max(policy.recover_after) } else { policy.recover_after };
        }
        self.unhealthy_reason = Some(reason.to_owned());
        self.good_since = None;
    }

    fn improve(&mut self, now: Duration) {
        if self.unhealthy_reason.is_some() {
            let since = *self.good_since.get_or_insert(now);
            if now.saturating_sub(since) >= self.wait {
                (self.unhealthy_reason, self.good_since, self.recovered) = (None, None, Some(now));
            }
        }
    }
}

#[cfg(test)]
mod tests;
