//! One deployment or removal in progress: what its steps have in common.
//!
//! In: a api_server, settings, whoever is told. Out: an [`Outcome`] that grows. Never: an order of its own; that is
//! [`deploy`](super::deploy) and [`remove`](super::remove).

use kube::Client;
use runtime::client::brief;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::journal::Journal;
use super::progress::{Action, Step, Tell};
use super::{DryRun, Error, Outcome, Settings};
use crate::part::{Component, MANAGER};
use objects::client::{ApiServer, CallError};
use objects::{Object, ObjectKind};

/// See the module. Its methods that wait take it for themselves: whoever is told need not be shared between threads.
pub(super) struct Run<'a> {
    pub(super) api_server: ApiServer,
    pub(super) settings: &'a Settings,
    pub(super) tell: &'a mut dyn Tell,
    pub(super) outcome: Outcome,
    pub(super) journal: Journal,
}

/// Why it does not go on.
#[derive(Debug)]
pub(super) enum Halt {
    /// Somebody asked to stop.
    Cancelled,
    /// Something failed.
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Halt {
    /// A call for an object that was not done.
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
        tell: &'a mut dyn Tell,
        cancel: &CancellationToken,
    ) -> Self {
        let api_server = ApiServer {
            client: client.clone(),
            manager: MANAGER,
            dry_run: settings.dry_run.is_some(),
            patience: settings.patience,
            cancel: cancel.clone(),
        };
        Self { api_server, settings, tell, outcome: Outcome::default(), journal: Journal::default() }
    }

    /// Whether the cluster stays as it is.
    pub(super) fn is_dry(&self) -> bool {
        self.settings.dry_run.is_some()
    }

    pub(super) fn tell(&mut self, step: &Step<'_>) {
        self.tell.tell(step);
    }

    /// Tells and notes something that people should know.
    pub(super) fn found(&mut self, component: Component, object: &Object, finding: String) {
        self.tell(&Step::Found(component, object, finding.clone()));
        self.outcome.findings.push((component, object.clone(), finding));
    }

    /// Tells and notes the API server's warnings.
    pub(super) fn warned(&mut self, component: Component, object: &Object, warnings: Vec<String>) {
        for warning in warnings {
            self.tell(&Step::Warned(component, object, warning.clone()));
            self.outcome.warnings.push((component, object.clone(), warning));
        }
    }

    /// Tells and notes that an object stays.
    pub(super) fn kept(&mut self, component: Component, object: &Object, reason: String) {
        self.tell(&Step::Kept(component, object, reason.clone()));
        self.outcome.kept.push((component, object.clone(), reason));
    }

    /// Tells of a failure and hands it on.
    pub(super) fn failed(
        &mut self,
        action: Action,
        component: Component,
        object: &Object,
        halt: Halt,
    ) -> Halt {
        if let Halt::Failed(error) = &halt {
            let error = error.to_string();
            self.tell(&Step::Failed { action, component, object, error });
        }
        halt
    }

    /// The object as it is.
    pub(super) async fn get(&mut self, object: &Object) -> Result<Option<Value>, Halt> {
        self.api_server.get(object).await.map_err(|stop| Halt::of("reading", object, stop))
    }

    /// Deletes what is there under the object's name, if it is still the one that was read; says whether it was.
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

/// An object from a list of its kind, whose items do not say what they are.
pub(super) fn listed(kind: &ObjectKind, item: Value) -> Option<Object> {
    Object::from_value(kind.clone(), item).ok()
}
