//! What a run may not do.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::PATIENCE;

/// A daemon that still runs after this time is asked to end.
const LIFE: Duration = Duration::from_millis(600);

/// The longest output of a run that fails, in bytes. More scrolls the reason away.
const MESSAGE: usize = 16 << 10;

/// How a run ended.
pub(super) struct Outcome {
    /// The exit code, if no signal ended it.
    pub(super) code: Option<i32>,
    signal: Option<i32>,
    /// The state of the process when patience ended, if it hung.
    hangs: Option<String>,
    /// Time to the end, or from SIGTERM to the end.
    pub(super) took: Duration,
    /// Its messages and log.
    pub(super) stderr: String,
    /// Whether it wrote nothing at all.
    is_silent: bool,
}

impl Outcome {
    /// Runs the command; its outputs go to files of that folder, which need no reader.
    pub(super) fn of(mut command: Command, dir: &Path, daemon: bool) -> Self {
        let stderr = dir.join("stderr");
        let stdout = dir.join("stdout");
        command.stdout(File::create(&stdout).unwrap()).stderr(File::create(&stderr).unwrap());
        let mut child = command.spawn().unwrap();
        let began = Instant::now();
        let (status, took, hangs) = match within(&mut child, if daemon { LIFE } else { PATIENCE }) {
            Some(status) => (status, began.elapsed(), None),
            None => asked_to_end(&mut child, if daemon { PATIENCE } else { Duration::ZERO }),
        };
        let stderr = said(&stderr);
        let is_silent = stderr.trim().is_empty() && std::fs::metadata(stdout).unwrap().len() == 0;
        Self { code: status.code(), signal: status.signal(), hangs, took, stderr, is_silent }
    }

    /// # Errors
    /// The reason why the run is a failure.
    pub(super) fn judge(&self) -> Result<(), String> {
        let shown: String = self.stderr.chars().take(2_000).collect();
        let fail = |reason: &str| {
            Err(format!("{reason}: code {:?}, signal {:?}, {:?}\n{shown}", self.code, self.signal, self.took))
        };
        if let Some(state) = &self.hangs {
            return fail(&format!("hangs ({state})"));
        }
        // Rust aborts with SIGABRT where memory is refused; SIGTERM is ours, before a program listens to it.
        if self.signal.is_some_and(|signal| signal != Signal::TERM.as_raw()) {
            return fail("killed");
        }
        if self.stderr.contains("panicked at") || self.stderr.contains("memory allocation of") {
            return fail("panics");
        }
        if self.code.is_some_and(|code| code != 0) && self.is_silent {
            return fail("says nothing");
        }
        if self.stderr.len() > MESSAGE {
            return fail(&format!("says {} bytes", self.stderr.len()));
        }
        if let Some(control) =
            self.stderr.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t' | '\r'))
        {
            return fail(&format!("prints {control:?}"));
        }
        Ok(())
    }
}

/// The beginning of a file, more than any message may have.
fn said(file: &Path) -> String {
    let mut bytes = Vec::new();
    File::open(file).unwrap().take(16 * MESSAGE as u64).read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for the end. Time in which the process waits for a CPU does not count: other tests run beside this one.
fn within(child: &mut Child, time: Duration) -> Option<ExitStatus> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if began.elapsed() > time && began.elapsed() > time + longest_wait(child) {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn asked_to_end(child: &mut Child, patience: Duration) -> (ExitStatus, Duration, Option<String>) {
    let began = Instant::now();
    let pid = Pid::from_child(child);
    let state = state_of(child);
    let _ = kill_process(pid, Signal::TERM);
    if let Some(status) = within(child, patience) {
        return (status, began.elapsed(), None);
    }
    let _ = child.kill();
    (child.wait().unwrap(), began.elapsed(), Some(state))
}

/// What the kernel says of each thread, by this file of its folder.
fn of_threads(child: &Child, file: &str) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", child.id()));
    let read = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join(file)).ok();
    threads.into_iter().flatten().flatten().filter_map(read).collect()
}

/// The longest time for which a thread has waited for a CPU in all (`schedstat`: on a CPU, in wait for one, turns).
fn longest_wait(child: &Child) -> Duration {
    let waited = |text: &String| text.split_whitespace().nth(1)?.parse().ok();
    let longest = of_threads(child, "schedstat").iter().filter_map(waited).max();
    Duration::from_nanos(longest.unwrap_or(0))
}

/// Where each thread waits in the kernel, and its state.
fn state_of(child: &Child) -> String {
    let states = of_threads(child, "status");
    let states = states.iter().filter_map(|text| text.lines().find_map(|line| line.strip_prefix("State:")));
    let waits = of_threads(child, "wchan");
    let threads = states.zip(&waits).map(|(state, wait)| format!("{} in {wait}", state.trim()));
    format!("{}; waited for a CPU for {:?}", threads.collect::<Vec<_>>().join(", "), longest_wait(child))
}
