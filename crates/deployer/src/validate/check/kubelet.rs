//! The policies of the kubelets' CPU, memory and topology managers.

use std::collections::BTreeMap;

use topology::policy::{Manager, Policy};

use super::{Check, Findings, KUBELET};
use crate::validate::evidence::{ConfigSource, Evidence, Node, Settings};
use crate::validate::finding::Severity::{Error, Info, Warning};

/// One second and ten, in nanoseconds.
const RECONCILE_NS: std::ops::RangeInclusive<i64> = 1_000_000_000..=10_000_000_000;
/// The feature gate of allocatable resources in kubelets before 1.23.
const ALLOCATABLE_GATE: &str = "KubeletPodResourcesGetAllocatable";
/// The first version whose memory manager is on by default.
const MEMORY_MANAGER: [u64; 2] = [1, 22];

pub(super) const TABLE: [Check; 9] = [
    Check {
        id: "podresources-gate",
        about: "kubelets before 1.23 have the feature gate KubeletPodResourcesGetAllocatable",
        severity: "error",
        needs: KUBELET,
        why: "without the gate the kubelet does not report allocatable resources, so exporters have nothing to publish",
        fix: "set featureGates.KubeletPodResourcesGetAllocatable: true in the kubelet's configuration and restart it",
        run: podresources_gate,
    },
    Check {
        id: "kubelet-config-invalid",
        about: "the configuration has only values that kubelets accept",
        severity: "error",
        needs: KUBELET,
        why: "a kubelet does not start with this configuration",
        fix: "correct this field of the kubelet's configuration",
        run: invalid,
    },
    Check {
        id: "cpu-manager-policy",
        about: "cpuManagerPolicy is static",
        severity: "error, warning",
        needs: KUBELET,
        why: "only the policy static gives pods exclusive CPUs; without it CPUs are not aligned",
        fix: "drain the node, set cpuManagerPolicy: static and reservedSystemCPUs, remove cpu_manager_state from the kubelet's \
              directory, restart the kubelet",
        run: cpu_manager,
    },
    Check {
        id: "cpu-manager-reconcile-period",
        about: "cpuManagerReconcilePeriod is within 1 s and 10 s",
        severity: "warning",
        needs: KUBELET,
        why: "a container may run on wrong CPUs for this long",
        fix: "set cpuManagerReconcilePeriod: 5s in the kubelet's configuration",
        run: reconcile_period,
    },
    Check {
        id: "reserved-cpus",
        about: "reservedSystemCPUs names the CPUs kept for the system",
        severity: "error, info",
        needs: KUBELET,
        why: "the policy static needs reserved CPUs; an amount alone does not tell which zone they are taken from",
        fix: "set reservedSystemCPUs to whole cores, such as \"0,16\"",
        run: reserved_cpus,
    },
    Check {
        id: "memory-manager-policy",
        about: "memoryManagerPolicy is Static (1.22 and later)",
        severity: "warning, info",
        needs: KUBELET,
        why: "with another policy memory and huge pages of a pod can come from another zone than its CPUs",
        fix: "drain the node, set memoryManagerPolicy: Static with reservedMemory, remove memory_manager_state from the kubelet's \
              directory, restart the kubelet",
        run: memory_manager,
    },
    Check {
        id: "reserved-memory",
        about: "reservedMemory states the system's memory of each zone (1.22 and later)",
        severity: "error, info",
        needs: KUBELET,
        why: "a kubelet with the policy Static does not start without reservedMemory",
        fix: "set reservedMemory so that its sum equals kubeReserved, systemReserved and the hard eviction threshold of memory \
              together",
        run: reserved_memory,
    },
    Check {
        id: "topology-manager-policy",
        about: "topologyManagerPolicy is single-numa-node",
        severity: "warning, info",
        needs: KUBELET,
        why: "only with this policy kubelets reject every pod that would span zones, and schedulers place pods by zones",
        fix: "set topologyManagerPolicy: single-numa-node in the kubelet's configuration and restart the kubelet",
        run: topology_manager,
    },
    Check {
        id: "pool-disagrees",
        about: "nodes of one pool have the same policies",
        severity: "warning",
        needs: KUBELET,
        why: "a pod that is aligned on one node of the pool is rejected or spread over zones on another",
        fix: "give all nodes of the pool the same kubelet configuration",
        run: pool_disagrees,
    },
];

fn podresources_gate(evidence: &Evidence, findings: &mut Findings<'_>) {
    if evidence.server().is_some_and(|version| version.at_least(&[1, 23])) {
        return;
    }
    for (node, settings) in evidence.configured() {
        if !settings.has("featureGates") {
            let what = format!("no feature gates are set; {ALLOCATABLE_GATE} is needed before 1.23");
            findings.kubelet(Error, node, what, ["feature gates", "", "present", "missing data"]);
        } else if settings.gate(ALLOCATABLE_GATE) != Some(true) {
            let what = format!("the feature gate {ALLOCATABLE_GATE} is off");
            findings.kubelet(Error, node, what, ["feature gates", ALLOCATABLE_GATE, "enabled", "disabled"]);
        }
    }
}

fn invalid(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (node, settings) in evidence.configured() {
        if let Err(reason) = &settings.checked {
            findings.error(node.title(), reason.clone());
        }
    }
}

/// Whether the kubelet rejects pods it cannot align.
fn enforces(settings: &Settings) -> bool {
    Policy::parse(settings.text("topologyManagerPolicy")).is_some_and(Policy::enforces)
}

fn cpu_manager(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (node, settings) in evidence.configured() {
        let policy = settings.text("cpuManagerPolicy");
        if policy == "static" {
            continue;
        }
        let alignment = settings.text("topologyManagerPolicy");
        let (severity, what) = if enforces(settings) {
            (Error, format!("so topologyManagerPolicy {alignment} does not align CPUs"))
        } else {
            (Warning, "not static".to_owned())
        };
        let what = format!("cpuManagerPolicy is {policy:?}, {what}");
        findings.kubelet(severity, node, what, ["CPU manager", "policy", "static", policy]);
    }
}

fn reconcile_period(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (node, settings) in evidence.configured() {
        let Some(period) = settings.reconcile_period() else { continue };
        if !RECONCILE_NS.contains(&period.0) {
            let what = format!("cpuManagerReconcilePeriod is {period}, not within 1s and 10s");
            let words = ["CPU manager", "reconcile period", "in range [1s, 10s]", &period.to_string()];
            findings.kubelet(Warning, node, what, words);
        }
    }
}

fn reserved_cpus(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (node, settings) in evidence.configured() {
        if !settings.text("reservedSystemCPUs").is_empty() {
            continue;
        }
        let amount = settings.reserved("cpu").filter(|amount| amount.milli_value() > 0);
        let is_static = settings.text("cpuManagerPolicy") == "static";
        let (severity, what) = match amount {
            None if is_static => (
                Error,
                "no CPU is reserved for the system: reservedSystemCPUs, kubeReserved and systemReserved are empty"
                    .to_owned(),
            ),
            None => (Info, "no CPU is reserved for the system".to_owned()),
            Some(amount) => (
                Info,
                format!(
                    "the CPUs of the system are an amount ({amount}) instead of reservedSystemCPUs, \
                     so the kubelet chooses them"
                ),
            ),
        };
        let words = ["configuration", "CPU", "reserved some CPU cores", "no reserved CPU cores"];
        findings.kubelet(severity, node, what, words);
    }
}

/// Whether the memory manager is on by default; an unknown version counts as yes.
fn has_memory_manager(evidence: &Evidence) -> bool {
    evidence.server().is_none_or(|version| version.at_least(&MEMORY_MANAGER))
}

fn memory_manager(evidence: &Evidence, findings: &mut Findings<'_>) {
    if !has_memory_manager(evidence) {
        return;
    }
    for (node, settings) in evidence.configured() {
        let policy = settings.text("memoryManagerPolicy");
        if policy == "Static" {
            continue;
        }
        let alignment = settings.text("topologyManagerPolicy");
        let (severity, what) = if enforces(settings) {
            (Warning, format!("so topologyManagerPolicy {alignment} does not align memory"))
        } else {
            (Info, "not Static".to_owned())
        };
        let what = format!("memoryManagerPolicy is {policy:?}, {what}");
        findings.kubelet(severity, node, what, ["memory manager", "policy", "Static", policy]);
    }
}

fn reserved_memory(evidence: &Evidence, findings: &mut Findings<'_>) {
    if !has_memory_manager(evidence) {
        return;
    }
    for (node, settings) in evidence.configured() {
        if settings.lists("reservedMemory") {
            continue;
        }
        let what = "no memory is reserved for the system in any zone: reservedMemory is empty";
        let severity = if settings.text("memoryManagerPolicy") == "Static" { Error } else { Info };
        let words = ["configuration", "memory", "reserved memory blocks", "no reserved memory blocks"];
        findings.kubelet(severity, node, what, words);
    }
}

fn topology_manager(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (node, settings) in evidence.configured() {
        let policy = settings.text("topologyManagerPolicy");
        let (severity, what) = match Policy::parse(policy) {
            Some(Policy::SingleNumaNode) => continue,
            Some(Policy::Restricted) => (
                Info,
                "restricted: pods may span zones if they need more than one zone has, and the Go scheduler \
                 plugin does not filter such nodes",
            ),
            Some(Policy::BestEffort) => {
                (Info, "best-effort: pods are aligned where possible and never rejected")
            }
            _ => (Warning, "the kubelet neither aligns nor rejects pods"),
        };
        let what = match severity {
            Warning => format!("topologyManagerPolicy is {policy:?}: {what}"),
            _ => format!("topologyManagerPolicy is {what}"),
        };
        findings.kubelet(severity, node, what, ["topology manager", "policy", "single-numa-node", policy]);
    }
}

/// The policies that nodes of one pool should share.
fn policies(settings: &Settings) -> Option<String> {
    let rules = settings.checked.as_ref().ok()?.rules;
    let manager = |manager, off, on| if manager == Manager::Static { on } else { off };
    Some(format!(
        "topology policy {}, scope {}, CPU manager {}, memory manager {}",
        rules.policy.as_str(),
        rules.scope.as_str(),
        manager(rules.cpu_manager, "none", "static"),
        manager(rules.memory_manager, "None", "Static"),
    ))
}

fn pool_disagrees(evidence: &Evidence, findings: &mut Findings<'_>) {
    let mut pools: BTreeMap<String, BTreeMap<String, Vec<&Node>>> = BTreeMap::new();
    for (node, settings) in evidence.configured() {
        // Only the kubelets' own answers are comparable: KubeletConfig objects leave out defaults.
        if let (ConfigSource::Kubelet, Some(policies)) = (&settings.source, policies(settings)) {
            pools.entry(node.pool()).or_default().entry(policies).or_default().push(node);
        }
    }
    for (pool, kinds) in pools {
        // The most frequent set of policies counts as intended; among equally frequent ones the last in text order.
        let Some((usual, most)) = kinds.iter().max_by_key(|(_, nodes)| nodes.len()) else { continue };
        for (kind, nodes) in kinds.iter().filter(|(kind, _)| *kind != usual) {
            for node in nodes {
                let what =
                    format!("the node has {kind}; in its pool {pool:?} {} nodes have {usual}", most.len());
                findings.warning(node.title(), what);
            }
        }
    }
}
