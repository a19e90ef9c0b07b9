//! How long the steps of an attempt take.
//!
//! In: a clock, if steps are to be measured; the ends of steps. Out: the steps of the last attempts with their
//! durations. Never: an influence on a decision. Without a clock it does nothing.

use std::time::{Duration, Instant};

/// The end of a step, with kube-scheduler's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lap {
    /// The extension point.
    pub point: &'static str,
    /// `Success`, `Unschedulable` or `Error`.
    pub status: &'static str,
    /// The duration.
    pub took: Duration,
}

/// Measures steps that follow each other.
#[derive(Debug, Default)]
pub(super) struct Stopwatch {
    clock: Option<fn() -> Instant>,
    since: Option<Instant>,
    laps: Vec<Lap>,
}

impl Stopwatch {
    pub(super) fn with(&mut self, clock: fn() -> Instant) {
        self.clock = Some(clock);
    }

    /// The first step of an attempt begins.
    pub(super) fn start(&mut self) {
        self.laps.clear();
        self.since = self.clock.map(|clock| clock());
    }

    /// A step ends, and the next one begins.
    pub(super) fn lap(&mut self, point: &'static str, fine: bool) {
        let (Some(clock), Some(since)) = (self.clock, self.since) else { return };
        let now = clock();
        let status = if fine { "Success" } else { "Unschedulable" };
        self.laps.push(Lap { point, status, took: now.saturating_duration_since(since) });
        self.since = Some(now);
    }

    pub(super) fn laps(&mut self) -> std::vec::Drain<'_, Lap> {
        self.laps.drain(..)
    }
}
