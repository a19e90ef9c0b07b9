//! Objects as text, for `kubectl apply -f` and for readers.
//!
//! In: objects. Out: YAML documents, each after a line `---`, with names before all else; or one JSON List, with sorted
//! keys. Never: a status or creation time, any other change.

use serde::ser::{Serialize, SerializeMap as _, SerializeSeq as _, Serializer};
use serde_json::{Value, json};

use super::Error;
use objects::Object;

/// Objects as YAML, in their order.
///
/// # Errors
/// When an object has no YAML form.
pub fn render_objects<'o>(objects: impl IntoIterator<Item = &'o Object>) -> Result<String, Error> {
    let document = |object: &Object| {
        let text = runtime::yaml::write(&NameFirst(&clean(object.body())));
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

/// The keys that say of an object or a container what it is, in the order in which people read them.
const NAMING: [&str; 8] = ["apiVersion", "kind", "metadata", "name", "namespace", "image", "command", "args"];

/// A value whose maps have the keys of [`NAMING`] first, then all others, sorted.
struct NameFirst<'v>(&'v Value);

impl Serialize for NameFirst<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(object) => {
                let mut map = serializer.serialize_map(Some(object.len()))?;
                let naming = NAMING.iter().filter_map(|key| object.get_key_value(*key));
                let others = object.iter().filter(|(key, _)| !NAMING.contains(&key.as_str()));
                for (key, value) in naming.chain(others) {
                    map.serialize_entry(key, &Self(value))?;
                }
                map.end()
            }
            Value::Array(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(&Self(item))?;
                }
                list.end()
            }
            scalar => scalar.serialize(serializer),
        }
    }
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
