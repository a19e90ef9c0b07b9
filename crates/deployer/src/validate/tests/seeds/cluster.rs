//! Versions and nodes.

use serde_json::json;

use super::{Seed, also, seed};
use crate::validate::finding::Severity::{Error, Warning};

pub(super) const CLUSTER: &[Seed] = &[
    also(
        seed("server-version", Error, "Cluster", "the API server is v1.20.7, older than 1.21", |w| {
            w.version = "v1.20.7".to_owned();
            w.configure("*", "featureGates", json!({ "KubeletPodResourcesGetAllocatable": true }));
            for node in ["Node node-0", "Node node-1"] {
                w.get(node)["status"]["nodeInfo"]["kubeletVersion"] = "v1.20.7".into();
            }
        }),
        &[],
    ),
    also(
        seed("server-version", Error, "Cluster", "version \"INVALID\" cannot be read", |w| {
            w.version = "INVALID".to_owned();
        }),
        &["podresources-gate"],
    ),
    also(
        seed("worker-nodes", Error, "Cluster", "no node was found", |w| {
            w.objects.retain(|key, _| !key.starts_with("Node ") && !key.starts_with("NodeResourceTopology"));
        }),
        &[],
    ),
    seed("version-skew", Error, "Node node-1", "kubelet v1.37.0 is newer than the API server v1.36.3", |w| {
        w.get("Node node-1")["status"]["nodeInfo"]["kubeletVersion"] = "v1.37.0".into();
    }),
    seed("version-skew", Warning, "Node node-0", "kubelet v1.32.1 is 4 minor versions older", |w| {
        w.get("Node node-0")["status"]["nodeInfo"]["kubeletVersion"] = "v1.32.1".into();
    }),
];
