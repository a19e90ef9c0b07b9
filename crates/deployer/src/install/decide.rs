//! What to do with one object, given what is in the cluster under its name.
//!
//! In: the object as it should be, the one that is there. Out: a decision. Never: a call.

use serde_json::{Map, Value};

use super::Error;
use super::sorts::Role;
use crate::part::{COMPONENT, MANAGED_BY, MANAGER};
use objects::Object;
use objects::decision::{self, Comparison, Decision as Shared, Policy, Rules};
use objects::ownership::Ownership;

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

/// Decides by the rules that all programs share ([`decision`]), and adds what the deployer says about it. Objects of ours are always
/// applied: the API server tells whether that changed anything.
pub(super) fn decide(object: &Object, live: Option<&Value>, adopt: bool) -> Decision {
    let policy = match Role::of(object) {
        Role::Namespace | Role::Definition => Policy::Share,
        _ if adopt => Policy::Adopt,
        _ => Policy::Refuse,
    };
    let rules = Rules { ownership: OWNERSHIP, policy, comparison: Comparison::Apply };
    match (decision::decide(object, live, rules), live) {
        (Shared::Adopt, _) => Decision::Adopt,
        (Shared::Await, _) => Decision::Await,
        (Shared::Recreate { field, .. }, _) => Decision::Recreate(format!("{field} cannot be changed")),
        (Shared::Refuse { owner, lacks }, _) => {
            let object = object.to_string();
            Decision::Refuse(match lacks {
                Some(lacks) => Error::Unfit { object, owner, lacks },
                None => Error::Foreign { object, owner },
            })
        }
        (Shared::Change { .. }, Some(live)) => Decision::Apply(shared(object, live)),
        (Shared::Leave | Shared::Remove { .. }, live) => {
            let namespace = live.filter(|_| Role::of(object) == Role::Namespace);
            Decision::Use(namespace.and_then(|live| lacks_labels(object, live)))
        }
        (Shared::Create | Shared::Change { .. }, _) => Decision::Create,
    }
}

/// What makes an object the deployer's: its mark, and nothing else.
const OWNERSHIP: Ownership<'static> = Ownership::by_marks(MANAGER, &[(MANAGED_BY, MANAGER)]);

/// Whether an object has our mark.
pub(super) fn is_ours(live: &Value) -> bool {
    live["metadata"]["labels"][MANAGED_BY] == MANAGER
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
