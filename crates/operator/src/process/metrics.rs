//! Metrics of the process beside those of its parts.
//!
//! In: the shared cluster state. Out: metrics, computed when they are read. Never: a copy of the cluster state.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use api::numaresources::{operator, scheduler};

use crate::reconcile::Shared;

/// Adds these metrics to a registry.
pub(super) fn register(registry: &mut Registry, shared: &Arc<Shared>) {
    registry.register_collector(Box::new(StateCollector(Arc::clone(shared))));
}

#[derive(Debug)]
struct StateCollector(Arc<Shared>);

impl Collector for StateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let gauge = |count: usize| ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
        let name = "tholepin_operator_unreadable_objects";
        let help = "Users' objects that cannot be read; what was made for them stays as it is";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for kind in [operator::KIND, scheduler::KIND] {
            let count =
                self.0.read(|cluster| cluster.unreadable.keys().filter(|(of, _)| *of == kind).count());
            gauge(count).encode(metric.encode_family(&[("kind", kind)])?)?;
        }
        let name = "tholepin_operator_nodes";
        let metric =
            encoder.encode_descriptor(name, "Nodes in the cluster state", None, MetricType::Gauge)?;
        gauge(self.0.read(|cluster| cluster.nodes.len())).encode(metric)
    }
}
