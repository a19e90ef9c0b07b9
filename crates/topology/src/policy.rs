//! How a node's kubelet aligns: Topology Manager policy and scope, and the resource managers that are on.
//!
//! In: the kubelet's own spellings. Out: enums. Unknown spellings are `None`; the caller decides what that means.
//!
//! # Example
//! ```
//! use topology::policy::{Policy, Scope};
//!
//! assert_eq!(Policy::parse("single-numa-node"), Some(Policy::SingleNumaNode));
//! assert!(Policy::SingleNumaNode.enforces() && !Policy::BestEffort.enforces());
//! assert_eq!((Scope::parse("pod"), Scope::parse("Pod")), (Some(Scope::Pod), None));
//! ```

/// `topologyManagerPolicy` of the kubelet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// `none`: nothing is aligned, nothing is rejected. The kubelet's default.
    #[default]
    None,
    /// `best-effort`: aligned where possible, never rejected.
    BestEffort,
    /// `restricted`: rejected unless the best hint is preferred.
    Restricted,
    /// `single-numa-node`: rejected unless one zone holds everything.
    SingleNumaNode,
}

/// `topologyManagerScope` of the kubelet: what is aligned as a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Each container is aligned by itself, in order. The kubelet's default.
    #[default]
    Container,
    /// The pod is aligned as a whole.
    Pod,
}

/// Whether a resource manager of the kubelet (CPU or memory manager) hands out exclusive resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Manager {
    /// The exporter did not say (RTE and NFD do not). A resource that any zone lists is then taken to be managed.
    #[default]
    Unknown,
    /// Policy `none` (CPU) or `None` (memory): nothing is exclusive, so nothing is aligned.
    Off,
    /// Policy `static` (CPU) or `Static` (memory).
    Static,
}

/// The rules by which a node's kubelet admits pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rules {
    /// The Topology Manager's policy.
    pub policy: Policy,
    /// The Topology Manager's scope.
    pub scope: Scope,
    /// Whether the CPU manager hands out exclusive CPUs.
    pub cpu_manager: Manager,
    /// Whether the memory manager pins memory.
    pub memory_manager: Manager,
}

/// The Topology Manager's option (`topologyManagerPolicyOptions`) to prefer zones close to each other where several are
/// needed.
pub const PREFER_CLOSEST_NUMA_NODES: &str = "prefer-closest-numa-nodes";
/// The Topology Manager's option for machines with more NUMA nodes than [`DEFAULT_MAX_NUMA_NODES`].
pub const MAX_ALLOWABLE_NUMA_NODES: &str = "max-allowable-numa-nodes";
/// The default of [`MAX_ALLOWABLE_NUMA_NODES`], and its smallest value.
pub const DEFAULT_MAX_NUMA_NODES: u32 = 8;

/// An option of the CPU manager's policy `static` (`cpuManagerPolicyOptions`). All are booleans, off by default. Names
/// of kubelet 1.36 (`cpumanager/policy_options.go`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CpuOption {
    /// `full-pcpus-only`: whole cores only; a request that is not a multiple of a core's threads is rejected.
    FullPcpusOnly,
    /// `distribute-cpus-across-numa`: evenly over the zones where more than one is needed.
    DistributeAcrossNuma,
    /// `align-by-socket`: sockets count as aligned, not zones.
    AlignBySocket,
    /// `distribute-cpus-across-cores`: one thread of each core first.
    DistributeAcrossCores,
    /// `strict-cpu-reservation`: reserved CPUs are not in the shared pool either.
    StrictReservation,
    /// `prefer-align-cpus-by-uncorecache`: under as few last-level caches as possible.
    PreferUncoreCache,
}

impl CpuOption {
    /// Every option.
    pub const ALL: [Self; 6] = [
        Self::FullPcpusOnly,
        Self::DistributeAcrossNuma,
        Self::AlignBySocket,
        Self::DistributeAcrossCores,
        Self::StrictReservation,
        Self::PreferUncoreCache,
    ];

    /// Parses the kubelet's spelling of an option, exactly.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|option| option.as_str() == text)
    }

    /// The kubelet's spelling of the option.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FullPcpusOnly => "full-pcpus-only",
            Self::DistributeAcrossNuma => "distribute-cpus-across-numa",
            Self::AlignBySocket => "align-by-socket",
            Self::DistributeAcrossCores => "distribute-cpus-across-cores",
            Self::StrictReservation => "strict-cpu-reservation",
            Self::PreferUncoreCache => "prefer-align-cpus-by-uncorecache",
        }
    }
}

impl Policy {
    /// Parses the kubelet's spelling of a policy, exactly.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "none" => Self::None,
            "best-effort" => Self::BestEffort,
            "restricted" => Self::Restricted,
            "single-numa-node" => Self::SingleNumaNode,
            _ => return None,
        })
    }

    /// The kubelet's spelling of the policy.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::BestEffort => "best-effort",
            Self::Restricted => "restricted",
            Self::SingleNumaNode => "single-numa-node",
        }
    }

    /// Whether the kubelet rejects pods it cannot align under this policy.
    #[must_use]
    pub fn enforces(self) -> bool {
        matches!(self, Self::Restricted | Self::SingleNumaNode)
    }
}

impl Scope {
    /// Parses the kubelet's spelling of a scope, exactly.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "container" => Some(Self::Container),
            "pod" => Some(Self::Pod),
            _ => None,
        }
    }

    /// The kubelet's spelling of the scope.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Pod => "pod",
        }
    }
}

impl Manager {
    /// Parses `cpuManagerPolicy` (`none`, `static`) or `memoryManagerPolicy` (`None`, `Static`); anything else is
    /// unknown.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "none" | "None" => Self::Off,
            "static" | "Static" => Self::Static,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_round_trip_and_are_case_sensitive() {
        for text in ["none", "best-effort", "restricted", "single-numa-node"] {
            assert_eq!(Policy::parse(text).map(Policy::as_str), Some(text));
        }
        for text in ["container", "pod"] {
            assert_eq!(Scope::parse(text).map(Scope::as_str), Some(text));
        }
        for text in ["", "None", "Single-numa-node", "Pod", "single-numa-node "] {
            assert_eq!((Policy::parse(text), Scope::parse(text)), (None, None), "{text:?}");
        }
    }

    #[test]
    fn option_names_round_trip() {
        for option in CpuOption::ALL {
            assert_eq!(CpuOption::parse(option.as_str()), Some(option));
        }
        assert_eq!(CpuOption::parse("Full-pcpus-only"), None);
    }

    #[test]
    fn managers_read_both_spellings() {
        assert_eq!(Manager::parse("none"), Manager::Off);
        assert_eq!(Manager::parse("Static"), Manager::Static);
        assert_eq!(Manager::parse("BestEffort"), Manager::Unknown);
    }
}
