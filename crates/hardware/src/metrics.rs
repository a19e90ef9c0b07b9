//! Metrics.
//!
//! In: the cluster state at each scrape, rounds and writes as they happen. Out: metrics. Never: a series of a
//! DeviceConfig that is gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::hardware::keys;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::cluster_state::Config;
use super::execute::Fault;
use super::plan::Action;
use super::shared::Shared;

/// Counters of the process.
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
    /// Metrics shown by `registry`.
    pub fn register(registry: &mut Registry, shared: &Arc<Shared>) -> Self {
        // 0.1 ms to 3.3 s.
        let rounds = Histogram::new(exponential_buckets(0.000_1, 2.0, 16));
        let metrics = Self { rounds, writes: Family::default() };
        registry.register(
            "tholepin_deviceconfig_round_seconds",
            "Time of one look at a DeviceConfig, with what was written for it",
            metrics.rounds.clone(),
        );
        registry.register(
            "tholepin_deviceconfig_writes",
            "What was written for DeviceConfigs",
            metrics.writes.clone(),
        );
        registry.register_collector(Box::new(Seen(Arc::clone(shared))));
        metrics
    }

    /// A look at one took so long.
    pub fn round(&self, took: Duration) {
        self.rounds.observe(took.as_secs_f64());
    }

    /// Something was written, or was not.
    pub fn wrote(&self, one: &Action, fault: Option<&Fault>) {
        let what = match one {
            Action::Finalizer(_) => "finalizer",
            Action::Ensure(..) | Action::Remove(..) => "ground",
            Action::Apply(..) | Action::DeleteModule { .. } => "module",
            Action::Node(_) => "node",
            Action::Evict { .. } => "eviction",
        };
        self.count(what, fault);
    }

    /// A status was written, or was not.
    pub fn status(&self, fault: Option<&Fault>) {
        self.count("status", fault);
    }

    fn count(&self, what: &'static str, fault: Option<&Fault>) {
        let result = match fault {
            None => "done",
            Some(Fault::Stale | Fault::Later(_)) => "postponed",
            Some(Fault::Failed { .. }) => "failed",
        };
        self.writes.get_or_create(&Write { what, result }).inc();
    }
}

#[derive(Debug)]
struct Seen(Arc<Shared>);

/// What is shown of a DeviceConfig.
struct Shown {
    namespace: String,
    name: String,
    nodes: [(&'static str, i32); 9],
    ready: bool,
    failed: bool,
}

impl Shown {
    fn of(config: &Config) -> Self {
        let status = &config.object.status;
        let counts = status.nodes.unwrap_or_default();
        let holds =
            |name: &str| status.conditions.iter().any(|one| one.type_ == name && one.status == "True");
        let id = config.id();
        Self {
            namespace: id.namespace,
            name: id.name,
            nodes: [
                ("matching", counts.matching),
                ("claimed", counts.claimed),
                ("desired", counts.desired),
                ("available", counts.available),
                ("ready", counts.ready),
                ("updated", counts.updated),
                ("unsupported", counts.unsupported),
                ("maintenance", counts.maintenance),
                ("waiting", counts.waiting),
            ],
            ready: holds(keys::READY),
            failed: holds(keys::ERRORED),
        }
    }
}

impl Collector for Seen {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let shown: Vec<Shown> = self.0.read(|cluster| cluster.configs.values().map(Shown::of).collect());
        if shown.is_empty() {
            return Ok(());
        }
        let mut gauge = |name: &str, help: &str| -> Result<_, std::fmt::Error> {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for one in &shown {
                let labels = [("namespace", one.namespace.as_str()), ("name", one.name.as_str())];
                match name {
                    "tholepin_deviceconfig_nodes" => {
                        for (state, count) in one.nodes {
                            let labels = [labels[0], labels[1], ("state", state)];
                            ConstGauge::new(i64::from(count)).encode(family.encode_family(&labels)?)?;
                        }
                    }
                    "tholepin_deviceconfig_ready" => {
                        ConstGauge::new(i64::from(one.ready)).encode(family.encode_family(&labels)?)?;
                    }
                    _ => ConstGauge::new(i64::from(one.failed)).encode(family.encode_family(&labels)?)?,
                }
            }
            Ok(())
        };
        gauge(
            "tholepin_deviceconfig_nodes",
            "Nodes of a DeviceConfig, by state; one node can be in several",
        )?;
        gauge(
            "tholepin_deviceconfig_ready",
            "1 while all nodes of a DeviceConfig have what it asks for, else 0",
        )?;
        gauge("tholepin_deviceconfig_failed", "1 while something is wrong with a DeviceConfig, else 0")?;
        // The sample operator's metric has the name alone: of several of one name, whether any failed.
        let mut failed: BTreeMap<&str, bool> = BTreeMap::new();
        for one in &shown {
            *failed.entry(&one.name).or_default() |= one.failed;
        }
        let name = "he_sample_operator_reconciliation_failed";
        let help = "1 while something is wrong with a DeviceConfig of this name, else 0";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (name, failed) in failed {
            let labels = [("device_config", name)];
            ConstGauge::new(i64::from(failed)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;
    use crate::cluster_state::Environment;
    use crate::status::Failure;

    #[test]
    fn what_is_put_off_is_no_failure() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry, &Shared::new(Environment::default()));
        let failed = Fault::Failed { failure: Failure { module: false, text: "no".to_owned() }, soon: false };
        for fault in [None, Some(&Fault::Stale), Some(&Fault::Later(Duration::ZERO)), Some(&failed)] {
            metrics.wrote(&Action::Finalizer(true), fault);
            metrics.status(fault);
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
