//! How a kubelet is configured: version, managers, policies, options and reservations.
//!
//! In: values of a KubeletConfiguration, as types. Out: a [`KubeletProfile`], and the reserved sets that it means on a
//! machine, or the error with which the kubelet refuses to start. Never: the text of a configuration file.

use crate::cpuset::CpuSet;
use crate::kubelet::machine::Machine;
use crate::kubelet::pod::PodUid;
use crate::policy::{CpuOption, DEFAULT_MAX_NUMA_NODES, Policy, Scope};
use crate::quantity::{Format, Quantity};
use crate::resource::ResourceName;

/// The minor version of a kubelet whose admission is modelled. Behaviour between minors differs in few places, each of
/// which names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Minor {
    /// 1.34 and earlier.
    V34,
    /// 1.35.
    V35,
    /// 1.36.
    #[default]
    V36,
    /// 1.37 and later.
    V37,
}

/// A version of which the kubelet's admission is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kubelet's admission is known for 1.34, 1.35, 1.36 and 1.37")]
pub struct UnknownMinor;

/// From `1.36`, `1.36.3` or `v1.36.3`.
///
/// ```
/// use topology::kubelet::profile::Minor;
///
/// assert_eq!("v1.35.4".parse(), Ok(Minor::V35));
/// assert!("2.35".parse::<Minor>().is_err() && "1.30".parse::<Minor>().is_err());
/// ```
impl std::str::FromStr for Minor {
    type Err = UnknownMinor;

    fn from_str(version: &str) -> Result<Self, UnknownMinor> {
        let minor = version.strip_prefix('v').unwrap_or(version).strip_prefix("1.").ok_or(UnknownMinor)?;
        match minor.split('.').next() {
            Some("34") => Ok(Self::V34),
            Some("35") => Ok(Self::V35),
            Some("36") => Ok(Self::V36),
            Some("37") => Ok(Self::V37),
            _ => Err(UnknownMinor),
        }
    }
}

/// How far an option is, which decides about its feature gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Off but for the gate `CPUManagerPolicyAlphaOptions`.
    Alpha,
    /// On but for the gate `CPUManagerPolicyBetaOptions`.
    Beta,
    /// Always there.
    Stable,
}

impl Stage {
    /// The stage of an option of the CPU manager (kubelet 1.34 to 1.37 `cpumanager/policy_options.go`).
    #[must_use]
    pub fn of(option: CpuOption, minor: Minor) -> Self {
        match option {
            CpuOption::AlignBySocket | CpuOption::DistributeAcrossCores => Self::Alpha,
            CpuOption::DistributeAcrossNuma => Self::Beta,
            CpuOption::PreferUncoreCache if minor < Minor::V36 => Self::Beta,
            CpuOption::StrictReservation if minor < Minor::V35 => Self::Beta,
            CpuOption::PreferUncoreCache | CpuOption::StrictReservation | CpuOption::FullPcpusOnly => {
                Self::Stable
            }
        }
    }

    /// The kubelet's word for the stage.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alpha => "Alpha",
            Self::Beta => "Beta",
            Self::Stable => "Stable",
        }
    }
}

/// A set of CPU manager options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuOptions(u8);

/// The CPU manager's policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum CpuManager {
    /// `none`: no exclusive CPUs.
    #[default]
    None,
    /// `static`.
    Static {
        /// The policy's options.
        options: CpuOptions,
        /// What is reserved for the system.
        reserved: ReservedCpus,
    },
}

/// The feature gate of [`KubeletProfile::pod_level_managers`].
pub const POD_LEVEL_MANAGERS: &str = "PodLevelResourceManagers";

/// CPUs that the kubelet keeps for the system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReservedCpus {
    /// `reservedSystemCPUs`.
    Named(CpuSet),
    /// The number that `kubeReserved` and `systemReserved` come to, rounded up. The kubelet chooses them as it chooses
    /// CPUs for a container.
    Count(usize),
}

/// The memory manager's policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum MemoryManager {
    /// `None`: no memory is pinned.
    #[default]
    None,
    /// `Static`.
    Static {
        /// `reservedMemory`: by zone and type, in bytes.
        reserved: Vec<(u32, ResourceName, u64)>,
    },
}

/// The configuration of one kubelet, as far as it decides admissions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KubeletProfile {
    /// The kubelet's version.
    pub minor: Minor,
    /// `topologyManagerPolicy`.
    pub policy: Policy,
    /// `topologyManagerScope`.
    pub scope: Scope,
    /// The option `prefer-closest-numa-nodes`.
    pub prefer_closest: bool,
    /// The option `max-allowable-numa-nodes`.
    pub max_numa_nodes: MaxNumaNodes,
    /// The CPU manager.
    pub cpu_manager: CpuManager,
    /// The memory manager.
    pub memory_manager: MemoryManager,
    /// What is kept of memory and huge pages on the whole node, in bytes: reserved for the system and the kubelet, and
    /// the threshold of hard eviction. The memory manager's reservations must come to the same. `None`: not compared.
    pub kept_memory: Option<Vec<(ResourceName, i64)>>,
    /// Whether resources of whole pods are managed (feature gate `PodLevelResourceManagers`).
    pub pod_level_managers: bool,
    /// What the node may give to pods, in base units; resources that are not listed are not there. `None`: totals are
    /// not checked. Devices need not be listed.
    pub allocatable: Option<Vec<(ResourceName, i64)>>,
    /// The node's memory that is not reserved, in bytes: with huge pages, and with what evictions keep free. Up to 1.35
    /// a resize beyond it is infeasible. `None`: not checked.
    pub unreserved_memory: Option<i64>,
}

/// The most NUMA nodes for which the Topology Manager starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MaxNumaNodes(pub u32);

impl Default for MaxNumaNodes {
    fn default() -> Self {
        Self(DEFAULT_MAX_NUMA_NODES)
    }
}

impl CpuOptions {
    /// No option.
    pub const NONE: Self = Self(0);

    /// Whether an option is on.
    #[must_use]
    pub fn has(self, option: CpuOption) -> bool {
        self.0 & Self::bit(option) != 0
    }

    /// These options and one more.
    #[must_use]
    pub fn with(self, option: CpuOption) -> Self {
        Self(self.0 | Self::bit(option))
    }

    /// The options that are on.
    pub fn iter(self) -> impl Iterator<Item = CpuOption> {
        CpuOption::ALL.into_iter().filter(move |option| self.has(*option))
    }

    /// Two options that the kubelet refuses together (kubelet 1.36 `NewStaticPolicyOptions`), if both are on.
    #[must_use]
    pub fn contradiction(self) -> Option<(CpuOption, CpuOption)> {
        [
            (CpuOption::FullPcpusOnly, CpuOption::DistributeAcrossCores),
            (CpuOption::DistributeAcrossNuma, CpuOption::DistributeAcrossCores),
            (CpuOption::PreferUncoreCache, CpuOption::DistributeAcrossCores),
            (CpuOption::PreferUncoreCache, CpuOption::DistributeAcrossNuma),
        ]
        .into_iter()
        .find(|(one, other)| self.has(*one) && self.has(*other))
    }

    fn bit(option: CpuOption) -> u8 {
        1 << option as u8
    }
}

impl FromIterator<CpuOption> for CpuOptions {
    fn from_iter<T: IntoIterator<Item = CpuOption>>(options: T) -> Self {
        options.into_iter().fold(Self::NONE, Self::with)
    }
}

/// Why a kubelet refuses to start, in its own words where it has some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// More zones than allowed.
    #[error("unsupported on machines with more than {0} NUMA Nodes")]
    TooManyZones(u32),
    /// No distances, and `prefer-closest-numa-nodes`.
    #[error("cannot discover NUMA topology: error getting NUMA distances from cadvisor")]
    NoDistances,
    /// An option of the CPU manager that this kubelet does not know.
    #[error("unknown CPU Manager Policy option: {0:?}")]
    UnknownCpuOption(String),
    /// An option of the CPU manager whose feature gate is off.
    #[error("CPU Manager Policy {}-level Options not enabled, but option {:?} provided", .1.as_str(), .0.as_str())]
    GatedCpuOption(CpuOption, Stage),
    /// An option of the Topology Manager that this kubelet does not know.
    #[error("unknown Topology Manager Policy option: {0:?}")]
    UnknownTopologyOption(String),
    /// Two options of the CPU manager contradict each other.
    #[error("static policy options {} and {} can not be used at the same time", .0.as_str(), .1.as_str())]
    Contradiction(CpuOption, CpuOption),
    /// `align-by-socket` and `single-numa-node`.
    #[error(
        "Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option"
    )]
    SocketsUnderSingleNumaNode,
    /// `align-by-socket` on a machine with more sockets than zones.
    #[error(
        "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA"
    )]
    MoreSocketsThanZones,
    /// No CPU is reserved.
    #[error(
        "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"
    )]
    NoReservedCpus,
    /// Reserved CPUs are not there.
    #[error(
        "[cpumanager] unable to reserve the required amount of CPUs (size of {found} did not equal {wanted})"
    )]
    ReservedCount {
        /// The CPUs that could be reserved.
        found: Box<CpuSet>,
        /// CPUs to reserve.
        wanted: usize,
    },
    /// A reserved CPU is not on the machine.
    #[error(
        "[cpumanager] unable to build the reserved physical CPUs from the reserved set: unknown CPU ID: {0}"
    )]
    UnknownCpu(u32),
    /// All CPUs are handed out, which is possible under `strict-cpu-reservation`, and the kubelet restarts.
    #[error("start cpu manager error: default cpuset cannot be empty")]
    NoSharedCpus,
    /// Reserved CPUs were handed out, and the kubelet restarts.
    #[error(
        "start cpu manager error: not all reserved cpus: \"{reserved}\" are present in defaultCpuSet: \"{shared}\""
    )]
    UsedReserved {
        /// Reserved CPUs.
        reserved: Box<CpuSet>,
        /// CPUs that no container holds.
        shared: Box<CpuSet>,
    },
    /// Reserved CPUs are shared, and the kubelet restarts with `strict-cpu-reservation`.
    #[error(
        "start cpu manager error: some of strictly reserved cpus: \"{found}\" are present in defaultCpuSet: \"{shared}\""
    )]
    SharedReserved {
        /// Reserved CPUs that are shared.
        found: Box<CpuSet>,
        /// CPUs that no container holds.
        shared: Box<CpuSet>,
    },
    /// CPUs of a container are shared as well, and the kubelet restarts.
    #[error(
        "start cpu manager error: pod: {pod}, container: {container} cpuset: \"{cpus}\" overlaps with default cpuset \"{shared}\""
    )]
    SharedAssigned {
        /// The pod.
        pod: PodUid,
        /// The container.
        container: Box<str>,
        /// Its CPUs.
        cpus: Box<CpuSet>,
        /// CPUs that no container holds.
        shared: Box<CpuSet>,
    },
    /// The CPUs that are shared or held are not those of the machine, and the kubelet restarts.
    #[error(
        "start cpu manager error: current set of available CPUs \"{there}\" doesn't match with CPUs in state \"{known}\""
    )]
    OtherCpus {
        /// The machine's.
        there: Box<CpuSet>,
        /// The state's.
        known: Box<CpuSet>,
    },
    /// The memory of zones is not what containers hold, and the kubelet restarts.
    #[error(
        "start memory manager error: [memorymanager] the expected machine state is different from the real one"
    )]
    OtherMemory,
    /// Memory is reserved by zone, and the sum is not what the node keeps.
    #[error(
        "the total amount {:?} of type {:?} is not equal to the value {:?} determined by Node Allocatable feature",
        bytes(.reserved), .resource.as_str(), bytes(.kept)
    )]
    ReservedMemoryTotal {
        /// `memory`, or a size of huge pages.
        resource: ResourceName,
        /// The sum of `reservedMemory`, in bytes.
        reserved: i64,
        /// What the node keeps, in bytes.
        kept: i64,
    },
    /// No memory is reserved.
    #[error("[memorymanager] you should specify the system reserved memory")]
    NoReservedMemory,
    /// Memory is reserved of a zone that is not there.
    #[error(
        "the reserved memory configuration references a NUMA node {0} that does not exist on this machine"
    )]
    UnknownZone(u32),
}

/// An amount as the kubelet prints it.
fn bytes(amount: &i64) -> String {
    Quantity::from_i64(*amount, Format::BinarySI).to_string()
}

impl Refusal {
    /// CPUs that cannot be reserved.
    pub(crate) fn reserved_cpus(machine: &Machine, reserved: &ReservedCpus) -> Self {
        match reserved {
            ReservedCpus::Count(wanted) => Self::ReservedCount { found: Box::default(), wanted: *wanted },
            ReservedCpus::Named(cpus) => {
                Self::UnknownCpu(cpus.difference(machine.cpus()).first().unwrap_or(0))
            }
        }
    }
}

impl KubeletProfile {
    /// Whether a kubelet with this profile starts on a machine, in the order of the kubelet's own checks (kubelet 1.36
    /// `NewContainerManager`).
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) fn check(&self, machine: &Machine) -> Result<(), Refusal> {
        if self.policy != Policy::None {
            let zones = u32::try_from(machine.zones().len()).unwrap_or(u32::MAX);
            if self.prefer_closest && machine.zones().iter().any(|zone| zone.distances.is_empty()) {
                return Err(Refusal::NoDistances);
            }
            if zones > self.max_numa_nodes.0 {
                return Err(Refusal::TooManyZones(self.max_numa_nodes.0));
            }
        }
        if let CpuManager::Static { options, reserved } = &self.cpu_manager {
            self.check_cpus(machine, *options, reserved)?;
        }
        if let MemoryManager::Static { reserved } = &self.memory_manager {
            if let Some((zone, ..)) = reserved.iter().find(|(zone, ..)| !machine.zone_mask().contains(*zone))
            {
                return Err(Refusal::UnknownZone(*zone));
            }
            self.check_reserved_memory(reserved)?;
            let memory = reserved.iter().filter(|(_, name, _)| *name == ResourceName::MEMORY);
            if memory.map(|(.., bytes)| *bytes).all(|bytes| bytes == 0) {
                return Err(Refusal::NoReservedMemory);
            }
        }
        Ok(())
    }

    /// kubelet 1.36 memorymanager `validateReservedMemory`.
    fn check_reserved_memory(&self, by_zone: &[(u32, ResourceName, u64)]) -> Result<(), Refusal> {
        let Some(kept) = &self.kept_memory else { return Ok(()) };
        let names = kept.iter().map(|(name, _)| *name).chain(by_zone.iter().map(|(_, name, _)| *name));
        for resource in names {
            let reserved = by_zone.iter().filter(|(_, name, _)| *name == resource);
            let reserved = reserved.map(|(.., bytes)| bytes.cast_signed()).fold(0, i64::saturating_add);
            let kept = kept.iter().find(|(name, _)| *name == resource).map_or(0, |(_, bytes)| *bytes);
            if reserved != kept {
                return Err(Refusal::ReservedMemoryTotal { resource, reserved, kept });
            }
        }
        Ok(())
    }

    fn check_cpus(
        &self,
        machine: &Machine,
        options: CpuOptions,
        reserved: &ReservedCpus,
    ) -> Result<(), Refusal> {
        if *reserved == ReservedCpus::Count(0) {
            return Err(Refusal::NoReservedCpus);
        }
        if let Some((one, other)) = options.contradiction() {
            return Err(Refusal::Contradiction(one, other));
        }
        if options.has(CpuOption::AlignBySocket) {
            if self.policy == Policy::SingleNumaNode {
                return Err(Refusal::SocketsUnderSingleNumaNode);
            }
            if machine.sockets().len() > machine.cpu_zones().len() {
                return Err(Refusal::MoreSocketsThanZones);
            }
        }
        match reserved {
            ReservedCpus::Named(cpus) if !cpus.is_subset(machine.cpus()) => {
                Err(Refusal::reserved_cpus(machine, reserved))
            }
            _ => Ok(()),
        }
    }
}
