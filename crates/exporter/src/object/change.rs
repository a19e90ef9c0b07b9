//! One change of an object in two notations: a JSON merge patch (RFC 7396), which cannot fail, and a JSON patch (RFC
//! 6902), which names single values and is far shorter where lists are long.
//!
//! In: a merge patch; the object it is for. Out: the same as a JSON patch, where that is shorter. Never: a different
//! result: applied to that object both give the same.
//!
//! Lists are the reason: a merge patch can only state them whole, and on a machine with 32 zones that is 39 KB, of
//! which one number has changed. A JSON patch addresses values by index, so it holds for this version of the object
//! only. It carries the version, as the merge patch does.

use api::nrt::NodeResourceTopology;
use json_patch::jsonptr::{PointerBuf, Token};
use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::{Value, json};

/// A change of the object, based on one version of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// As a merge patch.
    pub merge: Value,
    /// As a JSON patch, if that is shorter.
    pub edit: Option<json_patch::Patch>,
}

impl Change {
    /// The change that `merge` makes to `stored`. Costs about as much as serializing the object twice.
    #[must_use]
    pub fn new(merge: Value, stored: &NodeResourceTopology) -> Self {
        let edit =
            stored.metadata.resource_version.as_ref().map(|version| edit(&merge, &json!(stored), version));
        let edit = edit.filter(|edit| size(edit) < size(&merge));
        Self { merge, edit }
    }

    /// The size of the request body in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.edit.as_ref().map_or_else(|| size(&self.merge), size)
    }
}

fn size(value: &impl serde::Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |text| text.len())
}

fn edit(merge: &Value, stored: &Value, version: &str) -> json_patch::Patch {
    let mut operations = Vec::new();
    members(merge, stored, &PointerBuf::new(), &mut operations);
    // The value is the same, so nothing changes; stating it makes the server refuse another version.
    let path = PointerBuf::from_tokens(["metadata", "resourceVersion"]);
    operations.push(PatchOperation::Replace(ReplaceOperation { path, value: version.into() }));
    json_patch::Patch(operations)
}

/// The operations that change the object `stored` at `path` as merging `merge` into it would.
fn members(merge: &Value, stored: &Value, path: &PointerBuf, operations: &mut Vec<PatchOperation>) {
    for (key, wanted) in merge.as_object().into_iter().flatten() {
        let mut path = path.clone();
        path.push_back(Token::new(key.as_str()));
        match (stored.get(key), wanted) {
            (None, Value::Null) => {}
            (Some(_), Value::Null) => operations.push(PatchOperation::Remove(RemoveOperation { path })),
            (Some(stored @ Value::Object(_)), Value::Object(_)) => members(wanted, stored, &path, operations),
            (Some(Value::Array(stored)), Value::Array(wanted)) if stored.len() == wanted.len() => {
                elements(stored, wanted, &path, operations);
            }
            (Some(stored), wanted) if stored == wanted => {}
            (_, wanted) => {
                let mut value = Value::Null;
                // Removes members that are null.
                json_patch::merge(&mut value, wanted);
                operations.push(PatchOperation::Add(AddOperation { path, value }));
            }
        }
    }
}

/// The same for two lists of one length; lists are replaced, not merged.
fn elements(stored: &[Value], wanted: &[Value], path: &PointerBuf, operations: &mut Vec<PatchOperation>) {
    for (index, (stored, wanted)) in stored.iter().zip(wanted).enumerate() {
        let mut path = path.clone();
        path.push_back(Token::from(index));
        for mut operation in json_patch::diff(stored, wanted).0 {
            let place = match &mut operation {
                PatchOperation::Add(add) => &mut add.path,
                PatchOperation::Remove(remove) => &mut remove.path,
                PatchOperation::Replace(replace) => &mut replace.path,
                // `diff` uses only the three operations above.
                PatchOperation::Move(_) | PatchOperation::Copy(_) | PatchOperation::Test(_) => continue,
            };
            *place = path.concat(place);
            operations.push(operation);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The JSON patch does the same as the merge patch, whatever the two values are.
    fn same(stored: &Value, merge: &Value) -> Result<(), TestCaseError> {
        let mut merged = stored.clone();
        json_patch::merge(&mut merged, merge);
        let mut edited = stored.clone();
        let edit = edit(merge, stored, "7");
        json_patch::patch(&mut edited, &edit)
            .map_err(|error| TestCaseError::fail(format!("{edit}: {error}")))?;
        prop_assert_eq!(&edited, &merged, "{}", edit);
        Ok(())
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..3).prop_map(Value::from),
            "[a/~ ]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c/~]{1,2}", inner, 0..4).prop_map(|map| json!(map)),
            ]
        })
    }

    fn any_object() -> impl Strategy<Value = Value> {
        let members = prop::collection::btree_map("[a-c/~]{1,2}", any_value(), 0..5);
        members.prop_map(|members| {
            let mut object = json!(members);
            object["metadata"] = json!({ "resourceVersion": "7" });
            object
        })
    }

    proptest! {
        #[test]
        fn both_notations_say_the_same(stored in any_object(), merge in any_object()) {
            same(&stored, &merge)?;
        }
    }

    #[test]
    fn one_number_of_a_long_list_travels_alone() {
        let zones = |available: &str| {
            let zone = |id: usize| {
                let available = if id == 20 { available } else { "16" };
                json!({ "name": format!("node-{id}"), "resources": [{ "name": "cpu", "available": available }] })
            };
            json!({ "metadata": { "resourceVersion": "7" }, "zones": (0..32).map(zone).collect::<Vec<_>>() })
        };
        let edit = edit(&zones("9"), &zones("16"), "7");
        let wanted = json!([
            { "op": "replace", "path": "/zones/20/resources/0/available", "value": "9" },
            { "op": "replace", "path": "/metadata/resourceVersion", "value": "7" },
        ]);
        assert_eq!(json!(edit), wanted);
    }

    #[test]
    fn an_object_of_unknown_version_is_not_edited() {
        let stored = NodeResourceTopology::default();
        let merge = json!({ "zones": [], "attributes": [{ "name": "a", "value": "b" }] });
        assert_eq!(Change::new(merge.clone(), &stored), Change { merge, edit: None });
    }
}
