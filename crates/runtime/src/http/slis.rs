//! The results of health checks as metrics, which Kubernetes' components serve at `/metrics/slis`.
//!
//! In: results of checks. Out: a registry. Never: a check of its own. Source: component-base 1.36
//! `metrics/prometheus/slis`.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CheckLabels {
    name: String,
    r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    name: String,
    r#type: &'static str,
    status: &'static str,
}

/// The metrics.
pub(super) struct Slis {
    registry: Registry,
    last: Family<CheckLabels, Gauge>,
    all: Family<ResultLabels, Counter>,
}

impl Default for Slis {
    fn default() -> Self {
        let (mut registry, last, all) = (Registry::default(), Family::default(), Family::default());
        let help = "[STABLE] This metric records the result of a single healthcheck";
        registry.register("kubernetes_healthcheck", help, Family::clone(&last));
        let help = "[STABLE] This metric records the results of all healthcheck";
        registry.register("kubernetes_healthchecks", help, Family::clone(&all));
        Self { registry, last, all }
    }
}

impl Slis {
    /// Counts the result of a check of a probe.
    pub(super) fn observe(&self, name: &str, probe: &'static str, passed: bool) {
        let last = CheckLabels { name: name.to_owned(), r#type: probe };
        self.last.get_or_create(&last).set(i64::from(passed));
        let status = if passed { "success" } else { "error" };
        self.all.get_or_create(&ResultLabels { name: name.to_owned(), r#type: probe, status }).inc();
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }
}
