//! The controller as a part of the operator's process, with watches, lease and readiness of its own.
//!
//! In: a connection, the environment. Out: tasks. Never: a task that other controllers wait for.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::hardware::keys;
use objects::controller::leader::{Leadership, ready_to_lead};
use objects::controller::queue::{Options, run};
use prometheus_client::registry::Registry;
use runtime::client::Connection;
use runtime::events::Recorder;
use runtime::lease;
use runtime::ready::Readiness;
use runtime::shutdown::Tasks;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::cluster_state::Environment;
use super::execute::Executor;
use super::metrics::Metrics;
use super::permissions::{self, Missing};
use super::shared::Shared;
use super::worker::Worker;

/// Concurrent reconciles, and the time in which changes of a DeviceConfig are gathered.
const OPTIONS: Options = Options { concurrency: 16, gather: Duration::from_millis(20) };

/// The default of [`Setup::patience`].
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The default of [`Setup::binding`].
pub const BINDING: Duration = Duration::from_secs(1);

/// The conditions of readiness.
#[derive(Clone, Debug)]
pub struct Health {
    /// Reached once every watch has listed its kind.
    pub readiness: Readiness,
    /// Missing rights.
    pub missing: Missing,
    missing_sender: watch::Sender<Vec<String>>,
}

/// The surroundings of the controller.
pub struct Setup<'a> {
    /// The environment of the process.
    pub environment: Environment,
    /// The API server.
    pub connection: &'a Connection,
    /// The recipient of events.
    pub recorder: &'a Recorder,
    /// The metrics of watches.
    pub watches: &'a runtime::watch::Metrics,
    /// The state of the lease.
    pub leadership: Leadership,
    /// The time that a change of a node may take before it is reported as a problem.
    pub patience: Duration,
    /// The longest time between the scheduling of a pod and its appearance on the node.
    pub binding: Duration,
    /// The deadline of one call.
    pub call: Duration,
}

impl Default for Health {
    fn default() -> Self {
        let missing_sender = watch::Sender::new(Vec::new());
        Self { readiness: Readiness::default(), missing: missing_sender.subscribe(), missing_sender }
    }
}

impl Health {
    /// Whether the controller is ready.
    ///
    /// # Errors
    /// Missing rights or lists.
    pub fn check(&self) -> Result<(), String> {
        permissions::check(&self.missing)?;
        self.readiness.check()
    }
}

/// The lease, in the operator's namespace.
#[must_use]
pub fn lease(namespace: &str, identity: String) -> lease::Config {
    lease::Config::new(namespace, keys::LEASE, identity)
}

/// Starts the watches and the worker as tasks. `release` is cancelled once no task needs the lease any more.
///
/// # Errors
/// The client cannot be made.
pub fn start(
    tasks: &mut Tasks,
    setup: Setup<'_>,
    health: &Health,
    registry: &mut Registry,
    release: CancellationToken,
) -> Result<(), runtime::client::Error> {
    let openshift = setup.environment.openshift;
    let shared = Shared::new(setup.environment);
    let metrics = Metrics::register(registry, &shared);
    super::watch::start(tasks, setup.connection, setup.watches, &health.readiness, &shared)?;
    let client = setup.connection.client_with_timeout(setup.call)?;
    let (missing, reviewer) = (health.missing_sender.clone(), client.clone());
    tasks.spawn("rights for DeviceConfigs", async move {
        permissions::verify(reviewer, openshift, missing).await;
        std::future::pending::<Result<(), Infallible>>().await
    });
    let executor = Executor { client, shared: Arc::clone(&shared), binding: setup.binding };
    let recorder = setup.recorder.named(keys::FIELD_MANAGER);
    let worker = Worker { executor, recorder, metrics, patience: setup.patience };
    let (readiness, leadership) = (health.readiness.clone(), setup.leadership);
    let cancel = tasks.token().clone();
    tasks.spawn_draining("DeviceConfigs", async move {
        let _release = release.drop_guard();
        if ready_to_lead(leadership, &readiness, &cancel).await {
            info!("all watches are listed; reconciling DeviceConfigs");
            run(Arc::new(worker), shared.queue(), OPTIONS, cancel).await;
        }
        Ok::<_, Infallible>(())
    });
    Ok(())
}
