//! What a command line of the peer wants from a cluster.
//!
//! In: a [`Request`]. Out: what was asked for, done; data on standard output, the log on standard error. Exit codes are the peer's.

use std::process::ExitCode;
use std::time::Duration;

use api::goduration::GoDuration;
use tokio_util::sync::CancellationToken;

use super::request::{Request, Style};
use super::table::{Scope, Verb};
use super::{check, components, render};
use crate::cli::act::{self, Clients};
use crate::detect;
use crate::install::progress::Tell;
use crate::install::{self, Settings};
use crate::manifests;
use crate::tell::classic::Classic;
use crate::tell::structured::{Structured, Value};
use crate::tell::to_stderr_with_time;
use crate::validate::dialect::{peer, sentence};

/// Something to do with a cluster.
#[derive(Debug)]
pub struct Plan {
    request: Request,
}

impl Plan {
    pub(super) fn new(request: Request) -> Self {
        Self { request }
    }

    /// What to log about ourselves, as klog's `-v`.
    #[must_use]
    pub fn verbosity(&self) -> i64 {
        self.request.verbosity
    }

    /// Does it. Cancelling `token` stops it at the next object.
    ///
    /// # Errors
    /// Where the peer ends with 1; the error is the line it prints.
    pub async fn run(self, token: CancellationToken) -> anyhow::Result<ExitCode> {
        let request = self.request;
        request.note_settings();
        match request.verb {
            Verb::Deploy(scope) => request.deploy(scope, &token).await?,
            Verb::Remove(scope) => request.remove(scope, &token).await?,
            Verb::Setup => {
                request.tell_findings().await?;
                request.deploy(Scope::All, &token).await?;
            }
            Verb::Validate => return peer::run(&request.cluster, request.output.json).await,
            Verb::Detect => request.detect().await?,
            Verb::Render(scope) => {
                let clients = act::connect(&request.cluster).await?;
                let mut options = request.options.clone();
                options.scheduler.replicas = act::control_plane(&clients.ask).await?;
                print(&render(&request, options, scope)?);
            }
            // The others need no cluster and do not come here.
            _ => {}
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[expect(clippy::print_stdout, reason = "data that was asked for")]
fn print(text: &str) {
    print!("{text}");
}

impl Request {
    /// Whoever tells of steps, in the style that was asked for.
    fn tell(&self) -> Box<dyn Tell> {
        match self.style {
            Style::Classic => Box::new(Classic::new(self.options.updater.kind, to_stderr_with_time())),
            Style::Structured => Box::new(self.structured()),
        }
    }

    fn structured(&self) -> Structured {
        Structured::new(self.options.updater.kind, self.verbosity, to_stderr_with_time())
    }

    /// A line about ourselves.
    fn note(&self, level: i64, message: &str, pairs: &[(&str, Value)]) {
        match self.style {
            Style::Structured => self.structured().line(None, level, message, pairs),
            Style::Classic if level <= self.verbosity => {
                let values: Vec<String> = pairs
                    .iter()
                    .map(|(name, value)| match value {
                        Value::Text(text) => format!(" {name}={text}"),
                        Value::Number(number) => format!(" {name}={number}"),
                    })
                    .collect();
                to_stderr_with_time()(&format!("{message}{}", values.concat()));
            }
            Style::Classic => {}
        }
    }

    fn note_settings(&self) {
        let text = |duration: Duration| Value::Text(GoDuration::from(duration).to_string());
        let (interval, timeout) = self.pace;
        let pairs = [("interval", text(interval)), ("timeout", text(timeout))];
        self.note(3, "global polling settings", &pairs);
        for (what, bytes) in &self.read {
            self.note(0, what, &[("bytes", Value::Number(i64::try_from(*bytes).unwrap_or(i64::MAX)))]);
        }
    }

    fn settings(&self) -> Settings {
        let (wait_interval, wait_timeout) = self.pace;
        Settings { wait: self.wait, wait_interval, wait_timeout, ..Settings::default() }
    }

    async fn deploy(&self, scope: Scope, token: &CancellationToken) -> anyhow::Result<()> {
        let Clients { ask, work } = act::connect(&self.cluster).await?;
        let options =
            act::resolve(&ask, &self.given, self.replicas_of_control_plane, self.options.clone()).await?;
        let version = options.version.as_ref().map_or_else(String::new, ToString::to_string);
        let pairs =
            [("platform", Value::Text(options.platform.to_string())), ("version", Value::Text(version))];
        self.note(3, "detection", &pairs);
        check(&options, scope)?;
        let parts = manifests::parts(&options, components(scope))?;
        install::deploy(&work, &parts, &self.settings(), self.tell().as_mut(), token).await?;
        Ok(())
    }

    /// What fails is told on the way; the peer ends well all the same.
    async fn remove(&self, scope: Scope, token: &CancellationToken) -> anyhow::Result<()> {
        let Clients { work, .. } = act::connect(&self.cluster).await?;
        let mut tell = self.tell();
        let removed = install::remove(&work, components(scope), &self.settings(), tell.as_mut(), token).await;
        match removed {
            Err(error) if error.is_cancelled() => Err(error.into()),
            Err(error) => {
                match self.style {
                    Style::Classic => to_stderr_with_time()(&format!("error removing: {error}")),
                    Style::Structured => {
                        self.note(0, "while removing", &[("error", Value::Text(error.to_string()))])
                    }
                }
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    /// `setup` looks first, and goes on whatever it sees.
    async fn tell_findings(&self) -> anyhow::Result<()> {
        let (items, notes) = peer::look(&self.cluster).await?;
        notes.iter().for_each(|note| eprintln!("not checked: {note}"));
        if self.style == Style::Classic {
            peer::text(&items).lines().for_each(|line| to_stderr_with_time()(line));
            return Ok(());
        }
        if items.is_empty() {
            self.note(0, "cluster configuration", &[("issue", Value::Text("none".to_owned()))]);
        }
        for (number, item) in (0..).zip(&items) {
            let pairs = [("issue", Value::Number(number)), ("description", Value::Text(sentence(item)))];
            self.note(0, "cluster configuration", &pairs);
        }
        Ok(())
    }

    /// What is not known is printed as such; why, on standard error.
    async fn detect(&self) -> anyhow::Result<()> {
        let Clients { ask, .. } = act::connect(&self.cluster).await?;
        if self.output.control_plane {
            let nodes = detect::control_plane_nodes(&ask).await;
            let nodes = nodes.unwrap_or_else(|error| {
                eprintln!("{error}");
                0
            });
            let (text, json) = (format!("nodes={nodes}\n"), format!("{{\"nodeCount\":{nodes}}}\n"));
            print(if self.output.json { &json } else { &text });
            return Ok(());
        }
        let found = detect::cluster(&ask, &self.given).await;
        let errors = [found.platform.get().err(), found.version.get().err()];
        errors.into_iter().flatten().for_each(|error| eprintln!("{error}"));
        if self.output.json {
            print(&format!("{}\n", serde_json::to_string(&found)?));
        } else {
            print(&format!("{found}\n"));
        }
        Ok(())
    }
}
