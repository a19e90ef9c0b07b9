//! A process group: one temporary folder and the processes that live and die with it.
//!
//! In: programs with arguments. Out: running processes, their logs, memory and exit. A group never outlives its
//! maker: nothing keeps running and no folder stays, however the maker ends.
//!
//! How that holds: the first process of a group is its *keeper*, a shell that leads a process group of its own
//! and blocks on a pipe whose other end only the maker holds (close-on-exec, so no child inherits it). Every
//! further process joins that group. On an orderly drop or an unwinding panic the maker kills the group and
//! removes the folder itself. If the maker is gone without cleaning up (Ctrl-C, SIGKILL, abort), the kernel closes
//! its end of the pipe and the keeper does the same. The parent-death signal (`PR_SET_PDEATHSIG`) is not used
//! on purpose: it fires when the *thread* that forked ends, which under a thread pool is any moment. Being in
//! another process group also keeps a terminal's Ctrl-C away from the children: only the maker gets it, and
//! ends in order.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::namespace::Namespaces;

/// Set to anything but the empty text, it leaves the folders of process groups in place and prints where they are.
pub const KEEP: &str = "TESTKIT_KEEP";

/// The keeper: `$1` is the folder, `$2` says whether to keep it. The killer runs in a session of its own because it
/// kills the keeper too. Removing is tried again while dying processes may still add files.
const KEEPER: &str = r#"
while read -r _; do :; done
setsid sh -c '
    kill -s KILL -- "-$1"
    [ -n "$3" ] && exit
    for _ in 1 2 3 4 5; do rm -rf -- "$2" && exit; sleep 0.2; done
' killer "$$" "$1" "$2"
"#;

/// One temporary folder and everything started in it. Clones share it; the last one to go ends it.
#[derive(Clone, Debug)]
pub struct ProcessGroup(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    group: Pid,
    keeper: Mutex<Child>,
    /// Held only to be closed by the kernel when this process is gone.
    _pipe: ChildStdin,
}

/// A program to start in a group.
#[derive(Clone, Debug)]
pub struct Spec {
    name: String,
    program: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    namespaces: Namespaces,
}

/// A process of a group: killed when dropped, at the latest.
#[derive(Debug)]
pub struct Process {
    nest: ProcessGroup,
    spec: Spec,
    log: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    child: Child,
    exit: Option<ExitStatus>,
}

/// Resident memory of a process, in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Resident now (`VmRSS`).
    pub rss_kib: u64,
    /// The most that was ever resident (`VmHWM`).
    pub peak_kib: u64,
}

impl ProcessGroup {
    /// Makes the folder and starts its keeper.
    ///
    /// # Errors
    /// When the folder cannot be made or `sh` cannot be started.
    pub fn new() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("tholepin-")
            .tempdir()
            .context("making a temporary folder; is TMPDIR writable?")?;
        fs::create_dir(folder.path().join("logs"))?;
        let keep = if keeps() { "keep" } else { "" };
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(folder.path())
            .arg(keep)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()
            .context("starting the keeper of a process group (sh)")?;
        let pipe = keeper.stdin.take().context("the keeper has no standard input")?;
        let group = Pid::from_child(&keeper);
        // From here on the keeper and `Inner::drop` own the folder.
        let dir = folder.keep();
        Ok(Self(Arc::new(Inner { dir, group, keeper: Mutex::new(keeper), _pipe: pipe })))
    }

    /// The folder everything is in.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// Starts a process: standard input empty, output and errors appended to `logs/<name>.log` in the folder.
    ///
    /// # Errors
    /// When the log cannot be opened or the program cannot be started.
    pub fn spawn(&self, spec: Spec) -> anyhow::Result<Process> {
        let log = self.dir().join("logs").join(format!("{}.log", spec.name));
        let child = self.start(&spec, &log)?;
        Ok(Process { nest: self.clone(), spec, log, state: Mutex::new(State { child, exit: None }) })
    }

    fn start(&self, spec: &Spec, log: &Path) -> anyhow::Result<Child> {
        let out = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("opening log {}", log.display()))?;
        let mut command = Command::new(&spec.program);
        command
            .args(&spec.args)
            .envs(spec.env.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .process_group(self.0.group.as_raw_nonzero().get());
        let started = spec.namespaces.run(|| command.spawn())?;
        started.with_context(|| format!("starting {} ({})", spec.name, spec.program.display()))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _ = kill_process_group(self.group, Signal::KILL);
        let _ = lock(&self.keeper).wait();
        if keeps() {
            eprintln!("{KEEP} is set: left {}", self.dir.display());
            return;
        }
        // Killed processes may still be closing files: a folder can fill up while it is being removed.
        for _ in 0..100 {
            match fs::remove_dir_all(&self.dir) {
                Ok(()) => return,
                Err(error) if error.kind() == io::ErrorKind::NotFound && !self.dir.exists() => return,
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        eprintln!("could not remove {}", self.dir.display());
    }
}

impl Spec {
    /// A program to be known as `name`, which also names its log.
    #[must_use]
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            namespaces: Namespaces::default(),
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<T: Into<String>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Lets it see these mounts and this network.
    #[must_use]
    pub fn within(mut self, namespaces: &Namespaces) -> Self {
        self.namespaces = namespaces.clone();
        self
    }
}

impl Process {
    /// The name given at the start.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The process id; after [`Process::restart`] another one.
    #[must_use]
    pub fn pid(&self) -> u32 {
        lock(&self.state).child.id()
    }

    /// The file that output and errors go to.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// How the process ended, or `None` while it runs (or is stopped by a signal).
    pub fn exit(&self) -> Option<ExitStatus> {
        let mut state = lock(&self.state);
        if state.exit.is_none() {
            state.exit = state.child.try_wait().ok().flatten();
        }
        state.exit
    }

    /// Resident memory, from `/proc/<pid>/status`.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn memory(&self) -> anyhow::Result<Memory> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))
            .with_context(|| format!("{} is not running", self.name()))?;
        let field = |key: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok())
                .with_context(|| format!("no {key} in the status of {}", self.name()))
        };
        Ok(Memory { rss_kib: field("VmRSS:")?, peak_kib: field("VmHWM:")? })
    }

    /// Kills it as `kill -9` does and waits until it is gone. Killing twice is no error.
    pub fn kill(&self) {
        let mut state = lock(&self.state);
        if state.exit.is_none() {
            let _ = state.child.kill();
            state.exit = state.child.wait().ok();
        }
    }

    /// Asks it to end (SIGTERM) and waits.
    ///
    /// # Errors
    /// When it has not ended after `within`; it is killed then.
    pub async fn terminate(&self, within: Duration) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let asked = Instant::now();
        loop {
            if let Some(exit) = self.exit() {
                return Ok(exit);
            }
            if asked.elapsed() > within {
                self.kill();
                bail!("{} had not ended {within:?} after SIGTERM", self.name());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Freezes it (SIGSTOP): it keeps its sockets and memory but does nothing.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets a paused process go on (SIGCONT).
    ///
    /// # Errors
    /// When the process has ended.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Kills it if it still runs and starts the same program again with the same arguments; the log goes on.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn restart(&self) -> anyhow::Result<()> {
        self.kill();
        let child = self.nest.start(&self.spec, &self.log)?;
        *lock(&self.state) = State { child, exit: None };
        Ok(())
    }

    /// The last `lines` lines of the log, for error messages.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Waits until `ready` says so, asking again every 20 ms.
    ///
    /// # Errors
    /// When the process ends first, or `within` has passed; both with the end of its log.
    pub async fn wait_until(
        &self,
        what: &str,
        within: Duration,
        mut ready: impl AsyncFnMut() -> bool,
    ) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            if let Some(exit) = self.exit() {
                bail!("{} ended ({exit}) before {what}; its log ends:\n{}", self.name(), self.log_tail(15));
            }
            // A question that hangs must not outlive the limit either.
            let left = within.saturating_sub(began.elapsed());
            if let Ok(true) = tokio::time::timeout(left, ready()).await {
                return Ok(());
            }
            if began.elapsed() >= within {
                bail!("{}: not {what} after {within:?}; its log ends:\n{}", self.name(), self.log_tail(15));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        // The lock keeps the id ours: nothing can reap the child meanwhile.
        let state = lock(&self.state);
        if state.exit.is_some() {
            bail!("{} has ended", self.spec.name);
        }
        kill_process(Pid::from_child(&state.child), signal)
            .with_context(|| format!("signalling {}", self.spec.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn keeps() -> bool {
    std::env::var_os(KEEP).is_some_and(|value| !value.is_empty())
}

/// A panic elsewhere must not keep processes alive, so a poisoned lock is taken all the same.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
