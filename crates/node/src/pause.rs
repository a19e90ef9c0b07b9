//! Pauses between rounds of serving a socket.
//!
//! In: the name of a plugin, the end of each round. Out: the next pause, longer each time. Never: a sleep.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use tokio::time::Instant;

/// The first and the longest pause, between rounds and between attempts while the kubelet's socket does not answer.
const LENGTH: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// A round that took longer than this, its pause included, counts as stable.
const LASTED: Duration = Duration::from_secs(10);

/// Growing pauses, slightly different for each name, so that many plugins do not ask at the same moment.
pub(crate) struct Pause {
    step: u32,
    share: f64,
}

impl Pause {
    /// Pauses of a plugin of this name.
    pub(crate) fn new(name: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self { step: 0, share: 0.75 + (hasher.finish() % 256) as f64 / 1024.0 }
    }

    /// The next pause; the one after it is longer.
    pub(crate) fn next(&mut self) -> Duration {
        let (first, most) = LENGTH;
        let full = first.saturating_mul(1 << self.step).min(most);
        if full < most {
            self.step += 1;
        }
        full.mul_f64(self.share)
    }

    /// Notes the end of a round. After a stable round the pauses start again with the shortest.
    pub(crate) fn over(&mut self, began: Instant) {
        if began.elapsed() > LASTED {
            self.reset();
        }
    }

    /// Starts again with the shortest pause.
    pub(crate) fn reset(&mut self) {
        self.step = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_do_not_last_are_further_and_further_apart() {
        let mut pause = Pause::new("dra.test.dev");
        let mut next = |began| {
            pause.over(began);
            pause.next()
        };
        let pauses: Vec<_> = (0..8).map(|_| next(Instant::now())).collect();
        assert!(pauses.is_sorted() && pauses[0] <= LENGTH.0, "{pauses:?}");
        assert!(pauses[7] > LENGTH.1 / 2 && pauses[7] == pauses[6], "{pauses:?}");
        let long_ago = Instant::now() - 2 * LASTED;
        assert_eq!(next(long_ago), pauses[0]);
    }
}
