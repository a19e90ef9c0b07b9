//! The controller as a part of the operator's process: its own watches, its own lease, its own check of readiness.
//!
//! In: a connection, where we run. Out: tasks. Never: something that the other controllers wait for.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::hardware::keys;
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
use super::execute::Applier;
use super::metrics::Metrics;
use super::permissions::{self, Missing};
use super::queue::Worker;
use super::shared::Shared;

/// How long nodes may be on their way before that is told as a problem.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long a pod may be on its way to a node that was found free; the default.
pub const BINDING: Duration = Duration::from_secs(1);

/// What readiness asks.
#[derive(Clone, Debug)]
pub struct Health {
    /// Watches.
    pub readiness: Readiness,
    /// Rights.
    pub missing: Missing,
    told: watch::Sender<Vec<String>>,
}

/// What the controller needs.
pub struct Setup<'a> {
    /// Where we run.
    pub place: Environment,
    /// The API server.
    pub connection: &'a Connection,
    /// Who is told.
    pub recorder: &'a Recorder,
    /// Watches' metrics.
    pub watches: &'a runtime::watch::Metrics,
    /// How long nodes may be on their way.
    pub patience: Duration,
    /// How long a pod may be on its way to a node that was found free.
    pub binding: Duration,
    /// One call's deadline.
    pub call: Duration,
}

impl Default for Health {
    fn default() -> Self {
        let told = watch::Sender::new(Vec::new());
        Self { readiness: Readiness::default(), missing: told.subscribe(), told }
    }
}

impl Health {
    /// Whether it is ready.
    ///
    /// # Errors
    /// What is missing.
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

/// Starts everything. `leads` says who leads; none: we, always. `release` is cancelled when no task works under the
/// lease any more.
///
/// # Errors
/// When no client can be made.
pub fn start(
    tasks: &mut Tasks,
    setting: Setup<'_>,
    health: &Health,
    registry: &mut Registry,
    leads: Option<watch::Receiver<lease::Status>>,
    release: CancellationToken,
) -> Result<(), runtime::client::Error> {
    let openshift = setting.place.openshift;
    let shared = Shared::new(setting.place);
    let metrics = Metrics::register(registry, &shared);
    super::watch::start(tasks, setting.connection, setting.watches, &health.readiness, &shared)?;
    let client = setting.connection.client_with_timeout(setting.call)?;
    let told = health.told.clone();
    let asking = client.clone();
    tasks.spawn("rights for DeviceConfigs", async move {
        permissions::follow(asking, openshift, told).await;
        std::future::pending::<Result<(), Infallible>>().await
    });
    let hand = Applier { client, shared: Arc::clone(&shared), binding: setting.binding };
    let recorder = setting.recorder.named(keys::FIELD_MANAGER);
    let worker = Worker { hand, recorder, metrics, patience: setting.patience };
    let readiness = health.readiness.clone();
    let token = tasks.token().clone();
    tasks.spawn_draining("DeviceConfigs", async move {
        let _release = release.drop_guard();
        lead(worker, readiness, leads, token).await;
        Ok::<_, Infallible>(())
    });
    Ok(())
}

/// Waits until all is known and we lead, then works.
async fn lead(
    worker: Worker,
    readiness: Readiness,
    mut leads: Option<watch::Receiver<lease::Status>>,
    token: CancellationToken,
) {
    let ready = async {
        if let Some(status) = &mut leads {
            // It only fails when the candidate is gone, and then the process ends.
            let _ = status.wait_for(lease::Status::leads).await;
        }
        readiness.opened().await;
    };
    tokio::select! {
        biased;
        () = token.cancelled() => return,
        () = ready => {}
    }
    info!("everything is known, DeviceConfigs are seen to");
    worker.run(token).await;
}
