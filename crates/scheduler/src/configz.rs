//! The effective configuration, as kube-scheduler serves it under `/configz` and writes it with `--write-config-to`.
//!
//! In: a configuration with its defaults. Out: a `KubeSchedulerConfiguration` in which each profile names all its
//! plugins and their arguments. Never: a plugin that the profile does not run. Source: kube-scheduler 1.36 `Run`,
//! `mergePluginSet` and `NewFramework`.

use api::schedulerconfig::{
    API_VERSION, CacheAccounting, Extender, ExtensionPoint as Point, KIND, ManagedResource, NUMA_PLUGIN,
    NodeResourceTopologyMatchArgs, NodesWithoutTopology, Plugin, PluginSet, Profile, ResourceWeight,
    SchedulerConfig, Word as _,
};
use serde_json::{Map, Value, json};

/// The plugins of the default profile in their order, with their weights.
const DEFAULT: [(&str, i32); 20] = [
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
    ("NodeDeclaredFeatures", 0),
];

/// The body of `/configz`.
#[must_use]
pub fn configz(config: &SchedulerConfig) -> Value {
    json!({ "componentconfig": effective(config) })
}

/// The effective configuration.
#[must_use]
pub fn effective(config: &SchedulerConfig) -> Value {
    let (client, election) = (&config.client_connection, &config.leader_election);
    let mut all = json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "parallelism": config.parallelism,
        "leaderElection": {
            "leaderElect": election.leader_elect,
            "leaseDuration": election.lease_duration.to_string(),
            "renewDeadline": election.renew_deadline.to_string(),
            "retryPeriod": election.retry_period.to_string(),
            "resourceLock": "leases",
            "resourceName": election.resource_name,
            "resourceNamespace": election.resource_namespace,
        },
        "clientConnection": {
            "kubeconfig": client.kubeconfig,
            "acceptContentTypes": client.accept_content_types,
            "contentType": client.content_type,
            "qps": number(client.qps),
            "burst": client.burst,
        },
        "enableProfiling": config.enable_profiling,
        "enableContentionProfiling": config.enable_contention_profiling,
        "percentageOfNodesToScore": config.percentage_of_nodes_to_score.unwrap_or(0),
        "podInitialBackoffSeconds": config.pod_initial_backoff_seconds,
        "podMaxBackoffSeconds": config.pod_max_backoff_seconds,
        "profiles": config.profiles.iter().map(profile).collect::<Vec<_>>(),
    });
    if !config.extenders.is_empty() {
        all["extenders"] = config.extenders.iter().map(extender).collect();
    }
    if config.delay_cache_until_active {
        all["delayCacheUntilActive"] = json!(true);
    }
    all
}

/// An extender; what is empty is left out, and so is its key, which kube-scheduler shows.
fn extender(extender: &Extender) -> Value {
    let managed = |resource: &ManagedResource| {
        stated(json!({ "name": resource.name, "ignoredByScheduler": resource.ignored_by_scheduler }))
    };
    let tls = extender.tls.as_ref().map(|tls| {
        stated(json!({
            "insecure": tls.insecure, "serverName": tls.server_name, "certFile": tls.cert_file, "keyFile": tls.key_file,
            "caFile": tls.ca_file, "certData": tls.cert_data, "caData": tls.ca_data,
        }))
    });
    let mut all = stated(json!({
        "filterVerb": extender.filter_verb,
        "preemptVerb": extender.preempt_verb,
        "prioritizeVerb": extender.prioritize_verb,
        "weight": extender.weight,
        "bindVerb": extender.bind_verb,
        "enableHTTPS": extender.enable_https,
        "tlsConfig": tls,
        "nodeCacheCapable": extender.node_cache_capable,
        "managedResources": extender.managed_resources.iter().map(managed).collect::<Vec<_>>(),
        "ignorable": extender.ignorable,
    }));
    all["urlPrefix"] = json!(extender.url_prefix);
    all["httpTimeout"] = json!(extender.http_timeout.to_string());
    all
}

/// An object without its empty fields (Go's `omitempty`).
fn stated(object: Value) -> Value {
    let is_stated = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Number(number) => number.as_i64() != Some(0),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    };
    let fields = object.as_object().into_iter().flatten().filter(|(_, value)| is_stated(value));
    fields.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// A number as Go prints it: whole ones without a fraction.
fn number(value: f64) -> Value {
    let whole = value as i64;
    if whole as f64 == value { json!(whole) } else { json!(value) }
}

fn profile(profile: &Profile) -> Value {
    let mut plugins = Map::new();
    for point in Point::ALL {
        let stated = profile.plugins.at(point).cloned().unwrap_or_default();
        let set = if point == Point::MultiPoint { merged(&stated) } else { stated };
        plugins.insert(point.as_str().to_owned(), plugin_set(&set));
    }
    let mut all = json!({
        "schedulerName": profile.scheduler_name,
        "plugins": plugins,
        "pluginConfig": arguments(profile),
    });
    if let Some(percentage) = profile.percentage_of_nodes_to_score {
        all["percentageOfNodesToScore"] = json!(percentage);
    }
    all
}

fn plugin_set(set: &PluginSet) -> Value {
    let mut all = Map::new();
    if !set.enabled.is_empty() {
        let entry = |plugin: &Plugin| json!({ "name": plugin.name, "weight": plugin.weight.unwrap_or(0) });
        all.insert("enabled".to_owned(), set.enabled.iter().map(entry).collect());
    }
    if !set.disabled.is_empty() {
        let entry = |name: &String| json!({ "name": name, "weight": 0 });
        all.insert("disabled".to_owned(), set.disabled.iter().map(entry).collect());
    }
    Value::Object(all)
}

/// The default plugins without those disabled; those stated again in place of the default, the others after them.
fn merged(stated: &PluginSet) -> PluginSet {
    let is_off = |name: &str| stated.disabled.iter().any(|off| off == name || off == "*");
    let again = |name: &str| stated.enabled.iter().find(|plugin| plugin.name == name).cloned();
    let kept = DEFAULT.iter().filter(|(name, _)| !is_off(name));
    let default = |name: &str, weight| Plugin { name: name.to_owned(), weight: Some(weight) };
    let mut enabled: Vec<Plugin> =
        kept.map(|(name, weight)| again(name).unwrap_or_else(|| default(name, *weight))).collect();
    for plugin in &stated.enabled {
        if !enabled.iter().any(|known| known.name == plugin.name) {
            enabled.push(plugin.clone());
        }
    }
    PluginSet { enabled, disabled: stated.disabled.clone() }
}

/// The arguments of the plugins that the profile runs anywhere, by name.
fn arguments(profile: &Profile) -> Vec<Value> {
    let everywhere = merged(&profile.plugins.at(Point::MultiPoint).cloned().unwrap_or_default());
    let runs = |name: &str| {
        profile.plugins.enables(name) || everywhere.enabled.iter().any(|plugin| plugin.name == name)
    };
    let args = &profile.in_tree;
    let weights = |resources: &[ResourceWeight]| -> Vec<Value> {
        let weight = |resource: &ResourceWeight| json!({ "name": resource.name, "weight": resource.weight });
        resources.iter().map(weight).collect()
    };
    let even = args.balanced.resources.iter().map(|name| json!({ "name": name, "weight": 1 }));
    let mut fit = json!({ "scoringStrategy": { "type": args.fit.kind.as_str(), "resources": weights(&args.fit.resources) } });
    for (field, list) in [
        ("ignoredResources", &args.fit.ignored_resources),
        ("ignoredResourceGroups", &args.fit.ignored_resource_groups),
    ] {
        if !list.is_empty() {
            fit[field] = json!(list);
        }
    }
    if !args.fit.shape.is_empty() {
        let point = |point: &api::schedulerconfig::ShapePoint| json!({ "utilization": point.utilization, "score": point.score });
        let shape: Vec<Value> = args.fit.shape.iter().map(point).collect();
        fit["scoringStrategy"]["requestedToCapacityRatio"] = json!({ "shape": shape });
    }
    let affinity = args
        .affinity
        .added_affinity
        .as_ref()
        .map_or_else(|| json!({}), |added| json!({ "addedAffinity": added }));
    let spread = match &args.spread.default_constraints {
        None => json!({ "defaultingType": "System" }),
        Some(list) if list.is_empty() => json!({ "defaultingType": "List" }),
        Some(list) => json!({ "defaultingType": "List", "defaultConstraints": list }),
    };
    let all = [
        ("DefaultPreemption", json!({ "minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 100 })),
        ("DynamicResources", json!({ "filterTimeout": "10s", "bindingTimeout": "10m0s" })),
        (
            "InterPodAffinity",
            json!({
                "hardPodAffinityWeight": args.pod_affinity.hard_pod_affinity_weight,
                "ignorePreferredTermsOfExistingPods": args.pod_affinity.ignore_preferred_terms_of_existing_pods,
            }),
        ),
        ("NodeAffinity", affinity),
        (NUMA_PLUGIN, numa(&profile.numa, &weights(&profile.numa.scoring_strategy.resources))),
        ("NodeResourcesBalancedAllocation", json!({ "resources": even.collect::<Vec<_>>() })),
        ("NodeResourcesFit", fit),
        ("PodTopologySpread", spread),
        ("VolumeBinding", json!({ "bindTimeoutSeconds": 600 })),
    ];
    let running = all.into_iter().filter(|(name, _)| runs(name));
    running
        .map(|(name, mut args)| {
            args["apiVersion"] = json!(API_VERSION);
            args["kind"] = json!(format!("{name}Args"));
            if let Some(Value::Object(stated)) = profile.other_args.get(name) {
                for (field, value) in stated.iter().filter(|(_, value)| !value.is_null()) {
                    args[field] = value.clone();
                }
            }
            json!({ "name": name, "args": args })
        })
        .collect()
}

/// The arguments of the Go plugin, with its defaults.
fn numa(args: &NodeResourceTopologyMatchArgs, weights: &[Value]) -> Value {
    let mut all = json!({
        "scoringStrategy": { "type": args.scoring_strategy.kind.as_str(), "resources": weights },
        "cacheResyncPeriodSeconds": args.cache_resync_period_seconds,
        "discardReservedNodes": args.discard_reserved_nodes,
        "cache": {
            "foreignPodsDetect": args.cache.foreign_pods_detect.as_str(),
            "resyncMethod": args.cache.resync_method.as_str(),
            "informerMode": args.cache.informer_mode.as_str(),
            "resyncScope": args.cache.resync_scope.as_str(),
        },
        "preemptionMode": args.preemption_mode.as_str(),
    });
    if args.cache.accounting != CacheAccounting::default() {
        all["cache"]["accounting"] = json!(args.cache.accounting.as_str());
    }
    if args.nodes_without_topology != NodesWithoutTopology::default() {
        all["nodesWithoutTopology"] = json!(args.nodes_without_topology.as_str());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multi_point_merges_as_kube_scheduler_does() {
        let plugin = |name: &str, weight| Plugin { name: name.to_owned(), weight };
        let names = |set: &PluginSet| -> Vec<(String, i32)> {
            set.enabled.iter().map(|plugin| (plugin.name.clone(), plugin.weight.unwrap_or(0))).collect()
        };
        let default: Vec<_> = DEFAULT.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect();
        assert_eq!(names(&merged(&PluginSet::default())), default);
        let off = vec!["*".to_owned()];
        let two = vec![plugin(NUMA_PLUGIN, None), plugin("NodeName", None)];
        let set = merged(&PluginSet { enabled: two.clone(), disabled: off });
        assert_eq!(names(&set), [(NUMA_PLUGIN.to_owned(), 0), ("NodeName".to_owned(), 0)]);
        let set = merged(&PluginSet {
            enabled: vec![plugin(NUMA_PLUGIN, Some(4)), plugin("NodeAffinity", Some(9))],
            disabled: vec!["NodeName".to_owned()],
        });
        let mut wanted = default;
        wanted.remove(3);
        wanted[4].1 = 9;
        wanted.push((NUMA_PLUGIN.to_owned(), 4));
        assert_eq!(names(&set), wanted);
    }
}
