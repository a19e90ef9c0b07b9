//! Results as text: a table, and sentences that sum it up.
//!
//! In: [`Outcome`]s. Out: text. Never: a number that the JSON output does not have.

use std::fmt::Write;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

use crate::comparison::{Contender, Outcome};
use crate::plural::count;
use crate::record::{Rejections, Summary};
use crate::spread::Spread;

/// Most reasons of a contender for pods that were not placed.
const REASONS: usize = 5;

/// Columns of every table, after the scheduler's.
const COLUMNS: [&str; 9] =
    ["PODS", "ALIGNED", "MISALIGNED", "REJECTED", "NOT PLACED", "P50", "P95", "MAX", "ALLOCATED"];

/// More columns; the first is always there.
const WIDE: [&str; 7] = ["STRANDED", "TAE", "SMT", "UNEXPECTED", "OUT OF", "SETTLED AFTER", "SEED"];

/// Renders the table. `wide` adds columns.
#[must_use]
pub fn render(entries: &[Outcome], wide: bool) -> String {
    let more = if wide { &WIDE[..] } else { &WIDE[..1] };
    table(more, entries.iter().map(|entry| row(&entry.summary, wide)))
}

/// The headers and rows of the table with all its columns, for other renderers.
#[must_use]
pub fn cells(entries: &[Outcome]) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let header = ["SCHEDULER"].into_iter().chain(COLUMNS).chain(WIDE).collect();
    (header, entries.iter().map(|entry| row(&entry.summary, true)).collect())
}

/// Renders the results of several seeds; each cell has the median, and the range if there is one.
#[must_use]
pub fn ranges(spreads: &[Spread]) -> String {
    let number = |value: usize| value.to_string();
    let row = |spread: &Spread| {
        vec![
            spread.scheduler.clone(),
            spread.pods.text(number),
            spread.aligned.text(number),
            spread.misaligned.text(number),
            spread.rejected.text(number),
            spread.unplaced.text(number),
            waits(spread.running.max, spread.p50_s.text(seconds)),
            waits(spread.running.max, spread.p95_s.text(seconds)),
            waits(spread.running.max, spread.max_s.text(seconds)),
            spread.allocated_share.text(|share| format!("{:.1} %", 100.0 * share)),
        ]
    };
    table(&[], spreads.iter().map(row))
}

fn table(more: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["SCHEDULER"].iter().chain(&COLUMNS).chain(more));
    table.add_rows(rows);
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table.trim_fmt()
}

fn part_of(part: usize, whole: usize) -> String {
    match part {
        0 => "0".to_owned(),
        part => format!("{part} ({:.0} %)", 100.0 * part as f64 / whole.max(1) as f64),
    }
}

fn row(summary: &Summary, wide: bool) -> Vec<String> {
    let mut row = vec![
        summary.scheduler.clone(),
        summary.pods.to_string(),
        summary.aligned.to_string(),
        part_of(summary.misaligned, summary.pods),
        part_of(summary.rejected, summary.pods),
        part_of(summary.unplaced, summary.pods),
        waits(summary.running, seconds(summary.p50_s)),
        waits(summary.running, seconds(summary.p95_s)),
        waits(summary.running, seconds(summary.max_s)),
        format!("{:.1} %", 100.0 * summary.allocated_share),
        format!("{:.1} CPUs", summary.stranded_cpus),
    ];
    if wide {
        let Rejections { tae, smt, unexpected, out_of } = summary.rejections;
        row.extend([tae, smt, unexpected, out_of].map(|pods| pods.to_string()));
        row.extend([format!("{:.1} s", summary.settled_s), summary.seed.to_string()]);
    }
    row
}

/// The text about the waits of pods that run, if there are any.
fn waits(running: usize, text: String) -> String {
    if running == 0 { "-".to_owned() } else { text }
}

fn seconds(value: f64) -> String {
    format!("{value:.2} s")
}

/// Sums up the result in a few sentences.
#[must_use]
pub fn verdict(entries: &[Outcome]) -> String {
    let of = |contender: Contender| {
        entries.iter().map(|entry| &entry.summary).find(|summary| summary.scheduler == contender.as_str())
    };
    let mut sentences: Vec<String> = Vec::new();
    if let Some(blind) = of(Contender::Blind) {
        sentences.push(if blind.rejected > 0 {
            format!(
                "Blind to NUMA zones, the scheduler lost {} of {}: their kubelets rejected them{}.",
                blind.rejected,
                count(blind.pods as u64, "pod"),
                if blind.rejected == blind.rejections.tae { " with TopologyAffinityError" } else { "" }
            )
        } else {
            format!("Blind to NUMA zones, the scheduler lost none of {}.", count(blind.pods as u64, "pod"))
        });
    }
    if let Some(plugin) = of(Contender::Nrtmatch) {
        let (running, pods) = (plugin.running, plugin.pods);
        sentences.push(match running {
            0 => format!("By the rules of the Go plugin none of {pods} ran."),
            _ => format!(
                "By the rules of the Go plugin {running} of {pods} ran, half of them later than {} after their creation.",
                seconds(plugin.p50_s)
            ),
        });
    }
    if let Some(tholepin) = of(Contender::Tholepin) {
        sentences.push(of_tholepin(tholepin, of(Contender::Ideal)));
    }
    let misaligned = entries.iter().filter(|entry| entry.summary.misaligned > 0);
    sentences.extend(misaligned.map(|entry| {
        let pods = count(entry.summary.misaligned as u64, "pod");
        format!("Under {} {pods} got resources of more zones than they need.", entry.summary.scheduler)
    }));
    sentences.join(" ")
}

/// The sentence about our scheduler, with the best that can be had.
fn of_tholepin(tholepin: &Summary, ideal: Option<&Summary>) -> String {
    let ran = match tholepin.running {
        0 => return format!("Tholepin ran none of {} and lost {}.", tholepin.pods, tholepin.rejected),
        running if running == tholepin.pods => format!("Tholepin ran all {running}"),
        running => format!("Tholepin ran {running} of {} and lost {}", tholepin.pods, tholepin.rejected),
    };
    let within = seconds(tholepin.p95_s);
    match ideal.filter(|ideal| ideal.running > 0) {
        Some(ideal) => format!(
            "{ran}, 95 % of them within {within} of their creation; with perfect knowledge and no latency it would have \
             been {}.",
            seconds(ideal.p95_s)
        ),
        None => format!("{ran}, 95 % of them within {within} of their creation."),
    }
}

/// The reasons for which pods were not placed, a line each.
#[must_use]
pub fn refusals(entries: &[Outcome]) -> String {
    let mut lines = String::new();
    for entry in entries {
        for refusal in entry.refusals.iter().take(REASONS) {
            let (scheduler, pods) = (&entry.summary.scheduler, count(refusal.pods as u64, "pod"));
            let first = if refusal.pods == 1 { "" } else { "first " };
            // Writing to a String cannot fail.
            let _ = writeln!(
                lines,
                "Not placed under {scheduler}: {pods} ({first}{}): {}",
                refusal.first, refusal.reason
            );
        }
        if entry.refusals.len() > REASONS {
            let more = count((entry.refusals.len() - REASONS) as u64, "reason");
            let _ = writeln!(lines, "Not placed under {}: {more} more, see -o json", entry.summary.scheduler);
        }
    }
    lines
}

/// Sums up the results of several seeds in a few sentences.
#[must_use]
pub fn verdict_of_ranges(spreads: &[Spread]) -> String {
    let lost = |spread: &Spread| match (spread.rejected.min, spread.rejected.max) {
        (0, 0) => "none".to_owned(),
        (min, max) if min == max => min.to_string(),
        (min, max) => format!("{min} to {max}"),
    };
    let seeds = spreads.first().map_or(0, |spread| spread.runs.len());
    let each: Vec<String> = spreads
        .iter()
        .map(|spread| {
            let (p95, worst) = (seconds(spread.p95_s.median), seconds(spread.p95_s.max));
            format!("{} lost {} (p95 {p95}, at worst {worst})", spread.scheduler, lost(spread))
        })
        .collect();
    format!("Over {}: {}.", count(seeds as u64, "seed"), each.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Refusal, Timeline};

    fn entry(scheduler: &str, tae: usize, unplaced: usize) -> Outcome {
        let summary = Summary {
            scheduler: scheduler.to_owned(),
            seed: 1,
            pods: 120,
            running: 120 - tae - unplaced,
            aligned: 120 - tae - unplaced,
            misaligned: 0,
            rejected: tae,
            rejections: Rejections { tae, ..Rejections::default() },
            unplaced,
            p50_s: 0.321,
            p95_s: 1.5,
            max_s: 2.0,
            allocated_share: 0.654_321,
            stranded_cpus: 3.25,
            settled_s: 41.0,
        };
        let refusal = Refusal {
            reason: "0/4 nodes are available: 4 cannot align container (cpu).".to_owned(),
            pods: unplaced,
            first: "pod-00007".to_owned(),
        };
        let refusals = if unplaced > 0 { vec![refusal] } else { Vec::new() };
        Outcome { summary, refusals, timeline: Timeline::default() }
    }

    #[test]
    fn tables_have_a_row_for_each_contender() {
        let entries = [entry("blind", 14, 0), entry("tholepin", 0, 0)];
        let text = render(&entries, false);
        let lines: Vec<&str> = text.lines().collect();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        assert!(
            lines
                .iter()
                .any(|l| words(l) == "blind 120 106 0 14 (12 %) 0 0.32 s 1.50 s 2.00 s 65.4 % 3.2 CPUs"),
            "{text}"
        );
        assert!(lines.iter().any(|l| words(l).starts_with("tholepin 120 120 0 0 0 0.32 s")), "{text}");
        assert!(render(&entries, true).contains("41.0 s"));
        let none = [entry("nrtmatch", 0, 120), entry("tholepin", 20, 100)];
        let text = render(&none, false);
        assert!(
            text.lines().any(|l| words(l) == "tholepin 120 0 0 20 (17 %) 100 (83 %) - - - 65.4 % 3.2 CPUs"),
            "{text}"
        );
        let wanted = "By the rules of the Go plugin none of 120 ran. Tholepin ran none of 120 and lost 20.";
        assert_eq!(verdict(&none), wanted);
    }

    #[test]
    fn verdicts_say_who_lost_what() {
        let text = verdict(&[entry("blind", 14, 0), entry("tholepin", 0, 0), entry("ideal", 0, 0)]);
        assert!(
            text.contains("lost 14 of 120 pods") && text.contains("Tholepin ran all 120, 95 %"),
            "{text}"
        );
        let text = verdict(&[entry("tholepin", 1, 2)]);
        assert!(text.contains("ran 117 of 120 and lost 1"), "{text}");
        assert_eq!(
            refusals(&[entry("tholepin", 1, 2), entry("ideal", 0, 0)]),
            "Not placed under tholepin: 2 pods (first pod-00007): \
             0/4 nodes are available: 4 cannot align container (cpu).\n"
        );
        assert_eq!(verdict(&[]), "");
    }

    #[test]
    fn several_seeds_are_ranges() {
        let blind = [4, 14, 9].map(|tae| entry("blind", tae, 0).summary).to_vec();
        let tholepin = [0, 0, 0].map(|tae| entry("tholepin", tae, 0).summary).to_vec();
        let spreads: Vec<Spread> = [blind, tholepin].into_iter().filter_map(Spread::of).collect();
        let text = ranges(&spreads);
        assert!(text.contains(" 9 (4 to 14) ") && text.contains(" 111 (106 to 116) "), "{text}");
        assert_eq!(
            verdict_of_ranges(&spreads),
            "Over 3 seeds: blind lost 4 to 14 (p95 1.50 s, at worst 1.50 s); \
             tholepin lost none (p95 1.50 s, at worst 1.50 s)."
        );
    }
}
