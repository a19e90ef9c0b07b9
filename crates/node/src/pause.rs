//! Pauses between rounds of serving a socket.
//!
//! In: whose rounds. Out: the next pause, longer each time. Never: sleeps itself.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use tokio::time::Instant;

/// At first and at most: between attempts while the kubelet's socket is there but nobody answers behind it, and between rounds.
const LENGTH: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// A round that took longer than this, its pause included, has lasted.
const LASTED: Duration = Duration::from_secs(10);

/// Growing pauses, a little different for each name, so that many plugins do not ask at the same moment.
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

    /// The pause to make now; the one after it is longer.
    pub(crate) fn next(&mut self) -> Duration {
        let (first, most) = LENGTH;
        let full = first.saturating_mul(1 << self.step).min(most);
        if full < most {
            self.step += 1;
        }
        full.mul_f64(self.share)
    }

    /// A round that began then is over. If it lasted, whatever comes next has nothing to do with what came before.
    pub(crate) fn over(&mut self, began: Instant) {
        if began.elapsed() > LASTED {
            self.reset();
        }
    }

    /// Begins with the shortest again.
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
