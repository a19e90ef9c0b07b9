//! What to do so that the cluster is as it should be.
//!
//! In: what each controller wants, and what is there. Out: changes, in the order in which they are made. Never: a call, nor a change where
//! nothing differs.
//!
//! Whether an object is as it should be is read from two places: all that we state is in it, and its `managedFields` say that
//! we state nothing else and that nobody else has written into the parts that are ours ([`same`]).

use std::collections::{BTreeMap, BTreeSet};

use objects::equality::{immutable, owner as maker, unfit};
use serde_json::Value;

use crate::desired::{Controller, Desired, MANAGED_BY, MANAGER, Treatment, Wanted};
use objects::{ObjectKey, ObservedObjects};

pub mod memory;
pub mod owner;
pub mod same;

pub use memory::Memory;
use owner::Belongs;
use same::Difference;

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// It is not among what is known; look, and make it if it is not there at all.
    Create(Wanted),
    /// It differs.
    Apply {
        /// As it should be.
        wanted: Wanted,
        /// The one that is there.
        uid: String,
        /// What has to be patched first, so that applying it leaves nothing of others: `managedFields` and `ownerReferences`
        /// as they have to be.
        before: Option<json_patch::Patch>,
    },
    /// It differs in what cannot be changed.
    Recreate {
        /// As it should be.
        wanted: Wanted,
        /// The one that goes.
        uid: String,
        /// What cannot be changed.
        field: &'static str,
    },
    /// It is ours and nobody wants it any more.
    Delete {
        /// Which.
        key: ObjectKey,
        /// The one that goes.
        uid: String,
    },
    /// It is somebody else's, as far as is known: nobody tells what becomes of it, so it is to be looked at.
    Refuse {
        /// As it should be.
        wanted: Wanted,
        /// Whose it is, as far as that can be told.
        owner: String,
    },
    /// It is going away, as far as is known: nothing can be done before it has.
    Await(Wanted),
}

/// What a plan is made from besides wishes.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// What is there.
    pub live: &'a ObservedObjects,
    /// The unique ids of the objects of users that there are.
    pub owners: &'a BTreeSet<String>,
    /// What another controller wants, or may want: asked of what has lost its owner.
    pub others_want: &'a dyn Fn(&ObjectKey) -> bool,
    /// What was done before.
    pub memory: &'a Memory,
}

impl Change {
    /// Of which object.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Create(wanted)
            | Self::Apply { wanted, .. }
            | Self::Recreate { wanted, .. }
            | Self::Refuse { wanted, .. }
            | Self::Await(wanted) => wanted.key(),
            Self::Delete { key, .. } => key.clone(),
        }
    }
}

/// What to do for one controller.
#[must_use]
pub fn plan(controller: Controller, desired: &Desired, scene: Scene<'_>) -> Vec<Change> {
    let objects = match desired {
        Desired::Keep => return Vec::new(),
        Desired::Nothing => &[][..],
        Desired::Objects(objects) => objects,
    };
    let wanted: BTreeMap<ObjectKey, &Wanted> = objects.iter().map(|wanted| (wanted.key(), wanted)).collect();
    let made =
        objects.iter().filter_map(|wanted| decide(wanted, scene.live.get(&wanted.key()), scene.memory));
    let stale = scene.live.iter().filter(|(key, live)| {
        !wanted.contains_key(key)
            && live["metadata"]["deletionTimestamp"].is_null()
            && match owner::belongs(key, live) {
                // Without wishes nobody is left but the garbage collector's business, unless the owner is gone already.
                Belongs::To(keeper) => {
                    keeper == controller && !(*desired == Desired::Nothing && is_owned(live, scene.owners))
                }
                Belongs::Orphan => !(scene.others_want)(key),
                Belongs::Nobody => false,
            }
    });
    let stale = stale.map(|(key, live)| Change::Delete { key: key.clone(), uid: uid(live) });
    made.chain(stale).collect()
}

/// What to do about one object that is wanted, given what is there under its name.
#[must_use]
pub fn decide(wanted: &Wanted, live: Option<&Value>, memory: &Memory) -> Option<Change> {
    if wanted.treatment == Treatment::Hold {
        return None;
    }
    let Some(live) = live else { return Some(Change::Create(wanted.clone())) };
    if !live["metadata"]["deletionTimestamp"].is_null() {
        return Some(Change::Await(wanted.clone()));
    }
    let uid = uid(live);
    if !owner::is_ours(&wanted.key(), live) {
        return match wanted.treatment {
            Treatment::Share => {
                let apply = |_| Change::Apply { wanted: wanted.clone(), uid, before: None };
                unfit(wanted.object.body(), live).map(apply)
            }
            _ => Some(Change::Refuse { wanted: wanted.clone(), owner: maker(live) }),
        };
    }
    let wanted = Wanted { object: same::adapted(&wanted.object, live), ..*wanted };
    if let Some(field) = immutable(wanted.object.kind(), wanted.object.body(), live) {
        return Some(Change::Recreate { wanted, uid, field });
    }
    let difference = same::difference(&wanted.object, live)?;
    if memory.is_settled(&wanted, live) {
        return None;
    }
    let before = match difference {
        Difference::Values => None,
        Difference::Claims(patch) => Some(patch),
    };
    Some(Change::Apply { wanted, uid, before })
}

/// What people are told of an object that is somebody else's.
#[must_use]
pub fn refusal(key: &ObjectKey, owner: &str) -> String {
    format!("{key} belongs to {owner} and is left alone; labelled {MANAGED_BY}={MANAGER} it is handed over")
}

/// Whether somebody owns it who is there.
fn is_owned(live: &Value, owners: &BTreeSet<String>) -> bool {
    let references = live["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    references.iter().filter_map(|reference| reference["uid"].as_str()).any(|uid| owners.contains(uid))
}

fn uid(live: &Value) -> String {
    live["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
