//! Streams of `exec` and `port-forward`. The program `cri-streaming` serves them to kubelets, and asks here for the
//! files that a stream is copied from and to.
//!
//! In: requests of the interface, and the program's questions on a unix socket. Out: URLs, pipes of processes, sockets
//! in pods. Never: a byte of a stream, or a program before the first request.
//!
//! The listener is made here, so that a URL is good at once: connections wait in it until the program has started. A
//! question is a line (`listener`, `exec TOKEN`, `port SANDBOX PORT`). Answers are lines of JSON, the first with files.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::OnceCell;

use super::api::{ExecRequest, PortForwardRequest};
use super::process::{Exec, Streams};
use super::runner::Runner;
use super::{clear, image, seed};
use crate::process_group::{Process, Spec};

/// How long a client may take to follow a URL.
const PATIENCE: Duration = Duration::from_secs(60);

/// The end of the program's log that an error shows, in lines.
const LOG_LINES: usize = 5;

/// Requests that wait for their clients, and the program that serves these.
#[derive(Debug)]
pub(super) struct Streaming {
    runner: Arc<Runner>,
    socket: PathBuf,
    server: OnceCell<Server>,
    expected: Mutex<Expected>,
}

/// The program.
#[derive(Debug)]
struct Server {
    address: SocketAddr,
    process: Process,
}

/// Commands to run when their client comes.
#[derive(Debug)]
struct Expected {
    seed: u64,
    serial: u64,
    commands: BTreeMap<String, (Instant, ExecRequest)>,
}

/// What the program asks for.
#[derive(Debug, PartialEq, Eq)]
enum Question<'a> {
    Listener,
    Exec { token: &'a str },
    Port { sandbox: &'a str, port: u16 },
}

impl Streaming {
    /// Has its socket in `dir`.
    pub(super) fn new(runner: Arc<Runner>, dir: &Path) -> Self {
        let expected = Expected { seed: seed(), serial: 0, commands: BTreeMap::new() };
        let socket = dir.join("streaming.sock");
        Self { runner, socket, server: OnceCell::new(), expected: Mutex::new(expected) }
    }

    /// Where a client gets the command run; once, and soon.
    pub(super) async fn exec(self: &Arc<Self>, request: ExecRequest) -> anyhow::Result<String> {
        let address = self.address().await?;
        let wants = |name: &str, wanted: bool| format!("{name}={}", u8::from(wanted));
        let wanted =
            [wants("input", request.stdin), wants("output", request.stdout), wants("error", request.stderr)];
        let token = self.expected().expect(request, Instant::now());
        Ok(format!("http://{address}/exec/{token}?{}", wanted.join("&")))
    }

    /// Where a client reaches ports of a sandbox.
    pub(super) async fn port_forward(
        self: &Arc<Self>,
        request: PortForwardRequest,
    ) -> anyhow::Result<String> {
        let address = self.address().await?;
        let ports: Vec<String> = request.port.iter().map(|port| format!("port={port}")).collect();
        Ok(format!("http://{address}/portforward/{}?{}", request.pod_sandbox_id, ports.join("&")))
    }

    async fn address(self: &Arc<Self>) -> anyhow::Result<SocketAddr> {
        let server = self.server.get_or_try_init(|| self.start()).await?;
        if let Some(exit) = server.process.exit() {
            bail!("{} ended ({exit}): {}", server.process.name(), server.process.log_tail(LOG_LINES));
        }
        Ok(server.address)
    }

    /// Starts the program, and answers it as long as the server's runtime lives.
    async fn start(self: &Arc<Self>) -> anyhow::Result<Server> {
        clear(&self.socket)?;
        let questions =
            UnixListener::bind(&self.socket).with_context(|| format!("binding {}", self.socket.display()))?;
        let this = self.clone();
        let started = tokio::task::spawn_blocking(move || {
            let programs = this.runner.programs();
            let listener = programs.host.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))??;
            let folder = this.socket.parent().and_then(Path::file_name).unwrap_or_default();
            let name = format!("cri-streaming-{}", folder.display());
            let spec = Spec::new(name, &programs.streaming)
                .within(&programs.host)
                .arg(this.socket.display().to_string());
            anyhow::Ok((listener, programs.processes.spawn(spec)?))
        });
        let (listener, process) = started.await??;
        let address = listener.local_addr()?;
        tokio::spawn(self.clone().answer_all(questions, listener));
        Ok(Server { address, process })
    }

    async fn answer_all(self: Arc<Self>, questions: UnixListener, listener: TcpListener) {
        let listener = Arc::new(listener);
        loop {
            match questions.accept().await {
                Ok((stream, _)) => {
                    let (this, listener) = (self.clone(), listener.clone());
                    tokio::spawn(async move {
                        // The program may hang up whenever it likes.
                        if let Err(error) = this.answer(stream, &listener).await {
                            tracing::debug!(%error, "a stream ended early");
                        }
                    });
                }
                Err(error) => return tracing::error!(%error, "no more streams are served"),
            }
        }
    }

    async fn answer(&self, mut stream: UnixStream, listener: &TcpListener) -> io::Result<()> {
        let mut line = String::new();
        BufReader::new(&mut stream).read_line(&mut line).await?;
        match Question::read(&line) {
            Some(Question::Listener) => say(&stream, &json!({}), &[listener.as_fd()]).await,
            Some(Question::Exec { token }) => match self.run(token).await {
                Ok(exec) => follow(&mut stream, exec).await,
                Err(error) => refuse(&stream, &error).await,
            },
            Some(Question::Port { sandbox, port }) => match self.connect(sandbox, port).await {
                Ok(connection) => say(&stream, &json!({}), &[connection.as_fd()]).await,
                Err(error) => refuse(&stream, &error).await,
            },
            None => refuse(&stream, &anyhow::anyhow!("no such question: {line:?}")).await,
        }
    }

    async fn run(&self, token: &str) -> anyhow::Result<Exec> {
        let request = self.expected().commands.remove(token);
        let (_, request) = request.context("the command was not asked for, or too long ago")?;
        let process = self.runner.process(&request.container_id).context("the container is gone")?;
        let ExecRequest { cmd, stdin, stdout, stderr, .. } = request;
        process.exec(cmd, Streams { stdin, stdout, stderr }).await
    }

    async fn connect(&self, sandbox: &str, port: u16) -> anyhow::Result<OwnedFd> {
        let (runner, sandbox) = (self.runner.clone(), sandbox.to_owned());
        Ok(tokio::task::spawn_blocking(move || runner.connect(&sandbox, port)).await??.into())
    }

    fn expected(&self) -> std::sync::MutexGuard<'_, Expected> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Expected {
    /// Keeps a command, forgets those whose clients never came, and returns the token.
    fn expect(&mut self, request: ExecRequest, now: Instant) -> String {
        self.commands.retain(|_, (since, _)| now.duration_since(*since) < PATIENCE);
        self.serial += 1;
        let token = format!("{:016x}", image::scramble(self.seed ^ image::scramble(self.serial)));
        self.commands.insert(token.clone(), (now, request));
        token
    }
}

impl<'a> Question<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["listener"] => Some(Self::Listener),
            ["exec", token] => Some(Self::Exec { token }),
            ["port", sandbox, port] => Some(Self::Port { sandbox, port: port.parse().ok()? }),
            _ => None,
        }
    }
}

/// Hands over the streams of a command, and says how it has ended.
async fn follow(stream: &mut UnixStream, mut exec: Exec) -> io::Result<()> {
    let files = exec.take_streams();
    let borrowed: Vec<BorrowedFd<'_>> = files.iter().map(|file| file.as_fd()).collect();
    say(stream, &json!({}), &borrowed).await?;
    // Else the program would never see the end of what the command says.
    drop(files);
    let mut more = [0];
    tokio::select! {
        code = exec.ended() => say(stream, &json!({ "code": code }), &[]).await,
        // The program is gone, and with it the reader of the rest.
        _ = stream.read(&mut more) => Ok(()),
    }
}

async fn refuse(stream: &UnixStream, error: &anyhow::Error) -> io::Result<()> {
    say(stream, &json!({ "error": format!("{error:#}") }), &[]).await
}

/// Sends a line with files beside it.
async fn say(stream: &UnixStream, answer: &Value, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let line = format!("{answer}\n");
    let sent = stream.async_io(Interest::WRITABLE, || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::Error::other("too many files for one message"));
        }
        Ok(sendmsg(stream, &[IoSlice::new(line.as_bytes())], &mut control, SendFlags::NOSIGNAL)?)
    });
    // A socket that nothing was sent on takes a line as a whole.
    if sent.await? == line.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions() {
        let check = |line: &str, expected: Option<Question<'_>>| {
            assert_eq!(Question::read(line), expected, "{line:?}")
        };
        check("listener\n", Some(Question::Listener));
        check("exec abc\n", Some(Question::Exec { token: "abc" }));
        check("port abc 8080\n", Some(Question::Port { sandbox: "abc", port: 8080 }));
        for unknown in ["", "exec", "exec a b", "port abc", "port abc 65536", "port abc -1", "attach abc"] {
            check(unknown, None);
        }
    }

    #[test]
    fn commands_are_expected_for_a_while() {
        let mut expected = Expected { seed: 1, serial: 0, commands: BTreeMap::new() };
        let began = Instant::now();
        let first = expected.expect(ExecRequest::default(), began);
        let second = expected.expect(ExecRequest::default(), began + PATIENCE / 2);
        assert_ne!(first, second);
        let third = expected.expect(ExecRequest::default(), began + PATIENCE);
        assert_eq!(
            expected.commands.keys().collect::<std::collections::BTreeSet<_>>(),
            [&second, &third].into()
        );
    }
}
