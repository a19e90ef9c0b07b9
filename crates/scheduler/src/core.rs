//! The scheduler without the world around it: events in, decisions out.
//!
//! In: pods, nodes and reports as they change, results of bindings, and the time. Out: one [`Decision`] after the other, and
//! when to ask again. Never: I/O, a clock, randomness that is not seeded. The same value drives a cluster (`shell`) and a
//! virtual-time simulation (crate `sim`), so what is measured there is what runs here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use topology::admit::Scratch;
use topology::fingerprint::status::Status;
use topology::zone::NodeTopology;

use crate::cycle::{self, Numa, Raw, UNREPORTED_GRACE_MS};
use crate::ledger::PodId;
use crate::node::{Node, NodeView};
use crate::pod::{PodView, Spec};
use crate::queue::{Backoff, Queue};
use crate::reason::{Reason, Refusals};

mod book;

/// A scheduler name this process serves.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Pods with this `spec.schedulerName` are ours.
    pub name: Arc<str>,
    /// How zones count; `None`: they do not (a NUMA-blind scheduler).
    pub numa: Option<Numa>,
    /// `percentageOfNodesToScore`; 0: adaptive.
    pub percentage: usize,
}

/// What a [`Core`] needs to know at the start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The profiles, each with another name.
    pub profiles: Vec<Profile>,
    /// Backoff after errors.
    pub backoff: Backoff,
    /// Seeds the choice among equally good nodes.
    pub seed: u64,
}

/// Something happened.
#[derive(Debug)]
pub enum Event {
    /// A pod is new or has changed.
    Pod(PodView),
    /// A pod object is gone; its last known state.
    PodGone(PodView),
    /// A pod object is gone, and its last state was not seen: the watch was interrupted.
    PodVanished(Arc<str>),
    /// A node is new or has changed.
    Node(NodeView),
    /// A node object is gone.
    NodeGone(Arc<str>),
    /// An exporter described a node.
    Report(Arc<str>, Arc<NodeTopology>),
    /// A node's report is gone.
    ReportGone(Arc<str>),
    /// A node has a report that cannot be read.
    ReportUnreadable(Arc<str>),
    /// The binding was accepted.
    Bound(PodId),
    /// The binding failed for certain: the pod is not on the node.
    BindFailed(PodId),
}

/// What to do next.
#[derive(Debug)]
pub enum Decision {
    /// Bind the pod to the node. The core counts it there from now on.
    Bind(Binding),
    /// Tell people why the pod waits.
    Refuse(Refused),
}

/// A pod and the node chosen for it.
#[derive(Clone, Debug)]
pub struct Binding {
    /// The pod, for [`Event::Bound`] and [`Event::BindFailed`].
    pub id: PodId,
    /// The pod as last seen.
    pub pod: PodView,
    /// The node.
    pub node: Arc<str>,
    /// How many attempts it took.
    pub attempts: u32,
}

/// A pod and why it waits.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The pod as last seen.
    pub pod: PodView,
    /// kube-scheduler's text.
    pub message: String,
    /// Reasons and node counts, for metrics.
    pub refusals: Refusals,
}

#[derive(Debug)]
struct Entry {
    view: PodView,
    /// Slot of the node it is charged to.
    place: Option<usize>,
    /// Chosen by us, not yet seen bound.
    assumed: bool,
    /// Its node's totals no longer count it.
    released: bool,
    /// The object is gone; waiting for the kubelet to be done with it.
    gone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The kubelet has long processed the forced deletion.
    Vanished(PodId),
    /// The node has had its time to get a report.
    Unreported(usize),
}

/// A forced deletion reaches the kubelet with the next watch event, before anything bound later (both come in the order of the
/// API server), and from then on it no longer counts the pod. This is the margin for a slow watch when no report says so.
const VANISHED_MS: u64 = 2_000;

/// The scheduler's state.
#[derive(Debug)]
pub struct Core {
    settings: Settings,
    pods: BTreeMap<PodId, Entry>,
    ids: HashMap<Arc<str>, PodId>,
    next_id: u64,
    nodes: Vec<Node>,
    slots: HashMap<Arc<str>, usize>,
    spare: Vec<usize>,
    /// Slots of nodes that exist, in the order of their arrival; where the next search starts.
    listed: Vec<usize>,
    start: usize,
    queue: Queue,
    /// Nodes on which something may fit now that did not before.
    changed: BTreeSet<usize>,
    timers: BTreeSet<(u64, Timer)>,
    random: u64,
    scratch: Scratch,
    feasible: Vec<usize>,
    raw: Vec<Raw>,
    totals: Vec<i64>,
}

// === events ===

impl Core {
    /// A core that knows nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let random = settings.seed;
        Self {
            settings,
            pods: BTreeMap::new(),
            ids: HashMap::new(),
            next_id: 0,
            nodes: Vec::new(),
            slots: HashMap::new(),
            spare: Vec::new(),
            listed: Vec::new(),
            start: 0,
            queue: Queue::default(),
            changed: BTreeSet::new(),
            timers: BTreeSet::new(),
            random,
            scratch: Scratch::default(),
            feasible: Vec::new(),
            raw: Vec::new(),
            totals: Vec::new(),
        }
    }

    /// Takes one event in. `now_ms`: milliseconds since the epoch (or since the start of a simulation).
    pub fn handle(&mut self, event: Event, now_ms: u64) {
        match event {
            Event::Pod(view) => self.pod(view),
            Event::PodGone(view) => self.pod_gone(view, now_ms),
            Event::PodVanished(uid) => {
                let entry = self.ids.get(&uid).and_then(|id| self.pods.get(id));
                if let Some(view) = entry.map(|entry| entry.view.clone()) {
                    self.pod_gone(view, now_ms);
                }
            }
            Event::Node(view) => self.node(view, now_ms),
            Event::NodeGone(name) => self.node_gone(&name),
            Event::Report(name, topology) => {
                let slot = self.slot(&name);
                self.nodes[slot].ledger.report(topology, &mut self.scratch);
                self.changed.insert(slot);
            }
            Event::ReportGone(name) => {
                let slot = self.slot(&name);
                self.nodes[slot].ledger.report_deleted();
                self.tidy(slot);
            }
            Event::ReportUnreadable(name) => {
                let slot = self.slot(&name);
                self.nodes[slot].ledger.report_unreadable();
            }
            Event::Bound(id) => {
                if let Some(entry) = self.pods.get_mut(&id) {
                    entry.assumed = false;
                }
            }
            Event::BindFailed(id) => self.bind_failed(id, now_ms),
        }
    }

    fn pod(&mut self, view: PodView) {
        let id = self.id(&view.uid);
        let terminal = view.progress.terminal;
        let bound_to = view.node.clone();
        let known = self.pods.get(&id);
        let place = known.and_then(|entry| entry.place);
        if known.is_none() && terminal {
            self.ids.remove(&view.uid);
            return;
        }
        let new_wishes = known.is_none_or(|entry| {
            entry.view.spec != view.spec || entry.view.priority != view.priority || entry.gone
        });
        let progress = view.progress;
        match self.pods.get_mut(&id) {
            Some(entry) => entry.view = view,
            None => {
                let entry = Entry { view, place: None, assumed: false, released: false, gone: false };
                self.pods.insert(id, entry);
            }
        }
        match (place, bound_to) {
            (None, None) => self.enqueue(id, new_wishes),
            (None, Some(node)) => {
                self.queue.forget(id);
                self.place(id, &node);
            }
            (Some(slot), Some(node)) if self.nodes[slot].name != node => {
                self.unplace(id);
                self.place(id, &node);
            }
            (Some(_), Some(_)) => {
                self.queue.forget(id);
                if let Some(entry) = self.pods.get_mut(&id) {
                    entry.assumed = false;
                }
            }
            (Some(_), None) => {}
        }
        if let Some(slot) = self.pods.get(&id).and_then(|entry| entry.place) {
            if progress.admitted {
                self.nodes[slot].ledger.admitted(id, &mut self.scratch);
                self.changed.insert(slot);
            }
            if progress.deleting {
                self.nodes[slot].ledger.leaving(id, &mut self.scratch);
            }
            if progress.terminal {
                self.release(id);
            }
        } else if terminal {
            self.drop_pod(id);
        }
    }

    fn enqueue(&mut self, id: PodId, new_wishes: bool) {
        let Some(entry) = self.pods.get(&id) else { return };
        let view = &entry.view;
        let ours = self.settings.profiles.iter().any(|profile| profile.name == view.scheduler);
        if !ours || view.progress.deleting || !view.spec.gates.is_empty() {
            self.queue.forget(id);
        } else if new_wishes {
            self.queue.push(id, view.priority, &view.spec);
        }
    }

    /// The object is gone. Graceful: the kubelet had said that everything ended, so it has released already. By force: it
    /// will, at once or when a report says so.
    fn pod_gone(&mut self, view: PodView, now_ms: u64) {
        let Some(id) = self.ids.get(&view.uid).copied() else { return };
        self.queue.forget(id);
        let Some(entry) = self.pods.get_mut(&id) else { return };
        let Some(slot) = entry.place else {
            self.drop_pod(id);
            return;
        };
        let done = view.progress.terminal || (view.progress.deleting && view.progress.stopped);
        entry.gone = true;
        if done || entry.released {
            self.release(id);
            self.drop_pod(id);
            return;
        }
        let needs = Arc::clone(&entry.view.spec.needs);
        entry.released = true;
        self.nodes[slot].remove(&needs);
        self.nodes[slot].ledger.leaving(id, &mut self.scratch);
        self.changed.insert(slot);
        self.timers.insert((now_ms + VANISHED_MS, Timer::Vanished(id)));
    }

    fn node(&mut self, view: NodeView, now_ms: u64) {
        let slot = self.slot(&view.name);
        let node = &mut self.nodes[slot];
        if node.view.is_none() {
            self.listed.push(slot);
        } else if node.view.as_ref().is_some_and(|old| old.uid != view.uid) {
            // Another machine under the same name: what was reported of the old one says nothing.
            node.ledger.report_deleted();
        }
        let until = view.created_ms + UNREPORTED_GRACE_MS;
        if until > now_ms {
            self.timers.insert((until, Timer::Unreported(slot)));
        }
        if node.view.as_ref() != Some(&view) {
            node.view = Some(view);
            self.changed.insert(slot);
        }
    }

    fn node_gone(&mut self, name: &Arc<str>) {
        let slot = self.slot(name);
        self.nodes[slot].view = None;
        self.nodes[slot].ledger.report_deleted();
        self.listed.retain(|listed| *listed != slot);
        self.tidy(slot);
    }

    fn bind_failed(&mut self, id: PodId, now_ms: u64) {
        let Some(entry) = self.pods.get(&id) else { return };
        if !entry.assumed {
            return;
        }
        let gone = entry.gone;
        self.unplace(id);
        if gone {
            self.drop_pod(id);
        } else {
            self.queue.back_off(id, now_ms, self.settings.backoff);
        }
    }
}

// === decisions ===

impl Core {
    /// The next thing to do, or `None` until an event arrives or [`Core::due`] has come.
    pub fn next(&mut self, now_ms: u64) -> Option<Decision> {
        self.run_timers(now_ms);
        self.queue.tick(now_ms);
        self.wake(now_ms);
        let id = self.queue.pop()?;
        let entry = self.pods.get(&id)?;
        let (pod, spec) = (entry.view.clone(), Arc::clone(&entry.view.spec));
        let Some(profile) = self.settings.profiles.iter().find(|p| p.name == pod.scheduler).cloned() else {
            self.queue.forget(id);
            return self.next(now_ms);
        };
        if let Some(message) = unsupported(&spec, self.listed.len()) {
            self.queue.wait(id, now_ms);
            return Some(Decision::Refuse(Refused { pod, message, refusals: Refusals::default() }));
        }
        match self.choose(&spec, &profile, now_ms) {
            Ok(slot) => {
                let attempts = self.queue.attempts(id);
                let node = Arc::clone(&self.nodes[slot].name);
                self.place(id, &node);
                if let Some(entry) = self.pods.get_mut(&id) {
                    entry.assumed = true;
                }
                Some(Decision::Bind(Binding { id, pod, node, attempts }))
            }
            Err(refusals) => {
                self.queue.wait(id, now_ms);
                let message = if self.listed.is_empty() {
                    "no nodes available to schedule pods".to_owned()
                } else {
                    refusals.message(self.listed.len())
                };
                Some(Decision::Refuse(Refused { pod, message, refusals }))
            }
        }
    }

    /// When [`Core::next`] has something to do even if nothing happens.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        let timer = self.timers.first().map(|(due, _)| *due);
        timer.into_iter().chain(self.queue.due()).min()
    }

    /// Wakes the first waiting pod that fits on a node that changed. One at a time: where it goes decides what the next
    /// one finds, and the node stays marked until nothing fits on it any more.
    fn wake(&mut self, now_ms: u64) {
        if !self.queue.has_waiting() {
            self.changed.clear();
            return;
        }
        let heads = self.queue.waiting_heads();
        let mut scratch = std::mem::take(&mut self.scratch);
        while let Some(slot) = self.changed.first().copied() {
            let node = &self.nodes[slot];
            let fits = node.view.as_ref().and_then(|view| {
                heads.iter().find(|(rank, spec)| {
                    let numa = self.profile_of(rank.pod).and_then(|profile| profile.numa.as_ref());
                    spec.unsupported.is_empty()
                        && cycle::filter(node, view, spec, numa, now_ms, &mut scratch).is_ok()
                })
            });
            match fits {
                Some((rank, _)) => {
                    self.queue.wake(rank.pod);
                    break;
                }
                None => {
                    self.changed.remove(&slot);
                }
            }
        }
        self.scratch = scratch;
    }

    fn choose(&mut self, spec: &Arc<Spec>, profile: &Profile, now_ms: u64) -> Result<usize, Refusals> {
        let count = self.listed.len();
        let enough = cycle::enough(count, profile.percentage);
        let numa = profile.numa.as_ref();
        let mut refusals = Refusals::default();
        self.feasible.clear();
        self.raw.clear();
        let mut seen = 0;
        while seen < count && self.feasible.len() < enough {
            let slot = self.listed[(self.start + seen) % count];
            seen += 1;
            let node = &self.nodes[slot];
            let Some(view) = &node.view else { continue };
            match cycle::filter(node, view, spec, numa, now_ms, &mut self.scratch) {
                Ok(()) => {
                    self.feasible.push(slot);
                    self.raw.push(cycle::raw_score(node, view, spec, numa));
                }
                Err(reason) => {
                    self.changed.remove(&slot);
                    match reason {
                        // All that is short, as kube-scheduler says it.
                        Reason::TooManyPods | Reason::Insufficient(_) => node
                            .shortages(view, &spec.needs)
                            .for_each(|resource| refusals.add(Reason::short_of(resource))),
                        _ => refusals.add(reason),
                    }
                }
            }
        }
        self.start = if count == 0 { 0 } else { (self.start + seen) % count };
        cycle::totals(&self.raw, &mut self.totals);
        let best = self.totals.iter().max().copied().ok_or(refusals)?;
        let ties = self.totals.iter().filter(|total| **total == best).count();
        let pick = usize::try_from(self.roll() % ties as u64).unwrap_or(0);
        let winner = self.totals.iter().enumerate().filter(|(_, total)| **total == best).nth(pick);
        winner.map(|(at, _)| self.feasible[at]).ok_or_else(Refusals::default)
    }

    /// splitmix64.
    fn roll(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn run_timers(&mut self, now_ms: u64) {
        while let Some((due, timer)) = self.timers.first().filter(|(due, _)| *due <= now_ms).copied() {
            self.timers.remove(&(due, timer));
            match timer {
                Timer::Vanished(id) => {
                    self.release(id);
                    self.drop_pod(id);
                }
                Timer::Unreported(slot) => {
                    self.changed.insert(slot);
                }
            }
        }
    }
}

// === reading ===

impl Core {
    /// (active, backoff, waiting) pods.
    #[must_use]
    pub fn queue_lengths(&self) -> (usize, usize, usize) {
        self.queue.lengths()
    }

    /// Nodes that exist.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> + '_ {
        self.listed.iter().map(|slot| &self.nodes[*slot])
    }

    /// What is believed of a node's pods, beside the fingerprint of its report; `None` without a report.
    #[must_use]
    pub fn status(&self, node: &Node) -> Option<Status> {
        let (expected, pods) = node.ledger.fingerprinted()?;
        let mut status = Status::new(&node.name);
        for view in pods.iter().filter_map(|id| self.pods.get(id)).map(|entry| &entry.view) {
            status.add(&view.namespace, &view.name);
        }
        match expected {
            // Whether they are the same is for readers to see.
            Some(expected) => drop(status.check(&expected.to_string())),
            None => drop(status.sign()),
        }
        Some(status)
    }

    fn profile_of(&self, id: PodId) -> Option<&Profile> {
        let scheduler = &self.pods.get(&id)?.view.scheduler;
        self.settings.profiles.iter().find(|profile| profile.name == *scheduler)
    }
}

/// kube-scheduler's form of a refusal that concerns the pod and not a node.
fn unsupported(spec: &Spec, nodes: usize) -> Option<String> {
    let wishes: Vec<String> = spec.unsupported.iter().map(ToString::to_string).collect();
    (!wishes.is_empty()).then(|| {
        format!("0/{nodes} nodes are available: the scheduler does not yet honour {}.", wishes.join(", "))
    })
}

/// The reasons in a [`Refused`], as (plugin, count).
impl Refused {
    /// Plugins that refused, each once, for metrics.
    #[must_use]
    pub fn plugins(&self) -> Vec<&'static str> {
        let mut plugins: Vec<_> =
            self.refusals.iter().map(|(reason, _): (Reason, usize)| reason.plugin()).collect();
        plugins.dedup();
        plugins
    }
}

#[cfg(test)]
mod tests;
