//! docs/metrics.md and docs/alerts.md: `UPDATE_DOCS=1 cargo test -p xtask monitoring::pages` writes their tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use deployer::docs;
use deployer::manifests::monitoring::Alert;
use testkit::exposition::Family;

use super::{Program, alerts, programs};
use crate::tree::root;

const MARK: &str =
    "<!-- What follows is written by `UPDATE_DOCS=1 cargo test -p xtask monitoring::pages`. -->\n";

/// Compares what follows the mark, or writes it.
#[track_caller]
fn check(page: &str, wanted: &str) {
    let path = root().join(docs::BASE).join(page);
    let text = std::fs::read_to_string(&path).unwrap();
    let (head, found) = text.split_once(MARK).unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{head}{MARK}{wanted}")).unwrap();
        return;
    }
    assert_eq!(found, wanted, "UPDATE_DOCS=1 writes it anew");
}

#[test]
fn the_page_of_metrics_is_up_to_date() {
    let mut all: BTreeMap<String, (Family, Vec<&str>)> = BTreeMap::new();
    for Program { name, families, .. } in programs() {
        for (family, known) in families {
            all.entry(family).or_insert_with(|| (known, Vec::new())).1.push(name);
        }
    }
    let mut text = String::from("\n| metric | type | labels | programs | meaning |\n|---|---|---|---|---|\n");
    for (name, (family, programs)) in all {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let (labels, programs) = (labels.join(", "), programs.join(", "));
        writeln!(text, "| `{name}` | {} | {labels} | {programs} | {} |", family.kind, family.help).unwrap();
    }
    check("metrics.md", &text);
}

#[test]
fn the_page_of_alerts_is_up_to_date() {
    let mut text = String::new();
    for (program, alerts) in alerts() {
        for alert in alerts {
            section(&mut text, program, &alert).unwrap();
        }
    }
    check("alerts.md", &text);
}

fn section(text: &mut String, program: &str, alert: &Alert) -> std::fmt::Result {
    let Alert { name, expr, lasting, summary, description, causes, first } = alert;
    // Labels of the series that fires.
    let [summary, description] =
        [summary, description].map(|text| text.replace("{{ $labels.", "*").replace(" }}", "*"));
    writeln!(text, "\n## {name}\n\n{summary} {description}\n\nWith {program}, after {lasting} of:\n")?;
    writeln!(text, "```\n{expr}\n```\n\nLikely causes:\n")?;
    for cause in *causes {
        writeln!(text, "- {cause}")?;
    }
    writeln!(text, "\nFirst command: `{first}`")
}

/// Readers come from `runbook_url`.
#[test]
fn each_alert_has_a_section_of_its_own_and_a_first_command() {
    let page = std::fs::read_to_string(root().join("docs/alerts.md")).unwrap();
    let headings: BTreeSet<String> =
        page.lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_lowercase).collect();
    let ids: Vec<&str> = deployer::validate::check::all().iter().map(|check| check.id).collect();
    let mut seen = BTreeSet::new();
    for alert in alerts().into_iter().flat_map(|(_, alerts)| alerts) {
        assert!(seen.insert(alert.name), "{} is there twice", alert.name);
        assert!(headings.contains(&alert.id()), "{}", alert.name);
        assert!(!alert.causes.is_empty(), "{}", alert.name);
        let named = alert.first.split_once("--only ").map_or("", |(_, named)| named).split(',');
        for id in named.filter(|id| !id.is_empty()) {
            assert!(ids.contains(&id), "{}: there is no check {id}", alert.name);
        }
    }
}
