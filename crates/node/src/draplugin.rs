//! A driver's side of the kubelet's interface for Dynamic Resource Allocation, v1, for any driver.
//!
//! In: a [`Driver`] (what is done for a claim) and a [`SocketPaths`] (its name, where the kubelet looks for it). Out: the driver is registered through
//! the kubelet's [plugin watcher](crate::pluginwatcher), and every claim the kubelet asks about is answered. Never: an opinion about devices,
//! or a file other than the two sockets.
//!
//! # What the kubelet does
//! Read in kubelet 1.36.3 `cm/dra` and seen on one. It asks for all of a pod's claims in one call before the pod's containers are made,
//! and takes a claim that is missing in the answer for a failure. It keeps what it was told in a checkpoint of its own and asks again only
//! for claims of which it has no success there. When it starts it removes all ResourceSlices of its node, and those of a driver whose
//! sockets have been gone for half a minute; drivers publish theirs again.

mod serve;

use std::path::PathBuf;

pub use serve::run;

use crate::pluginwatcher::{self, socket_name};

/// Messages, clients and servers of `k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin`, generated from `proto/dra/v1.proto`.
#[expect(missing_docs, reason = "generated")]
#[rustfmt::skip]
pub mod wire {
    include!("gen/dra.v1.rs");
}

/// What a driver says it speaks when it registers.
pub const SERVICE: &str = "v1.DRAPlugin";

/// The name of a driver's socket in its own folder.
const SOCKET: &str = "dra.sock";

/// Where drivers have their own folders, if the kubelet's root folder is where it normally is.
pub const FOLDER: &str = "/var/lib/kubelet/plugins";

/// The paths of a driver's sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketPaths {
    /// The driver's name.
    pub driver: String,
    /// The folder in which the driver has a folder with its socket, normally [`FOLDER`].
    pub plugins: PathBuf,
    /// The folder in which the kubelet looks for sockets, normally [`crate::pluginwatcher::FOLDER`].
    pub registry: PathBuf,
}

/// What a driver does for claims. Errors are one line, and get into the pod's events.
pub trait Driver: Send + Sync + 'static {
    /// Makes a claim's devices ready; a claim that is ready already stays as it is.
    fn prepare(&self, claim: &wire::Claim) -> impl Future<Output = Result<Vec<wire::Device>, String>> + Send;

    /// Gives a claim's devices back; a claim that was never made ready is given back already.
    fn unprepare(&self, claim: &wire::Claim) -> impl Future<Output = Result<(), String>> + Send;
}

impl SocketPaths {
    /// The driver's own socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.plugins.join(&self.driver).join(SOCKET)
    }

    /// How many bytes the longest path of its sockets has; [`MAX_PATH`](crate::socket::MAX_PATH) are allowed.
    #[must_use]
    pub fn longest_socket(&self) -> usize {
        let paths = [self.socket(), self.registration().path()];
        paths.map(|path| path.as_os_str().len()).into_iter().max().unwrap_or_default()
    }

    /// Where the kubelet finds the driver.
    #[must_use]
    pub fn registration(&self) -> pluginwatcher::SocketPaths {
        pluginwatcher::SocketPaths { folder: self.registry.clone(), socket: socket_name(&self.driver) }
    }
}
