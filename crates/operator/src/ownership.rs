//! The controller that is responsible for an object.
//!
//! In: an object of the API server. Out: whether it is the operator's, and its controller. Never: a guess from the
//! name.

use api::numaresources::{GROUP, keys, operator, scheduler};
use objects::ObjectKey;
use objects::decision::{Comparison, Policy, Rules};
use objects::managed_fields::applied_by;
use objects::ownership::{Ownership, references};
use serde_json::Value;

use crate::desired::{Controller, MANAGED_BY, MANAGER};

/// The operator's rules. An object is ours by our label, by the user's object that owns it (as the Go operator's are),
/// or by fields that we applied.
pub const RULES: Rules<'static> = Rules {
    ownership: Ownership {
        manager: MANAGER,
        marks: &[(MANAGED_BY, MANAGER)],
        evidence: |key, observed| {
            responsible(key, observed) != Responsible::Unknown
                || applied_by(MANAGER, observed).next().is_some()
        },
    },
    policy: Policy::Refuse,
    comparison: Comparison::Exact,
};

/// The controller that is responsible for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Responsible {
    /// One of ours.
    Controller(Controller),
    /// One of ours made the object, for an owner that it no longer names.
    Orphaned,
    /// None, unless one desires an object of this name.
    Unknown,
}

/// The controller that is responsible for an object, by its owner references; its name plays no part.
///
/// The exporters' configuration that the Go operator made is owned by a KubeletConfig or has no owner; a label marks
/// it.
#[must_use]
pub fn responsible(key: &ObjectKey, observed: &Value) -> Responsible {
    let is_map = key.kind.group_kind() == ("", "ConfigMap");
    for (kind, name) in owners(observed) {
        let controller = match kind {
            scheduler::KIND if name == keys::SCHEDULER => Controller::NumaResourcesScheduler,
            operator::KIND if name == keys::OPERATOR && is_map => Controller::KubeletConfig,
            operator::KIND if name == keys::OPERATOR => Controller::NumaResourcesOperator,
            _ => continue,
        };
        return Responsible::Controller(controller);
    }
    if is_map && observed["metadata"]["labels"][keys::LABEL_OPERATOR] == keys::OPERATOR {
        return Responsible::Controller(Controller::KubeletConfig);
    }
    let stated = |entry: &Value| !entry["fieldsV1"]["f:metadata"]["f:ownerReferences"].is_null();
    if applied_by(MANAGER, observed).any(stated) { Responsible::Orphaned } else { Responsible::Unknown }
}

/// Kind and name of the objects of our group that control an object.
pub(crate) fn owners(observed: &Value) -> impl Iterator<Item = (&str, &str)> {
    references(observed).iter().filter(|reference| reference["controller"] == true).filter_map(|reference| {
        let (group, _) = reference["apiVersion"].as_str()?.split_once('/')?;
        let named = (reference["kind"].as_str()?, reference["name"].as_str()?);
        (group == GROUP).then_some(named)
    })
}
