//! OpenShift and HyperShift: pools that roll out, are paused or fail; kubelet configurations; TLS profiles.

use api::numaresources::keys::{CUSTOM, SELINUX_POLICY};
use deployer::platform::Platform;
use fakes::openshift::mco::{Mco, PoolBehaviour};
use fakes::openshift::{NODE_POOL, kubelet_config, make, node_pool_config, pool, scheduler, tls_profile};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::rig::{PATIENCE, Rig, Setup, play, until};
use super::workloads::Workloads;

/// Label of the MachineConfigPool `worker`.
pub(crate) const WORKER: &str = "pools.operator.machineconfiguration.openshift.io/worker";
const INFRA: &str = "numaresourcesoperator-infra";
const WORKERS: &str = "numaresourcesoperator-worker";
const CONFIG: &str = "51-numaresourcesoperator-infra";

/// Two groups; `custom`: the second one brings a SELinux policy.
fn groups(log_level: &str, custom: bool) -> Value {
    let annotations = if custom { json!({ SELINUX_POLICY: CUSTOM }) } else { Value::Null };
    json!({
        "logLevel": log_level,
        "nodeGroups": [{ "poolName": "worker" }, { "poolName": "infra", "annotations": annotations }],
    })
}

pub(crate) fn single_numa_node(scope: &str) -> Value {
    json!({ "topologyManagerPolicy": "single-numa-node", "topologyManagerScope": scope })
}

impl Rig {
    async fn set_groups(&self, log_level: &str, custom: bool) {
        self.merge(
            "NUMAResourcesOperator",
            "numaresourcesoperator",
            &json!({ "spec": groups(log_level, custom) }),
        )
        .await;
    }

    pub(crate) async fn pause(&self, pool: &str, paused: bool) {
        self.merge("MachineConfigPool", pool, &json!({ "spec": { "paused": paused } })).await;
    }
}

#[test]
fn pools_are_rolled_out_paused_and_degraded() {
    let setup = Setup::on(Platform::OpenShift);
    play("openshift", setup, async |rig: &mut Rig| {
        make(&rig.admin, &pool("infra")).await.unwrap();
        make(&rig.admin, &kubelet_config("numa", WORKER, &single_numa_node("pod"))).await.unwrap();
        let mco = Mco::start(&rig.admin);
        mco.settled(PATIENCE).await.unwrap();
        let _workloads = Workloads::start(&rig.admin);
        rig.operate().await;
        let began = Instant::now();
        rig.ask_for_exporters(&groups("Normal", false)).await;
        rig.until_true("operator", "Available", "Available", "").await;
        println!("openshift: Available after {:?}", began.elapsed());
        assert_eq!(rig.get("MachineConfig", CONFIG).await, None, "the nodes' own policy is enough");
        // The configuration is known before the DaemonSet is made (B-30).
        assert_eq!(
            (rig.generation("DaemonSet", WORKERS).await, rig.generation("DaemonSet", INFRA).await),
            (1, 1)
        );
        node_of_another_pool(rig).await;
        paused(rig).await;
        rollout_of_others(rig, &mco).await;
        custom_policy(rig, &mco).await;
        tls(rig).await;
        kubelet_configs(rig).await;
        rig.print_events("openshift").await;
    });
}

/// A control plane node that is a worker too is in the pool `master`, which has no group.
async fn node_of_another_pool(rig: &Rig) {
    // Else the Machine Config Operator takes the workers' role away.
    make(&rig.admin, &scheduler(true)).await.unwrap();
    let roles = [("node-role.kubernetes.io/master", ""), ("node-role.kubernetes.io/worker", "")];
    rig.node("compact-0", &roles).await;
    let told = "compact-0 (in master, selected by worker)";
    rig.until_true("operator", "NodesWithoutExporter", "", told).await;
    let notes = async || rig.told("NodesWithoutExporter").await;
    until("an event names it", async || notes().await.iter().any(|note| note.contains(told))).await;
}

/// Pools that are paused are told, and hold nothing.
async fn paused(rig: &Rig) {
    rig.pause("worker", true).await;
    rig.until_true("operator", "MachineConfigPoolPaused", "", "detected paused MCPs: worker").await;
    rig.pause("infra", true).await;
    // Sorted, whatever came first (B-14).
    rig.until_true("operator", "MachineConfigPoolPaused", "", "detected paused MCPs: infra, worker").await;
    rig.until_true("operator", "Available", "", "").await;
    rig.pause("worker", false).await;
    rig.pause("infra", false).await;
    until("nothing is paused", async || {
        rig.condition("operator", "MachineConfigPoolPaused")
            .await
            .is_some_and(|[status, ..]| status == "False")
    })
    .await;
}

/// Rollouts of others, and pools that fail for others' reasons, hold nothing (B-24).
async fn rollout_of_others(rig: &Rig, mco: &Mco) {
    mco.set_behaviour("worker", PoolBehaviour::Hold);
    mco.set_behaviour("infra", PoolBehaviour::Degrade);
    let generations = (rig.generation("DaemonSet", WORKERS).await, rig.generation("DaemonSet", INFRA).await);
    rig.set_groups("Debug", false).await;
    rig.until_true("operator", "Available", "", "").await;
    for (set, before) in [(WORKERS, generations.0), (INFRA, generations.1)] {
        assert!(rig.args(set).await.contains(&"-v=4".to_owned()), "{set}");
        assert_eq!(rig.generation("DaemonSet", set).await, before + 1, "{set}");
    }
    mco.set_behaviour("worker", PoolBehaviour::RollOut);
    mco.set_behaviour("infra", PoolBehaviour::RollOut);
    mco.settled(PATIENCE).await.unwrap();
}

/// A SELinux policy has to be on the nodes before the exporters that need it; other groups go on meanwhile.
async fn custom_policy(rig: &Rig, mco: &Mco) {
    mco.set_behaviour("infra", PoolBehaviour::Hold);
    let before = rig.get("DaemonSet", INFRA).await.unwrap();
    let began = Instant::now();
    rig.set_groups("Trace", true).await;
    rig.until_true("operator", "Progressing", "MachineConfigPoolIsUpdating", "infra is updating").await;
    assert!(rig.get("MachineConfig", CONFIG).await.is_some());
    until("the other group goes on", async || rig.args(WORKERS).await.contains(&"-v=6".to_owned())).await;
    mco.set_behaviour("infra", PoolBehaviour::Degrade);
    rig.until_true("operator", "Progressing", "MachineConfigPoolIsUpdating", "infra").await;
    assert_eq!(rig.get("DaemonSet", INFRA).await.unwrap()["spec"], before["spec"], "held");
    rig.pause("infra", true).await;
    rig.until_true("operator", "MachineConfigPoolPaused", "", "infra").await;
    rig.pause("infra", false).await;
    mco.set_behaviour("infra", PoolBehaviour::RollOut);
    rig.until_true("operator", "Available", "", "").await;
    println!("openshift: a custom policy is there after {:?}", began.elapsed());
    let set = rig.get("DaemonSet", INFRA).await.unwrap();
    let template = &set["spec"]["template"];
    assert_eq!(
        template["metadata"]["annotations"]["openshift.io/required-scc"],
        "resource-topology-exporter"
    );
    let container = &template["spec"]["containers"][0];
    assert_eq!(container["securityContext"]["seLinuxOptions"]["type"], "rte.process");
    // And back.
    rig.set_groups("Trace", false).await;
    until("the policy goes", async || rig.get("MachineConfig", CONFIG).await.is_none()).await;
    mco.settled(PATIENCE).await.unwrap();
    until("the exporters go back", async || {
        let set = rig.get("DaemonSet", INFRA).await.unwrap();
        set["spec"]["template"]["metadata"]["annotations"]["openshift.io/required-scc"]
            == "resource-topology-exporter-v2"
    })
    .await;
    rig.until_true("operator", "Available", "", "").await;
}

/// What the cluster wants of TLS servers reaches exporters and scheduler without a restart of the operator.
async fn tls(rig: &Rig) {
    rig.node("master-0", &[("node-role.kubernetes.io/control-plane", "")]).await;
    rig.ask_for_scheduler(&json!({ "logLevel": "Normal" })).await;
    rig.until_true("scheduler", "Available", "", "").await;
    let pid = rig.operator().pid();
    let version = async |wanted: &str| {
        let flag = format!("--metrics-tls-min-version={wanted}");
        let deployment = rig.get("Deployment", "secondary-scheduler").await.unwrap();
        rig.args(WORKERS).await.contains(&flag)
            && deployment["spec"]["template"]["spec"]["containers"][0]["args"]
                .as_array()
                .is_some_and(|args| args.iter().any(|arg| *arg == format!("--tls-min-version={wanted}")))
    };
    assert!(version("VersionTLS12").await);
    make(&rig.admin, &tls_profile(Some("Modern"))).await.unwrap();
    let took = until("a newer profile", async || version("VersionTLS13").await).await;
    println!("openshift: a TLS profile is followed after {took:?}");
    assert_eq!((rig.operator().pid(), rig.operator().exit()), (pid, None));
    rig.until_true("operator", "Available", "", "").await;
    make(&rig.admin, &tls_profile(None)).await.unwrap();
    until("the usual one", async || version("VersionTLS12").await).await;
}

/// Another kubelet configuration replaces the pods of its pool once, and those of no other.
async fn kubelet_configs(rig: &Rig) {
    rig.quiet().await;
    let before = (rig.generation("DaemonSet", WORKERS).await, rig.generation("DaemonSet", INFRA).await);
    make(&rig.admin, &kubelet_config("numa", WORKER, &single_numa_node("container"))).await.unwrap();
    let said = async |name: &str| {
        let map = rig.get("ConfigMap", name).await?;
        map["data"]["config.yaml"].as_str().map(str::to_owned)
    };
    let took = until("the new configuration", async || {
        said(WORKERS).await.is_some_and(|text| text.contains("topologyManagerScope: container"))
    })
    .await;
    println!("openshift: a KubeletConfig is followed after {took:?}");
    rig.quiet().await;
    rig.until_true("operator", "Available", "", "").await;
    let after = (rig.generation("DaemonSet", WORKERS).await, rig.generation("DaemonSet", INFRA).await);
    assert_eq!(after, (before.0 + 1, before.1), "one rollout");
}

#[test]
fn hosted_clusters_have_node_pools() {
    let setup = Setup::on(Platform::HyperShift);
    play("hypershift", setup, async |rig: &mut Rig| {
        make(&rig.admin, &node_pool_config("a", &single_numa_node("pod"))).await.unwrap();
        // It belongs to a pool that is not requested (B-09).
        make(&rig.admin, &node_pool_config("other", &single_numa_node("pod"))).await.unwrap();
        rig.node("node-0", &[(NODE_POOL, "a"), ("node-role.kubernetes.io/worker", "")]).await;
        let _workloads = Workloads::start(&rig.admin);
        rig.operate().await;
        let began = Instant::now();
        rig.ask_for_exporters(&json!({ "nodeGroups": [{ "poolName": "a" }, { "poolName": "b" }] })).await;
        rig.ask_for_scheduler(&json!({})).await;
        rig.until_true("operator", "Available", "", "").await;
        rig.until_true("scheduler", "Available", "", "").await;
        println!("hypershift: Available after {:?}", began.elapsed());
        let name = |pool: &str| format!("numaresourcesoperator-{pool}");
        let set = rig.get("DaemonSet", &name("a")).await.unwrap();
        assert_eq!(set["spec"]["template"]["spec"]["nodeSelector"][NODE_POOL], "a");
        assert!(rig.get("ConfigMap", &name("a")).await.is_some());
        assert_eq!(rig.get("ConfigMap", &name("other")).await, None);
        rig.quiet().await;
        // Names without a namespace were asked for again and again (B-07).
        assert_eq!(rig.metric("tholepin_operator_errors_total").await, 0.0);

        let before = rig.generation("DaemonSet", &name("b")).await;
        make(&rig.admin, &node_pool_config("b", &single_numa_node("container"))).await.unwrap();
        until("the other pool's configuration", async || rig.get("ConfigMap", &name("b")).await.is_some())
            .await;
        until("the other pool's exporters", async || rig.generation("DaemonSet", &name("b")).await > before)
            .await;
        rig.until_true("operator", "Available", "", "").await;
        rig.quiet().await;
        assert_eq!(rig.generation("DaemonSet", &name("b")).await, before + 1);

        // A deletion that no watch reports is noticed later (B-09).
        rig.stop().await;
        let configs: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
            kube::Api::namespaced(rig.admin.clone(), fakes::openshift::MANAGED);
        configs.delete("set-a", &Default::default()).await.unwrap();
        rig.operate().await;
        until("its configuration goes", async || rig.get("ConfigMap", &name("a")).await.is_none()).await;
        rig.until_true("operator", "Available", "", "").await;
        rig.print_events("hypershift").await;
    });
}
