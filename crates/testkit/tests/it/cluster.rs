use std::fs;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, LogParams, PostParams};
use kube::runtime::wait::await_condition;
use testkit::cluster::Cluster;
use testkit::env::rig;
use testkit::kubelet::KubeletOptions;
use testkit::load::{self, Arrival};
use testkit::machine::Machine;

#[tokio::test]
async fn kubelets_on_different_machines_say_what_they_have() {
    let Ok(rig) = rig() else { return };
    let huge = Machine::new()
        .zones(2)
        .cpus_per_zone(8)
        .smt(true)
        .memory_mib_per_zone(8 << 10)
        .hugepages_per_zone(2048, 512)
        .hugepages_per_zone(1 << 20, 2)
        .zone(4, 0, 4 << 10);
    let a_whole_core =
        KubeletOptions { reserved_cpus: "0,8".to_owned(), ..KubeletOptions::default() }.master();
    let began = Instant::now();
    let cluster =
        Cluster::builder().machines([Machine::new()]).node(huge, a_whole_core).start(&rig).await.unwrap();
    println!("cluster ready in {:?}", began.elapsed());
    let nodes: Api<Node> = Api::all(cluster.client().await.unwrap());
    for (name, wanted) in [
        ("node-0", [("cpu", "31"), ("memory", "130560Mi"), ("hugepages-2Mi", ""), ("hugepages-1Gi", "")]),
        (
            "node-1",
            [("cpu", "14"), ("memory", "13568Mi"), ("hugepages-2Mi", "2Gi"), ("hugepages-1Gi", "4Gi")],
        ),
    ] {
        let node = nodes.get(name).await.unwrap();
        let allocatable = node.status.unwrap().allocatable.unwrap();
        for (resource, amount) in wanted {
            let has = allocatable.get(resource).map_or("", |quantity| quantity.0.as_str());
            assert_eq!(has, amount, "{resource} of {name}");
        }
    }
    for (name, role, tainted) in [("node-0", None, None), ("node-1", Some(""), Some("NoSchedule"))] {
        let node = nodes.get(name).await.unwrap();
        let label = node.labels().get("node-role.kubernetes.io/master").map(String::as_str);
        let taints = node.spec.clone().unwrap_or_default().taints.unwrap_or_default();
        let effects: Vec<_> = taints.iter().map(|taint| taint.effect.as_str()).collect();
        assert_eq!((label, effects), (role, Vec::from_iter(tainted)), "{name}");
        let handlers = node.status.clone().unwrap().runtime_handlers.unwrap_or_default();
        let handlers: Vec<_> = handlers.into_iter().filter_map(|handler| handler.name).collect();
        assert!(handlers.contains(&"runc".to_owned()), "{name}: {handlers:?}");
    }
}

const CRD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: oars.testkit.dev}
spec:
  group: testkit.dev
  scope: Cluster
  names: {kind: Oar, plural: oars}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pins.testkit.dev}
spec:
  group: testkit.dev
  scope: Cluster
  names: {kind: Pin, plural: pins}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
";

fn exclusive_cpus(cluster: &Cluster) -> Vec<String> {
    let path = cluster.nodes()[0].kubelet().root_dir().join("cpu_manager_state");
    let state: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let pods = state["entries"].as_object().cloned().unwrap_or_default();
    let mut cpus: Vec<String> = pods.values().map(|pod| pod["main"].as_str().unwrap().to_owned()).collect();
    cpus.sort();
    cpus
}

#[tokio::test]
async fn a_real_kubelet_pins_rejects_survives_a_restart_and_frees() {
    let Ok(rig) = rig() else { return };
    let machine = Machine::new().zones(2).cpus_per_zone(8);
    let cluster = Cluster::builder().machines([machine]).crds(CRD).scheduler(true).start(&rig).await.unwrap();
    let client = cluster.client().await.unwrap();
    let served = client.list_api_group_resources("testkit.dev/v1").await.unwrap();
    assert_eq!(served.resources.iter().filter(|resource| !resource.name.contains('/')).count(), 2);

    // 7 CPUs are free in zone 0, 8 in zone 1: 10 fit the node but no zone.
    let node = &cluster.nodes()[0];
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for (name, cpus) in [("a", "4"), ("b", "8"), ("c", "3")] {
        let pod = load::guaranteed_pod(name, "default-scheduler", [("cpu", cpus), ("memory", "64Mi")]);
        pods.create(&PostParams::default(), &pod).await.unwrap();
        within_a_minute(&pods, name, "Running").await;
    }
    assert_eq!(exclusive_cpus(&cluster), ["1-4", "5-7", "8-15"]);

    node.kubelet().restart().await.unwrap();
    assert_eq!(exclusive_cpus(&cluster), ["1-4", "5-7", "8-15"]);
    // The API server can call the kubelet, the kubelet the runtime.
    let asks_for_logs = async || pods.logs("a", &LogParams::default()).await.is_ok();
    let process = node.kubelet().process();
    process.wait_until("serving logs", Duration::from_secs(60), asks_for_logs).await.unwrap();

    for name in ["a", "b", "c"] {
        pods.delete(name, &Default::default()).await.unwrap();
        let gone = await_condition(pods.clone(), name, |pod: Option<&Pod>| pod.is_none());
        tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap().unwrap();
    }
    let arrivals = [
        Arrival { at_s: 0.0, cpus: 10, ..Arrival::default() },
        Arrival { at_s: 0.1, cpus: 8, life_s: 0.2, ..Arrival::default() },
        Arrival { at_s: 0.2, cpus: 8, life_s: 0.2, ..Arrival::default() },
    ];
    let run = load::Run { name: "mixed".to_owned(), ..load::Run::default() };
    let records = load::run(&client, &arrivals, &run).await.unwrap();
    assert_eq!(records.len(), 3);
    assert_eq!(records[0].lost.as_ref().unwrap().reason, "TopologyAffinityError");
    assert!(records[0].node.as_deref() == Some("node-0") && records[0].wait_s().is_none());
    // The node's sum is never enough for two of 8: one waits until the other is gone. The stock scheduler decides
    // which one, since both may wait for the rejected pod's CPUs.
    let mut others = [&records[1], &records[2]];
    others.sort_by(|a, b| a.scheduled_s.unwrap().total_cmp(&b.scheduled_s.unwrap()));
    let [first, second] = others;
    assert!(first.lost.is_none() && first.wait_s().unwrap() > 0.0, "{records:?}");
    assert!(second.scheduled_s.unwrap() > first.running_s.unwrap(), "{records:?}");
    assert!(pods.list(&Default::default()).await.unwrap().items.is_empty());
    println!("kubelet: {:?}", node.kubelet().process().memory().unwrap());
}

#[tokio::test]
async fn a_stuck_run_ends() {
    let Ok(rig) = rig() else { return };
    let cluster = Cluster::builder().start(&rig).await.unwrap();
    let client = cluster.client().await.unwrap();
    let arrivals = [Arrival { cpus: 1, ..Arrival::default() }; 3];
    let run = load::Run {
        schedulers: vec!["nobody".to_owned()],
        max_pending: Some(2),
        stalled_after: Duration::from_millis(500),
        ..load::Run::default()
    };
    let records = load::run(&client, &arrivals, &run).await.unwrap();
    assert_eq!(records.len(), 2, "the third had to wait");
    assert!(records.iter().all(|record| !record.is_settled()));
}

async fn within_a_minute(pods: &Api<Pod>, name: &str, phase: &str) {
    let reached = await_condition(pods.clone(), name, |pod: Option<&Pod>| {
        pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()) == Some(phase)
    });
    if tokio::time::timeout(Duration::from_secs(60), reached).await.is_err() {
        panic!("{name} is not {phase}: {:?}", pods.get(name).await.map(|pod| pod.status));
    }
}
