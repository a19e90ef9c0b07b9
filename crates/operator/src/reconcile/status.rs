//! Conditions that become events, and references to related objects.
//!
//! In: conditions before and after. Out: [`Transition`]s. Never: a write.

use api::numaresources::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use runtime::events::Severity;
use runtime::status::Transition;

use crate::cluster_state::ClusterState;
use crate::condition::{DEGRADED, State, UPGRADEABLE};

/// A reason: the user's object controls workloads in another namespace too.
pub const OPERANDS_ELSEWHERE: &str = "OperandsInOtherNamespace";

/// The state of a user's object that controls workloads of this kind in other namespaces; `None`: it controls none.
#[must_use]
pub fn elsewhere(cluster: &ClusterState, kind: &str) -> Option<State> {
    let there = cluster.elsewhere.iter().filter(|key| key.kind.kind == kind);
    let there: Vec<String> = there.map(ToString::to_string).collect();
    let message = || {
        format!(
            "this object controls workloads in another namespace than the operator's, which is {}: {}; another operator \
             works there, or left them; remove either operator with its workloads",
            cluster.environment.namespace,
            there.join(", ")
        )
    };
    (!there.is_empty()).then(|| State::degraded(OPERANDS_ELSEWHERE, message()))
}

/// The conditions that became true, and degraded ones whose reason or message changed.
#[must_use]
pub fn transitions(old: &[Condition], new: &[Condition]) -> Vec<Transition> {
    let is_true = |condition: &&Condition| condition.status == "True";
    let transition = |new: &Condition| {
        let severity = if new.type_ == DEGRADED { Severity::Warning } else { Severity::Normal };
        let before = old.iter().filter(is_true).find(|before| before.type_ == new.type_);
        let is_told = before.is_some_and(|before| {
            severity == Severity::Normal || (&before.reason, &before.message) == (&new.reason, &new.message)
        });
        let note = if new.message.is_empty() { &new.type_ } else { &new.message };
        (!is_told).then(|| Transition { severity, reason: new.reason.clone(), note: note.clone() })
    };
    // Upgradeable repeats Available.
    new.iter().filter(is_true).filter(|new| new.type_ != UPGRADEABLE).filter_map(transition).collect()
}

/// A reference to an object for tools that collect objects; empty texts stand for all objects.
#[must_use]
pub fn related_object(group: &str, resource: &str, namespace: &str, name: &str) -> ObjectReference {
    let [group, resource, namespace, name] = [group, resource, namespace, name].map(str::to_owned);
    ObjectReference { group, resource, namespace, name }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Condition {
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
            observed_generation: None,
        }
    }

    #[test]
    fn transitions_are_conditions_that_became_true() {
        let available = |status: &str| condition("Available", status, "Available", "");
        let degraded = |status: &str, message: &str| condition("Degraded", status, "InternalError", message);
        let table = [
            (
                vec![],
                vec![available("True"), condition("Upgradeable", "True", "Upgradeable", "")],
                vec!["Available Available"],
            ),
            (vec![available("True")], vec![available("True")], vec![]),
            (vec![available("False")], vec![available("True")], vec!["Available Available"]),
            (
                vec![available("True")],
                vec![available("False"), degraded("True", "a")],
                vec!["InternalError a"],
            ),
            (vec![degraded("True", "a")], vec![degraded("True", "a")], vec![]),
            (vec![degraded("True", "a")], vec![degraded("True", "b")], vec!["InternalError b"]),
            (vec![degraded("True", "a")], vec![degraded("False", "")], vec![]),
            (
                vec![condition("Progressing", "True", "R", "1 of 3")],
                vec![condition("Progressing", "True", "R", "2 of 3")],
                vec![],
            ),
        ];
        for (old, new, want) in table {
            let transitions = transitions(&old, &new);
            let texts: Vec<String> =
                transitions.iter().map(|one| format!("{} {}", one.reason, one.note)).collect();
            assert_eq!(texts, want, "{new:?}");
            let is_right =
                |one: &Transition| (one.severity == Severity::Warning) == (one.reason == "InternalError");
            assert!(transitions.iter().all(is_right));
        }
    }
}
