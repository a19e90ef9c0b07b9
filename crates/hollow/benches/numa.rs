//! What zones cost a scheduler: their part of a cycle, and preemption for pods that must be aligned.
//!
//! Nodes are hollow ones: reports are those of our exporter, and the kubelet's model admits each pod that is placed.
//! Prints a JSON object a line. `cargo xtask bench cycle` runs it.

#[path = "../tests/it/core_cluster.rs"]
mod core_cluster;

use std::time::Duration;

use anyhow::{anyhow, ensure};
use core_cluster::{CoreCluster, GPU, pod_of, read};
use hollow::node_group::NodeGroup;
use runtime::random::Random;
use scheduler::core::{Decision, Event};
use scheduler::pod::PodView;
use serde_json::{Value, json};

/// Cycles of which the median counts.
const CYCLES: usize = 301;
/// Nodes of a cycle, which looks at each of them.
const NODES: usize = 1000;
/// Number of pods that evict others, as in the benchmark of KAI-Scheduler.
const PREEMPTORS: usize = 250;
/// Nodes that are full of less important pods.
const FULL_NODES: usize = 500;

/// A Guaranteed pod of one container.
fn pod(name: &str, priority: i32, amounts: &Value) -> Value {
    pod_of(name, priority, std::slice::from_ref(amounts))
}

impl CoreCluster {
    /// The time until a new pod has its node.
    fn cycle(&mut self, pod: &Value) -> anyhow::Result<Duration> {
        let view = PodView::read(&read(pod)?);
        let before = self.spent;
        self.tell(Event::Pod(view));
        let decision = self.next();
        let took = self.spent - before;
        let Some(Decision::Bind(binding)) = decision else {
            return Err(anyhow!("a small pod has no node: {decision:?}"));
        };
        self.bind(&binding, pod.clone())?;
        Ok(took)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn print(what: &str, unit: &str, size: usize, ns: f64) {
    println!("{}", json!({ "what": what, "unit": unit, "size": size, "ns": ns }));
}

/// Nodes of so many zones, some of whose CPUs are in use.
fn half_full(zones: u32, is_blind: bool) -> anyhow::Result<CoreCluster> {
    let group = NodeGroup { machine: format!("{zones}x8"), ..NodeGroup::default() };
    let mut cluster = CoreCluster::new(&group, NODES, is_blind)?;
    let mut random = Random::seeded(5);
    for at in 0..NODES {
        for number in 0..2 * zones {
            let amounts = json!({ "cpu": (1 + random.below(3)).to_string(), "memory": "64Mi" });
            cluster.run(at, pod(&format!("n{at}-{number}"), 0, &amounts))?;
        }
        cluster.report(at)?;
    }
    Ok(cluster)
}

/// Pods of a class each come to half-full nodes; the difference that zones make, by node. Each pod comes to both kinds
/// of nodes, one after the other, so that a change of the machine's speed is in both.
fn zones_of_a_cycle(zones: u32) -> anyhow::Result<()> {
    let (mut blind, mut seeing) = (half_full(zones, true)?, half_full(zones, false)?);
    let (mut without, mut added) = (Vec::new(), Vec::new());
    let of_a_node = |cycle: Duration| cycle.as_secs_f64() * 1e9 / NODES as f64;
    for number in 0..CYCLES {
        let amounts = json!({ "cpu": "1", "memory": format!("{}Ki", 65_536 + number) });
        let pod = pod(&format!("new-{number}"), 0, &amounts);
        let (one, other) = (of_a_node(blind.cycle(&pod)?), of_a_node(seeing.cycle(&pod)?));
        without.push(one);
        added.push(other - one);
    }
    let zones = usize::try_from(zones)?;
    print("one node in a cycle without a look at zones", "zones", zones, median(without));
    print("what zones add to that", "zones", zones, median(added));
    Ok(())
}

/// Important pods of two GPUs come to nodes that are full of pods of so many GPUs; the time of the core for all.
fn preemption(gpus: usize) -> anyhow::Result<()> {
    let group = NodeGroup {
        machine: "2x32+gpu4".to_owned(),
        policy: "restricted".to_owned(),
        ..NodeGroup::default()
    };
    let amounts =
        |gpus: usize| json!({ "cpu": (4 * gpus).to_string(), "memory": "1Gi", GPU: gpus.to_string() });
    let mut cluster = CoreCluster::new(&group, FULL_NODES, false)?;
    for at in 0..FULL_NODES {
        for number in 0..8 / gpus {
            cluster.run(at, pod(&format!("n{at}-{number}"), 0, &amounts(gpus)))?;
        }
        cluster.report(at)?;
    }
    let incoming = (0..PREEMPTORS).map(|number| {
        let name = format!("important-{number}");
        (name.as_str().into(), pod(&name, 1000, &amounts(2)))
    });
    let incoming = incoming.collect();
    cluster.spent = Duration::ZERO;
    let evicted = cluster.place(&incoming)?.len();
    ensure!(evicted == PREEMPTORS * 2 / gpus, "{evicted} pods of {gpus} GPUs were evicted");
    let what = format!("{PREEMPTORS} pods of two GPUs evict pods of {gpus} and are placed");
    print(&what, "nodes", FULL_NODES, cluster.spent.as_secs_f64() * 1e9);
    Ok(())
}

/// `zones` or `preemption` among the arguments: that part alone.
fn main() -> anyhow::Result<()> {
    let parts: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    let is_asked = |part: &str| parts.is_empty() || parts.iter().any(|asked| asked == part);
    for zones in [2, 8].into_iter().filter(|_| is_asked("zones")) {
        zones_of_a_cycle(zones)?;
    }
    for gpus in [1, 2].into_iter().filter(|_| is_asked("preemption")) {
        preemption(gpus)?;
    }
    Ok(())
}
