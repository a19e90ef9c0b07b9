//! The status of our users' objects: what is written of it, and what is said about it.
//!
//! In: a status as it is and as it should be. Out: a patch, if there is a difference; what people should hear. Never: a write of what is there.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use runtime::events::Severity;
use serde_json::{Map, Value};

/// What people hear of a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// How bad it is.
    pub severity: Severity,
    /// Why, in one word.
    pub reason: String,
    /// For people.
    pub note: String,
}

/// The merge patch (RFC 7386) that makes `new` of `old`; `None`: they are the same.
#[must_use]
pub fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Some(before), Some(after)) = (old.as_object(), new.as_object()) else { return Some(new.clone()) };
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = after.iter().filter_map(|(key, value)| {
        let before = before.get(key).unwrap_or(&Value::Null);
        merge_patch(before, value).map(|patch| (key.clone(), patch))
    });
    Some(Value::Object(gone.chain(changed).collect::<Map<_, _>>()))
}

/// What has come true, and what has come to be bad in another way.
#[must_use]
pub fn turns(old: &[Condition], new: &[Condition]) -> Vec<Turn> {
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
    news.map(|condition| Turn {
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
    use serde_json::json;

    use super::*;

    #[test]
    fn the_patch_says_what_differs_and_what_is_gone() {
        let table = [
            (json!({}), json!({}), None),
            (json!({ "a": 1, "b": [1] }), json!({ "a": 1, "b": [1] }), None),
            (json!({ "a": 1 }), json!({ "a": 2 }), Some(json!({ "a": 2 }))),
            (json!({ "a": 1, "b": 2 }), json!({ "b": 2 }), Some(json!({ "a": null }))),
            (json!({ "a": [1, 2] }), json!({ "a": [1] }), Some(json!({ "a": [1] }))),
            (
                json!({ "a": { "b": 1, "c": 2 } }),
                json!({ "a": { "c": 3 } }),
                Some(json!({ "a": { "b": null, "c": 3 } })),
            ),
            (json!({ "a": { "b": 1 } }), json!({ "a": 1 }), Some(json!({ "a": 1 }))),
            (json!({}), json!({ "a": { "b": 1 } }), Some(json!({ "a": { "b": 1 } }))),
        ];
        for (old, new, want) in table {
            let patch = merge_patch(&old, &new);
            assert_eq!(patch, want, "{old} {new}");
            let mut patched = old.clone();
            if let Some(patch) = &patch {
                json_patch::merge(&mut patched, patch);
            }
            assert_eq!(patched, new);
        }
    }

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
    fn people_hear_what_has_come_true() {
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
            let told = turns(&old, &new);
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
