//! What a test sees of the runtime: plain copies of the store's entries at one moment. Nothing here changes anything.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::api;
use super::behaviour::Behaviour;

/// Everything in the runtime at one moment, oldest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// Sandboxes with their containers; a pod can have several, of which at most one is ready.
    pub sandboxes: Vec<SandboxView>,
}

impl Snapshot {
    /// The newest sandbox of a pod.
    #[must_use]
    pub fn pod(&self, namespace: &str, name: &str) -> Option<&SandboxView> {
        self.sandboxes.iter().rev().find(|sandbox| sandbox.namespace == namespace && sandbox.name == name)
    }
}

/// A sandbox and its containers.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxView {
    /// The runtime's id.
    pub id: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The pod's uid.
    pub uid: String,
    /// Counts the sandboxes of this pod.
    pub attempt: u32,
    /// False once stopped.
    pub ready: bool,
    /// Nothing for a pod in the host's network.
    pub ip: Option<Ipv4Addr>,
    /// Containers in the order they were made, restarted ones and init containers included.
    pub containers: Vec<ContainerView>,
}

impl SandboxView {
    /// The newest container of that name.
    #[must_use]
    pub fn container(&self, name: &str) -> Option<&ContainerView> {
        self.containers.iter().rev().find(|container| container.name == name)
    }
}

/// A container.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerView {
    /// The runtime's id.
    pub id: String,
    /// The container's name in the pod.
    pub name: String,
    /// Counts the restarts.
    pub attempt: u32,
    /// What it does now.
    pub state: State,
    /// Its process on this machine, which may have ended; nothing when it never had one.
    pub pid: Option<u32>,
    /// Unix time in nanoseconds; 0 before the start.
    pub started_at: i64,
    /// The behaviour it was given.
    pub behaviour: Behaviour,
    /// As set at creation and by updates since; cpusets are in the kernel's list format.
    pub resources: api::LinuxContainerResources,
    /// Devices handed to the container, from device plugins for instance.
    pub devices: Vec<api::Device>,
    /// Qualified names of devices that the runtime is to look up in Container Device Interface files.
    pub cdi_devices: Vec<String>,
    /// Annotations of the container, the kubelet's own included.
    pub annotations: BTreeMap<String, String>,
    /// Environment, sorted by name.
    pub env: BTreeMap<String, Vec<u8>>,
}

/// A container's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not started yet.
    Created,
    /// Started and not ended.
    Running,
    /// Ended, by itself or by force.
    Exited {
        /// When; Unix time in nanoseconds.
        finished_at: i64,
        /// 0 is success, 137 is killed.
        exit_code: i32,
    },
}
