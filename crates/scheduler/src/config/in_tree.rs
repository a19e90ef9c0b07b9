//! kube-scheduler's own plugins in a configuration file.
//!
//! In: names and arguments of plugins. Out: where each acts, and whether this scheduler does the same with its
//! arguments. Never: an argument that is accepted and has no effect. Source: kube-scheduler 1.36 `plugins/names`,
//! `default_plugins.go` and `apis/config/v1` defaults.

use api::schedulerconfig::ExtensionPoint as Point;
use serde_json::{Map, Value, json};

use crate::plugins::{default_preemption, volume_binding};

/// A plugin of kube-scheduler 1.36.
pub(super) struct InTree {
    /// Its name.
    pub(super) name: &'static str,
    /// Where it acts; empty: not told, so every place is accepted.
    points: &'static [Point],
    /// Its weight in the default profile; `None`: it is not in there. 0 means 1, as in a file.
    pub(super) default: Option<i32>,
}

const fn plugin(name: &'static str, points: &'static [Point]) -> InTree {
    InTree { name, points, default: Some(0) }
}

const fn weighted(name: &'static str, points: &'static [Point], weight: i32) -> InTree {
    InTree { name, points, default: Some(weight) }
}

/// Alpha, and off.
const fn off(name: &'static str) -> InTree {
    InTree { name, points: &[], default: None }
}

/// The plugins, by name.
pub(super) const PLUGINS: [InTree; 23] = {
    use Point::{
        Bind, Filter, Permit, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore, QueueSort, Reserve, Score,
    };
    const ALL_OF_AFFINITY: &[Point] = &[PreFilter, Filter, PreScore, Score];
    const TWO: &[Point] = &[PreFilter, Filter];
    [
        plugin("DefaultBinder", &[Bind]),
        plugin("DefaultPreemption", &[PreEnqueue, PostFilter]),
        weighted(
            "DynamicResources",
            &[PreEnqueue, PreFilter, Filter, PostFilter, Score, Reserve, PreBind],
            2,
        ),
        InTree { name: "GangScheduling", points: &[PreEnqueue, Permit], default: None },
        plugin("ImageLocality", &[Score]),
        weighted("InterPodAffinity", ALL_OF_AFFINITY, 2),
        weighted("NodeAffinity", ALL_OF_AFFINITY, 2),
        plugin("NodeDeclaredFeatures", TWO),
        plugin("NodeName", &[Filter]),
        plugin("NodePorts", TWO),
        plugin("NodeResourcesBalancedAllocation", &[PreScore, Score]),
        plugin("NodeResourcesFit", ALL_OF_AFFINITY),
        plugin("NodeUnschedulable", &[Filter]),
        plugin("NodeVolumeLimits", TWO),
        off("PodGroupPodsCount"),
        weighted("PodTopologySpread", ALL_OF_AFFINITY, 2),
        plugin("PrioritySort", &[QueueSort]),
        plugin("SchedulingGates", &[PreEnqueue]),
        weighted("TaintToleration", &[Filter, PreScore, Score], 3),
        off("TopologyPlacementGenerator"),
        plugin("VolumeBinding", &[PreFilter, Filter, Reserve, PreBind, PreScore, Score]),
        plugin("VolumeRestrictions", TWO),
        plugin("VolumeZone", TWO),
    ]
};

/// A plugin of the Go stack's scheduler that only logs. The configurations that its operator makes enable it.
pub(super) const KNI_DEBUG: &str = "KNIDebug";

/// The plugin with this name.
pub(super) fn find(name: &str) -> Option<&'static InTree> {
    PLUGINS.iter().find(|plugin| plugin.name == name)
}

impl InTree {
    /// Whether the plugin acts at this point.
    pub(super) fn acts_at(&self, point: Point) -> bool {
        self.points.is_empty() || self.points.contains(&point)
    }
}

/// The default arguments of a plugin without typed ones; empty for plugins without arguments.
fn defaults(plugin: &str) -> Map<String, Value> {
    let defaults = match plugin {
        "DynamicResources" => json!({ "filterTimeout": "10s", "bindingTimeout": "10m0s" }),
        "VolumeBinding" => json!({ "bindTimeoutSeconds": 600, "shape": null }),
        "InterPodAffinity" => {
            json!({ "hardPodAffinityWeight": 1, "ignorePreferredTermsOfExistingPods": false })
        }
        "PodTopologySpread" => json!({ "defaultConstraints": null, "defaultingType": "System" }),
        _ => json!({}),
    };
    match defaults {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// The arguments of DefaultPreemption, or the first field with a problem (kube-scheduler 1.36
/// `ValidateDefaultPreemptionArgs`).
pub(super) fn preemption_args(args: Option<&Value>) -> Result<default_preemption::Args, (String, String)> {
    const PERCENTAGE: &str = "minCandidateNodesPercentage";
    const ABSOLUTE: &str = "minCandidateNodesAbsolute";
    let default = default_preemption::Args::default();
    let Some(Value::Object(args)) = args else { return Ok(default) };
    let problem = |field: &str, problem: String| Err((field.to_owned(), problem));
    let known = ["apiVersion", "kind", PERCENTAGE, ABSOLUTE];
    if let Some(field) = args.keys().find(|field| !known.contains(&field.as_str())) {
        return problem(field, format!("unknown field; allowed are {}", known.join(", ")));
    }
    let mut numbers = [default.min_candidate_nodes_percentage, default.min_candidate_nodes_absolute];
    let fields = [(PERCENTAGE, 100, "[0, 100]"), (ABSOLUTE, i64::from(i32::MAX), "[0, inf)")];
    for (number, (field, most, range)) in numbers.iter_mut().zip(fields) {
        let value = args.get(field).unwrap_or(&Value::Null);
        let stated = value.as_i64().filter(|stated| (0..=most).contains(stated));
        match stated.and_then(|stated| usize::try_from(stated).ok()) {
            Some(stated) => *number = stated,
            None if value.is_null() => {}
            None if value.is_i64() => {
                return problem(field, format!("Invalid value: {value}: not in valid range {range}"));
            }
            None => return problem(field, format!("{value} is no whole number in the range {range}")),
        }
    }
    if numbers == [0, 0] {
        let problem = "Invalid value: 0: cannot be zero at the same time as minCandidateNodesAbsolute";
        return Err((PERCENTAGE.to_owned(), problem.to_owned()));
    }
    let [min_candidate_nodes_percentage, min_candidate_nodes_absolute] = numbers;
    Ok(default_preemption::Args { min_candidate_nodes_percentage, min_candidate_nodes_absolute })
}

/// The arguments of VolumeBinding, or the first field with a problem (kube-scheduler 1.36
/// `ValidateVolumeBindingArgsWithOptions` without the gate `StorageCapacityScoring`, which is off).
pub(super) fn volume_binding_args(args: Option<&Value>) -> Result<volume_binding::Args, (String, String)> {
    const TIMEOUT: &str = "bindTimeoutSeconds";
    const SHAPE: &str = "shape";
    let mut read = volume_binding::Args::default();
    let Some(Value::Object(args)) = args else { return Ok(read) };
    let problem = |field: &str, problem: String| Err((field.to_owned(), problem));
    let known = ["apiVersion", "kind", TIMEOUT, SHAPE];
    if let Some(field) = args.keys().find(|field| !known.contains(&field.as_str())) {
        return problem(field, format!("unknown field; allowed are {}", known.join(", ")));
    }
    match args.get(TIMEOUT).unwrap_or(&Value::Null) {
        Value::Null => {}
        value => match (value.as_u64().filter(|seconds| i64::try_from(*seconds).is_ok()), value.as_i64()) {
            (Some(seconds), _) => read.bind_timeout_s = seconds,
            (None, Some(_)) => {
                let text = "invalid BindTimeoutSeconds, should not be a negative value";
                return problem(TIMEOUT, format!("Invalid value: {value}: {text}"));
            }
            (None, None) => return problem(TIMEOUT, format!("{value} is no whole number")),
        },
    }
    match args.get(SHAPE).unwrap_or(&Value::Null) {
        Value::Null => Ok(read),
        value => {
            let text =
                "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring";
            problem(SHAPE, format!("Invalid value: {value}: {text}"))
        }
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
