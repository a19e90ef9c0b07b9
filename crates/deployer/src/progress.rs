//! Progress of an installation as text.
//!
//! In: [`Step`]s. Out: lines on standard error, in our own format or one of the Go deployer's two. Never: standard
//! output, which is for data.

pub(crate) mod classic;
pub(crate) mod lines;
pub(crate) mod structured;
pub(crate) mod terminal;
#[cfg(test)]
mod tests;

use crate::install::step::{Change, Reverted, WaitState};
use crate::options::Updater;
use crate::part::Component;
use objects::Object;
use runtime::stderr;

#[cfg(doc)]
use crate::install::step::Step;

/// Receives complete lines without a newline.
pub(crate) type Sink = Box<dyn FnMut(&str) + Send>;

/// Writes lines to standard error.
pub(crate) fn to_stderr() -> Sink {
    Box::new(|line| stderr::line(line))
}

/// Writes lines to standard error, each with the local time as in Go's `log` package.
pub(crate) fn to_stderr_with_time() -> Sink {
    let zone = zone();
    Box::new(move |line| {
        let now = jiff::Timestamp::now().to_zoned(zone.clone());
        stderr::line(format_args!("{} {line}", now.strftime("%Y/%m/%d %H:%M:%S")));
    })
}

/// The local time zone: `TZ`, else `/etc/localtime`, else UTC.
fn zone() -> jiff::tz::TimeZone {
    let path = match std::env::var("TZ") {
        Ok(name) if name.is_empty() || name.contains("..") => None,
        Ok(name) => Some(format!("/usr/share/zoneinfo/{}", name.trim_start_matches(':'))),
        Err(_) => Some("/etc/localtime".to_owned()),
    };
    let read = path.and_then(|path| std::fs::read(path).ok());
    read.and_then(|bytes| jiff::tz::TimeZone::tzif("local", &bytes).ok()).unwrap_or(jiff::tz::TimeZone::UTC)
}

/// The Go deployer's three letters for a component.
fn tag(component: Component, updater: Updater) -> &'static str {
    match (component, updater) {
        (Component::Api, _) => "API",
        (Component::Scheduler, _) => "SCD",
        (Component::Exporter, Updater::Rte) => "RTE",
        (Component::Exporter, Updater::Nfd) => "NFD",
        (Component::Exporter, Updater::Tholepin) => "EXP",
    }
}

/// The Go deployer's name of a component.
fn spoken(component: Component) -> &'static str {
    match component {
        Component::Api => "API",
        Component::Exporter => "topology updater",
        Component::Scheduler => "scheduler plugin",
    }
}

/// The state of a wait as text.
fn how_far(state: &WaitState) -> String {
    match state {
        WaitState::Absent => "not created yet".to_owned(),
        WaitState::NotEstablished => "not served yet".to_owned(),
        WaitState::Unobserved => "not observed by its controller yet".to_owned(),
        WaitState::DaemonSet { desired: 0, .. } => "no node matches yet".to_owned(),
        WaitState::DaemonSet { desired, updated, ready } => {
            format!("{ready} of {desired} nodes ready{}", newest(*updated, *desired))
        }
        WaitState::Deployment { replicas, updated, available } => {
            format!("{available} of {replicas} pods available{}", newest(*updated, *replicas))
        }
        WaitState::Present => "still there".to_owned(),
    }
}

fn newest(updated: i32, wanted: i32) -> String {
    if updated < wanted { format!(", {updated} up to date") } else { String::new() }
}

/// A change in one word.
pub(crate) fn done(change: Change) -> &'static str {
    match change {
        Change::Created => "created",
        Change::Configured => "configured",
        Change::Unchanged => "unchanged",
        Change::Foreign => "found",
        Change::Adopted => "adopted",
        Change::Recreated => "recreated",
    }
}

/// The change of a rollback in one word.
fn reverted(reverted: Reverted) -> &'static str {
    match reverted {
        Reverted::Deleted => "deleted again",
        Reverted::Restored => "restored",
    }
}

/// `namespace/name`, or `/name` without a namespace, as Go prints object keys.
fn key(object: &Object) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name())
}
