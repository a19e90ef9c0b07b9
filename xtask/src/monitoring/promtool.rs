//! Prometheus' own tool over alerts and queries. Its first build takes minutes, so `cargo xtask nightly promtool` makes
//! it (`PROMTOOL=1`); other runs use it where it is in the cache.

use std::path::Path;
use std::process::Command;

use deployer::docs;
use deployer::manifests::monitoring::dashboard::ROWS;
use deployer::manifests::{meta, monitoring};
use serde_json::{Value, json};

use super::alerts;
use super::promtool_cases::{CASES, Case, Series};
use crate::gotool::{PROMTOOL, output};

/// Runs it in a folder on a file with this content: JSON, which is YAML.
fn run(promtool: &Path, folder: &Path, words: &[&str], content: &Value) -> anyhow::Result<String> {
    std::fs::write(folder.join("input.yaml"), content.to_string())?;
    let mut command = Command::new(promtool);
    Ok(output(command.args(words).arg("input.yaml").current_dir(folder))?.0)
}

/// The group of each program, as its PrometheusRule has it.
fn groups() -> Value {
    let groups = alerts().into_iter().map(|(program, alerts)| {
        let rule = monitoring::rules(&meta::within("any", program), (program, &alerts), docs::ALERTS);
        rule.body()["spec"]["groups"][0].clone()
    });
    json!({ "groups": groups.collect::<Vec<_>>() })
}

/// The dashboard's queries, as rules that record them.
fn queries() -> Value {
    let panels = ROWS.iter().flat_map(|row| row.panels).flat_map(|panel| panel.queries);
    let rules = panels
        .enumerate()
        .map(|(number, (expr, _))| json!({ "record": format!("q:{number}"), "expr": expr }));
    json!({ "groups": [{ "name": "dashboard", "rules": rules.collect::<Vec<_>>() }] })
}

#[test]
fn rules_and_queries_are_valid() {
    let Some(promtool) = PROMTOOL.asked("PROMTOOL", "promtool") else { return };
    let folder = tempfile::tempdir().unwrap();
    let check = |content: &Value| run(&promtool, folder.path(), &["check", "rules", "--lint-fatal"], content);
    for content in [groups(), queries()] {
        let rules = content["groups"].as_array().into_iter().flatten();
        let count: usize = rules.map(|group| group["rules"].as_array().map_or(0, Vec::len)).sum();
        let said = check(&content).unwrap();
        println!("promtool: {count} rules are valid");
        assert!(count > 15 && !said.contains("FAILED"), "{said}");
    }
    let wrong = json!({ "groups": [{ "name": "g", "rules": [{ "alert": "A", "expr": "rate(a)" }] }] });
    assert!(check(&wrong).is_err());
}

/// The alerts that fire, with the texts that people read.
#[test]
fn each_alert_fires_when_it_should_and_only_then() {
    let mut named: Vec<&str> = CASES.iter().map(|case| case.alert).collect();
    let mut all: Vec<&str> = alerts().iter().flat_map(|(_, all)| all).map(|alert| alert.name).collect();
    named.sort_unstable();
    all.sort_unstable();
    assert_eq!(named, all, "each alert has a case");
    let Some(promtool) = PROMTOOL.asked("PROMTOOL", "promtool") else { return };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rules.yaml"), groups().to_string()).unwrap();
    let tests = |case: &Case| [test(case, case.fires, true), test(case, case.quiet, false)];
    let file = |tests: Vec<Value>| json!({ "rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests });
    let check = |content: &Value| run(&promtool, folder.path(), &["test", "rules"], content);
    check(&file(CASES.iter().flat_map(tests).collect())).unwrap();
    println!("promtool: {} alerts fire and do not", CASES.len());
    // What is expected counts.
    let [case, ..] = &CASES;
    assert!(check(&file(vec![test(case, case.quiet, true)])).is_err());
    assert!(check(&file(vec![test(case, case.fires, false)])).is_err());
}

fn test(case: &Case, series: &[Series], fires: bool) -> Value {
    let series = series.iter().map(|(name, values)| json!({ "series": name, "values": values }));
    let expected: Vec<Value> = fires.then(|| fired(case)).into_iter().collect();
    json!({
        "name": format!("{} fires: {fires}", case.alert),
        "interval": "1m",
        "input_series": series.collect::<Vec<_>>(),
        "alert_rule_test": [{ "eval_time": case.at, "alertname": case.alert, "exp_alerts": expected }],
    })
}

/// The alert as it is sent.
fn fired(case: &Case) -> Value {
    let group = groups();
    let rules = group["groups"].as_array().into_iter().flatten().flat_map(|group| group["rules"].as_array());
    let rule = rules.flatten().find(|rule| rule["alert"] == case.alert).unwrap();
    let mut labels = json!({ "severity": "warning" });
    let mut annotations = rule["annotations"].clone();
    for (name, value) in case.labels {
        labels[name] = (*value).into();
        for text in annotations.as_object_mut().into_iter().flat_map(|texts| texts.values_mut()) {
            *text = text.as_str().unwrap().replace(&format!("{{{{ $labels.{name} }}}}"), value).into();
        }
    }
    json!({ "exp_labels": labels, "exp_annotations": annotations })
}
