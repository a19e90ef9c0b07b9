//! Pods on hollow nodes: placed by our scheduler, rejected by their kubelets, taken over by a new process.

use std::collections::BTreeMap;

use api::nrt::NodeResourceTopology;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use topology::resource::ResourceName;

use crate::cluster::{Running, control_plane, eventually, phases, pods};

const SCHEDULER: &str = "topo-aware-scheduler";

/// A Guaranteed pod that tolerates hollow nodes; on a node, or for a scheduler.
fn pod(name: &str, cpus: u32, node: Option<&str>) -> Pod {
    let amounts = json!({ "cpu": cpus.to_string(), "memory": "64Mi" });
    let pod = json!({
        "metadata": { "name": name },
        "spec": {
            "schedulerName": if node.is_some() { "none" } else { SCHEDULER },
            "nodeName": node,
            "tolerations": [{ "key": hollow::status::MARK, "operator": "Exists" }],
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "main", "image": "registry.example/app:1",
                "resources": { "requests": amounts, "limits": amounts },
            }],
        },
    });
    serde_json::from_value(pod).unwrap()
}

async fn create(client: &Client, list: impl IntoIterator<Item = Pod>) {
    let api = pods(client);
    let calls = list.into_iter().map(|pod| {
        let api = api.clone();
        async move { api.create(&PostParams::default(), &pod).await.map(drop) }
    });
    futures::stream::iter(calls).buffer_unordered(16).try_collect::<()>().await.unwrap();
}

/// Free CPUs by node and zone, by the reports.
async fn free(client: &Client) -> BTreeMap<String, Vec<i64>> {
    let reports =
        Api::<NodeResourceTopology>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    let one = |report: NodeResourceTopology| {
        let (topology, warnings) = api::convert::node_topology(&report).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        let free = topology.available();
        let cpus = |zone: &topology::zone::Zone| free.amount(zone.id, ResourceName::CPU) / 1000;
        (report.metadata.name.unwrap(), topology.zones.iter().map(cpus).collect())
    };
    reports.into_iter().map(one).collect()
}

async fn wait_for_phases(client: &Client, expected: &str) {
    eventually(expected, async || (phases(client).await == expected).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aligned_pods_of_our_scheduler_all_run() {
    let Ok(rig) = testkit::env::rig() else { return };
    let (cluster, client, kubeconfig) = control_plane(&rig).await;
    let hollow = Running::hollow(&kubeconfig, "--nodes 200 --machine 2x8 --lag 50ms --cleanup");
    let nodes = Api::<Node>::all(client.clone());
    eventually("200 reports", async || (free(&client).await.len() == 200).then_some(())).await;
    let scheduler = Running::scheduler(cluster.control().kubeconfig());
    // Zones of 7 and 8 CPUs: each has room for one such pod, and a node for two. Totals alone would have room for a
    // third in each other zone.
    create(&client, (0..400).map(|at| pod(&format!("aligned-{at}"), 5, None))).await;
    wait_for_phases(&client, "400 Running").await;
    let full: Vec<i64> = vec![2, 3];
    eventually("reports of all pods", async || {
        let free = free(&client).await;
        (free.len() == 200 && free.values().all(|zones| *zones == full)).then_some(())
    })
    .await;
    let node = nodes.get("hollow-7").await.unwrap();
    let taints = node.spec.unwrap().taints.unwrap();
    assert_eq!(taints.iter().map(|taint| &*taint.key).collect::<Vec<_>>(), [hollow::status::MARK]);

    let gone = pods(&client).list(&ListParams::default()).await.unwrap();
    for pod in gone.into_iter().take(200) {
        pods(&client).delete(&pod.metadata.name.unwrap(), &DeleteParams::default()).await.unwrap();
    }
    wait_for_phases(&client, "200 Running").await;
    scheduler.stop().await;
    hollow.stop().await;
    assert_eq!(nodes.list(&ListParams::default()).await.unwrap().items.len(), 0, "--cleanup");
    let leases = Api::<Lease>::namespaced(client.clone(), "kube-node-lease");
    assert_eq!(leases.list(&ListParams::default()).await.unwrap().items.len(), 0, "--cleanup");
    assert!(free(&client).await.is_empty(), "--cleanup");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_rejects_and_a_new_process_takes_over() {
    let Ok(rig) = testkit::env::rig() else { return };
    let (_cluster, client, kubeconfig) = control_plane(&rig).await;
    let flags = "--nodes 2 --machine 2x8 --lag 50ms --reserved-cpus 2";
    let hollow = Running::hollow(&kubeconfig, flags);
    eventually("reports", async || (free(&client).await.len() == 2).then_some(())).await;
    // Zones of 6 and 8 CPUs.
    create(&client, [pod("first", 4, Some("hollow-0"))]).await;
    wait_for_phases(&client, "1 Running").await;
    create(&client, [pod("second", 2, Some("hollow-0"))]).await;
    wait_for_phases(&client, "2 Running").await;
    create(&client, [pod("third", 9, Some("hollow-0")), pod("fourth", 8, Some("hollow-0"))]).await;
    wait_for_phases(&client, "1 Failed TopologyAffinityError, 3 Running").await;
    let third = pods(&client).get("third").await.unwrap().status.unwrap();
    assert_eq!(
        third.message.unwrap(),
        "Pod was rejected: Resources cannot be allocated with Topology locality"
    );
    assert!(third.start_time.is_some());
    let second = pods(&client).get("second").await.unwrap();
    let held = second.metadata.annotations.unwrap()[hollow::checkpoint::KEY].clone();
    assert!(held.contains("cpus"), "{held}");
    // A gap: who comes anew would get what the first leaves.
    pods(&client).delete("first", &DeleteParams::default()).await.unwrap();
    let state = |zones: [i64; 2]| {
        BTreeMap::from([("hollow-0".to_owned(), zones.to_vec()), ("hollow-1".to_owned(), vec![6, 8])])
    };
    eventually("the first is gone", async || (free(&client).await == state([4, 0])).then_some(())).await;
    let report = async || Api::<NodeResourceTopology>::all(client.clone()).get("hollow-0").await.unwrap();
    let before = report().await;
    hollow.stop().await;

    // Pods that come and go while no process looks.
    create(&client, [pod("fifth", 3, Some("hollow-0")), pod("sixth", 2, Some("hollow-1"))]).await;
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    pods(&client).delete("fourth", &now).await.unwrap();
    let hollow = Running::hollow(&kubeconfig, flags);
    wait_for_phases(&client, "1 Failed TopologyAffinityError, 3 Running").await;
    let expected = |first: i64| {
        BTreeMap::from([("hollow-0".to_owned(), vec![first, 8]), ("hollow-1".to_owned(), vec![4, 8])])
    };
    eventually("reports of the new process", async || (free(&client).await == expected(1)).then_some(()))
        .await;
    pods(&client).delete("fifth", &DeleteParams::default()).await.unwrap();
    eventually("the fifth is gone", async || (free(&client).await == expected(4)).then_some(())).await;
    let after = report().await;
    assert_eq!(after.metadata.uid, before.metadata.uid, "the object is the one of before");
    assert_eq!(after.zones[0], before.zones[0], "the second pod has the CPUs of before");
    hollow.stop().await;
}
