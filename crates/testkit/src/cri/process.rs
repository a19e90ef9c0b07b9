//! A container as a process of this machine: in go what CRI says of it and where it belongs, out come a running process
//! with a root folder, mounts, devices, process ids and a host name of its own, its log, and its exit code.
//!
//! How that holds: each container has a thread that takes on all these namespaces, forks, and waits. Nothing
//! else runs on it, so that the thread's view affects nothing else, and the parent-death signal means what it
//! says: the process dies with the thread, and the thread with the program, whatever becomes of that. The
//! process is the first of its process namespace, hence everything it starts dies with it.
//!
//! Not done: cgroups, so no limits and no pinned CPUs; seccomp, AppArmor, SELinux; terminals; pods that share
//! process ids.

mod exec;
mod identity;
mod log;
mod root;

use std::ffi::OsString;
use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{
    Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, set_parent_process_death_signal, setsid,
};
use rustix::thread::UnshareFlags;
use tokio::sync::watch;

pub(super) use self::exec::{Exec, Output, Streams};
use self::identity::Identity;
use self::log::Log;
use self::root::Root;
use super::api::{ContainerConfig, PodSandboxConfig};
use super::images::Image;
use crate::namespace::{Namespaces, unshare};

/// Where programs are looked for that are named without a folder, unless image or pod say otherwise.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What to run and where.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The node's mounts and the pod's network.
    pub(super) namespaces: Namespaces,
    /// An existing folder for root folders to be built in; all containers can use the same.
    pub(super) at: PathBuf,
    pub(super) image: Image,
    pub(super) config: ContainerConfig,
    pub(super) sandbox: PodSandboxConfig,
    pub(super) log: Option<PathBuf>,
}

/// A container's process, running or ended. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Process {
    /// Names the process even when its id is another's.
    handle: OwnedFd,
    pid: u32,
    context: ProcessContext,
    log: Arc<Log>,
    exit: watch::Receiver<Option<i32>>,
}

/// What processes of a container share: identity, arguments, environment.
#[derive(Clone, Debug)]
struct ProcessContext {
    identity: Identity,
    env: Vec<(String, OsString)>,
    folder: PathBuf,
}

/// What a program's standard streams are.
struct Stdios {
    stdin: Stdio,
    stdout: Stdio,
    stderr: Stdio,
}

impl Process {
    /// Starts it, and calls `ended` with the exit code when it has ended and its log is complete.
    pub(super) fn start(plan: Plan, ended: impl FnOnce(i32) + Send + 'static) -> anyhow::Result<Self> {
        let context = ProcessContext::new(&plan)?;
        let words = words(&plan.image, &plan.config)?;
        let log = Log::new(plan.log.as_deref()).with_context(|| format!("opening log {:?}", plan.log))?;
        let log = Arc::new(log);
        let (stdout, to_stdout) = io::pipe()?;
        let (stderr, to_stderr) = io::pipe()?;
        let followers = [follow(&log, "stdout", stdout)?, follow(&log, "stderr", stderr)?];
        let (say, exit) = watch::channel(None);
        let (begun, begin) = mpsc::channel();
        let own = context.clone();
        let stdios = Stdios { stdin: Stdio::null(), stdout: to_stdout.into(), stderr: to_stderr.into() };
        std::thread::Builder::new().name("container".to_owned()).spawn(move || {
            let (mut child, handle) = match start_here(&plan, &own, &words, stdios) {
                Ok(started) => started,
                Err(error) => return drop(begun.send(Err(error))),
            };
            let _ = begun.send(Ok((child.id(), handle)));
            let code = child.wait().map_or(-1, code);
            for follower in followers {
                let _ = follower.join();
            }
            ended(code);
            say.send_replace(Some(code));
        })?;
        let (pid, handle) = begin.recv().context("the container's thread ended")??;
        Ok(Self { handle, pid, context, log, exit })
    }

    /// Its process id on this machine.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a signal; one that has ended does not mind.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.handle, signal);
    }

    /// Waits for its end.
    pub(super) async fn ended(&self) {
        // An error means that the thread is gone, and with it the process.
        let _ = self.exit.clone().wait_for(Option::is_some).await;
    }

    /// Goes on in a new log file.
    pub(super) fn reopen_log(&self) -> io::Result<()> {
        self.log.reopen()
    }

    /// Runs a further command in the container, and kills it after `limit`; then there is no output.
    pub(super) async fn exec_sync(
        &self,
        words: Vec<String>,
        limit: Option<Duration>,
    ) -> anyhow::Result<Option<Output>> {
        let exec = self.exec(words, Streams { stdin: false, stdout: true, stderr: true }).await?;
        match limit {
            Some(limit) => tokio::time::timeout(limit, exec.output()).await.ok().transpose(),
            None => Ok(Some(exec.output().await?)),
        }
    }

    /// Starts a further command in the container.
    pub(super) async fn exec(&self, words: Vec<String>, streams: Streams) -> anyhow::Result<Exec> {
        Exec::start(self.handle.try_clone()?, self.context.clone(), words, streams).await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

impl ProcessContext {
    fn new(plan: &Plan) -> anyhow::Result<Self> {
        let Plan { image, config, sandbox, .. } = plan;
        let context =
            config.linux.as_ref().and_then(|linux| linux.security_context.clone()).unwrap_or_default();
        let identity = Identity::new(&context, image.user).map_err(anyhow::Error::msg)?;
        let text = |key: &str, value: &str| (key.to_owned(), OsString::from(value));
        let mut env = vec![text("PATH", PATH), text("HOME", "/"), text("HOSTNAME", &sandbox.hostname)];
        env.extend(image.env.iter().map(|(key, value)| text(key, value)));
        env.extend(config.envs.iter().map(|env| (env.key.clone(), OsString::from_vec(env.value.clone()))));
        let folder = if config.working_dir.is_empty() { "/" } else { &config.working_dir };
        Ok(Self { identity, env, folder: PathBuf::from(folder) })
    }

    /// A command of the container. After the fork comes `prepare`, still with all rights.
    fn command(
        &self,
        words: &[String],
        stdios: Stdios,
        prepare: impl Fn() -> io::Result<()> + Send + Sync + 'static,
    ) -> Command {
        let (program, args) = words.split_first().map_or(("", [].as_slice()), |(first, rest)| (first, rest));
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .envs(self.env.iter().map(|(key, value)| (key, value)))
            .current_dir(&self.folder)
            .stdin(stdios.stdin)
            .stdout(stdios.stdout)
            .stderr(stdios.stderr);
        let identity = self.identity.clone();
        before_exec(&mut command, move || {
            setsid()?;
            prepare()?;
            identity.assume()?;
            // Last: a change of user takes it back.
            Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
        });
        command
    }
}

/// On the container's own thread: takes on its namespaces and forks.
fn start_here(
    plan: &Plan,
    shared: &ProcessContext,
    words: &[String],
    stdios: Stdios,
) -> anyhow::Result<(Child, OwnedFd)> {
    plan.namespaces.enter()?;
    let own = UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWUTS | UnshareFlags::NEWIPC;
    unshare(own).context("making the container's namespaces")?;
    let (config, sandbox) = (&plan.config, &plan.sandbox);
    rustix::system::sethostname(sandbox.hostname.as_bytes()).context("setting the host name")?;
    let (image, hostname, dns) = (&plan.image, sandbox.hostname.as_str(), sandbox.dns_config.as_ref());
    Root { at: &plan.at, image, config, hostname, dns }.enter()?;
    let context = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let read_only = context.is_some_and(|context| context.readonly_rootfs);
    let command = shared.command(words, stdios, move || {
        root::mount_proc()?;
        if read_only { root::make_read_only() } else { Ok(()) }
    });
    fork(command)
}

/// Forks the calling thread's view; the command's ends of pipes are closed here then.
fn fork(mut command: Command) -> anyhow::Result<(Child, OwnedFd)> {
    let child = command.spawn().with_context(|| format!("starting {:?}", command.get_program()))?;
    let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).context("opening a process")?;
    Ok((child, handle))
}

/// Has the child do something after the fork.
#[expect(unsafe_code, reason = "what is done between fork and exec can be dangerous; see below")]
fn before_exec(command: &mut Command, work: impl FnMut() -> io::Result<()> + Send + Sync + 'static) {
    // SAFETY: another thread may have held any lock at the fork, that of the allocator too, so the closures of
    // this module do nothing but system calls on values that were there before.
    unsafe { command.pre_exec(work) };
}

/// What to run: the pod's words, else the image's.
fn words(image: &Image, config: &ContainerConfig) -> anyhow::Result<Vec<String>> {
    let own_command = !config.command.is_empty();
    let program = if own_command { &config.command } else { &image.entrypoint };
    // The image's arguments are for the image's program.
    let args = if own_command || !config.args.is_empty() { &config.args } else { &image.command };
    let words: Vec<String> = program.iter().chain(args).cloned().collect();
    if words.is_empty() {
        bail!("neither the image nor the pod has a command");
    }
    Ok(words)
}

fn follow(log: &Arc<Log>, stream: &'static str, pipe: PipeReader) -> io::Result<std::thread::JoinHandle<()>> {
    let log = log.clone();
    std::thread::Builder::new().name("container-log".to_owned()).spawn(move || {
        if let Err(error) = log.follow(stream, pipe) {
            tracing::error!(%error, stream, "a container's log ended early");
        }
    })
}

/// As a shell reports it.
fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(-1)
}

#[cfg(test)]
mod tests;
