//! When a watch breaks: what to do, what to say, how long to wait.
//!
//! In: the watcher's errors. Out: a cure, at most one log line for each kind of trouble, paced attempts. Never: gives up.

use super::index::Heard;
use super::{Kind, Metrics};
use crate::backoff::Backoff;
use crate::client::{brief, code, is_forbidden, is_not_found};
use kube::runtime::watcher::{self, Config};
use std::time::Duration;
use tokio::time::Instant;
use tracing::{info, warn};

/// The pauses between attempts while the server is away.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// A watch that held this long before it broke is new trouble, not the old one continued.
const CALM: Duration = Duration::from_secs(15);

/// What to do about an error of the watcher.
#[derive(Debug, PartialEq)]
pub(super) enum Cure {
    /// One event could not be parsed; the watch goes on behind it.
    Skip(String),
    /// Try again from where we were, after a pause.
    Wait(String),
    /// We may not watch; somebody has to grant it.
    Denied(String),
    /// Where we were is gone from the server's memory: list anew, at once.
    Anew,
    /// List page by page from now on.
    Page,
    /// There is no such kind (yet).
    Absent,
}

impl Cure {
    pub(super) fn of(error: &watcher::Error, config: &Config) -> Self {
        let streaming = config.initial_list_strategy == watcher::InitialListStrategy::StreamingList;
        match error {
            watcher::Error::WatchError(status) if status.code == 410 => Self::Anew,
            watcher::Error::WatchError(status) => Self::Wait(brief(&kube::Error::Api(status.clone()))),
            watcher::Error::WatchFailed(error @ kube::Error::SerdeError(_)) => Self::Skip(brief(error)),
            // How servers without the WatchList feature say no: as an invalid request.
            watcher::Error::WatchStartFailed(error)
                if streaming && matches!(code(error), Some(400 | 422)) =>
            {
                Self::Page
            }
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => match code(error) {
                Some(410) => Self::Anew,
                _ if is_not_found(error) => Self::Absent,
                _ if is_forbidden(error) => Self::Denied(brief(error)),
                _ => Self::Wait(brief(error)),
            },
            watcher::Error::NoResourceVersion => Self::Wait(error.to_string()),
        }
    }
}

/// What went wrong lately: says it once, and paces the attempts.
pub(super) struct Trouble<'m> {
    pub(super) kind: Kind,
    metrics: &'m Metrics,
    backoff: Backoff,
    told: Option<String>,
    tried: Option<Instant>,
}

impl<'m> Trouble<'m> {
    pub(super) fn new(resource: String, metrics: &'m Metrics) -> Self {
        let backoff = Backoff::new(RETRY_MIN, RETRY_MAX);
        Self { kind: Kind { resource }, metrics, backoff, told: None, tried: None }
    }

    pub(super) fn heard(&mut self, heard: Heard) {
        match heard {
            Heard::Nothing => return,
            Heard::Change => {}
            Heard::Reset => drop(self.metrics.resets.get_or_create(&self.kind).inc()),
            Heard::Unreadable { name, reason } => self.unreadable(&name, &reason),
        }
        if self.told.take().is_some() {
            info!(resource = self.kind.resource, "watch works again");
        }
        self.backoff.reset();
    }

    pub(super) fn unreadable(&self, name: &str, reason: &str) {
        self.metrics.unreadable.get_or_create(&self.kind).inc();
        warn!(resource = self.kind.resource, object = name, reason, "object cannot be read, ignoring it");
    }

    pub(super) async fn pause(&mut self, reason: &str) {
        self.metrics.errors.get_or_create(&self.kind).inc();
        if self.tried.is_some_and(|tried| tried.elapsed() > CALM) {
            self.told = None;
            self.backoff.reset();
        }
        if self.told.as_deref() != Some(reason) {
            warn!(resource = self.kind.resource, reason, "watch is interrupted");
            self.told = Some(reason.to_owned());
        }
        tokio::time::sleep(self.backoff.next_delay()).await;
        self.tried = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn errors_have_their_cure() {
        let api =
            |code: u16, reason: &str| kube::Error::Api(Status::failure("m", reason).with_code(code).boxed());
        let streaming = Config::default().streaming_lists();
        let paging = Config::default();
        let wait = |text: &str| Cure::Wait(text.to_owned());
        let start = watcher::Error::WatchStartFailed;
        let broken = serde_json::from_str::<u8>("true").unwrap_err();
        let gone = Status::failure("m", "Expired").with_code(410).boxed();
        let table = [
            (start(api(422, "Invalid")), &streaming, Cure::Page),
            (start(api(422, "Invalid")), &paging, wait("422 Invalid: m")),
            (start(api(404, "NotFound")), &streaming, Cure::Absent),
            (start(api(403, "Forbidden")), &streaming, Cure::Denied("403 Forbidden: m".to_owned())),
            (start(api(410, "Gone")), &streaming, Cure::Anew),
            (start(kube::Error::Service("refused".into())), &streaming, wait("refused")),
            (watcher::Error::InitialListFailed(api(404, "NotFound")), &paging, Cure::Absent),
            (watcher::Error::InitialListFailed(api(503, "ServiceUnavailable")), &paging, {
                wait("503 ServiceUnavailable: m")
            }),
            (watcher::Error::WatchError(gone), &streaming, Cure::Anew),
            (watcher::Error::WatchFailed(kube::Error::SerdeError(broken)), &streaming, {
                Cure::Skip(
                    "Error deserializing response: invalid type: boolean `true`, expected u8 at line 1 column 4".into(),
                )
            }),
        ];
        for (error, config, want) in table {
            assert_eq!(Cure::of(&error, config), want, "{error}");
        }
    }
}
