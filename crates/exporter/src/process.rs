//! Starts and connects the tasks of the exporter.
//!
//! In: settings, a token that ends it. Out: tasks that scan the node, watch and write the object, write status files,
//! keep the conditions of the pod, and serve metrics. They communicate through channels that hold the newest value
//! only. Never: a decision; those belong to the modules it connects.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use kube::Api;
use node::kubelet;
use node::watch::Watcher;
use prometheus_client::registry::Registry;
use runtime::client::{Connection, Options};
use runtime::http::{self, Endpoints, Probe};
use runtime::page_reclaim::{self, ReclaimTrigger};
use runtime::ready::Readiness;
use runtime::shutdown::Tasks;
use runtime::tls;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::compat::notify_file;
use crate::metrics::Metrics;
use crate::preview;
use crate::publish::{self, Desired, Publisher, ServerState, Target};
use crate::readiness::{Conditions, Progress};
use crate::scan::Scanner;
use crate::scan_loop::{OpenWatcher, Outputs, ScanLoop};
use crate::settings::{KubeletConfigSource, Mode, Publishing, Settings};
use crate::status::{LatestStatus, Recorder};

/// Deadline of one call to the API server.
const API_DEADLINE: Duration = Duration::from_secs(10);
/// Time the tasks have to end after cancellation.
const GRACE: Duration = Duration::from_secs(3);
/// The shared state of the tasks while they are started.
pub struct Process {
    settings: Settings,
    registry: Registry,
    metrics: Metrics,
    readiness: Readiness,
    scan_health: Health,
    publish_health: Health,
    progress: watch::Sender<Progress>,
    tasks: Tasks,
}

impl Process {
    /// A process without running tasks.
    #[must_use]
    pub fn new(settings: Settings, shutdown: &CancellationToken) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(runtime::process_metrics::ProcessCollector));
        let metrics = Metrics::register(&mut registry, &settings.node);
        let (readiness, scan_health, publish_health, progress) = Default::default();
        let tasks = Tasks::new(shutdown.child_token());
        Self { settings, registry, metrics, readiness, scan_health, publish_health, progress, tasks }
    }

    /// Runs until the token is cancelled.
    ///
    /// # Errors
    /// When a task cannot be started.
    pub async fn run(mut self) -> anyhow::Result<()> {
        info!(node = self.settings.node, version = env!("CARGO_PKG_VERSION"), "starting the exporter");
        if let Some(path) = &self.settings.notify_file {
            notify_file::prepare(path)?;
        }
        let (sender, receiver) = watch::channel(None);
        self.start_scanning(sender)?;
        match self.settings.publishing.filter(|_| self.settings.dry_run.is_none()) {
            Some(publishing) => self.start_publishing(receiver, publishing).await?,
            None => self.start_preview(receiver),
        }
        self.start_conditions().await?;
        self.start_serving().await?;
        self.tasks
            .spawn("page-reclaim", page_reclaim::run(self.readiness.clone(), ReclaimTrigger::default()));
        self.tasks.run(GRACE).await?;
        Ok(())
    }

    /// The token to cancel after the first success, for `--oneshot`.
    fn finish(&self) -> Option<CancellationToken> {
        self.settings.once.then(|| self.tasks.token().clone())
    }

    /// Starts the task that scans the node.
    fn start_scanning(&mut self, desired: watch::Sender<Option<Desired>>) -> anyhow::Result<()> {
        let outputs = Outputs { desired, status: self.start_status() };
        let settings = &self.settings;
        let scanner = Scanner::new(&settings.sources, &settings.accounting, self.metrics.clone());
        let scanner = scanner.context("podresources")?;
        // In the words of RTE, for which its test suite searches.
        info!("tracking node resources");
        let scan_loop = ScanLoop::new(
            scanner,
            open_watcher(settings),
            &settings.sources,
            settings.intervals,
            self.metrics.clone(),
            outputs,
            self.readiness.gate("first scan"),
        );
        let (once, health, progress) = (settings.once, self.scan_health.clone(), self.progress.clone());
        let report = move |result: Result<(), String>| {
            update(&progress, |progress| progress.fetched = Some(result.is_ok()));
            health.set(result);
        };
        let token = self.tasks.token().clone();
        self.tasks.spawn("scan", async move {
            let error = scan_loop.run(once, report).await;
            info!("{error}; ending, so that the container's restart mounts the new one");
            token.cancel();
        });
        Ok(())
    }

    /// Starts the task that writes status files of the fingerprint, if they are configured.
    fn start_status(&mut self) -> Option<(watch::Sender<LatestStatus>, String)> {
        let recorder = Recorder::new(&self.settings.status, &self.settings.node);
        if !recorder.is_wanted() || self.settings.accounting.fingerprint.is_none() {
            return None;
        }
        let (sender, receiver) = watch::channel(None);
        self.tasks.spawn_draining("status", recorder.run(receiver, self.tasks.token().clone()));
        Some((sender, self.settings.node.clone()))
    }

    /// Starts the task that prints or logs the object instead of publishing it.
    fn start_preview(&mut self, desired: watch::Receiver<Option<Desired>>) {
        let (name, format) = (self.settings.node.clone(), self.settings.dry_run);
        let (progress, finish) = (self.progress.clone(), self.finish());
        let shown = move || {
            // As in RTE: without publishing, the update counts as successful.
            update(&progress, |progress| progress.updated = Some(true));
            if let Some(finish) = &finish {
                finish.cancel();
            }
        };
        self.tasks.spawn("preview", preview::each(desired, name, format, shown));
    }

    /// Starts the tasks that watch and write the object.
    async fn start_publishing(
        &mut self,
        desired: watch::Receiver<Option<Desired>>,
        publishing: Publishing,
    ) -> anyhow::Result<()> {
        let mode = match publishing.mode {
            Mode::Patch => "patch",
            Mode::Update => "get+update",
            Mode::Apply => "apply",
        };
        info!("operation mode: {mode}");
        let connection = self.connection().await?;
        let known = Arc::new(watch::Sender::new(ServerState::default()));
        let (api, sink) = (Api::all(connection.watch_client()?), Arc::clone(&known));
        let (name, watch_metrics) =
            (self.settings.node.clone(), runtime::watch::Metrics::register(&mut self.registry));
        self.tasks.spawn("watch", async move {
            Ok::<_, Infallible>(publish::keep_watching(api, &name, &watch_metrics, sink).await)
        });

        let settings = &self.settings;
        let of_pod = || settings.readiness.as_ref().map(|pod| pod.namespace.clone());
        let namespace = settings.namespace.clone().or_else(of_pod);
        let target =
            Target { name: settings.node.clone(), publishing, reread: settings.intervals.timer, namespace };
        let gate = self.readiness.gate("first publication");
        let client = connection.client_with_timeout(API_DEADLINE)?;
        let publisher = Publisher::new(target, client, known, self.metrics.clone(), gate);
        let (health, progress, finish) = (self.publish_health.clone(), self.progress.clone(), self.finish());
        let report = move |result: Result<(), String>| {
            update(&progress, |progress| progress.updated = Some(result.is_ok()));
            if let (Ok(()), Some(finish)) = (&result, &finish) {
                finish.cancel();
            }
            health.set(result);
        };
        self.tasks.spawn("publish", publisher.run(desired, report));
        Ok(())
    }

    /// Starts the task that keeps conditions on the exporter's own pod, if they are configured.
    async fn start_conditions(&mut self) -> anyhow::Result<()> {
        let Some(pod) = self.settings.readiness.clone() else { return Ok(()) };
        let client = self.connection().await?.client_with_timeout(API_DEADLINE)?;
        let conditions = Conditions::new(pod, client);
        self.tasks.spawn("conditions", conditions.run(self.progress.subscribe()));
        Ok(())
    }

    async fn connection(&self) -> anyhow::Result<Connection> {
        let kubeconfig = self.settings.kubeconfig.clone();
        let user_agent = format!("tholepin-exporter/{}", env!("CARGO_PKG_VERSION"));
        let options = Options { kubeconfig, user_agent, ..Options::default() };
        Connection::open(&options).await.context("cannot reach Kubernetes")
    }

    /// Starts the servers of metrics and health.
    async fn start_serving(&mut self) -> anyhow::Result<()> {
        let serving = self.settings.serving.clone();
        let tls = serving.as_ref().and_then(|serving| serving.tls.as_ref());
        let tls = tls.map(tls::CertWatcher::new).transpose().context("metrics over TLS")?;
        if let Some(tls) = &tls {
            tls.register(&mut self.registry);
        }
        let (readiness, scan, publish) =
            (self.readiness.clone(), self.scan_health.clone(), self.publish_health.clone());
        let routers = Endpoints::new(std::mem::take(&mut self.registry))
            .check(Probe::Ready, "started", move || readiness.check())
            // Not on `/healthz` or `/livez`: manifests restart a container that fails there, and a restart cures
            // neither.
            .check(Probe::Ready, "scan", move || scan.check())
            .check(Probe::Ready, "publish", move || publish.check())
            .routers();
        http::serve_health(&mut self.tasks, self.settings.health, routers.probes).await?;
        let Some(serving) = serving else { return Ok(()) };
        let listener = http::bind(serving.address).await?;
        let token = self.tasks.token().clone();
        match tls {
            None => self.tasks.spawn_draining("http", http::serve(listener, routers.all, token)),
            Some(tls) => self.tasks.spawn_draining("https", tls::serve(listener, routers.all, token, tls)),
        }
        Ok(())
    }
}

/// Returns a function that opens a watcher of the files whose changes cause scans.
fn open_watcher(settings: &Settings) -> OpenWatcher {
    let Settings { sources, notify_file, .. } = settings.clone();
    let config = match &sources.kubelet_config {
        KubeletConfigSource::File { path, drop_ins } => {
            kubelet::Files { file: path.clone(), drop_ins: drop_ins.clone() }
        }
        KubeletConfigSource::Configz { .. } => kubelet::Files::default(),
    };
    Box::new(move || {
        let root = sources.kubelet_root.as_deref();
        let mut targets = kubelet::targets(root, &sources.podresources.file(), &config, &sources.sysfs);
        targets.extend(notify_file.as_deref().and_then(kubelet::notice));
        Watcher::new(targets)
    })
}

/// Changes the progress, and wakes the task of the conditions if it differs.
fn update(progress: &watch::Sender<Progress>, change: impl FnOnce(&mut Progress)) {
    progress.send_if_modified(|progress| {
        let before = *progress;
        change(progress);
        *progress != before
    });
}

/// The last result of a repeated operation.
#[derive(Clone, Debug, Default)]
struct Health(Arc<Mutex<Option<String>>>);

impl Health {
    fn set(&self, result: Result<(), String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = result.err();
    }

    fn check(&self) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }
}
