//! What to do with one object, given what is in the cluster under its name.
//!
//! In: the object as it should be, the one that is there. Out: a decision. Never: a call.

use serde_json::Value;

use super::Error;
use super::kinds::{NAMESPACE, is_ground};
use crate::part::{COMPONENT, MANAGED_BY, MANAGER};
use objects::Object;
use objects::decision::{self, Comparison, Decision, Policy, Rules};
use objects::managed_fields::entries;
use objects::ownership::Ownership;

/// What makes an object the deployer's: its mark, and nothing else.
const OWNERSHIP: Ownership<'static> = Ownership::by_marks(MANAGER, &[(MANAGED_BY, MANAGER)]);

/// Decides by the rules that all programs share ([`decision`]). Objects of ours are always applied: the API server
/// tells whether that changed anything.
pub(super) fn decide(object: &Object, live: Option<&Value>, adopt: bool) -> Decision {
    let policy = match adopt {
        _ if is_ground(object.kind()) => Policy::Share,
        true => Policy::Adopt,
        false => Policy::Refuse,
    };
    decision::decide(object, live, Rules { ownership: OWNERSHIP, policy, comparison: Comparison::Apply })
}

/// The error about an object of others that is in the way.
pub(super) fn refusal(object: &Object, owner: String, lacks: Option<String>) -> Error {
    let object = object.to_string();
    match lacks {
        Some(lacks) => Error::Unfit { object, owner, lacks },
        None => Error::Foreign { object, owner },
    }
}

/// Whether an object has our mark.
pub(super) fn is_ours(live: &Value) -> bool {
    live["metadata"]["labels"][MANAGED_BY] == MANAGER
}

/// What a namespace of others does not let our pods do, as far as its labels say.
pub(super) fn lacks_labels(object: &Object, live: &Value) -> Option<String> {
    if object.kind().group_kind() != NAMESPACE {
        return None;
    }
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

/// The object as it is to be applied over the one in the cluster, which another component may need as well.
///
/// Namespaces are shared. They stay with the first component, with all labels that either stated.
pub(super) fn merged(object: &Object, live: Option<&Value>) -> Object {
    let mut merged = object.clone();
    let Some(live) = live.filter(|_| object.kind().group_kind() == NAMESPACE) else { return merged };
    let theirs = &live["metadata"]["labels"];
    let first = object.label(COMPONENT) == theirs[COMPONENT].as_str();
    // The labels that we stated when we applied the object last.
    let stated: Vec<&Value> = entries(live)
        .iter()
        .filter(|entry| entry["manager"] == MANAGER)
        .map(|entry| &entry["fieldsV1"]["f:metadata"]["f:labels"])
        .collect();
    for (key, value) in theirs.as_object().into_iter().flatten() {
        let is_stated = stated.iter().any(|labels| labels.get(format!("f:{key}")).is_some());
        if let Some(value) = value.as_str().filter(|_| is_stated)
            && (!first || object.label(key).is_none())
        {
            merged = merged.labelled(key, value);
        }
    }
    merged
}

#[cfg(test)]
mod tests;
