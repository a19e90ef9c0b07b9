//! The operator's process: lease, watches, controllers, health and metrics.
//!
//! In: settings, a signal to stop. Out: an exit. Never: a rule of a controller.
//!
//! The process is healthy while it answers, leading or not. It is ready once every watch has listed its kind. It waits
//! for an API server that does not answer, also at the start.
//!
//! Metrics are served over TLS on OpenShift, which makes a certificate, and wherever there is a certificate.
//! OpenShift's TLS profile applies; until the certificate is there, a self-signed one is used. Elsewhere metrics are
//! served without TLS.

mod lead;
mod settings;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::numaresources::keys;
use prometheus_client::registry::Registry;
use runtime::backoff::Backoff;
use runtime::client::{Connection, Options};
use runtime::http::{self, Endpoints, Probe};
use runtime::page_reclaim::{self, ReclaimTrigger};
use runtime::ready::Readiness;
use runtime::shutdown::Tasks;
use runtime::tls::{CertWatcher, Policy, Settings as Tls};
use runtime::{events, host, lease, log, process_metrics, tls};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use objects::controller::leader::Leadership;
pub use settings::{CERTIFICATES, Part, Settings};

use crate::cluster_state::{ClusterState, Environment};
use crate::desired::{Controller, MANAGER};
use crate::environment;
use crate::reconcile::{Engine, Shared};
use crate::watch::kubelets::KubeletPoller;
use crate::watch::{self as watches, Subscribers, Watcher};

/// The deadline of a call.
const CALL: Duration = Duration::from_secs(10);
/// The time for tasks to end: writes are completed, and the lease is released.
const GRACE: Duration = Duration::from_secs(8);
/// Pauses between requests to a cluster that does not answer.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Runs until the token is cancelled. `level` lets the log's level be changed over HTTP.
///
/// # Errors
/// When it cannot start, or loses the lease.
pub async fn run(settings: Settings, level: log::Handle, token: CancellationToken) -> anyhow::Result<()> {
    info!(version = env!("CARGO_PKG_VERSION"), "starting the operator");
    let options = Options {
        kubeconfig: settings.kubeconfig.clone(),
        context: settings.context.clone(),
        user_agent: format!("tholepin-operator/{}", env!("CARGO_PKG_VERSION")),
        ..Options::default()
    };
    let connection = Connection::open(&options).await?;
    let mut process = Process {
        settings,
        connection,
        tasks: Tasks::new(token.clone()),
        readiness: Readiness::default(),
        hardware: hardware::process::Health::default(),
        candidates: Vec::new(),
    };
    let platform = process.readiness.gate("the platform");
    let metrics = ("--metrics-bind-address", process.settings.metrics);
    let health = ("--health-probe-bind-address", process.settings.health);
    http::distinct(metrics, health).map_err(anyhow::Error::msg)?;
    process.serve_health(level).await?;
    let listener = match process.settings.metrics {
        Some(address) => Some(http::bind(address).await?),
        None => None,
    };
    if let Some(environment) = process.detect_environment(&token).await? {
        process.start_controllers(environment, listener)?;
        platform.open();
    }
    process.tasks.run(GRACE).await?;
    Ok(())
}

struct Process {
    settings: Settings,
    connection: Connection,
    tasks: Tasks,
    /// The readiness of the process and of the controllers of NUMA resources.
    readiness: Readiness,
    /// The readiness of the controller of DeviceConfigs.
    hardware: hardware::process::Health,
    /// Candidates for leases, each with the token that releases its lease.
    candidates: Vec<(lease::Candidate, CancellationToken)>,
}

/// The parts that all controllers share.
struct Common {
    environment: Environment,
    registry: Registry,
    watches: runtime::watch::Metrics,
    recorder: events::Recorder,
}

impl Process {
    async fn serve_health(&mut self, level: log::Handle) -> anyhow::Result<()> {
        let Some(address) = self.settings.health else { return Ok(()) };
        let listener = http::bind(address).await?;
        let readiness = self.readiness.clone();
        let mut endpoints =
            Endpoints::new(Registry::default())
                .log_level(level)
                .check(Probe::Ready, "watches", move || readiness.check());
        if self.settings.controllers.contains(&Part::DeviceConfig) {
            let hardware = self.hardware.clone();
            endpoints = endpoints.check(Probe::Ready, "deviceconfig", move || hardware.check());
        }
        let token = self.tasks.token().clone();
        self.tasks.spawn_draining("health", http::serve(listener, endpoints.router(), token));
        Ok(())
    }

    /// The environment, once the cluster answers; `None`: cancelled before.
    async fn detect_environment(&self, token: &CancellationToken) -> anyhow::Result<Option<Environment>> {
        let client = self.connection.client_with_timeout(CALL)?;
        let mut backoff = Backoff::new(RETRY.0, RETRY.1);
        let detect = async {
            let mut logged = String::new();
            loop {
                match environment::detect(&client, &self.settings.environment).await {
                    Ok(environment) => return environment,
                    Err(error) => {
                        let error = format!("{error:#}");
                        if error != logged {
                            warn!("{error}; asking again");
                        }
                        logged = error;
                    }
                }
                tokio::time::sleep(backoff.next_delay()).await;
            }
        };
        Ok(token.run_until_cancelled(detect).await)
    }

    fn start_controllers(
        &mut self,
        environment: Environment,
        listener: Option<TcpListener>,
    ) -> anyhow::Result<()> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(process_metrics::ProcessCollector));
        let watches = runtime::watch::Metrics::register(&mut registry);
        let client = self.connection.client_with_timeout(CALL)?;
        let (recorder, writer) = events::channel(client, MANAGER, &mut registry);
        self.tasks.spawn_draining("events", writer.run(self.tasks.token().clone()));
        let mut common = Common { environment, registry, watches, recorder };

        let policy = watch::Sender::new(Policy::default());
        let offered = policy.subscribe();
        if self.settings.controllers.contains(&Part::NumaResources) {
            self.start_numaresources(&mut common, policy.clone())?;
        } else if common.environment.platform.is_openshift() {
            watches::start_tls_profile(&mut self.watcher(&common)?, policy.clone());
        }
        if self.settings.controllers.contains(&Part::DeviceConfig) {
            self.start_deviceconfig(&mut common)?;
        }
        self.start_candidates(&mut common.registry);
        self.tasks
            .spawn("page-reclaim", page_reclaim::run(self.readiness.clone(), ReclaimTrigger::default()));
        if let Some(listener) = listener {
            self.serve_metrics(common, listener, offered)?;
        }
        // The sender lives as long as the process, also where no watch changes the policy.
        self.tasks.spawn("policy", async move {
            let _policy = policy;
            std::future::pending::<Result<(), Infallible>>().await
        });
        Ok(())
    }

    fn watcher<'a>(&'a mut self, common: &'a Common) -> anyhow::Result<Watcher<'a>> {
        Ok(Watcher {
            client: self.connection.watch_client()?,
            tasks: &mut self.tasks,
            metrics: &common.watches,
            readiness: &self.readiness,
            environment: &common.environment,
        })
    }

    /// Starts the controllers of NUMA resources.
    fn start_numaresources(
        &mut self,
        common: &mut Common,
        policy: watch::Sender<Policy>,
    ) -> anyhow::Result<()> {
        let shared = Shared::new(ClusterState::new(common.environment.clone()));
        let unreadable = watch::Sender::new(());
        let unreadable_changes = unreadable.subscribe();
        let nodes = Arc::new(Notify::new());
        let poller = KubeletPoller::new(
            Arc::clone(&shared),
            self.settings.kubelets.clone().with_service_account(),
            Arc::clone(&nodes),
        );
        let subscribers = Subscribers { shared: Arc::clone(&shared), policy, unreadable, nodes };
        watches::start(&mut self.watcher(common)?, &subscribers);

        let client = self.connection.client_with_timeout(CALL)?;
        let recorder = common.recorder.clone();
        let mut engine = Engine::new(Arc::clone(&shared), client, recorder.clone(), &mut common.registry);
        if !self.settings.scheduler {
            engine = engine.without(Controller::NumaResourcesScheduler);
        }
        let leader = lead::Leader { shared, poller, engine, recorder, unreadable_changes };
        let release = CancellationToken::new();
        let lease = lease::Config::new(&common.environment.namespace, keys::OPERATOR_LEASE, host::identity());
        let leadership = self.add_candidate(lease, &release)?;
        let (readiness, token) = (self.readiness.clone(), self.tasks.token().clone());
        self.tasks.spawn_draining("controllers", async move {
            // The lease is released when no task works under it any more, for whatever reason.
            let _release = release.drop_guard();
            leader.run(leadership, &readiness, token).await;
            Ok::<_, Infallible>(())
        });
        Ok(())
    }

    /// Starts the controller of DeviceConfigs.
    fn start_deviceconfig(&mut self, common: &mut Common) -> anyhow::Result<()> {
        let Environment { platform, namespace, own, .. } = &common.environment;
        let release = CancellationToken::new();
        let lease = hardware::process::lease(namespace, host::identity());
        let setup = hardware::process::Setup {
            environment: hardware::cluster_state::Environment {
                openshift: platform.is_openshift(),
                image: own.name.clone(),
            },
            leadership: self.add_candidate(lease, &release)?,
            connection: &self.connection,
            recorder: &common.recorder,
            watches: &common.watches,
            patience: self.settings.driver_patience,
            binding: self.settings.binding_patience,
            call: CALL,
        };
        let (tasks, registry) = (&mut self.tasks, &mut common.registry);
        hardware::process::start(tasks, setup, &self.hardware, registry, release)?;
        Ok(())
    }

    /// Adds a candidate for a lease, unless leader election is off; [`Self::start_candidates`] starts it.
    fn add_candidate(
        &mut self,
        config: lease::Config,
        release: &CancellationToken,
    ) -> anyhow::Result<Leadership> {
        if !self.settings.leader_elect {
            return Ok(None);
        }
        let candidate = lease::Candidate::new(self.connection.client_with_timeout(CALL)?, config)?;
        let status = candidate.status();
        self.candidates.push((candidate, release.clone()));
        Ok(Some(status))
    }

    fn start_candidates(&mut self, registry: &mut Registry) {
        let all: Vec<&lease::Candidate> = self.candidates.iter().map(|(candidate, _)| candidate).collect();
        if !all.is_empty() {
            lease::Candidate::register_all(&all, registry);
        }
        for (candidate, release) in self.candidates.drain(..) {
            self.tasks.spawn_draining("leader election", candidate.run(release));
        }
    }

    fn serve_metrics(
        &mut self,
        common: Common,
        listener: TcpListener,
        offered: watch::Receiver<Policy>,
    ) -> anyhow::Result<()> {
        let mut registry = common.registry;
        let [certificate, key] = ["tls.crt", "tls.key"].map(|file| self.settings.certificates.join(file));
        let token = self.tasks.token().clone();
        if !common.environment.platform.is_openshift() && !certificate.exists() {
            info!(address = ?listener.local_addr().ok(), "serving metrics without TLS: there is no certificate");
            let router = Endpoints::new(registry).router();
            self.tasks.spawn_draining("metrics", http::serve(listener, router, token));
            return Ok(());
        }
        let server = CertWatcher::new(&Tls::new(certificate, key))?.follow(offered);
        server.register(&mut registry);
        let router = Endpoints::new(registry).router();
        self.tasks.spawn_draining("metrics", tls::serve(listener, router, token, server));
        Ok(())
    }
}
