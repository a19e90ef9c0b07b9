//! What to do so that the cluster is as it should be.
//!
//! In: what each controller wants, and what is there. Out: changes, in the order in which they are made. Never: a call, nor a change where
//! nothing differs.
//!
//! Whether an object is as it should be is read from two places: all that we state is in it, and its `managedFields` say that
//! we state nothing else and that nobody else has written into the parts that are ours.

use std::collections::BTreeSet;

use deployer::object::Object;

use crate::desired::{Controller, Desired};
use crate::live::{Key, Live};

pub mod owner;

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// It is not among what is known; look, and make it if it is not there at all.
    Create(Object),
    /// It differs. `before`: what has to be patched first, so that applying it leaves nothing of others: `managedFields` and
    /// `ownerReferences` as they have to be.
    Apply {
        /// As it should be.
        object: Object,
        /// A JSON patch for the step before, if there is one.
        before: Option<json_patch::Patch>,
    },
    /// It differs in what cannot be changed.
    Recreate {
        /// As it should be.
        object: Object,
        /// The one that goes.
        uid: String,
        /// What cannot be changed.
        field: &'static str,
    },
    /// It is ours and nobody wants it any more.
    Delete {
        /// Which.
        key: Key,
        /// The one that goes.
        uid: String,
    },
    /// It is somebody else's.
    Refuse {
        /// As it should be.
        object: Object,
        /// Whose it is, as far as that can be told.
        owner: String,
    },
    /// It is going away: nothing can be done before it has.
    Await(Key),
}

/// What a plan is made from besides wishes.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// What is there.
    pub live: &'a Live,
    /// The unique ids of the objects of users that there are.
    pub owners: &'a BTreeSet<String>,
    /// What another controller wants, or may want: asked of what has lost its owner.
    pub others_want: &'a dyn Fn(&Key) -> bool,
}

/// What to do for one controller.
#[must_use]
pub fn plan(_controller: Controller, _desired: &Desired, _scene: Scene<'_>) -> Vec<Change> {
    Vec::new()
}
