//! The cluster as a whole: versions, nodes.

use super::{Check, Findings};
use crate::validate::evidence::{Area, Evidence, Node};

/// The oldest version that the Go deployer supports: its kubelets are the first that report allocatable resources.
const OLDEST: [u64; 2] = [1, 21];
/// The greatest allowed distance between kubelet and API server in minor versions (Kubernetes' version skew policy
/// since 1.28).
const SKEW: u64 = 3;

pub(super) const TABLE: [Check; 3] = [
    Check {
        id: "server-version",
        about: "the API server is 1.21 or later",
        severity: "error",
        needs: &[Area::Version],
        why: "older kubelets do not report allocatable resources, which exporters publish",
        fix: "upgrade the cluster to Kubernetes 1.21 or later",
        run: server_version,
    },
    Check {
        id: "worker-nodes",
        about: "there are nodes, and the kubelet of at least one of them answers",
        severity: "error",
        needs: &[Area::Nodes],
        why: "there is no node on which pods could be aligned",
        fix: "add nodes, label workers with node-role.kubernetes.io/worker=, or select nodes with -l",
        run: worker_nodes,
    },
    Check {
        id: "version-skew",
        about: "kubelets are at most three minor versions older than the API server, and not newer",
        severity: "error, warning",
        needs: &[Area::Version, Area::Nodes],
        why: "Kubernetes does not support this version skew; such a kubelet may align pods differently than schedulers predict",
        fix: "upgrade to one minor version everywhere, the control plane first",
        run: version_skew,
    },
];

fn server_version(evidence: &Evidence, findings: &mut Findings<'_>) {
    let Some(text) = &evidence.server_version else { return };
    match evidence.server() {
        None => {
            let detected = format!("malformed version: {text}");
            let what = format!("the API server's version {text:?} cannot be read");
            findings.error("Cluster", what).cluster(["API Version", "", "valid version", &detected]);
        }
        Some(version) if !version.at_least(&OLDEST) => {
            let what = format!("the API server is {text}, older than 1.21");
            findings.error("Cluster", what).cluster(["API Version", "", "1.21", text]);
        }
        Some(_) => {}
    }
}

fn worker_nodes(evidence: &Evidence, findings: &mut Findings<'_>) {
    let workers = evidence.workers();
    let what = if workers.is_empty() {
        "no node was found"
    } else if workers.iter().all(|node| matches!(node.kubelet, Some(Err(_)))) {
        "no kubelet answered the request for its configuration"
    } else {
        return;
    };
    findings.error("Cluster", what).cluster(["", "", "worker nodes", "none"]);
}

fn version_skew(evidence: &Evidence, findings: &mut Findings<'_>) {
    let Some(server) = evidence.server() else { return };
    let minor = |node: &Node| node.version().filter(|version| version.number(0) == server.number(0));
    for node in evidence.workers() {
        let Some(kubelet) = minor(node) else { continue };
        let (ours, theirs) = (server.number(1), kubelet.number(1));
        if theirs > ours {
            let what = format!("kubelet {kubelet} is newer than the API server {server}");
            findings.error(node.title(), what);
        } else if ours - theirs > SKEW {
            let what = format!(
                "kubelet {kubelet} is {} minor versions older than the API server {server}",
                ours - theirs
            );
            findings.warning(node.title(), what);
        }
    }
}
