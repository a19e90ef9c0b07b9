//! Scans the node after events and at intervals, and hands on the newest result.
//!
//! In: file events of the kubelet, time. Out: [`Desired`] content for the publisher, only when it changed. Never: two
//! scans at once, or a backlog: events that come during a scan cause one more.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use jiff::Timestamp;
use node::kubelet::{self, Change};
use node::watch::{Counts, Watcher};
use runtime::backoff::Backoff;
use runtime::random::Random;
use runtime::ready::Gate;
use tokio::sync::watch;
use topology::fingerprint::status::Status;
use tracing::{debug, info, warn};

use crate::metrics::Metrics;
use crate::object::Timing;
use crate::publish::Desired;
use crate::report::Report;
use crate::scan::{Error, Scanner};
use crate::schedule::{Cause, Outcome, Schedule};
use crate::settings::{Intervals, Sources};
use crate::stability::Stability;
use crate::status::LatestStatus;

/// Pauses between attempts after a failure. The kubelet's return is noticed by its socket.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Opens a watcher of files; called again after it failed or broke.
pub type OpenWatcher = Box<dyn Fn() -> io::Result<Watcher<Change>> + Send>;

/// The receivers of the newest result.
#[derive(Debug)]
pub struct Outputs {
    /// Receives the content to publish.
    pub desired: watch::Sender<Option<Desired>>,
    /// Receives the pods behind the fingerprint for the status files, with the node's name to write there.
    pub status: Option<(watch::Sender<LatestStatus>, String)>,
}

impl Outputs {
    /// Sends the pods behind the fingerprint. The wall clock is read only here: the status files are for people.
    fn note(&self, report: &Report) {
        let Some((sender, node)) = &self.status else { return };
        let mut status = Status::new(node);
        for (namespace, name) in &report.fingerprinted {
            status.add(namespace, name);
        }
        status.sign();
        sender.send_replace(Some(Arc::new((status, Timestamp::now()))));
    }
}

/// How long the allocatable resources are cached where no file event reports changes.
const ALLOCATABLE_AGE: Duration = Duration::from_secs(1);

/// The loop of scans.
pub struct ScanLoop {
    scanner: Scanner,
    schedule: Schedule,
    watch: OpenWatcher,
    watcher: Option<Watcher<Change>>,
    outputs: Outputs,
    metrics: Metrics,
    scanned: Gate,
    backoff: Backoff,
    random: Random,
    last_error: String,
    last_ended: Option<Instant>,
    /// Time of the first event since the last scan that was accepted.
    first_change: Option<Instant>,
    stability: Stability,
    /// The kubelet's root directory, if it is visible.
    kubelet_root: Option<PathBuf>,
    sysfs: PathBuf,
    kubelet_starts: u64,
    /// The interval of the timer.
    interval: Duration,
    last_woken: Option<Instant>,
    /// When the allocatable resources were read last, where no file event reports changes.
    allocatable_read: Instant,
}

impl ScanLoop {
    /// A loop that has not scanned yet. Without a watcher only the timer causes scans. `scanned` opens after the first
    /// success.
    pub fn new(
        scanner: Scanner,
        watch: OpenWatcher,
        sources: &Sources,
        intervals: Intervals,
        metrics: Metrics,
        outputs: Outputs,
        scanned: Gate,
    ) -> Self {
        let mut scan_loop = Self {
            scanner,
            schedule: Schedule::new(intervals, Instant::now()),
            watch,
            watcher: None,
            outputs,
            metrics,
            scanned,
            backoff: Backoff::new(RETRY_MIN, RETRY_MAX),
            random: Random::from_entropy(),
            last_error: String::new(),
            last_ended: None,
            first_change: None,
            stability: Stability::default(),
            kubelet_root: sources.kubelet_root.clone(),
            sysfs: sources.sysfs.clone(),
            kubelet_starts: 0,
            interval: intervals.timer,
            last_woken: None,
            allocatable_read: Instant::now(),
        };
        if let Err(error) = scan_loop.open_watcher() {
            warn!(
                %error,
                "no file events (see fs.inotify.max_user_instances, max_user_watches); only timers cause scans"
            );
        }
        scan_loop
    }

    /// Opens a watcher, if the kernel has one left.
    fn open_watcher(&mut self) -> io::Result<()> {
        let made = (self.watch)();
        let sees_pods = self.kubelet_root.is_some() || self.sees_admissions();
        self.schedule.set_events_available(made.is_ok() && sees_pods);
        self.watcher = Some(made?);
        Ok(())
    }

    /// Whether a file or directory shows admissions of pods.
    fn sees_admissions(&self) -> bool {
        kubelet::admissions(self.kubelet_root.as_deref(), &self.sysfs).is_some()
    }

    /// Scans until only a restart of the container helps, and returns why; with `once`, until the first success.
    /// `report` is called with every success and failure.
    pub async fn run(mut self, once: bool, report: impl Fn(Result<(), String>)) -> Error {
        loop {
            let next = self.schedule.next();
            let due = async {
                match next {
                    Some((at, _)) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                changes = changed(&mut self.watcher) => {
                    self.on_changes(changes);
                    // A scan that is due runs, however many events come.
                    if next.is_none_or(|(at, _)| Instant::now() < at) {
                        continue;
                    }
                }
                () = due => {}
            }
            let cause = next.map_or(Cause::Timer, |(_, cause)| cause);
            let result = self.scan(cause).await;
            let done = result.is_ok();
            match result {
                Err(error) if error.needs_new_mount() => return error,
                result => report(result.map_err(|error| with_causes(&error))),
            }
            if done && once {
                return std::future::pending().await;
            }
        }
    }

    /// Handles file events, or the loss of the watcher.
    fn on_changes(&mut self, changes: io::Result<Counts<Change>>) {
        let changes = match changes {
            Ok(changes) => changes,
            Err(error) => {
                warn!(%error, "file events are lost; only timers cause scans now");
                self.watcher = None;
                self.schedule.set_events_available(false);
                return;
            }
        };
        debug!(?changes, "files changed");
        self.first_change.get_or_insert_with(Instant::now);
        if let Some(pods) = changes.get(&Change::Admission) {
            self.stability.admitted(*pods);
        }
        if changes.contains_key(&Change::Socket) {
            info!("the kubelet's socket was created or removed");
            self.kubelet_starts += 1;
            self.stability.kubelet_started(Instant::now());
            self.backoff.reset();
        }
        let asked = changes.contains_key(&Change::Notice);
        if changes.contains_key(&Change::Socket) || changes.contains_key(&Change::Config) || asked {
            self.scanner.forget();
        } else if changes.contains_key(&Change::Devices) {
            self.scanner.forget_allocatable();
        }
        self.schedule.event(Instant::now());
    }

    async fn scan(&mut self, cause: Cause) -> Result<(), Error> {
        if cause == Cause::Timer {
            self.scanner.forget();
            self.recheck();
        }
        // Without the kubelet's root directory no event reports that a device came, went or failed.
        if self.kubelet_root.is_none() && self.allocatable_read.elapsed() > ALLOCATABLE_AGE {
            self.scanner.forget_allocatable();
            self.allocatable_read = Instant::now();
        }
        let started = Instant::now();
        let result = self.scanner.scan().await;
        let ended = Instant::now();
        // The list may be that of a kubelet whose start is among these events.
        let meanwhile = changed(&mut self.watcher).now_or_never();
        let restarted = matches!(&meanwhile, Some(Ok(changes)) if changes.contains_key(&Change::Socket));
        let outcome = match &result {
            Ok(_) if restarted => Outcome::Unstable,
            Ok(scan) => self.succeeded(scan, cause, started, ended),
            Err(error) if error.needs_new_mount() => return result.map(drop),
            Err(error) => self.failed(error),
        };
        self.schedule.scanned(ended, cause, outcome, self.random.fraction());
        // Only now: an admission counts for lists that were requested after it.
        if let Some(changes) = meanwhile {
            self.on_changes(changes);
        }
        result.map(drop)
    }

    /// Finds directories that were replaced without an event.
    fn recheck(&mut self) {
        if self.watcher.is_none() && self.open_watcher().is_ok() {
            info!("file events work again");
        }
        match self.watcher.as_mut().map(Watcher::recheck) {
            Some(Ok(changes)) if !changes.is_empty() => self.on_changes(Ok(changes)),
            Some(Err(error)) => self.on_changes(Err(error)),
            _ => {}
        }
    }

    fn succeeded(&mut self, scan: &Report, cause: Cause, started: Instant, ended: Instant) -> Outcome {
        let trigger = match cause {
            Cause::Event => api::keys::UPDATE_REACTIVE,
            Cause::Timer | Cause::TimerFollowUp => api::keys::UPDATE_PERIODIC,
        };
        let since_last = self.last_ended.replace(ended).map(|last| started - last);
        let timing = self.timing(cause, started);
        self.metrics.scanned(ended - started, since_last, trigger, scan.remarks.len());
        self.backoff.reset();
        if !self.last_error.is_empty() {
            info!("scanning works again");
            self.last_error.clear();
        }
        if !scan.listed.managers_started {
            // Their start is no event that makes the next scan ask again.
            self.scanner.forget_allocatable();
        }
        let sees_admissions = self.watcher.is_some() && self.sees_admissions();
        if !self.stability.accepts(&scan.listed, sees_admissions, ended) {
            debug!(
                "the list of pods is not stable yet: a pod is being admitted, or the kubelet has just started"
            );
            return Outcome::Unstable;
        }
        let noticed_at = self.first_change.take().unwrap_or(started);
        let content = Arc::new(scan.content.clone());
        let kubelet_starts = self.kubelet_starts;
        self.outputs.note(scan);
        let changed = self.outputs.desired.send_if_modified(|desired| {
            let same = |known: &Desired| known.content == content && known.kubelet_starts == kubelet_starts;
            if desired.as_ref().is_some_and(same) {
                return false;
            }
            *desired = Some(Desired { content, trigger, timing, noticed_at, kubelet_starts });
            true
        });
        self.scanned.open();
        let held = !scan.listed.holders.is_empty();
        if changed { Outcome::Changed { held } } else { Outcome::Same { held } }
    }

    /// How long the exporter slept before the wake-up at `woken`.
    fn timing(&mut self, cause: Cause, woken: Instant) -> Timing {
        let slept = self.last_woken.replace(woken).map_or(Duration::ZERO, |last| woken - last);
        let interval = if cause == Cause::Timer { self.interval } else { Duration::ZERO };
        Timing { slept, interval }
    }

    fn failed(&mut self, error: &Error) -> Outcome {
        self.metrics.scan_failed(error.input());
        let text = with_causes(error);
        if self.last_error != text {
            warn!(error = text, "cannot scan, trying again");
            self.last_error = text;
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
