//! Decides when to scan next. Pure: time goes in as a value.
//!
//! In: events, the end of each scan with its outcome. Out: the time of the next scan and its cause. Never: a clock, or
//! a queue: however many events come, there is one next scan, and it covers them all.
//!
//! # Why one scan is not enough
//! The kubelet writes a checkpoint *while* it admits a pod. So the first scan may see a part of the pod's resources, or
//! a pod that is refused a moment later. A release leaves fewer traces: one write when the containers have ended, a
//! moment before the pod leaves the list. A pod that leaves the list early, because its object was deleted by force,
//! leaves none. So a scan after an event or with a changed result is followed by a few more at growing intervals. As
//! long as pods hold something there are steady scans besides.
//!
//! A scan costs the kubelet about 3 ms of CPU time with 60 pods, 0.3 % of a core if it were every second. So the steady
//! scan becomes rarer the longer nothing has changed. Changes without an event are found within a quarter of that time,
//! and within ten intervals at the latest. The case they exist for, a pod deleted by force whose containers end slowly,
//! is nearly always preceded by an event, so its delay is at most two seconds.

use std::time::{Duration, Instant};

use crate::settings::Intervals;
use runtime::token_bucket::TokenBucket;

/// The least time between two scans, which merges most of the checkpoints of one admission.
const MIN_GAP: Duration = Duration::from_millis(8);

/// Scans in a burst at that distance, and the time in which one more is allowed. The kubelet serves all clients of
/// podresources together 100 calls a second, with a burst of 10.
const BURST: u32 = 6;
const REFILL: Duration = Duration::from_millis(25);

/// Intervals of the follow-up scans after a scan with a cause.
const FOLLOW_UPS: [Duration; 4] = [
    Duration::from_millis(25),
    Duration::from_millis(75),
    Duration::from_millis(200),
    Duration::from_millis(700),
];

/// The steady scan comes after this share of the time without a change, but after at most this number of intervals.
const QUIET_SHARE: u32 = 4;
const QUIET_MAX: u32 = 10;

/// The timer's period varies by this share to both sides, so that the exporters of a cluster do not run in step.
const JITTER: f64 = 0.1;

/// The cause of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A file event, a follow-up of one, or the start.
    Event,
    /// The timer.
    Timer,
    /// A follow-up of a scan for the timer, without an event in between.
    TimerFollowUp,
}

/// The outcome of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The result equals the one before.
    Same {
        /// Some pod holds exclusive resources.
        held: bool,
    },
    /// The result differs from the one before.
    Changed {
        /// Some pod holds exclusive resources.
        held: bool,
    },
    /// The list of pods is not stable yet.
    Unstable,
    /// The scan failed; try again after this time.
    Failed(Duration),
}

/// The schedule of scans.
#[derive(Debug)]
pub struct Schedule {
    intervals: Intervals,
    scans: TokenBucket,
    last: Option<Instant>,
    timer: Option<Instant>,
    event_due: Option<Instant>,
    /// The cause of the scan that is due then.
    event_cause: Cause,
    step: usize,
    /// When the last event or changed result came.
    last_change: Instant,
    /// The longest wait for a steady scan, in intervals.
    max_intervals: u32,
    /// No event comes.
    blind: bool,
}

impl Schedule {
    /// A schedule whose first scan is due at once, as an event.
    #[must_use]
    pub fn new(intervals: Intervals, now: Instant) -> Self {
        let scans = TokenBucket::new(BURST, REFILL, now);
        Self {
            intervals,
            scans,
            last: None,
            timer: None,
            event_due: Some(now),
            event_cause: Cause::Event,
            step: 0,
            last_change: now,
            max_intervals: QUIET_MAX,
            blind: false,
        }
    }

    /// Says whether events come from now on. Without them silence means nothing: the steady scan keeps its interval,
    /// and there is one also while no pod holds anything, unless the timer is off.
    pub fn set_events_available(&mut self, events: bool) {
        self.max_intervals = if events { QUIET_MAX } else { 1 };
        self.blind = !events;
    }

    /// Notes an event.
    pub fn event(&mut self, now: Instant) {
        let earliest = self.earliest(now);
        self.event_due = Some(self.event_due.map_or(earliest, |event_due| event_due.min(earliest)));
        self.event_cause = Cause::Event;
        self.step = 0;
        self.last_change = now;
    }

    /// Time and cause of the next scan; `None` if no scan is due before the next event.
    #[must_use]
    pub fn next(&self) -> Option<(Instant, Cause)> {
        match (self.event_due, self.timer) {
            (Some(event_due), Some(timer)) if timer < event_due => Some((timer, Cause::Timer)),
            (Some(event_due), _) => Some((event_due, self.event_cause)),
            (None, timer) => timer.map(|timer| (timer, Cause::Timer)),
        }
    }

    /// Notes that a scan for `cause` ended now. `fraction` in `0.0..1.0` is this round's jitter.
    pub fn scanned(&mut self, now: Instant, cause: Cause, outcome: Outcome, fraction: f64) {
        self.last = Some(now);
        self.scans.take(now);
        let pending = self.event_due.map(|due| (due, self.event_cause));
        self.event_cause = if cause == Cause::Event { Cause::Event } else { Cause::TimerFollowUp };
        if cause == Cause::Timer || self.timer.is_none() {
            let factor = 1.0 + JITTER * (2.0 * fraction - 1.0);
            let timer = self.intervals.timer;
            self.timer = (!timer.is_zero()).then(|| now + timer.mul_f64(factor));
        }
        let held = match outcome {
            Outcome::Failed(wait) => {
                self.event_due = Some(self.earliest(now + wait));
                self.step = 0;
                return;
            }
            // No event needs to come before the list is stable: whatever the intervals are, there must be another scan.
            Outcome::Unstable => {
                let wait = FOLLOW_UPS[self.step.min(FOLLOW_UPS.len() - 1)];
                self.event_due = Some(self.earliest(now + wait));
                self.step += 1;
                return;
            }
            Outcome::Changed { held } => {
                self.step = 0;
                self.last_change = now;
                held
            }
            Outcome::Same { held } => held,
        };
        self.event_due = match FOLLOW_UPS.get(self.step) {
            // A timer scan without a change has nothing to follow up. What follows an event goes on.
            Some(_) if cause == Cause::Timer && matches!(outcome, Outcome::Same { .. }) => {
                if let Some((due, cause)) = pending {
                    (self.event_due, self.event_cause) = (Some(self.earliest(due)), cause);
                    return;
                }
                self.steady(now, held)
            }
            Some(wait) => Some(self.earliest(now + *wait)),
            None => self.steady(now, held),
        };
        self.step += 1;
    }

    /// The first time from `wanted` on at which a scan is allowed.
    fn earliest(&self, wanted: Instant) -> Instant {
        let gap = MIN_GAP.max(self.intervals.min_gap);
        self.last.map_or(wanted, |last| (last + gap).max(self.scans.available_at()).max(wanted))
    }

    fn steady(&mut self, now: Instant, held: bool) -> Option<Instant> {
        self.event_cause = Cause::Event;
        let interval = self.intervals.release;
        let wanted = held || (self.blind && !self.intervals.timer.is_zero());
        (wanted && !interval.is_zero()).then(|| {
            let quiet = now.saturating_duration_since(self.last_change);
            self.earliest(now + (quiet / QUIET_SHARE).clamp(interval, interval * self.max_intervals))
        })
    }
}

#[cfg(test)]
mod tests;
