//! Keeps what is known of one resource's devices up to date.
//!
//! In: news of files, time. Out: looks, a plugin that knows what was found, the file for container runtimes, the inventory. Never: a decision;
//! those are in [`crate::discovery`], [`crate::stock`] and [`crate::cdi_file`].

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use node::watch::{Names, Target, Watcher, changed};
use runtime::page_reclaim::ReclaimTrigger;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::cdi_file::CdiFile;
use crate::config::{CdiMode, Resource};
use crate::discovery::{self, Look, Place};
use crate::inventory::{self, Inventory};
use crate::last::Last;
use crate::metrics::Metrics;
use crate::plugin::{Plugin, Standing};
use crate::stock::Stock;

/// Files are written in several steps, and whoever flaps may do so quickly: one look for all that happens meanwhile.
const SETTLE: Duration = Duration::from_millis(20);

/// One resource's keeper.
#[derive(Debug)]
pub struct Keeper {
    /// The resource, now and whenever something is said otherwise of where its devices are found.
    pub config: watch::Receiver<Arc<Resource>>,
    /// Where to look.
    pub place: Place,
    /// Where the file for container runtimes goes.
    pub cdi_dir: PathBuf,
    /// Who tells the kubelet.
    pub plugin: Arc<Plugin>,
    /// Who else wants to know.
    pub inventory: watch::Sender<Arc<Inventory>>,
    /// The metrics.
    pub metrics: Metrics,
    /// Told of each look.
    pub reclaim: ReclaimTrigger,
}

impl Keeper {
    /// Looks, again and again, for ever. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When the configuration asks for a file that cannot be.
    pub async fn run(mut self) -> Result<Infallible, String> {
        let mut config = Arc::clone(&self.config.borrow_and_update());
        let mut file = CdiFile::of(&config, &self.cdi_dir)?;
        let mut folders = BTreeSet::new();
        let mut watcher = self.watcher(&config, &folders);
        let begin = Instant::now();
        let mut stock = Stock::default();
        let mut known = false;
        let mut troubles = Troubles::default();
        let mut last = Last::default();
        loop {
            let now = begin.elapsed();
            // A look that failed says nothing of when devices are due.
            let mut patience = config.health.check_every;
            match self.look(&config, known, &mut last, &mut troubles) {
                Seen::Devices(look) => {
                    let told = look.health_folders();
                    if folders != told {
                        folders = told;
                        watcher = self.watcher(&config, &folders);
                    }
                    stock.take(now, look, &config.health);
                    known = true;
                    patience = stock.patience(now, &config.health);
                }
                Seen::TheSame => {
                    stock.take_again(now, &config.health);
                    patience = stock.patience(now, &config.health);
                }
                Seen::Nothing => stock.ask_health_files(now, &config.health),
            }
            if known {
                self.publish(stock.resource(&config), file.as_mut(), &mut troubles);
            }
            self.reclaim.notify();
            // The fleet ends this task before it lets go of the other end.
            tokio::select! {
                () = changed(&mut watcher, patience) => sleep(SETTLE).await,
                Ok(()) = self.config.changed() => {
                    config = Arc::clone(&self.config.borrow_and_update());
                    last = Last::default();
                    watcher = self.watcher(&config, &folders);
                }
            }
        }
    }

    /// Tells of changes of what is looked at, if the kernel has a watch left.
    fn watcher(&self, config: &Resource, folders: &BTreeSet<PathBuf>) -> Option<Watcher<()>> {
        let mut targets = discovery::targets(config);
        let of_health = |dir: &PathBuf| Target { dir: dir.clone(), names: Names::All, tag: () };
        targets.extend(folders.iter().map(of_health));
        if config.cdi.mode != CdiMode::Off {
            targets.push(Target { dir: self.cdi_dir.clone(), names: Names::Visible, tag: () });
        }
        Watcher::new(targets).ok()
    }

    /// What there is to take in.
    fn look(&self, config: &Resource, known: bool, last: &mut Last, troubles: &mut Troubles) -> Seen {
        let resource = &config.name;
        match discovery::look_again(config, &self.place, last) {
            Ok(look) => {
                if troubles.look.take().is_some() {
                    info!(resource, "devices are found again");
                }
                look.map_or(Seen::TheSame, Seen::Devices)
            }
            Err(error) => {
                self.metrics.look_failed(resource);
                self.plugin.unknown(&error.reason);
                if troubles.look.as_ref() != Some(&error.reason) {
                    let what = if known { "the last list stays" } else { "the kubelet is told nothing yet" };
                    warn!(resource, reason = error.reason, "cannot look for devices; {what}");
                    troubles.look = Some(error.reason);
                }
                match known && error.gone {
                    true => Seen::Devices(Look { volatile: true, ..Look::default() }),
                    false => Seen::Nothing,
                }
            }
        }
    }

    /// First the file, then the kubelet: it may ask at once.
    fn publish(
        &self,
        resource: inventory::Resource,
        mut file: Option<&mut CdiFile>,
        troubles: &mut Troubles,
    ) {
        let name = self.plugin.name();
        // What is the same stays the one value that others have too.
        let last = self.inventory.borrow().resources.get(name).filter(|last| ***last == resource).cloned();
        let mut resource = last.unwrap_or_else(|| Arc::new(resource));
        match file.as_deref_mut().map(|file| file.ensure(&resource)) {
            None | Some(Ok(false)) => {}
            Some(Ok(true)) => {
                troubles.cdi = None;
                self.metrics.cdi_written(name, true);
                info!(resource = name, "wrote the Container Device Interface file");
            }
            Some(Err(reason)) => {
                self.metrics.cdi_written(name, false);
                if troubles.cdi.as_ref() != Some(&reason) {
                    warn!(resource = name, reason, "cannot write the Container Device Interface file");
                }
                self.plugin.unknown(&reason);
                troubles.cdi = Some(reason.clone());
                if matches!(*self.plugin.standing().borrow(), Standing::Unknown(_)) {
                    // Nothing is offered before the file is there once.
                    return;
                }
                if let Some(file) = file {
                    resource = Arc::new(file.held_back(&resource, &reason));
                }
            }
        }
        self.inventory.send_if_modified(|all| {
            let is_news = all.resources.get(name) != Some(&resource);
            if is_news {
                Arc::make_mut(all).resources.insert(name.to_owned(), Arc::clone(&resource));
            }
            is_news
        });
        self.plugin.offer(resource);
    }
}

/// What came of a look.
enum Seen {
    /// These.
    Devices(Look),
    /// Those of the last look.
    TheSame,
    /// It failed.
    Nothing,
}

/// What went wrong last, so that it is said once.
#[derive(Debug, Default)]
struct Troubles {
    look: Option<String>,
    cdi: Option<String>,
}
