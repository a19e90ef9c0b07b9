//! Results as text: a table, and sentences that sum it up.
//!
//! In: [`Outcome`]s. Out: text. Never: a number that the JSON output does not have.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

use crate::comparison::{Contender, Outcome};
use crate::plural::count;
use crate::record::Summary;

/// Renders the table; `wide` adds columns.
#[must_use]
pub fn render(entries: &[Outcome], wide: bool) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    let mut header =
        vec!["SCHEDULER", "PODS", "RUNNING", "LOST (TAE)", "P50", "P95", "MAX", "ALLOCATED", "STRANDED"];
    if wide {
        header.extend(["OUT OF", "NOT PLACED", "SETTLED AFTER", "SEED"]);
    }
    table.set_header(header);
    for entry in entries {
        table.add_row(row(&entry.summary, wide));
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table.trim_fmt()
}

fn row(summary: &Summary, wide: bool) -> Vec<String> {
    let share = |part: usize| 100.0 * part as f64 / summary.pods.max(1) as f64;
    let lost = match summary.tae {
        0 => "0".to_owned(),
        tae => format!("{tae} ({:.0} %)", share(tae)),
    };
    let mut row = vec![
        summary.scheduler.clone(),
        summary.pods.to_string(),
        summary.running.to_string(),
        lost,
        seconds(summary.p50_s),
        seconds(summary.p95_s),
        seconds(summary.max_s),
        format!("{:.1} %", 100.0 * summary.allocated_share),
        format!("{:.1} CPUs", summary.stranded_cpus),
    ];
    if wide {
        row.extend([
            summary.out_of.to_string(),
            summary.unplaced.to_string(),
            format!("{:.1} s", summary.settled_s),
            summary.seed.to_string(),
        ]);
    }
    row
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
        sentences.push(if blind.tae > 0 {
            format!(
                "Blind to NUMA zones, the scheduler lost {} of {}: their kubelets rejected them with \
                 TopologyAffinityError.",
                blind.tae,
                count(blind.pods as u64, "pod")
            )
        } else {
            format!("Blind to NUMA zones, the scheduler lost none of {}.", count(blind.pods as u64, "pod"))
        });
    }
    if let Some(tholepin) = of(Contender::Tholepin) {
        let ran = if tholepin.running == tholepin.pods {
            format!("Tholepin ran all {}", tholepin.pods)
        } else {
            format!("Tholepin ran {} of {} and lost {}", tholepin.running, tholepin.pods, tholepin.tae)
        };
        sentences.push(match of(Contender::Ideal) {
            Some(ideal) => format!(
                "{ran}, 95 % of them within {} of their creation; with perfect knowledge and no latency it would have \
                 been {}.",
                seconds(tholepin.p95_s),
                seconds(ideal.p95_s)
            ),
            None => format!("{ran}, 95 % of them within {} of their creation.", seconds(tholepin.p95_s)),
        });
    }
    for entry in entries.iter().filter(|entry| entry.summary.unplaced > 0) {
        sentences.push(format!(
            "{} could not be placed at all under {}: no node can hold {}.",
            count(entry.summary.unplaced as u64, "pod"),
            entry.summary.scheduler,
            if entry.summary.unplaced == 1 { "it" } else { "them" }
        ));
    }
    sentences.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Timeline;

    fn entry(scheduler: &str, tae: usize, unplaced: usize) -> Outcome {
        let summary = Summary {
            scheduler: scheduler.to_owned(),
            seed: 1,
            pods: 120,
            running: 120 - tae - unplaced,
            tae,
            out_of: 0,
            unplaced,
            p50_s: 0.321,
            p95_s: 1.5,
            max_s: 2.0,
            allocated_share: 0.654_321,
            stranded_cpus: 3.25,
            settled_s: 41.0,
        };
        Outcome { summary, timeline: Timeline::default() }
    }

    #[test]
    fn tables_have_a_row_for_each_contender() {
        let entries = [entry("blind", 14, 0), entry("tholepin", 0, 0)];
        let text = render(&entries, false);
        let lines: Vec<&str> = text.lines().collect();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        assert!(
            lines.iter().any(|l| words(l) == "blind 120 106 14 (12 %) 0.32 s 1.50 s 2.00 s 65.4 % 3.2 CPUs"),
            "{text}"
        );
        assert!(lines.iter().any(|l| words(l).starts_with("tholepin 120 120 0 0.32 s")), "{text}");
        assert!(render(&entries, true).contains("41.0 s"));
    }

    #[test]
    fn verdicts_say_who_lost_what() {
        let text = verdict(&[entry("blind", 14, 0), entry("tholepin", 0, 0), entry("ideal", 0, 0)]);
        assert!(
            text.contains("lost 14 of 120 pods") && text.contains("Tholepin ran all 120, 95 %"),
            "{text}"
        );
        let text = verdict(&[entry("tholepin", 1, 2)]);
        assert!(text.contains("ran 117 of 120 and lost 1") && text.contains("2 pods could not"), "{text}");
        assert_eq!(verdict(&[]), "");
    }
}
