//! Results as a chart: allocated CPUs and waiting pods over time, and the pods rejected.
//!
//! In: [`Outcome`]s. Out: an SVG document. Never: pixels; a browser or `rsvg-convert` makes them from the SVG, and the
//! program stays without a renderer and fonts.

use std::fmt::Write;

use crate::comparison::Outcome;
use crate::record::TimelineStep;

/// Part of the chart that shows one quantity, in SVG units.
struct Panel {
    top: f64,
    height: f64,
    title: &'static str,
    value: fn(&TimelineStep) -> f64,
    /// Value at the upper edge.
    most: f64,
    unit: &'static str,
}

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 640.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
/// Colours that people with colour-blindness can tell apart (Okabe and Ito), by contender; more of them start over.
const COLOURS: [&str; 4] = ["#d55e00", "#0072b2", "#009e73", "#cc79a7"];
const INK: &str = "#222222";
const GREY: &str = "#767676";
const GRID: &str = "#dddddd";
/// The viewer takes the first one installed.
const FONTS: &str = "Ubuntu, 'Helvetica Neue', Arial, sans-serif";

/// Draws the results of all contenders as an SVG document with the given title.
#[must_use]
pub fn svg(entries: &[Outcome], title: &str) -> String {
    let mut out = String::new();
    let end_s = entries.iter().map(|e| e.timeline.step_s * e.timeline.steps.len() as f64).fold(0.0, f64::max);
    let most = |value: fn(&TimelineStep) -> f64| {
        let all = entries.iter().flat_map(|entry| &entry.timeline.steps).map(value);
        all.fold(0.0, f64::max)
    };
    let allocated = Panel {
        top: 96.0,
        height: 200.0,
        title: "Allocated CPUs",
        value: |step| 100.0 * step.allocated_share,
        most: 100.0,
        unit: " %",
    };
    let waiting = Panel {
        top: 346.0,
        height: 110.0,
        title: "Pods waiting for a node",
        value: |step| step.waiting,
        most: round_up(most(|step| step.waiting)),
        unit: "",
    };
    open(&mut out, title, entries);
    for panel in &[allocated, waiting] {
        frame(&mut out, panel, end_s);
        for (at, entry) in entries.iter().enumerate() {
            line(&mut out, panel, entry, end_s, colour(at));
        }
    }
    bars(&mut out, entries);
    out.push_str("</svg>\n");
    out
}

fn open(out: &mut String, title: &str, entries: &[Outcome]) {
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-family="{FONTS}" font-size="13" fill="{INK}">
<title>{title}</title>
<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>
<text x="{LEFT}" y="34" font-size="20">{title}</text>"#,
        title = escape(title),
    );
    let mut x = LEFT;
    for (at, entry) in entries.iter().enumerate() {
        let name = &entry.summary.scheduler;
        let _ = writeln!(
            out,
            r#"<rect x="{x}" y="50" width="22" height="4" fill="{}"/><text x="{}" y="57">{}</text>"#,
            colour(at),
            x + 28.0,
            escape(name)
        );
        x += 60.0 + 8.0 * name.chars().count() as f64;
    }
}

/// Axes, grid and title of a panel.
fn frame(out: &mut String, panel: &Panel, end_s: f64) {
    let (bottom, right) = (panel.top + panel.height, WIDTH - RIGHT);
    let _ =
        writeln!(out, r#"<text x="{LEFT}" y="{}" fill="{GREY}">{}</text>"#, panel.top - 10.0, panel.title);
    for part in 0..=4_u32 {
        let share = f64::from(part) / 4.0;
        let y = bottom - share * panel.height;
        let _ = writeln!(
            out,
            r#"<path d="M{LEFT} {y}H{right}" stroke="{GRID}"/><text x="{}" y="{}" text-anchor="end" fill="{GREY}">{}{}</text>"#,
            LEFT - 8.0,
            y + 4.5,
            number(share * panel.most),
            panel.unit
        );
    }
    let step_s = round_up(end_s / 8.0).max(0.001);
    let mut at_s = 0.0;
    while end_s > 0.0 && at_s <= end_s {
        let _ = writeln!(
            out,
            r#"<text x="{}" y="{}" text-anchor="middle" fill="{GREY}">{} s</text>"#,
            number(x_of(at_s, end_s)),
            bottom + 18.0,
            number(at_s)
        );
        at_s += step_s;
    }
}

fn line(out: &mut String, panel: &Panel, entry: &Outcome, end_s: f64, colour: &str) {
    let mut path = String::new();
    for (at, step) in entry.timeline.steps.iter().enumerate() {
        let x = x_of((at as f64 + 0.5) * entry.timeline.step_s, end_s);
        let share = if panel.most > 0.0 { ((panel.value)(step) / panel.most).clamp(0.0, 1.0) } else { 0.0 };
        let y = panel.top + (1.0 - share) * panel.height;
        let _ = write!(path, "{}{x:.1} {y:.1}", if at == 0 { 'M' } else { 'L' });
    }
    if !path.is_empty() {
        let _ = writeln!(
            out,
            r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-linejoin="round"/>"#
        );
    }
}

/// Pods that kubelets rejected.
fn bars(out: &mut String, entries: &[Outcome]) {
    let (top, name_width) = (522.0, 90.0);
    let _ = writeln!(
        out,
        r#"<text x="{LEFT}" y="{}" fill="{GREY}">Pods that kubelets rejected</text>"#,
        top - 12.0
    );
    // On the scale of all pods: a short bar is a small loss.
    let most = entries.iter().map(|entry| entry.summary.pods).max().unwrap_or(0).max(1);
    for (at, entry) in entries.iter().enumerate() {
        let y = top + 26.0 * at as f64;
        let width = (WIDTH - LEFT - RIGHT - name_width - 130.0) * entry.summary.rejected as f64 / most as f64;
        let bar_left = LEFT + name_width;
        let _ = writeln!(
            out,
            r#"<text x="{LEFT}" y="{}">{}</text><rect x="{bar_left}" y="{y}" width="{width:.1}" height="18" fill="{}"/><text x="{:.1}" y="{}">{} of {}</text>"#,
            y + 14.0,
            escape(&entry.summary.scheduler),
            colour(at),
            bar_left + width + 8.0,
            y + 14.0,
            entry.summary.rejected,
            entry.summary.pods
        );
    }
}

fn x_of(at_s: f64, end_s: f64) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * if end_s > 0.0 { at_s / end_s } else { 0.0 }
}

fn colour(at: usize) -> &'static str {
    COLOURS[at % COLOURS.len()]
}

/// The next of 1, 2, 4, 5, 8, 10, 20 ... that is not below `value`; 0.001 at least.
fn round_up(value: f64) -> f64 {
    let mut unit = 0.001;
    loop {
        for step in [1.0, 2.0, 4.0, 5.0, 8.0] {
            if value <= step * unit || unit > 1e15 {
                return step * unit;
            }
        }
        unit *= 10.0;
    }
}

/// Without needless decimals.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
