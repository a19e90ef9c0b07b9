//! Worlds and what there is to do in them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use serde_json::json;

use super::*;
use crate::deviceconfig::held::{Held, Holding, is_driver};
use crate::deviceconfig::nmc::Nmc;
use crate::deviceconfig::taints::CORDON;
use crate::deviceconfig::world::{Kind, Needs, Place, Pods};

const KERNEL: &str = "5.14.0-1.el9";
const DEVICE: &str = "example.com/acc";

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

fn world(kmm: Kmm) -> World {
    let mut world = World::new(Place { openshift: false, image: "registry.example/t:1".to_owned() });
    world.kmm = Some(kmm);
    world.pods = Some(Pods::default());
    world.held = Some(Held::default());
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
    let offered = Offered::default().and(&config.object.spec.driver_version, config.device_names());
    let mut body = offered.put_on(&object).unwrap().body().clone();
    body["metadata"]["uid"] = "m1".into();
    body["metadata"]["resourceVersion"] = "5".into();
    (called.module, Live { body: stated(body) })
}

/// With all of it noted as stated by us.
fn stated(mut body: Value) -> Value {
    let mut all = json!({ "f:spec": fields(&body["spec"]) });
    if body["metadata"]["annotations"].is_object() {
        all["f:metadata"] = json!({ "f:annotations": fields(&body["metadata"]["annotations"]) });
    }
    body["metadata"]["managedFields"] =
        json!([{ "manager": keys::FIELD_MANAGER, "operation": "Apply", "fieldsV1": all }]);
    body
}

/// What an apply of this is remembered as; lists are stated as a whole.
fn fields(stated: &Value) -> Value {
    let Some(all) = stated.as_object() else { return json!({}) };
    all.iter().map(|(name, value)| (format!("f:{name}"), fields(value))).collect()
}

/// What KMM writes for a node on which it has loaded the driver as a Module says, with the image that its first mapping gives.
fn nmc(module: &Live) -> Nmc {
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

fn shown(doing: &[Do]) -> Vec<String> {
    let one = |one: &Do| match one {
        Do::Finalizer(true) => "finalizer".to_owned(),
        Do::Finalizer(false) => "no finalizer".to_owned(),
        Do::Ensure(object, _) => format!("ensure {}", object.sort().kind),
        Do::Apply(..) => "apply".to_owned(),
        Do::DeleteModule { .. } => "delete module".to_owned(),
        Do::Remove(sort, _) => format!("remove {}", sort.kind),
        Do::Node(write) => format!("{:?} {}", write.why, write.node).to_lowercase(),
        Do::Evict { node, pod } => format!("evict {node} {}", pod.name),
    };
    doing.iter().map(one).collect()
}

fn check(world: &World, config: &Config, refused: bool, steps: &[&str], state: &State) {
    let plan = plan(world, config, refused);
    let doing: Vec<String> =
        shown(&plan.doing).into_iter().filter(|one| *state != State::Good || !is_cleaning(one)).collect();
    assert_eq!(doing, steps);
    assert_eq!(plan.state, *state);
}

/// What an earlier Module stood on goes: a matter of its own.
fn is_cleaning(shown: &str) -> bool {
    shown.starts_with("remove ")
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
    check(&world, &fresh, false, &["finalizer"], &State::Writing);
    let config = config("acc", json!({}));
    check(&world, &config, false, &["ensure ServiceAccount", "apply"], &State::Writing);
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
    let nobodys = json!({ "metadata": { "managedFields": null, "labels": null } });
    world.put_module(id.clone(), spoiled("7", nobodys));
    check(&world, &config, false, &account, &State::Foreign("somebody else made it".to_owned()));
    // Ours, of a DeviceConfig before this one: nothing is unloaded for that. The garbage collector would do so.
    let former = json!({ "apiVersion": "hardware.tholepin.dev/v1alpha1", "kind": "DeviceConfig", "name": "acc", "uid": "before", "controller": true });
    for (version, spoil) in [("8", json!({ "labels": null })), ("9", json!({ "ownerReferences": [former] }))]
    {
        world.put_module(id.clone(), spoiled(version, json!({ "metadata": spoil })));
        check(&world, &config, false, &[account[0], "apply"], &State::Writing);
    }
    world.put_module(
        id.clone(),
        spoiled("10", json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } })),
    );
    check(&world, &config, false, &account, &State::Former);
    world.put_module(id, spoiled("11", json!({ "spec": { "selector": { keys::LABEL_DRIVER: "other" } } })));
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
        json!({ "spec": { "devicePlugin": { "config": {
            "version": "v1alpha1", "resources": [{ "name": "example.com/acc", "discovery": {} }],
        } } } }),
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

/// What an earlier Module stood on and nobody needs any more goes, but not what KMM unloads a driver with.
#[test]
fn what_is_not_needed_any_more_goes() {
    let config_of = |spec: Value| config("acc", json!({ "spec": spec }));
    let mut plugin = json!({ "config": {
        "version": "v1alpha1",
        "resources": [{ "name": "example.com/acc", "discovery": { "directory": { "path": "/dev", "prefix": "acc" } } }],
    } });
    let ours = config_of(json!({ "devicePlugin": plugin }));
    plugin["serviceAccountName"] = "theirs".into();
    let theirs = config_of(json!({ "serviceAccountName": "theirs", "devicePlugin": plugin }));
    let named = config_of(json!({ "serviceAccountName": "acc-module-loader" }));
    let told = |version: &str| {
        let label = "kmm.node.kubernetes.io/version-module.hw.acc-module";
        node(json!({ "acc": "1", keys::LABEL_DRIVER: "hw.acc-module", label: version }))
    };
    let nmc = |account: &str| {
        let entry = json!({ "namespace": "hw", "name": "acc-module", "serviceAccountName": account });
        let body = json!({ "metadata": { "name": "n1" }, "status": { "modules": [entry] } });
        Nmc::of(&serde_json::from_value(body).unwrap())
    };
    let removed = |config: &Config, version: &str, account: &str, openshift: bool| -> Vec<String> {
        let mut world = served();
        world.place.openshift = openshift;
        world.put_node("n1".into(), told(version));
        world.put_nmc("n1".into(), nmc(account));
        put(&mut world, config);
        let (id, live) = as_wanted(&world, config);
        world.put_module(id, live);
        let plan = plan(&world, config, false);
        assert_eq!(plan.state, State::Good);
        let removed = plan.doing.iter().filter_map(|one| match one {
            Do::Remove(sort, id) => Some(format!("{} {}", sort.kind, id.name)),
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

/// KMM is taken away while it still has drivers to unload: nothing is made, and whoever goes waits for it.
#[test]
fn while_kmm_goes_modules_are_waited_for() {
    let mut world = world(Kmm::Going("v1beta1".to_owned()));
    world.put_node("n1".into(), node(ours()));
    let acc = config("acc", json!({}));
    put(&mut world, &acc);
    check(&world, &acc, false, &["ensure ServiceAccount"], &State::NoKmm);
    let (id, mut live) = as_wanted(&world, &acc);
    live.body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    world.put_module(id, live);
    check(&world, &acc, false, &["ensure ServiceAccount"], &State::NoKmm);
    let leaving = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    check(&world, &config("acc", leaving), false, &[], &State::Leaving(vec![]));
    world.remove_config(&acc.id());
    assert_eq!(shown(&orphan(&world, CLAIM)), [""; 0]);
    world.listed.remove(&Kind::Nmc);
    assert!(world.is_complete());
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

/// With three nodes that have the driver, and a pod on the second.
fn leaving(policy: &str) -> (Config, World) {
    let config = config(
        "acc",
        json!({
            "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "spec": {
                "devicePlugin": { "image": "r/p:1", "resourceNames": [DEVICE] },
                "upgradePolicy": { "podsUsingDevices": policy },
            },
        }),
    );
    let mut world = served();
    let module = json!([{ "namespace": "hw", "name": "acc-module" }]);
    for name in ["n1", "n2", "n3"] {
        let nmc = json!({ "metadata": { "name": name }, "spec": { "modules": module } });
        world.put_node(name.into(), node(ours()));
        world.put_nmc(name.into(), Nmc::of(&serde_json::from_value(nmc).unwrap()));
    }
    // It has nothing that could be taken from anybody.
    world.put_node("n4".into(), node(ours()));
    put(&mut world, &config);
    let (module, live) = as_wanted(&world, &config);
    world.put_module(module, live);
    world.put_pod(Id::new("x", "p"), Some(pod("n2", false)));
    (config, world)
}

fn pod(node: &str, leaving: bool) -> crate::deviceconfig::world::Pod {
    crate::deviceconfig::world::Pod {
        node: node.into(),
        uid: "u".into(),
        resources: vec![DEVICE.into()],
        leaving,
    }
}

/// It is fenced, seen at this second.
fn put_fence(world: &mut World, name: &str, seen: i64) {
    let fence = json!({ "key": FENCE, "value": CLAIM, "effect": "NoSchedule" });
    let fence_seen = Some(Timestamp::from_second(seen).unwrap());
    let taints = vec![serde_json::from_value(fence).unwrap()];
    let before = world.nodes[name].clone();
    let version = format!("{}0", before.version);
    world.put_node(name.into(), Node { taints, fence_seen, version, ..before });
}

/// First all nodes are fenced; whoever is on the way then is still seen.
#[test]
fn a_module_goes_when_no_pod_uses_the_devices() {
    let state = State::Leaving(["n1", "n2", "n3"].map(str::to_owned).to_vec());
    let (config, mut world) = leaving("Wait");
    check(&world, &config, false, &["fence n1", "fence n3"], &state);
    put_fence(&mut world, "n1", 1);
    put_fence(&mut world, "n3", 3);
    // Whoever was on the way keeps his device; that nobody comes after him makes an end.
    world.put_pod(Id::new("x", "late"), Some(pod("n1", false)));
    check(&world, &config, false, &[], &state);
    let waiting = plan(&world, &config, false).round.waiting;
    assert_eq!(waiting.iter().map(|(node, _)| node).collect::<Vec<_>>(), ["n1", "n2"]);
    world.put_pod(Id::new("x", "late"), None);
    world.put_pod(Id::new("x", "p"), None);
    check(&world, &config, false, &["fence n2"], &state);
    put_fence(&mut world, "n2", 2);
    check(&world, &config, false, &["delete module"], &state);
    let doing = plan(&world, &config, false).doing;
    let Some(Do::DeleteModule { unused, .. }) = doing.first() else { panic!("{doing:?}") };
    let seen = |second| Some(Timestamp::from_second(second).unwrap());
    let fences = [("n1", seen(1)), ("n2", seen(2)), ("n3", seen(3))];
    let wanted = Unused {
        names: BTreeSet::from([DEVICE.to_owned()]),
        fences: fences.map(|(name, seen)| (name.to_owned(), seen)).into(),
    };
    assert_eq!(*unused, wanted);
    // As long as it is not known who uses them, somebody may.
    world.pods = None;
    check(&world, &config, false, &[], &state);
}

/// Who is asked to go finds no other node of ours.
#[test]
fn pods_are_evicted_for_a_deletion_when_all_nodes_are_fenced() {
    let state = State::Leaving(["n1", "n2", "n3"].map(str::to_owned).to_vec());
    let (config, mut world) = leaving("Evict");
    check(&world, &config, false, &["fence n1", "fence n2", "fence n3"], &state);
    for name in ["n1", "n2"] {
        put_fence(&mut world, name, 1);
    }
    check(&world, &config, false, &["fence n3"], &state);
    put_fence(&mut world, "n3", 1);
    check(&world, &config, false, &["evict n2 p"], &state);
    // Nobody is asked twice, whether the watch has told of it or not.
    assert_eq!(world.pod_leaves(&Id::new("x", "p")).into_iter().collect::<Vec<_>>(), [config.id()]);
    check(&world, &config, false, &[], &state);
    assert!(world.put_pod(Id::new("x", "p"), Some(pod("n2", true))).is_empty(), "it is known");
    world.put_pod(Id::new("x", "p"), None);
    check(&world, &config, false, &["delete module"], &state);
    let (config, world) = leaving("Ignore");
    check(&world, &config, false, &["delete module"], &state);
    let doing = plan(&world, &config, false).doing;
    assert!(matches!(&doing[..], [Do::DeleteModule { unused, .. }] if *unused == Unused::default()));
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

/// A DeviceConfig with a device plugin and more in its spec.
fn serving(more: &Value) -> Config {
    let mut body = json!({
        "metadata": { "resourceVersion": "1" },
        "spec": { "devicePlugin": { "image": "r/p:1", "resourceNames": [DEVICE] } },
    });
    json_patch::merge(&mut body, &json!({ "spec": more }));
    config("acc", body)
}

/// One with its Module and a node that has the driver, at this version.
fn running(config: &Config) -> World {
    let mut world = served();
    let version = config.object.spec.driver_version.as_str();
    let labels = json!({ "acc": "1", keys::LABEL_DRIVER: "hw.acc-module", VERSION: version });
    world.put_node("n1".into(), node(labels));
    put(&mut world, config);
    let (id, live) = as_wanted(&world, config);
    world.put_nmc("n1".into(), nmc(&live));
    world.put_module(id, live);
    world
}

/// Its user has changed it; says what there is to do, but for the accounts.
fn changed(world: &mut World, config: &Config) -> (Vec<String>, State) {
    world.remove_config(&config.id());
    put(world, config);
    let plan = plan(world, config, false);
    let others = |one: &String| one != "ensure ServiceAccount" && !is_cleaning(one);
    let doing = shown(&plan.doing).into_iter().filter(others).collect();
    (doing, plan.state)
}

/// A pod with a device under this name: it asks for the resource, or was given it by a claim.
fn user(world: &mut World, name: &str, device: &str) {
    let (id, uid) = (Id::new("x", name), format!("uid-{name}"));
    let mut resources = vec![Arc::from(device)];
    if is_driver(device) {
        let holding = Holding {
            drivers: resources.drain(..).collect(),
            pods: [(uid.as_str().into(), id.clone())].into(),
        };
        world.put_holding(id.clone(), Some(holding));
    }
    let pod =
        crate::deviceconfig::world::Pod { node: "n1".into(), uid: uid.into(), resources, leaving: false };
    world.put_pod(id, Some(pod));
}

const VERSION: &str = "kmm.node.kubernetes.io/version-module.hw.acc-module";

/// Whatever changes how KMM loads the driver, said anew or no longer, it waits for the pods that use it.
#[test]
fn under_the_same_version_nothing_is_swapped_under_pods() {
    let held = State::Held(vec!["n1".to_owned()]);
    let mapping = |more: Value| {
        let mut mapping = json!({ "regexp": "^.+$", "image": "r/acc:1" });
        json_patch::merge(&mut mapping, &more);
        json!({ "kernelMappings": [mapping] })
    };
    for more in [
        json!({ "modprobe": { "parameters": ["x=1"] } }),
        json!({ "modprobe": { "dirName": "/other" } }),
        json!({ "modprobe": { "firmwarePath": "/firmware" } }),
        json!({ "modprobe": { "args": { "load": ["-v"] } } }),
        json!({ "imagePullPolicy": "Always" }),
        json!({ "registryTLS": { "insecure": true } }),
        json!({ "inTreeModulesToRemove": ["old"] }),
        mapping(json!({})),
        mapping(json!({ "registryTLS": { "insecure": true } })),
        mapping(json!({ "inTreeModulesToRemove": ["old"] })),
    ] {
        let plain = if more["kernelMappings"][0].as_object().is_some_and(|mapping| mapping.len() > 2) {
            mapping(json!({}))
        } else {
            json!({})
        };
        for (before, after) in [(&plain, &more), (&more, &plain)] {
            let (before, after) = (serving(before), serving(after));
            let mut world = running(&before);
            assert_eq!(changed(&mut world, &before), (vec![], State::Good), "{more}");
            let steps = ["apply", "fence n1"].map(str::to_owned).to_vec();
            assert_eq!(changed(&mut world, &after), (steps, State::Writing), "{more}");
            user(&mut world, "p", DEVICE);
            assert_eq!(changed(&mut world, &after), (vec![], held.clone()), "{more}");
        }
    }
    // What does not reach a driver that is loaded waits for nobody.
    for more in
        [json!({ "tolerations": [{ "operator": "Exists" }] }), json!({ "imagePullSecret": { "name": "s" } })]
    {
        let mut world = running(&serving(&json!({})));
        user(&mut world, "p", DEVICE);
        let (doing, state) = changed(&mut world, &serving(&more));
        assert_eq!((doing, state), (vec!["apply".to_owned()], State::Writing), "{more}");
    }
}

/// An answer may be older than what the watch has said meanwhile.
#[test]
fn a_pod_that_has_gone_does_not_come_back() {
    let config = serving(&json!({}));
    let mut world = running(&config);
    user(&mut world, "p", DEVICE);
    let p = Id::new("x", "p");
    let seen = || {
        let mut one = running(&config);
        user(&mut one, "p", DEVICE);
        let pods = one.pods.unwrap();
        pods.on("n1").map(|(id, pod)| (id.clone(), pod.clone())).collect::<Vec<_>>()
    };
    let users = |world: &World| world.pods.as_ref().unwrap().on("n1").count();
    let before = world.pods_gone();
    world.put_pod(p.clone(), None);
    world.put_seen(seen(), before);
    assert_eq!(users(&world), 0);
    world.put_seen(seen(), world.pods_gone());
    assert_eq!(users(&world), 1);
    let before = world.pods_gone();
    world.put_pods(Pods::default());
    world.put_seen(seen(), before);
    assert_eq!(users(&world), 0);
}

/// A cordon, say, under which the driver stays only because the Module tolerates it.
#[test]
fn a_toleration_that_keeps_a_driver_is_taken_away_when_nobody_uses_the_devices() {
    let tolerant = serving(&json!({ "tolerations": [{ "key": CORDON, "operator": "Exists" }] }));
    let plain = serving(&json!({}));
    for (before, after, cordoned, waits) in [
        (&tolerant, &plain, true, true),
        (&tolerant, &plain, false, false),
        // Nothing that KMM has not unloaded, or is not about to.
        (&plain, &tolerant, true, false),
    ] {
        let mut world = running(before);
        let n1 = Node { unschedulable: cordoned, ..world.nodes["n1"].clone() };
        world.put_node("n1".into(), Node { version: "9".to_owned(), ..n1 });
        user(&mut world, "p", DEVICE);
        let held = State::Held(vec!["n1".to_owned()]);
        let wanted = if waits { (vec![], held) } else { (vec!["apply".to_owned()], State::Writing) };
        assert_eq!(changed(&mut world, after), wanted, "{cordoned} {waits}");
        world.put_pod(Id::new("x", "p"), None);
        let (doing, _) = changed(&mut world, after);
        assert_eq!(doing.contains(&"fence n1".to_owned()), waits, "{doing:?}");
    }
}

/// Nodes that wait for another version still follow a Module that goes back to theirs.
#[test]
fn back_to_a_version_with_other_parameters_waits_for_those_who_have_it() {
    let mut world = running(&serving(&json!({})));
    user(&mut world, "p", DEVICE);
    let next = serving(&json!({ "driverVersion": "2.0" }));
    let (id, mut live) = as_wanted(&world, &next);
    live.body["metadata"]["resourceVersion"] = "6".into();
    world.put_module(id, live);
    assert_eq!(changed(&mut world, &next), (vec![], State::Good));
    let back = json!({ "modprobe": { "parameters": ["x=1"] } });
    let held = State::Held(vec!["n1".to_owned()]);
    assert_eq!(changed(&mut world, &serving(&back)), (vec![], held));
    assert_eq!(changed(&mut world, &serving(&json!({}))), (vec!["apply".to_owned()], State::Writing));
    // A node that is free meanwhile does not get the version that nobody wants any more.
    world.put_node("n0".into(), {
        let labels = json!({ "acc": "1", keys::LABEL_DRIVER: "hw.acc-module", VERSION: "1.0" });
        node(labels)
    });
    assert_eq!(changed(&mut world, &serving(&back)).0, [""; 0]);
    let mut ignoring = back;
    ignoring["upgradePolicy"] = json!({ "podsUsingDevices": "Ignore" });
    assert_eq!(changed(&mut world, &serving(&ignoring)).0[0], "apply");
}

#[test]
fn patches_of_nodes_test_what_they_replace() {
    let mut patch = Patch::of(&node(json!({})));
    patch.label("a/b~c", None, Some("x"));
    patch.label("d", Some("y"), None);
    patch.fence(Some("hw.m"));
    let Do::Node(write) = patch.write("n", Why::Claim, Unused::default()) else { panic!("a node") };
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

/// The node as it is, in a newer version; with a fence that names this claim, or with none.
fn with_fence(world: &World, labels: Value, claim: Option<&str>) -> Node {
    let fence = |claim| json!({ "key": FENCE, "value": claim, "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z" });
    let version = world.nodes["n1"].version.parse::<u64>().unwrap() + 1;
    let taints = claim.map(|claim| serde_json::from_value(fence(claim)).unwrap());
    Node { version: version.to_string(), taints: taints.into_iter().collect(), ..node(labels) }
}

fn ours() -> Value {
    json!({ "acc": "1", keys::LABEL_DRIVER: CLAIM, VERSION: "1.0" })
}

const CLAIM: &str = "hw.acc-module";

/// Newer than any before it.
fn put_module(world: &mut World, id: &Id, mut live: Live) {
    let version = world.modules[id].text("/metadata/resourceVersion").parse::<u64>().unwrap() + 1;
    live.body["metadata"]["resourceVersion"] = version.to_string().into();
    world.put_module(id.clone(), live);
}

#[test]
fn a_module_that_reloads_drivers_is_written_when_nobody_can_come() {
    let after = serving(&json!({ "modprobe": { "parameters": ["x=1"] } }));
    let mut world = running(&serving(&json!({})));
    world.put_node("n1".into(), with_fence(&world, ours(), Some(CLAIM)));
    assert_eq!(changed(&mut world, &after).0, ["apply"], "it is fenced already");
    let doing = plan(&world, &after, false).doing;
    let unused = doing.iter().find_map(|one| match one {
        Do::Apply(_, unused) => Some(unused.clone()),
        _ => None,
    });
    let since: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let wanted = Unused {
        names: BTreeSet::from([DEVICE.to_owned()]),
        fences: BTreeMap::from([("n1".to_owned(), Some(since))]),
    };
    assert_eq!(unused, Some(wanted));
    // For a Module that is refused nobody is kept away.
    let doing = plan(&world, &after, true).doing;
    assert_eq!(shown(&doing)[2..], ["apply", "unfence n1"]);
    // The fence stays until KMM has unloaded what it unloads.
    let (id, live) = as_wanted(&world, &after);
    put_module(&mut world, &id, live.clone());
    assert_eq!(changed(&mut world, &after), (vec![], State::Good));
    world.put_nmc("n1".into(), nmc(&live));
    assert_eq!(changed(&mut world, &after).0, ["unfence n1"]);
}

/// From when it was seen, not from the second in which it was put up; whatever else happens to the node meanwhile.
#[test]
fn a_fence_is_as_old_as_it_was_seen() {
    let mut world = World::default();
    let fenced = |version: &str, seen: i64, taints: Vec<Taint>| Node {
        taints,
        version: version.to_owned(),
        fence_seen: Some(Timestamp::from_second(seen).unwrap()),
        ..Node::default()
    };
    let fence = |claim: &str| {
        vec![
            serde_json::from_value::<Taint>(json!({ "key": FENCE, "value": claim, "effect": "NoSchedule" }))
                .unwrap(),
        ]
    };
    let mut seen = |version, at, taints| {
        world.put_node("n1".into(), fenced(version, at, taints));
        world.nodes["n1"].fence_seen.map(Timestamp::as_second)
    };
    assert_eq!(seen("1", 10, fence(CLAIM)), Some(10));
    assert_eq!(seen("2", 20, fence(CLAIM)), Some(10), "the same one");
    assert_eq!(seen("3", 30, fence("hw.other")), Some(30), "another's");
    assert_eq!(seen("4", 40, fence(CLAIM)), Some(40));
}

/// Another name for the devices, or none, and another version in one edit: who has one under the former name still has it.
#[test]
fn who_has_a_device_under_a_former_name_still_uses_it() {
    let (other, driver) = ("example.com/other", "acc.example.com");
    let renamed = json!({ "driverVersion": "2.0", "devicePlugin": { "resourceNames": [other] } });
    let dropped = json!({ "driverVersion": "2.0", "devicePlugin": null });
    let undriven = json!({ "driverVersion": "2.0", "devicePlugin": { "driverNames": null } });
    for (device, next) in [(DEVICE, &renamed), (DEVICE, &dropped), (driver, &undriven), (driver, &dropped)] {
        let before = serving(&json!({ "devicePlugin": { "driverNames": [driver] } }));
        let after = serving(next);
        let mut world = running(&before);
        user(&mut world, "p", device);
        assert_eq!(changed(&mut world, &after).0, ["apply"]);
        let doing = plan(&world, &after, false).doing;
        let Some(Do::Apply(module, _)) = doing.iter().find(|one| matches!(one, Do::Apply(..))) else {
            panic!()
        };
        let (id, mut live) = as_wanted(&world, &after);
        live.body["metadata"]["annotations"] = module.body()["metadata"]["annotations"].clone();
        put_module(&mut world, &id, Live { body: stated(live.body) });
        assert_eq!(world.needs(), Needs { pods: true, held: true });
        let waits = plan(&world, &after, false);
        let pods = rollout::Wait::Pods("x/p".to_owned(), 1);
        assert_eq!(waits.round.waiting, [("n1".to_owned(), pods)], "{next}");
        // When the node has the new version nobody has the old name any more.
        world.put_pod(Id::new("x", "p"), None);
        let mut labels = ours();
        labels[VERSION] = "2.0".into();
        world.put_node("n1".into(), with_fence(&world, labels, None));
        world.remove_nmc("n1");
        let doing = plan(&world, &after, false).doing;
        let Some(Do::Apply(module, _)) = doing.iter().find(|one| matches!(one, Do::Apply(..))) else {
            panic!()
        };
        assert_eq!(Offered::on(module.body()).names(), after.device_names());
    }
    // A name that is replaced under the same version is remembered as long as that version.
    let renamed = serving(&json!({ "devicePlugin": { "resourceNames": [other] } }));
    let world = running(&serving(&json!({})));
    let doing = plan(&world, &renamed, false).doing;
    let Some(Do::Apply(module, _)) = doing.iter().find(|one| matches!(one, Do::Apply(..))) else { panic!() };
    assert_eq!(Offered::on(module.body()).names(), BTreeSet::from([DEVICE, other].map(str::to_owned)));
}

/// Whoever has a device by a resource claim keeps the driver as others do, and nobody is told to be free of pods whose claims are not known.
#[test]
fn who_has_a_device_by_a_claim_uses_it() {
    let (driver, claim) = ("acc.example.com", Id::new("x", "p"));
    let plugin = |more: Value| json!({ "devicePlugin": more });
    let resource =
        json!({ "name": DEVICE, "discovery": { "directory": { "path": "/dev", "prefix": "acc" } } });
    let config = json!({ "version": "v1alpha1", "resources": [resource] });
    let ours =
        |args: Value| plugin(json!({ "image": null, "resourceNames": null, "config": config, "args": args }));
    let waits = Some(rollout::Wait::Pods("x/p".to_owned(), 1));
    for (more, wanted) in [
        (plugin(json!({ "driverNames": [driver] })), &waits),
        (ours(json!(["-v", "--dra=acc.example.com"])), &waits),
        (ours(json!(["--dra", driver, "-v"])), &waits),
        (ours(json!(["--dra=other.example.com", driver])), &None),
        (plugin(json!({ "args": ["--dra=acc.example.com"] })), &None),
        (plugin(json!({ "driverNames": ["other.example.com"] })), &None),
    ] {
        let before = serving(&more);
        let mut after = before.clone();
        after.object.spec.driver_version = "2.0".to_owned();
        let mut world = running(&before);
        user(&mut world, "p", driver);
        let (id, live) = as_wanted(&world, &after);
        put_module(&mut world, &id, live);
        let waiting = |world: &World| plan(world, &after, false).round.waiting.pop().map(|(_, wait)| wait);
        world.remove_config(&after.id());
        put(&mut world, &after);
        assert_eq!(waiting(&world), *wanted, "{more}");
        if wanted.is_none() {
            continue;
        }
        assert!(world.needs().held, "{more}");
        // Of another pod of the same name.
        let concerned = |world: &mut World, holding| world.put_holding(claim.clone(), holding).len();
        let holding = |uid: &str| {
            let pods = [(uid.into(), Id::new("x", "p"))].into();
            Some(Holding { drivers: [driver.into()].into(), pods })
        };
        assert_eq!(concerned(&mut world, holding("uid-former")), 1);
        assert_eq!(waiting(&world), None, "{more}");
        assert_eq!(concerned(&mut world, holding("uid-p")), 1);
        assert_eq!(waiting(&world), waits, "{more}");
        assert_eq!(concerned(&mut world, None), 1);
        assert_eq!(waiting(&world), None, "{more}");
        world.held = None;
        assert_eq!(waiting(&world), Some(rollout::Wait::Unknown), "{more}");
    }
    // Claims are of no interest where nobody gives devices by them.
    let mut world = running(&serving(&json!({})));
    world.held = None;
    assert_eq!(world.needs(), Needs { pods: true, held: false });
    let after = serving(&json!({ "driverVersion": "2.0" }));
    world.remove_config(&after.id());
    put(&mut world, &after);
    let (id, live) = as_wanted(&world, &after);
    put_module(&mut world, &id, live);
    assert_eq!(plan(&world, &after, false).round.waiting, []);
}

/// Somebody takes our labels from a node that is being changed: the fence goes when the driver has gone, whoever is told.
#[test]
fn a_fence_goes_by_whose_it_is() {
    let config = serving(&json!({}));
    let mut world = running(&config);
    world.put_node("n1".into(), with_fence(&world, json!({}), Some(CLAIM)));
    assert_eq!(changed(&mut world, &config).0, [""; 0], "it is not unloaded yet");
    assert_eq!(world.remove_nmc("n1").into_iter().collect::<Vec<_>>(), [config.id()]);
    assert_eq!(changed(&mut world, &config).0, ["release n1"]);
    world.put_node("n1".into(), with_fence(&world, json!({}), Some("hw.other")));
    assert_eq!(changed(&mut world, &config).0, [""; 0], "somebody else's");
    assert_eq!(world.orphans().into_iter().collect::<Vec<_>>(), ["hw.other"]);
    world.put_node("n1".into(), with_fence(&world, json!({}), Some(CLAIM)));
    assert_eq!(world.orphans().len(), 0);
    world.remove_config(&config.id());
    world.remove_module(&Id::new("hw", "acc-module"));
    assert_eq!(world.orphans().into_iter().collect::<Vec<_>>(), [CLAIM]);
    assert_eq!(shown(&orphan(&world, CLAIM)), ["release n1"]);
    world.remove_node(&"n1".into());
    assert_eq!(world.orphans().len(), 0);
}

/// A node that no longer matches is fenced before it is given back, and as long as the driver is there.
#[test]
fn a_node_is_given_back_behind_a_fence() {
    let config = serving(&json!({ "nodeSelector": { "acc": "2" } }));
    let mut world = running(&serving(&json!({ "nodeSelector": { "acc": "1" } })));
    assert_eq!(changed(&mut world, &config).0, ["fence n1"]);
    world.put_node("n1".into(), with_fence(&world, ours(), Some(CLAIM)));
    assert_eq!(changed(&mut world, &config).0, ["release n1"]);
    let doing = plan(&world, &config, false).doing;
    let Some(Do::Node(write)) = doing.last() else { panic!() };
    assert!(!write.patch.to_string().contains("taints"), "{}", write.patch);
    assert!(write.unused.is_fenced() && !write.unused.names.is_empty());
}

/// A plugin reads its configuration again when it changes: that of a version that nodes have stays as it is.
#[test]
fn each_version_has_its_configuration() {
    let offering = |name: &str, more: Value| {
        let config = json!({ "version": "v1alpha1", "resources": [{ "name": name, "discovery": { "directory": { "path": "/dev", "prefix": "a" } } }] });
        let plugin = json!({ "image": null, "resourceNames": null, "config": config });
        let mut spec = json!({ "devicePlugin": plugin });
        json_patch::merge(&mut spec, &more);
        serving(&spec)
    };
    let files = |world: &World, config: &Config| {
        plan(world, config, false).doing.into_iter().find_map(|one| match one {
            Do::Ensure(object, kept) if object.sort().kind == "ConfigMap" => {
                Some((object.body()["data"].as_object().unwrap().keys().cloned().collect(), kept))
            }
            _ => None,
        })
    };
    let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
    let mut world = running(&offering(DEVICE, json!({})));
    let next = offering("example.com/other", json!({ "driverVersion": "2.0" }));
    changed(&mut world, &next);
    assert_eq!(files(&world, &next), Some((names(&["2.0.yaml"]), names(&["1.0.yaml"]))));
    // The Module is written, the node waits.
    let (id, live) = as_wanted(&world, &next);
    put_module(&mut world, &id, live);
    assert_eq!(files(&world, &next), Some((names(&["2.0.yaml"]), names(&["1.0.yaml"]))));
    let mut labels = ours();
    labels[VERSION] = "2.0".into();
    world.put_node("n1".into(), with_fence(&world, labels, None));
    assert_eq!(files(&world, &next).unwrap().1, names(&["1.0.yaml"]), "it is still loaded");
    world.remove_nmc("n1");
    assert_eq!(files(&world, &next), Some((names(&["2.0.yaml"]), names(&[]))));
    // Under the same version it waits with the driver.
    let mut world = running(&offering(DEVICE, json!({})));
    user(&mut world, "p", DEVICE);
    let held = offering("example.com/other", json!({ "modprobe": { "parameters": ["x=1"] } }));
    assert_eq!(changed(&mut world, &held).1, State::Held(vec!["n1".to_owned()]));
    assert_eq!(files(&world, &held), None);
}
