//! What there is to do while pods use the devices.

use super::*;

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
fn running(config: &Config) -> ClusterState {
    let mut cluster = served();
    let version = config.object.spec.driver_version.as_str();
    let labels = json!({ "acc": "1", keys::LABEL_DRIVER: "hw.acc-module", VERSION: version });
    cluster.put_node("n1".into(), node(labels));
    put(&mut cluster, config);
    let (id, live) = as_wanted(&cluster, config);
    cluster.put_nmc("n1".into(), nmc(&live));
    cluster.put_module(id, live);
    cluster
}

/// Its user has changed it; says what there is to do, but for the accounts.
fn changed(cluster: &mut ClusterState, config: &Config) -> (Vec<String>, State) {
    cluster.remove_config(&config.id());
    put(cluster, config);
    let plan = plan(cluster, config, false);
    let others = |one: &String| one != "ensure ServiceAccount" && !is_cleaning(one);
    let actions = shown(&plan.actions).into_iter().filter(others).collect();
    (actions, plan.state)
}

/// A pod with a device under this name: it asks for the resource, or was given it by a claim.
fn user(cluster: &mut ClusterState, name: &str, device: &str) {
    let (id, uid) = (Id::new("x", name), format!("uid-{name}"));
    let mut resources = vec![Arc::from(device)];
    if is_driver(device) {
        let holding = DeviceClaim {
            drivers: resources.drain(..).collect(),
            pods: [(uid.as_str().into(), id.clone())].into(),
        };
        cluster.put_claim_in_use(id.clone(), Some(holding));
    }
    let pod = crate::cluster_state::Pod { node: "n1".into(), uid: uid.into(), resources, leaving: false };
    cluster.put_pod(id, Some(pod));
}

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
            let mut cluster = running(&before);
            assert_eq!(changed(&mut cluster, &before), (vec![], State::Good), "{more}");
            let steps = ["apply", "fence n1"].map(str::to_owned).to_vec();
            assert_eq!(changed(&mut cluster, &after), (steps, State::Writing), "{more}");
            user(&mut cluster, "p", DEVICE);
            assert_eq!(changed(&mut cluster, &after), (vec![], held.clone()), "{more}");
        }
    }
    // A change that does not reach loaded drivers does not wait for pods.
    for more in
        [json!({ "tolerations": [{ "operator": "Exists" }] }), json!({ "imagePullSecret": { "name": "s" } })]
    {
        let mut cluster = running(&serving(&json!({})));
        user(&mut cluster, "p", DEVICE);
        let (actions, state) = changed(&mut cluster, &serving(&more));
        assert_eq!((actions, state), (vec!["apply".to_owned()], State::Writing), "{more}");
    }
}

/// An answer may be older than what the watch has said meanwhile.
#[test]
fn a_pod_that_has_gone_does_not_come_back() {
    let config = serving(&json!({}));
    let mut cluster = running(&config);
    user(&mut cluster, "p", DEVICE);
    let p = Id::new("x", "p");
    let seen = || {
        let mut one = running(&config);
        user(&mut one, "p", DEVICE);
        let pods = one.pods.unwrap();
        pods.on("n1").map(|(id, pod)| (id.clone(), pod.clone())).collect::<Vec<_>>()
    };
    let users = |cluster: &ClusterState| cluster.pods.as_ref().unwrap().on("n1").count();
    let before = cluster.pods_gone();
    cluster.put_pod(p.clone(), None);
    cluster.put_listed_pods(seen(), before);
    assert_eq!(users(&cluster), 0);
    cluster.put_listed_pods(seen(), cluster.pods_gone());
    assert_eq!(users(&cluster), 1);
    let before = cluster.pods_gone();
    cluster.put_pods(Pods::default());
    cluster.put_listed_pods(seen(), before);
    assert_eq!(users(&cluster), 0);
}

/// A cordon, say, under which the driver stays only because the Module tolerates it.
#[test]
fn a_toleration_that_keeps_a_driver_goes_when_no_pod_uses_the_devices() {
    let tolerant = serving(&json!({ "tolerations": [{ "key": UNSCHEDULABLE, "operator": "Exists" }] }));
    let plain = serving(&json!({}));
    for (before, after, cordoned, waits) in [
        (&tolerant, &plain, true, true),
        (&tolerant, &plain, false, false),
        // Nothing that KMM has not unloaded, or is not about to.
        (&plain, &tolerant, true, false),
    ] {
        let mut cluster = running(before);
        let n1 = Node { unschedulable: cordoned, ..cluster.nodes["n1"].clone() };
        cluster.put_node("n1".into(), Node { version: "9".to_owned(), ..n1 });
        user(&mut cluster, "p", DEVICE);
        let held = State::Held(vec!["n1".to_owned()]);
        let wanted = if waits { (vec![], held) } else { (vec!["apply".to_owned()], State::Writing) };
        assert_eq!(changed(&mut cluster, after), wanted, "{cordoned} {waits}");
        cluster.put_pod(Id::new("x", "p"), None);
        let (actions, _) = changed(&mut cluster, after);
        assert_eq!(actions.contains(&"fence n1".to_owned()), waits, "{actions:?}");
    }
}

/// Nodes that wait for another version still follow a Module that goes back to theirs.
#[test]
fn back_to_a_version_with_other_parameters_waits_for_those_who_have_it() {
    let mut cluster = running(&serving(&json!({})));
    user(&mut cluster, "p", DEVICE);
    let next = serving(&json!({ "driverVersion": "2.0" }));
    let (id, mut live) = as_wanted(&cluster, &next);
    live.body["metadata"]["resourceVersion"] = "6".into();
    cluster.put_module(id, live);
    assert_eq!(changed(&mut cluster, &next), (vec![], State::Good));
    let back = json!({ "modprobe": { "parameters": ["x=1"] } });
    let held = State::Held(vec!["n1".to_owned()]);
    assert_eq!(changed(&mut cluster, &serving(&back)), (vec![], held));
    assert_eq!(changed(&mut cluster, &serving(&json!({}))), (vec!["apply".to_owned()], State::Writing));
    // A node that is free meanwhile does not get the former version.
    cluster.put_node("n0".into(), {
        let labels = json!({ "acc": "1", keys::LABEL_DRIVER: "hw.acc-module", VERSION: "1.0" });
        node(labels)
    });
    assert_eq!(changed(&mut cluster, &serving(&back)).0, [""; 0]);
    let mut ignoring = back;
    ignoring["upgradePolicy"] = json!({ "podsUsingDevices": "Ignore" });
    assert_eq!(changed(&mut cluster, &serving(&ignoring)).0[0], "apply");
}

/// The node as it is, in a newer version; with a fence that names this claim, or with none.
fn with_fence(cluster: &ClusterState, labels: Value, claim: Option<&str>) -> Node {
    let fence = |claim| json!({ "key": CORDON_TAINT, "value": claim, "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z" });
    let version = cluster.nodes["n1"].version.parse::<u64>().unwrap() + 1;
    let taints = claim.map(|claim| serde_json::from_value(fence(claim)).unwrap());
    Node { version: version.to_string(), taints: taints.into_iter().collect(), ..node(labels) }
}

/// Newer than any before it.
fn put_module(cluster: &mut ClusterState, id: &Id, mut live: ObservedObject) {
    let version = cluster.modules[id].text("/metadata/resourceVersion").parse::<u64>().unwrap() + 1;
    live.body["metadata"]["resourceVersion"] = version.to_string().into();
    cluster.put_module(id.clone(), live);
}

#[test]
fn a_module_that_reloads_drivers_is_written_when_no_pod_can_arrive() {
    let after = serving(&json!({ "modprobe": { "parameters": ["x=1"] } }));
    let mut cluster = running(&serving(&json!({})));
    cluster.put_node("n1".into(), with_fence(&cluster, ours(), Some(CLAIM)));
    assert_eq!(changed(&mut cluster, &after).0, ["apply"], "it is fenced already");
    let actions = plan(&cluster, &after, false).actions;
    let unused = actions.iter().find_map(|one| match one {
        Action::Apply(_, unused) => Some(unused.clone()),
        _ => None,
    });
    let since: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let wanted = Precondition {
        names: BTreeSet::from([DEVICE.to_owned()]),
        fences: BTreeMap::from([("n1".to_owned(), Some(since))]),
    };
    assert_eq!(unused, Some(wanted));
    // A refused Module keeps no pods away.
    let actions = plan(&cluster, &after, true).actions;
    assert_eq!(shown(&actions)[2..], ["apply", "unfence n1"]);
    // The fence stays until KMM has unloaded what it unloads.
    let (id, live) = as_wanted(&cluster, &after);
    put_module(&mut cluster, &id, live.clone());
    assert_eq!(changed(&mut cluster, &after), (vec![], State::Good));
    cluster.put_nmc("n1".into(), nmc(&live));
    assert_eq!(changed(&mut cluster, &after).0, ["unfence n1"]);
}

/// From when it was seen, not from the second in which it was put up; whatever else happens to the node meanwhile.
#[test]
fn a_fence_is_as_old_as_it_was_seen() {
    let mut cluster = ClusterState::default();
    let fenced = |version: &str, seen: i64, taints: Vec<Taint>| Node {
        taints,
        version: version.to_owned(),
        fence_seen: Some(Timestamp::from_second(seen).unwrap()),
        ..Node::default()
    };
    let fence = |claim: &str| {
        vec![
            serde_json::from_value::<Taint>(
                json!({ "key": CORDON_TAINT, "value": claim, "effect": "NoSchedule" }),
            )
            .unwrap(),
        ]
    };
    let mut seen = |version, at, taints| {
        cluster.put_node("n1".into(), fenced(version, at, taints));
        cluster.nodes["n1"].fence_seen.map(Timestamp::as_second)
    };
    assert_eq!(seen("1", 10, fence(CLAIM)), Some(10));
    assert_eq!(seen("2", 20, fence(CLAIM)), Some(10), "the same one");
    assert_eq!(seen("3", 30, fence("hw.other")), Some(30), "another's");
    assert_eq!(seen("4", 40, fence(CLAIM)), Some(40));
}

/// Another name for the devices, or none, and another version in one edit: who has one under the former name still has
/// it.
#[test]
fn who_has_a_device_under_a_former_name_still_uses_it() {
    let (other, driver) = ("example.com/other", "acc.example.com");
    let renamed = json!({ "driverVersion": "2.0", "devicePlugin": { "resourceNames": [other] } });
    let dropped = json!({ "driverVersion": "2.0", "devicePlugin": null });
    let undriven = json!({ "driverVersion": "2.0", "devicePlugin": { "driverNames": null } });
    for (device, next) in [(DEVICE, &renamed), (DEVICE, &dropped), (driver, &undriven), (driver, &dropped)] {
        let before = serving(&json!({ "devicePlugin": { "driverNames": [driver] } }));
        let after = serving(next);
        let mut cluster = running(&before);
        user(&mut cluster, "p", device);
        assert_eq!(changed(&mut cluster, &after).0, ["apply"]);
        let actions = plan(&cluster, &after, false).actions;
        let Some(Action::Apply(module, _)) = actions.iter().find(|one| matches!(one, Action::Apply(..)))
        else {
            panic!()
        };
        let (id, mut live) = as_wanted(&cluster, &after);
        live.body["metadata"]["annotations"] = module.body()["metadata"]["annotations"].clone();
        put_module(&mut cluster, &id, ObservedObject { body: stated(live.body) });
        assert_eq!(cluster.needs(), Needs { pods: true, claims: true });
        let waits = plan(&cluster, &after, false);
        let pods = rollout::Wait::Pods("x/p".to_owned(), 1);
        assert_eq!(waits.round.waiting, [("n1".to_owned(), pods)], "{next}");
        // Once the node has the new version the old name is forgotten.
        cluster.put_pod(Id::new("x", "p"), None);
        let mut labels = ours();
        labels[VERSION] = "2.0".into();
        cluster.put_node("n1".into(), with_fence(&cluster, labels, None));
        cluster.remove_nmc("n1");
        let actions = plan(&cluster, &after, false).actions;
        let Some(Action::Apply(module, _)) = actions.iter().find(|one| matches!(one, Action::Apply(..)))
        else {
            panic!()
        };
        assert_eq!(DeviceNames::on(module.body()).names(), after.device_names());
    }
    // A name that is replaced under the same version is remembered as long as that version.
    let renamed = serving(&json!({ "devicePlugin": { "resourceNames": [other] } }));
    let cluster = running(&serving(&json!({})));
    let actions = plan(&cluster, &renamed, false).actions;
    let Some(Action::Apply(module, _)) = actions.iter().find(|one| matches!(one, Action::Apply(..))) else {
        panic!()
    };
    assert_eq!(DeviceNames::on(module.body()).names(), BTreeSet::from([DEVICE, other].map(str::to_owned)));
}

/// A pod with a device by a resource claim keeps the driver as others do; as long as claims are unknown no node counts
/// as free.
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
        let mut cluster = running(&before);
        user(&mut cluster, "p", driver);
        let (id, live) = as_wanted(&cluster, &after);
        put_module(&mut cluster, &id, live);
        let waiting =
            |cluster: &ClusterState| plan(cluster, &after, false).round.waiting.pop().map(|(_, wait)| wait);
        cluster.remove_config(&after.id());
        put(&mut cluster, &after);
        assert_eq!(waiting(&cluster), *wanted, "{more}");
        if wanted.is_none() {
            continue;
        }
        assert!(cluster.needs().claims, "{more}");
        // Of another pod of the same name.
        let concerned =
            |cluster: &mut ClusterState, holding| cluster.put_claim_in_use(claim.clone(), holding).len();
        let holding = |uid: &str| {
            let pods = [(uid.into(), Id::new("x", "p"))].into();
            Some(DeviceClaim { drivers: [driver.into()].into(), pods })
        };
        assert_eq!(concerned(&mut cluster, holding("uid-former")), 1);
        assert_eq!(waiting(&cluster), None, "{more}");
        assert_eq!(concerned(&mut cluster, holding("uid-p")), 1);
        assert_eq!(waiting(&cluster), waits, "{more}");
        assert_eq!(concerned(&mut cluster, None), 1);
        assert_eq!(waiting(&cluster), None, "{more}");
        cluster.claims_in_use = None;
        assert_eq!(waiting(&cluster), Some(rollout::Wait::Unknown), "{more}");
    }
    // Claims do not matter where no device is given by them.
    let mut cluster = running(&serving(&json!({})));
    cluster.claims_in_use = None;
    assert_eq!(cluster.needs(), Needs { pods: true, claims: false });
    let after = serving(&json!({ "driverVersion": "2.0" }));
    cluster.remove_config(&after.id());
    put(&mut cluster, &after);
    let (id, live) = as_wanted(&cluster, &after);
    put_module(&mut cluster, &id, live);
    assert_eq!(plan(&cluster, &after, false).round.waiting, []);
}

/// Another client removes our labels from a node that is being changed: the cordon taint goes when the driver has gone.
#[test]
fn a_fence_goes_by_whose_it_is() {
    let config = serving(&json!({}));
    let mut cluster = running(&config);
    cluster.put_node("n1".into(), with_fence(&cluster, json!({}), Some(CLAIM)));
    assert_eq!(changed(&mut cluster, &config).0, [""; 0], "it is not unloaded yet");
    assert_eq!(cluster.remove_nmc("n1").into_iter().collect::<Vec<_>>(), [config.id()]);
    assert_eq!(changed(&mut cluster, &config).0, ["release n1"]);
    cluster.put_node("n1".into(), with_fence(&cluster, json!({}), Some("hw.other")));
    assert_eq!(changed(&mut cluster, &config).0, [""; 0], "of another owner");
    assert_eq!(cluster.orphans().into_iter().collect::<Vec<_>>(), ["hw.other"]);
    cluster.put_node("n1".into(), with_fence(&cluster, json!({}), Some(CLAIM)));
    assert_eq!(cluster.orphans().len(), 0);
    cluster.remove_config(&config.id());
    cluster.remove_module(&Id::new("hw", "acc-module"));
    assert_eq!(cluster.orphans().into_iter().collect::<Vec<_>>(), [CLAIM]);
    assert_eq!(shown(&orphan(&cluster, CLAIM)), ["release n1"]);
    cluster.remove_node(&"n1".into());
    assert_eq!(cluster.orphans().len(), 0);
}

/// A node that no longer matches is fenced before it is given back, and as long as the driver is there.
#[test]
fn a_node_is_given_back_behind_a_fence() {
    let config = serving(&json!({ "nodeSelector": { "acc": "2" } }));
    let mut cluster = running(&serving(&json!({ "nodeSelector": { "acc": "1" } })));
    assert_eq!(changed(&mut cluster, &config).0, ["fence n1"]);
    cluster.put_node("n1".into(), with_fence(&cluster, ours(), Some(CLAIM)));
    assert_eq!(changed(&mut cluster, &config).0, ["release n1"]);
    let actions = plan(&cluster, &config, false).actions;
    let Some(Action::Node(write)) = actions.last() else { panic!() };
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
    let files = |cluster: &ClusterState, config: &Config| {
        plan(cluster, config, false).actions.into_iter().find_map(|one| match one {
            Action::Ensure(object, kept) if object.kind().kind == "ConfigMap" => {
                Some((object.body()["data"].as_object().unwrap().keys().cloned().collect(), kept))
            }
            _ => None,
        })
    };
    let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
    let mut cluster = running(&offering(DEVICE, json!({})));
    let next = offering("example.com/other", json!({ "driverVersion": "2.0" }));
    changed(&mut cluster, &next);
    assert_eq!(files(&cluster, &next), Some((names(&["2.0.yaml"]), names(&["1.0.yaml"]))));
    // The Module is written, the node waits.
    let (id, live) = as_wanted(&cluster, &next);
    put_module(&mut cluster, &id, live);
    assert_eq!(files(&cluster, &next), Some((names(&["2.0.yaml"]), names(&["1.0.yaml"]))));
    let mut labels = ours();
    labels[VERSION] = "2.0".into();
    cluster.put_node("n1".into(), with_fence(&cluster, labels, None));
    assert_eq!(files(&cluster, &next).unwrap().1, names(&["1.0.yaml"]), "it is still loaded");
    cluster.remove_nmc("n1");
    assert_eq!(files(&cluster, &next), Some((names(&["2.0.yaml"]), names(&[]))));
    // Under the same version it waits with the driver.
    let mut cluster = running(&offering(DEVICE, json!({})));
    user(&mut cluster, "p", DEVICE);
    let held = offering("example.com/other", json!({ "modprobe": { "parameters": ["x=1"] } }));
    assert_eq!(changed(&mut cluster, &held).1, State::Held(vec!["n1".to_owned()]));
    assert_eq!(files(&cluster, &held), None);
}
