//! Jittered exponential backoff.
//!
//! In: a smallest and a largest delay, a seed. Out: the next delay to wait. Never: sleeps itself.

use std::time::Duration;

use crate::random::Random;

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
        Self { min, max, step: 0, random: Random::seeded(seed) }
    }

    /// Delays from `min` to `max` whose jitter differs from process to process.
    pub fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, step: 0, random: Random::from_entropy() }
    }

    /// The delay to wait now; the one after it will be longer.
    pub fn next_delay(&mut self) -> Duration {
        let full = doubled(self.min, self.max, self.step);
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

/// The delay `min * 2^step`, never above `max`: exponential backoff without jitter, as kube-scheduler's queue has it.
#[must_use]
pub fn doubled(min: Duration, max: Duration, step: u32) -> Duration {
    let factor = 1_u32.checked_shl(step).unwrap_or(u32::MAX);
    min.saturating_mul(factor).min(max)
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
