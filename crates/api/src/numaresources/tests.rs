//! Lines of the Go operator's tests that are about types bear their numbers (`a001`...) in docs/parity-operator.md.

use serde_json::{Value, json};

use super::scheduler::{CacheResyncDebug, CacheResyncDetection, SchedulerInformer, ScoringStrategyType};
use super::*;

fn name(namespace: &str, name: &str) -> String {
    NamespacedName { namespace: namespace.to_owned(), name: name.to_owned() }.to_string()
}

#[test]
fn a001_names_read_as_paths() {
    assert_eq!([name("", ""), name("", "n"), name("ns", ""), name("ns", "n")], ["/", "/n", "ns/", "ns/n"]);
}

fn config(value: Value) -> NodeGroupConfig {
    serde_json::from_value(value).unwrap()
}

#[test]
fn a003_a004_a005_defaults_fill_what_is_absent_and_nothing_else() {
    let defaults = json!({
        "podsFingerprinting": "EnabledExclusiveResources", "infoRefreshMode": "PeriodicAndEvents",
        "infoRefreshPeriod": "10s", "infoRefreshPause": "Disabled",
    });
    let table = [
        json!({}),
        json!({"podsFingerprinting": "Enabled"}),
        json!({"infoRefreshMode": "Periodic"}),
        json!({"infoRefreshPeriod": "33s"}),
        json!({"infoRefreshPeriod": "0s"}),
        json!({"infoRefreshPause": "Enabled"}),
        json!({"tolerations": [{"key": "b", "operator": "Exists"}, {"key": "a", "effect": "NoExecute"}]}),
        json!({"podsFingerprinting": "Disabled", "infoRefreshMode": "Events", "infoRefreshPeriod": "1m0s",
               "infoRefreshPause": "Enabled", "tolerations": [{"operator": "Exists"}]}),
    ];
    for asked in table {
        let mut wanted = defaults.clone();
        for (field, value) in asked.as_object().unwrap() {
            wanted[field] = value.clone();
        }
        let whole = config(asked.clone()).normalized();
        assert_eq!(serde_json::to_value(&whole).unwrap(), wanted, "{asked}");
        assert_eq!(whole.clone().normalized(), whole, "once is enough: {asked}");
    }
}

/// The Go operator has other defaults for the old version. Here the version an object was written in is not known, so
/// there is one set.
#[test]
fn a015_the_old_switch_counts_where_the_new_one_is_absent() {
    let table = [
        (json!({}), PodsFingerprinting::EnabledExclusiveResources),
        (json!({"disablePodsFingerprinting": true}), PodsFingerprinting::Disabled),
        (json!({"disablePodsFingerprinting": false}), PodsFingerprinting::Enabled),
        (json!({"disablePodsFingerprinting": true, "config": {}}), PodsFingerprinting::Disabled),
        (
            json!({"disablePodsFingerprinting": true, "config": {"podsFingerprinting": "Enabled"}}),
            PodsFingerprinting::Enabled,
        ),
        (
            json!({"disablePodsFingerprinting": false, "config": {"podsFingerprinting": "Disabled"}}),
            PodsFingerprinting::Disabled,
        ),
    ];
    for (group, wanted) in table {
        let read: NodeGroup = serde_json::from_value(group.clone()).unwrap();
        assert_eq!(read.normalized_config(UpdaterType::Rte).podsfingerprinting(), wanted, "{group}");
    }
}

#[test]
fn nfd_has_defaults_that_it_can_follow() {
    let all = json!({"podsFingerprinting": "Enabled", "infoRefreshMode": "Periodic"});
    let none = json!({"podsFingerprinting": "Disabled", "infoRefreshMode": "Periodic"});
    for (group, wanted) in [
        (json!({}), &all),
        (json!({"config": {"podsFingerprinting": "Disabled"}}), &none),
        (json!({"disablePodsFingerprinting": true}), &none),
    ] {
        let read: NodeGroup = serde_json::from_value(group.clone()).unwrap();
        let whole = serde_json::to_value(read.normalized_config(UpdaterType::Nfd)).unwrap();
        for field in ["podsFingerprinting", "infoRefreshMode"] {
            assert_eq!(whole[field], wanted[field], "{group}");
        }
        assert_eq!(
            (&whole["infoRefreshPeriod"], &whole["infoRefreshPause"]),
            (&json!("10s"), &json!("Disabled"))
        );
    }
}

impl NodeGroupConfig {
    fn podsfingerprinting(&self) -> PodsFingerprinting {
        self.pods_fingerprinting.unwrap()
    }
}

#[test]
fn a009_a010_a_schedulers_defaults_leave_preemption_and_replicas_open() {
    let spec: scheduler::Spec = serde_json::from_value(json!({"imageSpec": "x"})).unwrap();
    let before = spec.clone();
    let whole = spec.normalized();
    assert_eq!(spec, before);
    assert_eq!(whole.cache_resync_period, Some(GoDuration::from_secs(5)));
    assert_eq!(whole.cache_resync_debug, Some(CacheResyncDebug::DumpJSONFile));
    assert_eq!(whole.scheduler_informer, Some(SchedulerInformer::Dedicated));
    assert_eq!(whole.cache_resync_detection, Some(CacheResyncDetection::Relaxed));
    assert_eq!(whole.scoring_strategy.as_ref().unwrap().kind, ScoringStrategyType::LeastAllocated);
    assert_eq!((whole.preemption_mode, whole.replicas, whole.image_spec.as_str()), (None, None, "x"));
    let all = json!({
        "imageSpec": "x", "logLevel": "Trace", "cacheResyncPeriod": "0s", "cacheResyncDebug": "Disabled",
        "schedulerInformer": "Shared", "cacheResyncDetection": "Aggressive",
        "scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 2}]},
        "preemptionMode": "Enabled", "replicas": 0,
    });
    let set: scheduler::Spec = serde_json::from_value(all).unwrap();
    assert_eq!(set.normalized(), set);
}

/// Exact, and in the right case, is what counts; who asks compares with these.
#[test]
fn a016_annotations_are_spelled_as_the_go_operator_spells_them() {
    let table = [
        (keys::SELINUX_POLICY, "config.node.openshift-kni.io/selinux-policy", keys::CUSTOM, "custom"),
        (
            keys::MULTIPLE_POOLS,
            "config.node.openshift-kni.io/multiple-pools-per-tree",
            keys::ENABLED,
            "enabled",
        ),
        (keys::PAUSE, "config.numa-operator.openshift.io/pause-reconciliation", keys::ENABLED, "enabled"),
        (keys::NRT_API, "config.numa-operator.openshift.io/nrt-api-definition", keys::CLUSTER, "cluster"),
        (
            keys::SCHEDULER_QOS,
            "config.numa-operator.openshift.io/scheduler-qos-request",
            keys::GUARANTEED,
            "guaranteed",
        ),
    ];
    for (key, spelled, value, means) in table {
        assert_eq!((key, value), (spelled, means));
    }
}

#[test]
fn log_levels_are_verbosities() {
    let table = [("", 2), ("Normal", 2), ("Debug", 4), ("Trace", 6), ("TraceAll", 8)];
    for (text, verbosity) in table {
        let level: LogLevel = serde_json::from_value(json!(text)).unwrap();
        assert_eq!(level.verbosity(), verbosity, "{text:?}");
        assert_eq!(serde_json::to_value(level).unwrap(), json!(text));
    }
    assert!(serde_json::from_value::<LogLevel>(json!("normal")).is_err());
}

/// Go writes `null` for a list or map that was never made.
#[test]
fn null_says_nothing() {
    let object = json!({
        "metadata": {"name": "numaresourcesoperator"},
        "spec": {"nodeGroups": [{"annotations": null, "config": {"tolerations": null}}], "podExcludes": null},
        "status": {"daemonsets": null, "machineconfigpools": null, "nodeGroups": null, "conditions": null},
    });
    let read: NumaResourcesOperator = serde_json::from_value(object).unwrap();
    assert_eq!(
        read.spec.node_groups,
        [NodeGroup { config: Some(NodeGroupConfig::default()), ..NodeGroup::default() }]
    );
    assert_eq!(read.status, operator::Status::default());
    let read: NumaResourcesOperator =
        serde_json::from_value(json!({"metadata": {}, "spec": null, "status": null})).unwrap();
    assert_eq!(read, NumaResourcesOperator::default());
    let read: NumaResourcesScheduler =
        serde_json::from_value(json!({"metadata": {}, "spec": {"scoringStrategy": {"resources": null}}}))
            .unwrap();
    assert_eq!(read.spec.scoring_strategy, Some(scheduler::ScoringStrategy::default()));
}

#[test]
fn what_is_empty_and_what_is_absent_are_told_apart_where_it_matters() {
    let group: NodeGroup =
        serde_json::from_value(json!({"poolName": "", "machineConfigPoolSelector": {}})).unwrap();
    assert_eq!(group.pool_name.as_deref(), Some(""));
    assert_eq!(group.machine_config_pool_selector, Some(LabelSelector::default()));
    assert_eq!(group.kubelet_config_map, None);
    let group: NodeGroup = serde_json::from_value(json!({"machineConfigPoolSelector": null})).unwrap();
    assert_eq!(group, NodeGroup::default());
}
