//! Statuses for cluster states.

use api::hardware::{Phase, keys};
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

use super::awaited::awaited;
use super::*;
use crate::cluster_state::{CORDON_TAINT, Environment, Kmm, Node, ObservedObject, Pod, Pods, WatchedKind};
use crate::module::Desired;
use crate::nmc::{Images, Nmc};
use crate::node_states::ObjectNames;
use crate::plan::plan;

const VERSION: &str = "kmm.node.kubernetes.io/version-module.hw.acc-module";

fn config(more: &Value) -> Config {
    named("acc", "2026-01-01T00:00:00Z", more)
}

fn named(name: &str, created: &str, more: &Value) -> Config {
    let mut body = json!({
        "metadata": {
            "name": name, "namespace": "hw", "uid": name, "resourceVersion": "1", "generation": 3,
            "creationTimestamp": created, "finalizers": [keys::FINALIZER],
        },
        "spec": { "driverImage": "r.example/acc", "driverVersion": "1.0", "nodeSelector": { "acc": "1" } },
    });
    json_patch::merge(&mut body, more);
    Config::of(serde_json::from_value(body).unwrap())
}

/// The time of cordon taints.
const FENCED: i64 = 1000;

/// Adds a node: `claimed`, `ready`, `old` (another version is loaded), `booted` (rebooted), `cordoned`, `kernel`
/// (unsupported), `tainted`.
fn add(cluster: &mut ClusterState, name: &str, how: &str) {
    let has = |word: &str| how.split(' ').any(|one| one == word);
    let mut labels = vec![("acc", "1")];
    if !how.is_empty() {
        labels.extend([
            (keys::LABEL_DRIVER, "hw.acc-module"),
            (VERSION, if has("old") { "0.9" } else { "1.0" }),
        ]);
    }
    let node = Node {
        labels: labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect(),
        has_labels: true,
        taints: if has("cordon_tainted") { vec![taint()] } else { Vec::new() },
        unschedulable: has("cordoned"),
        kernel: if has("kernel") { "6.8-odd" } else { "5.14.0-1.el9" }.into(),
        boot: if has("booted") { "2" } else { "1" }.to_owned(),
        version: "1".to_owned(),
        cordon_taint_seen: None,
    };
    cluster.put_node(name.into(), node);
    if has("ready") {
        let version = if has("old") { "0.9" } else { "1.0" };
        let config = json!({
            "containerImage": format!("r.example/acc:{version}-5.14.0-1.el9"),
            "modprobe": { "moduleName": "acc", "dirName": "/opt" },
        });
        let entry = json!({ "namespace": "hw", "name": "acc-module", "version": version, "bootId": "1", "config": config });
        let body = json!({ "metadata": { "name": name }, "spec": { "modules": [entry] }, "status": { "modules": [entry] } });
        cluster.put_nmc(name.into(), Some(Nmc::of(&serde_json::from_value(body).unwrap())));
    }
}

fn taint() -> Taint {
    let time_added = Some(Time(Timestamp::from_second(FENCED).unwrap()));
    let value = Some("hw.acc-module".to_owned());
    Taint { key: CORDON_TAINT.to_owned(), effect: "NoSchedule".to_owned(), value, time_added }
}

fn cluster(config: &Config, nodes: &[&str]) -> ClusterState {
    let mut cluster = ClusterState::new(Environment { openshift: false, image: "r.example/t:1".to_owned() });
    cluster.kmm = Some(Kmm::Served("v1beta1".to_owned()));
    cluster.pods = Some(Pods::default());
    cluster.listed =
        [WatchedKind::Config, WatchedKind::Node, WatchedKind::Module, WatchedKind::Nmc, WatchedKind::Images]
            .into();
    for (at, how) in nodes.iter().enumerate() {
        add(&mut cluster, &format!("n{at}"), how);
    }
    cluster.put_config(config.clone());
    if let Some(object_names) = ObjectNames::of(config) {
        let object = Desired { config, names: &object_names, environment: &cluster.environment };
        let object = object.module("v1beta1");
        let mut body = object.body().clone();
        body["metadata"]["uid"] = "m".into();
        body["metadata"]["managedFields"] =
            json!([{ "manager": keys::FIELD_MANAGER, "operation": "Apply", "fieldsV1": {} }]);
        cluster.put_module(object_names.module, ObservedObject { body });
    }
    cluster
}

/// All awaited changes are late.
fn late(cluster: &ClusterState, config: &Config) -> StatusInputs {
    StatusInputs { late: awaited(cluster, config, &plan(cluster, config, false)), ..StatusInputs::default() }
}

fn observed(cluster: &ClusterState, config: &Config, inputs: &StatusInputs) -> Status {
    let plan = plan(cluster, config, false);
    status(cluster, config, &plan, inputs, Timestamp::UNIX_EPOCH)
}

/// Checks phase, reason of Ready, the true ones of the first four conditions, desired and ready nodes.
fn check(
    config: &Config,
    cluster: &ClusterState,
    inputs: &StatusInputs,
    phase: Phase,
    reason: &str,
    holds: &[&str],
    nodes: (i32, i32),
) {
    let status = observed(cluster, config, inputs);
    let of = |name: &str| status.conditions.iter().find(|one| one.type_ == name).unwrap();
    assert_eq!((status.phase, of(keys::READY).reason.as_str()), (Some(phase), reason), "{status:#?}");
    let true_ones: Vec<&str> = [keys::READY, keys::ERRORED, keys::PROGRESSING, keys::DEGRADED]
        .into_iter()
        .filter(|name| of(name).status == "True")
        .collect();
    assert_eq!(true_ones, holds, "{status:#?}");
    let counts = status.nodes.unwrap_or_default();
    assert_eq!((counts.desired, counts.ready), nodes, "{status:#?}");
    for one in &status.conditions {
        assert_eq!(one.observed_generation, Some(3));
        let plain = |c: char| c.is_ascii_alphanumeric();
        assert!(!one.reason.is_empty() && one.reason.chars().all(plain), "{one:?}");
    }
}

#[test]
fn states_have_their_conditions() {
    use Phase::{Degraded, Pending, Progressing, Ready};
    let calm = StatusInputs::default();
    let (ready, progressing) = ([keys::READY], [keys::PROGRESSING]);
    let plain = config(&json!({}));
    type Case<'a> = (&'a [&'a str], bool, Phase, &'a str, &'a [&'a str], (i32, i32));
    let table: [Case<'_>; 10] = [
        (&[], false, Pending, "NoMatchingNodes", &[], (0, 0)),
        (&[""], false, Progressing, "Progressing", &progressing, (0, 0)),
        (&["claimed"], false, Progressing, "Loading", &progressing, (1, 0)),
        (&["claimed"], true, Degraded, "Loading", &[keys::PROGRESSING, keys::DEGRADED], (1, 0)),
        (&["ready", "claimed"], false, Progressing, "Loading", &progressing, (2, 1)),
        (&["ready", "ready"], true, Ready, "Reconciled", &ready, (2, 2)),
        (&["ready", "ready booted"], false, Progressing, "Loading", &progressing, (2, 1)),
        (&["ready", "ready old"], false, Progressing, "Upgrading", &progressing, (2, 1)),
        (&["ready", "claimed cordoned"], false, Ready, "Reconciled", &ready, (1, 1)),
        (&["claimed cordoned"], false, Pending, "Maintenance", &[], (0, 0)),
    ];
    for (nodes, is_late, phase, reason, holds, counts) in table {
        let cluster = cluster(&plain, nodes);
        let inputs = if is_late { late(&cluster, &plain) } else { calm.clone() };
        check(&plain, &cluster, &inputs, phase, reason, holds, counts);
    }
    let narrow = config(&json!({ "spec": { "kernelMappings": [{ "regexp": "el9" }] } }));
    check(
        &narrow,
        &cluster(&narrow, &["ready", "claimed kernel"]),
        &calm,
        Ready,
        "Reconciled",
        &ready,
        (1, 1),
    );
    check(
        &narrow,
        &cluster(&narrow, &["claimed kernel"]),
        &calm,
        Degraded,
        "UnsupportedKernel",
        &[keys::DEGRADED],
        (0, 0),
    );
    let paused = config(&json!({ "spec": { "upgradePolicy": { "paused": true } } }));
    check(&paused, &cluster(&paused, &["ready old"]), &calm, Progressing, "Paused", &progressing, (1, 0));
}

/// The message names the nodes that others wait for.
#[test]
fn an_upgrade_names_the_nodes_it_waits_for() {
    let plain = config(&json!({}));
    let message_of = |nodes: &[&str]| {
        observed(&cluster(&plain, nodes), &plain, &StatusInputs::default()).conditions[0].message.clone()
    };
    let message = message_of(&["claimed", "ready old", "ready old"]);
    let wanted = "0 of 3 nodes are ready; not n0; 2 nodes wait for their turn (spec.upgradePolicy.maxUnavailable) until there is a working \
        driver on n0 (KMM has not begun to load the driver)";
    assert_eq!(message, wanted);
    for excused in ["claimed cordoned", "ready booted"] {
        let message = message_of(&[excused, "ready old", "ready old"]);
        assert!(!message.contains("until there is a working driver"), "{excused}: {message}");
    }
}

/// A new version does not lower the number of available nodes.
#[test]
fn a_working_driver_is_available_whatever_its_version() {
    let plain = config(&json!({}));
    for (nodes, wanted) in [
        (["ready", "ready"], (2, 2)),
        (["ready old", "ready old"], (2, 0)),
        (["ready", "ready booted"], (1, 1)),
        (["claimed", "ready old"], (1, 0)),
        (["ready cordoned", "ready"], (1, 1)),
    ] {
        let counts = observed(&cluster(&plain, &nodes), &plain, &StatusInputs::default()).nodes.unwrap();
        assert_eq!((counts.available, counts.ready), wanted, "{nodes:?}");
    }
}

/// Labels, versions and NodeModulesConfigs are as before: KMM has not begun.
#[test]
fn a_change_unknown_to_kmm_is_not_ready() {
    let calm = StatusInputs::default();
    for spec in [
        json!({ "modprobe": { "parameters": ["x=1"] } }),
        json!({ "kernelMappings": [{ "regexp": "el9", "image": "r.example/acc:rebuilt" }] }),
        json!({ "inTreeModulesToRemove": ["old"] }),
    ] {
        let changed = config(&json!({ "spec": spec }));
        let cluster = cluster(&changed, &["ready", "ready"]);
        check(&changed, &cluster, &calm, Phase::Progressing, "Loading", &[keys::PROGRESSING], (2, 0));
    }
    // A driver of the former version is loaded as desired then.
    let plain = config(&json!({ "spec": { "upgradePolicy": { "maxUnavailable": 2 } } }));
    let upgrading = cluster(&plain, &["ready old", "ready old"]);
    assert_eq!(plan(&upgrading, &plain, false).round.unavailable, [""; 0]);
}

#[test]
fn errors_are_in_the_status() {
    let errored = [keys::ERRORED, keys::DEGRADED];
    let plain = config(&json!({}));
    let refused = |module| StatusInputs {
        errors: vec![Failure { module, text: "Module hw/acc-module: 403 Forbidden: no".to_owned() }],
        ..StatusInputs::default()
    };
    let mut there = cluster(&plain, &["claimed"]);
    check(&plain, &there, &refused(true), Phase::Degraded, "Errored", &errored, (1, 0));
    let status = observed(&there, &plain, &refused(true));
    assert_eq!(
        (status.conditions[1].reason.as_str(), status.conditions[1].message.as_str()),
        ("ModuleFailed", "Module hw/acc-module: 403 Forbidden: no")
    );
    assert_eq!(observed(&there, &plain, &refused(false)).conditions[1].reason, "WriteFailed");
    let body = json!({
        "metadata": { "name": "acc-module", "namespace": "hw" },
        "spec": { "images": [{ "image": "r.example/acc:1.0-5.14.0-1.el9" }] },
    });
    there.put_images(
        claim::Id::new("hw", "acc-module"),
        Some(Images::of(&serde_json::from_value(body).unwrap())),
    );
    let calm = StatusInputs::default();
    check(&plain, &there, &calm, Phase::Progressing, "ImageNotAvailable", &[keys::PROGRESSING], (1, 0));
    there.kmm = Some(Kmm::Absent);
    check(&plain, &there, &calm, Phase::Pending, "Errored", &[keys::ERRORED], (1, 0));
    assert_eq!(observed(&there, &plain, &calm).conditions[1].reason, "KMMNotInstalled");
}

#[test]
fn only_the_loser_of_nodes_is_in_conflict() {
    let (old, young) = (config(&json!({})), named("young", "2026-02-01T00:00:00Z", &json!({})));
    let mut cluster = cluster(&old, &["ready"]);
    cluster.put_config(young.clone());
    let calm = StatusInputs::default();
    check(&old, &cluster, &calm, Phase::Ready, "Reconciled", &[keys::READY], (1, 1));
    check(&young, &cluster, &calm, Phase::Conflict, "Errored", &[keys::ERRORED], (0, 0));
    let [won, lost] = [&old, &young].map(|config| observed(&cluster, config, &calm));
    assert!(won.conflicts[0].won && won.conflicts[0].name == "young" && won.conflicts[0].nodes == ["n0"]);
    assert!(!lost.conflicts[0].won && lost.conflicts[0].name == "acc" && lost.conflicts[0].count == 1);
    assert!(lost.conditions[4].message.contains("hw/acc has n0"), "{:?}", lost.conditions[4]);
    assert_eq!([won.conditions[4].status.as_str(), lost.conditions[4].status.as_str()], ["True", "False"]);
}

#[test]
fn possible_overlaps_are_reported_without_a_conflict() {
    let plain = config(&json!({}));
    let mut cluster = cluster(&plain, &["ready"]);
    let selects = |labels: Value| json!({ "spec": { "nodeSelector": labels } });
    let near = named("near", "2026-02-01T00:00:00Z", &selects(json!({ "acc": null, "also": "1" })));
    let far = named("far", "2026-02-01T00:00:00Z", &selects(json!({ "acc": "2" })));
    assert!(cluster.put_config(near.clone()).contains(&plain.id()), "the other one is affected");
    assert!(!cluster.put_config(far.clone()).contains(&plain.id()));
    let calm = StatusInputs::default();
    check(&plain, &cluster, &calm, Phase::Ready, "Reconciled", &[keys::READY], (1, 1));
    let message_of = |config: &Config| {
        let valid = observed(&cluster, config, &calm).conditions[4].clone();
        assert_eq!((valid.type_.as_str(), valid.status.as_str()), (keys::NODE_SELECTOR_VALID, "True"));
        (valid.reason, valid.message)
    };
    let (reason, message) = message_of(&plain);
    assert_eq!(reason, "NodeSelectorMayOverlap");
    assert!(message.contains("hw/near") && !message.contains("hw/far"), "{message}");
    let (reason, message) = message_of(&near);
    assert!(reason == "NodeSelectorMayOverlap" && message.contains("hw/acc, hw/far"), "{message}");
}

/// Missing plugins are awaited, and degrade when they are late.
#[test]
fn a_plugin_that_never_starts_is_a_failure() {
    let plain = config(
        &json!({ "spec": { "devicePlugin": { "image": "r/p:1", "resourceNames": ["example.com/acc"] } } }),
    );
    let cluster = cluster(&plain, &["ready", "ready"]);
    let waits = awaited(&cluster, &plain, &plan(&cluster, &plain, false));
    assert_eq!(waits, ["n0", "n1"].map(|name| Awaited::Plugin(name.to_owned())).into());
    let late = late(&cluster, &plain);
    let holds = [keys::PROGRESSING, keys::DEGRADED];
    check(&plain, &cluster, &late, Phase::Degraded, "DevicePluginNotReady", &holds, (2, 2));
    let without = config(&json!({}));
    assert_eq!(awaited(&cluster, &without, &plan(&cluster, &without, false)), BTreeSet::new());
    // A DRA driver counts by a label of its own.
    let driver = config(&json!({ "spec": { "dra": { "driverName": "acc.example", "image": "r/d:1" } } }));
    for (running, wanted) in [
        (api::kmm::keys::device_plugin_ready("hw", "acc-module"), vec!["n0", "n1"]),
        (api::kmm::keys::dra_ready("hw", "acc-module"), vec![]),
    ] {
        let mut cluster = self::cluster(&driver, &["ready", "ready"]);
        for name in ["n0", "n1"] {
            let mut node = cluster.nodes[name].clone();
            node.labels.insert(running.as_str().into(), "".into());
            node.version = "2".to_owned();
            cluster.put_node(name.into(), node);
        }
        let wanted = wanted.into_iter().map(|name| Awaited::Plugin(name.to_owned())).collect();
        assert_eq!(awaited(&cluster, &driver, &plan(&cluster, &driver, false)), wanted, "{running}");
    }
}

/// The status of a deletion names the pods with devices, by node.
#[test]
fn a_deletion_names_pods_with_devices() {
    let deleted_with = |policy: &str| {
        let deleted = config(&json!({
            "metadata": { "deletionTimestamp": "2026-03-01T00:00:00Z" },
            "spec": {
                "devicePlugin": { "image": "r/p:1", "resourceNames": ["example.com/acc"] },
                "upgradePolicy": { "podsUsingDevices": policy },
            },
        }));
        let mut cluster = cluster(&deleted, &["ready", "ready"]);
        for name in ["a", "b"] {
            let resources = vec!["example.com/acc".into()];
            let pod = crate::cluster_state::Pod {
                node: "n1".into(),
                uid: "u".into(),
                resources,
                terminating: false,
                returns: false,
            };
            cluster.put_pod(claim::Id::new("work", name), Some(pod));
        }
        let plan = plan(&cluster, &deleted, false);
        let waits = !awaited(&cluster, &deleted, &plan).is_empty();
        (observed(&cluster, &deleted, &late(&cluster, &deleted)), waits)
    };
    for (policy, reason, degraded, problems) in [
        ("Wait", "WaitingForPods", "False", [("n1", "PodsUseDevices")].as_slice()),
        ("Ignore", "Deleting", "True", &[("n0", "StillLoaded"), ("n1", "StillLoaded")]),
    ] {
        let (status, waits) = deleted_with(policy);
        let of = |name: &str| status.conditions.iter().find(|one| one.type_ == name).unwrap();
        let moving = of(keys::PROGRESSING);
        assert_eq!((moving.status.as_str(), moving.reason.as_str()), ("True", reason));
        assert!(moving.message.contains("n1 by work/a and 1 more"), "{}", moving.message);
        assert_eq!((of(keys::DEGRADED).status.as_str(), waits), (degraded, policy == "Ignore"));
        let observed: Vec<(&str, &str)> =
            status.problems.iter().map(|one| (one.node.as_str(), one.reason.as_str())).collect();
        assert_eq!(observed, problems);
    }
}

#[test]
fn transition_times_change_with_the_status_only() {
    let plain = config(&json!({}));
    let mut there = cluster(&plain, &["claimed"]);
    let first = observed(&there, &plain, &StatusInputs::default());
    let mut known = plain.clone();
    known.object.status = first.clone();
    known
        .object
        .status
        .conditions
        .push(Condition { type_: "Theirs".to_owned(), ..first.conditions[0].clone() });
    add(&mut there, "n1", "");
    let later = Timestamp::from_second(1000).unwrap();
    let plan = plan(&there, &known, false);
    let second = status(&there, &known, &plan, &StatusInputs::default(), later);
    assert_eq!(second.conditions[0].last_transition_time, first.conditions[0].last_transition_time);
    assert_eq!(second.conditions.last().unwrap().type_, "Theirs");
    add(&mut there, "n0", "ready");
}

#[test]
fn overdue_pods_are_problems_of_their_nodes() {
    let asked = config(&json!({ "spec": {
        "upgradePolicy": { "podsUsingDevices": "Evict", "evictionTimeoutSeconds": 60 },
        "devicePlugin": { "image": "r.example/p:1", "resourceNames": ["example.com/acc"] },
    } }));
    let mut there = cluster(&asked, &["ready", "ready old cordon_tainted"]);
    for name in ["p", "q"] {
        let resources = vec!["example.com/acc".into()];
        let pod =
            Pod { node: "n1".into(), uid: "u".into(), resources, terminating: name == "p", returns: false };
        there.put_pod(claim::Id::new("x", name), Some(pod));
    }
    let at = |config: &Config, second: i64| {
        let plan = plan(&there, config, false);
        let now = Timestamp::from_second(second).unwrap();
        let (overdue, next) = overdue::overdue(config, &plan, now);
        let inputs = StatusInputs { overdue, ..StatusInputs::default() };
        (status(&there, config, &plan, &inputs, now), next.map(|left| left.as_secs()))
    };
    let reasons = |before: &Status, after: &Status| {
        events::transitions(before, after)
            .into_iter()
            .map(|turn| (turn.reason, turn.note))
            .collect::<Vec<_>>()
    };
    let (before, next) = at(&asked, FENCED + 59);
    assert_eq!((before.problems[0].reason.as_str(), next), ("PodsUseDevices", Some(1)));
    assert_eq!(before.conditions[3].status, "False", "{before:#?}");
    let (after, next) = at(&asked, FENCED + 60);
    let observed: Vec<_> =
        after.problems.iter().map(|one| (one.node.as_str(), one.reason.as_str())).collect();
    assert_eq!((observed, next), (vec![("n1", "EvictionTimeout")], None));
    let degraded = &after.conditions[3];
    assert_eq!((degraded.status.as_str(), degraded.reason.as_str()), ("True", "EvictionTimeout"));
    assert!(degraded.message.contains("x/p, x/q on n1"), "{degraded:?}");
    let transitions = reasons(&before, &after);
    assert_eq!(transitions.len(), 1, "{transitions:?}");
    assert!(
        transitions[0].0 == "EvictionTimeout" && transitions[0].1.contains("n1: pods x/p, x/q"),
        "{transitions:?}"
    );
    let (later, _) = at(&asked, FENCED + 1000);
    assert_eq!(reasons(&after, &later), []);
    // No pod is evicted under the policy `Wait`.
    let patient = json!({ "upgradePolicy": { "podsUsingDevices": "Wait" }, "devicePlugin": asked.object.spec.device_plugin });
    let (waits, next) = at(&config(&json!({ "spec": patient })), FENCED + 1000);
    assert_eq!((waits.problems[0].reason.as_str(), next), ("PodsUseDevices", None));
}

/// Each status comes from a process that knows nothing but the status before.
#[test]
fn the_former_version_is_known_until_the_end_of_an_upgrade() {
    let mut plain = config(&json!({}));
    let mut check = |nodes: &[&str], from: Option<&str>, has: Option<&str>| {
        let status = observed(&cluster(&plain, nodes), &plain, &StatusInputs::default());
        assert_eq!(
            (status.upgrading_from.as_deref(), status.driver_version.as_deref()),
            (from, has),
            "{nodes:?}"
        );
        plain.object.status = status;
    };
    check(&["ready", "claimed"], None, None);
    check(&["ready", "ready"], None, Some("1.0"));
    check(&["ready old", "ready old"], Some("0.9"), Some("0.9"));
    check(&["ready", "ready old"], Some("0.9"), None);
    check(&["ready", "claimed"], Some("0.9"), None);
    check(&["ready", "ready"], None, Some("1.0"));
    check(&["ready", "ready", "claimed"], None, None);
    check(&["ready", "ready old cordoned"], None, Some("1.0"));
    check(&["ready", "ready old"], Some("0.9"), None);
    check(&[], None, None);
}

#[test]
fn lists_are_limited() {
    let plain = config(&json!({ "spec": { "kernelMappings": [{ "literal": "none" }] } }));
    let nodes = vec!["claimed"; 100];
    let status = observed(&cluster(&plain, &nodes), &plain, &StatusInputs::default());
    assert_eq!((status.problems.len(), status.kernels_without_mapping.len()), (16, 1));
    assert_eq!(list(&vec!["n".to_owned(); 10]), "n, n, n, n, n, n, n, n and 2 more");
}
