//! Structural schemas in few words, and definitions that have one. What is not named in an object's fields, the
//! API server refuses.

use serde_json::{Map, Value, json};

/// What a CustomResourceDefinition of one version is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Definition<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) plural: &'a str,
    pub(crate) short: Option<&'a str>,
    /// `Cluster` or `Namespaced`.
    pub(crate) scope: &'a str,
}

impl Definition<'_> {
    /// The CustomResourceDefinition, as JSON: objects of this schema, with a status of its own.
    pub(crate) fn of(self, mut schema: Value) -> Value {
        let Self { group, version, kind, plural, short, scope } = self;
        for field in ["apiVersion", "kind"] {
            schema["properties"][field] = text();
        }
        schema["properties"]["metadata"] = json!({ "type": "object" });
        let mut names = json!({
            "kind": kind,
            "listKind": format!("{kind}List"),
            "plural": plural,
            "singular": kind.to_lowercase(),
        });
        if let Some(short) = short {
            names["shortNames"] = json!([short]);
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.{group}") },
            "spec": {
                "group": group,
                "names": names,
                "scope": scope,
                "versions": [{
                    "name": version,
                    "served": true,
                    "storage": true,
                    "subresources": { "status": {} },
                    "schema": { "openAPIV3Schema": schema },
                }],
            },
        })
    }
}

pub(crate) fn text() -> Value {
    json!({ "type": "string" })
}

pub(crate) fn one_of(words: &[&str]) -> Value {
    json!({ "type": "string", "enum": words })
}

pub(crate) fn boolean() -> Value {
    json!({ "type": "boolean" })
}

pub(crate) fn integer() -> Value {
    json!({ "type": "integer" })
}

pub(crate) fn time() -> Value {
    json!({ "type": "string", "format": "date-time" })
}

pub(crate) fn number_or_text() -> Value {
    json!({ "anyOf": [{ "type": "integer" }, { "type": "string" }], "x-kubernetes-int-or-string": true })
}

pub(crate) fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

/// Words to words, such as labels.
pub(crate) fn words() -> Value {
    json!({ "type": "object", "additionalProperties": text() })
}

/// Any object: its fields are defined elsewhere.
pub(crate) fn anything() -> Value {
    json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

pub(crate) fn nullable(mut schema: Value) -> Value {
    schema["nullable"] = true.into();
    schema
}

/// An object of exactly these fields; the names that must be there come first.
pub(crate) fn object<const N: usize>(required: &[&str], fields: [(&str, Value); N]) -> Value {
    let fields: Map<String, Value> =
        fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    let mut schema = json!({ "type": "object", "properties": fields });
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema
}

/// Fields of which each is this.
pub(crate) fn each<const N: usize>(names: [&'static str; N], schema: &Value) -> [(&'static str, Value); N] {
    names.map(|name| (name, schema.clone()))
}

/// A label selector.
pub(crate) fn selector() -> Value {
    let expression = object(
        &["key", "operator"],
        [
            ("key", text()),
            ("operator", one_of(&["In", "NotIn", "Exists", "DoesNotExist"])),
            ("values", list(text())),
        ],
    );
    object(&[], [("matchLabels", words()), ("matchExpressions", list(expression))])
}

/// Conditions as all of OpenShift's objects have them.
pub(crate) fn conditions() -> Value {
    let condition = object(
        &["type", "status", "lastTransitionTime"],
        [
            ("type", text()),
            ("status", one_of(&["True", "False", "Unknown"])),
            ("lastTransitionTime", time()),
            ("reason", text()),
            ("message", text()),
        ],
    );
    list(condition)
}
