//! Worlds and what there is to do in them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use serde_json::json;

use super::*;
use crate::deviceconfig::nmc::Nmc;
use crate::deviceconfig::world::{Kind, Place, Pods};

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
        kernel: "5.14.0-1.el9".into(),
        boot: "b".to_owned(),
        version: "1".to_owned(),
        ..Node::default()
    }
}

fn world(kmm: Kmm) -> World {
    let mut world = World::new(Place { openshift: false, image: "registry.example/t:1".to_owned() });
    world.kmm = Some(kmm);
    world.pods = Some(Pods::default());
    world.listed = [Kind::Config, Kind::Node, Kind::Module, Kind::Nmc, Kind::Images].into();
    world
}

fn served() -> World {
    world(Kmm::Served("v1beta1".to_owned()))
}

/// A Module exactly as it is wanted.
fn as_wanted(world: &World, config: &Config) -> (Id, Live) {
    let called = Called::of(config).unwrap();
    let object = module::module(config, &called, &world.place, "v1beta1").unwrap();
    let mut body = object.body().clone();
    body["metadata"]["uid"] = "m1".into();
    body["metadata"]["resourceVersion"] = "5".into();
    body["metadata"]["managedFields"] = json!([
        { "manager": keys::FIELD_MANAGER, "operation": "Apply", "fieldsV1": { "f:spec": { "f:selector": {} } } },
    ]);
    (called.module, Live { body })
}

fn shown(doing: &[Do]) -> Vec<String> {
    let one = |one: &Do| match one {
        Do::Finalizer(true) => "finalizer".to_owned(),
        Do::Finalizer(false) => "no finalizer".to_owned(),
        Do::Ensure(object) => format!("ensure {}", object.sort().kind),
        Do::Apply(_) => "apply".to_owned(),
        Do::DeleteModule { .. } => "delete module".to_owned(),
        Do::Remove(sort, _) => format!("remove {}", sort.kind),
        Do::Node(write) => format!("{:?} {}", write.why, write.node).to_lowercase(),
        Do::Evict { node, pod } => format!("evict {node} {}", pod.name),
    };
    doing.iter().map(one).collect()
}

fn check(world: &World, config: &Config, refused: bool, steps: &[&str], state: &State) {
    let plan = plan(world, config, refused);
    assert_eq!(shown(&plan.doing), steps);
    assert_eq!(plan.state, *state);
}

fn put(world: &mut World, config: &Config) {
    world.put_config(config.clone());
}

#[test]
fn from_nothing_to_claims() {
    let mut world = served();
    world.put_node("n1".into(), node(json!({ "acc": "1" })));
    let fresh = config("acc", json!({ "metadata": { "finalizers": null } }));
    put(&mut world, &fresh);
    check(&world, &fresh, false, &["finalizer", "ensure ServiceAccount", "apply"], &State::Writing);
    let config = config("acc", json!({}));
    // What KMM refuses does not keep anybody from holding his nodes.
    check(&world, &config, true, &["ensure ServiceAccount", "apply", "claim n1"], &State::Writing);
    let (id, live) = as_wanted(&world, &config);
    world.put_module(id, live);
    check(&world, &config, false, &["ensure ServiceAccount", "claim n1"], &State::Good);
    let claimed = json!({ "acc": "1", keys::LABEL_DRIVER: "hw.acc-module" });
    world.put_node("n1".into(), Node { version: "2".to_owned(), ..node(claimed.clone()) });
    check(&world, &config, false, &["ensure ServiceAccount", "start n1"], &State::Good);
    let mut told = claimed;
    told["kmm.node.kubernetes.io/version-module.hw.acc-module"] = "1.0".into();
    world.put_node("n1".into(), Node { version: "3".to_owned(), ..node(told) });
    check(&world, &config, false, &["ensure ServiceAccount"], &State::Good);
}

#[test]
fn what_stands_in_the_way_is_told() {
    let account = ["ensure ServiceAccount"];
    let config = config("acc", json!({}));
    let mut none = world(Kmm::Absent);
    put(&mut none, &config);
    check(&none, &config, false, &account, &State::NoKmm);
    let mut world = served();
    put(&mut world, &config);
    let (id, live) = as_wanted(&world, &config);
    let spoiled = |version: &str, patch: Value| {
        let mut body = live.body.clone();
        body["metadata"]["resourceVersion"] = version.into();
        json_patch::merge(&mut body, &patch);
        Live { body }
    };
    let theirs = json!({ "metadata": { "ownerReferences": [{ "kind": "ConfigMap", "name": "x", "uid": "9", "controller": true }] } });
    world.put_module(id.clone(), spoiled("6", theirs));
    check(&world, &config, false, &account, &State::Foreign("it belongs to ConfigMap x".to_owned()));
    let nobodys = json!({ "metadata": { "ownerReferences": null, "labels": null } });
    world.put_module(id.clone(), spoiled("7", nobodys));
    check(&world, &config, false, &account, &State::Foreign("somebody else made it".to_owned()));
    let mut former = live.body["metadata"]["ownerReferences"].clone();
    former[0]["uid"] = "before".into();
    world.put_module(id.clone(), spoiled("8", json!({ "metadata": { "ownerReferences": former } })));
    check(&world, &config, false, &[account[0], "delete module"], &State::Former);
    world.put_module(
        id.clone(),
        spoiled("9", json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } })),
    );
    check(&world, &config, false, &account, &State::Former);
    world.put_module(id, spoiled("10", json!({ "spec": { "selector": { keys::LABEL_DRIVER: "other" } } })));
    check(&world, &config, false, &[account[0], "apply"], &State::Writing);
}

#[test]
fn what_makes_no_sense_changes_nothing() {
    let mut world = served();
    world.put_node("n1".into(), node(json!({ "acc": "1", keys::LABEL_DRIVER: "hw.acc-module" })));
    for more in [
        json!({ "spec": { "driverImage": "registry.example/acc:tag" } }),
        json!({ "spec": { "nodeSelector": null } }),
        json!({ "spec": { "kernelMappings": [{ "regexp": "([" }] } }),
    ] {
        let odd = config("acc", more);
        put(&mut world, &odd);
        let plan = plan(&world, &odd, false);
        assert_eq!(plan.doing, []);
        assert!(matches!(plan.state, State::Invalid(Reason::InvalidSpec, _)), "{:?}", plan.state);
        world.remove_config(&odd.id());
    }
    let long = config("acc", json!({ "metadata": { "namespace": "n".repeat(40) } }));
    let plan = plan(&world, &long, false);
    assert!(
        plan.doing.is_empty() && matches!(plan.state, State::Invalid(Reason::NameTooLong, _)),
        "{plan:?}"
    );
}

#[test]
fn it_goes_in_order() {
    let leaving =
        json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "2" } });
    let (before, config) = (config("acc", json!({})), config("acc", leaving));
    let mut world = served();
    let labels = json!({
        keys::LABEL_DRIVER: "hw.acc-module", "kmm.node.kubernetes.io/version-module.hw.acc-module": "1.0",
    });
    world.put_node("n1".into(), node(labels));
    put(&mut world, &config);
    let (id, live) = as_wanted(&world, &before);
    world.put_module(id.clone(), live.clone());
    check(&world, &config, false, &["delete module"], &State::Leaving(vec![]));
    let mut going = live.body;
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    going["metadata"]["resourceVersion"] = "6".into();
    world.put_module(id.clone(), Live { body: going });
    let nmc = json!({ "metadata": { "name": "n1" }, "status": { "modules": [{ "namespace": "hw", "name": "acc-module" }] } });
    world.put_nmc("n1".into(), Nmc::of(&serde_json::from_value(nmc).unwrap()));
    check(&world, &config, false, &[], &State::Leaving(vec!["n1".to_owned()]));
    world.remove_module(&id);
    world.remove_nmc("n1");
    check(&world, &config, false, &["release n1"], &State::Leaving(vec![]));
    world.put_node("n1".into(), Node { version: "2".to_owned(), ..node(json!({})) });
    let rest = ["remove ServiceAccount", "remove ServiceAccount", "remove ConfigMap", "no finalizer"];
    check(&world, &config, false, &rest, &State::Leaving(vec![]));
    let none = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": null } });
    check(&world, &self::config("acc", none), false, &[], &State::Gone);
}

/// What nobody can read leaves as everything else does.
#[test]
fn what_cannot_be_read_stays_as_it_is_and_can_go() {
    let (before, mut world) = (config("acc", json!({})), served());
    put(&mut world, &before);
    let (id, live) = as_wanted(&world, &before);
    world.put_module(id.clone(), live);
    let mut body = serde_json::to_value(&before.object).unwrap();
    body["metadata"]["resourceVersion"] = "2".into();
    body["spec"]["upgradePolicy"] = json!({ "maxUnavailable": 3_000_000_000_i64 });
    put(&mut world, &Config::read(&body));
    let odd = world.configs[&before.id()].clone();
    assert_eq!(odd.object.spec, before.object.spec);
    let plan = plan(&world, &odd, false);
    let State::Invalid(Reason::InvalidSpec, text) = &plan.state else { panic!("{:?}", plan.state) };
    assert!(text.starts_with("it cannot be read: spec.upgradePolicy.maxUnavailable: "), "{text}");
    assert_eq!(plan.doing, []);
    body["metadata"]["resourceVersion"] = "3".into();
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    put(&mut world, &Config::read(&body));
    let leaving = world.configs[&before.id()].clone();
    check(&world, &leaving, false, &["delete module"], &State::Leaving(vec![]));
    world.remove_module(&id);
    let rest = ["remove ServiceAccount", "remove ServiceAccount", "remove ConfigMap", "no finalizer"];
    check(&world, &leaving, false, &rest, &State::Leaving(vec![]));
    // Nor does it have to have been known before.
    let mut fresh = served();
    put(&mut fresh, &Config::read(&body));
    check(&fresh, &fresh.configs[&before.id()], false, &rest, &State::Leaving(vec![]));
}

#[test]
fn a_module_goes_when_no_pod_uses_the_devices() {
    let leaving = |policy: &str| {
        config(
            "acc",
            json!({
                "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" },
                "spec": {
                    "devicePlugin": { "image": "r/p:1", "resourceNames": ["example.com/acc"] },
                    "upgradePolicy": { "podsUsingDevices": policy },
                },
            }),
        )
    };
    let (id, pod) = (Id::new("x", "p"), |leaving| crate::deviceconfig::world::Pod {
        node: Arc::from("n1"),
        resources: vec!["example.com/acc".into()],
        leaving,
    });
    let labels = json!({
        keys::LABEL_DRIVER: "hw.acc-module", "kmm.node.kubernetes.io/version-module.hw.acc-module": "1.0",
    });
    let nmc = json!({ "metadata": { "name": "n1" }, "spec": { "modules": [{ "namespace": "hw", "name": "acc-module" }] } });
    for (policy, wanted) in
        [("Wait", [].as_slice()), ("Evict", &["fence n1"]), ("Ignore", &["delete module"])]
    {
        let (config, mut world) = (leaving(policy), served());
        world.put_node("n1".into(), node(labels.clone()));
        world.put_nmc("n1".into(), Nmc::of(&serde_json::from_value(nmc.clone()).unwrap()));
        put(&mut world, &config);
        let (module, live) = as_wanted(&world, &config);
        world.put_module(module, live);
        world.put_pod(id.clone(), Some(pod(false)));
        let state = State::Leaving(vec!["n1".to_owned()]);
        check(&world, &config, false, wanted, &state);
        if policy == "Evict" {
            let taint = Taint { key: FENCE.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
            let fenced = Node { taints: vec![taint], version: "2".to_owned(), ..node(labels.clone()) };
            world.put_node("n1".into(), fenced);
            check(&world, &config, false, &["evict n1 p"], &state);
            world.put_pod(id.clone(), Some(pod(true)));
            check(&world, &config, false, &[], &state);
        }
        world.put_pod(id.clone(), None);
        check(&world, &config, false, &["delete module"], &state);
    }
}

#[test]
fn what_is_left_of_one_that_is_gone_is_cleaned_up() {
    let mut world = served();
    let config = config("acc", json!({}));
    let (id, live) = as_wanted(&world, &config);
    world.put_module(id.clone(), live);
    world.put_node("n1".into(), node(json!({ keys::LABEL_DRIVER: "hw.acc-module" })));
    assert_eq!(world.orphans().into_iter().collect::<Vec<_>>(), ["hw.acc-module"]);
    assert_eq!(shown(&orphan(&world, "hw.acc-module")), ["delete module"]);
    world.remove_module(&id);
    assert_eq!(shown(&orphan(&world, "hw.acc-module")), ["release n1"]);
    world.put_node("n1".into(), Node { version: "2".to_owned(), ..node(json!({})) });
    assert_eq!(world.orphans().len(), 0);
}

#[test]
fn under_the_same_version_nothing_is_swapped_under_pods() {
    let plugin = json!({ "devicePlugin": { "image": "r/p:1", "resourceNames": ["example.com/acc"] } });
    let before = config("acc", json!({ "spec": plugin }));
    let mut after =
        json!({ "metadata": { "resourceVersion": "2" }, "spec": { "modprobe": { "parameters": ["x=1"] } } });
    json_patch::merge(&mut after, &json!({ "spec": plugin }));
    let after = config("acc", after);
    let mut world = served();
    let labels = json!({
        "acc": "1", keys::LABEL_DRIVER: "hw.acc-module", "kmm.node.kubernetes.io/version-module.hw.acc-module": "1.0",
    });
    world.put_node("n1".into(), node(labels));
    put(&mut world, &after);
    let (id, live) = as_wanted(&world, &before);
    world.put_module(id, live);
    let accounts = ["ensure ServiceAccount", "ensure ServiceAccount"];
    check(&world, &after, false, &[accounts.as_slice(), &["apply"]].concat(), &State::Writing);
    let pod = crate::deviceconfig::world::Pod {
        node: Arc::from("n1"),
        resources: vec!["example.com/acc".into()],
        leaving: false,
    };
    world.put_pod(Id::new("x", "p"), Some(pod));
    check(&world, &after, false, &accounts, &State::Held(vec!["n1".to_owned()]));
}

#[test]
fn patches_of_nodes_test_what_they_replace() {
    let mut patch = Patch::of(&node(json!({})));
    patch.label("a/b~c", None, Some("x"));
    patch.label("d", Some("y"), None);
    patch.fence(Some("hw.m"));
    let Do::Node(write) = patch.write("n", Why::Claim, BTreeSet::new()) else { panic!("a node") };
    let wanted = json!([
        { "op": "test", "path": "/metadata/labels/a~1b~0c", "value": null },
        { "op": "add", "path": "/metadata/labels/a~1b~0c", "value": "x" },
        { "op": "test", "path": "/metadata/labels/d", "value": "y" },
        { "op": "remove", "path": "/metadata/labels/d" },
        { "op": "test", "path": "/spec/taints", "value": null },
        { "op": "add", "path": "/spec/taints", "value": [{ "key": FENCE, "value": "hw.m", "effect": "NoSchedule" }] },
    ]);
    assert_eq!(write.patch, wanted);
    // As the API server has them, times too.
    let taints = json!([{ "key": FENCE, "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z" }]);
    let fenced = Node { taints: serde_json::from_value(taints.clone()).unwrap(), ..node(json!({})) };
    let mut patch = Patch::of(&fenced);
    patch.fence(None);
    assert_eq!([&patch.steps[0]["value"], &patch.steps[1]["value"]], [&taints, &json!([])]);
}
