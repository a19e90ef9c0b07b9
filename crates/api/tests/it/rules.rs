//! Validation of NUMAResourcesOperator and NUMAResourcesScheduler objects by a real API server, and conversion between
//! versions without loss.

use api::crd::{OPERATOR_CRD_YAML, SCHEDULER_CRD_YAML, operator_crd, scheduler_crd};
use api::numaresources::keys::{OPERATOR, SCHEDULER};
use api::numaresources::{GROUP, OLD_VERSION, VERSION, operator, scheduler};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};

use crate::generate::{meaning, parts};
use crate::install;

/// Objects of a kind in a version, with any content.
pub(crate) fn objects(client: &Client, version: &str, kind: &str) -> Api<DynamicObject> {
    let plural = if kind == operator::KIND { operator::PLURAL } else { scheduler::PLURAL };
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, version, kind), plural);
    Api::all_with(client.clone(), &resource)
}

/// An object of a kind as JSON.
pub(crate) fn object(version: &str, kind: &str, name: &str, spec: &Value) -> DynamicObject {
    let object = json!({
        "apiVersion": format!("{GROUP}/{version}"), "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

/// The API server's response to a dry-run creation of an object.
async fn verdict(client: &Client, version: &str, kind: &str, name: &str, spec: &Value) -> Result<(), String> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    match objects(client, version, kind).create(&dry, &object(version, kind, name, spec)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 422 => Err(status.message),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn the_api_server_takes_what_makes_sense_only() {
    let Ok(rig) = testkit::env::rig() else { return };
    let plane = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = plane.client().await.unwrap();
    for (crd, yaml) in [(operator_crd(), OPERATOR_CRD_YAML), (scheduler_crd(), SCHEDULER_CRD_YAML)] {
        assert_eq!(install(&client, &crd).await, Vec::<String>::new());
        the_committed_yaml_changes_nothing(&client, &crd.name_any(), yaml).await;
    }
    n001_s001_there_is_one_object_of_each_kind(&client).await;
    for (kind, name, spec, wants) in table() {
        for version in [VERSION, OLD_VERSION] {
            let said = verdict(&client, version, kind, name, &spec).await;
            match (&said, wants) {
                (Ok(()), "") => {}
                (Err(message), wants) if !wants.is_empty() && message.contains(wants) => {}
                _ => panic!("{version} {kind} {spec}: {said:?} instead of {wants:?}"),
            }
        }
    }
    for (kind, name, crd) in
        [(operator::KIND, OPERATOR, operator_crd()), (scheduler::KIND, SCHEDULER, scheduler_crd())]
    {
        for versions in [(VERSION, OLD_VERSION), (OLD_VERSION, VERSION)] {
            nothing_is_lost_between_versions(&client, kind, name, &crd, versions).await;
        }
    }
    columns_are_shown(&client).await;
}

/// Applying the YAML over the installed definition is a no-op: same generation afterwards.
pub(crate) async fn the_committed_yaml_changes_nothing(client: &Client, name: &str, yaml: &str) {
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    let before = crds.get(name).await.unwrap();
    let yaml: Value = serde_saphyr::from_str(yaml).unwrap();
    let after = crds.patch(name, &PatchParams::apply("it").force(), &Patch::Apply(&yaml)).await.unwrap();
    assert_eq!(before.metadata.generation, after.metadata.generation, "{name}");
    assert_eq!(before.spec, after.spec, "{name}");
}

async fn n001_s001_there_is_one_object_of_each_kind(client: &Client) {
    for (kind, name) in [(operator::KIND, OPERATOR), (scheduler::KIND, SCHEDULER)] {
        for version in [VERSION, OLD_VERSION] {
            assert_eq!(verdict(client, version, kind, name, &json!({})).await, Ok(()));
            let refused = verdict(client, version, kind, "another", &json!({})).await.unwrap_err();
            let wanted = format!("the object name must be '{name}'.");
            assert!(refused.contains(&wanted), "{version} {kind}: {refused}");
        }
    }
}

/// Kind, name, spec, and the message of the refusal; empty for a valid object.
fn table() -> Vec<(&'static str, &'static str, Value, &'static str)> {
    let groups = |groups: Value| json!({"nodeGroups": groups});
    let of_operator: Vec<(Value, &'static str)> = [
        (json!([]), ""),
        (json!([{"poolName": "a"}, {"poolName": "b", "config": {}}]), ""),
        (json!([{"machineConfigPoolSelector": {}}, {"machineConfigPoolSelector": {}}]), ""),
        (
            json!([{"poolName": "a", "nodeSelector": {"matchLabels": {"a": "b"}}, "kubeletConfigMap": "x"}]),
            "",
        ),
        (json!([{}]), "node group missing any pool specifier"),
        (json!([{"nodeSelector": {}}]), "node group missing any pool specifier"),
        // The operator refuses these with a condition, as users of the Go operator expect.
        (json!([{"poolName": "a", "machineConfigPoolSelector": {}}]), ""),
        (
            json!([{"machineConfigPoolSelector": {}, "nodeSelector": {}}]),
            "nodeSelector stands beside poolName",
        ),
        (json!([{"poolName": ""}]), ""),
        (json!([{"poolName": "a"}, {"machineConfigPoolSelector": {}}, {"poolName": "a"}]), ""),
        (json!([{"poolName": "a", "annotations": eight(8)}]), ""),
        (json!([{"poolName": "a", "annotations": eight(9)}]), "has too many annotations"),
        (
            json!([{"machineConfigPoolSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}]),
            "supported values: \"In\", \"NotIn\", \"Exists\", \"DoesNotExist\"",
        ),
    ]
    .into_iter()
    .map(|(list, wants)| (groups(list), wants))
    .collect();
    let config = |config: Value| json!({"nodeGroups": [{"poolName": "a", "config": config}]});
    let toleration = |toleration: Value| config(json!({"tolerations": [toleration]}));
    let period = |text: &str| config(json!({"infoRefreshPeriod": text}));
    let exclude = |pattern: &str| json!({"podExcludes": [{"namespace": "*", "name": pattern}]});
    let duration = "must be a duration of at least 0";
    let more = [
        (config(json!({"podsFingerprinting": "Some"})), "podsFingerprinting: Unsupported value"),
        (config(json!({"infoRefreshMode": "Never"})), "infoRefreshMode: Unsupported value"),
        (config(json!({"infoRefreshPause": "Yes"})), "infoRefreshPause: Unsupported value"),
        (json!({"logLevel": ""}), ""),
        (json!({"logLevel": "Loud"}), "logLevel: Unsupported value"),
        (period("0"), ""),
        (period("0s"), ""),
        (period("1h30m0.5s"), ""),
        (period(".5s"), ""),
        (period("1.µs"), ""),
        (period(""), duration),
        (period("10"), duration),
        (period("10x"), duration),
        (period("-5s"), duration),
        (period("1 s"), duration),
        (period("9999999999h"), "infoRefreshPeriod"),
        (toleration(json!({"operator": "Exists"})), ""),
        (toleration(json!({"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute"})), ""),
        (toleration(json!({"effect": "Never"})), ""),
        (toleration(json!({"operator": "Like"})), ""),
        (json!({"updaterType": "RTE", "podExcludes": [{"namespace": "*", "name": "*"}]}), ""),
        (json!({"updaterType": "nfd"}), "updaterType: Unsupported value"),
        (exclude("kube-*"), ""),
        (exclude(r"[^a-z]?\[[\]x]"), ""),
        (exclude(""), ""),
        (exclude("["), "must be a shell pattern"),
        (exclude("[]"), "must be a shell pattern"),
        (exclude("a[z-]"), "must be a shell pattern"),
        (exclude("a\\"), "must be a shell pattern"),
    ];
    let of_scheduler = [
        (json!({"imageSpec": "a@sha256:b", "replicas": 0, "cacheResyncPeriod": "0s"}), ""),
        (json!({"replicas": -1}), "spec.replicas"),
        (json!({"cacheResyncPeriod": "-1s"}), duration),
        (json!({"scoringStrategy": {"resources": [{"name": "cpu", "weight": 0}, {"name": "memory"}]}}), ""),
        (json!({"scoringStrategy": {"resources": [{"name": "cpu", "weight": -1}]}}), "weight"),
        (json!({"scoringStrategy": {"resources": [{"name": "cpu", "weight": 2_147_483_648_i64}]}}), "weight"),
        (json!({"scoringStrategy": {"resources": [{"weight": 1}]}}), "name: Required value"),
        (json!({"scoringStrategy": {"type": "Most"}}), "Unsupported value"),
        (json!({"schedulerInformer": "Own"}), "Unsupported value"),
        (json!({"cacheResyncDebug": "On"}), "Unsupported value"),
        (json!({"cacheResyncDetection": "Lazy"}), "Unsupported value"),
        (json!({"preemptionMode": "Maybe"}), "Unsupported value"),
    ];
    let operators = of_operator.into_iter().chain(more).chain(of_nfd());
    let operators = operators.map(|(spec, wants)| (operator::KIND, OPERATOR, spec, wants));
    operators.chain(of_scheduler.map(|(spec, wants)| (scheduler::KIND, SCHEDULER, spec, wants))).collect()
}

/// What nfd-topology-updater would drop silently is refused; the exporter takes all of it.
fn of_nfd() -> Vec<(Value, &'static str)> {
    let group = |group: Value| json!({"nodeGroups": [{"poolName": "a"}, group]});
    let config = |config: Value| group(json!({"poolName": "b", "config": config}));
    let policy = |policy: &str| {
        group(
            json!({"poolName": "b", "annotations": {"config.node.openshift-kni.io/selinux-policy": policy}}),
        )
    };
    let mode = "infoRefreshMode: it must be Periodic with updaterType NFD";
    let period = "infoRefreshPeriod: it must be above 0s with updaterType NFD";
    let rows = [
        (json!({}), ""),
        (json!({"podExcludes": []}), ""),
        (
            json!({"podExcludes": [{"namespace": "*", "name": "*"}]}),
            "podExcludes: it must be empty with updaterType NFD",
        ),
        (
            group(json!({"poolName": "b", "kubeletConfigMap": "x"})),
            "kubeletConfigMap: it has no effect with updaterType NFD",
        ),
        (policy("custom"), "the SELinux policy custom needs updaterType RTE"),
        (policy("default"), ""),
        (
            config(json!({"podsFingerprinting": "EnabledExclusiveResources"})),
            "podsFingerprinting: it must be Enabled or Disabled",
        ),
        (config(json!({"podsFingerprinting": "Enabled"})), ""),
        (config(json!({"podsFingerprinting": "Disabled"})), ""),
        (config(json!({"infoRefreshMode": "Events"})), mode),
        (config(json!({"infoRefreshMode": "PeriodicAndEvents"})), mode),
        (config(json!({"infoRefreshMode": "Periodic"})), ""),
        (config(json!({"infoRefreshPeriod": "0"})), period),
        (config(json!({"infoRefreshPeriod": "0h0.0s"})), period),
        (config(json!({"infoRefreshPeriod": "0m10s"})), ""),
    ];
    let with = |spec: &Value, updater: &str| {
        let mut spec = spec.clone();
        spec["updaterType"] = updater.into();
        spec
    };
    rows.iter().flat_map(|(spec, wants)| [(with(spec, "NFD"), *wants), (with(spec, "RTE"), "")]).collect()
}

/// A map of `count` annotations.
fn eight(count: usize) -> Value {
    (0..count).map(|index| (format!("a{index}"), Value::from("b"))).collect::<serde_json::Map<_, _>>().into()
}

/// Objects with every field, written in one version and read in the other, lose nothing, status included.
async fn nothing_is_lost_between_versions(
    client: &Client,
    kind: &str,
    name: &str,
    crd: &CustomResourceDefinition,
    (written, read): (&str, &str),
) {
    let mut runner = TestRunner::deterministic();
    for _ in 0..5 {
        let parts = parts(crd).new_tree(&mut runner).unwrap().current();
        let (writer, reader) = (objects(client, written, kind), objects(client, read, kind));
        let mut sent = object(written, kind, name, &parts["spec"]);
        sent.data["status"] = parts["status"].clone();
        writer.create(&PostParams::default(), &sent).await.unwrap();
        let status = Patch::Merge(json!({"status": parts["status"]}));
        writer.patch_status(name, &PatchParams::default(), &status).await.unwrap();
        let there = reader.get(name).await.unwrap();
        let same =
            |part: &str| assert_eq!(meaning(&there.data[part]), meaning(&parts[part]), "{kind} {read}");
        same("spec");
        same("status");
        // A read and write in the other version, as by an old client, changes nothing.
        reader.replace(name, &PostParams::default(), &there).await.unwrap();
        let after = writer.get(name).await.unwrap();
        assert_eq!(
            (&after.data["spec"], &after.data["status"]),
            (&there.data["spec"], &there.data["status"])
        );
        assert_eq!(after.metadata.generation, there.metadata.generation);
        writer.delete(name, &DeleteParams::default()).await.unwrap();
    }
}

/// The table that `kubectl get` requests.
async fn columns_are_shown(client: &Client) {
    let kind = scheduler::KIND;
    let objects = objects(client, VERSION, kind);
    objects.create(&PostParams::default(), &object(VERSION, kind, SCHEDULER, &json!({}))).await.unwrap();
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "Why", "message": "so", "lastTransitionTime": "2026-01-02T03:04:05Z"});
    let status = json!({"status": {
        "schedulerName": "numa", "conditions": [condition("Available", "True"), condition("Degraded", "False")],
    }});
    objects.patch_status(SCHEDULER, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let path = format!("/apis/{GROUP}/{VERSION}/{}", scheduler::PLURAL);
    let table = crate::table(client, &path).await;
    let names: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|column| column["name"].as_str())
        .collect();
    assert_eq!(
        names,
        ["Name", "Scheduler", "Available", "Progressing", "Degraded", "Reason", "Message", "Age"]
    );
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    let shown: Vec<&str> = cells.iter().take(7).map(|cell| cell.as_str().unwrap_or_default()).collect();
    assert_eq!(shown, [SCHEDULER, "numa", "True", "", "False", "Why", "so"]);
    let short = client.list_api_group_resources(&format!("{GROUP}/{VERSION}")).await.unwrap();
    let short = short.resources.iter().find(|resource| resource.name == scheduler::PLURAL).unwrap();
    assert_eq!(short.short_names.as_deref(), Some(&["numaressched".to_owned()][..]));
    objects.delete(SCHEDULER, &DeleteParams::default()).await.unwrap();
}
