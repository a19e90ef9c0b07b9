//! The policies of each kubelet's managers.

use std::collections::BTreeMap;

use topology::policy::{Manager, Policy};

use super::Check;
use crate::validate::evidence::{Area, Evidence, Node, Settings, Told};
use crate::validate::finding::Findings;

const KUBELET: &[Area] = &[Area::Nodes, Area::KubeletConfig];
/// One second and ten, in nanoseconds.
const RECONCILE_NS: std::ops::RangeInclusive<i64> = 1_000_000_000..=10_000_000_000;
/// The gate behind which kubelets before 1.23 told what they could hand out.
const ALLOCATABLE_GATE: &str = "KubeletPodResourcesGetAllocatable";
/// The first version whose memory manager is on.
const MEMORY_MANAGER: [u64; 2] = [1, 22];

pub(super) const TABLE: [Check; 9] = [
    Check {
        id: "podresources-gate",
        about: "kubelets before 1.23 have the feature gate KubeletPodResourcesGetAllocatable",
        severity: "error",
        needs: KUBELET,
        why: "without it the kubelet does not tell what it could hand out, and exporters have nothing to publish",
        fix: "set featureGates.KubeletPodResourcesGetAllocatable: true in the kubelet's configuration and restart it",
        run: podresources_gate,
    },
    Check {
        id: "kubelet-config-invalid",
        about: "the configuration has only values a kubelet accepts",
        severity: "error",
        needs: KUBELET,
        why: "the kubelet does not start with it, now or after its next restart",
        fix: "correct the field in the kubelet's configuration",
        run: invalid,
    },
    Check {
        id: "cpu-manager-policy",
        about: "cpuManagerPolicy is static",
        severity: "error, warning",
        needs: KUBELET,
        why: "only the policy static gives pods CPUs of their own, so otherwise no CPU is aligned with anything",
        fix: "drain the node, set cpuManagerPolicy: static and reservedSystemCPUs, remove cpu_manager_state from the kubelet's \
              directory, restart the kubelet",
        run: cpu_manager,
    },
    Check {
        id: "cpu-manager-reconcile-period",
        about: "cpuManagerReconcilePeriod is within 1 s and 10 s",
        severity: "warning",
        needs: KUBELET,
        why: "that long it can take until a container's CPUs are what the kubelet decided",
        fix: "set cpuManagerReconcilePeriod: 5s in the kubelet's configuration",
        run: reconcile_period,
    },
    Check {
        id: "reserved-cpus",
        about: "reservedSystemCPUs names the CPUs kept for the system",
        severity: "error, info",
        needs: KUBELET,
        why: "the policy static wants CPUs it never hands out; given as an amount only, nobody can tell which zone lacks them",
        fix: "set reservedSystemCPUs to whole cores, such as \"0,16\"",
        run: reserved_cpus,
    },
    Check {
        id: "memory-manager-policy",
        about: "memoryManagerPolicy is Static (1.22 and later)",
        severity: "warning, info",
        needs: KUBELET,
        why: "otherwise memory and huge pages of a pod can come from another zone than its CPUs",
        fix: "drain the node, set memoryManagerPolicy: Static with reservedMemory, remove memory_manager_state from the kubelet's \
              directory, restart the kubelet",
        run: memory_manager,
    },
    Check {
        id: "reserved-memory",
        about: "reservedMemory says what each zone keeps for the system (1.22 and later)",
        severity: "error, info",
        needs: KUBELET,
        why: "the policy Static does not start without it",
        fix: "set reservedMemory so that its sum equals kubeReserved, systemReserved and the hard eviction threshold of memory \
              together",
        run: reserved_memory,
    },
    Check {
        id: "topology-manager-policy",
        about: "topologyManagerPolicy is single-numa-node",
        severity: "warning, info",
        needs: KUBELET,
        why: "the policy decides whether a pod that spans zones is refused; schedulers place by zones only where it is",
        fix: "set topologyManagerPolicy: single-numa-node in the kubelet's configuration and restart it",
        run: topology_manager,
    },
    Check {
        id: "pool-disagrees",
        about: "nodes of one pool have the same policies",
        severity: "warning",
        needs: KUBELET,
        why: "a pod that is aligned on one node of the pool is refused or spread over zones on another",
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
            findings
                .error(
                    node.title(),
                    format!("no feature gates are set; {ALLOCATABLE_GATE} is needed before 1.23"),
                )
                .kubelet(&node.name, "feature gates", "", "present", "missing data");
        } else if settings.gate(ALLOCATABLE_GATE) != Some(true) {
            findings.error(node.title(), format!("the feature gate {ALLOCATABLE_GATE} is off")).kubelet(
                &node.name,
                "feature gates",
                ALLOCATABLE_GATE,
                "enabled",
                "disabled",
            );
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
        let finding = if enforces(settings) {
            let what = format!(
                "cpuManagerPolicy is {policy:?}, so topologyManagerPolicy {alignment} does not align CPUs"
            );
            findings.error(node.title(), what)
        } else {
            findings.warning(node.title(), format!("cpuManagerPolicy is {policy:?}, not static"))
        };
        finding.kubelet(&node.name, "CPU manager", "policy", "static", policy);
    }
}

fn reconcile_period(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (node, settings) in evidence.configured() {
        let Some(period) = settings.reconcile_period() else { continue };
        if !RECONCILE_NS.contains(&period.0) {
            let expected = "in range [1s, 10s]";
            findings
                .warning(
                    node.title(),
                    format!("cpuManagerReconcilePeriod is {period}, not within 1s and 10s"),
                )
                .kubelet(&node.name, "CPU manager", "reconcile period", expected, &period.to_string());
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
        let finding = match amount {
            None if is_static => findings
                .error(node.title(), "no CPU is reserved for the system: reservedSystemCPUs, kubeReserved and systemReserved are empty"),
            None => findings.info(node.title(), "no CPU is reserved for the system"),
            Some(amount) => {
                let what = format!("CPUs are reserved as an amount ({amount}), not by reservedSystemCPUs: the kubelet chooses which");
                findings.info(node.title(), what)
            }
        };
        finding.kubelet(
            &node.name,
            "configuration",
            "CPU",
            "reserved some CPU cores",
            "no reserved CPU cores",
        );
    }
}

/// Whether kubelets are to be judged by their memory manager: it is on by default since 1.22.
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
        let finding = if enforces(settings) {
            let alignment = settings.text("topologyManagerPolicy");
            let what = format!(
                "memoryManagerPolicy is {policy:?}, so topologyManagerPolicy {alignment} does not align memory"
            );
            findings.warning(node.title(), what)
        } else {
            findings.info(node.title(), format!("memoryManagerPolicy is {policy:?}, not Static"))
        };
        finding.kubelet(&node.name, "memory manager", "policy", "Static", policy);
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
        let finding = if settings.text("memoryManagerPolicy") == "Static" {
            findings.error(node.title(), what)
        } else {
            findings.info(node.title(), what)
        };
        let (expected, detected) = ("reserved memory blocks", "no reserved memory blocks");
        finding.kubelet(&node.name, "configuration", "memory", expected, detected);
    }
}

fn topology_manager(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (node, settings) in evidence.configured() {
        let policy = settings.text("topologyManagerPolicy");
        let finding = match Policy::parse(policy) {
            Some(Policy::SingleNumaNode) => continue,
            Some(Policy::Restricted) => findings.info(
                node.title(),
                "topologyManagerPolicy is restricted: pods may span zones when they need more than one has, and the Go scheduler \
                 plugin does not filter such nodes",
            ),
            Some(Policy::BestEffort) => findings.info(
                node.title(),
                "topologyManagerPolicy is best-effort: pods are aligned where that is possible and never refused",
            ),
            _ => findings.warning(
                node.title(),
                format!("topologyManagerPolicy is {policy:?}: the kubelet aligns nothing and refuses nothing"),
            ),
        };
        finding.kubelet(&node.name, "topology manager", "policy", "single-numa-node", policy);
    }
}

/// What should be the same in a pool.
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
        // Two sources of knowledge may differ without the nodes doing so.
        if let (Told::Kubelet, Some(policies)) = (&settings.told, policies(settings)) {
            pools.entry(node.pool()).or_default().entry(policies).or_default().push(node);
        }
    }
    for (pool, kinds) in pools {
        // The most frequent counts as what was meant; of equally frequent ones the last by text.
        let Some((usual, most)) = kinds.iter().max_by_key(|(_, nodes)| nodes.len()) else { continue };
        for (kind, nodes) in kinds.iter().filter(|(kind, _)| *kind != usual) {
            for node in nodes {
                let what = format!(
                    "in pool {pool:?} this node has {kind}; {} of its nodes have {usual}",
                    most.len()
                );
                findings.warning(node.title(), what);
            }
        }
    }
}
