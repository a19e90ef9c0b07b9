//! Acceptance vectors for zones: what the NodeResourceTopologyMatch plugin answers, alone and in a scheduler.
//!
//! Where we answer differently, it is on purpose, and listed here by vector.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::nrt::NodeResourceTopology;
use e2e::catalogue::tmpol::vectors::VECTORS as VECTORS_OF_SPECS;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde_json::{Value, json};
use topology::policy::{DEFAULT_MAX_NUMA_NODES, Manager};
use topology::request::PodNeeds;
use topology::score::{Strategy, Weights, ZoneScorer};
use topology::zone::NodeTopology;

use crate::config::default_settings;
use crate::explain;
use crate::ledger::{Ledger, Refusal, Scratch};
use crate::over_reserve::OverReserve;
use crate::reason::Reason;

/// Filter vectors we answer differently, each with the reason.
const OTHER_FILTERS: [(&str, &str); 9] = [
    ("filter-068", REUSE),
    ("filter-089", REUSE),
    ("filter-105", "a Burstable pod without devices is never aligned, so stale zones do not matter to it"),
    ("filter-114", "restricted is enforced by the kubelet, so it is filtered"),
    ("filter-124", "a Burstable pod's cpu is never aligned, so no zone has to list it"),
    ("filter-127", "a Burstable pod's memory is never aligned, so no zone has to list it"),
    ("filter-128", "what the whole node does not have is refused before zones are looked at"),
    ("filter-141", "sidecars run beside the app containers, and the kubelet sums them"),
    ("filter-145", "the kubelet does not align overhead"),
];
const REUSE: &str = "the CPUs of an init container stay with the pod, and later containers must be in their zone \
    (the whole loop shows a real kubelet reject this shape)";

/// Score vectors we answer differently, each with the reason.
const OTHER_SCORES: [(&str, &str); 4] = [
    ("score-038", "zones of a restricted node are filtered, so they are scored too"),
    ("score-047", "zones of a restricted node are filtered, so they are scored too"),
    ("score-089", "what no zone lists takes no part in LeastNUMANodes"),
    ("score-116", "what no zone lists takes no part in LeastNUMANodes"),
];

const NOW_MS: u64 = 1_000_000_000;

const VECTORS: &str = include_str!("../tests/data/zone-vectors.json");

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vectors {
    filter: Vec<FilterVector>,
    score: Vec<ScoreVector>,
    placement: Vec<PlacementVector>,
    least_numa_nodes: Vec<LeastNumaNodesVector>,
    rules: Vec<RulesVector>,
}

#[derive(Deserialize)]
struct FilterVector {
    id: String,
    name: String,
    fresh: bool,
    nrt: Option<Value>,
    pod: Value,
    qos: String,
    expected: String,
}

#[derive(Deserialize)]
struct ScoreVector {
    id: String,
    name: String,
    strategy: String,
    weights: BTreeMap<String, i64>,
    nodes: Vec<ScoreNode>,
    pod: Value,
    qos: String,
    expected: BTreeMap<String, i64>,
}

#[derive(Deserialize)]
struct ScoreNode {
    name: String,
    fresh: bool,
    nrt: Option<Value>,
}

/// A pod that a scheduler places on one of several nodes.
#[derive(Deserialize)]
struct PlacementVector {
    id: String,
    name: String,
    strategy: String,
    nodes: Vec<PlacementNode>,
    pod: Value,
    /// The nodes of which it may have any; none if it waits.
    chosen: Vec<String>,
    /// What the filter says of each node, empty where the pod fits.
    filter: BTreeMap<String, String>,
    /// Of nodes that fit.
    scores: BTreeMap<String, i64>,
}

#[derive(Deserialize)]
struct PlacementNode {
    name: String,
    allocatable: Value,
    nrt: Value,
}

/// The zones that LeastNUMANodes takes for a request.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeastNumaNodesVector {
    id: String,
    name: String,
    zones: Vec<LeastNumaNodesZone>,
    request: BTreeMap<String, String>,
    zones_used: i64,
    closest: bool,
}

#[derive(Deserialize)]
struct LeastNumaNodesZone {
    id: u32,
    resources: BTreeMap<String, String>,
    costs: BTreeMap<String, i64>,
}

/// The kubelet's rules that an object states.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RulesVector {
    id: String,
    name: String,
    nrt: Value,
    policy: String,
    scope: String,
    #[serde(rename = "maxNUMANodes")]
    max_numa_nodes: u32,
}

fn strategy(name: &str) -> Strategy {
    match name {
        "LeastAllocated" => Strategy::LeastAllocated,
        "MostAllocated" => Strategy::MostAllocated,
        "LeastNUMANodes" => Strategy::LeastNumaNodes,
        "BalancedAllocation" => Strategy::BalancedAllocation,
        other => panic!("no strategy {other}"),
    }
}

fn topology(nrt: &Value) -> Arc<NodeTopology> {
    let mut object = nrt.clone();
    object["metadata"] = json!({"name": "n"});
    let object: NodeResourceTopology = serde_json::from_value(object).unwrap();
    Arc::new(api::convert::node_topology(&object).unwrap().0)
}

fn ledger(nrt: Option<&Value>, fresh: bool) -> Ledger {
    let mut ledger = Ledger::default();
    if let Some(nrt) = nrt {
        ledger.report(topology(nrt), &mut Scratch::default());
    }
    if !fresh {
        ledger.report_deleted();
    }
    ledger
}

fn needs(pod: &Value, qos: &str) -> PodNeeds {
    let object = json!({"metadata": {"name": "p"}, "spec": pod, "status": {"qosClass": qos}});
    let pod: Pod = serde_json::from_value(object).unwrap();
    api::convert::pod_request(&pod).unwrap().needs()
}

#[test]
fn filter() {
    let vectors: Vectors = serde_json::from_str(VECTORS).unwrap();
    let mut different = Vec::new();
    for vector in &vectors.filter {
        let ledger = ledger(vector.nrt.as_ref(), vector.fresh);
        let answer = match ledger.check((&needs(&vector.pod, &vector.qos), 0), &mut Scratch::default()) {
            Ok(()) => String::new(),
            Err(Refusal::Misfit(misfit)) => Reason::Misaligned(misfit).to_string(),
            Err(Refusal::Stale(doubt)) => Reason::StaleTopology(doubt).to_string(),
        };
        let same =
            if vector.expected.is_empty() { answer.is_empty() } else { answer.starts_with(&vector.expected) };
        let on_purpose = OTHER_FILTERS.iter().any(|(id, _)| *id == vector.id);
        if same == on_purpose {
            different.push(format!("{} {}: {:?}, not {:?}", vector.id, vector.name, answer, vector.expected));
        }
    }
    assert_eq!(different, [""; 0]);
}

/// The end-to-end specs of single-numa-node: what they demand of a cluster, the filter says.
#[test]
fn filter_of_the_end_to_end_specs() {
    for vector in VECTORS_OF_SPECS {
        let needs = api::convert::pod_request(&vector.pod().unwrap()).unwrap().needs();
        let answer = |zones, manager| {
            let mut ledger = Ledger::default();
            ledger.report(Arc::new(vector.node(zones, manager).unwrap()), &mut Scratch::default());
            ledger.check((&needs, 0), &mut Scratch::default()).map_err(|refusal| match refusal {
                Refusal::Misfit(misfit) => Reason::Misaligned(misfit).to_string(),
                Refusal::Stale(doubt) => Reason::StaleTopology(doubt).to_string(),
            })
        };
        let wanted = format!("cannot align {}", vector.scope.as_str());
        for manager in [Manager::Unknown, Manager::Static] {
            let others = answer(&vector.others, manager);
            assert!(others.is_err() || !vector.never_fits_others(), "{}: others, {manager:?}", vector.id);
            let target = answer(&vector.target, manager);
            assert_eq!(target.is_ok(), vector.fits_target(manager), "{}: {target:?}, {manager:?}", vector.id);
            for said in [others, target].into_iter().filter_map(Result::err) {
                assert!(said.starts_with(&wanted), "{}: {said}", vector.id);
            }
        }
    }
}

#[test]
fn score() {
    let vectors: Vectors = serde_json::from_str(VECTORS).unwrap();
    let mut different = Vec::new();
    for vector in &vectors.score {
        let strategy = strategy(&vector.strategy);
        let weights = Weights(
            vector
                .weights
                .iter()
                .map(|(name, weight)| (topology::resource::ResourceName::new(name).unwrap(), *weight))
                .collect(),
        );
        let needs = needs(&vector.pod, &vector.qos);
        for node in &vector.nodes {
            let ledger = ledger(node.nrt.as_ref(), node.fresh);
            let score =
                crate::cycle::zones::zone_score_of(&ledger, &ZoneScorer::new(strategy, &weights, &needs));
            let on_purpose = OTHER_SCORES.iter().any(|(id, _)| *id == vector.id);
            if (score == vector.expected[&node.name]) == on_purpose {
                different.push(format!(
                    "{} {} {}: {score}, not {}",
                    vector.id, vector.name, node.name, vector.expected[&node.name]
                ));
            }
            let mut over_reserve = OverReserve::default();
            node.nrt.iter().for_each(|nrt| over_reserve.report(topology(nrt)));
            let score = over_reserve.score(&ZoneScorer::new(strategy, &weights, &needs));
            // Upstream's cache may call a report stale; this accounting waits for none.
            let is_compared = node.fresh && !(on_purpose && strategy == Strategy::LeastNumaNodes);
            if is_compared && score != vector.expected[&node.name] {
                different.push(format!("{} {}, OverReserve: {score}", vector.id, node.name));
            }
        }
    }
    assert_eq!(different, [""; 0]);
}

/// Whole decisions, as `explain` tells them.
#[test]
fn placement() {
    let vectors: Vectors = serde_json::from_str(VECTORS).unwrap();
    let mut different = Vec::new();
    for vector in &vectors.placement {
        let objects = vector.nodes.iter().flat_map(|node| {
            let metadata = json!({"name": node.name, "uid": node.name});
            let mut report = node.nrt.clone();
            report["apiVersion"] = "topology.node.k8s.io/v1alpha2".into();
            report["kind"] = "NodeResourceTopology".into();
            report["metadata"] = metadata.clone();
            let status = json!({"allocatable": node.allocatable});
            [json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}), report]
        });
        let mut settings = default_settings(0);
        settings.profiles[0].numa.as_mut().unwrap().strategy = strategy(&vector.strategy);
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ns", "name": "p"}, "spec": vector.pod,
        });
        pod["spec"]["schedulerName"] = (*settings.profiles[0].name).into();
        let told = explain::of_objects(settings, objects, pod, NOW_MS).unwrap();

        let mut differs = |what: String| different.push(format!("{} {}: {what}", vector.id, vector.name));
        if !told
            .chosen
            .as_ref()
            .map_or(vector.chosen.is_empty(), |node| vector.chosen.iter().any(|wanted| **wanted == **node))
        {
            differs(format!("{:?}, not one of {:?}", told.chosen, vector.chosen));
        }
        for row in &told.nodes {
            let (wanted, code) = match &*vector.filter[&*row.node] {
                "" => ("", "Success"),
                reason => (reason, "Unschedulable"),
            };
            let reason = row.reasons.first().map_or("", String::as_str);
            let is_same = if wanted.is_empty() { reason.is_empty() } else { reason.starts_with(wanted) };
            if !is_same || row.code != code {
                differs(format!("{}: {} {reason:?}, not {code} {wanted:?}", row.node, row.code));
            }
            let wanted = vector.scores.get(&*row.node);
            let score = row.scores.get("NodeResourceTopologyMatch").filter(|_| row.fits);
            if score != wanted {
                differs(format!("{}: {score:?}, not {wanted:?}", row.node));
            }
        }
    }
    assert_eq!(different, [""; 0]);
}

/// The score tells how many zones were taken, and whether no others are closer.
#[test]
fn least_numa_nodes() {
    let vectors: Vectors = serde_json::from_str(VECTORS).unwrap();
    assert!(!vectors.least_numa_nodes.is_empty());
    for vector in &vectors.least_numa_nodes {
        let zones: Vec<Value> = vector.zones.iter().map(LeastNumaNodesZone::object).collect();
        let nrt = json!({"topologyPolicies": ["BestEffortPodLevel"], "zones": zones});
        let amounts = &vector.request;
        let resources = json!({"requests": amounts, "limits": amounts});
        let needs = needs(&json!({"containers": [{"name": "c", "resources": resources}]}), "Guaranteed");
        let scorer = ZoneScorer::new(Strategy::LeastNumaNodes, &Weights::default(), &needs);
        let score = crate::cycle::zones::zone_score_of(&ledger(Some(&nrt), true), &scorer);
        // Of at most eight zones: twelve for each, and half of that back.
        let wanted = match vector.zones_used {
            0 => 0,
            zones => 100 - 12 * zones + if vector.closest { 6 } else { 0 },
        };
        assert_eq!(score, wanted, "{} {}", vector.id, vector.name);
    }
}

impl LeastNumaNodesZone {
    fn object(&self) -> Value {
        let resource = |(name, amount): (&String, &String)| json!({"name": name, "capacity": amount, "allocatable": amount, "available": amount});
        let cost = |(id, value): (&String, &i64)| json!({"name": format!("node-{id}"), "value": value});
        json!({
            "name": format!("node-{}", self.id), "type": "Node",
            "resources": self.resources.iter().map(resource).collect::<Vec<_>>(),
            "costs": self.costs.iter().map(cost).collect::<Vec<_>>(),
        })
    }
}

#[test]
fn rules() {
    let vectors: Vectors = serde_json::from_str(VECTORS).unwrap();
    assert!(!vectors.rules.is_empty());
    for vector in &vectors.rules {
        let topology = topology(&vector.nrt);
        let rules = topology.rules;
        let most = topology.max_numa_nodes.unwrap_or(DEFAULT_MAX_NUMA_NODES);
        let wanted = (&*vector.policy, &*vector.scope, vector.max_numa_nodes);
        assert_eq!(
            (rules.policy.as_str(), rules.scope.as_str(), most),
            wanted,
            "{} {}",
            vector.id,
            vector.name
        );
    }
}
