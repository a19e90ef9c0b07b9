//! What kubelets keep for the system.

use serde_json::json;

use super::{Seed, also, seed};
use crate::validate::finding::Severity::{Error, Warning};

pub(super) const RESERVED: &[Seed] = &[
    also(
        seed("reserved-cpus-range", Error, "Node node-0", "the machine has no CPU 40-41", |w| {
            w.configure("node-0", "reservedSystemCPUs", "0,16,40-41");
        }),
        &[],
    ),
    also(
        seed("reserved-cpus-range", Error, "Node node-0", "are 34 CPUs, but the machine has 32", |w| {
            w.configure("node-0", "reservedSystemCPUs", "0-33");
            w.remove("NodeResourceTopology node-0");
        }),
        &["report-missing"],
    ),
    also(
        seed("reserved-cpus-range", Error, "Node node-0", "0-31 are all CPUs of the machine", |w| {
            w.configure("node-0", "reservedSystemCPUs", "0-31");
        }),
        &["reserved-zone-without-cpus"],
    ),
    seed("reserved-cpus-cores", Warning, "Node node-0", "are 1 CPUs on cores of 2 threads", |w| {
        w.configure("node-0", "reservedSystemCPUs", "0");
    }),
    seed("reserved-cpus-cores", Warning, "Node node-0", "half reserved while full-pcpus-only is on", |w| {
        w.configure("node-0", "reservedSystemCPUs", "0,1,16");
        w.configure("node-0", "cpuManagerPolicyOptions", json!({ "full-pcpus-only": "true" }));
    }),
    seed(
        "reserved-cpus-overridden",
        Warning,
        "Node node-1",
        "are 2 CPUs, but kubeReserved and systemReserved ask for 4500m",
        |w| {
            w.configure("node-1", "kubeReserved", json!({ "cpu": "4", "memory": "1Gi" }));
            w.configure("node-1", "systemReserved", json!({ "cpu": "500m", "memory": "924Mi" }));
        },
    ),
    seed(
        "reserved-zone-without-cpus",
        Warning,
        "Node node-1",
        "are all CPUs of zone node-1 (8-15,24-31)",
        |w| {
            w.configure("node-1", "reservedSystemCPUs", "8-15,24-31");
        },
    ),
    seed(
        "reserved-memory-sum",
        Error,
        "Node node-0",
        "reservedMemory of memory adds up to 2147483648 bytes",
        |w| {
            w.configure("node-0", "kubeReserved", json!({ "memory": "2Gi" }));
        },
    ),
    seed("reserved-memory-sum", Error, "Node node-0", "evictionHard memory.available are", |w| {
        w.configure("node-0", "evictionHard", json!({ "memory.available": "5%" }));
    }),
    seed(
        "reserved-memory-sum",
        Error,
        "Node node-0",
        "reservedMemory of hugepages-2Mi adds up to 4194304 bytes",
        |w| {
            w.configure(
                "node-0",
                "reservedMemory",
                json!([
                    { "numaNode": 0, "limits": { "memory": "1Gi", "hugepages-2Mi": "4Mi" } },
                    { "numaNode": 1, "limits": { "memory": "1Gi" } },
                ]),
            );
        },
    ),
    seed("reserved-memory-zones", Error, "Node node-1", "reservedMemory names NUMA node 3", |w| {
        w.configure("node-1", "reservedMemory", json!([
                { "numaNode": 0, "limits": { "memory": "1Gi" } }, { "numaNode": 3, "limits": { "memory": "1Gi" } },
            ]));
    }),
];
