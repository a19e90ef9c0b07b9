//! Two operators for the same users' objects, in two namespaces: a condition says so until one of them is gone.

use deployer::platform::Platform;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams};
use serde_json::json;

use super::rig::{Rig, Setup, play};
use super::workloads::Workloads;

#[test]
fn exporters_in_another_namespace_are_told() {
    play("elsewhere", Setup::on(Platform::Kubernetes), async |rig: &mut Rig| {
        let group = json!({ "poolName": "workers", "nodeSelector": {} });
        let object = rig.ask_for_exporters(&json!({ "nodeGroups": [group] })).await;
        let namespace: Namespace =
            serde_json::from_value(json!({ "metadata": { "name": "there" } })).unwrap();
        Api::<Namespace>::all(rig.admin.clone()).create(&PostParams::default(), &namespace).await.unwrap();
        let labels = json!({ "name": "resource-topology" });
        let set: DaemonSet = serde_json::from_value(json!({
            "metadata": {
                "name": "numaresourcesoperator-workers",
                "ownerReferences": [{
                    "apiVersion": "nodetopology.openshift.io/v1", "kind": "NUMAResourcesOperator",
                    "name": "numaresourcesoperator", "uid": object["metadata"]["uid"], "controller": true,
                }],
            },
            "spec": {
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": { "containers": [{ "name": "c", "image": "pause" }] },
                },
            },
        }))
        .unwrap();
        let sets = Api::<DaemonSet>::namespaced(rig.admin.clone(), "there");
        sets.create(&PostParams::default(), &set).await.unwrap();
        let _workloads = Workloads::start(&rig.admin);
        rig.operate().await;
        let message = "DaemonSet there/numaresourcesoperator-workers";
        rig.until_true("operator", "Degraded", "OperandsInOtherNamespace", message).await;
        let _ = sets.delete("numaresourcesoperator-workers", &Default::default()).await.unwrap();
        rig.until_true("operator", "Available", "", "").await;
    });
}
