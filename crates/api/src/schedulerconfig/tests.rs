use serde_json::json;

use super::*;

const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

fn parse(body: &str) -> Result<SchedulerConfig, Vec<String>> {
    SchedulerConfig::parse(&format!("{HEAD}{body}"))
        .map_err(|error| error.errors.iter().map(ToString::to_string).collect())
}

/// The NUMA plugin's arguments, given as the lines under `args:`.
fn numa(args: &str) -> Result<NodeResourceTopologyMatchArgs, Vec<String>> {
    let args: String = args.lines().map(|line| format!("      {line}\n")).collect();
    let body = format!("profiles:\n- pluginConfig:\n  - name: {NUMA_PLUGIN}\n    args:\n{args}");
    parse(&body).map(|mut config| config.profiles.remove(0).numa)
}

#[test]
fn nothing_said_means_the_defaults() {
    assert_eq!(parse(""), Ok(SchedulerConfig::default()));
    assert_eq!(parse("leaderElection:\nprofiles: []\nextenders: null\n"), Ok(SchedulerConfig::default()));
    let zeroes = "leaderElection: {leaseDuration: 0s, resourceName: ''}\nclientConnection: {qps: 0, burst: 0, contentType: ''}\n";
    assert_eq!(parse(zeroes), Ok(SchedulerConfig::default()));
}

#[test]
fn every_field_is_read() {
    let config = parse(
        "
parallelism: 4
leaderElection:
  leaderElect: false
  leaseDuration: 1m0s
  renewDeadline: 40s
  retryPeriod: 1500ms
  resourceLock: leases
  resourceName: numa-scheduler-leader
  resourceNamespace: numa
clientConnection:
  kubeconfig: /etc/kubernetes/scheduler.conf
  acceptContentTypes: application/json
  contentType: application/json
  qps: 2.5
  burst: 7
enableProfiling: false
enableContentionProfiling: false
percentageOfNodesToScore: 100
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 3
delayCacheUntilActive: true
profiles:
- schedulerName: a
  percentageOfNodesToScore: 5
  plugins:
    multiPoint: {enabled: [{name: NodeResourceTopologyMatch, weight: 3}], disabled: [{name: '*'}]}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
  - name: InterPodAffinity
    args: {hardPodAffinityWeight: 2}
  - name: DefaultPreemption
    args: {minCandidateNodesAbsolute: 7}
- schedulerName: b
",
    )
    .unwrap();
    let seconds = GoDuration::from_secs;
    assert_eq!(
        config,
        SchedulerConfig {
            parallelism: 4,
            leader_election: LeaderElection {
                leader_elect: false,
                lease_duration: seconds(60),
                renew_deadline: seconds(40),
                retry_period: GoDuration(1_500_000_000),
                resource_name: "numa-scheduler-leader".to_owned(),
                resource_namespace: "numa".to_owned(),
            },
            client_connection: ClientConnection {
                kubeconfig: "/etc/kubernetes/scheduler.conf".to_owned(),
                accept_content_types: "application/json".to_owned(),
                content_type: "application/json".to_owned(),
                qps: 2.5,
                burst: 7,
            },
            enable_profiling: false,
            enable_contention_profiling: false,
            percentage_of_nodes_to_score: Some(100),
            pod_initial_backoff_seconds: 2,
            pod_max_backoff_seconds: 3,
            delay_cache_until_active: true,
            extenders: Vec::new(),
            profiles: vec![
                Profile {
                    scheduler_name: "a".to_owned(),
                    percentage_of_nodes_to_score: Some(5),
                    plugins: Plugins(BTreeMap::from([(
                        ExtensionPoint::MultiPoint,
                        PluginSet {
                            enabled: vec![Plugin { name: NUMA_PLUGIN.to_owned(), weight: Some(3) }],
                            disabled: vec!["*".to_owned()],
                        },
                    )])),
                    numa: NodeResourceTopologyMatchArgs::default(),
                    in_tree: InTreeArgs {
                        fit: NodeResourcesFitArgs {
                            kind: FitStrategyType::MostAllocated,
                            ..NodeResourcesFitArgs::default()
                        },
                        pod_affinity: InterPodAffinityArgs {
                            hard_pod_affinity_weight: 2,
                            ..InterPodAffinityArgs::default()
                        },
                        ..InTreeArgs::default()
                    },
                    other_args: BTreeMap::from([(
                        "DefaultPreemption".to_owned(),
                        json!({"minCandidateNodesAbsolute": 7}),
                    )]),
                },
                Profile { scheduler_name: "b".to_owned(), ..Profile::default() },
            ],
        }
    );
}

/// What the peer operator renders, whole (spec: scheduler.md 1.5).
const RENDERED: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
  resourceName: numa-scheduler-leader
  resourceNamespace: numa-aware-scheduler-ns
profiles:
- pluginConfig:
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      cache:
        foreignPodsDetect: OnlyExclusiveResources
        informerMode: Dedicated
        resyncMethod: OnlyExclusiveResources
        resyncScope: All
      cacheResyncPeriodSeconds: 5
      kind: NodeResourceTopologyMatchArgs
      scoringStrategy:
        resources:
        - name: cpu
          weight: 1
        - name: memory
          weight: 1
        type: LeastAllocated
    name: NodeResourceTopologyMatch
  plugins:
    filter:
      disabled:
      - name: '*'
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
  schedulerName: topo-aware-scheduler
";

#[test]
fn the_operators_file_is_accepted_verbatim() {
    let config = SchedulerConfig::parse(RENDERED).unwrap();
    assert!(!config.leader_election.leader_elect);
    let profile = &config.profiles[0];
    assert_eq!(profile.scheduler_name, "topo-aware-scheduler");
    let filter = profile.plugins.at(ExtensionPoint::Filter).unwrap();
    let order: Vec<_> = filter.enabled.iter().map(|plugin| plugin.name.as_str()).collect();
    assert_eq!(order[5..8], ["KNIDebug", "NodeResourcesFit", "NodeResourceTopologyMatch"]);
    assert_eq!((filter.enabled.len(), filter.disabled.as_slice()), (14, &["*".to_owned()][..]));
    assert!(profile.plugins.enables(NUMA_PLUGIN) && !profile.plugins.enables("DynamicResources"));
    assert_eq!(profile.numa.cache_resync_period_seconds, 5);
    assert_eq!(profile.numa.cache.resync_method, ResyncMethod::OnlyExclusiveResources);
}

#[test]
fn the_accounting_of_the_go_plugin_needs_its_period() {
    let over_reserve =
        |period| numa(&format!("cacheResyncPeriodSeconds: {period}\ncache: {{accounting: OverReserve}}\n"));
    assert_eq!(over_reserve(5).unwrap().cache.accounting, CacheAccounting::OverReserve);
    let error = over_reserve(0).unwrap_err().remove(0);
    let wanted = "cacheResyncPeriodSeconds: Invalid value: 0: must be above 0 with accounting OverReserve";
    assert!(error.ends_with(wanted), "{error}");
}

#[test]
fn json_is_yaml() {
    let text = format!("{{\"apiVersion\": {API_VERSION:?}, \"kind\": {KIND:?}, \"parallelism\": 2}}");
    assert_eq!(SchedulerConfig::parse(&text).map(|config| config.parallelism), Ok(2));
}

#[test]
fn numa_arguments_are_read() {
    assert_eq!(numa("{}"), Ok(NodeResourceTopologyMatchArgs::default()));
    let args = numa(
        "scoringStrategy: {type: LeastNUMANodes, resources: [{name: cpu, weight: 7}, {name: vendor.com/nic}]}\n\
         cacheResyncPeriodSeconds: -3\n\
         discardReservedNodes: true\n\
         cache: {foreignPodsDetect: None, resyncMethod: All, informerMode: Shared, resyncScope: OnlyResources}\n\
         preemptionMode: Enabled\n",
    )
    .unwrap();
    let weight = |name: &str, weight| ResourceWeight { name: name.to_owned(), weight };
    assert_eq!(
        args,
        NodeResourceTopologyMatchArgs {
            scoring_strategy: ScoringStrategy {
                kind: ScoringStrategyType::LeastNUMANodes,
                resources: vec![weight("cpu", 7), weight("vendor.com/nic", 1)],
            },
            cache_resync_period_seconds: -3,
            discard_reserved_nodes: true,
            cache: CacheArgs {
                foreign_pods_detect: ForeignPodsDetect::None,
                resync_method: ResyncMethod::All,
                informer_mode: InformerMode::Shared,
                resync_scope: ResyncScope::OnlyResources,
                accounting: CacheAccounting::Exact,
            },
            preemption_mode: PreemptionMode::Enabled,
            nodes_without_topology: NodesWithoutTopology::default(),
        }
    );
    let strategy = |text| numa(text).unwrap().scoring_strategy;
    assert_eq!(strategy("scoringStrategy: null"), ScoringStrategy::default());
    assert_eq!(strategy("scoringStrategy: {type: MostAllocated, resources: []}").resources.len(), 2);
}

#[test]
fn mistakes_in_numa_arguments_name_the_place() {
    let place = "decoding .profiles[0].pluginConfig[0]: decoding args for plugin NodeResourceTopologyMatch: ";
    for (args, message) in [
        ("kubeconfigpath: /x", "strict decoding error: unknown field \"kubeconfigpath\""),
        ("cache: {foo: 1}", "strict decoding error: unknown field \"cache.foo\""),
        (
            "kind: OtherArgs",
            "kind: args for plugin NodeResourceTopologyMatch cannot be \"OtherArgs\"; allowed is \
             NodeResourceTopologyMatchArgs",
        ),
        (
            "apiVersion: kubescheduler.config.k8s.io/v1beta3",
            "apiVersion: args for plugin NodeResourceTopologyMatch cannot be \"kubescheduler.config.k8s.io/v1beta3\"; \
             allowed is kubescheduler.config.k8s.io/v1",
        ),
        (
            "scoringStrategy: {type: Best}",
            "scoringStrategy.type: Invalid value: \"Best\": invalid ScoringStrategyType; allowed are MostAllocated, \
             BalancedAllocation, LeastAllocated, LeastNUMANodes",
        ),
        (
            "scoringStrategy: {resources: [{name: cpu, weight: 1}]}",
            "scoringStrategy.type: Invalid value: \"\": invalid ScoringStrategyType; allowed are MostAllocated, \
             BalancedAllocation, LeastAllocated, LeastNUMANodes",
        ),
        (
            "preemptionMode: Sometimes",
            "preemptionMode: Invalid value: \"Sometimes\": invalid PreemptionMode; allowed are Disabled, Enabled",
        ),
        (
            "cache: {informerMode: shared}",
            "cache.informerMode: Invalid value: \"shared\": invalid CacheInformerMode; allowed are Shared, Dedicated",
        ),
        (
            "scoringStrategy: {type: LeastAllocated, resources: [{name: cpu, weight: -1}]}",
            "scoringStrategy.resources[0].weight: Invalid value: -1: must be 1 to 2147483647, or 0 for the default of 1",
        ),
        (
            "scoringStrategy: {type: LeastAllocated, resources: [{name: cpu}, {name: cpu}]}",
            "scoringStrategy.resources[1].name: Duplicate value: \"cpu\"",
        ),
        (
            "scoringStrategy: {type: LeastAllocated, resources: [{weight: 1}]}",
            "scoringStrategy.resources[0].name: Required value",
        ),
        (
            "scoringStrategy: {type: LeastAllocated, resources: cpu}",
            "scoringStrategy.resources: expected a list, found \"cpu\"",
        ),
        (
            "cacheResyncPeriodSeconds: 5s",
            "cacheResyncPeriodSeconds: expected a whole number of 64 bits, found \"5s\"",
        ),
        ("discardReservedNodes: 1", "discardReservedNodes: expected true or false, found 1"),
    ] {
        assert_eq!(numa(args), Err(vec![format!("{place}{message}")]), "{args}");
    }
}

#[test]
fn mistakes_name_the_field_and_what_is_allowed() {
    for (body, message) in [
        ("foo: 1\n", "strict decoding error: unknown field \"foo\""),
        (
            "profiles: [{plugins: {filter: {on: []}}}]\n",
            "strict decoding error: unknown field \"profiles[0].plugins.filter.on\"",
        ),
        (
            "profiles: [{plugins: {score: {enabled: [{name: a, w: 1}]}}}]\n",
            "strict decoding error: unknown field \"profiles[0].plugins.score.enabled[0].w\"",
        ),
        ("leaderElection: {lease: 1s}\n", "strict decoding error: unknown field \"leaderElection.lease\""),
        ("parallelism: 0\n", "parallelism: Invalid value: 0: should be an integer value greater than zero"),
        ("parallelism: 3000000000\n", "parallelism: expected a whole number of 32 bits, found 3000000000"),
        ("parallelism: 1.5\n", "parallelism: expected a whole number of 32 bits, found 1.5"),
        (
            "percentageOfNodesToScore: 101\n",
            "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
        ),
        (
            "profiles: [{percentageOfNodesToScore: -1}]\n",
            "profiles[0].percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]",
        ),
        (
            "podInitialBackoffSeconds: 0\n",
            "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0",
        ),
        (
            "podInitialBackoffSeconds: 11\n",
            "podMaxBackoffSeconds: Invalid value: 10: must be greater than or equal to PodInitialBackoffSeconds",
        ),
        (
            "podMaxBackoffSeconds: 0\n",
            "podMaxBackoffSeconds: Invalid value: 0: must be greater than or equal to PodInitialBackoffSeconds",
        ),
        (
            "leaderElection: {resourceLock: endpoints}\n",
            "leaderElection.resourceLock: Invalid value: \"endpoints\": resourceLock value must be \"leases\"",
        ),
        (
            "leaderElection: {leaseDuration: 15}\n",
            "leaderElection.leaseDuration: expected a duration such as \"15s\", found 15",
        ),
        (
            "leaderElection: {leaseDuration: 15x}\n",
            "leaderElection.leaseDuration: unknown unit \"x\" in duration \"15x\"; allowed are ns, us, ms, s, m and h",
        ),
        (
            "leaderElection: {leaseDuration: 10s}\n",
            "leaderElection.leaseDuration: Invalid value: 10s: must be greater than renewDeadline (10s)",
        ),
        (
            "leaderElection: {retryPeriod: 9s}\n",
            "leaderElection.renewDeadline: Invalid value: 10s: must be greater than 1.2 times retryPeriod (9s)",
        ),
        (
            "leaderElection: {retryPeriod: -1s}\n",
            "leaderElection.retryPeriod: Invalid value: -1s: must be greater than zero",
        ),
        (
            "clientConnection: {burst: -1}\n",
            "clientConnection.burst: Invalid value: -1: must be non-negative",
        ),
        ("clientConnection: {qps: fast}\n", "clientConnection.qps: expected a number, found \"fast\""),
        ("clientConnection: []\n", "clientConnection: expected a mapping, found a list"),
        ("profiles: {}\n", "profiles: expected a list, found a mapping"),
        ("profiles: [{schedulerName: ''}]\n", "profiles[0].schedulerName: Required value"),
        (
            "profiles: [{schedulerName: a}, {schedulerName: a}]\n",
            "profiles[1].schedulerName: Duplicate value: \"a\"",
        ),
        ("profiles: [{schedulerName: a}, {}]\n", "profiles[1].schedulerName: Required value"),
        (
            "profiles: [{pluginConfig: [{name: X}, {name: X}]}]\n",
            "profiles[0].pluginConfig[1]: Duplicate value: \"X\"",
        ),
        (
            "profiles: [{pluginConfig: [{name: NodeResourceTopologyMatch}, {name: NodeResourceTopologyMatch}]}]\n",
            "profiles[0].pluginConfig[1]: Duplicate value: \"NodeResourceTopologyMatch\"",
        ),
        ("profiles: [{pluginConfig: [{args: {}}]}]\n", "profiles[0].pluginConfig[0].name: Required value"),
        (
            "profiles: [{plugins: {filter: {enabled: [{name: EBSLimits}]}}}]\n",
            "profiles[0].plugins.filter.enabled[0]: Invalid value: \"EBSLimits\": was invalid in version \"v1\"",
        ),
        (
            "profiles: [{schedulerName: a}, {schedulerName: b, plugins: {queueSort: {enabled: [{name: Coscheduling}]}}}]\n",
            "profiles[1].plugins.queueSort: must be the same for all profiles",
        ),
        (
            "profiles: [{plugins: {queueSort: {enabled: [{name: A}, {name: B}]}}}]\n",
            "profiles[0].plugins.queueSort.enabled: only one queue sort plugin can be enabled",
        ),
        (
            "extenders: [{urlPrefix: 'http://x', prioritizeVerb: p, httpTimeout: 5s}]\n",
            "extenders[0].weight: Invalid value: 0: must have a positive weight applied to it",
        ),
        (
            "extenders: [{urlPrefix: 'http://x', bindVerb: b}, {urlPrefix: 'http://y', bindVerb: b}]\n",
            "extenders: Invalid value: \"found 2 extenders implementing bind\": only one extender can implement bind",
        ),
        (
            "extenders: [{urlPrefix: 'http://x', managedResources: [{name: cpu}]}]\n",
            "extenders[0].managedResources[0].name: Invalid value: \"cpu\": is an invalid extended resource name",
        ),
        (
            "extenders: [{urlPrefix: 'http://x', managedResources: [{name: v.example/a}, {name: v.example/a}]}]\n",
            "extenders[0].managedResources[1].name: Invalid value: \"v.example/a\": duplicate extender managed resource \
             name",
        ),
        (
            "extenders: [{urlPrefix: 'x:80', httpTimeout: 1s}]\n",
            "extenders[0].urlPrefix: Invalid value: \"x:80\": must be a URL that begins with http:// or https://",
        ),
        (
            "extenders: [{urlPrefix: 'http://x', httpTimeout: -1s}]\n",
            "extenders[0].httpTimeout: Invalid value: -1s: must not be negative",
        ),
        (
            "extenders: [{urlPrefix: 'http://x', tlsConfig: {keyData: 7}}]\n",
            "extenders[0].tlsConfig.keyData: expected a text, found 7",
        ),
    ] {
        assert_eq!(parse(body), Err(vec![message.to_owned()]), "{body}");
    }
}

#[test]
fn extenders_are_read_and_their_resources_ignored_where_they_say_so() {
    let text = "extenders:\n- urlPrefix: https://x/scheduler\n  filterVerb: filter\n  prioritizeVerb: score\n  weight: 3\n  \
                httpTimeout: 2s\n  nodeCacheCapable: true\n  ignorable: true\n  enableHTTPS: true\n  \
                tlsConfig: {serverName: srv, keyData: c2VjcmV0}\n  \
                managedResources: [{name: v.example/a, ignoredByScheduler: true}, {name: v.example/b}]\n";
    let config = parse(text).unwrap();
    let extender = &config.extenders[0];
    let verbs =
        (&*extender.filter_verb, &*extender.prioritize_verb, &*extender.preempt_verb, &*extender.bind_verb);
    assert_eq!((verbs, extender.weight), (("filter", "score", "", ""), 3));
    assert_eq!(extender.http_timeout, GoDuration::from_secs(2));
    assert!(extender.node_cache_capable && extender.ignorable && extender.enable_https);
    assert_eq!(config.profiles[0].in_tree.fit.ignored_resources, ["v.example/a"]);
    assert!(!format!("{config:?}").contains("c2VjcmV0"), "a key is in a debug text");
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let error =
        SchedulerConfig::parse("kind: Pod\nparallelism: 0\nfoo: 1\nextenders: [{bar: 1}]\n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "apiVersion: Required value: allowed is kubescheduler.config.k8s.io/v1; kind: Invalid value: \"Pod\": allowed is \
         KubeSchedulerConfiguration; parallelism: Invalid value: 0: should be an integer value greater than zero; \
         extenders[0].urlPrefix: Invalid value: \"\": must be a URL that begins with http:// or https://; strict decoding error: unknown field \
         \"extenders[0].bar\"; strict decoding error: unknown field \"foo\""
    );
}

#[test]
fn what_is_not_a_mapping_is_no_file() {
    let first = |text: &str| SchedulerConfig::parse(text).unwrap_err().errors[0].to_string();
    assert_eq!(first("- a\n"), "document: expected a mapping, found a list");
    assert_eq!(first(""), "apiVersion: Required value: allowed is kubescheduler.config.k8s.io/v1");
    for text in ["a: [", "a: 1\na: 2\n", "a: 1\n---\nb: 2\n", "\t", "\u{0}", "&a [*a]"] {
        assert!(SchedulerConfig::parse(text).is_err(), "{text:?}");
    }
    let twice = first(&format!("{HEAD}parallelism: 1\nparallelism: 2\n"));
    assert_eq!(
        twice,
        "not valid YAML: duplicate mapping key: parallelism not allowed here at line 4, column 1"
    );
}
