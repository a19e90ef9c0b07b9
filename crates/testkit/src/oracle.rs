//! An oracle of the kubelet's admission: a program of the kubelet's own managers, without a kubelet around them.
//!
//! In: a release of Kubernetes, then requests: a machine and a configuration, pods that come, change and go. Out: what
//! that release's kubelet answers, and what its managers hold. docs/rig.md has the requests. Never: an answer that was
//! computed here. An oracle is a process that ends with its [`Oracle`], and with the process that made it.

use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::env::SkipReason;

pub use crate::env::oracle::Release;

/// How long an oracle may take to end by itself, after which it is killed.
const PATIENCE: Duration = Duration::from_secs(5);

/// A running oracle. It knows one machine at a time.
#[derive(Debug)]
pub struct Oracle {
    child: Child,
    // Taken away to say that there are no more requests.
    requests: Option<BufWriter<ChildStdin>>,
    answers: BufReader<ChildStdout>,
}

impl Oracle {
    /// Starts the program of a release, and builds it before when it is in no cache: minutes at the first time.
    ///
    /// # Errors
    /// The reason to skip a test: there is no such program and no Go, or Go failed. It has been printed then.
    ///
    /// # Panics
    /// With [`REQUIRE`](crate::env::REQUIRE) set, instead of letting the test skip.
    pub fn spawn(release: Release) -> Result<Self, SkipReason> {
        let program = release.program()?;
        Self::start(&program).map_err(|error| SkipReason::Failed(release.into(), format!("{error:#}")))
    }

    /// Starts a program.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: &Path) -> anyhow::Result<Self> {
        // It ends when its input does, which the kernel closes with this process.
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let requests = child.stdin.take().context("no standard input")?;
        let answers = child.stdout.take().context("no standard output")?;
        Ok(Self { child, requests: Some(BufWriter::new(requests)), answers: BufReader::new(answers) })
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks one thing.
    ///
    /// # Errors
    /// When the oracle has ended, or its answer is no JSON.
    pub fn request(&mut self, request: &Value) -> anyhow::Result<Value> {
        let answers = self.requests(std::slice::from_ref(request))?;
        answers.into_iter().next().context("no answer")
    }

    /// Asks many things without waiting for the answers between them, which is much faster.
    ///
    /// # Errors
    /// When the oracle has ended, or an answer is no JSON.
    pub fn requests(&mut self, requests: &[Value]) -> anyhow::Result<Vec<Value>> {
        let lines: Vec<String> = requests.iter().map(Value::to_string).collect();
        let answers = self.exchange(&lines)?;
        answers.iter().map(|line| serde_json::from_str(line).with_context(|| line.clone())).collect()
    }

    /// Sends lines and receives as many, in the same order. No line has a line break in it.
    ///
    /// # Errors
    /// When the oracle has ended.
    pub fn exchange(&mut self, lines: &[String]) -> anyhow::Result<Vec<String>> {
        let Self { requests: Some(requests), answers, .. } = self else { bail!("the oracle has ended") };
        // Both at a time: pipes are small, and neither side reads while it cannot write.
        std::thread::scope(|scope| {
            let sent = scope.spawn(move || {
                for line in lines {
                    requests.write_all(line.as_bytes())?;
                    requests.write_all(b"\n")?;
                }
                requests.flush()
            });
            let mut received = Vec::with_capacity(lines.len());
            for _ in lines {
                let mut line = String::new();
                if answers.read_line(&mut line).context("reading an answer")? == 0 {
                    bail!("the oracle ended after {} of {} answers", received.len(), lines.len());
                }
                received.push(line);
            }
            match sent.join() {
                Ok(sent) => sent.context("writing a request")?,
                Err(_) => bail!("writing requests panicked"),
            }
            Ok(received)
        })
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // It removes its folder when its input ends.
        drop(self.requests.take());
        let asked = Instant::now();
        while asked.elapsed() < PATIENCE {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
