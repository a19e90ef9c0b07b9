//! What to do with one object.
//!
//! In: the object as it is desired, the object as it is observed, and the rules of the program. Out: one decision.
//! Never: a call.

use serde_json::Value;

use crate::equality::{Difference, difference, is_stated};
use crate::ownership::{Ownership, is_terminating, maker, uid};
use crate::{Object, ObjectKind};

/// What to do with an object that another program made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Take it over.
    Adopt,
    /// Use it as it is if it serves our purpose, else refuse it.
    Share,
    /// Refuse it.
    Refuse,
}

/// How an object of ours is compared with the desired one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Not at all: it is always applied, and the API server tells whether that changed anything.
    Apply,
    /// By what we state and stated before; fields of other managers stay.
    Stated,
    /// By all four rules of [`crate::equality`]; fields of other managers go.
    Exact,
}

/// The rules by which a program decides.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// Which objects are ours.
    pub ownership: Ownership<'a>,
    /// What happens to objects of others.
    pub policy: Policy,
    /// When an object of ours is left alone.
    pub comparison: Comparison,
}

/// What to do with one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// It does not exist: create it.
    Create,
    /// It differs: apply the desired object.
    Change {
        /// The object to change.
        uid: String,
        /// A patch that has to come first, so that the apply leaves nothing of others.
        claims: Option<json_patch::Patch>,
    },
    /// It is another program's: take it over.
    Adopt,
    /// It is as desired, or another program's and good enough.
    Leave,
    /// It is ours and no longer desired: delete it.
    Remove {
        /// The object to delete.
        uid: String,
    },
    /// It differs in a field that cannot be changed: delete it and create it anew.
    Recreate {
        /// The object to delete.
        uid: String,
        /// The field that cannot be changed.
        field: &'static str,
    },
    /// It is another program's, and neither shared nor taken over.
    Refuse {
        /// Its maker, as [`maker`] tells.
        owner: String,
        /// What it lacks, where a shared object is not good enough.
        lacks: Option<String>,
    },
    /// It is being deleted: nothing can be done before it is gone.
    Await,
}

/// Decides what to do with a desired object, given what is observed under its name.
#[must_use]
pub fn decide(object: &Object, observed: Option<&Value>, rules: Rules<'_>) -> Decision {
    let Some(observed) = observed else { return Decision::Create };
    if is_terminating(observed) {
        return Decision::Await;
    }
    if !rules.ownership.owns(object.key(), observed) {
        let refusal = |lacks| Decision::Refuse { owner: maker(observed), lacks };
        return match rules.policy {
            Policy::Adopt => Decision::Adopt,
            Policy::Refuse => refusal(None),
            Policy::Share => {
                unfit(object.body(), observed).map_or(Decision::Leave, |lacks| refusal(Some(lacks)))
            }
        };
    }
    let uid = uid(observed).to_owned();
    if let Some(field) = immutable(object.kind(), object.body(), observed) {
        return Decision::Recreate { uid, field };
    }
    let manager = rules.ownership.manager;
    let difference = match rules.comparison {
        Comparison::Apply => Some(Difference::Values),
        Comparison::Stated => (!is_stated(object, manager, observed)).then_some(Difference::Values),
        Comparison::Exact => difference(object, manager, observed),
    };
    match difference {
        None => Decision::Leave,
        Some(Difference::Values) => Decision::Change { uid, claims: None },
        Some(Difference::Claims(patch)) => Decision::Change { uid, claims: Some(patch) },
    }
}

/// The field that differs and cannot be changed.
#[must_use]
pub fn immutable(kind: &ObjectKind, desired: &Value, observed: &Value) -> Option<&'static str> {
    let differs = |path: &str| desired.pointer(path) != observed.pointer(path);
    match kind.kind.as_str() {
        "DaemonSet" | "Deployment" if differs("/spec/selector") => Some("spec.selector"),
        "RoleBinding" | "ClusterRoleBinding" if differs("/roleRef") => Some("roleRef"),
        "PriorityClass" if differs("/value") => Some("value"),
        "ConfigMap" if observed["immutable"] == true && (differs("/data") || differs("/binaryData")) => {
            Some("data")
        }
        _ => None,
    }
}

/// What a CustomResourceDefinition of others lacks of ours; `None` if it serves our purpose, as any other kind does.
#[must_use]
pub fn unfit(ours: &Value, observed: &Value) -> Option<String> {
    for field in ["/spec/group", "/spec/scope", "/spec/names/kind", "/spec/names/plural"] {
        let (ours, theirs) = (ours.pointer(field), observed.pointer(field));
        if ours != theirs {
            let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
            let field = field.trim_start_matches("/spec/").replace('/', ".");
            return Some(format!("has {field} {} where {} is needed", text(theirs), text(ours)));
        }
    }
    let served = |definition: &Value| -> Vec<String> {
        let versions = definition["spec"]["versions"].as_array().cloned().unwrap_or_default();
        let served = versions.iter().filter(|version| version["served"] == true);
        served.filter_map(|version| version["name"].as_str().map(str::to_owned)).collect()
    };
    let there = served(observed);
    let missing: Vec<String> = served(ours).into_iter().filter(|version| !there.contains(version)).collect();
    (!missing.is_empty())
        .then(|| format!("does not serve {} (it serves {})", missing.join(", "), there.join(", ")))
}
