//! The tasks of a running exporter, put together.
//!
//! In: settings, a token that ends it. Out: tasks: one looks, one watches and one writes the object, others write down, tell our
//! pod, serve. They speak through channels that hold the newest value only. Never: a decision; those are in the modules it joins.

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

use crate::dialect::notify_file;
use crate::lookout::{Findings, Lookout, Watch};
use crate::metrics::Metrics;
use crate::preview;
use crate::publish::{self, Desired, Known, Publisher, Target};
use crate::readiness::{Conditions, Progress};
use crate::scan::Scanner;
use crate::settings::{KubeletConfigAt, Mode, Publishing, Settings};
use crate::status::{Noted, Recorder};

/// Deadline of one call of the API server.
const API_DEADLINE: Duration = Duration::from_secs(10);
/// How long tasks may take to end.
const GRACE: Duration = Duration::from_secs(3);
/// What the tasks share while they are put together.
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
    /// Nothing runs yet.
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
    /// When it cannot start.
    pub async fn run(mut self) -> anyhow::Result<()> {
        info!(node = self.settings.node, version = env!("CARGO_PKG_VERSION"), "starting the exporter");
        if let Some(path) = &self.settings.notify_file {
            notify_file::prepare(path)?;
        }
        let (sender, receiver) = watch::channel(None);
        self.look(sender)?;
        match self.settings.publishing.filter(|_| self.settings.dry_run.is_none()) {
            Some(publishing) => self.publish(receiver, publishing).await?,
            None => self.preview(receiver),
        }
        self.tell_pod().await?;
        self.serve().await?;
        self.tasks
            .spawn("page-reclaim", page_reclaim::run(self.readiness.clone(), ReclaimTrigger::default()));
        self.tasks.run(GRACE).await?;
        Ok(())
    }

    /// What to cancel after the first success, if that is all there is to do.
    fn finish(&self) -> Option<CancellationToken> {
        self.settings.once.then(|| self.tasks.token().clone())
    }

    /// The task that scans the node.
    fn look(&mut self, desired: watch::Sender<Option<Desired>>) -> anyhow::Result<()> {
        let findings = Findings { desired, signed: self.note() };
        let settings = &self.settings;
        let scanner = Scanner::new(&settings.sources, &settings.accounting, self.metrics.clone());
        let scanner = scanner.context("podresources")?;
        // In words that the peer's suite looks for; it does this only when asked to.
        info!("tracking node resources");
        let lookout = Lookout::new(
            scanner,
            watch(settings),
            settings.sources.kubelet_root.as_deref(),
            settings.pace,
            self.metrics.clone(),
            findings,
            self.readiness.gate("first scan"),
        );
        let (once, health, progress) = (settings.once, self.scan_health.clone(), self.progress.clone());
        let report = move |result: Result<(), String>| {
            tell(&progress, |progress| progress.fetched = Some(result.is_ok()));
            health.set(result);
        };
        self.tasks.spawn("scan", async move { Ok::<_, Infallible>(lookout.run(once, report).await) });
        Ok(())
    }

    /// The task that writes down the pods behind the fingerprint, if it is wanted.
    fn note(&mut self) -> Option<(watch::Sender<Noted>, String)> {
        let recorder = Recorder::new(&self.settings.status, &self.settings.node);
        if !recorder.is_wanted() || self.settings.accounting.fingerprint.is_none() {
            return None;
        }
        let (sender, receiver) = watch::channel(None);
        self.tasks.spawn_draining("status", recorder.run(receiver, self.tasks.token().clone()));
        Some((sender, self.settings.node.clone()))
    }

    /// The task that says what would be published.
    fn preview(&mut self, desired: watch::Receiver<Option<Desired>>) {
        let (name, format) = (self.settings.node.clone(), self.settings.dry_run);
        let (progress, finish) = (self.progress.clone(), self.finish());
        let shown = move || {
            // As the peer has it: what is not to be published has not failed to be.
            tell(&progress, |progress| progress.updated = Some(true));
            if let Some(finish) = &finish {
                finish.cancel();
            }
        };
        self.tasks.spawn("preview", preview::each(desired, name, format, shown));
    }

    /// The tasks that watch and write the object.
    async fn publish(
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
        let known = Arc::new(watch::Sender::new(Known::default()));
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
            Target { name: settings.node.clone(), publishing, reread: settings.pace.timer, namespace };
        let gate = self.readiness.gate("first publication");
        let client = connection.client_with_timeout(API_DEADLINE)?;
        let publisher = Publisher::new(target, client, known, self.metrics.clone(), gate);
        let (health, progress, finish) = (self.publish_health.clone(), self.progress.clone(), self.finish());
        let report = move |result: Result<(), String>| {
            tell(&progress, |progress| progress.updated = Some(result.is_ok()));
            if let (Ok(()), Some(finish)) = (&result, &finish) {
                finish.cancel();
            }
            health.set(result);
        };
        self.tasks.spawn("publish", publisher.run(desired, report));
        Ok(())
    }

    /// The task that keeps conditions on our own pod, if that is wanted.
    async fn tell_pod(&mut self) -> anyhow::Result<()> {
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

    /// The task that serves metrics and health.
    async fn serve(&mut self) -> anyhow::Result<()> {
        let Some(serving) = self.settings.serving.clone() else { return Ok(()) };
        let tls = serving.tls.as_ref().map(tls::CertWatcher::new).transpose().context("metrics over TLS")?;
        if let Some(tls) = &tls {
            tls.register(&mut self.registry);
        }
        let (readiness, scan, publish) =
            (self.readiness.clone(), self.scan_health.clone(), self.publish_health.clone());
        let surface = Endpoints::new(std::mem::take(&mut self.registry))
            .check(Probe::Ready, "started", move || readiness.check())
            // Not of `/healthz` or `/livez`: manifests restart what fails there, and a restart cures neither.
            .check(Probe::Ready, "scan", move || scan.check())
            .check(Probe::Ready, "publish", move || publish.check());
        let listener = http::bind(serving.address).await?;
        let token = self.tasks.token().clone();
        match tls {
            None => self.tasks.spawn_draining("http", http::serve(listener, surface.router(), token)),
            Some(tls) => {
                self.tasks.spawn_draining("https", tls::serve(listener, surface.router(), token, tls))
            }
        }
        Ok(())
    }
}

/// Makes a watcher of the files whose changes are news.
fn watch(settings: &Settings) -> Watch {
    let Settings { sources, notify_file, .. } = settings.clone();
    let config = match &sources.kubelet_config {
        KubeletConfigAt::File { path, drop_ins } => {
            kubelet::Files { file: path.clone(), drop_ins: drop_ins.clone() }
        }
        KubeletConfigAt::Configz { .. } => kubelet::Files::default(),
    };
    Box::new(move || {
        let root = sources.kubelet_root.as_deref();
        let mut targets = kubelet::targets(root, &sources.podresources.file(), &config, &sources.sysfs);
        targets.extend(notify_file.as_deref().and_then(kubelet::notice));
        Watcher::new(targets)
    })
}

/// Tells the task of the conditions, if something changed.
fn tell(progress: &watch::Sender<Progress>, change: impl FnOnce(&mut Progress)) {
    progress.send_if_modified(|progress| {
        let before = *progress;
        change(progress);
        *progress != before
    });
}

/// The last result of something that is done again and again.
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
