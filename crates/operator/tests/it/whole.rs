//! Everything at once on vanilla Kubernetes: the operator as its Deployment, exporters and scheduler as its operands,
//! kubelets on NUMA machines; from nothing to an aligned pod that runs, through changes, back to nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use api::rbac::Rules;
use deployer::platform::Platform;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use testkit::cluster::Cluster;
use testkit::controlplane::ControlPlane;
use testkit::dump::{Dump, assert_same, difference, dump, settled};
use testkit::machine::Machine;
use testkit::{env, load, net};
use tokio::time::Instant;

use super::defects::ours;
use super::rig::{NAMESPACE, PATIENCE, control, images, install, tholepin, until};
use super::scenario::{Scenario, asked_in_all};
use super::seen::{Seen, api_of};
use super::within_rights::{PLAYED, note, unused, used};

const SET: &str = "numaresourcesoperator-workers";

#[test]
fn from_nothing_to_an_aligned_pod_through_changes_and_back() {
    let scenario = Scenario::begin(&PLAYED);
    let Ok(rig) = env::rig() else { return };
    let Some(program) = tholepin() else { return };
    net::private(async |network| {
        let machines = [2, 4].map(|zones| Machine::new().zones(zones).cpus_per_zone(8));
        let cluster = Cluster::builder()
            .control(control(&network, true))
            .machines(machines)
            .installable(network, images(&program));
        let cluster = cluster.start(&rig).await.unwrap();
        let seen = Seen { admin: cluster.client().await.unwrap(), log: None };
        let began = Instant::now();
        install(&seen.admin, Platform::Kubernetes, true).await;
        until("the operator", async || {
            let deployment = seen.get("Deployment", "numaresources-controller-manager").await.unwrap();
            deployment["status"]["readyReplicas"] == 1
        })
        .await;
        println!("whole: the operator is ready after {:?}", began.elapsed());
        settled(&seen.admin).await.unwrap();
        let before = relevant(dump(&seen.admin).await.unwrap());
        from_nothing(&seen).await;
        changed_once(&seen).await;
        by_an_older_client(&seen).await;
        let mut granted = seen.granted().await;
        // Later, exporters may outlive their rights for a moment.
        let denied: Vec<_> = cluster.denied().unwrap().iter().map(ToString::to_string).collect();
        let of_ours = |line: &&String| {
            line.contains(NAMESPACE) && !line.starts_with("system:serviceaccount:kube-system:")
        };
        assert_eq!(denied.iter().filter(of_ours).collect::<Vec<_>>(), [""; 0]);
        granted.extend(by_nfd_and_back(&seen).await);
        to_nothing(&seen, &before).await;
        let operator: Api<Pod> = Api::namespaced(seen.admin.clone(), NAMESPACE);
        operator.delete_collection(&DeleteParams::default(), &Default::default()).await.unwrap();
        operands_use_their_rights(cluster.control(), &granted).await;
        note(scenario, cluster.control(), granted).await;
    })
    .unwrap();
}

/// Rights of exporters and scheduler that need no use here, and the tests that use them: crate, module, function.
const USED_ELSEWHERE: [(&str, &str); 40] = [
    (
        "topology.node.k8s.io/noderesourcetopologies[]: get",
        "exporter faults/apiserver answer_lost_after_the_object_was_changed",
    ),
    (
        "topology.node.k8s.io/noderesourcetopologies[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    // Go exporters, until they are replaced.
    ("topology.node.k8s.io/noderesourcetopologies[]: update", "exporter access every_role_there_is_suffices"),
    ("/nodes[]: get", "exporter access every_role_there_is_suffices"),
    ("/nodes[]: list", "runtime outage a_watch_without_streamed_lists_survives_a_restart_too"),
    ("/pods[]: list", "runtime outage a_watch_without_streamed_lists_survives_a_restart_too"),
    ("/pods/status[]: update", "operator upgrade running_go_exporters_write_until_they_are_replaced"),
    ("events.k8s.io/events[]: patch", "runtime events repeated_events_are_one_object_with_a_count"),
    // Namespaces, and objects that select pods.
    ("/namespaces[]: list", "runtime outage a_watch_without_streamed_lists_survives_a_restart_too"),
    ("/services[]: list", "runtime outage a_watch_without_streamed_lists_survives_a_restart_too"),
    (
        "/replicationcontrollers[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    ("apps/replicasets[]: list", "runtime outage a_watch_without_streamed_lists_survives_a_restart_too"),
    ("apps/statefulsets[]: list", "runtime outage a_watch_without_streamed_lists_survives_a_restart_too"),
    // Preemption.
    ("/pods[]: delete", "scheduler preemption a_zone_is_freed_by_evicting_the_pod_that_no_budget_keeps"),
    (
        "policy/poddisruptionbudgets[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    // Gangs, which no cluster has by default.
    (
        "scheduling.k8s.io/podgroups[]: list",
        "scheduler gangs gangs_are_placed_whole_or_not_at_all_as_by_kube_scheduler",
    ),
    (
        "scheduling.k8s.io/podgroups[]: watch",
        "scheduler gangs gangs_are_placed_whole_or_not_at_all_as_by_kube_scheduler",
    ),
    (
        "scheduling.k8s.io/podgroups/status[]: patch",
        "scheduler gangs gangs_are_placed_whole_or_not_at_all_as_by_kube_scheduler",
    ),
    // Volumes.
    (
        "/persistentvolumeclaims[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    ("/persistentvolumes[]: list", "runtime outage a_watch_without_streamed_lists_survives_a_restart_too"),
    (
        "storage.k8s.io/csidrivers[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    (
        "storage.k8s.io/csinodes[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    (
        "storage.k8s.io/csistoragecapacities[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    (
        "storage.k8s.io/storageclasses[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    (
        "storage.k8s.io/volumeattachments[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    (
        "/persistentvolumes[]: patch",
        "scheduler volumes a_pod_goes_where_its_volume_is_once_the_claim_is_bound",
    ),
    (
        "/persistentvolumeclaims[]: patch",
        "scheduler volumes a_claim_that_cannot_be_provisioned_is_tried_again",
    ),
    // Readers of metrics.
    (
        "authentication.k8s.io/tokenreviews[]: create",
        "scheduler secure_port readers_are_judged_as_kube_scheduler_judges_them",
    ),
    (
        "authorization.k8s.io/subjectaccessreviews[]: create",
        "scheduler secure_port readers_are_judged_as_kube_scheduler_judges_them",
    ),
    // Devices.
    (
        "resource.k8s.io/deviceclasses[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    (
        "resource.k8s.io/resourceclaims[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    (
        "resource.k8s.io/resourceslices[]: list",
        "runtime outage a_watch_without_streamed_lists_survives_a_restart_too",
    ),
    (
        "resource.k8s.io/resourceclaims[]: create",
        "scheduler claims devices_serve_extended_resources_that_classes_name",
    ),
    (
        "resource.k8s.io/resourceclaims[]: delete",
        "scheduler claims devices_serve_extended_resources_that_classes_name",
    ),
    (
        "resource.k8s.io/resourceclaims[]: patch",
        "scheduler claims no_two_claims_get_one_device_and_pods_follow_their_claims",
    ),
    (
        "resource.k8s.io/resourceclaims/status[]: patch",
        "scheduler claims no_two_claims_get_one_device_and_pods_follow_their_claims",
    ),
    (
        "resource.k8s.io/resourceclaims/binding[]: patch",
        "scheduler claims no_two_claims_get_one_device_and_pods_follow_their_claims",
    ),
    // Several replicas elect a leader.
    (
        "coordination.k8s.io/leases[]: create",
        "runtime lease there_is_one_leader_at_most_through_death_and_release",
    ),
    (
        "coordination.k8s.io/leases[numa-scheduler-leader]: get",
        "runtime lease there_is_one_leader_at_most_through_death_and_release",
    ),
    (
        "coordination.k8s.io/leases[numa-scheduler-leader]: update",
        "runtime lease there_is_one_leader_at_most_through_death_and_release",
    ),
];

#[test]
fn rights_used_elsewhere_name_tests_that_are_there() {
    for (right, test) in USED_ELSEWHERE {
        let [of, module, function] = test.split(' ').collect::<Vec<_>>()[..] else { panic!("{test}") };
        let path = format!("{}/../{of}/tests/it/{module}.rs", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{right}: {path}: {error}"));
        assert!(text.contains(&format!("fn {function}(")), "{right}: no {function} in {path}");
    }
}

/// The operands have ended: watches are in the log when they are over.
async fn operands_use_their_rights(control: &ControlPlane, granted: &[PolicyRule]) {
    let mut requests = Vec::new();
    for account in ["rte", "secondary-scheduler"] {
        requests.extend(asked_in_all(control, NAMESPACE, account).await);
    }
    let (any, named) = used(&requests, Vec::new());
    let rules = Rules { cluster: granted.to_vec(), ..Rules::default() };
    let mut unused = unused(rules, &any, &named);
    unused.retain(|right| USED_ELSEWHERE.iter().all(|(known, _)| known != right));
    println!(
        "rights: {} requests of exporters and scheduler, unused rights: {}",
        requests.len(),
        unused.len()
    );
    assert_eq!(unused, [""; 0]);
}

/// Without what controllers make and number, and what each process leaves.
fn relevant(mut dump: Dump) -> Dump {
    let made = ["ControllerRevision.", "ReplicaSet.", "Pod.", "Node.", "CSINode."];
    dump.retain(|name, _| !made.iter().any(|kind| name.starts_with(kind)));
    dump
}

async fn from_nothing(seen: &Seen) {
    let began = Instant::now();
    seen.ask_for_exporters(&json!({ "nodeGroups": [{ "poolName": "workers", "nodeSelector": {} }] })).await;
    seen.ask_for_scheduler(&json!({ "replicas": 1 })).await;
    for kind in ["operator", "scheduler"] {
        seen.until_true(kind, "Available", "", "").await;
    }
    println!("whole: Available after {:?}", began.elapsed());
    // Kubelets were asked, and answer only those who may.
    seen.until_true("operator", "KubeletsConfigured", "", "").await;
    until("reports", async || seen.list("NodeResourceTopology").await.len() == 2).await;
    aligned_pod(seen).await;
    println!("whole: from nothing to an aligned pod that runs: {:?}", began.elapsed());
    assert_eq!(seen.generation("DaemonSet", SET).await, 1, "made once");
    until("reports are owned", async || {
        seen.list("NodeResourceTopology")
            .await
            .iter()
            .all(|report| report["metadata"]["ownerReferences"].to_string().contains("NUMAResourcesOperator"))
    })
    .await;
}

async fn exporters(seen: &Seen) -> BTreeSet<String> {
    let pods = seen.list("Pod").await;
    let of = pods.iter().filter(|pod| pod["metadata"]["labels"]["name"] == "resource-topology");
    of.map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned()).collect()
}

/// Several fields in one change: one rollout, each pod replaced once.
async fn changed_once(seen: &Seen) {
    let before = exporters(seen).await;
    let began = Instant::now();
    let group = json!({
        "poolName": "workers", "nodeSelector": {},
        "config": { "infoRefreshPeriod": "3s", "podsFingerprinting": "Enabled" },
    });
    let patch = json!({ "spec": { "logLevel": "Debug", "nodeGroups": [group] } });
    seen.merge("NUMAResourcesOperator", "numaresourcesoperator", &patch).await;
    let mut all = before.clone();
    let mut available = false;
    while !available {
        assert!(began.elapsed() < PATIENCE);
        all.extend(exporters(seen).await);
        available =
            seen.condition("operator", "Available").await.is_some_and(|[status, ..]| status == "True");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("whole: a change is rolled out in {:?}", began.elapsed());
    let after = exporters(seen).await;
    assert_eq!((before.len(), after.len(), all.len()), (2, 2, 4), "each pod is replaced once");
    assert_eq!(seen.generation("DaemonSet", SET).await, 2);
    let args = seen.args(SET).await;
    for arg in ["--sleep-interval=3s", "--pods-fingerprint-method=all", "-v=4"] {
        assert!(args.contains(&arg.to_owned()), "{arg}: {args:?}");
    }
    aligned_pod(seen).await;
}

/// A client of the older version changes one field; the others are still there.
async fn by_an_older_client(seen: &Seen) {
    let kind = objects::ObjectKind::new(
        "nodetopology.openshift.io",
        "v1alpha1",
        "NUMAResourcesOperator",
        "numaresourcesoperators",
    );
    let api = api_of(&seen.admin, &kind, None);
    let mut object = api.get("numaresourcesoperator").await.unwrap();
    object.data["spec"]["logLevel"] = "Trace".into();
    api.replace("numaresourcesoperator", &PostParams::default(), &object).await.unwrap();
    seen.until_true("operator", "Available", "", "").await;
    until("its change", async || seen.args(SET).await.contains(&"-v=6".to_owned())).await;
    seen.until_true("operator", "Available", "", "").await;
    let spec = seen.get("NUMAResourcesOperator", "numaresourcesoperator").await.unwrap()["spec"].clone();
    assert_eq!(spec["nodeGroups"][0]["poolName"], "workers");
    assert_eq!(spec["nodeGroups"][0]["config"]["infoRefreshPeriod"], "3s");
    assert!(seen.args(SET).await.contains(&"--sleep-interval=3s".to_owned()));
}

/// nfd-topology-updater in the exporters' place, and back. Returns its rights.
async fn by_nfd_and_back(seen: &Seen) -> Vec<PolicyRule> {
    let began = Instant::now();
    // A merge replaces the list: the exporters' settings, which NFD lacks, are gone.
    let spec = |updater: &str| {
        let group = json!({ "poolName": "workers", "nodeSelector": {} });
        json!({ "spec": { "updaterType": updater, "nodeGroups": [group] } })
    };
    seen.merge("NUMAResourcesOperator", "numaresourcesoperator", &spec("NFD")).await;
    seen.until_true("operator", "Available", "", "").await;
    let owners = |report: &Value| report["metadata"]["ownerReferences"].to_string();
    // The namespace would own them, but this API server lets only those set owners who may delete.
    let of_nfd = |report: &Value| !owners(report).contains("NUMAResourcesOperator");
    until("reports of NFD", async || {
        let reports = seen.list("NodeResourceTopology").await;
        reports.len() == 2 && reports.iter().all(of_nfd)
    })
    .await;
    assert!(seen.get("ConfigMap", SET).await.is_none(), "the exporters' configuration is gone");
    aligned_pod(seen).await;
    let granted = seen.granted().await;
    seen.merge("NUMAResourcesOperator", "numaresourcesoperator", &spec("RTE")).await;
    seen.until_true("operator", "Available", "", "").await;
    until("reports of exporters", async || {
        let reports = seen.list("NodeResourceTopology").await;
        let of_ours = |report: &Value| {
            owners(report).contains("NUMAResourcesOperator") && !owners(report).contains("\"Namespace\"")
        };
        reports.len() == 2 && reports.iter().all(of_ours)
    })
    .await;
    println!("whole: to NFD and back after {:?}", began.elapsed());
    granted
}

/// Without the users' objects nothing is left but the API, which others may use.
async fn to_nothing(seen: &Seen, before: &Dump) {
    let began = Instant::now();
    let reports = seen.list("NodeResourceTopology").await;
    seen.delete("NUMAResourcesOperator", "numaresourcesoperator").await;
    seen.delete("NUMAResourcesScheduler", "numaresourcesscheduler").await;
    until("reports go", async || seen.list("NodeResourceTopology").await.is_empty()).await;
    published_late(seen, &reports).await;
    until("everything goes", async || {
        let now = dump(&seen.admin).await.unwrap();
        let pods = seen.list("Pod").await.len();
        ours(&now).len() == 1 && pods == 1 && !now.keys().any(|key| key.starts_with("NodeResourceTopology."))
    })
    .await;
    println!("whole: gone after {:?}", began.elapsed());
    let mut after = relevant(dump(&seen.admin).await.unwrap());
    let definition =
        after.keys().find(|key| key.ends_with("noderesourcetopologies.topology.node.k8s.io")).cloned();
    for key in [
        definition.as_deref(),
        Some("APIService.apiregistration.k8s.io v1alpha2.topology.node.k8s.io"),
        Some("APIService.apiregistration.k8s.io v1alpha1.topology.node.k8s.io"),
    ] {
        let _ = key.and_then(|key| after.remove(key));
    }
    let left = difference(before, &after);
    assert!(left.is_empty(), "{left:#?}");
    assert_same(before, &after);
}

/// The report of an exporter that had not ended when its former report was collected. It has no owner.
async fn published_late(seen: &Seen, reports: &[Value]) {
    let report = reports.first().unwrap();
    let metadata = &report["metadata"];
    let mut late = report.clone();
    late["metadata"] = json!({ "name": metadata["name"], "annotations": metadata["annotations"] });
    let kind = objects::ObjectKind::new(
        "topology.node.k8s.io",
        "v1alpha2",
        "NodeResourceTopology",
        "noderesourcetopologies",
    );
    let late = serde_json::from_value(late).unwrap();
    // The exporter itself may have been faster.
    match api_of(&seen.admin, &kind, None).create(&PostParams::default(), &late).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        created => drop(created.unwrap()),
    }
}

/// A pod that only fits aligned, placed by our scheduler, until it runs; then it is deleted.
async fn aligned_pod(seen: &Seen) {
    let pods: Api<Pod> = Api::default_namespaced(seen.admin.clone());
    let pod = load::guaranteed_pod("aligned", "topo-aware-scheduler", [("cpu", "6"), ("memory", "64Mi")]);
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let began = Instant::now();
    until("running", async || {
        let status = pods.get("aligned").await.unwrap().status.unwrap_or_default();
        assert_ne!(status.phase.as_deref(), Some("Failed"), "{status:?}");
        status.phase.as_deref() == Some("Running")
    })
    .await;
    println!("whole: an aligned pod runs after {:?}", began.elapsed());
    pods.delete("aligned", &DeleteParams::default()).await.unwrap();
    until("gone", async || pods.get_opt("aligned").await.unwrap().is_none()).await;
}
