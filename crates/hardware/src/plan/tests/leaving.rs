//! What there is to do when a DeviceConfig goes.

use super::*;

/// With three nodes that have the driver, and a pod on the second.
fn leaving(policy: &str) -> (Config, ClusterState) {
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

fn pod(node: &str, leaving: bool) -> crate::cluster_state::Pod {
    crate::cluster_state::Pod { node: node.into(), uid: "u".into(), resources: vec![DEVICE.into()], leaving }
}

/// It is fenced, seen at this second.
fn put_fence(world: &mut ClusterState, name: &str, seen: i64) {
    let fence = json!({ "key": CORDON_TAINT, "value": CLAIM, "effect": "NoSchedule" });
    let fence_seen = Some(Timestamp::from_second(seen).unwrap());
    let taints = vec![serde_json::from_value(fence).unwrap()];
    let before = world.nodes[name].clone();
    let version = format!("{}0", before.version);
    world.put_node(name.into(), Node { taints, fence_seen, version, ..before });
}

/// All nodes are tainted first; pods that are on their way by then are still seen.
#[test]
fn a_module_goes_when_no_pod_uses_the_devices() {
    let state = State::Leaving(["n1", "n2", "n3"].map(str::to_owned).to_vec());
    let (config, mut world) = leaving("Wait");
    check(&world, &config, false, &["fence n1", "fence n3"], &state);
    put_fence(&mut world, "n1", 1);
    put_fence(&mut world, "n3", 3);
    // A pod that was on its way keeps its device; the taint keeps further pods away.
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
    let Some(Action::DeleteModule { unused, .. }) = doing.first() else { panic!("{doing:?}") };
    let seen = |second| Some(Timestamp::from_second(second).unwrap());
    let fences = [("n1", seen(1)), ("n2", seen(2)), ("n3", seen(3))];
    let wanted = Precondition {
        names: BTreeSet::from([DEVICE.to_owned()]),
        fences: fences.map(|(name, seen)| (name.to_owned(), seen)).into(),
    };
    assert_eq!(*unused, wanted);
    // As long as users are unknown, devices count as used.
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
    // No pod is evicted twice, whether the watch has reported it or not.
    assert_eq!(world.pod_leaves(&Id::new("x", "p")).into_iter().collect::<Vec<_>>(), [config.id()]);
    check(&world, &config, false, &[], &state);
    assert!(world.put_pod(Id::new("x", "p"), Some(pod("n2", true))).is_empty(), "it is known");
    world.put_pod(Id::new("x", "p"), None);
    check(&world, &config, false, &["delete module"], &state);
    let (config, world) = leaving("Ignore");
    check(&world, &config, false, &["delete module"], &state);
    let doing = plan(&world, &config, false).doing;
    assert!(
        matches!(&doing[..], [Action::DeleteModule { unused, .. }] if *unused == Precondition::default())
    );
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
