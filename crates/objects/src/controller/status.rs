//! Condition transitions as events.
//!
//! In: what changed in a status, the user's object. Out: events and log lines. Never: a decision what is worth telling.

use runtime::events::{Event, Recorder, Severity, Subject};
pub use runtime::status::{Transition, merge_patch};

/// Records transitions as events regarding the user's object, and logs them.
pub fn record(recorder: &Recorder, subject: &Subject, transitions: Vec<Transition>) {
    for Transition { severity, reason, note } in transitions {
        tracing::info!(object = subject.name, namespace = subject.namespace, reason, note, "status changed");
        recorder.record(event(subject, severity, &reason, note));
    }
}

/// An event of a reconcile regarding a user's object.
#[must_use]
pub fn event(subject: &Subject, severity: Severity, reason: &str, note: String) -> Event {
    Event {
        regarding: subject.clone(),
        related: None,
        severity,
        reason: reason.to_owned(),
        action: "Reconciling".to_owned(),
        note,
    }
}
