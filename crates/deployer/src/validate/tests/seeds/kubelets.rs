//! Policies of kubelets.

use serde_json::json;

use super::{Seed, also, seed};
use crate::validate::finding::Severity::{Error, Info, Warning};
use crate::validate::tests::fixture::ClusterFixture;

/// The API server and the kubelets are of this version.
pub(super) fn at(w: &mut ClusterFixture, version: &str) {
    w.version = version.to_owned();
    for node in ["Node node-0", "Node node-1"] {
        w.get(node)["status"]["nodeInfo"]["kubeletVersion"] = version.into();
    }
}

pub(super) const KUBELETS: &[Seed] = &[
    seed("podresources-gate", Error, "Node node-0", "no feature gates are set", |w| at(w, "v1.21.1")),
    seed("podresources-gate", Error, "Node node-1", "KubeletPodResourcesGetAllocatable is off", |w| {
        at(w, "v1.22.0");
        w.configure("*", "featureGates", json!({ "KubeletPodResourcesGetAllocatable": false }));
    }),
    also(
        seed("kubelet-config-invalid", Error, "Node node-0", "topologyManagerPolicy is \"strict\"", |w| {
            w.configure("node-0", "topologyManagerPolicy", "strict");
        }),
        &["topology-manager-policy"],
    ),
    also(
        seed(
            "cpu-manager-policy",
            Error,
            "Node node-1",
            "cpuManagerPolicy is \"none\", so topologyManagerPolicy single-numa-node does not align CPUs",
            |w| {
                w.configure("*", "cpuManagerPolicy", "none");
                w.attribute("*", "cpuManagerPolicy", "none");
            },
        ),
        &[],
    ),
    also(
        seed("cpu-manager-policy", Warning, "Node node-0", "cpuManagerPolicy is \"none\", not static", |w| {
            w.configure("*", "cpuManagerPolicy", "none");
            w.configure("*", "topologyManagerPolicy", "best-effort");
            w.attribute("*", "cpuManagerPolicy", "none");
            w.attribute("*", "topologyManagerPolicy", "best-effort");
        }),
        &["topology-manager-policy"],
    ),
    seed("cpu-manager-reconcile-period", Warning, "Node node-0", "cpuManagerReconcilePeriod is 30s", |w| {
        w.configure("node-0", "cpuManagerReconcilePeriod", "30s");
    }),
    seed("cpu-manager-reconcile-period", Warning, "Node node-0", "is 500ms, not within 1s and 10s", |w| {
        w.configure("node-0", "cpuManagerReconcilePeriod", "500ms");
    }),
    seed(
        "reserved-cpus",
        Error,
        "Node node-0",
        "no CPU is reserved for the system: reservedSystemCPUs",
        |w| {
            w.configure("node-0", "reservedSystemCPUs", "");
        },
    ),
    seed("reserved-cpus", Info, "Node node-0", "the CPUs of the system are an amount (1500m)", |w| {
        w.configure("node-0", "reservedSystemCPUs", "");
        w.configure("node-0", "kubeReserved", json!({ "cpu": "500m", "memory": "1Gi" }));
        w.configure("node-0", "systemReserved", json!({ "cpu": "1", "memory": "924Mi" }));
    }),
    also(
        seed("reserved-cpus", Info, "Node node-0", "no CPU is reserved for the system", |w| {
            w.configure("*", "reservedSystemCPUs", "");
            w.configure("*", "cpuManagerPolicy", "none");
            w.attribute("*", "cpuManagerPolicy", "none");
        }),
        &["cpu-manager-policy"],
    ),
    also(
        seed(
            "memory-manager-policy",
            Warning,
            "Node node-0",
            "memoryManagerPolicy is \"None\", so topologyManagerPolicy single-numa-node does not align memory",
            |w| {
                w.configure("*", "memoryManagerPolicy", "None");
                w.attribute("*", "memoryManagerPolicy", "None");
            },
        ),
        &[],
    ),
    also(
        seed(
            "memory-manager-policy",
            Info,
            "Node node-1",
            "memoryManagerPolicy is \"None\", not Static",
            |w| {
                w.configure("*", "memoryManagerPolicy", "None");
                w.configure("*", "topologyManagerPolicy", "best-effort");
                w.attribute("*", "memoryManagerPolicy", "None");
                w.attribute("*", "topologyManagerPolicy", "best-effort");
            },
        ),
        &["topology-manager-policy"],
    ),
    seed("reserved-memory", Error, "Node node-1", "no memory is reserved for the system in any zone", |w| {
        w.configure("node-1", "reservedMemory", json!([]));
    }),
    also(
        seed("reserved-memory", Info, "Node node-1", "reservedMemory is empty", |w| {
            w.configure("*", "memoryManagerPolicy", "None");
            w.configure("*", "reservedMemory", json!([]));
            w.attribute("*", "memoryManagerPolicy", "None");
        }),
        &["memory-manager-policy"],
    ),
    seed("topology-manager-policy", Warning, "Node node-0", "topologyManagerPolicy is \"none\"", |w| {
        w.configure("*", "topologyManagerPolicy", "none");
        w.attribute("*", "topologyManagerPolicy", "none");
    }),
    seed("topology-manager-policy", Info, "Node node-0", "restricted: pods may span zones", |w| {
        w.configure("*", "topologyManagerPolicy", "restricted");
        w.attribute("*", "topologyManagerPolicy", "restricted");
    }),
    seed("topology-manager-policy", Info, "Node node-1", "best-effort: pods are aligned where", |w| {
        w.configure("*", "topologyManagerPolicy", "best-effort");
        w.attribute("*", "topologyManagerPolicy", "best-effort");
    }),
    also(
        seed("pool-disagrees", Warning, "Node node-0", "the node has topology policy restricted", |w| {
            w.configure("node-0", "topologyManagerPolicy", "restricted");
            w.attribute("node-0", "topologyManagerPolicy", "restricted");
        }),
        &["topology-manager-policy"],
    ),
    seed("pool-disagrees", Warning, "Node node-0", "scope container", |w| {
        w.configure("node-1", "topologyManagerScope", "pod");
        w.attribute("node-1", "topologyManagerScope", "pod");
    }),
];
