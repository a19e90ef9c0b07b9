//! Pauses between rounds of serving a socket.
//!
//! In: whose rounds. Out: the next pause, longer each time. Never: sleeps itself.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

/// At first and at most: between attempts while the kubelet's socket is there but nobody answers behind it, and between rounds.
const LENGTH: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

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

    /// Begins with the shortest again: what lasted had nothing to do with what comes.
    pub(crate) fn reset(&mut self) {
        self.step = 0;
    }
}
