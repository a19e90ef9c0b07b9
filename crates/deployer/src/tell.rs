//! How the steps of an installation read.
//!
//! In: [`Step`]s. Out: lines on standard error, in one of three manners. Never: standard output, which is for data; a step left
//! out because nobody looks.

pub mod classic;
pub mod live;
pub mod plain;
pub mod structured;
#[cfg(test)]
mod tests;

use crate::install::progress::{Change, State, Undone};
use crate::options::Updater;
use crate::part::Component;
use objects::Object;

#[cfg(doc)]
use crate::install::progress::Step;

/// Takes finished lines, without their end.
pub type Sink = Box<dyn FnMut(&str) + Send>;

/// Lines to standard error.
#[must_use]
pub fn to_stderr() -> Sink {
    Box::new(|line| eprintln!("{line}"))
}

/// Lines to standard error, each with the local time as Go's `log` package has it.
#[must_use]
pub fn to_stderr_with_time() -> Sink {
    let zone = zone();
    Box::new(move |line| {
        let now = jiff::Timestamp::now().to_zoned(zone.clone());
        eprintln!("{} {line}", now.strftime("%Y/%m/%d %H:%M:%S"));
    })
}

/// The local time zone: `TZ`, or what the system says; UTC if there is neither.
fn zone() -> jiff::tz::TimeZone {
    let path = match std::env::var("TZ") {
        Ok(name) if name.is_empty() || name.contains("..") => None,
        Ok(name) => Some(format!("/usr/share/zoneinfo/{}", name.trim_start_matches(':'))),
        Err(_) => Some("/etc/localtime".to_owned()),
    };
    let read = path.and_then(|path| std::fs::read(path).ok());
    read.and_then(|bytes| jiff::tz::TimeZone::tzif("local", &bytes).ok()).unwrap_or(jiff::tz::TimeZone::UTC)
}

/// Three letters for a component, as the peer has them.
fn tag(component: Component, updater: Updater) -> &'static str {
    match (component, updater) {
        (Component::Api, _) => "API",
        (Component::SchedulerPlugin, _) => "SCD",
        (Component::TopologyUpdater, Updater::Rte) => "RTE",
        (Component::TopologyUpdater, Updater::Nfd) => "NFD",
        (Component::TopologyUpdater, Updater::Tholepin) => "EXP",
    }
}

/// A component as the peer calls it.
fn spoken(component: Component) -> &'static str {
    match component {
        Component::Api => "API",
        Component::TopologyUpdater => "topology updater",
        Component::SchedulerPlugin => "scheduler plugin",
    }
}

/// How far something is, for people.
fn how_far(state: &State) -> String {
    match state {
        State::Absent => "not there yet".to_owned(),
        State::NotEstablished => "not served yet".to_owned(),
        State::Unobserved => "not seen by its controller yet".to_owned(),
        State::DaemonSet { desired: 0, .. } => "no node wants it yet".to_owned(),
        State::DaemonSet { desired, updated, ready } => {
            format!("{ready} of {desired} nodes ready{}", newest(*updated, *desired))
        }
        State::Deployment { replicas, updated, available } => {
            format!("{available} of {replicas} pods available{}", newest(*updated, *replicas))
        }
        State::Present => "still there".to_owned(),
    }
}

fn newest(updated: i32, wanted: i32) -> String {
    if updated < wanted { format!(", {updated} up to date") } else { String::new() }
}

/// What an apply did, in one word.
fn done(change: Change) -> &'static str {
    match change {
        Change::Created => "created",
        Change::Configured => "configured",
        Change::Unchanged => "unchanged",
        Change::Foreign => "found",
        Change::Adopted => "adopted",
        Change::Recreated => "recreated",
    }
}

/// What undoing did, in one word.
fn undone(undone: Undone) -> &'static str {
    match undone {
        Undone::Deleted => "deleted again",
        Undone::Restored => "restored",
    }
}

/// `namespace/name`; of what has no namespace `/name`, as Go's object keys read.
fn key(object: &Object) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name())
}
