//! What a process costs.
//!
//! In: a process id. Out: memory and CPU time, as the kernel counts them. Never: an estimate.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context;
use testkit::process_group::Process;

/// What a process has cost since some moment.
#[derive(Debug)]
pub(super) struct Meter {
    began: Instant,
    used: Duration,
    most_kib: u64,
}

impl Meter {
    /// Starts counting.
    pub(super) fn start(process: &Process) -> anyhow::Result<Self> {
        Ok(Self { began: Instant::now(), used: cpu_time(process)?, most_kib: 0 })
    }

    /// Looks how much is resident now.
    pub(super) fn sample(&mut self, process: &Process) -> anyhow::Result<()> {
        self.most_kib = self.most_kib.max(process.memory()?.rss_kib);
        Ok(())
    }

    /// The most that was resident at any of the samples, in KiB.
    pub(super) fn most_kib(&self) -> u64 {
        self.most_kib
    }

    /// CPU time as per cent of one core since the start.
    pub(super) fn percent(&self, process: &Process) -> anyhow::Result<f64> {
        let used = cpu_time(process)?.saturating_sub(self.used);
        Ok(used.as_secs_f64() * 100.0 / self.began.elapsed().as_secs_f64())
    }
}

/// CPU time of all threads there are. The ticks of `/proc/<pid>/stat` are 10 ms, as much as an idle exporter
/// needs in many seconds; the scheduler's statistics are nanoseconds. What threads used that have ended is not
/// in it.
fn cpu_time(process: &Process) -> anyhow::Result<Duration> {
    let tasks = format!("/proc/{}/task", process.pid());
    let gone = || format!("{} is not running", process.name());
    let mut nanos = 0;
    for task in fs::read_dir(&tasks).with_context(gone)? {
        // A thread may end between the listing and the reading.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        let first = text.split_whitespace().next().context("schedstat is empty")?;
        nanos += first.parse::<u64>().context("schedstat does not begin with a number")?;
    }
    Ok(Duration::from_nanos(nanos))
}
