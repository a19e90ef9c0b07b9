//! Random objects from the schema of their definition, so that they have every field of the type.

use std::collections::BTreeMap;

use api::goduration::GoDuration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use proptest::prelude::*;
use serde_json::{Map, Value};

/// `spec` and `status` of a valid object with every field.
pub(crate) fn parts(crd: &CustomResourceDefinition) -> BoxedStrategy<Value> {
    let version = crd.spec.versions.last().unwrap();
    let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref()).unwrap();
    let part = |name: &str| value(name, &schema.properties.as_ref().unwrap()[name]);
    (part("spec"), part("status"))
        .prop_map(|(mut spec, status)| {
            groups(&mut spec);
            serde_json::json!({"spec": spec, "status": status})
        })
        .boxed()
}

/// A value for the schema of the field `name`, with all of its own fields.
fn value(name: &str, schema: &JSONSchemaProps) -> BoxedStrategy<Value> {
    match schema.type_.as_deref() {
        Some("object") => object(schema),
        Some("array") => {
            let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items else { panic!("{name}") };
            let list = prop::collection::vec(value(name, items), 1..4);
            list.prop_map(|items| Value::Array(apart(items))).boxed()
        }
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("integer") => (0..1_000_i64).prop_map(Value::from).boxed(),
        Some("string") => text(name, schema),
        other => panic!("{name}: {other:?}"),
    }
}

fn object(schema: &JSONSchemaProps) -> BoxedStrategy<Value> {
    if let Some(JSONSchemaPropsOrBool::Schema(_)) = &schema.additional_properties {
        let map = prop::collection::btree_map("[a-z]{1,9}", "[a-zA-Z0-9]{0,9}", 1..4);
        return map.prop_map(|map| serde_json::to_value(map).unwrap()).boxed();
    }
    let fields = schema.properties.iter().flatten().map(|(name, schema)| {
        value(name, schema).prop_map({
            let name = name.clone();
            move |value| (name.clone(), value)
        })
    });
    fields.collect::<Vec<_>>().prop_map(|fields| Value::Object(fields.into_iter().collect())).boxed()
}

fn text(name: &str, schema: &JSONSchemaProps) -> BoxedStrategy<Value> {
    if let Some(values) = &schema.enum_ {
        let values: Vec<Value> = values.iter().map(|value| value.0.clone()).collect();
        return prop::sample::select(values).boxed();
    }
    if schema.format.as_deref() == Some("date-time") {
        return (10..60_u32).prop_map(|second| Value::from(format!("2026-01-02T03:04:{second}Z"))).boxed();
    }
    let text = match name {
        // In canonical form; other texts of the same value would not round-trip.
        "infoRefreshPeriod" | "cacheResyncPeriod" => {
            return (0..1_i64 << 50).prop_map(|nanos| Value::from(GoDuration(nanos).to_string())).boxed();
        }
        "effect" => "|NoSchedule|NoExecute",
        "operator" => "|Exists|Equal",
        "reason" | "type" => "[A-Z][a-z]{1,9}",
        _ => "[a-z]{1,9}",
    };
    text.prop_map(Value::from).boxed()
}

/// Items of a list with unique types, if they have a type.
fn apart(items: Vec<Value>) -> Vec<Value> {
    let mut seen = BTreeMap::new();
    for item in items {
        let key = item
            .get("lastTransitionTime")
            .map_or_else(|| seen.len().to_string(), |_| item["type"].to_string());
        seen.insert(key, item);
    }
    seen.into_values().collect()
}

/// A spec that satisfies the rules: unique pool names, and one of two exclusive fields.
fn groups(spec: &mut Value) {
    spec.get_mut("kubelet").into_iter().for_each(kubelet);
    let nfd = spec["updaterType"] == "NFD";
    if nfd {
        spec.as_object_mut().unwrap().remove("podExcludes");
    }
    for (index, group) in spec["nodeGroups"].as_array_mut().into_iter().flatten().enumerate() {
        group.get_mut("kubelet").into_iter().for_each(kubelet);
        if nfd {
            of_nfd(group);
        }
        let Value::Object(group) = group else { panic!("{group}") };
        if index % 2 == 0 {
            let name = format!("{}-{index}", group["poolName"].as_str().unwrap());
            group.insert("poolName".to_owned(), name.into());
            group.remove("machineConfigPoolSelector");
        } else {
            for field in ["poolName", "nodeSelector", "kubeletConfigMap"] {
                group.remove(field);
            }
        }
    }
}

/// Settings that nfd-topology-updater has.
fn of_nfd(group: &mut Value) {
    group.as_object_mut().unwrap().remove("kubeletConfigMap");
    group["config"]["podsFingerprinting"] = "Enabled".into();
    group["config"]["infoRefreshMode"] = "Periodic".into();
    group["config"]["infoRefreshPeriod"] = "1m30s".into();
}

/// An authority, or no check at all.
fn kubelet(kubelet: &mut Value) {
    if kubelet["insecure"] == true {
        kubelet.as_object_mut().unwrap().remove("certificateAuthority");
    }
}

/// The value without `null` and without empty texts, lists and maps.
pub(crate) fn meaning(value: &Value) -> Value {
    let said = |value: &Value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    };
    match value {
        Value::Array(items) => items.iter().map(meaning).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), meaning(value)));
            Value::Object(fields.filter(|(_, value)| said(value)).collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}
