//! A status for people: a line for each part, then what to type next.
//!
//! In: a [`Status`]. Out: text. Never: a name that acts on a terminal.

use std::fmt::Write as _;

use runtime::output::one_line;
use topology::reason::Amount;
use topology::resource::{ResourceKind, ResourceName};
use view::cluster::WaitingPod;
use view::totals::ZoneTotals;

use super::{Leader, Lost, Program, Reports, State, Status};
use crate::validate::print::named;

/// The width of the first column.
const WIDTH: usize = 14;
/// Most waiting pods of which it is said why.
const MAX_REASONS: usize = 3;

/// The status as text.
#[must_use]
pub fn text(status: &Status) -> String {
    let mut text = String::new();
    programs(&mut text, "Exporters", &status.exporters);
    line(&mut text, "Reports", &reports(&status.reports));
    status.zones.iter().for_each(|totals| line(&mut text, "Zones", &zones(totals)));
    programs(&mut text, "Schedulers", &status.schedulers);
    if !status.controllers.is_empty() {
        programs(&mut text, "Controllers", &status.controllers);
    }
    line(&mut text, "Lost pods", &lost(&status.lost));
    waiting(&mut text, &status.waiting);
    for reason in &status.unknown {
        line(&mut text, "Not known", reason);
    }
    let state = match status.state {
        State::Absent => "nothing is installed",
        State::Unknown => "not all could be asked",
        State::NotReady => "not ready",
        State::Ready => "ready",
    };
    // Writing to a string cannot fail.
    let _ = write!(text, "\n{state}; next: {}\n", status.next);
    text
}

fn line(text: &mut String, title: &str, content: &str) {
    let _ = writeln!(text, "{title:<WIDTH$}{}", one_line(content));
}

fn programs(text: &mut String, title: &str, programs: &[Program]) {
    if programs.is_empty() {
        line(text, title, "none");
    }
    for (index, program) in programs.iter().enumerate() {
        line(text, if index == 0 { title } else { "" }, &described(program));
    }
}

/// `4 of 4 ready, DaemonSet tholepin/tholepin-exporter`.
fn described(program: &Program) -> String {
    let mut text = format!("{} of {} ready, {}", program.ready, program.wanted, program.workload);
    if !program.scheduler_names.is_empty() {
        let _ = write!(text, ", schedulerName: {}", program.scheduler_names.join(" or "));
    }
    match &program.leader {
        Some(Leader::Held(holder)) => text + &format!(", leader: {holder}"),
        Some(Leader::Missing) => text + ", without a leader",
        Some(Leader::NotElected) | None => text,
    }
}

/// `3 of 4 fresh, stale: node-2`.
fn reports(reports: &Reports) -> String {
    if reports.nodes() == 0 {
        return "none".to_owned();
    }
    let mut text = format!("{} of {} fresh", reports.fresh, reports.nodes());
    for (word, nodes) in [
        ("changing", &reports.changing),
        ("stale", &reports.stale),
        ("missing", &reports.missing),
        ("not comparable", &reports.unknown),
    ] {
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        if !nodes.is_empty() {
            let _ = write!(text, ", {word}: {}", named(&nodes));
        }
    }
    text
}

/// `4 on 2 nodes; cpu 20 of 32 free, at most 8 in one zone (node-1 zone 0)`. Memory and huge pages are left to JSON.
fn zones(totals: &ZoneTotals) -> String {
    let nodes = totals.confirmed + totals.in_doubt.len() + totals.unconfirmed.len();
    let mut text = format!("{} on {nodes} nodes", totals.zones);
    for (word, nodes) in [("in doubt", &totals.in_doubt), ("unconfirmed", &totals.unconfirmed)] {
        let nodes: Vec<&str> = nodes.iter().map(|node| &**node).collect();
        if !nodes.is_empty() {
            let _ = write!(text, ", {word}: {}", named(&nodes));
        }
    }
    for resource in &totals.resources {
        let Ok(name) = ResourceName::new(resource.resource) else { continue };
        if name.kind() == ResourceKind::Memory {
            continue;
        }
        let amount = |units| Amount(name, units);
        let (free, allocatable) = (amount(resource.free), amount(resource.allocatable));
        let _ = write!(text, "; {name} {free} of {allocatable} free");
        if let Some(largest) = &resource.largest {
            let most = amount(largest.free);
            let _ = write!(text, ", at most {most} in one zone ({} zone {})", largest.node, largest.zone);
        }
    }
    text
}

/// The number of waiting pods with names, and why the oldest ones wait.
fn waiting(text: &mut String, pods: &[WaitingPod]) {
    let keys: Vec<String> = pods.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
    let named = named(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    let count = if keys.is_empty() { "none".to_owned() } else { format!("{}: {named}", keys.len()) };
    line(text, "Waiting pods", &count);
    for (key, pod) in keys.iter().zip(pods).take(MAX_REASONS) {
        pod.message.iter().for_each(|message| line(text, "", &format!("{key}: {message}")));
    }
}

/// `2 in 24 h: a/x, a/y`.
fn lost(lost: &[Lost]) -> String {
    let pods: Vec<&str> = lost.iter().map(|lost| lost.pod.as_str()).collect();
    match pods.len() {
        0 => "none in 24 h".to_owned(),
        count => format!("{count} in 24 h: {}", named(&pods)),
    }
}
