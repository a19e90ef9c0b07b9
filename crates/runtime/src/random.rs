//! Seeded random numbers: for jitter, simulations and tests, never for secrets.
//!
//! In: a seed. Out: the same numbers for the same seed, on every machine and in every release. Never: the system's
//! randomness, unless [`Random::from_entropy`] is asked for a seed.

use std::hash::{BuildHasher, RandomState};

/// A splitmix64 generator.
///
/// ```
/// use runtime::random::Random;
///
/// let (mut one, mut other) = (Random::seeded(7), Random::seeded(7));
/// assert_eq!(one.bits(), other.bits());
/// assert!(one.below(3) < 3);
/// ```
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator whose numbers depend only on `seed`.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator seeded from the operating system, through the keys that the standard library draws for its maps.
    #[must_use]
    pub fn from_entropy() -> Self {
        Self(RandomState::new().hash_one(std::process::id()))
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 for a bound of 0. The bias of the remainder is negligible for bounds far below 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits().checked_rem(bound).unwrap_or(0)
    }

    /// A number from 0 up to, but not including, 1.
    pub fn fraction(&mut self) -> f64 {
        // An f64 tells apart 53 bits.
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference values of splitmix64 with seed 1234567.
    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut random = Random::seeded(1_234_567);
        let numbers: Vec<u64> = (0..3).map(|_| random.bits()).collect();
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn bounds_hold() {
        let mut random = Random::seeded(7);
        assert_eq!(random.below(0), 0);
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert!((0..1000).map(|_| random.fraction()).all(|part| (0.0..1.0).contains(&part)));
    }
}
