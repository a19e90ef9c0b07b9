//! The plugin's side of the kubelet's device plugin API, v1beta1, for any plugin.
//!
//! In: a [`Plugin`] (its devices, and what containers need to use them), and [`SocketPaths`]. Out: the plugin is
//! registered with the kubelet, and again after every restart of either. Never: a decision about devices, or a file
//! other than the plugin's own socket.
//!
//! # Behaviour of the kubelet
//! Source: `devicemanager` of kubelet 1.36.3, confirmed on a running one. At its start the kubelet removes every socket
//! in the folder, those of plugins included. It knows the devices that containers have, but no free ones until plugins
//! register again with new sockets. It answers `Register` after it has dialled the plugin back and asked for its
//! options, so a plugin serves before it registers. The end of `ListAndWatch` makes all devices unhealthy; five minutes
//! later the kubelet forgets them.
//!
//! The kubelet identifies a plugin by its resource alone, and may take the late end of an old connection for the end of
//! a new one. So a registration counts only while the kubelet listens; without its `ListAndWatch` another round begins.
//!
//! Instead of registering, a plugin can be found by the kubelet: see [`RegistrationMode`].

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

/// The version of the API.
pub const VERSION: &str = "v1beta1";
/// The folder in which the kubelet looks for plugins. The path does not depend on the kubelet's root folder.
pub const FOLDER: &str = "/var/lib/kubelet/device-plugins";
/// The kubelet's socket in that folder.
pub const KUBELET_SOCKET: &str = "kubelet.sock";

/// The longest name of a resource in the name of a socket; longer ones are shortened, as paths of sockets are limited.
const MAX_NAME: usize = 48;

/// A device as the kubelet knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The name, unique within the resource; at most 63 characters.
    pub id: String,
    /// Whether containers can get the device.
    pub healthy: bool,
    /// Ids of the NUMA zones that the device is close to, in the kernel's numbering; empty without locality.
    pub zones: Vec<u32>,
}

/// The paths of a plugin's sockets, its resource, and its registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketPaths {
    /// The folder in which the kubelet looks for plugins, normally [`FOLDER`] or [`pluginwatcher::FOLDER`].
    pub folder: PathBuf,
    /// The file name of the plugin's socket in that folder, such as [`RegistrationMode::endpoint`].
    pub endpoint: String,
    /// The resource, such as `vendor.example/device`.
    pub resource: String,
    /// The way of registration.
    pub mode: RegistrationMode,
}

/// The way in which a plugin is registered with the kubelet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegistrationMode {
    /// The plugin registers at the kubelet's socket, which is in the same folder.
    #[default]
    Register,
    /// The kubelet's plugin watcher finds the plugin's socket ([`pluginwatcher`]), which serves both APIs.
    Watcher,
}

/// An event between a plugin and the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistrationEvent {
    /// Another process serves at the plugin's socket. The plugin waits until that ends.
    Clash,
    /// The kubelet has accepted the registration.
    Registered,
    /// The kubelet refused the registration or was not reached, for this reason. The plugin retries.
    Refused(String),
    /// The kubelet has received the list of devices, and listens for changes.
    Listening,
    /// The kubelet accepted the registration but did not ask for the list of devices. The plugin retries.
    Ignored,
    /// The kubelet has stopped listening: it ended, or took the end of an old connection for ours. The plugin retries.
    Lost,
}

/// The devices of a plugin.
pub trait Devices: Send + Sync + 'static {
    /// All devices, made one by one for each message to the kubelet, so that no list is kept.
    fn list(&self) -> impl Iterator<Item = Device>;
}

/// A device plugin. Errors reach the kubelet unchanged; an error of [`Plugin::allocate`] fails the pod.
pub trait Plugin: Send + Sync + 'static {
    /// The type of the devices.
    type Devices: Devices;

    /// All devices, now and after each change. The list of the kubelet ends with the sender.
    fn devices(&self) -> watch::Receiver<Self::Devices>;

    /// Called for each event between the plugin and the kubelet.
    fn on_registration(&self, event: RegistrationEvent) {
        drop(event);
    }

    /// The settings with which a container can use these devices.
    fn allocate(
        &self,
        ids: Vec<String>,
    ) -> impl Future<Output = Result<wire::ContainerAllocateResponse, tonic::Status>> + Send;

    /// Whether the kubelet shall call [`Plugin::prefer`].
    fn prefers(&self) -> bool {
        false
    }

    /// The `size` devices of `available` that fit best together; they include `required`. An error fails the pod.
    ///
    /// # Errors
    /// No such choice exists.
    fn prefer(
        &self,
        available: Vec<String>,
        required: Vec<String>,
        size: usize,
    ) -> Result<Vec<String>, tonic::Status> {
        let _ = (available, size);
        Ok(required)
    }

    /// Whether the kubelet shall call [`Plugin::pre_start`].
    fn wants_pre_start(&self) -> bool {
        false
    }

    /// Called before a container with these devices starts.
    fn pre_start(&self, ids: Vec<String>) -> impl Future<Output = Result<(), tonic::Status>> + Send {
        let _ = ids;
        std::future::ready(Ok(()))
    }
}

/// The reason why a plugin ended. An absent kubelet is no reason.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket cannot be made.
    #[error(transparent)]
    Socket(#[from] crate::socket::Error),
    /// The server ended.
    #[error("serving {path} failed: {source}")]
    Serve {
        /// The plugin's socket.
        path: PathBuf,
        /// The error of the server.
        source: tonic::transport::Error,
    },
}

impl RegistrationMode {
    /// A file name for the plugin's socket, which depends on the resource alone and differs for each.
    #[must_use]
    pub fn endpoint(self, resource: &str) -> String {
        // Domains have no `_`, so different resources have different names.
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
