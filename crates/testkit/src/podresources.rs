//! A stand-in for a kubelet, as far as podresources and the files written around them go: for what no real
//! kubelet can be made to do.
//!
//! In: pods and what they hold, and how to fail. Out: a podresources socket below a root directory, with the
//! checkpoints a kubelet (1.36) writes when pods come and go. Never: a decision; what is handed out is what the
//! test says.
//!
//! It has a thread of its own and dies as a process does. The bytes pass through a relay, which can end them anywhere.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fs, io};

use anyhow::Context as _;
pub use node::podresources::wire;
use prost::Message as _;
use wire::{AllocatableResourcesResponse, ListPodResourcesResponse, PodResources};

use crate::serving::Serving;

mod serve;

/// The kubelet's checkpoint at the end of each admission.
const ADMITTED: &str = "allocated_pods_state";
/// What the kubelet writes when a pod's containers have ended.
const ENDED: &str = "dra_manager_state";

/// The stand-in; dropping it ends all connections and leaves the files.
#[derive(Debug)]
pub struct Server {
    root: PathBuf,
    shared: Arc<Mutex<State>>,
    serving: Option<Serving>,
}

/// How calls fail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Not at all.
    #[default]
    None,
    /// Every answer takes this long.
    Slow(Duration),
    /// There is no answer.
    Silent,
    /// Every call is refused as the kubelet does when it is asked more often than it likes.
    Exhausted,
    /// Connections end after this many bytes from the server, whatever those are.
    Cut(usize),
    /// Whatever should be sent, something else is.
    Garbage,
}

#[derive(Clone, Debug, Default)]
struct State {
    list: ListPodResourcesResponse,
    allocatable: AllocatableResourcesResponse,
    fault: Fault,
    calls: u64,
}

/// A pod in the namespace `default` whose only container holds these CPUs.
#[must_use]
pub fn pod(name: &str, cpu_ids: &[i64]) -> PodResources {
    let container =
        wire::ContainerResources { name: "c".to_owned(), cpu_ids: cpu_ids.to_vec(), ..Default::default() };
    PodResources { name: name.to_owned(), namespace: "default".to_owned(), containers: vec![container] }
}

impl Server {
    /// Serves below `root`, which is made, on a node whose CPUs below `cpus` can all be had.
    ///
    /// # Errors
    /// When the directories or the socket cannot be made.
    pub fn start(root: &Path, cpus: i64) -> anyhow::Result<Self> {
        for dir in ["pod-resources", "pods", "device-plugins"] {
            let dir = root.join(dir);
            fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        }
        let allocatable = AllocatableResourcesResponse { cpu_ids: (0..cpus).collect(), ..Default::default() };
        let shared = Arc::new(Mutex::new(State { allocatable, ..State::default() }));
        let mut server = Self { root: root.to_owned(), shared, serving: None };
        server.restart()?;
        Ok(server)
    }

    /// Where it serves.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.root.join("pod-resources/kubelet.sock")
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// How many calls have come so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// How calls fail from now on, on connections that are there as well.
    pub fn fail(&self, fault: Fault) {
        self.state().fault = fault;
    }

    /// Replaces everything in the list, and writes nothing.
    pub fn set(&self, pods: Vec<PodResources>) {
        self.state().list.pod_resources = pods;
    }

    /// Makes one pod `p` with these CPUs everything in the list, and writes nothing.
    pub fn hands_out(&self, cpu_ids: &[i64]) {
        self.set(vec![pod("p", cpu_ids)]);
    }

    /// The pods in the list.
    #[must_use]
    pub fn pods(&self) -> Vec<PodResources> {
        self.state().list.pod_resources.clone()
    }

    /// Admits a pod: it is in the list, and the kubelet's checkpoints say that it has all it will get.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn admit(&self, pod: PodResources) -> io::Result<()> {
        self.state().list.pod_resources.push(pod);
        self.checkpoint(ADMITTED)
    }

    /// Takes a pod that has ended out of the list.
    ///
    /// # Errors
    /// When the checkpoint of that cannot be written.
    pub fn release(&self, name: &str) -> io::Result<()> {
        self.state().list.pod_resources.retain(|pod| pod.name != name);
        self.checkpoint(ENDED)
    }

    /// Makes the list exactly this many bytes long, by a further pod that holds nothing but has a long name,
    /// and admits it.
    ///
    /// # Errors
    /// When the list is longer than that already, or the checkpoint cannot be written.
    pub fn admit_filler(&self, bytes: usize) -> anyhow::Result<()> {
        let mut filler = pod("filler", &[]);
        let size = |filler: &PodResources| {
            let mut list = self.state().list.clone();
            list.pod_resources.push(filler.clone());
            list.encoded_len()
        };
        // Twice, because lengths are written with as many bytes as they need.
        for _ in 0..2 {
            let name = filler.containers[0].name.len();
            let name = (name + bytes).checked_sub(size(&filler)).context("the list is longer already")?;
            filler.containers[0].name = "c".repeat(name);
        }
        anyhow::ensure!(size(&filler) == bytes, "no list is {bytes} bytes long");
        self.admit(filler)?;
        Ok(())
    }

    /// Ends it as `kill -9` ends a kubelet: connections break, the socket's file stays.
    pub fn stop(&mut self) {
        self.serving = None;
    }

    /// Ends it if it runs, and serves on a new socket under the old name, as a kubelet that starts does. What
    /// was in the list is in it still.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.stop();
        let socket = self.socket();
        match fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("removing {}", socket.display()));
            }
            _ => {}
        }
        let listener =
            UnixListener::bind(&socket).with_context(|| format!("binding {}", socket.display()))?;
        listener.set_nonblocking(true)?;
        let shared = Arc::clone(&self.shared);
        self.serving = Some(Serving::start("podresources", move || serve::serve(listener, shared))?);
        Ok(())
    }

    /// Writes a file as the kubelet does: under another name first.
    fn checkpoint(&self, name: &str) -> io::Result<()> {
        let temporary = self.root.join(format!(".{name}"));
        fs::write(&temporary, "{}")?;
        fs::rename(temporary, self.root.join(name))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
