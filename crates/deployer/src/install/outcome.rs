//! What became of a deployment or removal.
//!
//! In: what was done. Out: values for callers, errors in one line for people. Never: steps on the way, see
//! [`progress`](super::progress).

use std::fmt;
use std::time::Duration;

use super::progress::Change;
use crate::part::Component;
use objects::Object;

/// What a deployment did, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// What became of each object.
    pub applied: Vec<(Component, Object, Change)>,
    /// Objects of earlier deployments that were deleted.
    pub pruned: Vec<(Component, Object)>,
    /// Objects of earlier deployments that stay, and why.
    pub kept: Vec<(Component, Object, String)>,
    /// What the API server warned of, with the object.
    pub warnings: Vec<(Component, Object, String)>,
    /// What people should know, with the object.
    pub findings: Vec<(Component, Object, String)>,
}

/// What a removal did, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Removal {
    /// Objects that were deleted.
    pub deleted: Vec<(Component, Object)>,
    /// Objects of ours that stay, and why: something of others would be lost with them.
    pub kept: Vec<(Component, Object, String)>,
}

/// Why a deployment or removal did not get to its end. One line each.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// Somebody else's object has a name that we need.
    #[error("{object} was not made by us (it belongs to {owner}); remove it, or take it over with --adopt")]
    Foreign {
        /// The object, as people name it.
        object: String,
        /// Whoever made it, as far as it says.
        owner: String,
    },
    /// Somebody else's definition does not have what we need.
    #[error("{object} was not made by us (it belongs to {owner}) and {lacks}")]
    Unfit {
        /// The definition.
        object: String,
        /// Whoever made it, as far as it says.
        owner: String,
        /// What is wrong with it.
        lacks: String,
    },
    /// The API server did not do what it was asked for.
    #[error("{doing} {object}: {error}")]
    Call {
        /// What was being done, such as `applying`.
        doing: &'static str,
        /// To what.
        object: String,
        /// The answer.
        error: String,
    },
    /// Something did not get ready or gone in time.
    #[error("{object} is not {wanted} after {after:?}{}", Because(.troubles))]
    Timeout {
        /// What.
        object: String,
        /// `ready`, `established` or `gone`.
        wanted: &'static str,
        /// How long it was waited for.
        after: Duration,
        /// What is known about the reasons; how far it got, first.
        troubles: Vec<String>,
    },
    /// A name of a definition is taken, so that it will never be served.
    #[error("{object} cannot be served: {reason}")]
    NeverServed {
        /// The definition.
        object: String,
        /// Why.
        reason: String,
    },
    /// Somebody asked to stop.
    #[error("interrupted: {done} of {all} objects are done{}", Next(.next))]
    Cancelled {
        /// Objects that are as they should be.
        done: usize,
        /// Objects altogether.
        all: usize,
        /// Whose turn it would have been.
        next: Option<String>,
    },
    /// It failed, and what was there before was restored.
    #[error("{cause}; {}", Restored(.failures))]
    RolledBack {
        /// Why it failed.
        cause: Box<Error>,
        /// What could not be restored.
        failures: Vec<String>,
    },
    /// Several things failed; the rest was done.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<Error>),
}

impl Error {
    /// Whether it ended because somebody asked for it, restored or not.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        match self {
            Self::Cancelled { .. } => true,
            Self::RolledBack { cause, .. } => cause.is_cancelled(),
            Self::Several(errors) => errors.iter().any(Self::is_cancelled),
            _ => false,
        }
    }
}

struct Because<'a>(&'a [String]);

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {}", self.0.join("; ")) }
    }
}

struct Next<'a>(&'a Option<String>);

impl fmt::Display for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |next| write!(f, ", {next} would have been next"))
    }
}

struct Restored<'a>(&'a [String]);

impl fmt::Display for Restored<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("what was there before is restored"),
            failures => write!(f, "not all that was there before could be restored: {}", failures.join("; ")),
        }
    }
}
