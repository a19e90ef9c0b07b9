//! A cluster in virtual time: the real scheduler core among simulated kubelets, exporters and an API server.
//!
//! In: machines, a workload, delays, faults. Out: a [`Record`] of the run. Never: a clock, threads, or a decision of
//! its own: placement is `scheduler::core`, admission is `topology::kubelet`.
//!
//! This is a discrete-event simulation. Future events wait in one queue, ordered by time and, within a millisecond, by
//! the order in which they were scheduled. At each moment all due events are processed first, then the scheduler
//! decides once; both repeat until nothing is left to do, and only then time advances. Without latency the scheduler
//! therefore always decides with perfect knowledge.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use api::schedulerconfig::NodesWithoutTopology;
use scheduler::config::{HOLD_AFTER_MS, MAX_WAIT_MS};
use scheduler::core::{Binding, Core, Decision, Event, Profile, Settings};
use scheduler::cycle::{Accounting, Numa};
use scheduler::ledger::PodId;
use scheduler::plugins::Plugins;
use scheduler::plugins::image_locality::PodImages;
use scheduler::pod::{PodView, Progress, Spec};
use scheduler::queue::BackoffLimits;
use topology::fingerprint::{Method, PodHash};
use topology::placement::holdings::HashKey;
use topology::request::PodRequest;
use topology::score::{Strategy, Weights};
use topology::zone::NodeTopology;

use crate::kubelet::{Kubelet, Rejection, Resized};
use crate::latency::{Faults, Latency};
use crate::machine::{Machine, cpu_milli};
use crate::record::{Levels, Record};
use crate::workload::Workload;
use runtime::random::Random;

mod events;

/// What to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The nodes of the cluster.
    pub machines: &'a [Machine],
    /// The pods to create.
    pub workload: &'a Workload,
    /// Delays between the parts of the cluster.
    pub latency: &'a Latency,
    /// Outages during the run.
    pub faults: Faults,
    /// How the scheduler accounts for zones; `None`: it decides by node totals, as kube-scheduler does.
    pub accounting: Option<Accounting>,
    /// How it scores zones.
    pub strategy: Strategy,
    /// Time between two looks of an exporter, each node at a moment of its own; `None`: exporters react to the kubelet.
    pub scan_period_ms: Option<u64>,
    /// Pods that the exporters' fingerprints cover; `None`: exporters without fingerprints.
    pub fingerprints: Option<Method>,
    /// Exporters say by ids what containers hold, as tholepin's do: of UIDs with the kubelet's checkpoints, of names
    /// without.
    pub ids: Option<HashKey>,
    /// Seeds the delays and the choice among equally good nodes.
    pub seed: u64,
}

/// The state of a running simulation.
pub(crate) struct Simulation<'a> {
    setup: Setup<'a>,
    now_ms: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    /// Counts scheduled events, to keep their order within a millisecond.
    scheduled: u64,
    last_event_ms: u64,
    random: Random,
    specs: Vec<Arc<Spec>>,
    requests: Vec<Arc<PodRequest>>,
    pods: Vec<Pod>,
    nodes: Vec<Node>,
    slots: BTreeMap<Arc<str>, usize>,
    scheduler: Option<Core>,
    /// Number of the running scheduler process; events sent to an earlier one are lost.
    incarnation: u32,
    /// Arrival at the scheduler of the last pod event and the last report event; each watch keeps its order.
    pod_watch_ms: u64,
    report_watch_ms: u64,
    /// Pods created that are neither Running nor lost.
    pending: usize,
    /// Number of pods without a node, by their CPU request.
    waiting: BTreeMap<i64, usize>,
    used_milli: i64,
    /// Pods that were lost although the scheduler could not know better, see [`Pod::expected_beside`].
    unforeseen: usize,
    /// Bindings that were decided and not sent.
    withdrawn: usize,
    record: Record,
}

/// A created pod.
struct Pod {
    view: PodView,
    created_ms: u64,
    node: Option<usize>,
    /// Time at which its last status reaches the API server.
    status_ms: u64,
    /// The second in which its containers ended, by its kubelet.
    ended_s: Option<u64>,
    exists: bool,
    /// The reason why the last attempt to place it failed.
    refused: Option<Arc<str>>,
    /// [`Node::expected`] when the node was chosen. If one of them has gone unannounced before the kubelet sees this
    /// pod, there is more room than was known; a pod of several containers may then be put into another zone, in which
    /// not all of them fit.
    expected_beside: BTreeSet<usize>,
    /// The progress of its resize; `None`: it was not asked for yet.
    resize: Option<ResizeStage>,
    /// Whether the scheduler has seen that it grows.
    is_growth_known: bool,
    /// The pods of its node that had grown, as far as the scheduler knew when it chose the node.
    known_to_grow: Vec<usize>,
}

/// The progress of a resize in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResizeStage {
    /// The spec has it.
    Desired,
    /// The kubelet has answered.
    Answered(Resized),
}

/// A node, and the latest messages on their way to and from it.
struct Node {
    kubelet: Kubelet,
    name: Arc<str>,
    /// The pods that the scheduler has sent there, without those that it knows to leave.
    expected: BTreeSet<usize>,
    /// Time at which the last binding is stored.
    bound_ms: u64,
    /// Time at which the last pod change reaches the kubelet.
    notified_ms: u64,
    /// Time of the next scan; `u64::MAX`: none is scheduled.
    scan_ms: u64,
    /// Time at which the last report is stored.
    published_ms: u64,
    /// [`Kubelet::changes`] at the last scan.
    scanned: u64,
    stored: Option<Arc<NodeTopology>>,
}

/// A future event.
enum SimEvent {
    /// A watch event reaches the scheduler.
    Delivered { incarnation: u32, event: Box<Event> },
    /// The scheduler sends a binding, unless it was withdrawn. The API server stores it after `takes_ms`.
    BindingSent { incarnation: u32, id: PodId, pod: usize, node: usize, relied_on: Vec<usize>, takes_ms: u64 },
    /// The API server stores a binding.
    BindingStored { incarnation: u32, id: PodId, pod: usize, node: usize },
    /// The scheduler learns the result of its binding.
    BindingAnswered { incarnation: u32, id: PodId, bound: bool },
    /// The kubelet sees a bound pod.
    KubeletAdds(usize),
    /// The kubelet sees a deletion request, or the containers exit.
    KubeletTerminates(usize),
    /// The kubelet sees that a pod object was deleted by force.
    KubeletRemoves(usize),
    /// A user resizes the pod in place.
    ResizeDesired(usize),
    /// The kubelet sees that.
    KubeletResizes(usize),
    /// The API server stores a status.
    StatusStored(usize, PodStatus),
    /// The pod has run for its lifetime.
    LifetimeOver(usize),
    /// The kubelet releases the pod's resources.
    Released(usize),
    /// The pod object disappears.
    ObjectRemoved(usize),
    /// The exporter of a node scans.
    Scan(usize),
    /// The API server stores a report.
    ReportStored(usize, Arc<NodeTopology>),
    /// The exporters' outage ends.
    ExportersRestart,
    /// The scheduler process is killed.
    SchedulerKilled,
    /// A new scheduler process starts.
    SchedulerRestarts,
}

/// A pod status as the kubelet writes it.
#[derive(Clone, Copy)]
enum PodStatus {
    Admitted,
    Running,
    Rejected(Rejection),
    Stopped,
    Finished,
    Resized(Resized),
}

/// An event in the queue.
struct Scheduled {
    at_ms: u64,
    order: u64,
    event: SimEvent,
}

/// Profile that all pods name.
const PROFILE: &str = "tholepin";
/// Namespace of all pods.
pub(crate) const NAMESPACE: &str = "sim";
/// Prefix of the uids of the workload's pods.
const UID_PREFIX: &str = "sim/";
/// Once only the scheduler's own timers have fired for this long, the remaining pods wait for ever. Longer than any of
/// those timers: waiting pods are tried again every 5 minutes.
const IDLE_MS: u64 = 6 * 60 * 1000;
/// Pods between two progress calls.
const PROGRESS_STEP: usize = 64;

impl<'a> Simulation<'a> {
    pub(crate) fn new(setup: Setup<'a>) -> Self {
        let node = |machine: &Machine| {
            let kubelet = Kubelet::new(machine);
            Node {
                stored: Some(Arc::new(kubelet.report(setup.fingerprints, setup.ids))),
                name: Arc::clone(&machine.view.name),
                kubelet,
                expected: BTreeSet::new(),
                bound_ms: 0,
                notified_ms: 0,
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
        let record = Record::new(setup.workload.arrivals.len(), sum(Kubelet::allocatable_milli));
        let used_milli = sum(Kubelet::used_milli);
        Self {
            // Differs from the core's sequence, which starts from the same seed.
            random: Random::seeded(setup.seed ^ 0x5eed_5eed_5eed_5eed),
            specs: setup.workload.specs(),
            requests: setup.workload.requests(),
            pods: Vec::with_capacity(setup.workload.arrivals.len()),
            now_ms: 0,
            queue: BinaryHeap::new(),
            scheduled: 0,
            last_event_ms: 0,
            scheduler: None,
            incarnation: 0,
            pod_watch_ms: 0,
            report_watch_ms: 0,
            pending: 0,
            waiting: BTreeMap::new(),
            setup,
            nodes,
            slots,
            used_milli,
            unforeseen: 0,
            withdrawn: 0,
            record,
        }
    }

    /// Runs to the end. `progress` receives the number of settled pods, once for every [`PROGRESS_STEP`] of them.
    pub(crate) fn run(self, progress: &mut dyn FnMut(usize)) -> Record {
        self.run_observed(progress, &mut |_| {})
    }

    /// Runs to the end; `observe` sees the cluster at each moment, after all that happens then.
    pub(crate) fn run_observed(
        mut self,
        progress: &mut dyn FnMut(usize),
        observe: &mut dyn FnMut(&Self),
    ) -> Record {
        self.begin();
        let mut reported = 0;
        loop {
            self.create_due();
            if let Some(event) = self.next_event() {
                self.process(event);
                continue;
            }
            if self.decide() {
                continue;
            }
            observe(&self);
            let settled = self.record.settled();
            if settled >= reported + PROGRESS_STEP {
                reported = settled;
                progress(settled);
            }
            let Some(next_ms) = self.next_moment() else { break };
            self.record.advance(next_ms, self.levels());
            self.now_ms = next_ms;
        }
        progress(self.record.settled());
        self.record_refusals();
        self.record
    }

    fn begin(&mut self) {
        if let Some((_, back_ms)) = self.setup.faults.exporters_down_ms {
            self.schedule(back_ms, SimEvent::ExportersRestart);
        }
        if let Some((dies_ms, starts_ms)) = self.setup.faults.scheduler_down_ms {
            self.schedule(dies_ms, SimEvent::SchedulerKilled);
            self.schedule(starts_ms.max(dies_ms), SimEvent::SchedulerRestarts);
        }
        self.start_scheduler();
    }

    fn schedule(&mut self, at_ms: u64, event: SimEvent) {
        self.scheduled += 1;
        self.queue.push(Reverse(Scheduled { at_ms, order: self.scheduled, event }));
    }

    fn next_event(&mut self) -> Option<SimEvent> {
        if self.queue.peek().is_none_or(|Reverse(due)| due.at_ms > self.now_ms) {
            return None;
        }
        self.last_event_ms = self.now_ms;
        self.queue.pop().map(|Reverse(due)| due.event)
    }

    /// The time of the next event; `None` when the simulation is over.
    fn next_moment(&self) -> Option<u64> {
        let queued = self.queue.peek().map(|Reverse(due)| due.at_ms);
        let arrival = self.setup.workload.arrivals.get(self.pods.len()).map(|arrival| arrival.at_ms);
        let arrival = arrival.filter(|at_ms| *at_ms > self.now_ms);
        let timer = self.scheduler.as_ref().and_then(Core::due).map(|due| due.max(self.now_ms + 1));
        match queued.into_iter().chain(arrival).min() {
            Some(next) => Some(timer.map_or(next, |timer| timer.min(next))),
            None => timer.filter(|timer| *timer <= self.last_event_ms + IDLE_MS && self.pending > 0),
        }
    }

    /// Creates the pods that are due and not held back.
    fn create_due(&mut self) {
        let workload = self.setup.workload;
        let limit = workload.max_pending.unwrap_or(usize::MAX);
        while let Some(arrival) = workload.arrivals.get(self.pods.len()) {
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
                ended_s: None,
                exists: true,
                refused: None,
                expected_beside: BTreeSet::new(),
                resize: None,
                is_growth_known: false,
                known_to_grow: Vec::new(),
            });
            self.pending += 1;
            self.last_event_ms = self.now_ms;
            *self.waiting.entry(cpu_milli(&view.spec.needs.totals)).or_default() += 1;
            self.notify_scheduler(Event::Pod(view));
        }
    }

    /// Lets the scheduler decide once; whether there was anything to decide.
    fn decide(&mut self) -> bool {
        let now_ms = self.now_ms;
        let Some(decision) = self.scheduler.as_mut().and_then(|core| core.next(now_ms)) else { return false };
        if let Decision::Refuse(refused) = &decision
            && let Some(pod) = self.number(&refused.pod)
        {
            self.pods[pod].refused = Some(refused.message.as_str().into());
        }
        match decision {
            Decision::Bind(binding) => self.bind(binding),
            Decision::Withdraw(id) => self.withdraw(id),
            _ => {}
        }
        true
    }

    fn bind(&mut self, binding: Binding) {
        let pod = number_of(&binding.pod.uid);
        let node = self.slots.get(&binding.node).copied();
        debug_assert!(
            pod.is_some() && node.is_some(),
            "the scheduler binds a pod or node that does not exist"
        );
        let (Some(pod), Some(node)) = (pod, node) else { return };
        let there = self.nodes[node].kubelet.placements().map(|(other, _)| other);
        self.pods[pod].known_to_grow = there.filter(|other| self.pods[*other].is_growth_known).collect();
        self.pods[pod].expected_beside = self.nodes[node].expected.clone();
        self.nodes[node].expected.insert(pod);
        let relied_on: Vec<usize> = binding.relied_on.iter().filter_map(|pod| self.number(pod)).collect();
        let mut takes_ms = self.setup.latency.bind.draw(&mut self.random);
        if !relied_on.is_empty() {
            // The look at them takes as long as the binding.
            takes_ms += self.setup.latency.bind.draw(&mut self.random);
        }
        let sent_ms = self.nodes[node].bound_ms.max(self.now_ms);
        self.nodes[node].bound_ms = sent_ms + takes_ms;
        let (incarnation, id) = (self.incarnation, binding.id);
        self.schedule(sent_ms, SimEvent::BindingSent { incarnation, id, pod, node, relied_on, takes_ms });
    }

    /// Withdraws a binding that was not sent yet.
    fn withdraw(&mut self, withdrawn: PodId) {
        let mut found = None;
        self.queue.retain(|Reverse(due)| {
            let SimEvent::BindingSent { id, pod, node, .. } = &due.event else { return true };
            found = found.or((*id == withdrawn).then_some((*pod, *node)));
            *id != withdrawn
        });
        if let Some(binding) = found {
            self.not_sent(withdrawn, binding);
        }
    }

    /// Starts a scheduler that knows only what the API server has.
    fn start_scheduler(&mut self) {
        let numa = |accounting| Numa {
            strategy: self.setup.strategy,
            weights: Weights::default(),
            filters: true,
            score_weight: 1,
            accounting,
            unreported: NodesWithoutTopology::Accept,
        };
        let mut core = Core::new(Settings {
            profiles: vec![Profile {
                name: PROFILE.into(),
                numa: self.setup.accounting.map(numa),
                // Simulated pods end by themselves alone.
                plugins: Arc::new(Plugins { preemption: None, deallocates: false, ..Plugins::default() }),
                percentage: 0,
            }],
            backoff: BackoffLimits { initial_ms: 1_000, max_ms: 10_000 },
            seed: self.setup.seed,
            deletes_rejected: false,
            hold_after_ms: self.holds_nodes().then_some(HOLD_AFTER_MS),
            max_wait_ms: MAX_WAIT_MS,
        });
        for machine in self.setup.machines {
            core.handle(Event::Node(machine.view.clone()), self.now_ms);
        }
        let residents = self.setup.machines.iter().flat_map(|machine| &machine.residents);
        let pods = self.pods.iter().filter(|pod| pod.exists).map(|pod| &pod.view);
        for view in residents.chain(pods) {
            core.handle(Event::Pod(view.clone()), self.now_ms);
        }
        for node in self.nodes.iter().filter(|_| self.setup.accounting.is_some()) {
            if let Some(report) = &node.stored {
                core.handle(Event::Report(Arc::clone(&node.name), Arc::clone(report)), self.now_ms);
            }
        }
        self.incarnation += 1;
        self.pods.iter_mut().for_each(|pod| pod.is_growth_known |= pod.resize.is_some());
        self.scheduler = Some(core);
    }

    /// Whether the scheduler holds nodes for pods that wait long. Upstream's plugin does not.
    fn holds_nodes(&self) -> bool {
        !matches!(self.setup.accounting, Some(Accounting::OverReserve { .. }))
    }

    /// Records why each pod that neither ran nor was lost is not placed.
    fn record_refusals(&mut self) {
        for pod in self.pods.iter().filter(|pod| pod.node.is_none()) {
            let reason = match &pod.refused {
                _ if !pod.view.spec.gates.is_empty() => "it has scheduling gates",
                Some(reason) => reason,
                None => "no attempt was made",
            };
            self.record.refused(&pod.view.name, reason);
        }
    }

    /// The number of a pod of the workload.
    fn number(&self, view: &PodView) -> Option<usize> {
        number_of(&view.uid).filter(|number| *number < self.pods.len())
    }

    fn view(&self, number: usize) -> PodView {
        let known = self.setup.workload.arrivals.get(number).and_then(|arrival| arrival.pod.as_deref());
        let (namespace, name) = match known {
            Some(pod) => (Arc::clone(&pod.namespace), Arc::clone(&pod.name)),
            None => (NAMESPACE.into(), Workload::pod_name(number).into()),
        };
        PodView {
            uid: uid_of(number).into(),
            static_uid: None,
            version: 0,
            created_s: self.now_ms / 1_000,
            scheduler: PROFILE.into(),
            priority: known.map_or(0, |pod| pod.priority),
            node: None,
            hash: PodHash::of(&namespace, &name),
            spec: Arc::clone(&self.specs[number]),
            charged: Arc::clone(&self.specs[number].needs),
            allocated: Arc::clone(&self.specs[number].needs),
            labels: Arc::default(),
            terms: Vec::new(),
            images: PodImages::default(),
            controller: None,
            stays: false,
            progress: Progress::default(),
            owner: None,
            rejection: None,
            unschedulable: None,
            nominated: None,
            started_s: None,
            ended_s: None,
            group: None,
            namespace,
            name,
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

/// The uid of a pod of the workload.
pub(crate) fn uid_of(number: usize) -> String {
    format!("{UID_PREFIX}{number}")
}

fn number_of(uid: &str) -> Option<usize> {
    uid.strip_prefix(UID_PREFIX)?.parse().ok()
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ms, self.order).cmp(&(other.at_ms, other.order))
    }
}

#[cfg(test)]
mod tests;
