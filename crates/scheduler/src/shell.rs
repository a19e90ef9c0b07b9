//! The core in a cluster: watches feed it, and its decisions become bindings, events and conditions.
//!
//! In: flags, a configuration file, an API server. Out: the tasks of the process. Never: a decision of its own.
//!
//! One task owns the core and all its decisions (`event_loop`); API calls run beside it (`outbox`). A node gets one
//! binding at a time, so that the kubelet sees pods in the order in which the ledger placed them. The permissions that
//! this takes are in [`crate::rbac`].

use std::convert::Infallible;
use std::time::Duration;

use api::nrt::NodeResourceTopology;
use api::schedulerconfig::SchedulerConfig;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::runtime::watcher;
use prometheus_client::registry::Registry;
use runtime::client::{Connection, Options};
use runtime::http::{Endpoints, Probe};
use runtime::shutdown::Tasks;
use runtime::{events, host, lease, log, process_metrics, ready, tls, watch};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::args::{Args, Serving};
use crate::config;
use crate::core::Core;
use crate::metrics::Metrics;

mod event_loop;
mod intake;
mod outbox;
mod status_dump;
mod wire_pod;

use event_loop::EventLoop;
use intake::volumes::Watches;
use intake::{ReportReader, Source};
use outbox::Outbox;
use wire_pod::{Warnings, WirePod};

/// How long a binding or condition write may take before its result is looked up.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long everything may take to end: the last bindings, then the release of the lease.
const GRACE: Duration = Duration::from_secs(14);

/// Runs the scheduler until `token` is cancelled. `level` lets the log level be changed over HTTP.
///
/// # Errors
/// When flags or the configuration are invalid, the API server cannot be reached as configured, or a task fails. A lost
/// lease is such a failure.
pub async fn run(args: Args, level: log::Handle, token: CancellationToken) -> anyhow::Result<()> {
    let (file, settings) = args.load()?;
    let names: Vec<&str> = settings.profiles.iter().map(|profile| profile.name.as_ref()).collect();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), profiles = ?names, "starting scheduler");
    for profile in &file.profiles {
        let settings = config::without_effect(profile);
        if !settings.is_empty() {
            let (profile, settings) = (&profile.scheduler_name, settings.join("; "));
            tracing::warn!(profile, settings, "these settings have no effect");
        }
    }
    let kubeconfig = args.kubeconfig(&file);
    let user_agent = format!("tholepin-scheduler/{}", env!("CARGO_PKG_VERSION"));
    let connection = Connection::open(&Options { kubeconfig, user_agent, ..Options::default() }).await?;

    let mut registry = Registry::default();
    registry.register_collector(Box::new(process_metrics::ProcessCollector));
    let metrics = Metrics::register(&mut registry);
    let watch_metrics = watch::Metrics::register(&mut registry);
    let (recorder, writer) =
        events::channel(connection.client_with_timeout(WRITE_TIMEOUT)?, "scheduler", &mut registry);
    let readiness = ready::Readiness::default();
    let synced = readiness.gate("watches");

    let mut tasks = Tasks::new(token.clone());
    let (sender, receiver) = mpsc::unbounded_channel();
    spawn_watches(&mut tasks, &connection, &watch_metrics, &metrics, &sender)?;
    let release = CancellationToken::new();
    let leadership = join_election(&mut tasks, (&args, &file), &connection, &mut registry, &release)?;
    tasks.spawn_draining("events", writer.run(token.clone()));

    let (dumper, writer) = status_dump::channel(args.pods_fingerprint_status_dir.as_deref()).unzip();
    if let Some(writer) = writer {
        tasks.spawn_draining("status dumps", writer.run());
    }
    let outbox = Outbox::new(connection.client_with_timeout(WRITE_TIMEOUT)?, recorder);
    let mut event_loop = EventLoop::new(Core::new(settings), outbox, metrics, dumper);
    let health = leadership.clone();
    let gates = readiness.clone();
    let surface = Endpoints::new(registry)
        .log_level(level)
        .check(Probe::Health, "leaderElection", move || {
            health.as_ref().map_or(Ok(()), |status| status.borrow().check())
        })
        .check(Probe::Ready, "sched-handler-sync", move || gates.check());
    serve(&mut tasks, &args, surface).await?;
    tasks.spawn_draining("scheduling", async move {
        // With a binding in flight the lease is kept until it expires: the next leader has to see that binding.
        if event_loop.run(receiver, leadership, synced, token).await {
            release.cancel();
        }
        Ok::<_, Infallible>(())
    });
    tasks.run(GRACE).await?;
    Ok(())
}

/// Serves health checks and metrics, as the flags say.
async fn serve(tasks: &mut Tasks, args: &Args, surface: Endpoints) -> anyhow::Result<()> {
    let token = tasks.token().clone();
    let routers = surface.routers();
    runtime::http::serve_health(tasks, args.health_probe_bind_address, routers.probes).await?;
    if args.serving == Serving::Disabled {
        return Ok(());
    }
    let listener = runtime::http::bind(args.http_bind_address).await?;
    match &args.serving {
        Serving::Tls(settings) => {
            let server = tls::CertWatcher::new(settings)?;
            tasks.spawn_draining("https", tls::serve(listener, routers.all, token, server));
        }
        Serving::Plain | Serving::Disabled => {
            tasks.spawn_draining("http", runtime::http::serve(listener, routers.all, token));
        }
    }
    Ok(())
}

fn spawn_watches(
    tasks: &mut Tasks,
    connection: &Connection,
    watch_metrics: &watch::Metrics,
    metrics: &Metrics,
    sender: &mpsc::UnboundedSender<intake::Change>,
) -> anyhow::Result<()> {
    // All pods, finished ones too, although those hold nothing. With a selection of unfinished pods the server
    // announces an end as a deletion that shows the state *before*, which looks like a forced deletion.
    let (out, m) = (sender.clone(), watch_metrics.clone());
    let pods: Api<WirePod> = Api::all(connection.watch_client()?);
    let mut warnings = Warnings::default();
    tasks.spawn("watch pods", async move {
        let forward = |event| drop(out.send((Source::Pods, intake::pod(event))));
        let view = |pod: WirePod| Ok(warnings.view(pod));
        let config = watcher::Config::default();
        Ok::<_, Infallible>(watch::run_mapped(pods, "pods", config, &m, view, forward).await)
    });
    let (out, m) = (sender.clone(), watch_metrics.clone());
    let nodes: Api<Node> = Api::all(connection.watch_client()?);
    tasks.spawn("watch nodes", async move {
        let forward = |event| drop(out.send((Source::Nodes, intake::node(event))));
        Ok::<_, Infallible>(watch::run(nodes, watcher::Config::default(), &m, forward).await)
    });
    let (out, m) = (sender.clone(), watch_metrics.clone());
    let budgets = Api::all(connection.watch_client()?);
    tasks.spawn("watch poddisruptionbudgets", async move {
        let forward = |event| drop(out.send((Source::Budgets, intake::budget(event))));
        let config = watcher::Config::default();
        Ok::<_, Infallible>(watch::run_guarded::<PodDisruptionBudget>(budgets, config, &m, forward).await)
    });
    let (out, m) = (sender.clone(), watch_metrics.clone());
    let reports = Api::all(connection.watch_client()?);
    let mut reader = ReportReader::new(metrics.clone());
    tasks.spawn("watch noderesourcetopologies", async move {
        let forward = |event| drop(out.send((Source::Reports, reader.take(event))));
        let config = watcher::Config::default();
        Ok::<_, Infallible>(watch::run_guarded::<NodeResourceTopology>(reports, config, &m, forward).await)
    });
    Watches { tasks, connection, metrics: watch_metrics, sender }.spawn()
}

/// Whether this process leads; `None`: no election, it always does.
type Leadership = Option<tokio::sync::watch::Receiver<lease::Status>>;

/// Joins the election. The lease is given back when `release` is cancelled.
fn join_election(
    tasks: &mut Tasks,
    (args, file): (&Args, &SchedulerConfig),
    connection: &Connection,
    registry: &mut Registry,
    release: &CancellationToken,
) -> anyhow::Result<Leadership> {
    let settings = &file.leader_election;
    if !args.leader_elect.unwrap_or(settings.leader_elect) {
        return Ok(None);
    }
    let config = lease::Config {
        lease_duration: settings.lease_duration.to_std().unwrap_or_default(),
        renew_deadline: settings.renew_deadline.to_std().unwrap_or_default(),
        retry_period: settings.retry_period.to_std().unwrap_or_default(),
        ..lease::Config::new(&settings.resource_namespace, &settings.resource_name, host::identity())
    };
    let candidate = lease::Candidate::new(connection.client_with_timeout(WRITE_TIMEOUT)?, config)?;
    candidate.register(registry);
    let status = candidate.status();
    tasks.spawn_draining("leader election", candidate.run(release.clone()));
    Ok(Some(status))
}
