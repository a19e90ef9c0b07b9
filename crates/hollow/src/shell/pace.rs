//! The rate of writes: calls wait for their turn.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use runtime::token_bucket::TokenBucket;

/// Turns at a rate, shared by concurrent calls.
#[derive(Debug)]
pub(super) struct Pace(Mutex<TokenBucket>);

impl Pace {
    /// So many turns a second, and a tenth of them at once.
    pub(super) fn new(per_second: u32) -> Self {
        let per_second = per_second.max(1);
        let refill = Duration::from_secs(1) / per_second;
        Self(Mutex::new(TokenBucket::new((per_second / 10).max(1), refill, Instant::now())))
    }

    /// Waits for a turn.
    pub(super) async fn turn(&self) {
        let at = {
            let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let at = bucket.available_at();
            bucket.take(Instant::now());
            at
        };
        tokio::time::sleep_until(at.into()).await;
    }
}
