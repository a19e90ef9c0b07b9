//! SELinux policies of MachineConfigPools, and the exporters that wait for them.

use super::*;

/// A group with a SELinux policy of its own.
fn custom(name: &str) -> Value {
    json!({ "poolName": name, "annotations": { POLICY: "custom" } })
}

fn plain(name: &str) -> Value {
    json!({ "poolName": name })
}

fn ask_groups(cluster: &mut ClusterState, groups: &[Value]) {
    ask(cluster, &json!({ "nodeGroups": groups }));
}

/// The pool's nodes have its MachineConfig, or no longer have it.
fn roll_out(cluster: &mut ClusterState, pool: &str, there: bool) {
    let sources = &mut cluster.pools.get_mut(pool).unwrap().sources;
    let name = format!("51-numaresourcesoperator-{pool}");
    if there {
        sources.insert(name)
    } else {
        sources.remove(&name)
    };
}

/// Names of what is wanted of these kinds.
fn of_kinds(cluster: &ClusterState) -> Vec<String> {
    let kinds = ["MachineConfig ", "DaemonSet "];
    names(cluster).into_iter().filter(|name| kinds.iter().any(|kind| name.starts_with(kind))).collect()
}

/// U018: what becomes of MachineConfig and DaemonSet, and what is said, for each state of one pool.
#[test]
fn u018_states_of_a_pool() {
    struct Row {
        name: &'static str,
        group: fn(&str) -> Value,
        change: fn(&mut MachineConfigPool),
        wanted: &'static [&'static str],
        holds: &'static [&'static str],
    }
    let there = |pool: &mut MachineConfigPool| {
        pool.sources.insert("51-numaresourcesoperator-worker".to_owned());
    };
    let rows = [
        Row {
            name: "N045 N046 U018 custom, not there",
            group: custom,
            change: |_| {},
            wanted: &[
                "MachineConfig 51-numaresourcesoperator-worker",
                "DaemonSet numaresourcesoperator-worker (held)",
            ],
            holds: &["Progressing MachineConfigPoolIsUpdating worker is updating"],
        },
        Row {
            name: "N044 N048 U018 custom, there",
            group: custom,
            change: there,
            wanted: &[
                "MachineConfig 51-numaresourcesoperator-worker",
                "DaemonSet numaresourcesoperator-worker",
            ],
            holds: &WELL,
        },
        Row {
            name: "N054 U018 default, not there",
            group: plain,
            change: |_| {},
            wanted: &["DaemonSet numaresourcesoperator-worker"],
            holds: &WELL,
        },
        Row {
            name: "N045 N053 U018 default, still there",
            group: plain,
            change: there,
            wanted: &["DaemonSet numaresourcesoperator-worker"],
            holds: &["Progressing MachineConfigPoolIsUpdating worker is updating"],
        },
        Row {
            name: "B-24 default, while the pool rolls out something else",
            group: plain,
            change: |pool| pool.conditions.push(condition("Updated", "False")),
            wanted: &["DaemonSet numaresourcesoperator-worker"],
            holds: &WELL,
        },
        Row {
            name: "B-24 custom, while the pool rolls out something else",
            group: custom,
            change: |pool| {
                pool.sources.insert("51-numaresourcesoperator-worker".to_owned());
                pool.conditions.push(condition("Updated", "False"));
            },
            wanted: &[
                "MachineConfig 51-numaresourcesoperator-worker",
                "DaemonSet numaresourcesoperator-worker",
            ],
            holds: &WELL,
        },
        Row {
            name: "N056 U018 default, paused",
            group: plain,
            change: |pool| pool.paused = true,
            wanted: &[
                "MachineConfig 51-numaresourcesoperator-worker (held)",
                "DaemonSet numaresourcesoperator-worker",
            ],
            holds: &["Available", "Upgradeable", "MachineConfigPoolPaused detected paused MCPs: worker"],
        },
        Row {
            name: "U018 E04 custom, paused",
            group: custom,
            change: |pool| pool.paused = true,
            wanted: &[
                "MachineConfig 51-numaresourcesoperator-worker (held)",
                "DaemonSet numaresourcesoperator-worker",
            ],
            holds: &["Available", "Upgradeable", "MachineConfigPoolPaused detected paused MCPs: worker"],
        },
        Row {
            name: "E03 U018 custom, without selector",
            group: custom,
            change: |pool| pool.machine_config_selector = None,
            wanted: &[
                "MachineConfig 51-numaresourcesoperator-worker (held)",
                "DaemonSet numaresourcesoperator-worker",
            ],
            holds: &WELL,
        },
    ];
    for Row { name, group, change, wanted, holds } in rows {
        let mut cluster = cluster(Platform::OpenShift);
        change(cluster.pools.get_mut("worker").unwrap());
        ask_groups(&mut cluster, &[group("worker")]);
        assert_eq!(of_kinds(&cluster), wanted, "{name}");
        assert_eq!(holding(&round(&mut cluster)), holds, "{name}");
    }
}

/// HyperShift has no MachineConfigs: the annotation changes the SELinux type and the constraints.
#[test]
fn custom_policies_without_machine_configs() {
    let mut cluster = cluster(Platform::HyperShift);
    ask_groups(&mut cluster, &[custom("worker")]);
    assert_eq!(of_kinds(&cluster), ["DaemonSet numaresourcesoperator-worker"]);
    assert_eq!(holding(&round(&mut cluster)), WELL);
}

#[test]
fn n044_custom_policies_of_several_pools_arrive_one_by_one() {
    let mut cluster = cluster(Platform::OpenShift);
    let key = "config.node.openshift-kni.io/multiple-pools-per-tree";
    let selector =
        json!({ "matchExpressions": [{ "key": "pools.example.com/none", "operator": "DoesNotExist" }] });
    let group = json!({ "machineConfigPoolSelector": selector, "annotations": { POLICY: "custom" } });
    ask_with(&mut cluster, &[(key, "enabled")], &json!({ "nodeGroups": [group] }));
    // N046, N047: both are said, and both pools are in the status (the Go operator stops at the first).
    let first = round(&mut cluster);
    assert_eq!(
        holding(&first),
        ["Progressing MachineConfigPoolIsUpdating infra is updating, worker is updating"]
    );
    let pools: Vec<&str> = first.pools.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(pools, ["infra", "worker"], "N047 B-21");
    assert!(first.pools.iter().all(|pool| pool.config.is_some()), "B-21");
    assert!(first.daemon_sets.is_empty() && first.node_groups.is_empty());
    // B-24: the other pool goes on.
    roll_out(&mut cluster, "worker", true);
    let second = round(&mut cluster);
    assert_eq!(holding(&second), ["Progressing MachineConfigPoolIsUpdating infra is updating"]);
    let sets: Vec<&str> = second.daemon_sets.iter().map(|set| set.name.as_str()).collect();
    assert_eq!(sets, ["numaresourcesoperator-worker"]);
    roll_out(&mut cluster, "infra", true);
    assert_eq!(holding(&round(&mut cluster)), WELL);
}

/// N055: one custom, one default.
#[test]
fn n055_mixed_policies_converge() {
    let mut cluster = cluster(Platform::OpenShift);
    ask_groups(&mut cluster, &[custom("worker"), plain("infra")]);
    assert_eq!(
        of_kinds(&cluster),
        [
            "MachineConfig 51-numaresourcesoperator-worker",
            "DaemonSet numaresourcesoperator-worker (held)",
            "DaemonSet numaresourcesoperator-infra",
        ]
    );
    assert_eq!(holding(&round(&mut cluster)), ["Progressing MachineConfigPoolIsUpdating worker is updating"]);
    roll_out(&mut cluster, "worker", true);
    let status = round(&mut cluster);
    assert_eq!(holding(&status), WELL);
    let paused = status.conditions.iter().find(|condition| condition.type_ == POOL_PAUSED).unwrap();
    assert_eq!(
        (paused.status.as_str(), paused.reason.as_str(), paused.message.as_str()),
        ("False", POOL_PAUSED, "")
    );
}

/// N057, B-14: said while another pool is on its way; names in order.
#[test]
fn n057_paused_pools_are_always_reported() {
    let mut cluster = cluster(Platform::OpenShift);
    for name in ["infra", "zone-b", "zone-a"] {
        let paused = MachineConfigPool { paused: true, ..pool(name) };
        cluster.pools.insert(name.to_owned(), paused);
    }
    ask_groups(&mut cluster, &[custom("worker"), plain("zone-b"), custom("infra"), plain("zone-a")]);
    assert_eq!(
        holding(&round(&mut cluster)),
        [
            "Progressing MachineConfigPoolIsUpdating worker is updating",
            "MachineConfigPoolPaused detected paused MCPs: infra, zone-a, zone-b",
        ]
    );
}

#[test]
fn n050_a_removed_group_leaves_no_machine_config() {
    let mut cluster = cluster(Platform::OpenShift);
    ask_groups(&mut cluster, &[custom("worker"), custom("infra")]);
    assert_eq!(of_kinds(&cluster).len(), 4);
    ask_groups(&mut cluster, &[custom("infra")]);
    assert_eq!(
        of_kinds(&cluster),
        ["MachineConfig 51-numaresourcesoperator-infra", "DaemonSet numaresourcesoperator-infra (held)"]
    );
}

/// N045, N053: when the policy goes, exporters change to the nodes' own type at once: such nodes could not start
/// others.
#[test]
fn n045_n053_the_annotation_is_removed() {
    let mut cluster = cluster(Platform::OpenShift);
    let both = ["worker", "infra"];
    ask_groups(&mut cluster, &both.map(custom));
    for name in both {
        roll_out(&mut cluster, name, true);
    }
    assert_eq!(holding(&round(&mut cluster)), WELL);
    ask_groups(&mut cluster, &both.map(plain));
    let sets = ["DaemonSet numaresourcesoperator-worker", "DaemonSet numaresourcesoperator-infra"];
    assert_eq!(of_kinds(&cluster), sets);
    let leaving = ["Progressing MachineConfigPoolIsUpdating infra is updating, worker is updating"];
    assert_eq!(holding(&round(&mut cluster)), leaving);
    for name in both {
        roll_out(&mut cluster, name, false);
    }
    assert_eq!(holding(&round(&mut cluster)), WELL);
}

fn in_roles(values: &[&str]) -> LabelSelector {
    let expression =
        json!({ "key": "machineconfiguration.openshift.io/role", "operator": "In", "values": values });
    serde_json::from_value(json!({ "matchExpressions": [expression] })).unwrap()
}

#[test]
fn n051_machine_configs_bear_the_role_of_the_pool() {
    let mut cluster = cluster(Platform::OpenShift);
    cluster.pools.get_mut("infra").unwrap().machine_config_selector = Some(in_roles(&["infra", "worker"]));
    ask_groups(&mut cluster, &[custom("infra")]);
    let config = wanted(&cluster).into_iter().find(|one| one.object.kind().kind == "MachineConfig").unwrap();
    assert_eq!(config.object.label("machineconfiguration.openshift.io/role"), Some("infra"));
    let files = config.object.body()["spec"]["config"]["storage"]["files"].as_array().unwrap();
    assert_eq!(files.len(), 1, "N045");
    assert_eq!(files[0]["path"], "/etc/selinux/rte.cil", "N045");
    let units = config.object.body()["spec"]["config"]["systemd"]["units"].as_array().unwrap();
    assert_eq!(units[0]["name"], "rte-selinux-policy-install.service");
}

/// N052, B-15: the message has the cause, and other pools go on.
#[test]
fn n052_b15_a_pool_that_would_not_take_its_machine_config() {
    let mut cluster = cluster(Platform::OpenShift);
    cluster.pools.get_mut("infra").unwrap().machine_config_selector = Some(in_roles(&["worker"]));
    ask_groups(&mut cluster, &[custom("infra"), plain("worker")]);
    assert_eq!(
        of_kinds(&cluster),
        [
            "MachineConfig 51-numaresourcesoperator-infra (held)",
            "DaemonSet numaresourcesoperator-infra (held)",
            "DaemonSet numaresourcesoperator-worker",
        ]
    );
    let status = round(&mut cluster);
    assert_eq!(
        holding(&status),
        [
            "Degraded InternalError MachineConfigPool \"infra\": labels does not match the machine config pool: its machineConfigSelector does not \
          select machineconfiguration.openshift.io/role=infra"
        ]
    );
    assert_eq!(status.daemon_sets.len(), 1);
}

/// E02, B-15: a pool without a selector has no nodes; running exporters stay.
#[test]
fn e02_b15_a_pool_without_nodes() {
    for selector in [None, Some(LabelSelector::default())] {
        let mut cluster = cluster(Platform::OpenShift);
        cluster.pools.get_mut("infra").unwrap().node_selector = selector;
        ask_groups(&mut cluster, &[plain("infra"), plain("worker")]);
        assert_eq!(
            of_kinds(&cluster),
            ["DaemonSet numaresourcesoperator-infra (held)", "DaemonSet numaresourcesoperator-worker"]
        );
        let wanted = "Degraded InternalError MachineConfigPool \"infra\": it has no node selector, so no node is in it";
        assert_eq!(holding(&round(&mut cluster)), [wanted]);
    }
}
