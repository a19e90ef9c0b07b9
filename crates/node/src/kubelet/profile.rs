//! What a configuration means to the model of the kubelet's admission.
//!
//! In: a [`Configuration`], the kubelet's version, its machine. Out: a [`KubeletProfile`] with what the node may give
//! to pods. Never: a check of the two against each other; the model starts a kubelet or says why not.
//!
//! Source of allocatable amounts: kubelet 1.36 `nodestatus.MachineInfo`, `cm.GetNodeAllocatableReservation`.

use topology::kubelet::machine::Machine;
use topology::kubelet::profile::{
    CpuManager, CpuOptions, KubeletProfile, MaxNumaNodes, MemoryManager, Minor, ReservedCpus,
};
use topology::policy::{CpuOption, Manager};
use topology::resource::ResourceName;

use super::config::{self, Configuration};

/// The feature gate of resource managers for whole pods.
const POD_LEVEL_MANAGERS: &str = "PodLevelResourceManagers";

/// The profile of a kubelet with this configuration on this machine.
#[must_use]
pub fn profile(configuration: &Configuration, minor: Minor, machine: &Machine) -> KubeletProfile {
    let rules = configuration.rules;
    let options: CpuOptions =
        CpuOption::ALL.into_iter().filter(|option| configuration.cpu_option(*option)).collect();
    let memory = configuration.reserved_memory.iter();
    let reserved = memory.flat_map(|(zone, types)| types.iter().map(|(name, bytes)| (zone.0, *name, *bytes)));
    KubeletProfile {
        minor,
        policy: rules.policy,
        scope: rules.scope,
        prefer_closest: configuration.prefers_closest_numa_nodes(),
        max_numa_nodes: MaxNumaNodes(configuration.max_allowable_numa_nodes),
        cpu_manager: match rules.cpu_manager {
            Manager::Static => CpuManager::Static { options, reserved: reserved_cpus(configuration) },
            Manager::Off | Manager::Unknown => CpuManager::None,
        },
        memory_manager: match rules.memory_manager {
            Manager::Static => MemoryManager::Static { reserved: reserved.collect() },
            Manager::Off | Manager::Unknown => MemoryManager::None,
        },
        pod_level_managers: minor >= Minor::V36
            && configuration.feature_gates.get(POD_LEVEL_MANAGERS).copied().unwrap_or(false),
        allocatable: Some(allocatable(configuration, machine)),
        unreserved_memory: Some(capacity(machine) - reserved_amount(configuration, ResourceName::MEMORY)),
    }
}

fn reserved_cpus(configuration: &Configuration) -> ReservedCpus {
    match &configuration.reserved_cpus {
        config::ReservedCpus::Listed(cpus) => ReservedCpus::Named(cpus.clone()),
        amount @ config::ReservedCpus::Amount(_) => {
            ReservedCpus::Count(usize::try_from(amount.count()).unwrap_or(usize::MAX))
        }
    }
}

/// The machine's memory in bytes.
fn capacity(machine: &Machine) -> i64 {
    machine.zones().iter().map(|zone| signed(zone.memory)).fold(0, i64::saturating_add)
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn reserved_amount(configuration: &Configuration, name: ResourceName) -> i64 {
    configuration.reserved_amounts.get(&name).map_or(0, |amount| amount.value())
}

/// What the node may give to pods, in base units: capacity without what is reserved.
fn allocatable(configuration: &Configuration, machine: &Machine) -> Vec<(ResourceName, i64)> {
    let cpu_reserved = match &configuration.reserved_cpus {
        config::ReservedCpus::Listed(cpus) => signed(cpus.len() as u64) * 1000,
        config::ReservedCpus::Amount(amount) => amount.milli_value(),
    };
    let mut pages = std::collections::BTreeMap::<ResourceName, u64>::new();
    for (name, bytes) in machine.zones().iter().flat_map(|zone| &zone.hugepages) {
        *pages.entry(*name).or_default() += bytes;
    }
    let all_pages: u64 = pages.values().sum();
    let all = capacity(machine);
    let memory = all
        - reserved_amount(configuration, ResourceName::MEMORY)
        - configuration.eviction_memory.bytes(all.unsigned_abs());
    let mut amounts = vec![
        (ResourceName::CPU, signed(machine.cpus().len() as u64) * 1000 - cpu_reserved),
        (ResourceName::MEMORY, memory.max(0) - signed(all_pages)),
        (ResourceName::PODS, i64::from(configuration.max_pods)),
    ];
    amounts.extend(
        pages.into_iter().map(|(name, bytes)| (name, signed(bytes) - reserved_amount(configuration, name))),
    );
    amounts.iter_mut().for_each(|(_, amount)| *amount = (*amount).max(0));
    amounts
}
