//! A scheduler's configuration: mostly the default, sometimes other plugins, weights and strategies.

use serde_json::{Value, json};

use crate::generate::Dice;
use crate::scheduler::generate::SCHEDULER;
use crate::scheduler::generate::nodes::DEVICE;

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
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 100,
        "profiles": [{ "schedulerName": SCHEDULER, "plugins": plugins, "pluginConfig": arguments }],
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
