//! Pods that a real kubelet rejects because another scheduler has placed them: counted, and deleted where a controller
//! makes others.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::cluster::{Running, create, eventually, metrics, pod, pods};
use crate::whole_loop::{exporting, runs};

/// A pod that another scheduler has sent to a node.
fn sent(name: &str, node: &str, owner: Option<&str>) -> Pod {
    let mut pod = pod(name, 5);
    let spec = pod.spec.as_mut().unwrap();
    (spec.scheduler_name, spec.node_name) = (Some("another".to_owned()), Some(node.to_owned()));
    pod.metadata.owner_references = owner.map(|name| {
        vec![OwnerReference {
            api_version: "apps/v1".to_owned(),
            kind: "ReplicaSet".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        }]
    });
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_pods_of_controllers_are_deleted_and_all_are_counted() {
    let Ok(rig) = testkit::env::rig() else { return };
    let (cluster, client, _exporters) = exporting(&rig, 1).await;
    let port = testkit::port::free().unwrap();
    let address = format!("--http-bind-address=127.0.0.1:{port}");
    let flags = ["--leader-elect=false", "--delete-rejected-pods", &address];
    let scheduler = Running::start(cluster.control().kubeconfig(), &flags);
    // Zones of 7 and 8 CPUs have room for five once each.
    for name in ["a", "b"] {
        create(&client, &pod(name, 5)).await;
        eventually(name, async || runs(&client, name).await).await;
    }
    let node = cluster.nodes()[0].name();
    create(&client, &sent("alone", node, None)).await;
    create(&client, &sent("owned", node, Some("set"))).await;
    let is_gone = async || pods(&client).get_opt("owned").await.unwrap().is_none().then_some(());
    eventually("the pod of a controller", is_gone).await;

    let counted = |text: &str, owner: &str| {
        let mut lines = text.lines();
        lines.any(|line| {
            line.starts_with("tholepin_scheduler_kubelet_rejections_total{")
                && [&format!("owner=\"{owner}\""), "placed_by=\"other\"", "reason=\"TopologyAffinityError\""]
                    .iter()
                    .all(|label| line.contains(*label))
                && line.ends_with("} 1")
        })
    };
    let is_counted = async || {
        let text = metrics(port).await;
        (counted(&text, "ReplicaSet default/set") && counted(&text, "")).then_some(())
    };
    eventually("the count", is_counted).await;
    let alone = pods(&client).get("alone").await.unwrap().status.unwrap();
    assert_eq!(alone.reason.as_deref(), Some("TopologyAffinityError"));
    scheduler.stop().await;
}
