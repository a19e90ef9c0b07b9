//! Exporters: one on each node that needs it, and ready.

use std::collections::{BTreeMap, BTreeSet};

use super::report::may_enforce;
use super::{Check, Findings};
use crate::validate::evidence::{Area, Evidence, Pod, Role};

pub(super) const TABLE: [Check; 3] = [
    Check {
        id: "exporter-absent",
        about: "an exporter runs on every node that needs one",
        severity: "error, info",
        needs: &[Area::Nodes, Area::Workloads, Area::Pods, Area::Reports],
        why: "without an exporter the zones of the node are unknown",
        fix: "install an exporter with: tholepin deploy exporter; check node selector and tolerations of the DaemonSet",
        run: absent,
    },
    Check {
        id: "exporter-not-ready",
        about: "every pod of an exporter is ready",
        severity: "error, warning",
        needs: &[Area::Workloads],
        why: "the report of a node whose exporter does not work grows old",
        fix: "inspect the pods that are not ready with kubectl describe and kubectl logs",
        run: not_ready,
    },
    Check {
        id: "exporter-twice",
        about: "no node has two exporters",
        severity: "error",
        needs: &[Area::Nodes, Area::Workloads, Area::Pods],
        why: "two exporters overwrite each other's report",
        fix: "remove one exporter, or give both node selectors that exclude each other",
        run: twice,
    },
];

/// The pods of exporters by node, without those that ended or are being deleted.
fn running(evidence: &Evidence) -> BTreeMap<&str, Vec<&Pod>> {
    let mut nodes: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    let pods = evidence.pods.values().filter(|pod| pod.role == Some(Role::Exporter) && !pod.is_over());
    for pod in pods.filter(|pod| !pod.deleting) {
        if let Some(node) = pod.node.as_deref() {
            nodes.entry(node).or_default().push(pod);
        }
    }
    nodes
}

fn absent(evidence: &Evidence, findings: &mut Findings<'_>) {
    let running = running(evidence);
    let workloads = evidence.workloads.iter().filter(|workload| workload.role == Role::Exporter);
    if workloads.count() == 0 && running.is_empty() {
        if evidence.reports.is_empty() {
            findings.error("Cluster", "no exporter is installed");
        } else {
            let what = "no exporter runs as a pod, so a program outside the cluster must write the reports";
            findings.info("Cluster", what);
        }
        return;
    }
    for node in evidence.workers() {
        if may_enforce(node) && !running.contains_key(node.name.as_str()) {
            findings.error(node.title(), "no exporter runs on this node, although an exporter is installed");
        }
    }
}

fn not_ready(evidence: &Evidence, findings: &mut Findings<'_>) {
    for workload in evidence.workloads.iter().filter(|workload| workload.role == Role::Exporter) {
        if workload.desired == 0 {
            findings.warning(workload.title(), "the exporter matches no node");
        } else if workload.ready < workload.desired {
            let what = format!("{} of {} pods of the exporter are ready", workload.ready, workload.desired);
            findings.error(workload.title(), what);
        }
    }
}

fn twice(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (node, pods) in running(evidence) {
        let owner = |pod: &&Pod| match &pod.owner {
            Some((kind, name)) => format!("{kind} {}/{name}", pod.namespace),
            None => pod.title(),
        };
        let owners: BTreeSet<String> = pods.iter().map(owner).collect();
        if owners.len() > 1 {
            let list = owners.into_iter().collect::<Vec<_>>().join(" and ");
            findings.error(format!("Node {node}"), format!("more than one exporter runs here: {list}"));
        }
    }
}
