//! Pods that move to other nodes, so that another pod finds room.
//!
//! In: a pod without a node, the state of the core, which pods may move. Out: the fewest moves, in their order, and the
//! node that has room then. Never: a change of the core; a move that counts on anything but nodes one by one.
//!
//! A move is an eviction whose pod is made again and finds another node than the one it left. The search deepens: no
//! move, one, two, and so on. To make room on a node, each set of its pods is tried, the small ones first, and each of
//! these needs room elsewhere in turn. A pod moves once at most. The caller may refuse what was found, and the search
//! goes on.
//!
//! Pods that look at other nodes (affinity, spread), have volumes or claims, are of a gang, or are resized, stay; so do
//! those on nodes that expect another pod.
//!
//! Cost: a filter and, for each pod of a set, a release of the ledger, for each set; at most [`SearchLimits::looks`] of
//! both.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use itertools::Itertools as _;
use topology::resource::ResourceName;

use super::node_copy::NodeCopy;
use super::trial::filters_exactly;
use super::{Core, Lifecycle, Profile};
use crate::cycle::PreFilterState;
use crate::ledger::{PodId, Scratch};
use crate::pod::{PodView, Progress};

/// Most nodes that are tried for a pod that fits on several, the fullest first.
const MAX_DESTINATIONS: usize = 8;
/// Most relocations that the caller may refuse.
const MAX_REFUSED: usize = 24;

/// A pod that leaves a node for another.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// The pod, on the node that it leaves.
    pub pod: PodView,
    /// That node.
    pub from: Arc<str>,
    /// A node that has room for it.
    pub to: Arc<str>,
}

/// Moves that make room for a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Relocation {
    /// One after the other; none: there is room already.
    pub moves: Vec<Move>,
    /// The node that has room then.
    pub node: Arc<str>,
}

/// Where a search ends.
#[derive(Clone, Copy, Debug)]
pub struct SearchLimits {
    /// Most moves.
    pub moves: usize,
    /// Most looks: verdicts about a pod on a node, and sets of pods that might leave one.
    pub looks: usize,
}

/// The end of a search.
#[derive(Clone, Debug, PartialEq)]
pub enum SearchOutcome {
    /// The first relocation that the caller accepted; none with fewer moves was found.
    Found(Relocation),
    /// No so many moves make room.
    Nothing,
    /// A limit ended the search.
    Limited,
    /// Nothing can be said about this pod, for this reason.
    Unprovable(&'static str),
}

/// A pod that needs a node: the one that room is made for, or one that moves.
struct PodToPlace<'c> {
    id: PodId,
    /// As its controller would make it again.
    pod: PodView,
    profile: &'c Profile,
    /// The slot and the object, where it is now.
    from: Option<(usize, &'c PodView)>,
}

/// Nodes that differ from the core's, and the movers that have a node by now, in the order of the decisions.
#[derive(Clone, Default)]
struct SearchState<'c> {
    nodes: BTreeMap<usize, Rc<NodeCopy<'c>>>,
    placed: Vec<(usize, usize)>,
}

/// `Continue`: nothing was found yet. `Break(None)`: a limit was reached.
type SearchFlow = ControlFlow<Option<Relocation>>;

struct RelocationSearch<'c, 'a> {
    core: &'c Core,
    /// The first is the pod that room is made for.
    movers: Vec<PodToPlace<'c>>,
    by_slot: BTreeMap<usize, Vec<usize>>,
    slots: Vec<usize>,
    spanning: PreFilterState<'a>,
    looks: usize,
    refused: usize,
    now_ms: u64,
    scratch: Scratch,
    accept: &'a mut dyn FnMut(&Relocation) -> bool,
}

impl Core {
    /// The fewest moves that make room for a pod. `may_move`: whether a pod may be evicted; more important ones than
    /// the pod never are. `accept`: whether the caller takes what was found.
    pub fn relocation(
        &self,
        pod: &PodView,
        may_move: &dyn Fn(&PodView) -> bool,
        limits: SearchLimits,
        now_ms: u64,
        accept: &mut dyn FnMut(&Relocation) -> bool,
    ) -> SearchOutcome {
        let profile = match self.relocatable(pod, now_ms) {
            Ok(profile) => profile,
            Err(reason) => return SearchOutcome::Unprovable(reason),
        };
        let target = PodToPlace { id: PodId(u64::MAX), pod: pod.clone(), profile, from: None };
        let slots: Vec<usize> =
            self.node_order.iter().copied().filter(|slot| !self.is_expecting(*slot)).collect();
        let mut movers = vec![target];
        let mut by_slot: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for slot in slots.iter().copied() {
            let residents = self.nodes[slot].residents.range(..=(pod.priority, PodId(u64::MAX)));
            for (_, id) in residents {
                let Some(mover) =
                    self.mover(*id, slot, now_ms).filter(|_| self.view(*id).is_some_and(may_move))
                else {
                    continue;
                };
                by_slot.entry(slot).or_default().push(movers.len());
                movers.push(mover);
            }
        }
        let mut search = RelocationSearch {
            core: self,
            movers,
            by_slot,
            slots,
            spanning: self.pre_filter(pod, profile, now_ms),
            looks: limits.looks,
            refused: 0,
            now_ms,
            scratch: Scratch::default(),
            accept,
        };
        for budget in 0..=limits.moves {
            match search.settle(&SearchState::default(), &[0], budget) {
                ControlFlow::Continue(()) => {}
                ControlFlow::Break(Some(found)) => return SearchOutcome::Found(found),
                ControlFlow::Break(None) => return SearchOutcome::Limited,
            }
        }
        SearchOutcome::Nothing
    }

    /// The profile of a pod whose verdict about a node depends on that node alone, and on zones as the ledger has them.
    fn relocatable(&self, pod: &PodView, now_ms: u64) -> Result<&Profile, &'static str> {
        let Some(profile) = self.settings.profiles.iter().find(|profile| profile.name == pod.scheduler)
        else {
            return Err("another scheduler places it");
        };
        if profile.zone_filter().is_some() && !filters_exactly(profile) {
            return Err("its profile does not account for zones exactly");
        }
        if pod.group.is_some() || pod.spec.in_group {
            return Err("it is placed with others of its group");
        }
        if pod.spec.spans_nodes() || profile.plugins.spread.are_required() {
            return Err("affinity or spread constraints make it look at other nodes");
        }
        match self.pre_filter(pod, profile, now_ms).is_empty() {
            true => Ok(profile),
            false => Err("volumes, claims or constraints of other pods decide about its nodes"),
        }
    }

    /// A running pod that could be placed again.
    fn mover(&self, id: PodId, slot: usize, now_ms: u64) -> Option<PodToPlace<'_>> {
        let entry = self.pods.get(&id)?;
        let (view, progress) = (&entry.view, entry.view.progress);
        let runs = matches!(entry.lifecycle, Lifecycle::Bound { .. }) && progress.admitted;
        let is_counted = entry.charged.as_ref().is_some_and(|charged| **charged == *view.spec.needs);
        if !runs || progress.is_ending() || !is_counted || self.is_evicted(id) {
            return None;
        }
        let pod = recreated(view, now_ms);
        let profile = self.relocatable(&pod, now_ms).ok()?;
        Some(PodToPlace { id, pod, profile, from: Some((slot, view)) })
    }
}

/// The pod as its controller makes it again, without a node.
#[must_use]
pub fn recreated(pod: &PodView, now_ms: u64) -> PodView {
    let name = format!("{}-again", pod.name);
    PodView {
        uid: format!("{} again", pod.uid).into(),
        hash: topology::fingerprint::PodHash::of(&pod.namespace, &name),
        name: name.into(),
        node: None,
        created_s: now_ms / 1_000,
        charged: Arc::clone(&pod.spec.needs),
        allocated: Arc::clone(&pod.spec.needs),
        progress: Progress::default(),
        nominated: None,
        started_s: None,
        ended_s: None,
        unschedulable: None,
        ..pod.clone()
    }
}

impl<'c> SearchState<'c> {
    fn node(&self, core: &'c Core, slot: usize) -> Option<Rc<NodeCopy<'c>>> {
        match self.nodes.get(&slot) {
            Some(node) => Some(Rc::clone(node)),
            None => NodeCopy::new(core, slot).map(Rc::new),
        }
    }

    fn is_placed(&self, mover: usize) -> bool {
        self.placed.iter().any(|(placed, _)| *placed == mover)
    }
}

impl<'c> RelocationSearch<'c, '_> {
    /// Finds nodes for movers, the last first, with at most so many more moves.
    fn settle(&mut self, state: &SearchState<'c>, waiting: &[usize], budget: usize) -> SearchFlow {
        let Some((mover, rest)) = waiting.split_last() else { return self.offer(state) };
        let left = self.movers[*mover].from.map(|(slot, _)| slot);
        let slots: Vec<usize> = self.slots.iter().copied().filter(|slot| Some(*slot) != left).collect();
        let mut fitting = Vec::new();
        for slot in &slots {
            let Some(node) = state.node(self.core, *slot) else { continue };
            if self.fits(*mover, &node)? {
                fitting.push((node.free(ResourceName::CPU), *slot, node));
            }
        }
        let has_room: Vec<usize> = fitting.iter().map(|(_, slot, _)| *slot).collect();
        fitting.sort_by_key(|(free, slot, _)| (*free, *slot));
        for (_, slot, node) in fitting.into_iter().take(MAX_DESTINATIONS) {
            let state = self.placed(state, *mover, (slot, (*node).clone()));
            self.settle(&state, rest, budget)?;
        }
        for slot in slots.into_iter().filter(|slot| budget > 0 && !has_room.contains(slot)) {
            self.make_room(state, (*mover, slot), rest, budget)?;
        }
        ControlFlow::Continue(())
    }

    /// Puts a mover on a node that others leave for it, and finds nodes for those.
    fn make_room(
        &mut self,
        state: &SearchState<'c>,
        (mover, slot): (usize, usize),
        rest: &[usize],
        budget: usize,
    ) -> SearchFlow {
        let Some(node) = state.node(self.core, slot) else { return ControlFlow::Continue(()) };
        let mut residents = self.by_slot.get(&slot).cloned().unwrap_or_default();
        residents.retain(|resident| *resident != mover && !state.is_placed(*resident));
        residents.retain(|resident| !rest.contains(resident));
        let all = self.without(&node, &residents);
        if residents.is_empty() || !self.fits(mover, &all)? {
            return ControlFlow::Continue(());
        }
        for size in 1..=budget.min(residents.len()) {
            if !self.could_free(mover, &node, &residents, size) {
                continue;
            }
            for set in residents.iter().copied().combinations(size) {
                self.look()?;
                if !self.could_fit(mover, &node, &set) {
                    continue;
                }
                let left = self.without(&node, &set);
                if !self.fits(mover, &left)? {
                    continue;
                }
                let state = self.placed(state, mover, (slot, left));
                let waiting = [rest, &set].concat();
                self.settle(&state, &waiting, budget - size)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Shows the caller a relocation.
    fn offer(&mut self, state: &SearchState<'c>) -> SearchFlow {
        let name = |slot: usize| Arc::clone(&self.core.nodes[slot].name);
        let mut moves = Vec::new();
        let mut node = None;
        // A pod that makes room for another was decided about after it, and goes before it.
        for (mover, slot) in state.placed.iter().rev() {
            match self.movers[*mover].from {
                Some((from, view)) => {
                    moves.push(Move { pod: view.clone(), from: name(from), to: name(*slot) })
                }
                None => node = Some(name(*slot)),
            }
        }
        let Some(node) = node else { return ControlFlow::Continue(()) };
        let relocation = Relocation { moves, node };
        if (self.accept)(&relocation) {
            return ControlFlow::Break(Some(relocation));
        }
        self.refused += 1;
        if self.refused < MAX_REFUSED { ControlFlow::Continue(()) } else { ControlFlow::Break(None) }
    }

    /// Counts a look at a pod or a set of pods on a node.
    fn look(&mut self) -> SearchFlow {
        match self.looks.checked_sub(1) {
            None => ControlFlow::Break(None),
            Some(left) => {
                self.looks = left;
                ControlFlow::Continue(())
            }
        }
    }

    fn fits(&mut self, mover: usize, node: &NodeCopy<'_>) -> ControlFlow<Option<Relocation>, bool> {
        self.look()?;
        let PodToPlace { pod, profile, .. } = &self.movers[mover];
        let verdict = node.check((pod, profile), &self.spanning, self.now_ms, &mut self.scratch);
        ControlFlow::Continue(verdict.is_ok())
    }

    fn amount(&self, mover: usize, name: ResourceName) -> i64 {
        crate::node::amount(&self.movers[mover].pod.spec.needs.totals, name)
    }

    /// Whether the node's totals would have enough without these.
    fn could_fit(&self, mover: usize, node: &NodeCopy<'_>, set: &[usize]) -> bool {
        self.movers[mover].pod.spec.needs.totals.iter().all(|need| {
            let freed: i64 = set.iter().map(|leaving| self.amount(*leaving, need.name)).sum();
            node.free(need.name) + freed >= need.amount
        })
    }

    /// Whether any so many of these could be enough, by each resource alone.
    fn could_free(&self, mover: usize, node: &NodeCopy<'_>, residents: &[usize], size: usize) -> bool {
        self.movers[mover].pod.spec.needs.totals.iter().all(|need| {
            let mut amounts: Vec<i64> = residents.iter().map(|one| self.amount(*one, need.name)).collect();
            amounts.sort_unstable_by_key(|amount| std::cmp::Reverse(*amount));
            let freed: i64 = amounts.iter().take(size).sum();
            node.free(need.name) + freed >= need.amount
        })
    }

    fn without(&mut self, node: &NodeCopy<'c>, set: &[usize]) -> NodeCopy<'c> {
        let mut node = node.clone();
        for mover in set {
            let PodToPlace { id, from, .. } = &self.movers[*mover];
            if let Some((_, view)) = from {
                node.remove(*id, view, &mut self.scratch);
            }
        }
        node
    }

    fn placed(
        &mut self,
        state: &SearchState<'c>,
        mover: usize,
        (slot, mut node): (usize, NodeCopy<'c>),
    ) -> SearchState<'c> {
        let PodToPlace { id, pod, .. } = &self.movers[mover];
        node.add(*id, pod, &mut self.scratch);
        let mut state = state.clone();
        state.nodes.insert(slot, Rc::new(node));
        state.placed.push((mover, slot));
        state
    }
}
