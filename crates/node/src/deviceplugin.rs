//! A device plugin's side of the kubelet's device plugin API, v1beta1, for any plugin.
//!
//! In: a [`Plugin`] (which devices there are, what a container needs to use them) and a [`SocketPaths`] (where the kubelet looks
//! for it). Out: the plugin is registered with the kubelet, and again after every restart of either. Never: an opinion about
//! devices, or a file other than the plugin's own socket.
//!
//! # What the kubelet does
//! Read in kubelet 1.36.3 `devicemanager` and seen on one. When it starts it removes every socket in the folder, the
//! plugins' too, and knows the devices it has handed out but none that it could hand out: a plugin has to make its socket
//! again and register again. `Register` is answered only after the kubelet has dialled the plugin back and asked for its
//! options, so the plugin has to serve before it registers. The end of `ListAndWatch` makes all devices unhealthy, and five
//! minutes later forgotten.
//!
//! It knows plugins by their resource alone, and may take the late end of an old connection for the end of a new one. So a
//! registration counts only while the kubelet listens: without its `ListAndWatch` there is another round.
//!
//! Instead of registering, a plugin can be found: see [`RegistrationMode`].

mod serve;
mod service;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;

use tokio::sync::watch;

use crate::pluginwatcher;

pub use serve::run;

/// Messages, clients and servers of `v1beta1.Registration` and `v1beta1.DevicePlugin`, generated from
/// `proto/deviceplugin/v1beta1.proto`.
// `allow`, because only rustdoc has this lint and an expectation would be unfulfilled elsewhere.
#[allow(rustdoc::invalid_html_tags, reason = "generated")]
#[expect(missing_docs, reason = "generated")]
#[rustfmt::skip]
pub mod wire {
    include!("gen/deviceplugin.v1beta1.rs");
}

/// The version plugins and kubelets agree on.
pub const VERSION: &str = "v1beta1";
/// Where the kubelet looks for plugins; the path is built in, whatever its root directory is.
pub const FOLDER: &str = "/var/lib/kubelet/device-plugins";
/// The kubelet's socket in that folder.
pub const KUBELET_SOCKET: &str = "kubelet.sock";

/// Longer names of resources are shortened for their sockets, whose paths must not be long.
const MAX_NAME: usize = 48;

/// A device as the kubelet is told about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name, unique within the resource; at most 63 characters.
    pub id: String,
    /// Whether it can be handed out.
    pub healthy: bool,
    /// Ids of the NUMA zones it is close to, as the kernel numbers them; empty when it has no locality.
    pub zones: Vec<u32>,
}

/// The paths of a plugin's sockets, and how the plugin registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketPaths {
    /// The folder the kubelet looks into: [`FOLDER`] or [`pluginwatcher::FOLDER`], normally.
    pub folder: PathBuf,
    /// File name of the plugin's socket in that folder; what [`RegistrationMode::endpoint`] says does.
    pub endpoint: String,
    /// The resource, such as `vendor.example/device`.
    pub resource: String,
    /// How the plugin gets known to the kubelet.
    pub mode: RegistrationMode,
}

/// How a plugin gets known to the kubelet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegistrationMode {
    /// The plugin registers on the kubelet's socket, which is in the same folder.
    #[default]
    Register,
    /// The kubelet's plugin watcher finds the plugin's socket ([`pluginwatcher`]); both services are behind it.
    Watcher,
}

/// What happened between a plugin and the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistrationEvent {
    /// Another process serves on the plugin's socket; the plugin waits until it ends.
    Clash,
    /// The kubelet has accepted the registration.
    Registered,
    /// The kubelet refused the registration or could not be asked, for this reason. The plugin retries.
    Refused(String),
    /// The kubelet listens to the list of devices and has received it.
    Listening,
    /// The kubelet accepted the registration but did not ask for the list of devices. The plugin retries.
    Ignored,
    /// The kubelet stopped listening: it ended, or took the end of an old connection for ours. The plugin retries.
    Lost,
}

/// What a plugin keeps of its devices.
pub trait Devices: Send + Sync + 'static {
    /// All devices, for the kubelet. Made one by one when it is to be told, so that nobody has to keep the list.
    fn list(&self) -> impl Iterator<Item = Device>;
}

/// What a plugin knows and decides. Errors reach the kubelet as they are; one of [`Plugin::allocate`] fails the pod.
pub trait Plugin: Send + Sync + 'static {
    /// How it keeps its devices.
    type Devices: Devices;

    /// All devices, now and whenever the kubelet is to be told. The plugin is over when its sender is.
    fn devices(&self) -> watch::Receiver<Self::Devices>;

    /// Called for each event between the plugin and the kubelet.
    fn on_registration(&self, event: RegistrationEvent) {
        drop(event);
    }

    /// What a container that gets these devices needs to use them.
    fn allocate(
        &self,
        ids: Vec<String>,
    ) -> impl Future<Output = Result<wire::ContainerAllocateResponse, tonic::Status>> + Send;

    /// Whether [`Plugin::prefer`] has anything to say.
    fn prefers(&self) -> bool {
        false
    }

    /// Which `size` of the `available` devices, those in `required` among them, fit each other best. An error fails the pod.
    ///
    /// # Errors
    /// When there is no such choice.
    fn prefer(
        &self,
        available: Vec<String>,
        required: Vec<String>,
        size: usize,
    ) -> Result<Vec<String>, tonic::Status> {
        let _ = (available, size);
        Ok(required)
    }

    /// Whether [`Plugin::pre_start`] wants to be called.
    fn wants_pre_start(&self) -> bool {
        false
    }

    /// A container with these devices is about to start.
    fn pre_start(&self, ids: Vec<String>) -> impl Future<Output = Result<(), tonic::Status>> + Send {
        let _ = ids;
        std::future::ready(Ok(()))
    }
}

/// Why a plugin cannot go on. That the kubelet is away is no reason.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no socket.
    #[error(transparent)]
    Socket(#[from] crate::socket::Error),
    /// The server ended by itself.
    #[error("serving {path} failed: {source}")]
    Serve {
        /// The plugin's socket.
        path: PathBuf,
        /// What the server says.
        source: tonic::transport::Error,
    },
}

impl RegistrationMode {
    /// A file name for the plugin's socket: the same for one resource always, and of no two resources the same.
    #[must_use]
    pub fn endpoint(self, resource: &str) -> String {
        // Domains have no `_`, so that nothing is lost.
        let mut name = resource.replace('/', "_");
        if name.len() > MAX_NAME {
            let mut hasher = DefaultHasher::new();
            resource.hash(&mut hasher);
            name =
                format!("{}-{:016x}", name.chars().take(MAX_NAME - 17).collect::<String>(), hasher.finish());
        }
        match self {
            Self::Register => format!("{name}.sock"),
            Self::Watcher => pluginwatcher::socket_name(&name),
        }
    }
}

impl Devices for Vec<Device> {
    fn list(&self) -> impl Iterator<Item = Device> {
        self.iter().cloned()
    }
}

impl Device {
    fn into_wire(self) -> wire::Device {
        let nodes: Vec<_> = self.zones.iter().map(|zone| wire::NumaNode { id: i64::from(*zone) }).collect();
        wire::Device {
            id: self.id,
            health: if self.healthy { "Healthy" } else { "Unhealthy" }.to_owned(),
            topology: (!nodes.is_empty()).then_some(wire::TopologyInfo { nodes }),
        }
    }
}

impl SocketPaths {
    /// The plugin's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.join(&self.endpoint)
    }

    /// The kubelet's socket.
    #[must_use]
    pub fn kubelet_socket(&self) -> PathBuf {
        self.folder.join(KUBELET_SOCKET)
    }
}

#[cfg(test)]
mod tests;
