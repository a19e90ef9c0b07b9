//! Metrics of resource claims, by name.
//!
//! In: events, from the other modules. Out: a registry. Never: a label with a claim's or a device's name.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::metrics::{Labels, result};

/// The metrics. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    prepared: Family<Labels, Counter>,
    unprepared: Family<Labels, Counter>,
    slices_written: Family<Labels, Counter>,
}

impl Metrics {
    /// Registers the metrics in `registry`, with both results from the start.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let all = registry.sub_registry_with_prefix("tholepin_device_plugin_dra");
        for (name, help, family) in [
            ("prepared", "Claims the kubelet asked to prepare, by result", &metrics.prepared),
            ("unprepared", "Claims the kubelet asked to unprepare, by result", &metrics.unprepared),
            ("slices_written", "Writes and removals of ResourceSlices, by result", &metrics.slices_written),
        ] {
            all.register(name, help, family.clone());
            for good in [true, false] {
                drop(family.get_or_create(&labels(good)));
            }
        }
        metrics
    }

    /// The kubelet asked to prepare a claim.
    pub fn prepared(&self, done: bool) {
        self.prepared.get_or_create(&labels(done)).inc();
    }

    /// The kubelet asked to give a claim back.
    pub fn unprepared(&self, done: bool) {
        self.unprepared.get_or_create(&labels(done)).inc();
    }

    /// A slice was written or removed, or could not be.
    pub fn slice_written(&self, done: bool) {
        self.slices_written.get_or_create(&labels(done)).inc();
    }
}

fn labels(good: bool) -> Labels {
    vec![("result", result(good).to_owned())]
}
