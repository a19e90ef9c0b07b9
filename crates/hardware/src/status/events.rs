//! Transitions of the status as events.
//!
//! In: a status before and after. Out: events, for what is different and no more. Never: an event about what stays as
//! it is.

use api::hardware::{NodeProblem, Phase, Status, keys};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use runtime::events::Severity;
use runtime::status::Transition;

use crate::reasons::{EventReason, ProblemReason, Reason};

/// What turned.
#[must_use]
pub fn turns(before: &Status, after: &Status) -> Vec<Transition> {
    let mut turns = Vec::new();
    let mut tell = |severity, reason: &str, note: String| {
        turns.push(Transition { severity, reason: reason.to_owned(), note });
    };
    let told = |name| (said(before, name), said(after, name));
    let turned = |name, status: &str| match told(name) {
        (old, Some(new)) if new.status == status => {
            let same = old.is_some_and(|old| old.status == new.status && old.reason == new.reason);
            (!same).then_some(new)
        }
        _ => None,
    };
    if let Some(ready) = turned(keys::READY, "True") {
        tell(Severity::Normal, Reason::Reconciled.word(), ready.message.clone());
    }
    for name in [keys::ERRORED, keys::DEGRADED] {
        // Of pods that do not go each node is told below.
        if let Some(bad) = turned(name, "True").filter(|bad| bad.reason != Reason::EvictionTimeout.word()) {
            tell(Severity::Warning, &bad.reason, bad.message.clone());
        }
    }
    if let Some(invalid) = turned(keys::NODE_SELECTOR_VALID, "False")
        && turned(keys::ERRORED, "True").is_none_or(|errored| errored.reason != invalid.reason)
    {
        tell(Severity::Warning, &invalid.reason, invalid.message.clone());
    }
    if let Some(may) = turned(keys::NODE_SELECTOR_VALID, "True")
        .filter(|may| may.reason == Reason::NodeSelectorMayOverlap.word())
    {
        tell(Severity::Normal, &may.reason, may.message.clone());
    }
    if let Some(moving) = turned(keys::PROGRESSING, "True") {
        tell(Severity::Normal, &moving.reason, moving.message.clone());
    }
    for conflict in after.conflicts.iter().filter(|conflict| conflict.won) {
        let known = |one: &api::hardware::Conflict| {
            (one.won, &one.namespace, &one.name) == (true, &conflict.namespace, &conflict.name)
        };
        if !before.conflicts.iter().any(known) {
            let note = format!(
                "DeviceConfig {}/{} asks for {} nodes of this one too, such as {}, and does not get them",
                conflict.namespace,
                conflict.name,
                conflict.count,
                conflict.nodes.first().map_or("", String::as_str)
            );
            tell(Severity::Normal, EventReason::NodeSelectorContested.word(), note);
        }
    }
    let stays = |one: &&NodeProblem| one.reason == ProblemReason::EvictionTimeout.word();
    for problem in after.problems.iter().filter(stays) {
        if !before.problems.iter().filter(stays).any(|known| known.node == problem.node) {
            tell(
                Severity::Warning,
                EventReason::EvictionTimeout.word(),
                format!("node {}: {}", problem.node, problem.message),
            );
        }
    }
    let new = |kernel: &&String| !before.kernels_without_mapping.contains(kernel);
    let kernels: Vec<&str> = after.kernels_without_mapping.iter().filter(new).map(String::as_str).collect();
    if !kernels.is_empty() && after.phase != Some(Phase::Deleting) {
        let note = format!("no entry of spec.kernelMappings matches kernel {}", kernels.join(", "));
        tell(Severity::Warning, EventReason::UnsupportedKernel.word(), note);
    }
    let former = before.upgrading_from.as_ref().or(before.driver_version.as_ref());
    if let (Some(old), Some(new), None) = (former, &after.driver_version, &after.upgrading_from)
        && old != new
    {
        tell(
            Severity::Normal,
            EventReason::Upgraded.word(),
            format!("all nodes have version {new}; before some had {old}"),
        );
    }
    turns.dedup();
    turns
}

fn said<'a>(status: &'a Status, name: &str) -> Option<&'a Condition> {
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
    fn what_turns_is_told_once() {
        let check = |before: &Status, after: &Status, wanted: &[&str]| {
            let reasons: Vec<String> = turns(before, after).into_iter().map(|turn| turn.reason).collect();
            assert_eq!(reasons, wanted);
            assert_eq!(turns(after, after), []);
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
        // Between the two nodes differ, or the last one has none.
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
