//! The plugins that run, one for each resource of the configuration.
//!
//! In: a configuration, and the next. Out: plugins of resources that are the same run on undisturbed, also when their devices are to be
//! found elsewhere; others are ended, in full, before what replaces them starts. Never: two plugins of one resource at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use node::deviceplugin::{self, Seat};
use node::socket;
use runtime::page_reclaim::ReclaimTrigger;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::config::{Config, Resource};
use crate::inventory::Inventory;
use crate::keeper::Keeper;
use crate::metrics::Metrics;
use crate::plugin::{Plugin, Standing};
use crate::settings::Settings;

/// Between tries to make a socket: the kubelet's folder may not be there yet.
const RETRY: Duration = Duration::from_secs(2);

/// The plugins.
pub(super) struct Fleet {
    settings: Settings,
    metrics: Metrics,
    inventory: watch::Sender<Arc<Inventory>>,
    reclaim: ReclaimTrigger,
    running: BTreeMap<String, Running>,
    /// What is missing, by resource; nothing when every plugin is listened to.
    missing: watch::Sender<BTreeMap<String, String>>,
    failed: watch::Sender<Option<String>>,
}

struct Running {
    /// Who looks for devices hears of another one.
    config: watch::Sender<Arc<Resource>>,
    plugin: Arc<Plugin>,
    token: CancellationToken,
    tasks: JoinSet<()>,
}

impl Fleet {
    /// No plugins yet.
    pub(super) fn new(
        settings: Settings,
        metrics: Metrics,
        inventory: watch::Sender<Arc<Inventory>>,
        reclaim: ReclaimTrigger,
    ) -> Self {
        let (missing, failed) = Default::default();
        Self { settings, metrics, inventory, reclaim, running: BTreeMap::new(), missing, failed }
    }

    /// What is missing, by resource; nothing when every plugin is listened to.
    pub(super) fn missing(&self) -> watch::Receiver<BTreeMap<String, String>> {
        self.missing.subscribe()
    }

    /// Waits until a plugin cannot go on.
    pub(super) async fn failed(&self) -> String {
        let mut failed = self.failed.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let found = failed.wait_for(Option::is_some).await.map(|reason| reason.clone());
        found.ok().flatten().unwrap_or_default()
    }

    /// Makes the plugins those of the configuration.
    pub(super) async fn become_(&mut self, config: Config) {
        let wanted: BTreeMap<String, Resource> =
            config.resources.into_iter().map(|resource| (resource.name.clone(), resource)).collect();
        let same = |name: &String, running: &Running| {
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
    pub(super) fn is(&self, config: &Config) -> bool {
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
            info!(resource = name, "ending");
            running.token.cancel();
            while running.tasks.join_next().await.is_some() {}
            running.plugin.end();
            self.missing.send_modify(|missing| drop(missing.remove(name)));
        }
    }

    fn start(&self, resource: Arc<Resource>) -> Running {
        let plugin =
            Arc::new(Plugin::new(resource.without_discovery(), self.metrics.clone(), self.reclaim.clone()));
        let (config, latest) = watch::channel(Arc::clone(&resource));
        let keeper = Keeper {
            config: latest,
            place: self.settings.place.clone(),
            cdi_dir: self.settings.cdi_dir.clone(),
            plugin: Arc::clone(&plugin),
            inventory: self.inventory.clone(),
            metrics: self.metrics.clone(),
            reclaim: self.reclaim.clone(),
        };
        let seat = Seat {
            folder: self.settings.folder.clone(),
            endpoint: self.settings.way.endpoint(&resource.name),
            resource: resource.name.clone(),
            way: self.settings.way,
        };
        let token = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let failed = self.failed.clone();
        let name = resource.name.clone();
        tasks.spawn(until(token.clone(), async move {
            let Err(reason) = keeper.run().await;
            failed.send_replace(Some(format!("{name}: {reason}")));
        }));
        let failed = self.failed.clone();
        let served = Arc::clone(&plugin);
        tasks.spawn(until(token.clone(), async move {
            let reason = serve(&seat, served).await;
            failed.send_replace(Some(format!("{}: {reason}", seat.resource)));
        }));
        tasks.spawn(until(token.clone(), follow(Arc::clone(&plugin), self.missing.clone())));
        Running { config, plugin, token, tasks }
    }
}

async fn until(token: CancellationToken, task: impl Future<Output = ()>) {
    tokio::select! {
        () = token.cancelled() => {}
        () = task => {}
    }
}

/// Serves the plugin once its devices are known; returns why that cannot go on.
async fn serve(seat: &Seat, plugin: Arc<Plugin>) -> String {
    let mut standing = plugin.standing();
    // The sender lives in the plugin, so waiting cannot fail.
    let known = standing.wait_for(|standing| !matches!(standing, Standing::Unknown(_))).await.map(drop);
    drop(known);
    loop {
        let Err(error) = deviceplugin::run(seat, Arc::clone(&plugin)).await;
        if matches!(error, deviceplugin::Error::Socket(socket::Error::Path(_))) {
            return error.to_string();
        }
        let away = Standing::Away(error.to_string());
        if *plugin.standing().borrow() != away {
            tracing::warn!(resource = seat.resource, %error, "cannot serve; trying again");
            plugin.away(&error.to_string());
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Notes what is missing until the kubelet listens.
async fn follow(plugin: Arc<Plugin>, missing: watch::Sender<BTreeMap<String, String>>) {
    let mut standing = plugin.standing();
    loop {
        let now = standing.borrow_and_update().clone();
        missing.send_modify(|missing| match now {
            Standing::Listening => drop(missing.remove(plugin.name())),
            Standing::Unknown(reason) | Standing::Away(reason) => {
                drop(missing.insert(plugin.name().to_owned(), reason));
            }
        });
        if standing.changed().await.is_err() {
            return;
        }
    }
}
