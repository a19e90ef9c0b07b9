//! A node as it would be once pods have left it: whether another pod would fit there then.
//!
//! In: the accounts of a node, and the pods that leave. Out: the filters' verdict. Never: a change of the node.
//!
//! The filters are those of every attempt. Exact are totals, ports, and constraints on other pods. Zones are as exact
//! as the ledger: pods leave it as if the kubelet had released them, and a pod has to fit in every possible world. A
//! pod whose zones no report has told frees none, so that another may be thought not to fit; never the other way round.
//! By upstream's accounting (`OverReserve`) no pod frees a zone, but with `preemptionMode: Enabled`, as in the plugin.
//!
//! A node that is nominated for pods at least as important has to fit the pod both with them there and without
//! (kube-scheduler 1.36 `RunFilterPluginsWithNominatedPods`). Zones are judged by what will happen: the pod is placed
//! now, the evicted pods leave, and then the nominated ones have to fit as they would without the pod.
//!
//! Cost: a verdict is that of a filter, a copy of the constraints' counts if pods are nominated, and a copy of the
//! ledger with a release for each pod that has left and is not prepared ([`Trial::ladder`]), if the pod may align.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::rc::Rc;

use super::{Core, Lifecycle, Profile};
use crate::cycle::{self, Accounting, PreFilterState, ZoneFilter};
use crate::ledger::{BoundPod, Ledger, PodId, Scratch};
use crate::node::{Node, NodeView};
use crate::pod::PodView;
use crate::queue::Rank;
use crate::reason::Reason;

/// A pod to be placed.
#[derive(Clone, Copy)]
pub(super) struct IncomingPod<'c> {
    pub(super) id: PodId,
    /// Its place in the queue.
    pub(super) rank: Option<Rank>,
    pub(super) pod: &'c PodView,
    pub(super) profile: &'c Profile,
    pub(super) now_ms: u64,
}

/// A copy of what a node counts.
pub(super) struct Trial<'c> {
    core: &'c Core,
    slot: usize,
    /// The node as it is.
    node: &'c Node,
    view: &'c NodeView,
    /// The totals and ports without the pods that have left.
    totals: Node,
    left: BTreeSet<PodId>,
    /// The ledger without some of them.
    prepared: Option<Prepared>,
}

/// A ledger, and the pods that have left it.
type Prepared = (Rc<Ledger>, BTreeSet<PodId>);

/// The reason against a node, and the totals that gave it where they are not the node's own.
type Against = (Reason, Option<Box<Node>>);

impl<'c> Trial<'c> {
    /// A trial with all pods there; `None` if the node does not exist.
    pub(super) fn new(core: &'c Core, slot: usize) -> Option<Self> {
        let node = core.nodes.get(slot)?;
        let view = node.view.as_ref()?;
        Some(Self { core, slot, node, view, totals: node.totals(), left: BTreeSet::new(), prepared: None })
    }

    /// The slot of the node.
    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    /// Lets a pod leave.
    pub(super) fn remove(&mut self, id: PodId, pod: &PodView, spanning: &mut PreFilterState<'c>) {
        let Some(entry) = self.core.pods.get(&id) else { return };
        if !self.left.insert(id) {
            return;
        }
        // The totals no longer count a pod whose object is gone.
        if let Some(charged) = &entry.charged {
            self.totals.remove(charged);
            self.totals.vacate(&entry.view.spec);
            spanning.shift(pod, self.view, &entry.view, -1);
        }
    }

    /// Takes [`Self::remove`] back.
    pub(super) fn restore(&mut self, id: PodId, pod: &PodView, spanning: &mut PreFilterState<'c>) {
        let Some(entry) = self.core.pods.get(&id).filter(|_| self.left.remove(&id)) else { return };
        if let Some(charged) = &entry.charged {
            self.totals.add(charged);
            self.totals.occupy(&entry.view.spec);
            spanning.shift(pod, self.view, &entry.view, 1);
        }
    }

    /// Lets pods come that are on no node, without their volumes and claims.
    pub(super) fn add(
        &mut self,
        pods: &[PodId],
        pod: &PodView,
        spanning: &mut PreFilterState<'c>,
        scratch: &mut Scratch,
    ) {
        let mut ledger = Cow::Borrowed(&self.node.ledger);
        for id in pods {
            let entry = self.core.pods.get(id).filter(|entry| entry.lifecycle == Lifecycle::Unbound);
            let Some(view) = entry.map(|entry| &entry.view) else { continue };
            self.totals.add(&view.charged);
            self.totals.occupy(&view.spec);
            spanning.shift(pod, self.view, view, 1);
            if view.spec.needs.may_align() {
                ledger.to_mut().assumed(&BoundPod::of(*id, view), scratch);
            }
        }
        if let Cow::Owned(ledger) = ledger {
            self.prepared = Some((Rc::new(ledger), BTreeSet::new()));
        }
    }

    /// Whether the pod fits.
    pub(super) fn check(
        &self,
        incoming: IncomingPod<'_>,
        spanning: &PreFilterState<'c>,
        scratch: &mut Scratch,
    ) -> Result<(), Against> {
        let IncomingPod { id, pod, profile, now_ms, .. } = incoming;
        let (spec, plugins) = (&*pod.spec, &*profile.plugins);
        let expected = self.core.expected_before(id, pod.priority, &self.node.name);
        if !expected.is_empty() {
            let (mut totals, mut beside) = (self.totals.totals(), spanning.clone());
            for (_, other) in &expected {
                totals.add(&other.charged);
                totals.occupy(&other.spec);
                beside.shift(pod, self.view, other, 1);
            }
            if let Err(reason) = cycle::filter_node(&totals, self.view, spec, &beside, plugins) {
                return Err((reason, Some(Box::new(totals))));
            }
        }
        if let Err(reason) = cycle::filter_node(&self.totals, self.view, spec, spanning, plugins) {
            return Err((reason, Some(Box::new(self.totals.totals()))));
        }
        let ledger = self.ledger(incoming, scratch);
        let zones = (&*ledger, &self.node.over_reserve);
        cycle::filter_zones(zones, (spec, pod.created_s), self.zone_filter(profile), now_ms, scratch)
            .and_then(|()| self.keeps_zones(&ledger, incoming, &expected, scratch))
            .map_err(|reason| (reason, None))
    }

    /// Whether the verdict about a pod depends on the ledger.
    pub(super) fn asks_ledger(&self, incoming: IncomingPod<'_>) -> bool {
        let IncomingPod { pod, profile, .. } = incoming;
        let expects = !self.core.nominations.is_empty() || !self.core.waits.is_empty();
        let is_exact = self.zone_filter(profile).is_some_and(|filter| filter.accounting == Accounting::Exact);
        pod.spec.needs.may_align() && (is_exact || expects)
    }

    fn zone_filter(&self, profile: &Profile) -> Option<ZoneFilter> {
        if self.left.is_empty() { profile.zone_filter() } else { profile.zone_filter_of_preemption() }
    }

    /// Whether a pod may hold something in zones.
    fn aligns(&self, id: PodId) -> bool {
        self.core.pods.get(&id).is_some_and(|entry| entry.view.spec.needs.may_align())
    }

    /// The ledger without the pods that have left.
    fn ledger(&self, incoming: IncomingPod<'_>, scratch: &mut Scratch) -> Cow<'_, Ledger> {
        if !self.asks_ledger(incoming) {
            return Cow::Borrowed(&self.node.ledger);
        }
        let prepared = self.prepared.as_ref().filter(|(_, without)| without.is_subset(&self.left));
        let (ledger, without) = prepared.map_or((&self.node.ledger, None), |(l, pods)| (&**l, Some(pods)));
        let is_new = |id: &PodId| !without.is_some_and(|pods| pods.contains(id)) && self.aligns(*id);
        let mut left = self.left.iter().copied().filter(is_new).peekable();
        match left.peek() {
            None => Cow::Borrowed(ledger),
            Some(_) => Cow::Owned(ledger.without(left, scratch)),
        }
    }

    /// The ledgers without the pods that come after each of these, the first one's last. All of these have left. With
    /// them each verdict costs the releases of the victims alone, instead of those of all pods.
    pub(super) fn ladder(
        &self,
        incoming: IncomingPod<'_>,
        order: &[PodId],
        scratch: &mut Scratch,
    ) -> Vec<Prepared> {
        let Some(later) = order.get(1..).filter(|_| self.asks_ledger(incoming)) else { return Vec::new() };
        let mut without: BTreeSet<PodId> =
            self.left.difference(&order.iter().copied().collect()).copied().collect();
        let others = without.iter().copied().filter(|id| self.aligns(*id));
        let mut ledger = Rc::new(self.node.ledger.without(others, scratch));
        let mut ladder = vec![(Rc::clone(&ledger), without.clone())];
        for id in later.iter().rev() {
            without.insert(*id);
            if self.aligns(*id) {
                ledger = Rc::new(ledger.without([*id], scratch));
            }
            ladder.push((Rc::clone(&ledger), without.clone()));
        }
        ladder
    }

    /// Starts from this ledger from now on.
    pub(super) fn prepare(&mut self, ledger: Option<Prepared>) {
        self.prepared = ledger;
    }

    /// Whether pods that wait for volumes here still fit in zones after the pod, and nominated pods do once evicted
    /// ones have left. Where one does not fit without it either, nothing is kept.
    fn keeps_zones(
        &self,
        ledger: &Ledger,
        incoming: IncomingPod<'_>,
        expected: &[(PodId, &PodView)],
        scratch: &mut Scratch,
    ) -> Result<(), Reason> {
        let aligned: Vec<_> = expected
            .iter()
            .copied()
            .filter(|(id, view)| view.spec.needs.may_align() && self.core.aligns_exactly(*id))
            .collect();
        let waiting = self.core.waits.on(self.slot).filter(|id| !self.left.contains(id));
        let waiting: Vec<_> = waiting
            .filter_map(|id| Some((id, &self.core.pods.get(&id)?.view)))
            .filter(|(id, view)| view.spec.needs.may_align() && self.core.aligns_exactly(*id))
            .collect();
        if (aligned.is_empty() && waiting.is_empty()) || !incoming.pod.spec.needs.may_align() {
            return Ok(());
        }
        let mut with = ledger.clone();
        with.assumed(&BoundPod::of(incoming.id, incoming.pod), scratch);
        let mut free = ledger.clone();
        keep(&mut with, &mut free, &waiting, scratch)?;
        if aligned.is_empty() {
            return Ok(());
        }
        let evicted: Vec<PodId> = self.core.evicted_from(self.node).collect();
        let mut with = with.without(evicted.iter().copied(), scratch);
        let mut free = free.without(evicted, scratch);
        keep(&mut with, &mut free, &aligned, scratch)
    }
}

/// Adds pods one after the other to a ledger with another pod, and to one without it. The first that fits without it,
/// and not with it, is the reason against it.
fn keep(
    with: &mut Ledger,
    free: &mut Ledger,
    pods: &[(PodId, &PodView)],
    scratch: &mut Scratch,
) -> Result<(), Reason> {
    for (id, view) in pods {
        let needs = (&*view.spec.needs, view.created_s);
        if free.check(needs, scratch).is_err() {
            break;
        }
        with.check(needs, scratch)?;
        free.assumed(&BoundPod::of(*id, view), scratch);
        with.assumed(&BoundPod::of(*id, view), scratch);
    }
    Ok(())
}

impl Core {
    /// Whether the zones of a pod are filtered by the ledger.
    fn aligns_exactly(&self, id: PodId) -> bool {
        self.profile_of(id).is_some_and(filters_exactly)
    }

    /// The pods of a node that are on their way out for more important ones, or whose object is gone already.
    pub(super) fn evicted_from<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = PodId> + 'a {
        let residents = node.residents.iter().map(|(_, id)| *id);
        residents.filter(|id| self.is_evicted(*id))
    }

    /// Whether a pod is on its way out for a more important one, or its object is gone already.
    pub(super) fn is_evicted(&self, id: PodId) -> bool {
        let Some(entry) = self.pods.get(&id) else { return false };
        let progress = entry.view.progress;
        self.evicting.contains_key(&id)
            || (progress.deleting && progress.preempted)
            || matches!(entry.lifecycle, Lifecycle::Ended { .. })
    }
}

pub(super) fn filters_exactly(profile: &Profile) -> bool {
    profile.zone_filter().is_some_and(|filter| filter.accounting == Accounting::Exact)
}
