//! An explanation as tables for people.
//!
//! In: an [`Explanation`]. Out: text. Never: a thousand rows unasked.

use std::fmt::Write as _;

use comfy_table::Table;
use comfy_table::presets::NOTHING;

use super::{Explanation, NodeRow};

/// Most nodes in a table that is not wide.
const MAX_ROWS: usize = 40;

/// The tables. `wide`: all nodes, with scores, zones and all changes.
pub(super) fn text(explanation: &Explanation, wide: bool) -> String {
    let Explanation { pod, scheduler, nodes, chosen, message } = explanation;
    let fitting = nodes.iter().filter(|node| node.fits).count();
    let mut text = match (chosen, message) {
        (Some(node), _) => format!(
            "Pod {pod} fits {fitting} of {} for {scheduler}; it would be on {node}.\n",
            count(nodes.len())
        ),
        (None, Some(message)) => format!("Pod {pod} fits no node for {scheduler}: {message}\n"),
        (None, None) => format!("Pod {pod} fits no node for {scheduler}.\n"),
    };
    if nodes.is_empty() {
        return text;
    }
    let mut rows: Vec<&NodeRow> = nodes.iter().collect();
    // The best nodes first; names are in order already.
    rows.sort_by_key(|node| std::cmp::Reverse((node.fits, !node.second_choice, node.total)));
    let shown = if wide { rows.len() } else { rows.len().min(MAX_ROWS) };
    let _ = writeln!(text, "\n{}", verdicts(&rows[..shown], wide));
    if shown < rows.len() {
        let _ = writeln!(text, "... and {} more; -o wide shows all.", count(rows.len() - shown));
    }
    let zones = zones(&rows[..shown]);
    if wide && !zones.is_empty() {
        let _ = writeln!(text, "\n{}", zones);
    }
    text
}

fn count(nodes: usize) -> String {
    if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") }
}

fn verdicts(rows: &[&NodeRow], wide: bool) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["NODE", "FITS", "WHY", "WOULD FIT WITH"]);
    for row in rows {
        let fits = if row.fits { "yes" } else { "no" };
        let why = match row.total {
            Some(total) => {
                let choice = if row.second_choice { ", not known to align the pod" } else { "" };
                format!("score {total}{choice}{}", if wide { scores(row) } else { String::new() })
            }
            None => row.reasons.join(", "),
        };
        let changes = row.changes.iter().map(|change| change.text.as_str());
        let changes: Vec<&str> = if wide { changes.collect() } else { changes.take(1).collect() };
        table.add_row([&*row.node, fits, &why, &changes.join("; or ")]);
    }
    table.trim_fmt()
}

fn scores(row: &NodeRow) -> String {
    let each: Vec<String> = row.scores.iter().map(|(plugin, score)| format!("{plugin} {score}")).collect();
    if each.is_empty() { String::new() } else { format!(" ({})", each.join(", ")) }
}

/// What each zone has; nothing if no node reports zones.
fn zones(rows: &[&NodeRow]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["NODE", "ZONE", "RESOURCE", "FREE", "ALLOCATABLE"]);
    let mut is_empty = true;
    for row in rows {
        for zone in &row.zones {
            for (resource, amounts) in &zone.resources {
                let cells =
                    [&*row.node, &zone.zone.to_string(), resource, &amounts.free, &amounts.allocatable];
                table.add_row(cells);
                is_empty = false;
            }
        }
    }
    if is_empty { String::new() } else { table.trim_fmt() }
}
