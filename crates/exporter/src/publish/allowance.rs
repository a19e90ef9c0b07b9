//! How often may be written: a few times in a row, not often for long. Pure.

use std::time::{Duration, Instant};

/// Writes that may follow each other at once: an admission causes two or three.
const BURST: u32 = 10;
/// One write is earned in this time.
const EARN: Duration = Duration::from_millis(100);

/// A bucket of writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// When the bucket will be full.
    full_at: Instant,
}

impl Allowance {
    /// A full bucket.
    pub(super) fn new(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// From when on there is a write to spend.
    pub(super) fn free_at(&self) -> Instant {
        // Short of `Instant`'s range only in the first second after boot, when the bucket is full anyway.
        self.full_at.checked_sub(EARN * (BURST - 1)).unwrap_or(self.full_at)
    }

    /// Spends one.
    pub(super) fn spend(&mut self, now: Instant) {
        self.full_at = self.full_at.max(now) + EARN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_free_and_then_ten_writes_a_second() {
        let start = Instant::now() + Duration::from_secs(60);
        let mut allowance = Allowance::new(start);
        let mut now = start;
        let mut written = Vec::new();
        while now < start + Duration::from_secs(2) {
            if allowance.free_at() <= now {
                allowance.spend(now);
                written.push((now - start).as_millis());
            }
            now += Duration::from_millis(1);
        }
        assert_eq!(written[..10], (0..10).collect::<Vec<_>>()[..], "ten at once");
        assert_eq!(written[10..13], [100, 200, 300]);
        assert_eq!(written.len(), 10 + 19);
        now += Duration::from_secs(60);
        allowance.spend(now);
        assert!(allowance.free_at() <= now, "earned back");
    }
}
