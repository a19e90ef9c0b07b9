//! The results of a deployment or removal.
//!
//! In: completed changes. Out: values for callers, errors of one line. Never: progress; see [`step`](super::step).

use std::time::Duration;

use super::step::{Change, ObjectStep};
use crate::part::Component;
use objects::Object;

/// The result of a deployment, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Each object with its change.
    pub applied: Vec<(Component, Object, Change)>,
    /// Objects of earlier deployments that were deleted.
    pub pruned: Vec<(Component, Object)>,
    /// Objects of earlier deployments that stay, each with the reason.
    pub kept: Vec<(Component, Object, String)>,
    /// Warnings of the API server, with the object.
    pub warnings: Vec<(Component, Object, String)>,
    /// Notes for the user, with the object.
    pub findings: Vec<(Component, Object, String)>,
}

impl Outcome {
    /// Records what a caller may want to know of a step.
    pub(super) fn record(&mut self, component: Component, object: &Object, step: &ObjectStep) {
        let object = || object.clone();
        match step {
            ObjectStep::Applied(change) => self.applied.push((component, object(), *change)),
            ObjectStep::Deleted => self.pruned.push((component, object())),
            ObjectStep::Kept(reason) => self.kept.push((component, object(), reason.clone())),
            ObjectStep::Warned(warning) => self.warnings.push((component, object(), warning.clone())),
            ObjectStep::Note(note) => self.findings.push((component, object(), note.clone())),
            _ => {}
        }
    }
}

/// The result of a removal, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Removal {
    /// The deleted objects.
    pub deleted: Vec<(Component, Object)>,
    /// Our objects that stay because objects of others would be lost with them, each with the reason.
    pub kept: Vec<(Component, Object, String)>,
}

/// A deployment or removal that failed. Each message is one line.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// An object of others has a name that the deployment needs.
    #[error("{object} was not made by us (it belongs to {owner}); remove it, or take it over with --adopt")]
    Foreign {
        /// The object, as `Kind namespace/name`.
        object: String,
        /// The owner, as far as the object tells.
        owner: String,
    },
    /// A CustomResourceDefinition of others lacks a version or field that is needed.
    #[error("{object} was not made by us (it belongs to {owner}) and {lacks}")]
    Unfit {
        /// The definition.
        object: String,
        /// The owner, as far as the object tells.
        owner: String,
        /// The deficiency.
        lacks: String,
    },
    /// A call to the API server failed.
    #[error("{doing} {object}: {error}")]
    Call {
        /// The operation, such as `applying`.
        doing: &'static str,
        /// The object.
        object: String,
        /// The API server's answer.
        error: String,
    },
    /// An object did not become ready or disappear in time.
    #[error("{object} is not {wanted} after {after:?}{}", because(.reasons))]
    Timeout {
        /// The object.
        object: String,
        /// `ready`, `established` or `gone`.
        wanted: &'static str,
        /// The time limit.
        after: Duration,
        /// The progress so far, then known reasons.
        reasons: Vec<String>,
    },
    /// A definition is never served, because another one has its names.
    #[error("{object} cannot be served: {reason}")]
    NeverServed {
        /// The definition.
        object: String,
        /// The reason.
        reason: String,
    },
    /// The caller cancelled.
    #[error("interrupted: {done} of {all} objects are done{}", next_object(.next.as_ref()))]
    Cancelled {
        /// The number of completed objects.
        done: usize,
        /// The number of all objects.
        all: usize,
        /// The next object.
        next: Option<String>,
    },
    /// The deployment failed and was rolled back.
    #[error("{cause}; {}", restored(.failures))]
    RolledBack {
        /// The failure.
        cause: Box<Error>,
        /// Objects that could not be restored, each with the reason.
        failures: Vec<String>,
    },
    /// Several objects failed; all others are done.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<Error>),
}

impl Error {
    /// Whether the caller cancelled, with or without a rollback.
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

fn because(reasons: &[String]) -> String {
    if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) }
}

fn next_object(next: Option<&String>) -> String {
    next.map_or_else(String::new, |next| format!("; the next is {next}"))
}

fn restored(failures: &[String]) -> String {
    if failures.is_empty() {
        return "the previous state is restored".to_owned();
    }
    format!("the previous state could not be restored completely: {}", failures.join("; "))
}
