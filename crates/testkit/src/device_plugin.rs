//! A device plugin for a real kubelet: devices that are nothing but names.
//!
//! In: a kubelet, a resource, devices; later other devices or another health. Out: the kubelet knows them,
//! hands them out and asks as it asks any plugin; what it asked is counted. Registration and restarts are those
//! of `node::deviceplugin`, which real plugins use too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use node::deviceplugin::{self, Plugin, RegistrationEvent, RegistrationMode, SocketPaths, wire};
use node::watch::Hub;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Status;

pub use node::deviceplugin::Device;

use crate::kubelet::Kubelet;

/// How long a kubelet may take to accept a registration.
const PATIENCE: Duration = Duration::from_secs(60);

/// What may be different about a plugin.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Ask for `GetPreferredAllocation`, and prefer the devices with the last names.
    pub prefers_last: bool,
    /// Ask for `PreStartContainer`.
    pub pre_start: bool,
    /// Another name for the socket: two plugins of one resource can be there then, as when one replaces the other.
    pub socket: Option<String>,
    /// How long each `Allocate` takes.
    pub allocate_delay: Duration,
}

/// What the kubelet has asked so far, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Accepted registrations.
    pub registrations: usize,
    /// Devices of each `Allocate`, sorted.
    pub allocate: Vec<Vec<String>>,
    /// Number wanted in each `GetPreferredAllocation`.
    pub prefer: Vec<usize>,
    /// Devices of each `PreStartContainer`, sorted.
    pub pre_start: Vec<Vec<String>>,
}

/// A running plugin; dropping it takes it away from the kubelet, as a crash would.
#[derive(Debug)]
pub struct DevicePlugin {
    inner: Arc<Inner>,
    registrations: watch::Receiver<usize>,
    stop: Option<DropGuard>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    options: Options,
    devices: watch::Sender<Vec<Device>>,
    registrations: watch::Sender<usize>,
    calls: Mutex<Calls>,
}

/// A healthy device close to these zones, or to none in particular.
#[must_use]
pub fn device(id: &str, zones: &[u32]) -> Device {
    Device { id: id.to_owned(), healthy: true, zones: zones.to_vec() }
}

impl DevicePlugin {
    /// Starts a plugin for a resource such as `vendor.example/device`. It registers as soon as the kubelet can
    /// be reached: [`DevicePlugin::registered`] waits. One plugin per resource and kubelet.
    ///
    /// The plugin has a thread of its own, so it answers whatever the caller's runtime is busy with, and needs none.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(
        kubelet: &Kubelet,
        resource: &str,
        devices: impl IntoIterator<Item = Device>,
        options: Options,
    ) -> anyhow::Result<Self> {
        let folder = kubelet.device_plugin_socket();
        let paths = SocketPaths {
            folder: folder.parent().context("the kubelet's socket is in no folder")?.to_owned(),
            endpoint: options.socket.clone().unwrap_or_else(|| RegistrationMode::Register.endpoint(resource)),
            resource: resource.to_owned(),
            mode: RegistrationMode::Register,
        };
        let (registrations, receiver) = watch::channel(0);
        let devices = watch::Sender::new(devices.into_iter().collect());
        let inner = Arc::new(Inner { options, devices, registrations, calls: Mutex::default() });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stop = CancellationToken::new();
        let (plugin, stopped) = (Arc::clone(&inner), stop.clone().cancelled_owned());
        let thread = std::thread::Builder::new().name("device-plugin".to_owned()).spawn(move || {
            let hub = Hub::default();
            runtime.block_on(async {
                tokio::select! {
                    ended = deviceplugin::run(&paths, plugin, &hub) => {
                        let Err(error) = ended;
                        tracing::error!(%error, "the device plugin failed");
                    }
                    () = stopped => {}
                }
            });
        })?;
        Ok(Self { inner, registrations: receiver, stop: Some(stop.drop_guard()), thread: Some(thread) })
    }

    /// Waits until the kubelet has accepted this many registrations.
    ///
    /// # Errors
    /// When that takes too long.
    pub async fn registered(&self, times: usize) -> anyhow::Result<()> {
        let mut registrations = self.registrations.clone();
        let enough = registrations.wait_for(|so_far| *so_far >= times);
        let enough = tokio::time::timeout(PATIENCE, enough).await;
        drop(
            enough
                .with_context(|| format!("registration {times} was not accepted within {PATIENCE:?}"))??,
        );
        Ok(())
    }

    /// Tells the kubelet about other devices instead of those before.
    pub fn set(&self, devices: impl IntoIterator<Item = Device>) {
        self.inner.devices.send_replace(devices.into_iter().collect());
    }

    /// Tells the kubelet that a device is healthy or is not. A device that is not there changes nothing.
    pub fn set_health(&self, id: &str, healthy: bool) {
        self.inner.devices.send_if_modified(|devices| {
            let found = devices.iter_mut().find(|device| device.id == id && device.healthy != healthy);
            found.map(|device| device.healthy = healthy).is_some()
        });
    }

    /// The list that the kubelet was sent last.
    #[must_use]
    pub fn devices(&self) -> Vec<Device> {
        self.inner.devices.borrow().clone()
    }

    /// What the kubelet has asked so far.
    #[must_use]
    pub fn calls(&self) -> Calls {
        Calls { registrations: *self.registrations.borrow(), ..self.inner.calls().clone() }
    }
}

impl Drop for DevicePlugin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic on that thread has been printed already; a destructor cannot return it.
            let _ = thread.join();
        }
    }
}

impl Inner {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plugin for Inner {
    type Devices = Vec<Device>;

    fn devices(&self) -> watch::Receiver<Vec<Device>> {
        self.devices.subscribe()
    }

    fn on_registration(&self, event: RegistrationEvent) {
        if event == RegistrationEvent::Registered {
            self.registrations.send_modify(|times| *times += 1);
        }
    }

    async fn allocate(&self, ids: Vec<String>) -> Result<wire::ContainerAllocateResponse, Status> {
        tokio::time::sleep(self.options.allocate_delay).await;
        let ids = sorted(ids);
        let envs = [("DEVICES".to_owned(), ids.join(","))].into();
        self.calls().allocate.push(ids);
        Ok(wire::ContainerAllocateResponse { envs, ..Default::default() })
    }

    fn prefers(&self) -> bool {
        self.options.prefers_last
    }

    fn prefer(
        &self,
        available: Vec<String>,
        required: Vec<String>,
        size: usize,
    ) -> Result<Vec<String>, Status> {
        self.calls().prefer.push(size);
        let mut chosen = sorted(required);
        let others = sorted(available).into_iter().rev().filter(|id| !chosen.contains(id));
        let missing = size.saturating_sub(chosen.len());
        let others: Vec<_> = others.take(missing).collect();
        chosen.extend(others);
        Ok(chosen)
    }

    fn wants_pre_start(&self) -> bool {
        self.options.pre_start
    }

    async fn pre_start(&self, ids: Vec<String>) -> Result<(), Status> {
        self.calls().pre_start.push(sorted(ids));
        Ok(())
    }
}

fn sorted(mut ids: Vec<String>) -> Vec<String> {
    ids.sort_unstable();
    ids
}
