//! What a report of tholepin's exporter says of its node beyond amounts: machine and configuration by ids, and what is
//! handed out.
//!
//! In: values of the report's attributes. Out: the same, as the model of the kubelet has them. Never: a check against
//! the amounts of the zones.

use crate::cpuset::CpuSet;
use crate::kubelet::hint::ZoneMask;
use crate::kubelet::machine::Cpu;
use crate::kubelet::profile::{CpuOptions, Minor};
use crate::placement::holdings::Holdings;
use crate::resource::ResourceName;

/// A kubelet, as its node's report describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletReport {
    /// The kubelet's version; `None` if the report does not say, or it is one that the model does not know.
    pub minor: Option<Minor>,
    /// Options of the CPU manager.
    pub cpu_options: CpuOptions,
    /// The option `prefer-closest-numa-nodes`.
    pub prefer_closest: bool,
    /// Whether resources of whole pods are managed (feature gate `PodLevelResourceManagers`).
    pub pod_level_managers: bool,
    /// CPUs that are handed out to no container.
    pub reserved_cpus: CpuSet,
    /// All CPUs, with core, cache, socket and zone.
    pub cpus: Vec<Cpu>,
    /// CPUs that are neither reserved nor held.
    pub free_cpus: CpuSet,
    /// Sets of zones whose memory is handed out together.
    pub memory_groups: Vec<ZoneMask>,
    /// Devices that are close to several zones.
    pub device_groups: Vec<ReportedDeviceGroup>,
    /// What containers hold. Those of ended pods may be among them.
    pub holdings: Holdings,
}

/// Devices of one resource that are close to the same zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedDeviceGroup {
    /// The resource.
    pub resource: ResourceName,
    /// The zones.
    pub zones: ZoneMask,
    /// Healthy devices.
    pub allocatable: u32,
    /// Those that no container holds.
    pub available: u32,
}
