//! What the controllers have in common: from the world to changes to a status.
//!
//! In: the world, a controller. Out: changes made, status written. Never: a rule about what should be there.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kube::Client;
use objects::client::ApiServer;
use prometheus_client::registry::Registry;
use runtime::events::Recorder;
use tokio_util::sync::CancellationToken;

use crate::apply::Hand;
use crate::desired::{Controller, MANAGER};
use objects::ObjectKey;

pub mod metrics;
pub mod reports;
pub mod rules;
pub mod shared;
pub mod status;
mod worker;

use metrics::Metrics;
use rules::Rules;
pub use shared::{Shared, Wake};
use worker::Worker;

/// What came of the changes of one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// What could not be done, one line each, for people.
    pub errors: Vec<String>,
    /// What was done, in the order in which it was planned.
    pub changed: Vec<Changed>,
    /// Something has to be waited for, or tried again, although nobody may say when.
    pub pending: bool,
}

impl Done {
    /// What was left alone because it is somebody else's.
    pub fn refused(&self) -> impl Iterator<Item = &ObjectKey> {
        self.changed.iter().filter(|changed| changed.action == Action::Refused).map(|changed| &changed.key)
    }
}

/// Something that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// To which object.
    pub key: ObjectKey,
    /// What.
    pub action: Action,
}

/// What was done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It was made.
    Created,
    /// It says something new, because something new is wanted.
    Updated,
    /// It says again what it had said.
    Repaired,
    /// It was deleted and made anew, since it could not be changed.
    Recreated,
    /// It was deleted.
    Deleted,
    /// Nothing: it is somebody else's.
    Refused,
}

/// The controllers at work.
pub struct Engine {
    hand: Hand,
    recorder: Recorder,
    rules: fn(Controller) -> Rules,
    controllers: Vec<Controller>,
}

/// How long a call is repeated; one attempt may take a third of it.
const PATIENCE: Duration = Duration::from_secs(15);

impl Engine {
    /// Controllers that work on a world, with metrics in `registry`. `client` should be one of those that give up
    /// ([`runtime::client::Connection::client_with_timeout`]).
    pub fn new(shared: Arc<Shared>, client: Client, recorder: Recorder, registry: &mut Registry) -> Self {
        let cancel = CancellationToken::new();
        let api_server = ApiServer { client, manager: MANAGER, dry_run: false, patience: PATIENCE, cancel };
        let metrics = Metrics::register(registry);
        Self {
            hand: Hand { api_server, shared, metrics },
            recorder,
            rules: Rules::of,
            controllers: Controller::ALL.into(),
        }
    }

    /// The same with other rules, for tests.
    #[must_use]
    pub fn with_rules(self, rules: fn(Controller) -> Rules) -> Self {
        Self { rules, ..self }
    }

    /// The same without one of the controllers; what that one has made stays as it is.
    #[must_use]
    pub fn without(mut self, controller: Controller) -> Self {
        self.controllers.retain(|one| *one != controller);
        self
    }

    /// Works until it is stopped. To be called once everything has been seen that [`Shared`] is to hold, and only while leading.
    /// It may be called again.
    pub async fn run(&self, cancel: CancellationToken) {
        let mut hand = self.hand.clone();
        hand.api_server.cancel = cancel.clone();
        let work = |controller: &Controller| {
            let worker = Worker::new(*controller, self.rules, hand.clone(), self.recorder.clone());
            Box::pin(worker.run(&cancel))
        };
        let workers: Vec<_> = self.controllers.iter().map(work).collect();
        let reports = Box::pin(reports::run(hand, &cancel));
        tokio::join!(join_all(workers), reports);
    }
}

impl Action {
    /// In one word, as events have it.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Updated => "Updated",
            Self::Repaired => "Repaired",
            Self::Recreated => "Recreated",
            Self::Deleted => "Deleted",
            Self::Refused => "Refused",
        }
    }
}
