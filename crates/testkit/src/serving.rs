//! A server on a thread of its own, which ends as a process does: with all its connections, in the middle of
//! whatever it was doing.
//!
//! In: what to serve. Out: nothing; dropping it ends it. Never: the caller's runtime, which a test may keep busy.

use std::fmt;
use std::thread::JoinHandle;

use anyhow::Context as _;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A running server.
pub(crate) struct Serving {
    stop: Option<DropGuard>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Runs what `serve` returns until it ends or this is dropped. `serve` is called inside the server's runtime.
    pub(crate) fn start<S, F>(name: &str, serve: S) -> anyhow::Result<Self>
    where
        S: FnOnce() -> F + Send + 'static,
        F: Future<Output = anyhow::Result<()>>,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let own = name.to_owned();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    served = async { serve().await } => if let Err(error) = served {
                        tracing::error!("the {own} server failed: {error:#}");
                    },
                    () = stopped.cancelled() => {}
                }
            });
        });
        let thread = thread.with_context(|| format!("starting the thread of the {name} server"))?;
        Ok(Self { stop: Some(stop.drop_guard()), thread: Some(thread) })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic on that thread has been printed already; a destructor cannot return it.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").finish_non_exhaustive()
    }
}
