//! kube-scheduler's own plugins in a configuration file.
//!
//! In: names and arguments of plugins. Out: whether this scheduler does the same with them. Never: an argument that is
//! accepted and has no effect. Source: kube-scheduler 1.36 `plugins/names` and `apis/config/v1` defaults.

use serde_json::{Map, Value, json};

/// The plugins of kube-scheduler 1.36.
pub(super) const NAMES: [&str; 23] = [
    "DefaultBinder",
    "DefaultPreemption",
    "DynamicResources",
    "GangScheduling",
    "ImageLocality",
    "InterPodAffinity",
    "NodeAffinity",
    "NodeDeclaredFeatures",
    "NodeName",
    "NodePorts",
    "NodeResourcesBalancedAllocation",
    "NodeResourcesFit",
    "NodeUnschedulable",
    "NodeVolumeLimits",
    "PodGroupPodsCount",
    "PodTopologySpread",
    "PrioritySort",
    "SchedulingGates",
    "TaintToleration",
    "TopologyPlacementGenerator",
    "VolumeBinding",
    "VolumeRestrictions",
    "VolumeZone",
];

/// A plugin of the Go stack's scheduler that only logs. The configurations that its operator makes enable it.
pub(super) const KNI_DEBUG: &str = "KNIDebug";

/// Plugins that always run here; to disable one has no effect.
pub(super) const ALWAYS: [&str; 11] = [
    "DefaultBinder",
    "InterPodAffinity",
    "NodeAffinity",
    "NodeName",
    "NodePorts",
    "NodeResourcesBalancedAllocation",
    "NodeResourcesFit",
    "NodeUnschedulable",
    "PodTopologySpread",
    "PrioritySort",
    "TaintToleration",
];

/// The default arguments of a plugin; empty for plugins without arguments.
fn defaults(plugin: &str) -> Map<String, Value> {
    let resources = json!([{ "name": "cpu", "weight": 1 }, { "name": "memory", "weight": 1 }]);
    let defaults = match plugin {
        "DefaultPreemption" => json!({ "minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 100 }),
        "DynamicResources" => json!({ "filterTimeout": "10s", "bindingTimeout": "10m0s" }),
        "InterPodAffinity" => {
            json!({ "hardPodAffinityWeight": 1, "ignorePreferredTermsOfExistingPods": false })
        }
        "NodeAffinity" => json!({ "addedAffinity": null }),
        "NodeResourcesBalancedAllocation" => json!({ "resources": resources }),
        "NodeResourcesFit" => json!({
            "ignoredResources": null, "ignoredResourceGroups": null,
            "scoringStrategy": { "type": "LeastAllocated", "resources": resources },
        }),
        "PodTopologySpread" => json!({ "defaultConstraints": null, "defaultingType": "System" }),
        "VolumeBinding" => json!({ "bindTimeoutSeconds": 600, "shape": null }),
        _ => json!({}),
    };
    match defaults {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// The first argument that is not the default, with the problem.
pub(super) fn differing_argument(plugin: &str, args: &Value) -> Option<(String, String)> {
    let Value::Object(args) = args else { return None };
    let defaults = defaults(plugin);
    let stated = args.iter().filter(|(field, _)| !matches!(field.as_str(), "apiVersion" | "kind"));
    stated.into_iter().find_map(|(field, value)| {
        let problem = match defaults.get(field) {
            None => "unknown field".to_owned(),
            Some(default) if is_default(value, default) => return None,
            Some(Value::Null) => "not supported yet; leave it out".to_owned(),
            Some(default) => format!("{value} is not supported yet; allowed value: {default}"),
        };
        Some((field.clone(), problem))
    })
}

/// Whether a value says no more than the default: missing parts are filled in from it, empty ones count as missing.
fn is_default(value: &Value, default: &Value) -> bool {
    match (value, default) {
        (Value::Null, _) => true,
        (Value::Array(list), _) if list.is_empty() => true,
        (Value::Object(value), Value::Object(default)) => value
            .iter()
            .all(|(field, value)| default.get(field).is_some_and(|known| is_default(value, known))),
        _ => value == default,
    }
}
