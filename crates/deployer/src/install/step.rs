//! The steps of a deployment or removal, as values.
//!
//! In: nothing. Out: [`Step`]s in order, for an [`Observer`]. Never: their text; see `progress`.

use crate::part::Component;
use objects::Object;

/// An operation on a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Install or update.
    Deploy,
    /// Remove.
    Remove,
}

impl Operation {
    /// The word for this operation out of one for a deployment and one for a removal.
    #[must_use]
    pub fn word<'w>(self, deploy: &'w str, remove: &'w str) -> &'w str {
        if self == Self::Deploy { deploy } else { remove }
    }
}

/// The change that a deployment made to an object; in the order of a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Created.
    Created,
    /// Updated.
    Configured,
    /// Deleted and created again, because a field cannot be changed.
    Recreated,
    /// Belonged to others and was taken over, with `--adopt`.
    Adopted,
    /// Already as stated.
    Unchanged,
    /// Belongs to others and is used unchanged.
    Foreign,
}

/// The change that a rollback made to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reverted {
    /// The deployment had created the object; now it is deleted.
    Deleted,
    /// The deployment had changed or deleted the object; now it has its former state.
    Restored,
}

/// The state of an object during a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitState {
    /// Not in the cluster yet.
    Absent,
    /// A CustomResourceDefinition that is not established yet.
    NotEstablished,
    /// The pods of a DaemonSet.
    DaemonSet {
        /// Nodes that should run a pod.
        desired: i32,
        /// Nodes with a pod of the newest revision.
        updated: i32,
        /// Nodes whose pod is ready.
        ready: i32,
    },
    /// A DaemonSet or Deployment whose controller has not observed the newest generation.
    Unobserved,
    /// The pods of a Deployment.
    Deployment {
        /// The desired number.
        replicas: i32,
        /// Pods of the newest revision.
        updated: i32,
        /// Available pods.
        available: i32,
    },
    /// Deleted but still in the cluster.
    Present,
}

/// One step of a deployment or removal.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<'a> {
    /// The operation on a component began.
    Began(Operation, Component),
    /// Something happened to an object of a component.
    Object(Component, &'a Object, ObjectStep),
    /// A rollback began because of a failure.
    RollingBack,
    /// The operation on a component ended.
    Ended(Operation, Component),
}

/// What happened to an object.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectStep {
    /// It was applied.
    Applied(Change),
    /// It cannot be updated for this reason and will be deleted and created again.
    Recreating(String),
    /// It was deleted: by a removal, or by a deployment whose component no longer has it.
    Deleted,
    /// It stays for this reason, although its component is removed or no longer has it.
    Kept(String),
    /// The API server accepted it with this warning.
    Warned(String),
    /// A note for the user; not a failure.
    Note(String),
    /// It could not be applied, deleted or waited for; the failure in one line.
    Failed(Operation, String),
    /// A wait for it: sent when the wait begins and whenever the state changes.
    Waiting(WaitState),
    /// A reason that may keep a wait from ending, such as an image that cannot be pulled; each is sent once.
    Diagnosis(String),
    /// The end of a wait: it is ready (deploy) or gone (remove).
    Reached(Operation),
    /// Its rollback ended.
    RolledBack(Reverted),
}

/// Receives the steps of a deployment or removal.
pub trait Observer: Send {
    /// Receives one step; called in order.
    fn observe(&mut self, step: &Step<'_>);
}

/// A closure is an observer.
impl<F: FnMut(&Step<'_>) + Send> Observer for F {
    fn observe(&mut self, step: &Step<'_>) {
        self(step);
    }
}
