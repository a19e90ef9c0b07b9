//! Keeps what is known of one resource's devices up to date.
//!
//! In: news of files, time. Out: looks, a plugin that knows what was found, the file for container runtimes, the inventory. Never: a decision;
//! those are in [`crate::discovery`], [`crate::stock`] and [`crate::cdi_file`].

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use node::watch::{Names, Target, Watcher, changed};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::cdi_file::CdiFile;
use crate::config::{CdiMode, Resource};
use crate::discovery::{self, Look, Place};
use crate::inventory::Inventory;
use crate::metrics::Metrics;
use crate::plugin::{Plugin, Standing};
use crate::stock::Stock;

/// Files are written in several steps, and whoever flaps may do so quickly: one look for all that happens meanwhile.
const SETTLE: Duration = Duration::from_millis(20);

/// One resource's keeper.
#[derive(Debug)]
pub struct Keeper {
    /// The resource.
    pub config: Resource,
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
}

impl Keeper {
    /// Looks, again and again, for ever. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When the configuration asks for a file that cannot be.
    pub async fn run(self) -> Result<Infallible, String> {
        let mut targets = discovery::targets(&self.config);
        let mut file = None;
        if self.config.cdi.mode != CdiMode::Off {
            file = Some(CdiFile::new(&self.cdi_dir, self.config.cdi_kind(), &self.config.name)?);
            targets.push(Target { dir: self.cdi_dir.clone(), names: Names::Visible, tag: () });
        }
        let mut watcher = Watcher::new(targets).ok();
        let begin = Instant::now();
        let mut stock = Stock::default();
        let mut known = false;
        let mut troubles = Troubles::default();
        loop {
            let now = begin.elapsed();
            let look = self.look(known, &mut troubles);
            if let Some(look) = look {
                stock.take(now, look, &self.config.health);
                known = true;
            }
            if known {
                self.publish(&stock, file.as_mut(), &mut troubles);
            }
            changed(&mut watcher, stock.patience(now, &self.config.health)).await;
            sleep(SETTLE).await;
        }
    }

    /// What there is to take in.
    fn look(&self, known: bool, troubles: &mut Troubles) -> Option<Look> {
        let resource = &self.config.name;
        match discovery::look(&self.config, &self.place) {
            Ok(look) => {
                if troubles.look.take().is_some() {
                    info!(resource, "devices are found again");
                }
                Some(look)
            }
            Err(error) => {
                self.metrics.look_failed(resource);
                self.plugin.unknown(&error.reason);
                if troubles.look.as_ref() != Some(&error.reason) {
                    let what = if known { "the last list stays" } else { "the kubelet is told nothing yet" };
                    warn!(resource, reason = error.reason, "cannot look for devices; {what}");
                    troubles.look = Some(error.reason);
                }
                (known && error.gone).then(|| Look { volatile: true, ..Look::default() })
            }
        }
    }

    /// First the file, then the kubelet: it may ask at once.
    fn publish(&self, stock: &Stock, file: Option<&mut CdiFile>, troubles: &mut Troubles) {
        let resource = stock.resource(&self.config);
        let name = &self.config.name;
        match file.map(|file| file.ensure(&resource)) {
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
                troubles.cdi = Some(reason);
                if matches!(*self.plugin.standing().borrow(), Standing::Unknown(_)) {
                    // Containers could not start: nothing is offered before the file is there once.
                    return;
                }
            }
        }
        self.inventory.send_if_modified(|inventory| {
            if inventory.resources.get(name) == Some(&resource) {
                return false;
            }
            Arc::make_mut(inventory).resources.insert(name.clone(), resource.clone());
            true
        });
        self.plugin.offer(resource);
    }
}

/// What went wrong last, so that it is said once.
#[derive(Debug, Default)]
struct Troubles {
    look: Option<String>,
    cdi: Option<String>,
}
