//! The admission policies for the operator's account: what it may write of what RBAC allows.

use api::hardware::{account, keys};
use api::rbac::rule;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use testkit::account::Account;

use super::*;

const NAMESPACE: &str = "hardware";
const NAME: &str = "operator";

pub(super) async fn the_account_writes_its_own_only(plane: &ControlPlane, admin: &Client) {
    let operator = Account::create(plane, NAMESPACE, NAME).await.unwrap();
    let all = ["get", "create", "patch", "delete"];
    let rules = [rule("", &["configmaps"], &all), rule("", &["nodes"], &["patch"])];
    operator.allow(rules.to_vec(), Vec::new()).await.unwrap();
    let kubeconfig = operator.kubeconfig(None).await.unwrap();
    let operator = plane.client_with(&kubeconfig).await.unwrap();
    for policy in account::policies(NAMESPACE, NAME) {
        policies::put(admin, policy).await;
    }
    objects_bear_the_labels(&operator, admin).await;
    nodes_keep_what_is_not_the_operators(&operator, admin).await;
}

fn marks() -> Value {
    json!({keys::LABEL_MANAGED_BY: keys::MANAGED_BY, keys::LABEL_DEVICE_CONFIG: "acc"})
}

fn map(name: &str, labels: &Value) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
}

/// Whether a request was not refused by the policies.
fn allowed<T>(answer: kube::Result<T>) -> bool {
    match answer {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 403 && status.message.contains("may") => false,
        Err(error) => panic!("{error}"),
    }
}

async fn objects_bear_the_labels(operator: &Client, admin: &Client) {
    let (own, all) =
        (Api::<ConfigMap>::default_namespaced(operator.clone()), Api::default_namespaced(admin.clone()));
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    while allowed(own.create(&dry, &map("trial", &json!({}))).await) {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let half = json!({keys::LABEL_MANAGED_BY: keys::MANAGED_BY});
    for (labels, wanted) in [(json!({}), false), (half, false), (marks(), true)] {
        assert_eq!(
            allowed(own.create(&PostParams::default(), &map("own", &labels)).await),
            wanted,
            "{labels}"
        );
    }
    all.create(&PostParams::default(), &map("coredns", &json!({"a": "b"}))).await.unwrap();
    let label = |labels: Value| Patch::Merge(json!({"metadata": {"labels": labels}}));
    let data = Patch::Merge(json!({"data": {"a": "b"}}));
    let params = PatchParams::default();
    assert!(allowed(own.patch("own", &params, &data).await));
    assert!(!allowed(own.patch("coredns", &params, &data).await));
    assert!(!allowed(own.patch("coredns", &params, &label(marks())).await), "taken over");
    assert!(!allowed(own.patch("own", &params, &label(json!({keys::LABEL_DEVICE_CONFIG: null}))).await));
    assert!(!allowed(own.delete("coredns", &DeleteParams::default()).await));
    assert!(allowed(own.delete("own", &DeleteParams::default()).await));
    assert!(allowed(all.patch("coredns", &params, &data).await), "administrators");
}

async fn nodes_keep_what_is_not_the_operators(operator: &Client, admin: &Client) {
    let (own, all) = (Api::<Node>::all(operator.clone()), Api::<Node>::all(admin.clone()));
    let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
    let node = serde_json::from_value(json!({
        "metadata": {"name": "node", "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"taints": [taint("e")]},
    }));
    all.create(&PostParams::default(), &node.unwrap()).await.unwrap();
    // A new node is tainted as not ready.
    let taints = Patch::Merge(json!({"spec": {"taints": [taint("e")]}}));
    all.patch("node", &PatchParams::default(), &taints).await.unwrap();
    let metadata = |field: &str, value: Value| json!({"metadata": {field: value}});
    let spec = |field: &str, value: Value| json!({"spec": {field: value}});
    let version = "kmm.node.kubernetes.io/version-module.hw.acc";
    while allowed(
        own.patch(
            "node",
            &PatchParams { dry_run: true, ..PatchParams::default() },
            &Patch::Merge(spec("unschedulable", json!(true))),
        )
        .await,
    ) {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    for (patch, wanted) in [
        (metadata("labels", json!({keys::LABEL_DRIVER: "hw.acc"})), true),
        (metadata("labels", json!({keys::LABEL_DRIVER: null, version: "1"})), true),
        (metadata("labels", json!({version: null})), true),
        (metadata("labels", json!({"f": "g"})), false),
        (metadata("labels", json!({"a": "other"})), false),
        (metadata("labels", json!({"a": null})), false),
        (metadata("annotations", json!({"c": null})), false),
        (metadata("annotations", json!({"h": "i"})), false),
        (metadata("finalizers", json!(["example.com/held"])), false),
        (spec("taints", json!([taint("e"), taint(keys::CORDON_TAINT)])), true),
        (spec("taints", json!([taint(keys::CORDON_TAINT)])), false),
        (spec("taints", json!([taint("e"), taint("j")])), false),
        (spec("taints", json!([taint("e")])), true),
        (spec("taints", json!([])), false),
        (spec("unschedulable", json!(true)), false),
    ] {
        let answer = own.patch("node", &PatchParams::default(), &Patch::Merge(&patch)).await;
        assert_eq!(allowed(answer), wanted, "{patch}");
    }
    let cordon = Patch::Merge(spec("unschedulable", json!(true)));
    assert!(allowed(all.patch("node", &PatchParams::default(), &cordon).await), "administrators");
}
