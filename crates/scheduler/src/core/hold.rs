//! A node held for a pod that waits long, so that a stream of smaller pods cannot keep it waiting for ever.
//!
//! In: waiting pods, nodes, the time. Out: at most one node, on which nothing is placed but the pod it is held for and
//! pods before that one in the queue. Never: a second node, a pod taken off its node, or a hold without an end.
//!
//! Of the pods that have waited long enough, the first in the queue that could fit some node without the pods there
//! gets the emptiest such node, for a minute. Without success the next pod in the queue has its turn; each further hold
//! for a pod lasts twice as long, up to a day. After each hold no node is held for as long as that one was. A more
//! important pod that has not had its turn yet ends the hold, and has the time after it.
//! - The pod is placed once the other pods of the node end within a hold, which sooner or later lasts as long as they
//!   run, if that is less than a day. Nothing can fill the node meanwhile but pods before it: the more important, and
//!   finitely many older ones.
//! - Nothing starves: of the whole cluster one node is closed, only to later pods, and then open for as long.
//!
//! The price is room that stays empty on one node. Cost, once a pod has waited long enough: a walk over all pods and at
//! most [`MAX_CHECKS`] checks of nodes, every [`LOOK_MS`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use runtime::backoff;

use super::{Core, PodId};
use crate::cycle::{self, Known, PreFilterState};
use crate::node::Node;
use crate::plugins::node_resources_fit;
use crate::pod::{PodView, Spec};
use crate::queue::Rank;

/// Duration of the first hold for a pod, and of the longest.
const FIRST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(24 * 3_600);
/// Time between two looks for a pod that needs a hold, or for a more important one.
const LOOK_MS: u64 = 5_000;
/// Most nodes checked in one look; the next look goes on with the next pod.
const MAX_CHECKS: usize = 20_000;

/// The node that is held, if one is.
#[derive(Debug, Default)]
pub(super) struct Hold {
    held: Option<Held>,
    /// No hold begins before, and none gives way.
    next_look_ms: u64,
    /// The last pod in the queue that had its turn; later ones come next.
    turn: Option<Rank>,
}

#[derive(Debug)]
struct Held {
    rank: Rank,
    slot: usize,
    node: Arc<str>,
    since_ms: u64,
    until_ms: u64,
}

impl Hold {
    /// Whether a node is held.
    pub(super) fn is_active(&self) -> bool {
        self.held.is_some()
    }

    /// Whether the node in this slot is held for a pod before this one.
    pub(super) fn keeps_off(&self, slot: usize, rank: Rank) -> bool {
        self.held.as_ref().is_some_and(|held| held.slot == slot && rank > held.rank)
    }
}

impl Core {
    /// The node that is held, and the pod it is held for.
    #[must_use]
    pub fn held(&self) -> Option<(&Arc<str>, &PodView)> {
        let held = self.hold.held.as_ref()?;
        Some((&held.node, &self.pods.get(&held.rank.pod)?.view))
    }

    /// Ends a hold that is over or of a pod that has to give way, and begins one where a pod needs it.
    pub(super) fn run_hold(&mut self, now_ms: u64) {
        let Some(after_ms) = self.settings.hold_after_ms else { return };
        if let Some(held) = &self.hold.held {
            let is_queued = self.queue.rank(held.rank.pod) == Some(held.rank);
            let exists = self.nodes.get(held.slot).is_some_and(|n| n.name == held.node && n.view.is_some());
            if !is_queued || !exists || now_ms >= held.until_ms {
                self.end_hold_of(held.rank.pod, now_ms);
            }
        }
        if self.hold_due().is_none_or(|due| now_ms < due) {
            return;
        }
        let refused_by_ms = now_ms.saturating_sub(after_ms);
        let before = self.hold.held.as_ref().map(|held| (held.rank, held.since_ms));
        let turn = match before {
            Some((rank, _)) => self.more_important_turn(rank, refused_by_ms, now_ms),
            None => self.next_turn(refused_by_ms, now_ms),
        };
        if let (Some((before, _)), Some(_)) = (before, turn) {
            self.end_hold_of(before.pod, now_ms);
        }
        self.hold.next_look_ms = now_ms + LOOK_MS;
        let Some((rank, slot)) = turn else { return };
        // The rest after the hold is that of both.
        let since_ms = before.map_or(now_ms, |(_, since_ms)| since_ms);
        let lasts_ms = backoff::doubled(FIRST, LONGEST, self.queue.count_hold(rank.pod)).as_millis();
        let until_ms = now_ms.saturating_add(u64::try_from(lasts_ms).unwrap_or(u64::MAX));
        let node = Arc::clone(&self.nodes[slot].name);
        self.hold.held = Some(Held { rank, slot, node, since_ms, until_ms });
    }

    /// Ends the hold for this pod, if it has one.
    pub(super) fn end_hold_of(&mut self, pod: PodId, now_ms: u64) {
        if let Some(held) = self.hold.held.take_if(|held| held.rank.pod == pod) {
            self.hold.next_look_ms = now_ms + now_ms.saturating_sub(held.since_ms);
            self.groups.renew();
            self.changed.insert(held.slot);
            self.freed.insert(held.slot);
        }
    }

    /// The time at which a hold ends, or may begin, or may have to give way.
    pub(super) fn hold_due(&self) -> Option<u64> {
        let after_ms = self.settings.hold_after_ms?;
        match &self.hold.held {
            Some(held) => Some(held.until_ms.min(self.hold.next_look_ms)),
            None => {
                let longest = self.queue.longest_refused_ms()?;
                Some(self.hold.next_look_ms.max(longest.saturating_add(after_ms)))
            }
        }
    }

    /// The next pod that was refused by then and could fit somewhere, with the slot of the node to hold.
    fn next_turn(&mut self, refused_by_ms: u64, now_ms: u64) -> Option<(Rank, usize)> {
        let heads = self.queue.heads_after(self.hold.turn);
        let heads: Vec<_> = heads.map(|(rank, head)| (rank, Arc::clone(&head.spec))).collect();
        let (last, turn) = self.first_that_could_fit(&heads, refused_by_ms, now_ms);
        self.hold.turn = last;
        turn
    }

    /// The first pod that is more important than this one, has not had its turn, was refused by then and could fit
    /// somewhere, with the slot of the node to hold.
    fn more_important_turn(&mut self, than: Rank, refused_by_ms: u64, now_ms: u64) -> Option<(Rank, usize)> {
        let before = self.queue.heads().take_while(|(rank, _)| *rank < than);
        let first =
            before.filter(|(rank, _)| rank.is_more_important(than) && self.queue.holds(rank.pod) == 0);
        let heads: Vec<_> = first.map(|(rank, head)| (rank, Arc::clone(&head.spec))).collect();
        self.first_that_could_fit(&heads, refused_by_ms, now_ms).1
    }

    /// The first of these pods that was refused by then and could fit somewhere, with the slot of the emptiest such
    /// node; and before that the last pod whose turn it was, `None` after all of them.
    fn first_that_could_fit(
        &mut self,
        heads: &[(Rank, Arc<Spec>)],
        refused_by_ms: u64,
        now_ms: u64,
    ) -> (Option<Rank>, Option<(Rank, usize)>) {
        let mut staying = None;
        let mut checks = MAX_CHECKS;
        let mut last = None;
        for (rank, spec) in heads {
            let waits_long = self.queue.refused_ms(rank.pod).is_some_and(|since| since <= refused_by_ms);
            let is_nominated = self.nominations.of(rank.pod).is_some();
            // One node is of no use to a gang.
            let is_in_gang = self.is_in_gang(rank.pod);
            if !waits_long || is_nominated || is_in_gang || !spec.unsupported.is_empty() {
                continue;
            }
            if checks == 0 {
                return (last, None);
            }
            checks = checks.saturating_sub(self.node_order.len());
            last = Some(*rank);
            let staying = staying.get_or_insert_with(|| self.staying());
            if let Some(slot) = self.emptiest((*rank, spec), staying, now_ms) {
                return (last, Some((*rank, slot)));
            }
        }
        (None, None)
    }

    /// The totals of pods that stay as long as their nodes, by slot.
    fn staying(&self) -> BTreeMap<usize, Node> {
        let mut staying: BTreeMap<usize, Node> = BTreeMap::new();
        for entry in self.pods.values().filter(|entry| entry.view.stays) {
            if let (Some(slot), Some(charged)) = (entry.lifecycle.slot(), &entry.charged) {
                let node = staying.entry(slot).or_default();
                node.add(charged);
                node.occupy(&entry.view.spec);
            }
        }
        staying
    }

    /// The node with the most room among those that the pod could fit without the pods there.
    fn emptiest(
        &mut self,
        (rank, spec): (Rank, &Spec),
        staying: &BTreeMap<usize, Node>,
        now_ms: u64,
    ) -> Option<usize> {
        let nothing = Node::default();
        let profile = self.profile_of(rank.pod)?.clone();
        let view = &self.pods.get(&rank.pod)?.view;
        let existing = self.existing_domains((&view.namespace, &view.labels));
        spec.selectors().for_each(|pods| self.selections.follow(pods));
        let (selections, volumes, devices) = (&self.selections, &self.volumes, &self.devices);
        let known = Known { selections, volumes, devices, pod: Some(view), now_ms };
        let spanning = PreFilterState::new(spec, existing, &profile.plugins, &self.nodes, known);
        let emptiness = node_resources_fit::Args::default();
        let requests = emptiness.requests(&spec.needs);
        let mut best: Option<(i64, usize)> = None;
        for slot in &self.node_order {
            let node = &self.nodes[*slot];
            if self.nominations.expects(&node.name) {
                continue;
            }
            let Some(view) = node.view.as_ref().filter(|view| spanning.filter(&view.labels).is_ok()) else {
                continue;
            };
            let staying = staying.get(slot).unwrap_or(&nothing);
            if spanning.filter_volumes(staying, view).is_ok()
                && spanning.filter_claims(view).is_ok()
                && cycle::could_fit(node, staying, (spec, &spanning), &profile, &mut self.scratch)
            {
                let room = emptiness.score(node, view, &requests, None);
                if best.is_none_or(|(most, _)| room > most) {
                    best = Some((room, *slot));
                }
            }
        }
        best.map(|(_, slot)| slot)
    }
}
