//! The spread constraints that a profile gives to pods without any.
//!
//! In: pods to be tried, and the objects that select pods. Out: pods with constraints. Never: a constraint beside those
//! that a pod states.
//!
//! Source: kube-scheduler 1.36 `podtopologyspread` `buildDefaultConstraints`. A pod's selector is looked up when the
//! pod is tried. Where constraints are required, a pod keeps them while it waits, since its verdict depends on them,
//! and a change of what selects it wakes it.

use std::sync::Arc;

use super::{Core, Profile};
use crate::default_selector::{SelectingKey, SelectingView};
use crate::ledger::PodId;
use crate::plugins::pod_topology_spread::SpreadConstraint;
use crate::pod::{PodView, Spec};

impl Core {
    /// An object that selects pods is there, or has changed.
    pub(super) fn selecting(&mut self, view: SelectingView) {
        let namespace = Arc::clone(&view.key.namespace);
        if self.default_selectors.set(view) {
            self.reselected(&namespace);
        }
    }

    /// An object that selects pods is gone.
    pub(super) fn selecting_gone(&mut self, key: &SelectingKey) {
        if self.default_selectors.remove(key) {
            self.reselected(&key.namespace);
        }
    }

    /// Wakes waiting pods of a namespace whose required constraints are others by now. Cost: nothing unless a profile
    /// has such; else a look at each waiting pod.
    fn reselected(&mut self, namespace: &str) {
        if !self.settings.profiles.iter().any(|profile| profile.plugins.spread.are_required()) {
            return;
        }
        let is_turned = |id: &PodId| {
            let (Some(entry), Some(profile)) = (self.pods.get(id), self.profile_of(*id)) else {
                return false;
            };
            &*entry.view.namespace == namespace
                && profile.plugins.spread.are_required()
                && self.default_spread(&entry.view, profile).is_some()
        };
        let turned: Vec<PodId> = self.queue.waiting().filter(is_turned).collect();
        turned.into_iter().for_each(|id| self.queue.wake(id));
    }

    /// Gives a pod that is tried its default constraints.
    pub(super) fn spread_by_default(&mut self, id: PodId, pod: &mut PodView, profile: &Profile) {
        let Some(spread) = self.default_spread(pod, profile) else { return };
        pod.spec = Arc::new(Spec { spread, ..(*pod.spec).clone() });
        if let Some(entry) = self.pods.get_mut(&id).filter(|_| profile.plugins.spread.are_required()) {
            entry.view.spec = Arc::clone(&pod.spec);
            self.queue.respecify(id, &pod.spec);
        }
    }

    /// The default constraints of a pod; `None` if it has them already, or states some.
    pub(super) fn default_spread(&self, pod: &PodView, profile: &Profile) -> Option<Vec<SpreadConstraint>> {
        if !pod.spec.has_default_spread() {
            return None;
        }
        let spread = profile.plugins.spread.constraints(pod, &self.default_selectors);
        (spread != pod.spec.spread).then_some(spread)
    }
}
