//! The metrics of the controllers, by name.
//!
//! In: reconciles, writes and conditions. Out: a registry. Never: a label whose values users choose.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use objects::applier::Verb;

use crate::desired::Controller;

/// The controllers' metrics. Clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    reconciles: Family<ControllerLabel, Counter>,
    reconcile_seconds: Family<ControllerLabel, Histogram>,
    api_seconds: Family<ControllerLabel, Histogram>,
    errors: Family<ControllerLabel, Counter>,
    writes: Family<Write, Counter>,
    conditions: Family<ConditionLabel, Gauge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabel {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Write {
    kind: String,
    verb: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConditionLabel {
    controller: &'static str,
    condition: String,
}

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
        self.writes.get_or_create(&Write { kind: kind.to_owned(), verb: verb.into() }).inc();
    }

    /// Counts a reconcile that took `all`, of which it waited `api` for the API server.
    pub(super) fn reconciled(&self, controller: Controller, all: Duration, api: Duration, errors: usize) {
        let label = ControllerLabel { controller: controller.name() };
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
            let label = ConditionLabel { controller: controller.name(), condition: condition.type_.clone() };
            self.conditions.get_or_create(&label).set(i64::from(condition.status == "True"));
        }
    }
}
