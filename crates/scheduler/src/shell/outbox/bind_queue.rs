//! Bindings that wait to be sent.
//!
//! In: bindings in the order of decisions. Out: the next one to send. Never: two pods that hold something in zones to
//! one node at a time, or in another order than that of the decisions, which its kubelet has to follow. Other pods
//! follow no order. A pod that waits for its volumes is not here: its binding comes last (`core/volumes`).
//!
//! Among lanes the highest priority comes first, then the oldest decision. Cost: waiting bindings, which [`MAX_OPEN`]
//! bounds.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::core::Binding;
use crate::ledger::PodId;
use crate::pod::PodView;

/// The most bindings in flight over all nodes; each has a connection of its own.
pub(super) const MAX_BINDS: usize = 32;
/// The most bindings that wait or are in flight before decisions pause: a later pod of high priority would wait behind
/// all of them.
pub(crate) const MAX_OPEN: usize = MAX_BINDS + 256;

/// Bindings that follow each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    /// Those to a node of pods that hold something in zones.
    Node(Arc<str>),
    /// That of one pod, which follows none.
    Pod(PodId),
}

impl Lane {
    fn of(binding: &Binding) -> Self {
        match binding.is_ordered {
            true => Self::Node(Arc::clone(&binding.node)),
            false => Self::Pod(binding.id),
        }
    }
}

/// Waiting bindings, and the lanes with one in flight.
#[derive(Debug, Default)]
pub(super) struct BindQueue {
    /// In the order of decisions, with their numbers.
    waiting: BTreeMap<Lane, VecDeque<(u64, Binding)>>,
    busy: BTreeSet<Lane>,
    decisions: u64,
}

impl BindQueue {
    /// Adds a binding, after all earlier ones of its lane.
    pub(super) fn push(&mut self, binding: Binding) {
        self.decisions += 1;
        self.waiting.entry(Lane::of(&binding)).or_default().push_back((self.decisions, binding));
    }

    /// Takes the next binding to send; `None` while none may be sent. Its lane is busy until [`Self::done`].
    /// `is_kept_back`: whether a pod may not be bound yet; those after it on its lane wait as well.
    pub(super) fn next(&mut self, is_kept_back: impl Fn(&PodView) -> bool) -> Option<Binding> {
        if self.busy.len() >= MAX_BINDS {
            return None;
        }
        let urgency = |queue: &VecDeque<(u64, Binding)>| {
            let highest = queue.iter().map(|(_, binding)| binding.pod.priority).max();
            (Reverse(highest), queue.front().map(|(number, _)| *number))
        };
        let may_go = |queue: &VecDeque<(u64, Binding)>| {
            queue.front().is_some_and(|(_, binding)| !is_kept_back(&binding.pod))
        };
        let free = self.waiting.iter().filter(|(lane, queue)| !self.busy.contains(*lane) && may_go(queue));
        let lane = free.min_by_key(|(_, queue)| urgency(queue))?.0.clone();
        let queue = self.waiting.get_mut(&lane)?;
        let (_, binding) = queue.pop_front()?;
        if queue.is_empty() {
            self.waiting.remove(&lane);
        }
        self.busy.insert(lane);
        Some(binding)
    }

    /// Takes the binding of a pod out; `None` if it does not wait.
    pub(super) fn withdraw(&mut self, id: PodId) -> Option<Binding> {
        let is_its = |(_, binding): &(u64, Binding)| binding.id == id;
        let lane = self.waiting.iter().find(|(_, queue)| queue.iter().any(is_its))?.0.clone();
        let queue = self.waiting.get_mut(&lane)?;
        let (_, binding) = queue.remove(queue.iter().position(is_its)?)?;
        if queue.is_empty() {
            self.waiting.remove(&lane);
        }
        Some(binding)
    }

    /// A binding in flight has ended.
    pub(super) fn done(&mut self, binding: &Binding) {
        self.busy.remove(&Lane::of(binding));
    }

    /// Drops the bindings that were not sent yet.
    pub(super) fn drop_waiting(&mut self) {
        self.waiting.clear();
    }

    /// Whether any binding waits to be sent.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether any binding is in flight.
    pub(super) fn is_busy(&self) -> bool {
        !self.busy.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn binding(id: u64, node: &str, priority: i32) -> Binding {
        let object = json!({ "metadata": { "name": format!("p{id}") }, "spec": { "priority": priority, "containers": [] } });
        let pod = PodView::read(&serde_json::from_value(object).unwrap());
        let (attempts, first_attempt_ms, attempt_ms) = (1, 0, 0);
        let (id, node, is_ordered, relied_on) = (PodId(id), node.into(), true, Vec::new());
        Binding { id, pod, node, is_ordered, relied_on, attempts, first_attempt_ms, attempt_ms }
    }

    #[test]
    fn priority_then_age_decide_among_nodes_and_age_alone_on_one() {
        let mut queue = BindQueue::default();
        for (id, node, priority) in [(1, "z", 0), (2, "a", 0), (3, "z", 0), (4, "m", 0), (5, "m", 9)] {
            queue.push(binding(id, node, priority));
        }
        let sent: Vec<u64> =
            std::iter::from_fn(|| queue.next(|_| false)).map(|binding| binding.id.0).collect();
        assert_eq!(sent, [4, 1, 2], "m has the important pod, z the oldest");
        queue.done(&binding(4, "m", 0));
        queue.done(&binding(1, "z", 0));
        let sent: Vec<u64> =
            std::iter::from_fn(|| queue.next(|_| false)).map(|binding| binding.id.0).collect();
        assert_eq!(sent, [5, 3]);
    }

    #[test]
    fn what_waits_can_be_withdrawn_and_what_is_sent_cannot() {
        let mut queue = BindQueue::default();
        (1..4).for_each(|id| queue.push(binding(id, "n", 0)));
        let sent = queue.next(|_| false).unwrap();
        let withdrawn = |queue: &mut BindQueue, id| queue.withdraw(PodId(id)).map(|binding| binding.id.0);
        assert_eq!((withdrawn(&mut queue, 1), withdrawn(&mut queue, 2)), (None, Some(2)));
        queue.done(&sent);
        assert_eq!(queue.next(|_| false).unwrap().id.0, 3);
        assert_eq!(withdrawn(&mut queue, 3), None);
    }

    #[test]
    fn pods_that_hold_nothing_in_zones_follow_no_order() {
        let mut queue = BindQueue::default();
        for id in 0..4 {
            queue.push(Binding { is_ordered: id % 2 == 1, ..binding(id, "n", 0) });
        }
        let sent: Vec<u64> =
            std::iter::from_fn(|| queue.next(|_| false)).map(|binding| binding.id.0).collect();
        assert_eq!(sent, [0, 1, 2], "3 follows 1");
    }

    #[test]
    fn flights_are_bounded() {
        let mut queue = BindQueue::default();
        for id in 0..300 {
            queue.push(binding(id, &format!("n{id}"), 0));
        }
        assert_eq!(std::iter::from_fn(|| queue.next(|_| false)).count(), MAX_BINDS);
    }

    /// A pod whose status is being written is bound afterwards, and what follows it on its node after that.
    #[test]
    fn a_pod_that_is_kept_back_keeps_its_node_waiting() {
        let mut queue = BindQueue::default();
        for (id, node) in [(1, "n"), (2, "n"), (3, "m")] {
            queue.push(binding(id, node, 0));
        }
        let writes = |pod: &PodView| &*pod.name == "p1";
        let sent: Vec<u64> = std::iter::from_fn(|| queue.next(writes)).map(|binding| binding.id.0).collect();
        assert_eq!(sent, [3]);
        let sent: Vec<u64> =
            std::iter::from_fn(|| queue.next(|_| false)).map(|binding| binding.id.0).collect();
        assert_eq!(sent, [1]);
    }
}
