//! The hints of all resource managers, as one type that the Topology Manager merges.

use smallvec::SmallVec;

use crate::kubelet::cpu_manager::CpuHints;
use crate::kubelet::device_manager::DeviceHints;
use crate::kubelet::hint::ZoneMask;
use crate::kubelet::memory_manager::{HeldHints, MemoryHints};
use crate::kubelet::topology_manager::{HintSource, Hints};

/// The hints for one container, or for a pod as a whole.
pub(crate) type HintList<'a> = SmallVec<[Hints<Source<'a>>; 4]>;

/// The alignments that one resource manager offers.
#[derive(Clone, Debug)]
pub(crate) enum Source<'a> {
    Cpus(CpuHints<'a>),
    Memory(MemoryHints<'a>),
    HeldMemory(HeldHints),
    Devices(DeviceHints<'a>),
}

impl HintSource for Source<'_> {
    fn domain(&self) -> ZoneMask {
        match self {
            Self::Cpus(hints) => hints.domain(),
            Self::Memory(hints) => hints.domain(),
            Self::HeldMemory(hints) => hints.domain(),
            Self::Devices(hints) => hints.domain(),
        }
    }

    fn satisfies(&self, zones: ZoneMask) -> bool {
        match self {
            Self::Cpus(hints) => hints.satisfies(zones),
            Self::Memory(hints) => hints.satisfies(zones),
            Self::HeldMemory(hints) => hints.satisfies(zones),
            Self::Devices(hints) => hints.satisfies(zones),
        }
    }

    fn may_satisfy(&self, chosen: ZoneMask, others: ZoneMask, count: u32) -> bool {
        match self {
            Self::Cpus(hints) => hints.may_satisfy(chosen, others, count),
            Self::Memory(hints) => hints.may_satisfy(chosen, others, count),
            Self::HeldMemory(hints) => hints.may_satisfy(chosen, others, count),
            Self::Devices(hints) => hints.may_satisfy(chosen, others, count),
        }
    }

    fn narrowest(&self) -> u32 {
        match self {
            Self::Cpus(hints) => hints.narrowest(),
            Self::Memory(hints) => hints.narrowest(),
            Self::HeldMemory(hints) => hints.narrowest(),
            Self::Devices(hints) => hints.narrowest(),
        }
    }

    fn prefers(&self, zones: ZoneMask) -> bool {
        match self {
            Self::Cpus(hints) => hints.prefers(zones),
            Self::Memory(hints) => hints.prefers(zones),
            Self::HeldMemory(hints) => hints.prefers(zones),
            Self::Devices(hints) => hints.prefers(zones),
        }
    }

    fn resources(&self) -> usize {
        match self {
            Self::Memory(hints) => hints.resources(),
            Self::Cpus(_) | Self::HeldMemory(_) | Self::Devices(_) => 1,
        }
    }

    fn prefers_any_size(&self) -> bool {
        matches!(self, Self::Cpus(hints) if hints.prefers_any_size())
    }
}
