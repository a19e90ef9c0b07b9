//! The state of one deployment or removal, with the operations that both share.
//!
//! In: a cluster, settings, an observer. Out: a growing [`Outcome`]. Never: the order of the steps; see
//! [`deploy`](super::deploy) and [`remove`](super::remove).

use kube::Client;
use runtime::client::brief;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::rollback::ChangeLog;
use super::step::{ObjectStep, Observer, Operation, Step};
use super::{DryRun, Error, Outcome, Settings};
use crate::part::{Component, MANAGER};
use objects::client::{ApiServer, CallError};
use objects::{Object, ObjectKind};

/// One deployment or removal. Methods take `&mut self`, because the observer is not shared between threads.
pub(super) struct Run<'a> {
    pub(super) api_server: ApiServer,
    pub(super) settings: &'a Settings,
    pub(super) observer: &'a mut dyn Observer,
    pub(super) outcome: Outcome,
    pub(super) change_log: ChangeLog,
}

/// Why a run stops.
#[derive(Debug)]
pub(super) enum Halt {
    /// The caller cancelled.
    Cancelled,
    /// A step failed.
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Halt {
    /// A failed call about an object.
    pub(super) fn of(doing: &'static str, object: impl ToString, stop: CallError) -> Self {
        match stop {
            CallError::Cancelled => Self::Cancelled,
            CallError::Failed(error) => {
                Self::Failed(Error::Call { doing, object: object.to_string(), error: brief(&error) })
            }
        }
    }
}

impl<'a> Run<'a> {
    pub(super) fn new(
        client: &Client,
        settings: &'a Settings,
        observer: &'a mut dyn Observer,
        cancel: &CancellationToken,
    ) -> Self {
        let api_server = ApiServer {
            client: client.clone(),
            manager: MANAGER,
            dry_run: settings.dry_run.is_some(),
            patience: settings.patience,
            cancel: cancel.clone(),
        };
        Self { api_server, settings, observer, outcome: Outcome::default(), change_log: ChangeLog::default() }
    }

    /// Whether this is a dry run.
    pub(super) fn is_dry(&self) -> bool {
        self.settings.dry_run.is_some()
    }

    pub(super) fn observe(&mut self, step: &Step<'_>) {
        self.observer.observe(step);
    }

    /// Reports and records what happened to an object.
    pub(super) fn report(&mut self, component: Component, object: &Object, step: ObjectStep) {
        self.outcome.record(component, object, &step);
        self.observe(&Step::Object(component, object, step));
    }

    /// Reports a failure and passes it on.
    pub(super) fn failed(
        &mut self,
        operation: Operation,
        component: Component,
        object: &Object,
        halt: Halt,
    ) -> Halt {
        if let Halt::Failed(error) = &halt {
            self.report(component, object, ObjectStep::Failed(operation, error.to_string()));
        }
        halt
    }

    /// The object in the cluster.
    pub(super) async fn get(&mut self, object: &Object) -> Result<Option<Value>, Halt> {
        self.api_server.get(object).await.map_err(|stop| Halt::of("reading", object, stop))
    }

    /// Deletes the object if its uid is still that of `live`; returns whether it existed.
    pub(super) async fn delete(
        &mut self,
        object: &Object,
        live: &Value,
        patient: bool,
    ) -> Result<bool, Halt> {
        use kube::core::params::PropagationPolicy::{Background, Foreground};
        if self.settings.dry_run == Some(DryRun::Client) {
            return Ok(true);
        }
        let uid = live["metadata"]["uid"].as_str();
        let propagation = if patient { Foreground } else { Background };
        let deleted = self.api_server.delete(object, uid, propagation).await;
        deleted.map_err(|stop| Halt::of("deleting", object, stop))
    }
}

/// An object from a list; items of lists have no kind of their own.
pub(super) fn listed(kind: &ObjectKind, item: Value) -> Option<Object> {
    Object::from_value(kind.clone(), item).ok()
}
