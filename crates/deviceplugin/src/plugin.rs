//! One resource's plugin: what the kubelet learns and asks.
//!
//! In: the resource's devices, whenever they change; the kubelet's calls. Out: answers, and a log line and a count for
//! each refusal. Never: a decision; those are in [`allocate`], [`prefer`](mod@prefer) and [`pre_start`].

use std::sync::Arc;

use node::deviceplugin::{self, RegistrationEvent, wire};
use runtime::page_reclaim::ReclaimTrigger;
use tokio::sync::watch;
use tonic::Status;
use tracing::{debug, info, warn};

use crate::allocate;
use crate::config::Resource;
use crate::inventory::{self, DeviceId};
use crate::metrics::Metrics;
use crate::pre_start;
use crate::prefer::{self, Candidate};
use crate::sharing;

/// Serves one resource to the kubelet.
#[derive(Debug)]
pub struct Plugin {
    config: Resource,
    metrics: Metrics,
    /// Notified after each of the kubelet's calls.
    reclaim: ReclaimTrigger,
    offer: watch::Sender<OfferedDevices>,
    state: watch::Sender<PluginState>,
}

/// The devices, and the list the kubelet has of them. Both change at the same moment, so that the kubelet cannot ask
/// for a device that is unknown here.
#[derive(Debug)]
pub struct OfferedDevices {
    inventory: Arc<inventory::Resource>,
    /// The number of ids under which each device is listed.
    replicas: u32,
}

/// The state between a plugin and the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginState {
    /// The devices have not been found yet, for this reason.
    DevicesUnknown(String),
    /// The kubelet does not listen to the list of devices, for this reason.
    NotListening(String),
    /// The kubelet listens to the list of devices.
    Listening,
}

impl Plugin {
    /// A plugin without devices yet.
    #[must_use]
    pub fn new(config: Resource, metrics: Metrics, reclaim: ReclaimTrigger) -> Self {
        let state = PluginState::DevicesUnknown("devices have not been scanned yet".to_owned());
        let offer = OfferedDevices { inventory: Arc::default(), replicas: config.replicas() };
        Self { config, metrics, reclaim, offer: watch::Sender::new(offer), state: watch::Sender::new(state) }
    }

    /// The resource's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// The state, now and whenever it changes.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<PluginState> {
        self.state.subscribe()
    }

    /// Records why devices cannot be found, unless they have been found before.
    pub fn devices_unknown(&self, reason: &str) {
        self.state.send_if_modified(|state| match state {
            PluginState::DevicesUnknown(old) if old != reason => {
                reason.clone_into(old);
                true
            }
            _ => false,
        });
    }

    /// Records why the kubelet cannot be served.
    pub fn not_listening(&self, reason: &str) {
        self.metrics.listening(self.name(), false);
        self.state.send_replace(PluginState::NotListening(reason.to_owned()));
    }

    /// Removes the gauges of the resource's devices.
    pub fn end(&self) {
        self.metrics.ended(self.name(), &self.current());
    }

    /// Replaces the devices, and sends the kubelet a new list if it differs. Cost: grows with the devices, old and new.
    pub fn offer(&self, inventory: Arc<inventory::Resource>) {
        self.log_changes(&self.current(), &inventory);
        self.offer.send_if_modified(|offer| {
            let changed = !same_list(&offer.inventory, &inventory);
            offer.inventory = inventory;
            changed
        });
        self.state.send_if_modified(|state| {
            let first = matches!(state, PluginState::DevicesUnknown(_));
            if first {
                *state = PluginState::NotListening("not registered yet".to_owned());
            }
            first
        });
    }

    fn log_changes(&self, old: &inventory::Resource, new: &inventory::Resource) {
        let resource = self.name();
        self.metrics.devices(resource, old, new);
        for (id, device) in &new.devices {
            let id = &**id;
            let before = old.devices.get(id);
            let was_healthy = before.map(inventory::Device::is_healthy);
            match &device.unhealthy_reason {
                Some(reason) if was_healthy != Some(false) => {
                    warn!(resource, id, reason, "a device is unhealthy")
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
            info!(resource, id = &**id, "a device is no longer listed");
        }
        if old.devices.len() != new.devices.len() {
            let healthy = new.devices.values().filter(|device| device.is_healthy()).count();
            info!(resource, devices = new.devices.len(), healthy, "the number of devices changed");
        }
    }

    fn current(&self) -> Arc<inventory::Resource> {
        Arc::clone(&self.offer.borrow().inventory)
    }
}

/// Whether the kubelet's list of both would be the same.
fn same_list(old: &inventory::Resource, new: &inventory::Resource) -> bool {
    fn seen<'a>((id, device): (&'a DeviceId, &'a inventory::Device)) -> (&'a str, bool, &'a [u32]) {
        (id, device.is_healthy(), &device.hardware.zones)
    }
    old.devices.iter().map(seen).eq(new.devices.iter().map(seen))
}

impl deviceplugin::Devices for OfferedDevices {
    /// One entry for each share of each device.
    fn list(&self) -> impl Iterator<Item = deviceplugin::Device> {
        self.inventory.devices.iter().flat_map(|(id, device)| {
            let (healthy, zones) = (device.is_healthy(), &device.hardware.zones);
            let share = move |id| deviceplugin::Device { id, healthy, zones: zones.clone() };
            sharing::ids(id, self.replicas).map(share)
        })
    }
}

impl deviceplugin::Plugin for Plugin {
    type Devices = OfferedDevices;

    fn devices(&self) -> watch::Receiver<OfferedDevices> {
        self.offer.subscribe()
    }

    fn on_registration(&self, event: RegistrationEvent) {
        let resource = self.name();
        let listening = event == RegistrationEvent::Listening;
        let (word, reason) = match event {
            RegistrationEvent::Registered => {
                info!(resource, "the kubelet has accepted the registration");
                return self.metrics.registration(resource, "registered");
            }
            RegistrationEvent::Listening => {
                info!(resource, "the kubelet listens");
                ("listening", String::new())
            }
            RegistrationEvent::Clash => {
                ("clash", "another process serves the plugin's socket; waiting until it ends".to_owned())
            }
            RegistrationEvent::Refused(reason) => ("refused", format!("registration failed: {reason}")),
            RegistrationEvent::Ignored => (
                "ignored",
                "the kubelet accepted the registration but did not ask for the list of devices".to_owned(),
            ),
            RegistrationEvent::Lost => ("lost", "the kubelet stopped listening".to_owned()),
        };
        self.metrics.listening(resource, listening);
        if listening {
            self.state.send_replace(PluginState::Listening);
            return;
        }
        self.metrics.registration(resource, word);
        let state = PluginState::NotListening(reason.clone());
        // The same reason again and again, while the kubelet is away, is logged once.
        if self.state.send_replace(state.clone()) == state {
            debug!(resource, reason, "still not registered");
        } else {
            warn!(resource, reason, "not registered; trying again");
        }
    }

    async fn allocate(&self, ids: Vec<String>) -> Result<wire::ContainerAllocateResponse, Status> {
        let inventory = self.current();
        let answer = allocate::allocate(&self.config, &inventory, &ids);
        let resource = self.name();
        match &answer {
            Ok(_) => debug!(resource, ?ids, "allocated"),
            Err(refusal) => {
                warn!(
                    resource,
                    reason = %refusal,
                    "an allocation was refused; the pod fails with UnexpectedAdmissionError"
                )
            }
        }
        self.metrics.allocated(resource, answer.as_ref().err().map(allocate::Refusal::word));
        self.reclaim.notify();
        answer.map_err(|refusal| refusal.status())
    }

    fn prefers(&self) -> bool {
        // The sample plugin does not prefer devices, and tests that use it expect the kubelet's own choice.
        !self.config.sample
    }

    fn prefer(
        &self,
        available: Vec<String>,
        required: Vec<String>,
        size: usize,
    ) -> Result<Vec<String>, Status> {
        let inventory = self.current();
        let policy = self.config.allocation.policy;
        let candidate = |id: &str| {
            let device = sharing::device(id, self.config.replicas())?;
            let (device, known) =
                inventory.devices.get_key_value(device).filter(|(_, known)| known.is_healthy())?;
            Some(Candidate { device, zones: &known.hardware.zones })
        };
        let answer = prefer::prefer(candidate, &available, &required, size, policy);
        let resource = self.name();
        self.metrics.preferred(resource, answer.is_ok());
        self.reclaim.notify();
        answer.map_err(|refusal| {
            warn!(
                resource,
                reason = %refusal,
                "no devices can be preferred; the pod fails with UnexpectedAdmissionError"
            );
            Status::invalid_argument(format!("{resource}: {refusal}"))
        })
    }

    fn wants_pre_start(&self) -> bool {
        self.config.pre_start.is_some()
    }

    async fn pre_start(&self, ids: Vec<String>) -> Result<(), Status> {
        let Some(config) = &self.config.pre_start else { return Ok(()) };
        let inventory = self.current();
        let resource = self.name();
        let device = |id: &String| {
            let device = sharing::device(id, self.config.replicas());
            device.filter(|device| inventory.devices.contains_key(*device)).map(str::to_owned)
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
