//! Acceptance vectors for the zone filter and score: what the NodeResourceTopologyMatch plugin answers.
//!
//! Where we answer differently, it is on purpose, and listed here by vector.

use std::sync::Arc;

use api::nrt::NodeResourceTopology;
use e2e::catalogue::tmpol::vectors::VECTORS as VECTORS_OF_SPECS;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde_json::{Value, json};
use topology::policy::Manager;
use topology::request::PodNeeds;
use topology::score::{Strategy, Weights, ZoneScorer};
use topology::zone::NodeTopology;

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

const VECTORS: &str = include_str!("../tests/data/zone-vectors.json");

#[derive(Deserialize)]
struct Vectors {
    filter: Vec<Filter>,
    score: Vec<Score>,
}

#[derive(Deserialize)]
struct Filter {
    id: String,
    name: String,
    fresh: bool,
    nrt: Option<Value>,
    pod: Value,
    qos: String,
    expected: String,
}

#[derive(Deserialize)]
struct Score {
    id: String,
    name: String,
    strategy: String,
    weights: std::collections::BTreeMap<String, i64>,
    nodes: Vec<ScoreNode>,
    pod: Value,
    qos: String,
    expected: std::collections::BTreeMap<String, i64>,
}

#[derive(Deserialize)]
struct ScoreNode {
    name: String,
    fresh: bool,
    nrt: Option<Value>,
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
        let strategy = match vector.strategy.as_str() {
            "LeastAllocated" => Strategy::LeastAllocated,
            "MostAllocated" => Strategy::MostAllocated,
            "LeastNUMANodes" => Strategy::LeastNumaNodes,
            _ => Strategy::BalancedAllocation,
        };
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
