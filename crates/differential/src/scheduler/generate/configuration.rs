//! A scheduler's configuration: mostly the default, sometimes other plugins, weights and strategies.

use serde_json::{Value, json};

use crate::generate::Dice;
use crate::scheduler::generate::SCHEDULER;
use crate::scheduler::generate::nodes::{DEVICE, HOST, ZONE};

/// Plugins that a profile can do without.
const FILTERS: [&str; 5] =
    ["TaintToleration", "NodeAffinity", "NodePorts", "InterPodAffinity", "PodTopologySpread"];
/// Plugins with a weight.
const SCORES: [&str; 7] = [
    "TaintToleration",
    "NodeAffinity",
    "NodeResourcesFit",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
    "PodTopologySpread",
    "InterPodAffinity",
];

pub(super) fn configuration(dice: &mut Dice) -> Value {
    let mut plugins = json!({});
    if dice.percent(15) {
        plugins["postFilter"] = json!({ "disabled": [{ "name": "*" }] });
    }
    let mut arguments = Vec::new();
    if dice.percent(20) {
        plugins["filter"] = json!({ "disabled": [{ "name": dice.pick(&FILTERS) }] });
    }
    if dice.percent(40) {
        let name = dice.pick(&SCORES);
        let mut score = json!({ "disabled": [{ "name": name }] });
        if dice.percent(70) {
            score["enabled"] = json!([{ "name": name, "weight": dice.between(1, 20) }]);
        }
        plugins["score"] = score;
    }
    if dice.percent(40) {
        arguments.push(json!({ "name": "NodeResourcesFit", "args": fit(dice) }));
    }
    if dice.percent(20) {
        let resources =
            json!([{ "name": "cpu", "weight": 1 }, { "name": dice.pick(&["memory", DEVICE]), "weight": 1 }]);
        let args = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "NodeResourcesBalancedAllocationArgs",
            "resources": resources,
        });
        arguments.push(json!({ "name": "NodeResourcesBalancedAllocation", "args": args }));
    }
    if dice.percent(25) {
        let args = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "InterPodAffinityArgs",
            "hardPodAffinityWeight": dice.pick(&[0, 1, 30, 100]),
            "ignorePreferredTermsOfExistingPods": dice.percent(40),
        });
        arguments.push(json!({ "name": "InterPodAffinity", "args": args }));
    }
    if dice.percent(35) {
        arguments.push(json!({ "name": "PodTopologySpread", "args": spread(dice) }));
    }
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 100,
        "profiles": [{ "schedulerName": SCHEDULER, "plugins": plugins, "pluginConfig": arguments }],
    })
}

/// Whether a pod that fits nowhere by its node affinity keeps its nominated node.
pub(super) fn keeps_nominations(configuration: &Value) -> bool {
    let plugins = &configuration["profiles"][0]["plugins"];
    plugins["postFilter"].is_null() && plugins["filter"]["disabled"][0]["name"] != "NodeAffinity"
}

/// The arguments of PodTopologySpread: a list of up to three constraints.
fn spread(dice: &mut Dice) -> Value {
    let all = [
        (ZONE, "DoNotSchedule"),
        (HOST, "ScheduleAnyway"),
        ("disk", "ScheduleAnyway"),
        (HOST, "DoNotSchedule"),
        (ZONE, "ScheduleAnyway"),
    ];
    let (first, count) = (dice.between(0, 4), dice.between(0, 3));
    let constraints: Vec<Value> = (0..count)
        .map(|at| {
            let (key, action) = all[((first + at) % 5) as usize];
            let mut constraint = json!({
                "maxSkew": dice.pick(&[1, 1, 2, 3]), "topologyKey": key, "whenUnsatisfiable": action,
            });
            if dice.percent(30) {
                constraint["nodeTaintsPolicy"] = dice.pick(&["Honor", "Ignore"]).into();
                constraint["nodeAffinityPolicy"] = dice.pick(&["Honor", "Ignore"]).into();
            }
            if action == "DoNotSchedule" && dice.percent(20) {
                constraint["minDomains"] = dice.between(1, 4).into();
            }
            constraint
        })
        .collect();
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "PodTopologySpreadArgs",
        "defaultingType": "List", "defaultConstraints": constraints,
    })
}

/// The arguments of NodeResourcesFit.
fn fit(dice: &mut Dice) -> Value {
    let kind = dice.pick(&["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]);
    let mut resources = vec![
        json!({ "name": "cpu", "weight": dice.between(1, 5) }),
        json!({ "name": "memory", "weight": dice.between(1, 5) }),
    ];
    if dice.percent(40) {
        resources.push(json!({ "name": DEVICE, "weight": dice.between(1, 5) }));
    }
    let mut strategy = json!({ "type": kind, "resources": resources });
    if kind == "RequestedToCapacityRatio" {
        let middle = dice.between(1, 99);
        strategy["requestedToCapacityRatio"] = json!({ "shape": [
            { "utilization": 0, "score": dice.between(0, 10) },
            { "utilization": middle, "score": dice.between(0, 10) },
            { "utilization": 100, "score": dice.between(0, 10) },
        ] });
    }
    let mut args = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "NodeResourcesFitArgs", "scoringStrategy": strategy,
    });
    if dice.percent(20) {
        args["ignoredResources"] = json!([DEVICE]);
    }
    args
}
