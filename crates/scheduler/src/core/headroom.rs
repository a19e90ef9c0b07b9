//! How many more pods like one each node has room for, node by node.
//!
//! In: a pod, the state of the core. Out: a number for each node, and the reasons against one more. Never: a change of
//! the core; a number where a pod on one node counts on another, for then the order of nodes would matter.
//!
//! Each pod counts as running before the next one is tried. Pods that wait for a node take nothing.
//!
//! Cost: for each pod that fits, a filter and a charge of the ledger; for each node, a copy of its ledger.

use std::sync::Arc;

use super::decision::unsupported;
use super::node_copy::NodeCopy;
use super::search::Reasons;
use super::trial::{IncomingPod, filters_exactly};
use super::{Core, Profile};
use crate::cycle::PreFilterState;
use crate::ledger::{PodId, Scratch};
use crate::pod::{PodView, Spec};
use crate::reason::Refusals;

/// The room of all nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Headroom {
    /// How many fit, by node, in the order of their arrival.
    pub nodes: Vec<(Arc<str>, usize)>,
    /// Why no further pod fits anywhere, as its FailedScheduling event would say; `None`: counting ended at a limit.
    pub message: Option<String>,
}

impl Core {
    /// The room for pods like this one, at most `limit` on a node. `None`: such pods count on other nodes as well (by
    /// spread or affinity), have volumes or claims, zones are not filtered exactly, or no profile is the pod's.
    pub fn headroom(&mut self, pod: &PodView, limit: usize, now_ms: u64) -> Option<Headroom> {
        let profile = self.settings.profiles.iter().find(|profile| profile.name == pod.scheduler)?.clone();
        let profile = &profile;
        if profile.zone_filter().is_some() && !filters_exactly(profile) {
            return None;
        }
        let mut pod = pod.clone();
        if let Some(spread) = self.default_spread(&pod, profile) {
            pod.spec = Arc::new(Spec { spread, ..(*pod.spec).clone() });
        }
        let spec = Arc::clone(&pod.spec);
        if let Some(message) = unsupported(&spec, self.node_order.len()) {
            let nodes = self.node_order.iter().map(|slot| (Arc::clone(&self.nodes[*slot].name), 0));
            return Some(Headroom { nodes: nodes.collect(), message: Some(message) });
        }
        spec.selectors().for_each(|pods| self.selections.follow(pods));
        let mut scratch = std::mem::take(&mut self.scratch);
        let spanning = self.pre_filter(&pod, profile, now_ms);
        let headroom = spanning.is_empty().then(|| {
            let mut refusals = Refusals::default();
            let mut is_limited = false;
            let mut headroom_on = |slot: &usize| {
                let (fits, against) =
                    self.headroom_on((*slot, limit), (&pod, profile), &spanning, now_ms, &mut scratch);
                is_limited |= fits == limit;
                against.iter().for_each(|reason| refusals.add(*reason));
                (Arc::clone(&self.nodes[*slot].name), fits)
            };
            let nodes: Vec<_> = self.node_order.iter().map(&mut headroom_on).collect();
            let message = (!is_limited).then(|| match nodes.len() {
                0 => "no nodes available to schedule pods".to_owned(),
                count => refusals.message(count, &spec.needs),
            });
            Headroom { nodes, message }
        });
        self.scratch = scratch;
        headroom
    }

    /// How many fit on one node, and what speaks against one more.
    fn headroom_on<'c>(
        &'c self,
        (slot, limit): (usize, usize),
        (pod, profile): (&PodView, &Profile),
        spanning: &PreFilterState<'c>,
        now_ms: u64,
        scratch: &mut Scratch,
    ) -> (usize, Reasons) {
        let Some(mut copy) = NodeCopy::new(self, slot) else { return (0, Reasons::new()) };
        for number in 0..limit {
            // No pod of the core has it.
            let id = PodId(u64::MAX - number as u64);
            if let Err(reason) = copy.check((pod, profile), spanning, now_ms, scratch) {
                let incoming = IncomingPod { id, rank: None, pod, profile, now_ms };
                return (number, self.all_reasons(incoming, slot, (reason, Some(Box::new(copy.totals)))));
            }
            copy.add(id, pod, scratch);
        }
        (limit, Reasons::new())
    }
}
