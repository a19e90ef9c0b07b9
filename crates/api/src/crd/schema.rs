//! From a type to the structural schema of its objects.
//!
//! In: a type with `JsonSchema`. Out: `openAPIV3Schema`. Never: a keyword that an API server refuses (references,
//! titles, `oneOf` of single values), or a default that the type does not request with `x-default` (`x-nullable`
//! requests `null`).

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray,
};
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value};

/// The structural schema of a type, with the three fields every object has.
pub(super) fn schema<T: JsonSchema>() -> JSONSchemaProps {
    let mut settings = SchemaSettings::openapi3();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let generator = settings.with_transform(RecursiveTransform(structural)).into_generator();
    let schema = generator.into_root_schema_for::<T>();
    // A schema that cannot be read would be a defect of the types; the snapshot test sees every one of them.
    let mut props: JSONSchemaProps = serde_json::from_value(schema.to_value()).unwrap_or_default();
    props.title = None;
    let property = |kind: &str, description: &str| JSONSchemaProps {
        type_: Some(kind.to_owned()),
        description: (!description.is_empty()).then(|| description.to_owned()),
        ..JSONSchemaProps::default()
    };
    let properties = props.properties.get_or_insert_default();
    properties
        .insert("apiVersion".to_owned(), property("string", "Group and version of this object's schema."));
    properties.insert("kind".to_owned(), property("string", "Kind of this object."));
    // The API server defines metadata itself and refuses further properties.
    properties.insert("metadata".to_owned(), property("object", ""));
    props
}

/// Removes rules, and the bounds that rules need, from a status: controllers must be able to report values that break
/// them.
pub(super) fn without_rules(props: &mut JSONSchemaProps) {
    if props.x_kubernetes_validations.take().is_some() {
        props.max_length = None;
    }
    props.max_items = None;
    props.properties.iter_mut().flatten().for_each(|(_, property)| without_rules(property));
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut props.items {
        without_rules(items);
    }
}

/// Turns schemars' output into a structural schema.
fn structural(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else { return };
    for (asked, name) in [("x-default", "default"), ("x-nullable", "nullable")] {
        object.remove(name);
        if let Some(value) = object.remove(asked) {
            object.insert(name.to_owned(), value);
        }
    }
    without_null(object);
    one_enum(object);
    if let Some(Value::String(description)) = object.get_mut("description") {
        // Doc comments have line breaks for readers of the code; descriptions are single lines.
        *description = description.replace('\n', " ");
    }
}

/// Replaces `anyOf` of a type and `null`, schemars' form of an optional field, by the type: such a field is absent, not
/// null.
fn without_null(object: &mut Map<String, Value>) {
    let Some(Value::Array(alternatives)) = object.get_mut("anyOf") else { return };
    let null = |schema: &Value| schema["enum"] == serde_json::json!([null]) || schema["type"] == "null";
    let before = alternatives.len();
    alternatives.retain(|alternative| !null(alternative));
    if let ([Value::Object(only)], true) = (alternatives.as_slice(), before > 1) {
        let only = only.clone();
        object.remove("anyOf");
        for (name, value) in only {
            object.entry(name).or_insert(value);
        }
    }
}

/// Replaces `oneOf` of described values by an `enum`, and moves their meanings into the description.
fn one_enum(object: &mut Map<String, Value>) {
    let Some(Value::Array(values)) = object.get("oneOf") else { return };
    let mut allowed = Vec::new();
    let mut description = object.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
    for value in values {
        let Some([name]) = value["enum"].as_array().map(Vec::as_slice) else { return };
        let text = name.as_str().filter(|name| !name.is_empty()).unwrap_or("\"\"");
        let meaning = value["description"].as_str().unwrap_or_default();
        description += &format!(" `{text}`: {}", lower(meaning));
        allowed.push(name.clone());
    }
    object.remove("oneOf");
    object.insert("type".to_owned(), "string".into());
    object.insert("enum".to_owned(), allowed.into());
    object.insert("description".to_owned(), description.into());
}

/// `text` with a small first letter, to continue a sentence.
fn lower(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_lowercase().chain(characters).collect())
}
