//! How reports look.

use super::fixture::ClusterFixture;
use super::*;
use crate::validate::print::{Format, list, passed, render, summary};

fn ill() -> Validation {
    let mut world = ClusterFixture::healthy();
    world.configure("*", "cpuManagerReconcilePeriod", "30s");
    world.remove("NodeResourceTopology node-1");
    let mut evidence = world.evidence();
    evidence.gaps.insert(Area::Leases, "not allowed to list leases".to_owned());
    report(&evidence)
}

#[test]
fn equal_findings_are_grouped() {
    let text = render(&ill(), Format::Text).unwrap();
    let done = all().len() - 1;
    let expected = format!(
        "ERROR   Node node-1: the node has no NodeResourceTopology object\n        \
         why: without the object the node's zones are unknown: pods that need alignment are not placed there, or placed blindly\n        \
         fix: check that an exporter runs on the node and may write; its log has the reason\n        see: docs/validate.md#report-missing\n\n\
         WARNING Node node-0, node-1: cpuManagerReconcilePeriod is 30s, not within 1s and 10s\n        \
         why: a container may run on wrong CPUs for this long\n        \
         fix: set cpuManagerReconcilePeriod: 5s in the kubelet's configuration\n        see: docs/validate.md#cpu-manager-reconcile-period\n\n\
         NOT CHECKED  not allowed to list leases\n        checks: scheduler-leader\n\n\
         some checks could not be done: 1 error, 2 warnings, 0 infos ({done} checks done)\n"
    );
    assert_eq!(text, expected);
}

#[test]
fn tables_have_a_row_for_each() {
    let text = render(&ill(), Format::Wide).unwrap();
    let rows: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
    assert_eq!(rows.len(), 4, "{text}");
    assert!(
        rows[0].contains("SEVERITY") && rows[2].contains("Node node-0") && rows[3].contains("Node node-1"),
        "{text}"
    );
}

#[test]
fn machines_read_the_same_in_json_and_yaml() {
    let report = ill();
    let json: serde_json::Value = serde_json::from_str(&render(&report, Format::Json).unwrap()).unwrap();
    let yaml = render(&report, Format::Yaml).unwrap();
    let yaml: serde_json::Value =
        runtime::yaml::read_str("yaml", &yaml, runtime::yaml::Mode::Strict).unwrap();
    assert_eq!(json, yaml);
    assert_eq!(
        (json["verdict"].as_str(), json["errors"].as_u64(), json["warnings"].as_u64()),
        (Some("incomplete"), Some(1), Some(2))
    );
    let finding = &json["findings"][0];
    assert_eq!(
        (finding["id"].as_str(), finding["severity"].as_str()),
        (Some("report-missing"), Some("error"))
    );
    for field in ["object", "what", "why", "fix"] {
        assert!(!finding[field].as_str().unwrap().is_empty(), "{field}");
    }
    assert_eq!(json["notChecked"][0]["area"], "leases");
}

#[test]
fn names_of_objects_cannot_act_on_a_terminal() {
    let mut report = ill();
    for finding in &mut report.findings {
        finding.object = "Node a\u{1b}[2J\nERROR forged".to_owned();
        finding.what = "is \u{9b}31m\r".to_owned();
    }
    report.not_checked[0].object = Some("Node \u{1b}]0;title\u{7}".to_owned());
    report.not_checked[0].reason = "no\u{8}".to_owned();
    for format in [Format::Text, Format::Wide] {
        let text = render(&report, format).unwrap();
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("ERROR forged")), "{text}");
    }
}

#[test]
fn checks_that_saw_no_kubelet_are_not_done() {
    let about_kubelets = all().iter().filter(|check| check.needs.contains(&Area::KubeletConfig)).count();
    let mut world = ClusterFixture::healthy();
    let node = world.configz.keys().next().unwrap().clone();
    let kept = world.configz.remove(&node);
    assert_eq!(report(&world.evidence()).checks_done, all().len(), "one kubelet was seen");
    world.configz.clear();
    let evidence = world.evidence();
    assert_eq!(report(&evidence).checks_done, all().len() - about_kubelets);
    let selection = Selection { only: vec!["cpu-manager-policy".to_owned()], ..Selection::default() };
    let checks = selection.checks().unwrap();
    assert!(summary(&examine(&evidence, &checks)).ends_with("(0 checks done)"));
    world.configz.insert(node, kept.unwrap());
    assert!(summary(&examine(&world.evidence(), &checks)).ends_with("(1 check done)"));
}

#[test]
fn objects_that_lack_evidence_for_one_reason_share_a_line() {
    let mut world = ClusterFixture::healthy();
    world.configz.clear();
    let text = render(&report(&world.evidence()), Format::Text).unwrap();
    assert_eq!(text.matches("NOT CHECKED").count(), 1, "{text}");
    assert!(text.contains("NOT CHECKED  Node node-0, node-1: the kubelet's configuration"), "{text}");
}

#[test]
fn checks_that_found_nothing_are_shown_on_request() {
    let passed = passed(&ill());
    assert!(passed.contains("OK      the API server is 1.21 or later (server-version)\n"), "{passed}");
    for id in ["report-missing", "cpu-manager-reconcile-period", "scheduler-leader"] {
        assert!(!passed.contains(&format!("({id})")), "{id}: {passed}");
    }
    let list = list(&all(), Format::Json).unwrap();
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list.as_array().unwrap().len(), all().len());
    assert_eq!(list[0]["link"], "docs/validate.md#server-version");
}
