//! Metrics and labels that alerts, their texts and the dashboard name, against what programs serve.

use std::collections::{BTreeMap, BTreeSet};

use deployer::manifests::monitoring::dashboard::ROWS;
use deployer::manifests::scheduler::alerts::REJECTIONS;

use super::{alerts, programs};

/// Labels that the Prometheus operator's monitors give to every series.
const TARGET: [&str; 7] = ["container", "endpoint", "instance", "job", "namespace", "pod", "service"];
/// Series of Prometheus itself, and one of kubelets, which a test with a real kubelet looks for.
const ELSEWHERE: [&str; 2] = ["up", REJECTIONS];
/// Words before a list of labels.
const LISTS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
/// Functions that have such a list before their bracket.
const AGGREGATIONS: [&str; 5] = ["avg", "count", "max", "min", "sum"];
/// Words between expressions.
const OPERATORS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

/// A word of an expression.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Word {
    Metric(String),
    Label(String),
}

/// The metrics and labels in an expression. Names before a bracket are functions.
fn words(expr: &str) -> BTreeSet<Word> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let (mut found, mut rest, mut list) = (BTreeSet::new(), expr, false);
    while let Some(first) = rest.chars().next() {
        let length = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let (name, behind) = rest.split_at(length);
        rest = match first {
            '"' => behind[1..].split_once('"').map_or("", |(_, after)| after),
            // Durations.
            '[' => behind.split_once(']').map_or("", |(_, after)| after),
            '{' | ')' | '}' => {
                list = first == '{';
                &rest[1..]
            }
            _ if first.is_ascii_digit() => behind,
            _ if length == 0 => &rest[first.len_utf8()..],
            _ => {
                let called = behind.trim_start().starts_with('(');
                match () {
                    () if list => drop(found.insert(Word::Label(name.to_owned()))),
                    () if LISTS.contains(&name) => list = true,
                    () if called || AGGREGATIONS.contains(&name) || OPERATORS.contains(&name) => {}
                    () => drop(found.insert(Word::Metric(name.to_owned()))),
                }
                behind
            }
        };
    }
    found
}

/// Every expression with its place.
fn expressions() -> Vec<(String, String)> {
    let alerts = alerts().into_iter().flat_map(|(_, alerts)| alerts);
    let mut all: Vec<_> = alerts.map(|alert| (alert.name.to_owned(), alert.expr)).collect();
    for row in ROWS {
        for panel in row.panels {
            let queries = panel.queries.iter();
            all.extend(
                queries.map(|(expr, _)| (format!("{}: {}", row.title, panel.title), (*expr).to_owned())),
            );
        }
    }
    all
}

/// The labels of each series, by its name.
fn series() -> BTreeMap<String, BTreeSet<String>> {
    let mut series: BTreeMap<String, BTreeSet<String>> =
        ELSEWHERE.map(|name| (name.to_owned(), BTreeSet::new())).into();
    for family in programs().into_iter().flat_map(|program| program.families.into_values()) {
        for sample in family.samples {
            let bucket = sample.ends_with("_bucket").then(|| "le".to_owned());
            series.entry(sample).or_default().extend(family.labels.iter().cloned().chain(bucket));
        }
    }
    series
}

#[test]
fn expressions_name_what_programs_serve() {
    let series = series();
    for (place, expr) in expressions() {
        let words = words(&expr);
        let metrics: Vec<&String> = words
            .iter()
            .filter_map(|word| match word {
                Word::Metric(name) => Some(name),
                Word::Label(_) => None,
            })
            .collect();
        assert!(!metrics.is_empty(), "{place}: {expr}");
        let mut labels: BTreeSet<&str> = TARGET.into();
        for metric in metrics {
            let known = series.get(metric);
            assert!(known.is_some(), "{place}: no program serves {metric}");
            labels.extend(known.into_iter().flatten().map(String::as_str));
        }
        for word in &words {
            let Word::Label(label) = word else { continue };
            assert!(labels.contains(&**label), "{place}: no metric of it has the label {label}");
        }
    }
}

/// Labels in texts are those that the expression leaves.
#[test]
fn texts_name_labels_that_their_expressions_have() {
    let series = series();
    for (name, alert) in alerts().into_iter().flat_map(|(_, all)| all).map(|alert| (alert.name, alert)) {
        let words = words(&alert.expr);
        let metrics = words.iter().filter_map(|word| match word {
            Word::Metric(metric) => series.get(metric),
            Word::Label(_) => None,
        });
        let known: BTreeSet<&str> = metrics.flatten().map(String::as_str).chain(TARGET).collect();
        for text in [alert.summary, alert.description] {
            for part in text.split("$labels.").skip(1) {
                let label = part.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
                let listed = words.contains(&Word::Label(label.to_owned()));
                let kept = listed || !alert.expr.contains(" by (");
                assert!(known.contains(label) && kept, "{name}: its series have no label {label}");
            }
        }
    }
}

/// A monitor would rename a label that targets have too, unless it is told to leave it.
#[test]
fn only_metrics_of_deviceconfigs_have_labels_of_targets() {
    for program in programs().into_iter().filter(|program| program.name != "hardware") {
        for (name, family) in program.families {
            assert!(!TARGET.iter().any(|label| family.labels.contains(*label)), "{}: {name}", program.name);
        }
    }
}

#[test]
fn words_of_expressions_are_told_apart() {
    let metric = |name: &str| Word::Metric(name.to_owned());
    let label = |name: &str| Word::Label(name.to_owned());
    let table = [
        ("up", vec![metric("up")]),
        ("rate(a_total{b=\"c{d}\",e!~\"f\"}[5m]) > 0.5", vec![metric("a_total"), label("b"), label("e")]),
        (
            "sum by (x, y) (a) / on (z) group_left (v) b",
            vec![metric("a"), metric("b"), label("v"), label("x"), label("y"), label("z")],
        ),
        ("a unless on (n) b offset 5m or absent(c)", vec![metric("a"), metric("b"), metric("c"), label("n")]),
        ("time() - t", vec![metric("t")]),
    ];
    for (expr, wanted) in table {
        assert_eq!(words(expr), wanted.into_iter().collect(), "{expr}");
    }
}
