//! Plans for the deletion of a DeviceConfig.

use super::*;

/// A DeviceConfig being deleted, three nodes with the driver, and a pod on the second.
fn deleted(policy: &str) -> (Config, ClusterState) {
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
    let mut cluster = served();
    let module = json!([{ "namespace": "hw", "name": "acc-module" }]);
    for name in ["n1", "n2", "n3"] {
        let nmc = json!({ "metadata": { "name": name }, "spec": { "modules": module } });
        cluster.put_node(name.into(), node(ours()));
        cluster.put_nmc(name.into(), Some(Nmc::of(&serde_json::from_value(nmc).unwrap())));
    }
    // Nothing is loaded there.
    cluster.put_node("n4".into(), node(ours()));
    put(&mut cluster, &config);
    let (module, live) = as_wanted(&cluster, &config);
    cluster.put_module(module, live);
    cluster.put_pod(Id::new("x", "p"), Some(pod("n2", false)));
    (config, cluster)
}

fn pod(node: &str, terminating: bool) -> crate::cluster_state::Pod {
    crate::cluster_state::Pod {
        node: node.into(),
        uid: "u".into(),
        resources: vec![DEVICE.into()],
        terminating,
        returns: false,
    }
}

/// Adds the cordon taint, first seen at this second.
fn put_cordon_taint(cluster: &mut ClusterState, name: &str, seen: i64) {
    let taint = json!({ "key": CORDON_TAINT, "value": CLAIM, "effect": "NoSchedule" });
    let cordon_taint_seen = Some(Timestamp::from_second(seen).unwrap());
    let taints = vec![serde_json::from_value(taint).unwrap()];
    let before = cluster.nodes[name].clone();
    let version = format!("{}0", before.version);
    cluster.put_node(name.into(), Node { taints, cordon_taint_seen, version, ..before });
}

/// All nodes are tainted first; pods scheduled before are still found.
#[test]
fn a_module_is_deleted_when_no_pod_uses_the_devices() {
    let state = ConfigState::Deleting(["n1", "n2", "n3"].map(str::to_owned).to_vec());
    let (config, mut cluster) = deleted("Wait");
    check(&cluster, &config, false, &["taint n1", "taint n3"], &state);
    put_cordon_taint(&mut cluster, "n1", 1);
    put_cordon_taint(&mut cluster, "n3", 3);
    // A pod scheduled before keeps its device; the taint keeps further pods away.
    cluster.put_pod(Id::new("x", "late"), Some(pod("n1", false)));
    check(&cluster, &config, false, &[], &state);
    let waiting = plan(&cluster, &config, false).round.waiting;
    assert_eq!(waiting.iter().map(|(node, _)| node).collect::<Vec<_>>(), ["n1", "n2"]);
    cluster.put_pod(Id::new("x", "late"), None);
    cluster.put_pod(Id::new("x", "p"), None);
    check(&cluster, &config, false, &["taint n2"], &state);
    put_cordon_taint(&mut cluster, "n2", 2);
    check(&cluster, &config, false, &["delete module"], &state);
    let actions = plan(&cluster, &config, false).actions;
    let Some(Action::DeleteModule { unused, .. }) = actions.first() else { panic!("{actions:?}") };
    let seen = |second| Some(Timestamp::from_second(second).unwrap());
    let cordon_taints = [("n1", seen(1)), ("n2", seen(2)), ("n3", seen(3))];
    let wanted = Precondition {
        device_names: BTreeSet::from([DEVICE.to_owned()]),
        cordon_taints: cordon_taints.map(|(name, seen)| (name.to_owned(), seen)).into(),
    };
    assert_eq!(*unused, wanted);
    // Devices count as used while their users are unknown.
    cluster.pods = None;
    check(&cluster, &config, false, &[], &state);
}

/// An evicted pod cannot move to another node with the driver.
#[test]
fn pods_are_evicted_for_a_deletion_once_all_nodes_are_tainted() {
    let state = ConfigState::Deleting(["n1", "n2", "n3"].map(str::to_owned).to_vec());
    let (config, mut cluster) = deleted("Evict");
    check(&cluster, &config, false, &["taint n1", "taint n2", "taint n3"], &state);
    for name in ["n1", "n2"] {
        put_cordon_taint(&mut cluster, name, 1);
    }
    check(&cluster, &config, false, &["taint n3"], &state);
    put_cordon_taint(&mut cluster, "n3", 1);
    check(&cluster, &config, false, &["evict n2 p"], &state);
    // No pod is evicted twice, whether the watch has reported it or not.
    assert_eq!(
        cluster.mark_pod_terminating(&Id::new("x", "p")).into_iter().collect::<Vec<_>>(),
        [config.id()]
    );
    check(&cluster, &config, false, &[], &state);
    assert!(cluster.put_pod(Id::new("x", "p"), Some(pod("n2", true))).is_empty(), "no change");
    cluster.put_pod(Id::new("x", "p"), None);
    check(&cluster, &config, false, &["delete module"], &state);
    let (config, cluster) = deleted("Ignore");
    check(&cluster, &config, false, &["delete module"], &state);
    let actions = plan(&cluster, &config, false).actions;
    assert!(
        matches!(&actions[..], [Action::DeleteModule { unused, .. }] if *unused == Precondition::default())
    );
}

/// The report of KMM for a node that has the driver of `acc`, which nothing asks for any more.
fn leftover() -> Option<Nmc> {
    let body = json!({
        "metadata": { "name": "n1" }, "status": { "modules": [{ "namespace": "hw", "name": "acc-module" }] },
    });
    Some(Nmc::of(&serde_json::from_value(body).unwrap()))
}

/// KMM removes a Module while a load is under way, and reports it afterwards. Nodes, accounts and finalizer wait.
#[test]
fn a_driver_that_outlives_its_module_is_awaited() {
    let deleted = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    let config = config("acc", deleted);
    let mut cluster = served();
    cluster.put_node("n1".into(), node(ours()));
    put(&mut cluster, &config);
    cluster.put_nmc("n1".into(), leftover());
    check(&cluster, &config, false, &[], &ConfigState::Deleting(vec!["n1".to_owned()]));
    // The node may have been released before: only the report says that its driver is there.
    cluster.put_node("n1".into(), Node { version: "2".to_owned(), ..node(json!({})) });
    check(&cluster, &config, false, &[], &ConfigState::Deleting(vec!["n1".to_owned()]));
    assert_eq!(cluster.put_nmc("n1".into(), None).into_iter().collect::<Vec<_>>(), [config.id()]);
    let rest = ["remove ServiceAccount", "remove ServiceAccount", "remove ConfigMap", "no finalizer"];
    check(&cluster, &config, false, &rest, &ConfigState::Deleting(vec![]));
    // The same without a DeviceConfig.
    cluster.remove_config(&config.id());
    cluster.put_nmc("n1".into(), leftover());
    assert_eq!(shown(&orphan(&cluster, CLAIM)), [""; 0]);
    cluster.put_nmc("n1".into(), None);
    assert_eq!(shown(&orphan(&cluster, CLAIM)), rest[..3]);
}

/// A node goes to the next DeviceConfig when KMM has the former driver neither loaded nor on its way there.
#[test]
fn the_next_driver_waits_for_the_end_of_the_former_one() {
    let (former, next) =
        (config("acc", json!({ "spec": { "nodeSelector": { "acc": "2" } } })), config("new", json!({})));
    let worker = "beta.kmm.node.kubernetes.io/version-worker-pod.hw.acc-module";
    let (free, noticed) = (json!({ "acc": "1" }), json!({ "acc": "1", worker: "1.0" }));
    let claimed = json!({ "acc": "1", keys::LABEL_DRIVER: CLAIM });
    for (labels, has_config, has_module, is_listed, blocked) in [
        (&free, true, true, false, false),
        (&free, true, true, true, true),
        // The Module is gone before the driver.
        (&free, true, false, true, true),
        (&claimed, false, false, true, true),
        (&claimed, false, false, false, false),
        // Nothing says that it was ours.
        (&free, false, false, true, false),
        // KMM has not noticed the release, and may still list the Module.
        (&noticed, true, true, false, true),
        (&noticed, false, false, false, false),
    ] {
        let mut cluster = served();
        cluster.put_node("n1".into(), node(labels.clone()));
        put(&mut cluster, &next);
        if has_config {
            put(&mut cluster, &former);
        }
        for config in [&next, &former].into_iter().take(1 + usize::from(has_module)) {
            let (module, live) = as_wanted(&cluster, config);
            let mut body = live.body;
            let labels = crate::cluster_state::marks(&config.id().name)
                .map(|(key, value)| (key.to_owned(), json!(value)));
            body["metadata"]["labels"] = Value::Object(labels.into_iter().collect());
            cluster.put_module(module, ObservedObject { body });
        }
        cluster.put_nmc("n1".into(), leftover().filter(|_| is_listed));
        let claims = shown(&plan(&cluster, &next, false).actions).contains(&"claim n1".to_owned());
        assert_eq!(claims, !blocked, "{labels} {has_config} {has_module} {is_listed}");
    }
    // The next owner is woken when the label goes.
    let mut cluster = served();
    put(&mut cluster, &next);
    cluster.put_node("n1".into(), node(noticed));
    let woken = cluster.put_node("n1".into(), Node { version: "2".to_owned(), ..node(free) });
    assert_eq!(woken.into_iter().collect::<Vec<_>>(), [next.id()]);
}

#[test]
fn orphaned_claims_are_cleaned_up() {
    let mut cluster = served();
    let config = config("acc", json!({}));
    let (id, live) = as_wanted(&cluster, &config);
    cluster.put_module(id.clone(), live);
    cluster.put_node("n1".into(), node(json!({ keys::LABEL_DRIVER: "hw.acc-module" })));
    assert_eq!(cluster.orphans().into_iter().collect::<Vec<_>>(), ["hw.acc-module"]);
    assert_eq!(shown(&orphan(&cluster, "hw.acc-module")), ["delete module"]);
    cluster.remove_module(&id);
    assert_eq!(shown(&orphan(&cluster, "hw.acc-module")), ["release n1"]);
    cluster.put_node("n1".into(), Node { version: "2".to_owned(), ..node(json!({})) });
    assert_eq!(cluster.orphans().len(), 0);
}
