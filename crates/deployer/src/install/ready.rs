//! Readiness of definitions, DaemonSets and Deployments.
//!
//! In: an object from the API server. Out: its readiness. Never: a call.

use serde_json::Value;

use super::kinds::DEFINITION;
use super::step::WaitState;
use objects::ObjectKind;

/// The readiness of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Readiness {
    /// Ready, perhaps with a note for the user.
    Ready(Option<String>),
    /// Not ready yet.
    Pending(WaitState),
    /// Will not become ready, for this reason.
    Never(String),
}

/// The readiness of an object of this kind.
pub(super) fn readiness(kind: &ObjectKind, live: &Value) -> Readiness {
    match kind.group_kind() {
        DEFINITION => definition(live),
        ("apps", "DaemonSet") => daemon_set(live),
        ("apps", "Deployment") => deployment(live),
        _ => Readiness::Ready(None),
    }
}

/// The reasons in the object's status and finalizers why it is not gone yet.
pub(super) fn held_by(live: &Value) -> Vec<String> {
    let conditions = conditions(live).filter(|condition| {
        condition["status"] == "True"
            && condition["type"].as_str().is_some_and(|kind| kind.starts_with("Namespace"))
    });
    let mut reasons: Vec<String> =
        conditions.filter_map(|condition| condition["message"].as_str().map(str::to_owned)).collect();
    let finalizers = live["metadata"]["finalizers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let finalizers: Vec<&str> = finalizers.iter().filter_map(Value::as_str).collect();
    if !finalizers.is_empty() {
        reasons.push(format!("finalizers {} are not done", finalizers.join(", ")));
    }
    reasons
}

fn definition(live: &Value) -> Readiness {
    if condition(live, "Established", "True").is_some() {
        return Readiness::Ready(None);
    }
    match condition(live, "NamesAccepted", "False").and_then(|refused| refused["message"].as_str()) {
        Some(message) => Readiness::Never(message.to_owned()),
        None => Readiness::Pending(WaitState::NotEstablished),
    }
}

/// The readiness of a DaemonSet: each desired node has a ready pod of the newest revision. `live` is the observed
/// object.
#[must_use]
pub fn daemon_set(live: &Value) -> Readiness {
    if !observed(live) {
        return Readiness::Pending(WaitState::Unobserved);
    }
    let (desired, ready) = (number(live, "desiredNumberScheduled"), number(live, "numberReady"));
    let available = number(live, "numberAvailable");
    // With this strategy pods are replaced only after a manual deletion.
    let by_hand = live["spec"]["updateStrategy"]["type"] == "OnDelete";
    let updated = if by_hand { desired } else { number(live, "updatedNumberScheduled") };
    if desired == 0 {
        return Readiness::Ready(Some("no node matches, so it has no pods".to_owned()));
    }
    if updated >= desired && ready >= desired && available >= desired {
        return Readiness::Ready(None);
    }
    Readiness::Pending(WaitState::DaemonSet { desired, updated, ready: ready.min(available) })
}

/// The readiness of a Deployment: all replicas are available and of the newest revision. `live` is the observed object.
#[must_use]
pub fn deployment(live: &Value) -> Readiness {
    if !observed(live) {
        return Readiness::Pending(WaitState::Unobserved);
    }
    let wanted = live["spec"]["replicas"].as_i64().map_or(1, clamp);
    let (all, updated) = (number(live, "replicas"), number(live, "updatedReplicas"));
    let available = number(live, "availableReplicas");
    if updated >= wanted && all == updated && available >= wanted {
        return Readiness::Ready(None);
    }
    Readiness::Pending(WaitState::Deployment { replicas: wanted, updated, available })
}

/// Whether the controller has observed the newest generation.
fn observed(live: &Value) -> bool {
    live["status"]["observedGeneration"].as_i64() >= live["metadata"]["generation"].as_i64()
}

fn number(live: &Value, field: &str) -> i32 {
    live["status"][field].as_i64().map_or(0, clamp)
}

fn clamp(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// The condition of this type, if it has this status.
pub(crate) fn condition<'v>(live: &'v Value, kind: &str, status: &str) -> Option<&'v Value> {
    conditions(live).find(|condition| condition["type"] == kind && condition["status"] == status)
}

pub(super) fn conditions(live: &Value) -> impl Iterator<Item = &Value> {
    live["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn daemon_sets_are_ready_when_every_node_runs_the_newest() {
        let pending =
            |desired, updated, ready| Readiness::Pending(WaitState::DaemonSet { desired, updated, ready });
        // generation, observed, desired, updated, ready, available
        let table = [
            ([2, 1, 3, 3, 3, 3], Readiness::Pending(WaitState::Unobserved)),
            ([2, 2, 3, 3, 3, 3], Readiness::Ready(None)),
            ([2, 3, 3, 3, 3, 3], Readiness::Ready(None)),
            ([2, 2, 3, 2, 3, 3], pending(3, 2, 3)),
            ([2, 2, 3, 3, 2, 2], pending(3, 3, 2)),
            ([2, 2, 3, 3, 3, 1], pending(3, 3, 1)),
            ([2, 2, 0, 0, 0, 0], Readiness::Ready(Some("no node matches, so it has no pods".to_owned()))),
        ];
        for (numbers, want) in table {
            let [generation, observed, desired, updated, ready, available] = numbers;
            let live = json!({
                "metadata": { "generation": generation },
                "status": {
                    "observedGeneration": observed, "desiredNumberScheduled": desired, "numberReady": ready,
                    "updatedNumberScheduled": updated, "numberAvailable": available,
                },
            });
            assert_eq!(daemon_set(&live), want, "{numbers:?}");
        }
        let young = json!({ "metadata": { "generation": 1 }, "spec": {}, "status": {} });
        assert_eq!(daemon_set(&young), Readiness::Pending(WaitState::Unobserved));
        let by_hand = json!({
            "metadata": { "generation": 1 },
            "spec": { "updateStrategy": { "type": "OnDelete" } },
            "status": { "observedGeneration": 1, "desiredNumberScheduled": 1, "numberReady": 1, "numberAvailable": 1 },
        });
        assert_eq!(daemon_set(&by_hand), Readiness::Ready(None));
    }

    #[test]
    fn deployments_are_ready_when_only_the_newest_runs() {
        let pending = |replicas, updated, available| {
            Readiness::Pending(WaitState::Deployment { replicas, updated, available })
        };
        // wanted, observed, all, updated, available
        let table = [
            ([2, 1, 2, 2, 2], Readiness::Ready(None)),
            ([2, 0, 2, 2, 2], Readiness::Pending(WaitState::Unobserved)),
            ([2, 1, 3, 2, 3], pending(2, 2, 3)),
            ([2, 1, 2, 1, 2], pending(2, 1, 2)),
            ([2, 1, 2, 2, 1], pending(2, 2, 1)),
            ([0, 1, 0, 0, 0], Readiness::Ready(None)),
        ];
        for (numbers, want) in table {
            let [wanted, observed, all, updated, available] = numbers;
            let live = json!({
                "metadata": { "generation": 1 },
                "spec": { "replicas": wanted },
                "status": {
                    "observedGeneration": observed, "replicas": all, "updatedReplicas": updated,
                    "availableReplicas": available,
                },
            });
            assert_eq!(deployment(&live), want, "{numbers:?}");
        }
    }

    #[test]
    fn definitions_are_ready_when_they_are_served() {
        let live = |kind: &str, status: &str| json!({ "status": { "conditions": [{ "type": kind, "status": status, "message": "taken" }] } });
        let table = [
            (json!({}), Readiness::Pending(WaitState::NotEstablished)),
            (live("Established", "False"), Readiness::Pending(WaitState::NotEstablished)),
            (live("Established", "True"), Readiness::Ready(None)),
            (live("NamesAccepted", "True"), Readiness::Pending(WaitState::NotEstablished)),
            (live("NamesAccepted", "False"), Readiness::Never("taken".to_owned())),
        ];
        for (live, want) in table {
            assert_eq!(definition(&live), want, "{live}");
        }
    }

    #[test]
    fn finalizers_and_conditions_explain_a_pending_deletion() {
        let live = json!({
            "metadata": { "finalizers": ["example.com/a", "b"] },
            "status": { "conditions": [
                { "type": "NamespaceContentRemaining", "status": "True", "message": "pods. has 1 resource instances" },
                { "type": "NamespaceDeletionDiscoveryFailure", "status": "False", "message": "all good" },
            ] },
        });
        let want = ["pods. has 1 resource instances", "finalizers example.com/a, b are not done"];
        assert_eq!(held_by(&live), want);
        assert_eq!(held_by(&json!({})), [""; 0]);
    }
}
