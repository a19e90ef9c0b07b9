//! Whether an object is as desired.
//!
//! In: two objects as JSON. Out: whether and how they differ. Never: a decision about the difference.
//!
//! An observed object equals the desired one if four rules hold:
//! 1. It says all that we state.
//! 2. We state all that we stated when we applied it last: fields that we no longer state have to go.
//! 3. No other manager stated what we do not, besides metadata and status: a key in a ConfigMap, a container. An atomic
//!    list or map, such as the rules of a role, counts as foreign when its last writer is foreign.
//! 4. Its only controlling owner is the one that we name.
//!
//! Server-side apply mends 1 and 2, and leaves alone what others stated. For 3 their claims are first made ours by a
//! patch of `managedFields`; the apply then drops those fields. For 4 the same patch replaces the owner references.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::Object;
use crate::managed_fields::{all_plain, all_stated, applied_by, divide, entries, is_applied_by, union};
use crate::ownership::references;

/// How an object differs from the desired one.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// An apply mends it.
    Values,
    /// This patch of claims and owner references has to come before the apply.
    Claims(json_patch::Patch),
}

/// What other managers may state of any object of ours: labels, annotations and observations.
const FOREIGN_FIELDS: [&[&str]; 2] = [&["f:metadata"], &["f:status"]];
/// What `kubectl rollout restart` states. Taking it back would replace the pods a second time.
const RESTART: &[&str] =
    &["f:spec", "f:template", "f:metadata", "f:annotations", "f:kubectl.kubernetes.io/restartedAt"];
/// What OpenShift states of each service account.
const CREDENTIALS: [&[&str]; 2] = [&["f:secrets"], &["f:imagePullSecrets"]];

/// The content of an object, without what the API server and built-in controllers write into it.
#[must_use]
pub fn content(live: &Value) -> Value {
    let mut content = live.clone();
    if let Some(fields) = content.as_object_mut() {
        fields.remove("status");
    }
    let Some(metadata) = content["metadata"].as_object_mut() else { return content };
    for field in ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"] {
        metadata.remove(field);
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("deployment.kubernetes.io/revision");
        annotations.remove("deprecated.daemonset.template.generation");
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    content
}

/// Whether `observed` says all that `desired` says; further fields do not count, further list elements do.
///
/// A quantity in another notation (`1000m` for `1`) counts as a difference: only the API server knows which texts are
/// quantities.
#[must_use]
pub fn says(observed: &Value, desired: &Value) -> bool {
    match (observed, desired) {
        (Value::Object(observed), Value::Object(desired)) => {
            desired.iter().all(|(key, desired)| says(observed.get(key).unwrap_or(&Value::Null), desired))
        }
        (Value::Array(observed), Value::Array(desired)) => {
            observed.len() == desired.len()
                && observed.iter().zip(desired).all(|(observed, desired)| says(observed, desired))
        }
        // The API server leaves out empty maps and lists.
        (Value::Null, Value::Object(desired)) => desired.values().all(|desired| says(&Value::Null, desired)),
        (Value::Null, Value::Array(desired)) => desired.is_empty(),
        (observed, desired) => observed == desired,
    }
}

/// Whether rules 1 and 2 hold: an observed object says what we state, and we stated nothing else.
#[must_use]
pub fn is_stated(object: &Object, manager: &str, observed: &Value) -> bool {
    let stated = object.body();
    let mut applied = applied_by(manager, observed).peekable();
    let kept = applied.peek().is_some() && applied.all(|entry| all_stated(&entry["fieldsV1"], stated));
    let named =
        references(stated).iter().all(|our| references(observed).iter().any(|known| says(known, our)));
    kept && named && says(observed, &compared_by_value(stated))
}

/// The difference between an observed object and the desired one by all four rules; `None` if they are equal.
///
/// Cost grows with the object's size and its number of field managers.
#[must_use]
pub fn difference(object: &Object, manager: &str, observed: &Value) -> Option<Difference> {
    let foreign = foreign_claims(object, manager, observed);
    let references = corrected_references(object.body(), observed);
    if !foreign.is_empty() || references.is_some() {
        return Some(Difference::Claims(takeover(object, manager, observed, &foreign, references)));
    }
    (!is_stated(object, manager, observed)).then_some(Difference::Values)
}

/// The object with the selector of the observed workload, if that selects the object's pods too. A selector cannot be
/// changed, and the Go operator's workloads have a wider one.
#[must_use]
pub fn with_observed_selector(object: &Object, observed: &Value) -> Object {
    let selector = &observed["spec"]["selector"];
    if !object.kind().is_workload() || *selector == object.body()["spec"]["selector"] {
        return object.clone();
    }
    let labels = &object.body()["spec"]["template"]["metadata"]["labels"];
    let labels = BTreeMap::<String, String>::deserialize(labels).unwrap_or_default();
    let parsed = LabelSelector::deserialize(selector).ok().and_then(|parsed| Selector::try_from(parsed).ok());
    if !parsed.is_some_and(|parsed| !parsed.selects_all() && parsed.matches(&labels)) {
        return object.clone();
    }
    object.clone().edited(|body| body["spec"]["selector"] = selector.clone())
}

/// What of an object is compared by value. Owner references are compared by owner; the key tells the kind.
fn compared_by_value(stated: &Value) -> Value {
    let mut content = stated.clone();
    if let Some(fields) = content.as_object_mut() {
        fields.retain(|field, _| !matches!(field.as_str(), "apiVersion" | "kind"));
    }
    if let Some(metadata) = content["metadata"].as_object_mut() {
        metadata.remove("ownerReferences");
    }
    content
}

/// A manager's claim on fields that are ours to state.
struct ForeignClaim {
    /// The entry's index in `managedFields`.
    entry: usize,
    /// Fields that the manager may keep.
    tolerated: Option<Value>,
    /// Fields that have to become ours.
    taken: Value,
}

fn foreign_claims(object: &Object, manager: &str, observed: &Value) -> Vec<ForeignClaim> {
    let paths = tolerated_paths(object);
    let foreign = entries(observed).iter().enumerate();
    let foreign =
        foreign.filter(|(_, entry)| !is_applied_by(manager, entry) && entry["subresource"] != "status");
    let claims = foreign.filter_map(|(index, entry)| {
        let (tolerated, taken) = divide(&entry["fieldsV1"], &paths);
        let taken = taken.filter(|taken| !all_plain(taken, object.body()))?;
        Some(ForeignClaim { entry: index, tolerated, taken })
    });
    claims.collect()
}

fn tolerated_paths(object: &Object) -> Vec<&'static [&'static str]> {
    let mut paths = FOREIGN_FIELDS.to_vec();
    match object.kind().group_kind() {
        ("apps", "DaemonSet" | "Deployment") => paths.push(RESTART),
        ("", "ServiceAccount") => paths.extend(CREDENTIALS),
        _ => {}
    }
    paths
}

/// The owner references as they have to be, if a foreign controller is named. An object has at most one controlling
/// owner, so ours cannot be added beside it.
fn corrected_references(stated: &Value, observed: &Value) -> Option<Value> {
    let ours = references(stated);
    let own = |reference: &Value| ours.iter().any(|our| our["uid"] == reference["uid"]);
    let foreign = |reference: &Value| reference["controller"] == true && !own(reference);
    if ours.is_empty() || !references(observed).iter().any(foreign) {
        return None;
    }
    let bystanders = references(observed).iter().filter(|reference| !foreign(reference) && !own(reference));
    Some(bystanders.chain(ours).cloned().collect())
}

/// The patch that makes foreign claims ours and corrects owner references.
fn takeover(
    object: &Object,
    manager: &str,
    observed: &Value,
    foreign: &[ForeignClaim],
    references: Option<Value>,
) -> json_patch::Patch {
    let mut steps = vec![json!({
        "op": "test", "path": "/metadata/resourceVersion", "value": observed["metadata"]["resourceVersion"],
    })];
    if !foreign.is_empty() {
        let fields = fields_after_takeover(object, manager, observed, foreign);
        // `add` replaces as well.
        steps.push(json!({ "op": "add", "path": "/metadata/managedFields", "value": fields }));
    }
    if let Some(references) = references {
        steps.push(json!({ "op": "add", "path": "/metadata/ownerReferences", "value": references }));
    }
    json_patch::Patch::deserialize(Value::Array(steps)).unwrap_or_default()
}

/// `managedFields` in which the taken fields are ours.
fn fields_after_takeover(
    object: &Object,
    manager: &str,
    observed: &Value,
    foreign: &[ForeignClaim],
) -> Vec<Value> {
    let mut fields: Vec<Value> = entries(observed).to_vec();
    let ours = applied_by(manager, observed).map(|entry| &entry["fieldsV1"]);
    let all = ours.chain(foreign.iter().map(|claim| &claim.taken));
    let all = all.fold(Value::Null, |all, set| union(&all, set));
    for claim in foreign {
        fields[claim.entry]["fieldsV1"] = claim.tolerated.clone().unwrap_or_default();
    }
    fields.retain(|entry| !is_applied_by(manager, entry) && !entry["fieldsV1"].is_null());
    fields.push(json!({
        "manager": manager,
        "operation": "Apply",
        "apiVersion": object.kind().api_version(),
        "fieldsType": "FieldsV1",
        "fieldsV1": all,
    }));
    fields
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn content_excludes_what_controllers_write() {
        let noted = json!({
            "metadata": {
                "name": "x", "uid": "1", "resourceVersion": "2", "generation": 3, "creationTimestamp": "now",
                "managedFields": [], "annotations": { "deployment.kubernetes.io/revision": "1" },
            },
            "spec": { "a": 1 },
            "status": { "b": 2 },
        });
        assert_eq!(content(&noted), json!({ "metadata": { "name": "x" }, "spec": { "a": 1 } }));
        assert_eq!(content(&json!({ "data": 1 }))["data"], 1);
    }

    #[test]
    fn further_fields_do_not_count() {
        let table = [
            (json!({ "a": 1, "b": 2 }), json!({ "a": 1 }), true),
            (json!({ "a": 1 }), json!({ "a": 2 }), false),
            (json!({}), json!({ "a": 1 }), false),
            (json!({ "a": [{ "x": 1, "y": 2 }] }), json!({ "a": [{ "x": 1 }] }), true),
            (json!({ "a": [1, 2] }), json!({ "a": [1] }), false),
            (json!({}), json!({ "a": [], "b": {}, "c": { "d": [] } }), true),
            (json!({}), json!({ "a": { "b": 1 } }), false),
            (json!({ "cpu": "1" }), json!({ "cpu": "1000m" }), false),
        ];
        for (live, wanted, want) in table {
            assert_eq!(says(&live, &wanted), want, "{live} {wanted}");
        }
    }
}
