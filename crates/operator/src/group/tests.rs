//! Groups and their pools, by the names of docs/parity-operator.md; which nodes are in a pool, compared with a
//! description of its own of what the Machine Config Operator does.

use std::sync::Arc;

use k8s_openapi::api::core::v1::NodeSelectorRequirement;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::cluster_state::{Environment, Image, Node};

fn cluster(platform: Platform, pools: &[(&str, Value)]) -> ClusterState {
    let mut cluster = ClusterState::new(Environment {
        platform,
        version: None,
        namespace: "numaresources".to_owned(),
        own: Image::default(),
        image: Image::default(),
        exporter_image_restricted: true,
        trusted_schedulers: None,
        forward_pool_conditions: false,
        api_server_ports: Vec::new(),
        kubelet: None,
        api_server_cidrs: Vec::new(),
        kubelet_root_mount: false,
        only_own_scheduler: false,
    });
    for (name, selector) in pools {
        let pool = MachineConfigPool {
            labels: BTreeMap::from([
                ("name".to_owned(), (*name).to_owned()),
                ("all".to_owned(), String::new()),
            ]),
            node_selector: serde_json::from_value(selector.clone()).unwrap(),
            ..MachineConfigPool::default()
        };
        cluster.pools.insert((*name).to_owned(), pool);
    }
    cluster
}

fn operator(groups: &Value) -> NumaResourcesOperator {
    serde_json::from_value(json!({ "metadata": { "name": "x" }, "spec": { "nodeGroups": groups } })).unwrap()
}

fn role(name: &str) -> Value {
    json!({ "matchLabels": { format!("role/{name}"): "" } })
}

fn named(name: &str) -> Value {
    json!({ "poolName": name })
}

fn selecting(selector: Value) -> Value {
    json!({ "machineConfigPoolSelector": selector })
}

/// The pools of each group, or what is wrong.
fn show(cluster: &ClusterState, groups: &Value) -> String {
    let operator = operator(groups);
    let groups = match Groups::new(cluster, &operator) {
        Ok(groups) => groups,
        Err(mistakes) => return mistakes,
    };
    let names = |group: &Group<'_>| group.pools.iter().map(|pool| pool.name).collect::<Vec<_>>().join(" ");
    groups.all.iter().map(names).collect::<Vec<_>>().join("; ")
}

/// A011 to A013, E20: in the order of groups, then of names.
#[test]
fn a011_a012_pools_of_groups() {
    let all = selecting(json!({}));
    let with = |name: &str| selecting(json!({ "matchLabels": { "name": name } }));
    let one_of =
        selecting(json!({ "matchExpressions": [{ "key": "name", "operator": "In", "values": ["c", "b"] }] }));
    for (platform, groups, wanted) in [
        (Platform::OpenShift, json!([]), ""),
        (Platform::OpenShift, json!([with("b")]), "b"),
        (Platform::OpenShift, json!([one_of]), "b c"),
        (Platform::OpenShift, json!([all]), "a b c"),
        (Platform::OpenShift, json!([with("c"), named("a"), with("b")]), "c; a; b"),
        (
            Platform::OpenShift,
            json!([one_of, named("c")]),
            "the MachineConfigPool \"c\" selected by at least two node groups",
        ),
        (
            Platform::OpenShift,
            json!([named("d"), with("e")]),
            "failed to find MachineConfigPool for the node group 0: \"d\"\nfailed to find MachineConfigPool for the node group 1: \"name=e\"",
        ),
        (Platform::HyperShift, json!([named("z"), named("a")]), "z; a"),
        (Platform::Kubernetes, json!([{ "poolName": "z", "nodeSelector": role("z") }, named("a")]), "z; a"),
    ] {
        let cluster = cluster(platform, &[("c", role("c")), ("a", role("a")), ("b", role("b"))]);
        assert_eq!(show(&cluster, &groups), wanted, "{platform} {groups}");
    }
}

/// The pool of a node with these labels.
fn pool_of(cluster: &ClusterState, groups: &Value, labels: &[(&str, &str)]) -> Option<String> {
    let operator = operator(groups);
    let groups = Groups::new(cluster, &operator).unwrap();
    let label = |key: &str| labels.iter().find(|(other, _)| *other == key).map(|(_, value)| *value);
    groups.pool_of(label).map(|pool| pool.name.to_owned())
}

/// B-22: as the Machine Config Operator has it.
#[test]
fn b22_a_node_is_in_one_pool() {
    let pools = [
        ("worker", role("worker")),
        ("infra", role("infra")),
        ("cnf", role("cnf")),
        ("master", role("master")),
        ("empty", json!({})),
    ];
    let cluster = cluster(Platform::OpenShift, &pools);
    let all = json!([named("worker"), named("infra"), named("cnf"), named("master")]);
    for (groups, roles, wanted) in [
        (&all, &["worker"][..], Some("worker")),
        (&all, &["worker", "infra"], Some("infra")),
        (&all, &["worker", "master"], Some("master")),
        (&all, &["worker", "infra", "master"], Some("master")),
        (&all, &["infra", "cnf"], Some("infra")),
        (&all, &[], None),
        // Pools that no group names count all the same.
        (&json!([named("worker")]), &["worker", "infra"], None),
        (&json!([named("worker")]), &["worker", "master"], None),
        (&json!([named("cnf")]), &["cnf", "master"], None),
        (&json!([named("cnf"), named("infra")]), &["infra", "cnf"], Some("cnf")),
    ] {
        let roles: Vec<String> = roles.iter().map(|name| format!("role/{name}")).collect();
        let labels: Vec<(&str, &str)> = roles.iter().map(|role| (role.as_str(), "")).collect();
        assert_eq!(pool_of(&cluster, groups, &labels).as_deref(), wanted, "{groups} {roles:?}");
    }
}

/// On Kubernetes the first group that selects a node has it; on HyperShift a node says itself where it belongs.
#[test]
fn nodes_of_groups_without_machine_config_pools() {
    let plain = cluster(Platform::Kubernetes, &[]);
    let groups = json!([
        { "poolName": "a", "nodeSelector": { "matchLabels": { "x": "1", "y": "1" } } },
        { "poolName": "b", "nodeSelector": { "matchLabels": { "x": "1" } } },
        named("rest"),
    ]);
    for (labels, wanted) in [
        (&[("x", "1"), ("y", "1")][..], "a"),
        (&[("x", "1"), ("y", "2")], "b"),
        (&[("x", "1")], "b"),
        (&[("y", "1")], "rest"),
        (&[], "rest"),
    ] {
        assert_eq!(pool_of(&plain, &groups, labels).as_deref(), Some(wanted), "{labels:?}");
    }
    let hosted = cluster(Platform::HyperShift, &[]);
    let groups = json!([named("a"), named("b")]);
    let label = "hypershift.openshift.io/nodePool";
    assert_eq!(pool_of(&hosted, &groups, &[(label, "b")]).as_deref(), Some("b"));
    assert_eq!(pool_of(&hosted, &groups, &[(label, "c")]), None);
}

#[test]
fn pools_that_cannot_be_told_apart_are_refused() {
    let many: BTreeMap<String, &str> = (0..9).map(|index| (format!("l{index}"), "")).collect();
    let pools: Vec<(String, Value)> = (0..3)
        .map(|index| {
            let mut many = many.clone();
            many.insert(format!("own-{index}"), "");
            (format!("p{index}"), json!({ "matchLabels": many }))
        })
        .collect();
    let mut pools: Vec<(&str, Value)> =
        pools.iter().map(|(name, pool)| (name.as_str(), pool.clone())).collect();
    pools.push(("worker", role("worker")));
    let cluster = cluster(Platform::OpenShift, &pools);
    let operator = operator(&json!([named("worker")]));
    let groups = Groups::new(&cluster, &operator).unwrap();
    let (_, pool) = groups.pools().next().unwrap();
    let error = pool.nodes.as_ref().unwrap_err();
    assert!(error.starts_with("its nodes cannot be told from those of other pools"), "{error}");
}

/// What the Machine Config Operator does, in the order of its own code: the pools that select the node; then who wins.
fn its_pool<'a>(
    cluster: &'a ClusterState,
    managed: &[&'a str],
    label: &dyn Fn(&str) -> Option<&'static str>,
) -> Option<&'a str> {
    let selects = |pool: &MachineConfigPool| {
        let selector = pool.node_selector.as_ref().unwrap();
        let labels = selector.match_labels.iter().flatten().all(|(key, value)| label(key) == Some(value));
        let expressions = selector.match_expressions.iter().flatten().all(|one| {
            let listed = one.values.iter().flatten().any(|value| label(&one.key) == Some(value));
            match one.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => label(&one.key).is_some(),
                _ => label(&one.key).is_none(),
            }
        });
        *selector != LabelSelector::default() && labels && expressions
    };
    let there: Vec<&str> =
        cluster.pools.iter().filter(|(_, pool)| selects(pool)).map(|(name, _)| name.as_str()).collect();
    if there.contains(&"master") {
        return Some("master");
    }
    let custom: Vec<&str> = there.iter().copied().filter(|name| *name != "worker").collect();
    match custom[..] {
        [] => there.first().copied(),
        [only] => Some(only),
        // It refuses these; the first group has it.
        _ => managed.iter().find(|name| custom.contains(name)).copied(),
    }
}

const KEYS: [&str; 3] = ["a", "b", "c"];
const VALUES: [&str; 2] = ["1", "2"];

/// A selector of one or two requirements.
fn any_selector() -> impl Strategy<Value = Value> {
    let requirement = (0..KEYS.len(), 0..5_usize, 0..VALUES.len());
    prop::collection::vec(requirement, 0..3).prop_map(|all| {
        let mut labels = BTreeMap::new();
        let mut expressions = Vec::new();
        for (key, operator, value) in all {
            let (key, value) = (KEYS[key], VALUES[value]);
            match operator {
                0 => drop(labels.insert(key, value)),
                1 => expressions.push(json!({ "key": key, "operator": "In", "values": [value] })),
                2 => expressions.push(json!({ "key": key, "operator": "NotIn", "values": [value] })),
                3 => expressions.push(json!({ "key": key, "operator": "Exists" })),
                _ => expressions.push(json!({ "key": key, "operator": "DoesNotExist" })),
            }
        }
        let mut selector = json!({});
        if !labels.is_empty() {
            selector["matchLabels"] = json!(labels);
        }
        if !expressions.is_empty() {
            selector["matchExpressions"] = json!(expressions);
        }
        selector
    })
}

/// What kube-scheduler and the DaemonSet controller make of a requirement.
fn allows(one: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let listed = value.is_some_and(|value| one.values.iter().flatten().any(|other| other == value));
    match one.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        other => panic!("{other}"),
    }
}

proptest! {
    /// For all selectors: a node is in the Machine Config Operator's pool, and pods of a pool may run on its nodes
    /// only.
    #[test]
    fn pods_run_on_the_nodes_of_their_pool(
        selectors in prop::collection::vec(any_selector(), 4),
        labels in prop::collection::vec(prop::option::of(0..VALUES.len()), KEYS.len()),
        without in prop::option::of(0..4_usize),
    ) {
        let names = ["cnf", "infra", "master", "worker"];
        let pools: Vec<(&str, Value)> = names.into_iter().zip(selectors).collect();
        let cluster = cluster(Platform::OpenShift, &pools);
        let managed: Vec<&str> =
            names.into_iter().enumerate().filter(|(index, _)| Some(*index) != without).map(|(_, name)| name).collect();
        let operator = operator(&managed.iter().copied().map(named).collect());
        let groups = Groups::new(&cluster, &operator).unwrap();
        let node = Node {
            labels: KEYS.iter().zip(&labels)
                .filter_map(|(key, value)| Some((Arc::from(*key), Arc::from(VALUES[(*value)?])))).collect(),
            ..Node::default()
        };
        let label = |key: &str| node.labels.get(key).map(AsRef::as_ref);
        let fixed = |key: &str| -> Option<&'static str> {
            VALUES.into_iter().find(|value| label(key) == Some(*value))
        };
        let expected = its_pool(&cluster, &managed, &fixed).filter(|name| managed.contains(name));
        prop_assert_eq!(groups.pool_of(label).map(|pool| pool.name), expected);
        for (_, pool) in groups.pools() {
            let Ok(choice) = &pool.nodes else { continue };
            let pod = choice.labels.iter().all(|(key, value)| label(key) == Some(value))
                && choice.terms().iter().any(|term| {
                    let all = term.match_expressions.as_ref().unwrap();
                    !all.is_empty() && all.iter().all(|one| allows(one, label(&one.key)))
                });
            prop_assert_eq!(pod, expected == Some(pool.name), "{:?}", choice);
        }
    }
}
