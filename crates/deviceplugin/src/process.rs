//! The tasks of a running device plugin, put together.
//!
//! In: settings, a token that ends it, SIGHUP and changes of the configuration. Out: for each resource a task that looks and one that
//! serves the kubelet; metrics and health. Never: a decision; those are in the modules it joins.

mod fleet;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use node::pluginwatcher::Status;
use node::watch::{Names, Target, Watcher, changed};
use prometheus_client::registry::Registry;
use runtime::http::{self, Endpoints, Probe};
use runtime::page_reclaim::{self, ReclaimTrigger};
use runtime::ready::Readiness;
use runtime::shutdown::Tasks;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::config::Config;
use crate::discovery;
use crate::inventory::{self, Feed, Inventory};
use crate::last::Last;
use crate::metrics::Metrics;
use crate::settings::{Settings, Source};

use fleet::Fleet;

/// How long tasks may take to end.
const GRACE: Duration = Duration::from_secs(3);
/// Between looks at the configuration without an event.
const RECHECK: Duration = Duration::from_secs(60);
/// A mounted ConfigMap changes in several steps.
const SETTLE: Duration = Duration::from_millis(100);

/// What the tasks share while they are put together.
pub struct Process {
    settings: Settings,
    registry: Registry,
    metrics: Metrics,
    readiness: Readiness,
    /// Looks for devices and the kubelet's calls come now and then.
    reclaim: ReclaimTrigger,
    inventory: watch::Sender<Arc<Inventory>>,
    /// What the kubelet said of the driver of resource claims.
    claims: watch::Sender<Status>,
    tasks: Tasks,
}

impl Process {
    /// Nothing runs yet.
    #[must_use]
    pub fn new(settings: Settings, shutdown: &CancellationToken) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(runtime::process_metrics::ProcessCollector));
        let metrics = Metrics::register(&mut registry);
        let (inventory, _) = inventory::channel();
        let tasks = Tasks::new(shutdown.child_token());
        let claims = watch::Sender::default();
        Self {
            settings,
            registry,
            metrics,
            readiness: Readiness::default(),
            reclaim: ReclaimTrigger::default(),
            inventory,
            claims,
            tasks,
        }
    }

    /// The devices, for whoever else offers them.
    #[must_use]
    pub fn feed(&self) -> Feed {
        self.inventory.subscribe()
    }

    /// Runs until the token is cancelled.
    ///
    /// # Errors
    /// When it cannot start, or a path cannot be a socket.
    pub async fn run(mut self) -> anyhow::Result<()> {
        let node = &self.settings.place.node;
        info!(node, version = env!("CARGO_PKG_VERSION"), "starting the device plugin");
        let config = self.settings.read()?;
        if matches!(self.settings.source, Source::Flags(_)) {
            // The sample plugin ends when it has no devices, and says so where people look.
            for resource in &config.resources {
                discovery::look(resource, &self.settings.place)?;
            }
        }
        let fleet = Fleet::new(
            self.settings.clone(),
            self.metrics.clone(),
            self.inventory.clone(),
            self.reclaim.clone(),
        );
        let missing = fleet.missing();
        if let Some(dra) = self.settings.dra.clone() {
            let names = config.resources.iter().map(|resource| resource.name.clone()).collect();
            let status = self.claims.clone();
            let metrics = crate::dra::metrics::Metrics::register(&mut self.registry);
            self.tasks.spawn("resource claims", crate::dra::run(dra, self.feed(), names, status, metrics));
        }
        self.serve(missing).await?;
        self.keep(fleet, config)?;
        self.tasks.spawn("page-reclaim", page_reclaim::run(self.readiness.clone(), self.reclaim.clone()));
        self.tasks.run(GRACE).await?;
        Ok(())
    }

    /// The task that keeps the plugins as the configuration wants them.
    fn keep(&mut self, mut fleet: Fleet, config: Config) -> anyhow::Result<()> {
        let gate = self.readiness.gate("plugins started");
        let mut hangup = signal(SignalKind::hangup())?;
        let (settings, metrics, reclaim) =
            (self.settings.clone(), self.metrics.clone(), self.reclaim.clone());
        let token = self.tasks.token().clone();
        self.tasks.spawn_draining("plugins", async move {
            let mut watcher = watcher_of(&settings.source);
            let mut last = Last::default();
            fleet.become_(config).await;
            gate.open();
            loop {
                tokio::select! {
                    () = token.cancelled() => break,
                    failed = fleet.failed() => {
                        fleet.stop().await;
                        return Err(failed);
                    }
                    _ = hangup.recv() => {
                        info!("SIGHUP: reading the configuration");
                        last = Last::default();
                    }
                    () = news(&mut watcher) => {}
                }
                match settings.read_again(&mut last) {
                    Ok(None) => continue,
                    Ok(Some(config)) if fleet.is(&config) => {}
                    Ok(Some(config)) => {
                        info!(resources = config.resources.len(), "the configuration has changed");
                        metrics.reloaded(true);
                        fleet.become_(config).await;
                    }
                    Err(error) => {
                        metrics.reloaded(false);
                        error!(%error, "the configuration is wrong; the last one stays");
                    }
                }
                reclaim.notify();
            }
            fleet.stop().await;
            Ok(())
        });
        Ok(())
    }

    /// The task that serves metrics and health.
    async fn serve(&mut self, missing: watch::Receiver<BTreeMap<String, String>>) -> anyhow::Result<()> {
        let Some(address) = self.settings.http else { return Ok(()) };
        let readiness = self.readiness.clone();
        let mut surface = Endpoints::new(std::mem::take(&mut self.registry))
            .check(Probe::Ready, "started", move || readiness.check())
            // Not of `/healthz` or `/livez`: a restart cures neither a kubelet nor a device.
            .check(Probe::Ready, "registered", move || match missing.borrow().iter().next() {
                None => Ok(()),
                Some((resource, reason)) => Err(format!("{resource}: {reason}")),
            });
        if self.settings.dra.is_some() {
            let status = self.claims.subscribe();
            surface = surface.check(Probe::Ready, "resource claims", move || match &*status.borrow() {
                Status::Registered => Ok(()),
                Status::Away(reason) => Err(reason.clone()),
                Status::Refused(reason) => Err(format!("the kubelet refused the driver: {reason}")),
                Status::Unseen | Status::Asked => Err("the kubelet has not registered the driver".to_owned()),
            });
        }
        let listener = http::bind(address).await.context("--http-bind-address")?;
        let token = self.tasks.token().clone();
        self.tasks.spawn_draining("http", http::serve(listener, surface.router(), token));
        Ok(())
    }
}

/// A watcher of the configuration, if it is a file.
fn watcher_of(source: &Source) -> Option<Option<Watcher<()>>> {
    let Source::File(path) = source else { return None };
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(Watcher::new(vec![Target { dir: dir.to_owned(), names: Names::All, tag: () }]).ok())
}

/// Waits for something that may be a change of the configuration; for ever, if it is no file.
async fn news(watcher: &mut Option<Option<Watcher<()>>>) {
    match watcher {
        Some(watcher) => {
            changed(watcher, RECHECK).await;
            tokio::time::sleep(SETTLE).await;
        }
        None => std::future::pending().await,
    }
}
