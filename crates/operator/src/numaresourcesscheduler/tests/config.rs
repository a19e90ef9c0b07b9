//! The configuration file.

use super::*;

/// U023: the whole file, to the byte; keys are sorted, so every writer gives the same text.
#[test]
fn the_whole_file_is_the_go_operators() {
    let cluster = asking(|spec| {
        spec.image_spec = digest('a');
        spec.scheduler_name = "numa".to_owned();
        spec.preemption_mode = Some(Switch::Enabled);
        spec.scoring_strategy = Some(scoring(ScoringStrategyType::BalancedAllocation, &[("cpu", 10)]));
    });
    assert_eq!(
        text(&cluster),
        r#"apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceName: numa-scheduler-leader
  resourceNamespace: numaresources
profiles:
- pluginConfig:
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      cache:
        foreignPodsDetect: OnlyExclusiveResources
        informerMode: Dedicated
        resyncMethod: Autodetect
      cacheResyncPeriodSeconds: 5
      kind: NodeResourceTopologyMatchArgs
      preemptionMode: Enabled
      scoringStrategy:
        resources:
        - name: cpu
          weight: 10
        type: BalancedAllocation
    name: NodeResourceTopologyMatch
  plugins:
    filter:
      disabled:
      - name: "*"
      enabled:
      - name: NodeUnschedulable
      - name: NodeName
      - name: TaintToleration
      - name: NodeAffinity
      - name: NodePorts
      - name: KNIDebug
      - name: NodeResourcesFit
      - name: NodeResourceTopologyMatch
      - name: VolumeRestrictions
      - name: NodeVolumeLimits
      - name: VolumeBinding
      - name: VolumeZone
      - name: PodTopologySpread
      - name: InterPodAffinity
    multiPoint:
      disabled:
      - name: DynamicResources
      enabled:
      - name: NodeResourceTopologyMatch
  schedulerName: numa
"#
    );
}

fn scoring(kind: ScoringStrategyType, weights: &[(&str, i64)]) -> ScoringStrategy {
    let weight =
        |(name, weight): &(&str, i64)| ResourceSpecParams { name: (*name).to_owned(), weight: Some(*weight) };
    ScoringStrategy { kind, resources: weights.iter().map(weight).collect() }
}

/// What is asked for, which lines are then in the file, and which words are not.
type Row = (&'static str, fn(&mut Spec), &'static [&'static str], &'static [&'static str]);

const SPEC: &[Row] = &[
    ("S007 default", |_| {}, &["schedulerName: topo-aware-scheduler"], &[]),
    ("S007", |spec| spec.scheduler_name = "x".to_owned(), &["schedulerName: x"], &["topo-aware-scheduler"]),
    (
        "S008",
        |spec| spec.cache_resync_period = Some(GoDuration::from_secs(11)),
        &["cacheResyncPeriodSeconds: 11"],
        &[],
    ),
    ("S014", |spec| spec.cache_resync_period = Some(GoDuration(0)), &[], &["cacheResyncPeriodSeconds"]),
    (
        "negative",
        |spec| spec.cache_resync_period = Some(GoDuration::from_secs(-3)),
        &[],
        &["cacheResyncPeriodSeconds"],
    ),
    (
        "E31",
        |spec| spec.cache_resync_period = Some(GoDuration(400_000_000)),
        &[],
        &["cacheResyncPeriodSeconds"],
    ),
    (
        "half",
        |spec| spec.cache_resync_period = Some(GoDuration(2_500_000_000)),
        &["cacheResyncPeriodSeconds: 3"],
        &[],
    ),
    (
        "S016",
        |_| {},
        &[
            "cacheResyncPeriodSeconds: 5",
            "resyncMethod: Autodetect",
            "foreignPodsDetect: OnlyExclusiveResources",
            "informerMode: Dedicated",
        ],
        &[],
    ),
    (
        "S017",
        |spec| spec.cache_resync_detection = Some(CacheResyncDetection::Aggressive),
        &["foreignPodsDetect: All"],
        &[],
    ),
    (
        "S018 shared",
        |spec| spec.scheduler_informer = Some(SchedulerInformer::Shared),
        &["informerMode: Shared"],
        &[],
    ),
    (
        "S018",
        |spec| spec.scheduler_informer = Some(SchedulerInformer::Dedicated),
        &["informerMode: Dedicated"],
        &[],
    ),
    ("S019", |_| {}, &["type: LeastAllocated"], &["resources:"]),
    ("S020 unset", |_| {}, &[], &["preemptionMode"]),
    ("S020 disabled", |spec| spec.preemption_mode = Some(Switch::Disabled), &[], &["preemptionMode"]),
    ("S020 enabled", |spec| spec.preemption_mode = Some(Switch::Enabled), &["preemptionMode: Enabled"], &[]),
    (
        "S021 weights",
        |spec| {
            spec.scoring_strategy =
                Some(scoring(ScoringStrategyType::default(), &[("cpu", 10), ("memory", 5)]))
        },
        &["type: LeastAllocated", "- name: cpu", "weight: 10", "- name: memory", "weight: 5"],
        &[],
    ),
    (
        "S021 most",
        |spec| spec.scoring_strategy = Some(scoring(ScoringStrategyType::MostAllocated, &[])),
        &["type: MostAllocated"],
        &["resources:"],
    ),
    (
        "S021 balanced",
        |spec| spec.scoring_strategy = Some(scoring(ScoringStrategyType::BalancedAllocation, &[("cpu", 1)])),
        &["type: BalancedAllocation", "- name: cpu"],
        &[],
    ),
    (
        "S022 none",
        |spec| spec.replicas = Some(0),
        &["leaderElect: false", "resourceName: numa-scheduler-leader"],
        &[],
    ),
    (
        "S022 one",
        |spec| spec.replicas = Some(1),
        &["leaderElect: false", "resourceNamespace: numaresources"],
        &[],
    ),
    (
        "S022 three",
        |spec| spec.replicas = Some(3),
        &["leaderElect: true", "resourceName: numa-scheduler-leader"],
        &[],
    ),
];

#[test]
fn every_field_is_in_the_file() {
    for (name, change, there, absent) in SPEC {
        let text = text(&asking(change));
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for line in *there {
            assert!(lines.contains(line), "{name}: {line} is not in {text}");
        }
        for word in *absent {
            assert!(!text.contains(word), "{name}: {word} is in {text}");
        }
        SchedulerConfig::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// Our own scheduler starts with each of these files, but for what it cannot do yet; that is told and not tried.
#[test]
fn our_own_scheduler_starts_with_every_file() {
    for (name, change, ..) in SPEC {
        let mut cluster = asking(change);
        the_one(&mut cluster).spec.image_spec.clear();
        assert!(matches!(desired(&cluster), Desired::Objects(_)), "{name}");
        let file = SchedulerConfig::parse(&text(&cluster)).unwrap();
        let settings = scheduler::config::settings(&file, 1).unwrap();
        assert!(settings.profiles[0].numa.is_some(), "{name}");
    }
}

/// B-35: what no scheduler takes is refused before one crashes on it.
#[test]
fn configurations_that_no_scheduler_accepts_are_refused() {
    type Row = (fn(&mut Spec), &'static str);
    let table: [Row; 3] = [
        (
            |spec| spec.scoring_strategy = Some(scoring(ScoringStrategyType::default(), &[("cpu", -1)])),
            "weight",
        ),
        (|spec| spec.scoring_strategy = Some(scoring(ScoringStrategyType::default(), &[("", 1)])), "name"),
        (
            |spec| {
                spec.scoring_strategy =
                    Some(scoring(ScoringStrategyType::default(), &[("cpu", 1), ("cpu", 2)]))
            },
            "Duplicate",
        ),
    ];
    for (change, wanted) in table {
        let cluster = asking(change);
        assert_eq!(desired(&cluster), Desired::Keep);
        let status = status_of(&cluster);
        let degraded = condition(&status, "Degraded");
        assert_eq!(
            (degraded.status.as_str(), degraded.reason.as_str()),
            ("True", "InvalidSchedulerConfiguration")
        );
        assert!(degraded.message.contains(wanted), "{degraded:?}");
    }
}

/// S010, S025, S026
#[test]
fn the_informer_is_as_asked_for_or_as_the_cluster_needs_it() {
    use SchedulerInformer::{Dedicated, Shared};
    let table = [
        (Platform::OpenShift, Some("4.19.0"), None, Dedicated),
        (Platform::OpenShift, None, None, Dedicated),
        (Platform::Kubernetes, Some("5.0.0"), None, Dedicated),
        (Platform::OpenShift, Some("5.0.0"), None, Shared),
        (Platform::OpenShift, Some("5.0.1"), None, Shared),
        (Platform::HyperShift, Some("5.1.0"), None, Shared),
        (Platform::OpenShift, Some("5.0.0"), Some(Dedicated), Dedicated),
        (Platform::HyperShift, Some("5.0.0"), Some(Shared), Shared),
        (Platform::OpenShift, Some("4.19.0"), Some(Shared), Shared),
    ];
    for (platform, version, asked, effective) in table {
        let mut cluster = asking(|spec| {
            spec.scheduler_informer = asked;
            spec.replicas = Some(0);
        });
        cluster.environment.platform = platform;
        cluster.environment.version = version.map(|version| version.parse().unwrap());
        let word = if effective == Shared { "informerMode: Shared" } else { "informerMode: Dedicated" };
        let case = format!("{platform} {version:?} {asked:?}");
        assert!(text(&cluster).contains(word), "{case}");
        let active = if effective == Dedicated { "True" } else { "False" };
        assert_eq!(condition(&status_of(&cluster), "DedicatedInformerActive").status, active, "{case}");
    }
}

/// B-17, A009, A010: a withdrawn field leaves no trace, and defaults change nothing that is requested.
#[test]
fn former_requests_are_forgotten() {
    let plain = cluster();
    let asked = asking(|spec| {
        spec.scheduler_name = "x".to_owned();
        spec.scoring_strategy = Some(scoring(ScoringStrategyType::MostAllocated, &[("cpu", 3)]));
        spec.image_spec.clear();
    });
    let before = wanted(&plain);
    assert_ne!(wanted(&asked), before);
    assert_eq!(wanted(&plain), before);
    let spec = &plain.schedulers[keys::SCHEDULER].spec;
    let copy = spec.clone();
    let full = spec.normalized();
    assert_eq!(*spec, copy);
    assert_eq!(full.cache_resync_debug, Some(CacheResyncDebug::DumpJSONFile));
    assert_eq!((full.preemption_mode, full.replicas), (None, None));
}
