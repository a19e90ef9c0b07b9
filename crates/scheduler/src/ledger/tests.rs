//! The ledger against a kubelet that is the model, with every queue between them delayed at random.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use topology::fingerprint::{Fingerprint, Method, PodHash};
use topology::policy::{Manager, Policy, Rules, Scope};
use topology::request::{ContainerKind, ContainerRequest, PodRequest, Qos};
use topology::resource::ResourceName;
use topology::zone::{Zone, ZoneId, ZoneResource};

use super::*;
use kubelet::TestKubelet;

mod binding_order;
mod by_id;
mod found;
mod kept_cpus;
mod kubelet;
mod model_check;
mod order;
mod restart;
mod search;
mod stale;

const CPUS: i64 = 8_000;
const MEMORY: i64 = 8;

#[derive(Clone, Debug)]
enum Op {
    Bind {
        cpu: i64,
        memory: i64,
        containers: usize,
        finishes: bool,
        created_s: u64,
    },
    /// An init container, and one that has to be in its zone.
    BindInit {
        init_cpu: i64,
        cpu: i64,
        memory: i64,
        created_s: u64,
    },
    BindForeign {
        cpu: i64,
        memory: i64,
    },
    /// The API server refuses a binding that is under way: the pod never reaches the kubelet.
    FailBinding {
        cpu: i64,
        memory: i64,
    },
    /// The scheduler learns of a binding that failed.
    BindingFailed,
    Kubelet,
    /// The same; a leaving pod is gone before this container is looked at.
    KubeletReleases {
        at: usize,
        before: usize,
    },
    /// The kubelet's watch breaks: so many messages reach it as one list, in which pods of one second have any order.
    Relist {
        messages: usize,
        backwards: bool,
    },
    Delete(usize),
    ForceDelete(usize),
    Finish(usize),
    Release(usize),
    PodEvent,
    Export,
    NrtEvent,
    Timer,
}

#[derive(Debug)]
enum ToKubelet {
    Add(PodId),
    Terminate(PodId),
    Remove(PodId),
}

#[derive(Debug)]
enum ToScheduler {
    Bound(PodId),
    Admitted(PodId),
    Leaving(PodId),
    Released(PodId),
}

/// Everything outside the ledger.
struct Rig {
    scope: Scope,
    fingerprints: bool,
    kubelet: TestKubelet,
    pods: BTreeMap<PodId, BoundPod>,
    terminating: Vec<PodId>,
    own: Vec<PodId>,
    inbox: VecDeque<ToKubelet>,
    pod_events: VecDeque<ToScheduler>,
    reports: VecDeque<Arc<NodeTopology>>,
    next: u64,
    rejected: Vec<PodId>,
    /// Pods whose binding has failed, before the ledger knows.
    failed: VecDeque<PodId>,
    /// Deleted by force and gone from the kubelet; no event announces their release, only a timer.
    vanished: Vec<PodId>,
    ledger: Ledger,
    scratch: Scratch,
}

fn rules(scope: Scope) -> Rules {
    Rules {
        policy: Policy::SingleNumaNode,
        scope,
        cpu_manager: Manager::Static,
        memory_manager: Manager::Static,
    }
}

fn topology(scope: Scope, available: Option<&Free>, fingerprint: Option<Fingerprint>) -> NodeTopology {
    let zones = [0_u32, 5]
        .iter()
        .map(|id| Zone {
            id: ZoneId(*id),
            distances: vec![],
            resources: [(ResourceName::CPU, CPUS), (ResourceName::MEMORY, MEMORY)]
                .iter()
                .map(|(name, n)| ZoneResource {
                    name: *name,
                    capacity: *n,
                    allocatable: *n,
                    available: available.map_or(*n, |free| free.amount(ZoneId(*id), *name)),
                })
                .collect(),
        })
        .collect();
    let fingerprint = fingerprint.map(|f| (f, Method::WithExclusiveResources));
    NodeTopology {
        rules: rules(scope),
        zones,
        fingerprint,
        threads_per_core: Some(1),
        ..NodeTopology::default()
    }
}

fn needs(cpu: i64, memory: i64, containers: usize) -> Arc<PodNeeds> {
    needs_of(&vec![(ContainerKind::App, cpu * 1_000, memory); containers])
}

/// A pod of containers: kind, thousandths of CPUs, bytes.
fn needs_of(containers: &[(ContainerKind, i64, i64)]) -> Arc<PodNeeds> {
    let container = |(at, (kind, milli, memory)): (usize, &(ContainerKind, i64, i64))| {
        let amounts = vec![
            (ResourceName::CPU, format!("{milli}m").parse().unwrap()),
            (ResourceName::MEMORY, memory.to_string().parse().unwrap()),
        ];
        ContainerRequest {
            name: format!("c{at}").into(),
            kind: *kind,
            requests: amounts.clone(),
            limits: amounts,
        }
    };
    let containers = containers.iter().enumerate().map(container).collect();
    Arc::new(PodRequest { containers, ..PodRequest::default() }.needs())
}

impl Rig {
    fn new(scope: Scope, fingerprints: bool) -> Self {
        let mut rig = Self {
            scope,
            fingerprints,
            kubelet: TestKubelet::new(rules(scope)),
            pods: BTreeMap::new(),
            terminating: vec![],
            own: vec![],
            inbox: VecDeque::new(),
            pod_events: VecDeque::new(),
            reports: VecDeque::new(),
            next: 0,
            rejected: vec![],
            failed: VecDeque::new(),
            vanished: vec![],
            ledger: Ledger::default(),
            scratch: Scratch::default(),
        };
        rig.export();
        rig.nrt_event();
        rig
    }

    fn pod(&mut self, needs: Arc<PodNeeds>, finishes: bool, created_s: u64) -> PodId {
        let id = PodId(self.next);
        self.next += 1;
        let hash = PodHash::of("ns", &format!("p{}", id.0));
        self.pods.insert(id, BoundPod { id, names: PodNames::default(), hash, needs, finishes, created_s });
        id
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Bind { cpu, memory, containers, finishes, created_s } => {
                self.bind(needs(*cpu, *memory, *containers), *finishes, *created_s);
            }
            Op::BindInit { init_cpu, cpu, memory, created_s } => {
                let [init, app] = [ContainerKind::Init, ContainerKind::App];
                let containers = [(init, init_cpu * 1_000, *memory), (app, cpu * 1_000, *memory)];
                self.bind(needs_of(&containers), false, *created_s);
            }
            Op::BindForeign { cpu, memory } => {
                let id = self.pod(needs(*cpu, *memory, 1), false, 4);
                self.inbox.push_back(ToKubelet::Add(id));
                self.pod_events.push_back(ToScheduler::Bound(id));
            }
            Op::FailBinding { cpu, memory } => {
                let needs = needs(*cpu, *memory, 1);
                if self.ledger.check((&needs, 4), &mut self.scratch).is_ok() {
                    let id = self.pod(needs, false, 4);
                    self.ledger.assumed(&self.pods[&id], &mut self.scratch);
                    self.failed.push_back(id);
                }
            }
            Op::BindingFailed => self.binding_failed(),
            Op::Kubelet => self.kubelet(None),
            Op::KubeletReleases { at, before } => self.kubelet_releases(*at, *before),
            Op::Relist { messages, backwards } => self.relist(*messages, *backwards),
            Op::Delete(at) => {
                if let Some(id) = self.pick(*at) {
                    self.delete(id, ToKubelet::Terminate(id));
                }
            }
            Op::ForceDelete(at) => {
                if let Some(id) = self.pick(*at) {
                    self.delete(id, ToKubelet::Remove(id));
                }
            }
            Op::Finish(at) => {
                // One at a time. Two pods that finish unannounced within one watch delay, while a third is pending, are
                // beyond the ledger.
                let quiet = !self.pod_events.iter().any(|event| matches!(event, ToScheduler::Released(_)));
                if let Some(id) = self.pick(*at).filter(|id| quiet && self.pods[id].finishes) {
                    self.kubelet.release(id);
                    self.pod_events.push_back(ToScheduler::Released(id));
                }
            }
            Op::Release(at) => {
                if !self.terminating.is_empty() {
                    let id = self.terminating.remove(at % self.terminating.len());
                    self.kubelet.release(id);
                    self.pod_events.push_back(ToScheduler::Released(id));
                }
            }
            Op::PodEvent => self.pod_event(),
            Op::Export => self.export(),
            Op::NrtEvent => self.nrt_event(),
            Op::Timer => self.timer(),
        }
    }

    /// A running pod that is not being deleted.
    fn pick(&self, at: usize) -> Option<PodId> {
        let deleted = |id: &PodId| {
            self.terminating.contains(id)
                || self
                    .inbox
                    .iter()
                    .any(|m| matches!(m, ToKubelet::Terminate(d) | ToKubelet::Remove(d) if d == id))
        };
        let running: Vec<_> = self.kubelet.pods().filter(|id| !deleted(id)).collect();
        (!running.is_empty()).then(|| running[at % running.len()])
    }

    /// Binds a pod that fits.
    fn bind(&mut self, needs: Arc<PodNeeds>, finishes: bool, created_s: u64) {
        if self.ledger.check((&needs, created_s), &mut self.scratch).is_ok() {
            let id = self.pod(needs, finishes, created_s);
            if self.pod_events.iter().any(|event| matches!(event, ToScheduler::Bound(_))) {
                self.ledger.assumed(&self.pods[&id], &mut self.scratch);
                self.pod_events.push_back(ToScheduler::Bound(id));
            } else {
                self.ledger.bound(&self.pods[&id], &mut self.scratch);
            }
            self.own.push(id);
            self.inbox.push_back(ToKubelet::Add(id));
        }
    }

    /// The kubelet takes its next message. `leaving`: a pod that is gone before a container of the pod that it admits.
    fn kubelet(&mut self, leaving: Option<(PodId, usize)>) {
        match self.inbox.pop_front() {
            Some(ToKubelet::Add(id)) => {
                let is_admitted = self.kubelet.admit(id, &self.pods[&id].needs, leaving);
                self.pod_events.extend(leaving.map(|(id, _)| ToScheduler::Released(id)));
                if is_admitted {
                    self.pod_events.push_back(ToScheduler::Admitted(id));
                } else {
                    self.rejected.push(id);
                    self.pod_events.push_back(ToScheduler::Released(id));
                }
            }
            Some(ToKubelet::Terminate(id)) => self.terminating.push(id),
            Some(ToKubelet::Remove(id)) => {
                self.kubelet.release(id);
                self.vanished.push(id);
            }
            None => {}
        }
    }

    fn kubelet_releases(&mut self, at: usize, before: usize) {
        let Some(ToKubelet::Add(id)) = self.inbox.front() else { return self.kubelet(None) };
        let last = self.pods[id].needs.containers.len() - 1;
        if self.terminating.is_empty() || last == 0 {
            return self.kubelet(None);
        }
        let leaving = self.terminating.remove(at % self.terminating.len());
        self.kubelet(Some((leaving, before.min(last))));
    }

    /// The kubelet takes the next messages as one list: removals, additions by age, then the others.
    ///
    /// A list in which a removal overtakes pods of several containers, bound before it, is beyond the ledger: nothing
    /// had announced the removal, and each order of the pods would have to be tried without each other pod.
    fn relist(&mut self, messages: usize, backwards: bool) {
        let first = self.inbox.iter().take(messages);
        let has_removal = first.clone().any(|message| matches!(message, ToKubelet::Remove(_)));
        let is_composed = |message: &ToKubelet| match message {
            ToKubelet::Add(id) => self.pods[id].needs.containers.len() > 1,
            _ => false,
        };
        let messages = if has_removal && first.clone().any(is_composed) { 1 } else { messages };
        let mut list: Vec<ToKubelet> = self.inbox.drain(..messages.min(self.inbox.len())).collect();
        if backwards {
            list.reverse();
        }
        list.sort_by_key(|message| match message {
            ToKubelet::Remove(_) => (0, 0),
            ToKubelet::Add(id) => (1, self.pods[id].created_s),
            ToKubelet::Terminate(_) => (2, 0),
        });
        for message in list.into_iter().rev() {
            self.inbox.push_front(message);
        }
        for _ in 0..messages {
            self.kubelet(None);
        }
    }

    /// A deletion reaches the ledger when it is requested, since scheduler and kubelet watch the same object. (A
    /// binding in between, to a node where pods differ in the resource they are short of, is beyond the ledger.)
    fn delete(&mut self, id: PodId, message: ToKubelet) {
        self.pod_events.push_back(ToScheduler::Leaving(id));
        while !self.pod_events.is_empty() {
            self.pod_event();
        }
        self.inbox.push_back(message);
    }

    fn pod_event(&mut self) {
        let ledger = &mut self.ledger;
        match self.pod_events.pop_front() {
            Some(ToScheduler::Bound(id)) => ledger.bound(&self.pods[&id], &mut self.scratch),
            Some(ToScheduler::Admitted(id)) => ledger.admitted(id, &mut self.scratch),
            Some(ToScheduler::Leaving(id)) => ledger.leaving(id, &mut self.scratch),
            Some(ToScheduler::Released(id)) => ledger.released(id, &mut self.scratch),
            None => {}
        }
    }

    fn binding_failed(&mut self) {
        if let Some(id) = self.failed.pop_front() {
            self.ledger.forget(id, &mut self.scratch);
        }
    }

    fn export(&mut self) {
        let mut hashes: Vec<_> = self.kubelet.pods().map(|id| self.pods[&id].hash).collect();
        let fingerprint = self.fingerprints.then(|| Fingerprint::of(&mut hashes));
        self.reports.push_back(Arc::new(topology(self.scope, Some(&self.kubelet.visible()), fingerprint)));
    }

    fn nrt_event(&mut self) {
        if let Some(report) = self.reports.pop_front() {
            self.ledger.report(report, &mut self.scratch);
        }
    }

    fn timer(&mut self) {
        if self.pod_events.is_empty() {
            for id in std::mem::take(&mut self.vanished) {
                self.ledger.released(id, &mut self.scratch);
            }
        }
    }

    /// The naive recount: in each world with exact locations only, free = allocatable - amounts of the rows.
    fn recount(&self) {
        let full = topology(self.scope, None, None).available();
        for world in &self.ledger.worlds {
            if world
                .locations
                .iter()
                .any(|location| !matches!(location, Location::Charged { exact: true, .. }))
            {
                continue;
            }
            let mut free = Amounts::Counts(full.clone());
            for (row, location) in self.ledger.rows.iter().zip(&world.locations) {
                if row.stage != Stage::Released {
                    charge(&mut free, location);
                }
            }
            assert_eq!(free, world.amounts);
        }
        let mut ids: Vec<_> = self.ledger.rows.iter().map(|row| row.id).collect();
        ids.dedup();
        assert_eq!(ids.len(), self.ledger.rows.len(), "a pod is in the ledger once");
    }

    /// Whether the ledger knows what the kubelet has once all has arrived. Reports do not show what init containers
    /// keep: beside such pods, one of the worlds has at most that.
    fn is_known(&self) -> bool {
        let free = self.kubelet.free();
        let has_init = self.kubelet.pods().any(|id| {
            self.pods[&id].needs.containers.iter().any(|container| container.kind == ContainerKind::Init)
        });
        if !has_init {
            let worlds = &self.ledger.worlds;
            return !worlds.is_empty() && worlds.iter().all(|world| *world.amounts.free() == free);
        }
        self.ledger.worlds.iter().any(|world| {
            let less = self.ledger.without_kept(world, &world.amounts, &[]);
            let least = less.first().unwrap_or(&world.amounts).free();
            free.cells().iter().zip(least.cells()).all(|(free, least)| free >= least)
        })
    }

    /// Lets everything arrive.
    fn drain(&mut self) {
        while !self.failed.is_empty() {
            self.binding_failed();
        }
        while !(self.inbox.is_empty() && self.terminating.is_empty() && self.pod_events.is_empty()) {
            self.kubelet(None);
            self.apply(&Op::Release(0));
            self.pod_event();
        }
        self.timer();
        self.export();
        while !self.reports.is_empty() {
            self.nrt_event();
        }
    }
}

fn op() -> BoxedStrategy<Op> {
    let own = (1..=8_i64, 1..=4_i64, 1..=2_usize, any::<bool>(), 0..4_u64).prop_map(
        |(cpu, memory, containers, finishes, created_s)| Op::Bind {
            cpu,
            memory,
            containers,
            finishes,
            created_s,
        },
    );
    let relist = (2..6_usize, any::<bool>());
    let failing = (1..=8_i64, 1..=4_i64).prop_map(|(cpu, memory)| Op::FailBinding { cpu, memory });
    let with_init = (1..=8_i64, 1..=8_i64, 1..=4_i64, 0..4_u64)
        .prop_map(|(init_cpu, cpu, memory, created_s)| Op::BindInit { init_cpu, cpu, memory, created_s });
    let releases = (0..8_usize, 1..3_usize).prop_map(|(at, before)| Op::KubeletReleases { at, before });
    prop_oneof![
        2 => failing,
        6 => with_init,
        8 => releases,
        2 => Just(Op::BindingFailed),
        8 => own,
        8 => Just(Op::Kubelet),
        4 => relist.prop_map(|(messages, backwards)| Op::Relist { messages, backwards }),
        3 => (0..8_usize).prop_map(Op::Delete),
        2 => (0..8_usize).prop_map(Op::ForceDelete),
        3 => (0..8_usize).prop_map(Op::Finish),
        4 => (0..8_usize).prop_map(Op::Release),
        10 => Just(Op::PodEvent),
        5 => Just(Op::Export),
        5 => Just(Op::NrtEvent),
        1 => Just(Op::Timer),
    ]
    .boxed()
}

fn op_or_foreign() -> impl Strategy<Value = Op> {
    let foreign = (1..=8_i64, 1..=4_i64).prop_map(|(cpu, memory)| Op::BindForeign { cpu, memory });
    prop_oneof![8 => op(), 1 => foreign]
}

fn scope() -> impl Strategy<Value = Scope> {
    prop_oneof![Just(Scope::Container), Just(Scope::Pod)]
}

/// Pods that leave at once leave the ledger as they do one after the other.
fn leave_at_once(ledger: &Ledger) -> Result<(), TestCaseError> {
    let mut scratch = Scratch::default();
    let live = ledger.rows.iter().filter(|row| row.stage != Stage::Released);
    let some: Vec<PodId> = live.map(|row| row.id).step_by(2).collect();
    let mut one_by_one = ledger.clone();
    some.iter().for_each(|id| one_by_one.released(*id, &mut scratch));
    prop_assert_eq!(ledger.without(some, &mut scratch).worlds, one_by_one.worlds);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    /// As the only scheduler: whatever fits in the ledger is admitted by the kubelet, in any interleaving. As long as
    /// the kubelet sees pods in the order of their binding, no report contradicts what was booked.
    #[test]
    fn what_fits_is_admitted(scope in scope(), ops in prop::collection::vec(op(), 1..120)) {
        let mut rig = Rig::new(scope, true);
        let mut is_in_order = true;
        for op in &ops {
            rig.apply(op);
            rig.recount();
            prop_assert!(rig.rejected.is_empty(), "TopologyAffinityError after {op:?}: {:#?}", rig.ledger);
            // Pods alike are not told apart until one of them leaves, so their order is not followed. Those bound after
            // one that fails are booked where they are if that comes.
            is_in_order &= !matches!(op, Op::Relist { backwards: true, .. } | Op::FailBinding { .. });
            prop_assert!(rig.ledger.take_drift().is_none() || !is_in_order, "{op:?}: {:#?}", rig.ledger);
            prop_assert!(rig.ledger.torn.is_none() || !is_in_order, "{op:?}: {:#?}", rig.ledger);
        }
        leave_at_once(&rig.ledger)?;
        rig.drain();
        leave_at_once(&rig.ledger)?;
        prop_assert!(rig.rejected.is_empty());
        prop_assert!(!rig.ledger.worlds.is_empty());
        prop_assert!(rig.is_known(), "{:#?} {:#?}", rig.kubelet, rig.ledger);
    }

    /// Exporters without fingerprints are understood by their numbers.
    #[test]
    fn reports_without_fingerprint_are_matched_by_value(ops in prop::collection::vec(op(), 1..80)) {
        let mut rig = Rig::new(Scope::Container, false);
        for op in &ops {
            rig.apply(op);
            prop_assert!(rig.rejected.is_empty(), "TopologyAffinityError after {op:?}: {:#?}", rig.ledger);
        }
        rig.drain();
        prop_assert!(rig.rejected.is_empty());
        if !rig.ledger.summary().unexplained {
            prop_assert!(rig.is_known(), "{:#?} {:#?}", rig.kubelet, rig.ledger);
        }
    }
}

proptest! {
    // Pods that do not fit are in doubt and make many worlds, so a case takes a hundred times as long.
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// With another, blind scheduler on the node: nothing is counted twice or forgotten once everything has arrived.
    #[test]
    fn foreign_pods_are_settled_by_the_next_report(
        scope in scope(),
        ops in prop::collection::vec(op_or_foreign(), 1..120),
    ) {
        let mut rig = Rig::new(scope, true);
        for op in &ops {
            rig.apply(op);
            rig.recount();
        }
        rig.drain();
        prop_assert_eq!(rig.ledger.summary().unexplained, false);
        prop_assert!(rig.is_known(), "{:#?} {:#?}", rig.kubelet, rig.ledger);
    }
}
