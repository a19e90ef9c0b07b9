//! Plans while pods use the devices.

use super::*;

/// A DeviceConfig with a device plugin, and with these further fields.
fn serving(more: &Value) -> Config {
    let mut body = json!({
        "metadata": { "resourceVersion": "1" },
        "spec": { "devicePlugin": { "image": "r/p:1", "resourceNames": [DEVICE] } },
    });
    json_patch::merge(&mut body, &json!({ "spec": more }));
    config("acc", body)
}

/// The cluster with its Module, and a node that has the driver.
fn running(config: &Config) -> ClusterState {
    let mut cluster = served();
    let version = config.object.spec.driver_version.as_str();
    let labels = json!({ "acc": "1", keys::LABEL_DRIVER: "hw.acc-module", VERSION: version });
    cluster.put_node("n1".into(), node(labels));
    put(&mut cluster, config);
    let (id, live) = as_wanted(&cluster, config);
    cluster.put_nmc("n1".into(), Some(nmc(&live)));
    cluster.put_module(id, live);
    cluster
}

/// Replaces the DeviceConfig. Returns the actions, except for accounts, and the state.
fn changed(cluster: &mut ClusterState, config: &Config) -> (Vec<String>, ConfigState) {
    cluster.remove_config(&config.id());
    put(cluster, config);
    let plan = plan(cluster, config, false);
    let others = |one: &String| one != "ensure ServiceAccount" && !is_removal(one);
    let actions = shown(&plan.actions).into_iter().filter(others).collect();
    (actions, plan.state)
}

/// A pod with a device under this name, by a request or by a resource claim.
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
    let pod = crate::cluster_state::Pod {
        node: "n1".into(),
        uid: uid.into(),
        resources,
        terminating: false,
        returns: false,
    };
    cluster.put_pod(id, Some(pod));
}

/// Each change after which KMM reloads the driver waits for pods.
#[test]
fn a_reload_under_the_same_version_waits_for_pods() {
    let held = ConfigState::ReloadBlocked(vec!["n1".to_owned()]);
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
            assert_eq!(changed(&mut cluster, &before), (vec![], ConfigState::InSync), "{more}");
            let steps = ["apply", "taint n1"].map(str::to_owned).to_vec();
            assert_eq!(changed(&mut cluster, &after), (steps, ConfigState::Writing), "{more}");
            user(&mut cluster, "p", DEVICE);
            assert_eq!(changed(&mut cluster, &after), (vec![], held.clone()), "{more}");
        }
    }
    // A change without influence on loaded drivers does not wait for pods.
    for more in
        [json!({ "tolerations": [{ "operator": "Exists" }] }), json!({ "imagePullSecret": { "name": "s" } })]
    {
        let mut cluster = running(&serving(&json!({})));
        user(&mut cluster, "p", DEVICE);
        let (actions, state) = changed(&mut cluster, &serving(&more));
        assert_eq!((actions, state), (vec!["apply".to_owned()], ConfigState::Writing), "{more}");
    }
}

/// An answer may be older than the latest event of the watch.
#[test]
fn a_list_does_not_bring_back_deleted_pods() {
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

/// A cordon that the Module tolerates, so that the driver stays.
#[test]
fn removal_of_a_toleration_waits_for_pods() {
    let tolerant = serving(&json!({ "tolerations": [{ "key": UNSCHEDULABLE, "operator": "Exists" }] }));
    let plain = serving(&json!({}));
    for (before, after, cordoned, waits) in [
        (&tolerant, &plain, true, true),
        (&tolerant, &plain, false, false),
        // KMM has unloaded the driver, or is about to.
        (&plain, &tolerant, true, false),
    ] {
        let mut cluster = running(before);
        let n1 = Node { unschedulable: cordoned, ..cluster.nodes["n1"].clone() };
        cluster.put_node("n1".into(), Node { version: "9".to_owned(), ..n1 });
        user(&mut cluster, "p", DEVICE);
        let held = ConfigState::ReloadBlocked(vec!["n1".to_owned()]);
        let wanted = if waits { (vec![], held) } else { (vec!["apply".to_owned()], ConfigState::Writing) };
        assert_eq!(changed(&mut cluster, after), wanted, "{cordoned} {waits}");
        cluster.put_pod(Id::new("x", "p"), None);
        let (actions, _) = changed(&mut cluster, after);
        assert_eq!(actions.contains(&"taint n1".to_owned()), waits, "{actions:?}");
    }
}

/// Nodes that wait for another version still follow a Module that goes back to theirs.
#[test]
fn other_parameters_of_a_former_version_wait_for_its_nodes() {
    let mut cluster = running(&serving(&json!({})));
    user(&mut cluster, "p", DEVICE);
    let next = serving(&json!({ "driverVersion": "2.0" }));
    let (id, mut live) = as_wanted(&cluster, &next);
    live.body["metadata"]["resourceVersion"] = "6".into();
    cluster.put_module(id, live);
    assert_eq!(changed(&mut cluster, &next), (vec![], ConfigState::InSync));
    let back = json!({ "modprobe": { "parameters": ["x=1"] } });
    let held = ConfigState::ReloadBlocked(vec!["n1".to_owned()]);
    assert_eq!(changed(&mut cluster, &serving(&back)), (vec![], held));
    assert_eq!(changed(&mut cluster, &serving(&json!({}))), (vec!["apply".to_owned()], ConfigState::Writing));
    // A node that becomes free meanwhile does not get the former version.
    cluster.put_node("n0".into(), {
        let labels = json!({ "acc": "1", keys::LABEL_DRIVER: "hw.acc-module", VERSION: "1.0" });
        node(labels)
    });
    assert_eq!(changed(&mut cluster, &serving(&back)).0, [""; 0]);
    let mut ignoring = back;
    ignoring["upgradePolicy"] = json!({ "podsUsingDevices": "Ignore" });
    assert_eq!(changed(&mut cluster, &serving(&ignoring)).0[0], "apply");
}

/// A newer version of the node, with a cordon taint for this claim, or without.
fn with_cordon_taint(cluster: &ClusterState, labels: Value, claim: Option<&str>) -> Node {
    let taint = |claim| json!({ "key": CORDON_TAINT, "value": claim, "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z" });
    let version = cluster.nodes["n1"].version.parse::<u64>().unwrap() + 1;
    let taints = claim.map(|claim| serde_json::from_value(taint(claim)).unwrap());
    Node { version: version.to_string(), taints: taints.into_iter().collect(), ..node(labels) }
}

/// Puts a Module with a newer version.
fn put_module(cluster: &mut ClusterState, id: &Id, mut live: ObservedObject) {
    let version = cluster.modules[id].text("/metadata/resourceVersion").parse::<u64>().unwrap() + 1;
    live.body["metadata"]["resourceVersion"] = version.to_string().into();
    cluster.put_module(id.clone(), live);
}

#[test]
fn a_reloading_module_is_written_when_no_pod_can_arrive() {
    let after = serving(&json!({ "modprobe": { "parameters": ["x=1"] } }));
    let mut cluster = running(&serving(&json!({})));
    cluster.put_node("n1".into(), with_cordon_taint(&cluster, ours(), Some(CLAIM)));
    assert_eq!(changed(&mut cluster, &after).0, ["apply"], "it is tainted already");
    let actions = plan(&cluster, &after, false).actions;
    let unused = actions.iter().find_map(|one| match one {
        Action::Apply(_, unused) => Some(unused.clone()),
        _ => None,
    });
    let since: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let wanted = Precondition {
        device_names: BTreeSet::from([DEVICE.to_owned()]),
        cordon_taints: BTreeMap::from([("n1".to_owned(), Some(since))]),
    };
    assert_eq!(unused, Some(wanted));
    // A refused Module needs no taints.
    let actions = plan(&cluster, &after, true).actions;
    assert_eq!(shown(&actions)[2..], ["apply", "untaint n1"]);
    // The cordon taint stays until KMM has unloaded the driver.
    let (id, live) = as_wanted(&cluster, &after);
    put_module(&mut cluster, &id, live.clone());
    assert_eq!(changed(&mut cluster, &after), (vec![], ConfigState::InSync));
    cluster.put_nmc("n1".into(), Some(nmc(&live)));
    assert_eq!(changed(&mut cluster, &after).0, ["untaint n1"]);
}

/// The time is that of the first sight, not of `timeAdded`; other changes of the node do not matter.
#[test]
fn a_cordon_taint_counts_from_first_sight() {
    let mut cluster = ClusterState::default();
    let cordon_tainted = |version: &str, seen: i64, taints: Vec<Taint>| Node {
        taints,
        version: version.to_owned(),
        cordon_taint_seen: Some(Timestamp::from_second(seen).unwrap()),
        ..Node::default()
    };
    let taint = |claim: &str| {
        vec![
            serde_json::from_value::<Taint>(
                json!({ "key": CORDON_TAINT, "value": claim, "effect": "NoSchedule" }),
            )
            .unwrap(),
        ]
    };
    let mut seen = |version, at, taints| {
        cluster.put_node("n1".into(), cordon_tainted(version, at, taints));
        cluster.nodes["n1"].cordon_taint_seen.map(Timestamp::as_second)
    };
    assert_eq!(seen("1", 10, taint(CLAIM)), Some(10));
    assert_eq!(seen("2", 20, taint(CLAIM)), Some(10), "the same taint");
    assert_eq!(seen("3", 30, taint("hw.other")), Some(30), "the taint of another claim");
    assert_eq!(seen("4", 40, taint(CLAIM)), Some(40));
}

/// One edit changes the version and the device names, or removes them: pods with a former name still count.
#[test]
fn pods_with_devices_under_a_former_name_count() {
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
        assert_eq!(cluster.optional_watches(), OptionalWatches { pods: true, claims: true });
        let waits = plan(&cluster, &after, false);
        let pods = rollout::Wait::Pods("x/p".to_owned(), 1);
        assert_eq!(waits.round.waiting, [("n1".to_owned(), pods)], "{next}");
        // Once the node has the new version, the old name is dropped.
        cluster.put_pod(Id::new("x", "p"), None);
        let mut labels = ours();
        labels[VERSION] = "2.0".into();
        cluster.put_node("n1".into(), with_cordon_taint(&cluster, labels, None));
        cluster.put_nmc("n1".into(), None);
        let actions = plan(&cluster, &after, false).actions;
        let Some(Action::Apply(module, _)) = actions.iter().find(|one| matches!(one, Action::Apply(..)))
        else {
            panic!()
        };
        assert_eq!(DeviceNames::recorded_on(module.body()).names(), after.device_names());
    }
    // A name that is replaced under the same version stays as long as that version.
    let renamed = serving(&json!({ "devicePlugin": { "resourceNames": [other] } }));
    let cluster = running(&serving(&json!({})));
    let actions = plan(&cluster, &renamed, false).actions;
    let Some(Action::Apply(module, _)) = actions.iter().find(|one| matches!(one, Action::Apply(..))) else {
        panic!()
    };
    assert_eq!(
        DeviceNames::recorded_on(module.body()).names(),
        BTreeSet::from([DEVICE, other].map(str::to_owned))
    );
}

/// A pod with a device by a resource claim keeps the driver like others. No node is free while claims are unknown.
#[test]
fn pods_with_devices_by_claims_count() {
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
        (json!({ "devicePlugin": null, "dra": { "driverName": driver, "image": "r/d:1" } }), &waits),
        (json!({ "devicePlugin": null, "dra": { "driverName": "other.example", "image": "r/d:1" } }), &None),
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
        assert!(cluster.optional_watches().claims, "{more}");
        // The claim of another pod of the same name.
        let affected =
            |cluster: &mut ClusterState, holding| cluster.put_claim_in_use(claim.clone(), holding).len();
        let holding = |uid: &str| {
            let pods = [(uid.into(), Id::new("x", "p"))].into();
            Some(DeviceClaim { drivers: [driver.into()].into(), pods })
        };
        assert_eq!(affected(&mut cluster, holding("uid-former")), 1);
        assert_eq!(waiting(&cluster), None, "{more}");
        assert_eq!(affected(&mut cluster, holding("uid-p")), 1);
        assert_eq!(waiting(&cluster), waits, "{more}");
        assert_eq!(affected(&mut cluster, None), 1);
        assert_eq!(waiting(&cluster), None, "{more}");
        cluster.claims_in_use = None;
        assert_eq!(waiting(&cluster), Some(rollout::Wait::Unknown), "{more}");
    }
    // Claims do not matter without drivers of claims.
    let mut cluster = running(&serving(&json!({})));
    cluster.claims_in_use = None;
    assert_eq!(cluster.optional_watches(), OptionalWatches { pods: true, claims: false });
    let after = serving(&json!({ "driverVersion": "2.0" }));
    cluster.remove_config(&after.id());
    put(&mut cluster, &after);
    let (id, live) = as_wanted(&cluster, &after);
    put_module(&mut cluster, &id, live);
    assert_eq!(plan(&cluster, &after, false).round.waiting, []);
}

/// Another client removes our labels from a node that is being changed: the cordon taint stays until the unloading.
#[test]
fn a_cordon_taint_is_removed_by_its_owner() {
    let config = serving(&json!({}));
    let mut cluster = running(&config);
    cluster.put_node("n1".into(), with_cordon_taint(&cluster, json!({}), Some(CLAIM)));
    assert_eq!(changed(&mut cluster, &config).0, [""; 0], "not unloaded yet");
    assert_eq!(cluster.put_nmc("n1".into(), None).into_iter().collect::<Vec<_>>(), [config.id()]);
    assert_eq!(changed(&mut cluster, &config).0, ["release n1"]);
    cluster.put_node("n1".into(), with_cordon_taint(&cluster, json!({}), Some("hw.other")));
    assert_eq!(changed(&mut cluster, &config).0, [""; 0], "the taint of another owner");
    assert_eq!(cluster.orphans().into_iter().collect::<Vec<_>>(), ["hw.other"]);
    cluster.put_node("n1".into(), with_cordon_taint(&cluster, json!({}), Some(CLAIM)));
    assert_eq!(cluster.orphans().len(), 0);
    cluster.remove_config(&config.id());
    cluster.remove_module(&Id::new("hw", "acc-module"));
    assert_eq!(cluster.orphans().into_iter().collect::<Vec<_>>(), [CLAIM]);
    assert_eq!(shown(&orphan(&cluster, CLAIM)), ["release n1"]);
    cluster.remove_node(&"n1".into());
    assert_eq!(cluster.orphans().len(), 0);
}

/// A node that no longer matches has the cordon taint before its release, and until the driver is unloaded.
#[test]
fn a_node_is_released_with_a_cordon_taint() {
    let config = serving(&json!({ "nodeSelector": { "acc": "2" } }));
    let mut cluster = running(&serving(&json!({ "nodeSelector": { "acc": "1" } })));
    assert_eq!(changed(&mut cluster, &config).0, ["taint n1"]);
    cluster.put_node("n1".into(), with_cordon_taint(&cluster, ours(), Some(CLAIM)));
    assert_eq!(changed(&mut cluster, &config).0, ["release n1"]);
    let actions = plan(&cluster, &config, false).actions;
    let Some(Action::Node(write)) = actions.last() else { panic!() };
    assert!(!write.patch.to_string().contains("taints"), "{}", write.patch);
    assert!(write.unused.has_cordon_taints() && !write.unused.device_names.is_empty());
}

/// Configurations of versions that nodes still have stay, since plugins read them again on a change.
#[test]
fn each_version_has_its_own_configuration() {
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
    // The Module is written; the node waits.
    let (id, live) = as_wanted(&cluster, &next);
    put_module(&mut cluster, &id, live);
    assert_eq!(files(&cluster, &next), Some((names(&["2.0.yaml"]), names(&["1.0.yaml"]))));
    let mut labels = ours();
    labels[VERSION] = "2.0".into();
    cluster.put_node("n1".into(), with_cordon_taint(&cluster, labels, None));
    assert_eq!(files(&cluster, &next).unwrap().1, names(&["1.0.yaml"]), "still loaded");
    cluster.put_nmc("n1".into(), None);
    assert_eq!(files(&cluster, &next), Some((names(&["2.0.yaml"]), names(&[]))));
    // Under the same version the configuration waits with the driver.
    let mut cluster = running(&offering(DEVICE, json!({})));
    user(&mut cluster, "p", DEVICE);
    let held = offering("example.com/other", json!({ "modprobe": { "parameters": ["x=1"] } }));
    assert_eq!(changed(&mut cluster, &held).1, ConfigState::ReloadBlocked(vec!["n1".to_owned()]));
    assert_eq!(files(&cluster, &held), None);
}
