//! Writes the pods behind the fingerprint to files, for people who ask why two programs do not agree.
//!
//! In: the status of each fingerprint, in the order of the scans. Out: files ([`StatusFiles`]), replaced atomically:
//! the last status (RTE's `--pods-fingerprint-status-file`), and the last ten with their times in a directory
//! (`PFP_STATUS_DUMP`, read by the peers' `pfpsyncchk`). Never: an effect on publishing, however slow the disk is; a
//! write without a change; a repeated warning.
//!
//! A status equal to the one before is not recorded again, so the ten differ and each time is that of a change. (The
//! peers record every scan: on a quiet node all ten are soon the same.)

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use runtime::atomic_file::{AtomicFile, FailureLog};
use runtime::ring_log::RingLog;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use topology::fingerprint::status::{Status, file_name};
use tracing::{info, warn};

use crate::settings::StatusFiles;

/// The least time between two dumps, as in RTE.
pub const DUMP_INTERVAL: Duration = Duration::from_secs(10);

/// The subject of the files, in log messages.
const PODS: &str = "the pods behind the fingerprint";

/// A status and when it was true.
pub type LatestStatus = Option<Arc<(Status, Timestamp)>>;

/// The recorded statuses, and where they are written.
#[derive(Debug)]
pub struct Recorder {
    file: Option<File>,
    dump: Option<Dump>,
    /// The last status, as JSON.
    last: String,
}

#[derive(Debug)]
struct File {
    target: AtomicFile,
    trouble: FailureLog,
    /// The file is outdated.
    due: bool,
}

#[derive(Debug)]
struct Dump {
    target: AtomicFile,
    trouble: FailureLog,
    ring: RingLog,
    /// The file is outdated.
    due: bool,
}

impl Recorder {
    /// A recorder without statuses. Unusable paths are logged and ignored: a path without a file name, a dump directory
    /// that does not exist.
    #[must_use]
    pub fn new(files: &StatusFiles, node: &str) -> Self {
        let file = files.file.as_deref().and_then(|path| {
            let target = AtomicFile::new(path);
            if target.is_none() {
                warn!(path = %path.display(), "no status file: the path does not end in a file name");
            }
            Some(File { target: target?, trouble: FailureLog::new(PODS), due: false })
        });
        let dump = files.dump.as_deref().and_then(|dir| {
            if !dir.is_dir() {
                warn!(path = %dir.display(), "no status dumps: not a directory");
                return None;
            }
            let target = AtomicFile::new(&dir.join(file_name(node)))?;
            Some(Dump { target, trouble: FailureLog::new(PODS), ring: RingLog::default(), due: false })
        });
        for target in file.iter().map(|file| &file.target).chain(dump.iter().map(|dump| &dump.target)) {
            info!(path = %target.path().display(), "writing the pods behind the fingerprint to a file");
        }
        Self { file, dump, last: String::new() }
    }

    /// Whether statuses are written at all.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.file.is_some() || self.dump.is_some()
    }

    /// Records a status, and writes the status file if it differs or is gone. May block on a slow disk.
    pub fn record(&mut self, status: &Status, now: Timestamp) {
        let json = status.to_json();
        let changed = json != self.last;
        if let Some(dump) = &mut self.dump {
            if changed {
                dump.ring.push(&json, now);
            }
            dump.due |= changed || !dump.target.exists();
        }
        if let Some(file) = &mut self.file {
            file.due |= changed || !file.target.exists();
            if file.due {
                file.due = !file.target.replace(&json, &mut file.trouble);
            }
        }
        self.last = json;
    }

    /// Writes the dump, if it is due. May block on a slow disk.
    pub fn tick(&mut self) {
        if let Some(dump) = self.dump.as_mut().filter(|dump| dump.due) {
            dump.due = !dump.target.replace(&dump.ring.to_json(), &mut dump.trouble);
        }
    }

    /// Whether [`Self::tick`] has something to write.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.dump.as_ref().is_some_and(|dump| dump.due)
    }

    /// Records statuses until `stop` or until the sender is gone, then writes the rest. Files are written on a thread
    /// of their own: a hanging disk stops this task and nothing else; of later statuses the last is recorded.
    pub async fn run(
        self,
        noted: watch::Receiver<LatestStatus>,
        stop: CancellationToken,
    ) -> Result<(), Infallible> {
        self.run_every(DUMP_INTERVAL, noted, stop).await;
        Ok(())
    }

    async fn run_every(
        self,
        interval: Duration,
        mut noted: watch::Receiver<LatestStatus>,
        stop: CancellationToken,
    ) {
        let mut recorder = self;
        let mut next = Instant::now();
        loop {
            let due = recorder.is_due();
            let more = tokio::select! {
                biased;
                () = stop.cancelled() => false,
                changed = noted.changed() => changed.is_ok(),
                () = tokio::time::sleep_until(next), if due => true,
            };
            let status = noted.borrow_and_update().clone();
            let dump = !more || next <= Instant::now();
            let work = tokio::task::spawn_blocking(move || {
                if let Some((status, at)) = status.as_deref() {
                    recorder.record(status, *at);
                }
                let due = dump && recorder.is_due();
                if due {
                    recorder.tick();
                }
                (recorder, due)
            });
            // Fails only by a panic or at the end of the runtime.
            let Ok((back, dumped)) = work.await else { return };
            recorder = back;
            if dumped {
                next = Instant::now() + interval;
            }
            if !more {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
