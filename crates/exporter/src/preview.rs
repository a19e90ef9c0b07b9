//! Shows the object that would be published, for people and for tests without a cluster.
//!
//! In: scans. Out: the object on standard output, as YAML or JSON, or in the log. Never: the API server; so the owner
//! is not shown, whose UID only the server knows.

use std::convert::Infallible;
use std::io::{self, Write};

use anyhow::Context as _;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;
use tracing::debug;

use crate::Settings;
use crate::metrics::Metrics;
use crate::object::{Content, WriteContext};
use crate::publish::Desired;
use crate::scan::Scanner;
use crate::settings::Format;

/// Scans once and prints the object.
///
/// # Errors
/// When the scan or standard output fails.
pub async fn once(settings: &Settings, format: Format) -> anyhow::Result<()> {
    let metrics = Metrics::register(&mut Registry::default(), &settings.node);
    let report = Scanner::new(&settings.sources, &settings.accounting, metrics)?.scan().await?;
    let text = render(&report.content, &settings.node, api::keys::UPDATE_REACTIVE, format)?;
    io::stdout().write_all(text.as_bytes()).context("standard output")
}

/// Prints each new content, or without a format logs it, and calls `shown`.
///
/// # Errors
/// When the sender of the desired content is gone.
pub async fn each(
    mut desired: watch::Receiver<Option<Desired>>,
    name: String,
    format: Option<Format>,
    shown: impl Fn(),
) -> Result<Infallible, RecvError> {
    loop {
        desired.changed().await?;
        let Some(desired) = desired.borrow_and_update().clone() else { continue };
        match format {
            None => debug!(trigger = desired.trigger, zones = ?desired.content.zones, "not published"),
            Some(format) => {
                let text = render(&desired.content, &name, desired.trigger, format);
                let written = text.and_then(|text| Ok(io::stdout().write_all(text.as_bytes())?));
                if let Err(error) = written {
                    tracing::warn!(%error, "cannot print the object");
                }
            }
        }
        shown();
    }
}

/// The object as text: YAML after `---`, or JSON on one line.
fn render(content: &Content, name: &str, trigger: &str, format: Format) -> anyhow::Result<String> {
    let object = content.object(&WriteContext::new(name, trigger));
    Ok(match format {
        Format::Yaml => format!("---\n{}", runtime::yaml::write(&object)?),
        Format::Json => serde_json::to_string(&object)? + "\n",
    })
}
