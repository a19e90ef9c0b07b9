//! Undoing a deployment.
//!
//! In: the log of its writes, each with the state before. Out: the cluster in its former state, and what could not be
//! restored. Never: a stop at the first failure; each failure is reported and the rest is still restored.

use runtime::client;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::decide::is_ours;
use super::run::{Halt, Run};
use super::step::{ObjectStep, Operation, Reverted, Step};
use crate::part::Component;
use objects::Object;
use objects::client::CallError;
use objects::decision::immutable;
use objects::ownership::is_terminating;

/// Attempts to restore an object while others write it.
const TRIES: u32 = 5;

/// The writes of one deployment, in order.
#[derive(Debug, Default)]
pub(super) struct ChangeLog {
    entries: Vec<LoggedChange>,
    /// Whether the point of no return is passed: nothing is undone.
    pub(super) closed: bool,
}

/// An object that was written.
#[derive(Debug)]
struct LoggedChange {
    component: Component,
    object: Object,
    /// The object in the cluster before; `None` if there was none.
    before: Option<Value>,
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
}

impl Run<'_> {
    /// Restores the former state, the last change first, and returns the failures. Cancelling does not stop a rollback;
    /// each call and wait has its time limit.
    pub(super) async fn roll_back(&mut self) -> Vec<String> {
        self.observe(&Step::RollingBack);
        self.api_server.cancel = CancellationToken::new();
        let mut failures = Vec::new();
        let entries = std::mem::take(&mut self.change_log.entries);
        for entry in entries.iter().rev() {
            match self.undo(entry).await {
                Ok(Some(undone)) => {
                    self.report(entry.component, &entry.object, ObjectStep::RolledBack(undone));
                }
                Ok(None) => {}
                Err(halt) => failures.extend(self.not_undone(entry, halt)),
            }
        }
        for entry in entries.iter().rev().filter(|entry| entry.before.is_none()) {
            if let Err(halt) = self.wait_gone(entry.component, &entry.object, None).await {
                failures.extend(self.not_undone(entry, halt));
            }
        }
        failures
    }

    fn not_undone(&mut self, entry: &LoggedChange, halt: Halt) -> Option<String> {
        match self.failed(Operation::Deploy, entry.component, &entry.object, halt) {
            Halt::Failed(error) => Some(error.to_string()),
            Halt::Cancelled => None,
        }
    }

    async fn undo(&mut self, entry: &LoggedChange) -> Result<Option<Reverted>, Halt> {
        let LoggedChange { component, object, before } = entry;
        let Some(former) = before else {
            let live = self.get(object).await?.filter(is_ours);
            let Some(live) = live else { return Ok(None) };
            let deleted = self.delete(object, &live, object.kind().is_workload()).await?;
            return Ok(deleted.then_some(Reverted::Deleted));
        };
        for _ in 0..TRIES {
            let live = self.get(object).await?;
            if let Some(live) = &live {
                let leaving = is_terminating(live);
                let stubborn = immutable(object.kind(), former, live).is_some();
                if stubborn && !leaving {
                    self.delete(object, live, object.kind().is_workload()).await?;
                }
                if stubborn || leaving {
                    self.wait_gone(*component, object, None).await?;
                    continue;
                }
            }
            match self.api_server.restore(object, former, live.as_ref()).await {
                Ok(()) => return Ok(Some(Reverted::Restored)),
                Err(stop) if stop.is(client::is_conflict) || stop.is(client::is_not_found) => {}
                Err(stop) => return Err(Halt::of("restoring", object, stop)),
            }
        }
        let busy = kube::Error::Service("other clients keep changing it".into());
        Err(Halt::of("restoring", object, CallError::Failed(busy)))
    }
}
