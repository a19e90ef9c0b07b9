//! NUMA-aware schedulers: installed, working, and not in conflict with other schedulers.

use std::collections::BTreeMap;

use topology::admit::is_exclusive;

use super::{Check, Findings};
use crate::validate::evidence::{Area, Evidence, Pod, Role, Workload};

const WORKLOADS: &[Area] = &[Area::Workloads];

pub(super) const TABLE: [Check; 6] = [
    Check {
        id: "scheduler-absent",
        about: "a NUMA-aware scheduler is installed",
        severity: "warning",
        needs: &[Area::Workloads, Area::Pods],
        why: "schedulers that see only the totals of a node place pods that the kubelet then rejects",
        fix: "install a scheduler with: tholepin deploy scheduler",
        run: absent,
    },
    Check {
        id: "scheduler-not-ready",
        about: "schedulers are ready",
        severity: "error, warning",
        needs: WORKLOADS,
        why: "pods of this scheduler stay Pending",
        fix: "inspect its pods with kubectl describe and kubectl logs",
        run: not_ready,
    },
    Check {
        id: "scheduler-leader",
        about: "schedulers with leader election have a leader that renews the lease",
        severity: "error",
        needs: &[Area::Workloads, Area::Leases],
        why: "without a leader no replica schedules pods",
        fix: "look into the scheduler's log; the scheduler needs permission to create and update the lease",
        run: leader,
    },
    Check {
        id: "scheduler-names-clash",
        about: "no two schedulers have a profile of the same name",
        severity: "error",
        needs: WORKLOADS,
        why: "both schedule the same pods without knowing of each other",
        fix: "rename the profile of one scheduler, or remove that scheduler",
        run: names_clash,
    },
    Check {
        id: "scheduler-name-unknown",
        about: "the scheduler of every waiting pod exists",
        severity: "error",
        needs: &[Area::Workloads, Area::Pods],
        why: "no scheduler handles such a pod, and no event reports it",
        fix: "correct schedulerName in the pod template",
        run: name_unknown,
    },
    Check {
        id: "schedulers-overlap",
        about: "pods with exclusive resources on nodes that enforce alignment are placed by the NUMA-aware scheduler",
        severity: "warning",
        needs: &[Area::Nodes, Area::Reports, Area::Workloads, Area::Pods],
        why: "the NUMA-aware scheduler cannot foresee pods of another scheduler; kubelets may reject pods of both",
        fix: "set schedulerName of these pods to the NUMA-aware scheduler, or separate the schedulers' nodes with taints",
        run: overlap,
    },
];

/// The age in milliseconds after which an unscheduled pod is reported.
const PATIENCE_MS: i64 = 60_000;
/// The greatest age of a lease, in multiples of its duration.
const LATE: i64 = 3;

fn absent(evidence: &Evidence, findings: &mut Findings<'_>) {
    if evidence.numa_schedulers().next().is_none() {
        findings.warning("Cluster", "no NUMA-aware scheduler is installed");
    }
}

fn not_ready(evidence: &Evidence, findings: &mut Findings<'_>) {
    for scheduler in evidence.numa_schedulers() {
        if scheduler.desired == 0 {
            findings.error(scheduler.title(), "the scheduler is scaled to 0");
        } else if scheduler.ready == 0 {
            findings.error(
                scheduler.title(),
                format!("none of the {} pods of the scheduler is ready", scheduler.desired),
            );
        } else if scheduler.ready < scheduler.desired {
            let what =
                format!("{} of {} pods of the scheduler are ready", scheduler.ready, scheduler.desired);
            findings.warning(scheduler.title(), what);
        }
    }
}

fn leader(evidence: &Evidence, findings: &mut Findings<'_>) {
    for scheduler in evidence.numa_schedulers().filter(|scheduler| scheduler.ready > 0) {
        let Some((namespace, name)) = scheduler.scheduler.as_ref().and_then(|s| s.lease.clone()) else {
            continue;
        };
        let Some(lease) = evidence.leases.get(&(namespace.clone(), name.clone())) else {
            findings.error(
                scheduler.title(),
                format!("the lease {namespace}/{name} does not exist, so there is no leader"),
            );
            continue;
        };
        let limit_s = lease.duration_s.saturating_mul(LATE);
        let late = evidence.age_ms(lease.renewed).is_some_and(|age| age / 1000 > limit_s);
        if lease.holder.is_empty() {
            findings.error(scheduler.title(), format!("the lease {namespace}/{name} has no holder"));
        } else if late {
            let what = format!(
                "{} holds the lease {namespace}/{name} and has not renewed it for more than {limit_s} s",
                lease.holder
            );
            findings.error(scheduler.title(), what);
        }
    }
}

/// The schedulers of each profile name. Static pods of one namespace are replicas and count as one scheduler.
fn by_name(evidence: &Evidence) -> BTreeMap<&str, Vec<&Workload>> {
    let mut names: BTreeMap<&str, Vec<&Workload>> = BTreeMap::new();
    for workload in evidence.workloads.iter().filter(|workload| workload.desired > 0) {
        for name in workload.scheduler.iter().flat_map(|settings| &settings.profiles) {
            let known = names.entry(name).or_default();
            let replica = |other: &&&Workload| {
                other.kind == "Pod" && workload.kind == "Pod" && other.namespace == workload.namespace
            };
            if !known.iter().any(|other| replica(&other)) {
                known.push(workload);
            }
        }
    }
    names
}

fn names_clash(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (name, schedulers) in by_name(evidence) {
        if let [first, others @ ..] = schedulers.as_slice() {
            for other in others {
                let what = format!("the profile name {name:?} is also that of {}", first.title());
                findings.error(other.title(), what);
            }
        }
    }
}

fn name_unknown(evidence: &Evidence, findings: &mut Findings<'_>) {
    let schedulers =
        evidence.workloads.iter().filter(|workload| matches!(workload.role, Role::Scheduler { .. }));
    // A scheduler with an unknown configuration may have any profile name.
    if schedulers.into_iter().any(|scheduler| scheduler.scheduler.is_none()) {
        return;
    }
    let names = by_name(evidence);
    let known = |name: &str| name == "default-scheduler" || names.contains_key(name);
    let listed = names.keys().copied().chain(["default-scheduler"]);
    let listed: std::collections::BTreeSet<&str> = listed.collect();
    let listed = listed.into_iter().collect::<Vec<_>>().join(", ");
    for pod in evidence.pods.values().filter(|pod| pod.is_waiting() && !known(&pod.scheduler)) {
        if evidence.age_ms(pod.created).is_some_and(|age| age > PATIENCE_MS) {
            let what =
                format!("no scheduler has the name {:?}; the existing names are {listed}", pod.scheduler);
            findings.error(pod.title(), what);
        }
    }
}

/// Whether a pod has exclusive resources on a node that enforces alignment.
fn holds(evidence: &Evidence, pod: &Pod) -> bool {
    let topology = pod.node.as_ref().and_then(|node| evidence.topology(node));
    let (Some(topology), Ok(request)) = (topology, &pod.request) else { return false };
    topology.rules.policy.enforces()
        && is_exclusive(topology.rules, &topology.allocatable(), &request.needs())
}

fn overlap(evidence: &Evidence, findings: &mut Findings<'_>) {
    if evidence.numa_schedulers().next().is_none() {
        return;
    }
    let ours = evidence.numa_names();
    let mut foreign: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in evidence.pods.values().filter(|pod| !pod.is_over() && !ours.contains(&pod.scheduler)) {
        if holds(evidence, pod) {
            foreign.entry(&pod.scheduler).or_default().push(pod);
        }
    }
    for (scheduler, pods) in foreign {
        let example =
            pods.first().map(|pod| format!("{} on {}", pod.key(), pod.node.as_deref().unwrap_or_default()));
        let what = format!(
            "the scheduler placed {} with exclusive resources on nodes that enforce alignment, such as {}",
            if pods.len() == 1 { "1 pod".to_owned() } else { format!("{} pods", pods.len()) },
            example.unwrap_or_default(),
        );
        findings.warning(format!("Scheduler {scheduler}"), what);
    }
}
