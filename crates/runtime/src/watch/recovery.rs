//! Recovery of a broken watch: the next step, the log line, the delay.
//!
//! In: the watcher's errors. Out: a recovery step, at most one log line for each failure, delayed attempts. Never: a
//! final end.

use super::index::Received;
use super::{Kind, Metrics};
use crate::backoff::Backoff;
use crate::client::{brief, code, is_forbidden, is_not_found};
use crate::token_bucket::TokenBucket;
use kube::runtime::watcher::{self, Config};
use std::time::Duration;
use tokio::time::Instant;
use tracing::{info, warn};

/// Delays between attempts while the server is away.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// A watch that held this long before it broke counts as a new failure.
const CALM: Duration = Duration::from_secs(15);
/// Lines about unreadable objects at once, and the time to the next one: any tenant may make thousands of them.
const LINES: u32 = 10;
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The step after an error of the watcher.
#[derive(Debug, PartialEq)]
pub(super) enum Recovery {
    /// Skip one event that could not be parsed.
    Skip(String),
    /// Resume at the same position after a delay.
    Wait(String),
    /// The watch is denied; an administrator has to grant it.
    Denied(String),
    /// List again at once: the server no longer has the position.
    Relist,
    /// List page by page from now on.
    Page,
    /// Wait for the kind, which the server does not have.
    Absent,
}

impl Recovery {
    pub(super) fn of(error: &watcher::Error, config: &Config) -> Self {
        let streaming = config.initial_list_strategy == watcher::InitialListStrategy::StreamingList;
        match error {
            watcher::Error::WatchError(status) if status.code == 410 => Self::Relist,
            watcher::Error::WatchError(status) => Self::Wait(brief(&kube::Error::Api(status.clone()))),
            watcher::Error::WatchFailed(error @ kube::Error::SerdeError(_)) => Self::Skip(brief(error)),
            // A server without the WatchList feature answers with an invalid request.
            watcher::Error::WatchStartFailed(error)
                if streaming && matches!(code(error), Some(400 | 422)) =>
            {
                Self::Page
            }
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => match code(error) {
                Some(410) => Self::Relist,
                _ if is_not_found(error) => Self::Absent,
                _ if is_forbidden(error) => Self::Denied(brief(error)),
                _ => Self::Wait(brief(error)),
            },
            watcher::Error::NoResourceVersion => Self::Wait(error.to_string()),
        }
    }
}

/// The recent failures of a watch: logs each once, and delays the attempts.
pub(super) struct WatchErrors<'m> {
    pub(super) kind: Kind,
    metrics: &'m Metrics,
    backoff: Backoff,
    logged: Option<String>,
    last_attempt: Option<Instant>,
    lines: TokenBucket,
    /// Unreadable objects without a line.
    unlogged: u64,
}

impl<'m> WatchErrors<'m> {
    pub(super) fn new(resource: String, metrics: &'m Metrics) -> Self {
        let backoff = Backoff::new(RETRY_MIN, RETRY_MAX);
        let lines = TokenBucket::new(LINES, LINE_EVERY, std::time::Instant::now());
        let kind = Kind { resource };
        Self { kind, metrics, backoff, logged: None, last_attempt: None, lines, unlogged: 0 }
    }

    pub(super) fn record(&mut self, received: Received) {
        match received {
            Received::Nothing => return,
            Received::Change => {}
            Received::Reset => drop(self.metrics.resets.get_or_create(&self.kind).inc()),
            Received::Unreadable { name, reason } => self.unreadable(&name, &reason),
        }
        if self.logged.take().is_some() {
            info!(resource = self.kind.resource, "watch works again");
        }
        self.backoff.reset();
    }

    pub(super) fn unreadable(&mut self, name: &str, reason: &str) {
        self.metrics.unreadable.get_or_create(&self.kind).inc();
        let now = std::time::Instant::now();
        if self.lines.available_at() > now {
            self.unlogged += 1;
            return;
        }
        self.lines.take(now);
        let (resource, others) = (&self.kind.resource, std::mem::take(&mut self.unlogged));
        warn!(resource, object = name, reason, others, "object cannot be read, ignoring it");
    }

    pub(super) async fn pause(&mut self, reason: &str) {
        self.metrics.errors.get_or_create(&self.kind).inc();
        if self.last_attempt.is_some_and(|last_attempt| last_attempt.elapsed() > CALM) {
            self.logged = None;
            self.backoff.reset();
        }
        if self.logged.as_deref() != Some(reason) {
            warn!(resource = self.kind.resource, reason, "watch is interrupted");
            self.logged = Some(reason.to_owned());
        }
        tokio::time::sleep(self.backoff.next_delay()).await;
        self.last_attempt = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn unreadable_objects_are_all_counted_and_few_logged() {
        let metrics = Metrics::default();
        let mut errors = WatchErrors::new("pods".to_owned(), &metrics);
        for _ in 0..1_000 {
            errors.unreadable("a", "b");
        }
        assert_eq!(metrics.unreadable.get_or_create(&errors.kind).get(), 1_000);
        assert!((980..=990).contains(&errors.unlogged), "{}", errors.unlogged);
    }

    #[test]
    fn each_error_has_its_recovery() {
        let api =
            |code: u16, reason: &str| kube::Error::Api(Status::failure("m", reason).with_code(code).boxed());
        let streaming = Config::default().streaming_lists();
        let paging = Config::default();
        let wait = |text: &str| Recovery::Wait(text.to_owned());
        let start = watcher::Error::WatchStartFailed;
        let broken = serde_json::from_str::<u8>("true").unwrap_err();
        let gone = Status::failure("m", "Expired").with_code(410).boxed();
        let table = [
            (start(api(422, "Invalid")), &streaming, Recovery::Page),
            (start(api(422, "Invalid")), &paging, wait("422 Invalid: m")),
            (start(api(404, "NotFound")), &streaming, Recovery::Absent),
            (start(api(403, "Forbidden")), &streaming, Recovery::Denied("403 Forbidden: m".to_owned())),
            (start(api(410, "Gone")), &streaming, Recovery::Relist),
            (start(kube::Error::Service("refused".into())), &streaming, wait("refused")),
            (watcher::Error::InitialListFailed(api(404, "NotFound")), &paging, Recovery::Absent),
            (watcher::Error::InitialListFailed(api(503, "ServiceUnavailable")), &paging, {
                wait("503 ServiceUnavailable: m")
            }),
            (watcher::Error::WatchError(gone), &streaming, Recovery::Relist),
            (watcher::Error::WatchFailed(kube::Error::SerdeError(broken)), &streaming, {
                Recovery::Skip(
                    "Error deserializing response: invalid type: boolean `true`, expected u8 at line 1 column 4".into(),
                )
            }),
        ];
        for (error, config, want) in table {
            assert_eq!(Recovery::of(&error, config), want, "{error}");
        }
    }
}
