//! Pods.

use serde_json::{Value, json};

use super::{Seed, also, seed};
use crate::validate::finding::Severity::{Error, Warning};
use crate::validate::tests::fixture::{ClusterFixture, NOW, pod};

fn refused(name: &str, scheduler: &str, cpus: &str) -> Value {
    let mut pod = pod("shop", name, Some("node-0"), scheduler, cpus, "Failed");
    pod["status"]["reason"] = "TopologyAffinityError".into();
    pod
}

/// A pod of our scheduler, running on node-1, with other resources.
fn with_resources(w: &mut ClusterFixture, resources: Value) {
    let mut pod = pod("shop", "odd", Some("node-1"), "topo-aware-scheduler", "2", "Running");
    pod["spec"]["containers"][0]["resources"] = resources;
    w.add(pod);
    w.sign("node-1");
}

pub(super) const PODS: &[Seed] = &[
    seed(
        "pod-rejected",
        Error,
        "Pod shop/db-2",
        "node-0 rejected the pod with TopologyAffinityError, although topo-aware-scheduler placed the pod; the pod would fit the empty node",
        |w| {
            w.add(refused("db-2", "topo-aware-scheduler", "8"));
        },
    ),
    seed(
        "pod-rejected",
        Warning,
        "Pod shop/db-3",
        "default-scheduler, which ignores zones, placed the pod; the pod would not fit even an empty node: cannot align container \"main\": cpu: requested 20, most in one zone 16 (zone 1)",
        |w| {
            w.add(refused("db-3", "default-scheduler", "20"));
        },
    ),
    seed(
        "pod-rejected",
        Warning,
        "Pod shop/gone",
        "a kubelet rejected the pod with UnexpectedAdmissionError; the pod was deleted since",
        |w| {
            w.add(json!({ "kind": "Event", "metadata": { "namespace": "shop", "name": "gone.1" }, "reason": "UnexpectedAdmissionError",
                "involvedObject": { "kind": "Pod", "namespace": "shop", "name": "gone", "uid": "gone" }, "lastTimestamp": NOW }));
        },
    ),
    seed(
        "pod-never-fits",
        Error,
        "Pod shop/big",
        "the pod would not fit any node even when empty; node-0 comes nearest: cannot align container \"main\": cpu: requested 20, most in one zone 16 (zone 1)",
        |w| {
            w.add(pod("shop", "big", None, "topo-aware-scheduler", "20", "Pending"));
        },
    ),
    also(
        seed(
            "pod-hugepages",
            Error,
            "Pod shop/huge",
            "the pod requests hugepages-1Gi, which no node offers",
            |w| {
                let mut pod = pod("shop", "huge", None, "topo-aware-scheduler", "2", "Pending");
                let amounts = json!({ "cpu": "2", "memory": "1Gi", "hugepages-1Gi": "1Gi" });
                pod["spec"]["containers"][0]["resources"] = json!({ "requests": amounts, "limits": amounts });
                w.add(pod);
            },
        ),
        &["pod-never-fits"],
    ),
    seed(
        "pod-hugepages",
        Error,
        "Pod shop/fast",
        "the pod requests example.com/nic, which no node offers",
        |w| {
            let mut pod = pod("shop", "fast", None, "topo-aware-scheduler", "2", "Pending");
            let amounts = json!({ "cpu": "2", "memory": "1Gi", "example.com/nic": "1" });
            pod["spec"]["containers"][0]["resources"] = json!({ "requests": amounts, "limits": amounts });
            w.add(pod);
        },
    ),
    seed(
        "pod-smt",
        Error,
        "Pod shop/odd",
        "container \"main\" requests 3 CPUs, but all nodes allocate whole cores of 2 threads",
        |w| {
            w.configure("*", "cpuManagerPolicyOptions", json!({ "full-pcpus-only": "true" }));
            let amounts = json!({ "cpu": "3", "memory": "1Gi" });
            with_resources(w, json!({ "requests": amounts, "limits": amounts }));
        },
    ),
];

pub(super) const QOS: &[Seed] = &[
    seed(
        "pod-qos",
        Warning,
        "Pod shop/odd",
        "the QoS class is not Guaranteed: container \"main\" has no limit of cpu",
        |w| {
            with_resources(w, json!({ "requests": { "cpu": "2", "memory": "1Gi" } }));
        },
    ),
    seed(
        "pod-qos",
        Warning,
        "Pod shop/odd",
        "container \"main\" requests 2 of cpu and is limited to 4",
        |w| {
            with_resources(
                w,
                json!({ "requests": { "cpu": "2", "memory": "1Gi" }, "limits": { "cpu": "4", "memory": "1Gi" } }),
            );
        },
    ),
    seed("pod-qos", Warning, "Pod shop/odd", "container \"setup\" has no limit of cpu", |w| {
        let amounts = json!({ "cpu": "2", "memory": "1Gi" });
        with_resources(w, json!({ "requests": amounts, "limits": amounts }));
        w.get("Pod odd")["spec"]["initContainers"] = json!([{ "name": "setup", "image": "setup" }]);
    }),
    seed(
        "pod-cpu-fraction",
        Warning,
        "Pod shop/odd",
        "container \"main\" requests 1500m of cpu, not a whole number",
        |w| {
            let amounts = json!({ "cpu": "1500m", "memory": "1Gi" });
            with_resources(w, json!({ "requests": amounts, "limits": amounts }));
        },
    ),
];
