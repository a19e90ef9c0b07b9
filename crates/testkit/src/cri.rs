//! A container runtime: CRI v1 over a unix socket, enough for a real kubelet to bring pods to Running, restart,
//! stop and remove them, and to show their logs.
//!
//! In go the kubelet's calls, out come answers from an in-memory store; tests read it through
//! [`CriServer::snapshot`]. State lives as long as the server, hence a restarted kubelet finds its pods again.
//!
//! By default it runs nothing. How long a container runs is set by its [`Behaviour`]. No process, cgroup, network or
//! image is ever made, and time passes only on paper: an exit is a date, not a timer, so an idle server costs nothing.
//!
//! With [`Programs`] containers of the images it knows are processes of this machine, see below `process`, other images
//! are not found, and pods have networks. There are no cgroups even so.

mod address;
pub mod behaviour;
mod image;
mod images;
mod process;
mod runner;
mod service;
pub mod snapshot;
mod store;
mod streaming;
mod wire;

use std::net::Ipv4Addr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use anyhow::{Context, bail};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::api::image_service_server::ImageServiceServer;
use self::api::runtime_service_server::RuntimeServiceServer;
pub use self::behaviour::{Behaviour, Run};
pub use self::images::{Image, Images};
pub(crate) use self::runner::PodNetworks;
pub use self::runner::Programs;
use self::runner::Runner;
use self::service::Service;
pub use self::snapshot::{ContainerView, SandboxView, Snapshot, State};
use self::store::Store;

/// The container runtime interface, v1: messages and services, as generated.
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated code")]
pub mod api {
    include!("gen/cri.v1.rs");
}

/// The runtime handlers: the default one, and its name as with other runtimes.
const HANDLERS: [&str; 2] = ["", "runc"];

/// The longest path a unix socket address can hold on Linux, without the closing zero byte.
const SOCKET_PATH_MAX: usize = 107;

/// What a server does unless a pod says otherwise.
#[derive(Debug, Clone)]
pub struct Options {
    /// How containers behave when neither their command nor an annotation tells ([`behaviour`]).
    pub behaviour: Behaviour,
    /// First address and prefix length of the range pods get their addresses from; a kubelet that has a pod CIDR
    /// overrides it. Give each node of a cluster its own.
    pub pod_cidr: (Ipv4Addr, u8),
    /// Makes containers real processes.
    pub programs: Option<Programs>,
}

impl Default for Options {
    fn default() -> Self {
        Self { behaviour: Behaviour::default(), pod_cidr: (Ipv4Addr::new(10, 88, 0, 0), 16), programs: None }
    }
}

/// A running server; dropping it ends all connections and removes the socket.
#[derive(Debug)]
pub struct CriServer {
    socket: PathBuf,
    store: Arc<Mutex<Store>>,
    runner: Option<Arc<Runner>>,
    stop: Option<DropGuard>,
    thread: Option<JoinHandle<()>>,
}

impl CriServer {
    /// Serves on `cri.sock` in `dir`, an existing folder; a socket left there by an earlier server is replaced.
    ///
    /// The server has a thread of its own, so it answers whatever the caller's runtime is busy with, and needs none.
    ///
    /// # Errors
    /// The path is too long for a socket, is taken by something else, or cannot be bound.
    pub fn start(dir: &Path, options: Options) -> anyhow::Result<Self> {
        let dir = dir.canonicalize().with_context(|| format!("{}: no such folder", dir.display()))?;
        let socket = dir.join("cri.sock");
        clear(&socket)?;
        let store = Arc::new(Mutex::new(Store::new(seed(), options.pod_cidr)));
        let runner = match options.programs {
            Some(programs) => Some(Arc::new(Runner::new(programs, &dir, store.clone())?)),
            None => None,
        };
        let service = Service::new(store.clone(), options.behaviour, &dir, runner.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _context = runtime.enter();
            UnixListener::bind(&socket).with_context(|| format!("binding {}", socket.display()))?
        };
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let thread = std::thread::Builder::new().name("cri".to_owned()).spawn(move || {
            runtime.block_on(async {
                let server = tonic::transport::Server::builder()
                    .add_service(RuntimeServiceServer::new(service.clone()))
                    .add_service(ImageServiceServer::new(service))
                    .serve_with_incoming(UnixListenerStream::new(listener));
                // Not a graceful shutdown: that would wait for the kubelet to hang up.
                tokio::select! {
                    served = server => if let Err(error) = served {
                        tracing::error!(%error, "the CRI server failed");
                    },
                    () = stopped => {}
                }
            });
        })?;
        Ok(Self { socket, store, runner, stop: Some(stop.drop_guard()), thread: Some(thread) })
    }

    /// The socket, for the kubelet's `containerRuntimeEndpoint` (`unix://` before it).
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The networks of its pods, where these have their own.
    pub(crate) fn pod_networks(&self) -> Option<PodNetworks> {
        Some(PodNetworks::new(self.store.clone(), self.runner.as_ref()?))
    }

    /// Ends all containers and pods at once, as a machine does that goes down. What they were stays known.
    pub fn power_off(&self) {
        if let Some(runner) = &self.runner {
            runner.end();
        }
        service::lock(&self.store).stop_all(service::now());
    }

    /// Ends a container that runs, as if its program had; nothing happens to one that does not run. For containers
    /// without a process.
    pub fn end_container(&self, id: &str, exit_code: i32) {
        service::lock(&self.store).exited(id, exit_code, service::now());
    }

    /// All sandboxes and containers as they are now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = service::lock(&self.store).snapshot(service::now());
        if let Some(runner) = &self.runner {
            for container in snapshot.sandboxes.iter_mut().flat_map(|sandbox| &mut sandbox.containers) {
                container.pid = runner.process(&container.id).map(|process| process.pid());
            }
        }
        snapshot
    }
}

impl Drop for CriServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        // The thread waits for what is being done in containers.
        if let Some(runner) = &self.runner {
            runner.end();
        }
        if let Some(thread) = self.thread.take() {
            // A panic on that thread has been printed already; a destructor cannot return it.
            let _ = thread.join();
        }
        if let Some(runner) = &self.runner {
            runner.end();
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Makes room for a socket, but never removes anything that is not one.
fn clear(socket: &Path) -> anyhow::Result<()> {
    let length = socket.as_os_str().len();
    if length > SOCKET_PATH_MAX {
        bail!(
            "{}: {length} bytes are too long for a unix socket, at most {SOCKET_PATH_MAX}",
            socket.display()
        );
    }
    match socket.symlink_metadata() {
        Ok(found) if found.file_type().is_socket() => {
            std::fs::remove_file(socket).with_context(|| format!("removing old {}", socket.display()))
        }
        Ok(_) => bail!("{}: exists and is not a socket", socket.display()),
        Err(_) => Ok(()),
    }
}

/// A number that differs between servers, so that ids of two runtimes never meet.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(service::now())
}

#[cfg(test)]
mod tests;
