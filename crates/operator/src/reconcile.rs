//! The controllers of NUMA resources on the controller runtime.
//!
//! In: the cluster state, a controller. Out: objects applied, status written. Never: a rule about what should be there.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use objects::applier::{self, Verb};
use objects::controller::Options;
use objects::{ApiServer, ObjectKey, ObjectKind};
use prometheus_client::registry::Registry;
use runtime::events::Recorder;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::desired::{Controller, MANAGER};
use crate::ownership::RULES;

pub mod metrics;
pub mod reports;
pub mod rules;
pub mod shared;
pub mod status;
mod worker;

use metrics::{Metrics, StateCollector};
pub use objects::applier::{Change, Outcome};
use rules::Rules;
pub use shared::{ControllerSet, Shared};
use worker::Worker;

/// The controllers at work.
pub struct Engine(Worker);

/// Applies objects, and passes the answers to the cluster state.
pub type Applier = applier::Applier<Answers>;

/// The recipient of the API server's answers.
#[derive(Clone)]
pub struct Answers {
    /// The cluster state.
    pub shared: Arc<Shared>,
    /// Counts writes.
    pub metrics: Metrics,
}

/// The time in which a call is repeated; one attempt may take a third of it.
const PATIENCE: Duration = Duration::from_secs(15);
/// The controllers run side by side; changes that come together are reconciled together.
const OPTIONS: Options = Options { concurrency: Controller::ALL.len(), gather: Duration::from_millis(30) };

impl applier::Observer for Answers {
    fn observed(&self, key: &ObjectKey) -> Option<Value> {
        self.shared.read(|cluster| cluster.observed.get(key).cloned())
    }

    fn observe(&self, key: &ObjectKey, body: Value) {
        self.shared.observe_write(key.clone(), body);
    }

    fn observe_deletion(&self, key: &ObjectKey, uid: &str) {
        self.shared.observe_absence(key, uid);
    }

    fn count_write(&self, kind: &ObjectKind, verb: Verb) {
        self.metrics.wrote(&kind.kind, verb);
    }
}

/// The operator's applier over an API server.
#[must_use]
pub fn applier(api_server: ApiServer, shared: Arc<Shared>, metrics: Metrics) -> Applier {
    Applier { api_server, observer: Answers { shared, metrics }, rules: RULES }
}

impl Engine {
    /// The controllers of a cluster state, with metrics in `registry`. `client` should have deadlines
    /// ([`runtime::client::Connection::client_with_timeout`]).
    pub fn new(shared: Arc<Shared>, client: Client, recorder: Recorder, registry: &mut Registry) -> Self {
        let cancel = CancellationToken::new();
        let api_server = ApiServer { client, manager: MANAGER, dry_run: false, patience: PATIENCE, cancel };
        registry.register_collector(Box::new(StateCollector(Arc::clone(&shared))));
        let applier = applier(api_server, shared, Metrics::register(registry));
        Self(Worker { rules: Rules::of, controllers: Controller::ALL.into(), applier, recorder })
    }

    /// The API server that the controllers write to.
    #[must_use]
    pub fn api_server(&self) -> &ApiServer {
        &self.0.applier.api_server
    }

    /// The same with other rules, for tests.
    #[must_use]
    pub fn with_rules(mut self, rules: fn(Controller) -> Rules) -> Self {
        self.0.rules = rules;
        self
    }

    /// The same without one of the controllers; its objects stay as they are.
    #[must_use]
    pub fn without(mut self, controller: Controller) -> Self {
        self.0.controllers.retain(|one| *one != controller);
        self
    }

    /// Works until cancelled. The caller waits until every watch has listed its kind, and leads; it may call again.
    pub async fn run(&self, cancel: CancellationToken) {
        let mut worker = self.0.clone();
        worker.applier.api_server.cancel = cancel.clone();
        let (applier, shared) = (worker.applier.clone(), Arc::clone(&worker.applier.observer.shared));
        shared.queue().extend(worker.controllers.iter().copied());
        let controllers =
            Box::pin(objects::controller::run(Arc::new(worker), shared.queue(), OPTIONS, cancel.clone()));
        tokio::join!(controllers, Box::pin(reports::run(applier, &cancel)));
    }
}
