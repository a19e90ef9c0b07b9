//! How far something that is waited for has got.
//!
//! In: an object as the API server shows it. Out: a verdict. Never: a call.

use serde_json::Value;

use super::progress::State;
use super::sorts::Role;

/// What waiting for an object to be ready has to say about it.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Nothing is left to wait for; with what people should know, if anything.
    Ready(Option<String>),
    /// Not yet.
    Pending(State),
    /// Never, for this reason.
    Hopeless(String),
}

/// Judges an object of this role.
pub(super) fn verdict(role: Role, live: &Value) -> Verdict {
    match role {
        Role::Definition => definition(live),
        Role::DaemonSet => daemon_set(live),
        Role::Deployment => deployment(live),
        Role::Namespace | Role::Other => Verdict::Ready(None),
    }
}

/// What keeps an object from disappearing, as far as it says.
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

fn definition(live: &Value) -> Verdict {
    let is = |kind: &str, status: &str| {
        conditions(live).any(|condition| condition["type"] == kind && condition["status"] == status)
    };
    if is("Established", "True") {
        return Verdict::Ready(None);
    }
    let refused = conditions(live)
        .find(|condition| condition["type"] == "NamesAccepted" && condition["status"] == "False");
    match refused.and_then(|condition| condition["message"].as_str()) {
        Some(message) => Verdict::Hopeless(message.to_owned()),
        None => Verdict::Pending(State::NotEstablished),
    }
}

/// Judges a DaemonSet: its controller has seen the newest revision, and every node that should run it runs that.
#[must_use]
pub fn daemon_set(live: &Value) -> Verdict {
    if !observed(live) {
        return Verdict::Pending(State::Unobserved);
    }
    let (desired, ready) = (number(live, "desiredNumberScheduled"), number(live, "numberReady"));
    let available = number(live, "numberAvailable");
    // Pods of this strategy are replaced when somebody deletes them.
    let by_hand = live["spec"]["updateStrategy"]["type"] == "OnDelete";
    let updated = if by_hand { desired } else { number(live, "updatedNumberScheduled") };
    if desired == 0 {
        return Verdict::Ready(Some("no node matches, so it has no pods".to_owned()));
    }
    if updated >= desired && ready >= desired && available >= desired {
        return Verdict::Ready(None);
    }
    Verdict::Pending(State::DaemonSet { desired, updated, ready: ready.min(available) })
}

/// Judges a Deployment: its controller has seen the newest revision, and nothing else runs.
#[must_use]
pub fn deployment(live: &Value) -> Verdict {
    if !observed(live) {
        return Verdict::Pending(State::Unobserved);
    }
    let wanted = live["spec"]["replicas"].as_i64().map_or(1, clamp);
    let (all, updated) = (number(live, "replicas"), number(live, "updatedReplicas"));
    let available = number(live, "availableReplicas");
    if updated >= wanted && all == updated && available >= wanted {
        return Verdict::Ready(None);
    }
    Verdict::Pending(State::Deployment { replicas: wanted, updated, available })
}

/// Whether its controller has seen its newest revision.
fn observed(live: &Value) -> bool {
    live["status"]["observedGeneration"].as_i64() >= live["metadata"]["generation"].as_i64()
}

fn number(live: &Value, field: &str) -> i32 {
    live["status"][field].as_i64().map_or(0, clamp)
}

fn clamp(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
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
            |desired, updated, ready| Verdict::Pending(State::DaemonSet { desired, updated, ready });
        // generation, observed, desired, updated, ready, available
        let table = [
            ([2, 1, 3, 3, 3, 3], Verdict::Pending(State::Unobserved)),
            ([2, 2, 3, 3, 3, 3], Verdict::Ready(None)),
            ([2, 3, 3, 3, 3, 3], Verdict::Ready(None)),
            ([2, 2, 3, 2, 3, 3], pending(3, 2, 3)),
            ([2, 2, 3, 3, 2, 2], pending(3, 3, 2)),
            ([2, 2, 3, 3, 3, 1], pending(3, 3, 1)),
            ([2, 2, 0, 0, 0, 0], Verdict::Ready(Some("no node matches, so it has no pods".to_owned()))),
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
            assert_eq!(verdict(Role::DaemonSet, &live), want, "{numbers:?}");
        }
        let young = json!({ "metadata": { "generation": 1 }, "spec": {}, "status": {} });
        assert_eq!(verdict(Role::DaemonSet, &young), Verdict::Pending(State::Unobserved));
        let by_hand = json!({
            "metadata": { "generation": 1 },
            "spec": { "updateStrategy": { "type": "OnDelete" } },
            "status": { "observedGeneration": 1, "desiredNumberScheduled": 1, "numberReady": 1, "numberAvailable": 1 },
        });
        assert_eq!(verdict(Role::DaemonSet, &by_hand), Verdict::Ready(None));
    }

    #[test]
    fn deployments_are_ready_when_only_the_newest_runs() {
        let pending = |replicas, updated, available| {
            Verdict::Pending(State::Deployment { replicas, updated, available })
        };
        // wanted, observed, all, updated, available
        let table = [
            ([2, 1, 2, 2, 2], Verdict::Ready(None)),
            ([2, 0, 2, 2, 2], Verdict::Pending(State::Unobserved)),
            ([2, 1, 3, 2, 3], pending(2, 2, 3)),
            ([2, 1, 2, 1, 2], pending(2, 1, 2)),
            ([2, 1, 2, 2, 1], pending(2, 2, 1)),
            ([0, 1, 0, 0, 0], Verdict::Ready(None)),
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
            assert_eq!(verdict(Role::Deployment, &live), want, "{numbers:?}");
        }
    }

    #[test]
    fn definitions_are_ready_when_they_are_served() {
        let live = |kind: &str, status: &str| json!({ "status": { "conditions": [{ "type": kind, "status": status, "message": "taken" }] } });
        let table = [
            (json!({}), Verdict::Pending(State::NotEstablished)),
            (live("Established", "False"), Verdict::Pending(State::NotEstablished)),
            (live("Established", "True"), Verdict::Ready(None)),
            (live("NamesAccepted", "True"), Verdict::Pending(State::NotEstablished)),
            (live("NamesAccepted", "False"), Verdict::Hopeless("taken".to_owned())),
        ];
        for (live, want) in table {
            assert_eq!(verdict(Role::Definition, &live), want, "{live}");
        }
    }

    #[test]
    fn what_holds_an_object_is_named() {
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
