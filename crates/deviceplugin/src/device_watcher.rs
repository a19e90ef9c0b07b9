//! Keeps one resource's devices up to date.
//!
//! In: file events and time. Out: scans, a plugin that knows the result, the file for container runtimes, the
//! inventory. Never: a decision; those are in [`crate::discovery`], [`crate::device_store`] and [`crate::cdi_file`].

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use node::watch::{Hub, Names, Subscription, Target};
use runtime::page_reclaim::ReclaimTrigger;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::cdi_file::CdiFile;
use crate::config::{CdiMode, Resource};
use crate::content_hash::ContentHash;
use crate::device_store::DeviceStore;
use crate::discovery::{self, Environment, Scan};
use crate::inventory::{self, Inventory};
use crate::metrics::Metrics;
use crate::plugin::{Plugin, PluginState};

/// Files are written in several steps, and devices may flap quickly: one scan covers all that happens meanwhile.
const SETTLE: Duration = Duration::from_millis(20);

/// Watches the devices of one resource.
#[derive(Debug)]
pub struct DeviceWatcher {
    /// The resource's configuration, now and whenever its discovery changes.
    pub config: watch::Receiver<Arc<Resource>>,
    /// The node's name and files.
    pub environment: Environment,
    /// The folder for the file of container runtimes.
    pub cdi_dir: PathBuf,
    /// The plugin that serves the kubelet.
    pub plugin: Arc<Plugin>,
    /// The inventory of all resources.
    pub inventory: watch::Sender<Arc<Inventory>>,
    /// The metrics.
    pub metrics: Metrics,
    /// Notified after each scan.
    pub reclaim: ReclaimTrigger,
    /// File events.
    pub hub: Hub,
}

impl DeviceWatcher {
    /// Scans again and again, for ever. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When the configuration asks for a Container Device Interface file that cannot have a name.
    pub async fn run(mut self) -> Result<Infallible, String> {
        let mut config = Arc::clone(&self.config.borrow_and_update());
        let mut file = CdiFile::for_resource(&config, &self.cdi_dir)?;
        let mut folders = BTreeSet::new();
        let mut events = self.events(&config, &folders);
        let begin = Instant::now();
        let mut store = DeviceStore::default();
        let mut known = false;
        let mut reported = ReportedProblems::default();
        let mut last = ContentHash::default();
        loop {
            let now = begin.elapsed();
            // A failed scan does not say when devices are due.
            let mut next_scan_in = config.health.check_every;
            match self.scan(&config, known, &mut last, &mut reported) {
                ScanResult::Devices(scan) => {
                    let new_folders = scan.health_folders();
                    if folders != new_folders {
                        folders = new_folders;
                        events = self.events(&config, &folders);
                    }
                    store.update(now, scan, &config.health);
                    known = true;
                    next_scan_in = store.next_scan_in(now, &config.health);
                }
                ScanResult::Unchanged => {
                    store.update_health(now, &config.health);
                    next_scan_in = store.next_scan_in(now, &config.health);
                }
                ScanResult::Failed => store.update_health_files(now, &config.health),
            }
            if known {
                self.publish(store.resource(&config), file.as_mut(), &mut reported);
            }
            self.reclaim.notify();
            // The plugin set ends this task before it drops the other end.
            tokio::select! {
                () = events.changed(next_scan_in) => sleep(SETTLE).await,
                Ok(()) = self.config.changed() => {
                    config = Arc::clone(&self.config.borrow_and_update());
                    last = ContentHash::default();
                    events = self.events(&config, &folders);
                }
            }
        }
    }

    /// Events of the files that discovery and health depend on.
    fn events(&self, config: &Resource, folders: &BTreeSet<PathBuf>) -> Subscription {
        let mut targets = discovery::targets(config);
        let of_health = |dir: &PathBuf| Target { dir: dir.clone(), names: Names::All, tag: () };
        targets.extend(folders.iter().map(of_health));
        if config.cdi.mode != CdiMode::Off {
            targets.push(Target { dir: self.cdi_dir.clone(), names: Names::Visible, tag: () });
        }
        self.hub.subscribe(targets)
    }

    /// Scans for devices and reports a failure once.
    fn scan(
        &self,
        config: &Resource,
        known: bool,
        last: &mut ContentHash,
        reported: &mut ReportedProblems,
    ) -> ScanResult {
        let resource = &config.name;
        match discovery::scan_if_changed(config, &self.environment, last) {
            Ok(scan) => {
                if reported.scan.take().is_some() {
                    info!(resource, "scans for devices succeed again");
                }
                scan.map_or(ScanResult::Unchanged, ScanResult::Devices)
            }
            Err(error) => {
                self.metrics.scan_failed(resource);
                self.plugin.devices_unknown(&error.reason);
                if reported.scan.as_ref() != Some(&error.reason) {
                    let what = if known { "the last list stays" } else { "nothing is registered yet" };
                    warn!(resource, reason = error.reason, "cannot scan for devices; {what}");
                    reported.scan = Some(error.reason);
                }
                match known && error.gone {
                    true => ScanResult::Devices(Scan { volatile: true, ..Scan::default() }),
                    false => ScanResult::Failed,
                }
            }
        }
    }

    /// Writes the file first, then tells the kubelet, which may allocate at once.
    fn publish(
        &self,
        resource: inventory::Resource,
        mut file: Option<&mut CdiFile>,
        reported: &mut ReportedProblems,
    ) {
        let name = self.plugin.name();
        // An equal resource keeps its shared value.
        let last = self.inventory.borrow().resources.get(name).filter(|last| ***last == resource).cloned();
        let mut resource = last.unwrap_or_else(|| Arc::new(resource));
        match file.as_deref_mut().map(|file| file.ensure(&resource)) {
            None | Some(Ok(false)) => {}
            Some(Ok(true)) => {
                reported.cdi = None;
                self.metrics.cdi_written(name, true);
                info!(resource = name, "wrote the Container Device Interface file");
            }
            Some(Err(reason)) => {
                self.metrics.cdi_written(name, false);
                if reported.cdi.as_ref() != Some(&reason) {
                    warn!(resource = name, reason, "cannot write the Container Device Interface file");
                }
                self.plugin.devices_unknown(&reason);
                reported.cdi = Some(reason.clone());
                if matches!(*self.plugin.state().borrow(), PluginState::DevicesUnknown(_)) {
                    // Nothing is offered before the file has been written once.
                    return;
                }
                if let Some(file) = file {
                    resource = Arc::new(file.with_undescribed_unhealthy(&resource, &reason));
                }
            }
        }
        self.inventory.send_if_modified(|all| {
            let changed = all.resources.get(name) != Some(&resource);
            if changed {
                Arc::make_mut(all).resources.insert(name.to_owned(), Arc::clone(&resource));
            }
            changed
        });
        self.plugin.offer(resource);
    }
}

/// The result of a scan.
enum ScanResult {
    /// The devices found.
    Devices(Scan),
    /// The devices of the last scan.
    Unchanged,
    /// The scan failed.
    Failed,
}

/// The last problem of each kind, so that it is logged once.
#[derive(Debug, Default)]
struct ReportedProblems {
    scan: Option<String>,
    cdi: Option<String>,
}
