//! Rejected pods, and pods whose requests cannot be met.

use std::collections::{BTreeMap, BTreeSet};

use topology::admit::{Scratch, admit, needs_alignment};
use topology::policy::CpuOption;
use topology::quantity::Quantity;
use topology::reason::{Amount, Constraint, Misfit};
use topology::request::{ContainerRequest, PodRequest, Qos};
use topology::resource::{ResourceKind, ResourceName};
use topology::zone::NodeTopology;

use super::reserved::threads_per_core;
use super::{Check, Findings};
use crate::validate::evidence::{Area, Evidence, Pod};

const PODS: &[Area] = &[Area::Pods, Area::Workloads];
const PODS_AND_ZONES: &[Area] = &[Area::Pods, Area::Workloads, Area::Nodes, Area::Reports];

pub(super) const TABLE: [Check; 6] = [
    Check {
        id: "pod-rejected",
        about: "no kubelet rejected a pod lately",
        severity: "error, warning",
        needs: &[Area::Pods, Area::Workloads, Area::Reports, Area::Events],
        why: "a rejected pod fails; its controller creates another, which may be rejected again",
        fix: "schedule such pods with a NUMA-aware scheduler, and delete the rejected pods",
        run: rejected,
    },
    Check {
        id: "pod-qos",
        about: "pods of the NUMA-aware scheduler have the QoS class Guaranteed",
        severity: "warning",
        needs: PODS,
        why: "only Guaranteed pods get exclusive CPUs and memory; others are not aligned",
        fix: "give all containers, including init and injected ones, equal requests and limits of cpu and memory",
        run: qos,
    },
    Check {
        id: "pod-cpu-fraction",
        about: "Guaranteed pods of that scheduler request whole CPUs",
        severity: "warning",
        needs: PODS,
        why: "the kubelet gives exclusive CPUs only to containers that request a whole number of them",
        fix: "round the cpu request and limit up to a whole number",
        run: cpu_fraction,
    },
    Check {
        id: "pod-smt",
        about: "pods request whole cores where full-pcpus-only is set",
        severity: "error",
        needs: &[Area::Pods, Area::Workloads, Area::Nodes, Area::Reports, Area::KubeletConfig],
        why: "the kubelet rejects such pods with SMTAlignmentError",
        fix: "request a multiple of the threads of a core",
        run: smt,
    },
    Check {
        id: "pod-never-fits",
        about: "every waiting pod would fit an empty node",
        severity: "error",
        needs: PODS_AND_ZONES,
        why: "the pod waits for ever, even if all other pods end",
        fix: "reduce the requests of the pod's containers, or add nodes with larger zones",
        run: never_fits,
    },
    Check {
        id: "pod-hugepages",
        about: "huge pages and devices that waiting pods request exist on some node",
        severity: "error",
        needs: &[Area::Pods, Area::Workloads, Area::Nodes],
        why: "the pod waits for ever",
        fix: "reserve huge pages at boot (hugepagesz=, hugepages=), install the device plugin, or request another resource",
        run: unknown_resource,
    },
];

/// Whether a pod's reason is a rejection by the kubelet's resource managers.
pub(crate) fn is_rejection(reason: &str) -> bool {
    crate::validate::collect::REJECTIONS.contains(&reason) || reason.starts_with("OutOf")
}

/// Explains why the pod did not fit the node, as far as its report tells.
fn explain(evidence: &Evidence, node: &str, pod: &Pod) -> String {
    let (Some(topology), Ok(request)) = (evidence.topology(node), &pod.request) else { return String::new() };
    let needs = request.needs();
    match admit(topology.rules, &topology.allocatable(), &needs, &mut Scratch::default()) {
        Err(misfit) => format!("; the pod would not fit even an empty node: {}", misfit.text(&needs)),
        Ok(_) if needs_alignment(topology.rules, &topology.allocatable(), &needs) => {
            "; the pod would fit the empty node, so other pods held the resources".to_owned()
        }
        Ok(_) => String::new(),
    }
}

fn rejected(evidence: &Evidence, findings: &mut Findings<'_>) {
    let ours = evidence.numa_names();
    let installed = evidence.numa_schedulers().next().is_some();
    let failed = |pod: &&Pod| pod.phase == "Failed" && is_rejection(&pod.reason);
    for pod in evidence.pods.values().filter(failed) {
        let node = pod.node.as_deref().unwrap_or_default();
        let explained = explain(evidence, node, pod);
        if installed && ours.contains(&pod.scheduler) {
            let what = format!(
                "kubelet {node} rejected the pod with {}, although {} placed the pod{explained}",
                pod.reason, pod.scheduler
            );
            let causes = "usual causes are another scheduler or an outdated report";
            findings.error(pod.title(), what).fix =
                format!("{causes}: see the other findings and the scheduler's log");
        } else {
            let blind = if installed { ", which ignores zones," } else { "" };
            let what = format!(
                "kubelet {node} rejected the pod with {}; {}{blind} placed the pod{explained}",
                pod.reason, pod.scheduler
            );
            findings.warning(pod.title(), what);
        }
    }
    // Deleted pods are known from their events; report each name once.
    let gone = evidence
        .events
        .iter()
        .filter(|event| !evidence.pods.values().any(|pod| pod.uid == event.uid && pod.phase == "Failed"));
    let gone: BTreeMap<_, _> = gone.map(|event| ((&event.namespace, &event.name), &event.reason)).collect();
    for ((namespace, name), reason) in gone {
        findings.warning(
            format!("Pod {namespace}/{name}"),
            format!("a kubelet rejected the pod with {reason}; the pod was deleted since"),
        );
    }
}

/// Pods of the NUMA-aware scheduler with their requests.
fn candidates(evidence: &Evidence) -> impl Iterator<Item = (&Pod, &PodRequest)> {
    let ours = evidence.numa_names();
    evidence
        .pods
        .values()
        .filter(move |pod| ours.contains(&pod.scheduler) && !pod.is_over() && !pod.deleting)
        .filter_map(|pod| Some((pod, pod.request.as_ref().ok()?)))
}

fn has_device(request: &PodRequest) -> bool {
    let mut names = request.containers.iter().flat_map(|container| &container.requests);
    names.any(|(name, amount)| name.kind() == ResourceKind::Device && amount.sign() > 0)
}

fn qos(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (pod, request) in candidates(evidence) {
        if request.qos() == Qos::Guaranteed || has_device(request) {
            continue;
        }
        let reason = request.containers.iter().find_map(not_guaranteed);
        let what = reason.unwrap_or_else(|| "the pod requests neither cpu nor memory".to_owned());
        findings.warning(pod.title(), format!("the QoS class is not Guaranteed: {what}"));
    }
}

/// Why the pod of this container is not Guaranteed.
fn not_guaranteed(container: &ContainerRequest) -> Option<String> {
    let amount = |list: &[(ResourceName, Quantity)], wanted| {
        list.iter().find(|(name, amount)| *name == wanted && amount.sign() > 0).map(|(_, amount)| *amount)
    };
    [ResourceName::CPU, ResourceName::MEMORY].into_iter().find_map(|name| {
        let container_name = &container.name;
        match (amount(&container.requests, name), amount(&container.limits, name)) {
            (_, None) => Some(format!("container {container_name:?} has no limit of {name}")),
            (Some(request), Some(limit)) if request != limit => Some(format!(
                "container {container_name:?} requests {request} of {name} and is limited to {limit}"
            )),
            _ => None,
        }
    })
}

fn cpu_fraction(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (pod, request) in candidates(evidence) {
        let needs = request.needs();
        let cpus = || {
            let running = needs.containers.iter().filter(|container| container.kind.keeps_running());
            running.flat_map(|c| {
                c.needs.iter().filter(|need| need.name == ResourceName::CPU).map(move |need| (c, need))
            })
        };
        // A sidecar with a share of a CPU beside a container with exclusive CPUs is fine.
        if needs.qos != Qos::Guaranteed || cpus().any(|(_, need)| need.is_whole()) || has_device(request) {
            continue;
        }
        if let Some((container, need)) = cpus().max_by_key(|(_, need)| need.amount) {
            let what = format!(
                "container {:?} requests {} of cpu, not a whole number",
                container.name,
                Amount(need.name, need.amount)
            );
            findings.warning(pod.title(), what);
        }
    }
}

fn smt(evidence: &Evidence, findings: &mut Findings<'_>) {
    // The check applies only if every node hands out whole cores; any other node would accept the pod.
    let mut threads = BTreeSet::new();
    for node in evidence.workers() {
        let Some(configuration) = node.configuration() else { return };
        let known = evidence.reports.get(&node.name).and_then(threads_per_core);
        match known.filter(|_| configuration.cpu_option(CpuOption::FullPcpusOnly)) {
            Some(count) if count > 1 => threads.insert(count),
            _ => return,
        };
    }
    let Some(threads) = threads.first().and_then(|threads| i64::try_from(*threads).ok()) else { return };
    for (pod, request) in candidates(evidence) {
        let needs = request.needs();
        let odd = |amount: i64| amount % 1000 == 0 && (amount / 1000) % threads != 0;
        let mut cpus = needs.containers.iter().flat_map(|c| c.needs.iter().map(move |need| (c, need)));
        let found = cpus.find(|(_, need)| need.name == ResourceName::CPU && odd(need.amount));
        if let Some((container, need)) = found.filter(|_| needs.qos == Qos::Guaranteed) {
            let what = format!(
                "container {:?} requests {} CPUs, but all nodes allocate whole cores of {threads} threads",
                container.name,
                Amount(need.name, need.amount)
            );
            findings.error(pod.title(), what);
        }
    }
}

/// The distance of a rejection from fitting; smaller is nearer.
fn distance(misfit: &Misfit) -> i64 {
    match misfit.constraint {
        Constraint::Short { requested, most, .. } => requested.saturating_sub(most),
        Constraint::NoCommonZone | Constraint::WholeCores | Constraint::Grouped => 0,
        Constraint::NotListed { .. } => i64::MAX,
    }
}

fn never_fits(evidence: &Evidence, findings: &mut Findings<'_>) {
    let nodes: Option<Vec<(&str, &NodeTopology)>> = evidence
        .workers()
        .into_iter()
        .map(|node| {
            // A node with unknown zones might fit the pod.
            Some((node.name.as_str(), evidence.topology(&node.name)?))
        })
        .collect();
    let Some(nodes) = nodes.filter(|nodes| !nodes.is_empty()) else { return };
    let mut scratch = Scratch::default();
    for (pod, request) in candidates(evidence).filter(|(pod, _)| pod.is_waiting()) {
        let needs = request.needs();
        let mut nearest: Option<(&str, Misfit)> = None;
        let fits = nodes.iter().any(|(name, topology)| {
            match admit(topology.rules, &topology.allocatable(), &needs, &mut scratch) {
                Ok(_) => true,
                Err(misfit) => {
                    if nearest.as_ref().is_none_or(|(_, known)| distance(&misfit) < distance(known)) {
                        nearest = Some((name, misfit));
                    }
                    false
                }
            }
        });
        if let (false, Some((name, misfit))) = (fits, nearest) {
            let what = format!(
                "the pod would not fit any node even when empty; {name} comes nearest: {}",
                misfit.text(&needs)
            );
            findings.error(pod.title(), what);
        }
    }
}

fn unknown_resource(evidence: &Evidence, findings: &mut Findings<'_>) {
    let workers = evidence.workers();
    let offered = |name: &ResourceName| {
        workers.iter().any(|node| node.allocatable.get(name).is_some_and(|amount| *amount > 0))
    };
    for (pod, request) in candidates(evidence).filter(|(pod, _)| pod.is_waiting()) {
        let asked = request.containers.iter().flat_map(|container| &container.requests);
        let asked: BTreeSet<ResourceName> =
            asked.filter(|(_, amount)| amount.sign() > 0).map(|(name, _)| *name).collect();
        let special = |name: &ResourceName| match name.kind() {
            ResourceKind::Memory => *name != ResourceName::MEMORY,
            ResourceKind::Device => true,
            ResourceKind::Cpu | ResourceKind::Host => false,
        };
        for name in asked.into_iter().filter(|name| special(name) && !offered(name)) {
            findings.error(pod.title(), format!("the pod requests {name}, which no node offers"));
        }
    }
}
