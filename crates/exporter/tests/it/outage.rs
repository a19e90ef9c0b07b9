//! Whatever goes away and comes back, as far as only the real thing shows it: a kubelet, the API server, a node with
//! its garbage collector. Single faults are in `faults`.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::json;
use testkit::kubelet::KubeletOptions;
use testkit::machine::Machine;

use super::*;

fn machine() -> Machine {
    Machine::new().zones(2).cpus_per_zone(8)
}

const EMPTY: &str = "0 7/7/8 | 1 8/8/8";
const WITH_A: &str = "0 3/7/8 | 1 8/8/8";
const WITH_A_AND_B: &str = "0 3/7/8 | 1 3/8/8";

/// A kubelet that has just started lists no pods for a moment: readers must not see that moment.
#[tokio::test]
async fn a_restarting_kubelet_never_looks_empty() {
    let Some(cluster) = cluster(|builder| builder.machines([machine()])).await else { return };
    let client = cluster.client().await.unwrap();
    let _exporter = Exporter::start(&flags(&cluster, 0));
    shows(&client, "cpu", EMPTY).await;
    // A node without pods has its CPUs all the same.
    for (pod, cpus, before, after) in [("a", 4, EMPTY, WITH_A), ("b", 5, WITH_A, WITH_A_AND_B)] {
        let mut states = states(&client);
        for _ in 0..3 {
            cluster.nodes()[0].kubelet().restart().await.unwrap();
        }
        place(&client, pod, "node-0", cpus).await;
        shows(&client, "cpu", after).await;
        loop {
            let (_, nrt) = next(&mut states).await;
            match show(&nrt, "cpu").as_str() {
                shown if shown == before => {}
                shown if shown == after => break,
                other => panic!("{other}"),
            }
        }
        runs(&client, pod).await;
    }
    // A pod that goes while the kubelet is away is noticed all the same.
    cluster.nodes()[0].kubelet().stop();
    let pods = Api::<Pod>::default_namespaced(client.clone());
    pods.delete("a", &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() })
        .await
        .unwrap();
    cluster.nodes()[0].kubelet().restart().await.unwrap();
    shows(&client, "cpu", "0 7/7/8 | 1 3/8/8").await;
}

/// Static pods need no API server: the kubelet goes on handing out CPUs while it is away.
#[tokio::test]
async fn what_happens_while_the_api_server_is_away_is_published_when_it_is_back() {
    let manifests = tempfile::tempdir().unwrap();
    let path = manifests.path().to_str().unwrap().to_owned();
    let options =
        KubeletOptions { config: json_map(json!({ "staticPodPath": path })), ..KubeletOptions::default() };
    let Some(cluster) = cluster(|builder| builder.machines([machine()]).kubelet(options)).await else {
        return;
    };
    let client = cluster.client().await.unwrap();
    let exporter = Exporter::start(&flags(&cluster, 0));
    shows(&client, "cpu", EMPTY).await;

    let control = cluster.control();
    let state = cluster.nodes()[0].kubelet().root_dir().join("cpu_manager_state");
    for (name, cpus, wanted) in [("a", 4, WITH_A), ("b", 5, WITH_A_AND_B)] {
        control.api_server().kill();
        let before = std::fs::read(&state).unwrap();
        let pod = serde_json::to_vec(&bound_pod(name, "node-0", cpus)).unwrap();
        std::fs::write(manifests.path().join(format!("{name}.json")), pod).unwrap();
        until("allocated", async || (std::fs::read(&state).unwrap() != before).then_some(())).await;
        control.api_server().restart().unwrap();
        control.wait_ready().await.unwrap();
        shows(&client, "cpu", wanted).await;
    }
    exporter.stop().await;
}

fn json_map(value: serde_json::Value) -> serde_json::Map<String, serde_json::Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// The garbage collector takes the object along with its node; the new node's object belongs to the new node.
#[tokio::test]
async fn a_node_replaced_under_its_name_owns_the_new_object() {
    let Some(cluster) = cluster(|builder| builder.machines([machine()]).controller_manager(true)).await
    else {
        return;
    };
    let client = cluster.client().await.unwrap();
    let _exporter = Exporter::start(&flags(&cluster, 0));
    shows(&client, "cpu", EMPTY).await;
    let (nodes, nrts) = (Api::<Node>::all(client.clone()), Api::<NodeResourceTopology>::all(client.clone()));
    let old = nodes.get("node-0").await.unwrap().uid();
    cluster.nodes()[0].kubelet().stop();
    nodes.delete("node-0", &DeleteParams::default()).await.unwrap();
    until("collected", async || nrts.get_opt("node-0").await.unwrap().is_none().then_some(())).await;

    cluster.nodes()[0].kubelet().restart().await.unwrap();
    let new = nodes.get("node-0").await.unwrap().uid();
    assert_ne!(old, new);
    let nrt = shows(&client, "cpu", EMPTY).await;
    assert_eq!(nrt.owner_references().iter().map(|owner| Some(owner.uid.clone())).collect::<Vec<_>>(), [new]);
}
