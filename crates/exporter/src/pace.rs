//! When to look next. Pure: time goes in as a value.
//!
//! In: that something happened, that a scan ended and how. Out: the moment of the next scan and what it is for. Never: a
//! clock, a queue: however much happened, there is one next scan, and it sees everything.
//!
//! # Why looking once is not enough
//! The kubelet writes a checkpoint *while* it admits, so the first look may see half a pod, or one that is refused a moment
//! later. Of a release it writes less: a note when the containers have ended, a moment before the pod leaves the list, and
//! nothing when a pod leaves the list earlier because its object was deleted by force. So a scan that was caused by an event
//! or found a change is followed by a few more at growing distances, and as long as pods hold something there is a slow
//! steady look besides.
//!
//! A look costs the kubelet about 3 ms of CPU time with 60 pods, which would be 0.3 % of a core if it were every second. So
//! the steady look becomes rarer the longer nothing has happened: what no event tells is found within a quarter of that
//! time, and within ten intervals at the latest. What it is there for, a pod deleted by force whose containers take long to
//! end, is nearly always told by an event before: they get two seconds.

use std::time::{Duration, Instant};

use crate::settings::Intervals;
use runtime::token_bucket::TokenBucket;

/// Two scans are never closer than this, which merges most of the checkpoints of one admission.
const MIN_GAP: Duration = Duration::from_millis(8);

/// Scans that may follow each other at that distance, and the time in which one more is earned. The kubelet serves all
/// clients of podresources together 100 calls a second, with a burst of 10.
const BURST: u32 = 6;
const REFILL: Duration = Duration::from_millis(25);

/// How long after a scan that was caused by something the following looks come.
const FOLLOW_UPS: [Duration; 4] = [
    Duration::from_millis(25),
    Duration::from_millis(75),
    Duration::from_millis(200),
    Duration::from_millis(700),
];

/// The steady look comes after this share of the time in which nothing has happened, but never after more than so many of
/// its intervals.
const QUIET_SHARE: u32 = 4;
const QUIET_MOST: u32 = 10;

/// The timer's period varies by this share to both sides, so that the exporters of a cluster spread.
const JITTER: f64 = 0.1;

/// What a scan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Something happened: a file event, its follow-up, or the start.
    Event,
    /// The timer.
    Timer,
}

/// How a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It says the same as the one before.
    Same {
        /// Some pod holds something.
        held: bool,
    },
    /// It says something new.
    Changed {
        /// Some pod holds something.
        held: bool,
    },
    /// It cannot be believed yet.
    Doubted,
    /// There is no result; look again after this long.
    Failed(Duration),
}

/// The schedule of scans.
#[derive(Debug)]
pub struct Pace {
    intervals: Intervals,
    scans: TokenBucket,
    last: Option<Instant>,
    timer: Option<Instant>,
    soon: Option<Instant>,
    step: usize,
    /// When something was last noticed to happen.
    stirred: Instant,
    /// The longest steady wait, in intervals.
    most: u32,
}

impl Pace {
    /// The first scan is due at once, as an event.
    #[must_use]
    pub fn new(intervals: Intervals, now: Instant) -> Self {
        let scans = TokenBucket::new(BURST, REFILL, now);
        Self {
            intervals,
            scans,
            last: None,
            timer: None,
            soon: Some(now),
            step: 0,
            stirred: now,
            most: QUIET_MOST,
        }
    }

    /// Whether events come from now on. Where none do, silence says nothing, and the steady look keeps its interval.
    pub fn sees(&mut self, events: bool) {
        self.most = if events { QUIET_MOST } else { 1 };
    }

    /// Something happened.
    pub fn event(&mut self, now: Instant) {
        let earliest = self.earliest(now);
        self.soon = Some(self.soon.map_or(earliest, |soon| soon.min(earliest)));
        self.step = 0;
        self.stirred = now;
    }

    /// When the next scan is due and what for; `None` if nothing is due until something happens.
    #[must_use]
    pub fn next(&self) -> Option<(Instant, Cause)> {
        match (self.soon, self.timer) {
            (Some(soon), Some(timer)) if timer < soon => Some((timer, Cause::Timer)),
            (Some(soon), _) => Some((soon, Cause::Event)),
            (None, timer) => timer.map(|timer| (timer, Cause::Timer)),
        }
    }

    /// A scan for `cause` ended now. `fraction` in `0.0..1.0` is this round's jitter.
    pub fn scanned(&mut self, now: Instant, cause: Cause, outcome: Outcome, fraction: f64) {
        self.last = Some(now);
        self.scans.take(now);
        if cause == Cause::Timer || self.timer.is_none() {
            let factor = 1.0 + JITTER * (2.0 * fraction - 1.0);
            let timer = self.intervals.timer;
            self.timer = (!timer.is_zero()).then(|| now + timer.mul_f64(factor));
        }
        let held = match outcome {
            Outcome::Failed(wait) => {
                self.soon = Some(self.earliest(now + wait));
                self.step = 0;
                return;
            }
            // Nothing need happen before it can be believed: however the intervals are set, somebody has to look.
            Outcome::Doubted => {
                let wait = FOLLOW_UPS[self.step.min(FOLLOW_UPS.len() - 1)];
                self.soon = Some(self.earliest(now + wait));
                self.step += 1;
                return;
            }
            Outcome::Changed { held } => {
                self.step = 0;
                self.stirred = now;
                held
            }
            Outcome::Same { held } => held,
        };
        self.soon = match FOLLOW_UPS.get(self.step) {
            // A timer scan that finds nothing new has nothing to follow up.
            Some(_) if cause == Cause::Timer && matches!(outcome, Outcome::Same { .. }) => {
                self.steady(now, held)
            }
            Some(wait) => Some(self.earliest(now + *wait)),
            None => self.steady(now, held),
        };
        self.step += 1;
    }

    /// The first moment from `wanted` on at which a scan is allowed.
    fn earliest(&self, wanted: Instant) -> Instant {
        let gap = MIN_GAP.max(self.intervals.least);
        self.last.map_or(wanted, |last| (last + gap).max(self.scans.available_at()).max(wanted))
    }

    fn steady(&self, now: Instant, held: bool) -> Option<Instant> {
        let interval = self.intervals.release;
        (held && !interval.is_zero()).then(|| {
            let quiet = now.saturating_duration_since(self.stirred);
            self.earliest(now + (quiet / QUIET_SHARE).clamp(interval, interval * self.most))
        })
    }
}

#[cfg(test)]
mod tests;
