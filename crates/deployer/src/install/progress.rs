//! What happens while parts are installed or removed, as values; how it reads is for whoever tells it.
//!
//! In: nothing. Out: [`Step`]s, one after the other, to a [`Tell`]. Never: text for people.

use crate::part::Component;
use objects::Object;

/// What is being done to a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is installed or brought up to date.
    Deploy,
    /// It is removed.
    Remove,
}

/// What an apply did to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was not there.
    Created,
    /// It said something else.
    Configured,
    /// It was as it should be.
    Unchanged,
    /// It was there before us and is used as it is.
    Foreign,
    /// It was there before us and is ours from now on, because that was asked for.
    Adopted,
    /// What it said cannot be changed, so it was deleted and made anew.
    Recreated,
}

/// What undoing did to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undone {
    /// It had been made, and was deleted.
    Deleted,
    /// It had been changed or deleted, and says again what it said before.
    Restored,
}

/// Why something that is waited for is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It cannot be seen yet.
    Absent,
    /// A CustomResourceDefinition that is not served yet.
    NotEstablished,
    /// A DaemonSet's pods.
    DaemonSet {
        /// Nodes that should run one.
        desired: i32,
        /// Nodes that run one of the newest revision.
        updated: i32,
        /// Nodes whose pod is ready.
        ready: i32,
    },
    /// A DaemonSet or Deployment whose newest revision its controller has not seen yet.
    Unobserved,
    /// A Deployment's pods.
    Deployment {
        /// How many there should be.
        replicas: i32,
        /// How many are of the newest revision.
        updated: i32,
        /// How many are available.
        available: i32,
    },
    /// It is being removed and still there.
    Present,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<'a> {
    /// A component's turn has come.
    Began(Action, Component),
    /// An object was applied.
    Applied(Component, &'a Object, Change),
    /// An object cannot be changed to what it should say, for this reason: it is about to be deleted and made anew.
    Recreating(Component, &'a Object, String),
    /// An object was deleted: while removing, or while deploying because it is no longer among the component's objects.
    Deleted(Component, &'a Object),
    /// An object of ours stays although its component is removed or no longer has it, for this reason.
    Kept(Component, &'a Object, String),
    /// The API server took the object with a warning.
    Warned(Component, &'a Object, String),
    /// Something that people should know about an object; no failure.
    Found(Component, &'a Object, String),
    /// An object could not be applied, deleted or waited for.
    Failed {
        /// What was being done.
        action: Action,
        /// Of which component.
        component: Component,
        /// To which object.
        object: &'a Object,
        /// Why not, in one line.
        error: String,
    },
    /// An object is waited for; told when waiting begins and whenever its state changes.
    Waiting(Component, &'a Object, State),
    /// Why the object that is waited for may never get there, such as a pod's image that cannot be pulled; told once each.
    Trouble(Component, &'a Object, String),
    /// What was waited for is there (deploy) or gone (remove).
    Reached(Action, Component, &'a Object),
    /// An attempt to restore what was there before has begun, because of a failure.
    RollingBack,
    /// An object is as it was before.
    RolledBack(Component, &'a Object, Undone),
    /// A component is done.
    Ended(Action, Component),
}

/// Whoever is told.
pub trait Tell: Send {
    /// Takes one step in. Called in order.
    fn tell(&mut self, step: &Step<'_>);
}

/// Closures can be told.
impl<F: FnMut(&Step<'_>) + Send> Tell for F {
    fn tell(&mut self, step: &Step<'_>) {
        self(step);
    }
}
