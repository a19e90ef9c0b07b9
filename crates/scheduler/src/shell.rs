//! The core in a cluster: watches feed it, its decisions become bindings, events and conditions.
//!
//! In: flags, a configuration file, an API server. Out: bindings. Never: a decision of its own.
//!
//! One task owns the core and everything it decides; API calls run beside it. A node gets one binding at a time, so that the
//! kubelet sees pods in the order in which the ledger placed them.
//!
//! RBAC is in [`crate::rbac`].

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use api::goduration::GoDuration;
use api::nrt::NodeResourceTopology;
use api::schedulerconfig::SchedulerConfig;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::runtime::watcher;
use prometheus_client::registry::Registry;
use runtime::client::{Connection, Options};
use runtime::http::{Endpoints, Probe};
use runtime::shutdown::Tasks;
use runtime::{events, host, lease, log, process_metrics, ready, tls, watch};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::config;
use crate::core::{Core, Decision, Event};
use crate::metrics::Metrics;

mod dump;
mod intake;
mod outbox;

use intake::{Intake, Reports, Source};
use outbox::{Done, Outbox};

/// How long a binding or condition write may take before its outcome is looked up.
const WRITE: Duration = Duration::from_secs(5);
/// How often gauges are brought up to date.
const GAUGES: Duration = Duration::from_secs(1);

/// Flags of `tholepin scheduler`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:\n  tholepin scheduler --config /etc/kubernetes/config.yaml\n  \
    tholepin scheduler --kubeconfig ~/.kube/config --leader-elect=false -v 4")]
pub struct Args {
    /// KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1); without it one profile, topo-aware-scheduler
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Kubeconfig; without it KUBECONFIG, ~/.kube/config, then the pod's service account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Whether to wait for the leader lease [default: true, or as the configuration file says]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub leader_elect: Option<bool>,
    /// Where health checks and metrics are served
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:10251")]
    pub http_bind_address: SocketAddr,
    /// Seed of the choice among equally good nodes; random when not given
    #[arg(long)]
    pub seed: Option<u64>,
    /// Verbosity as in klog: 2 is info, 4 is debug, 6 is trace
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 2)]
    pub verbosity: u8,
    /// How a log line looks
    #[arg(long, value_parser = ["text", "json"], default_value = "text")]
    pub logging_format: String,
    /// Directory for files with the pods behind each node's fingerprint, as reported and as known here
    #[arg(long, value_name = "DIR", env = "PFP_STATUS_DUMP", value_parser = path_or_nothing)]
    pub pods_fingerprint_status_dir: Option<PathBuf>,
    /// How health and metrics are served; ours are never encrypted, kube-scheduler's always.
    #[arg(skip)]
    pub serving: Serving,
    /// What kube-scheduler's flags say of the lease, rather than the file.
    #[arg(skip)]
    pub election: ElectionFlags,
}

/// How health and metrics are served.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Serving {
    /// As they are.
    #[default]
    Plain,
    /// Over TLS.
    Tls(Box<tls::Settings>),
    /// Not at all.
    Nothing,
}

/// What flags say of the lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElectionFlags {
    /// How long it is good for.
    pub lease_duration: Option<GoDuration>,
    /// How long the leader tries to renew it.
    pub renew_deadline: Option<GoDuration>,
    /// How often it tries.
    pub retry_period: Option<GoDuration>,
    /// Its name.
    pub resource_name: Option<String>,
    /// Its namespace.
    pub resource_namespace: Option<String>,
}

/// An empty variable is as good as none.
#[expect(clippy::unnecessary_wraps, reason = "what clap calls")]
fn path_or_nothing(text: &str) -> Result<PathBuf, Infallible> {
    Ok(PathBuf::from(text))
}

impl Args {
    /// The log format asked for.
    #[must_use]
    pub fn log_format(&self) -> log::Format {
        if self.logging_format == "json" { log::Format::Json } else { log::Format::Text }
    }
}

/// Everything the loop needs.
struct Shell {
    core: Core,
    intake: Intake,
    outbox: Outbox,
    metrics: Metrics,
    dumper: Option<dump::Dumper>,
    started: (Instant, u64),
}

/// Runs the scheduler until `token` is cancelled. `level` lets the log level be changed over HTTP.
///
/// # Errors
/// When flags or the configuration are wrong, the API server cannot be configured, or a task fails (losing the lease is one).
pub async fn run(args: Args, level: log::Handle, token: CancellationToken) -> anyhow::Result<()> {
    let (file, settings) = load(&args)?;
    let names: Vec<&str> = settings.profiles.iter().map(|profile| profile.name.as_ref()).collect();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), profiles = ?names, "starting scheduler");
    let kubeconfig = args.kubeconfig.clone().or_else(|| {
        let path = &file.client_connection.kubeconfig;
        (!path.is_empty()).then(|| PathBuf::from(path))
    });
    let user_agent = format!("tholepin-scheduler/{}", env!("CARGO_PKG_VERSION"));
    let connection = Connection::open(&Options { kubeconfig, context: None, user_agent }).await?;

    let mut registry = Registry::default();
    registry.register_collector(Box::new(process_metrics::ProcessCollector));
    let metrics = Metrics::register(&mut registry);
    let watch_metrics = watch::Metrics::register(&mut registry);
    let (recorder, writer) = events::channel(
        connection.client_with_timeout(WRITE)?,
        "scheduler",
        events::Limits::default(),
        &mut registry,
    );
    let readiness = ready::Readiness::default();
    let synced = readiness.gate("watches");

    let mut tasks = Tasks::new(token.clone());
    let (sender, receiver) = mpsc::unbounded_channel();
    watches(&mut tasks, &connection, &watch_metrics, &metrics, &sender)?;
    let leads = leader(&mut tasks, &args, &file, &connection, &mut registry)?;
    tasks.spawn_draining("events", writer.run(token.clone()));

    let (dumper, writer) = dump::pair(args.pods_fingerprint_status_dir.as_deref()).unzip();
    if let Some(writer) = writer {
        tasks.spawn_draining("status dumps", writer.run());
    }
    let mut shell = Shell {
        dumper,
        core: Core::new(settings),
        intake: Intake::default(),
        outbox: Outbox::new(connection.client_with_timeout(WRITE)?, recorder),
        metrics,
        started: (Instant::now(), u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)),
    };
    let health = leads.clone();
    let gates = readiness.clone();
    let surface = Endpoints::new(registry)
        .log_level(level)
        .check(Probe::Health, "leaderElection", move || {
            health.as_ref().map_or(Ok(()), |status| status.borrow().check())
        })
        .check(Probe::Ready, "sched-handler-sync", move || gates.check());
    serve(&mut tasks, &args, surface).await?;
    tasks.spawn_draining("scheduling", async move {
        shell.run(receiver, leads, synced, token).await;
        Ok::<_, std::convert::Infallible>(())
    });
    tasks.run(Duration::from_secs(5)).await?;
    Ok(())
}

/// Health and metrics, as the flags want them.
async fn serve(tasks: &mut Tasks, args: &Args, surface: Endpoints) -> anyhow::Result<()> {
    let token = tasks.token().clone();
    if args.serving == Serving::Nothing {
        return Ok(());
    }
    let listener = runtime::http::bind(args.http_bind_address).await?;
    match &args.serving {
        Serving::Tls(settings) => {
            let server = tls::CertWatcher::new(settings)?;
            tasks.spawn_draining("https", tls::serve(listener, surface.router(), token, server));
        }
        Serving::Plain | Serving::Nothing => {
            tasks.spawn_draining("http", runtime::http::serve(listener, surface.router(), token));
        }
    }
    Ok(())
}

/// The file and what it comes to; flags about the lease count more than it does.
fn load(args: &Args) -> anyhow::Result<(SchedulerConfig, crate::core::Settings)> {
    let (mut file, settings) = read(args)?;
    let (flags, election) = (&args.election, &mut file.leader_election);
    let spans = [
        (flags.lease_duration, &mut election.lease_duration),
        (flags.renew_deadline, &mut election.renew_deadline),
        (flags.retry_period, &mut election.retry_period),
    ];
    for (flag, field) in spans {
        *field = flag.unwrap_or(*field);
    }
    let names = [
        (&flags.resource_name, &mut election.resource_name),
        (&flags.resource_namespace, &mut election.resource_namespace),
    ];
    for (flag, field) in names {
        if let Some(flag) = flag {
            field.clone_from(flag);
        }
    }
    Ok((file, settings))
}

fn read(args: &Args) -> anyhow::Result<(SchedulerConfig, crate::core::Settings)> {
    let seed = args.seed.unwrap_or_else(|| {
        u64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(0) ^ u64::from(std::process::id())
    });
    let Some(path) = &args.config else {
        let mut file = SchedulerConfig::default();
        // Not kube-scheduler's own lease, as it is in the defaults: with that one of us would never get to work.
        config::DEFAULT_SCHEDULER_NAME.clone_into(&mut file.leader_election.resource_name);
        return Ok((file, config::default_settings(seed)));
    };
    let text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    let file = SchedulerConfig::parse(&text).with_context(|| format!("{}", path.display()))?;
    let settings = config::settings(&file, seed).with_context(|| format!("{}", path.display()))?;
    Ok((file, settings))
}

fn watches(
    tasks: &mut Tasks,
    connection: &Connection,
    metrics: &watch::Metrics,
    own: &Metrics,
    sender: &mpsc::UnboundedSender<intake::Change>,
) -> anyhow::Result<()> {
    // All pods, finished ones too, although those hold nothing: with a selection of unfinished pods the server announces an
    // end as a deletion that shows the state *before*, which cannot be told from a forced one.
    let (out, m) = (sender.clone(), metrics.clone());
    let pods: Api<Pod> = Api::all(connection.watch_client()?);
    tasks.spawn("watch pods", async move {
        Ok::<_, std::convert::Infallible>(
            watch::run(pods, watcher::Config::default(), &m, |e| {
                drop(out.send((Source::Pods, intake::pod(e))))
            })
            .await,
        )
    });
    let (out, m) = (sender.clone(), metrics.clone());
    let nodes: Api<Node> = Api::all(connection.watch_client()?);
    tasks.spawn("watch nodes", async move {
        let config = watcher::Config::default();
        Ok::<_, std::convert::Infallible>(
            watch::run(nodes, config, &m, |e| drop(out.send((Source::Nodes, intake::node(e))))).await,
        )
    });
    let (out, m) = (sender.clone(), metrics.clone());
    let reports = Api::all(connection.watch_client()?);
    let mut read = Reports::new(own.clone());
    tasks.spawn("watch noderesourcetopologies", async move {
        let config = watcher::Config::default();
        Ok::<_, std::convert::Infallible>(
            watch::run_guarded::<NodeResourceTopology>(reports, config, &m, |e| {
                drop(out.send((Source::Reports, read.take(e))));
            })
            .await,
        )
    });
    Ok(())
}

type Leads = Option<tokio::sync::watch::Receiver<lease::Status>>;

fn leader(
    tasks: &mut Tasks,
    args: &Args,
    file: &SchedulerConfig,
    connection: &Connection,
    registry: &mut Registry,
) -> anyhow::Result<Leads> {
    let wanted = &file.leader_election;
    if !args.leader_elect.unwrap_or(wanted.leader_elect) {
        return Ok(None);
    }
    let config = lease::Config {
        lease_duration: wanted.lease_duration.to_std().unwrap_or_default(),
        renew_deadline: wanted.renew_deadline.to_std().unwrap_or_default(),
        retry_period: wanted.retry_period.to_std().unwrap_or_default(),
        ..lease::Config::new(&wanted.resource_namespace, &wanted.resource_name, host::identity())
    };
    let candidate = lease::Candidate::new(connection.client_with_timeout(WRITE)?, config)?;
    candidate.register(registry);
    let status = candidate.status();
    let token = tasks.token().clone();
    tasks.spawn_draining("leader election", candidate.run(token));
    Ok(Some(status))
}

// === impl Shell ===

impl Shell {
    async fn run(
        &mut self,
        mut changes: mpsc::UnboundedReceiver<intake::Change>,
        mut leads: Leads,
        synced: ready::Gate,
        token: CancellationToken,
    ) {
        let mut gauges = tokio::time::interval(GAUGES);
        loop {
            if self.intake.is_synced() {
                synced.open();
                if leads.as_ref().is_none_or(|status| status.borrow().leads()) {
                    self.decide();
                }
            }
            let due = self.core.due().map(|due| self.instant(due));
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                Some(done) = self.outbox.finished() => self.done(done),
                Some(change) = changes.recv() => {
                    self.take(change);
                    // A burst is taken in whole before anything is decided.
                    while let Ok(change) = changes.try_recv() {
                        self.take(change);
                    }
                }
                () = sleep_until(due) => {}
                _ = gauges.tick() => self.observe(),
                () = changed(&mut leads) => {}
            }
        }
    }

    /// What others are told about how it stands.
    fn observe(&mut self) {
        self.metrics.observe(&self.core);
        if let Some(dumper) = &mut self.dumper {
            dumper.look(&self.core, jiff::Timestamp::now());
        }
    }

    fn take(&mut self, change: intake::Change) {
        let now = self.now_ms();
        for event in self.intake.take(change) {
            if let Event::PodGone(pod) = &event {
                self.outbox.drop_pod(&pod.uid);
            }
            self.core.handle(event, now);
        }
    }

    fn decide(&mut self) {
        loop {
            let began = Instant::now();
            let Some(decision) = self.core.next(self.now_ms()) else { return };
            let seconds = began.elapsed().as_secs_f64();
            match decision {
                Decision::Bind(binding) => {
                    self.metrics.attempt("scheduled", &binding.pod.scheduler, seconds);
                    self.metrics.scheduled(binding.attempts);
                    tracing::debug!(pod = binding.pod.key(), node = %binding.node, "binding");
                    self.outbox.bind(binding);
                }
                Decision::Refuse(refused) => {
                    self.metrics.attempt("unschedulable", &refused.pod.scheduler, seconds);
                    refused.plugins().into_iter().for_each(|plugin| self.metrics.rejected(plugin));
                    tracing::debug!(pod = refused.pod.key(), reason = refused.message, "no fit; waiting");
                    self.outbox.refuse(refused);
                }
            }
        }
    }

    fn done(&mut self, done: Done) {
        let now = self.now_ms();
        match done {
            Done::Bound(id) => self.core.handle(Event::Bound(id), now),
            Done::BindFailed { id, profile } => {
                self.metrics.attempt("error", &profile, 0.0);
                self.core.handle(Event::BindFailed(id), now);
            }
            Done::Nothing => {}
        }
    }

    /// Milliseconds since the epoch at the start, continued by a clock that does not jump.
    fn now_ms(&self) -> u64 {
        self.started.1 + u64::try_from(self.started.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn instant(&self, ms: u64) -> Instant {
        self.started.0 + Duration::from_millis(ms.saturating_sub(self.started.1))
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

async fn changed(leads: &mut Leads) {
    let gone = match leads {
        Some(status) => status.changed().await.is_err(),
        None => true,
    };
    if gone {
        std::future::pending().await
    }
}
