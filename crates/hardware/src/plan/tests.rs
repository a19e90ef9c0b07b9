//! Plans for cluster states.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use serde_json::json;

use super::node_patch::Patch;
use super::*;
use crate::claims_in_use::{ClaimsInUse, DeviceClaim, is_driver};
use crate::cluster_state::{
    CORDON_TAINT, Environment, Node, ObservedObject, OptionalWatches, Pods, WatchedKind,
};
use crate::device_names::DeviceNames;
use crate::nmc::Nmc;
use crate::rollout;
use crate::taints::UNSCHEDULABLE;

const KERNEL: &str = "5.14.0-1.el9";
const DEVICE: &str = "example.com/acc";
const CLAIM: &str = "hw.acc-module";
const VERSION: &str = "kmm.node.kubernetes.io/version-module.hw.acc-module";

fn config(name: &str, more: Value) -> Config {
    let mut body = json!({
        "metadata": {
            "name": name, "namespace": "hw", "uid": format!("uid-{name}"), "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": [keys::FINALIZER],
        },
        "spec": {
            "driverImage": "registry.example/drivers/acc", "driverVersion": "1.0", "nodeSelector": { "acc": "1" },
        },
    });
    json_patch::merge(&mut body, &more);
    Config::of(serde_json::from_value(body).unwrap())
}

fn node(labels: Value) -> Node {
    let labels = labels.as_object().unwrap().iter();
    Node {
        labels: labels.map(|(key, value)| (key.as_str().into(), value.as_str().unwrap().into())).collect(),
        has_labels: true,
        kernel: KERNEL.into(),
        boot: "b".to_owned(),
        version: "1".to_owned(),
        ..Node::default()
    }
}

/// The labels of a claimed node.
fn ours() -> Value {
    json!({ "acc": "1", keys::LABEL_DRIVER: CLAIM, VERSION: "1.0" })
}

fn cluster(kmm: Kmm) -> ClusterState {
    let mut cluster =
        ClusterState::new(Environment { openshift: false, image: "registry.example/t:1".to_owned() });
    cluster.kmm = Some(kmm);
    cluster.pods = Some(Pods::default());
    cluster.claims_in_use = Some(ClaimsInUse::default());
    cluster.listed =
        [WatchedKind::Config, WatchedKind::Node, WatchedKind::Module, WatchedKind::Nmc, WatchedKind::Images]
            .into();
    cluster
}

fn served() -> ClusterState {
    cluster(Kmm::Served("v1beta1".to_owned()))
}

/// A Module exactly as desired.
fn as_wanted(cluster: &ClusterState, config: &Config) -> (Id, ObservedObject) {
    let object_names = ObjectNames::of(config).unwrap();
    let object = Desired { config, names: &object_names, environment: &cluster.environment };
    let object = object.module("v1beta1");
    let offered = DeviceNames::default().with(&config.object.spec.driver_version, config.device_names());
    let mut body = offered.record_on(object).body().clone();
    body["metadata"]["uid"] = "m1".into();
    body["metadata"]["resourceVersion"] = "5".into();
    (object_names.module, ObservedObject { body: stated(body) })
}

/// Adds managed fields that state all of the object.
fn stated(mut body: Value) -> Value {
    let mut all = json!({ "f:spec": fields(&body["spec"]) });
    if body["metadata"]["annotations"].is_object() {
        all["f:metadata"] = json!({ "f:annotations": fields(&body["metadata"]["annotations"]) });
    }
    body["metadata"]["managedFields"] =
        json!([{ "manager": keys::FIELD_MANAGER, "operation": "Apply", "fieldsV1": all }]);
    body
}

/// The managed fields of an apply; lists are stated as a whole.
fn fields(stated: &Value) -> Value {
    let Some(all) = stated.as_object() else { return json!({}) };
    all.iter().map(|(name, value)| (format!("f:{name}"), fields(value))).collect()
}

/// The report of KMM for a node with the driver of a Module, with the image of its first mapping.
fn nmc(module: &ObservedObject) -> Nmc {
    let container = &module.body["spec"]["moduleLoader"]["container"];
    let mapping = &container["kernelMappings"][0];
    let own = |field: &str| if mapping[field].is_null() { &container[field] } else { &mapping[field] };
    let mut modprobe = container["modprobe"].clone();
    if modprobe["dirName"].is_null() {
        modprobe["dirName"] = "/opt".into();
    }
    let image = mapping["containerImage"].as_str().unwrap().replace("${KERNEL_FULL_VERSION}", KERNEL);
    let pull = container["imagePullPolicy"].as_str().unwrap_or("IfNotPresent");
    let entry = json!({
        "namespace": "hw", "name": "acc-module", "version": container["version"], "bootId": "b",
        "config": {
            "kernelVersion": KERNEL, "containerImage": image, "imagePullPolicy": pull, "modprobe": modprobe,
            "insecurePull": own("registryTLS")["insecure"] == true,
            "inTreeModulesToRemove": own("inTreeModulesToRemove"),
        },
    });
    let object = json!({
        "metadata": { "name": "n1" }, "spec": { "modules": [entry] }, "status": { "modules": [entry] },
    });
    Nmc::of(&serde_json::from_value(object).unwrap())
}

fn shown(actions: &[Action]) -> Vec<String> {
    let one = |one: &Action| match one {
        Action::Finalizer(true) => "finalizer".to_owned(),
        Action::Finalizer(false) => "no finalizer".to_owned(),
        Action::Ensure(object, _) => format!("ensure {}", object.kind().kind),
        Action::Apply(..) => "apply".to_owned(),
        Action::DeleteModule { .. } => "delete module".to_owned(),
        Action::Remove(kind, _) => format!("remove {}", kind.kind),
        Action::Node(write) => match write.change {
            NodeChange::AddCordonTaint => format!("taint {}", write.node),
            NodeChange::RemoveCordonTaint => format!("untaint {}", write.node),
            change => format!("{change:?} {}", write.node).to_lowercase(),
        },
        Action::Evict(node, pod) => format!("evict {node} {}", pod.name),
    };
    actions.iter().map(one).collect()
}

fn check(cluster: &ClusterState, config: &Config, refused: bool, steps: &[&str], state: &ConfigState) {
    let plan = plan(cluster, config, refused);
    let actions: Vec<String> = shown(&plan.actions)
        .into_iter()
        .filter(|one| *state != ConfigState::InSync || !is_removal(one))
        .collect();
    assert_eq!(actions, steps);
    assert_eq!(plan.state, *state);
}

/// Removals of obsolete dependencies, which have tests of their own.
fn is_removal(shown: &str) -> bool {
    shown.starts_with("remove ")
}

fn put(cluster: &mut ClusterState, config: &Config) {
    cluster.put_config(config.clone());
}

#[test]
fn a_new_config_claims_nodes() {
    let mut cluster = served();
    cluster.put_node("n1".into(), node(json!({ "acc": "1" })));
    let fresh = config("acc", json!({ "metadata": { "finalizers": null } }));
    put(&mut cluster, &fresh);
    check(&cluster, &fresh, false, &["finalizer"], &ConfigState::Writing);
    let config = config("acc", json!({}));
    check(&cluster, &config, false, &["ensure ServiceAccount", "apply"], &ConfigState::Writing);
    // Nodes are claimed even if KMM refuses the Module.
    check(&cluster, &config, true, &["ensure ServiceAccount", "apply", "claim n1"], &ConfigState::Writing);
    let (id, live) = as_wanted(&cluster, &config);
    cluster.put_module(id, live);
    check(&cluster, &config, false, &["ensure ServiceAccount", "claim n1"], &ConfigState::InSync);
    let claimed = json!({ "acc": "1", keys::LABEL_DRIVER: "hw.acc-module" });
    cluster.put_node("n1".into(), Node { version: "2".to_owned(), ..node(claimed.clone()) });
    check(&cluster, &config, false, &["ensure ServiceAccount", "start n1"], &ConfigState::InSync);
    let mut observed = claimed;
    observed["kmm.node.kubernetes.io/version-module.hw.acc-module"] = "1.0".into();
    cluster.put_node("n1".into(), Node { version: "3".to_owned(), ..node(observed) });
    check(&cluster, &config, false, &["ensure ServiceAccount"], &ConfigState::InSync);
}

#[test]
fn obstacles_set_the_state() {
    let account = ["ensure ServiceAccount"];
    let config = config("acc", json!({}));
    let mut none = cluster(Kmm::Absent);
    put(&mut none, &config);
    check(&none, &config, false, &account, &ConfigState::NoKmm);
    let mut cluster = served();
    put(&mut cluster, &config);
    let (id, live) = as_wanted(&cluster, &config);
    let spoiled = |version: &str, patch: Value| {
        let mut body = live.body.clone();
        body["metadata"]["resourceVersion"] = version.into();
        json_patch::merge(&mut body, &patch);
        ObservedObject { body }
    };
    let theirs = json!({ "metadata": { "ownerReferences": [{ "kind": "ConfigMap", "name": "x", "uid": "9", "controller": true }] } });
    cluster.put_module(id.clone(), spoiled("6", theirs));
    check(
        &cluster,
        &config,
        false,
        &account,
        &ConfigState::ForeignModule("it belongs to ConfigMap x".to_owned()),
    );
    let unowned = json!({ "metadata": { "managedFields": null, "labels": null } });
    cluster.put_module(id.clone(), spoiled("7", unowned));
    check(
        &cluster,
        &config,
        false,
        &account,
        &ConfigState::ForeignModule("another client made it".to_owned()),
    );
    // The Module of a former DeviceConfig is kept, so that no driver is unloaded. The garbage collector would delete
    // it.
    let former = json!({ "apiVersion": "hardware.tholepin.dev/v1alpha1", "kind": "DeviceConfig", "name": "acc", "uid": "before", "controller": true });
    for (version, spoil) in [("8", json!({ "labels": null })), ("9", json!({ "ownerReferences": [former] }))]
    {
        cluster.put_module(id.clone(), spoiled(version, json!({ "metadata": spoil })));
        check(&cluster, &config, false, &[account[0], "apply"], &ConfigState::Writing);
    }
    cluster.put_module(
        id.clone(),
        spoiled("10", json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } })),
    );
    check(&cluster, &config, false, &account, &ConfigState::FormerModule);
    cluster.put_module(id, spoiled("11", json!({ "spec": { "selector": { keys::LABEL_DRIVER: "other" } } })));
    check(&cluster, &config, false, &[account[0], "apply"], &ConfigState::Writing);
}

#[test]
fn an_invalid_spec_changes_nothing() {
    let mut cluster = served();
    cluster.put_node("n1".into(), node(json!({ "acc": "1", keys::LABEL_DRIVER: "hw.acc-module" })));
    for more in [
        json!({ "spec": { "driverImage": "registry.example/acc:tag" } }),
        json!({ "spec": { "nodeSelector": null } }),
        json!({ "spec": { "kernelMappings": [{ "regexp": "([" }] } }),
        json!({ "spec": { "devicePlugin": { "config": {
            "version": "v1alpha1", "resources": [{ "name": "example.com/acc", "discovery": {} }],
        } } } }),
    ] {
        let odd = config("acc", more);
        put(&mut cluster, &odd);
        let plan = plan(&cluster, &odd, false);
        assert_eq!(plan.actions, []);
        assert!(matches!(plan.state, ConfigState::Invalid(Reason::InvalidSpec, _)), "{:?}", plan.state);
        cluster.remove_config(&odd.id());
    }
    let long = config("acc", json!({ "metadata": { "namespace": "n".repeat(40) } }));
    let plan = plan(&cluster, &long, false);
    assert!(
        plan.actions.is_empty() && matches!(plan.state, ConfigState::Invalid(Reason::NameTooLong, _)),
        "{plan:?}"
    );
}

/// Dependencies of an earlier Module are removed, except those with which KMM unloads a driver.
#[test]
fn obsolete_dependencies_are_removed() {
    let config_of = |spec: Value| config("acc", json!({ "spec": spec }));
    let mut plugin = json!({ "config": {
        "version": "v1alpha1",
        "resources": [{ "name": "example.com/acc", "discovery": { "directory": { "path": "/dev", "prefix": "acc" } } }],
    } });
    let ours = config_of(json!({ "devicePlugin": plugin }));
    plugin["serviceAccountName"] = "theirs".into();
    let theirs = config_of(json!({ "serviceAccountName": "theirs", "devicePlugin": plugin }));
    let named = config_of(json!({ "serviceAccountName": "acc-module-loader" }));
    let observed = |version: &str| {
        let label = "kmm.node.kubernetes.io/version-module.hw.acc-module";
        node(json!({ "acc": "1", keys::LABEL_DRIVER: "hw.acc-module", label: version }))
    };
    let nmc = |account: &str| {
        let entry = json!({ "namespace": "hw", "name": "acc-module", "serviceAccountName": account });
        let body = json!({ "metadata": { "name": "n1" }, "status": { "modules": [entry] } });
        Nmc::of(&serde_json::from_value(body).unwrap())
    };
    let removed = |config: &Config, version: &str, account: &str, openshift: bool| -> Vec<String> {
        let mut cluster = served();
        cluster.environment.openshift = openshift;
        cluster.put_node("n1".into(), observed(version));
        cluster.put_nmc("n1".into(), Some(nmc(account)));
        put(&mut cluster, config);
        let (id, live) = as_wanted(&cluster, config);
        cluster.put_module(id, live);
        let plan = plan(&cluster, config, false);
        assert_eq!(plan.state, ConfigState::InSync);
        let removed = plan.actions.iter().filter_map(|one| match one {
            Action::Remove(kind, id) => Some(format!("{} {}", kind.kind, id.name)),
            _ => None,
        });
        removed.collect()
    };
    let (loader, plugin) = ("ServiceAccount acc-module-loader", "ServiceAccount acc-module-plugin");
    let (map, binding) = ("ConfigMap acc-module-plugin", "RoleBinding acc-module-scc");
    let none: [&str; 0] = [];
    assert_eq!(removed(&ours, "1.0", "acc-module-loader", true), none);
    assert_eq!(removed(&theirs, "1.0", "theirs", false), [loader, plugin]);
    assert_eq!(removed(&theirs, "1.0", "theirs", true), [loader, plugin, binding]);
    assert_eq!(removed(&theirs, "1.0", "acc-module-loader", true), [plugin]);
    assert_eq!(removed(&theirs, "0.9", "theirs", true), none, "plugins of another version are still there");
    assert_eq!(removed(&named, "1.0", "theirs", false), [plugin, map]);
}

#[test]
fn a_deletion_has_an_order() {
    let deleted =
        json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "2" } });
    let (before, config) = (config("acc", json!({})), config("acc", deleted));
    let mut cluster = served();
    let labels = json!({
        keys::LABEL_DRIVER: "hw.acc-module", "kmm.node.kubernetes.io/version-module.hw.acc-module": "1.0",
    });
    cluster.put_node("n1".into(), node(labels));
    put(&mut cluster, &config);
    let (id, live) = as_wanted(&cluster, &before);
    cluster.put_module(id.clone(), live.clone());
    check(&cluster, &config, false, &["delete module"], &ConfigState::Deleting(vec![]));
    let mut going = live.body;
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    going["metadata"]["resourceVersion"] = "6".into();
    cluster.put_module(id.clone(), ObservedObject { body: going });
    let nmc = json!({ "metadata": { "name": "n1" }, "status": { "modules": [{ "namespace": "hw", "name": "acc-module" }] } });
    cluster.put_nmc("n1".into(), Some(Nmc::of(&serde_json::from_value(nmc).unwrap())));
    check(&cluster, &config, false, &[], &ConfigState::Deleting(vec!["n1".to_owned()]));
    cluster.remove_module(&id);
    cluster.put_nmc("n1".into(), None);
    check(&cluster, &config, false, &["release n1"], &ConfigState::Deleting(vec![]));
    cluster.put_node("n1".into(), Node { version: "2".to_owned(), ..node(json!({})) });
    let rest = ["remove ServiceAccount", "remove ServiceAccount", "remove ConfigMap", "no finalizer"];
    check(&cluster, &config, false, &rest, &ConfigState::Deleting(vec![]));
    let none = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": null } });
    check(&cluster, &self::config("acc", none), false, &[], &ConfigState::Released);
}

/// KMM is being deleted and still has drivers to unload: nothing is created, and deletions wait for the unloading.
#[test]
fn modules_are_awaited_while_kmm_is_deleted() {
    let mut cluster = cluster(Kmm::Terminating("v1beta1".to_owned()));
    cluster.put_node("n1".into(), node(ours()));
    let acc = config("acc", json!({}));
    put(&mut cluster, &acc);
    check(&cluster, &acc, false, &["ensure ServiceAccount"], &ConfigState::NoKmm);
    let (id, mut live) = as_wanted(&cluster, &acc);
    live.body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    cluster.put_module(id, live);
    check(&cluster, &acc, false, &["ensure ServiceAccount"], &ConfigState::NoKmm);
    let deleted = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    check(&cluster, &config("acc", deleted), false, &[], &ConfigState::Deleting(vec![]));
    cluster.remove_config(&acc.id());
    assert_eq!(shown(&orphan(&cluster, CLAIM)), [""; 0]);
    cluster.listed.remove(&WatchedKind::Nmc);
    assert!(cluster.is_complete());
}

/// An unreadable DeviceConfig is deleted like others.
#[test]
fn an_unreadable_config_stays_and_can_be_deleted() {
    let (before, mut cluster) = (config("acc", json!({})), served());
    put(&mut cluster, &before);
    let (id, live) = as_wanted(&cluster, &before);
    cluster.put_module(id.clone(), live);
    let mut body = serde_json::to_value(&before.object).unwrap();
    body["metadata"]["resourceVersion"] = "2".into();
    body["spec"]["upgradePolicy"] = json!({ "maxUnavailable": 3_000_000_000_i64 });
    put(&mut cluster, &Config::read(&body));
    let odd = cluster.configs[&before.id()].clone();
    assert_eq!(odd.object.spec, before.object.spec);
    let plan = plan(&cluster, &odd, false);
    let ConfigState::Invalid(Reason::InvalidSpec, text) = &plan.state else { panic!("{:?}", plan.state) };
    assert!(text.starts_with("it cannot be read: spec.upgradePolicy.maxUnavailable: "), "{text}");
    assert_eq!(plan.actions, []);
    body["metadata"]["resourceVersion"] = "3".into();
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    put(&mut cluster, &Config::read(&body));
    let deleted = cluster.configs[&before.id()].clone();
    check(&cluster, &deleted, false, &["delete module"], &ConfigState::Deleting(vec![]));
    cluster.remove_module(&id);
    let rest = ["remove ServiceAccount", "remove ServiceAccount", "remove ConfigMap", "no finalizer"];
    check(&cluster, &deleted, false, &rest, &ConfigState::Deleting(vec![]));
    // The object need not have been known before.
    let mut fresh = served();
    put(&mut fresh, &Config::read(&body));
    check(&fresh, &fresh.configs[&before.id()], false, &rest, &ConfigState::Deleting(vec![]));
}

#[test]
fn patches_of_nodes_test_replaced_values() {
    let mut patch = Patch::of(&node(json!({})));
    patch.set_label("a/b~c", None, Some("x"));
    patch.set_label("d", Some("y"), None);
    patch.set_cordon_taint(Some("hw.m"));
    let Action::Node(write) = patch.into_action("n", NodeChange::Claim, Precondition::default()) else {
        panic!("a node")
    };
    let wanted = json!([
        { "op": "test", "path": "/metadata/labels/a~1b~0c", "value": null },
        { "op": "add", "path": "/metadata/labels/a~1b~0c", "value": "x" },
        { "op": "test", "path": "/metadata/labels/d", "value": "y" },
        { "op": "remove", "path": "/metadata/labels/d" },
        { "op": "test", "path": "/spec/taints", "value": null },
        { "op": "add", "path": "/spec/taints", "value": [{ "key": CORDON_TAINT, "value": "hw.m", "effect": "NoSchedule" }] },
    ]);
    assert_eq!(write.patch, wanted);
    // Taints as the API server has them, with times.
    let taints =
        json!([{ "key": CORDON_TAINT, "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z" }]);
    let cordon_tainted = Node { taints: serde_json::from_value(taints.clone()).unwrap(), ..node(json!({})) };
    let mut patch = Patch::of(&cordon_tainted);
    patch.set_cordon_taint(None);
    assert_eq!([&patch.steps[0]["value"], &patch.steps[1]["value"]], [&taints, &json!([])]);
}

mod leaving;
mod using;
