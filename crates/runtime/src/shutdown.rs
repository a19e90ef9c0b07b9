//! Shutdown of a process: signals, and a group of tasks that end together.
//!
//! In: SIGTERM and SIGINT, named tasks. Out: one `CancellationToken`, and the reason why the process ends.
//! Never: a task that ends unnoticed.

use futures::FutureExt;
use std::any::Any;
use std::convert::Infallible;
use std::fmt::Display;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Listens for SIGTERM and SIGINT: the first cancels the token, the second ends the process at once with
/// status 1, as kube-scheduler does.
///
/// # Errors
/// When the handlers cannot be installed.
pub fn on_signals() -> std::io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let cancelled = token.clone();
    tokio::spawn(async move {
        let name = either(&mut terminate, &mut interrupt).await;
        info!(signal = name, "shutting down");
        cancelled.cancel();
        let name = either(&mut terminate, &mut interrupt).await;
        warn!(signal = name, "second signal, ending at once");
        std::process::exit(1);
    });
    Ok(token)
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

/// What a task returns: a result whose error is the reason of its end, or a value that cannot be an error.
pub trait TaskOutput {
    /// The reason, where the task failed.
    ///
    /// # Errors
    /// The task's own error as text.
    fn into_result(self) -> Result<(), String>;
}

impl TaskOutput for () {
    fn into_result(self) -> Result<(), String> {
        Ok(())
    }
}

impl TaskOutput for Infallible {
    fn into_result(self) -> Result<(), String> {
        match self {}
    }
}

impl<T, E: Display> TaskOutput for Result<T, E> {
    fn into_result(self) -> Result<(), String> {
        self.map(drop).map_err(|error| error.to_string())
    }
}

/// Named tasks of which none may end before the process does: the first to end ends all.
#[derive(Debug)]
pub struct Tasks {
    set: JoinSet<(&'static str, Result<(), String>)>,
    token: CancellationToken,
}

impl Tasks {
    /// An empty group that ends when `token` is cancelled.
    pub fn new(token: CancellationToken) -> Self {
        Self { set: JoinSet::new(), token }
    }

    /// The token that asks the group to end.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Adds a task that is dropped at shutdown, at any await point: watches, timers.
    pub fn spawn<O: TaskOutput>(
        &mut self,
        name: &'static str,
        task: impl Future<Output = O> + Send + 'static,
    ) {
        let token = self.token.clone();
        self.spawn_draining(name, async move {
            tokio::select! {
                biased;
                () = token.cancelled() => Ok(()),
                output = task => output.into_result(),
            }
        });
    }

    /// Adds a task that watches the token itself and gets time to finish its work.
    pub fn spawn_draining<O: TaskOutput>(
        &mut self,
        name: &'static str,
        task: impl Future<Output = O> + Send + 'static,
    ) {
        self.set.spawn(async move {
            // Caught here because a panic would otherwise lose the task's name. Nothing uses the task's state
            // afterwards, so unwind safety does not matter.
            let result = match AssertUnwindSafe(task).catch_unwind().await {
                Ok(output) => output.into_result(),
                Err(panic) => Err(format!("panicked: {}", message(panic.as_ref()))),
            };
            (name, result)
        });
    }

    /// Waits until the token is cancelled or a task ends, then until all have ended, at most for `grace`.
    ///
    /// # Errors
    /// The first task that failed, panicked, or ended before the token was cancelled.
    pub async fn run(mut self, grace: Duration) -> Result<(), TaskFailure> {
        let mut outcome = Ok(());
        tokio::select! {
            biased;
            () = self.token.cancelled() => {}
            Some(Ok(ended)) = self.set.join_next() => outcome = judge(ended, self.token.is_cancelled()),
        }
        self.token.cancel();
        let drained = tokio::time::timeout(grace, async {
            while let Some(joined) = self.set.join_next().await {
                let Ok(ended) = joined else { continue };
                let next = judge(ended, true);
                outcome = std::mem::replace(&mut outcome, Ok(())).and(next);
            }
        });
        if drained.await.is_err() {
            warn!(?grace, tasks = self.set.len(), "some tasks did not end in time and are dropped");
        }
        outcome
    }
}

fn judge((task, result): (&'static str, Result<(), String>), asked: bool) -> Result<(), TaskFailure> {
    let reason = match result {
        Ok(()) if asked => return Ok(()),
        Ok(()) => "ended without being asked to".to_owned(),
        Err(reason) => reason,
    };
    Err(TaskFailure { task, reason })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

/// The task that ended the process, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{task}: {reason}")]
pub struct TaskFailure {
    /// The task's name.
    pub task: &'static str,
    /// The error, the panic, or the fact that the task returned.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    const GRACE: Duration = Duration::from_secs(5);

    fn group() -> Tasks {
        let mut tasks = Tasks::new(CancellationToken::new());
        tasks.spawn("watch", pending::<Infallible>());
        tasks
    }

    async fn reason(tasks: Tasks) -> String {
        tasks.run(GRACE).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn the_end_of_any_task_ends_the_group_with_its_reason() {
        let mut tasks = group();
        tasks.spawn("lease", async { Err::<(), _>("lost") });
        assert_eq!(reason(tasks).await, "lease: lost");

        let mut tasks = group();
        tasks.spawn("queue", async {});
        assert_eq!(reason(tasks).await, "queue: ended without being asked to");

        let mut tasks = group();
        tasks.spawn("bind", async {
            assert_eq!(1 + 1, 3, "arithmetic");
        });
        assert!(reason(tasks).await.starts_with("bind: panicked: assertion"));
    }

    #[tokio::test]
    async fn a_cancelled_group_drains_and_succeeds() {
        let mut tasks = group();
        let token = tasks.token().clone();
        let (sent, drained) = tokio::sync::oneshot::channel();
        let waiting = token.clone();
        tasks.spawn_draining("writer", async move {
            waiting.cancelled().await;
            tokio::task::yield_now().await;
            sent.send(()).map_err(|()| "no receiver")
        });
        token.cancel();
        assert_eq!(tasks.run(GRACE).await, Ok(()));
        drained.await.unwrap();
    }

    #[tokio::test]
    async fn an_error_while_draining_is_reported() {
        let mut tasks = group();
        let token = tasks.token().clone();
        tasks.spawn_draining("release", {
            let token = token.clone();
            async move {
                token.cancelled().await;
                Err::<(), _>("no answer")
            }
        });
        token.cancel();
        assert_eq!(reason(tasks).await, "release: no answer");
    }

    #[tokio::test]
    async fn a_task_that_does_not_drain_is_dropped_after_the_grace() {
        let mut tasks = group();
        let (kept, dropped) = tokio::sync::oneshot::channel::<()>();
        tasks.spawn_draining("stuck", async move {
            pending::<()>().await;
            drop(kept);
        });
        tasks.token().cancel();
        assert_eq!(tasks.run(Duration::from_millis(20)).await, Ok(()));
        assert!(dropped.await.is_err());
    }
}
