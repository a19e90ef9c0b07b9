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
        let devices = !machines[0].topology.zones[0].resources.iter().all(|r| r.name != gpu());
        mix(random, arrival, i64::from(arrival.cpus) < largest, devices);
    }
    plan
}

fn mix(random: &mut Random, arrival: &mut Arrival, more: bool, devices: bool) {
    let ask = |cpus| Ask { cpus, memory_mib: 64, devices: BTreeMap::new() };
    match random.below(8) {
        0 => arrival.end = End::Forced,
        1 => arrival.end = End::Finished,
        2 if more => arrival.init.push(ask(arrival.cpus + 1)),
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
    let mut plan = plan(&mut random, &machines, mixed);
    let specs = plan.specs();
    let mut specs = specs.iter();
    plan.arrivals.retain(|_| {
        let mut kubelet = Kubelet::new(&machines[0]);
        kubelet.admit(0, &specs.next().unwrap().needs, PodHash(0)).is_ok()
    });
    let latency = latency(&mut random);
    let exporters_down_ms = (random.below(4) == 0).then_some((5_000, 65_000));
    let scheduler_down_ms = (random.below(4) == 0).then_some((8_000, 10_000));
    let fingerprints =
        pick(&mut random, &[Some(Method::WithExclusiveResources), Some(Method::All), None]);
    let faults = Faults { exporters_down_ms, scheduler_down_ms };
    Scenario { machines, plan, latency, faults, fingerprints, seed }
}

/// The same failure with fewer and simpler pods.
fn minimise(scenario: &mut Scenario, fails: impl Fn(&Scenario) -> bool) {
    let size = |s: &Scenario| (s.plan.arrivals.len(), serde_json::to_string(&s.plan).unwrap().len());
    loop {
        let before = size(scenario);
        let mut step = scenario.plan.arrivals.len().div_ceil(2);
        while step > 0 {
            let mut at = 0;
            while at < scenario.plan.arrivals.len() {
                let kept = scenario.plan.arrivals.clone();
                scenario.plan.arrivals.drain(at..(at + step).min(kept.len()));
                if !fails(scenario) {
                    scenario.plan.arrivals = kept;
                    at += step;
                }
            }
            step /= 2;
        }
        for at in 0..scenario.plan.arrivals.len() {
            let simpler: [fn(&mut Arrival); 6] = [
                |a| a.end = End::Deleted,
                |a| a.init.clear(),
                |a| a.beside.clear(),
                |a| a.devices.clear(),
                |a| a.memory_mib = 256,
                |a| a.at_ms -= a.at_ms % 1000,
            ];
            for simplify in simpler {
                let kept = scenario.plan.arrivals.clone();
                simplify(&mut scenario.plan.arrivals[at]);
                scenario.plan.arrivals.sort_by_key(|a| a.at_ms);
                if !fails(scenario) {
                    scenario.plan.arrivals = kept;
                }
            }
        }
        let reseed = scenario.seed;
        for other in 0..60 {
            scenario.seed = other;
            if fails(scenario) {
                let mut trial = Scenario { machines: scenario.machines.clone(), plan: scenario.plan.clone(), ..*scenario };
                for at in (0..trial.plan.arrivals.len()).rev() {
                    let kept = trial.plan.arrivals.remove(at);
                    if !fails(&trial) { trial.plan.arrivals.insert(at, kept); }
                }
                if size(&trial) < size(scenario) { scenario.plan = trial.plan; break; }
            }
            scenario.seed = reseed;
        }
        if size(scenario) >= before {
            return;
        }
    }
}

#[test]
#[ignore]
fn soak() {
    let number = |name: &str, or: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(or);
    let (from, to) = (number("FROM", 0), number("TO", 200));
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut worst: Vec<(u64, u64, usize, String)> = Vec::new();
    for seed in from..to {
        let mut scenario = scenario(seed);
        let mut kinds = String::new();
        for a in &scenario.plan.arrivals {
            if a.end == End::Forced && !kinds.contains('F') { kinds.push('F') }
            if a.end == End::Finished && !kinds.contains('E') { kinds.push('E') }
        }
        let about = |scenario: &Scenario| format!(
            "{kinds} {:?}/{:?} nodes {} zones {} cpu0 {} latency {:?} faults {:?} fp {:?} maxp {:?}",
            scenario.machines[0].topology.rules.policy, scenario.machines[0].topology.rules.scope,
            scenario.machines.len(), scenario.machines[0].topology.zones.len(),scenario.machines[0].topology.zones[0].resources[0].allocatable,  scenario.latency, scenario.faults, scenario.fingerprints, scenario.plan.max_pending).replace("Span ","").replace("min_ms: ","").replace("max_ms: ","");
        if only.contains("plain") && !kinds.is_empty() { continue }
        if only.contains("fp") && scenario.fingerprints.is_none() { continue }
        if only.contains("one") && scenario.machines.len() > 1 { continue }
        if only.contains("podscope") && scenario.machines[0].topology.rules.scope != Scope::Pod { continue }
        if only.contains("noend") { scenario.plan.arrivals.iter_mut().for_each(|a| if a.end == End::Finished { a.end = End::Deleted }) }
        if only.contains("noforce") { scenario.plan.arrivals.iter_mut().for_each(|a| if a.end == End::Forced { a.end = End::Deleted }) }
        if only.contains("noinit") { scenario.plan.arrivals.iter_mut().for_each(|a| a.init.clear()) }
        if only.contains("nobeside") { scenario.plan.arrivals.iter_mut().for_each(|a| a.beside.clear()) }
        if only.contains("alive") && scenario.faults.scheduler_down_ms.is_some() { continue }
        if only.contains("exporting") && scenario.faults.exporters_down_ms.is_some() { continue }
        let (record, seen) = scenario.run();
        let s = record.summary("tholepin", seed);
        if s.tae + s.out_of + s.unplaced > 0 || seen.debt {
            println!("seed {seed}: tae {} out_of {} unplaced {} debt {} | {}", s.tae, s.out_of, s.unplaced, seen.debt, about(&scenario));
            if std::env::var("MIN").is_ok() {
                let lost = s.tae + s.out_of > 0;
                minimise(&mut scenario, |sc| { let s = sc.run().0.summary("", 0); if lost { s.tae + s.out_of > 0 } else { s.unplaced > 0 } });
                if std::env::var("TRACE").is_ok() { super::happen::TRACE.store(true, std::sync::atomic::Ordering::Relaxed) }
                let s = scenario.run().0.summary("", 0);
                super::happen::TRACE.store(false, std::sync::atomic::Ordering::Relaxed);
                println!("   minimal: tae {} out_of {} unplaced {} seed {}", s.tae, s.out_of, s.unplaced, scenario.seed);
                for a in &scenario.plan.arrivals { println!("   {}", serde_json::to_string(a).unwrap()); }
            }
        }
        worst.push((seen.overlooked_ms.0, seed, seen.overlooked_ms.1, about(&scenario)));
    }
    worst.sort();
    for (ms, seed, pod, about) in worst.iter().rev().take(number("WORST", 10) as usize) { println!("overlooked {ms} ms seed {seed} pod {pod} | {about}"); }
}
