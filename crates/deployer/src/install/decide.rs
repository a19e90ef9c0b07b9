//! What to do with one object, given what is in the cluster under its name.
//!
//! In: the object as it should be, the one that is there. Out: a decision. Never: a call.

use serde_json::{Map, Value};

use super::Error;
use super::sorts::Role;
use crate::object::{Object, Sort};
use crate::part::{COMPONENT, MANAGED_BY, MANAGER};

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Decision {
    /// It is not there: make it.
    Create,
    /// It is ours: make it say this, whoever else states these fields.
    Apply(Object),
    /// It is somebody else's, and we were asked to take it over.
    Adopt,
    /// It is somebody else's and good enough; with what people should know about that.
    Use(Option<String>),
    /// It is somebody else's.
    Refuse(Error),
    /// It is going away: wait for that.
    Await,
    /// It is ours, but cannot be changed to say this, for this reason.
    Recreate(String),
}

/// Decides.
pub(super) fn decide(object: &Object, live: Option<&Value>, adopt: bool) -> Decision {
    let Some(live) = live else { return Decision::Create };
    if !live["metadata"]["deletionTimestamp"].is_null() {
        return Decision::Await;
    }
    if !is_ours(live) {
        return match Role::of(object) {
            Role::Namespace => Decision::Use(lacks_labels(object, live)),
            Role::Definition => match unfit(object.body(), live) {
                Some(lacks) => {
                    Decision::Refuse(Error::Unfit { object: object.to_string(), owner: owner(live), lacks })
                }
                None => Decision::Use(None),
            },
            _ if adopt => Decision::Adopt,
            _ => Decision::Refuse(Error::Foreign { object: object.to_string(), owner: owner(live) }),
        };
    }
    if let Some(field) = immutable(object.sort(), object.body(), live) {
        return Decision::Recreate(format!("{field} cannot be changed"));
    }
    Decision::Apply(shared(object, live))
}

/// Whether it has our mark.
pub(super) fn is_ours(live: &Value) -> bool {
    live["metadata"]["labels"][MANAGED_BY] == MANAGER
}

/// What somebody made or changed of an object, without what the API server and controllers note on it.
pub(super) fn content(live: &Value) -> Value {
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

/// Whether `live` says all that `wanted` says; what else it says does not count. Of lists each element has to.
///
/// An amount in another notation (`1000m` for `1`) counts as a difference, since nobody but the API server knows which texts
/// are amounts.
pub(super) fn says(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| says(live.get(key).unwrap_or(&Value::Null), wanted))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| says(live, wanted))
        }
        // The API server leaves out what is empty.
        (Value::Null, Value::Object(wanted)) => wanted.values().all(|wanted| says(&Value::Null, wanted)),
        (Value::Null, Value::Array(wanted)) => wanted.is_empty(),
        (live, wanted) => live == wanted,
    }
}

/// Who made it, as far as it says: by label, else whoever manages its fields.
fn owner(live: &Value) -> String {
    if let Some(owner) = live["metadata"]["labels"][MANAGED_BY].as_str() {
        return owner.to_owned();
    }
    let entries = live["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut managers: Vec<&str> = entries
        .iter()
        .filter(|entry| entry["subresource"].is_null())
        .filter_map(|entry| entry["manager"].as_str())
        .collect();
    managers.sort_unstable();
    managers.dedup();
    if managers.is_empty() { "nobody known".to_owned() } else { managers.join(", ") }
}

/// The field that differs although it cannot be changed.
pub(super) fn immutable(sort: &Sort, wanted: &Value, live: &Value) -> Option<&'static str> {
    let differs = |path: &str| wanted.pointer(path) != live.pointer(path);
    match sort.kind.as_str() {
        "DaemonSet" | "Deployment" if differs("/spec/selector") => Some("spec.selector"),
        "RoleBinding" | "ClusterRoleBinding" if differs("/roleRef") => Some("roleRef"),
        "PriorityClass" if differs("/value") => Some("value"),
        "ConfigMap" if live["immutable"] == true && (differs("/data") || differs("/binaryData")) => {
            Some("data")
        }
        _ => None,
    }
}

/// What somebody else's definition does not have of ours.
fn unfit(ours: &Value, live: &Value) -> Option<String> {
    for field in ["/spec/group", "/spec/scope", "/spec/names/kind", "/spec/names/plural"] {
        let (ours, live) = (ours.pointer(field), live.pointer(field));
        if ours != live {
            let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
            let field = field.trim_start_matches("/spec/").replace('/', ".");
            return Some(format!("has {field} {} where {} is needed", text(live), text(ours)));
        }
    }
    let served = |definition: &Value| -> Vec<String> {
        let versions = definition["spec"]["versions"].as_array().cloned().unwrap_or_default();
        let served = versions.iter().filter(|version| version["served"] == true);
        served.filter_map(|version| version["name"].as_str().map(str::to_owned)).collect()
    };
    let there = served(live);
    let missing: Vec<String> = served(ours).into_iter().filter(|version| !there.contains(version)).collect();
    (!missing.is_empty())
        .then(|| format!("does not serve {} (it serves {})", missing.join(", "), there.join(", ")))
}

/// What somebody else's namespace does not let our pods do, as far as its labels say.
fn lacks_labels(object: &Object, live: &Value) -> Option<String> {
    let wanted = object.body()["metadata"]["labels"].as_object()?;
    let lacks: Vec<String> = wanted
        .iter()
        .filter(|(key, value)| key.starts_with(POD_SECURITY) && live["metadata"]["labels"][key] != **value)
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    (!lacks.is_empty()).then(|| {
        let lacks = lacks.join(", ");
        format!("was not made by us and lacks {lacks}; pods may be refused in it")
    })
}

const POD_SECURITY: &str = "pod-security.kubernetes.io/";

/// The object as it is to be applied over one that another component may need as well: namespaces are shared, and stay
/// with the first component, with whatever labels either stated.
fn shared(object: &Object, live: &Value) -> Object {
    if Role::of(object) != Role::Namespace {
        return object.clone();
    }
    let theirs = live["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    let first = object.label(COMPONENT) == theirs.get(COMPONENT).and_then(Value::as_str);
    let stated = stated_labels(live);
    let mut object = object.clone();
    for (key, value) in theirs {
        let Some(value) = value.as_str().filter(|_| stated.contains_key(&format!("f:{key}"))) else {
            continue;
        };
        if !first || object.label(&key).is_none() {
            object = object.labelled(&key, value);
        }
    }
    object
}

/// The labels that we stated when we applied an object last, as `f:KEY`.
fn stated_labels(live: &Value) -> Map<String, Value> {
    let entries = live["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ours = entries.iter().filter(|entry| entry["manager"] == MANAGER);
    let labels = ours.filter_map(|entry| entry["fieldsV1"]["f:metadata"]["f:labels"].as_object());
    labels.flat_map(Clone::clone).collect()
}

#[cfg(test)]
mod tests;
