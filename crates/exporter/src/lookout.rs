//! Looks at the node whenever there is a reason to, and hands on the newest result.
//!
//! In: file events of the kubelet, time. Out: [`Desired`] content for the publisher, only when it changed. Never: two scans
//! at once, or a backlog: events that come during a scan cause one more.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use node::kubelet::{ADMISSIONS, Change};
use node::watch::{Counts, Watcher};
use runtime::backoff::{Backoff, Random};
use runtime::ready::Gate;
use tokio::sync::watch;
use topology::fingerprint::status::Status;
use tracing::{debug, info, warn};

use crate::belief::Belief;
use crate::metrics::Metrics;
use crate::object::Timing;
use crate::pace::{Cause, Outcome, Pace};
use crate::publish::Desired;
use crate::report::Report;
use crate::scan::{Error, Scanner};
use crate::settings::Intervals;
use crate::status::Noted;

/// Pauses between attempts while the kubelet is away or something is odd; its return is noticed by its socket.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Makes a watcher of files; called again when there is none.
pub type Watch = Box<dyn Fn() -> io::Result<Watcher<Change>> + Send>;

/// Where the newest result goes.
#[derive(Debug)]
pub struct Findings {
    /// To whoever publishes it.
    pub desired: watch::Sender<Option<Desired>>,
    /// To whoever writes down which pods are behind the fingerprint, and the node's name there.
    pub signed: Option<(watch::Sender<Noted>, String)>,
}

impl Findings {
    /// Notes the pods behind the fingerprint. Only here, beside the loop, does the wall clock count: people read it.
    fn note(&self, report: &Report) {
        let Some((sender, node)) = &self.signed else { return };
        let mut status = Status::new(node);
        for (namespace, name) in &report.signed {
            status.add(namespace, name);
        }
        status.sign();
        sender.send_replace(Some(Arc::new((status, Timestamp::now()))));
    }
}

/// How long what could be handed out is believed where no file tells of changes.
const DEVICES_AGE: Duration = Duration::from_secs(1);

/// The loop of scans.
pub struct Lookout {
    scanner: Scanner,
    pace: Pace,
    watch: Watch,
    watcher: Option<Watcher<Change>>,
    findings: Findings,
    metrics: Metrics,
    scanned: Gate,
    backoff: Backoff,
    random: Random,
    complaint: String,
    last_ended: Option<Instant>,
    /// When the first event was noticed that no believed scan has looked at.
    seen: Option<Instant>,
    belief: Belief,
    admissions: Option<PathBuf>,
    kubelet_starts: u64,
    /// The timer's interval.
    interval: Duration,
    last_woken: Option<Instant>,
    /// When the kubelet was last asked what it could hand out, where no file tells that it changed.
    devices_asked: Instant,
}

impl Lookout {
    /// Prepares a loop. As long as no watcher can be had only time causes scans. `scanned` opens after the first success.
    pub fn new(
        scanner: Scanner,
        watch: Watch,
        kubelet_root: Option<&Path>,
        intervals: Intervals,
        metrics: Metrics,
        findings: Findings,
        scanned: Gate,
    ) -> Self {
        let mut lookout = Self {
            scanner,
            pace: Pace::new(intervals, Instant::now()),
            watch,
            watcher: None,
            findings,
            metrics,
            scanned,
            backoff: Backoff::new(RETRY_MIN, RETRY_MAX),
            random: Random::from_entropy(),
            complaint: String::new(),
            last_ended: None,
            seen: None,
            belief: Belief::default(),
            admissions: kubelet_root.map(|root| root.join(ADMISSIONS)),
            kubelet_starts: 0,
            interval: intervals.timer,
            last_woken: None,
            devices_asked: Instant::now(),
        };
        if let Err(error) = lookout.open_eyes() {
            warn!(%error, "no file events (see fs.inotify.max_user_instances and max_user_watches); only time causes scans");
        }
        lookout
    }

    /// Gets a watcher, if one can be had.
    fn open_eyes(&mut self) -> io::Result<()> {
        let made = (self.watch)();
        self.pace.sees(made.is_ok());
        self.watcher = Some(made?);
        Ok(())
    }

    /// Scans for ever; with `once`, no more after the first success. `report` learns of every success and failure.
    pub async fn run(mut self, once: bool, report: impl Fn(Result<(), String>)) -> Infallible {
        loop {
            let next = self.pace.next();
            let due = async {
                match next {
                    Some((at, _)) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                changes = changed(&mut self.watcher) => {
                    self.noticed(changes);
                    // However much happens, what is due is done.
                    if next.is_none_or(|(at, _)| Instant::now() < at) {
                        continue;
                    }
                }
                () = due => {}
            }
            let cause = next.map_or(Cause::Timer, |(_, cause)| cause);
            let result = self.scan(cause).await;
            let done = result.is_ok();
            report(result);
            if done && once {
                return std::future::pending().await;
            }
        }
    }

    /// Something happened, or the watcher broke.
    fn noticed(&mut self, changes: io::Result<Counts<Change>>) {
        let changes = match changes {
            Ok(changes) => changes,
            Err(error) => {
                warn!(%error, "file events are lost from here on; only time causes scans now");
                self.watcher = None;
                self.pace.sees(false);
                return;
            }
        };
        debug!(?changes, "noticed");
        self.seen.get_or_insert_with(Instant::now);
        if let Some(pods) = changes.get(&Change::Admission) {
            self.belief.admitted(*pods);
        }
        if changes.contains_key(&Change::Socket) {
            info!("the kubelet's socket came or went");
            self.kubelet_starts += 1;
            self.belief.kubelet_started(Instant::now());
            self.backoff.reset();
        }
        let asked = changes.contains_key(&Change::Notice);
        if changes.contains_key(&Change::Socket) || changes.contains_key(&Change::Config) || asked {
            self.scanner.forget();
        } else if changes.contains_key(&Change::Devices) {
            self.scanner.forget_allocatable();
        }
        self.pace.event(Instant::now());
    }

    async fn scan(&mut self, cause: Cause) -> Result<(), String> {
        if cause == Cause::Timer {
            self.scanner.forget();
            self.recheck();
        }
        // Without its directory nothing tells that a device came, went or failed.
        if self.admissions.is_none() && self.devices_asked.elapsed() > DEVICES_AGE {
            self.scanner.forget_allocatable();
            self.devices_asked = Instant::now();
        }
        let started = Instant::now();
        let result = self.scanner.scan().await;
        let ended = Instant::now();
        let outcome = match &result {
            Ok(scan) => self.succeeded(scan, cause, started, ended),
            Err(error) => self.failed(error),
        };
        self.pace.scanned(ended, cause, outcome, self.random.fraction());
        result.map(drop).map_err(|error| with_causes(&error))
    }

    /// Directories may have been replaced without an event.
    fn recheck(&mut self) {
        if self.watcher.is_none() && self.open_eyes().is_ok() {
            info!("file events are back");
        }
        match self.watcher.as_mut().map(Watcher::recheck) {
            Some(Ok(changes)) if !changes.is_empty() => self.noticed(Ok(changes)),
            Some(Err(error)) => self.noticed(Err(error)),
            _ => {}
        }
    }

    fn succeeded(&mut self, scan: &Report, cause: Cause, started: Instant, ended: Instant) -> Outcome {
        let trigger = match cause {
            Cause::Event => api::keys::UPDATE_REACTIVE,
            Cause::Timer => api::keys::UPDATE_PERIODIC,
        };
        let since_last = self.last_ended.replace(ended).map(|last| started - last);
        let timing = self.timing(cause, started);
        self.metrics.scanned(ended - started, since_last, trigger, scan.remarks.len());
        self.backoff.reset();
        if !self.complaint.is_empty() {
            info!("scanning works again");
            self.complaint.clear();
        }
        let sees_admissions =
            self.watcher.is_some() && self.admissions.as_ref().is_some_and(|path| path.exists());
        if !self.belief.believes(&scan.listed, sees_admissions, ended) {
            debug!("the list is not believed yet: a pod is being admitted, or the kubelet has just started");
            return Outcome::Doubted;
        }
        let seen = self.seen.take().unwrap_or(started);
        let content = Arc::new(scan.content.clone());
        let kubelet_starts = self.kubelet_starts;
        self.findings.note(scan);
        let changed = self.findings.desired.send_if_modified(|desired| {
            let same = |known: &Desired| known.content == content && known.kubelet_starts == kubelet_starts;
            if desired.as_ref().is_some_and(same) {
                return false;
            }
            *desired = Some(Desired { content, trigger, timing, seen, kubelet_starts });
            true
        });
        self.scanned.open();
        let held = !scan.listed.holders.is_empty();
        if changed { Outcome::Changed { held } } else { Outcome::Same { held } }
    }

    /// How long it slept before the wake-up at `woken`.
    fn timing(&mut self, cause: Cause, woken: Instant) -> Timing {
        let slept = self.last_woken.replace(woken).map_or(Duration::ZERO, |last| woken - last);
        let interval = if cause == Cause::Timer { self.interval } else { Duration::ZERO };
        Timing { slept, interval }
    }

    fn failed(&mut self, error: &Error) -> Outcome {
        self.metrics.scan_failed(error.input());
        let text = with_causes(error);
        if self.complaint != text {
            warn!(error = text, "cannot scan, trying again");
            self.complaint = text;
        }
        Outcome::Failed(self.backoff.next_delay())
    }
}

async fn changed(watcher: &mut Option<Watcher<Change>>) -> io::Result<Counts<Change>> {
    match watcher {
        Some(watcher) => watcher.changed().await,
        None => std::future::pending().await,
    }
}

fn with_causes(error: &Error) -> String {
    runtime::client::chain(error)
}
