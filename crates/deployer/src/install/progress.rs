//! What happens while parts are installed or removed, as values; how it reads is for whoever tells it.
//!
//! In: nothing. Out: [`Step`]s, one after the other, to a [`Tell`]. Never: text for people.

use crate::object::Object;
use crate::part::Component;

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
    /// An object was deleted.
    Deleted(Component, &'a Object),
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
    /// What was waited for is there (deploy) or gone (remove).
    Reached(Action, Component, &'a Object),
    /// An attempt to restore what was there before has begun, because of a failure.
    RollingBack,
    /// A component is done.
    Ended(Action, Component),
}

/// Whoever is told.
pub trait Tell {
    /// Takes one step in. Called in order.
    fn tell(&mut self, step: &Step<'_>);
}

/// Closures can be told.
impl<F: FnMut(&Step<'_>)> Tell for F {
    fn tell(&mut self, step: &Step<'_>) {
        self(step);
    }
}
