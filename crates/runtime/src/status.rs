//! The status of objects: patches, and transitions that become events.
//!
//! In: the observed and the desired status. Out: a patch if they differ. Never: a write.

use serde_json::{Map, Value};

use crate::events::Severity;

/// A change of a condition that becomes an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The severity of the event.
    pub severity: Severity,
    /// The reason: one word in CamelCase.
    pub reason: String,
    /// The note: a sentence for people.
    pub note: String,
}

/// The merge patch (RFC 7386) that turns `old` into `new`; `None` if they are equal.
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

#[cfg(test)]
mod tests {
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
}
