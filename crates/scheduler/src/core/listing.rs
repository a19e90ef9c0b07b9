//! Nodes and pods as the core has them, for people who look at the cluster.
//!
//! In: the state of the core. Out: pods by node, pods that wait, revisions, rejected pods. Never: a decision.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Core, Lifecycle, RejectedPod};
use crate::node::Node;
use crate::pod::PodView;

impl Core {
    /// A node by name.
    #[must_use]
    pub fn node_named(&self, name: &str) -> Option<&Node> {
        self.slots.get(name).map(|slot| &self.nodes[*slot]).filter(|node| node.view.is_some())
    }

    /// The existing nodes, each with a number that differs after any change of it.
    pub fn nodes_with_revision(&self) -> impl Iterator<Item = (&Node, u64)> + '_ {
        self.node_order.iter().map(|slot| (&self.nodes[*slot], self.nodes.revision(*slot)))
    }

    /// A pod by uid.
    #[must_use]
    pub fn pod_with_uid(&self, uid: &str) -> Option<&PodView> {
        self.view(*self.ids.get(uid)?)
    }

    /// The node of a pod, if it has one. Cost: all pods.
    #[must_use]
    pub fn node_of_pod(&self, namespace: &str, name: &str) -> Option<Arc<str>> {
        let is_it = |view: &&PodView| *view.namespace == *namespace && *view.name == *name;
        let mut views = self.pods.values().map(|entry| &entry.view);
        views.find(is_it).and_then(|view| view.node.clone())
    }

    /// The pods without a node, whichever scheduler they wait for. Cost: all pods.
    pub fn waiting(&self) -> impl Iterator<Item = &PodView> + '_ {
        let unbound = |view: &&PodView| view.node.is_none() && !view.progress.deleting;
        let entries = self.pods.values().filter(|entry| matches!(entry.lifecycle, Lifecycle::Unbound));
        entries.map(|entry| &entry.view).filter(unbound)
    }

    /// The number of pods that kubelets have rejected and that are still there, by node.
    #[must_use]
    pub fn rejected_pods(&self) -> BTreeMap<&Arc<str>, usize> {
        let mut numbers = BTreeMap::new();
        self.rejections.nodes().for_each(|node| *numbers.entry(node).or_default() += 1);
        numbers
    }

    /// Lets the time pass in a core that decides nothing. Returns the pods that kubelets have rejected since. Bindings
    /// are another process's here, and none is withdrawn.
    pub fn pass_time(&mut self, now_ms: u64) -> Vec<RejectedPod> {
        self.run_timers(now_ms);
        self.withdrawals.clear();
        self.rejections.take_notes()
    }
}
