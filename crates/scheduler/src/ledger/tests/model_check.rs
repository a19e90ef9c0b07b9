//! All interleavings of a small cluster: nodes, pods, two schedulers and a restart, each queue as slow as it can be.
//!
//! The kubelets, the API server's log, the watches and the exporters are the specification, as a state machine; the
//! ledgers are the production code. stateright visits every state that can be reached, and holds each against the
//! invariants. Two states are one if the specification and the possible worlds of all ledgers are equal.
//!
//! `cargo test -p scheduler --lib -- --nocapture model_check` prints states and invariants. `--ignored` checks two
//! nodes and three pods, of which there are too many states to visit all: as many as `MODEL_STATES` says, deep ones
//! first.

use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, MutexGuard};

use stateright::{Checker, Expectation, Model, Property};

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
    Bound(usize, usize),
    Admitted(usize),
    Leaving(usize),
    /// Ended or rejected.
    Released(usize),
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
    /// The watch of a scheduler brings the next entry.
    Watch(usize),
    /// The watch of a scheduler brings the newest report of a node.
    Report(usize, usize),
    /// The first scheduler starts again.
    Restart,
}

/// A kubelet with its exporter.
#[derive(Clone, Debug, PartialEq)]
struct Kubelet {
    free: Free,
    /// The entry of the log that it sees next.
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
    /// The entry of the log that its watch brings next.
    next: usize,
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
        Self { ledgers, next: self.next, reports: self.reports.clone() }
    }
}

#[derive(Clone, Debug)]
struct State {
    log: Vec<Entry>,
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
    /// All that decides about the future, as text.
    fn digest(&self) -> String {
        let mut text = format!("{:?} {:?} {:?} {:?}", self.log, self.stages, self.nodes, self.raced);
        let _ = write!(text, " {:?} {} {}", self.placements, self.is_deleted, self.has_restarted);
        for Kubelet { free, next, outbox, reported, .. } in &self.kubelets {
            let _ = write!(text, " K {:?} {next} {outbox:?} {reported:?}", free.cells());
        }
        for scheduler in &self.schedulers {
            let _ = write!(text, " S {} {:?}", scheduler.next, scheduler.reports);
            for ledger in scheduler.ledgers().iter() {
                let _ = write!(text, " {} {}", ledger.unexplained.is_some(), ledger.search_pause);
                for row in &ledger.rows {
                    let _ = write!(text, " {}{:?}{}{}", row.id.0, row.stage, row.described, row.missed);
                }
                let worlds =
                    ledger.worlds.iter().map(|world| (world.amounts.free().cells(), &world.locations));
                let mut worlds: Vec<String> = worlds.map(|world| format!("{world:?}")).collect();
                worlds.sort();
                let _ = write!(text, " {worlds:?}");
            }
        }
        text
    }

    /// Tells a ledger of an entry.
    fn tell(ledgers: &mut [Ledger], nodes: &[Option<usize>], entry: Entry) {
        let scratch = &mut Scratch::default();
        let (Entry::Bound(pod, _) | Entry::Admitted(pod) | Entry::Leaving(pod) | Entry::Released(pod)) =
            entry;
        let Some(ledger) = nodes[pod].map(|node| &mut ledgers[node]) else { return };
        let id = PodId(pod as u64);
        match entry {
            Entry::Bound(..) => ledger.bound(&bound_pod(pod), scratch),
            Entry::Admitted(_) => ledger.admitted(id, scratch),
            Entry::Leaving(_) => ledger.leaving(id, scratch),
            Entry::Released(_) => ledger.released(id, scratch),
        }
    }

    /// Whether everything is known everywhere.
    fn is_quiet(&self) -> bool {
        let kubelets = self.kubelets.iter().enumerate().all(|(node, kubelet)| {
            let next = self.log[kubelet.next..].iter().any(|entry| self.concerns(*entry, node));
            !next && kubelet.outbox.is_empty() && kubelet.reported.as_ref() == Some(&self.running(node))
        });
        let seen = |scheduler: &Scheduler| {
            let reports = scheduler.reports.iter().zip(&self.kubelets);
            scheduler.next == self.log.len()
                && reports.clone().all(|(known, kubelet)| *known == kubelet.reported)
        };
        kubelets && self.schedulers.iter().all(seen)
    }

    fn concerns(&self, entry: Entry, node: usize) -> bool {
        match entry {
            Entry::Bound(_, to) => to == node,
            Entry::Leaving(pod) => self.nodes[pod] == Some(node),
            Entry::Admitted(_) | Entry::Released(_) => false,
        }
    }

    /// Whether the kubelet of the deleted pod has seen its deletion.
    fn has_seen_deletion(&self) -> bool {
        let at = self.log.iter().position(|entry| matches!(entry, Entry::Leaving(_)));
        let node = self.nodes[DELETED];
        at.zip(node).is_some_and(|(at, node)| self.kubelets[node].next > at)
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
                state.log.push(Entry::Admitted(pod));
            }
            Err(_) => {
                state.stages[pod] = Stage::Rejected;
                state.log.push(Entry::Released(pod));
            }
        }
    }

    /// A scheduler that starts now: its watches bring pods as they are, then the newest reports.
    fn started(state: &State) -> Scheduler {
        let mut ledgers = vec![Ledger::default(); state.kubelets.len()];
        let ended = |pod: &usize| state.log.contains(&Entry::Released(*pod));
        let bound = state.log.iter().filter_map(|entry| match entry {
            Entry::Bound(pod, _) => Some(*pod),
            _ => None,
        });
        for pod in bound.filter(|pod| !ended(pod)) {
            let of_pod = |entry: &&Entry| {
                let (Entry::Bound(of, _) | Entry::Admitted(of) | Entry::Leaving(of) | Entry::Released(of)) =
                    **entry;
                of == pod
            };
            state.log.iter().filter(of_pod).for_each(|entry| State::tell(&mut ledgers, &state.nodes, *entry));
        }
        for (ledger, kubelet) in ledgers.iter_mut().zip(&state.kubelets) {
            if let Some(report) = &kubelet.report {
                ledger.report(Arc::clone(report), &mut Scratch::default());
            }
        }
        let reports = state.kubelets.iter().map(|kubelet| kubelet.reported.clone()).collect();
        Scheduler { ledgers: Mutex::new(ledgers), next: state.log.len(), reports }
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
            log: Vec::new(),
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
            state.log.push(Entry::Bound(pod, 0));
            Self::admit(&mut state, pod, 0);
            let next = state.log.len();
            state.kubelets.iter_mut().for_each(|kubelet| kubelet.next = next);
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
            if state.log[kubelet.next..].iter().any(|entry| state.concerns(*entry, node)) {
                steps.push(Step::Kubelet(node));
            }
            if !kubelet.outbox.is_empty() {
                steps.push(Step::Publish(node));
            }
            if kubelet.reported.as_ref() != Some(&state.running(node)) {
                steps.push(Step::Export(node));
            }
        }
        // As in the random tests: not before all schedulers know that it runs.
        let all_know = state.schedulers.iter().all(|scheduler| scheduler.next == state.log.len());
        let is_published = |pod| state.log.contains(&Entry::Admitted(pod));
        if state.stages[FINISHES] == Stage::Runs && is_published(FINISHES) && all_know {
            steps.push(Step::Finish);
        }
        if state.stages[DELETED] == Stage::Runs {
            match state.is_deleted {
                false if is_published(DELETED) && all_know => steps.push(Step::Delete),
                true if state.has_seen_deletion() => steps.push(Step::Release),
                _ => {}
            }
        }
        for (at, scheduler) in state.schedulers.iter().enumerate() {
            if scheduler.next < state.log.len() {
                steps.push(Step::Watch(at));
            }
            let news = |node: &usize| scheduler.reports[*node] != state.kubelets[*node].reported;
            steps.extend((0..self.nodes).filter(news).map(|node| Step::Report(at, node)));
        }
        if !state.has_restarted && !state.log.is_empty() {
            steps.push(Step::Restart);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Bind(pod, node) => {
                let owner = OWNERS[pod];
                let unseen = &state.log[state.schedulers[owner].next..];
                let others = unseen.iter().filter_map(|entry| match entry {
                    Entry::Bound(other, to) if *to == node => Some(OWNERS[*other]),
                    _ => None,
                });
                state.raced[pod] = others.into_iter().any(|other| other != owner);
                state.nodes[pod] = Some(node);
                let ledgers = state.schedulers[owner].ledgers_mut();
                State::tell(ledgers, &state.nodes, Entry::Bound(pod, node));
                state.log.push(Entry::Bound(pod, node));
            }
            Step::Kubelet(node) => {
                let next = state.log[state.kubelets[node].next..].iter();
                let of_others = next.take_while(|entry| !state.concerns(**entry, node)).count();
                let at = state.kubelets[node].next + of_others;
                state.kubelets[node].next = at + 1;
                let entry = *state.log.get(at)?;
                match entry {
                    Entry::Bound(pod, to) if to == node => Self::admit(&mut state, pod, node),
                    _ => {}
                }
            }
            Step::Publish(node) => {
                let entry = state.kubelets[node].outbox.remove(0);
                state.log.push(entry);
            }
            Step::Finish => state.release(FINISHES, state.nodes[FINISHES]?),
            Step::Delete => {
                state.is_deleted = true;
                state.log.push(Entry::Leaving(DELETED));
                // Schedulers and kubelet watch the same object.
                for scheduler in &mut state.schedulers {
                    State::tell(scheduler.ledgers_mut(), &state.nodes, Entry::Leaving(DELETED));
                    scheduler.next = state.log.len();
                }
            }
            Step::Release => state.release(DELETED, state.nodes[DELETED]?),
            Step::Export(node) => Self::export(&mut state, node),
            Step::Watch(at) => {
                let entry = state.log[state.schedulers[at].next];
                state.schedulers[at].next += 1;
                State::tell(state.schedulers[at].ledgers_mut(), &state.nodes, entry);
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
                state.has_restarted && state.stages.contains(&Stage::Unknown) && !state.log.is_empty()
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
fn check(cluster: fn() -> Cluster, limit: Option<usize>) {
    let checker = cluster().checker().threads(2);
    let checker = match limit {
        None => checker.spawn_dfs().join(),
        Some(limit) => checker.target_state_count(limit).spawn_dfs().join(),
    };
    let Cluster { nodes, has_resident } = cluster();
    let properties = cluster().properties();
    let always = properties.iter().filter(|it| it.expectation == Expectation::Always).count();
    let waiting = PODS.len() - usize::from(has_resident);
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
}

#[test]
fn one_node_with_a_resident() {
    check(|| Cluster { nodes: 1, has_resident: true }, None);
}

#[test]
#[ignore = "`cargo xtask nightly ledger-states` runs it"]
fn two_nodes_and_three_pods() {
    let states = std::env::var("MODEL_STATES").ok().and_then(|text| text.parse().ok());
    check(|| Cluster { nodes: 2, has_resident: false }, Some(states.unwrap_or(1_000_000)));
}
