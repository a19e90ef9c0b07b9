//! Models of kubelets that nodes have in common.
//!
//! In: reports. Out: the kubelet of each, of which equal nodes share one. Never: a model of another machine or
//! configuration.
//!
//! Most clusters have a few kinds of nodes, so a few models do for thousands. Cost: a comparison with each kept model,
//! for the first report of a node.

use std::collections::VecDeque;
use std::sync::Arc;

use topology::kubelet::start::{KubeletStart, PolicyOptions};
use topology::zone::NodeTopology;

/// Most models that later nodes may share. More kinds of nodes have a model of their own each.
const MAX_MODELS: usize = 16;

/// The models that were made last, with the reports behind them.
#[derive(Debug, Default)]
pub(super) struct KubeletModelCache(VecDeque<(Arc<NodeTopology>, KubeletStart)>);

impl KubeletModelCache {
    /// The kubelet of a node whose report says all that its model needs, and which may reject pods for what they get in
    /// zones. Resources of whole pods (`PodLevelResourceManagers`) are not modelled here.
    pub(super) fn of(&mut self, topology: &Arc<NodeTopology>) -> Option<KubeletStart> {
        let report = topology.kubelet.as_deref()?;
        if report.minor.is_none() || report.pod_level_managers {
            return None;
        }
        if let Some(shared) = self.0.iter().find_map(|(known, start)| start.later(known, topology)) {
            return Some(shared);
        }
        let start = KubeletStart::new(topology, PolicyOptions::default()).ok()?;
        self.0.truncate(MAX_MODELS - 1);
        self.0.push_front((Arc::clone(topology), start.clone()));
        Some(start)
    }
}
