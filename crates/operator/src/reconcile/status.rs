//! Transitions of conditions that become events.
//!
//! In: conditions before and after. Out: [`Transition`]s. Never: a write.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use runtime::events::Severity;
use runtime::status::Transition;

/// What has come true, and what has come to be bad in another way.
#[must_use]
pub fn transitions(old: &[Condition], new: &[Condition]) -> Vec<Transition> {
    let is_true = |condition: &&Condition| condition.status == "True";
    let news = new.iter().filter(is_true).filter(|condition| {
        let before = old.iter().filter(is_true).find(|before| before.type_ == condition.type_);
        let bad = severity(condition) == Severity::Warning;
        before.is_none_or(|before| {
            bad && (&before.reason, &before.message) != (&condition.reason, &condition.message)
        })
    });
    // It says no more than that all is available.
    let news = news.filter(|condition| condition.type_ != crate::condition::UPGRADEABLE);
    let note = |condition: &Condition| match condition.message.as_str() {
        "" => condition.type_.clone(),
        message => message.to_owned(),
    };
    news.map(|condition| Transition {
        severity: severity(condition),
        reason: condition.reason.clone(),
        note: note(condition),
    })
    .collect()
}

fn severity(condition: &Condition) -> Severity {
    if condition.type_ == crate::condition::DEGRADED { Severity::Warning } else { Severity::Normal }
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
    fn transitions_tell_what_has_become_true() {
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
            let told = transitions(&old, &new);
            let texts: Vec<String> =
                told.iter().map(|turn| format!("{} {}", turn.reason, turn.note)).collect();
            assert_eq!(texts, want, "{new:?}");
            assert!(
                told.iter()
                    .all(|turn| (turn.severity == Severity::Warning) == (turn.reason == "InternalError"))
            );
        }
    }
}
