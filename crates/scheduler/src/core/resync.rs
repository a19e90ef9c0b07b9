//! The periodic resync of nodes that are accounted for as upstream's plugin does.
//!
//! In: the time. Out: nodes whose newest report counts from now on. Never: a pod that is woken; the next event wakes.
//! Cost: a walk over all pods, every period in which a node has refused a pod.

use std::collections::BTreeMap;

use api::schedulerconfig::ResyncMethod;
use topology::fingerprint::PodHash;
use topology::request::PodNeeds;

use super::{Core, Lifecycle, Settings, Timer};
use crate::cycle::Accounting;

impl Settings {
    /// The shortest time between two resyncs that a profile asks for; `None`: all profiles count exactly.
    pub(super) fn resync_ms(&self) -> Option<u64> {
        self.resync().map(|(period_ms, _)| period_ms)
    }

    /// The same, with the method of that profile: nodes are accounted for once, whatever the profiles.
    fn resync(&self) -> Option<(u64, ResyncMethod)> {
        let numa = self.profiles.iter().filter_map(|profile| profile.numa.as_ref());
        let resyncs = numa.filter_map(|numa| match numa.accounting {
            Accounting::Exact => None,
            Accounting::OverReserve { resync_ms, method, .. } => Some((resync_ms.max(1), method)),
        });
        resyncs.min_by_key(|(period_ms, _)| *period_ms)
    }
}

impl Core {
    pub(super) fn resync(&mut self, now_ms: u64) {
        let Some((period_ms, method)) = self.settings.resync() else { return };
        self.timers.insert((now_ms + period_ms, Timer::Resync));
        let slots = self.node_order.iter().copied();
        let mut running: BTreeMap<usize, Vec<(PodHash, &PodNeeds)>> = slots
            .filter(|slot| self.nodes[*slot].over_reserve.needs_resync())
            .map(|slot| (slot, Vec::new()))
            .collect();
        if running.is_empty() {
            return;
        }
        for entry in self.pods.values() {
            let progress = entry.view.progress;
            let exists = !matches!(entry.lifecycle, Lifecycle::Ended { .. });
            let on = entry.lifecycle.slot().filter(|_| exists && progress.admitted && !progress.terminal);
            if let Some(pods) = on.and_then(|slot| running.get_mut(&slot)) {
                pods.push((entry.view.hash, &entry.view.spec.needs));
            }
        }
        for (slot, pods) in running {
            if self.nodes[slot].over_reserve.resync(method, pods.into_iter()) {
                self.resynced.insert(slot);
            }
        }
    }
}
