//! Whole clusters: nothing is lost, nothing is forgotten, nothing waits that fits.

use std::collections::BTreeMap;

use topology::admit::{self, Scratch};
use topology::policy::{Policy, Scope};
use topology::resource::ResourceName;

use super::*;
use crate::latency::Span;
use crate::machine::{Shape, open_cpus};
use crate::workload::{Arrival, Ask, End, Open, SIZES};

/// Everything a run needs, made from one number.
#[derive(Debug)]
struct Scenario {
    machines: Vec<Machine>,
    plan: Plan,
    latency: Latency,
    faults: Faults,
    fingerprints: Option<Method>,
    seed: u64,
}

/// What an observed run came to.
#[derive(Debug, Default)]
struct Seen {
    /// The longest time a pod waited for a node although it would have been admitted somewhere, and its number.
    overlooked_ms: (u64, usize),
    /// Whether some kubelet handed out more than it has.
    debt: bool,
}

impl Scenario {
    fn setup(&self) -> Setup<'_> {
        Setup {
            machines: &self.machines,
            plan: &self.plan,
            latency: &self.latency,
            faults: self.faults,
            zones: true,
            fingerprints: self.fingerprints,
            seed: self.seed,
        }
    }

    fn run(&self) -> (Record, Seen) {
        let mut seen = Seen::default();
        let mut since: BTreeMap<usize, u64> = BTreeMap::new();
        let record = World::new(self.setup()).run_observed(&mut |_| {}, &mut |world| {
            seen.debt |= world.nodes.iter().any(|node| node.kubelet.free().has_debt());
            let fitting = world.fitting();
            since.retain(|pod, _| fitting.contains(pod));
            for pod in fitting {
                let waited = world.now_ms - *since.entry(pod).or_insert(world.now_ms);
                seen.overlooked_ms = seen.overlooked_ms.max((waited, pod));
            }
        });
        (record, seen)
    }
}

impl World<'_> {
    /// Waiting pods that some kubelet would admit now, after all that is on its way to it.
    fn fitting(&self) -> Vec<usize> {
        if self.waiting.is_empty() || self.scheduler.is_none() {
            return Vec::new();
        }
        let mut scratch = Scratch::default();
        let mut tables: Vec<_> = self
            .nodes
            .iter()
            .map(|node| (node.kubelet.free().clone(), node.kubelet.allocatable_milli() - node.kubelet.used_milli()))
            .collect();
        // Decided, but not yet with the kubelet; by the time they will be.
        let mut coming: Vec<(u64, u64, usize, usize)> = Vec::new();
        let mut bound = Vec::new();
        for Reverse(due) in &self.queue {
            match due.what {
                Happening::Added(pod) => {
                    coming.extend(self.pods[pod].node.map(|node| (due.at_ms, due.order, pod, node)));
                }
                Happening::Stored { pod, node, .. } => {
                    coming.push((u64::MAX, due.order, pod, node));
                    bound.push(pod);
                }
                _ => {}
            }
        }
        coming.sort_unstable();
        for (_, _, pod, node) in coming {
            let (rules, needs) = (self.setup.machines[node].topology.rules, &self.specs[pod].needs);
            if let Ok(placement) = admit::admit(rules, &tables[node].0, needs, &mut scratch) {
                placement.charge(&mut tables[node].0);
            }
            tables[node].1 -= cpu_milli(&needs.totals);
        }
        let waits = |pod: &usize| self.pods[*pod].node.is_none() && !bound.contains(pod);
        let mut fits = |pod: &usize| {
            let needs = &self.specs[*pod].needs;
            tables.iter().zip(self.setup.machines).any(|((free, left), machine)| {
                cpu_milli(&needs.totals) <= *left
                    && admit::admit(machine.topology.rules, free, needs, &mut scratch).is_ok()
            })
        };
        (0..self.pods.len()).filter(waits).filter(|pod| fits(pod)).collect()
    }
}

fn gpu() -> ResourceName {
    ResourceName::new("example.com/gpu").unwrap()
}

fn pick<T: Copy>(random: &mut Random, list: &[T]) -> T {
    list[random.below(list.len() as u64) as usize]
}

fn shape(random: &mut Random) -> Shape {
    let (zones, cpus) = pick(random, &[(2, 16), (1, 16), (4, 12), (8, 14), (2, 32)]);
    let mut shape = Shape::even(zones, cpus).unwrap();
    shape.rules.scope = pick(random, &[Scope::Container, Scope::Pod]);
    shape.rules.policy = pick(random, &[Policy::SingleNumaNode, Policy::SingleNumaNode, Policy::Restricted]);
    if random.below(2) == 0 {
        // Sparse ids, a zone without CPUs, devices in some zones only.
        for (at, zone) in shape.zones.iter_mut().enumerate() {
            zone.id = 3 * at as u32 + 1;
            if at % 2 == 0 {
                zone.devices.insert(gpu(), 4);
            }
        }
        shape.zones.push(crate::machine::ZoneShape { id: 40, memory_mib: 65_536, ..Default::default() });
    }
    shape
}

fn latency(random: &mut Random) -> Latency {
    let mut latency = pick(random, &[Latency::cluster(), Latency::cluster(), Latency::zero()]);
    match random.below(5) {
        0 => latency.scan_taken = Span::fixed(10_000),
        1 => (latency.scan_taken, latency.scan_released) = (Span::of(0, 10_000), Span::of(0, 10_000)),
        2 => latency.cleanup = Span::of(0, 5_000),
        3 => (latency.watch, latency.kubelet) = (Span::of(0, 400), Span::of(0, 400)),
        _ => {}
    }
    latency
}

/// Pods of one container, and with `mixed` of all kinds.
fn plan(random: &mut Random, machines: &[Machine], mixed: bool) -> Plan {
    let load = pick(random, &[0.5, 0.65, 0.9, 1.2, 2.0]);
    let max_pending = pick(random, &[None, None, Some(6)]);
    let cpus = open_cpus(machines);
    let largest = machines[0].topology.zones.iter().flat_map(|zone| &zone.resources);
    let largest = largest.filter(|r| r.name == ResourceName::CPU).map(|r| r.allocatable / 1000).max().unwrap();
    let sizes = SIZES.iter().copied().filter(|size| i64::from(*size) <= largest).collect();
    let open = Open { pods: 100, rate: 3.0, load, cpus, max_pending, sizes, seed: random.number() };
    let mut plan = open.plan().unwrap();
    for arrival in plan.arrivals.iter_mut().filter(|_| mixed) {
        mix(random, arrival, !machines[0].topology.zones[0].resources.iter().all(|r| r.name != gpu()));
    }
    plan
}

fn mix(random: &mut Random, arrival: &mut Arrival, devices: bool) {
    let ask = |cpus| Ask { cpus, memory_mib: 64, devices: BTreeMap::new() };
    match random.below(8) {
        0 => arrival.end = End::Forced,
        1 => arrival.end = End::Finished,
        2 => arrival.init.push(ask(arrival.cpus + 1)),
        3 => arrival.init.push(ask(1)),
        4 if arrival.cpus > 2 => {
            arrival.cpus /= 2;
            arrival.beside.push(ask(arrival.cpus));
        }
        5 if devices => {
            arrival.devices.insert(gpu().to_string(), 1);
        }
        // Not Guaranteed: takes from the node, not from a zone.
        6 => arrival.memory_mib = 0,
        _ => {}
    }
}

fn scenario(seed: u64) -> Scenario {
    let mut random = Random::new(seed);
    let count = 1 + random.below(5) as usize;
    let machines = shape(&mut random).machines(count).unwrap();
    let mixed = random.below(2) == 0;
    let plan = plan(&mut random, &machines, mixed);
    let latency = latency(&mut random);
    let exporters_down_ms = (random.below(4) == 0).then_some((5_000, 65_000));
    let scheduler_down_ms = (random.below(4) == 0).then_some((8_000, 10_000));
    let fingerprints =
        pick(&mut random, &[Some(Method::WithExclusiveResources), Some(Method::All), None]);
    let faults = Faults { exporters_down_ms, scheduler_down_ms };
    Scenario { machines, plan, latency, faults, fingerprints, seed }
}

#[test]
#[ignore]
fn soak() {
    let number = |name: &str, or: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(or);
    let (from, to) = (number("FROM", 0), number("TO", 200));
    let mut worst: Vec<(u64, u64, usize, String)> = Vec::new();
    for seed in from..to {
        let scenario = scenario(seed);
        let t = std::time::Instant::now();
        let (record, seen) = scenario.run();
        let s = record.summary("tholepin", seed);
        let about = format!(
            "{:?}/{:?} nodes {} zones {} latency taken {:?} rel {:?} cleanup {:?} watch {:?} faults {:?} fp {:?} maxp {:?}",
            scenario.machines[0].topology.rules.policy, scenario.machines[0].topology.rules.scope,
            scenario.machines.len(), scenario.machines[0].topology.zones.len(), scenario.latency.scan_taken, scenario.latency.scan_released,
            scenario.latency.cleanup, scenario.latency.watch, scenario.faults, scenario.fingerprints, scenario.plan.max_pending);
        if s.tae + s.out_of + s.unplaced > 0 || seen.debt {
            println!("seed {seed}: tae {} out_of {} unplaced {} debt {} | {about}", s.tae, s.out_of, s.unplaced, seen.debt);
        }
        if t.elapsed().as_secs() > 2 { println!("seed {seed} took {:?} | {about}", t.elapsed()); }
        worst.push((seen.overlooked_ms.0, seed, seen.overlooked_ms.1, about));
    }
    worst.sort();
    for (ms, seed, pod, about) in worst.iter().rev().take(25) { println!("overlooked {ms} ms seed {seed} pod {pod} | {about}"); }
}
