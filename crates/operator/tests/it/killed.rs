//! `kill -9` at every write of a whole installation, before it gets to the API server and after: the next process ends
//! where one that is not killed does, and nothing of others is touched.
//!
//! `KILLS=all cargo test -p operator --test it -- killed --nocapture` does both at each write; by default 8 are picked
//! evenly, and for each one of both.

use std::time::Duration;

use api::numaresources::keys::{CUSTOM, SELINUX_POLICY};
use deployer::platform::Platform;
use fakes::openshift::mco::Mco;
use fakes::openshift::{kubelet_config, make, pool};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use serde_json::{Value, json};
use testkit::dump::{Dump, assert_same};
use testkit::proxy::Fault;
use tokio::time::Instant;

use super::openshift::{WORKER, single_numa_node};
use super::rig::{NAMESPACE, PATIENCE, Rig, SOMEBODY, Setup, play};
use super::workloads::Workloads;

/// The lease of a killed process delays no other.
const ALONE: [&str; 1] = ["--leader-elect=false"];

async fn ask(rig: &Rig) {
    rig.ask_for_exporters(&json!({ "nodeGroups": [
        { "poolName": "worker" },
        { "poolName": "infra", "annotations": { SELINUX_POLICY: CUSTOM } },
    ] }))
    .await;
    rig.ask_for_scheduler(&json!({ "replicas": 1 })).await;
}

async fn until_available(rig: &Rig) {
    for kind in ["operator", "scheduler"] {
        rig.until_true(kind, "Available", "", "").await;
    }
    rig.quiet().await;
}

/// Without times and what only counts how often something was changed.
pub(crate) fn comparable(mut dump: Dump) -> Dump {
    // Made by controllers and by the API server, under names that differ each time.
    let made = ["ControllerRevision.", "ReplicaSet.", "IPAddress.", "EndpointSlice.", "Endpoints."];
    dump.retain(|name, _| !made.iter().any(|kind| name.starts_with(kind)));
    for (name, object) in &mut dump {
        if name.starts_with("NUMAResources") {
            for condition in object["status"]["conditions"].as_array_mut().into_iter().flatten() {
                condition["lastTransitionTime"] = Value::Null;
            }
            object["metadata"]["managedFields"] = Value::Null;
        }
        if name.starts_with("Service.") {
            // Given out by the API server.
            for field in ["clusterIP", "clusterIPs"] {
                object["spec"][field] = Value::Null;
            }
        }
        if name.starts_with("MachineConfigPool") {
            // A rollout's name is a hash of what is rolled out, with its uid.
            object["status"] = Value::Null;
            object["spec"]["configuration"]["name"] = Value::Null;
            object["metadata"]["managedFields"] = Value::Null;
        }
        if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
            // Of objects that are made anew each time.
            owners.iter_mut().for_each(|owner| owner["uid"] = Value::Null);
        }
        if let Some(entries) = object["metadata"]["managedFields"].as_array_mut() {
            for entry in entries {
                let references = entry["fieldsV1"]["f:metadata"]["f:ownerReferences"].as_object_mut();
                if let Some(references) = references {
                    references.retain(|key, _| !key.starts_with("k:"));
                }
            }
        }
        if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
            annotations.remove("deprecated.daemonset.template.generation");
            annotations.remove("deployment.kubernetes.io/revision");
        }
    }
    dump
}

/// Takes back all that was asked for, and waits until the operator has tidied up.
async fn take_back(rig: &Rig, empty: &Dump) {
    rig.delete("NUMAResourcesOperator", "numaresourcesoperator").await;
    rig.delete("NUMAResourcesScheduler", "numaresourcesscheduler").await;
    let definition = "noderesourcetopologies.topology.node.k8s.io";
    rig.delete("CustomResourceDefinition", definition).await;
    let mut left = Vec::new();
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        left = testkit::dump::difference(empty, &comparable(rig.dump().await));
        if left.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("left behind: {left:#?}; {}", rig.operator().log_tail(20));
}

#[test]
fn a_process_killed_at_any_write_is_replaced() {
    let setup = Setup::on(Platform::OpenShift);
    play("killed", setup, async |rig: &mut Rig| {
        make(&rig.admin, &pool("infra")).await.unwrap();
        make(&rig.admin, &kubelet_config("numa", WORKER, &single_numa_node("pod"))).await.unwrap();
        rig.node("master-0", &[("node-role.kubernetes.io/control-plane", "")]).await;
        let theirs = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "theirs" }, "data": { "a": "1" } });
        rig.create(SOMEBODY, &theirs).await;
        let mco = Mco::start(&rig.admin);
        mco.settled(PATIENCE).await.unwrap();
        let _workloads = Workloads::start(&rig.admin);
        let maps: Api<ConfigMap> = Api::namespaced(rig.admin.clone(), NAMESPACE);
        let untouched = maps.get("theirs").await.unwrap();

        let empty = comparable(rig.dump().await);
        rig.operate_with(&[], &ALONE).await;
        let before = rig.writes();
        let began = Instant::now();
        ask(rig).await;
        until_available(rig).await;
        let all = rig.writes() - before;
        println!("killed: a whole installation is {all} writes in {:?}", began.elapsed());
        let wanted = comparable(rig.dump().await);
        take_back(rig, &empty).await;
        let points = (0..all).flat_map(|write| [(write, Fault::Silence), (write, Fault::Mute)]);
        // Odd, so that both kinds are among them.
        let every =
            if std::env::var("KILLS").is_ok_and(|value| value == "all") { 1 } else { (2 * all / 8) | 1 };
        let points: Vec<_> = points.step_by(every).collect();
        let (mut kills, began) = (0, Instant::now());
        for (write, fault) in &points {
            kills += usize::from(killed(rig, *write, *fault, &wanted).await);
            take_back(rig, &empty).await;
        }
        println!(
            "killed: {kills} of {} times, {:?} each",
            points.len(),
            began.elapsed() / kills.max(1) as u32
        );
        assert!(kills > points.len() / 2, "{kills}");
        assert_eq!(maps.get("theirs").await.unwrap(), untouched);
    });
}

/// Kills the operator at this write of an installation and starts it again; says whether there was such a write.
async fn killed(rig: &mut Rig, write: usize, fault: Fault, wanted: &Dump) -> bool {
    rig.quiet().await;
    let struck = rig.proxy.struck();
    rig.proxy.fail_after(u32::try_from(write).unwrap(), "WRITE", "", 1, fault);
    ask(rig).await;
    let began = Instant::now();
    // The last ones are answers to what others do, and may be fewer.
    while rig.proxy.struck() == struck && began.elapsed() < Duration::from_secs(3) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let hit = rig.proxy.struck() > struck;
    rig.operator().kill();
    rig.proxy.heal();
    rig.operator().restart().unwrap();
    until_available(rig).await;
    let seen = rig.proxy.seen();
    let at = seen.iter().rev().find(|seen| seen.fault.is_some()).map(|seen| seen.path.clone());
    let differences = testkit::dump::difference(wanted, &comparable(rig.dump().await));
    assert_eq!(differences, [""; 0], "write {write}, {fault:?}: {at:?}");
    hit
}

#[test]
fn dumps_of_two_equal_installations_are_equal() {
    let of = |uid: &str| {
        let owner = json!({ "uid": uid, "name": "x" });
        let fields = json!([{ "fieldsV1": { "f:metadata": { "f:ownerReferences": { ".": {}, format!("k:{uid}"): {} } } } }]);
        let object = json!({ "metadata": { "ownerReferences": [owner], "managedFields": fields } });
        comparable(Dump::from([("A. a".to_owned(), object)]))
    };
    assert_same(&of("1"), &of("2"));
}
