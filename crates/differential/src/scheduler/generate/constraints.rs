//! Constraints of pods on nodes and on other pods.

use serde_json::{Value, json};

use crate::generate::Dice;
use crate::scheduler::generate::nodes::{EFFECTS, HOST, TAINTS, ZONE};
use crate::scheduler::generate::pods::APPS;
use crate::scheduler::generate::{NAMESPACES, TEAMS};

/// Required and preferred node affinity.
pub(super) fn node_affinity(dice: &mut Dice, pod: &mut Value, nodes: u64) {
    let mut affinity = json!({});
    if dice.percent(45) {
        let terms: Vec<Value> = (0..dice.between(1, 2)).map(|_| node_term(dice, nodes)).collect();
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = json!({ "nodeSelectorTerms": terms });
    }
    if dice.percent(70) {
        let terms: Vec<Value> = (0..dice.between(1, 3))
            .map(|_| json!({ "weight": dice.between(1, 100), "preference": node_term(dice, nodes) }))
            .collect();
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = terms.into();
    }
    pod["spec"]["affinity"]["nodeAffinity"] = affinity;
}

fn node_term(dice: &mut Dice, nodes: u64) -> Value {
    let mut term = json!({});
    if dice.percent(12) {
        let names: Vec<String> =
            (0..dice.between(1, 2)).map(|_| format!("n{}", dice.between(0, nodes))).take(1).collect();
        let operator = dice.pick(&["In", "In", "NotIn"]);
        term["matchFields"] = json!([{ "key": "metadata.name", "operator": operator, "values": names }]);
    }
    if term.get("matchFields").is_none() || dice.percent(50) {
        let expressions: Vec<Value> = (0..dice.between(1, 2)).map(|_| node_expression(dice)).collect();
        term["matchExpressions"] = expressions.into();
    }
    term
}

fn node_expression(dice: &mut Dice) -> Value {
    let key = dice.pick(&[ZONE, "disk", "gen"]);
    match dice.between(0, 8) {
        0 => json!({ "key": key, "operator": "Exists" }),
        // All nodes are equal to it.
        3..=5 => json!({ "key": HOST, "operator": "Exists" }),
        1 => json!({ "key": key, "operator": "DoesNotExist" }),
        2 => {
            let operator = dice.pick(&["Gt", "Lt"]);
            json!({ "key": "gen", "operator": operator, "values": [dice.between(2, 7).to_string()] })
        }
        _ => {
            let values: &[&str] = match key {
                ZONE => &["a", "b", "c"],
                "disk" => &["ssd", "hdd"],
                _ => &["1", "3", "5"],
            };
            let mut chosen = vec![dice.pick(values)];
            if dice.percent(40) {
                chosen.push(dice.pick(values));
            }
            json!({ "key": key, "operator": dice.pick(&["In", "In", "NotIn"]), "values": chosen })
        }
    }
}

/// Tolerations, some of everything.
pub(super) fn tolerations(dice: &mut Dice, pod: &mut Value) {
    let all: Vec<Value> = (0..dice.between(1, 3)).map(|_| toleration(dice)).collect();
    pod["spec"]["tolerations"] = all.into();
}

fn toleration(dice: &mut Dice) -> Value {
    if dice.percent(15) {
        return json!({ "operator": "Exists" });
    }
    let mut toleration = json!({ "key": dice.pick(&TAINTS) });
    if dice.percent(50) {
        toleration["operator"] = "Exists".into();
    } else {
        toleration["operator"] = "Equal".into();
        toleration["value"] = dice.pick(&["", "a", "b"]).into();
    }
    if dice.percent(60) {
        toleration["effect"] = dice.pick(&EFFECTS).into();
    }
    toleration
}

/// One or two spread constraints.
pub(super) fn spread(dice: &mut Dice, pod: &mut Value) {
    let keys = [
        (ZONE, "DoNotSchedule"),
        (HOST, "ScheduleAnyway"),
        (ZONE, "ScheduleAnyway"),
        (HOST, "DoNotSchedule"),
        ("disk", "DoNotSchedule"),
        ("disk", "ScheduleAnyway"),
    ];
    let (first, count) = (dice.between(0, 5), dice.between(1, 2));
    let all: Vec<Value> = (0..count).map(|at| constraint(dice, keys[((first + at) % 6) as usize])).collect();
    pod["spec"]["topologySpreadConstraints"] = all.into();
}

fn constraint(dice: &mut Dice, (key, action): (&str, &str)) -> Value {
    let mut constraint = json!({
        "maxSkew": dice.pick(&[1, 1, 2, 3]), "topologyKey": key, "whenUnsatisfiable": action,
        "nodeAffinityPolicy": dice.pick(&["Honor", "Honor", "Ignore"]),
        "nodeTaintsPolicy": dice.pick(&["Ignore", "Ignore", "Honor"]),
    });
    if dice.percent(95) {
        constraint["labelSelector"] = selector(dice);
    }
    if action == "DoNotSchedule" && dice.percent(20) {
        constraint["minDomains"] = dice.between(1, 4).into();
    }
    constraint
}

/// Affinity and anti-affinity to other pods.
pub(super) fn pod_affinity(dice: &mut Dice, pod: &mut Value) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let mut affinity = json!({});
        if dice.percent(35) {
            let key = dice.pick(&[ZONE, ZONE, HOST, "disk"]);
            affinity["requiredDuringSchedulingIgnoredDuringExecution"] = json!([term(dice, key)]);
        }
        if dice.percent(65) {
            let terms: Vec<Value> = (0..dice.between(1, 2))
                .map(|_| {
                    let key = dice.pick(&[ZONE, ZONE, HOST, "disk", "nowhere"]);
                    json!({ "weight": dice.between(1, 100), "podAffinityTerm": term(dice, key) })
                })
                .collect();
            affinity["preferredDuringSchedulingIgnoredDuringExecution"] = terms.into();
        }
        if affinity != json!({}) {
            pod["spec"]["affinity"][kind] = affinity;
        }
    }
}

fn term(dice: &mut Dice, topology_key: &str) -> Value {
    let mut term = json!({ "topologyKey": topology_key });
    if dice.percent(95) {
        term["labelSelector"] = selector(dice);
    }
    if dice.percent(25) {
        term["namespaces"] = json!([dice.pick(&NAMESPACES)]);
    }
    if dice.percent(40) {
        term["namespaceSelector"] = namespace_selector(dice);
    }
    term
}

/// A selector of namespaces.
fn namespace_selector(dice: &mut Dice) -> Value {
    match dice.between(0, 4) {
        0 => json!({}),
        1 => {
            json!({ "matchExpressions": [{ "key": "team", "operator": dice.pick(&["Exists", "DoesNotExist"]) }] })
        }
        2 => json!({ "matchExpressions": [
            { "key": "kubernetes.io/metadata.name", "operator": dice.pick(&["In", "NotIn"]),
              "values": [dice.pick(&NAMESPACES)] },
        ] }),
        _ => json!({ "matchLabels": { "team": dice.pick(&TEAMS) } }),
    }
}

/// A selector of pods.
pub(super) fn selector(dice: &mut Dice) -> Value {
    match dice.between(0, 5) {
        0 => json!({}),
        1 => {
            json!({ "matchExpressions": [{ "key": "version", "operator": dice.pick(&["Exists", "DoesNotExist"]) }] })
        }
        2 => json!({ "matchExpressions": [
            { "key": "app", "operator": dice.pick(&["In", "NotIn"]), "values": [dice.pick(&APPS), "web"] },
        ] }),
        _ => json!({ "matchLabels": { "app": dice.pick(&APPS) } }),
    }
}
