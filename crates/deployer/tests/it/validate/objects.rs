//! Objects that are wrong, on a real API server with a real kubelet behind it.

use std::fs;

use deployer::validate::dump;
use kube::api::DeleteParams;
use testkit::kubelet::KubeletOptions;
use testkit::machine::Machine;

use super::*;

const CRD: &str = "noderesourcetopologies.topology.node.k8s.io";

/// An object changed until the finding about it is there, then put back.
struct Change {
    kind: &'static str,
    name: &'static str,
    change: fn(&mut Value),
    id: &'static str,
    object: &'static str,
    what: &'static str,
}

fn namespace(kind: &str) -> Option<&'static str> {
    (!matches!(kind, "CustomResourceDefinition" | "NodeResourceTopology" | "Node")).then_some("tholepin")
}

fn workloads() -> Vec<Change> {
    const SCHEDULER: &str = "Deployment tholepin/scheduler";
    let change = |kind, name, id, object, what, change| Change { kind, name, change, id, object, what };
    vec![
        change("Deployment", "scheduler", "scheduler-not-ready", SCHEDULER, "scaled to 0", |o| {
            o["spec"]["replicas"] = 0.into()
        }),
        change("Deployment", "scheduler", "scheduler-not-ready", SCHEDULER, "none of the 1 pods", |o| {
            o["status"] = json!({ "replicas": 1, "readyReplicas": 0, "availableReplicas": 0 });
        }),
        change(
            "DaemonSet",
            "exporter",
            "exporter-not-ready",
            "DaemonSet tholepin/exporter",
            "0 of 1 pods",
            |o| {
                o["status"]["numberReady"] = 0.into();
            },
        ),
        change(
            "Lease",
            "numa",
            "scheduler-leader",
            SCHEDULER,
            "has not renewed it for more than 45 s",
            |o| {
                o["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z".into();
            },
        ),
        change("Lease", "numa", "scheduler-leader", SCHEDULER, "has no holder", |o| {
            o["spec"]["holderIdentity"] = "".into()
        }),
        change(
            "CustomResourceDefinition",
            CRD,
            "crd-versions",
            "CustomResourceDefinition noderesourcetopologies.topology.node.k8s.io",
            "version v1alpha1 is not served",
            |o| {
                let versions = o["spec"]["versions"].as_array_mut().unwrap();
                versions.iter_mut().find(|version| version["name"] == "v1alpha1").unwrap()["served"] =
                    false.into();
            },
        ),
    ]
}

fn reports() -> Vec<Change> {
    const NRT: &str = "NodeResourceTopology node-0";
    let nrt = |id, what, change| Change {
        kind: "NodeResourceTopology",
        name: "node-0",
        change,
        id,
        object: NRT,
        what,
    };
    vec![
        nrt("report-invalid", "is listed twice", |o| o["zones"][1]["name"] = "node-0".into()),
        nrt("report-invalid", "the object has no zone", |o| o["zones"] = json!([])),
        nrt("report-totals", "cpu: the zones have 18 for pods, the node has 31 of 32", |o| {
            o["zones"][1]["resources"][0]["allocatable"] = "3".into();
            o["zones"][1]["resources"][0]["available"] = "3".into();
        }),
        nrt(
            "report-policy",
            "the object states topologyManagerPolicy restricted, but the kubelet has single-numa-node",
            |o| {
                attribute(o, "topologyManagerPolicy", Some("restricted"));
            },
        ),
        nrt("report-policy", "the object states no kubelet policy", |o| {
            attribute(o, "topologyManagerPolicy", None)
        }),
        nrt("report-fingerprint", "the object has no pod fingerprint", |o| {
            attribute(o, "nodeTopologyPodsFingerprint", None);
            o["metadata"]["annotations"] = Value::Null;
        }),
        nrt("report-stale", "the fingerprint does not match the 2 pods", |o| {
            attribute(o, "nodeTopologyPodsFingerprint", Some("pfp0v0010123456789abcdef"));
        }),
        nrt("report-owner", "but the node has UID", |o| {
            o["metadata"]["ownerReferences"][0]["uid"] = "0-0".into()
        }),
        nrt("report-writers", "the object has more than one writer: ", |o| {
            attribute(o, "other-client", Some("else"));
        }),
    ]
}

fn attribute(object: &mut Value, name: &str, value: Option<&str>) {
    let list = object["attributes"].as_array_mut().unwrap();
    list.retain(|attribute| attribute["name"] != name);
    list.extend(value.map(|value| json!({ "name": name, "value": value })));
}

/// Pods made until the finding about them is there, then deleted.
fn pods() -> Vec<(Value, &'static str, &'static str, &'static str)> {
    let ours = |name, cpus| pod("tholepin", name, None, "numa", cpus);
    let with = |name, resources: Value| {
        let mut pod = ours(name, "");
        pod["spec"]["containers"][0]["resources"] = resources;
        pod
    };
    let equal = |amounts: Value| json!({ "requests": amounts, "limits": amounts });
    vec![
        (ours("big", "20"), "pod-never-fits", "Pod tholepin/big", "cpu: requested 20, most in one zone 16"),
        (
            with("huge", equal(json!({ "cpu": "1", "memory": "1Gi", "hugepages-1Gi": "1Gi" }))),
            "pod-hugepages",
            "Pod tholepin/huge",
            "the pod requests hugepages-1Gi, which no node offers",
        ),
        (
            with(
                "burst",
                json!({ "requests": { "cpu": "2", "memory": "1Gi" }, "limits": { "cpu": "4", "memory": "1Gi" } }),
            ),
            "pod-qos",
            "Pod tholepin/burst",
            "container \"main\" requests 2 of cpu and is limited to 4",
        ),
        (
            with("request", json!({ "requests": { "cpu": "2", "memory": "1Gi" } })),
            "pod-qos",
            "Pod tholepin/request",
            "container \"main\" has no limit of cpu",
        ),
        (
            with("half", equal(json!({ "cpu": "1500m", "memory": "1Gi" }))),
            "pod-cpu-fraction",
            "Pod tholepin/half",
            "requests 1500m of cpu",
        ),
    ]
}

/// As above; pods of others, and one that the kubelet refuses.
fn strangers() -> Vec<(Value, &'static str, &'static str, &'static str)> {
    let mut other = pod("tholepin", "other-exporter", Some("node-0"), "default-scheduler", "");
    other["spec"]["containers"][0]["image"] = "example.com/resource-topology-exporter:v1".into();
    vec![
        (
            pod("tholepin", "lost", None, "numma", "1"),
            "scheduler-name-unknown",
            "Pod tholepin/lost",
            "no scheduler has the name \"numma\"; the existing names are default-scheduler, numa",
        ),
        (
            pod("tholepin", "foreign", Some("node-0"), "default-scheduler", "2"),
            "schedulers-overlap",
            "Scheduler default-scheduler",
            "the scheduler placed 1 pod with exclusive resources",
        ),
        (
            pod("tholepin", "refused", Some("node-0"), "numa", "20"),
            "pod-rejected",
            "Pod tholepin/refused",
            "kubelet node-0 rejected the pod with TopologyAffinityError, although numa placed the pod; the pod would not fit even an empty node: \
             cannot align container \"main\": cpu: requested 20, most in one zone 16",
        ),
        (other, "exporter-twice", "Node node-0", "more than one exporter runs here"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_objects_are_found() {
    let describe = |builder: Builder| builder.node(Machine::new(), KubeletOptions::default());
    let Some(mut installed) = Installed::start(describe).await else { return };
    installed.create(&pod("tholepin", "work", Some("node-0"), "numa", "2")).await;
    installed.is_fine().await;
    for (pod, id, object, what) in pods().into_iter().chain(strangers()) {
        installed.create(&pod).await;
        installed.finds(id, object, what).await;
        let params = DeleteParams::default().grace_period(0);
        let pods = installed.api("Pod", Some("tholepin"));
        pods.delete(pod["metadata"]["name"].as_str().unwrap(), &params).await.unwrap();
    }
    // Of the refused pod there are events.
    installed.finds("pod-rejected", "Pod tholepin/refused", "the pod was deleted since").await;
    let events = Api::<k8s_openapi::api::core::v1::Event>::namespaced(installed.client.clone(), "tholepin");
    events.delete_collection(&DeleteParams::default(), &kube::api::ListParams::default()).await.unwrap();
    installed.is_fine().await;
    // Changes from here on are not undone.
    installed.exporters = None;
    for change in workloads().into_iter().chain(reports()) {
        put_wrong_and_right(&installed, &change).await;
    }
    as_a_whole(&installed).await;
}

async fn put_wrong_and_right(installed: &Installed, change: &Change) {
    let api = installed.api(change.kind, namespace(change.kind));
    let before = api.get(change.name).await.unwrap();
    let mut wrong = serde_json::to_value(&before).unwrap();
    (change.change)(&mut wrong);
    put(&api, change, &wrong, "other-client").await;
    installed.finds(change.id, change.object, change.what).await;
    // Managed fields cannot be put back; a new object has none.
    if change.kind == "NodeResourceTopology" {
        api.delete(change.name, &DeleteParams::default()).await.unwrap();
        let mut again = before.clone();
        (again.metadata.uid, again.metadata.resource_version, again.metadata.managed_fields) =
            (None, None, None);
        api.create(&PostParams::default(), &again).await.unwrap();
    } else {
        put(&api, change, &serde_json::to_value(&before).unwrap(), "other-client").await;
    }
    installed.is_fine().await;
}

async fn put(api: &Api<DynamicObject>, change: &Change, object: &Value, manager: &str) {
    let params = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
    let now = api.get(change.name).await.unwrap().metadata.resource_version;
    let mut typed: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    typed.metadata.resource_version = now;
    let put = api.replace(change.name, &params, &typed).await.unwrap();
    if ["DaemonSet", "Deployment"].contains(&change.kind) {
        typed.metadata.resource_version = put.metadata.resource_version;
        api.replace_status(change.name, &params, &typed).await.unwrap();
    }
}

/// Much is wrong at once, and everything is taken away in the end.
async fn as_a_whole(installed: &Installed) {
    let mut second = scheduler("second");
    second["status"] = json!({});
    installed.create(&second).await;
    installed
        .finds(
            "scheduler-names-clash",
            "Deployment tholepin/second",
            "the profile name \"numa\" is also that of Deployment tholepin/scheduler",
        )
        .await;
    installed.create(&pod("tholepin", "big", None, "numa", "20")).await;
    let nrts = installed.api("NodeResourceTopology", None);
    let mut orphan = nrts.get("node-0").await.unwrap();
    orphan.metadata =
        kube::api::ObjectMeta { name: Some("node-9".to_owned()), ..kube::api::ObjectMeta::default() };
    nrts.create(&PostParams::default(), &orphan).await.unwrap();
    installed.finds("report-orphan", "NodeResourceTopology node-9", "no node has this name").await;
    let pods = installed.api("Pod", Some("tholepin"));
    pods.delete("exporter-node-0", &DeleteParams::default().grace_period(0)).await.unwrap();
    installed.finds("exporter-absent", "Node node-0", "no exporter runs on this node").await;

    dump_says_the_same(installed).await;
    nrts.delete("node-9", &DeleteParams::default()).await.unwrap();
    nrts.delete("node-0", &DeleteParams::default()).await.unwrap();
    installed.finds("report-missing", "Node node-0", "the node has no NodeResourceTopology object").await;
    installed.api("Deployment", Some("tholepin")).delete("second", &DeleteParams::default()).await.unwrap();
    installed
        .api("Deployment", Some("tholepin"))
        .delete("scheduler", &DeleteParams::default())
        .await
        .unwrap();
    installed.finds("scheduler-absent", "Cluster", "no NUMA-aware scheduler is installed").await;
    installed.api("CustomResourceDefinition", None).delete(CRD, &DeleteParams::default()).await.unwrap();
    installed.finds("crd-missing", "Cluster", "is not installed").await;
    installed.cluster.nodes()[0].kubelet().stop();
    let report =
        installed.until("a kubelet that does not answer", |report| !report.not_checked.is_empty()).await;
    assert_eq!(report.not_checked[0].object.as_deref(), Some("Node node-0"));
    assert_eq!(report.verdict().code(), 2);
}

async fn dump_says_the_same(installed: &Installed) {
    let folder = tempfile::tempdir().unwrap();
    for (name, path) in [
        ("version", "/version"),
        ("nodes", "/api/v1/nodes"),
        ("pods", "/api/v1/pods"),
        ("events", "/api/v1/events"),
        ("configmaps", "/api/v1/configmaps"),
        ("daemonsets", "/apis/apps/v1/daemonsets"),
        ("deployments", "/apis/apps/v1/deployments"),
        ("leases", "/apis/coordination.k8s.io/v1/leases"),
        ("crds", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
        ("nrts", "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"),
        ("node-0", "/api/v1/nodes/node-0/proxy/configz"),
    ] {
        let text = runtime::client::get_text(&installed.client, path, 1 << 26).await.unwrap();
        fs::write(folder.path().join(format!("{name}.json")), text).unwrap();
    }
    let live = installed.evidence().await;
    let (mut offline, notes) = dump::read(folder.path()).unwrap();
    assert_eq!(notes, <[String; 0]>::default());
    assert!(offline.now.is_some_and(|now| Some(now) > live.now), "the lease is from later");
    offline.now = live.now;
    let (live, offline) = (examine(&live, &all()), examine(&offline, &all()));
    assert_eq!((&offline.findings, &offline.not_checked), (&live.findings, &live.not_checked));
    assert!(live.findings.len() >= 5, "{:#?}", lines(&live));
}
