//! Lines of the list of what the Go operator does (docs/parity-operator.md) are tests with their numbers, `k001` and
//! on. Where it looks again after a while, this one is woken by what it waits for; what it would then find is what is
//! tested.

use std::collections::BTreeMap;

use deployer::platform::Platform;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::cluster_state::{Environment, Image, MachineConfigPool};
use crate::desired::{DesiredObject, Treatment};

fn cluster(platform: Platform) -> ClusterState {
    let image = Image { name: "example.com/tholepin:1".to_owned(), pull_policy: String::new() };
    let mut cluster = ClusterState::new(Environment {
        platform,
        version: None,
        namespace: "numaresources".to_owned(),
        own: image.clone(),
        image,
        exporter_image_restricted: true,
        trusted_schedulers: None,
        forward_pool_conditions: false,
        api_server_ports: vec![6443],
        kubelet: None,
        api_server_cidrs: Vec::new(),
        kubelet_root_mount: false,
        only_own_scheduler: false,
    });
    if platform == Platform::OpenShift {
        for name in ["infra", "worker"] {
            let role = format!("node-role.kubernetes.io/{name}");
            let pool = MachineConfigPool {
                labels: BTreeMap::from([
                    ("pool".to_owned(), name.to_owned()),
                    ("all".to_owned(), "yes".to_owned()),
                ]),
                node_selector: serde_json::from_value(json!({"matchLabels": {role: ""}})).unwrap(),
                ..MachineConfigPool::default()
            };
            cluster.pools.insert(name.to_owned(), pool);
        }
    }
    cluster
}

/// A NUMAResourcesOperator with groups of these names.
fn ask(cluster: &mut ClusterState, names: &[&str], more: &Value) {
    let group = |name: &&str| match cluster.environment.platform {
        Platform::Kubernetes => json!({"poolName": name, "nodeSelector": {"matchLabels": {"pool": name}}}),
        _ => json!({"poolName": name}),
    };
    let mut spec = json!({"nodeGroups": names.iter().map(group).collect::<Vec<_>>()});
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let object = json!({"metadata": {"name": OPERATOR, "uid": "u-1"}, "spec": spec});
    cluster.operators.insert(OPERATOR.to_owned(), serde_json::from_value(object).unwrap());
}

/// An OpenShift KubeletConfig for pools with a label.
fn kubelet_config(
    cluster: &mut ClusterState,
    name: &str,
    label: (&str, &str),
    suffix: Option<&str>,
    payload: Value,
) {
    let annotations =
        suffix.map(|suffix| json!({"machineconfiguration.openshift.io/mc-name-suffix": suffix}));
    let object = json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"machineConfigPoolSelector": {"matchLabels": {label.0: label.1}}, "kubeletConfig": payload},
    });
    cluster.kubelet_configs.insert(name.to_owned(), payload::kubelet_config(&object));
}

/// A HyperShift ConfigMap.
fn node_pool_config(cluster: &mut ClusterState, name: &str, pool: &str, payload: &str) {
    let head =
        "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nspec:\n  kubeletConfig:\n";
    let map = json!({
        "metadata": { "labels": { "hypershift.openshift.io/nodePool": pool } },
        "data": { "config": format!("{head}    {payload}\n") },
    });
    cluster.node_pool_configs.insert(name.to_owned(), payload::node_pool_config(&map));
}

/// A node, and what its kubelet answered: policy and scope, or not.
type Answer<'a> = (&'a str, Result<(&'a str, &'a str), &'a str>);

/// What kubelets of a pool answered.
fn answers(cluster: &mut ClusterState, pool: &str, answers: &[Answer<'_>]) {
    let answer = |(node, answer): &Answer<'_>| {
        let answer = answer.map_err(str::to_owned).map(|(policy, scope)| KubeletSettings {
            policy: Some(policy.to_owned()),
            scope: Some(scope.to_owned()),
        });
        ((*node).to_owned(), answer)
    };
    let answers = answers.iter().map(answer).collect();
    cluster.kubelets.insert(pool.to_owned(), answers);
}

/// A ConfigMap that is there.
fn there(cluster: &mut ClusterState, name: &str, key: &str, text: &str) {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "numaresources"}, "data": {key: text},
    });
    let object = Object::from_value(objects::ObjectKind::of::<ConfigMap>(), map.clone()).unwrap();
    cluster.observed.insert(object.key().clone(), map);
}

/// The ConfigMaps, by name.
fn maps(cluster: &ClusterState) -> BTreeMap<String, String> {
    let Desired::Objects(objects) = desired(cluster) else { panic!("{:?}", desired(cluster)) };
    let text = |wanted: &DesiredObject| {
        let body = wanted.object.body();
        assert_eq!(body["data"].as_object().unwrap().len(), 1);
        (wanted.object.name().to_owned(), body["data"][KEY].as_str().unwrap().to_owned())
    };
    objects.iter().map(text).collect()
}

fn worker(text: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("numaresourcesoperator-worker".to_owned(), text.to_owned())])
}

/// What is warned of: the reason and a part of the message.
#[track_caller]
fn warns(cluster: &ClusterState, wants: &[(&str, &str)]) {
    let warnings = warnings(cluster);
    let told = |(warning, (reason, part)): (&Warning, &(&str, &str))| {
        warning.reason == *reason && warning.message.contains(part) && !warning.message.contains('\n')
    };
    assert!(warnings.len() == wants.len() && warnings.iter().zip(wants).all(told), "{warnings:?}");
}

const NUMA: &str = "kubelet:\n  topologyManagerPolicy: single-numa-node\n";

fn numa() -> Value {
    json!({"topologyManagerPolicy": "single-numa-node"})
}

#[test]
fn k001_without_a_request_there_are_no_config_maps() {
    let mut cluster = cluster(Platform::OpenShift);
    kubelet_config(&mut cluster, "kc", ("pool", "worker"), Some(""), numa());
    assert_eq!(desired(&cluster), Desired::Nothing);
    assert_eq!(config(&cluster, "worker"), None);
    warns(&cluster, &[]);
    ask(&mut cluster, &["worker"], &json!({}));
    assert_eq!(maps(&cluster), worker(NUMA));
}

#[test]
fn k002_k003_each_pool_has_its_config_map_with_labels_and_owner() {
    let mut open = cluster(Platform::OpenShift);
    kubelet_config(&mut open, "kc", ("pool", "worker"), Some(""), numa());
    let mut hyper = cluster(Platform::HyperShift);
    node_pool_config(&mut hyper, "kc", "worker", "topologyManagerPolicy: single-numa-node");
    let mut vanilla = cluster(Platform::Kubernetes);
    answers(&mut vanilla, "worker", &[("n", Ok(("single-numa-node", "container")))]);
    for mut cluster in [open, hyper, vanilla] {
        ask(&mut cluster, &["worker"], &json!({}));
        let Desired::Objects(objects) = desired(&cluster) else { panic!() };
        let [wanted] = objects.as_slice() else { panic!("{objects:?}") };
        let metadata = &wanted.object.body()["metadata"];
        assert_eq!(wanted.treatment, Treatment::Own);
        assert_eq!(metadata["name"], "numaresourcesoperator-worker");
        assert_eq!(metadata["namespace"], "numaresources");
        assert_eq!(metadata["labels"]["numaresourcesoperator.nodetopology.openshift.io/name"], OPERATOR);
        assert_eq!(metadata["labels"]["nodegroup.nodetopology.openshift.io/machineconfigpool"], "worker");
        assert_eq!(metadata["ownerReferences"][0]["uid"], "u-1");
        assert_eq!(metadata["ownerReferences"][0]["kind"], "NUMAResourcesOperator");
        warns(&cluster, &[]);
    }
}

/// The Go operator returns an error and tries again; the ConfigMap stays either way.
#[test]
fn k004_unreadable_settings_change_nothing_and_are_reported() {
    let mut cluster = cluster(Platform::OpenShift);
    ask(&mut cluster, &["worker"], &json!({}));
    kubelet_config(&mut cluster, "kc", ("pool", "worker"), Some(""), json!("odd"));
    assert_eq!(maps(&cluster), BTreeMap::new());
    there(&mut cluster, "numaresourcesoperator-worker", KEY, NUMA);
    assert_eq!(maps(&cluster), worker(NUMA));
    warns(&cluster, &[("InvalidKubeletConfig", "KubeletConfig \"kc\": spec.kubeletConfig")]);

    let mut cluster = self::cluster(Platform::HyperShift);
    ask(&mut cluster, &["worker"], &json!({}));
    node_pool_config(&mut cluster, "kc", "worker", "[");
    there(&mut cluster, "numaresourcesoperator-worker", KEY, NUMA);
    assert_eq!(maps(&cluster), worker(NUMA));
    warns(&cluster, &[("InvalidKubeletConfig", "ConfigMap \"kc\": config: ")]);
}

#[test]
fn k005_k006_k007_configs_without_payload_or_for_other_pools_say_nothing() {
    let mut cluster = cluster(Platform::OpenShift);
    ask(&mut cluster, &["worker"], &json!({}));
    kubelet_config(&mut cluster, "autosizing", ("pool", "worker"), Some("2"), Value::Null);
    assert_eq!(maps(&cluster), BTreeMap::new());
    warns(&cluster, &[("NoKubeletConfig", "pool \"worker\": no KubeletConfig")]);
    kubelet_config(&mut cluster, "match", ("pool", "worker"), Some(""), numa());
    assert_eq!(maps(&cluster), worker(NUMA));
    kubelet_config(
        &mut cluster,
        "other",
        ("pool", "master"),
        Some("1"),
        json!({"topologyManagerPolicy": "none"}),
    );
    kubelet_config(
        &mut cluster,
        "unmanaged",
        ("pool", "infra"),
        Some("3"),
        json!({"topologyManagerPolicy": "none"}),
    );
    assert_eq!(maps(&cluster), worker(NUMA));
    warns(&cluster, &[]);
}

/// A selector that is not there selects nothing; an empty one everything, as in the Machine Config Operator.
#[test]
fn k009_pools_are_found_by_their_labels_all_of_them() {
    let mut cluster = cluster(Platform::OpenShift);
    ask(&mut cluster, &["worker", "infra"], &json!({}));
    kubelet_config(&mut cluster, "kc", ("all", "yes"), Some(""), numa());
    let names: Vec<String> = maps(&cluster).into_keys().collect();
    assert_eq!(names, ["numaresourcesoperator-infra", "numaresourcesoperator-worker"]);
    kubelet_config(&mut cluster, "kc", ("all", "no"), Some(""), numa());
    assert_eq!(maps(&cluster), BTreeMap::new());
    let config = cluster.kubelet_configs.get_mut("kc").unwrap();
    config.pool_selector = None;
    assert_eq!(maps(&cluster), BTreeMap::new());
    cluster.kubelet_configs.get_mut("kc").unwrap().pool_selector = Some(Default::default());
    assert_eq!(maps(&cluster).len(), 2);
}

/// The exporters' controller reports pools without nodes; the configuration does not depend on nodes.
#[test]
fn k010_a_pool_without_node_selector_has_its_configuration() {
    let mut cluster = cluster(Platform::OpenShift);
    ask(&mut cluster, &["worker"], &json!({}));
    kubelet_config(&mut cluster, "kc", ("pool", "worker"), Some(""), numa());
    cluster.pools.get_mut("worker").unwrap().node_selector = None;
    assert_eq!(maps(&cluster), worker(NUMA));
}

/// K011 as far as it is about writing; the exporter's `dialect` reads.
#[test]
fn k011_the_file_has_the_go_operators_keys_in_their_order() {
    let excludes = json!({"podExcludes": [
        {"namespace": "kube-*", "name": "*"}, {"namespace": "a", "name": "yes"}, {"name": "1e3"},
    ]});
    let listed = "podExclude:\n- namePattern: \"*\"\n  namespacePattern: kube-*\n- namePattern: \"yes\"\n  namespacePattern: a\n\
                  - namePattern: \"1e3\"\n  namespacePattern: \"\"\n";
    let table = [
        (json!({}), json!({}), "kubelet: {}\n".to_owned()),
        (numa(), json!({}), NUMA.to_owned()),
        (
            json!({"topologyManagerScope": "pod", "topologyManagerPolicy": "restricted", "maxPods": 9}),
            json!({}),
            "kubelet:\n  topologyManagerPolicy: restricted\n  topologyManagerScope: pod\n".to_owned(),
        ),
        (numa(), excludes.clone(), format!("{NUMA}{listed}")),
        // The kubelets have their defaults, and the file must not read as if nothing were known of them.
        (Value::Null, excludes, format!("kubelet: {{}}\n{listed}")),
    ];
    for (payload, more, text) in table {
        let mut cluster = cluster(Platform::OpenShift);
        ask(&mut cluster, &["worker"], &more);
        kubelet_config(&mut cluster, "kc", ("pool", "worker"), Some(""), payload);
        assert_eq!(maps(&cluster), worker(&text));
        assert_eq!(config(&cluster, "worker"), Some(text));
    }
}

/// B-08: as the Machine Config Operator has it, whose MachineConfigs count in the order of their names.
#[test]
fn b08_of_several_configs_the_one_the_machine_config_operator_takes_counts() {
    let policy = |policy: &str| json!({"topologyManagerPolicy": policy});
    // suffixes of "a", "b" and "c", which counts
    let table = [
        ([Some(""), Some("1"), Some("2")], "c"),
        ([Some("2"), Some("1"), Some("")], "a"),
        ([Some("1"), Some("9"), Some("2")], "b"),
        ([Some("1"), None, Some("2")], "b"),
        ([None, None, None], "c"),
    ];
    for (suffixes, wins) in table {
        let mut cluster = cluster(Platform::OpenShift);
        ask(&mut cluster, &["worker"], &json!({}));
        for (name, suffix) in ["a", "b", "c"].into_iter().zip(suffixes) {
            kubelet_config(&mut cluster, name, ("pool", "worker"), suffix, policy(name));
        }
        assert_eq!(
            maps(&cluster),
            worker(&format!("kubelet:\n  topologyManagerPolicy: {wins}\n")),
            "{suffixes:?}"
        );
        let message = &warnings(&cluster)[0].message;
        assert!(
            message.contains("3 KubeletConfigs are for it") && message.ends_with(&format!("{wins:?} counts"))
        );
    }
    let mut cluster = cluster(Platform::HyperShift);
    ask(&mut cluster, &["worker"], &json!({}));
    node_pool_config(&mut cluster, "b", "worker", "topologyManagerPolicy: single-numa-node");
    node_pool_config(&mut cluster, "a", "worker", "topologyManagerPolicy: none");
    assert_eq!(maps(&cluster), worker(NUMA));
    warns(&cluster, &[("ConflictingKubeletConfigs", "2 ConfigMaps are for it: \"a\", \"b\"; \"b\" counts")]);
}

/// B-08, B-09: what is no longer asked for goes, whatever was heard of it.
#[test]
fn b08_b09_pools_without_a_group_have_no_config_map() {
    let mut cluster = cluster(Platform::HyperShift);
    node_pool_config(&mut cluster, "kc", "worker", "topologyManagerPolicy: single-numa-node");
    node_pool_config(&mut cluster, "kc2", "other", "topologyManagerPolicy: none");
    node_pool_config(&mut cluster, "kc3", "", "topologyManagerPolicy: none");
    ask(&mut cluster, &["worker"], &json!({}));
    assert_eq!(maps(&cluster), worker(NUMA));
    warns(
        &cluster,
        &[("NodePoolUnknown", "ConfigMap \"kc3\" has no label hypershift.openshift.io/nodePool")],
    );
    ask(&mut cluster, &[], &json!({}));
    assert_eq!(maps(&cluster), BTreeMap::new());
}

#[test]
fn equal_answers_of_kubelets_are_used() {
    let both = "kubelet:\n  topologyManagerPolicy: restricted\n  topologyManagerScope: pod\n";
    let restricted = Ok(("restricted", "pod"));
    let table = [
        (vec![("a", restricted), ("b", restricted)], Some(both), None),
        (vec![("a", restricted), ("b", Err("timed out"))], Some(both), None),
        (
            vec![("a", restricted), ("b", Ok(("none", "container")))],
            None,
            Some(("KubeletsDiffer", "(a restricted/pod, b none/container)")),
        ),
        (vec![("a", Err("refused"))], None, Some(("KubeletsSilent", "(a: refused)"))),
        (vec![], None, None),
    ];
    for (said, text, warning) in table {
        let mut cluster = cluster(Platform::Kubernetes);
        ask(&mut cluster, &["worker"], &json!({}));
        assert!(source::pool_settings(&cluster, "worker").pending);
        answers(&mut cluster, "worker", &said);
        assert!(!source::pool_settings(&cluster, "worker").pending);
        assert_eq!(config(&cluster, "worker").as_deref(), text, "{said:?}");
        warns(&cluster, &Vec::from_iter(warning));
    }
}

/// Else a kubelet that is restarted, or an operator that is, would replace all exporters twice.
#[test]
fn silent_kubelets_change_nothing() {
    let mut cluster = cluster(Platform::Kubernetes);
    ask(&mut cluster, &["worker"], &json!({"podExcludes": [{"namespace": "a", "name": "b"}]}));
    let excludes = "podExclude:\n- namePattern: b\n  namespacePattern: a\n";
    there(&mut cluster, "numaresourcesoperator-worker", KEY, NUMA);
    assert!(!source::pool_settings(&cluster, "worker").pending);
    assert_eq!(maps(&cluster), worker(&format!("{NUMA}{excludes}")), "not asked yet");
    answers(&mut cluster, "worker", &[("a", Err("refused"))]);
    assert_eq!(maps(&cluster), worker(&format!("{NUMA}{excludes}")), "no answer");
    for odd in ["", "kubelet: 1", "[", "kubelet:\n  topologyManagerPolicy: 1\n"] {
        there(&mut cluster, "numaresourcesoperator-worker", KEY, odd);
        assert!(maps(&cluster)["numaresourcesoperator-worker"].ends_with(excludes), "{odd:?}");
    }
    answers(&mut cluster, "worker", &[("a", Ok(("none", "container")))]);
    assert!(maps(&cluster)["numaresourcesoperator-worker"].contains("topologyManagerPolicy: none"));
}

#[test]
fn a_users_config_map_comes_before_kubelets() {
    let mut cluster = cluster(Platform::Kubernetes);
    let group = json!([{"poolName": "worker", "nodeSelector": {}, "kubeletConfigMap": "mine"}]);
    ask(&mut cluster, &[], &json!({"nodeGroups": group}));
    answers(&mut cluster, "worker", &[("a", Ok(("none", "container")))]);
    assert_eq!(maps(&cluster), BTreeMap::new());
    assert!(!source::pool_settings(&cluster, "worker").pending);
    warns(
        &cluster,
        &[("InvalidKubeletConfig", "ConfigMap \"mine\": it is not in namespace \"numaresources\"")],
    );
    there(
        &mut cluster,
        "mine",
        "kubelet",
        "topologyManagerPolicy: single-numa-node\ntopologyManagerScope: pod\n",
    );
    assert_eq!(maps(&cluster), worker(&format!("{NUMA}  topologyManagerScope: pod\n")));
    warns(&cluster, &[]);
    there(&mut cluster, "numaresourcesoperator-worker", KEY, NUMA);
    there(&mut cluster, "mine", "kubelet", "topologyManagerPolicy: odd\n");
    assert_eq!(maps(&cluster), worker(NUMA));
    warns(&cluster, &[("InvalidKubeletConfig", "topologyManagerPolicy is \"odd\"")]);
}

#[test]
fn paused_deleted_or_invalid_requests_change_nothing() {
    let mut cluster = cluster(Platform::OpenShift);
    kubelet_config(&mut cluster, "kc", ("pool", "worker"), Some(""), numa());
    ask(&mut cluster, &["worker", "nowhere"], &json!({}));
    assert_eq!(desired(&cluster), Desired::Keep);
    ask(&mut cluster, &["worker"], &json!({}));
    let metadata = |cluster: &mut ClusterState, metadata: Value| {
        cluster.operators.get_mut(OPERATOR).unwrap().metadata = serde_json::from_value(metadata).unwrap();
    };
    let pause = "config.numa-operator.openshift.io/pause-reconciliation";
    metadata(&mut cluster, json!({"annotations": {pause: "enabled"}}));
    assert_eq!(desired(&cluster), Desired::Keep);
    metadata(&mut cluster, json!({"annotations": {pause: "Enabled"}}));
    assert_eq!(maps(&cluster), worker(NUMA));
    metadata(&mut cluster, json!({"deletionTimestamp": "2026-01-02T03:04:05Z"}));
    assert_eq!(desired(&cluster), Desired::Keep);
}

/// B-35.
#[test]
fn b35_exclusions_of_no_pod_are_reported() {
    let mut cluster = cluster(Platform::OpenShift);
    let excludes = json!([
        {"namespace": "*", "name": "a[0-9]"}, {"namespace": "[", "name": "a"}, {"name": "a"}, {"namespace": "a\\", "name": "[]"},
    ]);
    ask(&mut cluster, &[], &json!({"podExcludes": excludes}));
    warns(
        &cluster,
        &[
            ("InvalidPodExclude", "spec.podExcludes[1] excludes no pod: namespace \"[\" is no shell pattern"),
            ("InvalidPodExclude", "spec.podExcludes[2] excludes no pod: namespace is empty"),
            ("InvalidPodExclude", "namespace \"a\\\\\" is no shell pattern, name \"[]\" is no shell pattern"),
        ],
    );
}

/// E39: a newer kubelet may know it.
#[test]
fn unknown_values_are_passed_on_and_reported() {
    let mut cluster = cluster(Platform::OpenShift);
    ask(&mut cluster, &["worker"], &json!({}));
    kubelet_config(&mut cluster, "kc", ("pool", "worker"), Some(""), json!({"topologyManagerPolicy": "odd"}));
    assert_eq!(maps(&cluster), worker("kubelet:\n  topologyManagerPolicy: odd\n"));
    warns(&cluster, &[("UnknownTopologyManagerSetting", "topologyManagerPolicy \"odd\" is not known")]);
}

proptest! {
    /// What is written is what is remembered, so that not being answered changes nothing.
    #[test]
    fn what_is_written_is_remembered(policy in ".{0,12}", scope in ".{0,12}", name in ".{1,12}") {
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        let settings = KubeletSettings { policy: some(policy), scope: some(scope) };
        let exclude = PodExclude { namespace: name.clone(), name };
        let text = text(Some(&settings), &[exclude]).unwrap();
        let mut cluster = cluster(Platform::Kubernetes);
        ask(&mut cluster, &["worker"], &json!({}));
        there(&mut cluster, "numaresourcesoperator-worker", KEY, &text);
        prop_assert_eq!(source::pool_settings(&cluster, "worker").settings, Some(settings));
    }
}
