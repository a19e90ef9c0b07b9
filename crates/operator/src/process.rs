//! The operator as a process: lease, watches, controllers, health and metrics.
//!
//! In: settings, a signal to stop. Out: an exit. Never: a rule.
//!
//! It is healthy as long as it answers: whoever does not lead is not ill. It is ready once all watches have told the whole truth of
//! their kind once, leading or not. An API server that is away is waited for, at the start too.
//!
//! Where a certificate can be expected (OpenShift makes one) or is there, metrics are served over TLS, with the profile of the cluster, and
//! until there is a certificate with one that nobody can verify. Elsewhere they are served without: there is nobody who would trust a
//! certificate of our own making.

mod lead;
mod metrics;
mod parts;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use runtime::backoff::Backoff;
use runtime::client::{Connection, Options};
use runtime::http::{self, Endpoints, Probe};
use runtime::page_reclaim::{self, ReclaimTrigger};
use runtime::ready::Readiness;
use runtime::shutdown::Tasks;
use runtime::tls::{CertWatcher, Policy, Settings as Tls};
use runtime::{events, host, lease, log, process_metrics, tls};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use objects::controller::leader::Leadership;
pub use parts::{Controllers, Part, UnknownPart};

use crate::desired::{Controller, MANAGER};
use crate::place::{self, Told};
use crate::reconcile::{Engine, Shared};
use crate::watch::kubelets::{Asker, Trust};
use crate::watch::{self as watches, Hearers};
use crate::world::{Place, World};

/// Deadline of one call.
const CALL: Duration = Duration::from_secs(10);
/// How long tasks may take to end: what is being written may be written, and the lease is released.
const GRACE: Duration = Duration::from_secs(8);
/// Between questions to a cluster that does not answer.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// How to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// As [`Options::kubeconfig`].
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    pub context: Option<String>,
    /// What we were told of the place.
    pub told: Told,
    /// Where metrics are; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    /// Where health checks are; `None`: nowhere.
    pub health: Option<SocketAddr>,
    /// The folder with `tls.crt` and `tls.key` for metrics.
    pub certificates: PathBuf,
    /// Whether others may run at the same time: only who holds the lease works.
    pub leader_elect: bool,
    /// How kubelets are spoken to.
    pub kubelets: Trust,
    /// Whether NUMAResourcesSchedulers are looked after.
    pub scheduler: bool,
    /// Which controllers run.
    pub controllers: Controllers,
    /// How long nodes of a DeviceConfig may be on their way before that is told as a problem.
    pub driver_patience: Duration,
    /// How long a pod may be on its way to a node of a DeviceConfig before it shows there.
    pub binding_patience: Duration,
}

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
    };
    let connection = Connection::open(&options).await?;
    let mut process = Process {
        settings,
        connection,
        tasks: Tasks::new(token.clone()),
        readiness: Readiness::default(),
        hardware: hardware::process::Health::default(),
        standing: Vec::new(),
    };
    let found = process.readiness.gate("the platform");
    process.serve_health(level).await?;
    let listener = match process.settings.metrics {
        Some(address) => Some(http::bind(address).await?),
        None => None,
    };
    let Some(place) = process.place(&token).await? else {
        process.tasks.run(GRACE).await?;
        return Ok(());
    };
    process.work(place, listener)?;
    found.open();
    process.tasks.run(GRACE).await?;
    Ok(())
}

struct Process {
    settings: Settings,
    connection: Connection,
    tasks: Tasks,
    /// Of what all wait for, and of the controllers of NUMA resources.
    readiness: Readiness,
    /// Of the controller of DeviceConfigs.
    hardware: hardware::process::Health,
    /// Who stands for which lease, until when.
    standing: Vec<(lease::Candidate, CancellationToken)>,
}

impl Process {
    async fn serve_health(&mut self, level: log::Handle) -> anyhow::Result<()> {
        let Some(address) = self.settings.health else { return Ok(()) };
        let listener = http::bind(address).await?;
        let readiness = self.readiness.clone();
        let mut surface =
            Endpoints::new(Registry::default())
                .log_level(level)
                .check(Probe::Ready, "watches", move || readiness.check());
        if self.settings.controllers.has(Part::DeviceConfig) {
            let hardware = self.hardware.clone();
            surface = surface.check(Probe::Ready, "deviceconfig", move || hardware.check());
        }
        let token = self.tasks.token().clone();
        self.tasks.spawn_draining("health", http::serve(listener, surface.router(), token));
        Ok(())
    }

    /// Where we run; `None`: somebody asked to stop before the cluster answered.
    async fn place(&self, token: &CancellationToken) -> anyhow::Result<Option<Place>> {
        let client = self.connection.client_with_timeout(CALL)?;
        let mut backoff = Backoff::new(RETRY.0, RETRY.1);
        let mut told = String::new();
        loop {
            let error = tokio::select! {
                biased;
                () = token.cancelled() => return Ok(None),
                place = place::find(&client, &self.settings.told) => match place {
                    Ok(place) => return Ok(Some(place)),
                    Err(error) => error.to_string(),
                },
            };
            if told != error {
                warn!("{error}; asking again");
                told = error;
            }
            tokio::select! {
                () = token.cancelled() => return Ok(None),
                () = tokio::time::sleep(backoff.next_delay()) => {}
            }
        }
    }

    /// Starts everything.
    fn work(&mut self, place: Place, listener: Option<tokio::net::TcpListener>) -> anyhow::Result<()> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(process_metrics::ProcessCollector));
        let watch_metrics = runtime::watch::Metrics::register(&mut registry);
        let (recorder, writer) =
            events::channel(self.connection.client_with_timeout(CALL)?, MANAGER, &mut registry);
        self.tasks.spawn_draining("events", writer.run(self.tasks.token().clone()));

        let policy = watch::Sender::new(Policy::default());
        let offered = policy.subscribe();
        if self.settings.controllers.has(Part::NumaResources) {
            self.numaresources(&place, &mut registry, &watch_metrics, &recorder, policy.clone())?;
        } else if place.platform.is_openshift() {
            let policy = policy.clone();
            watches::start_profile(
                &mut self.tasks,
                &self.connection,
                &watch_metrics,
                &self.readiness,
                policy,
            )?;
        }
        if self.settings.controllers.has(Part::DeviceConfig) {
            self.deviceconfig(&place, &mut registry, &watch_metrics, &recorder)?;
        }
        self.elect(&mut registry);
        self.tasks
            .spawn("page-reclaim", page_reclaim::run(self.readiness.clone(), ReclaimTrigger::default()));
        if let Some(listener) = listener {
            self.serve_metrics(&place, listener, registry, offered)?;
        }
        // What is offered stays as it is where nobody follows the cluster's wish.
        self.tasks.spawn("policy", async move {
            let _policy = policy;
            std::future::pending::<Result<(), Infallible>>().await
        });
        Ok(())
    }

    /// The controllers of NUMA resources.
    fn numaresources(
        &mut self,
        place: &Place,
        registry: &mut Registry,
        watch_metrics: &runtime::watch::Metrics,
        recorder: &events::Recorder,
        policy: watch::Sender<Policy>,
    ) -> anyhow::Result<()> {
        let shared = Shared::new(World::new(place.clone()));
        metrics::register(registry, &shared);
        let unreadable = watch::Sender::new(());
        let odd = unreadable.subscribe();
        let nodes = Arc::new(Notify::new());
        let hearers = Hearers { shared: Arc::clone(&shared), policy, unreadable, nodes: Arc::clone(&nodes) };
        watches::start(&mut self.tasks, &self.connection, place, watch_metrics, &self.readiness, &hearers)?;

        let engine = Engine::new(
            Arc::clone(&shared),
            self.connection.client_with_timeout(CALL)?,
            recorder.clone(),
            registry,
        );
        let scheduler = Controller::NumaResourcesScheduler;
        let engine = if self.settings.scheduler { engine } else { engine.without(scheduler) };
        let asker = Asker::new(Arc::clone(&shared), self.settings.kubelets.clone(), nodes);
        let leader = lead::Leader {
            shared,
            asker,
            engine,
            recorder: recorder.clone(),
            odd,
            client: self.connection.client_with_timeout(CALL)?,
            place: place.clone(),
            readiness: self.readiness.clone(),
        };
        let release = CancellationToken::new();
        let leads = self.stand(place::lease(&place.namespace, host::identity()), &release)?;
        let token = self.tasks.token().clone();
        self.tasks.spawn_draining("controllers", async move {
            // The lease is given up when nobody works under it any more, however that came.
            let _release = release.drop_guard();
            leader.run(leads, token).await;
            Ok::<_, Infallible>(())
        });
        Ok(())
    }

    /// The controller of DeviceConfigs.
    fn deviceconfig(
        &mut self,
        place: &Place,
        registry: &mut Registry,
        watches: &runtime::watch::Metrics,
        recorder: &events::Recorder,
    ) -> anyhow::Result<()> {
        let release = CancellationToken::new();
        let lease = hardware::process::lease(&place.namespace, host::identity());
        let setup = hardware::process::Setup {
            environment: hardware::cluster_state::Environment {
                openshift: place.platform.is_openshift(),
                image: place.own.name.clone(),
            },
            leadership: self.stand(lease, &release)?,
            connection: &self.connection,
            recorder,
            watches,
            patience: self.settings.driver_patience,
            binding: self.settings.binding_patience,
            call: CALL,
        };
        hardware::process::start(&mut self.tasks, setup, &self.hardware, registry, release)?;
        Ok(())
    }

    /// Stands for a lease, if there may be several of us; begins with [`Self::elect`].
    fn stand(&mut self, config: lease::Config, release: &CancellationToken) -> anyhow::Result<Leadership> {
        if !self.settings.leader_elect {
            return Ok(None);
        }
        let candidate = lease::Candidate::new(self.connection.client_with_timeout(CALL)?, config)?;
        let status = candidate.status();
        self.standing.push((candidate, release.clone()));
        Ok(Some(status))
    }

    /// Begins to stand for leases.
    fn elect(&mut self, registry: &mut Registry) {
        let standing = std::mem::take(&mut self.standing);
        if !standing.is_empty() {
            let all: Vec<&lease::Candidate> = standing.iter().map(|(candidate, _)| candidate).collect();
            lease::Candidate::register_all(&all, registry);
        }
        for (candidate, release) in standing {
            self.tasks.spawn_draining("leader election", candidate.run(release));
        }
    }

    fn serve_metrics(
        &mut self,
        place: &Place,
        listener: tokio::net::TcpListener,
        mut registry: Registry,
        offered: watch::Receiver<Policy>,
    ) -> anyhow::Result<()> {
        let [certificate, key] = ["tls.crt", "tls.key"].map(|file| self.settings.certificates.join(file));
        let token = self.tasks.token().clone();
        if !place.platform.is_openshift() && !certificate.exists() {
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
