//! Commands of the Go deployer that need a cluster.
//!
//! In: a [`Request`]. Out: data on standard output, the log on standard error, the peer's exit code. Never: a command
//! line.

use std::process::ExitCode;
use std::time::Duration;

use api::goduration::GoDuration;
use runtime::stderr;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::render;
use super::request::{LogStyle, Request};
use super::table::Verb;
use crate::detect;
use crate::install;
use crate::install::step::Observer;
use crate::manifests;
use crate::part::Component;
use crate::progress::classic::Classic;
use crate::progress::structured::Structured;
use crate::progress::to_stderr_with_time;
use crate::session;
use crate::validate::compat::{deployer, sentence};

impl Request {
    /// Runs the command. Cancelling `token` stops it at the next object.
    ///
    /// # Errors
    /// When the peer would exit with 1; the error is the line that it prints.
    pub async fn run(self, token: CancellationToken) -> anyhow::Result<ExitCode> {
        self.note_settings();
        match self.verb {
            Verb::Deploy(components) => self.deploy(components, &token).await?,
            Verb::Remove(components) => self.remove(components, &token).await?,
            Verb::Setup => {
                self.log_findings().await?;
                self.deploy(&Component::ALL, &token).await?;
            }
            Verb::Validate => return deployer::run(&self.cluster, self.parsed.bool("json")).await,
            Verb::Detect => self.detect().await?,
            Verb::Render(components) => {
                let clients = session::connect(&self.cluster).await?;
                let mut options = self.options.clone();
                options.scheduler.replicas = session::control_plane_replicas(&clients.reads).await?;
                print(&render(&self, options, components)?);
            }
            // The other verbs need no cluster.
            _ => {}
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Prints progress in the chosen style.
    fn observer(&self) -> Box<dyn Observer> {
        match self.style {
            LogStyle::Classic => Box::new(Classic::new(self.options.updater.kind, to_stderr_with_time())),
            LogStyle::Structured => Box::new(self.structured()),
        }
    }

    fn structured(&self) -> Structured {
        Structured::new(self.options.updater.kind, self.verbosity, to_stderr_with_time())
    }

    /// Logs a line.
    fn note(&self, level: i64, message: &str, pairs: &[(&str, Value)]) {
        match self.style {
            LogStyle::Structured => self.structured().line(None, level, message, pairs),
            LogStyle::Classic if level <= self.verbosity => {
                let values: Vec<String> = pairs
                    .iter()
                    .map(|(name, value)| match value {
                        Value::String(text) => format!(" {name}={text}"),
                        number => format!(" {name}={number}"),
                    })
                    .collect();
                to_stderr_with_time()(&format!("{message}{}", values.concat()));
            }
            LogStyle::Classic => {}
        }
    }

    fn note_settings(&self) {
        let text = |duration: Duration| GoDuration::from(duration).to_string().into();
        let pairs =
            [("interval", text(self.settings.wait_interval)), ("timeout", text(self.settings.wait_timeout))];
        self.note(3, "global polling settings", &pairs);
        for (what, bytes) in &self.read {
            self.note(0, what, &[("bytes", (*bytes).into())]);
        }
    }

    async fn deploy(&self, components: &[Component], token: &CancellationToken) -> anyhow::Result<()> {
        let clients = session::connect(&self.cluster).await?;
        let options = session::resolve(
            &clients.reads,
            &self.given,
            self.replicas_of_control_plane,
            self.options.clone(),
        )
        .await?;
        let version = options.version.as_ref().map_or_else(String::new, ToString::to_string);
        let pairs = [("platform", options.platform.to_string().into()), ("version", version.into())];
        self.note(3, "detection", &pairs);
        let parts = manifests::parts(&options, components)?;
        install::deploy(&clients.changes, &parts, &self.settings, self.observer().as_mut(), token).await?;
        Ok(())
    }

    /// Failures are logged; as in the peer they do not change the exit code.
    async fn remove(&self, components: &[Component], token: &CancellationToken) -> anyhow::Result<()> {
        let clients = session::connect(&self.cluster).await?;
        let mut observer = self.observer();
        let removed =
            install::remove(&clients.changes, components, &self.settings, observer.as_mut(), token).await;
        let Err(error) = removed else { return Ok(()) };
        if error.is_cancelled() {
            return Err(error.into());
        }
        match self.style {
            LogStyle::Classic => to_stderr_with_time()(&format!("error removing: {error}")),
            LogStyle::Structured => self.note(0, "while removing", &[("error", error.to_string().into())]),
        }
        Ok(())
    }

    /// `setup` logs findings and continues in any case.
    async fn log_findings(&self) -> anyhow::Result<()> {
        let (items, notes) = deployer::inspect(&self.cluster).await?;
        notes.iter().for_each(|note| stderr::line(format_args!("not checked: {note}")));
        if self.style == LogStyle::Classic {
            deployer::text(&items).lines().for_each(|line| to_stderr_with_time()(line));
            return Ok(());
        }
        if items.is_empty() {
            self.note(0, "cluster configuration", &[("issue", "none".into())]);
        }
        for (number, item) in items.iter().enumerate() {
            let pairs = [("issue", number.into()), ("description", sentence(item).into())];
            self.note(0, "cluster configuration", &pairs);
        }
        Ok(())
    }

    /// Prints unknown values as such, and the reasons on standard error.
    async fn detect(&self) -> anyhow::Result<()> {
        let clients = session::connect(&self.cluster).await?;
        if self.parsed.bool("control-plane") {
            let nodes = detect::control_plane_nodes(&clients.reads).await;
            let nodes = nodes.unwrap_or_else(|error| {
                stderr::line(error);
                0
            });
            let (text, json) = (format!("nodes={nodes}\n"), format!("{{\"nodeCount\":{nodes}}}\n"));
            print(if self.parsed.bool("json") { &json } else { &text });
            return Ok(());
        }
        let found = detect::cluster(&clients.reads, &self.given).await;
        let errors = [found.platform.get().err(), found.version.get().err()];
        errors.into_iter().flatten().for_each(stderr::line);
        if self.parsed.bool("json") {
            print(&format!("{}\n", serde_json::to_string(&found)?));
        } else {
            print(&format!("{found}\n"));
        }
        Ok(())
    }
}

#[expect(clippy::print_stdout, reason = "data that was asked for")]
fn print(text: &str) {
    print!("{text}");
}
