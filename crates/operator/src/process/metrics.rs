//! What the process counts beside what its parts count.
//!
//! In: the shared world. Out: metrics, worked out when somebody asks. Never: a copy of the world.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use api::numaresources::{operator, scheduler};

use crate::reconcile::Shared;

/// Adds them.
pub(super) fn register(registry: &mut Registry, shared: &Arc<Shared>) {
    registry.register_collector(Box::new(Seen(Arc::clone(shared))));
}

#[derive(Debug)]
struct Seen(Arc<Shared>);

impl Collector for Seen {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let help = "Objects of users that cannot be read; what was made for them stays as it is";
        let mut metric = encoder.encode_descriptor(
            "tholepin_operator_unreadable_objects",
            help,
            None,
            MetricType::Gauge,
        )?;
        for kind in [operator::KIND, scheduler::KIND] {
            let count = self.0.read(|world| world.unreadable.get(kind).map_or(0, |all| all.len()));
            let gauge = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            gauge.encode(metric.encode_family(&[("kind", kind)])?)?;
        }
        let nodes =
            ConstGauge::new(self.0.read(|world| i64::try_from(world.nodes.len()).unwrap_or(i64::MAX)));
        let help = "Nodes that are known";
        let metric = encoder.encode_descriptor("tholepin_operator_nodes", help, None, MetricType::Gauge)?;
        nodes.encode(metric)
    }
}
