//! Every metric of the device plugin, by name; those of resource claims are in [`dra::metrics`](crate::dra::metrics).
//!
//! In: events, from the other modules. Out: a registry. Never: a label whose values come from outside, except for names
//! of configured resources.

use std::collections::BTreeMap;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use runtime::specimen;

use crate::inventory::Resource;

/// Labels as (name, value) pairs; each family uses one fixed set of names.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// The metrics. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    devices: Family<Labels, Gauge>,
    health_changes: Family<Labels, Counter>,
    look_failures: Family<Labels, Counter>,
    registrations: Family<Labels, Counter>,
    listening: Family<Labels, Gauge>,
    allocations: Family<Labels, Counter>,
    refusals: Family<Labels, Counter>,
    preferences: Family<Labels, Counter>,
    pre_starts: Family<Labels, Counter>,
    cdi_writes: Family<Labels, Counter>,
    reloads: Family<Labels, Counter>,
}

impl Metrics {
    /// Registers the metrics in `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let all = registry.sub_registry_with_prefix("tholepin_device_plugin");
        all.register(
            "devices",
            "Devices by NUMA zone (none for no locality) and health",
            metrics.devices.clone(),
        );
        let changes = "Devices that became healthy or unhealthy";
        all.register("health_changes", changes, metrics.health_changes.clone());
        let failures = "Scans for devices that failed; the last list stays";
        all.register("look_failures", failures, metrics.look_failures.clone());
        let registrations = "Registrations with the kubelet, by result";
        all.register("registrations", registrations, metrics.registrations.clone());
        let listening = "Whether the kubelet listens to the list of devices";
        all.register("listening", listening, metrics.listening.clone());
        all.register("allocations", "Allocations, by result", metrics.allocations.clone());
        let refusals = "Allocations that were refused, by reason";
        all.register("refusals", refusals, metrics.refusals.clone());
        let preferences = "Preferred allocations the kubelet asked for, by result";
        all.register("preferences", preferences, metrics.preferences.clone());
        let pre_starts = "Preparations of devices before a container starts, by result";
        all.register("pre_starts", pre_starts, metrics.pre_starts.clone());
        let writes = "Writes of the Container Device Interface file, by result";
        all.register("cdi_writes", writes, metrics.cdi_writes.clone());
        all.register("reloads", "Reads of a changed configuration, by result", metrics.reloads.clone());
        metrics
    }

    /// Sets the number of devices; `old` are those counted before.
    pub fn devices(&self, name: &str, old: &Resource, new: &Resource) {
        for (key, _) in counts(old) {
            self.devices.get_or_create(&device_labels(name, &key)).set(0);
        }
        for (key, count) in counts(new) {
            self.devices.get_or_create(&device_labels(name, &key)).set(count);
        }
    }

    /// A resource is no longer offered: its gauges go, its counters stay.
    pub fn ended(&self, name: &str, last: &Resource) {
        self.listening.remove(&resource_label(name));
        for (key, _) in counts(last) {
            self.devices.remove(&device_labels(name, &key));
        }
    }

    /// A device became healthy or unhealthy.
    pub fn health_changed(&self, resource: &str, healthy: bool) {
        let to = if healthy { "healthy" } else { "unhealthy" };
        self.health_changes.get_or_create(&labels_with(resource, "to", to)).inc();
    }

    /// A scan for devices failed.
    pub fn scan_failed(&self, resource: &str) {
        self.look_failures.get_or_create(&resource_label(resource)).inc();
    }

    /// The result of a registration: `registered`, `refused`, `ignored`, `lost`, `clash`.
    pub fn registration(&self, resource: &str, result: &str) {
        self.registrations.get_or_create(&labels_with(resource, "result", result)).inc();
    }

    /// Whether the kubelet listens to the list of devices.
    pub fn listening(&self, resource: &str, listens: bool) {
        self.listening.get_or_create(&resource_label(resource)).set(i64::from(listens));
    }

    /// An allocation; a refused one with the word of its reason.
    pub fn allocated(&self, resource: &str, refusal: Option<&str>) {
        self.allocations.get_or_create(&labels_with(resource, "result", result(refusal.is_none()))).inc();
        if let Some(reason) = refusal {
            self.refusals.get_or_create(&labels_with(resource, "reason", reason)).inc();
        }
    }

    /// The kubelet asked which devices to prefer.
    pub fn preferred(&self, resource: &str, answered: bool) {
        self.preferences.get_or_create(&labels_with(resource, "result", result(answered))).inc();
    }

    /// Devices were prepared for a container's start, or could not be.
    pub fn pre_started(&self, resource: &str, done: bool) {
        self.pre_starts.get_or_create(&labels_with(resource, "result", result(done))).inc();
    }

    /// The Container Device Interface file was written, or could not be.
    pub fn cdi_written(&self, resource: &str, done: bool) {
        self.cdi_writes.get_or_create(&labels_with(resource, "result", result(done))).inc();
    }

    /// The configuration was read again, or was wrong.
    pub fn reloaded(&self, done: bool) {
        self.reloads.get_or_create(&vec![("result", result(done).to_owned())]).inc();
    }
}

pub(crate) fn result(good: bool) -> &'static str {
    if good { "ok" } else { "error" }
}

fn resource_label(resource: &str) -> Labels {
    vec![("resource", resource.to_owned())]
}

fn labels_with(resource: &str, name: &'static str, value: &str) -> Labels {
    vec![("resource", resource.to_owned()), (name, value.to_owned())]
}

fn device_labels(resource: &str, (zone, healthy): &(String, bool)) -> Labels {
    let health = if *healthy { "healthy" } else { "unhealthy" };
    vec![("resource", resource.to_owned()), ("zone", zone.clone()), ("health", health.to_owned())]
}

/// Devices by zone and health; a device of two zones counts in both.
fn counts(resource: &Resource) -> BTreeMap<(String, bool), i64> {
    let mut counts = BTreeMap::new();
    for device in resource.devices.values() {
        let zones = device.hardware.zones.iter().map(ToString::to_string);
        let none = device.hardware.zones.is_empty().then(|| "none".to_owned());
        for zone in zones.chain(none) {
            *counts.entry((zone, device.is_healthy())).or_default() += 1;
        }
    }
    counts
}

/// All families of the process, each with a sample, for the documentation and its tests.
#[must_use]
pub fn specimen() -> Registry {
    let mut registry = Registry::default();
    specimen::process(&mut registry);
    let metrics = Metrics::register(&mut registry);
    let name = "example.com/nic";
    metrics.devices.get_or_create(&device_labels(name, &("0".to_owned(), true))).set(1);
    metrics.health_changed(name, true);
    metrics.scan_failed(name);
    metrics.registration(name, "registered");
    metrics.listening(name, true);
    metrics.allocated(name, Some("unhealthy"));
    metrics.preferred(name, true);
    metrics.pre_started(name, true);
    metrics.cdi_written(name, true);
    metrics.reloaded(true);
    drop(crate::dra::metrics::Metrics::register(&mut registry));
    registry
}
