//! Policy options and feature gates, by the version of each kubelet.

use std::collections::BTreeMap;

use topology::policy::{CpuOption, MAX_ALLOWABLE_NUMA_NODES, Manager, PREFER_CLOSEST_NUMA_NODES, Policy};

use super::{Check, Findings, KUBELET};
use crate::validate::evidence::{Area, Evidence, Settings};

pub(super) const TABLE: [Check; 6] = [
    Check {
        id: "cpu-manager-options",
        about: "the kubelet's version knows its cpuManagerPolicyOptions, and their feature gates are on",
        severity: "error",
        needs: KUBELET,
        why: "a kubelet does not start with an unknown option or with one whose feature gate is off",
        fix: "remove the option, turn its feature gate on, or upgrade the kubelet",
        run: cpu_options,
    },
    Check {
        id: "topology-manager-options",
        about: "the kubelet's version knows its topologyManagerPolicyOptions, and their feature gates are on",
        severity: "error",
        needs: KUBELET,
        why: "a kubelet does not start with an unknown option or with one whose feature gate is off",
        fix: "remove the option, turn its feature gate on, or upgrade the kubelet",
        run: topology_options,
    },
    Check {
        id: "options-conflict",
        about: "policy options do not exclude each other",
        severity: "error",
        needs: KUBELET,
        why: "a kubelet does not start with options that contradict each other or the topology manager's policy",
        fix: "remove one of the two options",
        run: conflicts,
    },
    Check {
        id: "options-ignored",
        about: "policy options are set only together with their policy",
        severity: "error, warning",
        needs: KUBELET,
        why: "with the CPU manager off a kubelet does not start with its options; with the topology manager off it ignores them",
        fix: "turn the policy on, or remove the options",
        run: ignored,
    },
    Check {
        id: "feature-gates",
        about: "no feature gate is set that this kubelet or a later version no longer knows",
        severity: "error, warning",
        needs: KUBELET,
        why: "a kubelet does not start with an unknown feature gate",
        fix: "remove the gate from featureGates; its feature is always on",
        run: gates,
    },
    Check {
        id: "numa-nodes-limit",
        about: "the machine has at most as many NUMA nodes as the topology manager allows",
        severity: "error",
        needs: &[Area::Nodes, Area::KubeletConfig, Area::Reports],
        why: "with more than 8 NUMA nodes the kubelet starts only with the option max-allowable-numa-nodes",
        fix: "set topologyManagerPolicyOptions.max-allowable-numa-nodes to the number of NUMA nodes (kubelet 1.31 and later)",
        run: numa_nodes,
    },
];

/// The minor versions since which an option is alpha, beta and stable; 0: not yet.
#[derive(Clone, Copy, Debug)]
struct Stages {
    name: &'static str,
    alpha: u64,
    beta: u64,
    stable: u64,
}

/// Kubelet's `cpumanager/policy_options.go` over the versions.
const CPU: [Stages; 6] = [
    Stages { name: "full-pcpus-only", alpha: 22, beta: 23, stable: 33 },
    Stages { name: "distribute-cpus-across-numa", alpha: 23, beta: 33, stable: 0 },
    Stages { name: "align-by-socket", alpha: 25, beta: 0, stable: 0 },
    Stages { name: "distribute-cpus-across-cores", alpha: 31, beta: 0, stable: 0 },
    Stages { name: "strict-cpu-reservation", alpha: 32, beta: 33, stable: 35 },
    Stages { name: "prefer-align-cpus-by-uncorecache", alpha: 32, beta: 34, stable: 36 },
];
/// Kubelet's `topologymanager/policy_options.go` over the versions.
const TOPOLOGY: [Stages; 2] = [
    Stages { name: PREFER_CLOSEST_NUMA_NODES, alpha: 26, beta: 28, stable: 32 },
    Stages { name: MAX_ALLOWABLE_NUMA_NODES, alpha: 31, beta: 31, stable: 35 },
];
/// Gates of the managers: the minor version that locked them, and the one that removed them; 0: not yet.
const GATES: [(&str, u64, u64); 7] = [
    ("CPUManager", 26, 33),
    ("CPUManagerPolicyOptions", 33, 0),
    ("KubeletPodResources", 28, 30),
    ("KubeletPodResourcesGetAllocatable", 28, 30),
    ("MemoryManager", 32, 36),
    ("TopologyManager", 27, 29),
    ("TopologyManagerPolicyOptions", 32, 0),
];
/// Pairs of options that exclude each other.
const CONFLICTS: [(CpuOption, CpuOption); 4] = [
    (CpuOption::FullPcpusOnly, CpuOption::DistributeAcrossCores),
    (CpuOption::DistributeAcrossNuma, CpuOption::DistributeAcrossCores),
    (CpuOption::PreferUncoreCache, CpuOption::DistributeAcrossCores),
    (CpuOption::PreferUncoreCache, CpuOption::DistributeAcrossNuma),
];

impl Stages {
    /// The problem with using the option; `manager` is the prefix of the feature gates' names.
    fn problem(&self, minor: u64, settings: &Settings, manager: &str) -> Option<String> {
        let name = self.name;
        let gate = |stage: &str| format!("{manager}Policy{stage}Options");
        if minor < self.alpha {
            return Some(format!(
                "option {name:?} is not known before 1.{}, and this kubelet is 1.{minor}",
                self.alpha
            ));
        }
        if self.stable > 0 && minor >= self.stable {
            return None;
        }
        let is_beta = self.beta > 0 && minor >= self.beta;
        let (stage, on) = if is_beta { ("Beta", true) } else { ("Alpha", false) };
        let gate = gate(stage);
        let is_on = settings.gate(&gate).or(settings.gate(&format!("All{stage}"))).unwrap_or(on);
        let stage = stage.to_lowercase();
        (!is_on).then(|| format!("option {name:?} is {stage} in 1.{minor} and needs the feature gate {gate}"))
    }
}

fn options(
    evidence: &Evidence,
    findings: &mut Findings<'_>,
    (manager, field, policy): (&str, &str, &str),
    stages: &[Stages],
) {
    for (node, settings) in evidence.configured() {
        // With the policy off the kubelet does not read the options.
        if matches!(settings.text(policy), "" | "none") {
            continue;
        }
        let Some(minor) = node.version().map(|version| version.number(1)) else { continue };
        for name in settings.map(field).keys() {
            let problem = match stages.iter().find(|known| known.name == name) {
                Some(known) => known.problem(minor, settings, manager),
                None if minor > NEWEST => None,
                None => Some(format!("option {name:?} is not known to any kubelet up to 1.{NEWEST}")),
            };
            if let Some(problem) = problem {
                findings.error(node.title(), format!("{field}: {problem}"));
            }
        }
    }
}

/// The newest minor version that the tables cover.
const NEWEST: u64 = 36;

fn cpu_options(evidence: &Evidence, findings: &mut Findings<'_>) {
    options(evidence, findings, ("CPUManager", "cpuManagerPolicyOptions", "cpuManagerPolicy"), &CPU);
}

fn topology_options(evidence: &Evidence, findings: &mut Findings<'_>) {
    let fields = ("TopologyManager", "topologyManagerPolicyOptions", "topologyManagerPolicy");
    options(evidence, findings, fields, &TOPOLOGY);
}

fn conflicts(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (node, _, configuration) in evidence.checked() {
        if configuration.rules.cpu_manager != Manager::Static {
            continue;
        }
        for (one, other) in CONFLICTS {
            if configuration.cpu_option(one) && configuration.cpu_option(other) {
                let what = format!(
                    "cpuManagerPolicyOptions {} and {} exclude each other",
                    one.as_str(),
                    other.as_str()
                );
                findings.error(node.title(), what);
            }
        }
        let by_socket = configuration.cpu_option(CpuOption::AlignBySocket);
        if by_socket && configuration.rules.policy == Policy::SingleNumaNode {
            let what = "cpuManagerPolicyOptions align-by-socket and topologyManagerPolicy single-numa-node exclude each other";
            findings.error(node.title(), what);
        }
    }
}

fn ignored(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (node, settings) in evidence.configured() {
        let idle = |policy: &str, field: &str| {
            let options: BTreeMap<String, String> = settings.map(field);
            let is_off = matches!(settings.text(policy), "" | "none") && !options.is_empty();
            is_off.then(|| options.into_keys().collect::<Vec<_>>().join(", "))
        };
        // Kubelet `cpumanager.NewNonePolicy` and `topologymanager.NewManager`.
        if let Some(names) = idle("cpuManagerPolicy", "cpuManagerPolicyOptions") {
            let what = format!("cpuManagerPolicyOptions ({names}) are set while cpuManagerPolicy is none");
            findings.error(node.title(), what);
        }
        if let Some(names) = idle("topologyManagerPolicy", "topologyManagerPolicyOptions") {
            let what = format!(
                "topologyManagerPolicyOptions ({names}) are ignored because topologyManagerPolicy is none"
            );
            findings.warning(node.title(), what);
        }
    }
}

fn gates(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (node, settings) in evidence.configured() {
        let Some(minor) = node.version().map(|version| version.number(1)) else { continue };
        for (gate, locked, gone) in GATES {
            let Some(value) = settings.gate(gate) else { continue };
            if gone > 0 && minor >= gone {
                let what =
                    format!("feature gate {gate} is not known since 1.{gone}, and this kubelet is 1.{minor}");
                findings.error(node.title(), what);
            } else if minor >= locked && !value {
                let what = format!("feature gate {gate} cannot be turned off since 1.{locked}");
                findings.error(node.title(), what);
            } else if minor >= locked {
                let when = if gone > 0 { format!("1.{gone}") } else { "a later version".to_owned() };
                let what = format!(
                    "feature gate {gate} is always on since 1.{locked}, \
                     and from {when} on kubelets do not start with it"
                );
                findings.warning(node.title(), what);
            }
        }
    }
}

fn numa_nodes(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (node, _, configuration) in evidence.checked() {
        let Some(report) = evidence.reports.get(&node.name) else { continue };
        let zones = report.object.zones.iter().filter(|zone| zone.kind == api::nrt::ZONE_TYPE_NODE).count();
        let limit = configuration.max_allowable_numa_nodes as usize;
        if configuration.rules.policy != Policy::None && zones > limit {
            let what = format!("the machine has {zones} NUMA nodes and the topology manager allows {limit}");
            findings.error(node.title(), what);
        }
    }
}
