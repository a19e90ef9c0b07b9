//! A token bucket: limits how often something is done, while short bursts go through at once.
//!
//! In: a burst, a refill interval, the time as a value. Out: the time from which the next token is available. Never: a
//! clock, a timer, a lock.

use std::time::{Duration, Instant};

/// A bucket that holds at most `burst` tokens and gains one in each refill interval.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use runtime::token_bucket::TokenBucket;
///
/// let now = Instant::now();
/// let mut writes = TokenBucket::new(2, Duration::from_secs(1), now);
/// writes.take(now);
/// assert!(writes.available_at() <= now);
/// writes.take(now);
/// assert_eq!(writes.available_at(), now + Duration::from_secs(1));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    burst: u32,
    refill: Duration,
    full_at: Instant,
}

impl TokenBucket {
    /// A full bucket of `burst` tokens (at least 1), which gains one token in each `refill`.
    #[must_use]
    pub fn new(burst: u32, refill: Duration, now: Instant) -> Self {
        Self { burst, refill, full_at: now }
    }

    /// The time from which the next token is available; in the past if there is one already.
    #[must_use]
    pub fn available_at(&self) -> Instant {
        let span = self.refill * self.burst.saturating_sub(1);
        // Beyond `Instant`'s range only just after boot, when the bucket is full anyway.
        self.full_at.checked_sub(span).unwrap_or(self.full_at)
    }

    /// Takes one token. Taken before [`Self::available_at`], it delays all later ones.
    pub fn take(&mut self, now: Instant) {
        self.full_at = self.full_at.max(now) + self.refill;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_free_and_then_the_rate_is_steady() {
        let start = Instant::now() + Duration::from_secs(60);
        let mut bucket = TokenBucket::new(3, Duration::from_millis(100), start);
        let mut now = start;
        let mut done = Vec::new();
        while now < start + Duration::from_millis(450) {
            if bucket.available_at() <= now {
                bucket.take(now);
                done.push((now - start).as_millis());
            }
            now += Duration::from_millis(1);
        }
        assert_eq!(done, [0, 1, 2, 100, 200, 300, 400]);
        now += Duration::from_secs(60);
        for _ in 0..3 {
            assert!(bucket.available_at() <= now, "refilled");
            bucket.take(now);
        }
        assert_eq!(bucket.available_at(), now + Duration::from_millis(100), "and no more than the burst");
    }
}
