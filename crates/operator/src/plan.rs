//! The plan of one controller: the actions that bring the cluster to its desired objects.
//!
//! In: desired objects, observed objects. Out: decisions. Never: a call, nor a write where nothing differs.

use std::collections::{BTreeMap, BTreeSet};

use objects::applier::{Planned, plan_object};
use objects::decision::Decision;
use objects::last_applied::LastApplied;
use objects::ownership::{is_terminating, references, uid};
use objects::{ObjectKey, ObservedObjects};
use serde_json::Value;

use crate::desired::{Controller, Desired, DesiredObject};
use crate::ownership::{RULES, Responsible, responsible};

/// The inputs of a plan besides the desired objects.
#[derive(Clone, Copy)]
pub struct PlanInputs<'a> {
    /// The observed objects.
    pub observed: &'a ObservedObjects,
    /// The UIDs of the users' objects that exist.
    pub owners: &'a BTreeSet<String>,
    /// Whether another controller desires an object, or may do so; asked of orphaned objects.
    pub others_desire: &'a dyn Fn(&ObjectKey) -> bool,
    /// The objects as they were applied last.
    pub last: &'a LastApplied,
}

/// Plans for one controller. Cost grows with the desired and the observed objects.
#[must_use]
pub fn plan(controller: Controller, desired: &Desired, inputs: PlanInputs<'_>) -> Vec<Planned> {
    let objects = match desired {
        Desired::Keep => return Vec::new(),
        Desired::Nothing => &[][..],
        Desired::Objects(objects) => objects,
    };
    let by_key: BTreeMap<ObjectKey, &DesiredObject> = objects.iter().map(|one| (one.key(), one)).collect();
    let planned = objects
        .iter()
        .filter_map(|one| plan_object(one, inputs.observed.get(one.object.key()), RULES, inputs.last));
    let stale = inputs.observed.iter().filter(|(key, observed)| {
        !by_key.contains_key(key)
            && !is_terminating(observed)
            && match responsible(key, observed) {
                // Without a request the garbage collector deletes what still has its owner.
                Responsible::Controller(one) => {
                    one == controller && !(*desired == Desired::Nothing && is_owned(observed, inputs.owners))
                }
                Responsible::Orphaned => !(inputs.others_desire)(key),
                Responsible::Unknown => false,
            }
    });
    let removals = stale.map(|(key, observed)| Planned {
        key: key.clone(),
        desired: None,
        decision: Decision::Remove { uid: uid(observed).to_owned() },
    });
    planned.chain(removals).collect()
}

/// Whether an owner of the object exists.
fn is_owned(observed: &Value, owners: &BTreeSet<String>) -> bool {
    let mut owner_uids = references(observed).iter().filter_map(|reference| reference["uid"].as_str());
    owner_uids.any(|uid| owners.contains(uid))
}

#[cfg(test)]
mod tests;
