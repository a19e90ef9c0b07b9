//! One run at a time on a cluster.
//!
//! In: the suite's namespace. Out: a Lease that this run holds until it ends. Never: two runs that undo each other's
//! changes; a run that was killed delays the next for as long as its term.

use std::time::Duration;

use anyhow::bail;
use kube::Client;
use runtime::lease::{Candidate, Config};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cluster::NAMESPACE;

/// The name of the Lease.
const NAME: &str = "run";
/// What is waited beyond the term of a run that was killed.
const SLACK: Duration = Duration::from_secs(5);

/// The Lease, held.
#[derive(Debug)]
pub struct Lock {
    release: CancellationToken,
    holding: JoinHandle<Result<(), runtime::lease::Error>>,
}

impl Lock {
    /// Takes the Lease. One of a killed run is waited for.
    ///
    /// # Errors
    /// When another run holds it, or `token` is cancelled.
    pub async fn take(client: &Client, token: &CancellationToken) -> anyhow::Result<Self> {
        let config = Config::new(NAMESPACE, NAME, runtime::host::identity());
        let limit = config.lease_duration + SLACK;
        let candidate = Candidate::new(client.clone(), config)?;
        let mut status = candidate.status();
        let release = CancellationToken::new();
        let holding = tokio::spawn(candidate.run(release.clone()));
        let lock = Self { release, holding };
        let leads = tokio::select! {
            () = token.cancelled() => None,
            led = tokio::time::timeout(limit, status.wait_for(runtime::lease::Status::leads)) => {
                Some(matches!(led, Ok(Ok(_))))
            }
        };
        let holder = status.borrow().holder.clone();
        if leads == Some(true) {
            return Ok(lock);
        }
        lock.release().await;
        match leads {
            None => bail!("interrupted before the first spec"),
            _ if holder.is_empty() => bail!("the lease {NAMESPACE}/{NAME} cannot be taken"),
            _ => bail!("another run tests this cluster: {holder} holds the lease {NAMESPACE}/{NAME}"),
        }
    }

    /// Whether the Lease is lost: another run may be under way.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.holding.is_finished()
    }

    /// Gives the Lease back.
    pub async fn release(self) {
        self.release.cancel();
        // A Lease that is lost, or that went with its namespace, needs no release.
        let _ = self.holding.await;
    }
}
