//! Objects as text, for `kubectl apply -f` and for readers.
//!
//! In: parts. Out: YAML documents, each after a line `---`, or one JSON List, with sorted keys. Never: a status or
//! creation time, any other change.

use serde_json::{Value, json};

use super::Error;
use crate::part::Part;
use objects::Object;

/// All objects as YAML, in the order of installation.
///
/// # Errors
/// When an object has no YAML form.
pub fn render(parts: &[Part]) -> Result<String, Error> {
    render_objects(parts.iter().flat_map(Part::objects))
}

/// The same for objects without a part.
///
/// # Errors
/// As [`render`].
pub fn render_objects<'o>(objects: impl IntoIterator<Item = &'o Object>) -> Result<String, Error> {
    let document = |object: &Object| {
        let text = runtime::yaml::write(&clean(object.body()));
        text.map(|text| format!("---\n{text}")).map_err(|error| Error::Text(object.to_string(), error.reason))
    };
    objects.into_iter().map(document).collect()
}

/// All objects as one JSON List with a final newline, in the order of installation.
#[must_use]
pub fn render_json(parts: &[Part]) -> String {
    render_objects_json(parts.iter().flat_map(Part::objects))
}

/// The same for objects without a part.
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
