//! The plugin's side of the kubelet's plugin watcher, which finds plugins by their sockets in a folder.
//!
//! In: kind, name and endpoint of a plugin. Out: a socket that answers the kubelet, and the state of the registration
//! in a channel. Never: the API of the plugin itself.
//!
//! The kubelet (1.36) scans `plugins_registry` below its root folder at its start and after each change there, so
//! plugins survive its restarts without any action. It leaves sockets in place, and ignores names that begin with a
//! dot. Timeouts are 10 s for the connection, 1 s for `GetInfo`, 5 s for `NotifyRegistrationStatus`. The removal of the
//! socket is the end of the plugin. The kubelet sends the escaped path of the socket as the authority of each call,
//! which strict HTTP/2 servers refuse; `@localhost` in the name turns the path into a user at a host ([`socket_name`]).

mod serve;

use std::path::{Path, PathBuf};

use tokio::sync::watch;

pub use serve::run;

use wire::registration_server::{Registration, RegistrationServer};

/// Messages, clients and servers of `pluginregistration.Registration`, generated from
/// `proto/pluginregistration/v1.proto`.
#[expect(missing_docs, reason = "generated")]
#[rustfmt::skip]
pub mod wire {
    include!("gen/pluginregistration.v1.rs");
}

/// The folder that the kubelet scans, for its default root folder.
pub const FOLDER: &str = "/var/lib/kubelet/plugins_registry";

/// The largest message.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// The kind of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A device plugin.
    DevicePlugin,
    /// A driver of resource claims.
    DraPlugin,
}

/// The description of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// The kind.
    pub kind: Kind,
    /// The name of a driver, or the resource of a device plugin.
    pub name: String,
    /// The socket of the plugin; `None`: the socket of the registration.
    pub endpoint: Option<PathBuf>,
    /// The supported versions: `v1beta1` for device plugins, `v1.DRAPlugin` and the like for drivers.
    pub versions: Vec<String>,
}

/// The state of a registration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// The kubelet has not called since the socket was made.
    #[default]
    Unseen,
    /// The socket is not served by this process, for this reason.
    Away(String),
    /// The kubelet has asked for the description.
    Asked,
    /// The plugin is registered.
    Registered,
    /// The kubelet has refused the plugin, for this reason.
    Refused(String),
}

/// The path of the socket of a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketPaths {
    /// The folder, normally [`FOLDER`].
    pub folder: PathBuf,
    /// The file name of the socket: [`socket_name`] of the plugin's name.
    pub socket: String,
}

/// The service of a registration. Each call of the kubelet sends a status, even an equal one.
#[derive(Clone, Debug)]
pub struct Registrar {
    info: Info,
    status: watch::Sender<Status>,
}

/// The file name of the socket for a plugin of this name, with which calls of the kubelet are accepted.
#[must_use]
pub fn socket_name(plugin: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') { c } else { '_' };
    format!("{}@localhost-reg.sock", plugin.chars().map(plain).collect::<String>())
}

impl Kind {
    /// The kubelet's name of the kind.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DevicePlugin => "DevicePlugin",
            Self::DraPlugin => "DRAPlugin",
        }
    }
}

impl Status {
    /// Sends [`Status::Away`] with this reason, unless that is the status already.
    pub fn away(status: &watch::Sender<Self>, reason: String) {
        let now = Self::Away(reason);
        status.send_if_modified(|last| {
            let other = *last != now;
            *last = now;
            other
        });
    }

    /// Sends that another process serves at this path.
    pub(crate) fn clash(status: &watch::Sender<Self>, path: &Path) {
        Self::away(status, format!("another process serves {}", path.display()));
    }
}

impl SocketPaths {
    /// The socket.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.join(&self.socket)
    }
}

impl Registrar {
    /// A service with this description.
    #[must_use]
    pub fn new(info: Info, status: watch::Sender<Status>) -> Self {
        Self { info, status }
    }

    /// The gRPC server, which can share a socket with other services.
    #[must_use]
    pub fn server(self) -> RegistrationServer<Self> {
        RegistrationServer::new(self).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(
        &self,
        _: tonic::Request<wire::InfoRequest>,
    ) -> Result<tonic::Response<wire::PluginInfo>, tonic::Status> {
        self.status.send_replace(Status::Asked);
        let endpoint = self.info.endpoint.as_ref().map(|path| path.to_string_lossy().into_owned());
        Ok(tonic::Response::new(wire::PluginInfo {
            r#type: self.info.kind.as_str().to_owned(),
            name: self.info.name.clone(),
            endpoint: endpoint.unwrap_or_default(),
            supported_versions: self.info.versions.clone(),
        }))
    }

    async fn notify_registration_status(
        &self,
        request: tonic::Request<wire::RegistrationStatus>,
    ) -> Result<tonic::Response<wire::RegistrationStatusResponse>, tonic::Status> {
        let answer = request.into_inner();
        let status =
            if answer.plugin_registered { Status::Registered } else { Status::Refused(answer.error) };
        self.status.send_replace(status);
        Ok(tonic::Response::new(wire::RegistrationStatusResponse {}))
    }
}

#[cfg(test)]
pub(crate) mod tests;
