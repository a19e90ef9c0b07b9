//! The metrics of the controllers, by name.
//!
//! In: reconciles, writes, conditions, the cluster state. Out: a registry. Never: a label whose values users choose.

use std::sync::Arc;
use std::time::Duration;

use api::numaresources::{operator, scheduler};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use objects::applier::Verb;
use runtime::specimen;

use super::Shared;
use crate::cluster_state::{ClusterState, Environment};
use crate::condition::AVAILABLE;
use crate::desired::Controller;

/// The controllers' metrics. Clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    reconciles: Family<ControllerLabel, Counter>,
    reconcile_seconds: Family<ControllerLabel, Histogram>,
    api_seconds: Family<ControllerLabel, Histogram>,
    errors: Family<ControllerLabel, Counter>,
    writes: Family<TwoLabels, Counter>,
    conditions: Family<TwoLabels, Gauge>,
}

type ControllerLabel = [(&'static str, &'static str); 1];
type TwoLabels = [(&'static str, String); 2];

/// Metrics of the cluster state, computed when they are read.
#[derive(Debug)]
pub(super) struct StateCollector(pub(super) Arc<Shared>);

impl Metrics {
    /// Metrics shown by `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        // 0.1 ms to 1.6 s: most reconciles find nothing to do. 1 ms to 33 s for the API server.
        let reconcile = || Histogram::new(exponential_buckets(0.000_1, 2.0, 15));
        let api = || Histogram::new(exponential_buckets(0.001, 2.0, 16));
        let metrics = Self {
            reconciles: Family::default(),
            reconcile_seconds: Family::new_with_constructor(reconcile),
            api_seconds: Family::new_with_constructor(api),
            errors: Family::default(),
            writes: Family::default(),
            conditions: Family::default(),
        };
        let all = registry.sub_registry_with_prefix("tholepin_operator");
        all.register("reconciles", "Reconciles of a controller", metrics.reconciles.clone());
        let help = "Time of a reconcile, without waiting for the API server";
        all.register_with_unit("reconcile", help, Unit::Seconds, metrics.reconcile_seconds.clone());
        let help = "Time spent waiting for the API server, of each reconcile with calls";
        all.register_with_unit("api", help, Unit::Seconds, metrics.api_seconds.clone());
        all.register("errors", "Failed actions of a controller", metrics.errors.clone());
        all.register("writes", "Writes to the API server", metrics.writes.clone());
        let help = "Conditions of the object that a controller works for (1: true, 0: not)";
        all.register("condition", help, metrics.conditions.clone());
        metrics
    }

    /// Counts a write.
    pub fn wrote(&self, kind: &str, verb: Verb) {
        let verb: &'static str = verb.into();
        self.writes.get_or_create(&[("kind", kind.to_owned()), ("verb", verb.to_owned())]).inc();
    }

    /// Counts a reconcile that took `all`, of which it waited `api` for the API server.
    pub(super) fn reconciled(&self, controller: Controller, all: Duration, api: Duration, errors: usize) {
        let label = [("controller", controller.name())];
        self.reconciles.get_or_create(&label).inc();
        self.reconcile_seconds.get_or_create(&label).observe(all.saturating_sub(api).as_secs_f64());
        if !api.is_zero() {
            self.api_seconds.get_or_create(&label).observe(api.as_secs_f64());
        }
        self.errors.get_or_create(&label).inc_by(u64::try_from(errors).unwrap_or(u64::MAX));
    }

    /// Shows the conditions of the object that a controller works for.
    pub(super) fn conditions(&self, controller: Controller, conditions: &[Condition]) {
        for condition in conditions {
            let labels = condition_labels(controller, &condition.type_);
            self.conditions.get_or_create(&labels).set(i64::from(condition.status == "True"));
        }
    }
}

fn condition_labels(controller: Controller, condition: &str) -> TwoLabels {
    [("controller", controller.name().to_owned()), ("condition", condition.to_owned())]
}

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

/// All families of the process, each with a sample, for the documentation and its tests; those of DeviceConfigs are
/// the `hardware` crate's.
///
/// # Errors
/// When no certificate can be made.
pub fn specimen() -> Result<Registry, runtime::tls::Error> {
    let mut registry = Registry::default();
    specimen::process(&mut registry);
    specimen::watches(&mut registry);
    specimen::events(&mut registry);
    let cluster = ClusterState::new(Environment::default());
    registry.register_collector(Box::new(StateCollector(Shared::new(cluster))));
    let metrics = Metrics::register(&mut registry);
    metrics.wrote("DaemonSet", Verb::Create);
    let controller = Controller::NumaResourcesOperator;
    metrics.reconciled(controller, Duration::from_millis(2), Duration::from_millis(1), 0);
    drop(metrics.conditions.get_or_create(&condition_labels(controller, AVAILABLE)));
    specimen::lease(&mut registry);
    specimen::certificate(&mut registry)?;
    Ok(registry)
}
