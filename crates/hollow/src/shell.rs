//! Hollow nodes in a cluster: a watch feeds the core, and its writes become API calls.
//!
//! In: settings, an API server. Out: the tasks of the process. Never: a decision of its own.
//!
//! The nodes are registered first (`nodes`), or taken over from an earlier process. Then one watch of all pods that
//! are bound feeds [`Fleet`], whose writes go through `outbox` at a limited rate. Heartbeats (`heartbeats`) are not
//! limited, but spread over their period.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::watcher::Config;
use prometheus_client::registry::Registry;
use runtime::client::{Connection, Options};
use runtime::http::{self, Endpoints, Probe};
use runtime::ready::{Gate, Readiness};
use runtime::shutdown::Tasks;
use runtime::watch::{self, Event};
use runtime::{log, process_metrics};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::fleet::{Fleet, Times, Write};
use crate::metrics::Metrics;
use crate::node_group::{NodeGroup, plan};
use crate::pod::PodView;

mod heartbeats;
mod nodes;
mod outbox;
mod pace;

use heartbeats::{Heartbeat, Heartbeats};
use outbox::Outbox;

/// How long a call may take.
const CALL: Duration = Duration::from_secs(10);
/// How long everything may take to end, and to delete the nodes then.
const GRACE: Duration = Duration::from_secs(5);
/// How long the deletion of the nodes may take.
const CLEANUP: Duration = Duration::from_secs(300);

/// The settings of the process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How the API server is reached.
    pub cluster: Options,
    /// The nodes.
    pub groups: Vec<NodeGroup>,
    /// The times of kubelets and exporters.
    pub times: Times,
    /// The time between two renewals of a node's lease.
    pub heartbeat: Duration,
    /// Writes per second, heartbeats left out.
    pub qps: u32,
    /// The address of metrics and health.
    pub http: Option<SocketAddr>,
    /// Whether the nodes are deleted at the end.
    pub cleanup: bool,
}

/// Runs the nodes until `token` is cancelled.
///
/// # Errors
/// When the settings make no sense, the nodes cannot be registered, or they cannot be deleted at the end.
pub async fn run(settings: Settings, level: log::Handle, token: CancellationToken) -> anyhow::Result<()> {
    let planned = plan(settings.groups)?;
    info!(version = env!("CARGO_PKG_VERSION"), nodes = planned.len(), "starting hollow nodes");
    let connection = Connection::open(&settings.cluster).await?;
    let client = connection.client_with_timeout(CALL)?;

    let mut registry = Registry::default();
    registry.register_collector(Box::new(process_metrics::ProcessCollector));
    let metrics = Metrics::register(&mut registry);
    let watch_metrics = watch::Metrics::register(&mut registry);
    let readiness = Readiness::default();
    let (registered, synced) = (readiness.gate("nodes"), readiness.gate("pods"));
    let mut tasks = Tasks::new(token.clone());
    if let Some(address) = settings.http {
        let listener = http::bind(address).await?;
        let gates = readiness.clone();
        let endpoints = Endpoints::new(registry).log_level(level);
        let endpoints = endpoints.check(Probe::Ready, "started", move || gates.check());
        tasks.spawn_draining("http", http::serve(listener, endpoints.router(), token.clone()));
    }

    let nodes = token.run_until_cancelled(nodes::register(&client, &planned, settings.qps)).await;
    if let Some(nodes) = nodes {
        let nodes = Arc::new(nodes?);
        metrics.nodes(nodes.len());
        registered.open();
        info!("the nodes are registered");
        let (events, receiver) = mpsc::unbounded_channel();
        spawn_watch(&mut tasks, connection.watch_client()?, watch_metrics, events);
        let heartbeats = Heartbeats::new(client.clone(), Arc::clone(&nodes), metrics.clone());
        tasks.spawn("leases", heartbeats.clone().run(Heartbeat::Lease, settings.heartbeat));
        tasks.spawn("node statuses", heartbeats.run(Heartbeat::Status, heartbeats::STATUS));
        let (writes, waiting) = mpsc::unbounded_channel();
        let fleet = SharedFleet::new(Fleet::new(&planned, settings.times, metrics.clone()));
        let outbox = Outbox::new(client.clone(), nodes, fleet.clone(), settings.qps, metrics);
        tasks.spawn("writes", outbox.run(waiting));
        tasks.spawn("kubelets", run_fleet(fleet, receiver, writes, synced));
    }
    tasks.run(GRACE).await?;
    if settings.cleanup {
        info!("deleting the nodes");
        tokio::time::timeout(CLEANUP, nodes::delete(&client, &planned, settings.qps)).await??;
    }
    Ok(())
}

fn spawn_watch(
    tasks: &mut Tasks,
    client: kube::Client,
    metrics: watch::Metrics,
    events: mpsc::UnboundedSender<Event<PodView>>,
) {
    let config = Config::default().fields("spec.nodeName!=");
    tasks.spawn("pods", async move {
        let sink = |event| drop(events.send(event));
        watch::run_mapped(Api::all(client), "pods", config, &metrics, |pod: Pod| PodView::of(&pod), sink)
            .await
    });
}

/// The fleet, for the task that feeds it and the one that writes its reports. No task holds it while waiting.
#[derive(Clone)]
struct SharedFleet(Arc<Mutex<Fleet>>);

impl SharedFleet {
    fn new(fleet: Fleet) -> Self {
        Self(Arc::new(Mutex::new(fleet)))
    }

    fn with<T>(&self, of: impl FnOnce(&mut Fleet) -> T) -> T {
        of(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Takes events, and waits for what is due, for ever.
async fn run_fleet(
    fleet: SharedFleet,
    mut events: mpsc::UnboundedReceiver<Event<PodView>>,
    writes: mpsc::UnboundedSender<Write>,
    synced: Gate,
) -> Infallible {
    loop {
        let wait = fleet.with(|fleet| fleet.next_due()).map(|at| Timestamp::now().duration_until(at));
        let wait = wait.map(|span| Duration::try_from(span).unwrap_or_default());
        tokio::select! {
            event = events.recv() => match event {
                Some(event) => {
                    let taken = fleet.with(|fleet| fleet.take(event, Timestamp::now()));
                    taken.into_iter().for_each(|write| drop(writes.send(write)));
                    synced.open();
                }
                // The watch ends only with the process.
                None => std::future::pending().await,
            },
            () = sleep(wait) => {}
        }
        let due = fleet.with(|fleet| fleet.due(Timestamp::now()));
        due.into_iter().for_each(|write| drop(writes.send(write)));
    }
}

/// Sleeps; for ever if there is no time.
async fn sleep(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
