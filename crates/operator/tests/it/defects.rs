//! Defects of the Go operator that only an API server shows, one by one. The numbers are those of docs/parity.md.

use std::collections::BTreeSet;
use std::time::Duration;

use api::numaresources::keys::{CUSTOM, SELINUX_POLICY};
use deployer::platform::Platform;
use fakes::openshift::mco::Mco;
use fakes::openshift::{kubelet_config, make, pool};
use operator::desired::{MANAGED_BY, MANAGER};
use serde_json::{Value, json};
use testkit::dump::{Dump, difference, lasting};
use tokio::time::Instant;

use super::chaos::usurp;
use super::killed::comparable;
use super::openshift::{WORKER, single_numa_node};
use super::rig::{NAMESPACE, PATIENCE, Rig, Setup, play, until};
use super::upgrade::rest;
use super::workloads::{Told, Workloads};

const WORKERS: &str = "numaresourcesoperator-worker";
const DEFINITION: &str = "noderesourcetopologies.topology.node.k8s.io";

/// Edits that each kind takes; whatever it is, it is to be as it was.
fn edits(kind: &str) -> Vec<Value> {
    let mut edits = vec![
        json!({ "metadata": { "labels": { MANAGED_BY: null } } }),
        json!({ "metadata": { "ownerReferences": null } }),
    ];
    edits.extend(match kind {
        "ConfigMap" => vec![json!({ "data": { "config.yaml": "x" } }), json!({ "data": { "extra": "1" } })],
        "Role" | "ClusterRole" => vec![
            json!({ "rules": [] }),
            json!({ "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }] }),
        ],
        "RoleBinding" | "ClusterRoleBinding" => vec![json!({ "subjects": [] })],
        "ServiceAccount" => vec![json!({ "automountServiceAccountToken": false })],
        "NetworkPolicy" => vec![
            json!({ "spec": { "policyTypes": ["Ingress"], "ingress": [{}] } }),
            json!({ "spec": { "podSelector": null } }),
        ],
        "Service" => vec![
            json!({ "spec": { "selector": { "name": "x" } } }),
            json!({ "spec": { "ports": [{ "port": 1, "name": "x" }] } }),
        ],
        "DaemonSet" => vec![
            json!({ "spec": { "template": { "spec": { "hostNetwork": true } } } }),
            json!({ "spec": { "template": { "spec": { "tolerations": [] } } } }),
            json!({ "spec": { "template": { "metadata": { "annotations": { "configmap.hash": "x" } } } } }),
        ],
        "Deployment" => vec![
            json!({ "spec": { "replicas": 7 } }),
            json!({ "spec": { "template": { "spec": { "hostname": "x" } } } }),
        ],
        "SecurityContextConstraints" => vec![json!({ "users": ["x"] }), json!({ "allowHostPID": true })],
        "MachineConfig" => vec![json!({ "spec": { "kernelArguments": ["x"] } })],
        "CustomResourceDefinition" => vec![json!({ "spec": { "names": { "shortNames": ["x"] } } })],
        "ValidatingAdmissionPolicy" => vec![
            json!({ "spec": { "failurePolicy": "Ignore" } }),
            json!({ "spec": { "validations": [{ "expression": "true" }] } }),
        ],
        "ValidatingAdmissionPolicyBinding" => vec![json!({ "spec": { "validationActions": ["Audit"] } })],
        kind => panic!("no edit for {kind}"),
    });
    edits
}

/// What is ours: kind, name, and what it is called in a dump.
pub(crate) fn ours(dump: &Dump) -> Vec<(String, String, String)> {
    // Labels of Services are copied to their endpoints.
    let is_copy = |key: &str| key.starts_with("Endpoint");
    let all = dump
        .iter()
        .filter(|(key, object)| !is_copy(key) && object["metadata"]["labels"][MANAGED_BY] == MANAGER);
    let named = all.map(|(key, object)| {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let (kind, _) = key.split_once('.').unwrap();
        (kind.to_owned(), name, key.clone())
    });
    named.collect()
}

/// A cluster with everything, at rest.
async fn everything(rig: &mut Rig) -> (Mco, Workloads) {
    make(&rig.admin, &pool("infra")).await.unwrap();
    make(&rig.admin, &kubelet_config("numa", WORKER, &single_numa_node("pod"))).await.unwrap();
    rig.node("master-0", &[("node-role.kubernetes.io/control-plane", "")]).await;
    let mco = Mco::start(&rig.admin);
    mco.settled(PATIENCE).await.unwrap();
    let workloads = Workloads::start(&rig.admin);
    rig.operate().await;
    rig.ask_for_exporters(&json!({ "nodeGroups": [
        { "poolName": "worker" },
        { "poolName": "infra", "annotations": { SELINUX_POLICY: CUSTOM } },
    ] }))
    .await;
    rig.ask_for_scheduler(&json!({})).await;
    for kind in ["operator", "scheduler"] {
        rig.until_true(kind, "Available", "", "").await;
    }
    mco.settled(PATIENCE).await.unwrap();
    rig.quiet().await;
    (mco, workloads)
}

/// Waits until an object is as it was; says how long it took.
async fn repaired(rig: &Rig, what: &str, wanted: &Dump, kind: &str, name: &str, key: &str) -> Duration {
    let began = Instant::now();
    // Items of lists, of which a dump is made, do not always say of which kind they are.
    let of = |mut object: Value| {
        for field in ["kind", "apiVersion"] {
            object.as_object_mut().and_then(|fields| fields.remove(field));
        }
        Dump::from([(key.to_owned(), object)])
    };
    let wanted = of(wanted[key].clone());
    loop {
        let now = rig.get(kind, name).await.unwrap_or_default();
        let left = difference(&wanted, &comparable(of(lasting(kind, now))));
        if left.is_empty() {
            return began.elapsed();
        }
        assert!(began.elapsed() < PATIENCE, "{what}: {left:#?}; {}", rig.log_tail());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// B-10, B-18: the Go operator watched some kinds not at all, others only for changes of what counts as a generation,
/// and compared labels with themselves.
#[test]
fn each_kind_is_repaired_after_each_edit_and_deletion() {
    let setup = Setup::on(Platform::OpenShift);
    play("repairs", setup, async |rig: &mut Rig| {
        let (_mco, _workloads) = everything(rig).await;
        let wanted = comparable(rig.dump().await);
        let ours = ours(&wanted);
        let kinds: BTreeSet<_> = ours.iter().map(|(kind, ..)| kind.as_str()).collect();
        assert_eq!(kinds.len(), 15, "{kinds:?}");
        let (mut repairs, mut slowest) = (0_u32, Duration::ZERO);
        let began = Instant::now();
        for (kind, name, key) in &ours {
            for edit in edits(kind) {
                rig.merge(kind, name, &edit).await;
                slowest = slowest
                    .max(repaired(rig, &format!("{key} after {edit}"), &wanted, kind, name, key).await);
                repairs += 1;
            }
            rig.delete(kind, name).await;
            slowest = slowest.max(repaired(rig, &format!("{key} deleted"), &wanted, kind, name, key).await);
            repairs += 1;
        }
        println!(
            "repairs: {repairs} of {} objects in {:?}, the slowest in {slowest:?}",
            ours.len(),
            began.elapsed()
        );
        for kind in ["operator", "scheduler"] {
            rig.until_true(kind, "Available", "", "").await;
        }
        taken_and_let_go(rig, &wanted).await;
        rig.quiet().await;
        testkit::dump::assert_same(&wanted, &comparable(rig.dump().await));
        rest(rig, "repairs").await;
    });
}

/// What others have put in the place of ours is left alone; when they take it away, ours comes back. Of objects outside
/// the namespace no watch tells that.
async fn taken_and_let_go(rig: &Rig, wanted: &Dump) {
    for (kind, name) in
        [("ClusterRole", "topology-aware-scheduler"), ("NetworkPolicy", "scheduler-default-deny-all")]
    {
        let key = wanted.keys().find(|key| key.starts_with(kind) && key.ends_with(name)).unwrap();
        usurp(rig, kind, name, wanted, &mut Vec::new()).await;
        rig.until_true("scheduler", "Degraded", "", name).await;
        if kind == "ClusterRole" {
            // Others add rights to their role that we do not hold; we never grant those.
            rig.merge(
                kind,
                name,
                &json!({ "rules": [{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] }] }),
            )
            .await;
            rig.delete("ClusterRoleBinding", name).await;
            let withheld = format!("ClusterRoleBinding {name} is left alone as long as");
            rig.until_true("scheduler", "Degraded", "", &withheld).await;
        }
        // Once it is known to be another owner's.
        rig.quiet().await;
        rig.delete(kind, name).await;
        let took = repaired(rig, &format!("{key} let go"), wanted, kind, name, key).await;
        println!("repairs: {kind} {name} let go, back after {took:?}");
        rig.until_true("scheduler", "Available", "", "").await;
    }
}

/// B-11, B-12: what is true of pods is said as long as it is true, and of the template that is asked for.
#[test]
fn pods_are_watched_after_they_have_become_available() {
    let setup = Setup::on(Platform::OpenShift);
    play("readiness", setup, async |rig: &mut Rig| {
        let (_mco, workloads) = everything(rig).await;
        for (kind, name, reason) in
            [("operator", WORKERS, "DaemonSetIsUpdating"), ("scheduler", "secondary-scheduler", "")]
        {
            workloads.tell(name, Told::Crash);
            let began = Instant::now();
            rig.until_true(kind, "Progressing", reason, "").await;
            println!("readiness: {name} crashed, and it is said after {:?}", began.elapsed());
            workloads.tell(name, Told::Run);
            rig.until_true(kind, "Available", "", "").await;
        }
        // The status is that of the old template until a controller observes the new one.
        for name in [WORKERS, "secondary-scheduler"] {
            workloads.tell(name, Told::Hold);
        }
        let patch = json!({ "spec": { "logLevel": "Trace" } });
        rig.merge("NUMAResourcesOperator", "numaresourcesoperator", &patch).await;
        rig.merge("NUMAResourcesScheduler", "numaresourcesscheduler", &patch).await;
        for (kind, message) in [("operator", WORKERS), ("scheduler", "")] {
            rig.until_true(kind, "Progressing", "", message).await;
        }
        rig.quiet().await;
        for (kind, name) in [("operator", WORKERS), ("scheduler", "secondary-scheduler")] {
            let [status, ..] = rig.condition(kind, "Available").await.unwrap_or_default();
            assert_ne!(status, "True", "{name}");
            workloads.tell(name, Told::Run);
            rig.until_true(kind, "Available", "", "").await;
        }
    });
}

/// B-06: another list of groups is what the configurations follow; a status that was written is not.
#[test]
fn a_new_group_gets_its_configuration_and_a_status_change_nothing() {
    let setup = Setup { streams: false, ..Setup::on(Platform::OpenShift) };
    play("groups", setup, async |rig: &mut Rig| {
        make(&rig.admin, &pool("infra")).await.unwrap();
        for name in ["worker", "infra"] {
            let key = format!("pools.operator.machineconfiguration.openshift.io/{name}");
            make(&rig.admin, &kubelet_config(name, &key, &single_numa_node("pod"))).await.unwrap();
        }
        let _workloads = Workloads::start(&rig.admin);
        rig.operate().await;
        rig.ask_for_exporters(&json!({ "nodeGroups": [{ "poolName": "worker" }] })).await;
        rig.until_true("operator", "Available", "", "").await;
        assert_eq!(rig.get("ConfigMap", "numaresourcesoperator-infra").await, None);
        let both = json!({ "spec": { "nodeGroups": [{ "poolName": "worker" }, { "poolName": "infra" }] } });
        rig.merge("NUMAResourcesOperator", "numaresourcesoperator", &both).await;
        let took = until("the group's configuration", async || {
            rig.get("ConfigMap", "numaresourcesoperator-infra").await.is_some()
        })
        .await;
        println!("groups: a new group's configuration is there after {took:?}");
        rig.until_true("operator", "Available", "", "").await;
        // And goes with it (B-08).
        let one = json!({ "spec": { "nodeGroups": [{ "poolName": "worker" }] } });
        rig.merge("NUMAResourcesOperator", "numaresourcesoperator", &one).await;
        until("the group's objects go", async || {
            rig.get("ConfigMap", "numaresourcesoperator-infra").await.is_none()
                && rig.get("DaemonSet", "numaresourcesoperator-infra").await.is_none()
        })
        .await;
        rig.until_true("operator", "Available", "", "").await;
        rig.quiet().await;
        rest(rig, "groups").await;
        another_exporter(rig).await;
    });
}

/// Where that is allowed, the Go exporter can be asked for; it gets what it needs, and ours loses it again.
async fn another_exporter(rig: &mut Rig) {
    rig.stop().await;
    rig.operate_with(&[("EXPORTER_IMAGE_RESTRICTION", "false")], &[]).await;
    let image = "registry.example/resource-topology-exporter:v0.25.0";
    let patch = json!({ "spec": { "imageSpec": image } });
    rig.merge("NUMAResourcesOperator", "numaresourcesoperator", &patch).await;
    let containers = async || {
        let set = rig.get("DaemonSet", WORKERS).await.unwrap();
        set["spec"]["template"]["spec"]["containers"].as_array().unwrap().clone()
    };
    until("two containers of that image", async || {
        let containers = containers().await;
        containers.len() == 2 && containers.iter().all(|container| container["image"] == image)
    })
    .await;
    let may_update = rig.get("ClusterRole", "rte").await.unwrap()["rules"].to_string().contains("update");
    assert!(may_update, "it writes with PUT when a patch has failed");
    rig.until_true("operator", "Available", "", "").await;
}

/// B-25: reports go with their node, with their group, and with the NUMAResourcesOperator; the definition stays.
#[test]
fn reports_are_deleted_with_their_node_or_request() {
    let setup = Setup { controllers: true, ..Setup::on(Platform::OpenShift) };
    play("reports", setup, async |rig: &mut Rig| {
        make(&rig.admin, &pool("infra")).await.unwrap();
        for (name, role) in [("w-0", "worker"), ("w-1", "worker"), ("i-0", "infra"), ("n-0", "infra")] {
            rig.node(name, &[(&format!("node-role.kubernetes.io/{role}"), "")]).await;
        }
        rig.operate().await;
        rig.ask_for_exporters(&json!({ "nodeGroups": [{ "poolName": "worker" }, { "poolName": "infra" }] }))
            .await;
        until("the definition", async || {
            let definition = rig.get("CustomResourceDefinition", DEFINITION).await;
            definition.is_some_and(|definition| {
                definition["status"]["conditions"].to_string().contains("Established")
            })
        })
        .await;
        // That of `n-0` is NFD's: it is never adopted, and never deleted.
        for name in ["w-0", "w-1", "i-0", "n-0", "somebody-else"] {
            let annotations =
                (name != "n-0").then(|| json!({ "k8stopoawareschedwg/rte-update": "periodic" }));
            let report = json!({
                "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
                "metadata": { "name": name, "annotations": annotations }, "zones": [],
            });
            rig.create("exporter", &report).await;
        }
        let there = async || -> Vec<String> {
            let all = rig.list("NodeResourceTopology").await;
            all.iter().map(|report| report["metadata"]["name"].as_str().unwrap().to_owned()).collect()
        };
        until("reports are owned", async || {
            let all = rig.list("NodeResourceTopology").await;
            all.iter()
                .filter(|report| report["metadata"]["ownerReferences"].to_string().contains("NUMA"))
                .count()
                == 3
        })
        .await;
        rig.delete("Node", "w-1").await;
        until("a node's report goes", async || there().await == ["i-0", "n-0", "somebody-else", "w-0"]).await;
        let one = json!({ "spec": { "nodeGroups": [{ "poolName": "worker" }] } });
        rig.merge("NUMAResourcesOperator", "numaresourcesoperator", &one).await;
        until("a group's reports go", async || there().await == ["n-0", "somebody-else", "w-0"]).await;
        rig.delete("NUMAResourcesOperator", "numaresourcesoperator").await;
        until("all go", async || there().await == ["n-0", "somebody-else"]).await;
        let left = async || -> Vec<(String, String, String)> { ours(&rig.dump().await) };
        until("everything else goes", async || left().await.len() == 1).await;
        assert_eq!(left().await[0].1, DEFINITION, "shared with others: {NAMESPACE}");
        let definition = rig.get("CustomResourceDefinition", DEFINITION).await.unwrap();
        assert_eq!(definition["metadata"]["deletionTimestamp"], Value::Null);
    });
}
