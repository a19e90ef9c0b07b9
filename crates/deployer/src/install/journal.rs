//! What a deployment changed, and putting it back.
//!
//! In: objects before they are written. Out: the cluster as it was, as far as it lets us. Never: an end at the first failure;
//! each is told, and the rest is still put back.

use runtime::client;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::decide::is_ours;
use super::progress::{Action, Step, Undone};
use super::run::{Halt, Run};
use super::sorts::Role;
use crate::part::Component;
use objects::Object;
use objects::client::CallError;
use objects::equality::immutable;

/// How often a write is tried that others get in the way of.
const TRIES: u32 = 5;

/// What was written, in order, each with what was there before.
#[derive(Debug, Default)]
pub(super) struct Journal {
    entries: Vec<Entry>,
    closed: bool,
}

#[derive(Debug)]
struct Entry {
    component: Component,
    object: Object,
    before: Option<Value>,
}

impl Journal {
    /// Notes an object that is about to be written. The first note of an object counts.
    pub(super) fn note(&mut self, component: Component, object: &Object, before: Option<&Value>) {
        if !self.entries.iter().any(|entry| entry.object.is_same(object)) {
            self.entries.push(Entry { component, object: object.clone(), before: before.cloned() });
        }
    }

    /// Forgets the last note: the write changed nothing.
    pub(super) fn forget(&mut self, object: &Object) {
        if self.entries.last().is_some_and(|entry| entry.object.is_same(object)) {
            self.entries.pop();
        }
    }

    /// Forgets everything: there is no way back from here.
    pub(super) fn close(&mut self) {
        self.entries.clear();
        self.closed = true;
    }

    /// Whether there is no way back.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }
}

impl Run<'_> {
    /// Puts back what was there before, the last change first; hands back what could not be. Nobody can interrupt it, but
    /// each call has its limits.
    pub(super) async fn roll_back(&mut self) -> Vec<String> {
        self.tell(&Step::RollingBack);
        self.api_server.cancel = CancellationToken::new();
        let mut failures = Vec::new();
        let entries = std::mem::take(&mut self.journal.entries);
        for entry in entries.iter().rev() {
            match self.undo(entry).await {
                Ok(Some(undone)) => self.tell(&Step::RolledBack(entry.component, &entry.object, undone)),
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

    fn not_undone(&mut self, entry: &Entry, halt: Halt) -> Option<String> {
        match self.failed(Action::Deploy, entry.component, &entry.object, halt) {
            Halt::Failed(error) => Some(error.to_string()),
            Halt::Cancelled => None,
        }
    }

    async fn undo(&mut self, entry: &Entry) -> Result<Option<Undone>, Halt> {
        let Entry { component, object, before } = entry;
        let Some(former) = before else {
            let live = self.get(object).await?.filter(is_ours);
            let Some(live) = live else { return Ok(None) };
            let patient = Role::of(object).is_workload();
            return Ok(self.delete(object, &live, patient).await?.then_some(Undone::Deleted));
        };
        for _ in 0..TRIES {
            let live = self.get(object).await?;
            if let Some(live) = &live {
                let leaving = !live["metadata"]["deletionTimestamp"].is_null();
                let stubborn = immutable(object.kind(), former, live).is_some();
                if stubborn && !leaving {
                    self.delete(object, live, Role::of(object).is_workload()).await?;
                }
                if stubborn || leaving {
                    self.wait_gone(*component, object, None).await?;
                    continue;
                }
            }
            match self.api_server.restore(object, former, live.as_ref()).await {
                Ok(()) => return Ok(Some(Undone::Restored)),
                Err(stop) if stop.is(client::is_conflict) || stop.is(client::is_not_found) => {}
                Err(stop) => return Err(Halt::of("restoring", object, stop)),
            }
        }
        let busy = kube::Error::Service("others keep changing it".into());
        Err(Halt::of("restoring", object, CallError::Failed(busy)))
    }
}
