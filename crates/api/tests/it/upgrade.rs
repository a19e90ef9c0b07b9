//! An upgrade of the Go operator's definitions with its objects in place: all of them stay readable and writable.

use api::crd::{operator_crd, scheduler_crd};
use api::numaresources::keys::{OPERATOR, SCHEDULER};
use api::numaresources::{NumaResourcesOperator, OLD_VERSION, VERSION, operator, scheduler};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};

use crate::install;
use crate::peer::{operator_peer, scheduler_peer};
use crate::rules::{object, objects};

/// An object of the Go operator, as its users and the operator wrote it.
struct Stored {
    kind: &'static str,
    name: &'static str,
    version: &'static str,
    spec: Value,
    status: Value,
}

#[tokio::test]
async fn the_go_operators_objects_stay() {
    // B-20.
    let Ok(rig) = testkit::env::rig() else { return };
    let plane = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = plane.client().await.unwrap();
    for crd in [operator_peer(), scheduler_peer()] {
        assert_eq!(install(&client, &crd).await, Vec::<String>::new());
    }
    let mut before = Vec::new();
    for stored in stored() {
        before.push((store(&client, &stored).await, stored));
    }
    replace(&client, operator_crd()).await;
    apply(&client, &scheduler_crd()).await;
    for (old, stored) in before {
        let new = objects(&client, VERSION, stored.kind).get(stored.name).await.unwrap();
        assert_eq!(new, old, "{}", stored.name);
        status_can_be_written(&client, &stored).await;
        it_can_be_written_unchanged(&client, &stored).await;
        the_annotation_can_be_written(&client, &stored).await;
    }
    what_was_wrong_can_be_put_right_only(&client).await;
    for name in [operator_crd().name_any(), scheduler_crd().name_any()] {
        let crd = Api::<CustomResourceDefinition>::all(client.clone()).get(&name).await.unwrap();
        assert_eq!(crd.status.unwrap().stored_versions, Some(vec![VERSION.to_owned()]), "{name}");
    }
}

/// For each rule an object that breaks it.
fn stored() -> Vec<Stored> {
    let condition = json!({
        "type": "Degraded", "status": "True", "reason": "ValidationErrorUnderNodeGroups", "message": "x",
        "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 0,
    });
    let annotations: Value =
        (0..9).map(|n| (format!("a{n}"), Value::from("b"))).collect::<serde_json::Map<_, _>>().into();
    let wrong = json!({
        "imageSpec": "quay.io/x:y", "logLevel": "Trace", "podExcludes": [{"namespace": "[", "name": "a"}],
        "nodeGroups": [
            {"poolName": "worker", "machineConfigPoolSelector": {"matchLabels": {"a": "b"}}},
            {},
            {"poolName": ""},
            {"poolName": "worker", "annotations": annotations, "config": {
                "infoRefreshPeriod": "-5s", "infoRefreshMode": "Events",
                "tolerations": [{"key": "a", "effect": "Never", "operator": "Like"}],
            }},
            {"machineConfigPoolSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}},
        ],
    });
    let pool = json!({"name": "worker", "config": {"infoRefreshPeriod": "-5s"}, "conditions": [
        {"type": "Updated", "status": "True", "lastTransitionTime": null, "reason": "", "message": ""},
    ]});
    let of_operator = json!({
        "daemonsets": [{"namespace": "numaresources", "name": "numaresourcesoperator-worker"}],
        "machineconfigpools": [pool], "conditions": [condition],
        "nodeGroups": [{"daemonsets": {"namespace": "a", "name": "b"}, "config": {}, "selector": "worker"}],
        "relatedObjects": [{"group": "", "resource": "namespaces", "name": "numaresources"}],
    });
    let old = json!({"nodeGroups": [{
        "machineConfigPoolSelector": {"matchLabels": {"a": "b"}}, "disablePodsFingerprinting": true,
        "config": {"podsFingerprinting": "Enabled", "infoRefreshMode": "Periodic", "infoRefreshPeriod": "7s"},
    }]});
    let schedule = json!({
        "imageSpec": "quay.io/x:y", "schedulerName": "numa", "cacheResyncPeriod": "-3s", "replicas": -1,
        "scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": -1}]},
    });
    let of_scheduler = json!({
        "deployment": {"namespace": "a", "name": "b"}, "schedulerName": "numa", "cacheResyncPeriod": "-3s",
        "conditions": [condition],
    });
    let old_schedule = json!({"imageSpec": "a", "logLevel": ""});
    let conditions = json!({"conditions": [condition]});
    let new = |kind, name, spec, status| Stored { kind, name, version: VERSION, spec, status };
    let old_version =
        |kind, spec| Stored { kind, name: "another", version: OLD_VERSION, spec, status: conditions.clone() };
    vec![
        new(operator::KIND, OPERATOR, wrong, of_operator),
        old_version(operator::KIND, old),
        new(scheduler::KIND, SCHEDULER, schedule, of_scheduler),
        old_version(scheduler::KIND, old_schedule),
    ]
}

/// Stores an object and returns it in the newer version.
async fn store(client: &Client, stored: &Stored) -> DynamicObject {
    let api = objects(client, stored.version, stored.kind);
    let sent = object(stored.version, stored.kind, stored.name, &stored.spec);
    let mut made = api.create(&PostParams::default(), &sent).await.unwrap();
    made.data["status"] = stored.status.clone();
    api.replace_status(stored.name, &PostParams::default(), &made).await.unwrap();
    let there = objects(client, VERSION, stored.kind).get(stored.name).await.unwrap();
    assert_eq!(there.data["status"], stored.status);
    there
}

/// Replaces a definition, as OLM and `kubectl replace` do.
async fn replace(client: &Client, mut crd: CustomResourceDefinition) {
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    let name = crd.name_any();
    let before = crds.get(&name).await.unwrap();
    crd.metadata.resource_version = before.metadata.resource_version.clone();
    let after = crds.replace(&name, &PostParams::default(), &crd).await.unwrap();
    settled(client, &name, after.metadata.generation).await;
}

/// Replaces a definition by a forced server-side apply, which leaves nothing of the old one.
async fn apply(client: &Client, crd: &CustomResourceDefinition) {
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    let name = crd.name_any();
    let patch = serde_json::to_value(crd).unwrap();
    let after = crds.patch(&name, &PatchParams::apply("it").force(), &Patch::Apply(&patch)).await.unwrap();
    assert_eq!(after.spec.versions, crd.spec.versions);
    settled(client, &name, after.metadata.generation).await;
}

/// Waits until the API server uses the new definition, which keeps a field that the old one pruned.
async fn settled(client: &Client, name: &str, generation: Option<i64>) {
    assert_eq!(generation, Some(2));
    let kind = if name.starts_with(operator::PLURAL) { operator::KIND } else { scheduler::KIND };
    let sent = if kind == operator::KIND {
        object(OLD_VERSION, kind, OPERATOR, &json!({"nodeGroups": [{"poolName": "a"}]}))
    } else {
        object(OLD_VERSION, kind, SCHEDULER, &json!({"replicas": 1}))
    };
    let objects = objects(client, OLD_VERSION, kind);
    let patch = |spec: &Value| Patch::Merge(json!({"spec": spec}));
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let known = || async {
        let there = objects.patch(&sent.name_any(), &dry, &patch(&sent.data["spec"])).await;
        there.is_ok_and(|there| {
            there.data["spec"].to_string().contains(r#""poolName":"a""#)
                || there.data["spec"].to_string().contains(r#""replicas":1"#)
        })
    };
    for _ in 0..600 {
        if known().await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{name} is not served");
}

/// An invalid object can still get a status.
async fn status_can_be_written(client: &Client, stored: &Stored) {
    let condition = |message: &str| {
        json!({
            "type": "Degraded", "status": "True", "reason": "ValidationErrorUnderNodeGroups", "message": message,
            "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 1,
        })
    };
    for version in [VERSION, OLD_VERSION] {
        let message = format!("told through {version}");
        let status = json!({"status": {"conditions": [condition(&message)]}});
        let api = objects(client, version, stored.kind);
        let after = api.patch_status(stored.name, &PatchParams::default(), &Patch::Merge(status)).await;
        let after = after.unwrap_or_else(|error| panic!("{version} {}: {error}", stored.name));
        assert_eq!(after.data["status"]["conditions"][0]["message"], json!(message));
    }
}

async fn it_can_be_written_unchanged(client: &Client, stored: &Stored) {
    for version in [VERSION, OLD_VERSION] {
        let api = objects(client, version, stored.kind);
        let there = api.get(stored.name).await.unwrap();
        let after = api.replace(stored.name, &PostParams::default(), &there).await;
        let after = after.unwrap_or_else(|error| panic!("{version} {}: {error}", stored.name));
        assert_eq!((&after.data, after.metadata.generation), (&there.data, there.metadata.generation));
    }
}

async fn the_annotation_can_be_written(client: &Client, stored: &Stored) {
    let api = objects(client, VERSION, stored.kind);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"a": "b"}}}));
    api.patch(stored.name, &PatchParams::default(), &patch).await.unwrap();
}

/// A changed list has to be valid.
async fn what_was_wrong_can_be_put_right_only(client: &Client) {
    let api = objects(client, VERSION, operator::KIND);
    let patch = |groups: Value| Patch::Merge(json!({"spec": {"nodeGroups": groups}}));
    let refused = api.patch(OPERATOR, &PatchParams::default(), &patch(json!([{}]))).await.unwrap_err();
    assert!(refused.to_string().contains("missing any pool specifier"), "{refused}");
    let right =
        api.patch(OPERATOR, &PatchParams::default(), &patch(json!([{"poolName": "a"}]))).await.unwrap();
    let right: NumaResourcesOperator = right.try_parse().unwrap();
    assert_eq!(right.spec.node_groups[0].pool_name.as_deref(), Some("a"));
    assert_eq!(right.spec.pod_excludes[0].namespace, "[");
}
