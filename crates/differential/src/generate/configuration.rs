//! Random KubeletConfigurations: every policy, scope and feasible set of options, and now and then one that is refused.

use node::kubelet::machine::MachineInfo;
use serde_json::{Map, Value, json};
use topology::kubelet::profile::Minor;

use super::Dice;

const MIB: u64 = 1 << 20;

pub(super) fn configuration(dice: &mut Dice, machine: &MachineInfo, minor: Minor) -> Value {
    let policy = dice.pick(&[
        "none",
        "best-effort",
        "restricted",
        "restricted",
        "single-numa-node",
        "single-numa-node",
    ]);
    let mut topology_options = Map::new();
    // The kubelet takes zone ids for positions in the list of distances, and panics where they are not.
    let dense = (0..).zip(&machine.topology).all(|(at, node)| node.node_id == at);
    if dense && dice.percent(30) {
        topology_options.insert("prefer-closest-numa-nodes".into(), json!("true"));
    }
    if machine.topology.len() > 8 {
        topology_options.insert("max-allowable-numa-nodes".into(), json!("12"));
    }
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "topologyManagerPolicy": policy,
        "topologyManagerScope": dice.pick(&["container", "container", "pod"]),
        "topologyManagerPolicyOptions": topology_options,
        "featureGates": {"CPUManagerPolicyAlphaOptions": true},
    });
    if minor >= Minor::V36 && dice.percent(15) {
        config["featureGates"]["PodLevelResourceManagers"] = json!(true);
    }
    let cpu_reserved = cpus(dice, machine, policy, &mut config);
    let eviction = 100 * MIB;
    let mut reserved = json!({"memory": "300Mi"});
    if let Some(cpu) = cpu_reserved {
        reserved["cpu"] = cpu;
    }
    config["evictionHard"] = json!({"memory.available": eviction.to_string()});
    // The kubelet's merge takes seconds for two resources on many zones.
    let narrow = machine.topology.len() <= 6 || matches!(policy, "none" | "single-numa-node");
    let often = match machine.topology.len() {
        _ if narrow => 65,
        ..=8 => 5,
        _ => 0,
    };
    if dice.percent(often) {
        memory(dice, machine, 300 * MIB + eviction, &mut config);
    }
    config["kubeReserved"] = reserved;
    config
}

/// The CPU manager. Returns the amount to reserve, unless CPUs are named.
fn cpus(dice: &mut Dice, machine: &MachineInfo, policy: &str, config: &mut Value) -> Option<Value> {
    if dice.percent(8) {
        return Some(json!("500m"));
    }
    config["cpuManagerPolicy"] = json!("static");
    config["cpuManagerPolicyOptions"] = options(dice, policy, machine.topology.len());
    if dice.percent(40) {
        let all: Vec<u32> = machine
            .topology
            .iter()
            .flat_map(|node| node.cores.iter().flatten())
            .flat_map(|core| core.thread_ids.iter().copied())
            .collect();
        let count = dice.between(1, (all.len() as u64 / 4).max(1));
        let named: std::collections::BTreeSet<u32> = (0..count).map(|_| dice.pick(&all)).collect();
        let mut named: Vec<String> = named.iter().map(ToString::to_string).collect();
        if dice.percent(1) {
            named.push("1023".to_owned());
        }
        config["reservedSystemCPUs"] = json!(named.join(","));
        return None;
    }
    Some(json!(dice.pick(&["500m", "1", "1", "2", "3", "1500m"])))
}

fn options(dice: &mut Dice, policy: &str, zones: usize) -> Value {
    let (full, numa, socket, cores, strict, cache) = (
        "full-pcpus-only",
        "distribute-cpus-across-numa",
        "align-by-socket",
        "distribute-cpus-across-cores",
        "strict-cpu-reservation",
        "prefer-align-cpus-by-uncorecache",
    );
    let mut names: Vec<&str> = Vec::new();
    match dice.between(0, 4) {
        0 | 1 => {}
        // The kubelet tries sets of sets of zones: minutes for each container on more than eight zones.
        2 if zones <= 8 => names.push(numa),
        2 => {}
        3 => names.push(cores),
        _ => names.push(cache),
    }
    let contradicts = names.contains(&cores) && !dice.percent(3);
    if dice.percent(35) && !contradicts {
        names.push(full);
    }
    if dice.percent(30) && (policy != "single-numa-node" || dice.percent(3)) {
        names.push(socket);
    }
    if dice.percent(30) {
        names.push(strict);
    }
    names.into_iter().map(|name| (name.to_owned(), json!("true"))).collect::<Map<_, _>>().into()
}

/// The memory manager, with what is reserved spread over the zones.
fn memory(dice: &mut Dice, machine: &MachineInfo, total: u64, config: &mut Value) {
    config["memoryManagerPolicy"] = json!("Static");
    let zones: Vec<u32> = machine.topology.iter().map(|node| node.node_id).collect();
    let mut by_zone: Vec<(u32, Map<String, Value>)> = Vec::new();
    let first = dice.pick(&zones);
    let share = if dice.percent(40) { dice.between(1, 300) * MIB } else { total };
    let mut add = |zone: u32, name: &str, bytes: u64| {
        if bytes == 0 {
            return;
        }
        let at = by_zone.iter().position(|(id, _)| *id == zone).unwrap_or_else(|| {
            by_zone.push((zone, Map::new()));
            by_zone.len() - 1
        });
        by_zone[at].1.insert(name.to_owned(), json!(bytes.to_string()));
    };
    let other = zones.iter().copied().find(|zone| *zone != first);
    match other {
        Some(other) if share < total => {
            add(first, "memory", share);
            add(other, "memory", total - share);
        }
        _ => add(first, "memory", total),
    }
    let entries = by_zone.into_iter().map(|(zone, limits)| json!({"numaNode": zone, "limits": limits}));
    config["reservedMemory"] = entries.collect();
}
