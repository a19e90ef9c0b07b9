//! What is said after one round, and after the next one.

use api::goduration::GoDuration;
use api::numaresources::{InfoRefreshMode, NodeGroupConfig, Switch};

use super::*;

/// N008 to N013: two groups, from nothing to changed.
#[test]
fn n008_to_n013_two_groups() {
    for platform in PLATFORMS {
        let mut cluster = cluster(platform);
        let named = |config: &Value| {
            let spec = groups(&["worker", "infra"], config);
            if platform == Platform::Kubernetes { with_node_selectors(spec) } else { spec }
        };
        ask(&mut cluster, &named(&json!({})));
        let status = round(&mut cluster);
        assert_eq!(holding(&status), WELL, "N008 {platform}");
        let names = ["numaresourcesoperator-worker", "numaresourcesoperator-infra"];
        let sets: Vec<(&str, &str)> =
            status.daemon_sets.iter().map(|set| (set.namespace.as_str(), set.name.as_str())).collect();
        assert_eq!(sets, names.map(|name| (NAMESPACE, name)), "N009 {platform}");
        let defaults = NodeGroupConfig {
            pods_fingerprinting: Some(PodsFingerprinting::EnabledExclusiveResources),
            info_refresh_mode: Some(InfoRefreshMode::PeriodicAndEvents),
            info_refresh_period: Some(GoDuration(10_000_000_000)),
            info_refresh_pause: Some(Switch::Disabled),
            tolerations: Vec::new(),
        };
        check_groups(&status, platform, &defaults, "N011 N012");
        let changed = json!({
            "podsFingerprinting": "Enabled", "infoRefreshPeriod": "33s", "infoRefreshMode": "Periodic", "infoRefreshPause": "Enabled",
            "tolerations": [{ "key": "a", "operator": "Exists" }],
        });
        ask(&mut cluster, &named(&changed));
        let wanted: NodeGroupConfig = serde_json::from_value(changed).unwrap();
        check_groups(&round(&mut cluster), platform, &wanted, "N013 N021 N027 N029 N032");
        let disabled = json!({ "podsFingerprinting": "Disabled", "infoRefreshPeriod": "42s" });
        ask(&mut cluster, &named(&disabled));
        let wanted = serde_json::from_value::<NodeGroupConfig>(disabled).unwrap().normalized();
        check_groups(&round(&mut cluster), platform, &wanted, "N023 N024 N033");
    }
}

#[track_caller]
fn check_groups(status: &Status, platform: Platform, config: &NodeGroupConfig, name: &str) {
    let groups: Vec<(&str, &NodeGroupConfig)> =
        status.node_groups.iter().map(|group| (group.selector.as_str(), &group.config)).collect();
    assert_eq!(groups, [("worker", config), ("infra", config)], "{name} {platform}");
    let sets: Vec<_> = status.node_groups.iter().map(|group| group.daemon_set.clone()).collect();
    assert_eq!(sets, status.daemon_sets, "{name} {platform}");
    let pools: Vec<(&str, Option<&NodeGroupConfig>)> =
        status.pools.iter().map(|pool| (pool.name.as_str(), pool.config.as_ref())).collect();
    if platform == Platform::OpenShift {
        assert_eq!(pools, [("worker", Some(config)), ("infra", Some(config))], "{name}");
    } else {
        assert_eq!(pools, [], "{name} {platform}");
    }
}

/// N014, B-21: a removed group leaves nothing, neither objects nor words.
#[test]
fn n014_b21_a_removed_group() {
    for platform in [Platform::OpenShift, Platform::HyperShift] {
        let mut cluster = cluster(platform);
        ask(&mut cluster, &groups(&["worker", "infra"], &json!({})));
        round(&mut cluster);
        ask(&mut cluster, &groups(&["infra"], &json!({})));
        let sets = |cluster: &ClusterState| -> Vec<String> {
            names(cluster).into_iter().filter(|name| name.starts_with("DaemonSet")).collect()
        };
        assert_eq!(sets(&cluster), ["DaemonSet numaresourcesoperator-infra"], "{platform}");
        let status = round(&mut cluster);
        assert_eq!(
            (status.daemon_sets.len(), status.node_groups.len(), status.related_objects.len()),
            (1, 1, 5)
        );
        ask(&mut cluster, &json!({ "nodeGroups": [] }));
        let status = round(&mut cluster);
        assert_eq!(holding(&status), WELL, "{platform}");
        assert_eq!((status.daemon_sets.len(), status.node_groups.len(), status.pools.len()), (0, 0, 0));
        assert_eq!(status.related_objects.len(), 4);
    }
}

/// A DaemonSet of this name from another client.
fn of_somebody(cluster: &mut ClusterState, name: &str) {
    let key = ObjectKey {
        kind: objects::ObjectKind::of::<DaemonSet>(),
        namespace: Some(NAMESPACE.to_owned()),
        name: name.to_owned(),
    };
    let body = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": name, "namespace": NAMESPACE, "uid": "u-3" },
        "spec": { "selector": { "matchLabels": { "a": "b" } } },
    });
    cluster.observed.insert(key, body);
}

/// N014, N015, N050, U017: of objects that no group wants, ours are deleted and others stay.
#[test]
fn n014_n015_n050_u017_only_what_is_ours_goes() {
    let mut cluster = cluster(Platform::OpenShift);
    let custom = json!({ POLICY: "custom" });
    let group = |name: &str| json!({ "poolName": name, "annotations": custom });
    for name in ["worker", "infra"] {
        cluster.pools.get_mut(name).unwrap().sources.insert(format!("51-numaresourcesoperator-{name}"));
    }
    ask(&mut cluster, &json!({ "nodeGroups": [group("worker"), group("infra")] }));
    round(&mut cluster);
    of_somebody(&mut cluster, "numaresourcesoperator-old");
    assert_eq!(deletions(&cluster), [""; 0]);
    ask(&mut cluster, &json!({ "nodeGroups": [group("infra")] }));
    assert_eq!(
        deletions(&cluster),
        [
            "delete DaemonSet numaresourcesoperator-worker",
            "delete MachineConfig 51-numaresourcesoperator-worker",
        ]
    );
    // One that bears the name of one that is wanted is not taken either.
    of_somebody(&mut cluster, "numaresourcesoperator-infra");
    assert!(changes(&cluster).contains(&"refuse DaemonSet numaresourcesoperator-infra".to_owned()));
}

fn deletions(cluster: &ClusterState) -> Vec<String> {
    let mut all: Vec<String> =
        changes(cluster).into_iter().filter(|change| change.starts_with("delete")).collect();
    all.sort();
    all
}

/// An unreadable object requests something unknown.
#[test]
fn objects_of_an_unreadable_request_stay() {
    let mut cluster = cluster(Platform::OpenShift);
    ask(&mut cluster, &one_group(&json!({})));
    round(&mut cluster);
    cluster.operators.clear();
    let why = crate::cluster_state::Unreadable::default();
    let kind = api::numaresources::operator::KIND;
    cluster.unreadable.insert((kind, OPERATOR.to_owned()), why);
    assert_eq!(desired(&cluster), Desired::Keep);
    assert_eq!(changes(&cluster), [""; 0]);
}

/// N017: nothing is desired and no status is written, whatever other clients do.
#[test]
fn n017_paused() {
    for (value, paused) in [("enabled", true), ("true", false), ("", false)] {
        let mut cluster = cluster(Platform::OpenShift);
        let key = "config.numa-operator.openshift.io/pause-reconciliation";
        ask(&mut cluster, &one_group(&json!({})));
        carry_out(&mut cluster, true);
        let kind = objects::ObjectKind::of::<DaemonSet>();
        let set = ObjectKey { kind, namespace: Some(NAMESPACE.to_owned()), name: set_name("worker") };
        let mut tampered = cluster.observed.get(&set).unwrap().clone();
        tampered["spec"]["template"]["spec"]["containers"][0]["image"] = json!("example.com/evil:1");
        cluster.observed.insert(set, tampered);
        ask_with(&mut cluster, &[(key, value)], &one_group(&json!({})));
        let repair = "apply DaemonSet numaresourcesoperator-worker".to_owned();
        assert_eq!(changes(&cluster).contains(&repair), !paused, "{value:?}");
        assert_eq!(desired(&cluster) == Desired::Keep, paused, "{value:?}");
        assert_eq!(status(&cluster, &Outcome::default(), at(1)).is_empty(), paused, "{value:?}");
    }
}

/// Who asks is going away, or has never been: the first takes along what is its own, in whatever way was asked for.
#[test]
fn without_a_request_nothing_is_desired() {
    let mut cluster = cluster(Platform::OpenShift);
    assert_eq!(desired(&cluster), Desired::Nothing);
    assert_eq!(status(&cluster, &Outcome::default(), at(1)), []);
    ask(&mut cluster, &one_group(&json!({})));
    let operator = cluster.operators.get_mut(OPERATOR).unwrap();
    operator.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(1)));
    assert_eq!(desired(&cluster), Desired::Keep);
    assert_eq!(status(&cluster, &Outcome::default(), at(1)), []);
}

/// N036 to N038: who keeps the definition himself is left alone.
#[test]
fn n036_to_n038_the_definition_of_others() {
    let definition = "CustomResourceDefinition noderesourcetopologies.topology.node.k8s.io";
    let key = "config.numa-operator.openshift.io/nrt-api-definition";
    for platform in PLATFORMS {
        for (name, value, held) in
            [("N036 N037", "cluster", true), ("N038", "", false), ("A016", "ApiServer", false)]
        {
            let mut cluster = cluster(platform);
            ask_with(&mut cluster, &[(key, value)], &one_group(&json!({})));
            let first = names(&cluster).remove(0);
            assert_eq!(
                first,
                format!("{definition}{}", if held { " (held)" } else { "" }),
                "{name} {platform}"
            );
            assert_eq!(holding(&round(&mut cluster)), WELL, "{name} {platform}");
            let made = cluster.observed.iter().any(|(key, _)| key.kind.kind == "CustomResourceDefinition");
            assert_eq!(made, !held, "{name} {platform}");
        }
    }
}

/// N049, U029.
#[test]
fn n049_u029_related_objects() {
    for (platform, wanted) in [
        (
            Platform::OpenShift,
            &[
                "/namespaces//numaresources",
                "machineconfiguration.openshift.io/kubeletconfigs//",
                "machineconfiguration.openshift.io/machineconfigs//",
                "topology.node.k8s.io/noderesourcetopologies//",
                "apps/daemonsets/numaresources/numaresourcesoperator-worker",
                "apps/daemonsets/numaresources/numaresourcesoperator-infra",
            ][..],
        ),
        (
            Platform::Kubernetes,
            &[
                "/namespaces//numaresources",
                "topology.node.k8s.io/noderesourcetopologies//",
                "apps/daemonsets/numaresources/numaresourcesoperator-worker",
                "apps/daemonsets/numaresources/numaresourcesoperator-infra",
            ],
        ),
    ] {
        let mut cluster = cluster(platform);
        let spec = groups(&["worker", "infra"], &json!({}));
        let spec = if platform == Platform::Kubernetes { with_node_selectors(spec) } else { spec };
        ask(&mut cluster, &spec);
        let status = round(&mut cluster);
        let related: Vec<String> = status
            .related_objects
            .iter()
            .map(|one| format!("{}/{}/{}/{}", one.group, one.resource, one.namespace, one.name))
            .collect();
        assert_eq!(related, wanted, "{platform}");
    }
}

/// B-11, B-12, B-33: exporters that are replaced or have crashed are seen, at any time, and the reason is told.
#[test]
fn b33_daemon_sets_in_rollout() {
    let mut cluster = cluster(Platform::OpenShift);
    ask(&mut cluster, &groups(&["worker", "infra"], &json!({})));
    let updating = |names: &[&str]| {
        let sets: Vec<String> = names
            .iter()
            .map(|name| format!("numaresources/numaresourcesoperator-{name} is updating"))
            .collect();
        vec![format!("Progressing DaemonSetIsUpdating {}", sets.join(", "))]
    };
    // Nothing is there.
    assert_eq!(holding(&told(&mut cluster, &Outcome::default())), updating(&["infra", "worker"]));
    carry_out(&mut cluster, false);
    let status = told(&mut cluster, &Outcome::default());
    assert_eq!(holding(&status), updating(&["infra", "worker"]));
    // B-21: both are there, though not ready.
    assert_eq!((status.daemon_sets.len(), status.node_groups.len()), (0, 2));
    assert_eq!(holding(&round(&mut cluster)), WELL);
    // B-12: a newer template that its controller has not seen yet.
    let (key, mut body) = cluster
        .observed
        .iter()
        .find(|(key, _)| key.name == "numaresourcesoperator-worker")
        .map(|(key, body)| (key.clone(), body.clone()))
        .unwrap();
    body["metadata"]["generation"] = json!(2);
    cluster.observed.insert(key.clone(), body.clone());
    assert_eq!(holding(&told(&mut cluster, &Outcome::default())), updating(&["worker"]));
    // B-11: a crash after all was well.
    body["metadata"]["generation"] = json!(1);
    body["status"]["numberReady"] = json!(1);
    cluster.observed.insert(key, body);
    let status = told(&mut cluster, &Outcome::default());
    assert_eq!(holding(&status), updating(&["worker"]));
    assert_eq!(status.daemon_sets.len(), 1);
}

/// U006, B-16: failures are reported in their own words, in order; mistakes in the groups have another reason.
#[test]
fn u006_b16_failures_are_reported() {
    let mut cluster = cluster(Platform::OpenShift);
    ask(&mut cluster, &one_group(&json!({})));
    carry_out(&mut cluster, true);
    let errors = ["Service x: refused", "DaemonSet y: forbidden", "Service x: refused"].map(str::to_owned);
    let done = Outcome { errors: errors.to_vec(), ..Outcome::default() };
    let wanted = ["Degraded InternalError DaemonSet y: forbidden\nService x: refused"];
    assert_eq!(holding(&told(&mut cluster, &done)), wanted);
    assert_eq!(holding(&told(&mut cluster, &Outcome::default())), WELL);
}

/// B-13: of what is merely objected to, nothing turns again and again.
#[test]
fn b13_an_objection_keeps_its_transition_time() {
    let selector = json!({ "matchExpressions": [{ "key": "x", "operator": "DoesNotExist" }] });
    let mut cluster = cluster(Platform::OpenShift);
    ask(&mut cluster, &json!({ "nodeGroups": [{ "machineConfigPoolSelector": selector }] }));
    let first = round(&mut cluster);
    let second = status(&cluster, &Outcome::default(), at(99)).remove(0).1;
    assert_eq!(first, second);
}

/// B-17: the same is asked for, so the same is wanted, whatever was asked for before.
#[test]
fn b17_withdrawn_fields_leave_no_trace() {
    for platform in PLATFORMS {
        let plain = one_group(&json!({}));
        let mut fresh = cluster(platform);
        fresh.environment.exporter_image_restricted = false;
        let mut used = fresh.clone();
        ask(&mut fresh, &plain);
        let changed = json!({
            "imageSpec": "example.com/other:1", "logLevel": "Trace", "podExcludes": [{ "namespace": "*", "name": "*" }],
            "nodeGroups": [{
                "poolName": "worker", "annotations": { POLICY: "custom" },
                "config": { "infoRefreshMode": "Events", "podsFingerprinting": "Disabled", "tolerations": [{ "operator": "Exists" }] },
            }],
        });
        ask(&mut used, &changed);
        assert_ne!(set(&used, "worker"), set(&fresh, "worker"), "{platform}");
        round(&mut used);
        ask(&mut used, &plain);
        assert_eq!(desired(&used), desired(&fresh), "{platform}");
    }
}

#[test]
fn pool_conditions_are_forwarded_where_asked_for() {
    for forwarded in [false, true] {
        let mut cluster = cluster(Platform::OpenShift);
        cluster.environment.forward_pool_conditions = forwarded;
        let conditions = vec![condition("Updated", "True"), condition("Degraded", "False")];
        cluster.pools.get_mut("worker").unwrap().conditions.clone_from(&conditions);
        ask(&mut cluster, &one_group(&json!({})));
        let status = round(&mut cluster);
        assert_eq!(status.pools[0].conditions, if forwarded { conditions } else { Vec::new() });
    }
}

/// B-21: what is refused does not hide what still runs.
#[test]
fn b21_an_invalid_request_still_reports_running_exporters() {
    let mut cluster = cluster(Platform::OpenShift);
    ask(&mut cluster, &groups(&["worker", "infra"], &json!({})));
    round(&mut cluster);
    ask(&mut cluster, &json!({ "nodeGroups": [{}] }));
    let status = told(&mut cluster, &Outcome::default());
    assert_eq!((status.daemon_sets.len(), status.node_groups.len()), (2, 0));
    assert_eq!(status.related_objects.len(), 6);
}

/// Conditions say which generation they are about.
#[test]
fn conditions_follow_the_generation() {
    let mut cluster = cluster(Platform::OpenShift);
    for generation in 1..=2 {
        ask(&mut cluster, &one_group(&json!({})));
        let status = round(&mut cluster);
        let about: Vec<_> = status.conditions.iter().map(|condition| condition.observed_generation).collect();
        assert_eq!(about, [Some(generation); 8]);
    }
}

/// B-04, N011: the status reports the kubelets' settings, whether exporters run or not; B-30: exporters wait for
/// kubelets' answers.
#[test]
fn b04_b30_the_status_reports_kubelets() {
    let kubelets = |status: &Status| {
        let found =
            status.conditions.iter().find(|condition| condition.type_ == KUBELETS_CONFIGURED).unwrap();
        (found.status.clone(), found.message.clone())
    };
    let mut openshift = cluster(Platform::OpenShift);
    ask(&mut openshift, &groups(&["worker", "infra"], &json!({})));
    let status = round(&mut openshift);
    assert_eq!(holding(&status), WELL);
    let (word, message) = kubelets(&status);
    assert_eq!(word, "False");
    assert_eq!(message.lines().count(), 2, "{message}");
    assert!(message.starts_with("pool \"infra\": no KubeletConfig "), "{message}");
    for name in ["worker", "infra"] {
        let settings = KubeletSettings { policy: Some("single-numa-node".to_owned()), scope: None };
        let config = crate::cluster_state::KubeletConfig {
            pool_selector: serde_json::from_value(
                json!({ "matchLabels": { format!("pools.example.com/{name}"): "" } }),
            )
            .ok(),
            payload: Some(Ok(settings)),
            ..crate::cluster_state::KubeletConfig::default()
        };
        openshift.kubelet_configs.insert(name.to_owned(), config);
    }
    assert_eq!(kubelets(&round(&mut openshift)), ("True".to_owned(), String::new()));

    let mut plain = cluster(Platform::Kubernetes);
    let answers = std::mem::take(&mut plain.kubelets);
    ask(&mut plain, &one_group(&json!({})));
    let held = "DaemonSet numaresourcesoperator-worker (held)".to_owned();
    assert!(names(&plain).contains(&held));
    let status = round(&mut plain);
    assert_eq!(kubelets(&status).0, "Unknown");
    assert_eq!(
        holding(&status),
        ["Progressing DaemonSetIsUpdating numaresources/numaresourcesoperator-worker is updating"]
    );
    plain.kubelets = answers;
    assert!(!names(&plain).contains(&held));
    let status = round(&mut plain);
    assert_eq!(
        (holding(&status), kubelets(&status).0),
        (WELL.map(str::to_owned).to_vec(), "True".to_owned())
    );
}

/// Workloads of the same object in another namespace are another operator's.
#[test]
fn workloads_in_other_namespaces_are_degraded() {
    let mut cluster = cluster(Platform::OpenShift);
    ask(&mut cluster, &one_group(&json!({})));
    assert_eq!(holding(&round(&mut cluster)), WELL);
    let key = ObjectKey::of::<DaemonSet>(Some("there"), "numaresourcesoperator-worker");
    cluster.elsewhere.insert(key);
    let held = holding(&round(&mut cluster));
    let start = "Degraded OperandsInOtherNamespace this object controls workloads in another namespace than the operator's, \
                 which is numaresources: DaemonSet there/numaresourcesoperator-worker;";
    assert!(held.len() == 1 && held[0].starts_with(start), "{held:?}");
    cluster.elsewhere.clear();
    assert_eq!(holding(&round(&mut cluster)), WELL);
}
