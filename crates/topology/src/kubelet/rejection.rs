//! Why a kubelet rejects a pod, in its own words.
//!
//! In: what the managers found. Out: the pod's `status.reason` and `status.message`, as kubelet 1.36 writes them.

use std::fmt;

use crate::kubelet::cpu_manager::TakeError;
use crate::resource::ResourceName;

/// `status.reason` of pods that a kubelet cannot align.
pub const TOPOLOGY_AFFINITY: &str = "TopologyAffinityError";
/// `status.reason` of pods that a kubelet rejects for what its resource managers would give them.
pub const REASONS: [&str; 3] = [TOPOLOGY_AFFINITY, "UnexpectedAdmissionError", "SMTAlignmentError"];

/// The reason for which a kubelet rejects a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// No alignment that the Topology Manager's policy admits.
    TopologyAffinity,
    /// The same for a pod with resources as a whole, under pod-level managers.
    PodTopologyAffinity {
        /// The scope is the pod.
        pod_scope: bool,
    },
    /// `full-pcpus-only`: the number of CPUs is no multiple of a core's threads.
    NotWholeCores {
        /// CPUs asked for.
        requested: usize,
        /// Threads of a core.
        per_core: usize,
    },
    /// `full-pcpus-only`: there are too few CPUs on cores of which no thread is reserved.
    TooFewCores {
        /// CPUs asked for.
        requested: usize,
        /// Threads of a core.
        per_core: usize,
        /// CPUs on such cores.
        available: usize,
    },
    /// The CPU manager has too few CPUs.
    Cpus(TakeError),
    /// The memory manager.
    Memory(MemoryError),
    /// The device manager.
    Devices(DeviceError),
    /// Containers of the pod would have no shared CPUs, or no memory.
    EmptyPodSharedPool(String),
    /// The node as a whole has too little.
    OutOf {
        /// The resource.
        resource: ResourceName,
        /// The amount asked for, in base units.
        requested: i64,
        /// The amount in use.
        used: i64,
        /// The amount that the node may give to pods.
        capacity: i64,
    },
}

/// Why the memory manager cannot pin memory (kubelet 1.36 `memorymanager` `Allocate`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// No set of zones has enough.
    #[error(
        "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
    )]
    NoDefault,
    /// A narrower set of zones would do if less were in use.
    #[error("[memorymanager] failed to find the default preferred hint")]
    NoPreferredDefault,
    /// No set of zones around the alignment has enough.
    #[error("[memorymanager] failed to find NUMA nodes to extend the current topology hint")]
    NoExtension,
    /// The same, in the preferred size.
    #[error("[memorymanager] failed to find the extended preferred hint")]
    NoPreferredExtension,
    /// A zone of the alignment belongs to another group of zones.
    #[error("[memorymanager] preferred hint violates NUMA node allocation")]
    Violation,
    /// An amount is no whole number of bytes.
    #[error("[memorymanager] failed to represent quantity as int64")]
    Fraction,
}

/// Why the device manager cannot hand out devices (kubelet 1.36 `devicesToAllocate`).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The container has another number already.
    #[error(
        "pod {pod:?} container {container:?} changed request for resource {resource:?} from {held} to {requested}"
    )]
    Changed {
        /// The pod's UID.
        pod: Box<str>,
        /// The container.
        container: Box<str>,
        /// The resource.
        resource: &'static str,
        /// Devices that it has.
        held: usize,
        /// Devices that it asks for.
        requested: usize,
    },
    /// No plugin serves the resource.
    #[error("cannot allocate unregistered device {0}")]
    Unregistered(ResourceName),
    /// No device is healthy.
    #[error("no healthy devices present; cannot allocate unhealthy devices {0}")]
    NoneHealthy(ResourceName),
    /// A device that the container has is not healthy.
    #[error("previously allocated devices are no longer healthy; cannot allocate unhealthy devices {0}")]
    Unhealthy(ResourceName),
    /// Too few.
    #[error(
        "requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}"
    )]
    Unavailable {
        /// The resource.
        resource: ResourceName,
        /// Devices still needed.
        requested: usize,
        /// Free devices.
        available: usize,
    },
}

impl Rejection {
    /// The pod's `status.reason`; `Endless`, which no kubelet says, where it never decides.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::TopologyAffinity | Self::PodTopologyAffinity { .. } => TOPOLOGY_AFFINITY.to_owned(),
            Self::NotWholeCores { .. } | Self::TooFewCores { .. } => "SMTAlignmentError".to_owned(),
            Self::Cpus(TakeError::Endless) => "Endless".to_owned(),
            Self::Cpus(_) | Self::Memory(_) | Self::Devices(_) => "UnexpectedAdmissionError".to_owned(),
            Self::EmptyPodSharedPool(_) => "EmptyPodSharedPoolError".to_owned(),
            Self::OutOf { resource, .. } => format!("OutOf{resource}"),
        }
    }
}

impl fmt::Display for Rejection {
    /// Writes the pod's `status.message`, without the kubelet's prefix.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unexpected = |f: &mut fmt::Formatter<'_>, error: &dyn fmt::Display| {
            write!(f, "Allocate failed due to {error}, which is unexpected")
        };
        match self {
            Self::TopologyAffinity => f.write_str("Resources cannot be allocated with Topology locality"),
            Self::PodTopologyAffinity { pod_scope: true } => f.write_str(
                "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager",
            ),
            Self::PodTopologyAffinity { pod_scope: false } => f.write_str(
                "Pod Scope pod with pod-level resources failed admission with a container-level topology manager",
            ),
            Self::NotWholeCores { requested, per_core } => write!(
                f,
                "SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {per_core}"
            ),
            Self::TooFewCores { requested, per_core, available } => write!(
                f,
                "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, \
                 requested CPUs = {requested}, CPUs per core = {per_core}"
            ),
            Self::Cpus(error) => unexpected(f, error),
            Self::Memory(error) => unexpected(f, error),
            Self::Devices(error) => unexpected(f, error),
            Self::EmptyPodSharedPool(message) => f.write_str(message),
            Self::OutOf { resource, requested, used, capacity } => write!(
                f,
                "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, \
                 capacity: {capacity}"
            ),
        }
    }
}

impl std::error::Error for Rejection {}

impl From<TakeError> for Rejection {
    fn from(error: TakeError) -> Self {
        Self::Cpus(error)
    }
}

impl From<MemoryError> for Rejection {
    fn from(error: MemoryError) -> Self {
        Self::Memory(error)
    }
}

impl From<DeviceError> for Rejection {
    fn from(error: DeviceError) -> Self {
        Self::Devices(error)
    }
}
