//! What others made is used or left alone, and named.

use super::objects::find;
use super::*;

#[tokio::test]
async fn others_objects_are_named_and_taken_over_only_if_asked() {
    let Some(rig) = Rig::start().await else { return };
    let parts = parts(&Variant::default());
    rig.make(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "numa" } })).await;
    let theirs = rig
        .make(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": { "text": "theirs", "more": "1" },
            "metadata": { "name": "updater", "namespace": "numa" },
        }))
        .await;
    let before = rig.get(&theirs).await.unwrap();
    for dry_run in [Some(DryRun::Client), Some(DryRun::Server), None] {
        let error = rig.deploy(&parts, &Settings { dry_run, ..quick() }).await.unwrap_err();
        let told = "ConfigMap numa/updater was not made by us (it belongs to other-client); remove it, or take it \
                    over with --adopt";
        assert_eq!(error.to_string(), told);
    }
    assert_eq!(rig.get(&theirs).await.unwrap(), before);

    let outcome = rig.deploy(&parts, &Settings { adopt: true, ..quick() }).await.unwrap();
    let changes = changes(&outcome);
    let of = |name: &str| changes.iter().find(|(object, _)| object == name).unwrap().1;
    assert_eq!(of("ConfigMap numa/updater"), Change::Adopted);
    assert_eq!(of("Namespace numa"), Change::Foreign, "never taken over");
    assert_eq!(rig.get(&theirs).await.unwrap()["data"], json!({ "text": "one", "more": "1" }));
    let findings: Vec<_> =
        outcome.findings.iter().map(|(_, object, text)| format!("{object} {text}")).collect();
    let lacks = "Namespace numa was not made by us and lacks pod-security.kubernetes.io/enforce=privileged; \
                 pods may be refused in it";
    assert_eq!(findings, [lacks]);

    // Ours from now on; the namespace is not, and stays.
    let removal = rig.remove(&Component::ALL, &quick()).await.unwrap();
    assert_eq!(removal.kept, []);
    assert!(rig.get(&theirs).await.is_none());
    let namespace = rig.get(&find(&parts, "Namespace numa")).await.unwrap();
    assert!(namespace["metadata"]["deletionTimestamp"].is_null());
}

#[tokio::test]
async fn others_definitions_are_used_if_they_serve_what_is_needed() {
    let Some(rig) = Rig::start().await else { return };
    let mut theirs = serde_json::to_value(api::crd::nrt_crd()).unwrap();
    theirs["apiVersion"] = "apiextensions.k8s.io/v1".into();
    theirs["kind"] = "CustomResourceDefinition".into();
    let complete = theirs.clone();
    let needed = complete["spec"]["versions"].as_array().unwrap().clone();
    let stored = needed.iter().position(|version| version["storage"] == true).unwrap();
    theirs["spec"]["versions"] = json!([needed[stored]]);
    let theirs = rig.make(&theirs).await;
    let parts = parts(&Variant::default());
    if needed.iter().filter(|version| version["served"] == true).count() > 1 {
        let error = rig.deploy(&parts[..1], &quick()).await.unwrap_err().to_string();
        assert!(
            error.contains(" was not made by us (it belongs to other-client) and does not serve "),
            "{error}"
        );
    }
    rig.make(&complete).await;
    let before = rig.dump().await;
    let outcome = rig.deploy(&parts[..1], &quick()).await.unwrap();
    assert_eq!(outcome.applied[0].2, Change::Foreign);
    rig.remove(&Component::ALL, &quick()).await.unwrap();
    assert_same(&before, &rig.dump().await);
    assert!(rig.get(&theirs).await.is_some());
}

#[tokio::test]
async fn a_name_that_is_taken_is_told_at_once() {
    let Some(rig) = Rig::start().await else { return };
    // Another definition of the same kind in the same group.
    let mut theirs = serde_json::to_value(api::crd::nrt_crd()).unwrap();
    theirs["apiVersion"] = "apiextensions.k8s.io/v1".into();
    theirs["kind"] = "CustomResourceDefinition".into();
    theirs["metadata"]["name"] = "others.topology.node.k8s.io".into();
    theirs["spec"]["names"]["plural"] = "others".into();
    theirs["spec"]["names"]["singular"] = "other".into();
    let theirs = rig.make(&theirs).await;
    until("their names", async || {
        let live = rig.get(&theirs).await.unwrap();
        live["status"]["conditions"]
            .as_array()
            .is_some_and(|all| all.iter().any(|c| c["type"] == "Established"))
    })
    .await;
    let error = rig.deploy(&parts(&Variant::default())[..1], &quick()).await.unwrap_err();
    assert!(matches!(error, Error::NeverServed { .. }), "{error}");
    let text = error.to_string();
    assert!(text.starts_with(
        "CustomResourceDefinition noderesourcetopologies.topology.node.k8s.io cannot be served: "
    ));
}
