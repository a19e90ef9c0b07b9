//! The core in a cluster: watches feed it, and its decisions become bindings, events and conditions.
//!
//! In: flags, a configuration file, an API server. Out: the tasks of the process. Never: a decision of its own.
//!
//! One thread owns the core and all its decisions (`event_loop`); watches decode and API calls run beside it, on the
//! runtime's threads (`watches`, `intake`, `outbox`). A node gets one binding at a time of pods that hold something in
//! zones, so that its kubelet sees them in the order in which the ledger placed them. The permissions that this takes
//! are in [`crate::rbac`].

use std::convert::Infallible;
use std::time::Duration;

use anyhow::Context as _;
use api::schedulerconfig::SchedulerConfig;
use prometheus_client::registry::Registry;
use runtime::client::{Connection, Options};
use runtime::http::{Endpoints, Probe};
use runtime::ready::Gate;
use runtime::shutdown::Tasks;
use runtime::{events, host, lease, log, process_metrics, ready, watch, yaml};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::args::Args;
use crate::config;
use crate::configz;
use crate::core::Core;
use crate::metrics::Metrics;

mod endpoints;
mod event_loop;
pub mod extender_server;
mod extenders;
mod intake;
pub mod observer;
mod outbox;
mod pod_resources;
pub mod snapshot;
mod status_dump;
mod watches;
mod whole_nodes;
mod wire_pod;
mod wire_selecting;

use event_loop::{EventLoop, Input};
use intake::Intake;
use outbox::Outbox;
use watches::Watches;

/// How long a binding or condition write may take before its result is looked up.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The stack of the core's thread: selectors of devices and the search for them recurse (`devices::selector`).
const STACK: usize = 32 << 20;

/// How long everything may take to end: the last bindings, then the release of the lease.
const GRACE: Duration = Duration::from_secs(14);

/// Runs the scheduler until `token` is cancelled. `level` lets the log level be changed over HTTP.
///
/// # Errors
/// When flags or the configuration are invalid, the API server cannot be reached as configured, or a task fails. A lost
/// lease is such a failure.
pub async fn run(args: Args, level: log::Handle, token: CancellationToken) -> anyhow::Result<()> {
    let (file, settings) = args.load()?;
    if let Some(path) = &args.write_config_to {
        let text = yaml::write(&configz::effective(&file))?;
        return std::fs::write(path, text).with_context(|| path.display().to_string());
    }
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
    let options = Options { kubeconfig, user_agent: user_agent(), ..Options::default() };
    let connection = Connection::open(&options).await?;

    let mut registry = Registry::default();
    registry.register_collector(Box::new(process_metrics::ProcessCollector));
    let metrics = Metrics::register(&mut registry);
    let watch_metrics = watch::Metrics::register(&mut registry);
    let (recorder, event_writer) =
        events::channel(connection.client_with_timeout(WRITE_TIMEOUT)?, "scheduler", &mut registry);
    let readiness = ready::Readiness::default();
    let synced = readiness.gate("watches");

    let mut tasks = Tasks::new(token.clone());
    let (inputs, receiver) = std::sync::mpsc::channel();
    let watches = Watches::new(&mut tasks, &connection, &watch_metrics, &inputs);
    let watches = watches.spawn(&metrics, settings.places_gangs())?;
    let release = CancellationToken::new();
    let leadership = join_election(&mut tasks, &file, &connection, &mut registry, &release)?;
    let (dumper, writer) = status_dump::channel(args.pods_fingerprint_status_dir.as_deref()).unzip();
    if let Some(writer) = writer {
        tasks.spawn_draining("status dumps", writer.run());
    }
    let extenders = extenders::connect(&file, &connection, (&mut tasks, &watch_metrics))?;
    let binder = extenders.iter().find(|extender| extender.binds()).cloned();
    let outbox = Outbox::new(connection.client_with_timeout(WRITE_TIMEOUT)?, recorder, binder);
    tasks.spawn_draining("events", event_writer.yielding_to(outbox.urgent()).run(token.clone()));
    let (outputs, decisions) = mpsc::unbounded_channel();
    let mut core = Core::new(settings);
    core.extend(extenders.iter().map(|extender| extender.extender()).collect());
    let event_loop = EventLoop::new(core, Intake::new(watches), outputs, metrics, dumper);
    let health = leadership.clone();
    let gates = readiness.clone();
    let endpoints = Endpoints::new(registry)
        .log_level(level)
        .check(Probe::Health, "leaderElection", move || {
            health.as_ref().map_or(Ok(()), |status| status.borrow().check())
        })
        .check(Probe::Ready, "sched-handler-sync", move || gates.check());
    let resources = pod_resources::router(inputs.clone());
    endpoints::serve(&mut tasks, (&args, &file), (endpoints, resources)).await?;
    spawn_waker(&mut tasks, leadership.clone(), inputs.clone());
    let ended = spawn_thread(event_loop, receiver, leadership, synced, token.clone())?;
    tasks.spawn_draining("core", ended);
    tasks.spawn_draining("calls", async move {
        let results = |result| drop(inputs.send(Input::Result(result)));
        // With a binding in flight the lease is kept until it expires: the next leader has to see that binding.
        if outbox.run(decisions, results, token).await {
            release.cancel();
        }
        Ok::<_, Infallible>(())
    });
    tasks.run(GRACE).await?;
    Ok(())
}

/// The time, milliseconds since the epoch.
#[must_use]
pub fn now_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)
}

/// The name of this program in requests.
fn user_agent() -> String {
    format!("tholepin-scheduler/{}", env!("CARGO_PKG_VERSION"))
}

/// Runs the event loop on a thread of its own. The future ends with it.
fn spawn_thread(
    event_loop: EventLoop,
    inputs: std::sync::mpsc::Receiver<Input>,
    leadership: Leadership,
    synced: Gate,
    token: CancellationToken,
) -> std::io::Result<impl Future<Output = Result<(), &'static str>>> {
    let (sender, ended) = oneshot::channel();
    std::thread::Builder::new().name("core".to_owned()).stack_size(STACK).spawn(move || {
        event_loop.run(&inputs, &leadership, &synced, &token);
        sender.send(())
    })?;
    Ok(async { ended.await.map_err(|_| "the thread panicked") })
}

/// Wakes the event loop when the leadership changes, and at the end.
fn spawn_waker(tasks: &mut Tasks, mut leadership: Leadership, inputs: std::sync::mpsc::Sender<Input>) {
    let token = tasks.token().clone();
    tasks.spawn_draining("waker", async move {
        while !token.is_cancelled() {
            tokio::select! {
                () = token.cancelled() => {}
                () = changed(&mut leadership) => {}
            }
            let _ = inputs.send(Input::Wake);
        }
    });
}

async fn changed(leadership: &mut Leadership) {
    let gone = match leadership {
        Some(status) => status.changed().await.is_err(),
        None => true,
    };
    if gone {
        std::future::pending().await
    }
}

/// Whether this process leads; `None`: no election, it always does.
type Leadership = Option<tokio::sync::watch::Receiver<lease::Status>>;

/// Joins the election. The lease is given back when `release` is cancelled.
fn join_election(
    tasks: &mut Tasks,
    file: &SchedulerConfig,
    connection: &Connection,
    registry: &mut Registry,
    release: &CancellationToken,
) -> anyhow::Result<Leadership> {
    let settings = &file.leader_election;
    if !settings.leader_elect {
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
