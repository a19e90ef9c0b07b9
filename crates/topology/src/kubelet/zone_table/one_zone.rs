//! Verdicts that one zone decides: it has all that a pod asks for, or no zone has the CPUs of one container. The node's
//! free CPUs may decide too.
//!
//! In: a [`ZoneTable`], a pod. Out: the verdict of the managers where it can be seen without their hints, which is so
//! for nearly all pods. Never: a verdict where CPUs, memory or devices of several zones could count.
//!
//! A zone that has all of a pod's amounts is an alignment that every manager prefers, under every policy. Containers
//! that were aligned to other zones leave it as it is, and those in it leave the rest of the sum, so each next
//! container finds it too.

use smallvec::SmallVec;

use crate::kubelet::Kubelet;
use crate::kubelet::cpu_manager::{StaticPolicy, TakeError};
use crate::kubelet::hint::ZoneMask;
use crate::kubelet::pod::{MemoryAmounts, Pod};
use crate::kubelet::rejection::Rejection;
use crate::kubelet::zone_table::devices::DeviceCounts;
use crate::kubelet::zone_table::{Fit, ZoneTable};
use crate::policy::{CpuOption, Policy, Scope};
use crate::request::{ContainerKind, Qos};

/// What one zone has to hold.
struct Wanted<'a> {
    cpus: usize,
    /// None where the memory manager has no say.
    memory: Option<&'a MemoryAmounts>,
    devices: SmallVec<[(&'a DeviceCounts, usize); 2]>,
}

/// The verdict; `None` where hints have to be looked at. Cost: zones x resources, without an allocation.
pub(super) fn decide(kubelet: &Kubelet, table: &ZoneTable, pod: &Pod) -> Option<Fit> {
    if pod.pod_level {
        return None;
    }
    if kubelet.cpus.as_ref().is_some_and(|cpus| is_too_wide(kubelet, cpus, table, pod)) {
        return Some(Fit::No(Rejection::TopologyAffinity));
    }
    let wanted = wanted(kubelet, table, pod)?;
    let (requested, available) = (wanted.cpus, table.counts.cpus.total);
    if requested > available && pod.containers.len() == 1 && !kubelet.profile.policy.enforces() {
        return Some(Fit::No(TakeError::NotEnough { requested, available }.into()));
    }
    let mut zones = kubelet.machine.zone_mask().iter();
    (zones.any(|zone| has_all(kubelet, table, &wanted, zone)) && table.has_room(pod)).then_some(Fit::Yes)
}

/// Whether alignment is enforced, and the zones have too few CPUs: each of them if it must be one, or all.
fn is_too_wide(kubelet: &Kubelet, cpus: &StaticPolicy, table: &ZoneTable, pod: &Pod) -> bool {
    let profile = &kubelet.profile;
    let (by_zone, wanted) = (&table.counts.cpus.by_zone, pod.cpus);
    let needs_one_zone = || match profile.policy {
        Policy::SingleNumaNode => true,
        Policy::Restricted => !cpus.options().has(CpuOption::AlignBySocket) && cpus.narrowest(wanted) == 1,
        Policy::BestEffort | Policy::None => false,
    };
    // Containers one after the other could be refused for another reason first.
    profile.policy.enforces()
        && (profile.scope == Scope::Pod || pod.containers.len() == 1)
        && by_zone.iter().all(|count| *count < wanted)
        && (needs_one_zone() || by_zone.iter().sum::<usize>() < wanted)
}

/// `None` where the sum of the containers does not say it all.
fn wanted<'a>(kubelet: &'a Kubelet, table: &'a ZoneTable, pod: &'a Pod) -> Option<Wanted<'a>> {
    if pod.containers.iter().any(|container| container.kind != ContainerKind::App) {
        return None;
    }
    let cpus = kubelet.cpus.as_ref().map_or(0, |_| pod.cpus);
    if cpus > 0 {
        are_free_for_all(kubelet.cpus.as_ref()?, table, pod).then_some(())?;
    }
    let memory = match kubelet.memory.as_ref().filter(|_| pod.qos == Qos::Guaranteed) {
        None => None,
        Some(policy) => {
            // A container without memory gets a default alignment of its own.
            let states =
                |amounts: &Option<MemoryAmounts>| amounts.as_ref().is_some_and(|all| !all.is_empty());
            let all_state = pod.containers.iter().all(|container| states(&container.memory));
            Some(pod.memory.as_ref().filter(|_| all_state && !policy.is_over_reserved())?)
        }
    };
    let mut devices = SmallVec::new();
    for (name, count) in &pod.devices {
        // Names that no plugin serves are the totals' affair.
        let Some(counts) = table.counts.devices.iter().find(|counts| counts.name == *name) else { continue };
        (*count > 0 && counts.check(*count).is_ok()).then_some(())?;
        if counts.has_zones {
            devices.push((counts, *count));
        }
    }
    Some(Wanted { cpus, memory, devices })
}

/// Whether the CPU manager hands out the CPUs for sure where a zone has them.
fn are_free_for_all(policy: &StaticPolicy, table: &ZoneTable, pod: &Pod) -> bool {
    let (least, _) = table.counts.cpus.on_whole_cores;
    let are_cores = |count| policy.check_cores(least, count).is_ok();
    policy.is_regular()
        && !policy.options().has(CpuOption::DistributeAcrossNuma)
        && are_cores(pod.cpus)
        && pod.containers.iter().all(|container| are_cores(container.cpus))
}

fn has_all(kubelet: &Kubelet, table: &ZoneTable, wanted: &Wanted<'_>, zone: u32) -> bool {
    let has_memory =
        |amounts: &MemoryAmounts| table.memory_of(kubelet, zone).is_some_and(|memory| memory.holds(amounts));
    let has_devices = |(counts, count): &(&DeviceCounts, usize)| counts.near(ZoneMask::of(zone)) >= *count;
    (wanted.cpus == 0 || table.cpus_of(kubelet, zone) >= wanted.cpus)
        && wanted.memory.is_none_or(has_memory)
        && wanted.devices.iter().all(has_devices)
}
