//! Metrics of DeviceConfigs.
//!
//! In: the cluster state at each scrape; reconciles and writes as they happen. Out: metrics. Never: a series of a
//! DeviceConfig that is gone.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::hardware::{DeviceConfig, keys};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::cluster_state::{Config, Environment};
use super::execute::Fault;
use super::plan::Action;
use super::shared::Shared;

/// Metrics of reconciles and writes.
#[derive(Clone, Debug)]
pub struct Metrics {
    rounds: Histogram,
    writes: Family<Write, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Write {
    what: &'static str,
    result: &'static str,
}

impl Metrics {
    /// Registers the metrics, and gauges for the DeviceConfigs of the cluster state.
    pub fn register(registry: &mut Registry, shared: &Arc<Shared>) -> Self {
        // 0.1 ms to 3.3 s.
        let rounds = Histogram::new(exponential_buckets(0.000_1, 2.0, 16));
        let metrics = Self { rounds, writes: Family::default() };
        let help = "Duration of a reconcile of a DeviceConfig, writes included";
        registry.register("tholepin_deviceconfig_round_seconds", help, metrics.rounds.clone());
        let help = "Writes for DeviceConfigs, by kind of object and result";
        registry.register("tholepin_deviceconfig_writes", help, metrics.writes.clone());
        registry.register_collector(Box::new(Gauges(Arc::clone(shared))));
        metrics
    }

    /// Counts a reconcile that took this long.
    pub fn round(&self, took: Duration) {
        self.rounds.observe(took.as_secs_f64());
    }

    /// Counts an action and its result.
    pub fn action(&self, action: &Action, fault: Option<&Fault>) {
        let what = match action {
            Action::Finalizer(_) => "finalizer",
            Action::Ensure(..) | Action::Remove(..) => "ground",
            Action::Apply(..) | Action::DeleteModule { .. } => "module",
            Action::Node(_) => "node",
            Action::Evict(..) => "eviction",
        };
        self.write(what, fault);
    }

    /// Counts a write of this kind (label `what`) and its result.
    pub fn write(&self, what: &'static str, fault: Option<&Fault>) {
        let result = match fault {
            None => "done",
            Some(Fault::Stale | Fault::Later(_)) => "postponed",
            Some(Fault::Failed { .. }) => "failed",
        };
        self.writes.get_or_create(&Write { what, result }).inc();
    }
}

/// Gauges of all DeviceConfigs, read from the cluster state at each scrape.
#[derive(Debug)]
struct Gauges(Arc<Shared>);

/// A value with its labels.
type Sample = (Vec<(&'static str, String)>, i64);

/// Name and help of a gauge, and its samples for a DeviceConfig.
type Gauge = (&'static str, &'static str, fn(&Config) -> Vec<Sample>);

const GAUGES: [Gauge; 3] = [
    ("tholepin_deviceconfig_nodes", "Nodes of a DeviceConfig, by state; one node can be in several", nodes),
    (
        "tholepin_deviceconfig_ready",
        "1 while all nodes of a DeviceConfig have what it asks for, else 0",
        |config| vec![(labels(config), condition(config, keys::READY))],
    ),
    (
        "tholepin_deviceconfig_failed",
        "1 while the condition Errored of a DeviceConfig is true, else 0",
        |config| vec![(labels(config), condition(config, keys::ERRORED))],
    ),
];

fn labels(config: &Config) -> Vec<(&'static str, String)> {
    let id = config.id();
    vec![("namespace", id.namespace), ("name", id.name)]
}

/// 1 if a condition is true, else 0.
fn condition(config: &Config, name: &str) -> i64 {
    let conditions = &config.object.status.conditions;
    i64::from(conditions.iter().any(|one| one.type_ == name && one.status == "True"))
}

fn nodes(config: &Config) -> Vec<Sample> {
    let counts = config.object.status.nodes.unwrap_or_default();
    let counts = [
        ("matching", counts.matching),
        ("claimed", counts.claimed),
        ("desired", counts.desired),
        ("available", counts.available),
        ("ready", counts.ready),
        ("updated", counts.updated),
        ("unsupported", counts.unsupported),
        ("maintenance", counts.maintenance),
        ("waiting", counts.waiting),
    ];
    let labels_of = |state: &str| [labels(config), vec![("state", state.to_owned())]].concat();
    counts.map(|(state, count)| (labels_of(state), i64::from(count))).into()
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        // The sample operator's metric has the name alone: 1 if any DeviceConfig of this name failed.
        let mut failed = BTreeMap::<String, i64>::new();
        let samples = self.0.read(|cluster| {
            for (id, config) in &cluster.configs {
                let name = failed.entry(id.name.clone()).or_default();
                *name |= condition(config, keys::ERRORED);
            }
            GAUGES.map(|(_, _, samples)| cluster.configs.values().flat_map(samples).collect::<Vec<Sample>>())
        });
        if failed.is_empty() {
            return Ok(());
        }
        let mut gauge = |name: &str, help: &str, samples: Vec<Sample>| -> Result<(), fmt::Error> {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, value) in samples {
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
            Ok(())
        };
        for ((name, help, _), samples) in GAUGES.into_iter().zip(samples) {
            gauge(name, help, samples)?;
        }
        let help = "1 while the condition Errored of a DeviceConfig of this name is true, else 0";
        let samples = failed.into_iter().map(|(name, failed)| (vec![("device_config", name)], failed));
        gauge("he_sample_operator_reconciliation_failed", help, samples.collect())
    }
}

/// All families of this controller, each with a sample, for the documentation and its tests; those of the process are
/// the operator's.
#[must_use]
pub fn specimen() -> Registry {
    let mut registry = Registry::default();
    let shared = Shared::new(Environment::default());
    let metrics = Metrics::register(&mut registry, &shared);
    metrics.round(Duration::from_millis(2));
    metrics.write("status", None);
    shared.update(|cluster| cluster.put_config(Config::of(DeviceConfig::default())));
    registry
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;
    use crate::status::Failure;

    #[test]
    fn postponed_writes_are_not_failures() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry, &Shared::new(Environment::default()));
        let failed = Fault::Failed { failure: Failure { module: false, text: "no".to_owned() }, soon: false };
        for fault in [None, Some(&Fault::Stale), Some(&Fault::Later(Duration::ZERO)), Some(&failed)] {
            metrics.action(&Action::Finalizer(true), fault);
            metrics.write("status", fault);
        }
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for what in ["finalizer", "status"] {
            for (result, count) in [("done", 1), ("postponed", 2), ("failed", 1)] {
                let line = format!(
                    "tholepin_deviceconfig_writes_total{{what=\"{what}\",result=\"{result}\"}} {count}\n"
                );
                assert!(text.contains(&line), "{line} not in {text}");
            }
        }
    }
}
