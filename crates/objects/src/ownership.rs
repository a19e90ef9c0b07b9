//! Whose an object is.
//!
//! In: an object as the API server has it, and the rule of one program. Out: whether the object is that program's, and
//! who made it. Never: a guess from the name alone.

use serde_json::Value;

use crate::ObjectKey;
use crate::managed_fields::{applied_by, entries};

/// The label that names the program that manages an object.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// The rule by which a program knows its own objects.
#[derive(Clone, Copy, Debug)]
pub struct Ownership<'a> {
    /// The field manager of the program's writes.
    pub manager: &'a str,
    /// Labels that mark an object as the program's; an object needs all of them.
    pub marks: &'a [(&'a str, &'a str)],
    /// Evidence that counts as well as the marks.
    pub evidence: fn(&ObjectKey, &Value) -> bool,
}

impl<'a> Ownership<'a> {
    /// A rule by which nothing but the marks counts.
    #[must_use]
    pub const fn by_marks(manager: &'a str, marks: &'a [(&'a str, &'a str)]) -> Self {
        Self { manager, marks, evidence: |_, _| false }
    }

    /// Whether an object is the program's. Cost grows with the number of marks.
    #[must_use]
    pub fn owns(&self, key: &ObjectKey, observed: &Value) -> bool {
        let labels = &observed["metadata"]["labels"];
        self.marks.iter().all(|(label, value)| labels[*label] == *value) || (self.evidence)(key, observed)
    }

    /// Whether the program has applied fields of an object.
    #[must_use]
    pub fn has_applied(&self, observed: &Value) -> bool {
        applied_by(self.manager, observed).next().is_some()
    }
}

/// The maker of an object, for messages: the value of [`MANAGED_BY_LABEL`], else its field managers.
#[must_use]
pub fn maker(observed: &Value) -> String {
    if let Some(maker) = observed["metadata"]["labels"][MANAGED_BY_LABEL].as_str() {
        return maker.to_owned();
    }
    let mut managers: Vec<&str> = entries(observed)
        .iter()
        .filter(|entry| entry["subresource"].is_null())
        .filter_map(|entry| entry["manager"].as_str())
        .collect();
    managers.sort_unstable();
    managers.dedup();
    if managers.is_empty() { "nobody known".to_owned() } else { managers.join(", ") }
}

/// The owner references of an object.
#[must_use]
pub fn references(observed: &Value) -> &[Value] {
    observed["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The UID of an object; empty if it has none.
#[must_use]
pub fn uid(observed: &Value) -> &str {
    observed["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Whether an object is being deleted.
#[must_use]
pub fn is_terminating(observed: &Value) -> bool {
    !observed["metadata"]["deletionTimestamp"].is_null()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ObjectKind;

    #[test]
    fn marks_or_evidence_make_an_object_ours() {
        let key = ObjectKey {
            kind: ObjectKind::new("", "v1", "ConfigMap", "configmaps"),
            namespace: None,
            name: "x".to_owned(),
        };
        let marks = [("a", "1"), ("b", "2")];
        let rule = Ownership::by_marks("us", &marks);
        let evident = Ownership { evidence: |_, observed| observed["data"] == "ours", ..rule };
        // labels, data -> ours by marks, ours by marks or evidence
        let table = [
            (json!({ "a": "1", "b": "2", "c": "3" }), json!(null), true, true),
            (json!({ "a": "1" }), json!(null), false, false),
            (json!({ "a": "1" }), json!("ours"), false, true),
            (json!(null), json!("ours"), false, true),
        ];
        for (labels, data, by_marks, by_evidence) in table {
            let observed = json!({ "metadata": { "labels": labels }, "data": data });
            assert_eq!(rule.owns(&key, &observed), by_marks, "{observed}");
            assert_eq!(evident.owns(&key, &observed), by_evidence, "{observed}");
        }
    }

    #[test]
    fn the_maker_is_named_by_label_or_by_field_managers() {
        let fields = json!([
            { "manager": "kubectl" }, { "manager": "helm" }, { "manager": "kubectl" },
            { "manager": "kubelet", "subresource": "status" },
        ]);
        let table = [
            (json!({ "labels": { (MANAGED_BY_LABEL): "argo" }, "managedFields": fields }), "argo"),
            (json!({ "managedFields": fields }), "helm, kubectl"),
            (json!({}), "nobody known"),
        ];
        for (metadata, wanted) in table {
            assert_eq!(maker(&json!({ "metadata": metadata })), wanted);
        }
    }
}
