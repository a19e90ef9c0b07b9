//! Cases about scores: constraints that refuse nodes become preferences.
//!
//! In: a case. Out: the same with fewer reasons to refuse a node, so that several fit. Never: two constraints of a pod
//! that the API server would take for one.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::generate::Dice;
use crate::scheduler::case::Case;
use crate::scheduler::generate::nodes::ZONE;

/// Softens nodes and pods of a case.
pub(super) fn soften(dice: &mut Dice, case: &mut Case) {
    if dice.percent(38) {
        into_one_domain(case);
    }
    for node in &mut case.nodes {
        remove(&mut node["spec"], "unschedulable");
        let taints = node["spec"].get_mut("taints").and_then(Value::as_array_mut);
        taints.into_iter().flatten().for_each(|taint| taint["effect"] = "PreferNoSchedule".into());
    }
    case.pods.iter_mut().for_each(require_nothing);
    let pod = &mut case.pod;
    require_nothing(pod);
    remove(&mut pod["spec"], "nodeSelector");
    if let Some(constraints) = pod["spec"].get_mut("topologySpreadConstraints").and_then(Value::as_array_mut)
    {
        let mut keys = BTreeSet::new();
        constraints.retain(|constraint| keys.insert(constraint["topologyKey"].to_string()));
        constraints.iter_mut().for_each(|constraint| {
            constraint["whenUnsatisfiable"] = "ScheduleAnyway".into();
            remove(constraint, "minDomains");
        });
    }
    for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
        remove(container, "ports");
    }
}

/// Puts all nodes into one zone, and lets affinities look at zones: pods near or far tell no node apart.
fn into_one_domain(case: &mut Case) {
    case.nodes.iter_mut().for_each(|node| node["metadata"]["labels"][ZONE] = "a".into());
    for pod in case.pods.iter_mut().chain([&mut case.pod]) {
        for kind in ["podAffinity", "podAntiAffinity"] {
            let affinity = pod["spec"].get_mut("affinity").and_then(|all| all.get_mut(kind));
            let terms = affinity
                .and_then(|affinity| affinity.get_mut("preferredDuringSchedulingIgnoredDuringExecution"));
            for term in terms.and_then(Value::as_array_mut).into_iter().flatten() {
                term["podAffinityTerm"]["topologyKey"] = ZONE.into();
            }
        }
    }
}

/// Leaves the preferred terms of a pod's affinities.
fn require_nothing(pod: &mut Value) {
    let affinities = pod["spec"].get_mut("affinity").and_then(Value::as_object_mut);
    for (_, affinity) in affinities.into_iter().flatten() {
        remove(affinity, "requiredDuringSchedulingIgnoredDuringExecution");
    }
}

fn remove(object: &mut Value, field: &str) {
    drop(object.as_object_mut().and_then(|fields| fields.remove(field)));
}
