//! How reports look.

use super::fixture::ClusterFixture;
use super::*;
use crate::validate::print::{Format, render};

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
         fix: check that an exporter runs on the node and may write; its log has the reason\n        (report-missing)\n\n\
         WARNING Node node-0, node-1: cpuManagerReconcilePeriod is 30s, not within 1s and 10s\n        \
         why: a container may run on wrong CPUs for this long\n        \
         fix: set cpuManagerReconcilePeriod: 5s in the kubelet's configuration\n        (cpu-manager-reconcile-period)\n\n\
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
