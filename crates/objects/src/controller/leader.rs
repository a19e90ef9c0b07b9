//! What every controller waits for: the lease, and the first list of every watch.
//!
//! In: the lease's state, readiness. Out: the moment to start. Never: a write before that.

use runtime::lease::Status;
use runtime::ready::Readiness;
use tokio::sync::watch::Receiver;
use tokio_util::sync::CancellationToken;

/// The state of the lease; `None` where no lease is needed.
pub type Leadership = Option<Receiver<Status>>;

/// Waits until we lead and everything is known. Returns `false` when cancelled before.
pub async fn ready_to_lead(
    mut leadership: Leadership,
    readiness: &Readiness,
    cancel: &CancellationToken,
) -> bool {
    let ready = async {
        if let Some(status) = &mut leadership {
            // This fails only when the candidate is gone; then the process ends.
            let _ = status.wait_for(Status::leads).await;
        }
        readiness.opened().await;
    };
    tokio::select! {
        biased;
        () = cancel.cancelled() => false,
        () = ready => true,
    }
}
