//! The scheduler as a state machine: events in, decisions out.
//!
//! In: changes of pods, nodes and reports, results of bindings, and the time. Out: one [`Decision`] after the other,
//! and the time at which to ask again. Never: I/O, a clock, randomness without a seed. The same core serves a cluster
//! (`shell`) and simulations in virtual time (crate `sim`), so simulations measure the code that runs in clusters.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use runtime::random::Random;
use topology::admit::Scratch;
use topology::fingerprint::status::Status;
use topology::request::PodNeeds;
use topology::zone::NodeTopology;

use crate::anti_affinity::AntiAffinity;
use crate::cycle::{self, Numa, RawScore, UNREPORTED_GRACE_MS};
use crate::ledger::PodId;
use crate::node::{Node, NodeView};
use crate::pod::{PodView, Spec};
use crate::queue::{BackoffLimits, Queue, Rank};
use crate::reason::{Reason, Refusals};

mod accounting;
mod hold;

use hold::Hold;

/// A scheduler name that this process serves.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The `spec.schedulerName` of this profile's pods.
    pub name: Arc<str>,
    /// Filter and score of zones; `None`: zones do not count (a NUMA-blind profile).
    pub numa: Option<Numa>,
    /// `percentageOfNodesToScore`; 0: adaptive.
    pub percentage: usize,
}

/// The settings of a [`Core`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// The profiles, with distinct names.
    pub profiles: Vec<Profile>,
    /// Backoff after failed bindings.
    pub backoff: BackoffLimits,
    /// Seed of the choice among equally good nodes.
    pub seed: u64,
    /// How long a pod waits before a node is held for it; `None`: none ever is.
    pub hold_after_ms: Option<u64>,
}

/// An input of the core.
#[derive(Debug)]
pub enum Event {
    /// A pod is new or has changed.
    Pod(PodView),
    /// A pod object is gone; with its last state.
    PodGone(PodView),
    /// The object of the pod with this uid is gone; the last state was missed because the watch was interrupted.
    PodVanished(Arc<str>),
    /// A node is new or has changed.
    Node(NodeView),
    /// A node object is gone.
    NodeGone(Arc<str>),
    /// A node's report is new or has changed.
    Report(Arc<str>, Arc<NodeTopology>),
    /// A node's report is gone.
    ReportGone(Arc<str>),
    /// A node's report cannot be read.
    ReportUnreadable(Arc<str>),
    /// The binding was accepted.
    Bound(PodId),
    /// The binding failed for certain; the pod is not on the node.
    BindFailed(PodId),
}

/// An output of the core.
#[derive(Debug)]
pub enum Decision {
    /// Bind the pod to the node. The core counts the pod there from now on.
    Bind(Binding),
    /// Report that the pod fits no node.
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
    /// Number of attempts, this one included.
    pub attempts: u32,
}

/// A pod that fits no node, and the reason.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The pod as last seen.
    pub pod: PodView,
    /// The message, in kube-scheduler's words.
    pub message: String,
    /// Reasons with node counts, for metrics.
    pub refusals: Refusals,
}

#[derive(Debug)]
struct Entry {
    view: PodView,
    lifecycle: Lifecycle,
    /// The requests that the totals of its node count; `None` while they do not count the pod.
    charged: Option<Arc<PodNeeds>>,
}

/// The stage of a pod between queue and release, with the slot of its node. The ledger's `Stage` is finer: it also
/// knows what the kubelet and reports have shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifecycle {
    /// On no node: queued, held back, or a pod of another scheduler.
    Unbound,
    /// Chosen by us and charged to the node; the binding is not confirmed yet.
    Assumed { slot: usize },
    /// The API server has the pod on the node.
    Bound { slot: usize },
    /// Finished, or the object is gone. The totals no longer count the pod; the ledger does until the kubelet has
    /// released it. `assumed`: the binding is still not confirmed.
    Ended { slot: usize, assumed: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The kubelet has long since processed the forced deletion.
    Vanished(PodId),
    /// The grace period for a first report is over.
    Unreported(usize),
}

/// How long a pod deleted by force is charged when no report shows its release. The deletion reaches the kubelet with
/// the next watch event, before anything bound later, since both come in the order of the API server. This is the
/// margin for a slow watch.
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
    free_slots: Vec<usize>,
    /// Slots of existing nodes, in the order of their arrival.
    node_order: Vec<usize>,
    /// Index in `node_order` at which the next search starts.
    search_start: usize,
    /// The anti-affinity of pods on nodes.
    anti_affinity: AntiAffinity,
    queue: Queue,
    hold: Hold,
    /// Nodes on which a waiting pod may fit by now.
    changed: BTreeSet<usize>,
    timers: BTreeSet<(u64, Timer)>,
    random: Random,
    scratch: Scratch,
    feasible: Vec<usize>,
    raw: Vec<RawScore>,
    totals: Vec<i64>,
}

// === events ===

impl Core {
    /// A core without pods, nodes and reports.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let random = Random::seeded(settings.seed);
        Self {
            settings,
            pods: BTreeMap::new(),
            ids: HashMap::new(),
            next_id: 0,
            nodes: Vec::new(),
            slots: HashMap::new(),
            free_slots: Vec::new(),
            node_order: Vec::new(),
            search_start: 0,
            anti_affinity: AntiAffinity::default(),
            queue: Queue::default(),
            hold: Hold::default(),
            changed: BTreeSet::new(),
            timers: BTreeSet::new(),
            random,
            scratch: Scratch::default(),
            feasible: Vec::new(),
            raw: Vec::new(),
            totals: Vec::new(),
        }
    }

    /// Processes one event. `now_ms`: milliseconds since the epoch, or since the start of a simulation.
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
                self.changed.insert(slot);
                self.reclaim(slot);
            }
            Event::ReportUnreadable(name) => {
                let slot = self.slot(&name);
                self.nodes[slot].ledger.report_unreadable();
            }
            Event::Bound(id) => {
                if let Some(entry) = self.pods.get_mut(&id) {
                    entry.lifecycle = entry.lifecycle.confirmed();
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
        let place = known.and_then(|entry| entry.lifecycle.slot());
        if known.is_none() && terminal {
            self.ids.remove(&view.uid);
            return;
        }
        let respecified =
            known.is_none_or(|entry| entry.view.spec != view.spec || entry.view.priority != view.priority);
        let progress = view.progress;
        match self.pods.get_mut(&id) {
            Some(entry) => entry.view = view,
            None => {
                self.pods.insert(id, Entry { view, lifecycle: Lifecycle::Unbound, charged: None });
            }
        }
        match (place, bound_to) {
            (None, None) => self.enqueue(id, respecified),
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
                    entry.lifecycle = entry.lifecycle.confirmed();
                }
            }
            (Some(_), None) => {}
        }
        if let Some(slot) = self.pods.get(&id).and_then(|entry| entry.lifecycle.slot()) {
            self.recharge(id);
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

    fn enqueue(&mut self, id: PodId, respecified: bool) {
        let Some(entry) = self.pods.get(&id) else { return };
        let view = &entry.view;
        let ours = self.settings.profiles.iter().any(|profile| profile.name == view.scheduler);
        if !ours || view.progress.deleting || !view.spec.gates.is_empty() {
            self.queue.forget(id);
        } else if respecified {
            self.queue.push(id, view.priority, (&view.scheduler, &view.spec));
        }
    }

    /// The object is gone. After a graceful deletion the kubelet has released the pod already, since it had reported
    /// the end of all containers. After a forced one it will, and a report or a timer tells when.
    fn pod_gone(&mut self, view: PodView, now_ms: u64) {
        let Some(id) = self.ids.get(&view.uid).copied() else { return };
        self.queue.forget(id);
        let Some(entry) = self.pods.get_mut(&id) else { return };
        let done = view.progress.terminal || (view.progress.deleting && view.progress.stopped);
        let (slot, assumed) = match entry.lifecycle {
            Lifecycle::Assumed { slot } if !done => (slot, true),
            Lifecycle::Bound { slot } if !done => (slot, false),
            _ => {
                self.release(id);
                self.drop_pod(id);
                return;
            }
        };
        entry.lifecycle = Lifecycle::Ended { slot, assumed };
        self.discharge(id);
        self.nodes[slot].ledger.leaving(id, &mut self.scratch);
        self.changed.insert(slot);
        self.timers.insert((now_ms + VANISHED_MS, Timer::Vanished(id)));
    }

    fn node(&mut self, mut view: NodeView, now_ms: u64) {
        let slot = self.slot(&view.name);
        let node = &mut self.nodes[slot];
        // The API server's clock may be ahead of ours. No node is younger than our first sight of it.
        let known = node.view.as_ref().filter(|old| old.uid == view.uid);
        view.created_ms = view.created_ms.min(known.map_or(now_ms, |old| old.created_ms));
        if node.view.is_none() {
            self.node_order.push(slot);
        } else if node.view.as_ref().is_some_and(|old| old.uid != view.uid) {
            // Another machine under the same name: the report of the old one does not apply.
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
        self.node_order.retain(|listed| *listed != slot);
        self.reclaim(slot);
    }

    fn bind_failed(&mut self, id: PodId, now_ms: u64) {
        match self.pods.get(&id).map(|entry| entry.lifecycle) {
            Some(Lifecycle::Assumed { .. }) => {
                self.unplace(id);
                self.queue.back_off(id, now_ms, self.settings.backoff);
            }
            Some(Lifecycle::Ended { assumed: true, .. }) => {
                self.unplace(id);
                self.drop_pod(id);
            }
            _ => {}
        }
    }
}

// === decisions ===

impl Core {
    /// The next decision, or `None` until an event arrives or [`Core::due`] has come.
    pub fn next(&mut self, now_ms: u64) -> Option<Decision> {
        self.run_timers(now_ms);
        self.queue.tick(now_ms);
        self.run_hold(now_ms);
        self.wake(now_ms);
        let id = self.queue.pop()?;
        let entry = self.pods.get(&id)?;
        let (pod, spec) = (entry.view.clone(), Arc::clone(&entry.view.spec));
        let Some(profile) = self.settings.profiles.iter().find(|p| p.name == pod.scheduler).cloned() else {
            self.queue.forget(id);
            return self.next(now_ms);
        };
        if let Some(message) = unsupported(&spec, self.node_order.len()) {
            self.queue.wait(id, now_ms);
            return Some(Decision::Refuse(Refused { pod, message, refusals: Refusals::default() }));
        }
        match self.choose(id, &pod, &profile, now_ms) {
            Ok(slot) => {
                self.end_hold_of(id, now_ms);
                let attempts = self.queue.attempts(id);
                let node = Arc::clone(&self.nodes[slot].name);
                self.place(id, &node);
                if let Some(entry) = self.pods.get_mut(&id) {
                    entry.lifecycle = Lifecycle::Assumed { slot };
                }
                Some(Decision::Bind(Binding { id, pod, node, attempts }))
            }
            Err(refusals) => {
                self.queue.wait(id, now_ms);
                let message = if self.node_order.is_empty() {
                    "no nodes available to schedule pods".to_owned()
                } else {
                    refusals.message(self.node_order.len())
                };
                Some(Decision::Refuse(Refused { pod, message, refusals }))
            }
        }
    }

    /// The time at which [`Core::next`] may have a decision without any further event.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        let timer = self.timers.first().map(|(due, _)| *due);
        timer.into_iter().chain(self.queue.due()).chain(self.hold_due()).min()
    }

    /// Wakes the first waiting pod that fits on a changed node. One at a time: its placement decides what the next one
    /// finds. A node stays marked until no waiting pod fits on it any more; a pod that is tried and refused there says
    /// nothing about the others.
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
                heads.iter().find_map(|(rank, spec)| {
                    let numa = self.profile_of(rank.pod).and_then(|profile| profile.numa.as_ref());
                    let created_s = self.pods.get(&rank.pod).map_or(0, |entry| entry.view.created_s);
                    let fits = spec.unsupported.is_empty()
                        && !self.hold.keeps_off(slot, *rank)
                        && cycle::filter(node, view, (spec, created_s), numa, now_ms, &mut scratch).is_ok();
                    if fits { self.first_allowed(*rank, slot, view) } else { None }
                })
            });
            match fits {
                Some(rank) => {
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

    /// The first pod of a class that pods on nodes do not keep away from this node. Equal labels are looked at once.
    fn first_allowed(&self, head: Rank, slot: usize, view: &NodeView) -> Option<Rank> {
        if self.anti_affinity.is_empty() {
            return Some(head);
        }
        let mut kept_away = BTreeSet::new();
        self.queue.peers(head.pod).find(|peer| {
            let Some(PodView { namespace, labels, .. }) = self.pods.get(&peer.pod).map(|entry| &entry.view)
            else {
                return false;
            };
            !self.hold.keeps_off(slot, *peer)
                && kept_away.insert((namespace, labels))
                && !self.anti_affinity.domains(namespace, labels, &self.nodes).contain(&view.labels)
        })
    }

    fn choose(
        &mut self,
        id: PodId,
        pod: &PodView,
        profile: &Profile,
        now_ms: u64,
    ) -> Result<usize, Refusals> {
        let rank = self.queue.rank(id);
        let spec = &pod.spec;
        let domains = self.anti_affinity.domains(&pod.namespace, &pod.labels, &self.nodes);
        let count = self.node_order.len();
        let enough = cycle::feasible_nodes_to_find(count, profile.percentage);
        let numa = profile.numa.as_ref();
        let mut refusals = Refusals::default();
        self.feasible.clear();
        self.raw.clear();
        let mut seen = 0;
        while seen < count && self.feasible.len() < enough {
            let slot = self.node_order[(self.search_start + seen) % count];
            seen += 1;
            let node = &self.nodes[slot];
            let Some(view) = &node.view else { continue };
            match cycle::filter(node, view, (spec, pod.created_s), numa, now_ms, &mut self.scratch) {
                Ok(()) if domains.contain(&view.labels) => refusals.add(Reason::ExistingAntiAffinity),
                Ok(()) if rank.is_some_and(|rank| self.hold.keeps_off(slot, rank)) => {
                    refusals.add(Reason::Held)
                }
                Ok(()) => {
                    self.feasible.push(slot);
                    self.raw.push(cycle::raw_score(node, view, spec, numa));
                }
                Err(reason) => match reason {
                    // All resources that are short, as kube-scheduler lists them.
                    Reason::TooManyPods | Reason::Insufficient(_) => node
                        .shortages(view, &spec.needs)
                        .for_each(|resource| refusals.add(Reason::short_of(resource))),
                    _ => refusals.add(reason),
                },
            }
        }
        self.search_start = if count == 0 { 0 } else { (self.search_start + seen) % count };
        cycle::totals(&self.raw, &mut self.totals);
        let best = self.totals.iter().max().copied().ok_or(refusals)?;
        let ties = self.totals.iter().filter(|total| **total == best).count();
        let pick = usize::try_from(self.random.below(ties as u64)).unwrap_or(0);
        let winner = self.totals.iter().enumerate().filter(|(_, total)| **total == best).nth(pick);
        winner.map(|(at, _)| self.feasible[at]).ok_or_else(Refusals::default)
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
    /// Numbers of active pods, pods in backoff and waiting pods.
    #[must_use]
    pub fn queue_lengths(&self) -> (usize, usize, usize) {
        self.queue.lengths()
    }

    /// The existing nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> + '_ {
        self.node_order.iter().map(|slot| &self.nodes[*slot])
    }

    /// The pods taken to be behind the fingerprint of a node's report, with that fingerprint; `None` without a report.
    #[must_use]
    pub fn status(&self, node: &Node) -> Option<Status> {
        let (expected, pods) = node.ledger.fingerprinted()?;
        let mut status = Status::new(&node.name);
        for view in pods.iter().filter_map(|id| self.pods.get(id)).map(|entry| &entry.view) {
            status.add(&view.namespace, &view.name);
        }
        match expected {
            // Readers of the status compare the fingerprints.
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

/// The message about features that the pod needs and the scheduler lacks, in kube-scheduler's form.
fn unsupported(spec: &Spec, nodes: usize) -> Option<String> {
    let features: Vec<String> = spec.unsupported.iter().map(ToString::to_string).collect();
    (!features.is_empty()).then(|| {
        format!("0/{nodes} nodes are available: the scheduler does not yet support {}.", features.join(", "))
    })
}

impl Lifecycle {
    /// The node to which the pod is charged, or was until its end.
    fn slot(self) -> Option<usize> {
        match self {
            Self::Unbound => None,
            Self::Assumed { slot } | Self::Bound { slot } | Self::Ended { slot, .. } => Some(slot),
        }
    }

    /// The stage after the API server has confirmed the binding.
    fn confirmed(self) -> Self {
        match self {
            Self::Assumed { slot } => Self::Bound { slot },
            Self::Ended { slot, .. } => Self::Ended { slot, assumed: false },
            Self::Unbound | Self::Bound { .. } => self,
        }
    }
}

impl Refused {
    /// Plugins that refused nodes, each once, for metrics.
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
