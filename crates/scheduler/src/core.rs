//! The scheduler as a state machine: events in, decisions out.
//!
//! In: changes of pods, nodes and reports, results of bindings, and the time. Out: one [`Decision`] after the other,
//! and the time at which to ask again. Never: I/O, a clock, randomness without a seed. The same core serves a cluster
//! (`shell`) and simulations in virtual time (crate `sim`), so simulations measure the code that runs in clusters.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use runtime::random::Random;
use topology::fingerprint::status::Status;
use topology::request::PodNeeds;
use topology::zone::NodeTopology;

use crate::affinity::Labels;
use crate::budget::BudgetView;
use crate::cycle::{Numa, RawScore};
use crate::default_selector::{DefaultSelectors, SelectingKey, SelectingView};
use crate::devices::views::claim::ClaimView;
use crate::devices::{self, Devices};
use crate::extender::Extender;
use crate::interner::Interned;
use crate::ledger::{PodId, Scratch};
use crate::namespace::NamespaceView;
use crate::node::{Node, NodeView};
use crate::plugins::Plugins;
use crate::plugins::image_locality::{Images, Wanted};
use crate::plugins::inter_pod_affinity::ExistingTerms;
use crate::pod::{PodView, Spec};
use crate::pod_group::PodGroupView;
use crate::queue::{BackoffLimits, Class, Incoming, Queue};
use crate::reason::Reason;
use crate::selection::Selections;
use crate::volumes::{Change, Volumes};

mod accounting;
mod claims;
pub mod cluster_zones;
mod contradiction;
mod decision;
mod default_spread;
mod equivalence_cache;
pub mod explain;
pub mod extender_verbs;
mod extenders;
mod gang;
pub mod headroom;
mod hold;
mod listing;
mod node_copy;
mod nodes;
mod nomination;
mod preemption;
mod refused;
mod rejection_backoff;
pub mod relocation;
mod resync;
mod search;
mod stopwatch;
mod trial;
mod victim_sets;
mod volumes;
mod withdrawal;

pub use claims::{Deallocation, ReleaseClaims, Reservation, ReserveClaims};
pub use decision::{
    BindVolumes, Binding, ChosenVolume, Decision, FailedVolumes, Provision, Refused, VolumeBindings,
};
use equivalence_cache::EquivalenceCache;
pub use gang::GroupCondition;
use gang::Groups;
use hold::Hold;
use nodes::Nodes;
use nomination::Nominations;
pub use preemption::Preemption;
pub use rejection_backoff::RejectedPod;
use rejection_backoff::RejectionBackoff;
pub use stopwatch::Lap;
use stopwatch::Stopwatch;
use volumes::Waits;

/// A scheduler name that this process serves.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The `spec.schedulerName` of this profile's pods.
    pub name: Arc<str>,
    /// Filter and score of zones; `None`: zones do not count (a NUMA-blind profile).
    pub numa: Option<Numa>,
    /// kube-scheduler's own plugins.
    pub plugins: Arc<Plugins>,
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
    /// How long a pod that fits no node waits before it is tried again without a change.
    pub max_wait_ms: u64,
    /// Whether pods that kubelets reject are deleted, if a controller makes others.
    pub deletes_rejected: bool,
}

impl Settings {
    /// Whether a profile places gangs whole.
    #[must_use]
    pub fn places_gangs(&self) -> bool {
        self.profiles.iter().any(|profile| profile.plugins.gang_scheduling)
    }

    /// Whether zones count for any profile.
    fn counts_zones(&self) -> bool {
        self.profiles.iter().any(|profile| profile.numa.is_some())
    }

    /// Whether all profiles refuse a node that has too little CPU or memory.
    fn check_resources(&self) -> bool {
        self.profiles.iter().all(|profile| profile.plugins.filters.node_resources_fit)
    }
}

/// An input of the core.
#[derive(Clone, Debug)]
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
    /// Whether the API server has the kind of reports. Until told otherwise it has.
    ReportsServed(bool),
    /// A namespace is new or has changed.
    Namespace(NamespaceView),
    /// The namespace with this name is gone.
    NamespaceGone(Arc<str>),
    /// An object that selects pods is new or has changed.
    Selecting(SelectingView),
    /// An object that selects pods is gone.
    SelectingGone(SelectingKey),
    /// A budget is new or has changed.
    Budget(BudgetView),
    /// The budget with this namespace and name is gone.
    BudgetGone(Arc<str>, Arc<str>),
    /// A PodGroup is new or has changed.
    PodGroup(PodGroupView),
    /// The PodGroup with this namespace and name is gone.
    PodGroupGone(Arc<str>, Arc<str>),
    /// An object of storage is new, has changed or is gone.
    Volumes(Change),
    /// The volumes of a pod are written, with their new versions.
    VolumesWritten(PodId, VolumeBindings),
    /// The volumes of a pod could not be written, but for those with new versions; with the reason.
    VolumesFailed(PodId, VolumeBindings, String),
    /// A claim for devices, a slice or a class is new, has changed or is gone.
    Devices(devices::Change),
    /// The claims of a pod are written, and look like this now.
    ClaimsWritten(PodId, Vec<ClaimView>),
    /// The claims of a pod could not be written, but for these; with the reason.
    ClaimsFailed(PodId, Vec<ClaimView>, String),
    /// The binding was accepted.
    Bound(PodId),
    /// The binding failed for certain; the pod is not on the node.
    BindFailed(PodId),
    /// A pod could not be evicted for this one.
    PreemptFailed(PodId),
}

#[derive(Debug)]
struct Entry {
    view: PodView,
    lifecycle: Lifecycle,
    /// The requests that the totals of its node count; `None` while they do not count the pod.
    charged: Option<Arc<PodNeeds>>,
    /// This process has chosen its node.
    placed_here: bool,
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
    /// A report that tells why a kubelet rejected a pod is awaited no longer.
    Contradicted(usize),
    /// The time is over in which the fingerprint of a node's report may be that of pods yet to come.
    Unexplained(usize),
    /// The wait for a pod's volumes is over.
    Volumes(PodId),
    /// The reports of nodes that count as upstream's plugin does are compared with their pods.
    Resync,
}

/// How long a pod deleted by force is charged when no report shows its release. The deletion reaches the kubelet with
/// the next watch event, before anything bound later, since both come in the order of the API server. This is the
/// margin for a slow watch.
const VANISHED_MS: u64 = 2_000;

/// The scheduler's state.
#[derive(Debug)]
pub struct Core {
    settings: Settings,
    /// Boxed, since nodes of the tree are half empty.
    pods: BTreeMap<PodId, Box<Entry>>,
    interned: Interned,
    ids: HashMap<Arc<str>, PodId>,
    next_id: u64,
    nodes: Nodes,
    slots: HashMap<Arc<str>, usize>,
    free_slots: Vec<usize>,
    /// Slots of existing nodes, in the order of their arrival.
    node_order: Vec<usize>,
    /// Index in `node_order` at which the next search starts.
    search_start: usize,
    /// The terms of pods on nodes about others.
    existing_terms: ExistingTerms,
    /// The pods on nodes, as constraints of others select them.
    selections: Selections,
    /// Objects of storage.
    volumes: Volumes,
    /// Devices and claims for them.
    devices: Devices,
    /// Pods whose volumes or claims are being bound.
    waits: Waits,
    /// The images on existing nodes.
    images: Images,
    /// Whether the API server has the kind of reports. If not, no exporter runs.
    reports_served: bool,
    default_selectors: DefaultSelectors,
    queue: Queue,
    /// Pods of our profiles with scheduling gates.
    gated: BTreeSet<PodId>,
    stopwatch: Stopwatch,
    equivalence: EquivalenceCache<Wanted, search::Verdict>,
    /// Victims for the next pod of a class.
    victims: EquivalenceCache<preemption::VictimsKey, preemption::Verdict>,
    hold: Hold,
    rejections: RejectionBackoff,
    /// Pods whose bindings are to be withdrawn.
    withdrawals: BTreeSet<PodId>,
    nominations: Nominations,
    /// Pods that are being evicted, each with the pod that needs its room.
    evicting: BTreeMap<PodId, PodId>,
    /// By namespace and name.
    budgets: BTreeMap<(Arc<str>, Arc<str>), BudgetView>,
    /// Number of changes of budgets so far.
    budgets_revision: u64,
    /// PodGroups and their pods.
    groups: Groups,
    /// Nodes on which a waiting pod may fit by now.
    changed: BTreeSet<usize>,
    /// Those of them on which a waiting pod may preempt by now: more than a pod's progress has changed.
    freed: BTreeSet<usize>,
    /// Waiting classes of which a pod may fit on any node by now.
    retried: BTreeSet<Class>,
    /// Nodes whose report was taken over by a resync. As upstream, that alone wakes no pod; the next event does.
    resynced: BTreeSet<usize>,
    timers: BTreeSet<(u64, Timer)>,
    extenders: Vec<Extender>,
    random: Random,
    scratch: Scratch,
    feasible: Vec<usize>,
    /// Nodes whose refusal the departure of pods may turn, each with its reason.
    curable: Vec<(usize, Reason)>,
    /// Nodes that do not reach devices of the pod's claims, or the last on which claims are in error.
    elsewhere: Vec<usize>,
    raw: Vec<RawScore>,
    totals: Vec<i64>,
}

// === events ===

impl Core {
    /// A core without pods, nodes and reports.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let random = Random::seeded(settings.seed);
        let timers = settings.resync_ms().map(|_| (0, Timer::Resync));
        Self {
            pods: BTreeMap::new(),
            interned: Interned::default(),
            ids: HashMap::new(),
            next_id: 0,
            nodes: Nodes::default(),
            equivalence: EquivalenceCache::default(),
            victims: EquivalenceCache::default(),
            slots: HashMap::new(),
            free_slots: Vec::new(),
            node_order: Vec::new(),
            search_start: 0,
            existing_terms: ExistingTerms::default(),
            selections: Selections::default(),
            volumes: Volumes::default(),
            devices: Devices::default(),
            waits: Waits::default(),
            images: Images::default(),
            reports_served: true,
            default_selectors: DefaultSelectors::default(),
            queue: Queue::new(settings.max_wait_ms),
            gated: BTreeSet::new(),
            stopwatch: Stopwatch::default(),
            hold: Hold::default(),
            rejections: RejectionBackoff::default(),
            withdrawals: BTreeSet::new(),
            nominations: Nominations::default(),
            evicting: BTreeMap::new(),
            budgets: BTreeMap::new(),
            budgets_revision: 0,
            groups: Groups::new(settings.places_gangs()),
            changed: BTreeSet::new(),
            freed: BTreeSet::new(),
            retried: BTreeSet::new(),
            resynced: BTreeSet::new(),
            timers: timers.into_iter().collect(),
            extenders: Vec::new(),
            random,
            scratch: Scratch::default(),
            feasible: Vec::new(),
            curable: Vec::new(),
            elsewhere: Vec::new(),
            raw: Vec::new(),
            totals: Vec::new(),
            settings,
        }
    }

    /// Processes one event. `now_ms`: milliseconds since the epoch, or since the start of a simulation.
    pub fn handle(&mut self, event: Event, now_ms: u64) {
        self.groups.renew();
        match event {
            Event::Pod(view) => {
                self.look_for_rejection(&view, now_ms);
                self.pod(view);
            }
            Event::PodGone(view) => self.pod_gone(view, now_ms),
            Event::PodVanished(uid) => {
                self.rejections.forget(&uid);
                let entry = self.ids.get(&uid).and_then(|id| self.pods.get(id));
                if let Some(view) = entry.map(|entry| entry.view.clone()) {
                    self.pod_gone(view, now_ms);
                }
            }
            Event::Node(view) => self.node(view, now_ms),
            Event::NodeGone(name) => self.node_gone(&name, now_ms),
            Event::Report(name, topology) => self.report(&name, topology, now_ms),
            Event::ReportGone(name) => self.report_gone(&name),
            Event::ReportUnreadable(name) => self.report_unreadable(&name),
            Event::ReportsServed(served) => self.set_reports_served(served, now_ms),
            Event::Volumes(change) => self.volumes_changed(change, now_ms),
            Event::VolumesWritten(id, volumes) => self.volumes_written(id, volumes, now_ms),
            Event::VolumesFailed(id, volumes, reason) => self.volumes_failed(id, volumes, &reason, now_ms),
            Event::Devices(change) => self.devices_changed(change, now_ms),
            Event::ClaimsWritten(id, claims) => self.claims_written(id, claims, now_ms),
            Event::ClaimsFailed(id, claims, reason) => self.claims_failed(id, claims, &reason, now_ms),
            Event::Bound(id) => self.confirm(id),
            Event::BindFailed(id) => self.bind_failed(id, now_ms),
            Event::PreemptFailed(id) => self.preempt_failed(id, now_ms),
            Event::Namespace(view) => self.namespace(view.name, Some(view.labels)),
            Event::NamespaceGone(name) => self.namespace(name, None),
            Event::Selecting(view) => self.selecting(view),
            Event::SelectingGone(key) => self.selecting_gone(&key),
            Event::Budget(budget) => {
                let key = (Arc::clone(&budget.namespace), Arc::clone(&budget.name));
                self.budgets.insert(key, budget);
                self.budgets_revision += 1;
            }
            Event::BudgetGone(namespace, name) => {
                self.budgets.remove(&(namespace, name));
                self.budgets_revision += 1;
            }
            Event::PodGroup(group) => self.pod_group(group),
            Event::PodGroupGone(namespace, name) => self.pod_group_gone(&(namespace, name)),
        }
    }

    fn pod(&mut self, mut view: PodView) {
        let id = self.id(&view.uid);
        let terminal = view.progress.terminal;
        let bound_to = view.node.clone();
        if bound_to.is_some() {
            self.overtake_wait(id);
        } else if terminal || view.progress.deleting {
            self.cancel_wait(id);
        }
        let known = self.pods.get(&id);
        let place = known.and_then(|entry| entry.lifecycle.slot());
        if known.is_none() && terminal {
            self.ids.remove(&view.uid);
            return;
        }
        if let Some(known) = known {
            view.keep_default_spread(&known.view);
        }
        self.interned.share(&mut view);
        if let Some(known) = known {
            // Kubelets write many statuses that change nothing but the version, which orders first lists only.
            view.version = known.view.version;
            if known.view == view {
                return;
            }
        }
        let respecified =
            known.is_none_or(|entry| entry.view.spec != view.spec || entry.view.priority != view.priority);
        // The kubelet may admit it with these. It may also have taken it with more before a resize to less.
        let has_grown = known.is_some_and(|entry| {
            !entry.view.progress.admitted && view.allocated.asks_more_than(&entry.view.allocated)
        });
        let renominated = known.map(|entry| &entry.view.nominated) != Some(&view.nominated);
        let (progress, started_s) = (view.progress, view.started_s);
        self.reprioritize(id, view.priority);
        match self.pods.get_mut(&id) {
            Some(entry) => entry.view = view,
            None => {
                let entry = Entry { view, lifecycle: Lifecycle::Unbound, charged: None, placed_here: false };
                self.pods.insert(id, Box::new(entry));
            }
        }
        self.join_group(id);
        match (place, bound_to) {
            (None, None) => self.enqueue(id, respecified, renominated),
            (None, Some(node)) => {
                self.gated.remove(&id);
                self.dequeue(id);
                self.place(id, &node);
            }
            (Some(slot), Some(node)) if self.nodes[slot].name != node => {
                self.unplace(id);
                self.place(id, &node);
            }
            (Some(slot), Some(_)) => {
                self.queue.forget(id);
                self.nodes[slot].ledger.shown(id);
                self.confirm(id);
            }
            (Some(_), None) => {}
        }
        if let Some(slot) = self.pods.get(&id).and_then(|entry| entry.lifecycle.slot()) {
            // Its priority, start and labels count when others are evicted.
            self.nodes.touch(slot);
            self.recharge(id);
            if has_grown {
                self.reenter_ledger(id, slot);
            }
            self.select(id);
            if progress.admitted {
                self.nodes[slot].ledger.admitted(id, &mut self.scratch);
                if let Some(second) = started_s {
                    self.nodes[slot].ledger.started(id, second);
                }
                self.changed.insert(slot);
            }
            if progress.initialized {
                self.nodes[slot].ledger.initialized(id);
            }
            if progress.deleting {
                self.nodes[slot].ledger.leaving(id, &mut self.scratch);
                self.withdraw_from(slot);
            }
            if progress.terminal {
                self.release(id);
            }
        } else if terminal {
            self.dequeue(id);
            self.drop_pod(id);
        }
        self.regroup_of(id);
    }

    fn enqueue(&mut self, id: PodId, respecified: bool, renominated: bool) {
        let Some(entry) = self.pods.get(&id) else { return };
        let view = &entry.view;
        let ours = self.settings.profiles.iter().any(|profile| profile.name == view.scheduler);
        let is_held_back = !view.spec.gates.is_empty() || self.awaits_group(id);
        if !ours || view.progress.deleting || is_held_back {
            if !ours || view.progress.deleting {
                self.gated.remove(&id);
            } else if self.gated.insert(id) {
                self.queue.count_gated();
            }
            self.dequeue(id);
            self.nominate(id, None);
            return;
        }
        let was_gated = self.gated.remove(&id);
        let nominated = view.nominated.clone().filter(|_| !self.is_in_gang(id));
        if respecified || was_gated {
            self.queue.push(id, view.priority, (&view.scheduler, &view.spec));
            self.prefer_in_gang(id);
        }
        if renominated {
            self.nominate(id, nominated);
        }
    }

    /// The object is gone. After a graceful deletion the kubelet has released the pod already, since it had reported
    /// the end of all containers. After a forced one it will, and a report or a timer tells when.
    fn pod_gone(&mut self, view: PodView, now_ms: u64) {
        self.rejections.forget(&view.uid);
        let Some(id) = self.ids.get(&view.uid).copied() else { return };
        self.dequeue(id);
        self.leave_group(id);
        self.nominate(id, None);
        self.changed.append(&mut self.resynced);
        if self.cancel_wait(id) {
            self.drop_pod(id);
            return;
        }
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
        self.withdraw_from(slot);
        self.changed.insert(slot);
        self.timers.insert((now_ms + VANISHED_MS, Timer::Vanished(id)));
    }

    /// A namespace has these labels from now on, or is gone. Waiting pods whose terms tell it by its labels may fit by
    /// now, and those that terms of others kept away. Cost: the selectors in use.
    fn namespace(&mut self, name: Arc<str>, labels: Option<Arc<Labels>>) {
        let Some(change) = self.selections.set_namespace(name, labels) else { return };
        let looks = |spec: &Spec| spec.selectors().any(|pods| pods.is_turned_by(&change));
        self.retried.extend(self.queue.spanning().filter(|(_, spec)| looks(spec)).map(|(class, _)| class));
        if self.existing_terms.are_turned_by(&change) {
            self.changed.extend(&self.node_order);
            self.freed.extend(&self.node_order);
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

    /// Number of pods with scheduling gates.
    #[must_use]
    pub fn gated(&self) -> usize {
        self.gated.len()
    }

    /// How often pods came into each queue.
    #[must_use]
    pub fn incoming(&self) -> Incoming {
        self.queue.incoming()
    }

    /// Measures the steps of attempts by this clock from now on.
    pub fn measure(&mut self, clock: fn() -> std::time::Instant) {
        self.stopwatch.with(clock);
    }

    /// The steps of the last attempt.
    pub fn laps(&mut self) -> impl Iterator<Item = Lap> + '_ {
        self.stopwatch.laps()
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

#[cfg(test)]
mod tests;
