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
