//! What a configuration means to the model of the kubelet's admission.
//!
//! In: a [`Configuration`], the kubelet's version, its machine. Out: a [`KubeletProfile`] with what the node may give
//! to pods. Never: a check of the two against each other; the model starts a kubelet or says why not.
//!
//! Source of allocatable amounts: kubelet 1.36 `nodestatus.MachineInfo`, `cm.GetNodeAllocatableReservation`.

use std::collections::BTreeMap;

use topology::kubelet::machine::Machine;
use topology::kubelet::profile::{
    CpuManager, CpuOptions, KubeletProfile, MaxNumaNodes, MemoryManager, Minor, POD_LEVEL_MANAGERS, Refusal,
    ReservedCpus, Stage,
};
use topology::policy::{CpuOption, MAX_ALLOWABLE_NUMA_NODES, Manager, PREFER_CLOSEST_NUMA_NODES, Policy};
use topology::resource::{ResourceKind, ResourceName};

use super::config::{self, Configuration};

/// The profile of a kubelet with this configuration on this machine.
///
/// # Errors
/// [`Refusal`] where an option is not known, or its feature gate is off.
pub fn profile(
    configuration: &Configuration,
    minor: Minor,
    machine: &Machine,
) -> Result<KubeletProfile, Refusal> {
    let rules = configuration.rules;
    check_options(configuration, minor)?;
    let options: CpuOptions =
        CpuOption::ALL.into_iter().filter(|option| configuration.cpu_option(*option)).collect();
    let memory = configuration.reserved_memory.iter();
    let reserved = memory.flat_map(|(zone, types)| types.iter().map(|(name, bytes)| (zone.0, *name, *bytes)));
    Ok(KubeletProfile {
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
        kept_memory: Some(kept_memory(configuration, machine).into_iter().collect()),
        pod_level_managers: minor >= Minor::V36
            && configuration.feature_gates.get(POD_LEVEL_MANAGERS).copied().unwrap_or(false),
        allocatable: Some(allocatable(configuration, machine)),
        unreserved_memory: Some(unreserved_memory(configuration, machine)),
    })
}

/// kubelet 1.36 `CheckPolicyOptionAvailable` of both managers. Options of managers that are off are not looked at.
fn check_options(configuration: &Configuration, minor: Minor) -> Result<(), Refusal> {
    let known = [PREFER_CLOSEST_NUMA_NODES, MAX_ALLOWABLE_NUMA_NODES];
    let mut names = configuration.topology_manager_options.keys();
    let unknown = names.find(|name| !known.contains(&name.as_str()));
    if let Some(name) = unknown.filter(|_| configuration.rules.policy != Policy::None) {
        return Err(Refusal::UnknownTopologyOption(name.clone()));
    }
    if configuration.rules.cpu_manager != Manager::Static {
        return Ok(());
    }
    let gate = |name, default| configuration.feature_gates.get(name).copied().unwrap_or(default);
    for name in configuration.cpu_manager_options.keys() {
        let option = CpuOption::parse(name).ok_or_else(|| Refusal::UnknownCpuOption(name.clone()))?;
        let stage = Stage::of(option, minor);
        let is_there = match stage {
            Stage::Alpha => gate("CPUManagerPolicyAlphaOptions", false),
            Stage::Beta => gate("CPUManagerPolicyBetaOptions", true),
            Stage::Stable => true,
        };
        if !is_there {
            return Err(Refusal::GatedCpuOption(option, stage));
        }
    }
    Ok(())
}

/// What the node keeps of memory and huge pages, in bytes (kubelet 1.36 `GetNodeAllocatableReservation`).
fn kept_memory(configuration: &Configuration, machine: &Machine) -> BTreeMap<ResourceName, i64> {
    let reserved = configuration.reserved_amounts.iter();
    let memory = reserved.filter(|(name, _)| name.kind() == ResourceKind::Memory);
    let mut kept: BTreeMap<_, _> = memory.map(|(name, amount)| (*name, amount.value())).collect();
    let evicted = configuration.eviction_memory.bytes(capacity(machine).unsigned_abs());
    let memory = kept.entry(ResourceName::MEMORY).or_default();
    *memory = memory.saturating_add(evicted);
    kept
}

fn unreserved_memory(configuration: &Configuration, machine: &Machine) -> i64 {
    let reserved = configuration.reserved_amounts.get(&ResourceName::MEMORY);
    capacity(machine) - reserved.map_or(0, |amount| amount.value())
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

/// What the node may give to pods, in base units: capacity without what is reserved.
fn allocatable(configuration: &Configuration, machine: &Machine) -> Vec<(ResourceName, i64)> {
    let cpu_reserved = match &configuration.reserved_cpus {
        config::ReservedCpus::Listed(cpus) => signed(cpus.len() as u64) * 1000,
        config::ReservedCpus::Amount(amount) => amount.milli_value(),
    };
    let kept = kept_memory(configuration, machine);
    let kept = |name| kept.get(&name).copied().unwrap_or(0);
    let mut pages = BTreeMap::<ResourceName, u64>::new();
    for (name, bytes) in machine.zones().iter().flat_map(|zone| &zone.hugepages) {
        *pages.entry(*name).or_default() += bytes;
    }
    let all_pages: u64 = pages.values().sum();
    let memory = capacity(machine) - kept(ResourceName::MEMORY);
    let mut amounts = vec![
        (ResourceName::CPU, signed(machine.cpus().len() as u64) * 1000 - cpu_reserved),
        (ResourceName::MEMORY, memory.max(0) - signed(all_pages)),
        (ResourceName::PODS, i64::from(configuration.max_pods)),
    ];
    amounts.extend(pages.into_iter().map(|(name, bytes)| (name, signed(bytes) - kept(name))));
    amounts.iter_mut().for_each(|(_, amount)| *amount = (*amount).max(0));
    amounts
}
