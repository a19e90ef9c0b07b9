//! How often something may be done: a few times in a row, not often for long. Pure: time goes in as a value.

use std::time::{Duration, Instant};

/// A bucket of permissions that refills at a steady rate.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    burst: u32,
    earn: Duration,
    full_at: Instant,
}

impl Allowance {
    /// A full bucket: `burst` (at least 1) times at once, then one more in each span of `earn`.
    #[must_use]
    pub fn new(burst: u32, earn: Duration, now: Instant) -> Self {
        Self { burst, earn, full_at: now }
    }

    /// From when on it may be done once more.
    #[must_use]
    pub fn free_at(&self) -> Instant {
        let span = self.earn * self.burst.saturating_sub(1);
        // Beyond `Instant`'s range only just after boot, when the bucket is full anyway.
        self.full_at.checked_sub(span).unwrap_or(self.full_at)
    }

    /// It is done once.
    pub fn spend(&mut self, now: Instant) {
        self.full_at = self.full_at.max(now) + self.earn;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_free_and_then_it_goes_steadily() {
        let start = Instant::now() + Duration::from_secs(60);
        let mut allowance = Allowance::new(3, Duration::from_millis(100), start);
        let mut now = start;
        let mut done = Vec::new();
        while now < start + Duration::from_millis(450) {
            if allowance.free_at() <= now {
                allowance.spend(now);
                done.push((now - start).as_millis());
            }
            now += Duration::from_millis(1);
        }
        assert_eq!(done, [0, 1, 2, 100, 200, 300, 400]);
        now += Duration::from_secs(60);
        for _ in 0..3 {
            assert!(allowance.free_at() <= now, "earned back");
            allowance.spend(now);
        }
        assert_eq!(allowance.free_at(), now + Duration::from_millis(100), "and no more than that");
    }
}
