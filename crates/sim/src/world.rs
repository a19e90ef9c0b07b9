//! A cluster in virtual time: the real scheduler core among virtual kubelets, exporters and an API server.
//!
//! In: machines, a plan, delays, faults. Out: what was recorded ([`Record`]). Never: a clock, threads, or a decision about
//! placement or admission of its own: the first is `scheduler::core`, the second `topology::admit`.
//!
//! Everything that will happen waits in one queue ordered by time, and by the order it was planned within a millisecond.
//! All that happens by now comes first, then the scheduler decides once, and so on until nothing is left to do at this
//! moment; then time moves on. With no latency at all the scheduler therefore always decides with perfect knowledge.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use scheduler::core::{Core, Decision, Event, Profile, Settings};
use scheduler::cycle::Numa;
use scheduler::ledger::PodId;
use scheduler::pod::{PodView, Progress, Spec};
use scheduler::queue::Backoff;
use topology::fingerprint::{Method, PodHash};
use topology::score::{Strategy, Weights};
use topology::zone::NodeTopology;

use crate::kubelet::{Kubelet, Rejection};
use crate::latency::{Faults, Latency};
use crate::machine::{Machine, cpu_milli};
use crate::random::Random;
use crate::record::{Levels, Record};
use crate::workload::Plan;

mod events;

/// What to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The nodes.
    pub machines: &'a [Machine],
    /// The pods.
    pub plan: &'a Plan,
    /// Delays.
    pub latency: &'a Latency,
    /// Breakdowns.
    pub faults: Faults,
    /// Whether the scheduler looks at zones; without, it decides as kube-scheduler does.
    pub zones: bool,
    /// Which pods the exporters' fingerprints cover; `None`: exporters that give none.
    pub fingerprints: Option<Method>,
    /// Decides delays, and the choice among equally good nodes.
    pub seed: u64,
}

/// The cluster.
pub(crate) struct World<'a> {
    setup: Setup<'a>,
    now_ms: u64,
    queue: BinaryHeap<Reverse<Due>>,
    planned: u64,
    last_happened_ms: u64,
    random: Random,
    specs: Vec<Arc<Spec>>,
    pods: Vec<Pod>,
    nodes: Vec<Node>,
    slots: BTreeMap<Arc<str>, usize>,
    scheduler: Option<Core>,
    /// Which life of the scheduler this is; what was sent to an earlier one is lost.
    life: u32,
    /// When the last change of a pod, and of a report, reaches the scheduler.
    pod_watch_ms: u64,
    report_watch_ms: u64,
    /// Created, neither Running nor lost.
    pending: usize,
    /// Pods without a node by their CPU need.
    waiting: BTreeMap<i64, usize>,
    used_milli: i64,
    record: Record,
}

/// A pod that has been created.
struct Pod {
    view: PodView,
    created_ms: u64,
    node: Option<usize>,
    /// When the last status of it reaches the API server.
    status_ms: u64,
    exists: bool,
}

/// A node and what is on its way to and from it.
struct Node {
    kubelet: Kubelet,
    name: Arc<str>,
    /// When the last binding is stored.
    bound_ms: u64,
    /// When the kubelet has heard of the last change.
    heard_ms: u64,
    /// When the next scan is due; `u64::MAX`: none is.
    scan_ms: u64,
    /// When the last report is stored.
    published_ms: u64,
    /// [`Kubelet::changes`] at the last scan.
    scanned: u64,
    stored: Option<Arc<NodeTopology>>,
}

/// Something that will happen.
enum SimEvent {
    /// The scheduler hears of a change.
    Heard { life: u32, event: Event },
    /// The API server stores a binding.
    Stored { life: u32, id: PodId, pod: usize, node: usize },
    /// The scheduler learns what became of its binding.
    Answered { life: u32, id: PodId, bound: bool },
    /// The kubelet gets to see a bound pod.
    Added(usize),
    /// The kubelet hears that a pod shall end.
    Terminated(usize),
    /// The kubelet hears that a pod object is gone by force.
    Vanished(usize),
    /// The API server stores a status.
    Status(usize, Step),
    /// The pod has run as long as it should.
    LifeOver(usize),
    /// The kubelet takes the pod's resources back.
    Released(usize),
    /// The pod object is gone.
    Removed(usize),
    /// The exporter of a node looks.
    Scan(usize),
    /// The API server stores a report.
    Published(usize, Arc<NodeTopology>),
    /// Exporters work again.
    ExportersBack,
    /// The scheduler is killed.
    SchedulerDies,
    /// A new scheduler starts.
    SchedulerStarts,
}

/// What a status says.
#[derive(Clone, Copy)]
enum Step {
    Admitted,
    Running,
    Rejected(Rejection),
    Stopped,
    Finished,
}

struct Due {
    at_ms: u64,
    order: u64,
    what: SimEvent,
}

/// Name of the profile all pods ask for.
const PROFILE: &str = "tholepin";
/// Namespace of all pods.
const NAMESPACE: &str = "sim";
/// Marks the uids of the plan's pods.
const UID_PREFIX: &str = "sim/";
/// When nothing but the scheduler's own timers is left for this long, the rest waits for ever. Longer than any of them
/// (waiting pods are tried again every 5 minutes).
const IDLE_MS: u64 = 6 * 60 * 1000;
/// How often progress is told, in pods.
const PROGRESS_STEP: usize = 64;

impl<'a> World<'a> {
    pub(crate) fn new(setup: Setup<'a>) -> Self {
        let node = |machine: &Machine| {
            let kubelet = Kubelet::new(machine);
            Node {
                stored: Some(Arc::new(kubelet.report(setup.fingerprints))),
                name: Arc::clone(&machine.view.name),
                kubelet,
                bound_ms: 0,
                heard_ms: 0,
                scan_ms: u64::MAX,
                published_ms: 0,
                scanned: 0,
            }
        };
        let nodes: Vec<Node> = setup.machines.iter().map(node).collect();
        let slots = nodes.iter().enumerate().map(|(slot, node)| (Arc::clone(&node.name), slot)).collect();
        let sum = |amount: fn(&Kubelet) -> i64| {
            nodes.iter().map(|node| amount(&node.kubelet)).fold(0, i64::saturating_add)
        };
        let record = Record::new(setup.plan.arrivals.len(), sum(Kubelet::allocatable_milli));
        let used_milli = sum(Kubelet::used_milli);
        Self {
            // Not the core's own sequence, which starts from the same seed.
            random: Random::new(setup.seed ^ 0x5eed_5eed_5eed_5eed),
            specs: setup.plan.specs(),
            pods: Vec::with_capacity(setup.plan.arrivals.len()),
            now_ms: 0,
            queue: BinaryHeap::new(),
            planned: 0,
            last_happened_ms: 0,
            scheduler: None,
            life: 0,
            pod_watch_ms: 0,
            report_watch_ms: 0,
            pending: 0,
            waiting: BTreeMap::new(),
            setup,
            nodes,
            slots,
            used_milli,
            record,
        }
    }

    /// Runs to the end. `progress` is told now and then how many pods are settled.
    pub(crate) fn run(self, progress: &mut dyn FnMut(usize)) -> Record {
        self.run_observed(progress, &mut |_| {})
    }

    /// The same; `observe` sees the cluster each time nothing is left to do at a moment.
    pub(crate) fn run_observed(
        mut self,
        progress: &mut dyn FnMut(usize),
        observe: &mut dyn FnMut(&Self),
    ) -> Record {
        self.begin();
        let mut told = 0;
        loop {
            self.create_due();
            if let Some(what) = self.next_event() {
                self.apply(what);
                continue;
            }
            if self.decide() {
                continue;
            }
            observe(&self);
            let settled = self.record.settled();
            if settled >= told + PROGRESS_STEP {
                told = settled;
                progress(settled);
            }
            let Some(next_ms) = self.next_moment() else { break };
            self.record.advance(next_ms, self.levels());
            self.now_ms = next_ms;
        }
        progress(self.record.settled());
        self.record
    }

    fn begin(&mut self) {
        if let Some((_, back_ms)) = self.setup.faults.exporters_down_ms {
            self.plan(back_ms, SimEvent::ExportersBack);
        }
        if let Some((dies_ms, starts_ms)) = self.setup.faults.scheduler_down_ms {
            self.plan(dies_ms, SimEvent::SchedulerDies);
            self.plan(starts_ms.max(dies_ms), SimEvent::SchedulerStarts);
        }
        self.start_scheduler();
    }

    fn plan(&mut self, at_ms: u64, what: SimEvent) {
        self.planned += 1;
        self.queue.push(Reverse(Due { at_ms, order: self.planned, what }));
    }

    fn next_event(&mut self) -> Option<SimEvent> {
        if self.queue.peek().is_none_or(|Reverse(due)| due.at_ms > self.now_ms) {
            return None;
        }
        self.last_happened_ms = self.now_ms;
        self.queue.pop().map(|Reverse(due)| due.what)
    }

    /// When something happens next; `None` when all is over.
    fn next_moment(&self) -> Option<u64> {
        let planned = self.queue.peek().map(|Reverse(due)| due.at_ms);
        let arrival = self.setup.plan.arrivals.get(self.pods.len()).map(|arrival| arrival.at_ms);
        let arrival = arrival.filter(|at_ms| *at_ms > self.now_ms);
        let timer = self.scheduler.as_ref().and_then(Core::due).map(|due| due.max(self.now_ms + 1));
        match planned.into_iter().chain(arrival).min() {
            Some(next) => Some(timer.map_or(next, |timer| timer.min(next))),
            None => timer.filter(|timer| *timer <= self.last_happened_ms + IDLE_MS && self.pending > 0),
        }
    }

    /// Creates the pods whose time has come and that are not held back.
    fn create_due(&mut self) {
        let plan = self.setup.plan;
        let limit = plan.max_pending.unwrap_or(usize::MAX);
        while let Some(arrival) = plan.arrivals.get(self.pods.len()) {
            if arrival.at_ms > self.now_ms || self.pending >= limit {
                return;
            }
            let number = self.pods.len();
            let view = self.view(number);
            self.pods.push(Pod {
                view: view.clone(),
                created_ms: self.now_ms,
                node: None,
                status_ms: 0,
                exists: true,
            });
            self.pending += 1;
            self.last_happened_ms = self.now_ms;
            *self.waiting.entry(cpu_milli(&view.spec.needs.totals)).or_default() += 1;
            self.tell(Event::Pod(view));
        }
    }

    /// Lets the scheduler decide once. Whether it did.
    fn decide(&mut self) -> bool {
        let now_ms = self.now_ms;
        let Some(decision) = self.scheduler.as_mut().and_then(|core| core.next(now_ms)) else { return false };
        if let Decision::Bind(binding) = decision {
            let pod = binding.pod.uid.strip_prefix(UID_PREFIX).and_then(|number| number.parse().ok());
            let node = self.slots.get(&binding.node).copied();
            debug_assert!(pod.is_some() && node.is_some(), "the scheduler binds what nobody created");
            if let (Some(pod), Some(node)) = (pod, node) {
                let delay = self.setup.latency.bind.draw(&mut self.random);
                let at_ms = self.nodes[node].bound_ms.max(now_ms) + delay;
                self.nodes[node].bound_ms = at_ms;
                self.plan(at_ms, SimEvent::Stored { life: self.life, id: binding.id, pod, node });
            }
        }
        true
    }

    /// A scheduler that knows what the API server has, and nothing else.
    fn start_scheduler(&mut self) {
        let numa = Numa { strategy: Strategy::LeastAllocated, weights: Weights::default(), score_weight: 1 };
        let mut core = Core::new(Settings {
            profiles: vec![Profile {
                name: PROFILE.into(),
                numa: self.setup.zones.then_some(numa),
                percentage: 0,
            }],
            backoff: Backoff { initial_ms: 1_000, max_ms: 10_000 },
            seed: self.setup.seed,
        });
        for machine in self.setup.machines {
            core.handle(Event::Node(machine.view.clone()), self.now_ms);
        }
        let residents = self.setup.machines.iter().flat_map(|machine| &machine.residents);
        let pods = self.pods.iter().filter(|pod| pod.exists).map(|pod| &pod.view);
        for view in residents.chain(pods) {
            core.handle(Event::Pod(view.clone()), self.now_ms);
        }
        for node in self.nodes.iter().filter(|_| self.setup.zones) {
            if let Some(report) = &node.stored {
                core.handle(Event::Report(Arc::clone(&node.name), Arc::clone(report)), self.now_ms);
            }
        }
        self.life += 1;
        self.scheduler = Some(core);
    }

    fn view(&self, number: usize) -> PodView {
        let name = Plan::pod_name(number);
        PodView {
            uid: format!("{UID_PREFIX}{number}").into(),
            namespace: NAMESPACE.into(),
            version: 0,
            scheduler: PROFILE.into(),
            priority: 0,
            node: None,
            hash: PodHash::of(NAMESPACE, &name),
            spec: Arc::clone(&self.specs[number]),
            progress: Progress::default(),
            refused: None,
            name: name.into(),
        }
    }

    fn levels(&self) -> Levels {
        let smallest = self.waiting.keys().find(|milli| **milli > 0).copied();
        let stranded = smallest.map_or(0, |milli| {
            let each = self.nodes.iter().map(|node| node.kubelet.stranded_milli(milli));
            each.fold(0, i64::saturating_add)
        });
        Levels { used_milli: self.used_milli, stranded_milli: stranded, waiting: self.waiting.values().sum() }
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ms, self.order).cmp(&(other.at_ms, other.order))
    }
}

#[cfg(test)]
mod tests;
