//! The tasks of a running device plugin.
//!
//! In: settings, a token that ends it, SIGHUP and changes of the configuration. Out: for each resource a task that
//! scans and one that serves the kubelet; metrics and health. Never: a decision; those are in the modules it joins.

mod plugin_set;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use node::pluginwatcher::Status;
use node::watch::{Names, Target, Watcher, changed, open_or_poll};
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
use crate::content_hash::ContentHash;
use crate::discovery;
use crate::inventory::{self, Feed, Inventory};
use crate::metrics::Metrics;
use crate::settings::{ConfigSource, Settings};

use plugin_set::PluginSet;

/// The time tasks have to end.
const GRACE: Duration = Duration::from_secs(3);
/// The time between reads of the configuration without an event.
const RECHECK: Duration = Duration::from_secs(60);
/// A mounted ConfigMap changes in several steps.
const SETTLE: Duration = Duration::from_millis(100);

/// The state that the tasks share.
pub struct Process {
    settings: Settings,
    registry: Registry,
    metrics: Metrics,
    readiness: Readiness,
    /// Notified of scans and of the kubelet's calls, which are rare.
    reclaim: ReclaimTrigger,
    inventory: watch::Sender<Arc<Inventory>>,
    /// The registration status of the driver of resource claims.
    claims: watch::Sender<Status>,
    tasks: Tasks,
}

impl Process {
    /// A process that has not started.
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

    /// A receiver of the inventory, for other ways to offer the devices.
    #[must_use]
    pub fn feed(&self) -> Feed {
        self.inventory.subscribe()
    }

    /// Runs until the token is cancelled.
    ///
    /// # Errors
    /// When it cannot start, or a path cannot be a socket.
    pub async fn run(mut self) -> anyhow::Result<()> {
        let node = &self.settings.environment.node;
        info!(node, version = env!("CARGO_PKG_VERSION"), "starting the device plugin");
        let config = self.settings.read()?;
        if matches!(self.settings.source, ConfigSource::Flags(_)) {
            // The sample plugin exits when it has no devices, and reports it on standard error.
            for resource in &config.resources {
                discovery::scan(resource, &self.settings.environment)?;
            }
        }
        let plugin_set = PluginSet::new(
            self.settings.clone(),
            self.metrics.clone(),
            self.inventory.clone(),
            self.reclaim.clone(),
        );
        let not_ready = plugin_set.not_ready();
        if let Some(dra) = self.settings.dra.clone() {
            let names = config.resources.iter().map(|resource| resource.name.clone()).collect();
            let status = self.claims.clone();
            let metrics = crate::dra::metrics::Metrics::register(&mut self.registry);
            self.tasks.spawn("resource claims", crate::dra::run(dra, self.feed(), names, status, metrics));
        }
        self.serve(not_ready).await?;
        self.run_plugins(plugin_set, config)?;
        self.tasks.spawn("page-reclaim", page_reclaim::run(self.readiness.clone(), self.reclaim.clone()));
        self.tasks.run(GRACE).await?;
        Ok(())
    }

    /// Starts the task that keeps the plugins as the configuration says.
    fn run_plugins(&mut self, mut plugin_set: PluginSet, config: Config) -> anyhow::Result<()> {
        let gate = self.readiness.gate("plugins started");
        let mut hangup = signal(SignalKind::hangup())?;
        let (settings, metrics, reclaim) =
            (self.settings.clone(), self.metrics.clone(), self.reclaim.clone());
        let token = self.tasks.token().clone();
        self.tasks.spawn_draining("plugins", async move {
            let mut watcher = config_watcher(&settings.source);
            let mut last = ContentHash::default();
            plugin_set.apply(config).await;
            gate.open();
            loop {
                tokio::select! {
                    () = token.cancelled() => break,
                    failed = plugin_set.failed() => {
                        plugin_set.stop().await;
                        return Err(failed);
                    }
                    _ = hangup.recv() => {
                        info!("SIGHUP: reading the configuration");
                        last = ContentHash::default();
                    }
                    () = config_changed(&mut watcher) => {}
                }
                match settings.read_if_changed(&mut last) {
                    Ok(None) => continue,
                    Ok(Some(config)) if plugin_set.matches(&config) => {}
                    Ok(Some(config)) => {
                        info!(resources = config.resources.len(), "the configuration has changed");
                        metrics.reloaded(true);
                        plugin_set.apply(config).await;
                    }
                    Err(error) => {
                        metrics.reloaded(false);
                        error!(%error, "the configuration is invalid; keeping the last one");
                    }
                }
                reclaim.notify();
            }
            plugin_set.stop().await;
            Ok(())
        });
        Ok(())
    }

    /// Starts the tasks that serve metrics and health.
    async fn serve(&mut self, not_ready: watch::Receiver<BTreeMap<String, String>>) -> anyhow::Result<()> {
        let readiness = self.readiness.clone();
        let mut surface = Endpoints::new(std::mem::take(&mut self.registry))
            .check(Probe::Ready, "started", move || readiness.check())
            // Not part of `/healthz` or `/livez`: a restart would help neither a kubelet nor a device.
            .check(Probe::Ready, "registered", move || match not_ready.borrow().iter().next() {
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
        let routers = surface.routers();
        let health = http::serve_health(&mut self.tasks, self.settings.health, routers.probes).await;
        health.context("--health-probe-bind-address")?;
        let Some(address) = self.settings.http else { return Ok(()) };
        let listener = http::bind(address).await.context("--http-bind-address")?;
        let token = self.tasks.token().clone();
        self.tasks.spawn_draining("http", http::serve(listener, routers.all, token));
        Ok(())
    }
}

/// A watcher of the configuration's folder, if the configuration is a file.
fn config_watcher(source: &ConfigSource) -> Option<Option<Watcher<()>>> {
    let ConfigSource::File(path) = source else { return None };
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(open_or_poll(vec![Target { dir: dir.to_owned(), names: Names::All, tag: () }]))
}

/// Waits for a possible change of the configuration; for ever, if it is not a file.
async fn config_changed(watcher: &mut Option<Option<Watcher<()>>>) {
    match watcher {
        Some(watcher) => {
            changed(watcher, RECHECK).await;
            tokio::time::sleep(SETTLE).await;
        }
        None => std::future::pending().await,
    }
}
