//! Whether an object of ours is exactly as it is wanted, and what to do so that it is.
//!
//! In: the object as it should be, and as it is, with its `managedFields`. Out: how they differ. Never: a judgement whose it is.
//!
//! It is the same if all of this holds:
//! 1. It says all that we state.
//! 2. We state all that we stated when we applied it last; what we do not has to go.
//! 3. Nobody else stated anything that we do not, besides metadata and status: a key in a ConfigMap, a container; nor a list or map that is
//!    stated as a whole, such as rules, since nobody can tell who put what into it.
//! 4. Its only controller is the one we name.
//!
//! Server-side apply mends 1 and 2. It leaves alone what others stated; so for 3 their claims are first made ours, by a patch of
//! `managedFields`, and then the apply drops them. For 4 the same patch replaces the references.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};
use objects::Object;
use objects::equality::says;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::owner::{applied, entries, is_our_entry};
use crate::desired::MANAGER;
use objects::managed_fields::{all_plain, all_stated, divide, union};

/// How an object differs.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// Applying it is enough.
    Values,
    /// This patch has to come first.
    Claims(json_patch::Patch),
}

/// What others may state of any of our objects: marks and what is observed.
const THEIRS: [&[&str]; 2] = [&["f:metadata"], &["f:status"]];
/// What `kubectl rollout restart` states: somebody wants new pods, and would get them twice if that were taken back.
const RESTARTED: &[&str] =
    &["f:spec", "f:template", "f:metadata", "f:annotations", "f:kubectl.kubernetes.io/restartedAt"];
/// What OpenShift states of each service account.
const CREDENTIALS: [&[&str]; 2] = [&["f:secrets"], &["f:imagePullSecrets"]];

/// How `live` differs from `object`, if it does.
#[must_use]
pub fn difference(object: &Object, live: &Value) -> Option<Difference> {
    let ours = applied(live);
    let stated = object.body();
    let strays = strays(object, live);
    let references = references(stated, live);
    if !strays.is_empty() || references.is_some() {
        return Some(Difference::Claims(claim(object, live, &strays, references)));
    }
    let kept = !ours.is_empty() && ours.iter().all(|entry| all_stated(&entry["fieldsV1"], stated));
    let named = list(stated).iter().all(|our| list(live).iter().any(|reference| says(reference, our)));
    (!kept || !named || !says(live, &content(stated))).then_some(Difference::Values)
}

/// The object with the selector of the one that is there, as that cannot be changed, if it selects the same pods: those of the Go operator
/// select by less.
#[must_use]
pub fn adapted(object: &Object, live: &Value) -> Object {
    let is_workload =
        object.kind().group == "apps" && matches!(object.kind().kind.as_str(), "DaemonSet" | "Deployment");
    let there = &live["spec"]["selector"];
    if !is_workload || *there == object.body()["spec"]["selector"] {
        return object.clone();
    }
    let labels = &object.body()["spec"]["template"]["metadata"]["labels"];
    let labels = BTreeMap::<String, String>::deserialize(labels).unwrap_or_default();
    let selector = LabelSelector::deserialize(there).ok().and_then(|there| Selector::try_from(there).ok());
    if !selector.is_some_and(|selector| !selector.selects_all() && selector.matches(&labels)) {
        return object.clone();
    }
    let mut body = object.body().clone();
    body["spec"]["selector"] = there.clone();
    Object::from_value(object.kind().clone(), body).unwrap_or_else(|_| object.clone())
}

/// What of an object is compared by value: references are compared by owner, and which kind it is its key says.
fn content(stated: &Value) -> Value {
    let mut content = stated.clone();
    if let Some(fields) = content.as_object_mut() {
        fields.retain(|field, _| !matches!(field.as_str(), "apiVersion" | "kind"));
    }
    if let Some(metadata) = content["metadata"].as_object_mut() {
        metadata.remove("ownerReferences");
    }
    content
}

/// The places, in `managedFields`, of others who stated what we do not, with what is theirs to state and what is not.
fn strays(object: &Object, live: &Value) -> Vec<(usize, Option<Value>, Value)> {
    let paths = tolerated(object);
    let others = entries(live).iter().enumerate();
    let others = others.filter(|(_, entry)| !is_our_entry(entry) && entry["subresource"] != "status");
    others
        .filter_map(|(place, entry)| {
            let (theirs, taken) = divide(&entry["fieldsV1"], &paths);
            let taken = taken.filter(|taken| !all_plain(taken, object.body()))?;
            Some((place, theirs, taken))
        })
        .collect()
}

fn tolerated(object: &Object) -> Vec<&'static [&'static str]> {
    let mut paths = THEIRS.to_vec();
    match (object.kind().group.as_str(), object.kind().kind.as_str()) {
        ("apps", "DaemonSet" | "Deployment") => paths.push(RESTARTED),
        ("", "ServiceAccount") => paths.extend(CREDENTIALS),
        _ => {}
    }
    paths
}

/// The references as they have to be, if a controller is named that is not ours; an object has at most one, so ours cannot be added.
fn references(stated: &Value, live: &Value) -> Option<Value> {
    let ours = list(stated);
    let own = |reference: &Value| ours.iter().any(|our| our["uid"] == reference["uid"]);
    let foreign = |reference: &Value| reference["controller"] == true && !own(reference);
    if ours.is_empty() || !list(live).iter().any(foreign) {
        return None;
    }
    let bystanders = list(live).iter().filter(|reference| !foreign(reference) && !own(reference));
    Some(bystanders.chain(ours).cloned().collect())
}

fn list(body: &Value) -> &[Value] {
    body["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The patch that makes others' claims ours.
fn claim(
    object: &Object,
    live: &Value,
    strays: &[(usize, Option<Value>, Value)],
    references: Option<Value>,
) -> json_patch::Patch {
    let mut steps = vec![json!({
        "op": "test", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"],
    })];
    if !strays.is_empty() {
        let claims = claims(object, live, strays);
        // `add` replaces as well.
        steps.push(json!({ "op": "add", "path": "/metadata/managedFields", "value": claims }));
    }
    if let Some(references) = references {
        steps.push(json!({ "op": "add", "path": "/metadata/ownerReferences", "value": references }));
    }
    json_patch::Patch::deserialize(Value::Array(steps)).unwrap_or_default()
}

/// `managedFields` in which what the strays took is ours.
fn claims(object: &Object, live: &Value, strays: &[(usize, Option<Value>, Value)]) -> Vec<Value> {
    let mut entries: Vec<Value> = entries(live).to_vec();
    let ours = applied(live).into_iter().map(|entry| &entry["fieldsV1"]);
    let all = ours.chain(strays.iter().map(|(_, _, taken)| taken));
    let all = all.fold(Value::Null, |all, set| union(&all, set));
    for (place, theirs, _) in strays {
        entries[*place]["fieldsV1"] = theirs.clone().unwrap_or_default();
    }
    entries.retain(|entry| !is_our_entry(entry) && !entry["fieldsV1"].is_null());
    entries.push(json!({
        "manager": MANAGER,
        "operation": "Apply",
        "apiVersion": object.kind().api_version(),
        "fieldsType": "FieldsV1",
        "fieldsV1": all,
    }));
    entries
}
