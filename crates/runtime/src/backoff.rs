//! Jittered exponential backoff.
//!
//! In: a smallest and a largest delay, a seed. Out: the next delay to wait. Never: sleeps itself.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A sequence of growing delays: the n-th lies between half of `min * 2^n` and all of it, never above `max`.
///
/// The jitter keeps processes that failed together from coming back together. The same seed gives the same
/// sequence, so tests and simulations stay reproducible.
#[derive(Debug, Clone)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    step: u32,
    random: Random,
}

impl Backoff {
    /// Delays from `min` to `max` whose jitter follows from `seed`.
    pub fn seeded(min: Duration, max: Duration, seed: u64) -> Self {
        Self { min, max, step: 0, random: Random(seed) }
    }

    /// Delays from `min` to `max` whose jitter differs from process to process.
    pub fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, step: 0, random: Random::from_entropy() }
    }

    /// The delay to wait now; the one after it will be longer.
    pub fn next_delay(&mut self) -> Duration {
        let factor = 1_u32.checked_shl(self.step).unwrap_or(u32::MAX);
        let full = self.min.saturating_mul(factor).min(self.max);
        if full < self.max {
            self.step += 1;
        }
        full.mul_f64(0.5 + self.random.fraction() / 2.0)
    }

    /// Starts over from the smallest delay: to be called after a success.
    pub fn reset(&mut self) {
        self.step = 0;
    }
}

/// A small generator of random numbers (splitmix64): for jitter, never for secrets.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator seeded from the operating system, through the keys the standard library draws for its maps.
    pub fn from_entropy() -> Self {
        Self(RandomState::new().hash_one(std::process::id()))
    }

    /// A generator whose numbers depend on nothing but `seed`.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next number in `0.0..1.0`.
    pub fn fraction(&mut self) -> f64 {
        // 53 bits are what an f64 can tell apart.
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Duration = Duration::from_millis(100);
    const MAX: Duration = Duration::from_secs(5);

    #[test]
    fn delays_double_within_their_jitter_and_stay_bounded() {
        for seed in 0..100 {
            let mut backoff = Backoff::seeded(MIN, MAX, seed);
            for full_ms in [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000] {
                let delay = backoff.next_delay();
                let full = Duration::from_millis(full_ms);
                assert!(delay >= full / 2 && delay <= full, "seed {seed}: {delay:?} for {full:?}");
            }
        }
    }

    #[test]
    fn reset_starts_over() {
        let mut backoff = Backoff::seeded(MIN, MAX, 7);
        for _ in 0..8 {
            backoff.next_delay();
        }
        backoff.reset();
        assert!(backoff.next_delay() <= MIN);
    }

    #[test]
    fn one_seed_gives_one_sequence_and_another_seed_another() {
        let sequence = |seed| {
            let mut backoff = Backoff::seeded(MIN, MAX, seed);
            (0..5).map(|_| backoff.next_delay()).collect::<Vec<_>>()
        };
        assert_eq!(sequence(3), sequence(3));
        assert_ne!(sequence(3), sequence(4));
    }

    #[test]
    fn thousands_of_steps_do_not_overflow() {
        let mut backoff = Backoff::seeded(Duration::from_nanos(1), Duration::MAX, 1);
        for _ in 0..5000 {
            backoff.next_delay();
        }
    }
}
