//! The metric of pods that kubelets reject.
//!
//! In: rejected pods, the core. Out: a series for each node, controller and reason. Never: more than [`MAX_SERIES`], or
//! one of a node that is gone: controllers and nodes come and go.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::core::{Core, RejectedPod};

/// Most series. Of more, the one that has not been counted for longest goes.
const MAX_SERIES: usize = 500;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RejectionLabels {
    node: String,
    /// The controller: `ReplicaSet ns/name`. Empty for pods without one.
    owner: String,
    reason: String,
    /// `tholepin`, or `other`.
    placed_by: &'static str,
}

/// The handles.
#[derive(Clone, Debug, Default)]
pub(super) struct RejectionMetrics {
    rejections: Family<RejectionLabels, Counter>,
    backing_off: Gauge,
    /// The series, the one counted last at the end.
    series: Arc<Mutex<VecDeque<RejectionLabels>>>,
}

impl RejectionMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "tholepin_scheduler_kubelet_rejections",
            "Number of pods that a kubelet has rejected for what its resource managers would give them, by controller and \
             by who has placed them: tholepin, or other",
            metrics.rejections.clone(),
        );
        registry.register(
            "tholepin_scheduler_controllers_backing_off",
            "Number of controllers whose next pods wait, or come one by one, because kubelets have rejected others of theirs",
            metrics.backing_off.clone(),
        );
        metrics
    }

    /// Counts a rejected pod. Cost: the series.
    pub(super) fn count(&self, rejected: &RejectedPod) {
        let owner = rejected.pod.rejection.as_deref().and_then(|rejection| rejection.owner.as_ref());
        let owner = owner.map(|owner| format!("{} {}/{}", owner.kind, rejected.pod.namespace, owner.name));
        let labels = RejectionLabels {
            node: rejected.pod.node.as_deref().unwrap_or_default().to_owned(),
            owner: owner.unwrap_or_default(),
            reason: rejected.reason.to_string(),
            placed_by: if rejected.is_ours { "tholepin" } else { "other" },
        };
        self.rejections.get_or_create(&labels).inc();
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        series.retain(|known| *known != labels);
        series.push_back(labels);
        if series.len() > MAX_SERIES
            && let Some(oldest) = series.pop_front()
        {
            self.rejections.remove(&oldest);
        }
    }

    /// Takes the series of nodes that are gone away, and counts controllers. Cost: the series.
    pub(super) fn observe(&self, core: &Core) {
        self.backing_off.set(i64::try_from(core.controllers_backing_off()).unwrap_or(i64::MAX));
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        series.retain(|labels| {
            let stays = core.has_node(&labels.node);
            if !stays {
                self.rejections.remove(labels);
            }
            stays
        });
    }

    /// Gives the family a sample.
    pub(super) fn specimen(&self) {
        let labels = RejectionLabels {
            node: "worker-1".to_owned(),
            owner: "ReplicaSet shop/cart".to_owned(),
            reason: "TopologyAffinityError".to_owned(),
            placed_by: "tholepin",
        };
        drop(self.rejections.get_or_create(&labels));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // failing loudly is what a test is for

    use prometheus_client::encoding::text::encode;
    use serde_json::json;

    use super::*;
    use crate::config::default_settings;
    use crate::core::Event;
    use crate::node::NodeView;
    use crate::pod::PodView;

    fn rejected(owner: usize) -> RejectedPod {
        let reference = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("r{owner}"), "uid": format!("u{owner}"),
            "controller": true,
        });
        let pod = json!({
            "metadata": { "name": "p", "namespace": "ns", "uid": "p", "ownerReferences": [reference] },
            "spec": { "nodeName": "n", "containers": [] },
            "status": { "phase": "Failed", "reason": "TopologyAffinityError" },
        });
        let pod = PodView::read(&serde_json::from_value(pod).unwrap());
        RejectedPod {
            pod,
            reason: "TopologyAffinityError".into(),
            is_ours: true,
            times: 1,
            is_discarded: false,
        }
    }

    #[test]
    fn series_are_bounded_and_go_with_their_node() {
        let mut registry = Registry::default();
        let metrics = RejectionMetrics::register(&mut registry);
        for owner in (0..MAX_SERIES).chain([0, MAX_SERIES]) {
            metrics.count(&rejected(owner));
        }
        let lines = |registry: &Registry| -> Vec<String> {
            let mut text = String::new();
            encode(&mut text, registry).unwrap();
            text.lines().filter(|line| line.contains("_rejections_total{")).map(str::to_owned).collect()
        };
        let counted = lines(&registry);
        let of = |owner: usize| {
            let label = format!("owner=\"ReplicaSet ns/r{owner}\"");
            counted.iter().find(|line| line.contains(&label)).and_then(|line| line.rsplit(' ').next())
        };
        assert_eq!((counted.len(), of(0), of(1), of(MAX_SERIES)), (MAX_SERIES, Some("2"), None, Some("1")));
        let mut core = Core::new(default_settings(0));
        core.handle(Event::Node(NodeView { name: "n".into(), ..NodeView::default() }), 0);
        metrics.observe(&core);
        assert_eq!(lines(&registry).len(), MAX_SERIES);
        core.handle(Event::NodeGone("n".into()), 0);
        metrics.observe(&core);
        assert_eq!(lines(&registry), [""; 0]);
    }
}
