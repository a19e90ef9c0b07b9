//! Options and feature gates.

use serde_json::{Value, json};

use super::kubelets::at;
use super::{Seed, also, seed};
use crate::validate::finding::Severity::{Error, Warning};
use crate::validate::tests::fixture::ClusterFixture;

fn cpu_options(w: &mut ClusterFixture, options: Value) {
    w.configure("node-0", "cpuManagerPolicyOptions", options);
}

pub(super) const OPTIONS: &[Seed] = &[
    seed(
        "cpu-manager-options",
        Error,
        "Node node-0",
        "option \"full-pcpus\" is not known to any kubelet",
        |w| {
            cpu_options(w, json!({ "full-pcpus": "true" }));
        },
    ),
    seed(
        "cpu-manager-options",
        Error,
        "Node node-0",
        "\"strict-cpu-reservation\" is not known before 1.32",
        |w| {
            at(w, "v1.31.4");
            cpu_options(w, json!({ "strict-cpu-reservation": "true" }));
        },
    ),
    seed(
        "cpu-manager-options",
        Error,
        "Node node-0",
        "is alpha in 1.36 and needs the feature gate CPUManagerPolicyAlphaOptions",
        |w| {
            cpu_options(w, json!({ "distribute-cpus-across-cores": "true" }));
        },
    ),
    seed(
        "cpu-manager-options",
        Error,
        "Node node-0",
        "is beta in 1.36 and needs the feature gate CPUManagerPolicyBetaOptions",
        |w| {
            cpu_options(w, json!({ "distribute-cpus-across-numa": "true" }));
            w.configure("node-0", "featureGates", json!({ "CPUManagerPolicyBetaOptions": false }));
        },
    ),
    seed(
        "topology-manager-options",
        Error,
        "Node node-0",
        "option \"prefer-far\" is not known to any kubelet",
        |w| {
            w.configure("node-0", "topologyManagerPolicyOptions", json!({ "prefer-far": "true" }));
        },
    ),
    seed(
        "topology-manager-options",
        Error,
        "Node node-0",
        "alpha in 1.27 and needs the feature gate TopologyManagerPolicyAlphaOptions",
        |w| {
            at(w, "v1.27.4");
            w.configure(
                "node-0",
                "topologyManagerPolicyOptions",
                json!({ "prefer-closest-numa-nodes": "true" }),
            );
        },
    ),
    seed(
        "options-conflict",
        Error,
        "Node node-0",
        "full-pcpus-only and distribute-cpus-across-cores exclude each other",
        |w| {
            cpu_options(w, json!({ "full-pcpus-only": "true", "distribute-cpus-across-cores": "true" }));
            w.configure("node-0", "featureGates", json!({ "CPUManagerPolicyAlphaOptions": true }));
        },
    ),
    seed(
        "options-conflict",
        Error,
        "Node node-0",
        "align-by-socket and topologyManagerPolicy single-numa-node exclude",
        |w| {
            cpu_options(w, json!({ "align-by-socket": "true" }));
            w.configure("node-0", "featureGates", json!({ "AllAlpha": true }));
        },
    ),
    also(
        seed(
            "options-ignored",
            Error,
            "Node node-0",
            "cpuManagerPolicyOptions (full-pcpus-only) are set while cpuManagerPolicy is none",
            |w| {
                w.configure("*", "cpuManagerPolicy", "none");
                w.attribute("*", "cpuManagerPolicy", "none");
                cpu_options(w, json!({ "full-pcpus-only": "true" }));
            },
        ),
        &["cpu-manager-policy"],
    ),
    also(
        seed(
            "options-ignored",
            Warning,
            "Node node-0",
            "topologyManagerPolicyOptions (prefer-closest-numa-nodes) are ignored",
            |w| {
                w.configure("*", "topologyManagerPolicy", "none");
                w.attribute("*", "topologyManagerPolicy", "none");
                w.configure(
                    "node-0",
                    "topologyManagerPolicyOptions",
                    json!({ "prefer-closest-numa-nodes": "true" }),
                );
            },
        ),
        &["topology-manager-policy"],
    ),
    seed(
        "feature-gates",
        Error,
        "Node node-0",
        "feature gate CPUManager is not known since 1.33, and this kubelet is 1.36",
        |w| {
            w.configure("node-0", "featureGates", json!({ "CPUManager": true }));
        },
    ),
    seed(
        "feature-gates",
        Error,
        "Node node-0",
        "CPUManagerPolicyOptions cannot be turned off since 1.33",
        |w| {
            w.configure("node-0", "featureGates", json!({ "CPUManagerPolicyOptions": false }));
        },
    ),
    seed("feature-gates", Warning, "Node node-0", "CPUManagerPolicyOptions is always on since 1.33", |w| {
        w.configure("node-0", "featureGates", json!({ "CPUManagerPolicyOptions": true }));
    }),
    also(
        seed(
            "numa-nodes-limit",
            Error,
            "Node node-0",
            "the machine has 9 NUMA nodes and the topology manager allows 8",
            |w| {
                let zones: Vec<Value> = (2..9)
                    .map(|id| json!({ "name": format!("node-{id}"), "type": "Node", "resources": [] }))
                    .collect();
                w.get("NodeResourceTopology node-0")["zones"].as_array_mut().unwrap().extend(zones);
            },
        ),
        &[],
    ),
];
