//! A further command in a container, beside its own process.
//!
//! In: a container, words, and which standard streams the caller wants. Out: the other ends of those, and the exit
//! code. Never: a command that outlives its handle or its container.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Stdio};

use anyhow::{Context as _, anyhow};
use rustix::process::{Signal, pidfd_send_signal};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::oneshot;

use super::{ProcessContext, Stdios, code, fork};
use crate::namespace::unshare;

/// The standard streams that the caller wants; the others are empty.
#[derive(Clone, Copy, Debug)]
pub(in crate::cri) struct Streams {
    pub(in crate::cri) stdin: bool,
    pub(in crate::cri) stdout: bool,
    pub(in crate::cri) stderr: bool,
}

/// A command that was started. Dropping it kills it.
#[derive(Debug)]
pub(in crate::cri) struct Exec {
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    /// Names the process even when its id is another's.
    handle: OwnedFd,
    exit: oneshot::Receiver<i32>,
}

/// What became of a command.
#[derive(Debug)]
pub(in crate::cri) struct Output {
    pub(in crate::cri) code: i32,
    pub(in crate::cri) stdout: Vec<u8>,
    pub(in crate::cri) stderr: Vec<u8>,
}

impl Exec {
    /// Starts it in the container of the process `container`.
    ///
    /// # Errors
    /// The container has ended, or there is no such program; worded as by the runtimes of real nodes.
    pub(super) async fn start(
        container: OwnedFd,
        context: ProcessContext,
        words: Vec<String>,
        streams: Streams,
    ) -> anyhow::Result<Self> {
        let (stdin, its_stdin) = input(streams.stdin)?;
        let (stdout, its_stdout) = output(streams.stdout)?;
        let (stderr, its_stderr) = output(streams.stderr)?;
        let stdios = Stdios { stdin: its_stdin, stdout: its_stdout, stderr: its_stderr };
        let (begun, begin) = oneshot::channel();
        let (say, exit) = oneshot::channel();
        // As for the container itself: a thread that forks and waits, in the container's namespaces.
        std::thread::Builder::new().name("exec".to_owned()).spawn(move || {
            match spawn(&container, &context, &words, stdios) {
                Ok((mut child, handle)) => {
                    if begun.send(Ok(handle)).is_err() {
                        // The caller has gone.
                        let _ = child.kill();
                    }
                    let _ = say.send(child.wait().map_or(-1, code));
                }
                Err(error) => drop(begun.send(Err(error))),
            }
        })?;
        let handle = begin.await.context("the command's thread ended")??;
        Ok(Self { stdin, stdout, stderr, handle, exit })
    }

    /// The caller's ends of the wanted streams, in their usual order.
    pub(in crate::cri) fn take_streams(&mut self) -> Vec<OwnedFd> {
        [self.stdin.take(), self.stdout.take(), self.stderr.take()].into_iter().flatten().collect()
    }

    /// Waits for its end, and returns the exit code.
    pub(in crate::cri) async fn ended(&mut self) -> i32 {
        // An error means that the thread is gone, and with it the process.
        (&mut self.exit).await.unwrap_or(-1)
    }

    /// Reads all that it says until its end.
    pub(super) async fn output(mut self) -> anyhow::Result<Output> {
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        let (stdout, stderr, code) = tokio::join!(read_all(stdout), read_all(stderr), self.ended());
        Ok(Output { code, stdout: stdout?, stderr: stderr? })
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        // One that has ended does not mind.
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
    }
}

/// On the command's own thread: moves to where the container is, and forks.
fn spawn(
    container: &OwnedFd,
    context: &ProcessContext,
    words: &[String],
    stdios: Stdios,
) -> anyhow::Result<(Child, OwnedFd)> {
    unshare(UnshareFlags::FS)?;
    let all = ThreadNameSpaceType::MOUNT
        | ThreadNameSpaceType::NETWORK
        | ThreadNameSpaceType::PROCESS_ID
        | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME
        | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION;
    move_into_thread_name_spaces(container.as_fd(), all).context("the container has ended")?;
    fork(context.command(words, stdios, || Ok(()))).map_err(|error| {
        let program = words.first().map_or("", String::as_str);
        match error.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(ErrorKind::NotFound) if program.contains('/') => {
                anyhow!("exec: {program:?}: stat {program}: no such file or directory")
            }
            Some(ErrorKind::NotFound) => anyhow!("exec: {program:?}: executable file not found in $PATH"),
            Some(ErrorKind::PermissionDenied) => anyhow!("exec: {program:?}: permission denied"),
            _ => error,
        }
    })
}

/// A pipe into the command: the caller's end, and the command's.
fn input(wanted: bool) -> io::Result<(Option<OwnedFd>, Stdio)> {
    if !wanted {
        return Ok((None, Stdio::null()));
    }
    let (reader, writer) = io::pipe()?;
    Ok((Some(writer.into()), reader.into()))
}

/// A pipe out of it, in the same order.
fn output(wanted: bool) -> io::Result<(Option<OwnedFd>, Stdio)> {
    if !wanted {
        return Ok((None, Stdio::null()));
    }
    let (reader, writer) = io::pipe()?;
    Ok((Some(reader.into()), writer.into()))
}

async fn read_all(pipe: Option<OwnedFd>) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    if let Some(pipe) = pipe {
        Receiver::from_owned_fd(pipe)?.read_to_end(&mut all).await?;
    }
    Ok(all)
}
