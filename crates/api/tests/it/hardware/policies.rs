//! The admission policies of DeviceConfigs.

use super::*;

pub(super) async fn namespaces_hold_a_module(client: &Client) {
    put(client, policy::name_policy()).await;
    let (fits, long) = ("a".repeat(31), "a".repeat(32));
    for name in [&fits, &long] {
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    }
    let refused = object(&long, "acc", &with(&json!({})));
    let said = until_refused(client, &refused).await;
    assert!(
        said.contains("a DeviceConfig must be in a namespace whose name has at most 31 characters"),
        "{said}"
    );
    assert!(
        problems(&refused)[0].starts_with("metadata.namespace: a DeviceConfig must be"),
        "{:?}",
        problems(&refused)
    );
    assert!(verdict(client, &object(&fits, "acc", &with(&json!({})))).await.is_ok());
}

pub(super) async fn selectors_can_be_restricted(client: &Client) {
    let all = objects(client, "default");
    let mut older = object("default", "older", &with(&json!({"nodeSelector": {"a": "b"}})));
    older["metadata"]["finalizers"] = json!(["example.com/held"]);
    all.create(&PostParams::default(), &serde_json::from_value(older).unwrap()).await.unwrap();
    put(client, policy::node_policy("example.com/team")).await;
    let refused = [json!({"a": "b"}), json!({"example.com/team": "other"})]
        .map(|selector| with(&json!({"nodeSelector": selector})));
    for spec in refused.into_iter().chain([with(&json!({"nodeSelector": null, "allNodes": true}))]) {
        let said = until_refused(client, &object("default", "new", &spec)).await;
        assert!(said.contains("spec.nodeSelector must have the label example.com/team"), "{said}");
    }
    let own = with(&json!({"nodeSelector": {"example.com/team": "default", "a": "b"}}));
    assert!(verdict(client, &object("default", "new", &own)).await.is_ok());
    // An object older than the policy can be updated and deleted, but not changed into another violation.
    let change = async |patch: Value| all.patch("older", &PatchParams::default(), &Patch::Merge(patch)).await;
    let said = change(json!({"spec": {"nodeSelector": {"a": "c"}}})).await.unwrap_err().to_string();
    assert!(said.contains("spec.nodeSelector must have the label example.com/team"), "{said}");
    let _ = all.delete("older", &DeleteParams::default()).await.unwrap();
    change(json!({"metadata": {"finalizers": null}})).await.unwrap();
    assert!(all.get_opt("older").await.unwrap().is_none());
}

pub(super) async fn put(
    client: &Client,
    (policy, binding): (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding),
) {
    Api::all(client.clone()).create(&PostParams::default(), &policy).await.unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &binding).await.unwrap();
}

/// The refusal, once a new policy is in effect.
async fn until_refused(client: &Client, object: &Value) -> String {
    loop {
        if let Err(said) = verdict(client, object).await {
            return said;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}
