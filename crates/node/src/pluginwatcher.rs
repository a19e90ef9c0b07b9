//! The plugin's side of the kubelet's plugin watcher: a socket in a folder is all that a plugin has to make.
//!
//! In: what kind of plugin it is, its name, where it serves. Out: the kubelet finds the socket, asks, connects, and says what
//! became of it; the newest word of it is in a channel. Never: what the plugin does.
//!
//! The kubelet (1.36) looks through `plugins_registry` below its root folder when it starts and whenever something changes there, so a
//! plugin outlives its restarts without doing anything. It leaves sockets where they are, passes over names that begin with a dot, gives 10 s
//! to the connection, 1 s to `GetInfo` and 5 s to `NotifyRegistrationStatus`, and takes the removal of the socket for the
//! plugin's end. It sends the path of the socket as the authority of each call, escaped, which HTTP/2 servers that
//! hold to the letter refuse; a name with `@localhost` in it makes that a user at a host ([`socket_name`]).

mod serve;

use std::path::{Path, PathBuf};

use tokio::sync::watch;

pub use serve::run;

use wire::registration_server::{Registration, RegistrationServer};

/// Messages, clients and servers of `pluginregistration.Registration`, generated from `proto/pluginregistration/v1.proto`.
#[expect(missing_docs, reason = "generated")]
#[rustfmt::skip]
pub mod wire {
    include!("gen/pluginregistration.v1.rs");
}

/// Where the kubelet looks, if its root folder is where it normally is.
pub const FOLDER: &str = "/var/lib/kubelet/plugins_registry";

/// What a kubelet asks a plugin.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// What a kind of plugin is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One that offers devices by the device plugin interface.
    DevicePlugin,
    /// One that prepares resource claims.
    DraPlugin,
}

/// What a plugin says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its kind.
    pub kind: Kind,
    /// The name of the driver; of a device plugin its resource.
    pub name: String,
    /// Where it serves; none when that is the socket of the registration.
    pub endpoint: Option<PathBuf>,
    /// What it speaks: `v1beta1` for device plugins, `v1.DRAPlugin` and the like for drivers.
    pub versions: Vec<String>,
}

/// What the kubelet said last, or why it could say nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// Nothing, since the socket was made.
    #[default]
    Unseen,
    /// The kubelet has nobody to ask, for this reason: there is no socket of ours.
    Away(String),
    /// It has asked what the plugin is.
    Asked,
    /// The plugin is registered.
    Registered,
    /// It was refused, for this reason.
    Refused(String),
}

/// The path of the socket on which a registration waits for the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketPaths {
    /// The folder, normally [`FOLDER`].
    pub folder: PathBuf,
    /// File name of the socket: [`socket_name`] of the plugin's.
    pub socket: String,
}

/// The service behind the socket. A status is sent each time the kubelet says one, the same again included.
#[derive(Clone, Debug)]
pub struct Registrar {
    info: Info,
    status: watch::Sender<Status>,
}

/// The name of a socket behind which a kubelet's calls are understood, for a plugin of this name.
#[must_use]
pub fn socket_name(plugin: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') { c } else { '_' };
    format!("{}@localhost-reg.sock", plugin.chars().map(plain).collect::<String>())
}

impl Kind {
    /// As the kubelet knows it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DevicePlugin => "DevicePlugin",
            Self::DraPlugin => "DRAPlugin",
        }
    }
}

impl Status {
    /// Tells why there is no socket of ours, once as long as it is the same.
    pub fn away(status: &watch::Sender<Self>, reason: String) {
        let now = Self::Away(reason);
        status.send_if_modified(|last| {
            let other = *last != now;
            *last = now;
            other
        });
    }

    /// Tells that somebody else serves at our path.
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
    /// A service that says this.
    #[must_use]
    pub fn new(info: Info, status: watch::Sender<Status>) -> Self {
        Self { info, status }
    }

    /// It, ready to be served, alone or beside other services on one socket.
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
        let said = request.into_inner();
        let status = if said.plugin_registered { Status::Registered } else { Status::Refused(said.error) };
        self.status.send_replace(status);
        Ok(tonic::Response::new(wire::RegistrationStatusResponse {}))
    }
}

#[cfg(test)]
pub(crate) mod tests;
