//! One resource's plugin: what the kubelet is told and asks.
//!
//! In: the resource's devices, whenever they change; the kubelet's questions. Out: answers, a log line and a count for each that is
//! refused. Never: a decision; those are in [`allocate`], [`prefer`](mod@prefer) and [`pre_start`].

use std::sync::Arc;

use node::deviceplugin::{self, News, wire};
use runtime::page_reclaim::ReclaimTrigger;
use tokio::sync::watch;
use tonic::Status;
use tracing::{debug, info, warn};

use crate::allocate;
use crate::config::Resource;
use crate::inventory::{self, Id};
use crate::metrics::Metrics;
use crate::pre_start;
use crate::prefer::{self, Facts};
use crate::sharing;

/// A resource.
#[derive(Debug)]
pub struct Plugin {
    config: Resource,
    metrics: Metrics,
    /// The kubelet's calls come now and then.
    reclaim: ReclaimTrigger,
    offer: watch::Sender<Offer>,
    standing: watch::Sender<Standing>,
}

/// What there is, and what of it the kubelet knows: the same at any moment, so that it cannot ask for what is not known here.
#[derive(Debug)]
pub struct Offer {
    stock: Arc<inventory::Resource>,
    /// How often each device is listed.
    replicas: u32,
}

/// How things are between a plugin and the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody knows the devices yet, for this reason.
    Unknown(String),
    /// The kubelet does not listen, for this reason.
    Away(String),
    /// The kubelet listens.
    Listening,
}

impl Plugin {
    /// A plugin that knows no devices yet.
    #[must_use]
    pub fn new(config: Resource, metrics: Metrics, reclaim: ReclaimTrigger) -> Self {
        let standing = Standing::Unknown("devices have not been looked for".to_owned());
        let offer = Offer { stock: Arc::default(), replicas: config.replicas() };
        Self {
            config,
            metrics,
            reclaim,
            offer: watch::Sender::new(offer),
            standing: watch::Sender::new(standing),
        }
    }

    /// The resource's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// How things stand, now and whenever that changes.
    #[must_use]
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Says that devices cannot be looked for, unless they are known.
    pub fn unknown(&self, reason: &str) {
        self.standing.send_if_modified(|standing| match standing {
            Standing::Unknown(old) if old != reason => {
                reason.clone_into(old);
                true
            }
            _ => false,
        });
    }

    /// Says that the kubelet cannot be served, for this reason.
    pub fn away(&self, reason: &str) {
        self.metrics.listening(self.name(), false);
        self.standing.send_replace(Standing::Away(reason.to_owned()));
    }

    /// Forgets what metrics say of the devices.
    pub fn end(&self) {
        self.metrics.ended(self.name(), &self.stock());
    }

    /// Makes these the devices, and tells the kubelet if that is news to it.
    pub fn offer(&self, stock: Arc<inventory::Resource>) {
        self.tell_changes(&self.stock(), &stock);
        self.offer.send_if_modified(|offer| {
            let news = !looks_the_same(&offer.stock, &stock);
            offer.stock = stock;
            news
        });
        self.standing.send_if_modified(|standing| {
            let first = matches!(standing, Standing::Unknown(_));
            if first {
                *standing = Standing::Away("not registered yet".to_owned());
            }
            first
        });
    }

    fn tell_changes(&self, old: &inventory::Resource, new: &inventory::Resource) {
        let resource = self.name();
        self.metrics.devices(resource, old, new);
        for (id, device) in &new.devices {
            let id = &**id;
            let before = old.devices.get(id);
            let was_healthy = before.map(inventory::Device::is_healthy);
            match &device.trouble {
                Some(reason) if was_healthy != Some(false) => {
                    warn!(resource, id, reason, "a device is not healthy")
                }
                None if was_healthy == Some(false) => info!(resource, id, "a device is healthy again"),
                None if was_healthy.is_none() => {
                    debug!(resource, id, zones = ?device.hardware.zones, "a device was found")
                }
                _ => {}
            }
            if was_healthy.is_some_and(|was| was != device.is_healthy()) {
                self.metrics.health_changed(resource, device.is_healthy());
            }
        }
        for id in old.devices.keys().filter(|id| !new.devices.contains_key(*id)) {
            info!(resource, id = &**id, "a device is not listed any more");
        }
        if old.devices.len() != new.devices.len() {
            let healthy = new.devices.values().filter(|device| device.is_healthy()).count();
            info!(resource, devices = new.devices.len(), healthy, "devices");
        }
    }

    fn stock(&self) -> Arc<inventory::Resource> {
        Arc::clone(&self.offer.borrow().stock)
    }
}

/// Whether the kubelet would see no difference.
fn looks_the_same(old: &inventory::Resource, new: &inventory::Resource) -> bool {
    fn seen<'a>((id, device): (&'a Id, &'a inventory::Device)) -> (&'a str, bool, &'a [u32]) {
        (id, device.is_healthy(), &device.hardware.zones)
    }
    old.devices.iter().map(seen).eq(new.devices.iter().map(seen))
}

impl deviceplugin::Devices for Offer {
    /// Each share is one.
    fn list(&self) -> impl Iterator<Item = deviceplugin::Device> {
        self.stock.devices.iter().flat_map(|(id, device)| {
            let (healthy, zones) = (device.is_healthy(), &device.hardware.zones);
            let share = move |id| deviceplugin::Device { id, healthy, zones: zones.clone() };
            sharing::ids(id, self.replicas).map(share)
        })
    }
}

impl deviceplugin::Plugin for Plugin {
    type Devices = Offer;

    fn devices(&self) -> watch::Receiver<Offer> {
        self.offer.subscribe()
    }

    fn news(&self, news: News) {
        let resource = self.name();
        let listening = news == News::Listening;
        let (word, reason) = match news {
            News::Registered => {
                info!(resource, "the kubelet has accepted the registration");
                return self.metrics.registration(resource, "registered");
            }
            News::Listening => {
                info!(resource, "the kubelet listens");
                ("listening", String::new())
            }
            News::Clash => ("clash", "another process serves on our socket; waiting for its end".to_owned()),
            News::Refused(reason) => ("refused", format!("registration failed: {reason}")),
            News::Ignored => (
                "ignored",
                "the kubelet accepted the registration and did not ask for the list of devices".to_owned(),
            ),
            News::Lost => ("lost", "the kubelet does not listen any more".to_owned()),
        };
        self.metrics.listening(resource, listening);
        if listening {
            self.standing.send_replace(Standing::Listening);
            return;
        }
        self.metrics.registration(resource, word);
        let standing = Standing::Away(reason.clone());
        // The same again and again, while the kubelet is away, is one line.
        if self.standing.send_replace(standing.clone()) == standing {
            debug!(resource, reason, "still not registered");
        } else {
            warn!(resource, reason, "not registered; trying again");
        }
    }

    async fn allocate(&self, ids: Vec<String>) -> Result<wire::ContainerAllocateResponse, Status> {
        let stock = self.stock();
        let answer = allocate::allocate(&self.config, &stock, &ids);
        let resource = self.name();
        match &answer {
            Ok(_) => debug!(resource, ?ids, "allocated"),
            Err(refusal) => {
                warn!(resource, reason = %refusal, "an allocation was refused; the pod fails with UnexpectedAdmissionError")
            }
        }
        self.metrics.allocated(resource, answer.as_ref().err().map(allocate::Refusal::word));
        self.reclaim.notify();
        answer.map_err(|refusal| refusal.status())
    }

    fn prefers(&self) -> bool {
        // The sample plugin does not, and whoever tests with it counts on the kubelet's own choice.
        !self.config.sample
    }

    fn prefer(
        &self,
        available: Vec<String>,
        required: Vec<String>,
        size: usize,
    ) -> Result<Vec<String>, Status> {
        let stock = self.stock();
        let policy = self.config.allocation.policy;
        let facts = |id: &str| {
            let device = sharing::device(id, self.config.replicas())?;
            let (device, known) =
                stock.devices.get_key_value(device).filter(|(_, known)| known.is_healthy())?;
            Some(Facts { device, zones: &known.hardware.zones })
        };
        let answer = prefer::prefer(facts, &available, &required, size, policy);
        let resource = self.name();
        self.metrics.preferred(resource, answer.is_ok());
        self.reclaim.notify();
        answer.map_err(|refusal| {
            warn!(resource, reason = %refusal, "no devices can be preferred; the pod fails with UnexpectedAdmissionError");
            Status::invalid_argument(format!("{resource}: {refusal}"))
        })
    }

    fn wants_pre_start(&self) -> bool {
        self.config.pre_start.is_some()
    }

    async fn pre_start(&self, ids: Vec<String>) -> Result<(), Status> {
        let Some(config) = &self.config.pre_start else { return Ok(()) };
        let stock = self.stock();
        let resource = self.name();
        let device = |id: &String| {
            let device = sharing::device(id, self.config.replicas());
            device.filter(|device| stock.devices.contains_key(*device)).map(str::to_owned)
        };
        let done = match ids.iter().map(device).collect::<Option<Vec<_>>>() {
            Some(devices) => pre_start::run(config, &devices).await,
            None => Err(format!("one of {} devices is unknown", ids.len())),
        };
        self.metrics.pre_started(resource, done.is_ok());
        self.reclaim.notify();
        done.map_err(|reason| {
            warn!(resource, reason, "devices could not be prepared; the container does not start");
            Status::failed_precondition(format!("{resource}: {reason}"))
        })
    }
}

#[cfg(test)]
mod tests;
