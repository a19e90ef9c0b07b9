//! A more important pod gets the zone of one that may be disrupted, on a real kubelet.

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::cluster::{Running, create, eventually, node_of, pod, pods};
use crate::whole_loop::{exporting, runs};

/// Each zone has room for one pod of so many CPUs.
const CPUS: u32 = 6;
const IMPORTANT: &str = "important";

async fn create_in<K>(api: Api<K>, object: Value)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// The pods that an event of the reason `Preempted` names.
async fn preempted(client: &Client) -> Option<Vec<(String, String)>> {
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let list = events.list(&ListParams::default()).await.ok()?;
    let of = list.items.into_iter().filter(|event| event.reason.as_deref() == Some("Preempted"));
    let all: Vec<_> = of.map(|event| (event.regarding.unwrap().name.unwrap(), event.note.unwrap())).collect();
    (!all.is_empty()).then_some(all)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zone_is_freed_by_evicting_the_pod_that_no_budget_keeps() {
    let Ok(rig) = testkit::env::rig() else { return };
    let (cluster, client, _guard) = exporting(&rig, 1).await;
    let class = json!({"metadata": {"name": IMPORTANT}, "value": 1000});
    create_in::<PriorityClass>(Api::all(client.clone()), class).await;
    // Nothing counts its pods here, so it allows no disruption.
    let budget = json!({
        "metadata": {"name": "kept"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    });
    create_in::<PodDisruptionBudget>(Api::default_namespaced(client.clone()), budget).await;
    let scheduler = Running::start(cluster.control().kubeconfig(), &["--leader-elect=false"]);

    // The older of two equals is the more important: without the budget, `kept` were the victim.
    create(&client, &pod("older", CPUS)).await;
    eventually("older", async || runs(&client, "older").await).await;
    let mut kept = pod("kept", CPUS);
    kept.metadata.labels = Some([("app".to_owned(), "kept".to_owned())].into());
    create(&client, &kept).await;
    eventually("kept", async || runs(&client, "kept").await).await;

    let mut important = pod("high", CPUS);
    important.spec.as_mut().unwrap().priority_class_name = Some(IMPORTANT.to_owned());
    create(&client, &important).await;
    eventually("high", async || runs(&client, "high").await).await;
    let node = node_of(&client, "high").await.unwrap();
    let is_gone = async || pods(&client).get_opt("older").await.unwrap().is_none().then_some(());
    eventually("the victim is gone", is_gone).await;
    runs(&client, "kept").await.unwrap();
    let uid = pods(&client).get("high").await.unwrap().metadata.uid.unwrap();
    let events = eventually("Preempted", async || preempted(&client).await).await;
    assert_eq!(events, [("older".to_owned(), format!("Preempted by pod {uid} on node {node}"))]);
    scheduler.stop().await;
}
