//! Real kubelets that are configured badly but start all the same.

use std::fs;

use serde_json::{Map, Value, json};
use testkit::kubelet::KubeletOptions;
use testkit::machine::Machine;

use super::*;

/// Changes of a kubelet's configuration, and what has to be found about its node.
struct Seed {
    changes: Value,
    found: &'static [(&'static str, &'static str)],
}

fn seeds() -> Vec<Seed> {
    let seed = |changes, found| Seed { changes, found };
    vec![
        seed(
            json!({ "cpuManagerReconcilePeriod": "30s", "topologyManagerScope": "pod",
                "featureGates": { "CPUManagerPolicyOptions": true } }),
            &[
                ("cpu-manager-reconcile-period", "cpuManagerReconcilePeriod is 30s"),
                ("pool-disagrees", "scope pod"),
                ("feature-gates", "feature gate CPUManagerPolicyOptions is always on since 1.33"),
            ],
        ),
        seed(
            json!({ "cpuManagerPolicy": "none" }),
            &[
                (
                    "cpu-manager-policy",
                    "cpuManagerPolicy is \"none\", so topologyManagerPolicy single-numa-node does not align CPUs",
                ),
                ("pool-disagrees", "CPU manager none"),
            ],
        ),
        seed(
            json!({ "memoryManagerPolicy": "None", "reservedMemory": [] }),
            &[
                ("memory-manager-policy", "memoryManagerPolicy is \"None\", so topologyManagerPolicy"),
                ("reserved-memory", "reservedMemory is empty"),
            ],
        ),
        seed(
            json!({ "topologyManagerPolicy": "none", "topologyManagerPolicyOptions": { "prefer-closest-numa-nodes": "true" } }),
            &[
                ("topology-manager-policy", "topologyManagerPolicy is \"none\""),
                ("options-ignored", "topologyManagerPolicyOptions (prefer-closest-numa-nodes) are ignored"),
            ],
        ),
        seed(
            json!({ "topologyManagerPolicy": "restricted" }),
            &[("topology-manager-policy", "restricted: pods may span zones")],
        ),
        seed(
            json!({ "topologyManagerPolicy": "best-effort" }),
            &[("topology-manager-policy", "best-effort: pods are aligned")],
        ),
    ]
}

/// As above; CPUs kept for the system.
fn reserved() -> Vec<Seed> {
    let seed = |changes, found| Seed { changes, found };
    vec![
        seed(
            json!({ "reservedSystemCPUs": "", "kubeReserved": { "memory": "511Mi", "cpu": "1500m" } }),
            &[("reserved-cpus", "the CPUs of the system are an amount (1500m)")],
        ),
        seed(
            json!({ "reservedSystemCPUs": "0" }),
            &[("reserved-cpus-cores", "are 1 CPUs on cores of 2 threads")],
        ),
        seed(
            json!({ "reservedSystemCPUs": "0,1,16", "cpuManagerPolicyOptions": { "full-pcpus-only": "true" } }),
            &[("reserved-cpus-cores", "one core is half reserved while full-pcpus-only is on")],
        ),
        seed(
            json!({ "reservedSystemCPUs": "8-15,24-31" }),
            &[("reserved-zone-without-cpus", "are all CPUs of zone node-1 (8-15,24-31)")],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelets_with_bad_settings_are_found() {
    let kubelet = KubeletOptions { reserved_cpus: "0,16".to_owned(), ..KubeletOptions::default() };
    let machine = Machine::new().smt(true);
    let describe =
        |builder: Builder| builder.machines([machine.clone(), machine.clone(), machine]).kubelet(kubelet);
    let Some(installed) = Installed::start(describe).await else { return };
    installed.is_fine().await;
    let node = &installed.cluster.nodes()[0];
    let good: Map<String, Value> =
        serde_json::from_str(&fs::read_to_string(node.kubelet().config_file()).unwrap()).unwrap();
    let reset = json!({ "featureGates": {}, "cpuManagerReconcilePeriod": "10s", "cpuManagerPolicyOptions": {},
        "topologyManagerPolicyOptions": {} });
    for Seed { changes, found } in seeds().into_iter().chain(reserved()) {
        let mut config = reset.as_object().unwrap().clone();
        config.extend(good.clone());
        config.extend(changes.as_object().unwrap().clone());
        reconfigure(&installed, &config).await;
        for (id, what) in found {
            installed.finds(id, "Node node-0", what).await;
        }
    }
    let mut config = reset.as_object().unwrap().clone();
    config.extend(good);
    reconfigure(&installed, &config).await;
    installed.is_fine().await;
}

/// Restarts the kubelet of `node-0` with this configuration, without the memory of another one.
async fn reconfigure(installed: &Installed, config: &Map<String, Value>) {
    let kubelet = installed.cluster.nodes()[0].kubelet();
    kubelet.configure(config).unwrap();
    for file in ["cpu_manager_state", "memory_manager_state"] {
        let _ = fs::remove_file(kubelet.root_dir().join(file));
    }
    kubelet.restart().await.unwrap();
}
