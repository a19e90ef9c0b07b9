//! Paths of `managedFields`, until the crate `objects` has them.

use serde_json::{Map, Value};

/// Whether `stated` has a value for every path of a set.
#[must_use]
pub(crate) fn all_stated(set: &Value, stated: &Value) -> bool {
    let Some(paths) = set.as_object() else { return true };
    paths.iter().all(|(step, below)| {
        step == "." || element(step, stated).is_some_and(|stated| all_stated(below, stated))
    })
}

/// The part of `stated` to which a step leads, if it is there.
fn element<'a>(step: &str, stated: &'a Value) -> Option<&'a Value> {
    let (kind, name) = step.split_once(':')?;
    match kind {
        // Nothing is a value too, where a definition lets it be stored.
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

/// In how many of these keys an element of a list agrees; `None`: it is another one. A key that it does not state has a default (the
/// `protocol` of a port).
fn agreed(element: &Value, keys: &Map<String, Value>) -> Option<usize> {
    let mut stated = keys.iter().filter_map(|(key, value)| Some((element.get(key)?, value)));
    let all = stated.clone().count();
    (all > 0 && stated.all(|(stated, value)| stated == value)).then_some(all)
}

/// Which of two resource versions the API server gave out first. `Less`, if that cannot be told: what comes later counts.
#[must_use]
pub(crate) fn compare_versions(known: &str, new: &str) -> std::cmp::Ordering {
    let number = |text: &str| text.parse::<u128>().ok();
    match (number(known), number(new)) {
        (Some(known), Some(new)) => known.cmp(&new),
        _ if known == new => std::cmp::Ordering::Equal,
        _ => std::cmp::Ordering::Less,
    }
}
