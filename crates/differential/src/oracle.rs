//! The oracle as a process: lines in, lines out.
//!
//! In: sessions. Out: answers, in order. A thread reads, so that neither side waits for the other's full pipe.

use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};

use anyhow::Context as _;
use serde_json::Value;

use sim::admit::session::Session;

/// Lines that may wait to be read.
const BACKLOG: usize = 4096;

/// A running oracle.
pub struct Oracle {
    child: Child,
    input: Option<BufWriter<ChildStdin>>,
    lines: Receiver<String>,
}

impl Oracle {
    /// Starts the program.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(program: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let input = child.stdin.take().map(BufWriter::new);
        let output = child.stdout.take().context("no output")?;
        let (sender, lines) = sync_channel(BACKLOG);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, input, lines })
    }

    /// Sends a session: its start, then its steps.
    ///
    /// # Errors
    /// When the oracle has ended.
    pub fn send(&mut self, session: &Session) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("the oracle has ended")?;
        let mut line = |value: Value| -> anyhow::Result<()> {
            serde_json::to_writer(&mut *input, &value)?;
            Ok(input.write_all(b"\n")?)
        };
        line(session.request())?;
        for step in &session.steps {
            line(step.request())?;
        }
        Ok(input.flush()?)
    }

    /// The next answer.
    ///
    /// # Errors
    /// When the oracle has ended, or answers something that is not JSON.
    pub fn receive(&self) -> anyhow::Result<Value> {
        let line = self.lines.recv().context("the oracle has ended")?;
        serde_json::from_str(&line).with_context(|| format!("not JSON: {line}"))
    }

    /// The answers to a session, the start's first.
    ///
    /// # Errors
    /// As for [`Oracle::receive`].
    pub fn answers(&self, session: &Session) -> anyhow::Result<Vec<Value>> {
        (0..=session.steps.len()).map(|_| self.receive()).collect()
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        self.input = None; // It ends at the end of its input.
        let _ = self.child.wait();
    }
}
