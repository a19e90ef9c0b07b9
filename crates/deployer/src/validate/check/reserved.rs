//! Resources that kubelets reserve for the system: consistent with each other and with the machine.

use std::collections::{BTreeMap, BTreeSet};

use api::keys;
use api::nrt::attribute;
use node::kubelet::{Configuration, ReservedCpus};
use topology::cpuset::CpuSet;
use topology::policy::{CpuOption, Manager};
use topology::resource::{ResourceKind, ResourceName};

use super::{Check, Findings, KUBELET};
use crate::validate::evidence::{Area, Evidence, Node, Report, Settings};

const KUBELET_AND_REPORT: &[Area] = &[Area::Nodes, Area::KubeletConfig, Area::Reports];

pub(super) const TABLE: [Check; 6] = [
    Check {
        id: "reserved-cpus-range",
        about: "reservedSystemCPUs exist on the machine and leave CPUs for pods",
        severity: "error",
        needs: KUBELET,
        why: "a kubelet does not start if a reserved CPU does not exist; if all are reserved no pod gets exclusive CPUs",
        fix: "correct reservedSystemCPUs",
        run: cpus_range,
    },
    Check {
        id: "reserved-cpus-cores",
        about: "reservedSystemCPUs are whole cores",
        severity: "warning",
        needs: KUBELET_AND_REPORT,
        why: "the other thread of a half reserved core shares it with the system, and with full-pcpus-only that thread is lost",
        fix: "reserve both threads of each core, such as 0 and 16 on a machine of 16 cores",
        run: cpus_cores,
    },
    Check {
        id: "reserved-cpus-overridden",
        about: "amounts of cpu in kubeReserved and systemReserved agree with reservedSystemCPUs",
        severity: "warning",
        needs: KUBELET,
        why: "with reservedSystemCPUs the kubelet ignores these amounts",
        fix: "remove cpu from kubeReserved and systemReserved, or list as many CPUs as they state",
        run: cpus_overridden,
    },
    Check {
        id: "reserved-zone-without-cpus",
        about: "no zone with CPUs has all of them reserved",
        severity: "warning",
        needs: KUBELET_AND_REPORT,
        why: "no pod with exclusive CPUs fits this zone, so such pods cannot use its memory and devices",
        fix: "spread reservedSystemCPUs over the zones, or reserve fewer CPUs",
        run: zone_without_cpus,
    },
    Check {
        id: "reserved-memory-sum",
        about: "reservedMemory adds up to kubeReserved, systemReserved and the hard eviction threshold",
        severity: "error",
        needs: KUBELET,
        why: "a kubelet with the memory manager policy Static starts only if both are equal",
        fix: "correct reservedMemory",
        run: memory_sum,
    },
    Check {
        id: "reserved-memory-zones",
        about: "reservedMemory names zones that the machine has",
        severity: "error",
        needs: KUBELET_AND_REPORT,
        why: "a kubelet does not start if memory is reserved in a zone that does not exist",
        fix: "correct numaNode in reservedMemory",
        run: memory_zones,
    },
];

/// Nodes whose kubelet reserves listed CPUs.
fn listed(evidence: &Evidence) -> impl Iterator<Item = (&Node, &Settings, &Configuration, &CpuSet)> {
    evidence.checked().filter_map(|(node, settings, configuration)| match &configuration.reserved_cpus {
        ReservedCpus::Listed(cpus) => Some((node, settings, configuration, cpus)),
        ReservedCpus::Amount(_) => None,
    })
}

/// The CPUs of each zone; only our exporter publishes them.
fn zone_cpus(report: &Report) -> BTreeMap<&str, CpuSet> {
    let cpus = |zone: &api::nrt::Zone| {
        CpuSet::parse(attribute::get(&zone.attributes, keys::ZONE_ATTRIBUTE_CPUS)?).ok()
    };
    // An object that schedulers cannot read is not used as evidence.
    let zones = report.object.zones.iter().filter(|_| report.read.is_ok());
    zones.filter_map(|zone| Some((zone.name.as_str(), cpus(zone)?))).collect()
}

fn cpus_range(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (node, _, configuration, reserved) in listed(evidence) {
        let Some(milli) = node.capacity.get(&ResourceName::CPU) else { continue };
        let capacity = usize::try_from(milli / ResourceName::CPU.base_units()).unwrap_or(0);
        let online = evidence.reports.get(&node.name).map(zone_cpus).filter(|zones| !zones.is_empty());
        let online = online.map(|zones| zones.values().fold(CpuSet::new(), |all, cpus| all.union(cpus)));
        let outside = online.map(|online| reserved.difference(&online)).filter(|outside| !outside.is_empty());
        if let Some(outside) = outside {
            findings.error(
                node.title(),
                format!("reservedSystemCPUs {reserved}: the machine has no CPU {outside}"),
            );
        } else if reserved.len() > capacity {
            let what = format!(
                "reservedSystemCPUs {reserved} are {} CPUs, but the machine has {capacity}",
                reserved.len()
            );
            findings.error(node.title(), what);
        } else if reserved.len() == capacity && configuration.rules.cpu_manager == Manager::Static {
            findings
                .error(node.title(), format!("reservedSystemCPUs {reserved} are all CPUs of the machine"));
        }
    }
}

fn cpus_cores(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (node, _, configuration, reserved) in listed(evidence) {
        let Some(threads) = evidence.reports.get(&node.name).and_then(threads_per_core) else { continue };
        if reserved.len() % threads == 0 {
            continue;
        }
        let strict = if configuration.cpu_option(CpuOption::FullPcpusOnly) {
            " while full-pcpus-only is on"
        } else {
            ""
        };
        let what = format!(
            "reservedSystemCPUs {reserved} are {} CPUs on cores of {threads} threads, so one core is half reserved{strict}",
            reserved.len()
        );
        findings.warning(node.title(), what);
    }
}

/// Hardware threads of a core; only our exporter publishes them.
pub(super) fn threads_per_core(report: &Report) -> Option<usize> {
    let text = attribute::get(&report.object.attributes, keys::ATTRIBUTE_THREADS_PER_CORE)?;
    text.parse().ok().filter(|threads| (1..=16).contains(threads))
}

/// Seen only in KubeletConfig objects: a running kubelet reports amounts that it has already corrected.
fn cpus_overridden(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (node, settings, _, reserved) in listed(evidence) {
        let Some(amount) = settings.reserved("cpu").map(|amount| amount.milli_value()) else { continue };
        let cpus = i64::try_from(reserved.len()).unwrap_or(i64::MAX);
        if amount > 0 && amount != cpus.saturating_mul(1000) {
            let what = format!(
                "reservedSystemCPUs {reserved} are {cpus} CPUs, but kubeReserved and systemReserved ask for {} together",
                topology::reason::Amount(ResourceName::CPU, amount)
            );
            findings.warning(node.title(), what);
        }
    }
}

fn zone_without_cpus(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (node, _, configuration, reserved) in listed(evidence) {
        let Some(report) = evidence.reports.get(&node.name) else { continue };
        if configuration.rules.cpu_manager != Manager::Static {
            continue;
        }
        for (zone, cpus) in zone_cpus(report) {
            if !cpus.is_empty() && cpus.is_subset(reserved) {
                let what = format!("reservedSystemCPUs {reserved} are all CPUs of zone {zone} ({cpus})");
                findings.warning(node.title(), what);
            }
        }
    }
}

fn memory_sum(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (node, settings, configuration) in evidence.checked() {
        if configuration.rules.memory_manager != Manager::Static || configuration.reserved_memory.is_empty() {
            continue;
        }
        let mut names: BTreeSet<ResourceName> =
            configuration.reserved_memory.values().flat_map(|zone| zone.keys().copied()).collect();
        names.extend(node.capacity.keys().filter(|name| name.kind() == ResourceKind::Memory));
        for name in names {
            let amounts = configuration.reserved_memory.values().filter_map(|zone| zone.get(&name));
            let zones = amounts.fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
            let Some(wanted) = to_reserve(node, settings, name) else { continue };
            if i64::try_from(zones).unwrap_or(i64::MAX) != wanted {
                let what = format!(
                    "reservedMemory of {name} adds up to {zones} bytes, but kubeReserved, systemReserved{} are {wanted} bytes",
                    if name == ResourceName::MEMORY { " and evictionHard memory.available" } else { "" }
                );
                findings.error(node.title(), what);
            }
        }
    }
}

/// The amount of a resource that the kubelet reserves, in bytes: kubelet `GetNodeAllocatableReservation`.
fn to_reserve(node: &Node, settings: &Settings, name: ResourceName) -> Option<i64> {
    let reserved = settings.reserved(name.as_str())?.value();
    if name != ResourceName::MEMORY {
        return Some(reserved);
    }
    let capacity = *node.capacity.get(&name)?;
    Some(reserved.saturating_add(settings.eviction_bytes(capacity)?))
}

fn memory_zones(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (node, _, configuration) in evidence.checked() {
        let Some(Ok((topology, left_out))) =
            evidence.reports.get(&node.name).map(|report| report.read.as_ref())
        else {
            continue;
        };
        // The zone in question may be one that could not be read.
        if topology.zones.is_empty() || !left_out.is_empty() {
            continue;
        }
        for zone in configuration.reserved_memory.keys() {
            if !topology.zones.iter().any(|known| known.id == *zone) {
                let what =
                    format!("reservedMemory names NUMA node {}, which the machine does not have", zone.0);
                findings.error(node.title(), what);
            }
        }
    }
}
