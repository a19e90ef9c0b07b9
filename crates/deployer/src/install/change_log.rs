//! The log of a deployment's writes: what a rollback has to undo.
//!
//! In: objects before they are written. Out: the entries in order, each with the state before it. Never: a call.

use serde_json::Value;

use crate::part::Component;
use objects::Object;

/// The writes of one deployment, in order.
#[derive(Debug, Default)]
pub(super) struct ChangeLog {
    entries: Vec<LoggedChange>,
    closed: bool,
}

/// An object that was written.
#[derive(Debug)]
pub(super) struct LoggedChange {
    pub(super) component: Component,
    pub(super) object: Object,
    /// The object in the cluster before; `None` if there was none.
    pub(super) before: Option<Value>,
}

impl ChangeLog {
    /// Logs an object that is about to be written. Of several entries for one object the first one counts.
    pub(super) fn note(&mut self, component: Component, object: &Object, before: Option<&Value>) {
        if !self.entries.iter().any(|entry| entry.object.is_same(object)) {
            self.entries.push(LoggedChange { component, object: object.clone(), before: before.cloned() });
        }
    }

    /// Drops the last entry if it is the object's: the write changed nothing.
    pub(super) fn forget(&mut self, object: &Object) {
        if self.entries.last().is_some_and(|entry| entry.object.is_same(object)) {
            self.entries.pop();
        }
    }

    /// Drops all entries and marks the point of no return.
    pub(super) fn close(&mut self) {
        self.entries.clear();
        self.closed = true;
    }

    /// Whether the point of no return is passed.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Hands the entries over to a rollback.
    pub(super) fn take(&mut self) -> Vec<LoggedChange> {
        std::mem::take(&mut self.entries)
    }
}
