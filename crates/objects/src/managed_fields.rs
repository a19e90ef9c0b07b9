//! Who stated which field: the field sets of `managedFields` (`FieldsV1`).
//!
//! In: field sets, an object as we state it. Out: whether the object states all of a set; unions; sets divided by path.
//! Never: a look at values.
//!
//! A set is a tree. `f:NAME` is a field, `k:{...}` an element of a list with these keys, `v:...` an element of a list
//! that is a set, `i:N` an element by its index, and `.` the parent itself where its parts are in the set as well. A
//! leaf is an empty object.

use serde_json::{Map, Value};

/// The entries of `managedFields`.
#[must_use]
pub fn entries(observed: &Value) -> &[Value] {
    observed["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The entries of what `manager` applied. Several only if it applied the object in several API versions.
pub fn applied_by<'a>(manager: &'a str, observed: &'a Value) -> impl Iterator<Item = &'a Value> {
    entries(observed).iter().filter(move |entry| is_applied_by(manager, entry))
}

/// Whether an entry says what `manager` applied.
#[must_use]
pub fn is_applied_by(manager: &str, entry: &Value) -> bool {
    entry["manager"] == manager
        && entry["operation"] == "Apply"
        && entry["subresource"].as_str().unwrap_or_default().is_empty()
}

/// Whether `stated` has a value for every path of a set.
#[must_use]
pub fn all_stated(set: &Value, stated: &Value) -> bool {
    let Some(paths) = set.as_object() else { return true };
    paths.iter().all(|(step, below)| {
        step == "." || element(step, stated).is_some_and(|stated| all_stated(below, stated))
    })
}

/// Whether a set holds nothing but single values that are stated. An atomic list or map may hold more than we put
/// there; the last writer has its path.
#[must_use]
pub fn all_plain(set: &Value, stated: &Value) -> bool {
    let Some(paths) = set.as_object() else { return true };
    if paths.is_empty() {
        return !stated.is_object() && !stated.is_array();
    }
    paths.iter().all(|(step, below)| {
        step == "." || element(step, stated).is_some_and(|stated| all_plain(below, stated))
    })
}

/// The union of two sets.
#[must_use]
pub fn union(one: &Value, other: &Value) -> Value {
    let (Some(first), Some(second)) = (one.as_object(), other.as_object()) else {
        return if one.is_object() { one.clone() } else { other.clone() };
    };
    let mut all = first.clone();
    for (step, below) in second {
        let joined = first.get(step).map_or_else(|| below.clone(), |known| union(known, below));
        all.insert(step.clone(), joined);
    }
    Value::Object(all)
}

/// Divides a set into what is under one of `paths` (each a list of steps) and the rest. `None` stands for an empty
/// part.
#[must_use]
pub fn divide(set: &Value, paths: &[&[&str]]) -> (Option<Value>, Option<Value>) {
    let Some(steps) = set.as_object() else { return (None, None) };
    let (mut under, mut rest) = (Map::new(), Map::new());
    for (step, below) in steps {
        let further: Vec<&[&str]> = paths
            .iter()
            .filter_map(|path| path.split_first())
            .filter(|(first, _)| *first == step)
            .map(|(_, further)| further)
            .collect();
        if further.iter().any(|path| path.is_empty()) {
            under.insert(step.clone(), below.clone());
        } else if further.is_empty() || below.as_object().is_none_or(Map::is_empty) {
            rest.insert(step.clone(), below.clone());
        } else {
            let (inner, outer) = divide(below, &further);
            under.extend(inner.map(|inner| (step.clone(), inner)));
            rest.extend(outer.map(|outer| (step.clone(), outer)));
        }
    }
    let part = |part: Map<String, Value>| (!part.is_empty()).then_some(Value::Object(part));
    (part(under), part(rest))
}

/// The part of `stated` to which a step leads, if any.
fn element<'a>(step: &str, stated: &'a Value) -> Option<&'a Value> {
    let (kind, name) = step.split_once(':')?;
    match kind {
        // Null is a value too, where a definition is nullable.
        "f" => stated.get(name),
        "i" => stated.get(name.parse::<usize>().ok()?),
        "v" => {
            let value: Value = serde_json::from_str(name).ok()?;
            stated.as_array()?.iter().find(|element| **element == value)
        }
        "k" => {
            let keys: Map<String, Value> = serde_json::from_str(name).ok()?;
            let elements = stated.as_array()?.iter();
            let (_, found) =
                elements.filter_map(|it| Some((agreed(it, &keys)?, it))).max_by_key(|(agreed, _)| *agreed)?;
            Some(found)
        }
        _ => None,
    }
}

/// The number of keys in which a list element agrees; `None` for another element. A key that it does not state has a
/// default (the `protocol` of a port).
fn agreed(element: &Value, keys: &Map<String, Value>) -> Option<usize> {
    let mut stated = keys.iter().filter_map(|(key, value)| Some((element.get(key)?, value)));
    let all = stated.clone().count();
    (all > 0 && stated.all(|(stated, value)| stated == value)).then_some(all)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment() -> Value {
        json!({
            "metadata": { "labels": { "a/b": "c" }, "finalizers": ["x"] },
            "spec": { "containers": [
                { "name": "main", "args": ["x"], "ports": [{ "containerPort": 80 }, { "containerPort": 80, "protocol": "UDP" }] },
                { "name": "side", "volume": {} },
            ], "gone": null },
        })
    }

    #[test]
    fn paths_lead_to_stated_values() {
        let table = [
            (json!({}), true),
            (json!({ "f:spec": {} }), true),
            (json!({ "f:spec": { ".": {} } }), true),
            (json!({ "f:spec": { "f:gone": {} } }), true),
            (json!({ "f:spec": { "f:never": {} } }), false),
            (json!({ "f:status": {} }), false),
            (json!({ "f:metadata": { "f:labels": { ".": {}, "f:a/b": {} } } }), true),
            (json!({ "f:metadata": { "f:labels": { "f:a": {} } } }), false),
            (json!({ "f:metadata": { "f:finalizers": { "v:\"x\"": {} } } }), true),
            (json!({ "f:metadata": { "f:finalizers": { "v:\"y\"": {} } } }), false),
            (json!({ "f:spec": { "f:containers": { "i:1": {} } } }), true),
            (json!({ "f:spec": { "f:containers": { "i:2": {} } } }), false),
            (
                json!({ "f:spec": { "f:containers": { "k:{\"name\":\"main\"}": { ".": {}, "f:args": {} } } } }),
                true,
            ),
            (json!({ "f:spec": { "f:containers": { "k:{\"name\":\"side\"}": { "f:args": {} } } } }), false),
            (json!({ "f:spec": { "f:containers": { "k:{\"name\":\"side\"}": { "f:volume": {} } } } }), true),
            (
                json!({ "f:spec": { "f:containers": { "k:{\"name\":\"side\"}": { "f:volume": { "f:medium": {} } } } } }),
                false,
            ),
            (json!({ "f:spec": { "f:containers": { "k:{\"name\":\"third\"}": {} } } }), false),
            (json!({ "f:spec": { "f:containers": { "k:{\"other\":\"third\"}": {} } } }), false),
            (json!({ "f:spec": { "f:containers": { "k:{broken": {} } } }), false),
            (json!({ "f:spec": { "unknown": {} } }), false),
            (
                json!({ "f:spec": { "f:containers": { "k:{\"name\":\"main\"}": { "f:ports": {
                "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": { ".": {}, "f:containerPort": {} },
                "k:{\"containerPort\":80,\"protocol\":\"UDP\"}": { "f:protocol": {} },
            } } } } }),
                true,
            ),
            (
                json!({ "f:spec": { "f:containers": { "k:{\"name\":\"main\"}": { "f:ports": {
                "k:{\"containerPort\":81,\"protocol\":\"TCP\"}": {},
            } } } } }),
                false,
            ),
        ];
        for (set, want) in table {
            assert_eq!(all_stated(&set, &deployment()), want, "{set}");
        }
    }

    #[test]
    fn atomic_fields_may_hold_more() {
        let side = |below: Value| json!({ "f:spec": { "f:containers": { "k:{\"name\":\"main\"}": below } } });
        let table = [
            (side(json!({ ".": {}, "f:name": {} })), true),
            (side(json!({ "f:args": {} })), false),
            (side(json!({})), false),
            (side(json!({ "f:image": {} })), false),
            (json!({ "f:metadata": { "f:labels": { ".": {}, "f:a/b": {} } } }), true),
            (json!({ "f:metadata": { "f:labels": {} } }), false),
        ];
        for (set, want) in table {
            assert_eq!(all_plain(&set, &deployment()), want, "{set}");
        }
    }

    #[test]
    fn sets_are_united_and_divided() {
        let one = json!({ "f:a": { "f:b": {} }, "f:x": {} });
        let other = json!({ "f:a": { ".": {}, "f:c": {} } });
        let both = json!({ "f:a": { ".": {}, "f:b": {}, "f:c": {} }, "f:x": {} });
        assert_eq!(union(&one, &other), both);
        assert_eq!(union(&other, &one), both);
        assert_eq!(union(&Value::Null, &one), one);
        assert_eq!(union(&one, &Value::Null), one);
        // paths -> what is under them, what is not
        type Case<'a> = (&'a [&'a [&'a str]], Option<Value>, Option<Value>);
        let table: [Case<'_>; 6] = [
            (&[], None, Some(both.clone())),
            (&[&["f:a"], &["f:x"]], Some(both.clone()), None),
            (&[&["f:a"]], Some(json!({ "f:a": both["f:a"] })), Some(json!({ "f:x": {} }))),
            (
                &[&["f:a", "f:b"], &["f:x", "f:y"]],
                Some(json!({ "f:a": { "f:b": {} } })),
                Some(json!({ "f:a": { ".": {}, "f:c": {} }, "f:x": {} })),
            ),
            (&[&["f:none"]], None, Some(both.clone())),
            (&[&["f:a", "f:none"]], None, Some(both.clone())),
        ];
        for (paths, under, rest) in table {
            assert_eq!(divide(&both, paths), (under, rest), "{paths:?}");
        }
    }
}
