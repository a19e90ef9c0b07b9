//! OpenShift with machines: KubeletConfigs and pools that change real kubelets, under the operator and its exporters.
//!
//! In: a tainted master and two workers, the fake of the Machine Config Operator. Out: what kubelets admit, reports
//! that follow, counts and annotations. Never: a kubelet that is changed by anything but the fake.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use deployer::platform::Platform;
use fakes::openshift::mco::Mco;
use fakes::openshift::{kubelet_config, make, pool, tls_profile};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use testkit::cluster::Cluster;
use testkit::cri::Image;
use testkit::kubelet::KubeletOptions;
use testkit::machine::Machine;
use testkit::{env, load, net};
use tokio::time::Instant;
use topology::policy::Policy;

use super::openshift::{WORKER, single_numa_node};
use super::rig::{IMAGE, PATIENCE, control, images, install, tholepin, until};
use super::seen::Seen;

const CNF: &str = "pools.operator.machineconfiguration.openshift.io/cnf";
/// Nodes reboot one after the other.
const ROLLED_OUT_WITHIN: Duration = PATIENCE.saturating_mul(4);
/// What the Machine Config Operator says of a node.
const CURRENT: &str = "machineconfiguration.openshift.io/currentConfig";
const DESIRED: &str = "machineconfiguration.openshift.io/desiredConfig";
const STATE: &str = "machineconfiguration.openshift.io/state";

/// The reason for a pod whose containers fit zones one by one, but not together.
const REJECTED: &str = "TopologyAffinityError";

#[test]
fn kubelets_follow_their_pools_and_reports_follow_kubelets() {
    let Ok(rig) = env::rig() else { return };
    let Some(program) = tholepin() else { return };
    net::private(async |network| {
        let machine = || Machine::new().zones(2).cpus_per_zone(4);
        // All that is aligned is so by a KubeletConfig.
        let base = KubeletOptions { policy: Policy::None, ..KubeletOptions::default() };
        let labels = BTreeMap::from([("node-role.kubernetes.io/worker".to_owned(), String::new())]);
        let worker = KubeletOptions { labels, ..base.clone() };
        // Security context constraints would choose a user of the namespace.
        let image =
            Image::program(&program).file(&program, "/bin/resource-topology-exporter").user(1000, 1000);
        let images = images(&program).with(IMAGE, image);
        let cluster = Cluster::builder()
            .control(control(&network, true))
            .node(machine(), base.master())
            .node(machine(), worker.clone())
            .node(machine(), worker)
            .installable(network, images);
        let cluster = Arc::new(cluster.start(&rig).await.unwrap());
        let seen = Seen { admin: cluster.client().await.unwrap(), log: None };
        install(&seen.admin, Platform::OpenShift, true).await;
        make(&seen.admin, &pool("cnf")).await.unwrap();
        let mco = Mco::start_with(&seen.admin, cluster.clone());
        let played = Played { seen, mco, cluster };
        played.configure("numa", WORKER, &single_numa_node("pod")).await;
        let groups = json!({ "nodeGroups": [{ "poolName": "worker" }, { "poolName": "cnf" }] });
        played.seen.ask_for_exporters(&groups).await;
        played.seen.until_true("operator", "Available", "", "").await;
        played.reports("single-numa-node", "pod", &["node-1", "node-2"]).await;
        assert_eq!(played.run("a").await, REJECTED);
        played.scopes_change().await;
        played.a_node_moves().await;
        played.back_to_the_base().await;
    })
    .unwrap();
}

struct Played {
    // First: it works on the machines.
    mco: Mco,
    seen: Seen,
    cluster: Arc<Cluster>,
}

impl Played {
    async fn configure(&self, name: &str, pool: &str, configuration: &Value) {
        make(&self.seen.admin, &kubelet_config(name, pool, configuration)).await.unwrap();
        self.settled().await;
    }

    /// Waits until all machines have what they shall have; of two workers one was always available.
    async fn settled(&self) {
        let began = Instant::now();
        let settled = self.mco.settled(ROLLED_OUT_WITHIN);
        // New machines come up together.
        let are_new = self.annotations("node-1").await[CURRENT].is_null();
        let watched = async {
            loop {
                let worker = self.status("worker").await;
                let all_at_once = worker["machineCount"] == 2 && worker["unavailableMachineCount"] == 2;
                assert!(!all_at_once || are_new, "{worker:#}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            settled = settled => settled.unwrap(),
            () = watched => {}
        }
        println!("machines: rolled out in {:?}", began.elapsed());
        for (node, pool) in self.pools().await {
            let target = self.status(&pool).await["configuration"]["name"].clone();
            let says = self.annotations(&node).await;
            assert_eq!([&says[CURRENT], &says[DESIRED]], [&target, &target], "{node} of {pool}");
            assert_eq!(says[STATE], "Done", "{node}");
        }
    }

    /// The nodes, and the pool that each is in.
    async fn pools(&self) -> Vec<(String, String)> {
        let nodes = self.seen.list("Node").await.into_iter().map(|node| {
            let labels = &node["metadata"]["labels"];
            let has = |role: &str| labels.get(format!("node-role.kubernetes.io/{role}")).is_some();
            let pool = ["master", "cnf", "worker"].into_iter().find(|pool| has(pool)).unwrap();
            (node["metadata"]["name"].as_str().unwrap().to_owned(), pool.to_owned())
        });
        nodes.collect()
    }

    async fn status(&self, pool: &str) -> Value {
        self.seen.get("MachineConfigPool", pool).await.unwrap()["status"].clone()
    }

    async fn annotations(&self, node: &str) -> Value {
        self.seen.get("Node", node).await.unwrap()["metadata"]["annotations"].clone()
    }

    /// Machines, updated, ready, unavailable, degraded; the conditions that hold.
    async fn told(&self, pool: &str) -> String {
        let status = self.status(pool).await;
        let counts = ["machine", "updatedMachine", "readyMachine", "unavailableMachine", "degradedMachine"]
            .map(|field| status[format!("{field}Count")].to_string());
        let all = status["conditions"].as_array().unwrap();
        let hold: Vec<_> = all
            .iter()
            .filter(|one| one["status"] == "True")
            .map(|one| one["type"].as_str().unwrap())
            .collect();
        format!("{} {}", counts.join("/"), hold.join(" "))
    }

    /// Waits until the reports of these nodes say so.
    async fn reports(&self, policy: &str, scope: &str, nodes: &[&str]) {
        let began = Instant::now();
        for node in nodes {
            let says = |report: &Value, name: &str, value: &str| {
                report["attributes"]
                    .as_array()
                    .is_some_and(|all| all.iter().any(|one| one["name"] == name && one["value"] == value))
            };
            until(&format!("{node} reports {policy} {scope}"), async || {
                self.seen.get("NodeResourceTopology", node).await.is_some_and(|report| {
                    says(&report, "topologyManagerPolicy", policy)
                        && says(&report, "topologyManagerScope", scope)
                })
            })
            .await;
        }
        println!("machines: {policy} {scope} is reported {:?} later", began.elapsed());
    }

    /// What becomes of a pod on `node-1` that no zone has room for, but for each of its containers; it stays if it
    /// runs.
    async fn run(&self, name: &str) -> String {
        self.run_on("node-1", name).await
    }

    async fn run_on(&self, node: &str, name: &str) -> String {
        let mut pod = load::guaranteed_pod(name, "nobody", [("cpu", "3"), ("memory", "64Mi")]);
        let spec = pod.spec.as_mut().unwrap();
        spec.node_name = Some(node.to_owned());
        let mut second = spec.containers[0].clone();
        second.name = "second".to_owned();
        spec.containers.push(second);
        let pods: Api<Pod> = Api::default_namespaced(self.seen.admin.clone());
        pods.create(&PostParams::default(), &pod).await.unwrap();
        let mut end = String::new();
        until(name, async || {
            let status = pods.get(name).await.unwrap().status.unwrap_or_default();
            let phase = status.phase.unwrap_or_default();
            end = status.reason.unwrap_or_else(|| phase.clone());
            ["Running", "Failed"].contains(&phase.as_str())
        })
        .await;
        if end != "Running" {
            pods.delete(name, &DeleteParams::default()).await.unwrap();
        }
        end
    }

    /// Pod, container and pod again; the last one in a pool that is paused at first, and with another TLS profile.
    async fn scopes_change(&self) {
        assert_eq!(self.told("worker").await, "2/2/2/0/0 Updated");
        assert_eq!(self.told("master").await, "1/1/1/0/0 Updated");
        assert_eq!(self.told("cnf").await, "0/0/0/0/0 Updated");
        let first = self.status("worker").await["configuration"]["name"].clone();
        self.configure("numa", WORKER, &single_numa_node("container")).await;
        self.reports("single-numa-node", "container", &["node-1", "node-2"]).await;
        assert_eq!(self.run("b").await, "Running");
        assert_ne!(self.status("worker").await["configuration"]["name"], first);

        let paused = |paused: bool| json!({ "spec": { "paused": paused } });
        self.seen.merge("MachineConfigPool", "worker", &paused(true)).await;
        self.configure_paused().await;
        assert_eq!(self.told("worker").await, "2/0/0/0/0 ");
        self.seen.merge("MachineConfigPool", "worker", &paused(false)).await;
        self.settled().await;
        self.reports("single-numa-node", "pod", &["node-1", "node-2"]).await;
        let pods: Api<Pod> = Api::default_namespaced(self.seen.admin.clone());
        assert!(pods.get_opt("b").await.unwrap().is_none(), "its node was drained");
        assert_eq!(self.run("c").await, REJECTED);
        for node in self.cluster.nodes() {
            let config = std::fs::read_to_string(node.kubelet().config_file()).unwrap();
            assert!(config.contains("\"tlsMinVersion\": \"VersionTLS13\""), "{}: {config}", node.name());
        }
    }

    /// Waits only until the paused pool knows that there is something.
    async fn configure_paused(&self) {
        make(&self.seen.admin, &kubelet_config("numa", WORKER, &single_numa_node("pod"))).await.unwrap();
        make(&self.seen.admin, &tls_profile(Some("Modern"))).await.unwrap();
        self.mco.settled(ROLLED_OUT_WITHIN).await.unwrap();
    }

    /// A node gets what its new pool has, and leaves the counts of the old one.
    async fn a_node_moves(&self) {
        let config = json!({ "topologyManagerPolicy": "restricted", "topologyManagerScope": "container" });
        self.configure("cnf", CNF, &config).await;
        let label = json!({ "metadata": { "labels": { "node-role.kubernetes.io/cnf": "" } } });
        self.seen.merge("Node", "node-2", &label).await;
        self.settled().await;
        self.reports("restricted", "container", &["node-2"]).await;
        self.reports("single-numa-node", "pod", &["node-1"]).await;
        assert_eq!(self.told("worker").await, "1/1/1/0/0 Updated");
        assert_eq!(self.told("cnf").await, "1/1/1/0/0 Updated");
        assert_eq!(self.run_on("node-2", "d").await, "Running");
        assert_eq!(self.run("e").await, REJECTED);
    }

    /// Without its KubeletConfig a kubelet is as it was at first.
    async fn back_to_the_base(&self) {
        self.seen.delete("KubeletConfig", "numa").await;
        self.settled().await;
        assert_eq!(self.run("f").await, "Running");
        assert_eq!(self.told("worker").await, "1/1/1/0/0 Updated");
    }
}
