//! The driver's side of the kubelet's interface for Dynamic Resource Allocation, v1, for any driver.
//!
//! In: a [`Driver`] (which prepares claims) and [`SocketPaths`]. Out: the driver is registered by the kubelet's [plugin
//! watcher](crate::pluginwatcher), and every claim in a call is answered. Never: a decision about devices, or a file
//! other than the two sockets.
//!
//! # Behaviour of the kubelet
//! Source: `cm/dra` of kubelet 1.36.3, confirmed on a running one. The kubelet sends all claims of a pod in one call
//! before it makes the pod's containers. A claim that is missing in the answer counts as failed. Successes are kept in
//! a checkpoint, and only other claims are sent again. At its start the kubelet removes all ResourceSlices of its node,
//! and later those of drivers whose sockets have been absent for 30 s; drivers publish theirs again.

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

/// The service that a driver registers.
pub const SERVICE: &str = "v1.DRAPlugin";

/// The name of a driver's socket in its folder.
const SOCKET: &str = "dra.sock";

/// The folder with the folders of drivers, for the kubelet's default root folder.
pub const FOLDER: &str = "/var/lib/kubelet/plugins";

/// The paths of a driver's sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketPaths {
    /// The name of the driver.
    pub driver: String,
    /// The folder in which the driver has a folder with its socket, normally [`FOLDER`].
    pub plugins: PathBuf,
    /// The folder in which the kubelet looks for sockets, normally [`crate::pluginwatcher::FOLDER`].
    pub registry: PathBuf,
}

/// A driver of claims. Errors are one line, and appear in the events of the pod.
pub trait Driver: Send + Sync + 'static {
    /// Prepares the devices of a claim. A prepared claim stays as it is.
    fn prepare(&self, claim: &wire::Claim) -> impl Future<Output = Result<Vec<wire::Device>, String>> + Send;

    /// Releases the devices of a claim. Succeeds for a claim that was never prepared.
    fn unprepare(&self, claim: &wire::Claim) -> impl Future<Output = Result<(), String>> + Send;
}

impl SocketPaths {
    /// The socket of the driver.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.plugins.join(&self.driver).join(SOCKET)
    }

    /// The length of the longest path of a socket in bytes; at most [`MAX_PATH`](crate::socket::MAX_PATH) work.
    #[must_use]
    pub fn longest_socket(&self) -> usize {
        let paths = [self.socket(), self.registration().path()];
        paths.map(|path| path.as_os_str().len()).into_iter().max().unwrap_or_default()
    }

    /// The socket by which the kubelet finds the driver.
    #[must_use]
    pub fn registration(&self) -> pluginwatcher::SocketPaths {
        pluginwatcher::SocketPaths { folder: self.registry.clone(), socket: socket_name(&self.driver) }
    }
}
