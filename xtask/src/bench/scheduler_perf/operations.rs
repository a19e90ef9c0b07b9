//! The operations of a workload, as the configuration of upstream's `scheduler_perf` names them.
//!
//! In: an entry of `workloadTemplate`, the parameters of a workload, a scale. Out: a typed operation with values in
//! place of parameters. An operation code that is not known is an error that names it, and so is a field.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value};

/// One step of a workload.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "opcode", rename_all = "camelCase")]
pub(super) enum Operation {
    CreateNodes(CreateNodes),
    CreateNamespaces(CreateNamespaces),
    CreatePods(CreatePods),
    CreatePodSets(CreatePodSets),
    DeletePods(DeletePods),
    CreateAny(CreateAny),
    UpdateAny(UpdateAny),
    CreateResourceDriver(CreateResourceDriver),
    Churn(Churn),
    Barrier(Barrier),
    Sleep(Sleep),
    StartCollectingMetrics(StartCollectingMetrics),
    StopCollectingMetrics {},
}

/// Makes nodes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CreateNodes {
    pub(super) count: usize,
    pub(super) node_template_path: Option<String>,
    pub(super) node_allocatable_strategy: Option<NodeAllocatable>,
    pub(super) label_node_prepare_strategy: Option<NodeLabels>,
    pub(super) unique_node_label_strategy: Option<UniqueNodeLabel>,
}

/// What drivers can attach to each node.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NodeAllocatable {
    /// Without effect: upstream patches it with the node and not with its status, and the API server drops it.
    #[serde(default, rename = "nodeAllocatable")]
    pub(super) _node_allocatable: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) csi_node_allocatable: BTreeMap<String, Value>,
    #[serde(default)]
    pub(super) migrated_plugins: Vec<String>,
}

/// A label whose values the nodes take by turns.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NodeLabels {
    pub(super) label_key: String,
    pub(super) label_values: Vec<String>,
}

/// A label with another value on each node.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct UniqueNodeLabel {
    pub(super) label_key: String,
}

/// Makes namespaces that are named after a prefix and a number.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CreateNamespaces {
    pub(super) prefix: String,
    pub(super) count: usize,
    pub(super) namespace_template_path: Option<String>,
}

/// Makes pods and waits until they are on nodes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CreatePods {
    pub(super) count: usize,
    pub(super) namespace: Option<String>,
    pub(super) pod_template_path: Option<String>,
    #[serde(default)]
    pub(super) collect_metrics: bool,
    #[serde(default)]
    pub(super) skip_wait_to_completion: bool,
    pub(super) persistent_volume_template_path: Option<String>,
    pub(super) persistent_volume_claim_template_path: Option<String>,
    #[serde(default)]
    pub(super) steady_state: bool,
    #[serde(default, deserialize_with = "duration")]
    pub(super) duration: Duration,
}

/// Makes pods in several namespaces.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CreatePodSets {
    pub(super) count: usize,
    pub(super) namespace_prefix: String,
    pub(super) create_pods_op: Box<Operation>,
}

/// Deletes the pods of a namespace, at once or so many a second.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DeletePods {
    pub(super) namespace: String,
    #[serde(default)]
    pub(super) label_selector: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) skip_wait_to_completion: bool,
    #[serde(default)]
    pub(super) delete_pods_per_second: u32,
}

/// Makes objects of any kind.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CreateAny {
    pub(super) namespace: Option<String>,
    pub(super) template_path: String,
    #[serde(default = "one")]
    pub(super) count: usize,
}

/// Replaces objects of any kind and their status.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct UpdateAny {
    pub(super) namespace: Option<String>,
    pub(super) template_path: String,
    #[serde(default = "one")]
    pub(super) count: usize,
    #[serde(default)]
    pub(super) update_per_second: u32,
    #[serde(default)]
    pub(super) subresources: Vec<String>,
}

/// Publishes devices of a driver on the nodes whose names match.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CreateResourceDriver {
    pub(super) driver_name: String,
    /// A name, or the beginning of one and `*`.
    pub(super) nodes: String,
    pub(super) max_claims_per_node: usize,
}

/// Makes objects in the background until the workload ends.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Churn {
    pub(super) mode: ChurnMode,
    #[serde(default)]
    pub(super) number: usize,
    #[serde(default)]
    pub(super) interval_milliseconds: u64,
    pub(super) namespace: Option<String>,
    pub(super) template_paths: Vec<String>,
}

/// What happens to the objects of a churn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ChurnMode {
    /// They stay.
    Create,
    /// They are deleted and made again by turns.
    Recreate,
}

/// Waits for pods of earlier operations.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Barrier {
    #[serde(default)]
    pub(super) namespaces: Vec<String>,
    #[serde(default)]
    pub(super) label_selector: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) stage_requirement: Stage,
}

/// What pods have to have reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(super) enum Stage {
    /// They are on nodes.
    #[default]
    Scheduled,
    /// The scheduler has tried, or they are on nodes.
    Attempted,
}

/// Waits for a time.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Sleep {
    #[serde(deserialize_with = "duration")]
    pub(super) duration: Duration,
}

/// Begins a measurement.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct StartCollectingMetrics {
    #[serde(default)]
    pub(super) name: String,
    pub(super) namespaces: Vec<String>,
    #[serde(default)]
    pub(super) label_selector: BTreeMap<String, String>,
}

fn one() -> usize {
    1
}

/// A duration of Go, such as `10s` or `1m30s`.
fn duration<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(input)?;
    let parsed: jiff::SignedDuration = text.parse().map_err(D::Error::custom)?;
    parsed.try_into().map_err(|_| D::Error::custom(format!("{text} is negative")))
}

/// Reads an operation, with the values of parameters and with counts scaled.
pub(super) fn operation(
    entry: &Value,
    params: &BTreeMap<String, Value>,
    scale: f64,
) -> anyhow::Result<Operation> {
    let code = entry.get("opcode").and_then(Value::as_str).context("an operation has no opcode")?;
    let fields = entry.as_object().context("an operation is not a mapping")?;
    let in_place = substitute(fields, params, scale).with_context(|| format!("operation {code}"))?;
    serde_json::from_value(Value::Object(in_place)).with_context(|| format!("operation {code}"))
}

/// The fields with `countParam: $name` as `count` and the parameter's value, and so on. Only counts that come from
/// parameters are scaled. Within `createPodSets` the number of sets is, and that of pods in each set is not.
fn substitute(
    fields: &Map<String, Value>,
    params: &BTreeMap<String, Value>,
    scale: f64,
) -> anyhow::Result<Map<String, Value>> {
    let mut in_place = Map::new();
    for (key, value) in fields {
        match (key.strip_suffix("Param"), value) {
            (Some(name), Value::String(reference)) => {
                let param = reference.strip_prefix('$').with_context(|| format!("{key}: {reference}"))?;
                let value = params.get(param).with_context(|| format!("the parameter {param} is not set"))?;
                let value = if name == "count" { scaled(value, scale) } else { value.clone() };
                in_place.insert(name.to_owned(), value);
            }
            (_, Value::Object(inner)) if key == "createPodsOp" => {
                in_place.insert(key.clone(), Value::Object(substitute(inner, params, 1.0)?));
            }
            // A parameter wins over a value.
            _ => drop(in_place.entry(key.clone()).or_insert_with(|| value.clone())),
        }
    }
    Ok(in_place)
}

/// A count times the scale, rounded; of what there is, one stays.
fn scaled(value: &Value, scale: f64) -> Value {
    match value.as_u64() {
        Some(count) if count > 0 => Value::from(((count as f64 * scale).round() as u64).max(1)),
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(entry: &Value, scale: f64) -> anyhow::Result<Operation> {
        let params = BTreeMap::from([
            ("few".to_owned(), json!(4)),
            ("many".to_owned(), json!(1000)),
            ("none".to_owned(), json!(0)),
            ("long".to_owned(), json!("1m30s")),
        ]);
        operation(entry, &params, scale)
    }

    fn pods(count: usize) -> CreatePods {
        CreatePods {
            count,
            namespace: None,
            pod_template_path: None,
            collect_metrics: false,
            skip_wait_to_completion: false,
            persistent_volume_template_path: None,
            persistent_volume_claim_template_path: None,
            steady_state: false,
            duration: Duration::ZERO,
        }
    }

    #[test]
    fn parameters_take_their_values_and_counts_their_scale() {
        let cases = [
            (
                json!({ "opcode": "createPods", "countParam": "$many" }),
                1.0,
                Operation::CreatePods(pods(1000)),
            ),
            (json!({ "opcode": "createPods", "countParam": "$many" }), 0.1, Operation::CreatePods(pods(100))),
            (json!({ "opcode": "createPods", "countParam": "$few" }), 0.1, Operation::CreatePods(pods(1))),
            (json!({ "opcode": "createPods", "countParam": "$none" }), 0.1, Operation::CreatePods(pods(0))),
            (json!({ "opcode": "createPods", "count": 5 }), 0.1, Operation::CreatePods(pods(5))),
            (
                json!({ "opcode": "createPods", "count": 5, "countParam": "$few" }),
                1.0,
                Operation::CreatePods(pods(4)),
            ),
            (
                json!({
                    "opcode": "createPodSets", "countParam": "$many", "namespacePrefix": "ns",
                    "createPodsOp": { "opcode": "createPods", "countParam": "$few" },
                }),
                0.5,
                Operation::CreatePodSets(CreatePodSets {
                    count: 500,
                    namespace_prefix: "ns".to_owned(),
                    create_pods_op: Box::new(Operation::CreatePods(pods(4))),
                }),
            ),
            (
                json!({ "opcode": "createResourceDriver", "driverName": "d", "nodes": "n-*",
                    "maxClaimsPerNodeParam": "$few" }),
                0.5,
                Operation::CreateResourceDriver(CreateResourceDriver {
                    driver_name: "d".to_owned(),
                    nodes: "n-*".to_owned(),
                    max_claims_per_node: 4,
                }),
            ),
            (
                json!({ "opcode": "sleep", "durationParam": "$long" }),
                0.5,
                Operation::Sleep(Sleep { duration: Duration::from_secs(90) }),
            ),
            (json!({ "opcode": "stopCollectingMetrics" }), 1.0, Operation::StopCollectingMetrics {}),
        ];
        for (entry, scale, expected) in cases {
            assert_eq!(read(&entry, scale).unwrap(), expected, "{entry} at {scale}");
        }
    }

    #[test]
    fn what_is_not_known_is_named() {
        let cases = [
            (json!({ "opcode": "reboot" }), "reboot"),
            (json!({ "count": 1 }), "no opcode"),
            (json!({ "opcode": "createPods", "countParam": "$other" }), "other"),
            (json!({ "opcode": "createPods", "count": 1, "colour": "red" }), "colour"),
            (json!({ "opcode": "sleep", "duration": "-1s" }), "negative"),
            (json!({ "opcode": "barrier", "stageRequirement": "Done" }), "Done"),
        ];
        for (entry, expected) in cases {
            let error = format!("{:#}", read(&entry, 1.0).unwrap_err());
            assert!(error.contains(expected), "{entry}: {error}");
        }
    }
}
