//! Objects as text, for `kubectl apply -f` and for readers.
//!
//! In: objects. Out: YAML documents, each after a line `---`, or one JSON List, with sorted keys. Never: a status or
//! creation time, any other change.

use serde_json::{Value, json};

use super::Error;
use objects::Object;

/// Objects as YAML, in their order.
///
/// # Errors
/// When an object has no YAML form.
pub fn render_objects<'o>(objects: impl IntoIterator<Item = &'o Object>) -> Result<String, Error> {
    let document = |object: &Object| {
        let text = runtime::yaml::write(&clean(object.body()));
        text.map(|text| format!("---\n{text}")).map_err(|error| Error::Text(object.to_string(), error.reason))
    };
    objects.into_iter().map(document).collect()
}

/// Objects as one JSON List with a final newline, in their order.
#[must_use]
pub fn render_objects_json<'o>(objects: impl IntoIterator<Item = &'o Object>) -> String {
    let items: Vec<Value> = objects.into_iter().map(|object| clean(object.body())).collect();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    format!("{list:#}\n")
}

/// Without `status` and creation times, the object's own and its pod template's.
fn clean(body: &Value) -> Value {
    let mut body = body.clone();
    for path in ["", "/template", "/spec/template"] {
        if let Some(metadata) = body.pointer_mut(&format!("{path}/metadata")).and_then(Value::as_object_mut) {
            metadata.remove("creationTimestamp");
        }
    }
    if let Some(object) = body.as_object_mut() {
        object.remove("status");
    }
    body
}
