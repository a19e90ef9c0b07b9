//! What is wrong with what is asked for.

use super::*;

struct Row {
    name: &'static str,
    platform: Platform,
    spec: Value,
    reason: &'static str,
    /// What the message says.
    message: &'static str,
}

fn invalid(name: &'static str, platform: Platform, groups: Value, message: &'static str) -> Row {
    Row { name, platform, spec: json!({ "nodeGroups": groups }), reason: INVALID_GROUPS, message }
}

fn rows() -> Vec<Row> {
    use Platform::{HyperShift, Kubernetes, OpenShift};
    let named = |name: &str| json!({ "poolName": name });
    let selecting = |pool: &str| {
        let key = format!("pools.example.com/{pool}");
        json!({ "machineConfigPoolSelector": { "matchLabels": { key: "" } } })
    };
    let both = json!({ "poolName": "worker", "machineConfigPoolSelector": {} });
    let operators = |operator: &str| {
        let expression = json!({ "key": "a", "operator": operator, "values": ["b"] });
        json!([{ "machineConfigPoolSelector": { "matchExpressions": [expression] } }])
    };
    let annotated = |count: usize| {
        let annotations: BTreeMap<_, _> = (0..count).map(|index| (format!("a{index}"), "x")).collect();
        json!([{ "poolName": "worker", "annotations": annotations }])
    };
    let tolerating =
        |toleration: &Value| json!([{ "poolName": "worker", "config": { "tolerations": [toleration] } }]);
    let period = json!([{ "poolName": "worker", "config": { "infoRefreshPeriod": "-1s" } }]);
    let selecting_nodes = json!([{ "poolName": "worker", "nodeSelector": {} }]);
    let mut rows = vec![
        invalid("N004 U002", OpenShift, json!([both]), "node group 0 must have only a single specifier set"),
        invalid(
            "N016",
            OpenShift,
            json!([named("infra"), both]),
            "node group 1 must have only a single specifier set",
        ),
        invalid("U002 operator", OpenShift, operators("in"), "\"in\" is not a valid label selector operator"),
        invalid(
            "U002 duplicates by selector",
            OpenShift,
            json!([selecting("worker"), selecting("worker")]),
            "the machineConfigPoolSelector \"pools.example.com/worker=\" has duplicates",
        ),
        invalid(
            "U002 HyperShift",
            HyperShift,
            json!([selecting("worker")]),
            "node group 0 specifies MachineConfigPoolSelector on Hypershift platform",
        ),
        invalid(
            "U002 Kubernetes",
            Kubernetes,
            json!([selecting("worker")]),
            "MachineConfigPoolSelector on Kubernetes platform",
        ),
        invalid(
            "nodeSelector",
            OpenShift,
            selecting_nodes.clone(),
            "node group 0 specifies nodeSelector on OpenShift platform",
        ),
        invalid(
            "nodeSelector",
            HyperShift,
            selecting_nodes,
            "node group 0 specifies nodeSelector on HyperShift platform",
        ),
        invalid(
            "kubeletConfigMap",
            OpenShift,
            json!([{ "poolName": "worker", "kubeletConfigMap": "x" }]),
            "node group 0 specifies kubeletConfigMap on OpenShift platform",
        ),
        invalid(
            "N039",
            OpenShift,
            json!([selecting("nobody")]),
            "failed to find MachineConfigPool for the node group 0: \"pools.example.com/nobody=\"",
        ),
        invalid(
            "N040",
            OpenShift,
            json!([named("nobody")]),
            "failed to find MachineConfigPool for the node group 0: \"nobody\"",
        ),
        invalid(
            "N041",
            OpenShift,
            json!([selecting("nobody"), named("worker")]),
            "failed to find MachineConfigPool for the node group 0",
        ),
        invalid(
            "N041 E19",
            OpenShift,
            json!([selecting("worker"), named("worker")]),
            "the MachineConfigPool \"worker\" selected by at least two node groups",
        ),
        invalid(
            "N042 U001",
            OpenShift,
            json!([selecting("worker"), { "machineConfigPoolSelector": { "matchExpressions": [{ "key": "pools.example.com/worker", "operator": "Exists" }] } }]),
            "the MachineConfigPool \"worker\" selected by at least two node groups",
        ),
        invalid(
            "every node",
            Kubernetes,
            json!([named("a"), named("b")]),
            "node group 0 selects every node, so there are none for the groups after it",
        ),
    ];
    for platform in PLATFORMS {
        let image = json!({ "imageSpec": "example.com/other:1", "nodeGroups": [] });
        rows.extend([
            invalid("N002 U002", platform, json!([{}]), "node group 0 missing any pool specifier"),
            invalid(
                "E21",
                platform,
                json!([{ "machineConfigPoolSelector": null }]),
                "node group 0 missing any pool specifier",
            ),
            invalid("N003 U002", platform, json!([named("")]), "pool name for pool #0 cannot be empty"),
            invalid(
                "N005 U002",
                platform,
                json!([named("worker"), named("worker")]),
                "the pool name \"worker\" has duplicates",
            ),
            invalid(
                "tolerations",
                platform,
                tolerating(&json!({ "key": "a", "operator": "foo", "value": "b" })),
                "FailedRTESync: node group 0: config.tolerations[0]: operator \"foo\" is not allowed; it must be one of \
                 Exists, Equal, Lt, Gt",
            ),
            invalid(
                "tolerations",
                platform,
                tolerating(&json!({ "key": "a", "operator": "Equal", "effect": "__foobar__" })),
                "FailedRTESync: node group 0: config.tolerations[0]: effect \"__foobar__\" is not allowed",
            ),
            invalid("N035", platform, annotated(9), "pool #0 has too many annotations 9 max 8"),
            invalid(
                "names",
                platform,
                json!([named("Worker")]),
                "pool name \"Worker\" for pool #0 is not allowed",
            ),
            invalid("period", platform, period.clone(), "node group 0: infoRefreshPeriod -1s is not allowed"),
            Row {
                name: "N006",
                platform,
                spec: image,
                reason: CUSTOM_IMAGE,
                message: "custom operand image is not supported: example.com/other:1",
            },
        ]);
    }
    rows
}

#[test]
fn invalid_requests_are_refused_and_change_nothing() {
    for Row { name, platform, spec, reason, message } in rows() {
        let name = format!("{name} {platform}");
        let mut cluster = cluster(platform);
        ask(&mut cluster, &spec);
        assert_eq!(desired(&cluster), Desired::Keep, "{name}");
        let status = told(&mut cluster, &Outcome::default());
        let holds = holding(&status);
        let wanted = format!("Degraded {reason} {message}");
        assert!(
            matches!(&holds[..], [only] if only.starts_with(&wanted) || only.contains(message)),
            "{name}: {holds:?}"
        );
        assert!(holds[0].starts_with(&format!("Degraded {reason} ")), "{name}: {holds:?}");
    }
}

/// N001: the API server refuses another name; the controller does where an old definition lets one pass.
#[test]
fn n001_only_one_name_is_accepted() {
    let mut cluster = cluster(Platform::OpenShift);
    ask(&mut cluster, &one_group(&json!({})));
    let mut other = cluster.operators.remove(OPERATOR).unwrap();
    other.metadata.name = Some("other".to_owned());
    cluster.operators.insert("other".to_owned(), other);
    assert_eq!(desired(&cluster), Desired::Nothing);
    let all = status(&cluster, &Outcome::default(), at(1));
    assert_eq!(all.len(), 1);
    let holds = holding(&all[0].1);
    assert!(
        holds[0].starts_with(&format!(
            "Degraded {INCORRECT_NAME} incorrect NUMAResourcesOperator resource name: other"
        )),
        "{holds:?}"
    );
}

/// One of each kind of mistake at a time, but every place where it was made.
#[test]
fn u002_all_places_of_a_mistake_are_named() {
    let mut cluster = cluster(Platform::OpenShift);
    ask(&mut cluster, &json!({ "nodeGroups": [{}, { "poolName": "" }, {}] }));
    let Case::Refused(state) = Case::of(&cluster) else { panic!("it is refused") };
    let message = "node group 0 missing any pool specifier\nnode group 2 missing any pool specifier";
    assert_eq!(state, State::degraded(INVALID_GROUPS, message));
}

#[test]
fn n034_eight_annotations_are_not_too_many() {
    for platform in PLATFORMS {
        let mut cluster = cluster(platform);
        let annotations: BTreeMap<_, _> = (0..8).map(|index| (format!("a{index}"), "x")).collect();
        ask(&mut cluster, &json!({ "nodeGroups": [{ "poolName": "worker", "annotations": annotations }] }));
        assert_eq!(holding(&round(&mut cluster)), WELL, "{platform}");
    }
}

/// N007: where a custom image is allowed, it is used as the Go exporter has to be.
#[test]
fn n007_a_custom_image_is_used_where_it_may() {
    for platform in PLATFORMS {
        let mut cluster = cluster(platform);
        cluster.environment.exporter_image_restricted = false;
        let mut spec = one_group(&json!({}));
        spec["imageSpec"] = json!("example.com/other:1");
        ask(&mut cluster, &spec);
        assert_eq!(holding(&round(&mut cluster)), WELL, "{platform}");
        let pod = pod(&set(&cluster, "worker"));
        let images: Vec<_> = pod.containers.iter().map(|container| container.image.as_deref()).collect();
        assert_eq!(images, [Some("example.com/other:1"); 2], "{platform}");
    }
}

/// N043, U003: the objects are made all the same, and what is wrong is said.
#[test]
fn n043_u003_several_pools_of_a_group_are_objected_to() {
    let selector =
        json!({ "matchExpressions": [{ "key": "pools.example.com/none", "operator": "DoesNotExist" }] });
    let spec = json!({ "nodeGroups": [{ "machineConfigPoolSelector": selector }] });
    let mut cluster = cluster(Platform::OpenShift);
    ask(&mut cluster, &spec);
    let holds = holding(&round(&mut cluster));
    let wanted = "Degraded ValidationErrorUnderNodeGroups found multiple pools matches for node group \"!pools.example.com/none\" but expected \
                  one: infra, worker";
    assert_eq!(holds, [wanted]);
    let made = names(&cluster);
    for name in [
        "CustomResourceDefinition noderesourcetopologies.topology.node.k8s.io",
        "DaemonSet numaresourcesoperator-infra",
        "DaemonSet numaresourcesoperator-worker",
    ] {
        assert!(made.iter().any(|one| one == name), "{name}: {made:?}");
    }
    assert!(!made.iter().any(|one| one.starts_with("MachineConfig")), "{made:?}");
    // U003, E20: not with the annotation.
    let key = "config.node.openshift-kni.io/multiple-pools-per-tree";
    for (value, allowed) in [("enabled", true), ("Enabled", false), ("", false)] {
        ask_with(&mut cluster, &[(key, value)], &spec);
        assert_eq!(holding(&round(&mut cluster)) == WELL, allowed, "{value}");
    }
}

#[test]
fn e01_an_empty_list_of_groups_is_valid() {
    for platform in PLATFORMS {
        let mut cluster = cluster(platform);
        ask(&mut cluster, &json!({}));
        let status = round(&mut cluster);
        assert_eq!(holding(&status), WELL, "{platform}");
        assert!(status.daemon_sets.is_empty() && status.node_groups.is_empty() && status.pools.is_empty());
        let names = names(&cluster);
        assert!(names.iter().any(|name| name == "ServiceAccount rte"), "{names:?}");
        assert!(!names.iter().any(|name| name.starts_with("DaemonSet")), "{names:?}");
    }
}

/// A pool without a node is told, whatever else is well.
#[test]
fn pools_without_nodes_are_told() {
    for (platform, label) in [
        (Platform::OpenShift, ("node-role.kubernetes.io/worker", "")),
        (Platform::HyperShift, ("hypershift.openshift.io/nodePool", "worker")),
        (Platform::Kubernetes, ("example.com/pool", "worker")),
    ] {
        let mut cluster = cluster(platform);
        let spec = groups(&["worker", "infra"], &json!({}));
        ask(&mut cluster, &if platform == Platform::Kubernetes { with_node_selectors(spec) } else { spec });
        let mut told = |labels: &[(&'static str, &'static str)]| {
            let labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
            cluster
                .nodes
                .insert("node".to_owned(), crate::cluster_state::Node { labels, ..Default::default() });
            let status = round(&mut cluster);
            assert_eq!(holding(&status), WELL, "{platform}");
            let found = status.conditions.iter().find(|condition| condition.type_ == POOL_EMPTY).unwrap();
            (found.status.clone(), found.message.clone())
        };
        let empty = |names: &str| {
            let message =
                format!("no node is in: {names}; check the groups' selectors and the nodes' labels");
            ("True".to_owned(), message)
        };
        assert_eq!(told(&[]), empty("infra, worker"), "{platform}");
        assert_eq!(told(&[label]), empty("infra"), "{platform}");
    }
}

/// A node that a group's pool selects is in `master` or a custom pool first. Without a group there it has no exporter,
/// which is told, with the first five of their names.
#[test]
fn nodes_of_pools_without_a_group_are_told() {
    const ROLE: &str = "node-role.kubernetes.io";
    let told = |pools: &[&str], nodes: &[(&str, &[&str])]| {
        let mut cluster = cluster(Platform::OpenShift);
        cluster.pools.insert("master".to_owned(), pool("master"));
        for (name, roles) in nodes {
            let label = |role: &&str| (format!("{ROLE}/{role}").into(), "".into());
            let labels = roles.iter().map(label).collect();
            let node = crate::cluster_state::Node { labels, ..Default::default() };
            cluster.nodes.insert((*name).to_owned(), node);
        }
        ask(&mut cluster, &groups(pools, &json!({})));
        let status = round(&mut cluster);
        assert_eq!(holding(&status), WELL, "{pools:?} {nodes:?}");
        let found = status.conditions.iter().find(|condition| condition.type_ == PASSED_OVER).unwrap();
        (found.status == "True").then(|| found.message.clone())
    };
    let both: &[&str] = &["master", "worker"];
    let message = |nodes: &str| {
        Some(format!(
            "no exporter runs on nodes of pools without a group: {nodes}; add a group for their pool"
        ))
    };
    let many = ["m0", "m1", "m2", "m3", "m4", "m5", "m6"].map(|name| (name, both));
    let five = ["m0", "m1", "m2", "m3", "m4"].map(|name| format!("{name} (in master, selected by worker)"));
    for (pools, nodes, wanted) in [
        (
            &["worker"][..],
            &[("m0", both), ("w0", &["worker"])][..],
            message("m0 (in master, selected by worker)"),
        ),
        (&["worker"], &[("i0", &["infra", "worker"])], message("i0 (in infra, selected by worker)")),
        (&["worker"], &many, message(&format!("{} and 2 more", five.join(", ")))),
        // The pool that has the node has a group, or no group selects it.
        (&["master", "worker"], &[("m0", both)], None),
        (&["worker", "infra"], &[("i0", &["infra", "worker"])], None),
        (&["worker"], &[("w0", &["worker"]), ("m0", &["master"]), ("n0", &[])], None),
    ] {
        assert_eq!(told(pools, nodes), wanted, "{pools:?} {nodes:?}");
    }
}
