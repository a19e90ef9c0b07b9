//! Events for transitions of the status.
//!
//! In: the status before and after. Out: events for the differences. Never: an event for a condition that stays.

use api::hardware::{Conflict, NodeProblem, Phase, Status, keys};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use runtime::events::Severity::{self, Normal, Warning};
use runtime::status::Transition;

use crate::reasons::{EventReason, ProblemReason, Reason};

/// The transitions from one status to the next.
#[must_use]
pub fn transitions(before: &Status, after: &Status) -> Vec<Transition> {
    let mut found = Vec::new();
    let mut add = |severity: Severity, reason: &str, note: String| {
        found.push(Transition { severity, reason: reason.to_owned(), note });
    };
    // The condition, if it has changed to this status, or has another reason for it.
    let changed = |name, status: &str| {
        let new = condition(after, name).filter(|new| new.status == status)?;
        let is_old = |old: &Condition| old.status == new.status && old.reason == new.reason;
        (!condition(before, name).is_some_and(is_old)).then_some(new)
    };
    if let Some(ready) = changed(keys::READY, "True") {
        add(Normal, Reason::Reconciled.as_ref(), ready.message.clone());
    }
    for name in [keys::ERRORED, keys::DEGRADED] {
        // Overdue pods have an event for each node, below.
        let bad = changed(name, "True").filter(|bad| bad.reason != Reason::EvictionTimeout.as_ref());
        if let Some(bad) = bad {
            add(Warning, &bad.reason, bad.message.clone());
        }
    }
    if let Some(invalid) = changed(keys::NODE_SELECTOR_VALID, "False")
        && changed(keys::ERRORED, "True").is_none_or(|errored| errored.reason != invalid.reason)
    {
        add(Warning, &invalid.reason, invalid.message.clone());
    }
    let overlap = changed(keys::NODE_SELECTOR_VALID, "True");
    let overlap = overlap.filter(|valid| valid.reason == Reason::NodeSelectorMayOverlap.as_ref());
    for started in overlap.into_iter().chain(changed(keys::PROGRESSING, "True")) {
        add(Normal, &started.reason, started.message.clone());
    }
    let key = |conflict: &Conflict| (conflict.won, conflict.namespace.clone(), conflict.name.clone());
    let is_new = |conflict: &&Conflict| !before.conflicts.iter().any(|known| key(known) == key(conflict));
    for conflict in after.conflicts.iter().filter(|conflict| conflict.won).filter(is_new) {
        let note = format!(
            "DeviceConfig {}/{} asks for {} nodes of this one too, such as {}, and does not get them",
            conflict.namespace,
            conflict.name,
            conflict.count,
            conflict.nodes.first().map_or("", String::as_str)
        );
        add(Normal, EventReason::NodeSelectorContested.as_ref(), note);
    }
    let is_overdue = |problem: &&NodeProblem| problem.reason == ProblemReason::EvictionTimeout.as_ref();
    for problem in after.problems.iter().filter(is_overdue) {
        if !before.problems.iter().filter(is_overdue).any(|known| known.node == problem.node) {
            let note = format!("node {}: {}", problem.node, problem.message);
            add(Warning, EventReason::EvictionTimeout.as_ref(), note);
        }
    }
    let is_new = |kernel: &&String| !before.kernels_without_mapping.contains(kernel);
    let kernels: Vec<&str> =
        after.kernels_without_mapping.iter().filter(is_new).map(String::as_str).collect();
    if !kernels.is_empty() && after.phase != Some(Phase::Deleting) {
        let note = format!("no entry of spec.kernelMappings matches kernel {}", kernels.join(", "));
        add(Warning, EventReason::UnsupportedKernel.as_ref(), note);
    }
    let former = before.upgrading_from.as_ref().or(before.driver_version.as_ref());
    if let (Some(old), Some(new), None) = (former, &after.driver_version, &after.upgrading_from)
        && old != new
    {
        let note = format!("all nodes have version {new}; before some had {old}");
        add(Normal, EventReason::Upgraded.as_ref(), note);
    }
    found.dedup();
    found
}

fn condition<'a>(status: &'a Status, name: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|one| one.type_ == name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(conditions: &[(&str, &str, &str)], more: Value) -> Status {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(name, status, reason)| {
                json!({ "type": name, "status": status, "reason": reason, "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" })
            })
            .collect();
        let mut body = more;
        body["conditions"] = conditions.into();
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn each_transition_is_reported_once() {
        let check = |before: &Status, after: &Status, wanted: &[&str]| {
            let reasons: Vec<String> = transitions(before, after).into_iter().map(|one| one.reason).collect();
            assert_eq!(reasons, wanted);
            assert_eq!(transitions(after, after), []);
        };
        let fresh = Status::default();
        let loading = status(&[("Ready", "False", "Loading"), ("Progressing", "True", "Loading")], json!({}));
        check(&fresh, &loading, &["Loading"]);
        let ready = status(
            &[("Ready", "True", "Reconciled"), ("Progressing", "False", "Reconciled")],
            json!({ "driverVersion": "1" }),
        );
        check(&loading, &ready, &["Reconciled"]);
        let newer = status(
            &[("Ready", "True", "Reconciled"), ("Progressing", "False", "Reconciled")],
            json!({ "driverVersion": "2" }),
        );
        check(&ready, &newer, &["Upgraded"]);
        // Meanwhile the versions of nodes differ, or the last node has none.
        let under_way = |version: Value| {
            status(
                &[("Ready", "False", "Upgrading")],
                json!({ "upgradingFrom": "1", "driverVersion": version }),
            )
        };
        check(&ready, &under_way(Value::Null), &[]);
        check(&under_way(Value::Null), &under_way("1".into()), &[]);
        check(&under_way(Value::Null), &newer, &["Reconciled", "Upgraded"]);
        check(&under_way("1".into()), &ready, &["Reconciled"]);
        let lost = status(
            &[
                ("Ready", "False", "Errored"),
                ("Errored", "True", "ConflictingNodeSelector"),
                ("NodeSelectorValid", "False", "ConflictingNodeSelector"),
            ],
            json!({ "conflicts": [{ "namespace": "a", "name": "b", "count": 1, "won": false }] }),
        );
        check(&loading, &lost, &["ConflictingNodeSelector"]);
        let near = status(
            &[("Ready", "True", "Reconciled"), ("NodeSelectorValid", "True", "NodeSelectorMayOverlap")],
            json!({ "driverVersion": "1" }),
        );
        check(&ready, &near, &["NodeSelectorMayOverlap"]);
        let won = status(
            &[("Ready", "True", "Reconciled")],
            json!({ "driverVersion": "1", "conflicts": [{ "namespace": "a", "name": "b", "count": 1, "won": true }] }),
        );
        check(&ready, &won, &["NodeSelectorContested"]);
        let odd = status(
            &[("Ready", "True", "Reconciled")],
            json!({ "driverVersion": "1", "kernelsWithoutMapping": ["6"] }),
        );
        check(&ready, &odd, &["UnsupportedKernel"]);
    }
}
