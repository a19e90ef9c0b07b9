//! The running plugins, one for each resource of the configuration.
//!
//! In: a configuration, and the next. Out: plugins of unchanged resources run on undisturbed, also when only their
//! discovery changed; others are ended, in full, before their replacement starts. Never: two plugins of one resource at
//! a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use node::deviceplugin::{self, SocketPaths};
use node::socket;
use node::watch::Hub;
use runtime::page_reclaim::ReclaimTrigger;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::config::{Config, Resource};
use crate::device_watcher::DeviceWatcher;
use crate::inventory::Inventory;
use crate::metrics::Metrics;
use crate::plugin::{Plugin, PluginState};
use crate::settings::Settings;

/// The time between attempts to make a socket: the kubelet's folder may not exist yet.
const RETRY: Duration = Duration::from_secs(2);

/// The plugins by resource.
pub(super) struct PluginSet {
    settings: Settings,
    metrics: Metrics,
    inventory: watch::Sender<Arc<Inventory>>,
    reclaim: ReclaimTrigger,
    running: BTreeMap<String, RunningPlugin>,
    /// Why a resource is not served, by resource; empty when the kubelet listens to every plugin.
    not_ready: watch::Sender<BTreeMap<String, String>>,
    failed: watch::Sender<Option<String>>,
    /// File events for all plugins.
    hub: Hub,
}

struct RunningPlugin {
    /// Sends the device watcher another configuration.
    config: watch::Sender<Arc<Resource>>,
    plugin: Arc<Plugin>,
    token: CancellationToken,
    tasks: JoinSet<()>,
}

impl PluginSet {
    /// A set without plugins.
    pub(super) fn new(
        settings: Settings,
        metrics: Metrics,
        inventory: watch::Sender<Arc<Inventory>>,
        reclaim: ReclaimTrigger,
    ) -> Self {
        let (not_ready, failed, hub) = Default::default();
        Self { settings, metrics, inventory, reclaim, running: BTreeMap::new(), not_ready, failed, hub }
    }

    /// The file events of all plugins.
    pub(super) fn hub(&self) -> &Hub {
        &self.hub
    }

    /// Why a resource is not served, by resource; empty when the kubelet listens to every plugin.
    pub(super) fn not_ready(&self) -> watch::Receiver<BTreeMap<String, String>> {
        self.not_ready.subscribe()
    }

    /// Waits until a plugin fails for good.
    pub(super) async fn failed(&self) -> String {
        let mut failed = self.failed.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let found = failed.wait_for(Option::is_some).await.map(|reason| reason.clone());
        found.ok().flatten().unwrap_or_default()
    }

    /// Starts, keeps and ends plugins, so that they are those of the configuration.
    pub(super) async fn apply(&mut self, config: Config) {
        let wanted: BTreeMap<String, Resource> =
            config.resources.into_iter().map(|resource| (resource.name.clone(), resource)).collect();
        let same = |name: &String, running: &RunningPlugin| {
            wanted.get(name).is_some_and(|wanted| running.config.borrow().differs_in_discovery_only(wanted))
        };
        let ending: Vec<String> = self
            .running
            .iter()
            .filter(|(name, running)| !same(name, running))
            .map(|(name, _)| name.clone())
            .collect();
        for name in ending {
            self.end(&name).await;
        }
        let gone = |inventory: &mut Arc<Inventory>| {
            let gone = inventory.resources.keys().any(|name| !wanted.contains_key(name));
            if gone {
                Arc::make_mut(inventory).resources.retain(|name, _| wanted.contains_key(name));
            }
            gone
        };
        self.inventory.send_if_modified(gone);
        for (name, resource) in wanted {
            match self.running.get(&name) {
                Some(running) => drop(running.config.send_if_modified(|config| {
                    let changed = **config != resource;
                    if changed {
                        *config = Arc::new(resource);
                    }
                    changed
                })),
                None => drop(self.running.insert(name, self.start(Arc::new(resource)))),
            }
        }
    }

    /// Whether the plugins are those of the configuration.
    pub(super) fn matches(&self, config: &Config) -> bool {
        let same = |resource: &Resource| {
            self.running.get(&resource.name).is_some_and(|running| **running.config.borrow() == *resource)
        };
        self.running.len() == config.resources.len() && config.resources.iter().all(same)
    }

    /// Ends all plugins.
    pub(super) async fn stop(&mut self) {
        let names: Vec<String> = self.running.keys().cloned().collect();
        for name in names {
            self.end(&name).await;
        }
    }

    async fn end(&mut self, name: &str) {
        if let Some(mut running) = self.running.remove(name) {
            info!(resource = name, "ending the plugin");
            running.token.cancel();
            while running.tasks.join_next().await.is_some() {}
            running.plugin.end();
            self.not_ready.send_modify(|not_ready| drop(not_ready.remove(name)));
        }
    }

    fn start(&self, resource: Arc<Resource>) -> RunningPlugin {
        let plugin =
            Arc::new(Plugin::new(resource.without_discovery(), self.metrics.clone(), self.reclaim.clone()));
        let (config, latest) = watch::channel(Arc::clone(&resource));
        let device_watcher = DeviceWatcher {
            config: latest,
            environment: self.settings.environment.clone(),
            cdi_dir: self.settings.cdi_dir.clone(),
            plugin: Arc::clone(&plugin),
            inventory: self.inventory.clone(),
            metrics: self.metrics.clone(),
            reclaim: self.reclaim.clone(),
            hub: self.hub.clone(),
        };
        let paths = SocketPaths {
            folder: self.settings.socket_dir.clone(),
            endpoint: self.settings.registration.endpoint(&resource.name),
            resource: resource.name.clone(),
            mode: self.settings.registration,
        };
        let token = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let failed = self.failed.clone();
        let name = resource.name.clone();
        tasks.spawn(until(token.clone(), async move {
            let Err(reason) = device_watcher.run().await;
            failed.send_replace(Some(format!("{name}: {reason}")));
        }));
        let failed = self.failed.clone();
        let (served, hub) = (Arc::clone(&plugin), self.hub.clone());
        tasks.spawn(until(token.clone(), async move {
            let reason = serve(&paths, served, &hub).await;
            failed.send_replace(Some(format!("{}: {reason}", paths.resource)));
        }));
        tasks.spawn(until(token.clone(), track_state(Arc::clone(&plugin), self.not_ready.clone())));
        RunningPlugin { config, plugin, token, tasks }
    }
}

async fn until(token: CancellationToken, task: impl Future<Output = ()>) {
    tokio::select! {
        () = token.cancelled() => {}
        () = task => {}
    }
}

/// Serves the plugin once its devices are known; returns an error that no retry can mend.
async fn serve(paths: &SocketPaths, plugin: Arc<Plugin>, hub: &Hub) -> String {
    let mut state = plugin.state();
    // The sender lives in the plugin, so waiting cannot fail.
    let known = state.wait_for(|state| !matches!(state, PluginState::DevicesUnknown(_))).await.map(drop);
    drop(known);
    loop {
        let Err(error) = deviceplugin::run(paths, Arc::clone(&plugin), hub).await;
        if matches!(error, deviceplugin::Error::Socket(socket::Error::Path(_))) {
            return error.to_string();
        }
        let away = PluginState::NotListening(error.to_string());
        if *plugin.state().borrow() != away {
            tracing::warn!(resource = paths.resource, %error, "cannot serve; trying again");
            plugin.not_listening(&error.to_string());
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Records why the resource is not served, until the kubelet listens.
async fn track_state(plugin: Arc<Plugin>, not_ready: watch::Sender<BTreeMap<String, String>>) {
    let mut state = plugin.state();
    loop {
        let now = state.borrow_and_update().clone();
        not_ready.send_modify(|not_ready| match now {
            PluginState::Listening => drop(not_ready.remove(plugin.name())),
            PluginState::DevicesUnknown(reason) | PluginState::NotListening(reason) => {
                drop(not_ready.insert(plugin.name().to_owned(), reason));
            }
        });
        if state.changed().await.is_err() {
            return;
        }
    }
}
