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
use node::watch::{Hub, Names, Subscription, Target};
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
            let mut events = config_events(&settings.source, plugin_set.hub());
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
                    () = config_changed(&mut events) => {}
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

/// File events of the configuration's folder, if the configuration is a file.
fn config_events(source: &ConfigSource, hub: &Hub) -> Option<Subscription> {
    let ConfigSource::File(path) = source else { return None };
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(hub.subscribe(vec![Target { dir: dir.to_owned(), names: Names::All, tag: () }]))
}

/// Waits for a possible change of the configuration; for ever, if it is not a file.
async fn config_changed(events: &mut Option<Subscription>) {
    match events {
        Some(events) => {
            events.changed(RECHECK).await;
            tokio::time::sleep(SETTLE).await;
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use node::deviceplugin::RegistrationMode;

    use super::*;
    use crate::discovery::Environment;

    /// The numbers of this process' inotify instances that watch one of these folders.
    fn instances(folders: &[&Path]) -> BTreeSet<String> {
        let inode = |folder: &&Path| Some(format!(" ino:{:x} ", fs::metadata(folder).ok()?.ino()));
        let inodes: Vec<String> = folders.iter().filter_map(inode).collect();
        let watches = |text: &str| {
            text.contains("inotify wd:") && inodes.iter().any(|inode| text.contains(inode.as_str()))
        };
        let infos = fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
        let ours =
            infos.filter(|info| fs::read_to_string(info.path()).is_ok_and(|text| watches(text.as_str())));
        ours.map(|info| info.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Each user has few inotify instances (`fs.inotify.max_user_instances`): all resources share one.
    #[tokio::test]
    async fn all_resources_share_one_inotify_instance() {
        let dir = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = dir.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let [config, lists, sockets, cdi] = ["config", "lists", "sockets", "cdi"].map(folder);
        let mut text = "version: v1alpha1\nresources:\n".to_owned();
        for name in ["a", "b", "c"] {
            let list = lists.join(name);
            fs::write(&list, format!("devices: {{'*': [{{id: {name}0}}]}}")).unwrap();
            text +=
                &format!("- name: example.com/{name}\n  discovery: {{file: {{path: {}}}}}\n", list.display());
        }
        let path = config.join("devices.yaml");
        fs::write(&path, text).unwrap();
        let settings = Settings {
            source: ConfigSource::File(path),
            environment: Environment {
                node: "n".to_owned(),
                sysfs: dir.path().into(),
                allow_host_paths: false,
            },
            registration: RegistrationMode::Register,
            socket_dir: sockets.clone(),
            cdi_dir: cdi.clone(),
            http: None,
            health: None,
            dra: None,
        };
        let token = CancellationToken::new();
        let process = Process::new(settings, &token);
        let mut inventory = process.feed();
        let running = tokio::spawn(process.run());
        let known = inventory.wait_for(|inventory| inventory.resources.len() == 3);
        drop(tokio::time::timeout(Duration::from_secs(10), known).await.expect("three resources").unwrap());
        let all_served = || fs::read_dir(&sockets).unwrap().count() == 3;
        while !all_served() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let used = instances(&[&config, &lists, &sockets, &cdi]);
        assert_eq!(used.len(), 1, "{used:?}");
        for folder in [&config, &lists, &sockets] {
            assert_eq!(instances(&[folder]), used, "{}", folder.display());
        }
        token.cancel();
        running.await.unwrap().unwrap();
    }
}
