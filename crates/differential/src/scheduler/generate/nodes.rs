//! Nodes: labels, taints, amounts, images.

use serde_json::{Map, Value, json};

use crate::generate::Dice;
use crate::scheduler::generate::pods::IMAGES;

/// The label of a zone.
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
/// The label of a node's name.
pub(super) const HOST: &str = "kubernetes.io/hostname";
/// Keys of taints.
pub(super) const TAINTS: [&str; 3] = ["dedicated", "gpu", "node.kubernetes.io/unschedulable"];
/// Their effects.
pub(super) const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
/// Features of a kubelet, in order.
const FEATURES: [&str; 3] =
    ["ExtendWebSocketsToKubelet", "RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"];
/// A device.
pub(super) const DEVICE: &str = "vendor.example/gpu";

/// Nodes; `is_soft`: several, and all with room.
pub(super) fn nodes(dice: &mut Dice, is_soft: bool) -> Vec<Value> {
    let count = dice.between(if is_soft { 2 } else { 1 }, 10);
    // Small clusters in which all nodes have room show scores, others verdicts.
    let roomy = is_soft || dice.percent(80);
    let mut nodes: Vec<Value> = (0..count).map(|at| node(dice, at, roomy)).collect();
    if dice.percent(30) {
        // In one zone, so that pods near or far tell none apart.
        nodes.iter_mut().for_each(|node| node["metadata"]["labels"][ZONE] = "a".into());
    }
    if dice.percent(30) {
        // Of equal size, so that scores by resources may tell none apart.
        let amounts = nodes[0]["status"].clone();
        nodes.iter_mut().for_each(|node| node["status"] = amounts.clone());
    }
    nodes
}

fn node(dice: &mut Dice, at: u64, roomy: bool) -> Value {
    let name = format!("n{at}");
    let mut labels = Map::new();
    labels.insert(HOST.to_owned(), name.clone().into());
    if dice.percent(85) {
        labels.insert(ZONE.to_owned(), dice.pick(&["a", "b", "c"]).into());
    }
    if dice.percent(60) {
        labels.insert("disk".to_owned(), dice.pick(&["ssd", "hdd"]).into());
    }
    if dice.percent(50) {
        labels.insert("gen".to_owned(), dice.between(1, 9).to_string().into());
    }
    let taints: Vec<Value> = (0..2)
        .filter(|_| dice.percent(if roomy { 12 } else { 25 }))
        .collect::<Vec<_>>()
        .iter()
        .map(|_| taint(dice))
        .collect();
    let mut spec = json!({});
    if !taints.is_empty() {
        spec["taints"] = taints.into();
    }
    if dice.percent(6) {
        spec["unschedulable"] = true.into();
    }
    let cpu = if roomy { dice.between(8, 32) } else { dice.between(1, 8) };
    let cpu =
        if dice.percent(20) { format!("{}m", cpu * 1000 + dice.between(0, 999)) } else { cpu.to_string() };
    let memory = if roomy { dice.between(16, 64) } else { dice.between(1, 12) };
    let pods = if dice.percent(10) { dice.between(1, 4) } else { 110 };
    let mut amounts = json!({ "cpu": cpu, "memory": format!("{memory}Gi"), "pods": pods.to_string() });
    if dice.percent(30) {
        amounts["ephemeral-storage"] = format!("{}Gi", dice.between(1, 20)).into();
    }
    if dice.percent(30) {
        amounts[DEVICE] = dice.between(0, 4).to_string().into();
    }
    if dice.percent(15) {
        amounts["hugepages-2Mi"] = format!("{}Mi", dice.between(0, 16) * 2).into();
    }
    let images: Vec<Value> = IMAGES
        .iter()
        .enumerate()
        .filter(|_| dice.percent(30))
        .map(|(at, image)| json!({ "names": [image], "sizeBytes": (at as u64 + 1) * 150_000_000 }))
        .collect();
    let features: Vec<&str> = FEATURES.into_iter().filter(|_| dice.percent(60)).collect();
    json!({
        "metadata": { "name": name, "uid": format!("node-{at}"), "labels": labels },
        "spec": spec,
        "status": { "allocatable": amounts, "capacity": amounts, "images": images, "declaredFeatures": features },
    })
}

fn taint(dice: &mut Dice) -> Value {
    json!({ "key": dice.pick(&TAINTS), "value": dice.pick(&["", "a", "b"]), "effect": dice.pick(&EFFECTS) })
}
