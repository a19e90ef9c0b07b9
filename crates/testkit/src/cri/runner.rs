//! The part of the runtime that is real: containers of known images are processes, pods have networks.
//!
//! In: what the store has agreed to. Out: processes and networks for it, and reports of their ends to the
//! store. Whether something may be done, and what there is, stays the store's business.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::Signal;

use super::api::{ContainerConfig, PodSandboxConfig};
use super::images::{Image, Images};
use super::process::{Plan, Process};
use super::service::{self, now};
use super::store::Store;
use super::wire;
use crate::namespace::Namespaces;
use crate::net::Network;
use crate::process_group::ProcessGroup;

/// What makes containers processes.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The images there are.
    pub images: Images,
    /// The node: its mounts are where host paths lead, its network is that of pods in the host's network.
    pub host: Namespaces,
    /// Where pods get their addresses.
    pub network: Network,
    /// The program `cri-streaming`, for `exec` and `port-forward`.
    pub streaming: PathBuf,
    /// What that program ends with.
    pub processes: ProcessGroup,
}

/// A container to start.
#[derive(Debug)]
pub(super) struct StartRequest {
    pub(super) id: String,
    /// The id of its sandbox.
    pub(super) of: String,
    pub(super) sandbox: PodSandboxConfig,
    pub(super) config: ContainerConfig,
    pub(super) log: Option<PathBuf>,
}

/// The processes and networks of one node.
#[derive(Debug)]
pub(super) struct Runner {
    programs: Programs,
    /// Where root folders are built.
    at: PathBuf,
    store: Arc<Mutex<Store>>,
    state: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    /// By sandbox.
    networks: BTreeMap<String, Namespaces>,
    /// By container, ended ones too.
    processes: BTreeMap<String, Arc<Process>>,
}

/// The networks of a node's pods, for as long as the node lives.
#[derive(Debug)]
pub(crate) struct PodNetworks {
    store: Arc<Mutex<Store>>,
    runner: Weak<Runner>,
}

/// The network of a pod's sandbox.
#[derive(Debug)]
pub(crate) struct PodNetwork {
    /// The sandbox' id.
    pub(crate) sandbox: String,
    /// The pod's.
    pub(crate) uid: String,
    pub(crate) namespaces: Namespaces,
}

impl PodNetworks {
    pub(super) fn new(store: Arc<Mutex<Store>>, runner: &Arc<Runner>) -> Self {
        Self { store, runner: Arc::downgrade(runner) }
    }

    /// Those of now; pods in the node's network have none.
    pub(crate) fn list(&self) -> Vec<PodNetwork> {
        let Some(runner) = self.runner.upgrade() else { return Vec::new() };
        let sandboxes = service::lock(&self.store).snapshot(now()).sandboxes;
        let own = sandboxes.into_iter().filter(|sandbox| sandbox.ready && sandbox.ip.is_some());
        let state = runner.state();
        own.filter_map(|sandbox| {
            let namespaces = state.networks.get(&sandbox.id)?.clone();
            Some(PodNetwork { sandbox: sandbox.id, uid: sandbox.uid, namespaces })
        })
        .collect()
    }
}

impl Runner {
    /// Builds root folders in a folder of `dir`.
    pub(super) fn new(programs: Programs, dir: &Path, store: Arc<Mutex<Store>>) -> anyhow::Result<Self> {
        let at = dir.join("root");
        std::fs::create_dir_all(&at).with_context(|| format!("making {}", at.display()))?;
        Ok(Self { programs, at, store, state: Mutex::default() })
    }

    /// Kills everything. A command that runs in a container may hold its process, hence the signals.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.processes.values().for_each(|process| process.signal(Signal::KILL));
        state.processes.clear();
        state.networks.clear();
    }

    /// What makes containers processes.
    pub(super) fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Whether there is such an image.
    pub(super) fn image(&self, reference: &str) -> Option<&Image> {
        self.programs.images.get(reference)
    }

    /// Makes the network of a sandbox; one without an address has the node's.
    pub(super) fn open(&self, sandbox: &str, address: Option<Ipv4Addr>) -> anyhow::Result<()> {
        let Programs { host, network, .. } = &self.programs;
        let own = match address {
            Some(address) => network.attach(host, address).context("making the pod's network")?,
            None => host.clone(),
        };
        self.state().networks.insert(sandbox.to_owned(), own);
        Ok(())
    }

    /// Forgets the network of a sandbox; it goes with the last process in it.
    pub(super) fn close(&self, sandbox: &str) {
        self.state().networks.remove(sandbox);
    }

    /// Starts the process of a container, unless its image is one without.
    pub(super) fn start(&self, request: StartRequest) -> anyhow::Result<()> {
        let StartRequest { id, of, sandbox, config, log } = request;
        let named = config.image.as_ref().map_or("", wire::image_named);
        let image = self.image(named).with_context(|| format!("no image {named:?}"))?.clone();
        if image.is_pause() {
            return Ok(());
        }
        let namespaces = self.state().networks.get(&of).cloned().context("the sandbox has no network")?;
        let plan = Plan { namespaces, at: self.at.clone(), image, config, sandbox, log };
        let (store, container) = (self.store.clone(), id.clone());
        let process =
            Process::start(plan, move |code| service::lock(&store).exited(&container, code, now()))?;
        self.state().processes.insert(id, Arc::new(process));
        Ok(())
    }

    /// The process of a container, if it ever had one.
    pub(super) fn process(&self, id: &str) -> Option<Arc<Process>> {
        self.state().processes.get(id).cloned()
    }

    /// Asks a container to end, kills it after `grace`, and returns when it has ended.
    pub(super) async fn stop(&self, id: &str, grace: Duration) {
        let Some(process) = self.process(id) else { return };
        if !grace.is_zero() {
            process.signal(Signal::TERM);
            if tokio::time::timeout(grace, process.ended()).await.is_ok() {
                return;
            }
        }
        process.signal(Signal::KILL);
        process.ended().await;
    }

    /// Kills a container if it runs and forgets it.
    pub(super) async fn remove(&self, id: &str) {
        self.stop(id, Duration::ZERO).await;
        self.state().processes.remove(id);
    }

    /// A connection to a port of a sandbox, made from within.
    pub(super) fn connect(&self, sandbox: &str, port: u16) -> anyhow::Result<TcpStream> {
        let network = self.state().networks.get(sandbox).cloned().context("the sandbox has no network")?;
        let ends = [SocketAddr::from((Ipv4Addr::LOCALHOST, port)), (Ipv6Addr::LOCALHOST, port).into()];
        let connected = network.run(|| TcpStream::connect(&ends[..]))?;
        connected.with_context(|| format!("failed to connect to localhost:{port} in the pod's network"))
    }

    fn state(&self) -> MutexGuard<'_, Running> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
