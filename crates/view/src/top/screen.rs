//! How the terminal looks.
//!
//! In: a state. Out: a frame; what has no room is cut, the names first. Never: a change of the state.

use std::fmt::Write as _;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, Wrap};
use topology::reason::Amount;
use topology::resource::ResourceName;

use super::state::{State, Zoom};
use crate::cluster::{NodeRow, ReportStatus};
use crate::node::{ContainerHolding, CpuAssignment, NodeDetail, PodRow, Thread};
use crate::totals::ResourceTotals;

/// Free shares of a zone, from nothing to all.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The signs of pods on cores; after the last one they begin anew.
const SIGNS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqstuvwxyz";

/// Draws the state.
pub fn draw(state: &State, frame: &mut Frame<'_>) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(2), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(self::head(state)), head);
    match &state.zoom {
        Zoom::Cluster if state.lists_waiting => waiting(state, frame, body),
        Zoom::Cluster => nodes(state, frame, body),
        Zoom::Node(name) => lines(state, node(name, state), frame, body),
        Zoom::Pod(namespace, name) => lines(state, pod(namespace, name, state), frame, body),
    }
    frame.render_widget(Paragraph::new(self::foot(state)), foot);
}

fn lines(state: &State, lines: Vec<Line<'_>>, frame: &mut Frame<'_>, area: Rect) {
    let last = u16::try_from(lines.len().saturating_sub(1)).unwrap_or(u16::MAX);
    let scroll = u16::try_from(state.scroll).unwrap_or(u16::MAX).min(last);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).scroll((scroll, 0)), area);
}

/// An amount for people.
fn amount(resource: &str, value: i64) -> String {
    ResourceName::new(resource).map_or_else(|_| value.to_string(), |name| Amount(name, value).to_string())
}

// === head and foot ===

fn head(state: &State) -> Vec<Line<'static>> {
    let resource = state.resource();
    let nodes = state.cluster.as_ref().map(|cluster| cluster.nodes.as_slice()).unwrap_or_default();
    let waiting = state.cluster.as_ref().map_or(0, |cluster| cluster.waiting.number);
    let totals = ResourceTotals::of(nodes, resource);
    let largest = totals.largest.map_or(0, |zone| zone.free);
    let rejected: usize = nodes.iter().map(|node| node.rejected).sum();
    let text = format!(
        "{} nodes  {resource} free {}, largest zone {}  waiting {waiting}  rejected {rejected}",
        nodes.len(),
        amount(resource, totals.free),
        amount(resource, largest)
    );
    vec![Line::from(text).bold(), news(state)]
}

/// How old the picture is.
fn news(state: &State) -> Line<'static> {
    if let Some(problem) = &state.problem {
        return Line::from(problem.clone()).fg(Color::Red);
    }
    if let Some(since_ms) = state.unreached_since_ms {
        let seconds = state.updated_ms.saturating_sub(since_ms) / 1_000;
        let text = format!("no answer from the API server for {seconds} s: this may be old");
        return Line::from(text).fg(Color::Red);
    }
    let source = match (state.is_dump, &state.cluster) {
        (_, None) => "waiting for the first lists",
        (true, _) => "a dump",
        (false, _) => "live",
    };
    let filter = if state.filter.is_empty() && !state.is_typing {
        String::new()
    } else {
        format!(", only \"{}\"", state.filter)
    };
    Line::from(format!("{source}, sorted by {}{filter}", state.sort.words())).dim()
}

fn foot(state: &State) -> Line<'static> {
    let text = match &state.zoom {
        _ if state.is_typing => format!("filter: {}_  Enter keeps it, Esc clears it", state.filter),
        Zoom::Cluster => "Enter opens  s sort  r resource  / filter  w waiting pods  q quit".to_owned(),
        Zoom::Node(_) | Zoom::Pod(..) => "Esc back  arrows scroll  q quit".to_owned(),
    };
    Line::from(text).dim()
}

// === lists ===

fn nodes(state: &State, frame: &mut Frame<'_>, area: Rect) {
    let resource = state.resource();
    let all = state.nodes();
    let first = state.first_row(frame.area().height);
    let rows = all.iter().enumerate().skip(first).take(area.height.into()).map(|(at, node)| {
        let row = Row::new([
            Cell::from(node.name.to_string()),
            Cell::from(node.policy.unwrap_or("-")),
            Cell::from(known(node.state)).style(color(node)),
            Cell::from(node.pods.to_string()),
            Cell::from(amount(resource, node.free(resource).sum())),
            Cell::from(zones(node, resource)),
        ]);
        if at == state.selected { row.style(Style::new().add_modifier(Modifier::REVERSED)) } else { row }
    });
    let zone_width = all.iter().map(|node| zones(node, resource).width()).max().unwrap_or(0).max(5);
    let widths = [
        Constraint::Min(12),
        Constraint::Length(16),
        Constraint::Length(13),
        Constraint::Length(4),
        Constraint::Length(9),
        Constraint::Length(u16::try_from(zone_width).unwrap_or(u16::MAX)),
    ];
    let free_head = format!("{} FREE", resource.to_uppercase());
    let head = Row::new(["NODE", "POLICY", "KNOWN", "PODS", &*free_head, "ZONES"]).bold();
    frame.render_widget(Table::new(rows, widths).header(head), area);
}

/// A bar and the free amount of each zone.
fn zones(node: &NodeRow, resource: &str) -> Line<'static> {
    let Some(at) = node.resources.iter().position(|name| *name == resource) else { return Line::from("-") };
    let mut spans = Vec::new();
    for zone in &node.zones {
        let (free, all) = (zone.free[at].max(0), zone.allocatable[at].max(1));
        let share = usize::try_from(i128::from(free) * 8 / i128::from(all)).unwrap_or(8).min(8);
        let color = if share > 4 { Color::Green } else { Color::Yellow };
        spans.push(Span::styled(BARS[share].to_string(), Style::new().fg(color)));
        spans.push(Span::raw(format!("{} ", amount(resource, free))));
    }
    Line::from(spans)
}

fn known(state: ReportStatus) -> &'static str {
    match state {
        ReportStatus::Confirmed => "confirmed",
        ReportStatus::InDoubt => "in doubt",
        ReportStatus::Unconfirmed => "not confirmed",
        ReportStatus::Unreported => "no report",
    }
}

fn color(node: &NodeRow) -> Style {
    match node.state {
        _ if node.rejected > 0 => Style::new().fg(Color::Red),
        ReportStatus::Confirmed => Style::new(),
        ReportStatus::InDoubt => Style::new().fg(Color::Yellow),
        ReportStatus::Unconfirmed | ReportStatus::Unreported => Style::new().fg(Color::Red),
    }
}

fn waiting(state: &State, frame: &mut Frame<'_>, area: Rect) {
    let all = state.waiting();
    let first = state.first_row(frame.area().height);
    let rows = all.iter().enumerate().skip(first).take(area.height.into()).map(|(at, pod)| {
        let seconds = (state.updated_ms / 1_000).saturating_sub(pod.created_s);
        let row = Row::new([
            format!("{}/{}", pod.namespace, pod.name),
            age(seconds),
            pod.message.as_deref().unwrap_or_default().to_owned(),
        ]);
        if at == state.selected { row.style(Style::new().add_modifier(Modifier::REVERSED)) } else { row }
    });
    let widths = [Constraint::Percentage(30), Constraint::Length(7), Constraint::Min(20)];
    let head = Row::new(["POD THAT WAITS", "AGE", "WHY"]).bold();
    frame.render_widget(Table::new(rows, widths).header(head), area);
}

fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

// === a node ===

fn node<'a>(name: &str, state: &'a State) -> Vec<Line<'a>> {
    let mut lines = vec![Line::from(format!("Node {name}")).bold()];
    let Some(page) = &state.node else { return lines };
    let row = &page.row;
    lines.push(Line::from(format!(
        "{}, scope {}, {}, {} pods, {} rejected, {} corrections",
        row.policy.unwrap_or("no report"),
        row.scope.unwrap_or("-"),
        known(row.state),
        row.pods,
        row.rejected,
        page.corrections
    )));
    lines.push(Line::default());
    lines.extend(row.zones.iter().map(|zone| {
        let amounts = row.resources.iter().zip(zone.free.iter().zip(&zone.allocatable));
        let text = amounts
            .map(|(name, (free, all))| format!("{name} {} of {}", amount(name, *free), amount(name, *all)));
        Line::from(format!("zone {}: {} free", zone.id, text.collect::<Vec<_>>().join(", ")))
    }));
    if !page.sockets.is_empty() {
        lines.push(Line::default());
        lines.extend(cores(page));
        lines.push(Line::from("each letter is a pod, . free, r reserved, ? held by an unknown pod").dim());
    }
    lines.push(Line::default());
    lines.extend(page.pods.iter().enumerate().flat_map(|(at, pod)| placed(at, pod)));
    lines
}

/// A line for each last-level cache, the threads of a core together.
fn cores(page: &NodeDetail) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for socket in &page.sockets {
        for zone in &socket.zones {
            for cache in &zone.caches {
                let cores = cache.cores.iter().map(|core| core.threads.iter().map(sign).collect::<String>());
                let cores: Vec<String> = cores.collect();
                let text = cores.join(if cores.iter().any(|core| core.len() > 1) { " " } else { "" });
                lines.push(Line::from(format!("socket {} zone {}  {text}", socket.id, zone.id)));
            }
        }
    }
    lines
}

fn sign(thread: &Thread) -> char {
    match (thread.usage, thread.pod) {
        (CpuAssignment::Exclusive, Some(pod)) => pod_sign(pod),
        (CpuAssignment::Free, _) => '.',
        (CpuAssignment::Reserved, _) => 'r',
        (CpuAssignment::Exclusive | CpuAssignment::Unknown, _) => '?',
    }
}

fn pod_sign(at: usize) -> char {
    SIGNS.chars().nth(at % SIGNS.len()).unwrap_or('?')
}

fn placed(at: usize, pod: &PodRow) -> Vec<Line<'static>> {
    let doubt = if pod.is_certain { "" } else { ", in doubt" };
    let mut lines = vec![Line::from(format!(
        "{} {}/{}: {}{doubt}, {}",
        pod_sign(at),
        pod.namespace,
        pod.name,
        pod.stage,
        places(&pod.predicted)
    ))];
    match pod.is_as_predicted {
        Some(true) => lines[0].push_span(Span::styled("; observed so", Style::new().fg(Color::Green))),
        Some(false) => {
            let text = format!("  observed: {}", places(&pod.observed));
            lines.push(Line::from(text).fg(Color::Red));
        }
        None => {}
    }
    lines
}

fn places(places: &[ContainerHolding]) -> String {
    let mut text = String::new();
    for place in places {
        let name = if place.container.is_empty() { "whole pod" } else { &place.container };
        let comma = if text.is_empty() { "" } else { "; " };
        let _ = write!(text, "{comma}{name}");
        if !place.cpus.is_empty() {
            let _ = write!(text, " CPUs {}", place.cpus);
        }
        if !place.memory.is_empty() {
            let zones: Vec<String> = place.memory.iter().map(ToString::to_string).collect();
            let _ = write!(text, " memory in {}", zones.join(","));
        }
        for (name, number) in &place.devices {
            let _ = write!(text, " {name} x {number}");
        }
    }
    if text.is_empty() { "zones alone are known".to_owned() } else { text }
}

// === a pod ===

fn pod<'a>(namespace: &str, name: &str, state: &'a State) -> Vec<Line<'a>> {
    let mut lines = vec![Line::from(format!("Pod {namespace}/{name}")).bold()];
    let explanation = match &state.pod {
        None => return lines,
        Some(Err(problem)) => {
            lines.push(Line::from(problem.as_str()).fg(Color::Red));
            return lines;
        }
        Some(Ok(explanation)) => explanation,
    };
    match (&explanation.chosen, &explanation.message) {
        (Some(node), _) => lines.push(Line::from(format!("It fits: {node} would be chosen now."))),
        (None, message) => lines.push(Line::from(message.as_deref().unwrap_or_default())),
    }
    lines.push(Line::default());
    for node in &explanation.nodes {
        let verdict = if node.fits { "fits".to_owned() } else { node.reasons.join("; ") };
        lines.push(Line::from(format!("{}: {verdict}", node.node)));
        if let Some(change) = node.changes.first() {
            lines.push(Line::from(format!("  would fit with {}", change.text)).fg(Color::Green));
        }
    }
    lines
}
