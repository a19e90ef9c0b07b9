//! Whether a scheduler that knows zones works, and whether others work against it.

use std::collections::BTreeMap;

use topology::admit::is_exclusive;

use super::Check;
use crate::validate::evidence::{Area, Evidence, Pod, Role, Workload};
use crate::validate::finding::Findings;

const WORKLOADS: &[Area] = &[Area::Workloads];

pub(super) const TABLE: [Check; 6] = [
    Check {
        id: "scheduler-absent",
        about: "a scheduler that knows zones is installed",
        severity: "warning",
        needs: &[Area::Workloads, Area::Pods],
        why: "schedulers that see only a node's totals send pods to nodes that then refuse them",
        fix: "install one: tholepin deploy scheduler-plugin",
        run: absent,
    },
    Check {
        id: "scheduler-not-ready",
        about: "schedulers are ready",
        severity: "error, warning",
        needs: WORKLOADS,
        why: "pods that ask for it stay Pending",
        fix: "look at its pods: kubectl describe, and their log",
        run: not_ready,
    },
    Check {
        id: "scheduler-leader",
        about: "a scheduler with leader election has a leader that renews its lease",
        severity: "error",
        needs: &[Area::Workloads, Area::Leases],
        why: "without a leader no replica places pods",
        fix: "see in the scheduler's log why it cannot take the lease; it must be allowed to create and update it",
        run: leader,
    },
    Check {
        id: "scheduler-names-clash",
        about: "no two schedulers answer to the same name",
        severity: "error",
        needs: WORKLOADS,
        why: "both place the same pods, each without knowing what the other does",
        fix: "rename the profile of one, or remove it",
        run: names_clash,
    },
    Check {
        id: "scheduler-name-unknown",
        about: "every pod that waits asks for a scheduler there is",
        severity: "error",
        needs: &[Area::Workloads, Area::Pods],
        why: "no scheduler ever looks at such a pod, and no event says so",
        fix: "correct schedulerName in the pod's template",
        run: name_unknown,
    },
    Check {
        id: "schedulers-overlap",
        about: "pods with resources of their own on nodes that enforce alignment come from the scheduler that knows zones",
        severity: "warning",
        needs: &[Area::Nodes, Area::Reports, Area::Workloads, Area::Pods],
        why: "what another scheduler places is unforeseen: its pods and ours may be refused by the kubelet",
        fix: "set schedulerName of these pods to the scheduler that knows zones, or keep the two apart with taints",
        run: overlap,
    },
];

/// How long a pod may wait before somebody should have looked at it, in milliseconds.
const PATIENCE_MS: i64 = 60_000;
/// How many times its duration a lease may be old.
const LATE: i64 = 3;

fn absent(evidence: &Evidence, findings: &mut Findings<'_>) {
    if evidence.numa_schedulers().next().is_none() {
        findings.warning("Cluster", "no scheduler that knows NUMA zones is installed");
    }
}

fn not_ready(evidence: &Evidence, findings: &mut Findings<'_>) {
    for scheduler in evidence.numa_schedulers() {
        if scheduler.desired == 0 {
            findings.error(scheduler.title(), "this scheduler is scaled to 0");
        } else if scheduler.ready == 0 {
            findings.error(
                scheduler.title(),
                format!("none of the {} pods of this scheduler is ready", scheduler.desired),
            );
        } else if scheduler.ready < scheduler.desired {
            let what =
                format!("{} of {} pods of this scheduler are ready", scheduler.ready, scheduler.desired);
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
            findings
                .error(scheduler.title(), format!("there is no lease {namespace}/{name}, so nobody leads"));
            continue;
        };
        let limit_s = lease.duration_s.saturating_mul(LATE);
        let late = evidence.age_ms(lease.renewed).is_some_and(|age| age / 1000 > limit_s);
        if lease.holder.is_empty() {
            findings.error(scheduler.title(), format!("nobody holds the lease {namespace}/{name}"));
        } else if late {
            let what = format!(
                "{} holds the lease {namespace}/{name} and has not renewed it for more than {limit_s} s",
                lease.holder
            );
            findings.error(scheduler.title(), what);
        }
    }
}

/// The schedulers that answer to each name. Replicas of one are one: several static pods of one namespace are.
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
                let what = format!("it answers to the name {name:?}, as {} does", first.title());
                findings.error(other.title(), what);
            }
        }
    }
}

fn name_unknown(evidence: &Evidence, findings: &mut Findings<'_>) {
    let schedulers =
        evidence.workloads.iter().filter(|workload| matches!(workload.role, Role::Scheduler { .. }));
    // One whose names are not known may answer to any; and the control plane's own is often out of sight.
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
                format!("it asks for the scheduler {:?}; those there are answer to {listed}", pod.scheduler);
            findings.error(pod.title(), what);
        }
    }
}

/// Whether a pod holds something of a zone for itself.
fn holds(evidence: &Evidence, pod: &Pod) -> bool {
    let report = pod.node.as_ref().and_then(|node| evidence.reports.get(node));
    let (Some(Ok((topology, _))), Ok(request)) = (report.map(|report| &report.read), &pod.request) else {
        return false;
    };
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
            "it placed {} with exclusive resources on nodes that enforce alignment, such as {}",
            if pods.len() == 1 { "1 pod".to_owned() } else { format!("{} pods", pods.len()) },
            example.unwrap_or_default(),
        );
        findings.warning(format!("Scheduler {scheduler}"), what);
    }
}
