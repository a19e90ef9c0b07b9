//! All interleavings of a small cluster: nodes, pods, two schedulers and a restart, each queue as slow as it can be.
//!
//! The kubelets, the API server's log, the watches and the exporters are the specification, as a state machine; the
//! ledgers are the production code. stateright visits every state that can be reached, and holds each against the
//! invariants. A watch brings what concerns different nodes in any order, which is more than an API server does. Two
//! states are one if they differ in nothing but their pasts, or in which node is which.
//!
//! Nothing that happens on one node changes another, each step takes place on one node or is a restart, and
//! invariants speak of one node. So each node of any cluster is in a state of one node alone to which each pod may come
//! or not, and these are all there is to check. `--ignored` visits them, and then states of two nodes, each of which
//! must be in one of them: all, or as many steps as `MODEL_STATES` says.
//!
//! `cargo test -p scheduler --lib -- --nocapture model_check` prints states and invariants.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard};

use stateright::{Checker, Expectation, Model, Property};
use topology::admit::{self, Placement};

use super::*;

/// CPUs of the pods; one node has room for any two of them, in zones of its own.
const PODS: [i64; 3] = [5, 4, 5];
/// The scheduler of each pod.
const OWNERS: [usize; 3] = [0, 1, 0];
/// The pod that ends by itself.
const FINISHES: usize = 0;
/// The pod that is deleted.
const DELETED: usize = 1;
const SCHEDULERS: usize = 2;

/// What the API server tells of a pod, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Entry {
    Bound(usize),
    Admitted(usize),
    Leaving(usize),
    /// Ended or rejected.
    Released(usize),
}

impl Entry {
    fn pod(self) -> usize {
        let (Self::Bound(pod) | Self::Admitted(pod) | Self::Leaving(pod) | Self::Released(pod)) = self;
        pod
    }
}

/// Whether a kubelet does something about an entry.
fn is_for_kubelet(entry: &Entry) -> bool {
    matches!(entry, Entry::Bound(_) | Entry::Leaving(_))
}

/// A pod in its kubelet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Stage {
    #[default]
    Unknown,
    Runs,
    Gone,
    Rejected,
}

/// A step of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// A scheduler binds a pod of its own, if its ledger lets it.
    Bind(usize, usize),
    /// The kubelet sees the next entry of the log.
    Kubelet(usize),
    /// The kubelet writes what it has decided.
    Publish(usize),
    Finish,
    Delete,
    /// The kubelet of the node releases the deleted pod.
    Release,
    Export(usize),
    /// The watch of a scheduler brings the next entry about a node.
    Watch(usize, usize),
    /// The watch of a scheduler brings the newest report of a node.
    Report(usize, usize),
    /// The first scheduler starts again.
    Restart,
}

/// A kubelet with its exporter.
#[derive(Clone, Debug, PartialEq)]
struct Kubelet {
    free: Free,
    /// The entry of the node's log that it sees next.
    next: usize,
    /// What it has not written yet.
    outbox: Vec<Entry>,
    /// Pods that run, in the newest report.
    reported: Option<Vec<usize>>,
    report: Option<Arc<NodeTopology>>,
}

/// A scheduler.
#[derive(Debug)]
struct Scheduler {
    /// Locked, since several threads look at states; none waits for another.
    ledgers: Mutex<Vec<Ledger>>,
    /// The entry of each node's log that its watch brings next.
    next: Vec<usize>,
    /// The reports that it knows, by the pods in them.
    reports: Vec<Option<Vec<usize>>>,
}

impl Scheduler {
    fn ledgers(&self) -> MutexGuard<'_, Vec<Ledger>> {
        self.ledgers.lock().unwrap()
    }

    fn ledgers_mut(&mut self) -> &mut Vec<Ledger> {
        self.ledgers.get_mut().unwrap()
    }
}

impl Clone for Scheduler {
    fn clone(&self) -> Self {
        let ledgers = Mutex::new(self.ledgers().clone());
        Self { ledgers, next: self.next.clone(), reports: self.reports.clone() }
    }
}

#[derive(Clone, Debug)]
struct State {
    /// What the API server tells, by node.
    logs: Vec<Vec<Entry>>,
    kubelets: Vec<Kubelet>,
    schedulers: Vec<Scheduler>,
    stages: Vec<Stage>,
    placements: Vec<Option<Placement>>,
    nodes: Vec<Option<usize>>,
    /// Pods that were bound while another scheduler's binding to the same node was under way.
    raced: Vec<bool>,
    is_deleted: bool,
    has_restarted: bool,
}

/// The cluster.
struct Cluster {
    nodes: usize,
    /// Whether the last pod runs from the beginning on the first node, and all know it.
    has_resident: bool,
    node_states: NodeStates,
}

/// States of one node, by [`State::node_key`].
enum NodeStates {
    /// Of no interest.
    Ignored,
    /// Those visited so far.
    Visited(Mutex<HashSet<u64>>),
    /// Those of which a cluster consists.
    Known(HashSet<u64>),
}

impl NodeStates {
    /// Whether a node may be in this state. While they are visited it may, and the state is one of them.
    fn allow(&self, key: u64) -> bool {
        match self {
            Self::Ignored => true,
            Self::Visited(states) => {
                states.lock().unwrap().insert(key);
                true
            }
            Self::Known(states) => states.contains(&key),
        }
    }
}

fn bound_pod(pod: usize) -> BoundPod {
    let name = format!("p{pod}");
    BoundPod {
        id: PodId(pod as u64),
        names: PodNames::default(),
        hash: PodHash::of("ns", &name),
        needs: needs(PODS[pod], 1, 1),
        finishes: pod == FINISHES,
        created_s: pod as u64,
    }
}

impl State {
    /// All that decides about the future, as text. Of logs that is what is still to be seen, and what a scheduler that
    /// starts again finds.
    fn digest(&self) -> String {
        let mut nodes: Vec<String> = (0..self.kubelets.len()).map(|node| self.digest_of(node)).collect();
        nodes.sort_unstable();
        format!("{} {} {nodes:?}", self.is_deleted, self.has_restarted)
    }

    /// The state of one node by itself, in short.
    fn node_key(&self, node: usize) -> u64 {
        let is_deleted = self.is_deleted && self.nodes[DELETED] == Some(node);
        let mut hasher = DefaultHasher::new();
        (self.digest_of(node), is_deleted, self.has_restarted).hash(&mut hasher);
        hasher.finish()
    }

    fn digest_of(&self, node: usize) -> String {
        let cells = |report: &Option<Arc<NodeTopology>>| {
            report.as_ref().map(|report| report.available().cells().to_vec())
        };
        let log = &self.logs[node];
        let mut text = String::new();
        for pod in (0..self.nodes.len()).filter(|pod| self.nodes[*pod] == Some(node)) {
            let _ =
                write!(text, "{pod} {:?} {} {:?}", self.stages[pod], self.raced[pod], self.placements[pod]);
        }
        if !self.has_restarted {
            let _ = write!(text, " L {:?}", self.found(node).collect::<Vec<_>>());
        }
        let Kubelet { free, next, outbox, reported, report } = &self.kubelets[node];
        let unseen: Vec<_> = log[*next..].iter().filter(|entry| is_for_kubelet(entry)).collect();
        let _ = write!(text, " K {:?} {unseen:?} {outbox:?} {reported:?} {:?}", free.cells(), cells(report));
        for scheduler in &self.schedulers {
            let ledger = &scheduler.ledgers()[node];
            let _ = write!(text, " S {:?} {:?}", &log[scheduler.next[node]..], scheduler.reports[node]);
            let _ = write!(text, " {:?} {}", cells(&ledger.unexplained), ledger.search_pause);
            let _ = write!(text, " {}", ledger.counts_unknown_pods);
            for row in &ledger.rows {
                let alike =
                    row.alike.and_then(|_| ledger.rows.iter().position(|other| other.alike == row.alike));
                let later = ledger.rows.iter().filter(|other| other.released_at > row.released_at).count();
                let _ = write!(text, " {}{:?}{}{}{later}", row.id.0, row.stage, row.described, row.missed);
                let shown_earlier = |other: &&Row| other.is_unseen() && other.shown_at < row.shown_at;
                let order = row.is_unseen().then(|| ledger.rows.iter().filter(shown_earlier).count());
                let _ = write!(text, "{alike:?}{order:?}{}", order.is_some() && row.shown_at == u64::MAX);
                let _ = write!(text, "{}", ledger.unexplained.is_some() && row.may_follow_report);
            }
            let worlds = ledger.worlds.iter().map(|world| (world.amounts.free().cells(), &world.locations));
            let mut worlds: Vec<String> = worlds.map(|world| format!("{world:?}")).collect();
            worlds.sort_unstable();
            let _ = write!(text, " {worlds:?}");
        }
        text
    }

    /// The pods that a scheduler finds on a node when it starts, in the order of their bindings.
    fn found(&self, node: usize) -> impl Iterator<Item = usize> {
        let log = &self.logs[node];
        let bound = log.iter().filter_map(|entry| match entry {
            Entry::Bound(pod) => Some(*pod),
            _ => None,
        });
        bound.filter(|pod| !log.contains(&Entry::Released(*pod)))
    }

    /// Tells a ledger of an entry.
    fn tell(ledger: &mut Ledger, entry: Entry) {
        let scratch = &mut Scratch::default();
        let pod = entry.pod();
        let id = PodId(pod as u64);
        match entry {
            Entry::Bound(_) => ledger.bound(&bound_pod(pod), scratch),
            Entry::Admitted(_) => ledger.admitted(id, scratch),
            Entry::Leaving(_) => ledger.leaving(id, scratch),
            Entry::Released(_) => ledger.released(id, scratch),
        }
    }

    /// Whether everything is known everywhere.
    fn is_quiet(&self) -> bool {
        let kubelets = self.kubelets.iter().enumerate().all(|(node, kubelet)| {
            let next = self.logs[node][kubelet.next..].iter().any(is_for_kubelet);
            !next && kubelet.outbox.is_empty() && kubelet.reported.as_ref() == Some(&self.running(node))
        });
        let seen = |scheduler: &Scheduler| {
            let reports = scheduler.reports.iter().zip(&self.kubelets);
            self.is_known_to(scheduler) && reports.clone().all(|(known, kubelet)| *known == kubelet.reported)
        };
        kubelets && self.schedulers.iter().all(seen)
    }

    /// Whether the watch of a scheduler has brought everything.
    fn is_known_to(&self, scheduler: &Scheduler) -> bool {
        scheduler.next.iter().zip(&self.logs).all(|(next, log)| *next == log.len())
    }

    /// Whether the kubelet of the deleted pod has seen its deletion.
    fn has_seen_deletion(&self) -> bool {
        let Some(node) = self.nodes[DELETED] else { return false };
        let at = self.logs[node].iter().position(|entry| matches!(entry, Entry::Leaving(_)));
        at.is_some_and(|at| self.kubelets[node].next > at)
    }

    fn running(&self, node: usize) -> Vec<usize> {
        let runs = |pod: &usize| self.nodes[*pod] == Some(node) && self.stages[*pod] == Stage::Runs;
        (0..self.nodes.len()).filter(runs).collect()
    }

    fn release(&mut self, pod: usize, node: usize) {
        if let Some(placement) = self.placements[pod].take() {
            placement.release(&mut self.kubelets[node].free);
        }
        self.stages[pod] = Stage::Gone;
        self.kubelets[node].outbox.push(Entry::Released(pod));
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.digest() == other.digest()
    }
}

impl Eq for State {}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest().hash(state);
    }
}

impl Cluster {
    /// Whether the ledger of a scheduler lets a pod go to a node.
    fn lets(state: &State, scheduler: usize, pod: usize, node: usize) -> bool {
        let bound = bound_pod(pod);
        let ledgers = state.schedulers[scheduler].ledgers();
        ledgers[node].check((&bound.needs, bound.created_s), &mut Scratch::default()).is_ok()
    }

    fn would_admit(state: &State, pod: usize, node: usize) -> bool {
        let (rules, scratch) = (rules(Scope::Container), &mut admit::Scratch::default());
        admit::admit(rules, &state.kubelets[node].free, &bound_pod(pod).needs, scratch).is_ok()
    }

    fn admit(state: &mut State, pod: usize, node: usize) {
        let needs = bound_pod(pod).needs;
        let free = &mut state.kubelets[node].free;
        match admit::admit(rules(Scope::Container), free, &needs, &mut admit::Scratch::default()) {
            Ok(placement) => {
                placement.charge(free);
                state.placements[pod] = Some(placement);
                state.stages[pod] = Stage::Runs;
                state.logs[node].push(Entry::Admitted(pod));
            }
            Err(_) => {
                state.stages[pod] = Stage::Rejected;
                state.logs[node].push(Entry::Released(pod));
            }
        }
    }

    /// A scheduler that starts now: its watches bring pods as they are, then the newest reports.
    fn started(state: &State) -> Scheduler {
        let mut ledgers = vec![Ledger::default(); state.kubelets.len()];
        for (node, ledger) in ledgers.iter_mut().enumerate() {
            for pod in state.found(node) {
                let of_pod = state.logs[node].iter().filter(|entry| entry.pod() == pod);
                of_pod.for_each(|entry| State::tell(ledger, *entry));
            }
        }
        for (ledger, kubelet) in ledgers.iter_mut().zip(&state.kubelets) {
            if let Some(report) = &kubelet.report {
                ledger.report(Arc::clone(report), &mut Scratch::default());
            }
        }
        let reports = state.kubelets.iter().map(|kubelet| kubelet.reported.clone()).collect();
        Scheduler { ledgers: Mutex::new(ledgers), next: state.logs.iter().map(Vec::len).collect(), reports }
    }

    fn export(state: &mut State, node: usize) {
        let running = state.running(node);
        let mut hashes: Vec<PodHash> = running.iter().map(|pod| bound_pod(*pod).hash).collect();
        let kubelet = &mut state.kubelets[node];
        let fingerprint = Some(Fingerprint::of(&mut hashes));
        kubelet.report = Some(Arc::new(topology(Scope::Container, Some(&kubelet.free), fingerprint)));
        kubelet.reported = Some(running);
    }
}

impl Model for Cluster {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let free = topology(Scope::Container, None, None).available();
        let kubelet = Kubelet { free, next: 0, outbox: Vec::new(), reported: None, report: None };
        let mut state = State {
            logs: vec![Vec::new(); self.nodes],
            kubelets: vec![kubelet; self.nodes],
            schedulers: Vec::new(),
            stages: vec![Stage::Unknown; PODS.len()],
            placements: vec![None; PODS.len()],
            nodes: vec![None; PODS.len()],
            raced: vec![false; PODS.len()],
            is_deleted: false,
            has_restarted: false,
        };
        if self.has_resident {
            let pod = PODS.len() - 1;
            state.nodes[pod] = Some(0);
            state.logs[0].push(Entry::Bound(pod));
            Self::admit(&mut state, pod, 0);
            state.kubelets[0].next = state.logs[0].len();
        }
        (0..self.nodes).for_each(|node| Self::export(&mut state, node));
        state.schedulers = vec![Self::started(&state); SCHEDULERS];
        vec![state]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for pod in (0..PODS.len()).filter(|pod| state.nodes[*pod].is_none()) {
            let lets = |node: &usize| Self::lets(state, OWNERS[pod], pod, *node);
            steps.extend((0..self.nodes).filter(lets).map(|node| Step::Bind(pod, node)));
        }
        for (node, kubelet) in state.kubelets.iter().enumerate() {
            if state.logs[node][kubelet.next..].iter().any(is_for_kubelet) {
                steps.push(Step::Kubelet(node));
            }
            if !kubelet.outbox.is_empty() {
                steps.push(Step::Publish(node));
            }
            if kubelet.reported.as_ref() != Some(&state.running(node)) {
                steps.push(Step::Export(node));
            }
        }
        if state.stages[FINISHES] == Stage::Runs {
            steps.push(Step::Finish);
        }
        // Not before all schedulers know that it runs.
        let all_know = state.schedulers.iter().all(|scheduler| state.is_known_to(scheduler));
        if state.stages[DELETED] == Stage::Runs {
            match state.is_deleted {
                false if all_know => steps.push(Step::Delete),
                true if state.has_seen_deletion() => steps.push(Step::Release),
                _ => {}
            }
        }
        for (at, scheduler) in state.schedulers.iter().enumerate() {
            let has_next = |node: &usize| scheduler.next[*node] < state.logs[*node].len();
            steps.extend((0..self.nodes).filter(has_next).map(|node| Step::Watch(at, node)));
            let news = |node: &usize| scheduler.reports[*node] != state.kubelets[*node].reported;
            steps.extend((0..self.nodes).filter(news).map(|node| Step::Report(at, node)));
        }
        if !state.has_restarted {
            steps.push(Step::Restart);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Bind(pod, node) => {
                let owner = OWNERS[pod];
                let unseen = &state.logs[node][state.schedulers[owner].next[node]..];
                let is_of_other =
                    |entry: &Entry| matches!(entry, Entry::Bound(other) if OWNERS[*other] != owner);
                state.raced[pod] = unseen.iter().any(is_of_other);
                state.nodes[pod] = Some(node);
                let ledger = &mut state.schedulers[owner].ledgers_mut()[node];
                ledger.assumed(&bound_pod(pod), &mut Scratch::default());
                state.logs[node].push(Entry::Bound(pod));
            }
            Step::Kubelet(node) => {
                let next = state.logs[node][state.kubelets[node].next..].iter();
                let of_others = next.take_while(|entry| !is_for_kubelet(entry)).count();
                let at = state.kubelets[node].next + of_others;
                state.kubelets[node].next = at + 1;
                if let Entry::Bound(pod) = *state.logs[node].get(at)? {
                    Self::admit(&mut state, pod, node);
                }
            }
            Step::Publish(node) => {
                let entry = state.kubelets[node].outbox.remove(0);
                state.logs[node].push(entry);
            }
            Step::Finish => state.release(FINISHES, state.nodes[FINISHES]?),
            Step::Delete => {
                state.is_deleted = true;
                let node = state.nodes[DELETED]?;
                state.logs[node].push(Entry::Leaving(DELETED));
                // Schedulers and kubelet watch the same object.
                for scheduler in &mut state.schedulers {
                    State::tell(&mut scheduler.ledgers_mut()[node], Entry::Leaving(DELETED));
                    scheduler.next[node] = state.logs[node].len();
                }
            }
            Step::Release => state.release(DELETED, state.nodes[DELETED]?),
            Step::Export(node) => Self::export(&mut state, node),
            Step::Watch(at, node) => {
                let scheduler = &mut state.schedulers[at];
                let entry = state.logs[node][scheduler.next[node]];
                scheduler.next[node] += 1;
                State::tell(&mut scheduler.ledgers_mut()[node], entry);
            }
            Step::Report(at, node) => {
                let kubelet = &state.kubelets[node];
                if let Some(report) = &kubelet.report {
                    let ledgers = state.schedulers[at].ledgers_mut();
                    ledgers[node].report(Arc::clone(report), &mut Scratch::default());
                }
                state.schedulers[at].reports[node].clone_from(&state.kubelets[node].reported);
            }
            Step::Restart => {
                state.has_restarted = true;
                state.schedulers[0] = Self::started(&state);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no pod is lost but in a race of two schedulers", |_, state: &State| {
                (0..state.nodes.len()).all(|pod| state.stages[pod] != Stage::Rejected || state.raced[pod])
            }),
            Property::always("where a pod runs is one of the possible worlds", |_, state: &State| {
                state.schedulers.iter().all(|scheduler| is_true_possible(state, scheduler))
            }),
            Property::always(
                "once all is known, a pod fits where the kubelet would admit it",
                |_, state: &State| {
                    let agrees = |scheduler, pod, node| {
                        Cluster::lets(state, scheduler, pod, node) == Cluster::would_admit(state, pod, node)
                    };
                    let waiting = || (0..state.nodes.len()).filter(|pod| state.nodes[*pod].is_none());
                    let nodes = 0..state.kubelets.len();
                    !state.is_quiet()
                        || (0..SCHEDULERS)
                            .all(|at| waiting().all(|pod| nodes.clone().all(|node| agrees(at, pod, node))))
                },
            ),
            Property::always("what has left is given back once", |_, state: &State| {
                let is_empty = |node: &usize| state.running(*node).is_empty();
                let full = topology(Scope::Container, None, None).available();
                let is_whole = |scheduler: &Scheduler, node: usize| {
                    scheduler.ledgers()[node].free().is_none_or(|free| free.cells() == full.cells())
                };
                let mut empty = (0..state.kubelets.len()).filter(is_empty);
                !state.is_quiet()
                    || empty.all(|node| state.schedulers.iter().all(|scheduler| is_whole(scheduler, node)))
            }),
            Property::always("each node is as it may be alone", |cluster: &Self, state: &State| {
                (0..state.kubelets.len()).all(|node| cluster.node_states.allow(state.node_key(node)))
            }),
            Property::sometimes("a pod waits", |_, state: &State| {
                let waits = |pod: usize| {
                    let nodes = 0..state.kubelets.len();
                    state.nodes[pod].is_none()
                        && nodes.clone().all(|node| !Cluster::lets(state, OWNERS[pod], pod, node))
                };
                (0..state.nodes.len()).any(waits)
            }),
            Property::sometimes("two schedulers collide", |_, state: &State| {
                state.stages.contains(&Stage::Rejected)
            }),
            Property::sometimes("a restart finds pods on their way", |_, state: &State| {
                let is_on_its_way =
                    |pod: usize| state.nodes[pod].is_some() && state.stages[pod] == Stage::Unknown;
                state.has_restarted && (0..state.nodes.len()).any(is_on_its_way)
            }),
        ]
    }
}

/// Whether one world of each node has all pods that run, as far as the scheduler knows them, where they are.
fn is_true_possible(state: &State, scheduler: &Scheduler) -> bool {
    let is_right = |ledger: &Ledger, world: &World| {
        ledger.rows.iter().zip(&world.locations).all(|(row, location)| {
            let pod = usize::try_from(row.id.0).unwrap();
            match (&state.placements[pod], location) {
                _ if state.raced.contains(&true) || row.stage == super::Stage::Released => true,
                (Some(placement), Location::Charged { held: Held::Cells(held), exact: true }) => held
                    .grants
                    .iter()
                    .map(|grant| grant.cell)
                    .eq(placement.grants.iter().map(|grant| grant.cell)),
                _ => true,
            }
        })
    };
    let ledgers = scheduler.ledgers();
    ledgers
        .iter()
        .all(|ledger| ledger.worlds.is_empty() || ledger.worlds.iter().any(|world| is_right(ledger, world)))
}

/// Visits states, all or so many, prints their number, and fails with the steps to one that breaks an invariant.
/// Returns the visited states of one node.
fn check(cluster: Cluster, limit: Option<usize>) -> HashSet<u64> {
    let checker = cluster.checker().threads(2);
    let checker = match limit {
        None => checker.spawn_dfs().join(),
        Some(limit) => checker.target_state_count(limit).spawn_dfs().join(),
    };
    let Cluster { nodes, has_resident, node_states } = checker.model();
    let properties = checker.model().properties();
    let always = properties.iter().filter(|it| it.expectation == Expectation::Always).count();
    let waiting = PODS.len() - usize::from(*has_resident);
    println!(
        "model_check: {nodes} nodes, {waiting} pods to place, {SCHEDULERS} schedulers, a restart: {} steps to {} states, \
         {always} invariants hold",
        checker.state_count(),
        checker.unique_state_count(),
    );
    for property in &properties {
        match (&property.expectation, checker.discovery(property.name)) {
            (Expectation::Always, Some(path)) => {
                panic!("{}: {:#?}", property.name, path.into_actions())
            }
            (Expectation::Sometimes, None) if limit.is_none() => panic!("never: {}", property.name),
            _ => {}
        }
    }
    match node_states {
        NodeStates::Visited(states) => std::mem::take(&mut *states.lock().unwrap()),
        NodeStates::Ignored | NodeStates::Known(_) => HashSet::new(),
    }
}

#[test]
fn one_node_with_a_resident() {
    check(Cluster { nodes: 1, has_resident: true, node_states: NodeStates::Ignored }, None);
}

#[test]
#[ignore = "`cargo xtask nightly ledger-states` runs it"]
fn three_pods_on_one_and_two_nodes() {
    let states = std::env::var("MODEL_STATES").ok().and_then(|text| text.parse().ok());
    let node_states = NodeStates::Visited(Mutex::default());
    let alone = check(Cluster { nodes: 1, has_resident: false, node_states }, None);
    check(Cluster { nodes: 2, has_resident: false, node_states: NodeStates::Known(alone) }, states);
}
