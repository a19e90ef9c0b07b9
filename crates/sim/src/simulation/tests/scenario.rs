//! Scenarios: clusters generated from a seed, observed while they run, and minimised when they fail.

use std::collections::BTreeMap;

use topology::admit::{self, Placement, Scratch};
use topology::placement::holdings::HashKey;
use topology::policy::{CpuOption, Policy, Scope};
use topology::resource::ResourceName;

use super::super::*;
use crate::latency::DelayRange;
use crate::machine::{Shape, ZoneShape, open_cpus};
use crate::workload::{Arrival, ContainerResources, End, OpenArrivals, Resize, SIZES};

/// The features that scenarios may have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Domain {
    /// Pods that end by themselves or by force.
    pub(super) ends: bool,
    /// Init containers, several containers, devices, pods that are not Guaranteed.
    pub(super) mixed: bool,
    /// Exporters without fingerprints.
    pub(super) no_fingerprints: bool,
    /// Watches that lag by up to 0.4 s, each on its own.
    pub(super) slow_watches: bool,
    /// Kubelets that end pods at once, of whose deletions the scheduler hears up to 0.2 s later.
    pub(super) quick_kubelets: bool,
    /// Exporters that need up to 10 s, objects that stay up to 5 s.
    pub(super) slow_exporters: bool,
    /// A minute without exporters.
    pub(super) exporters_down: bool,
    /// The scheduler is killed and starts again.
    pub(super) scheduler_down: bool,
    /// Every policy, option and number of threads, pods that need several zones, and reports by ids.
    pub(super) policies: bool,
    /// Pods that are resized in place.
    pub(super) resizes: bool,
}

impl Domain {
    /// The features of these names, between commas.
    pub(super) fn named(words: &str) -> Self {
        Self::with(|feature| words.split(',').any(|word| word == feature))
    }

    fn with(mut has: impl FnMut(&str) -> bool) -> Self {
        Self {
            ends: has("ends"),
            mixed: has("mixed"),
            no_fingerprints: has("no_fingerprints"),
            slow_watches: has("slow_watches"),
            quick_kubelets: has("quick_kubelets"),
            slow_exporters: has("slow_exporters"),
            exporters_down: has("exporters_down"),
            scheduler_down: has("scheduler_down"),
            policies: has("policies"),
            resizes: has("resizes"),
        }
    }

    /// Each feature or not, by the seed.
    pub(super) fn of_seed(seed: u64) -> Self {
        let mut random = Random::seeded(seed ^ 0xd0a1);
        Self::with(|_| random.below(2) == 0)
    }
}

/// The inputs of a run.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) machines: Vec<Machine>,
    pub(super) workload: Workload,
    pub(super) latency: Latency,
    pub(super) faults: Faults,
    pub(super) fingerprints: Option<Method>,
    pub(super) ids: Option<HashKey>,
    pub(super) zones: bool,
    pub(super) seed: u64,
}

/// The observations of a run.
#[derive(Debug, Default)]
pub(super) struct Observations {
    /// The longest time that a pod waited although it fitted and the scheduler could know, with the pod's number.
    pub(super) overlooked_ms: (u64, usize),
    /// Whether some kubelet handed out more than it has.
    pub(super) debt: bool,
    /// CPU still held at the end, in thousandths.
    pub(super) held_milli: i64,
    /// Pods lost although no scheduler could know better: others had gone unannounced in the meantime.
    pub(super) unforeseen: usize,
    /// Bindings that were withdrawn.
    pub(super) withdrawn: usize,
}

impl Scenario {
    /// Generates the scenario of a seed.
    pub(super) fn from_seed(seed: u64, domain: Domain) -> Self {
        let mut random = Random::seeded(seed);
        let count = 1 + usize::try_from(random.below(5)).unwrap();
        let mut shape = shape(&mut random);
        let mut by_policy = Random::seeded(seed ^ 0x5eed);
        if domain.policies {
            vary(&mut by_policy, &mut shape);
        }
        let machines = shape.machines(count).unwrap();
        let mut workload = workload(&mut random, &machines, domain);
        if domain.policies {
            widen(&mut by_policy, &shape, &mut workload);
            retain_admitted(&mut workload, &machines[0]);
        }
        if domain.resizes {
            resize(&mut Random::seeded(seed ^ 0x512e), &mut workload);
        }
        let latency = latency(&mut random, domain);
        let mut sometimes = |may: bool, span| (may && random.below(2) == 0).then_some(span);
        let faults = Faults {
            exporters_down_ms: sometimes(domain.exporters_down, (5_000, 65_000)),
            scheduler_down_ms: sometimes(domain.scheduler_down, (8_000, 10_000)),
        };
        let methods = [Some(Method::WithExclusiveResources), Some(Method::All), None];
        let methods = if domain.no_fingerprints { &methods[..] } else { &methods[..2] };
        let fingerprints = pick(&mut random, methods);
        let keys = [Some(HashKey::Name), Some(HashKey::Uid), None];
        let keys = if domain.policies { &keys[..2] } else { &keys };
        let ids = keys[usize::try_from(seed).unwrap() % keys.len()];
        Self { machines, workload, latency, faults, fingerprints, ids, zones: true, seed }
    }

    pub(super) fn run(&self) -> (Record, Observations) {
        let setup = Setup {
            faults: self.faults,
            accounting: self.zones.then_some(Accounting::Exact),
            fingerprints: self.fingerprints,
            ids: self.ids,
            ..super::healthy(&self.machines, &self.workload, &self.latency, self.seed)
        };
        let mut seen = Observations::default();
        let mut since: BTreeMap<usize, u64> = BTreeMap::new();
        let mut rooms = HiddenRoom::default();
        let record = Simulation::new(setup).run_observed(&mut |_| {}, &mut |simulation| {
            seen.debt |= simulation.nodes.iter().any(|node| node.kubelet.free().has_debt());
            seen.held_milli = simulation.used_milli;
            (seen.unforeseen, seen.withdrawn) = (simulation.unforeseen, simulation.withdrawn);
            rooms.update(simulation);
            let fitting =
                if simulation.scheduler.is_some() { simulation.fitting(&rooms) } else { Vec::new() };
            since.retain(|pod, _| fitting.contains(pod));
            for pod in fitting {
                let waited_ms = simulation.now_ms - *since.entry(pod).or_insert(simulation.now_ms);
                seen.overlooked_ms = seen.overlooked_ms.max((waited_ms, pod));
            }
        });
        (record, seen)
    }

    /// Removes and simplifies pods as long as the scenario still fails.
    pub(super) fn minimise(&mut self, fails: impl Fn(&Self) -> bool) {
        let size = |scenario: &Self| serde_json::to_string(&scenario.workload).unwrap().len();
        let keep_if = |scenario: &mut Self, change: &dyn Fn(&mut Self)| {
            let mut trial = scenario.clone();
            change(&mut trial);
            let better = size(&trial) < size(scenario) && fails(&trial);
            if better {
                *scenario = trial;
            }
            better
        };
        loop {
            let before = size(self);
            let mut step = self.workload.arrivals.len().div_ceil(2);
            while step > 0 {
                let mut at = 0;
                while at < self.workload.arrivals.len() {
                    let until = (at + step).min(self.workload.arrivals.len());
                    if !keep_if(self, &|s| drop(s.workload.arrivals.drain(at..until))) {
                        at += step;
                    }
                }
                step /= 2;
            }
            for at in 0..self.workload.arrivals.len() {
                let simpler: [fn(&mut Arrival); 5] = [
                    |a| a.end = End::Deleted,
                    |a| a.resize = None,
                    |a| a.init.clear(),
                    |a| a.beside.clear(),
                    |a| a.devices.clear(),
                ];
                for simplify in simpler {
                    keep_if(self, &|s| simplify(&mut s.workload.arrivals[at]));
                }
            }
            if size(self) >= before {
                return;
            }
        }
    }

    /// Describes the scenario, for failures.
    pub(super) fn describe(&self) -> String {
        let pods: Vec<String> =
            self.workload.arrivals.iter().map(|a| serde_json::to_string(a).unwrap()).collect();
        format!("{}, pods:\n{}", self.cluster(), pods.join("\n"))
    }

    /// The same without its pods.
    pub(super) fn cluster(&self) -> String {
        let topology = &self.machines[0].topology;
        let zones: Vec<String> = topology
            .zones
            .iter()
            .map(|zone| {
                let amounts = zone.resources.iter().map(|r| format!("{} {}", r.name, r.allocatable));
                format!("{}: {}", zone.id.0, amounts.collect::<Vec<_>>().join(", "))
            })
            .collect();
        format!(
            "seed {}, {} machines of [{}], {:?}, {:?}, {:?}, fingerprints {:?}, ids {:?}, {:?}, at most {:?} pending",
            self.seed,
            self.machines.len(),
            zones.join("; "),
            topology.rules,
            self.latency,
            self.faults,
            self.fingerprints,
            self.ids,
            self.machines[0].start.kubelet.profile().cpu_manager,
            self.workload.max_pending,
        )
    }
}

/// Room that kubelets have, but that the scheduler cannot know of yet.
#[derive(Debug, Default)]
struct HiddenRoom {
    held: BTreeMap<usize, Placement>,
    /// Released placements, and the time until which the scheduler cannot know.
    unannounced: BTreeMap<usize, (Placement, u64)>,
}

impl HiddenRoom {
    fn update(&mut self, simulation: &Simulation<'_>) {
        let placements = simulation.nodes.iter().flat_map(|node| node.kubelet.placements());
        let now: BTreeMap<usize, Placement> = placements.map(|(pod, held)| (pod, held.clone())).collect();
        for (pod, placement) in std::mem::replace(&mut self.held, now) {
            if !self.held.contains_key(&pod) {
                self.unannounced.insert(pod, (placement, u64::MAX));
            }
        }
        for (pod, (_, until_ms)) in &mut self.unannounced {
            let entry = &simulation.pods[*pod];
            if *until_ms == u64::MAX && (!entry.exists || entry.view.progress.terminal) {
                // After a forced deletion no event shows when the kubelet is done; the core waits 2 s.
                let forced = simulation.setup.workload.arrivals[*pod].end == End::Forced;
                let silence_ms = if forced { 2_000 + simulation.setup.latency.kubelet.max_ms } else { 0 };
                *until_ms = simulation.now_ms + simulation.setup.latency.watch.max_ms + silence_ms;
            }
        }
        self.unannounced.retain(|_, (_, until_ms)| *until_ms > simulation.now_ms);
    }
}

impl Simulation<'_> {
    /// Waiting pods that some kubelet would admit after all pods on their way to it, in room the scheduler can know of.
    fn fitting(&self, rooms: &HiddenRoom) -> Vec<usize> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let mut scratch = Scratch::default();
        let left = |node: &Node| node.kubelet.allocatable_milli() - node.kubelet.used_milli();
        let mut tables: Vec<_> =
            self.nodes.iter().map(|node| (node.kubelet.free().clone(), left(node))).collect();
        for (pod, (placement, _)) in &rooms.unannounced {
            if let Some(node) = self.pods[*pod].node {
                placement.charge(&mut tables[node].0);
                tables[node].1 -= cpu_milli(&self.specs[*pod].needs.totals);
            }
        }
        let (coming, decided) = self.coming();
        for (pod, node) in coming {
            let (rules, needs) = (self.setup.machines[node].topology.rules, &self.specs[pod].needs);
            if let Ok(placement) = admit::admit(rules, &tables[node].0, needs, &mut scratch) {
                placement.charge(&mut tables[node].0);
            }
            tables[node].1 -= cpu_milli(&needs.totals);
        }
        let waits = |pod: &usize| self.pods[*pod].node.is_none() && !decided.contains(pod);
        // A node that is held for a pod refuses others on purpose.
        let held = self.scheduler.as_ref().and_then(Core::held);
        let mut fits = |pod: &usize| {
            let needs = &self.specs[*pod].needs;
            let is_closed = |node: &str| {
                held.is_some_and(|(held, other)| **held == *node && other.uid != self.pods[*pod].view.uid)
            };
            tables.iter().zip(self.setup.machines).any(|((free, left), machine)| {
                !is_closed(&machine.view.name)
                    && cpu_milli(&needs.totals) <= *left
                    && admit::admit(machine.topology.rules, free, needs, &mut scratch).is_ok()
            })
        };
        (0..self.pods.len()).filter(waits).filter(|pod| fits(pod)).collect()
    }

    /// Pods on their way to a kubelet in the order they will arrive there, and those of them without a node yet.
    fn coming(&self) -> (Vec<(usize, usize)>, Vec<usize>) {
        let mut coming: Vec<(u64, u64, usize, usize)> = Vec::new();
        let mut decided = Vec::new();
        for Reverse(due) in &self.queue {
            match due.event {
                SimEvent::KubeletAdds(pod) => {
                    coming.extend(self.pods[pod].node.map(|node| (due.at_ms, due.order, pod, node)));
                }
                SimEvent::BindingSent { pod, node, .. } | SimEvent::BindingStored { pod, node, .. } => {
                    coming.push((u64::MAX, due.order, pod, node));
                    decided.push(pod);
                }
                _ => {}
            }
        }
        coming.sort_unstable();
        (coming.into_iter().map(|(_, _, pod, node)| (pod, node)).collect(), decided)
    }
}

fn gpu() -> ResourceName {
    ResourceName::new("example.com/gpu").unwrap()
}

fn pick<T: Copy>(random: &mut Random, list: &[T]) -> T {
    list[usize::try_from(random.below(list.len() as u64)).unwrap()]
}

fn shape(random: &mut Random) -> Shape {
    let (zones, cpus) = pick(random, &[(2, 16), (1, 16), (4, 12), (8, 14), (2, 32)]);
    let mut shape = Shape::even(zones, cpus).unwrap();
    shape.rules.scope = pick(random, &[Scope::Container, Scope::Pod]);
    shape.rules.policy = pick(random, &[Policy::SingleNumaNode, Policy::SingleNumaNode, Policy::Restricted]);
    if random.below(2) == 0 {
        // Sparse ids, a zone without CPUs, devices in some zones only.
        for (at, zone) in (0_u32..).zip(&mut shape.zones) {
            zone.id = 3 * at + 1;
            if at % 2 == 0 {
                zone.devices.insert(gpu(), 4);
            }
        }
        shape.zones.push(ZoneShape { id: 40, memory_mib: 65_536, ..ZoneShape::default() });
    }
    shape
}

fn latency(random: &mut Random, domain: Domain) -> Latency {
    let mut latency = pick(random, &[Latency::cluster(), Latency::cluster(), Latency::zero()]);
    match random.below(5) {
        0 if domain.slow_exporters => latency.scan_taken = DelayRange::fixed(10_000),
        1 if domain.slow_exporters => {
            (latency.scan_taken, latency.scan_released) =
                (DelayRange::new(0, 10_000), DelayRange::new(0, 10_000));
        }
        2 if domain.slow_exporters => latency.cleanup = DelayRange::new(0, 5_000),
        3 if domain.slow_watches => {
            (latency.watch, latency.kubelet) = (DelayRange::new(0, 400), DelayRange::new(0, 400));
        }
        _ => {}
    }
    if domain.quick_kubelets {
        latency.watch = DelayRange::new(0, 200);
        (latency.kubelet, latency.stop) = (DelayRange::new(0, 5), DelayRange::new(0, 20));
    }
    latency
}

/// Pods each of which an empty machine admits.
fn workload(random: &mut Random, machines: &[Machine], domain: Domain) -> Workload {
    let load = pick(random, &[0.5, 0.65, 0.9, 1.2, 2.0]);
    let max_pending = pick(random, &[None, None, Some(6)]);
    let cpus = open_cpus(machines);
    let open = OpenArrivals {
        pods: 100,
        rate: 3.0,
        load,
        cpus,
        max_pending,
        kinds: SIZES.map(ContainerResources::of_cpus).to_vec(),
        seed: random.bits(),
    };
    let mut workload = open.workload().unwrap();
    for arrival in &mut workload.arrivals {
        match random.below(10) {
            0 if domain.ends => arrival.end = End::Forced,
            1 if domain.ends => arrival.end = End::Finished,
            _ => {}
        }
        if domain.mixed {
            mix(random, arrival);
        }
    }
    retain_admitted(&mut workload, &machines[0]);
    workload
}

fn retain_admitted(workload: &mut Workload, machine: &Machine) {
    let mut asked = workload.specs().into_iter().zip(workload.requests());
    workload.arrivals.retain(|_| {
        let admitted = |(spec, request): (Arc<Spec>, Arc<PodRequest>)| {
            Kubelet::new(machine).admit(0, &spec, &request, PodHash(0)).is_ok()
        };
        asked.next().is_some_and(admitted)
    });
}

/// Another policy, options and threads.
fn vary(random: &mut Random, shape: &mut Shape) {
    shape.rules.policy =
        pick(random, &[Policy::Restricted, Policy::BestEffort, Policy::None, Policy::SingleNumaNode]);
    shape.threads_per_core = pick(random, &[1, 2, 2]);
    shape.options.prefer_closest = random.below(2) == 0;
    let sets: [&[CpuOption]; 6] = [
        &[],
        &[CpuOption::FullPcpusOnly],
        &[CpuOption::DistributeAcrossNuma],
        &[CpuOption::DistributeAcrossCores],
        &[CpuOption::FullPcpusOnly, CpuOption::StrictReservation],
        &[CpuOption::PreferUncoreCache],
    ];
    shape.options.cpus = pick(random, &sets).iter().copied().collect();
}

/// Pods that need the CPUs or the memory of several zones. Where no policy keeps others out of them, the kubelet's
/// memory manager loses count (`releaseMemory`), and what it has left cannot be told.
fn widen(random: &mut Random, shape: &Shape, workload: &mut Workload) {
    let zone = &shape.zones[0];
    let spans_memory = shape.rules.policy.enforces();
    for arrival in &mut workload.arrivals {
        match random.below(8) {
            0 => arrival.cpus = zone.cpus + 2,
            1 if spans_memory => arrival.memory_mib = zone.memory_mib + 1_024,
            2 if spans_memory => {
                (arrival.cpus, arrival.memory_mib) = (zone.cpus + 2, zone.memory_mib + 1_024)
            }
            _ => {}
        }
    }
}

/// Resizes of pods in their lifetime. Half of those pods are not Guaranteed, so that the kubelet may carry them out.
fn resize(random: &mut Random, workload: &mut Workload) {
    for arrival in &mut workload.arrivals {
        if random.below(3) > 0 {
            continue;
        }
        let life_ms = arrival.life_ms.unwrap_or(60_000);
        // The API server lets no resize change the QoS class, as one to none at all would.
        let cpus = u32::try_from(random.below(12)).unwrap_or(0).max(1);
        arrival.resize = Some(Resize { after_ms: random.below(life_ms + 1), cpus });
        if random.below(2) == 0 {
            arrival.memory_mib = 0;
        }
    }
}

fn mix(random: &mut Random, arrival: &mut Arrival) {
    let ask = |cpus| ContainerResources { cpus, memory_mib: 64, devices: BTreeMap::new() };
    match random.below(8) {
        0 => arrival.init.push(ask(arrival.cpus + 1)),
        1 => arrival.init.push(ask(1)),
        2 if arrival.cpus > 2 => {
            arrival.cpus /= 2;
            arrival.beside.push(ask(arrival.cpus));
        }
        3 => {
            arrival.devices.insert(gpu().to_string(), 1);
        }
        // Not Guaranteed: takes from the node, not from a zone.
        4 => arrival.memory_mib = 0,
        _ => {}
    }
}
