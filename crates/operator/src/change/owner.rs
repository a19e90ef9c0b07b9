//! Whose an object is.
//!
//! In: an object as it is on the API server. Out: whether it is ours, and which controller's. Never: a guess from the name alone.

use api::numaresources::{GROUP, keys, operator, scheduler};
use serde_json::Value;

use crate::desired::{Controller, MANAGED_BY, MANAGER};
use objects::ObjectKey;

/// Which controller keeps an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belongs {
    /// This one.
    To(Controller),
    /// One of ours made it, for somebody it no longer names.
    Orphan,
    /// None, unless one wants an object of this name.
    Nobody,
}

/// Whether it is ours: it has our mark; or it is owned by one of our users' objects, as those of the Go operator are; or we applied it.
///
/// The exporters' configuration that the Go operator made is owned by a KubeletConfig or by nobody, and known by its label.
#[must_use]
pub fn is_ours(key: &ObjectKey, live: &Value) -> bool {
    live["metadata"]["labels"][MANAGED_BY] == MANAGER
        || belongs(key, live) != Belongs::Nobody
        || !applied(live).is_empty()
}

/// Which controller keeps it. What it is called plays no part.
#[must_use]
pub fn belongs(key: &ObjectKey, live: &Value) -> Belongs {
    let is_map = key.kind.group.is_empty() && key.kind.kind == "ConfigMap";
    for (kind, name) in owners(live) {
        match kind {
            scheduler::KIND if name == keys::SCHEDULER => {
                return Belongs::To(Controller::NumaResourcesScheduler);
            }
            operator::KIND if name == keys::OPERATOR && is_map => {
                return Belongs::To(Controller::KubeletConfig);
            }
            operator::KIND if name == keys::OPERATOR => {
                return Belongs::To(Controller::NumaResourcesOperator);
            }
            _ => {}
        }
    }
    if is_map && live["metadata"]["labels"][keys::LABEL_OPERATOR] == keys::OPERATOR {
        return Belongs::To(Controller::KubeletConfig);
    }
    let stated = |entry: &&Value| !entry["fieldsV1"]["f:metadata"]["f:ownerReferences"].is_null();
    if applied(live).iter().any(stated) { Belongs::Orphan } else { Belongs::Nobody }
}

/// The entries of `managedFields` for what we applied; more than one only if we applied it in several versions of its API.
#[must_use]
pub fn applied(live: &Value) -> Vec<&Value> {
    entries(live).iter().filter(|entry| is_our_entry(entry)).collect()
}

/// All entries of `managedFields`.
pub(super) fn entries(live: &Value) -> &[Value] {
    live["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn is_our_entry(entry: &Value) -> bool {
    entry["manager"] == MANAGER
        && entry["operation"] == "Apply"
        && entry["subresource"].as_str().unwrap_or_default().is_empty()
}

/// Kind and name of the objects of our group that control it.
fn owners(live: &Value) -> impl Iterator<Item = (&str, &str)> {
    let references = live["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    references.iter().filter(|reference| reference["controller"] == true).filter_map(|reference| {
        let (group, _) = reference["apiVersion"].as_str()?.split_once('/')?;
        let named = (reference["kind"].as_str()?, reference["name"].as_str()?);
        (group == GROUP).then_some(named)
    })
}
